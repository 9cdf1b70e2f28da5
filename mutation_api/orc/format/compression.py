"""Chunks: the units into which an ORC file's compression splits streams and messages. Pure.

A chunk is one block after compression, or the block itself if that is shorter. A header of three bytes
precedes it. The header contains the chunk's length and a flag for "original", that is, uncompressed, bytes. A
file without compression has no chunks.

Source: the ORC v1 specification (compression).
"""

from __future__ import annotations

import contextlib
import enum
import io
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import deflate
import pyarrow as pa

from mutation_api.format.varint import varint_at

DAMAGE = (ValueError, IndexError, OverflowError, OSError, zlib.error, pa.ArrowException)
"""The errors that unpacking and parsing arbitrary bytes can raise. Each of them means a damaged file."""

_HEADER_BYTES = 3
_MAX_CHUNK_BYTES = (1 << 23) - 1
LARGEST_BLOCK_BYTES = 1 << 23
"""The maximum size of a compression block, which a reader holds in memory.

A chunk's length has 23 bits, so no writer makes larger blocks.
"""
_LONG_CHUNK_BYTES = 4096
"""libdeflate inflates longer chunks faster than zlib. It allocates a whole block each time."""
_MOST_GROWTH = 64 * 1024 * 1024
"""The maximum number of bytes by which a stream or section may grow when it is unpacked.

Sections have been observed to shrink to a tenth, and these are much shorter than 6 MiB.
"""


class Compression(enum.IntEnum):
    """The codes of ORC's compression kinds."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    LZO = 3
    LZ4 = 4
    ZSTD = 5


def chunk_header(length: int, *, is_original: bool) -> bytes:
    """Return the header of a chunk of ``length`` bytes. ``is_original``: True if they are not compressed."""
    return (length << 1 | is_original).to_bytes(_HEADER_BYTES, "little")


def original_chunks(data: bytes, block_bytes: int) -> bytes:
    """Split bytes into "original" chunks, each at most as long as the file's compression block."""
    step = min(block_bytes, _MAX_CHUNK_BYTES)
    chunks = (data[start : start + step] for start in range(0, len(data), step))
    return b"".join(chunk_header(len(c), is_original=True) + c for c in chunks)


def unpacked(
    data: bytes, compression: Compression, block_bytes: int, *, most_growth: int = _MOST_GROWTH
) -> bytes:
    """Return the contents of chunks. The memory used never exceeds what they may contain.

    Args:
        data: consecutive chunks. Without compression, the bytes themselves.
        compression: the file's compression.
        block_bytes: the maximum content of one chunk, at most LARGEST_BLOCK_BYTES.
        most_growth: the number of bytes by which the content may be longer.

    Raises:
        Errors in DAMAGE: If the bytes are not such chunks, if the compression cannot be read (LZO), or if a
        chunk is longer than a block or has more content, which ORC's readers also reject. Also if the content
        is longer than any section that a writer creates.
    """
    if compression is Compression.NONE:
        return data
    most = len(data) + most_growth
    with io.BytesIO() as section:  # closed, so that the frames of an error do not keep its bytes
        for _, content in chunk_contents(data, compression, block_bytes):
            if section.write(content) and section.tell() > most:
                raise ValueError(
                    f"{len(data)} bytes unpack to more than {most} bytes, which no section can have"
                )
        return section.getvalue()


def holds_bytes(data: bytes, compression: Compression, block_bytes: int, count: int) -> bool:
    """Return True if chunks contain at least ``count`` bytes.

    Only as many chunks as necessary are unpacked, one at a time.

    Args:
        data: consecutive chunks.
        compression: the file's compression.
        block_bytes: the maximum content of one chunk.
        count: the number of bytes.

    Raises:
        Errors in DAMAGE: See :func:`unpacked`.
    """
    if compression is Compression.NONE:
        return len(data) >= count
    for _, content in chunk_contents(data, compression, block_bytes):
        count -= len(content)
        if count <= 0:
            break
    return count <= 0


def chunk_contents(data: bytes, compression: Compression, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the content of each chunk, for all compressions except NONE.

    Arguments and errors are those of :func:`unpacked`.
    """
    for chunk in chunks_of(data, block_bytes):
        content = data[chunk.start : chunk.stop]
        yield chunk.head, content if chunk.is_original else _decompress(content, compression, block_bytes)


class Chunk(NamedTuple):
    """The positions of a chunk: of its header, and of the bytes after it.

    ``is_original``: True if these bytes are not compressed.
    """

    head: int
    start: int
    stop: int
    is_original: bool


def chunks_of(data: bytes | memoryview, block_bytes: int) -> Iterator[Chunk]:
    """Yield the chunks of a stream or section, without unpacking them.

    Args:
        data: consecutive chunks.
        block_bytes: the maximum content of one chunk.

    Raises:
        ValueError: If the bytes are not such chunks, or if a chunk is longer than a block.
    """
    if not 0 < block_bytes <= LARGEST_BLOCK_BYTES:
        raise ValueError(
            f"compression blocks of {block_bytes} bytes; at most {LARGEST_BLOCK_BYTES} bytes are supported"
        )
    position = 0
    while position < len(data):
        header = int.from_bytes(data[position : position + _HEADER_BYTES], "little")
        head, start = position, position + _HEADER_BYTES
        position = start + (header >> 1)
        if position > len(data):
            raise ValueError(f"a compression chunk ends at byte {position} of {len(data)}")
        if header >> 1 > block_bytes:
            raise ValueError(f"a compression chunk has {header >> 1} bytes, but a block has {block_bytes}")
        yield Chunk(head, start, position, bool(header & 1))


def _decompress(chunk: bytes, compression: Compression, block_bytes: int) -> bytes:
    if compression is Compression.ZLIB:
        return _inflated(chunk, block_bytes)
    if compression is Compression.SNAPPY:
        length, _ = varint_at(chunk, 0)
        if length > block_bytes:
            raise _too_long(block_bytes)
        plain: bytes = pa.Codec("snappy").decompress(chunk, decompressed_size=length, asbytes=True)
        return plain
    if compression is Compression.ZSTD:
        with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
            content: bytes = stream.read(block_bytes + 1)
        if len(content) > block_bytes:
            raise _too_long(block_bytes)
        return content
    if compression is Compression.LZ4:
        return _decompress_lz4(chunk, block_bytes)
    raise ValueError(f"compression {compression.name} cannot be read")


def _too_long(block_bytes: int) -> ValueError:
    return ValueError(f"a compression chunk has more content than a block of {block_bytes} bytes")


def _inflated(chunk: bytes, block_bytes: int) -> bytes:
    if len(chunk) >= _LONG_CHUNK_BYTES:
        with contextlib.suppress(deflate.DeflateError):  # zlib's error is more exact
            return bytes(deflate.deflate_decompress(chunk, block_bytes))
    inflater = zlib.decompressobj(wbits=-15)
    content = inflater.decompress(chunk, block_bytes + 1)
    if len(content) > block_bytes:
        raise _too_long(block_bytes)
    if not inflater.eof:
        raise ValueError("a compression chunk is cut off")
    return content


def _decompress_lz4(chunk: bytes, block_bytes: int) -> bytes:
    """Decompress a raw LZ4 block.

    It is implemented here because pyarrow's codec needs the exact size, which ORC does not store.
    """
    out = bytearray()
    position = 0
    while position < len(chunk):
        token = chunk[position]
        count, position = _lz4_length(token >> 4, chunk, position + 1)
        out += chunk[position : position + count]
        position += count
        if position >= len(chunk):
            break
        distance = int.from_bytes(chunk[position : position + 2], "little")
        count, position = _lz4_length(token & 15, chunk, position + 2)
        if not 0 < distance <= len(out):
            raise ValueError("an LZ4 match points before the start of the block")
        if len(out) + count + 4 > block_bytes:
            raise _too_long(block_bytes)
        _lz4_copy(out, distance, count + 4)
    if len(out) > block_bytes:
        raise _too_long(block_bytes)
    return bytes(out)


def _lz4_length(start: int, chunk: bytes, position: int) -> tuple[int, int]:
    length = start
    if start == 15:
        while True:
            byte = chunk[position]
            position += 1
            length += byte
            if byte != 255:
                break
    return length, position


def _lz4_copy(out: bytearray, distance: int, count: int) -> None:
    """Copy a match. If it overlaps its own output, its bytes repeat."""
    start = len(out) - distance
    piece = bytes(out[start : start + count])
    repeats = -(-count // distance)
    out += (piece * repeats)[:count]
