"""Statistics that an ORC file records for its columns: for the file, each stripe, and each group of rows.

Readers use them to skip data that cannot contain a requested value, so values outside a recorded range are
lost silently. Ranges that are wider than the values, or missing, are harmless.

Sums are recorded of numbers, of lengths of strings, and of true values. Readers do not use them. But ORC has
no checksums, and a corrupt byte in the values of a column changes the sum more often than the range. Numbers
of children are left out, because ORC's C++ writer records other numbers.

Source: orc_proto.proto (ColumnStatistics, IntegerStatistics and similar messages, RowIndex), ORC's
ColumnStatisticsImpl and the ORC v1 specification.
"""

from __future__ import annotations

import collections
import itertools
import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import CorruptFileError
from mutation_api.format.hive_type import primitive_of_arrow
from mutation_api.orc.format.compression import DAMAGE, unpacked
from mutation_api.orc.format.protobuf import (
    STREAM_KIND_ROW_INDEX,
    as_bytes,
    as_number,
    fields_of,
    numbers_in,
    signed,
)
from mutation_api.orc.format.stored_values import comparable_range
from mutation_api.orc.format.stripe_sections import StripeFooter, parse_row_index, parse_statistics
from mutation_api.orc.format.tail import OrcTail, StripeInfo

_INTEGERS, _DOUBLES, _TEXTS, _TRUTHS, _DECIMALS, _BINARIES = 2, 3, 4, 5, 6, 8
"""Fields of ColumnStatistics."""
_SUM, _SUM_OF_BINARIES, _COUNTS = 3, 1, 1
_ROUNDING = 1e-9
"""Sums of doubles depend on the order, by less than this fraction of the sum of their absolute values."""
_DIGITS_OF_INT64, _DIGITS_OF_HIVE_DECIMAL = 18, 38
"""Decimal digits that every sum can have in ORC's writers, by the precision of the column."""

_Message = Mapping[int, int | bytes]


def differing_sum(fields: _Message, values: pa.Array) -> tuple[str, str] | None:
    """Return the sum of the values and the recorded one; None if they agree, or if no sum is recorded.

    Args:
        fields: the fields of a ColumnStatistics.
        values: all values of the column there.

    Raises:
        CorruptFileError: If the bytes are not statistics.
    """
    found = next(((field, summed) for is_type, field, summed in _SUMS if is_type(values.type)), None)
    if found is None or found[0] not in fields:
        return None
    try:
        pair = found[1](dict(fields_of(as_bytes(fields[found[0]]))), values)
    except (*DAMAGE, ArithmeticError, struct.error) as error:
        raise CorruptFileError(f"the statistics of an ORC column cannot be parsed: {error}") from error
    return None if pair is None else (f"{pair[0]} as sum", f"{pair[1]}")


_Pair = tuple[Any, Any] | None


def _integers(recorded: _Message, values: pa.Array) -> _Pair:
    if _SUM not in recorded:
        return None
    ends = pc.min_max(values)
    if max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0)) * len(values) < 2**63:
        total = pc.sum(values.cast(pa.int64())).as_py() or 0
    else:
        total = sum(values.drop_null().to_pylist())
        if abs(total) >= 2**63:
            return None
    return _unequal(total, signed(as_number(recorded[_SUM])))


def _doubles(recorded: _Message, values: pa.Array) -> _Pair:
    if _SUM not in recorded:
        return None
    values = values.cast(pa.float64())
    total = pc.sum(values).as_py() or 0.0
    size = pc.sum(pc.abs(values)).as_py() or 0.0
    found = struct.unpack("<d", as_bytes(recorded[_SUM]))[0]
    if pc.all(pc.is_finite(values)).as_py() is False:  # a sum that includes NaN or infinity is not finite
        return (total, found) if math.isfinite(found) else None
    if not math.isfinite(size):  # such large numbers that a finite sum depends on their order
        return None
    return None if abs(total - found) <= _ROUNDING * size else (total, found)


def _lengths(recorded: _Message, values: pa.Array) -> _Pair:
    field = _SUM if pa.types.is_string(values.type) else _SUM_OF_BINARIES
    if field not in recorded:
        return None
    total = pc.sum(pc.binary_length(values).cast(pa.int64())).as_py() or 0
    return _unequal(total, signed(as_number(recorded[field])))


def _truths(recorded: _Message, values: pa.Array) -> _Pair:
    packed = recorded.get(_COUNTS)
    if packed is None:
        return None
    counts = numbers_in(packed) if isinstance(packed, bytes) else [packed]
    # ORC's C++ writer always records 0.
    return _unequal(pc.sum(values).as_py() or 0, counts[0]) if counts and counts[0] else None


def _decimals(recorded: _Message, values: pa.Array) -> _Pair:
    if _SUM not in recorded:
        return None
    # Hive 3.1's writer records a wrong sum if the sum of the first n rows has more digits, for some n.
    digits = _DIGITS_OF_INT64 if values.type.precision <= _DIGITS_OF_INT64 else _DIGITS_OF_HIVE_DECIMAL
    values = values.cast(pa.decimal256(76, values.type.scale))
    size = pc.sum(pc.abs(values)).as_py() or Decimal(0)
    if size >= Decimal(10) ** (digits - values.type.scale):
        return None
    total = pc.sum(values).as_py() or Decimal(0)
    return _unequal(total, Decimal(as_bytes(recorded[_SUM]).decode()))


def _unequal(total: Any, recorded: Any) -> _Pair:
    return None if total == recorded else (total, recorded)


_SUMS: tuple[tuple[Callable[[pa.DataType], bool], int, Callable[[_Message, pa.Array], _Pair]], ...] = (
    (pa.types.is_integer, _INTEGERS, _integers),
    (pa.types.is_floating, _DOUBLES, _doubles),
    (pa.types.is_string, _TEXTS, _lengths),
    (pa.types.is_boolean, _TRUTHS, _truths),
    (pa.types.is_decimal128, _DECIMALS, _decimals),
    (pa.types.is_binary, _BINARIES, _lengths),
)


_FOOTER_STATISTICS = 7
_COUNT, _HAS_NULL = 1, 10
_INNER = (*range(2, 10), 12)
"""Fields of ColumnStatistics that are messages, one per type of the column."""


@dataclass(frozen=True)
class RecordedStatistics:
    """Serialised ColumnStatistics by column number.

    ``stripes`` contains those of each stripe, or possibly only of the first stripes.
    """

    file: Mapping[int, bytes]
    stripes: list[Mapping[int, bytes]]


def parse_recorded(end: bytes, tail: OrcTail, columns: Collection[int]) -> RecordedStatistics:
    """Parse the statistics of some columns.

    Args:
        end: the end of the file, from the statistics of stripes on.
        tail: the tail of the same file.
        columns: their numbers in the tree of types.

    Raises:
        CorruptFileError: If the bytes are not such statistics.
    """
    stop = len(end) - 1 - tail.postscript_length
    start = stop - tail.footer_length
    try:
        footer = unpacked(end[start:stop], tail.compression, tail.block_bytes)
        found = [_whole(as_bytes(value)) for field, value in fields_of(footer) if field == _FOOTER_STATISTICS]
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics in an ORC footer cannot be parsed: {error}") from error
    section = end[start - tail.statistics_length : start]
    stripes = parse_statistics(section, tail, columns) if tail.statistics_length else []
    try:
        for statistics in itertools.chain.from_iterable(each.values() for each in stripes):
            _whole(statistics)
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics of ORC stripes cannot be parsed: {error}") from error
    return RecordedStatistics({n: s for n, s in enumerate(found) if n in columns}, stripes)


def row_group_statistics(
    index: bytes, footer: StripeFooter, tail: OrcTail, stripe: StripeInfo, columns: Collection[int]
) -> dict[int, list[bytes]]:
    """Return the statistics of a stripe's groups of rows, by column number.

    Args:
        index: the ``index_length`` bytes at the beginning of the stripe.
        footer: the stripe's footer.
        tail: the tail of the same file.
        stripe: the stripe.
        columns: numbers of the requested columns.

    Raises:
        CorruptFileError: If the bytes are not an index.
    """
    try:
        return dict(_indexes(index, footer, tail, stripe, columns))
    except DAMAGE as error:
        raise CorruptFileError(f"the index of an ORC stripe cannot be parsed: {error}") from error


def _indexes(
    index: bytes, footer: StripeFooter, tail: OrcTail, stripe: StripeInfo, columns: Collection[int]
) -> Iterator[tuple[int, list[bytes]]]:
    for stream in footer.streams:
        start, stop = stream.start - stripe.offset, stream.stop - stripe.offset
        if stream.kind == STREAM_KIND_ROW_INDEX and stream.column in columns and start < stripe.index_length:
            yield stream.column, [_whole(e.statistics) for e in parse_row_index(index[start:stop], tail)]


def _whole(statistics: bytes) -> bytes:
    """Return the statistics if their inner messages can be parsed: Hive parses all of them, used or not."""
    for field, value in fields_of(statistics):
        if field in _INNER:
            collections.deque(fields_of(as_bytes(value)), maxlen=0)
    return statistics


def difference(statistics: bytes, values: pa.Array) -> tuple[str, str] | None:
    """Return the actual and the recorded statistics; None if readers can rely on them.

    Args:
        statistics: serialised ColumnStatistics.
        values: all values of the column there, as pyarrow reads them, without rows that have no parent.

    Raises:
        CorruptFileError: If the bytes are not statistics.
    """
    try:
        fields = dict(fields_of(statistics))
        count = None if _COUNT not in fields else as_number(fields[_COUNT])
        has_null = None if _HAS_NULL not in fields else bool(as_number(fields[_HAS_NULL]))
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics of an ORC column cannot be parsed: {error}") from error
    present = len(values) - values.null_count
    if count is not None and count != present:
        return f"{present} values", f"{count} values"
    if has_null is False and values.null_count:
        return f"{values.null_count} nulls", "no null"
    return _outside(statistics, values) or differing_sum(fields, values)


def _outside(statistics: bytes, values: pa.Array) -> tuple[str, str] | None:
    hive_type = primitive_of_arrow(values.type)
    known = None if hive_type is None else comparable_range(statistics, values.type, hive_type)
    if known is None or values.null_count == len(values):
        return None
    ends = pc.min_max(_comparable(values))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if known[0] <= low and high <= known[1]:
        return None
    return f"values from {_shown(low)} to {_shown(high)}", f"{_shown(known[0])} to {_shown(known[1])}"


def _comparable(values: pa.Array) -> pa.Array:
    """Return values in the form of :func:`comparable_range`: days as numbers, strings as bytes."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.binary()) if pa.types.is_string(values.type) else values


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value.decode(errors="replace")[:40])
    return str(value) if isinstance(value, int | Decimal) else repr(value)
