"""Lengths of texts, lists and maps, and tags of unions, as a stripe has them: are they lengths and tags?

ORC's C++ library adds lengths up and goes to where they point, negative ones and sums above 64 bits as well,
and counts the values of a union by tags that the union need not have; damaged ones end the process. Here only
the heads of runs are looked at: a run has up to 512 values. Pure.

Source: the ORC v1 specification (run length encodings).
"""

from __future__ import annotations

import functools
import re

from mutation_api.orc.format.protobuf import signed, varint_at

__all__ = ["check_lengths", "check_tags"]

_WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
_MOST_BITS = 32
_LIMIT = 1 << 40
"""Above every length, and so low that no sum of lengths of a stripe has more than 63 bits."""


def check_lengths(data: bytes, *, is_version_2: bool) -> None:
    """Check that a stream has lengths: none is negative, none above what Arrow and Java can have.

    Args:
        data: the stream, unpacked.
        is_version_2: the encoding of its runs.

    Raises:
        ValueError, IndexError: it has others.
    """
    position = 0
    read = _run_2 if is_version_2 else _run_1
    while position < len(data):
        most, least, position = read(data, position)
        if least < 0 or most >= _LIMIT:
            raise ValueError(f"lengths from {least} to {most} in the run that ends at {position}")


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


def _run_1(data: bytes, position: int) -> tuple[int, int, int]:
    """Bounds of the values of a run of version 1, and its end."""
    head = data[position]
    if head < 0x80:
        step = int.from_bytes(data[position + 1 : position + 2], "little", signed=True)
        base, position = varint_at(data, position + 2)
        last = base + step * (head + 2)
        return max(base, last), min(base, last), position
    found = _literals(0x100 - head).match(data, position + 1)
    if found is None:
        raise ValueError(f"no lengths in the run at {position}")
    return 0, 0, found.end()


@functools.cache
def _literals(count: int) -> re.Pattern[bytes]:
    """So many numbers of at most 35 bits."""
    return re.compile(rb"(?:[\x80-\xff]{0,4}[\x00-\x7f]){%d}" % count)


def _run_2(data: bytes, position: int) -> tuple[int, int, int]:
    """Bounds of the values of a run of version 2, and its end."""
    head = data[position]
    if head < 0x40:  # one value several times
        start = position + 1
        stop = start + (head >> 3) + 1
        value = int.from_bytes(data[start:stop], "big")
        return value, value, stop
    width = _WIDTHS[head >> 1 & 31]
    count = ((head & 1) << 8 | data[position + 1]) + 1
    if head < 0x80:  # each value in so many bits
        if width > _MOST_BITS:
            raise ValueError(f"lengths of {width} bits in the run at {position}")
        return (1 << width) - 1, 0, position + 2 + (count * width + 7) // 8
    if head < 0xC0:
        return _patched(data, position, count, width)
    return _deltas(data, position, count, width if head >> 1 & 31 else 0)


def _patched(data: bytes, position: int, count: int, width: int) -> tuple[int, int, int]:
    """Values above a base, some of which have more bits."""
    third, fourth = data[position + 2 : position + 4]
    base_bytes, patch_bits = (third >> 5) + 1, _WIDTHS[third & 31]
    patches, gap_bits = fourth & 31, (fourth >> 5) + 1
    start = position + 4
    base = int.from_bytes(data[start : start + base_bytes], "big")
    if base >> (8 * base_bytes - 1):
        raise ValueError(f"negative lengths in the run at {position}")
    start += base_bytes + (count * width + 7) // 8
    bits = next(each for each in _WIDTHS if each >= min(64, gap_bits + patch_bits))
    stop = start + (patches * bits + 7) // 8
    found = _numbers(data[start:stop], patches, bits)
    patch = max((each & (1 << patch_bits) - 1 for each in found), default=0)
    return base + (patch << width | (1 << width) - 1), 0, stop


def _deltas(data: bytes, position: int, count: int, width: int) -> tuple[int, int, int]:
    """A first value, a step, and further steps in the same direction."""
    base, start = varint_at(data, position + 2)
    number, start = varint_at(data, start)
    step = signed(number)
    if not width:
        last = base + step * (count - 1)
        return max(base, last), min(base, last), start
    stop = start + ((count - 2) * width + 7) // 8
    if step >= 0:
        return base + step + (count << width), base, stop
    return base, base + step - sum(_numbers(data[start:stop], count - 2, width)), stop


def _numbers(data: bytes, count: int, bits: int) -> list[int]:
    """Numbers of so many bits each, one after the other."""
    whole, mask, total = int.from_bytes(data, "big"), (1 << bits) - 1, len(data) * 8
    return [
        whole >> (total - bits * (number + 1)) & mask
        for number in range(count)
        if bits * (number + 1) <= total
    ]
