"""RecordIdentifier: the ROW__ID of a row, and its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTITION_FIELD", "ROW_ID_COLUMN", "RecordIdentifier", "RowIdArrays"]

ROW_ID_COLUMN = "ROW__ID"
"""Name of the ROW__ID column in snapshots and change sets."""

PARTITION_FIELD = "partition"
"""Fourth field of ROW__ID in partitioned tables: the (escaped) name of the row's partition."""


class RecordIdentifier(NamedTuple):
    """ROW__ID of a row; tuples compare in the order that ACID files must have.

    ``bucket`` is the plain bucket id in v1, the bucket property in v2 (see bucket_codec). In v1 an identifier
    is unique within one partition only. ``original_txn`` is a write id in v2.
    """

    original_txn: int
    bucket: int
    row_id: int


@dataclass(frozen=True)
class RowIdArrays:
    """ROW__IDs of n records: three integer arrays of shape (n,). Values of inserts are meaningless."""

    original_txns: NDArray[np.integer]
    buckets: NDArray[np.integer]
    row_ids: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.row_ids)

    def take(self, where: NDArray[np.bool_ | np.integer] | slice) -> RowIdArrays:
        """The ROW__IDs of some records, chosen by a slice, by indices or by a mask."""
        return RowIdArrays(self.original_txns[where], self.buckets[where], self.row_ids[where])

    def at(self, index: int) -> RecordIdentifier:
        """The ROW__ID of one record."""
        return RecordIdentifier(
            int(self.original_txns[index]), int(self.buckets[index]), int(self.row_ids[index])
        )

    def ascend(self) -> NDArray[np.bool_]:
        """Whether each ROW__ID but the first exceeds its predecessor, in the order of RecordIdentifier.

        Shape (n - 1,).
        """
        txns, buckets, numbers = self.original_txns, self.buckets, self.row_ids
        later = (buckets[1:] > buckets[:-1]) | ((buckets[1:] == buckets[:-1]) & (numbers[1:] > numbers[:-1]))
        ascends: NDArray[np.bool_] = (txns[1:] > txns[:-1]) | ((txns[1:] == txns[:-1]) & later)
        return ascends
