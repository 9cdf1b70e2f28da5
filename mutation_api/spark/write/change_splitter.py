"""ChangeSplitter: cuts the changes of a task into pieces, each for one writing task.

Pieces travel through Spark's shuffle as bytes, an Arrow stream each. So Spark moves a few large values and
does not convert every row from Arrow to its own form and back.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.change_set.address import BUCKET, ChangeAddresser, numbers_of_partitions, with_names_once
from mutation_api.worker.idle_memory import give_back

__all__ = ["CHANGES", "SPLIT_DDL", "TASK", "ChangeSplitter", "batches_in"]

TASK = "task"
CHANGES = "changes"
ADDRESSED_ROWS_MAX = 1 << 16
"""Rows to address at once. Spark passes few rows at a time, and for few rows the fixed costs dominate."""
SPLIT_DDL = f"{TASK} int, {CHANGES} binary"


@dataclass(frozen=True)
class ChangeSplitter:
    """Addresses changes, and splits them by the task that writes their (partition, bucket).

    The buckets of a partition go to consecutive tasks, so a table of few groups keeps all tasks busy.

    Args:
        addresser: gives each change its address.
        tasks: number of writing tasks.
        memory_bytes: size of changes that are split at once; meanwhile there are copies of them. Many tasks
            and little memory make small pieces.
    """

    addresser: ChangeAddresser
    tasks: int
    memory_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield pairs of a task's number and a piece for it.

        Raises: as :meth:`mutation_api.change_set.classify.ChangeClassifier.classify`.
        """
        addressed = self.addresser(_joined(batches, self.memory_bytes, ADDRESSED_ROWS_MAX))
        try:
            for rows in _joined(addressed, self.memory_bytes):
                yield from self._split(rows)
        finally:
            give_back()

    def _split(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = with_names_once(rows)
        tasks = self._tasks(rows)
        order = np.argsort(tasks, kind="stable")
        starts = np.searchsorted(tasks[order], np.arange(self.tasks + 1))
        for task in np.flatnonzero(np.diff(starts)).tolist():
            piece = rows.take(pa.array(order[starts[task] : starts[task + 1]]))
            yield pa.record_batch(
                [pa.array([task], pa.int32()), pa.array([_stream_of(with_names_once(piece))])],
                [TASK, CHANGES],
            )

    def _tasks(self, rows: pa.RecordBatch) -> NDArray[np.integer]:
        """The task of each change. It depends on partition and bucket only."""
        first_tasks = numbers_of_partitions(rows, lambda name: zlib.crc32(name.encode()))
        tasks: NDArray[np.int64] = (first_tasks + rows.column(BUCKET).to_numpy()) % self.tasks
        # numpy sorts numbers of 16 bits in linear time.
        return tasks.astype(np.uint16) if self.tasks <= 1 << 16 else tasks


def _joined(
    batches: Iterable[pa.RecordBatch], bytes_max: int, rows_max: int = sys.maxsize
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches as large as allowed; a batch that is larger stays unchanged."""
    pending: list[pa.RecordBatch] = []
    byte_count = row_count = 0
    for batch in batches:
        byte_count += batch.nbytes
        row_count += batch.num_rows
        if pending and (byte_count > bytes_max or row_count > rows_max):
            yield pa.concat_batches(pending)
            pending, byte_count, row_count = [], batch.nbytes, batch.num_rows
        pending.append(batch)
    if pending:
        yield pa.concat_batches(pending)


def batches_in(piece: bytes) -> Iterator[pa.RecordBatch]:
    """The changes in a piece."""
    with pa.ipc.open_stream(pa.py_buffer(piece)) as stream:
        yield from stream


def _stream_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found
