"""InsertFiles: the bucket ids of new rows in tables without buckets, where they number the files."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.event import Operation
from mutation_api.change_set.address import BUCKET, OPERATION, numbers_of_partitions
from mutation_api.change_set.layout import writer_count
from mutation_api.table.acid_table import AcidTable

__all__ = ["ROWS_PER_INSERT_FILE", "InsertFiles"]

ROWS_PER_INSERT_FILE = 100_000
"""New rows of a partition that go to one file before the next is begun, unless the user says how many files.

With fewer rows the cost of a file outweighs what another thread saves.
"""


class InsertFiles:
    """Spreads the inserts of each partition over several files. Threads may share it.

    Spark's engine spreads them by a hash of their content, because it may evaluate rows again. Here each row
    is seen once, so they are counted.

    Args:
        files: number of files for the inserts of a partition; 0 for a bucketed table.
        rows_per_file: inserts of a partition that go to one file before the next one is used. After the last
            file follows the first.
    """

    def __init__(self, files: int, rows_per_file: int) -> None:
        self._files = files
        self._rows_per_file = rows_per_file
        self._mutex = threading.Lock()
        self._numbers: dict[str, int] = {}
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)

    @classmethod
    def of_table(cls, table: AcidTable, insert_files: int | None, threads: int) -> InsertFiles:
        """As the user says; else one file for each ROWS_PER_INSERT_FILE inserts, and no more than threads.

        Raises:
            ConfigurationError: see :func:`mutation_api.change_set.layout.writer_count`.
        """
        files = writer_count(table, threads, insert_files)
        return cls(files, 1 if insert_files else ROWS_PER_INSERT_FILE)

    def spread(self, addressed: pa.RecordBatch) -> pa.RecordBatch:
        """The same addressed changes, each insert with the number of its file."""
        if self._files <= 1:
            return addressed
        inserts = addressed.column(OPERATION).to_numpy() == Operation.INSERT
        if not inserts.any():
            return addressed
        with self._mutex:
            partitions = numbers_of_partitions(addressed, self._number)[inserts]
            positions = self._positions(partitions)
        buckets = addressed.column(BUCKET).to_numpy().copy()
        buckets[inserts] = positions // self._rows_per_file % self._files
        at = addressed.schema.get_field_index(BUCKET)
        return addressed.set_column(at, addressed.schema.field(at), pa.array(buckets, pa.int32()))

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def _positions(self, partitions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The running number of each insert within its partition, from 0."""
        self._counts = np.pad(self._counts, (0, len(self._numbers) - len(self._counts)))
        order = np.argsort(partitions, kind="stable")
        counts = np.bincount(partitions, minlength=len(self._counts))
        firsts = np.cumsum(counts) - counts
        positions = np.empty(len(partitions), np.int64)
        positions[order] = np.arange(len(partitions)) - np.repeat(firsts - self._counts, counts)
        self._counts = self._counts + counts
        return positions
