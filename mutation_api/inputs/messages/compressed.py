"""Compressed files of a log: their bytes before the compression, and what other files are by their head.

The ending of a name says how a file is compressed: ``.gz`` (also of several members, as ``cat a.gz b.gz``
writes) or ``.zst`` (also of several frames). Memory holds a block at a time. What is not such a file, or not
whole, is refused.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from mutation_api.inputs.source_files import opened
from mutation_api.storage.location import Location

__all__ = ["CompressedFileError", "is_compressed", "kind_of", "opened_bytes"]

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
