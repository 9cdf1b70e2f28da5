"""FileCompressor: compresses an uncompressed ORC file with zlib while its encoder writes it.

pyarrow's encoder compresses with its bundled zlib, which takes longer than everything else it does. ISA-L
produces the same format in a quarter of the time (figures: DESIGN.md). So pyarrow encodes without
compression, and this module compresses its streams, one stripe at a time, while the file is being written.

A file that fits one block of the disk is left as it is. Compressed, it would take the same space, and longer
to write.

The file changes in these places: Each stream becomes chunks, and the row index contains the start of each row
group in them (:mod:`.row_index`). The lengths of streams, stripes and sections change, and the postscript
names the codec. All other bytes are passed on unchanged.

Source: the ORC v1 specification (compression, stripe footer), orc_proto.proto.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa
from isal import isal_zlib

from mutation_api.errors import CorruptFileError
from mutation_api.format.varint import varint, varint_at
from mutation_api.orc.format.compression import Compression, chunk_header
from mutation_api.orc.format.protobuf import (
    FOOTER_CONTENT_LENGTH,
    FOOTER_STRIPE,
    MAGIC,
    POSTSCRIPT_BLOCK_BYTES,
    POSTSCRIPT_COMPRESSION,
    POSTSCRIPT_FOOTER_LENGTH,
    POSTSCRIPT_STATISTICS_LENGTH,
    STREAM_COLUMN,
    STREAM_KIND_ROW_INDEX,
    STREAM_LENGTH,
    STRIPE_ENCODING,
    STRIPE_STREAM,
    as_bytes,
    as_number,
    bytes_field,
    field_at,
    number_field,
    raw_fields_of,
    with_numbers,
)
from mutation_api.orc.format.tail import StripeInfo, parse_tail
from mutation_api.orc.write.row_index import MovedRowIndex

KEPT_BYTES_DEFAULT = 4096

_LEVEL = 3
"""The best level: files are 1 % larger than with zlib at the level that ORC calls fast."""
_RAW_DEFLATE = -15
_LEAST_BYTES = 64
"""Shorter streams, of which small files have many, are not worth compressing."""

# Field numbers, and the number of a kind of stream.
_STREAM_KIND = 1
_ENCODING_KIND = 1
_STREAM_AT = slice(2, 6)
_FIRST_STREAM = number_field(_STREAM_KIND, STREAM_KIND_ROW_INDEX) + number_field(STREAM_COLUMN, 0)
"""The start of every stripe footer after the field number and the length of its first stream, the row
index."""
_STREAM_KEYS = tuple(number_field(field, 0)[0] for field in (_STREAM_KIND, STREAM_COLUMN, STREAM_LENGTH))


class _Sink(Protocol):
    """The destination of the compressed file."""

    def write(self, data: bytes) -> int:
        """Write bytes, and return their number."""
        ...


class FileCompressor:
    """A file object for an encoder that does not compress. It holds one stripe of the encoder's output.

    A stripe ends with its footer, which the encoder writes in one call: bytes that list streams whose total
    length equals that of all bytes since the last stripe. This only decides when a stripe is passed on. At
    the end, the file's own footer contains the positions of the stripes, and :meth:`finish` rejects a file if
    it disagrees.

    Args:
        sink: the destination of the compressed file.
        schema: the file's schema.
        block_bytes: the number of bytes of a stream that are compressed together.
        kept_bytes: files up to this size stay uncompressed.
    """

    def __init__(
        self, sink: _Sink, schema: pa.Schema, block_bytes: int, kept_bytes: int = KEPT_BYTES_DEFAULT
    ) -> None:
        self._sink = sink
        self._row_index = MovedRowIndex(schema, block_bytes)
        self._block_bytes = block_bytes
        self._kept_bytes = kept_bytes
        self._small: list[bytes] | None = []
        """All bytes so far, as long as the file may stay uncompressed."""
        self._small_bytes = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._read = 0
        self._written = 0
        self._stripes: list[tuple[int, StripeInfo]] = []
        """The start of each stripe in the encoder's file, and its new position, without its number of rows.
        """
        self.closed = False

    def write(self, data: bytes) -> int:
        """Write bytes. They are copied, because the encoder's buffer may change afterwards.

        Raises:
            OSError: If the sink cannot write.
            CorruptFileError: If this version does not support the layout of a stripe.
        """
        if self._small is None:
            self._take(bytes(data))
            return len(data)
        self._small.append(bytes(data))
        self._small_bytes += len(data)
        if self._small_bytes > self._kept_bytes:
            small, self._small, self._small_bytes = self._small, None, 0
            for each in small:
                self._take(each)
        return len(data)

    def finish(self) -> None:
        """Write the rest, which is the tail.

        Raises:
            OSError: If the sink cannot write.
            CorruptFileError: If the tail contradicts the stripes before it.
        """
        if self._small is not None:
            self._emit(b"".join(self._small))
            return
        rest = b"".join(self._pending)
        tail = parse_tail(rest)
        stripes = tuple(
            StripeInfo(*_lengths(new), row_count=old.row_count)
            for old, (began, new) in zip(tail.stripes, self._stripes, strict=False)
            if old.offset == began
        )
        ends = len(rest) - 1 - tail.postscript_length
        footer = rest[ends - tail.footer_length : ends]
        statistics = rest[: ends - tail.footer_length]
        is_whole = len(stripes) == len(tail.stripes) == len(self._stripes)
        if not is_whole or len(statistics) != tail.statistics_length:
            raise CorruptFileError(
                f"its footer has {len(tail.stripes)} stripes and {tail.statistics_length} bytes of "
                f"statistics, but {len(self._stripes)} and {len(statistics)} were written"
            )
        packed_footer, _ = self._packed(_new_footer(footer, stripes, content_length=self._written))
        packed_statistics, _ = self._packed(statistics)
        postscript = with_numbers(
            rest[ends:-1],
            {
                POSTSCRIPT_FOOTER_LENGTH: len(packed_footer),
                POSTSCRIPT_COMPRESSION: Compression.ZLIB,
                POSTSCRIPT_BLOCK_BYTES: self._block_bytes,
                POSTSCRIPT_STATISTICS_LENGTH: len(packed_statistics),
            },
        )
        self._emit(packed_statistics + packed_footer + postscript + bytes([len(postscript)]))

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._read + self._small_bytes

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing. The encoder calls it, but :meth:`finish` ends the file."""

    def _emit(self, data: bytes) -> None:
        self._written += len(data)
        self._sink.write(data)

    def _take(self, data: bytes) -> None:
        if not self._read:
            self._emit(MAGIC)
        self._pending.append(data)
        self._pending_bytes += len(data)
        self._read += len(data)
        if self._read == len(MAGIC):
            self._pending, self._pending_bytes = [], 0
        elif footer := self._footer(data):
            self._compress_stripe(memoryview(b"".join(self._pending)), footer)
            self._pending, self._pending_bytes = [], 0

    def _footer(self, data: bytes) -> _StripeFooter | None:
        """Parse the last bytes as a footer. Return None if they are not a footer."""
        if data[_STREAM_AT] != _FIRST_STREAM:
            return None
        try:
            footer = _StripeFooter.parsed(data)
        except (ValueError, IndexError):
            return None
        length = sum(stream.length for stream in footer.streams) + len(data)
        return footer if length == self._pending_bytes else None

    def _compress_stripe(self, stripe: memoryview, footer: _StripeFooter) -> None:
        streams = footer.streams
        ends = list(itertools.accumulate(stream.length for stream in streams))
        plain = {
            stream[:2]: stripe[end - stream.length : end] for stream, end in zip(streams, ends, strict=True)
        }
        packed = {key: self._packed(data) for key, data in plain.items() if key[0] != STREAM_KIND_ROW_INDEX}
        chunks = {key: starts for key, (_, starts) in packed.items()}
        for key, data in plain.items():
            if key[0] == STREAM_KIND_ROW_INDEX:
                moved = self._row_index.moved(bytes(data), key[1], footer.encodings, chunks)
                packed[key] = self._packed(moved)
        parts = [packed[stream[:2]][0] for stream in streams]
        lengths = list(map(len, parts))
        messages = map(_Stream.message, streams, lengths)
        new_footer, _ = self._packed(b"".join([*messages, footer.others]))
        index_length = sum(
            length
            for stream, length in zip(streams, lengths, strict=True)
            if stream.kind >= STREAM_KIND_ROW_INDEX  # Bloom filters are part of the index
        )
        began = self._read - self._pending_bytes
        new = (self._written, index_length, sum(lengths) - index_length, len(new_footer))
        self._stripes.append((began, StripeInfo(*new, row_count=0)))
        self._emit(b"".join([*parts, new_footer]))

    def _packed(self, data: bytes | memoryview) -> tuple[bytes, list[int]]:
        """Return a stream in chunks, and the starts of the chunks."""
        if 0 < len(data) < _LEAST_BYTES:
            return chunk_header(len(data), is_original=True) + data, [0]
        parts: list[bytes | memoryview] = []
        starts: list[int] = []
        length = 0
        for start in range(0, len(data), self._block_bytes):
            plain = data[start : start + self._block_bytes]
            chunk: bytes | memoryview = isal_zlib.compress(plain, _LEVEL, _RAW_DEFLATE)
            is_original = len(chunk) >= len(plain)
            if is_original:
                chunk = plain
            header = chunk_header(len(chunk), is_original=is_original)
            parts += header, chunk
            starts.append(length)
            length += len(header) + len(chunk)
        return b"".join(parts), starts


class _Stream(NamedTuple):
    kind: int
    column: int
    length: int
    named: bytes
    """The message without the length."""

    @classmethod
    def parsed(cls, message: bytes) -> _Stream:
        """Parse a stream. Raises ValueError or IndexError if the bytes are not a stream.

        A file of few rows consists of about thirty streams. Accepting any fields in any order would take four
        times as long.
        """
        kind, column_at = varint_at(message, 1)
        column, length_at = varint_at(message, column_at + 1)
        length, end = varint_at(message, length_at + 1)
        keys = (message[0], message[column_at], message[length_at])
        if keys != _STREAM_KEYS or end != len(message):
            raise ValueError("a stream has fields other than kind, column and length")
        return cls(kind, column, length, message[: length_at + 1])

    def message(self, length: int) -> bytes:
        """Return the message of this stream with another length."""
        return bytes_field(STRIPE_STREAM, self.named + varint(length))


@dataclass(frozen=True)
class _StripeFooter:
    """Streams in the order of their positions, encodings by column, and the bytes other than the streams."""

    streams: Sequence[_Stream]
    encodings: Sequence[int]
    others: bytes

    @classmethod
    def parsed(cls, footer: bytes) -> _StripeFooter:
        """Parse a footer. Raises ValueError or IndexError if the bytes are not a footer."""
        streams = []
        encodings = []
        others = []
        for field, value, raw in raw_fields_of(footer):
            if field == STRIPE_STREAM:
                streams.append(_Stream.parsed(as_bytes(value)))
                continue
            others.append(raw)
            if field == STRIPE_ENCODING:
                first, kind, _ = field_at(as_bytes(value), 0)
                if first != _ENCODING_KIND:
                    raise ValueError("an encoding does not begin with its kind")
                encodings.append(as_number(kind))
        return cls(streams, encodings, b"".join(others))


def _new_footer(footer: bytes, stripes: Sequence[StripeInfo], content_length: int) -> bytes:
    """Return the file's footer with new stripes."""
    kept = with_numbers(footer, {FOOTER_CONTENT_LENGTH: content_length}, dropped={FOOTER_STRIPE})
    return kept + b"".join(bytes_field(FOOTER_STRIPE, stripe.message) for stripe in stripes)


def _lengths(stripe: StripeInfo) -> tuple[int, int, int, int]:
    return stripe.offset, stripe.index_length, stripe.data_length, stripe.footer_length
