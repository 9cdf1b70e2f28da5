"""Row groups: parts of a stripe with equally many rows, which can be read without the others.

The row index of a column has one entry per group, with the statistics of its values and the positions at
which they begin in the column's streams. Such a position may be in the middle of a run, and at another value
of the run in each stream. pyarrow only decodes whole stripes. So groups are copied into a file with one
stripe per span of groups, which begins with some extra rows, to be left out after decoding. In each stream,
these consist of zeros and of the values between the beginning of the run and the position.

Source: the ORC v1 specification (row index, positions of each kind of stream, run length encodings),
orc_proto.proto (RowIndex).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mutation_api.orc.format.compression import DAMAGE, Compression, chunk_contents, chunks_of
from mutation_api.orc.format.plain_stripe import MOST_BYTES, PlainStripes, plain_file
from mutation_api.orc.format.protobuf import (
    STREAM_KIND_DATA,
    STREAM_KIND_LENGTH,
    STREAM_KIND_PRESENT,
    STREAM_KIND_ROW_INDEX,
    STREAM_KIND_SECONDARY,
)
from mutation_api.orc.format.run_lengths import (
    LONGEST_RUN_BYTES,
    RunKind,
    end_of_runs,
    first_bytes,
    runs_of_bytes,
    sum_of_first_lengths,
    without_first_bytes,
    zeros,
)
from mutation_api.orc.format.stripe_sections import Encoding, IndexEntry, Stream, StripeFooter
from mutation_api.orc.format.tail import OrcTail, StripeInfo
from mutation_api.orc.format.type_tree import TypeKind

_BOOLEAN, _BYTE, _FLOAT, _DOUBLE, _STRING, _BINARY, _TIMESTAMP = 0, 1, 5, 6, 7, 8, 9
_VARCHAR, _CHAR, _INSTANT = 16, 17, 18
FIXED_WIDTHS = {_FLOAT: 4, _DOUBLE: 8}
"""The bytes of a value, by the kind of a column whose values have the same number of bytes."""
_TEXTS = (_STRING, _BINARY, _VARCHAR, _CHAR)


_GROUPS_PER_GROUP_ALONE = 2
"""The row groups that are decoded with a stripe in the time in which one is decoded alone.

Finding the beginning of a span takes as long as one more group."""

Span = tuple[int, int]
"""Groups that follow one another: the first one, and the one after the last."""


@dataclass(frozen=True)
class RowGroups:
    """The row groups of a stripe.

    Attributes:
        row_count: the number of rows of the stripe.
        stride: the number of rows of each group except the last one.
    """

    row_count: int
    stride: int

    @classmethod
    def of(cls, row_count: int, stride: int) -> RowGroups:
        """Return the groups. If ``stride`` is 0, the file has no groups, and the stripe counts as one."""
        return cls(row_count, stride or max(row_count, 1))

    @property
    def count(self) -> int:
        """The number of groups."""
        return -(-self.row_count // self.stride)

    def are_few(self, groups: NDArray[np.int64]) -> bool:
        """Return True if these groups are read faster alone than together with the others."""
        parts = len(groups) + len(self.spans(groups))
        return parts * _GROUPS_PER_GROUP_ALONE <= self.count

    def holding(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the groups of rows at these positions of the stripe, ascending."""
        return np.unique(positions // self.stride)

    def positions(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions in the stripe of the rows of some groups, which ascend."""
        found = (groups[:, None] * self.stride + np.arange(self.stride)).ravel()
        return found[found < self.row_count]

    def places(self, groups: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of rows at these positions of the stripe among the rows of their groups."""
        found: NDArray[np.int64] = (
            np.searchsorted(groups, positions // self.stride) * self.stride + positions % self.stride
        )
        return found

    @staticmethod
    def spans(groups: NDArray[np.int64]) -> list[Span]:
        """Return the spans of some groups, which ascend."""
        parts = np.split(groups, np.flatnonzero(np.diff(groups) != 1) + 1)
        return [(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]


class PositionedStream(NamedTuple):
    """Describes the positions of one stream.

    Attributes:
        kind: the kind of the stream.
        runs: the encoding of its runs. If None, it has plain values.
        is_bits: True if its runs are bytes of eight bits.
        counts_slots: True if nulls are counted too.
    """

    kind: int
    runs: RunKind | None
    is_bits: bool = False
    counts_slots: bool = False

    def count(self, place_count: int) -> int:
        """Return the count of numbers that form a position, of which ``place_count`` identify a byte."""
        return place_count + (self.runs is not None) + self.is_bits


@functools.lru_cache(maxsize=256)
def positioned_streams(kind: int, encoding: Encoding, *, has_nulls: bool) -> tuple[PositionedStream, ...]:
    """Return the streams of a column in the order of their positions.

    Args:
        kind: the kind of the column.
        encoding: its encoding in the stripe.
        has_nulls: True if there is a stream of nulls.
    """
    nulls = PositionedStream(STREAM_KIND_PRESENT, RunKind.BYTES, is_bits=True, counts_slots=True)
    found = (nulls,) if has_nulls else ()
    integers = RunKind.VERSION_2 if encoding.has_runs_of_version_2 else RunKind.VERSION_1
    data = PositionedStream(STREAM_KIND_DATA, integers)
    lengths = PositionedStream(STREAM_KIND_LENGTH, integers)
    plain = PositionedStream(STREAM_KIND_DATA, None)
    second = PositionedStream(STREAM_KIND_SECONDARY, integers)
    if kind == TypeKind.STRUCT:
        return found
    if kind in (TypeKind.LIST, TypeKind.MAP):
        return (*found, lengths)
    if kind == _BOOLEAN:
        return (*found, PositionedStream(STREAM_KIND_DATA, RunKind.BYTES, is_bits=True))
    if kind in (_BYTE, TypeKind.UNION):
        return (*found, PositionedStream(STREAM_KIND_DATA, RunKind.BYTES))
    if kind in FIXED_WIDTHS:
        return (*found, plain)
    if kind in (_TIMESTAMP, _INSTANT):
        return (*found, data, second)
    if kind == TypeKind.DECIMAL:
        return (*found, plain, second)
    if kind in _TEXTS and not encoding.has_dictionary:
        return (*found, plain, lengths)
    return (*found, data)


_BITS_PER_BYTE = 8
_NESTED = (TypeKind.LIST, TypeKind.MAP, TypeKind.UNION)


class _Place(NamedTuple):
    """A place in a stream.

    Attributes:
        byte: a byte of the stream, or the first byte of a chunk.
        within: the byte of the chunk's content; 0 in a file without compression.
        skipped: the number of values (bytes, if values are bits) after the beginning of a run there.
        bit: the bit within the next byte.
    """

    byte: int
    within: int
    skipped: int
    bit: int


class _Part(NamedTuple):
    """The part of a stream with the values of a span.

    Attributes:
        stream: the stream.
        positions: describes its positions. None if each group needs the whole stream, as of a dictionary.
        start: the place of the first value.
        after: the place after the last value; None if the span ends with the stripe.
        end: a byte of the stream at which a chunk ends, not before ``after``.
    """

    stream: Stream
    positions: PositionedStream | None
    start: _Place
    after: _Place | None
    end: int


class _CannotBeCut(Exception):
    """The values of a group cannot be copied apart from the others."""


def plain_groups(
    stream: Any,
    tail: OrcTail,
    footer: StripeFooter,
    stripe: StripeInfo,
    entries: Mapping[int, Sequence[IndexEntry]],
    spans: Sequence[Span],
) -> tuple[PlainStripes, list[int]] | None:
    """Return a copy of some row groups of a stripe.

    Args:
        stream: the bytes of the file.
        tail: the file's tail.
        footer: the footer of the stripe.
        stripe: the stripe.
        entries: the row index of each column that the copy has, by its number.
        spans: the groups, ascending.

    Returns:
        A file with one stripe for each span, and for each stripe the number of rows before those of the span.
        None if it may need more than 64 MiB, if a column is or is in a list, map or union, or if the index
        does not fit the stripe.
    """
    stripes, extra_rows = [], []
    left = MOST_BYTES
    try:
        for first, stop in spans:
            parts = _parts(tail, footer, entries, (first, stop))
            extra = _extra_rows(parts)
            rows = min(stop * tail.stride, stripe.row_count) - first * tail.stride
            contents = _contents(stream, tail, parts, extra, rows)
            left -= sum(len(content) for _, content in contents)
            if left < 0:
                return None
            stripes.append((extra + rows, contents))
            extra_rows.append(extra)
    except (_CannotBeCut, *DAMAGE):
        return None
    return plain_file(tail, footer, stripes), extra_rows


def ranges_of_groups(
    tail: OrcTail, footer: StripeFooter, entries: Mapping[int, Sequence[IndexEntry]], spans: Sequence[Span]
) -> Iterator[tuple[int, int]]:
    """Yield the parts of the file that :func:`plain_groups` reads: first byte, and byte after the last."""
    try:
        found = [_range(part) for span in spans for part in _parts(tail, footer, entries, span)]
    except _CannotBeCut:
        return
    yield from found


def _parts(
    tail: OrcTail, footer: StripeFooter, entries: Mapping[int, Sequence[IndexEntry]], span: Span
) -> list[_Part]:
    """Return the parts of all streams of some columns, in the order of the streams."""
    streams = [s for s in footer.streams if s.kind < STREAM_KIND_ROW_INDEX and s.column in entries]
    with_nulls = {s.column for s in streams if s.kind == STREAM_KIND_PRESENT}
    place_count = 1 if tail.compression is Compression.NONE else 2
    found = {}
    for column, own in entries.items():
        node, encoding = tail.nodes[column], footer.encodings[column]
        if node.kind in _NESTED or (encoding.has_dictionary and not encoding.dictionary_size):
            raise _CannotBeCut
        at = 0
        for each in positioned_streams(node.kind, encoding, has_nulls=column in with_nulls):
            start, at = at, at + each.count(place_count)
            found[each.kind, column] = each, own, slice(start, at)
    return [_part(each, found.get((each.kind, each.column)), span, tail) for each in streams]


def _part(
    stream: Stream,
    known: tuple[PositionedStream, Sequence[IndexEntry], slice] | None,
    span: Span,
    tail: OrcTail,
) -> _Part:
    """Return the part of one stream.

    ``known`` describes its positions, and has the index of its column and the numbers of the stream in it.
    """
    length = stream.stop - stream.start
    if known is None:
        return _Part(stream, None, _Place(0, 0, 0, 0), None, length)
    positions, entries, own = known
    is_packed = tail.compression is not Compression.NONE

    def place(group: int) -> _Place:
        numbers = entries[group].positions[own]
        if len(numbers) != positions.count(1 + is_packed):
            raise _CannotBeCut
        byte, within, *rest = numbers if is_packed else (numbers[0], 0, *numbers[1:])
        return _Place(byte, within, rest[0] if positions.runs else 0, rest[1] if positions.is_bits else 0)

    start, after = place(span[0]), place(span[1]) if span[1] < len(entries) else None
    end = length
    if after is not None and is_packed:
        # The last run may end in the next chunk. Each chunk except the last one has a whole block.
        chunks = 2 if after.within + LONGEST_RUN_BYTES > tail.block_bytes else 1
        later = (byte for byte, _ in itertools.groupby(place(at).byte for at in range(span[1], len(entries))))
        end = next(itertools.islice(later, chunks, None), length)
    elif after is not None:
        end = min(after.byte + LONGEST_RUN_BYTES, length)
    if not start.byte <= (length if after is None else after.byte) <= end <= length:
        raise _CannotBeCut
    return _Part(stream, positions, start, after, end)


def _range(part: _Part) -> tuple[int, int]:
    """Return the first byte in the file of a part, and the byte after the last one."""
    return part.stream.start + part.start.byte, part.stream.start + part.end


def _extra_rows(parts: Sequence[_Part]) -> int:
    """Return the number of extra rows: whole bytes of bits, and at least the skipped values of each stream.

    Values can be left out of runs of bytes, so these do not matter.
    """
    with_rest = (p for p in parts if p.positions is not None and p.positions.runs is not RunKind.BYTES)
    most = max((part.start.skipped for part in with_rest), default=0)
    return -(-most // _BITS_PER_BYTE) * _BITS_PER_BYTE


def _contents(
    stream: Any, tail: OrcTail, parts: Sequence[_Part], extra: int, rows: int
) -> list[tuple[Stream, bytes]]:
    """Return the streams of a stripe with extra rows before its own rows."""
    plain = {(part.stream.kind, part.stream.column): _unpacked(stream, tail, part) for part in parts}
    skipped_bytes = {
        part.stream.column: sum_of_first_lengths(
            plain[STREAM_KIND_LENGTH, part.stream.column],
            part.start.skipped,
            is_version_2=part.positions.runs is RunKind.VERSION_2,
        )
        for part in parts
        if part.stream.kind == STREAM_KIND_LENGTH and part.positions is not None
    }
    found = []
    for part in parts:
        kind, column = part.stream.kind, part.stream.column
        content = plain[kind, column]
        if part.positions is None:
            pass
        elif part.positions.runs is RunKind.BYTES:
            content = _of_bytes(content, part, extra, rows)
        elif part.positions.runs is not None:
            content = zeros(extra - part.start.skipped, part.positions.runs) + content
        elif column in skipped_bytes:
            content = bytes(skipped_bytes[column]) + content
        else:
            content = bytes(extra * FIXED_WIDTHS.get(tail.nodes[column].kind, 1)) + content
        found.append((part.stream, content))
    return found


def _of_bytes(content: bytes, part: _Part, extra: int, rows: int) -> bytes:
    """Return runs of bytes that begin with extra values, given runs of which the first values are skipped."""
    content = without_first_bytes(content, part.start.skipped)
    if part.positions is None or not part.positions.is_bits:
        return runs_of_bytes(bytes(extra)) + content
    if part.start.bit:
        bits = np.unpackbits(np.frombuffer(first_bytes(content, rows // _BITS_PER_BYTE + 2), np.uint8))
        content = runs_of_bytes(np.packbits(bits[part.start.bit :]).tobytes())
    is_present = part.stream.kind == STREAM_KIND_PRESENT
    return runs_of_bytes((b"\xff" if is_present else b"\0") * (extra // _BITS_PER_BYTE)) + content


def _unpacked(stream: Any, tail: OrcTail, part: _Part) -> bytes:
    """Return the content of a stream from the run of the first value to the run of the last one."""
    first, last = _range(part)
    stream.seek(first)
    data: bytes = stream.read(last - first)
    content = data
    at = 0 if part.after is None else part.after.byte - part.start.byte
    if tail.compression is not Compression.NONE:
        if len(list(chunks_of(data, tail.block_bytes))) * tail.block_bytes > MOST_BYTES:
            raise _CannotBeCut
        chunks = list(chunk_contents(data, tail.compression, tail.block_bytes))
        content = b"".join(plain for _, plain in chunks)
        at = sum(len(plain) for head, plain in chunks if head < at)
    stop = len(content)
    if part.after is not None and part.positions is not None:
        stop = at + part.after.within
        if part.positions.runs is not None:
            stop = end_of_runs(content, stop, part.after.skipped + (part.after.bit > 0), part.positions.runs)
    return content[part.start.within : stop]
