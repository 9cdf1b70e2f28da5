"""StatisticsCheck: compares the statistics that a file records with its values, stripe by stripe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from mutation_api.orc.format.protobuf import as_number, fields_of
from mutation_api.orc.format.stripe_ranges import column_id
from mutation_api.orc.format.tail import OrcTail
from mutation_api.orc.read.event_file import EventFile
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.protocol import Storage
from mutation_api.types.plain_array import has_union, struct_fields
from mutation_api.upkeep.verify.recorded_statistics import (
    RecordedStatistics,
    difference,
    parse_recorded,
    row_group_statistics,
)

__all__ = ["StatisticsCheck"]


class StatisticsCheck:
    """Recorded statistics of one file against its values.

    Columns are the top-level ones, and the fields of top-level structs (the columns of a table in an event).
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
        columns = {column_id(source.schema, name) for name in _names(source.schema)}
        recorded = parse_recorded(end, tail, columns)
        return cls(storage, file, tail, source.schema, recorded) if recorded.stride else None

    def differences(self, index: int, batch: pa.RecordBatch) -> Iterator[tuple[int, str, str]]:
        """Where a stripe's values contradict what is recorded of the stripe and its groups of rows.

        Yields:
            First row of the group, what the values have, what is recorded.
        """
        recorded = self._recorded.stripes[index] if index < len(self._recorded.stripes) else {}
        groups = self._groups(index)
        stride = self._recorded.stride
        for number, name, column, parent in _columns(self._schema, batch):
            values = _below(column, parent)
            self._counts[number] += len(values) - values.null_count
            if number in self._tail.char_columns:
                continue  # the recorded texts are padded
            found = difference(recorded[number], values) if number in recorded else None
            if found is not None:
                yield 0, f"{found[0]} of column {name} in stripe {index}", found[1]
                continue
            for group, statistics in enumerate(groups.get(number, ())):
                start = group * stride
                some = _below(
                    column.slice(start, stride), None if parent is None else parent.slice(start, stride)
                )
                found = difference(statistics, some)
                if found is not None:
                    yield (
                        start,
                        f"{found[0]} of column {name} in row group {group} of stripe {index}",
                        found[1],
                    )
                    break

    def differences_of_file(self) -> Iterator[tuple[str, str]]:
        """After all stripes: columns for which the file records another number of values.

        The ranges of a file are not used by any reader that goes by the ranges of its stripes.
        """
        for number, statistics in self._recorded.file.items():
            count = dict(fields_of(statistics)).get(1)
            if count is not None and number in self._counts and as_number(count) != self._counts[number]:
                yield f"{self._counts[number]} values in column {number} of the file", f"{as_number(count)}"

    def _groups(self, index: int) -> dict[int, list[bytes]]:
        stripe = self._tail.stripes[index]
        if not stripe.index_length:
            return {}
        with self._storage.open_input(self._file.location) as stream:
            rows = stream.read_at(stripe.index_length, stripe.offset)
            footer = stream.read_at(stripe.footer_length, stripe.end - stripe.footer_length)
        columns = {column_id(self._schema, name) for name in _names(self._schema)}
        return row_group_statistics(rows, footer, self._tail, stripe, columns)


def _names(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{inner.name}" for inner in field.type)
        else:
            yield field.name


def _columns(
    schema: pa.Schema, batch: pa.RecordBatch
) -> Iterator[tuple[int, str, pa.Array, pa.StructArray | None]]:
    """Number, name and values of each column, and the struct around it if that has nulls."""
    for field in schema:
        column = batch.column(field.name)
        if not pa.types.is_struct(field.type):
            if not has_union(field.type):
                yield column_id(schema, field.name), field.name, column, None
            continue
        parent = column if column.null_count else None
        for inner, values in zip(field.type, struct_fields(column), strict=True):
            if not has_union(inner.type):
                name = f"{field.name}.{inner.name}"
                yield column_id(schema, name), name, values, parent


def _below(values: pa.Array, parent: pa.Array | None) -> pa.Array:
    """The values whose struct is not null; the others are not stored."""
    return values if parent is None else values.filter(parent.is_valid())
