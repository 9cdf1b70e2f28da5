"""Reads protobuf messages without their classes: field numbers and values in their order.

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["fields", "read_delimited", "texts"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


def fields(message: BinaryIO) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: a number, or bytes, which may be a message, a text or fixed bytes.

    Raises:
        EOFError: the message is truncated.
        ValueError: it is not protobuf.
    """
    while first := message.read(1):
        tag = _read_varint(message, first)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            yield number, _read_varint(message)
        elif kind == _BYTES:
            yield number, read_delimited(message)
        elif kind in (_FIXED64, _FIXED32):
            yield number, _exactly(message, 8 if kind == _FIXED64 else 4)
        else:
            raise ValueError(f"a field has the wire type {kind}")


def texts(message: BinaryIO) -> dict[int, bytes]:
    """Fields that are bytes, by number; the last one of a repeated field, as in protobuf.

    Raises as :func:`fields`.
    """
    return {number: value for number, value in fields(message) if isinstance(value, bytes)}


def read_delimited(message: BinaryIO) -> bytes:
    """Read bytes that follow their own length. Raises EOFError, ValueError."""
    return _exactly(message, _read_varint(message))


def _read_varint(message: BinaryIO, first: bytes = b"") -> int:
    value = 0
    for position in range(_LONGEST_VARINT):
        byte = (first or _exactly(message, 1))[0]
        first = b""
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value
    raise ValueError("a number is longer than ten bytes")


def _exactly(message: BinaryIO, count: int) -> bytes:
    found = message.read(count)
    if len(found) < count:
        raise EOFError
    return found
