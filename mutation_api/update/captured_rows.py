"""Rows that an extraction has read, in a Parquet file until they are applied; memory holds some chunks.

The source's transaction ends when all rows are in the file, so it does not last as long as the merge.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from mutation_api.errors import InputError
from mutation_api.inputs.kept_rows import KeptRows
from mutation_api.inputs.source import OPERATION, POSITION
from mutation_api.storage.location import Location

__all__ = ["POSITION_FIELDS", "RowSpool"]

PART_ROWS, PART_BYTES = 100_000, 16 << 20
"""Chunks are joined up to one of these to a part, a row group of the file."""

POSITION_FIELDS = ("sequence",)
"""Parts of an operation's position: the last number of its key in the log, or the row's number in a copy."""


class RowSpool:
    """The file of one extraction, in this machine's folder for temporary files; removed by :meth:`close`."""

    def __init__(self) -> None:
        """Make the folder. Raises InputError."""
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="hive-mutate-"))
        except OSError as error:
            raise InputError(f"rows cannot be kept until they are applied: {error}") from error
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._sizes: list[int] = []
        self.row_count = 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close."""
        self.close()

    def add(
        self, operations: Sequence[str], sequences: Sequence[int], columns: Mapping[str, pa.Array]
    ) -> None:
        """Add operations, one for each row of the columns. Raises InputError: the file cannot be written."""
        if not operations:
            return
        position = pa.StructArray.from_arrays([pa.array(sequences, pa.int64())], POSITION_FIELDS)
        batch = pa.table({OPERATION: pa.array(operations, pa.string()), POSITION: position, **columns})
        self._waiting.append(batch)
        self.row_count += batch.num_rows
        if (
            sum(each.num_rows for each in self._waiting) >= PART_ROWS
            or sum(each.nbytes for each in self._waiting) >= PART_BYTES
        ):
            self._write_waiting()

    def written(self) -> KeptRows:
        """All operations; none can be added after it. Raises InputError."""
        self._write_waiting()
        if self._writer is not None:
            with self._named_errors():
                self._writer.close()
        return KeptRows(Location.given(str(self._path)), tuple(self._sizes), POSITION_FIELDS)

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        part = pa.concat_tables(self._waiting)
        self._waiting = []
        with self._named_errors():
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, part.schema)
            self._writer.write_table(part)
        self._sizes.append(part.nbytes)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"{self._path}: rows cannot be kept until they are applied: {error}") from error

    def close(self) -> None:
        """Remove the file. May be called twice."""
        self._remove()

    @property
    def _path(self) -> Path:
        return self._folder / "rows.parquet"
