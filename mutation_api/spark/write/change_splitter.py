"""ChangeSplitter: cuts the changes of a task into pieces, each for one writing task.

Pieces travel through Spark's shuffle as bytes, an Arrow stream each. So Spark moves a few large values and
does not convert every row from Arrow to its own form and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.change_set.address import ChangeAddresser, with_names_once
from mutation_api.change_set.split import ADDRESSED_ROWS_MAX, joined_batches, split_by_writer
from mutation_api.worker.idle_memory import give_back

__all__ = ["CHANGES", "SPLIT_DDL", "TASK", "ChangeSplitter", "batches_in"]

TASK = "task"
CHANGES = "changes"
SPLIT_DDL = f"{TASK} int, {CHANGES} binary"


@dataclass(frozen=True)
class ChangeSplitter:
    """Addresses changes, and splits them by the task that writes their (partition, bucket).

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
        addressed = self.addresser(joined_batches(batches, self.memory_bytes, ADDRESSED_ROWS_MAX))
        try:
            for rows in joined_batches(addressed, self.memory_bytes):
                yield from self._split(rows)
        finally:
            give_back()

    def _split(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for task, piece in split_by_writer(with_names_once(rows), self.tasks):
            yield pa.record_batch(
                [pa.array([task], pa.int32()), pa.array([_stream_of(with_names_once(piece))])],
                [TASK, CHANGES],
            )


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
