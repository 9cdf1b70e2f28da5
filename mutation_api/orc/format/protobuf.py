"""Messages of protocol buffers, as far as the tail of an ORC file needs them: reading and writing of fields.
Pure.

Every function raises ValueError or IndexError for bytes that are not a message.

Source: the encoding of protocol buffers (wire types, zigzag); the field numbers of orc_proto.proto.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Concatenate, ParamSpec, TypeVar

from mutation_api.format.varint import varint, varint_at

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


_P = ParamSpec("_P")
_T = TypeVar("_T")
_Parse = Callable[Concatenate[bytes, _P], _T]


def cached_if_small(most_bytes: int, count: int) -> Callable[[_Parse[_P, _T]], _Parse[_P, _T]]:
    """Return a decorator that caches the results for small messages, as the same files are read repeatedly.

    Args:
        most_bytes: the size of the largest message whose result is cached.
        count: the number of cached results.
    """

    def decorate(parse: _Parse[_P, _T]) -> _Parse[_P, _T]:
        cached = functools.lru_cache(maxsize=count)(parse)

        @functools.wraps(parse)
        def parsed(message: bytes, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            return (cached if len(message) <= most_bytes else parse)(message, *args, **kwargs)

        return parsed

    return decorate


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a protobuf message: numbers for varints, bytes for everything else."""
    position, end = 0, len(data)
    while position < end:
        key = data[position]
        # Nearly all fields of small files: a number below 128, or fewer than 128 bytes, of a field with a low
        # number.
        if 7 < key < 0x80 and position + 1 < end and (number := data[position + 1]) < 0x80:
            kind, start = key & 7, position + 2
            if kind == _VARINT:
                yield key >> 3, number
                position = start
                continue
            if kind == _BYTES and start + number <= end:
                position = start + number
                yield key >> 3, data[start:position]
                continue
        field, value, position = field_at(data, position)
        yield field, value


def raw_fields_of(data: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """Yield (field number, value, all its bytes) of a message, which consists of the bytes of all fields."""
    position = 0
    while position < len(data):
        start = position
        field, value, position = field_at(data, position)
        yield field, value, data[start:position]


def with_numbers(message: bytes, numbers: Mapping[int, int], *, dropped: Collection[int] = ()) -> bytes:
    """Return a message with new values for some number fields, which come first. The rest is unchanged.

    Args:
        message: any message.
        numbers: new values by field number, >= 0.
        dropped: fields to leave out.
    """
    new = b"".join(number_field(field, number) for field, number in numbers.items())
    kept = (raw for field, _, raw in raw_fields_of(message) if field not in numbers and field not in dropped)
    return new + b"".join(kept)


def numbers_in(packed: bytes) -> list[int]:
    """Return the values of a packed field of numbers."""
    numbers = []
    position = 0
    while position < len(packed):
        number, position = varint_at(packed, position)
        numbers.append(number)
    return numbers


def field_at(data: bytes, position: int) -> tuple[int, int | bytes, int]:
    """Return the number and value of the field that starts at a position, and the position of its end."""
    key, position = varint_at(data, position)
    field, kind = key >> 3, key & 7
    if not field:
        raise ValueError("protobuf: a field has the number 0")
    if kind == _VARINT:
        number, position = varint_at(data, position)
        return field, number, position
    if kind == _BYTES:
        length, position = varint_at(data, position)
    elif kind in (_FIXED64, _FIXED32):
        length = 8 if kind == _FIXED64 else 4
    else:
        raise ValueError(f"protobuf wire type {kind} is unknown")
    if position + length > len(data):
        raise ValueError(f"protobuf field {field} ends at byte {position + length} of {len(data)}")
    return field, data[position : position + length], position + length


def number_field(field: int, value: int) -> bytes:
    """Encode a field that is a number >= 0."""
    return varint(field << 3 | _VARINT) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """Encode a field that is bytes, a string or a message."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def as_number(value: int | bytes) -> int:
    """Return the field's value as a number. Raises ValueError if it is not one."""
    if isinstance(value, bytes):
        raise ValueError("protobuf: a number is stored as bytes")
    return value


def signed(number: int) -> int:
    """Decode the number of a ``sint`` field (zigzag)."""
    return (number >> 1) ^ -(number & 1)


def as_bytes(value: int | bytes) -> bytes:
    """Return the field's value as bytes. Raises ValueError if it is a number."""
    if isinstance(value, int):
        raise ValueError("protobuf: bytes are stored as a number")
    return value


MAGIC = b"ORC"
"""The first bytes of a file. Its postscript also contains them."""

POSTSCRIPT_FOOTER_LENGTH = 1
POSTSCRIPT_COMPRESSION = 2
POSTSCRIPT_BLOCK_BYTES = 3
POSTSCRIPT_VERSION = 4
POSTSCRIPT_STATISTICS_LENGTH = 5
POSTSCRIPT_WRITER_VERSION = 6
POSTSCRIPT_MAGIC = 8000

FOOTER_HEADER_LENGTH = 1
FOOTER_CONTENT_LENGTH = 2
FOOTER_STRIPE = 3
FOOTER_TYPE = 4
FOOTER_METADATA = 5
FOOTER_ROW_COUNT = 6
FOOTER_WRITER = 9
FOOTER_CALENDAR = 11

PROLEPTIC_GREGORIAN = 2
"""Value of FOOTER_CALENDAR: days are counted in the proleptic Gregorian calendar."""

METADATA_NAME = 1
METADATA_VALUE = 2

STRIPE_STREAM = 1
STRIPE_ENCODING = 2
STRIPE_WRITER_ZONE = 3
STREAM_KIND = 1
STREAM_KIND_PRESENT = 0
"""Value of STREAM_KIND: a bit for each value that is true if the value is not NULL. The stream is missing if
no value is NULL."""
STREAM_KIND_DATA = 1
STREAM_KIND_LENGTH = 2
"""Value of STREAM_KIND: lengths of strings, lists and maps."""
STREAM_KIND_DICTIONARY = 3
"""Value of STREAM_KIND: the strings of a dictionary."""
STREAM_KIND_SECONDARY = 5
"""Value of STREAM_KIND: nanoseconds of timestamps, scales of decimals."""
STREAM_KIND_ROW_INDEX = 6
"""Value of STREAM_KIND: statistics of groups of rows, and the positions of their values."""
STREAM_KIND_BLOOM_FILTER_UTF8 = 8
"""Value of STREAM_KIND: Bloom filters. It is the last kind."""
STREAM_COLUMN = 2
STREAM_LENGTH = 3

TYPE_KIND = 1
TYPE_KIND_CHAR = 17
"""Value of TYPE_KIND: char."""
TYPE_ATTRIBUTE = 7
TYPE_ATTRIBUTE_NAME = 1
TYPE_ATTRIBUTE_VALUE = 2
