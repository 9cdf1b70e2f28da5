"""StatisticsCheck: compares the statistics that a file records with its values, stripe by stripe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import DAMAGE
from mutation_api.orc.format.protobuf import as_number, fields_of
from mutation_api.orc.format.stripe_ranges import column_count, column_id
from mutation_api.orc.format.stripe_sections import parse_stripe_footer
from mutation_api.orc.format.tail import OrcTail
from mutation_api.orc.read.event_file import EventFile
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.protocol import Storage
from mutation_api.types.plain_array import has_union, map_parts, rebased_list, struct_fields
from mutation_api.upkeep.verify.recorded_statistics import (
    RecordedStatistics,
    difference,
    parse_recorded,
    row_group_statistics,
)
from mutation_api.upkeep.verify.row_index_check import GroupCounts, StripeBytes

__all__ = ["Difference", "StatisticsCheck"]


_STATISTICS = "orc-statistics"


class Difference(NamedTuple):
    """A rule that is broken, from which row of the stripe on, what is there, and what should be."""

    rule_name: str
    row: int
    found: str
    expected: str


class StatisticsCheck:
    """Recorded statistics of one file against its values.

    Columns are those of the file, with all that are nested in them, but for unions.
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
        """None if the file is still being written, so that its tail is not where tails are, or has none.

        A minor compaction of Hive 2 and 3 records none: its files have no row groups, and zeros as counts.
        """
        if tail is None:
            return None
        behind = tail.statistics_length + tail.footer_length + tail.postscript_length + 1
        with storage.open_input(file.location) as stream:
            end = stream.read_at(behind, stream.size() - behind)
        columns = range(len(tail.types))
        recorded = parse_recorded(end, tail, columns)
        return cls(storage, file, tail, source.schema, recorded) if recorded.stride else None

    def differences(self, index: int, batch: pa.RecordBatch) -> Iterator[Difference]:
        """Where a stripe's values contradict what is recorded of the stripe and its groups of rows.

        Raises CorruptFileError: what is recorded cannot be parsed.
        """
        try:
            yield from self._differences(index, batch)
        except DAMAGE as error:
            raise CorruptFileError(f"the row index of stripe {index} cannot be parsed: {error}") from error

    def _differences(self, index: int, batch: pa.RecordBatch) -> Iterator[Difference]:
        recorded = self._recorded.stripes[index] if index < len(self._recorded.stripes) else {}
        stripe, groups = self._index(index, len(batch))
        counts = GroupCounts()
        stride = self._recorded.stride
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
                    if found is not None:
                        where = f"of column {name} in row group {group} of stripe {index}"
                        yield Difference(
                            _STATISTICS, start, f"{found[0]} {where}", f"{found[1]}, as recorded"
                        )
        wanted = -(-len(batch) // stride)
        for number, of_column in groups.items():
            if len(of_column) != wanted:
                there = f"{len(of_column)} row groups of column {number} in stripe {index}"
                yield Difference(_STATISTICS, 0, there, f"{wanted}, as recorded")
        for number, fault in counts.faults(stripe) if stripe is not None else ():
            there = f"{fault.found} of column {number} for row group {fault.group} of stripe {index}"
            yield Difference("row-index", fault.group * stride, there, fault.expected)

    def _difference(self, statistics: bytes | None, number: int, values: pa.Array) -> tuple[str, str] | None:
        if statistics is None or number in self._tail.char_columns:  # the recorded texts are padded
            return None
        return difference(statistics, values)

    def differences_of_file(self) -> Iterator[tuple[str, str]]:
        """After all stripes: columns for which the file records another number of values.

        The ranges of a file are not used by any reader that goes by the ranges of its stripes.
        """
        for number, statistics in self._recorded.file.items():
            count = dict(fields_of(statistics)).get(1)
            if count is not None and number in self._counts and as_number(count) != self._counts[number]:
                yield f"{self._counts[number]} values in column {number} of the file", f"{as_number(count)}"

    def _index(self, index: int, row_count: int) -> tuple[StripeBytes | None, dict[int, list[bytes]]]:
        """A stripe's streams (of its index alone, if it has one group) and its groups' statistics."""
        stripe = self._tail.stripes[index]
        if not stripe.index_length:
            return None, {}
        length = stripe.index_length + (stripe.data_length if row_count > self._recorded.stride else 0)
        with self._storage.open_input(self._file.location) as stream:
            data = stream.read_at(length, stripe.offset)
            section = stream.read_at(stripe.footer_length, stripe.end - stripe.footer_length)
        footer = parse_stripe_footer(section, self._tail, stripe)
        rows, columns = data[: stripe.index_length], range(len(self._tail.types))
        groups = row_group_statistics(rows, footer, self._tail, stripe, columns)
        return StripeBytes(data, stripe.offset, footer, self._tail), groups


def _parts(number: int, name: str, values: pa.Array) -> Iterator[tuple[int, str, pa.Array]]:
    """Number, name and values of a column and of those nested in it; without values that are not stored.

    What is in a union is left out.
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
