"""Small files kept in memory, remote files read in few, large requests, and the number of open files.

A small file is read whole. A table that nobody compacted has many of them, and a process that merges into it
reads them again for each merge: :data:`SMALL_FILES` keeps what was parsed and decoded, by the file's bytes.

ORC's readers request a stripe in small pieces, column by column. :class:`RangedInput` fetches the needed
ranges beforehand, and joins ranges that are close to each other into one request. The end of the file, with
the footer, is fetched once and kept.

A merge reads all deltas of a bucket concurrently, so the number of open files is limited.
"""

from __future__ import annotations

import contextlib
import functools
import random
import resource
import threading
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.orc

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.tail import OrcTail, tail_length, tail_of
from mutation_api.storage.location import Location
from mutation_api.storage.object_store import SizedInput
from mutation_api.storage.protocol import Storage

END_BYTES = 64 * 1024
"""The number of bytes at the end of the file that are fetched first."""
GAP_BYTES = 512 * 1024
"""The cost of another request, in unneeded bytes."""
SMALL_FILE_BYTES = END_BYTES
"""A file up to this size is read whole, in one request."""
KEPT_BYTES = 32 * 1024 * 1024
"""The number of bytes that :data:`SMALL_FILES` may hold if nobody allows more."""

_MOST_COLUMNS = 64
"""If a small file has more columns, only those that are requested are decoded, and not kept."""

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
        stream: the file's bytes.
        ranged: fetches ranges of them beforehand, if the storage needs it.
        content: the file's bytes, if it is small.

    Attributes:
        may_stay: True if the file may stay open between two reads. A small one is in memory.
    """

    def __init__(self, stream: Any, ranged: RangedInput | None, content: bytes | None) -> None:
        self.stream, self.ranged, self.content = stream, ranged, content
        self.may_stay = content is not None or OPEN_FILES.add()
        self._is_closed = False

    @functools.cached_property
    def file(self) -> Any:
        """The reader of stripes. Raises the errors of pyarrow."""
        return pa.orc.ORCFile(self.stream)

    def last_bytes(self, count: int) -> bytes:
        """Return the bytes at the end of the file. Raises OSError."""
        self.stream.seek(self.stream.size() - count)
        data: bytes = self.stream.read(count)
        return data

    def close(self) -> None:
        """Close the file. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            if self.content is None:
                OPEN_FILES.remove()
            self.stream.close()

    def __del__(self) -> None:
        """Close the file. A reader that stops early leaves its files to the garbage collector."""
        self.close()


def open_file(storage: Storage, file: Location, length: int | None) -> OpenFile | None:
    """Open a file; return None if it has no committed bytes.

    Args:
        storage: the file's storage.
        file: the file.
        length: the number of committed bytes; None if all are.

    Raises:
        CorruptFileError: If the file is shorter.
        OSError: If it cannot be opened.
    """
    stream, length = _committed(storage, file, length)
    if length <= SMALL_FILE_BYTES:
        with stream:
            content: bytes = stream.read_at(length, 0) if length else b""
        return OpenFile(pa.BufferReader(content), None, content) if length else None
    ranged, stream = _in_ranges(stream, length)
    return OpenFile(stream, ranged, None)


def open_stream(storage: Storage, file: Location, length: int | None) -> Any:
    """Return the committed bytes of a file. Raises: See :func:`open_file`."""
    return _in_ranges(*_committed(storage, file, length))[1]


def _committed(storage: Storage, file: Location, length: int | None) -> tuple[Any, int]:
    """Open a file, and return it with the number of its committed bytes."""
    stream = storage.open_input(file)
    size = int(stream.size())
    length = size if length is None else length
    if length > size:
        raise CorruptFileError(
            f"{file} has {size} bytes, but according to its side file {length} are committed"
        )
    return stream, length


def _in_ranges(stream: Any, length: int) -> tuple[RangedInput | None, Any]:
    """Return the fetcher of ranges, if the storage needs it, and the first ``length`` bytes of a file."""
    if length == stream.size() and isinstance(stream, pa.OSFile):
        return None, stream
    ranged = RangedInput(stream, length)
    with contextlib.suppress(CorruptFileError):  # decoding it will raise the error
        ranged.keep_end(tail_length(ranged.keep_end(0)))
    return ranged, pa.PythonFile(ranged, mode="r")


@dataclass(frozen=True)
class ParsedFile:
    """Holds what was parsed and decoded of a file.

    ``content``: the file's bytes, if it is small. ``schema``: the columns. ``stripes``: rows by stripe and
    form, with all columns. ``selections``: rows by stripe, form and columns, which share the memory of these.
    """

    content: bytes | None
    tail: OrcTail
    schema: pa.Schema
    stripes: dict[Hashable, pa.RecordBatch] = field(default_factory=dict)
    selections: dict[Hashable, pa.RecordBatch] = field(default_factory=dict)

    @classmethod
    def of(cls, opened: OpenFile) -> ParsedFile:
        """Parse a file. Raises CorruptFileError, or the errors of pyarrow, if it is damaged."""
        tail = tail_of(opened.stream)
        opened.stream.seek(0)
        return cls(opened.content, tail, opened.file.schema)

    @functools.cached_property
    def is_kept(self) -> bool:
        """True if stripes are decoded with all columns, and kept: the file is small and has few columns."""
        names = [*self.schema.names, *(f.name for t in self.schema.types if pa.types.is_struct(t) for f in t)]
        return self.content is not None and len(names) <= _MOST_COLUMNS and not any("." in n for n in names)

    @property
    def byte_count(self) -> int:
        """The size of the bytes and of the decoded rows."""
        return len(self.content or b"") + sum(int(rows.nbytes) for rows in self.stripes.values())


class SmallFiles:
    """The small files that a process reads, by their bytes; for several threads.

    Files of a table never change, but a path may get another file, so the bytes are read and compared.

    Args:
        byte_limit: the number of bytes that the files and their decoded rows may have. Others are dropped at
            random, since the oldest ones are the next that a repeated scan reads.
    """

    def __init__(self, byte_limit: int) -> None:
        self.byte_limit = byte_limit
        self.byte_count = 0
        self._mutex = threading.Lock()
        self._files: dict[bytes, ParsedFile] = {}
        self._contents: list[bytes] = []
        self._random = random.Random()

    def parsed(self, opened: OpenFile) -> ParsedFile:
        """Return what is known of an open file, and parse a new one. Raises: See :meth:`ParsedFile.of`."""
        if opened.content is None:
            return ParsedFile.of(opened)
        found = self._files.get(opened.content)
        if found is None:
            found = ParsedFile.of(opened)
            with self._mutex:
                if opened.content not in self._files:
                    self._files[opened.content] = found
                    self._contents.append(opened.content)
                    self._count(len(opened.content))
        return found

    def keep(self, file: ParsedFile, key: Hashable, rows: pa.RecordBatch) -> None:
        """Keep decoded rows of a small file, unless it was dropped."""
        assert file.content is not None
        with self._mutex:
            if self._files.get(file.content) is file and key not in file.stripes:
                file.stripes[key] = rows
                self._count(rows.nbytes)

    def allow(self, byte_limit: int) -> None:
        """Allow this number of bytes, if it is more than now."""
        self.byte_limit = max(self.byte_limit, byte_limit)

    def clear(self) -> None:
        """Drop all files."""
        with self._mutex:
            self._files.clear()
            self._contents.clear()
            self.byte_count = 0

    def _count(self, byte_count: int) -> None:
        self.byte_count += byte_count
        while self.byte_count > self.byte_limit:
            at = self._random.randrange(len(self._contents))
            self._contents[at], self._contents[-1] = self._contents[-1], self._contents[at]
            self.byte_count -= self._files.pop(self._contents.pop()).byte_count


def with_columns(rows: pa.RecordBatch, columns: Collection[str]) -> pa.RecordBatch:
    """Return some columns of a stripe, as a decoder of only these returns them.

    ``columns``: ``row.x`` is field ``x`` of struct ``row``.
    """
    found: dict[str, pa.Array] = {}
    for name, array in zip(rows.schema.names, rows.columns, strict=True):
        if name in columns:
            found[name] = array
        elif pa.types.is_struct(array.type):
            numbers = [i for i, field in enumerate(array.type) if f"{name}.{field.name}" in columns]
            if numbers:
                values, fields = map(array.field, numbers), map(array.type.field, numbers)
                found[name] = pa.StructArray.from_arrays(
                    list(values), fields=list(fields), mask=array.is_null()
                )
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


SMALL_FILES = SmallFiles(KEPT_BYTES)
"""The small files of this process."""
