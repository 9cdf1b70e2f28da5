"""Chunks: the units into which an ORC file's compression splits streams and messages. Pure.

A chunk is one block after compression, or the block itself if that is shorter. A header of three bytes
precedes it: the chunk's length, and whether its bytes are "original", that is not compressed. A file without
compression has no chunks.

Source: the ORC v1 specification (compression).
"""

from __future__ import annotations

import enum
import zlib

import pyarrow as pa

from mutation_api.orc.format.protobuf import varint_at

__all__ = ["DAMAGE", "Compression", "chunk_header", "original_chunks", "unpacked"]

DAMAGE = (ValueError, IndexError, OverflowError, OSError, zlib.error, pa.ArrowException)
"""Errors that unpacking and parsing arbitrary bytes can raise; each of them means a damaged file."""

_HEADER_BYTES = 3
_MAX_CHUNK_BYTES = (1 << 23) - 1


class Compression(enum.IntEnum):
    """Codes of ORC's compression kinds."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    LZO = 3
    LZ4 = 4
    ZSTD = 5


def chunk_header(length: int, *, is_original: bool) -> bytes:
    """Header of a chunk of ``length`` bytes; ``is_original``: they are not compressed."""
    return (length << 1 | is_original).to_bytes(_HEADER_BYTES, "little")


def original_chunks(data: bytes, block_bytes: int) -> bytes:
    """Split bytes into "original" chunks, each at most as long as the file's compression block."""
    step = min(block_bytes, _MAX_CHUNK_BYTES)
    chunks = (data[start : start + step] for start in range(0, len(data), step))
    return b"".join(chunk_header(len(c), is_original=True) + c for c in chunks)


def unpacked(data: bytes, compression: Compression, block_bytes: int) -> bytes:
    """Contents of chunks.

    Args:
        data: consecutive chunks; without compression the bytes themselves.
        compression: the file's compression.
        block_bytes: maximal content of one chunk.

    Raises:
        Those of DAMAGE: the bytes are not such chunks, or the compression cannot be read (LZO).
    """
    if compression is Compression.NONE:
        return data
    parts = []
    position = 0
    while position < len(data):
        header = int.from_bytes(data[position : position + _HEADER_BYTES], "little")
        start = position + _HEADER_BYTES
        position = start + (header >> 1)
        if position > len(data):
            raise ValueError(f"a compression chunk ends at {position} of {len(data)} bytes")
        chunk = data[start:position]
        parts.append(chunk if header & 1 else _decompress(chunk, compression, block_bytes))
    return b"".join(parts)


def _decompress(chunk: bytes, compression: Compression, block_bytes: int) -> bytes:
    if compression is Compression.ZLIB:
        return zlib.decompress(chunk, wbits=-15)
    if compression is Compression.SNAPPY:
        length, _ = varint_at(chunk, 0)
        return _block(
            pa.Codec("snappy").decompress(chunk, decompressed_size=length, asbytes=True), block_bytes
        )
    if compression is Compression.ZSTD:
        with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
            return _block(stream.read(), block_bytes)
    if compression is Compression.LZ4:
        return _block(_decompress_lz4(chunk), block_bytes)
    raise ValueError(f"compression {compression.name} cannot be read")


def _block(data: bytes, block_bytes: int) -> bytes:
    if len(data) > block_bytes:
        raise ValueError(f"a compression chunk holds {len(data)} bytes, but a block has {block_bytes}")
    return data


def _decompress_lz4(chunk: bytes) -> bytes:
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
            raise ValueError("an LZ4 match points before the block")
        _lz4_copy(out, distance, count + 4)
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
    """Copy a match. It may overlap its own output: then its bytes repeat."""
    piece = bytes(out[-distance:])
    repeats = -(-count // distance)
    out += (piece * repeats)[:count]
