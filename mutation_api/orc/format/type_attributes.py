"""Attributes of types, added to the tail of a finished ORC file whose footer is not compressed.

pyarrow's writer cannot write them, and Spark tells wall clocks by them. The types of a footer are a list, so
their messages are extended where they are; all other fields keep their bytes.

Source: orc_proto.proto (Type.attributes).
"""

from __future__ import annotations

from collections.abc import Mapping

from mutation_api.orc.format.compression import Compression
from mutation_api.orc.format.orc_proto import (
    FOOTER_CALENDAR,
    FOOTER_TYPE,
    POSTSCRIPT_FOOTER_LENGTH,
    PROLEPTIC_GREGORIAN,
    TYPE_ATTRIBUTE,
    TYPE_ATTRIBUTE_NAME,
    TYPE_ATTRIBUTE_VALUE,
)
from mutation_api.orc.format.protobuf import (
    as_bytes,
    bytes_field,
    number_field,
    raw_fields_of,
    with_numbers,
)
from mutation_api.orc.format.tail import parse_tail

__all__ = ["with_type_attributes"]


def with_type_attributes(file: bytes, attributes: Mapping[int, Mapping[str, str]]) -> bytes:
    """The same file with attributes; it also says that days are counted in the proleptic calendar.

    Args:
        file: a complete file without compression.
        attributes: name to value, by the number of the type; 0 is the struct of all columns.

    Raises:
        ValueError: the file is compressed.
        CorruptFileError: it is no ORC file.
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
