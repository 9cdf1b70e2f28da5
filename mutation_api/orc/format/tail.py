"""The tail of an ORC file: read its facts, add user metadata to it.

pyarrow's writer cannot write user metadata, and Hive's ACID readers need two entries. So the finished file's
tail is extended: protobuf lets a repeated field stand anywhere in a message, hence the serialised entries go
behind the footer as chunks of their own (marked "not compressed"), and the postscript's footer length grows.
Nothing that the writer wrote is parsed and printed again, so nothing of it can change. Refused alternative:
rewriting the footer, which would have to know every field that a future writer puts there.

Layout: ``… stripes, stripe statistics, footer, postscript, 1 byte = length of the postscript``.
Source: orc_proto.proto and the ORC v1 specification (file tail, compression chunks).
"""

from __future__ import annotations

import enum
import itertools
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.protobuf import (
    as_bytes,
    as_number,
    bytes_field,
    fields_of,
    number_field,
    varint_at,
    with_numbers,
)
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage

__all__ = [
    "FOOTER_STRIPE",
    "MAGIC",
    "POSTSCRIPT_BLOCK_BYTES",
    "POSTSCRIPT_COMPRESSION",
    "POSTSCRIPT_FOOTER_LENGTH",
    "POSTSCRIPT_STATISTICS_LENGTH",
    "TAIL_CHECKSUM_BYTES",
    "Compression",
    "OrcTail",
    "StripeInfo",
    "append_user_metadata",
    "chunk_header",
    "parse_statistics",
    "parse_streams",
    "parse_tail",
    "read_tail",
    "tail_checksum",
    "tail_length",
]

TAIL_CHECKSUM_BYTES = 4096
"""So many bytes at the end of a file, or all of a shorter one, enter its checksum: mostly its footer."""

_FIRST_READ_BYTES = 16 * 1024
MAGIC = b"ORC"
_CHUNK_HEADER_BYTES = 3
_MAX_CHUNK_BYTES = (1 << 23) - 1
_MAX_POSTSCRIPT_BYTES = 255

# What parsing arbitrary bytes can raise; everything of it means a damaged file.
_DAMAGE = (ValueError, IndexError, OverflowError, OSError, zlib.error, pa.ArrowException)

POSTSCRIPT_FOOTER_LENGTH = 1
POSTSCRIPT_COMPRESSION = 2
POSTSCRIPT_BLOCK_BYTES = 3
POSTSCRIPT_STATISTICS_LENGTH = 5
_POSTSCRIPT_MAGIC = 8000
FOOTER_STRIPE = 3
_FOOTER_METADATA = 5
_FOOTER_ROW_COUNT = 6
_FOOTER_STRIDE = 8
_FOOTER_CALENDAR = 11
_JULIAN_GREGORIAN = 1
_PROLEPTIC_GREGORIAN = 2
_IS_PROLEPTIC = {_JULIAN_GREGORIAN: False, _PROLEPTIC_GREGORIAN: True}
_METADATA_NAME = 1
_METADATA_VALUE = 2
_STATISTICS_STRIPE = 1
_STATISTICS_COLUMN = 1
_STRIPE_STREAM = 1
_STREAM_COLUMN = 2
_STREAM_LENGTH = 3


class Compression(enum.IntEnum):
    """Codes of ORC's compression kinds."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    LZO = 3
    LZ4 = 4
    ZSTD = 5


@dataclass(frozen=True)
class StripeInfo:
    """Where one stripe lies (bytes from the start of the file) and how many rows it holds."""

    offset: int
    index_length: int
    data_length: int
    footer_length: int
    row_count: int

    @property
    def end(self) -> int:
        """Where it ends; its own footer lies there last."""
        return self.offset + self.index_length + self.data_length + self.footer_length


@dataclass(frozen=True)
class OrcTail:
    """Facts of a file's tail.

    ``footer_length`` is what the postscript says; before the footer lie the statistics of the stripes,
    ``statistics_length`` bytes, 0 if there are none. ``row_index_stride`` 0 means no index. ``is_proleptic``:
    whether days are counted in the proleptic Gregorian calendar; None if the footer does not say.
    """

    compression: Compression
    block_bytes: int
    footer_length: int
    statistics_length: int
    postscript_length: int
    stripes: tuple[StripeInfo, ...]
    row_count: int
    row_index_stride: int
    is_proleptic: bool | None
    user_metadata: Mapping[str, bytes]


@dataclass(frozen=True)
class _Postscript:
    footer_length: int
    statistics_length: int
    compression: Compression
    block_bytes: int
    length: int


def read_tail(storage: Storage, file: Location) -> OrcTail:
    """Facts of an ORC file.

    Reads the last 16 KiB, and once more if the footer is longer. Raises CorruptFileError for what is no ORC
    file or is cut off, OSError if it cannot be read.
    """
    with storage.open_input(file) as stream:
        size = stream.size()
        end = _read_end(stream, size, _FIRST_READ_BYTES)
        try:
            needed = tail_length(end)
            return parse_tail(end if needed <= len(end) else _read_end(stream, size, needed))
        except CorruptFileError as error:
            raise CorruptFileError(f"{file} ({size} bytes) is not a complete ORC file: {error}") from error


def parse_tail(end: bytes) -> OrcTail:
    """Facts of a tail.

    Args:
        end: the last bytes of the file, at least footer and postscript.

    Raises:
        CorruptFileError: the bytes are no ORC tail, or their compression cannot be read (LZO).
    """
    try:
        postscript = _parse_postscript(end)
        footer = _plain(_footer_of(end, postscript), postscript.compression, postscript.block_bytes)
        return _parse_footer(footer, postscript)
    except _DAMAGE as error:
        raise CorruptFileError(f"not an ORC tail: {error}") from error


def tail_length(end: bytes) -> int:
    """Bytes of footer, postscript and the length of the latter, by the last bytes of a file.

    Raises CorruptFileError: they are no end of an ORC file.
    """
    try:
        postscript = _parse_postscript(end)
    except _DAMAGE as error:
        raise CorruptFileError(f"not an ORC tail: {error}") from error
    return postscript.footer_length + postscript.length + 1


def parse_statistics(section: bytes, tail: OrcTail, columns: Collection[int]) -> list[dict[int, bytes]]:
    """Statistics of some columns in each stripe.

    Args:
        section: the ``statistics_length`` bytes before the footer.
        tail: of the same file.
        columns: numbers of columns in the tree of types, counted from the root, which is 0, in pre-order.

    Returns:
        For each stripe (fewer, if the writer kept them of some only) the serialised ColumnStatistics by
        column; of columns that the file does not have, none.

    Raises:
        CorruptFileError: the bytes are no such section.
    """
    try:
        plain = _plain(section, tail.compression, tail.block_bytes)
        stripes = [as_bytes(value) for field, value in fields_of(plain) if field == _STATISTICS_STRIPE]
        return [dict(_statistics_of(stripe, columns)) for stripe in stripes]
    except _DAMAGE as error:
        raise CorruptFileError(f"no statistics of ORC stripes: {error}") from error


def parse_streams(section: bytes, tail: OrcTail, stripe: StripeInfo) -> list[tuple[int, int, int]]:
    """Streams of data of a stripe, in their order: the column's number in the tree of types, start, stop.

    Args:
        section: the ``footer_length`` bytes at the end of the stripe.
        tail: of the same file.
        stripe: which one.

    Raises:
        CorruptFileError: the bytes are no footer of a stripe.
    """
    try:
        plain = _plain(section, tail.compression, tail.block_bytes)
        found = [as_bytes(value) for field, value in fields_of(plain) if field == _STRIPE_STREAM]
        streams = [dict(fields_of(stream)) for stream in found]
        lengths = [as_number(stream.get(_STREAM_LENGTH, 0)) for stream in streams]
        columns = [as_number(stream.get(_STREAM_COLUMN, 0)) for stream in streams]
    except _DAMAGE as error:
        raise CorruptFileError(f"no footer of an ORC stripe: {error}") from error
    stops = [stripe.offset + stop for stop in itertools.accumulate(lengths)]
    starts = [stop - length for stop, length in zip(stops, lengths, strict=True)]
    data_start = stripe.offset + stripe.index_length
    return [each for each in zip(columns, starts, stops, strict=True) if each[1] >= data_start]


def _statistics_of(stripe: bytes, columns: Collection[int]) -> Iterator[tuple[int, bytes]]:
    found = (value for field, value in fields_of(stripe) if field == _STATISTICS_COLUMN)
    for number, value in enumerate(found):
        if number in columns:
            yield number, as_bytes(value)


def append_user_metadata(
    end: bytes,
    entries: Mapping[str, bytes],
    tail: OrcTail | None = None,
    *,
    mark_proleptic: bool = False,
) -> bytes:
    """The same tail with user metadata added.

    Args:
        end: the last bytes of a finished file, at least footer and postscript.
        entries: name to value; names that the file does not have yet.
        tail: what :func:`parse_tail` said about ``end``, if the caller has asked already.
        mark_proleptic: also say that days are counted in the proleptic Gregorian calendar; of a field that
            comes twice protobuf takes the last.

    Returns:
        The bytes that take the place of ``end`` at the end of the file.

    Raises:
        CorruptFileError: ``end`` is no ORC tail.
        ValueError: a name is there already, or the postscript would exceed its 255 bytes.
    """
    tail = tail or parse_tail(end)
    doubled = sorted(set(entries) & set(tail.user_metadata))
    if doubled:
        raise ValueError(f"the file has user metadata {doubled} already")
    items = b"".join(
        bytes_field(
            _FOOTER_METADATA,
            bytes_field(_METADATA_NAME, name.encode()) + bytes_field(_METADATA_VALUE, value),
        )
        for name, value in entries.items()
    )
    if mark_proleptic:
        items += number_field(_FOOTER_CALENDAR, _PROLEPTIC_GREGORIAN)
    added = items if tail.compression is Compression.NONE else _original_chunks(items, tail.block_bytes)
    start = len(end) - 1 - tail.postscript_length
    postscript = _with_footer_length(end[start:-1], tail.footer_length + len(added))
    if len(postscript) > _MAX_POSTSCRIPT_BYTES:
        raise ValueError(
            f"the postscript would have {len(postscript)} bytes, {_MAX_POSTSCRIPT_BYTES} is the limit"
        )
    return end[:start] + added + postscript + bytes([len(postscript)])


def chunk_header(length: int, *, is_original: bool) -> bytes:
    """What stands before a chunk of so many bytes; ``is_original``: they are not compressed."""
    return (length << 1 | is_original).to_bytes(_CHUNK_HEADER_BYTES, "little")


def tail_checksum(end: bytes) -> int:
    """CRC-32 of the last TAIL_CHECKSUM_BYTES bytes of a file (of all, if it is shorter).

    Args:
        end: the end of the file, at least so many bytes or the whole file.
    """
    return zlib.crc32(end[-TAIL_CHECKSUM_BYTES:])


def _read_end(stream: pa.NativeFile, size: int, count: int) -> bytes:
    count = min(size, count)
    data: bytes = stream.read_at(count, size - count)
    return data


def _footer_of(end: bytes, postscript: _Postscript) -> bytes:
    stop = len(end) - 1 - postscript.length
    start = stop - postscript.footer_length
    if start < 0:
        raise ValueError(f"the footer has {postscript.footer_length} bytes, {stop} are there")
    return end[start:stop]


def _parse_postscript(end: bytes) -> _Postscript:
    if not end:
        raise ValueError("no bytes")
    length = end[-1]
    if length + 1 > len(end):
        raise ValueError(f"the postscript has {length} bytes, {len(end) - 1} are there")
    fields = dict(fields_of(end[len(end) - 1 - length : -1]))
    if fields.get(_POSTSCRIPT_MAGIC) != MAGIC:
        raise ValueError("the postscript does not say ORC")
    return _Postscript(
        footer_length=as_number(fields.get(POSTSCRIPT_FOOTER_LENGTH, 0)),
        statistics_length=as_number(fields.get(POSTSCRIPT_STATISTICS_LENGTH, 0)),
        compression=Compression(as_number(fields.get(POSTSCRIPT_COMPRESSION, 0))),
        block_bytes=as_number(fields.get(POSTSCRIPT_BLOCK_BYTES, 0)) or 256 * 1024,
        length=length,
    )


def _parse_footer(footer: bytes, postscript: _Postscript) -> OrcTail:
    stripes: list[StripeInfo] = []
    metadata: dict[str, bytes] = {}
    numbers = {_FOOTER_ROW_COUNT: 0, _FOOTER_STRIDE: 0, _FOOTER_CALENDAR: 0}
    for field, value in fields_of(footer):
        if field == FOOTER_STRIPE:
            stripe = {key: as_number(number) for key, number in fields_of(as_bytes(value))}
            stripes.append(StripeInfo(*(stripe.get(key, 0) for key in (1, 2, 3, 4, 5))))
        elif field == _FOOTER_METADATA:
            item = dict(fields_of(as_bytes(value)))
            metadata[as_bytes(item.get(_METADATA_NAME, b"")).decode()] = as_bytes(
                item.get(_METADATA_VALUE, b"")
            )
        elif field in numbers:
            numbers[field] = as_number(value)
    return OrcTail(
        compression=postscript.compression,
        block_bytes=postscript.block_bytes,
        footer_length=postscript.footer_length,
        statistics_length=postscript.statistics_length,
        postscript_length=postscript.length,
        stripes=tuple(stripes),
        row_count=numbers[_FOOTER_ROW_COUNT],
        row_index_stride=numbers[_FOOTER_STRIDE],
        is_proleptic=_IS_PROLEPTIC.get(numbers[_FOOTER_CALENDAR]),
        user_metadata=metadata,
    )


def _with_footer_length(postscript: bytes, footer_length: int) -> bytes:
    """The postscript with another footer length; every other byte as it was."""
    return with_numbers(postscript, {POSTSCRIPT_FOOTER_LENGTH: footer_length})


def _original_chunks(data: bytes, block_bytes: int) -> bytes:
    """Chunks that say "not compressed"; none may be longer than the file's compression block."""
    step = min(block_bytes, _MAX_CHUNK_BYTES)
    chunks = (data[start : start + step] for start in range(0, len(data), step))
    return b"".join(chunk_header(len(c), is_original=True) + c for c in chunks)


def _plain(data: bytes, compression: Compression, block_bytes: int) -> bytes:
    if compression is Compression.NONE:
        return data
    parts = []
    position = 0
    while position < len(data):
        header = int.from_bytes(data[position : position + _CHUNK_HEADER_BYTES], "little")
        start = position + _CHUNK_HEADER_BYTES
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
        raise ValueError(f"a compression chunk holds {len(data)} bytes, its block has {block_bytes}")
    return data


def _decompress_lz4(chunk: bytes) -> bytes:
    """A raw LZ4 block.

    Written here because pyarrow's codec must be told the exact size, which ORC does not store.
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
    """A match may overlap what it produces: then its bytes repeat."""
    piece = bytes(out[-distance:])
    repeats = -(-count // distance)
    out += (piece * repeats)[:count]
