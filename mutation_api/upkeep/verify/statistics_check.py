"""Comparison of recorded statistics of columns, and of Bloom filters, with the values of the rows.

The statistics in a file are compared stripe by stripe. The names of a file's columns are also checked.

Column statistics in the metastore are compared, if they are marked as accurate, with the values that a reader
sees. Hive 4 answers ``min``, ``max`` and ``count`` of a column from them. Numbers of distinct values and
histograms are estimates and are not compared. Only the columns with such statistics are read, once for all
partitions that have the same columns.

Source: Hive's GenericUDAFComputeStats and StatsOptimizer.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.model import ColumnStatistics
from mutation_api.errors import CorruptFileError, MutationError
from mutation_api.format.plain_array import has_union, map_parts, rebased_list, struct_fields
from mutation_api.orc.format.bloom_filters import (
    HASHED_KINDS,
    BloomFilter,
    SoughtValues,
    parse_bloom_filters,
)
from mutation_api.orc.format.compression import DAMAGE
from mutation_api.orc.format.protobuf import STREAM_KIND_BLOOM_FILTER_UTF8, as_number, fields_of
from mutation_api.orc.format.stored_values import column_count, column_id
from mutation_api.orc.format.stripe_sections import parse_stripe_footer
from mutation_api.orc.format.tail import OrcTail
from mutation_api.orc.read.event_file import EventFile
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import TableView
from mutation_api.storage.protocol import Storage, is_fault_of_machine
from mutation_api.upkeep.verify.finding import Finding
from mutation_api.upkeep.verify.metastore_check import Registered
from mutation_api.upkeep.verify.recorded_statistics import (
    RecordedStatistics,
    difference,
    parse_recorded,
    row_group_statistics,
)
from mutation_api.upkeep.verify.row_index_check import GroupCounts, StripeBytes

_STATISTICS = "orc-statistics"
_FILTERED_KINDS = {1, *itertools.chain(*HASHED_KINDS.values())}
"""The kinds of a file's columns whose Bloom filters are compared: 1 is tinyint, which is never looked up."""


class Difference(NamedTuple):
    """A violated rule: the first affected row of the stripe, the value found, and the expected value."""

    rule_name: str
    row: int
    found: str
    expected: str


class StatisticsCheck:
    """Compares the recorded statistics of one file with its values.

    The columns are those of the file, including all that are nested in them, except for unions.
    """

    def __init__(
        self,
        storage: Storage,
        file: EventFile,
        tail: OrcTail,
        schema: pa.Schema,
        recorded: RecordedStatistics,
    ) -> None:
        self._storage = storage
        self._file = file
        self._tail = tail
        self._schema = schema
        self._recorded = recorded
        self._counts: Counter[int] = Counter()

    @classmethod
    def of(
        cls, storage: Storage, file: EventFile, source: OrcInput, tail: OrcTail | None
    ) -> StatisticsCheck | None:
        """Create a check; None if the file has no row groups, or is still being written and so has no tail.

        A minor compaction of Hive 2 and 3 writes files without row groups, and with zeros as counts.
        """
        if tail is None:
            return None
        behind = tail.statistics_length + tail.footer_length + tail.postscript_length + 1
        with storage.open_input(file.location) as stream:
            end = stream.read_at(behind, stream.size() - behind)
        columns = range(len(tail.types))
        recorded = parse_recorded(end, tail, columns)
        return cls(storage, file, tail, source.schema, recorded) if tail.stride else None

    def differences(self, index: int, batch: pa.RecordBatch) -> Iterator[Difference]:
        """Yield the places where the values of a stripe contradict its records and those of its row groups.

        Raises CorruptFileError if these records cannot be parsed.
        """
        try:
            yield from self._differences(index, batch)
        except DAMAGE as error:
            raise CorruptFileError(f"the row index of stripe {index} cannot be parsed: {error}") from error

    def _differences(self, index: int, batch: pa.RecordBatch) -> Iterator[Difference]:
        recorded = self._recorded.stripes[index] if index < len(self._recorded.stripes) else {}
        stripe, groups = self._index(index, len(batch))
        filters = {} if stripe is None else self._bloom_filters(stripe)
        counts = GroupCounts()
        stride = self._tail.stride
        for field in self._schema:
            column = batch.column(field.name)
            first = column_id(self._schema, field.name)
            for number, name, values in _parts(first, field.name, column):
                self._counts[number] += len(values) - values.null_count
                found = self._difference(recorded.get(number), number, values)
                if found is not None:
                    found_there = f"{found[0]} of column {name} in stripe {index}"
                    yield Difference(_STATISTICS, 0, found_there, f"{found[1]}, as recorded")
            for group, start in enumerate(range(0, len(column) if groups else 0, stride)):
                for number, name, values in _parts(first, field.name, column.slice(start, stride)):
                    counts.add(number, values)
                    of_column = groups.get(number, ())
                    statistics = of_column[group] if group < len(of_column) else None
                    found = self._difference(statistics, number, values)
                    where = f"of column {name} in row group {group} of stripe {index}"
                    if found is not None:
                        yield Difference(
                            _STATISTICS, start, f"{found[0]} {where}", f"{found[1]}, as recorded"
                        )
                    missing = _missing(filters.get(number, ()), group, values)
                    if missing is not None:
                        yield Difference("bloom-filter", start, f"no {missing!r} {where}", "all its values")
        wanted = -(-len(batch) // stride)
        for number, of_column in groups.items():
            if len(of_column) != wanted:
                there = f"{len(of_column)} row groups of column {number} in stripe {index}"
                yield Difference(_STATISTICS, 0, there, f"{wanted}, as recorded")
        for number, fault in counts.faults(stripe) if stripe is not None else ():
            there = f"{fault.found} of column {number} for row group {fault.group} of stripe {index}"
            yield Difference("row-index", fault.group * stride, there, fault.expected)

    def _difference(self, statistics: bytes | None, number: int, values: pa.Array) -> tuple[str, str] | None:
        if statistics is None or number in self._tail.char_columns:  # the recorded strings are padded
            return None
        return difference(statistics, values)

    def differences_of_file(self) -> Iterator[tuple[str, str]]:
        """Yield, after all stripes, columns for which the file records another number of values.

        No reader that uses the ranges of stripes uses the range of a file.
        """
        for number, statistics in self._recorded.file.items():
            count = dict(fields_of(statistics)).get(1)
            if count is not None and number in self._counts and as_number(count) != self._counts[number]:
                yield f"{self._counts[number]} values in column {number} of the file", f"{as_number(count)}"

    def _bloom_filters(self, stripe: StripeBytes) -> dict[int, list[BloomFilter]]:
        """Return the filters of a stripe's columns of integers and strings, by the columns' numbers."""
        numbers = [s.column for s in stripe.footer.streams if s.kind == STREAM_KIND_BLOOM_FILTER_UTF8]
        kinds = {number: self._tail.nodes[number].kind for number in numbers}
        return {
            number: parse_bloom_filters(stripe.raw(STREAM_KIND_BLOOM_FILTER_UTF8, number), self._tail)
            for number, kind in kinds.items()
            if kind in _FILTERED_KINDS
        }

    def _index(self, index: int, row_count: int) -> tuple[StripeBytes | None, dict[int, list[bytes]]]:
        """Return a stripe's streams (only of its index, if it has one group) and its groups' statistics."""
        stripe = self._tail.stripes[index]
        if not stripe.index_length:
            return None, {}
        length = stripe.index_length + (stripe.data_length if row_count > self._tail.stride else 0)
        with self._storage.open_input(self._file.location) as stream:
            data = stream.read_at(length, stripe.offset)
            section = stream.read_at(stripe.footer_length, stripe.end - stripe.footer_length)
        footer = parse_stripe_footer(section, self._tail, stripe)
        rows, columns = data[: stripe.index_length], range(len(self._tail.types))
        groups = row_group_statistics(rows, footer, self._tail, stripe, columns)
        return StripeBytes(data, stripe.offset, footer, self._tail), groups


def _missing(filters: Sequence[BloomFilter], group: int, values: pa.Array) -> int | str | None:
    """Return a value of a row group that its filter does not have."""
    if group >= len(filters):
        return None
    sought = pc.unique(values).drop_null()
    lost = np.flatnonzero(~filters[group].has(SoughtValues(sought)))
    found: int | str | None = sought[int(lost[0])].as_py() if len(lost) else None
    return found


def _parts(number: int, name: str, values: pa.Array) -> Iterator[tuple[int, str, pa.Array]]:
    """Yield number, name and values of a column and of those nested in it, without values that are not
    stored.

    Columns in a union are left out.
    """
    kind = values.type
    if pa.types.is_union(kind):
        return
    yield number, name, values
    number += 1
    for inner, part in _inner(values):
        if part is not None:
            yield from _parts(number, f"{name}.{inner.name}", part)
        number += column_count(inner.type)


def _inner(values: pa.Array) -> Iterator[tuple[pa.Field, pa.Array | None]]:
    kind = values.type
    if pa.types.is_struct(kind):
        is_there = values.is_valid() if values.null_count else None
        for field, part in zip(kind, struct_fields(values), strict=True):
            if is_there is not None:
                part = None if has_union(field.type) else part.filter(is_there)
            yield field, part
    elif pa.types.is_map(kind):
        yield from zip((kind.key_field, kind.item_field), map_parts(values)[1:], strict=True)
    elif pa.types.is_list(kind):
        yield kind.value_field, rebased_list(values)[1]


_NAMELESS = re.compile(r"_col[0-9]+")


def misspelled(
    in_file: Sequence[str], in_table: Sequence[str], *, by_position: bool
) -> Iterator[tuple[str, str]]:
    """Yield columns that Hive reads as NULL, or as another column, because of their names.

    Columns that the file does not have (added since), columns that the table no longer has, and names
    ``_col0``, ``_col1``, … are fine.

    Yields:
        The name that was found and the expected one.
    """
    if all(_NAMELESS.fullmatch(name) for name in in_file):
        return
    known = set(in_table)
    for name in in_file:
        if name not in known and name.lower() in known and not by_position:
            yield f"column {name!r}", f"{name.lower()!r}: Hive reads NULL for the other spelling"
            return
    if by_position:
        both = zip((n.lower() for n in in_file), in_table, strict=False)
        for found, expected in both:
            if found != expected and found in known and expected in {n.lower() for n in in_file}:
                yield (
                    f"column {found!r} at the position of {expected!r}",
                    "the table's order: Hive reads by position",
                )
                return


_GREGORIAN = date(1582, 10, 15)


@dataclass
class ColumnValues:
    """The values of one column of a table or partition. If ``has_nan``, Hive does not use their range."""

    null_count: int = 0
    true_count: int = 0
    false_count: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False

    def add(self, values: pa.Array) -> None:
        """Count some values of the column; timestamps have microseconds."""
        self.null_count += values.null_count
        if values.null_count == len(values):
            return
        if pa.types.is_boolean(values.type):
            trues = pc.sum(values).as_py()
            self.true_count += trues
            self.false_count += len(values) - values.null_count - trues
        elif _has_range(values.type):
            self._extend(values)

    def _extend(self, values: pa.Array) -> None:
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            self.has_nan = True
            return
        ends = pc.min_max(values)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def difference(self, recorded: ColumnStatistics) -> tuple[str, str] | None:
        """Return the actual and the recorded statistics; None if they agree."""
        if recorded.null_count != self.null_count:
            return f"{self.null_count} nulls", f"{recorded.null_count} nulls"
        if recorded.true_count is not None:
            counts = (self.true_count, self.false_count), (recorded.true_count, recorded.false_count)
            there, claimed = (f"{true} true values and {false} false values" for true, false in counts)
            return None if there == claimed else (there, claimed)
        ours, theirs = (_seconds(self.low), _seconds(self.high)), (recorded.low, recorded.high)
        if not self._is_comparable(ours, theirs) or ours == theirs:
            return None
        return _shown(*ours), _shown(*theirs)

    def misleads(self, recorded: ColumnStatistics) -> bool:
        """Return True if the number of nulls or the range differs.

        No query is answered from the number of true values.
        """
        return recorded.null_count != self.null_count or recorded.true_count is None

    def _is_comparable(self, ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> bool:
        """Return True if both ranges are comparable: no early days, no NaN, no timestamps before Hive 4."""
        ends = [each for each in (*ours, *theirs) if each is not None]
        kinds = {date if isinstance(each, date) else float for each in ends}
        return not self.has_nan and len(kinds) < 2 and not any(_is_early(each) for each in ends)


def _has_range(data_type: pa.DataType) -> bool:
    kinds = pa.types
    of_numbers = (kinds.is_integer, kinds.is_floating, kinds.is_decimal)
    return any(is_one(data_type) for is_one in (*of_numbers, kinds.is_date, kinds.is_timestamp))


def _seconds(value: Any) -> Any:
    """Return a timestamp as the metastore records it, and other values unchanged."""
    return value.replace(microsecond=0) if isinstance(value, datetime) else value


def _is_early(value: Any) -> bool:
    """Return True if Hive releases assign different numbers to this day."""
    day = value.date() if isinstance(value, datetime) else value
    return isinstance(day, date) and day < _GREGORIAN


def _shown(low: Any, high: Any) -> str:
    if low is None and high is None:
        return "no value"
    return f"values from {low} to {high}"


_Values = Mapping[str, Mapping[str, ColumnValues]]
"""Values by partition and column."""


def column_statistics(
    view: TableView, registered: Registered, partitions: Sequence[str], threads: int | None
) -> Iterator[Finding]:
    """Yield statistics of columns that are marked as accurate but differ from the values.

    Args:
        view: the snapshot; its table must have no newer rows.
        registered: the table as the metastore describes it.
        partitions: partitions whose files are sound; '' for an unpartitioned table.
        threads: number of threads; see :class:`~mutation_api.read.table_scan.TableScan`.

    Raises MetastoreError if the server could not be queried.
    """
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in sorted(partitions):
        alike[registered.claimed_columns(name)].append(name)
    for columns, names in alike.items():
        recorded = registered.column_statistics(names, columns, view.valid_ids) if columns else {}
        if recorded:
            yield from _differences(view, registered, recorded, threads)


def _differences(
    view: TableView,
    registered: Registered,
    recorded: Mapping[str, Sequence[ColumnStatistics]],
    threads: int | None,
) -> Iterator[Finding]:
    columns = sorted({each.column for found in recorded.values() for each in found})
    try:
        values = _values(view, [*recorded], columns, threads)
    except (MutationError, OSError) as error:
        if is_fault_of_machine(error):
            raise
        for name in recorded:
            yield Finding(
                "statistics-unchecked", name, view.locations[name], str(error), "columns that can be read"
            )
        return
    for name, found in recorded.items():
        for each in found:
            seen = values[name][each.column]
            differs = seen.difference(each)
            if differs is not None:
                is_damage = registered.answers_from(each) and seen.misleads(each)
                rule_name = "column-statistics" if is_damage else "column-statistics-plan"
                there, claimed = (f"{each.column}: {text}" for text in differs)
                yield Finding(rule_name, name, view.locations[name], there, f"{claimed}, as recorded")


def _values(
    view: TableView, partitions: Sequence[str], columns: Sequence[str], threads: int | None
) -> _Values:
    values = {name: {column: ColumnValues() for column in columns} for name in partitions}
    part = dataclasses.replace(view, locations={name: view.locations[name] for name in partitions})
    scan = TableScan(part, columns=columns, threads=threads, truncate_nanoseconds=True)
    for name, rows in scan.by_partition():
        for column in columns:
            values[name or ""][column].add(rows.column(column))
    return values
