"""Checks whether the positions of groups of rows lead to their values.

A reader that skips groups begins at such a position. Hive fails if it is outside its stream, and returns
wrong values if it is not the group's; nothing else in a file reveals this. So the position of each group is
compared with the number of values before it.

Source: the ORC v1 specification (row index) and the seek methods of ORC's TreeReaderFactory.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.orc.format.compression import Compression, chunk_contents
from mutation_api.orc.format.protobuf import (
    STREAM_KIND_PRESENT,
    STREAM_KIND_ROW_INDEX,
)
from mutation_api.orc.format.row_groups import (
    FIXED_WIDTHS,
    PositionedStream,
    positioned_streams,
)
from mutation_api.orc.format.run_lengths import RunKind, run_at
from mutation_api.orc.format.stripe_sections import StripeFooter, parse_row_index
from mutation_api.orc.format.tail import OrcTail
from mutation_api.orc.format.type_tree import TypeKind

_BITS_PER_BYTE = 8


class PositionFault(NamedTuple):
    """A position at which its group does not begin: the group, the position found, and the expected one."""

    group: int
    found: str
    expected: str


class StripeBytes:
    """The streams of one stripe, by kind and column.

    Args:
        data: the bytes of the stripe.
        offset: the position in the file where the stripe begins.
        footer: the stripe's footer.
        tail: the file's tail.
    """

    def __init__(self, data: bytes, offset: int, footer: StripeFooter, tail: OrcTail) -> None:
        self.footer = footer
        self.tail = tail
        self._raw = {(s.kind, s.column): data[s.start - offset : s.stop - offset] for s in footer.streams}

    def has(self, kind: int, column: int) -> bool:
        """Return True if there is such a stream."""
        return (kind, column) in self._raw

    def raw(self, kind: int, column: int) -> bytes:
        """Return a stream as in the file."""
        return self._raw.get((kind, column), b"")

    def chunks(self, kind: int, column: int) -> _Chunks:
        """Return the content of a stream, with the positions of its chunks."""
        return _Chunks(self.raw(kind, column), self.tail)


class _Chunks:
    """An unpacked stream, and the places of its chunks.

    Attributes:
        content: the whole content.
    """

    def __init__(self, raw: bytes, tail: OrcTail) -> None:
        self._is_packed = tail.compression is not Compression.NONE
        if not self._is_packed:
            self.content = raw
            return
        found = list(chunk_contents(raw, tail.compression, tail.block_bytes))
        self.content = b"".join(content for _, content in found)
        self._starts = [start for start, _ in found] + [len(raw)]
        self._places = [0, *itertools.accumulate(len(content) for _, content in found)]

    @property
    def numbers(self) -> int:
        """The number of values in a position that identify a byte."""
        return 2 if self._is_packed else 1

    def place(self, position: Sequence[int]) -> int | None:
        """Return the byte of the content that a position identifies; None if there is no such byte."""
        if not self._is_packed:
            return position[0] if position[0] <= len(self.content) else None
        chunk, within = position
        at = bisect_right(self._starts, chunk) - 1
        if at < 0 or self._starts[at] != chunk:
            return None
        start = self._places[at]
        size = self._places[at + 1] - start if at + 1 < len(self._places) else 0
        return start + within if within <= size else None


def _wrong_positions(
    stripe: StripeBytes,
    column: int,
    slots: Sequence[int],
    values: Sequence[int],
    bytes_before: Sequence[int] | None,
) -> Iterator[PositionFault]:
    """Yield positions of one column that are not those of its groups.

    Args:
        stripe: the column's stripe.
        column: its number in the tree of types.
        slots: for each group, the number of values and nulls of the column before it.
        values: the same numbers without nulls.
        bytes_before: the same in bytes of string or binary values. If None, it is not known, or the column
            is of another type.

    Damaged bytes raise various errors.
    """
    if not stripe.has(STREAM_KIND_ROW_INDEX, column):
        yield PositionFault(0, f"no row index of column {column}", "a row index for each column")
        return
    groups = [
        entry.positions for entry in parse_row_index(stripe.raw(STREAM_KIND_ROW_INDEX, column), stripe.tail)
    ]
    streams = [(each, stripe.chunks(each.kind, column)) for each in _streams(stripe, column)]
    needed = sum(each.count(chunks.numbers) for each, chunks in streams)
    for group, found in enumerate(groups[: len(slots)]):
        if len(found) < needed:
            yield PositionFault(group, f"{len(found)} numbers in a position", f"{needed}")
            return
    at = 0
    for each, chunks in streams:
        stop = at + each.count(chunks.numbers)
        expected = slots if each.counts_slots else values
        places = [found[at:stop] for found in groups[: len(slots)]]
        fault = _first_wrong(each, chunks, places, expected, stripe, column, bytes_before)
        if fault is not None:
            yield fault
        at = stop


def _first_wrong(
    stream: PositionedStream,
    chunks: _Chunks,
    positions: Sequence[Sequence[int]],
    expected: Sequence[int],
    stripe: StripeBytes,
    column: int,
    bytes_before: Sequence[int] | None,
) -> PositionFault | None:
    kind = stripe.tail.nodes[column].kind
    runs = (
        None
        if stream.runs is None or not any(map(any, positions))
        else RunPlaces(chunks.content, stream.runs)
    )
    ends: NDArray[np.intp] | None = None
    for group, position in enumerate(positions):
        wanted: int | None = expected[group]
        place = chunks.place(position[: chunks.numbers])
        found: int | None = place
        if not any(position):
            found = 0
        elif place is None:
            found = None
        elif stream.runs is not None:
            before = None if runs is None else runs.values_before(place)
            found = None if before is None else before + position[chunks.numbers]
            if stream.is_bits and found is not None:
                found = found * _BITS_PER_BYTE + position[-1]
        elif kind in FIXED_WIDTHS:
            wanted = expected[group] * FIXED_WIDTHS[kind]
        elif kind == TypeKind.DECIMAL:
            ends = _ends_of_numbers(chunks.content) if ends is None else ends
            wanted = int(ends[expected[group] - 1]) + 1 if expected[group] else 0
        else:
            wanted = found if bytes_before is None else bytes_before[group]
        if found != wanted:
            where = ",".join(map(str, position))
            what = "outside the stream" if found is None else f"at {found:,}"
            return PositionFault(group, f"position {where} in stream {stream.kind}, {what}", f"{wanted:,}")
    return None


def _ends_of_numbers(content: bytes) -> NDArray[np.intp]:
    """Return the indices of the last bytes of numbers in base 128."""
    return np.flatnonzero(np.frombuffer(content, np.uint8) < 0x80)


def _streams(stripe: StripeBytes, column: int) -> tuple[PositionedStream, ...]:
    """Return the streams of a column in the order of their positions."""
    kind, encoding = stripe.tail.nodes[column].kind, stripe.footer.encodings[column]
    return positioned_streams(kind, encoding, has_nulls=stripe.has(STREAM_KIND_PRESENT, column))


class RunPlaces:
    """The runs of one stream.

    Args:
        data: the stream, unpacked.
        kind: the encoding of its runs.

    Raises:
        ValueError, IndexError: If the stream does not have such runs.
    """

    def __init__(self, data: bytes, kind: RunKind) -> None:
        self._starts: list[int] = []
        self._counts: list[int] = []
        position = total = 0
        while position < len(data):
            self._starts.append(position)
            self._counts.append(total)
            count, position = run_at(data, position, kind)
            total += count
        self._starts.append(len(data))
        self._counts.append(total)

    def values_before(self, start: int) -> int | None:
        """Return the number of values before the run that begins at a byte; None if no run begins there."""
        at = bisect_left(self._starts, start)
        return self._counts[at] if at < len(self._starts) and self._starts[at] == start else None


class GroupCounts:
    """The number of values of each column before each group of rows of a stripe; filled group by group."""

    def __init__(self) -> None:
        self.slots: dict[int, list[int]] = defaultdict(lambda: [0])
        self.values: dict[int, list[int]] = defaultdict(lambda: [0])
        self.bytes: dict[int, list[int]] = defaultdict(lambda: [0])

    def add(self, column: int, values: pa.Array) -> None:
        """Add the values that one column has in the next group."""
        self.slots[column].append(self.slots[column][-1] + len(values))
        self.values[column].append(self.values[column][-1] + len(values) - values.null_count)
        if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
            total = pc.sum(pc.binary_length(values).cast(pa.int64())).as_py() or 0
            self.bytes[column].append(self.bytes[column][-1] + total)

    def faults(self, stripe: StripeBytes) -> Iterator[tuple[int, PositionFault]]:
        """Yield the columns with wrong positions."""
        for column, slots in self.slots.items():
            is_padded = column in stripe.tail.char_columns
            bytes_before = None if is_padded or column not in self.bytes else self.bytes[column][:-1]
            for fault in _wrong_positions(stripe, column, slots[:-1], self.values[column][:-1], bytes_before):
                yield column, fault
