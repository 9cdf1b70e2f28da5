"""A copy of a stripe without compression, as a file with one stripe.

pyarrow decodes such a copy faster than a stripe that is compressed with zlib, as Hive's files are by default,
because libdeflate takes two thirds of the time of zlib. With all columns of the benchmark of reading, the
copy and its decoding take three quarters of the processor time.

Source: the ORC v1 specification (compression, stripes, file tail).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import deflate
import pyarrow as pa

from mutation_api.format.varint import varint
from mutation_api.orc.format.compression import Chunk, Compression, chunks_of
from mutation_api.orc.format.protobuf import (
    FOOTER_CALENDAR,
    FOOTER_CONTENT_LENGTH,
    FOOTER_HEADER_LENGTH,
    FOOTER_ROW_COUNT,
    FOOTER_STRIPE,
    FOOTER_TYPE,
    FOOTER_WRITER,
    MAGIC,
    POSTSCRIPT_BLOCK_BYTES,
    POSTSCRIPT_COMPRESSION,
    POSTSCRIPT_FOOTER_LENGTH,
    POSTSCRIPT_MAGIC,
    POSTSCRIPT_VERSION,
    POSTSCRIPT_WRITER_VERSION,
    STREAM_COLUMN,
    STREAM_KIND,
    STREAM_KIND_ROW_INDEX,
    STREAM_LENGTH,
    STRIPE_ENCODING,
    STRIPE_STREAM,
    STRIPE_WRITER_ZONE,
    bytes_field,
    number_field,
)
from mutation_api.orc.format.stripe_sections import Encoding, Stream, StripeFooter
from mutation_api.orc.format.tail import CALENDARS, OrcTail, StripeInfo

_LEAST_BYTES = 64 * 1024
MOST_BYTES = 64 * 1024 * 1024
"""Streams that are shorter in the file, or may be longer when inflated, are not copied."""
_BYTES_PER_STREAM, _BYTES_PER_ENCODING, _BYTES_OF_TAIL = 32, 16, 512
"""The maximum size of these messages."""


class PlainStripes(NamedTuple):
    """A file in memory without compression.

    Attributes:
        file: the bytes of the file.
        tail: its tail.
        footers: the footers of its stripes.
    """

    file: pa.Buffer
    tail: OrcTail
    footers: tuple[StripeFooter, ...]


def plain_stripe(
    stream: Any, tail: OrcTail, footer: StripeFooter, index: int, columns: Collection[int]
) -> PlainStripes | None:
    """Return a copy of a stripe without compression.

    Args:
        stream: the bytes of the file.
        tail: the file's tail.
        footer: the footer of the stripe.
        index: the number of the stripe.
        columns: the numbers of the columns that the copy has. The schema still has all columns.

    Returns:
        The copy. None if it would not be decoded faster, if it may need more than 64 MiB, or if the stripe is
        damaged: the decoder of the file itself then reports the damage.
    """
    chosen = [s for s in footer.streams if s.kind < STREAM_KIND_ROW_INDEX and s.column in columns]
    if tail.compression is not Compression.ZLIB:
        return None
    if not _LEAST_BYTES <= sum(s.stop - s.start for s in chosen) <= MOST_BYTES:
        return None
    packed = [_read(stream, each) for each in chosen]
    try:
        chunks = [list(chunks_of(each, tail.block_bytes)) for each in packed]
    except ValueError:
        return None
    most = sum(c.stop - c.start if c.is_original else tail.block_bytes for each in chunks for c in each)
    if most > MOST_BYTES:
        return None
    messages = (
        len(_types(tail.types)) + len(chosen) * _BYTES_PER_STREAM + len(tail.types) * _BYTES_PER_ENCODING
    )
    buffer = pa.allocate_buffer(most + messages + len(footer.zone) + _BYTES_OF_TAIL)
    file = pa.FixedSizeBufferWriter(buffer)
    contents = (
        (found, (_content(data, each, tail.block_bytes) for each in parts))
        for data, parts, found in zip(packed, chunks, chosen, strict=True)
    )
    try:
        plain, footers = _write(file, tail, footer, [(tail.stripes[index].row_count, contents)])
    except (deflate.DeflateError, OSError):
        return None
    return PlainStripes(buffer.slice(0, file.tell()), plain, footers)


def plain_file(
    tail: OrcTail, footer: StripeFooter, stripes: Sequence[tuple[int, Sequence[tuple[Stream, bytes]]]]
) -> PlainStripes:
    """Return a file without compression.

    Args:
        tail: the tail of a file with the same schema.
        footer: the footer of a stripe of that file, which has the same encodings and time zone.
        stripes: the number of rows and the content of the streams of each stripe.
    """
    file = pa.BufferOutputStream()
    whole = ((rows, ((stream, (content,)) for stream, content in contents)) for rows, contents in stripes)
    plain, footers = _write(file, tail, footer, whole)
    return PlainStripes(file.getvalue(), plain, footers)


def _write(
    file: pa.NativeFile,
    tail: OrcTail,
    footer: StripeFooter,
    stripes: Iterable[tuple[int, Iterable[tuple[Stream, Iterable[Any]]]]],
) -> tuple[OrcTail, tuple[StripeFooter, ...]]:
    """Write a file without compression, whose streams come in parts. Return its tail, and its footers."""
    file.write(MAGIC)
    found, footers = [], []
    for row_count, contents in stripes:
        first, streams = file.tell(), []
        for stream, parts in contents:
            start = file.tell()
            for part in parts:
                file.write(part)
            streams.append(Stream(stream.kind, stream.column, start, file.tell()))
        footers.append(footer._replace(streams=tuple(streams)))
        end = _stripe_footer(footers[-1])
        found.append(StripeInfo(first, 0, file.tell() - first, len(end), row_count))
        file.write(end)
    rows = sum(stripe.row_count for stripe in found)
    plain = tail._replace(compression=Compression.NONE, stripes=tuple(found), row_count=rows)
    file.write(_tail(plain))
    return plain, tuple(footers)


def _read(stream: Any, place: Stream) -> memoryview:
    stream.seek(place.start)
    return memoryview(stream.read_buffer(place.stop - place.start))


def _content(data: memoryview, chunk: Chunk, block_bytes: int) -> memoryview | bytearray:
    content = data[chunk.start : chunk.stop]
    return content if chunk.is_original else deflate.deflate_decompress(content, block_bytes)


def _stripe_footer(footer: StripeFooter) -> bytes:
    parts = [
        bytes_field(
            STRIPE_STREAM,
            number_field(STREAM_KIND, stream.kind)
            + number_field(STREAM_COLUMN, stream.column)
            + number_field(STREAM_LENGTH, stream.stop - stream.start),
        )
        for stream in footer.streams
    ]
    parts += map(_encoding, footer.encodings)
    if footer.zone:
        parts.append(bytes_field(STRIPE_WRITER_ZONE, footer.zone.encode()))
    return b"".join(parts)


@functools.lru_cache
def _encoding(encoding: Encoding) -> bytes:
    return bytes_field(STRIPE_ENCODING, encoding.message)


@functools.lru_cache
def _types(types: tuple[bytes, ...]) -> bytes:
    return b"".join(bytes_field(FOOTER_TYPE, each) for each in types)


def _tail(tail: OrcTail) -> bytes:
    """Return the footer, the postscript and the length of the postscript."""
    footer = b"".join(
        [
            number_field(FOOTER_HEADER_LENGTH, len(MAGIC)),
            number_field(FOOTER_CONTENT_LENGTH, tail.stripes[-1].end),
            *(bytes_field(FOOTER_STRIPE, stripe.message) for stripe in tail.stripes),
            _types(tail.types),
            number_field(FOOTER_ROW_COUNT, tail.row_count),
            number_field(FOOTER_WRITER, tail.writer),
            *(number_field(FOOTER_CALENDAR, code) for code, p in CALENDARS.items() if p is tail.is_proleptic),
        ]
    )
    writer_version = [] if tail.writer_version is None else [tail.writer_version]
    postscript = b"".join(
        [
            number_field(POSTSCRIPT_FOOTER_LENGTH, len(footer)),
            number_field(POSTSCRIPT_COMPRESSION, tail.compression),
            number_field(POSTSCRIPT_BLOCK_BYTES, tail.block_bytes),
            bytes_field(POSTSCRIPT_VERSION, b"".join(map(varint, tail.version))),
            *(number_field(POSTSCRIPT_WRITER_VERSION, each) for each in writer_version),
            bytes_field(POSTSCRIPT_MAGIC, MAGIC),
        ]
    )
    return footer + postscript + bytes([len(postscript)])
