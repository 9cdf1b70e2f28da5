"""The tail of an ORC file: the facts in its footer and postscript, and attributes that are added to it.

Layout: ``… stripes, stripe statistics, footer, postscript, 1 byte = length of the postscript``.

Attributes of types are added to the tail of a finished file whose footer is not compressed. pyarrow's writer
cannot write them, and Spark recognises local timestamps by them. The types of a footer are a list, so their
messages are extended in place. All other fields keep their bytes.

Source: orc_proto.proto (Type.attributes) and the ORC v1 specification (file tail).
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import DAMAGE, LARGEST_BLOCK_BYTES, Compression, unpacked
from mutation_api.orc.format.protobuf import (
    FOOTER_CALENDAR,
    FOOTER_CONTENT_LENGTH,
    FOOTER_METADATA,
    FOOTER_ROW_COUNT,
    FOOTER_STRIPE,
    FOOTER_TYPE,
    FOOTER_WRITER,
    MAGIC,
    METADATA_NAME,
    METADATA_VALUE,
    POSTSCRIPT_BLOCK_BYTES,
    POSTSCRIPT_COMPRESSION,
    POSTSCRIPT_FOOTER_LENGTH,
    POSTSCRIPT_MAGIC,
    POSTSCRIPT_STATISTICS_LENGTH,
    POSTSCRIPT_VERSION,
    POSTSCRIPT_WRITER_VERSION,
    PROLEPTIC_GREGORIAN,
    TYPE_ATTRIBUTE,
    TYPE_ATTRIBUTE_NAME,
    TYPE_ATTRIBUTE_VALUE,
    TYPE_KIND_CHAR,
    as_bytes,
    as_number,
    bytes_field,
    cached_if_small,
    fields_of,
    number_field,
    numbers_in,
    raw_fields_of,
    with_numbers,
)
from mutation_api.orc.format.type_tree import LARGEST_COUNT, TypeKind, TypeNode, type_nodes
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage

TAIL_CHECKSUM_BYTES = 4096
"""The number of bytes at the end of a file that its checksum covers (all bytes of a shorter file).

They mostly hold its footer.
"""

_SMALL_BYTES = 4096
_FIRST_READ_BYTES = 16 * 1024
_DEFAULT_BLOCK_BYTES = 256 * 1024

_MOST_ROWS = 2**31 - 1
"""The maximum number of rows of a stripe, because Arrow's string arrays cannot hold more."""
_MOST_FIELDS = 4 * LARGEST_COUNT
"""The maximum number of fields of a footer: a type and statistics for each column, and some entries."""

_MOST_GROWTH = 16 * 1024 * 1024
"""The maximum growth of a footer when it is unpacked: 160 bytes for each of LARGEST_COUNT columns."""

_FOOTER_STATISTICS, _FOOTER_STRIDE = 7, 8
_JULIAN_GREGORIAN = 1
CALENDARS = {_JULIAN_GREGORIAN: False, PROLEPTIC_GREGORIAN: True}
"""Values of FOOTER_CALENDAR: True for the proleptic Gregorian calendar."""


class StripeInfo(NamedTuple):
    """The position of one stripe (bytes from the start of the file) and its number of rows."""

    offset: int
    index_length: int
    data_length: int
    footer_length: int
    row_count: int

    @property
    def end(self) -> int:
        """The position of the stripe's end. The stripe's footer is its last part."""
        return self.offset + self.index_length + self.data_length + self.footer_length

    @property
    def message(self) -> bytes:
        """The serialised StripeInformation."""
        return b"".join(number_field(field, number) for field, number in enumerate(self, 1))


class OrcTail(NamedTuple):
    """The facts in a file's tail.

    ``footer_length`` comes from the postscript. The statistics of the stripes lie before the footer;
    ``statistics_length`` is their size in bytes, 0 if there are none.
    ``types`` are the serialised types of all columns, in pre-order. The first one is the struct of all
    columns.
    ``content_length`` is the end of the last stripe according to the footer; None if the footer does not have
    it.
    ``version`` is the version of the format, such as (0, 12); empty for the oldest one.
    ``writer`` is the code of the program that wrote the file, 0 for Java. ``writer_version`` is its version;
    None if it is not recorded.
    ``statistics_count`` is the number of columns for which the footer has statistics.
    ``stride`` is the number of rows of a row group, 0 if the file has no row groups.
    ``is_proleptic`` is True if days are counted in the proleptic Gregorian calendar; None if the footer does
    not record it.
    """

    compression: Compression
    block_bytes: int
    footer_length: int
    statistics_length: int
    postscript_length: int
    stripes: tuple[StripeInfo, ...]
    row_count: int
    content_length: int | None
    types: tuple[bytes, ...]
    is_proleptic: bool | None
    user_metadata: Mapping[str, bytes]
    version: tuple[int, ...]
    writer: int
    writer_version: int | None
    statistics_count: int
    stride: int

    @property
    def char_columns(self) -> frozenset[int]:
        """The numbers of the columns of type char, whose values are padded."""
        return _char_columns(self.types)

    @property
    def map_keys(self) -> frozenset[int]:
        """The numbers of the columns that are keys of maps."""
        return _map_keys(self.types)

    @property
    def has_moments(self) -> bool:
        """True if there are dates or timestamps."""
        return _has_moments(self.types)

    @property
    def nodes(self) -> tuple[TypeNode, ...]:
        """The parsed types."""
        return type_nodes(self.types)


@functools.lru_cache(maxsize=64)
def _char_columns(types: tuple[bytes, ...]) -> frozenset[int]:
    return frozenset(number for number, node in enumerate(type_nodes(types)) if node.kind == TYPE_KIND_CHAR)


@functools.lru_cache(maxsize=64)
def _has_moments(types: tuple[bytes, ...]) -> bool:
    return any(node.kind in TypeKind.MOMENTS for node in type_nodes(types))


@functools.lru_cache(maxsize=64)
def _map_keys(types: tuple[bytes, ...]) -> frozenset[int]:
    return frozenset(node.children[0] for node in type_nodes(types) if node.kind == TypeKind.MAP)


class _Postscript(NamedTuple):
    footer_length: int
    statistics_length: int
    compression: Compression
    block_bytes: int
    length: int
    version: tuple[int, ...]
    writer_version: int | None

    @property
    def tail_length(self) -> int:
        """The size of footer, postscript and the byte after them."""
        return self.footer_length + self.length + 1


def read_tail(storage: Storage, file: Location) -> OrcTail:
    """Return the facts in an ORC file's tail.

    Reads the last 16 KiB, and once more if the footer is longer. Raises CorruptFileError if the file is not
    an ORC file or is cut off, and OSError if it cannot be read.
    """
    with storage.open_input(file) as stream:
        try:
            return tail_of(stream)
        except CorruptFileError as error:
            size = stream.size()
            raise CorruptFileError(f"{file} ({size} bytes) is not a complete ORC file: {error}") from error


def tail_of(stream: Any) -> OrcTail:
    """Return the tail of a file after checking that its parts lie within the file.

    Args:
        stream: the file's bytes.

    Raises:
        CorruptFileError: If the file does not have a tail. The message does not name the file.
        OSError: If the file cannot be read.
    """
    size = stream.size()
    end = _read_end(stream, size, _FIRST_READ_BYTES)
    postscript = _postscript_of(end)
    needed = postscript.tail_length
    if needed > size:
        raise CorruptFileError(f"footer and postscript have {needed} bytes, but the file has only {size}")
    tail = _parsed(end if needed <= len(end) else _read_end(stream, size, needed), postscript)
    data_end = size - needed - tail.statistics_length
    last = tail.stripes[-1].end if tail.stripes else 0
    if last > data_end:
        raise CorruptFileError(
            f"{len(tail.stripes)} stripes end at byte {last}, but the statistics begin at {data_end}"
        )
    return tail


def parse_tail(end: bytes) -> OrcTail:
    """Parse a tail.

    Args:
        end: the last bytes of the file, at least footer and postscript.

    Raises:
        CorruptFileError: If the bytes are not an ORC tail, if their compression cannot be read (LZO), or if
            they claim values that no file has and that would crash a decoder. See :mod:`.type_tree` and
            :mod:`.compression`.
    """
    return _parsed(end, _postscript_of(end))


def tail_length(end: bytes) -> int:
    """Return the size of footer, postscript and postscript length, from the last bytes of a file.

    Raises CorruptFileError if the bytes are not the end of an ORC file.
    """
    return _postscript_of(end).tail_length


def _parsed(end: bytes, postscript: _Postscript) -> OrcTail:
    try:
        packed, codec = _footer_of(end, postscript), postscript.compression
        footer = unpacked(packed, codec, postscript.block_bytes, most_growth=_MOST_GROWTH)
        tail = _parse_footer(footer, postscript)
        type_nodes(tail.types)
    except DAMAGE as error:
        raise CorruptFileError(f"not an ORC tail: {error}") from error
    return tail


def _postscript_of(end: bytes) -> _Postscript:
    try:
        return _parse_postscript(end)
    except DAMAGE as error:
        raise CorruptFileError(f"not an ORC tail: {error}") from error


def tail_checksum(end: bytes) -> int:
    """Return the CRC-32 of the last TAIL_CHECKSUM_BYTES bytes of a file (of all bytes of a shorter file).

    Args:
        end: the end of the file: at least this number of bytes, or the whole file.
    """
    return zlib.crc32(end[-TAIL_CHECKSUM_BYTES:])


def _read_end(stream: Any, size: int, count: int) -> bytes:
    count = min(size, count)
    stream.seek(size - count)
    data: bytes = stream.read(count)
    return data


def _footer_of(end: bytes, postscript: _Postscript) -> bytes:
    stop = len(end) - 1 - postscript.length
    start = stop - postscript.footer_length
    if start < 0:
        raise ValueError(f"the footer has {postscript.footer_length} bytes, but only {stop} are left")
    return end[start:stop]


def _parse_postscript(end: bytes) -> _Postscript:
    if not end:
        raise ValueError("there are no bytes")
    length = end[-1]
    if length + 1 > len(end):
        raise ValueError(f"the postscript has {length} bytes, but only {len(end) - 1} are left")
    tree = list(fields_of(end[len(end) - 1 - length : -1]))
    fields = dict(tree)
    writer_version = fields.get(POSTSCRIPT_WRITER_VERSION)
    if fields.get(POSTSCRIPT_MAGIC) != MAGIC:
        raise ValueError("the postscript does not contain ORC")
    block_bytes = as_number(fields.get(POSTSCRIPT_BLOCK_BYTES, 0)) or _DEFAULT_BLOCK_BYTES
    if block_bytes > LARGEST_BLOCK_BYTES:
        raise ValueError(
            f"compression blocks of {block_bytes} bytes; at most {LARGEST_BLOCK_BYTES} bytes are supported"
        )
    return _Postscript(
        footer_length=as_number(fields.get(POSTSCRIPT_FOOTER_LENGTH, 0)),
        statistics_length=as_number(fields.get(POSTSCRIPT_STATISTICS_LENGTH, 0)),
        compression=Compression(as_number(fields.get(POSTSCRIPT_COMPRESSION, 0))),
        block_bytes=block_bytes,
        length=length,
        version=tuple(
            number for field, value in tree if field == POSTSCRIPT_VERSION for number in _listed(value)
        ),
        writer_version=None if writer_version is None else as_number(writer_version),
    )


def _listed(value: int | bytes) -> list[int]:
    """Return the numbers of a repeated field, which may be packed."""
    return numbers_in(value) if isinstance(value, bytes) else [value]


def _check_stripe(stripes: Sequence[StripeInfo]) -> None:
    """Check the last stripe: its parts are not empty, and it comes after the one before."""
    stripe = stripes[-1]
    start = stripes[-2].end if len(stripes) > 1 else len(MAGIC)
    if stripe.offset < start or not stripe.footer_length:
        raise ValueError(
            f"stripe {len(stripes) - 1} begins at byte {stripe.offset} and has a footer of "
            f"{stripe.footer_length} bytes; it cannot begin before {start} or have an empty footer"
        )
    if stripe.row_count > _MOST_ROWS:
        raise ValueError(
            f"stripe {len(stripes) - 1} has {stripe.row_count} rows; at most {_MOST_ROWS} are possible"
        )


@cached_if_small(_SMALL_BYTES, 1024)
def _parse_footer(footer: bytes, postscript: _Postscript) -> OrcTail:
    stripes: list[StripeInfo] = []
    metadata: dict[str, bytes] = {}
    types: list[bytes] = []
    fields = (FOOTER_ROW_COUNT, FOOTER_CALENDAR, FOOTER_CONTENT_LENGTH, FOOTER_WRITER, _FOOTER_STRIDE)
    numbers = dict.fromkeys(fields, 0)
    statistics_count = 0
    for count, (field, value) in enumerate(fields_of(footer)):
        if count - len(stripes) > _MOST_FIELDS:
            raise ValueError(
                f"the footer has more than {_MOST_FIELDS} fields in addition to {len(stripes)} stripes"
            )
        if field == FOOTER_STRIPE:
            stripe = {key: as_number(number) for key, number in fields_of(as_bytes(value))}
            stripes.append(StripeInfo(*(stripe.get(key, 0) for key in (1, 2, 3, 4, 5))))
            _check_stripe(stripes)
        elif field == FOOTER_TYPE:
            types.append(as_bytes(value))
        elif field == FOOTER_METADATA:
            item = dict(fields_of(as_bytes(value)))
            metadata[as_bytes(item.get(METADATA_NAME, b"")).decode()] = as_bytes(
                item.get(METADATA_VALUE, b"")
            )
        elif field == _FOOTER_STATISTICS:
            statistics_count += 1
        elif field in numbers:
            numbers[field] = as_number(value)
    return OrcTail(
        compression=postscript.compression,
        block_bytes=postscript.block_bytes,
        footer_length=postscript.footer_length,
        statistics_length=postscript.statistics_length,
        postscript_length=postscript.length,
        stripes=tuple(stripes),
        row_count=numbers[FOOTER_ROW_COUNT],
        content_length=numbers[FOOTER_CONTENT_LENGTH] or None,
        types=tuple(types),
        is_proleptic=CALENDARS.get(numbers[FOOTER_CALENDAR]),
        user_metadata=metadata,
        version=postscript.version,
        writer=numbers[FOOTER_WRITER],
        writer_version=postscript.writer_version,
        statistics_count=statistics_count,
        stride=numbers[_FOOTER_STRIDE],
    )


def with_type_attributes(file: bytes, attributes: Mapping[int, Mapping[str, str]]) -> bytes:
    """Return the file with attributes added, and marked as counting days in the proleptic calendar.

    Args:
        file: a complete file without compression.
        attributes: values by name, by the number of the type. Type 0 is the struct of all columns.

    Raises:
        ValueError: If the file is compressed.
        CorruptFileError: If it is not an ORC file.
    """
    tail = parse_tail(file)
    if tail.compression is not Compression.NONE:
        raise ValueError(f"the footer is compressed by {tail.compression.name}")
    stop = len(file) - 1 - tail.postscript_length
    start = stop - tail.footer_length
    footer = _extended(file[start:stop], attributes) + number_field(FOOTER_CALENDAR, PROLEPTIC_GREGORIAN)
    postscript = with_numbers(file[stop:-1], {POSTSCRIPT_FOOTER_LENGTH: len(footer)})
    return file[:start] + footer + postscript + bytes([len(postscript)])


def _extended(footer: bytes, attributes: Mapping[int, Mapping[str, str]]) -> bytes:
    parts, number = [], 0
    for field, value, raw in raw_fields_of(footer):
        if field == FOOTER_TYPE:
            added = b"".join(_attribute(name, text) for name, text in attributes.get(number, {}).items())
            parts.append(bytes_field(FOOTER_TYPE, as_bytes(value) + added))
            number += 1
        else:
            parts.append(raw)
    return b"".join(parts)


def _attribute(name: str, value: str) -> bytes:
    item = bytes_field(TYPE_ATTRIBUTE_NAME, name.encode()) + bytes_field(TYPE_ATTRIBUTE_VALUE, value.encode())
    return bytes_field(TYPE_ATTRIBUTE, item)
