"""Lengths of texts, lists and maps, and tags of unions, as a stripe has them: are they lengths and tags?

ORC's C++ library adds lengths up and goes to where they point, negative ones and sums above 64 bits as well,
takes memory for their sum, and counts the values of a union by tags that the union need not have; damaged
ones end the process. Here only the heads of runs are looked at, as a run has up to 512 values, unless their
sum may be too large. Pure.

Source: the ORC v1 specification (run length encodings).
"""

from __future__ import annotations

import functools
import re

from mutation_api.orc.format.protobuf import numbers_in, signed, varint_at

__all__ = ["WIDTHS", "check_lengths", "check_tags", "skip_varints", "sum_of_lengths"]

WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
"""Bits of a value in runs of version 2, by their code."""
_MOST_BITS = 32
_LIMIT = 1 << 40
"""Above every length, and so low that no sum of lengths of a stripe has more than 63 bits."""


def check_lengths(data: bytes, *, is_version_2: bool) -> int:
    """Check that a stream has lengths: none is negative, none above what Arrow and Java can have.

    Args:
        data: the stream, unpacked.
        is_version_2: the encoding of its runs.

    Returns:
        A number that their sum is not above.

    Raises:
        ValueError, IndexError: it has others.
    """
    position = total = 0
    read = _run_2 if is_version_2 else _run_1
    while position < len(data):
        most, least, count, position = read(data, position)
        if least < 0 or most >= _LIMIT:
            raise ValueError(f"lengths from {least} to {most} in the run that ends at {position}")
        total += most * count
    return total


def sum_of_lengths(data: bytes, *, is_version_2: bool) -> int:
    """The sum itself, which takes each value; arguments and errors as :func:`check_lengths`."""
    position = total = 0
    read, decode = (_run_2, _sum_2) if is_version_2 else (_run_1, _sum_1)
    while position < len(data):
        _, _, count, stop = read(data, position)
        total += decode(data, position, count)
        position = stop
    return total


def check_tags(data: bytes, count: int) -> None:
    """Check that a stream of bytes in runs has tags below ``count`` only.

    Raises:
        ValueError, IndexError: it has others.
    """
    position = 0
    while position < len(data):
        head = data[position]
        stop = position + 2 if head < 0x80 else position + 1 + 0x100 - head
        most = max(data[position + 1 : stop])
        if most >= count:
            raise ValueError(f"the tag {most} in a union of {count} types")
        position = stop


def _run_1(data: bytes, position: int) -> tuple[int, int, int, int]:
    """Bounds of the values of a run of version 1, their number, and its end; so do the following."""
    head = data[position]
    if head < 0x80:
        step = int.from_bytes(data[position + 1 : position + 2], "little", signed=True)
        base, position = varint_at(data, position + 2)
        last = base + step * (head + 2)
        return max(base, last), min(base, last), head + 3, position
    found = _literals(0x100 - head).match(data, position + 1)
    if found is None:
        raise ValueError(f"no lengths in the run at {position}")
    return max(numbers_in(data[position + 1 : found.end()])), 0, 0x100 - head, found.end()


def skip_varints(data: bytes, position: int, count: int) -> int:
    """Position behind so many numbers in base 128, of any length.

    Raises ValueError: there are fewer.
    """
    found = _varints(count).match(data, position)
    if found is None:
        raise ValueError(f"no {count} numbers at {position}")
    return found.end()


@functools.cache
def _varints(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:[\x80-\xff]*[\x00-\x7f]){%d}" % count)


@functools.cache
def _literals(count: int) -> re.Pattern[bytes]:
    """So many numbers of at most 35 bits."""
    return re.compile(rb"(?:[\x80-\xff]{0,4}[\x00-\x7f]){%d}" % count)


def _run_2(data: bytes, position: int) -> tuple[int, int, int, int]:
    head = data[position]
    if head < 0x40:  # one value several times
        start = position + 1
        stop = start + (head >> 3) + 1
        value = int.from_bytes(data[start:stop], "big")
        return value, value, (head & 7) + 3, stop
    width = WIDTHS[head >> 1 & 31]
    count = ((head & 1) << 8 | data[position + 1]) + 1
    if head < 0x80:  # each value in so many bits
        if width > _MOST_BITS:
            raise ValueError(f"lengths of {width} bits in the run at {position}")
        return (1 << width) - 1, 0, count, position + 2 + (count * width + 7) // 8
    if head < 0xC0:
        return _patched(data, position, count, width)
    return _deltas(data, position, count, width if head >> 1 & 31 else 0)


def _patched(data: bytes, position: int, count: int, width: int) -> tuple[int, int, int, int]:
    """Values above a base, some of which have more bits."""
    third, fourth = data[position + 2 : position + 4]
    base_bytes, patch_bits = (third >> 5) + 1, WIDTHS[third & 31]
    patches, gap_bits = fourth & 31, (fourth >> 5) + 1
    start = position + 4
    base = int.from_bytes(data[start : start + base_bytes], "big")
    if base >> (8 * base_bytes - 1):
        raise ValueError(f"negative lengths in the run at {position}")
    start += base_bytes + (count * width + 7) // 8
    bits = next(each for each in WIDTHS if each >= min(64, gap_bits + patch_bits))
    stop = start + (patches * bits + 7) // 8
    found = _numbers(data[start:stop], patches, bits)
    patch = max((each & (1 << patch_bits) - 1 for each in found), default=0)
    return base + (patch << width | (1 << width) - 1), 0, count, stop


def _deltas(data: bytes, position: int, count: int, width: int) -> tuple[int, int, int, int]:
    """A first value, a step, and further steps in the same direction."""
    if width and count < 2:
        raise ValueError(f"{count} value with steps in the run at {position}")
    base, start = varint_at(data, position + 2)
    number, start = varint_at(data, start)
    step = signed(number)
    if not width:
        last = base + step * (count - 1)
        return max(base, last), min(base, last), count, start
    stop = start + ((count - 2) * width + 7) // 8
    if step >= 0:
        return base + step + (count << width), base, count, stop
    return base, base + step - sum(_numbers(data[start:stop], count - 2, width)), count, stop


def _sum_1(data: bytes, position: int, count: int) -> int:
    head = data[position]
    if head < 0x80:
        step = int.from_bytes(data[position + 1 : position + 2], "little", signed=True)
        return varint_at(data, position + 2)[0] * count + step * count * (count - 1) // 2
    return sum(numbers_in(data[position + 1 : skip_varints(data, position + 1, count)]))


def _sum_2(data: bytes, position: int, count: int) -> int:
    head = data[position]
    if head < 0x40:
        return count * int.from_bytes(data[position + 1 : position + 2 + (head >> 3)], "big")
    width = WIDTHS[head >> 1 & 31]
    if head < 0x80:
        start = position + 2
        return sum(_numbers(data[start : start + (count * width + 7) // 8], count, width))
    if head < 0xC0:
        third, fourth = data[position + 2 : position + 4]
        start, patch_bits = position + 4 + (third >> 5) + 1, WIDTHS[third & 31]
        base = int.from_bytes(data[position + 4 : start], "big")
        stop = start + (count * width + 7) // 8
        bits = next(each for each in WIDTHS if each >= min(64, (fourth >> 5) + 1 + patch_bits))
        patches = _numbers(data[stop : stop + ((fourth & 31) * bits + 7) // 8], fourth & 31, bits)
        patched: int = sum((each & (1 << patch_bits) - 1) << width for each in patches)
        return base * count + sum(_numbers(data[start:stop], count, width)) + patched
    base, start = varint_at(data, position + 2)
    number, start = varint_at(data, start)
    step = signed(number)
    if not head >> 1 & 31:
        return base * count + step * count * (count - 1) // 2
    value = base + step
    total = base + value
    for each in _numbers(data[start : start + ((count - 2) * width + 7) // 8], count - 2, width):
        value += each if step >= 0 else -each
        total += value
    return total


def _numbers(data: bytes, count: int, bits: int) -> list[int]:
    """Numbers of so many bits each, one after the other."""
    whole, mask, total = int.from_bytes(data, "big"), (1 << bits) - 1, len(data) * 8
    return [
        whole >> (total - bits * (number + 1)) & mask
        for number in range(count)
        if bits * (number + 1) <= total
    ]
