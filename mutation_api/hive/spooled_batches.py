"""SpooledBatches: batches that wait in memory up to a bound, and beyond it in a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from mutation_api.errors import DeltaWriteError

__all__ = ["MemoryShare", "SpooledBatches"]


class MemoryShare:
    """Memory that several collections share.

    Args:
        byte_count: its size.
    """

    def __init__(self, byte_count: int) -> None:
        self._left = byte_count

    def took(self, byte_count: int) -> bool:
        """Take so many bytes if they are left; whether they were."""
        fits = byte_count <= self._left
        self._left -= byte_count if fits else 0
        return fits


class SpooledBatches:
    """Batches of one schema, in the order in which they were added; they can be read any number of times.

    Args:
        schema: their schema.
        share: the memory for them. What does not fit goes to a file in the directory for temporary files,
            which has no name and vanishes with the process.
    """

    def __init__(self, schema: pa.Schema, share: MemoryShare) -> None:
        self.schema = schema
        self._share = share
        self._held: list[pa.RecordBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchWriter | None = None
        self.row_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Raises DeltaWriteError if the temporary file could not be written."""
        self.row_count += batch.num_rows
        if self._file is None and self._share.took(batch.nbytes):
            self._held.append(batch)
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="hive-changes-")  # noqa: SIM115
                self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), self.schema)
            assert self._writer is not None
            self._writer.write_batch(batch)
        except OSError as error:
            raise DeltaWriteError(f"changes could not be written to a temporary file: {error}") from error

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches. Raises DeltaWriteError if the temporary file could not be completed or read."""
        yield from self._held
        if self._file is None:
            return
        try:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._file.seek(0)
            yield from pa.ipc.open_stream(pa.PythonFile(self._file, mode="r"))
        except OSError as error:
            raise DeltaWriteError(f"changes could not be read from a temporary file: {error}") from error

    def close(self) -> None:
        """Forget the batches, and remove the file."""
        self._held = []
        self._writer = None
        if self._file is not None:
            self._file.close()
