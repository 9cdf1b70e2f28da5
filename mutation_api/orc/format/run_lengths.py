"""Runs of a stripe's streams: where they begin, and checks of the values that readers trust. Pure.

The checked values are lengths of strings, lists and maps, tags of unions, and scales of decimals. ORC's C++
library adds lengths up and reads at the resulting positions, even if lengths are negative or sums exceed 64
bits, and it allocates memory for their sum. It counts the values of a union by tags that the union may not
have. It divides a decimal by ten as many times as its scale, and treats a negative scale as about 4 billion.
Damaged values end the process or keep it busy for hours.

Only the first bytes of runs are read for this, because a run has up to 512 values, unless the sum of lengths
may be too large. To find where runs begin, and how many values lie before each, no values are decoded.

Source: the ORC v1 specification (run length encodings).
"""

from __future__ import annotations

import enum
import functools
import itertools
import re
from collections.abc import Callable, Iterator

from mutation_api.format.varint import varint_at
from mutation_api.orc.format.protobuf import numbers_in, signed

WIDTHS = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
"""The number of bits of a value in runs of version 2, by their code."""
_MOST_BITS = 32
_ONE_BYTE = 0x08
"""A run of version 2 with a lower first byte is one value of one byte, repeated."""
_ONE_VALUE, _FEW_BITS = 0x40, 0x40 | 24 << 1
"""A first byte between these bounds means values of equal width, of 1 to 24 bits. The bounds consist of a
flag and the code of the width."""
_LIMIT = 1 << 40
"""A bound that is above every length, but low enough that no sum of the lengths of a stripe has more than 63
bits."""
_LARGEST_SCALE = 255
"""The largest accepted scale.

Decimals have 38 digits. A few more divisions do no harm, and only the bits of runs are checked.
"""


def check_lengths(data: bytes, *, is_version_2: bool) -> int:
    """Check that all lengths in a stream are valid: not negative, and within the limits of Arrow and Java.

    Args:
        data: the stream, unpacked.
        is_version_2: True if its runs have version 2.

    Returns:
        An upper bound of their sum.

    Raises:
        ValueError, IndexError: If there are invalid lengths.
    """
    total = position = 0
    size = len(data)
    read = _run_2 if is_version_2 else _run_1
    while position < size:
        head = data[position]
        # Nearly all runs of strings are of these two kinds. Through _run_2 a stripe takes ten times as long.
        if is_version_2 and head < _ONE_BYTE:
            total += (head + 3) * data[position + 1]
            position += 2
            continue
        if is_version_2 and _ONE_VALUE <= head < _FEW_BITS:
            bits = (head >> 1 & 31) + 1
            count = ((head & 1) << 8 | data[position + 1]) + 1
            total += (count << bits) - count
            position += 2 + (count * bits + 7) // 8
            continue
        most, least, count, position = read(data, position, False)
        if least < 0 or most >= _LIMIT:
            raise ValueError(f"invalid lengths from {least} to {most} in the run that ends at {position}")
        total += most * count
    return total


def sum_of_lengths(data: bytes, *, is_version_2: bool) -> int:
    """Return the exact sum, for which each value is read.

    Arguments and errors are those of :func:`check_lengths`.
    """
    values = _values_2 if is_version_2 else _values_1
    runs = _runs(data, is_version_2, is_signed=False)
    return sum(sum(values(data, position, count)) for position, _, _, _, count in runs)


def sum_of_first_lengths(data: bytes, count: int, *, is_version_2: bool) -> int:
    """Return the sum of the first ``count`` lengths. For the rest see :func:`check_lengths`."""
    values = _values_2 if is_version_2 else _values_1
    runs = _runs(data, is_version_2, is_signed=False)
    found: list[int] = []
    while len(found) < count:
        position, _, _, _, in_run = next(runs, (0, 0, 0, 0, 0))
        if not in_run:
            raise ValueError(f"there are {len(found)} lengths instead of {count}")
        found += values(data, position, in_run)
    if min(found, default=0) < 0:
        raise ValueError(f"invalid lengths from {min(found)} on")
    return sum(found[:count])


def check_scales(data: bytes, *, is_version_2: bool) -> None:
    """Check that all scales of decimals in a stream are valid: not negative, and not far above 38.

    Args:
        data: the stream, unpacked.
        is_version_2: True if its runs have version 2.

    Raises:
        ValueError, IndexError: If there are invalid scales.
    """
    for _, stop, most, least, _ in _runs(data, is_version_2, is_signed=True):
        if least < 0 or most > _LARGEST_SCALE:
            raise ValueError(f"invalid scales from {least} to {most} in the run that ends at {stop}")


def _runs(data: bytes, is_version_2: bool, *, is_signed: bool) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield start and end of each run, bounds of its values (the greatest first), and their number."""
    position = 0
    read = _run_2 if is_version_2 else _run_1
    while position < len(data):
        most, least, count, stop = read(data, position, is_signed)
        yield position, stop, most, least, count
        position = stop


def check_tags(data: bytes, count: int) -> None:
    """Check that all tags in a stream of bytes in runs are below ``count``.

    Raises:
        ValueError, IndexError: If there are other tags.
    """
    position = 0
    while position < len(data):
        head = data[position]
        stop = position + 2 if head < 0x80 else position + 1 + 0x100 - head
        most = max(data[position + 1 : stop])
        if most >= count:
            raise ValueError(f"invalid tag {most} in a union of {count} types")
        position = stop


def _run_1(data: bytes, position: int, is_signed: bool) -> tuple[int, int, int, int]:
    """Return the bounds of the values of a run of version 1, their number, and its end.

    The functions for other runs return the same.
    """
    head = data[position]
    if head < 0x80:
        step = int.from_bytes(data[position + 1 : position + 2], "little", signed=True)
        base, position = varint_at(data, position + 2)
        base = signed(base) if is_signed else base
        last = base + step * (head + 2)
        return max(base, last), min(base, last), head + 3, position
    found = _literals(0x100 - head).match(data, position + 1)
    if found is None:
        raise ValueError(f"there are no lengths in the run at {position}")
    numbers = numbers_in(data[position + 1 : found.end()])
    if is_signed:
        numbers = [signed(each) for each in numbers]
    return max(numbers), min(numbers), 0x100 - head, found.end()


def skip_varints(data: bytes, position: int, count: int) -> int:
    """Return the position after ``count`` numbers in base 128, of any length.

    Raises ValueError if there are fewer.
    """
    found = _varints(count).match(data, position)
    if found is None:
        raise ValueError(f"there are fewer than {count} numbers at {position}")
    return found.end()


@functools.cache
def _varints(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:[\x80-\xff]*[\x00-\x7f]){%d}" % count)


@functools.cache
def _literals(count: int) -> re.Pattern[bytes]:
    """Return a pattern of ``count`` numbers of at most 35 bits."""
    return re.compile(rb"(?:[\x80-\xff]{0,4}[\x00-\x7f]){%d}" % count)


def _run_2(data: bytes, position: int, is_signed: bool) -> tuple[int, int, int, int]:
    head = data[position]
    if head < 0x40:  # one value, repeated
        start = position + 1
        stop = start + (head >> 3) + 1
        value = int.from_bytes(data[start:stop], "big")
        value = signed(value) if is_signed else value
        return value, value, (head & 7) + 3, stop
    width = WIDTHS[head >> 1 & 31]
    count = ((head & 1) << 8 | data[position + 1]) + 1
    if head < 0x80:  # values of equal width in bits
        if width > _MOST_BITS:
            raise ValueError(f"unsupported values of {width} bits in the run at {position}")
        start, most = position + 2, (1 << width) - 1
        stop = start + (count * width + 7) // 8
        if not is_signed:
            return most, 0, count, stop
        has_negative = int.from_bytes(data[start:stop], "big") & _lowest_bits(count, width)
        return most >> 1, -1 if has_negative else 0, count, stop
    if head < 0xC0:  # values above a base, some of which have more bits
        base, _, patches, stop = _patched(data, position, count, width)
        most = max((higher_bits for _, higher_bits in patches), default=0)
        return base + (most | (1 << width) - 1), 0, count, stop
    return _deltas(data, position, count, width if head >> 1 & 31 else 0, is_signed)


@functools.lru_cache(maxsize=1024)
def _lowest_bits(count: int, width: int) -> int:
    """Return a mask of the lowest bit of each of ``count`` numbers in whole bytes.

    These bits mean "negative".
    """
    padding = -(count * width) % 8
    return sum(1 << width * number for number in range(count)) << padding


def _patched(
    data: bytes, position: int, count: int, width: int
) -> tuple[int, int, list[tuple[int, int]], int]:
    """Return the base, the start of the lower bits, the higher bits of some values, and the run's end.

    Each of the higher bits is preceded by the number of the value in the run.
    """
    third, fourth = data[position + 2 : position + 4]
    patch_bits, patches = WIDTHS[third & 31], fourth & 31
    start = position + 4 + (third >> 5) + 1
    base = int.from_bytes(data[position + 4 : start], "big")
    if base >> (8 * (start - position - 4) - 1):
        raise ValueError(f"unexpected negative values in the run at {position}")
    patches_start = start + (count * width + 7) // 8
    bits = next(each for each in WIDTHS if each >= min(64, (fourth >> 5) + 1 + patch_bits))
    stop = patches_start + (patches * bits + 7) // 8
    found = _numbers(data[patches_start:stop], patches, bits)
    places = itertools.accumulate(each >> patch_bits for each in found)
    higher_bits = [(each & (1 << patch_bits) - 1) << width for each in found]
    return base, start, list(zip(places, higher_bits, strict=True)), stop


def _deltas(data: bytes, position: int, count: int, width: int, is_signed: bool) -> tuple[int, int, int, int]:
    """Return the bounds for a first value, a step, and further steps in the same direction."""
    if width and count < 2:
        raise ValueError(f"the run at {position} has steps, but only {count} value")
    base, step, start = _first_and_step(data, position)
    base = signed(base) if is_signed else base
    if not width:
        last = base + step * (count - 1)
        return max(base, last), min(base, last), count, start
    stop = start + ((count - 2) * width + 7) // 8
    if step >= 0:
        return base + step + (count << width), base, count, stop
    return base, base + step - sum(_numbers(data[start:stop], count - 2, width)), count, stop


def _first_and_step(data: bytes, position: int) -> tuple[int, int, int]:
    """Return the stored first value and the first step of a run, and the start of its further steps."""
    first, start = varint_at(data, position + 2)
    step, start = varint_at(data, start)
    return first, signed(step), start


def _values_1(data: bytes, position: int, count: int) -> list[int]:
    """Return the values of an unsigned run of version 1."""
    head = data[position]
    if head < 0x80:
        step = int.from_bytes(data[position + 1 : position + 2], "little", signed=True)
        base = varint_at(data, position + 2)[0]
        return [base + step * number for number in range(count)]
    return numbers_in(data[position + 1 : skip_varints(data, position + 1, count)])


def _values_2(data: bytes, position: int, count: int) -> list[int]:
    """Return the values of an unsigned run of version 2."""
    head = data[position]
    if head < 0x40:
        return [int.from_bytes(data[position + 1 : position + 2 + (head >> 3)], "big")] * count
    width = WIDTHS[head >> 1 & 31]
    if head < 0x80:
        start = position + 2
        return _numbers(data[start : start + (count * width + 7) // 8], count, width)
    if head < 0xC0:
        base, start, patches, _ = _patched(data, position, count, width)
        values = _numbers(data[start : start + (count * width + 7) // 8], count, width)
        for at, higher_bits in patches:
            values[at] |= higher_bits
        return [base + value for value in values]
    base, step, start = _first_and_step(data, position)
    if not head >> 1 & 31:
        return [base + step * number for number in range(count)]
    further = _numbers(data[start : start + ((count - 2) * width + 7) // 8], count - 2, width)
    steps = [step, *(further if step >= 0 else (-each for each in further))]
    return list(itertools.accumulate(steps, initial=base))


def _numbers(data: bytes, count: int, bits: int) -> list[int]:
    """Return numbers of ``bits`` bits each, one after the other."""
    whole, mask, total = int.from_bytes(data, "big"), (1 << bits) - 1, len(data) * 8
    return [
        whole >> (total - bits * (number + 1)) & mask
        for number in range(count)
        if bits * (number + 1) <= total
    ]


class RunKind(enum.Enum):
    """The encodings of runs: of bytes, and of integers in version 1 and 2."""

    BYTES = "bytes"
    VERSION_1 = "version 1"
    VERSION_2 = "version 2"


LONGEST_RUN_BYTES = 8 * 1024
"""A bound of the bytes of a run: its 512 values have 64 bits each, or its 128 numbers have ten bytes each."""
_MOST_LITERALS, _MOST_VALUES_2 = 128, 512
"""The maximum number of values in a run of literal bytes, and in a run of version 2."""


def runs_of_bytes(values: bytes) -> bytes:
    """Return bytes as runs of literal bytes."""
    starts = range(0, len(values), _MOST_LITERALS)
    parts = (values[start : start + _MOST_LITERALS] for start in starts)
    return b"".join(bytes([0x100 - len(part)]) + part for part in parts)


def first_bytes(data: bytes, count: int) -> bytes:
    """Return the first bytes in runs, or all if there are fewer. Raises IndexError if a run is cut off."""
    found = bytearray()
    position = 0
    while len(found) < count and position < len(data):
        in_run, stop = _bytes(data, position)
        is_repeated = data[position] < 0x80
        found += data[position + 1 : position + 2] * in_run if is_repeated else data[position + 1 : stop]
        position = stop
    return bytes(found[:count])


def zeros(count: int, kind: RunKind) -> bytes:
    """Return runs of ``count`` zeros."""
    if kind is not RunKind.VERSION_2:
        return runs_of_bytes(bytes(count))  # a number below 128 has one byte
    whole, rest = divmod(count, _MOST_VALUES_2)
    runs = [_MOST_VALUES_2] * whole + ([rest] if rest else [])
    # values of one bit each
    return b"".join((0x4000 | each - 1).to_bytes(2, "big") + bytes((each + 7) // 8) for each in runs)


def without_first_bytes(data: bytes, count: int) -> bytes:
    """Return runs of bytes without the first values. Raises ValueError or IndexError if there are fewer."""
    position = 0
    while count:
        in_run, stop = _bytes(data, position)
        if in_run > count:
            is_repeated = data[position] < 0x80
            rest = (
                data[position + 1 : position + 2] * (in_run - count)
                if is_repeated
                else data[position + 1 + count : stop]
            )
            return runs_of_bytes(rest) + data[stop:]
        position, count = stop, count - in_run
    return data[position:]


def run_at(data: bytes, position: int, kind: RunKind) -> tuple[int, int]:
    """Return the number of values of the run that begins at a byte, and its end.

    Raises ValueError or IndexError if there is no such run.
    """
    return _RUNS[kind](data, position)


def end_of_runs(data: bytes, position: int, count: int, kind: RunKind) -> int:
    """Return the end of the run with the last of ``count`` values, which begin with the run at a byte.

    Raises ValueError or IndexError if there are fewer values.
    """
    while count > 0:
        in_run, position = run_at(data, position, kind)
        count -= in_run
    return position


def _bytes(data: bytes, position: int) -> tuple[int, int]:
    """Return the number of values of a run, and its end. The functions below do the same."""
    head = data[position]
    return (head + 3, position + 2) if head < 0x80 else (0x100 - head, position + 1 + 0x100 - head)


def _version_1(data: bytes, position: int) -> tuple[int, int]:
    head = data[position]
    if head < 0x80:
        return head + 3, varint_at(data, position + 2)[1]
    return 0x100 - head, skip_varints(data, position + 1, 0x100 - head)


def _version_2(data: bytes, position: int) -> tuple[int, int]:
    head = data[position]
    if head < 0x40:
        return (head & 7) + 3, position + 2 + (head >> 3)
    width = WIDTHS[head >> 1 & 31]
    count = ((head & 1) << 8 | data[position + 1]) + 1
    if head < 0x80:
        return count, position + 2 + (count * width + 7) // 8
    if head < 0xC0:
        third, fourth = data[position + 2 : position + 4]
        wanted = min(64, (fourth >> 5) + 1 + WIDTHS[third & 31])
        bits = next(each for each in WIDTHS if each >= wanted)
        stop = position + 4 + (third >> 5) + 1 + (count * width + 7) // 8
        return count, stop + ((fourth & 31) * bits + 7) // 8
    _, start = varint_at(data, position + 2)
    _, start = varint_at(data, start)
    return count, start + (((count - 2) * width + 7) // 8 if head >> 1 & 31 else 0)


_RUNS: dict[RunKind, Callable[[bytes, int], tuple[int, int]]] = {
    RunKind.BYTES: _bytes,
    RunKind.VERSION_1: _version_1,
    RunKind.VERSION_2: _version_2,
}
