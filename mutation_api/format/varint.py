"""Numbers of variable length. Pure.

A byte holds seven bits, the lowest ones come first, and all bytes but the last have the highest bit.
ORC's metadata and Hive's sketches of distinct values store numbers so.

Source: the encoding of protocol buffers (base 128 varints).
"""

from __future__ import annotations

_ONE_BYTE = [bytes([number]) for number in range(0x80)]


def varint_at(data: bytes, position: int) -> tuple[int, int]:
    """Return the number that starts at a position, and the position of its end.

    Raises:
        IndexError: If the data end within the number.
        ValueError: If it has more than 64 bits.
    """
    number = data[position]
    if number < 0x80:
        return number, position + 1
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def varint(number: int) -> bytes:
    """Encode a number >= 0."""
    if number < 0x80:
        return _ONE_BYTE[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
