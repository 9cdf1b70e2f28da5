"""RecordIdentifier: the ROW__ID of a row, and its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["ROW_ID_COLUMN", "RecordIdentifier", "RowIdArrays"]

ROW_ID_COLUMN = "ROW__ID"
"""Name of the ROW__ID column in snapshots and change sets."""


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
    """ROW__IDs of n records, three integer arrays of shape (n,); of inserts they mean nothing."""

    original_txns: npt.NDArray[np.integer]
    buckets: npt.NDArray[np.integer]
    row_ids: npt.NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.row_ids)

    def take(self, where: npt.NDArray[np.bool_] | slice) -> RowIdArrays:
        """Those of some records: of a slice, or where a mask is true."""
        return RowIdArrays(self.original_txns[where], self.buckets[where], self.row_ids[where])
