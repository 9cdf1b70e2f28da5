"""Batches of a size that is worth their fixed costs and fits into memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from mutation_api.change_set.split import ADDRESSED_ROWS_MAX, joined_batches

__all__ = ["BATCH_PART", "looked_ahead", "sized"]

BATCH_PART = 32
"""One part in BATCH_PART of the memory is for the batches that are addressed: there are copies."""


def looked_ahead(batches: Iterator[pa.RecordBatch], rows: int) -> tuple[Iterator[pa.RecordBatch], bool]:
    """The same batches, and whether they have fewer rows than these; so many rows are read for it."""
    read: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        read.append(batch)
        count += batch.num_rows
        if count >= rows:
            return itertools.chain(read, batches), False
    return iter(read), True


def sized(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most ADDRESSED_ROWS_MAX rows, or fewer if they have many bytes."""
    return joined_batches(_slices(batches, bytes_max), bytes_max, ADDRESSED_ROWS_MAX)


def _slices(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        fitting = bytes_max * batch.num_rows // max(1, batch.nbytes)
        rows = min(ADDRESSED_ROWS_MAX, max(1, fitting))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)
