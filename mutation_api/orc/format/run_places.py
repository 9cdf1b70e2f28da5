"""Where the runs of a stream begin, and how many values lie before each. Pure; no value is decoded.

Source: the ORC v1 specification (run length encodings).
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Callable

from mutation_api.orc.format.protobuf import varint_at
from mutation_api.orc.format.run_lengths import WIDTHS, skip_varints

__all__ = ["RunKind", "RunPlaces"]


class RunKind(enum.Enum):
    """Encodings of runs: of bytes, and of integers in version 1 and 2."""

    BYTES = "bytes"
    VERSION_1 = "version 1"
    VERSION_2 = "version 2"


class RunPlaces:
    """The runs of one stream.

    Args:
        data: the stream, unpacked.
        kind: of its runs.

    Raises:
        ValueError, IndexError: it has no such runs.
    """

    def __init__(self, data: bytes, kind: RunKind) -> None:
        self._starts: list[int] = []
        self._counts: list[int] = []
        read, position, total = _RUNS[kind], 0, 0
        while position < len(data):
            self._starts.append(position)
            self._counts.append(total)
            count, position = read(data, position)
            total += count
        self._starts.append(len(data))
        self._counts.append(total)

    def values_before(self, start: int) -> int | None:
        """How many values lie before the run that begins at a byte; None if no run begins there."""
        at = bisect_left(self._starts, start)
        return self._counts[at] if at < len(self._starts) and self._starts[at] == start else None


def _bytes(data: bytes, position: int) -> tuple[int, int]:
    """Number of values of a run, and its end; so do the following."""
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
