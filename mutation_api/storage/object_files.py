"""Files of an object store: outputs that are sent when they are closed, and inputs that read ranges.

A file is written to the local disk first. So memory is bounded, a failed request can be repeated, and the
written bytes can be read again.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from typing import IO

import pyarrow as pa

from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Staged
from mutation_api.storage.sized_input import SizedInput

__all__ = ["TAIL_BYTES", "ObjectOutput", "RangeReader", "nothing", "opened"]

TAIL_BYTES = 64 * 1024
"""Read when a file is opened: usually the footer of an ORC file, and a small file as a whole."""
_FEWEST_READ_BYTES = 256 * 1024
"""The least that later reads fetch: a request takes as long as this many bytes."""

Send = Callable[[Staged, IO[bytes], int], Staged]
"""Sends a body of this many bytes to the file that was begun."""


class ObjectOutput:
    """A file being written; see :class:`~mutation_api.storage.protocol.OutputFile`."""

    def __init__(
        self,
        location: Location,
        send: Send,
        take_back: Callable[[Staged], object],
        begin: Callable[[Location], Staged] = Staged,
    ) -> None:
        """:meth:`close` calls ``begin`` and ``send`` once. ``take_back`` removes what was sent, or an upload
        that was only begun.
        """
        self._begin = begin
        self._send = send
        self._take_back = take_back
        self._written = Staged(location)
        self._is_closed = False
        self._earlier: IO[bytes] | None = None
        self._spool: IO[bytes] = _local_copy()

    @property
    def staged(self) -> Staged:
        """The location of the file; after :meth:`close` the result of ``send``."""
        return self._written

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Append bytes to the local copy."""
        return self._spool.write(data)

    def restart(self) -> pa.NativeFile:
        """The bytes written so far, in the local copy."""
        self._earlier, self._spool = self._spool, _local_copy()
        self._earlier.seek(0)
        return pa.PythonFile(self._earlier, mode="r")

    def close(self) -> None:
        """Send the file."""
        if self._is_closed:
            return
        with self._spool as spool:
            size = spool.seek(0, os.SEEK_END)
            spool.seek(0)
            self._written = self._begin(self._written.location)
            self._written = self._send(self._written, spool, size)
        self._is_closed = True
        self._drop_copies()

    def discard(self) -> None:
        """Drop the local copy, and take back what was sent or begun."""
        self._drop_copies()
        if self._is_closed or self._written.upload_id:
            self._take_back(self._written)

    def _drop_copies(self) -> None:
        self._spool.close()
        if self._earlier is not None:
            self._earlier.close()


def _local_copy() -> IO[bytes]:
    """A file without a name on the local disk (``TMPDIR``)."""
    return tempfile.TemporaryFile(prefix="hive-mutation-")


class RangeReader(SizedInput):
    """A file that is read by ranged requests; its end has been read already."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, tail: bytes) -> None:
        """``read`` gives the bytes from a start to before a stop."""
        super().__init__(size)
        self._read_range = read
        self._known_start = size - len(tail)
        self._known = tail

    def _bytes_at(self, start: int, stop: int) -> bytes:
        self._know(start, stop)
        return self._known[start - self._known_start : stop - self._known_start]

    def _know(self, start: int, stop: int) -> None:
        """Load these bytes; bytes loaded before are dropped, except for the end of the file."""
        if self._known_start <= start and stop <= self._known_start + len(self._known):
            return
        stop = min(self._size, max(stop, start + _FEWEST_READ_BYTES))
        self._known = self._read_range(start, stop)
        self._known_start = start


def opened(read: Callable[[int, int], bytes], size: int) -> pa.NativeFile:
    """A seekable stream over the bytes of an object; ``read`` gives those from a start to before a stop.

    Its end is read at once. Raises what ``read`` raises.
    """
    if not size:
        return nothing()
    return pa.PythonFile(RangeReader(read, size, read(max(0, size - TAIL_BYTES), size)), mode="r")


def nothing() -> pa.NativeFile:
    """A stream without bytes: a store has no range of an empty file."""
    return pa.PythonFile(io.BytesIO(b""), mode="r")
