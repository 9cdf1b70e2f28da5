"""Lines of JSON in files, compressed or not.

Compressed files of a log: their bytes before the compression, and what other files are by their head.

The ending of a name says how a file is compressed: ``.gz`` (also of several members, as ``cat a.gz b.gz``
writes) or ``.zst`` (also of several frames). Memory holds a block at a time. What is not such a file, or not
whole, is refused.

Lines of the files of a JSON log: the files in their order, and each line with the byte at which it begins.

Spark's text reader does not report the position of a line, splits at carriage returns too, and passes on
bytes that are not UTF-8. So Python reads blocks and splits them. A file is read up to its size when it was
listed, so that a growing log gives the same lines on each reading. The bytes of a compressed file are those
before its compression (:mod:`~mutation_api.cdc.messages.json_lines`); it is one range.
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

__all__ = [
    "CompressedFileError",
    "Line",
    "LogFile",
    "LogRange",
    "is_compressed",
    "kind_of",
    "line_location",
    "line_number",
    "log_files",
    "log_ranges",
    "opened_bytes",
    "read_lines",
]


_READ_BYTES = 1024 * 1024

_HEADS: Mapping[bytes, str] = {
    b"\x1f\x8b": "is compressed with gzip; let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; let its name end in .zst",
    b"BZh": "is compressed with bzip2; decompress it, or compress it with gzip or zstd",
    b"\xfd7zXZ\x00": "is compressed with xz; decompress it, or compress it with gzip or zstd",
    b"\x04\x22\x4d\x18": "is compressed with lz4; decompress it, or compress it with gzip or zstd",
    b"\xff\x06\x00\x00sNaPpY": "is compressed with snappy; decompress it, or compress it with gzip or zstd",
    b"PK\x03\x04": "is a zip archive; unpack it, or compress its files with gzip or zstd",
    b"\xff\xfe": "is text in UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "is text in UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8",
    b"Obj\x01": "is a file of Avro; write messages as JSON, one a line, or read them from their topic",
    b"PAR1": "is a file of Parquet; write messages as JSON, one a line",
    b"\x00": "has binary messages, as Avro with a registry of schemas; read them from their topic (--kafka, "
    "--schema-registry)",
}
"""What a file is that begins so, and what to do. No message in JSON begins so."""


class CompressedFileError(Exception):
    """Raised when a file is not compressed as its name says, or is not whole."""


def is_compressed(name: str) -> bool:
    """Whether the ending of a file's name says that it is compressed."""
    return _opener(name) is not None


def kind_of(head: bytes) -> str | None:
    """What a file is by its first bytes, and what to do; None if it may be text in UTF-8."""
    return next((kind for start, kind in _HEADS.items() if head.startswith(start)), None)


@contextmanager
def opened_bytes(location: Location, size: int | None = None) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if its name says that it is compressed.

    Args:
        location: the file.
        size: its size when it was listed; a compressed file is read up to there. None: to its end.

    Raises:
        CompressedFileError: within the block, see there.
        OSError: the file cannot be read.
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
    """The first bytes of a file; remembers an error of the storage, which is none of the compression."""

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
    """Decompressed bytes; what is wrong with the compression is a CompressedFileError."""

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
"""Bytes of a file that one task of Spark reads."""

BLOCK_BYTES = 4 * 1024 * 1024

LONGEST_LINE = 256 * 1024 * 1024
"""A longer line is not a message. The limit keeps a file that is not a log from filling the memory."""

COMPRESSION_ESTIMATE = 8
"""Bytes of messages for each byte of a compressed file, to choose who reads it."""

_UNKNOWN = 2**63 - 1
"""Size of a compressed file: its end is known when it was read."""

_NO_LINE = f"a line has more than {LONGEST_LINE} bytes; is this a log of JSON messages?"

Line = tuple[int, str | None]
"""The byte at which a line begins, and its text, None if it is not UTF-8."""

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class LogFile:
    """A file of the log: ``number`` is the last number in its name, 0 if there is none."""

    location: Location
    number: int
    size: int

    @property
    def name(self) -> str:
        """See :class:`~mutation_api.cdc.messages.events.LogPart`."""
        return self.location.shown

    @property
    def byte_count(self) -> int:
        """Bytes to read; an estimate if the file is compressed."""
        return self.size * (COMPRESSION_ESTIMATE if is_compressed(self.location.name) else 1)

    def shown(self, offset: int, field: str | None = None) -> str:
        """See :class:`~mutation_api.cdc.messages.events.LogPart`. Raises OSError."""
        return line_location(self.location, offset, field)


@dataclass(frozen=True)
class LogRange:
    """Bytes of a file, by its index: lines that begin in [start, stop)."""

    file: int
    start: int
    stop: int


def log_files(given: LocationsLike) -> tuple[LogFile, ...]:
    """The files, and all files below the folders, ordered by the numbers in their names.

    Names that begin with a dot or an underscore are ignored, as in Hive and Spark, and so are names that
    Hadoop gives to files while it copies them. Links to local folders are not followed.

    Raises:
        ConfigurationError: there is no such file or folder. OSError: a folder cannot be listed.
    """
    found: set[FileEntry] = set()
    for location in all_located(given):
        entry = entry_at(location)
        if entry is None:
            raise ConfigurationError(f"there is no file or folder {location.shown}")
        found |= set(_files_below(location)) if entry.is_directory else {entry}
    ordered = sorted(found, key=lambda entry: _order(entry.location))
    return tuple(LogFile(entry.location, _number(entry.name), entry.size) for entry in ordered)


def log_ranges(files: Sequence[LogFile]) -> tuple[LogRange, ...]:
    """Ranges of the files, in which each line begins once."""
    found: list[LogRange] = []
    for index, file in enumerate(files):
        if is_compressed(file.location.name):
            found += [LogRange(index, 0, _UNKNOWN)] if file.size else []
            continue
        starts = range(0, file.size, RANGE_BYTES)
        found += [LogRange(index, start, min(start + RANGE_BYTES, file.size)) for start in starts]
    return tuple(found)


def read_lines(file: LogFile, part: LogRange) -> Iterator[list[Line]]:
    """The lines that begin in a range of a file, blank ones too, some at a time.

    Raises:
        InputFormatError: the file is gone, or shorter than it was; it is not text in UTF-8, or not
            compressed as its name says; a line has no end.
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
            "not compressed as the ending of its name says. Move a file to the log's folder when it is whole"
        ) from error
    except (FileNotFoundError, EOFError) as error:
        raise InputFormatError(
            f"{path.shown} changed while it was read: {error}; files of a log are only added or appended to"
        ) from error
    except OSError as error:
        raise InputFormatError(f"{path.shown}: the file cannot be read: {error}") from error


def line_number(location: Location, offset: int) -> int:
    """Number, from 1, of the line that begins at this byte. Raises OSError, CompressedFileError."""
    count, left = 1, offset
    with opened_bytes(location) as file:
        while left > 0 and (block := file.read(min(BLOCK_BYTES, left))):
            count += block.count(b"\n")
            left -= len(block)
    return count


def line_location(location: Location, offset: int, name: str | None = None) -> str:
    """Location for messages: file, number of the line that begins at this byte and, if given, field."""
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
    """Whole lines that begin within [start, stop), in blocks, each with the byte it begins at."""
    at = _first_line(file, start, size)
    rest = b""
    while at + len(rest) < stop:
        read = file.read(min(BLOCK_BYTES, stop - at - len(rest)))
        if not read and size == _UNKNOWN:
            break
        if not read:
            raise EOFError(f"it has {at + len(rest)} bytes, and had {size} when it was listed")
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
    """Seek the first line that begins at ``start`` or later; returns its first byte."""
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
