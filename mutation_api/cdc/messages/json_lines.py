"""Lines of a JSON log's files, in order, each with the byte at which it begins.

Spark's text reader does not report the position of a line. It also splits at carriage returns, and passes on
bytes that are not UTF-8. Python therefore reads blocks and splits them. A file is read up to its size when it
was listed, so that a growing log has the same lines on each reading.

The suffix of a name defines how a file is compressed: ``.gz`` (may have several members, as ``cat a.gz b.gz``
writes) or ``.zst`` (may have several frames). Memory holds one block at a time. A file that is not compressed
in this way, or not complete, is refused. The bytes of a compressed file are counted before its compression;
it is one range.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

import pyarrow as pa

from mutation_api.cdc.source_url import LocationsLike, all_located, children, entry_at, is_link, opened
from mutation_api.errors import ConfigurationError, InputFormatError
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

_READ_BYTES = 1024 * 1024

_HEADS: Mapping[bytes, str] = {
    b"\x1f\x8b": "is compressed with gzip; its name must end in .gz",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; its name must end in .zst",
    b"BZh": "is compressed with bzip2; decompress it, or compress it with gzip or zstd",
    b"\xfd7zXZ\x00": "is compressed with xz; decompress it, or compress it with gzip or zstd",
    b"\x04\x22\x4d\x18": "is compressed with lz4; decompress it, or compress it with gzip or zstd",
    b"\xff\x06\x00\x00sNaPpY": "is compressed with snappy; decompress it, or compress it with gzip or zstd",
    b"PK\x03\x04": "is a zip archive; unpack it, or compress its files with gzip or zstd",
    b"\xff\xfe": "is encoded in UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is encoded in UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8",
    b"Obj\x01": "is an Avro file; write messages as JSON, one per line, or read them from their topic",
    b"PAR1": "is a Parquet file; write messages as JSON, one per line",
    b"\x00": "has binary messages, such as Avro with a schema registry; read them from their topic (--kafka, "
    "--schema-registry)",
}
"""The kind of a file and the advice for it, by its first bytes. No JSON message begins with them."""


class CompressedFileError(Exception):
    """Raised when a file is not compressed as its name indicates, or is not complete."""


def is_compressed(name: str) -> bool:
    """Return True if the suffix of a file's name is that of a compressed file."""
    return _opener(name) is not None


def kind_of(head: bytes) -> str | None:
    """Return the kind of a file, as its first bytes show, and the advice for it; None if it may be UTF-8."""
    return next((kind for start, kind in _HEADS.items() if head.startswith(start)), None)


@contextmanager
def opened_bytes(location: Location, size: int | None = None) -> Iterator[BinaryIO]:
    """Open a file, and decompress it if its name is that of a compressed file.

    Args:
        location: the file.
        size: its size when it was listed; a compressed file is read up to this size. If None, to its end.

    Raises:
        CompressedFileError: If the file is not compressed as its name indicates (raised within the block).
        OSError: If the file cannot be read.
    """
    opener = _opener(location.name)
    with opened(location) as file:
        if opener is None:
            yield file
            return
        raw = _Limited(file, size)
        with opener(raw) as stream:
            yield cast(BinaryIO, _Decompressed(stream, raw))


class _Limited(io.RawIOBase):
    """The first bytes of a file; keeps an error of the storage, to distinguish it from a damaged file."""

    def __init__(self, file: BinaryIO, size: int | None) -> None:
        self._file = file
        self._left = size
        self.failed: OSError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        wanted = len(buffer) if self._left is None else min(len(buffer), self._left)
        try:
            found = self._file.read(wanted)
        except OSError as error:
            self.failed = error
            raise
        if self._left is not None:
            self._left -= len(found)
        buffer[: len(found)] = found
        return len(found)


class _Decompressed(io.RawIOBase):
    """Decompressed bytes; raises errors of the compression as CompressedFileError."""

    def __init__(self, stream: BinaryIO, raw: _Limited) -> None:
        self._stream = stream
        self._raw = raw

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except (EOFError, OSError, zlib.error) as error:
            if self._raw.failed is not None:
                raise self._raw.failed from None
            raise CompressedFileError(str(error)) from error


@contextmanager
def _gzip(raw: _Limited) -> Iterator[BinaryIO]:
    with gzip.GzipFile(fileobj=io.BufferedReader(raw, _READ_BYTES), mode="rb") as stream:
        yield cast(BinaryIO, stream)


@contextmanager
def _zstd(raw: _Limited) -> Iterator[BinaryIO]:
    file = pa.PythonFile(io.BufferedReader(raw, _READ_BYTES), "r")
    with pa.CompressedInputStream(file, "zstd") as stream:
        yield stream


_Opener = Callable[[_Limited], AbstractContextManager[BinaryIO]]
_OPENERS: Mapping[str, _Opener] = {".gz": _gzip, ".zst": _zstd}


def _opener(name: str) -> _Opener | None:
    low = name.lower()
    return next((opener for ending, opener in _OPENERS.items() if low.endswith(ending)), None)


RANGE_BYTES = 32 * 1024 * 1024
"""The number of bytes of a file that one task of Spark reads."""

BLOCK_BYTES = 4 * 1024 * 1024

LONGEST_LINE = 256 * 1024 * 1024
"""The maximum length of a message. The limit prevents files of other kinds from filling the memory."""

COMPRESSION_ESTIMATE = 8
"""The estimated bytes of messages for each byte of a compressed file, to choose the engine that reads it."""

_UNKNOWN = 2**63 - 1
"""The size of a compressed file, whose end is not known before it is read."""

_NO_LINE = f"a line has more than {LONGEST_LINE} bytes; is this a log of JSON messages?"

Line = tuple[int, str | None]
"""The byte at which a line begins, and the line; None if it is not UTF-8."""

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class LogFile:
    """A file of the log: ``number`` is the last number in its name, 0 if there is none."""

    location: Location
    number: int
    size: int

    @property
    def name(self) -> str:
        """The name of the file, for messages."""
        return self.location.shown

    @property
    def byte_count(self) -> int:
        """The number of bytes to read; an estimate if the file is compressed."""
        return self.size * (COMPRESSION_ESTIMATE if is_compressed(self.location.name) else 1)

    def shown(self, offset: int, field: str | None = None) -> str:
        """Return file, line and field, for messages. Raises OSError."""
        return line_location(self.location, offset, field)


@dataclass(frozen=True)
class LogRange:
    """A range of a file, given by its index: the lines that begin in [start, stop)."""

    file: int
    start: int
    stop: int


def log_files(given: LocationsLike) -> tuple[LogFile, ...]:
    """List the files, and all files below the directories, ordered by the numbers in their names.

    Names that begin with a dot or an underscore are ignored, as in Hive and Spark. Names that Hadoop gives to
    files while it copies them are also ignored. Links to local directories are not followed.

    Raises:
        ConfigurationError: If a file or directory does not exist.
        OSError: If a directory cannot be listed.
    """
    found: set[FileEntry] = set()
    for location in all_located(given):
        entry = entry_at(location)
        if entry is None:
            raise ConfigurationError(f"file or directory {location.shown} does not exist")
        found |= set(_files_below(location)) if entry.is_directory else {entry}
    ordered = sorted(found, key=lambda entry: _order(entry.location))
    return tuple(LogFile(entry.location, _number(entry.name), entry.size) for entry in ordered)


def log_ranges(files: Sequence[LogFile]) -> tuple[LogRange, ...]:
    """Split the files into ranges, so that each line begins in one range."""
    found: list[LogRange] = []
    for index, file in enumerate(files):
        if is_compressed(file.location.name):
            found += [LogRange(index, 0, _UNKNOWN)] if file.size else []
            continue
        starts = range(0, file.size, RANGE_BYTES)
        found += [LogRange(index, start, min(start + RANGE_BYTES, file.size)) for start in starts]
    return tuple(found)


def read_lines(file: LogFile, part: LogRange) -> Iterator[list[Line]]:
    """Read the lines that begin in a range of a file, including blank ones, in batches.

    Raises:
        InputFormatError: If the file is gone or shorter than it was, is not UTF-8, is not compressed as its
            name indicates, or has a line without an end.
    """
    path = file.location
    size = _UNKNOWN if part.stop == _UNKNOWN else file.size
    try:
        with opened_bytes(path, file.size) as stream:
            for offset, block in _blocks(stream, part.start, part.stop, size):
                kind = None if offset else kind_of(block)
                if kind is not None:
                    raise InputFormatError(f"{path.shown} {kind}")
                yield list(_lines(offset, block))
    except CompressedFileError as error:
        raise InputFormatError(
            f"{path.shown} cannot be decompressed: {error}. It is damaged, cut off, still being written, or "
            "not compressed as its suffix says. Move a file to the log's directory only when it is complete"
        ) from error
    except (FileNotFoundError, EOFError) as error:
        raise InputFormatError(
            f"{path.shown} changed while it was read: {error}; log files may only be added or appended to"
        ) from error
    except OSError as error:
        raise InputFormatError(f"{path.shown}: the file cannot be read: {error}") from error


def line_number(location: Location, offset: int) -> int:
    """Return the number of the line that begins here, from 1. Raises OSError, CompressedFileError."""
    count, left = 1, offset
    with opened_bytes(location) as file:
        while left > 0 and (block := file.read(min(BLOCK_BYTES, left))):
            count += block.count(b"\n")
            left -= len(block)
    return count


def line_location(location: Location, offset: int, name: str | None = None) -> str:
    """Return the place for messages: file, number of the line that begins at this byte, field if given."""
    line = line_number(location, offset)
    return f"{location.shown}, line {line}" + (f", field {name}" if name else "")


def _files_below(folder: Location) -> Iterator[FileEntry]:
    for entry in children(folder):
        if not entry.is_directory:
            yield entry
        elif not is_link(entry.location):
            yield from _files_below(entry.location)


def _number(name: str) -> int:
    stem, _, suffix = name.rpartition(".")
    numbers = _NUMBERS.findall(stem if stem and suffix.isalpha() else name)
    return int(numbers[-1][-18:]) if numbers else 0


def _order(location: Location) -> tuple[int, list[tuple[str, int]], str]:
    parts = re.findall(r"(\D*)(\d*)", location.shown)
    return _number(location.name), [(text, int(number or -1)) for text, number in parts], location.shown


def _blocks(file: BinaryIO, start: int, stop: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Read whole lines that begin within [start, stop), in blocks, each with the byte at which it begins."""
    at = _first_line(file, start, size)
    rest = b""
    while at + len(rest) < stop:
        read = file.read(min(BLOCK_BYTES, stop - at - len(rest)))
        if not read and size == _UNKNOWN:
            break
        if not read:
            raise EOFError(f"it has {at + len(rest)} bytes, but had {size} when it was listed")
        rest += read
        length = rest.rfind(b"\n") + 1
        if not length and len(rest) > LONGEST_LINE:
            raise EOFError(_NO_LINE)
        if length:
            yield at, rest[:length]
            at, rest = at + length, rest[length:]
    if rest:
        yield at, rest + (b"" if size == _UNKNOWN else _end_of_line(file, size - at - len(rest)))


def _first_line(file: BinaryIO, start: int, size: int) -> int:
    """Seek to the first line that begins at ``start`` or later; return its first byte."""
    if not start:
        return 0
    file.seek(start - 1)
    return start - 1 + len(_end_of_line(file, size - start + 1))


def _end_of_line(file: BinaryIO, longest: int) -> bytes:
    found = file.readline(min(longest, LONGEST_LINE))
    if len(found) == LONGEST_LINE and longest > LONGEST_LINE:
        raise EOFError(_NO_LINE)
    return found


def _lines(offset: int, block: bytes) -> Iterator[Line]:
    lines = block.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    for line in lines:
        yield offset, _text(line if offset else line.removeprefix(codecs.BOM_UTF8))
        offset += len(line) + 1


def _text(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None
