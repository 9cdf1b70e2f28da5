"""Statistics that an ORC file records of its columns: for the file, each stripe, and each group of rows.

Readers skip what cannot hold a wanted value by them, so values outside a recorded range are lost silently.
Ranges that are wider than the values, or missing, are harmless.

Source: orc_proto.proto (ColumnStatistics, RowIndex) and the ORC v1 specification.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import DAMAGE, unpacked
from mutation_api.orc.format.orc_proto import STREAM_KIND_ROW_INDEX
from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of
from mutation_api.orc.format.stripe_ranges import comparable_range
from mutation_api.orc.format.stripe_sections import StripeFooter, parse_statistics
from mutation_api.orc.format.tail import OrcTail, StripeInfo
from mutation_api.types.hive_type import HiveType, parse_hive_type
from mutation_api.upkeep.verify.recorded_sums import differing_sum

__all__ = ["RecordedStatistics", "difference", "parse_recorded", "row_group_statistics"]

_FOOTER_STATISTICS, _FOOTER_STRIDE = 7, 8
_COUNT, _HAS_NULL = 1, 10
_INNER = (*range(2, 10), 12)
"""Fields of ColumnStatistics that are messages, by the type of the column."""
_INDEX_ENTRY, _ENTRY_STATISTICS = 1, 2

_TYPES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.date32(): "date",
}


@dataclass(frozen=True)
class RecordedStatistics:
    """Serialised ColumnStatistics by column number.

    ``stripes``: for each stripe, maybe for the first ones only; ``stride``: rows of a group, 0 if the file
    has no index of groups.
    """

    file: Mapping[int, bytes]
    stripes: list[dict[int, bytes]]
    stride: int


def parse_recorded(end: bytes, tail: OrcTail, columns: Collection[int]) -> RecordedStatistics:
    """Statistics of some columns.

    Args:
        end: the end of the file, from the statistics of stripes on.
        tail: of the same file.
        columns: their numbers in the tree of types.

    Raises:
        CorruptFileError: the bytes are not such statistics.
    """
    stop = len(end) - 1 - tail.postscript_length
    start = stop - tail.footer_length
    try:
        footer = unpacked(end[start:stop], tail.compression, tail.block_bytes)
        fields = list(fields_of(footer))
        found = [_whole(as_bytes(value)) for field, value in fields if field == _FOOTER_STATISTICS]
        stride = next((as_number(value) for field, value in fields if field == _FOOTER_STRIDE), 0)
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics in an ORC footer cannot be parsed: {error}") from error
    section = end[start - tail.statistics_length : start]
    stripes = parse_statistics(section, tail, columns) if tail.statistics_length else []
    try:
        for statistics in itertools.chain.from_iterable(each.values() for each in stripes):
            _whole(statistics)
    except DAMAGE as error:
        raise CorruptFileError(f"the statistics of ORC stripes cannot be parsed: {error}") from error
    return RecordedStatistics({n: s for n, s in enumerate(found) if n in columns}, stripes, stride)


def row_group_statistics(
    index: bytes, footer: StripeFooter, tail: OrcTail, stripe: StripeInfo, columns: Collection[int]
) -> dict[int, list[bytes]]:
    """Statistics of the groups of rows of a stripe, by column number.

    Args:
        index: the ``index_length`` bytes at the beginning of the stripe.
        footer: the stripe's.
        tail: of the same file.
        stripe: the stripe.
        columns: numbers of the columns wanted.

    Raises:
        CorruptFileError: the bytes are not an index.
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
            rows = unpacked(index[start:stop], tail.compression, tail.block_bytes)
            entries = [dict(fields_of(as_bytes(e))) for f, e in fields_of(rows) if f == _INDEX_ENTRY]
            yield stream.column, [_whole(as_bytes(e.get(_ENTRY_STATISTICS, b""))) for e in entries]


def _whole(statistics: bytes) -> bytes:
    """Statistics of a column whose inner messages can be parsed: Hive parses them all, used or not."""
    for field, value in fields_of(statistics):
        if field in _INNER:
            collections.deque(fields_of(as_bytes(value)), maxlen=0)
    return statistics


def difference(statistics: bytes, values: pa.Array) -> tuple[str, str] | None:
    """What the values have, and what the statistics say instead; None if readers can rely on them.

    Args:
        statistics: serialised ColumnStatistics.
        values: all values of the column there, as pyarrow reads them, rows without a parent left out.

    Raises:
        CorruptFileError: the bytes are not statistics.
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
    hive_type = _hive_type(values.type)
    known = None if hive_type is None else comparable_range(statistics, values.type, hive_type)
    if known is None or values.null_count == len(values):
        return None
    ends = pc.min_max(_comparable(values))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if known[0] <= low and high <= known[1]:
        return None
    return f"values from {_shown(low)} to {_shown(high)}", f"{_shown(known[0])} to {_shown(known[1])}"


def _hive_type(data_type: pa.DataType) -> HiveType | None:
    if pa.types.is_decimal128(data_type):
        return parse_hive_type(f"decimal({data_type.precision},{data_type.scale})")
    text = _TYPES.get(data_type)
    return None if text is None else parse_hive_type(text)


def _comparable(values: pa.Array) -> pa.Array:
    """Values in the form of :func:`comparable_range`: days as numbers, texts as bytes."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.binary()) if pa.types.is_string(values.type) else values


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return repr(value.decode(errors="replace")[:40])
    return str(value) if isinstance(value, int | Decimal) else repr(value)
