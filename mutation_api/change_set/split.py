"""Joins changes to batches that are worth their fixed costs, and splits them by their writers."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.change_set.address import BUCKET, numbers_of_partitions
from mutation_api.errors import RecordLayoutError

__all__ = ["ADDRESSED_ROWS_MAX", "joined_batches", "split_by_writer"]

ADDRESSED_ROWS_MAX = 1 << 16
"""Rows to address at once. Engines pass few rows at a time, and for few rows the fixed costs dominate."""


def split_by_writer(rows: pa.RecordBatch, writers: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The number of each writer that gets some of the changes, and copies of these.

    All changes of a (partition, bucket) go to one writer. The buckets of a partition go to consecutive
    writers, so a table of few groups keeps all of them busy.

    Args:
        rows: addressed changes.
        writers: number of writers.
    """
    numbers = _writers(rows, writers)
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(writers + 1))
    for writer in np.flatnonzero(np.diff(starts)).tolist():
        yield writer, rows.take(pa.array(order[starts[writer] : starts[writer + 1]]))


def _writers(rows: pa.RecordBatch, writers: int) -> NDArray[np.integer]:
    """The writer of each change. It depends on partition and bucket only."""
    first = numbers_of_partitions(rows, lambda name: zlib.crc32(name.encode()))
    numbers: NDArray[np.int64] = (first + rows.column(BUCKET).to_numpy()) % writers
    # numpy sorts numbers of 16 bits in linear time.
    return numbers.astype(np.uint16) if writers <= 1 << 16 else numbers


def joined_batches(
    batches: Iterable[pa.RecordBatch], bytes_max: int, rows_max: int = sys.maxsize
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches as large as allowed; a batch that is larger stays unchanged.

    Raises:
        RecordLayoutError: arrays of the rows are not sound.
    """
    pending: list[pa.RecordBatch] = []
    byte_count = row_count = 0
    for batch in batches:
        byte_count += batch.nbytes
        row_count += batch.num_rows
        if pending and (byte_count > bytes_max or row_count > rows_max):
            yield _joined(pending)
            pending, byte_count, row_count = [], batch.nbytes, batch.num_rows
        pending.append(batch)
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    try:
        return pa.concat_batches(batches)
    except pa.ArrowException as error:  # as of fixed_size_list<null>, sliced, that pandas hands over
        raise RecordLayoutError(
            f"the rows cannot be copied, since an array of theirs is not sound ({error}); its columns are "
            f"{', '.join(f'{each.name} {each.type}' for each in batches[0].schema)}. Give them other types, "
            "or make them anew with pyarrow.Table.from_pylist"
        ) from error
