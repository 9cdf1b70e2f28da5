"""A file being written to HDFS. It is restarted or finished when DataNodes fail.

The NameNode continues to assign a DataNode for ten minutes after it has gone down. The client copes with a
DataNode that fails during a file, but not with one that is down when the file begins. Such a file is started
again.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, Protocol

import pyarrow as pa

from mutation_api.storage.hdfs_client import may_be_data_nodes, os_errors
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged

_OUTPUT_BUFFER_BYTES = 1024 * 1024
_PIPELINES = 20
"""Maximum number of times that a file is started again if its first block could not be written."""


class WritableHdfs(Protocol):
    """The methods of its storage that a file being written uses. Each raises OSError."""

    def open_writer(self, location: Location) -> Any:
        """Return the client's own writer for a new file."""
        ...

    def finish_writing(self, location: Location, size: int) -> bool:
        """Finish a file that its writer could not close.

        Return True if it is closed with all written bytes.
        """
        ...

    def rename(self, source: Location, target: Location, size: int | None = None) -> None:
        """Rename a file of this size."""
        ...

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a stream over a file. See :meth:`Storage.open_input`."""
        ...

    def delete_file(self, location: Location) -> None:
        """Delete a file. See :meth:`Storage.delete_file`."""
        ...

    def delete_directory(self, directory: Location) -> None:
        """Delete a directory. See :meth:`Storage.delete_directory`."""
        ...


class HdfsOutput:
    """A file being written. See :class:`~mutation_api.storage.protocol.OutputFile`.

    It is created when its buffer is full or when it is closed. So a writer of small files that are closed in
    the background never waits for the NameNode.

    Another client may complete the file by recovering its lease, so only a manifest proves that it is
    complete.
    """

    def __init__(self, storage: WritableHdfs, location: Location) -> None:
        self._storage = storage
        self._location = location
        self._buffer = bytearray()
        self._size = 0
        self._whole: bytes | None = b""
        """All bytes sent so far, while they are a single piece. Otherwise None."""
        self._earlier: tuple[Location, pa.NativeFile] | None = None
        self._writer: Any = None
        self._is_created = False
        self._is_closed = False

    @property
    def staged(self) -> Staged:
        """The hidden file and its size."""
        return Staged(self._location, part_tags=(str(self._size + len(self._buffer)),))

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes."""
        count = memoryview(data).nbytes
        self._buffer += memoryview(data)
        if len(self._buffer) >= _OUTPUT_BUFFER_BYTES:
            self._flush()
        return count

    def restart(self) -> pa.NativeFile:
        """Return the bytes written so far, which are kept under another name."""
        self._complete()
        aside = self._location.parent / f"_{self._location.name}.earlier"
        self._storage.rename(self._location, aside, self._size)
        self._earlier = (aside, self._storage.open_input(aside))
        self._size, self._whole = 0, b""
        self._is_created = False
        return self._earlier[1]

    def close(self) -> None:
        """Complete the file.

        The file is then stored on the NameNode and on the required number of DataNodes.
        """
        self._delete_earlier()
        if not self._is_closed:
            self._complete()
            self._is_closed = True

    def discard(self) -> None:
        """Delete the file."""
        self._is_closed = True
        self._drop_writer()
        self._delete_earlier()
        self._buffer.clear()
        if self._is_created:
            with contextlib.suppress(FileNotFoundError):
                self._storage.delete_file(self._location)

    def _open(self) -> None:
        if self._writer is None:
            self._writer = self._storage.open_writer(self._location)
            self._is_created = True

    def _flush(self) -> None:
        self._open()
        # As bytes: the client reads any other buffer item by item, which is 10 to 60 times slower.
        data = bytes(self._buffer)
        self._buffer.clear()
        self._whole = data if not self._size else None
        self._size += len(data)
        try:
            self._send(data)
        except OSError as error:
            if self._whole is None or not may_be_data_nodes(error):
                raise
            self._write_anew(close=False)

    def _complete(self) -> None:
        self._open()
        if self._buffer:
            self._flush()
        try:
            self._close_writer()
        except OSError as error:
            if not may_be_data_nodes(error):
                raise
            if self._whole is not None:
                self._write_anew(close=True)
            elif not self._storage.finish_writing(self._location, self._size):
                raise
        self._drop_writer()

    def _write_anew(self, *, close: bool) -> None:
        """Start the file again with its bytes, for which the NameNode may choose other DataNodes."""
        assert self._whole is not None
        for left in reversed(range(_PIPELINES)):
            self._drop_writer()
            with contextlib.suppress(FileNotFoundError):
                self._storage.delete_file(self._location)
            self._open()
            try:
                self._send(self._whole)
                if close:
                    self._close_writer()
            except OSError as error:
                if not left or not may_be_data_nodes(error):
                    raise
            else:
                return

    def _send(self, data: bytes) -> None:
        with os_errors(self._location):
            self._writer.write(data)

    def _close_writer(self) -> None:
        with os_errors(self._location):
            self._writer.close()

    def _drop_writer(self) -> None:
        """Drop the client's writer. Its wrapper would try to complete the file at garbage collection."""
        if self._writer is not None:
            self._writer.inner = io.BytesIO()
            self._writer = None

    def _delete_earlier(self) -> None:
        if self._earlier is not None:
            aside, stream = self._earlier
            stream.close()
            self._storage.delete_directory(aside)
            self._earlier = None
