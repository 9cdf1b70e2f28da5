"""Remote files read in few, large requests, and the number of files that a process keeps open.

ORC's readers request a stripe in small pieces, column by column. :class:`RangedInput` fetches the needed
ranges beforehand, and joins ranges that are close to each other into one request. The end of the file, with
the footer, is fetched once and kept.

A merge reads all deltas of a bucket concurrently, so the number of open files is limited.
"""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.tail import tail_length
from mutation_api.storage.location import Location
from mutation_api.storage.object_store import SizedInput
from mutation_api.storage.protocol import Storage

END_BYTES = 64 * 1024
"""The number of bytes at the end of the file that are fetched first."""
GAP_BYTES = 512 * 1024
"""The cost of another request, in unneeded bytes."""

_Piece = tuple[int, bytes]
"""The position of bytes in the file, and the bytes."""


class RangedInput(SizedInput):
    """Reads bytes from memory, and the others from a stream.

    Args:
        stream: the whole file.
        size: the number of its bytes to use.
    """

    def __init__(self, stream: pa.NativeFile, size: int) -> None:
        super().__init__(size)
        self._stream = stream
        self._pieces: list[_Piece] = []
        self._end: _Piece = (size, b"")
        self.keep_end(END_BYTES)

    def keep_end(self, count: int) -> bytes:
        """Return the last ``count`` bytes (or all), and keep them from now on."""
        start = max(0, self._size - count)
        if start < self._end[0]:
            self._end = (start, self._bytes_at(start, self._end[0]) + self._end[1])
        return self._end[1]

    def fetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Load ranges (start, stop) into memory. They replace those of the previous call."""
        end_start = self._end[0]
        wanted = [(start, min(stop, end_start)) for start, stop in ranges if start < end_start]
        self._pieces = [(start, self._bytes_at(start, stop)) for start, stop in _joined(wanted)]

    def close(self) -> None:
        """Close this file and its stream."""
        self._stream.close()
        super().close()

    def _bytes_at(self, start: int, stop: int) -> bytes:
        """Return bytes of the file.

        No request is made if they lie in one piece, or in one piece and the end after it.
        """
        end_start, end = self._end
        if start >= end_start:
            return end[start - end_start : stop - end_start]
        if stop > end_start:
            return self._bytes_at(start, end_start) + self._bytes_at(end_start, stop)
        for piece_start, piece in self._pieces:
            if piece_start <= start and stop <= piece_start + len(piece):
                return piece[start - piece_start : stop - piece_start]
        data: bytes = self._stream.read_at(stop - start, start) if start < stop else b""
        return data


def _joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Return sorted ranges. Ranges that are close to each other are joined."""
    before: tuple[int, int] | None = None
    for start, stop in sorted(ranges):
        if before is not None and start - before[1] <= GAP_BYTES:
            before = (before[0], max(before[1], stop))
            continue
        if before is not None:
            yield before
        before = (start, stop)
    if before is not None:
        yield before


_SHARE = 4
"""The limit is the process's limit of open files divided by this number."""
_LEAST, _MOST = 8, 256


class OpenFiles:
    """Counts open files. A file that is opened above the limit is closed after each read.

    Args:
        limit: the number of files that may stay open.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._count = 0
        self._mutex = threading.Lock()

    def add(self) -> bool:
        """Count a file that was opened. Return True if it may stay open."""
        with self._mutex:
            self._count += 1
            return self._count <= self.limit

    def remove(self) -> None:
        """Count a file that was closed."""
        with self._mutex:
            self._count -= 1


def _limit_of_process() -> int:
    """Return a share of the number of files that the process may open (``ulimit -n``)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft // _SHARE))


OPEN_FILES = OpenFiles(_limit_of_process())
"""The count of this process."""


class OpenFile:
    """An open file.

    Args:
        file: reads stripes.
        stream: the file's bytes.
        ranged: fetches ranges of them beforehand, if the storage needs it.

    Attributes:
        may_stay: True if the file may stay open between two reads.
    """

    def __init__(self, file: Any, stream: Any, ranged: RangedInput | None) -> None:
        self.file, self.stream, self.ranged = file, stream, ranged
        self.may_stay = OPEN_FILES.add()
        self._is_closed = False

    def last_bytes(self, count: int) -> bytes:
        """Return the bytes at the end of the file. Raises OSError."""
        self.stream.seek(self.stream.size() - count)
        data: bytes = self.stream.read(count)
        return data

    def close(self) -> None:
        """Close the file. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            OPEN_FILES.remove()
            self.stream.close()

    def __del__(self) -> None:
        """Close the file. A reader that stops early leaves its files to the garbage collector."""
        self.close()


def open_stream(storage: Storage, file: Location, length: int | None) -> tuple[RangedInput | None, Any]:
    """Return the fetcher of ranges, if needed, and the file's committed bytes, if there are any.

    Args:
        storage: the file's storage.
        file: the file.
        length: the number of committed bytes; None if all are.

    Raises:
        CorruptFileError: If the file is shorter.
        OSError: If it cannot be opened.
    """
    stream = storage.open_input(file)
    size = int(stream.size())
    length = size if length is None else length
    if length > size:
        raise CorruptFileError(
            f"{file} has {size} bytes, but according to its side file {length} are committed"
        )
    if length == 0:
        stream.close()
        return None, None
    if length == size and isinstance(stream, pa.OSFile):
        return None, stream
    ranged = RangedInput(stream, length)
    with contextlib.suppress(CorruptFileError):  # decoding it will raise the error
        ranged.keep_end(tail_length(ranged.keep_end(0)))
    return ranged, pa.PythonFile(ranged, mode="r")
