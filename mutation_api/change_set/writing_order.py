"""The order in which addressed changes are written, and how batches in this order go to a coordinator."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.bucket_codec import ranks_in_bucket
from mutation_api.acid.row_id import RowIdArrays
from mutation_api.change_set.address import (
    ADDRESS_COLUMNS,
    BUCKET,
    BUCKET_PROPERTY,
    OPERATION,
    PARTITION,
    ROW_NUMBER,
    TXN,
    numbers_of_partitions,
)
from mutation_api.worker.batch_sorter import KeyParts
from mutation_api.worker.coordinator import MutatorCoordinator

__all__ = ["WritingOrder", "write_batch"]


class WritingOrder:
    """The sort key for a coordinator's order of addressed changes: by group, then by ROW__ID.

    Partitions are numbered by first occurrence, since groups may come in any order. Inserts carry the
    transaction's own id, which is greater than any other, so they come last in their group.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, batch: pa.RecordBatch) -> KeyParts:
        """Partition, bucket, original transaction, bucket property and row id of n addressed changes."""
        # Rows of one transaction and bucket may differ in the property: it holds the statement's number.
        return [
            numbers_of_partitions(batch, lambda name: self._numbers.setdefault(name, len(self._numbers))),
            batch.column(BUCKET).to_numpy().astype(np.int64),
            batch.column(TXN).to_numpy(),
            ranks_in_bucket(batch.column(BUCKET_PROPERTY).to_numpy()),
            batch.column(ROW_NUMBER).to_numpy(),
        ]


def write_batch(coordinator: MutatorCoordinator, batch: pa.RecordBatch) -> None:
    """Cut a batch of addressed changes at the borders of its groups and write each piece.

    Args:
        coordinator: the task's coordinator.
        batch: ADDRESS_COLUMNS and the data columns, in the order of WritingOrder.
    """
    if not batch.num_rows:
        return
    address = {name: batch.column(name) for name in ADDRESS_COLUMNS}
    partitions, buckets, codes = address[PARTITION], address[BUCKET], address[OPERATION].to_numpy()
    row_ids = RowIdArrays(*(address[name].to_numpy() for name in (TXN, BUCKET_PROPERTY, ROW_NUMBER)))
    rows = _rows(batch)
    bounds = _group_bounds(partitions, buckets)
    for start, end in itertools.pairwise(bounds):
        coordinator.write_events(
            partitions[start].as_py(),
            buckets[start].as_py(),
            codes[start:end],
            row_ids.take(slice(start, end)),
            None if rows is None else rows.slice(start, end - start),
        )


def _rows(batch: pa.RecordBatch) -> pa.StructArray | None:
    names = batch.schema.names[len(ADDRESS_COLUMNS) :]
    if not names:
        return None
    return pa.StructArray.from_arrays([batch.column(n) for n in names], names=names)


def _group_bounds(partitions: pa.Array, buckets: pa.Array) -> list[int]:
    """The first index of each group, and the number of rows."""
    changes: NDArray[np.bool_] = np.zeros(len(buckets), np.bool_)
    changes[0] = True
    changes[1:] = np.diff(buckets.to_numpy()) != 0
    changes[1:] |= np.diff(partitions.dictionary_encode().indices.to_numpy()) != 0
    return [*np.flatnonzero(changes).tolist(), len(buckets)]
