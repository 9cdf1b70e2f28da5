"""LocalMergePlan: evaluate a merge in this process. Nothing is written before everything is checked."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import RecordValueError
from mutation_api.format.event import ROW_ID_COLUMN, Mask
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.format.json_values import json_texts
from mutation_api.format.timestamps import exact_unit
from mutation_api.merge.acting import INSERTED, KINDS, MOVED, Acting, AnyMerge, Candidates, act
from mutation_api.merge.clauses import (
    CHANGE_COLUMN,
    Match,
    MergeOptions,
    altered_keys_error,
    padded_key_error,
)
from mutation_api.merge.differences import SourceKeys, differs
from mutation_api.merge.evaluator import Evaluator, target_types
from mutation_api.merge.key_columns import in_nanoseconds, key_in_type
from mutation_api.merge.merge_report import MergeReport, with_compactions_due
from mutation_api.merge.source_rows import (
    ROWS_SHOWN,
    DuplicatedKey,
    duplicate_key_error,
    duplicated,
    first_of_each,
)
from mutation_api.merge.table_side import TableSide, settled
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.read.table_view import partition_names
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import check_may_create
from mutation_api.write.local_plan import LocalOptions
from mutation_api.write.staged_writer import LookingTransaction

__all__ = ["LocalMergePlan"]

Indices = NDArray[np.int64]
_Sides = tuple[tuple[Candidates, Indices], Candidates]


@dataclass(frozen=True)
class LocalMergePlan:
    """A merge whose names, types and clauses have been checked by the code that constructs it.

    Attributes:
        transaction: an open transaction; the table is one of its sinks.
        table: the table's descriptor.
        source: the source's rows.
        keys: names of the key columns.
        resolved: the checked clauses.
        evaluator: the evaluator of their expressions.
        options: options of the merge.
        local: memory limit and number of threads.
        shows_rows: True to read the old values of all compared columns, which a preview shows.

    Raises:
        RecordLayoutError: If key columns cannot be compared, or if values of a type can never be stored.
        RecordValueError: If a timestamp in a key column has digits below microseconds.
    """

    transaction: LookingTransaction
    table: AcidTable
    source: pa.RecordBatch
    keys: tuple[str, ...]
    resolved: AnyMerge
    evaluator: Evaluator
    options: MergeOptions
    local: LocalOptions
    shows_rows: bool = False

    def __post_init__(self) -> None:
        """Check the types."""
        for values in self.resolved.values:
            for column in self.table.all_columns:
                if column.name in values:
                    self.evaluator.check_type(column, values[column.name][1])
        self._keys  # noqa: B018  (refuses keys that cannot be compared)

    @cached_property
    def acting(self) -> tuple[Acting, ...]:
        """The rows on which a clause acts, with their new values. Reads the table.

        Raises:
            RecordValueError: If a value does not fit its column, or if a key to insert would be stored as a
                different key.
            DuplicateKeyError: If several source rows would act on one row or insert one key.
            UnsupportedLocallyError: If the rows need more memory than allowed.
            DirectoryStateError, CorruptFileError: See :func:`mutation_api.read.snapshot_reader.split_rows`.
        """
        wanted = [match for match in Match if match in self.resolved.matches]
        doubled = _Doubled(self)
        act_on = partial(self._acting_on, cache(self._both_sides), doubled)
        found = [each for match in wanted if match.has_source for each in act_on(match)]
        doubled.check()
        side = self._table_side
        found = settled(self.table.full_name, found, side.late, self.keys, side.late_rows)
        return (*found, *(each for match in wanted if not match.has_source for each in act_on(match)))

    def report(self, *, is_dry_run: bool) -> MergeReport:
        """Count the rows.

        Raises:
            PartitionCreationError: If rows belong to missing partitions that must not be created.
        """
        known = {*partition_names(self.transaction, self.table.full_name)}
        groups, values, new = [], [], set()
        for each in self.acting:
            kinds = pa.array([KINDS[code] for code in range(len(KINDS))]).take(pa.array(each.kinds))
            groups += _counted(each.partitions, kinds)
            new |= set(pc.unique(each.new_partitions).to_pylist())
            if self.options.count_by:
                by = self.options.count_by
                is_of_source = each.rows.source_rows is not None
                values += _counted(
                    each.rows.source_column(by) if is_of_source else pa.nulls(len(kinds)), kinds
                )
        new -= known | {None, ""}
        check_may_create(self.table, new)
        report = MergeReport.of(
            self.table.full_name,
            groups,
            is_dry_run=is_dry_run,
            new_partitions=new,
            counts_by=values,
        )
        return with_compactions_due(report, self.table)

    def changes(self) -> pa.RecordBatchReader:
        """Return the change set for :func:`mutation_api.write.apply.apply_arrow`.

        CHANGE_COLUMN is its operation column.
        """
        table = self.table
        fields = [pa.field(CHANGE_COLUMN, pa.string())]
        if table.version.has_row_ids:
            fields.append(pa.field(ROW_ID_COLUMN, full_row_id_type(table)))
        for column in table.all_columns:
            # Timestamps have microseconds unless values need a finer unit.
            is_fine = any("[ns" in str(each.new[column.name].type) for each in self.acting if each.new)
            kind = arrow_type(parse_hive_type(column.type), timestamp_unit="ns" if is_fine else "us")
            fields.append(pa.field(column.name, kind))
        schema = pa.schema(fields)
        return pa.RecordBatchReader.from_batches(schema, self._change_batches(schema))

    def _change_batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for each in self.acting:
            for operation, kinds in _OPERATIONS:
                rows = np.flatnonzero(np.isin(each.kinds, kinds))
                if len(rows):
                    taken = each if len(rows) == len(each.kinds) else each.take(rows)
                    yield _changes(self.table, schema, operation, taken)

    @property
    def bytes_to_read(self) -> int:
        """The size of the table's files to read, which are only read in part."""
        return self._table_side.bytes_to_read

    # ---- sides

    @cached_property
    def _table_side(self) -> TableSide:
        return TableSide(
            self.transaction,
            self.table,
            self.source.nbytes,
            self._keys,
            self.resolved,
            self.evaluator,
            self.options,
            self.local,
            self.shows_rows,
            self._acting_alone,
        )

    @cached_property
    def _keys(self) -> SourceKeys:
        types = target_types(self.table)
        kinds = {column.name: column.type for column in self.table.all_columns}
        lost = np.zeros(self.source.num_rows, np.bool_)
        columns = {}
        for key in self.keys:
            given = self.source.column(key)
            if exact_unit(given) != "us":
                raise RecordValueError(
                    f"table {self.table.full_name}: key column {key!r}: a value has digits below "
                    "microseconds. Keys are compared in microseconds, so its row would not be found. Use "
                    "other keys"
                )
            values, is_lost = key_in_type(self.table.full_name, key, given, types[key])
            if kinds[key].startswith("char") and len(padded := _padded(values)):
                raise padded_key_error(self.table.full_name, key, padded[0].as_py())
            columns[key] = values
            lost |= is_lost
        return SourceKeys(pa.record_batch(columns), lost, self.options.null_safe)

    def _both_sides(self) -> _Sides:
        """Return the pairs with the number of each target row, and the source rows without a pair."""
        target = self._table_side.matching()
        pairs = None if target is None else self._keys.pairs([target.column(key) for key in self.keys])
        taken = np.zeros(self.source.num_rows, np.bool_)
        if pairs is not None:
            taken[pairs.source] = True
        unmatched = Candidates(Match.NOT_MATCHED, self.source, np.flatnonzero(~taken), None)
        empty = np.zeros(0, np.int64)
        if target is None or pairs is None:
            return (Candidates(Match.MATCHED, self.source, empty, None), empty), unmatched
        columns = _columns(target.take(pa.array(pairs.target)))
        return (Candidates(Match.MATCHED, self.source, pairs.source, columns), pairs.target), unmatched

    # ---- steps

    def _acting_on(self, sides: Callable[[], _Sides], doubled: _Doubled, match: Match) -> Iterable[Acting]:
        """Return the rows on which clauses act, among the rows that match in one way."""
        match match:
            case Match.MATCHED:
                return doubled.once_a_row(*sides()[0])
            case Match.NOT_MATCHED:
                return self._checked_keys(doubled.once_a_key(self._acting(sides()[1])))
            case Match.NOT_MATCHED_BY_SOURCE:
                return self._table_side.others()
            case _:
                assert_never(match)

    def _acting_alone(self, rows: pa.RecordBatch) -> list[Acting]:
        """Return the rows on which clauses act, among table rows without a source row."""
        return self._acting(Candidates(Match.NOT_MATCHED_BY_SOURCE, self.source, None, _columns(rows)))

    def _acting(self, rows: Candidates) -> list[Acting]:
        return [
            self._act(number, rows if len(held) == len(rows) else rows.take(held))
            for number, held in self.evaluator.clauses(rows)
        ]

    def _act(self, number: int, rows: Candidates) -> Acting:
        has_values = self.resolved.clauses[number].action.writes_row
        given = self.evaluator.assigned(number, rows) if has_values else {}
        return act(
            self.table, self.resolved, number, rows, given, write_unchanged=self.options.write_unchanged
        )

    def _checked_keys(self, found: Iterable[Acting]) -> list[Acting]:
        """Check that no key to insert is stored as a different key (rounded, cut), which a row may have."""
        checked = list(found)
        texts = [text for each in checked for text in self._altered(each)]
        if texts:
            raise altered_keys_error(self.table.full_name, heapq.nsmallest(ROWS_SHOWN, texts))
        return checked

    def _altered(self, each: Acting) -> Iterator[str]:
        """Yield JSON strings of keys that are stored as different keys; only the first column of each row."""
        is_told = np.zeros(len(each.rows), np.bool_)
        for key in sorted({*self.keys} & each.given.keys()):
            given, new = each.given[key], each.new[key]
            if given.type == new.type and given.equals(new):
                continue
            kept, is_lost = key_in_type(self.table.full_name, key, given, new.type)
            is_other = (is_lost | differs(kept, new)) & ~is_told
            is_told |= is_other
            column = pa.array([key] * int(is_other.sum()), pa.string())
            told = [column, *(values.filter(pa.array(is_other)) for values in (given, new))]
            yield from json_texts(pa.StructArray.from_arrays(told, ["column", "key", "stored"]))


def _padded(texts: pa.Array) -> pa.Array:
    """Return the strings that end with a blank."""
    return texts.filter(pc.ends_with(texts, " "))


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(rows.schema.names, rows.columns, strict=True))


class _Doubled:
    """A check that one source row acts on each row or key, or a choice of one by the merge's rule."""

    def __init__(self, plan: LocalMergePlan) -> None:
        self._plan = plan
        self._count = 0
        self._samples: list[DuplicatedKey] = []

    def check(self) -> None:
        """Raise DuplicateKeyError if several source rows act on one row or key."""
        if self._count:
            samples = sorted(self._samples, key=lambda each: each.key)
            shown = samples[: self._plan.options.duplicates_shown]
            raise duplicate_key_error(self._plan.table.full_name, self._count, shown)

    def once_a_row(self, rows: Candidates, target_rows: Indices) -> list[Acting]:
        """Apply clauses to pairs. ``target_rows`` holds the number of each pair's table row."""
        plan = self._plan
        clauses = plan.evaluator.clauses(rows)
        if not clauses:
            return []
        held = np.concatenate([each for _, each in clauses])
        numbers = np.concatenate([np.full(len(each), number) for number, each in clauses])
        groups = target_rows[held]
        is_reduced = plan.resolved.deletes_all_pairs and plan.table.version.has_row_ids
        kept = self._once(groups, np.ones(len(held), np.bool_), rows.source_rows, held, is_reduced)
        held, numbers = held[kept], numbers[kept]
        return [
            plan._act(number, rows.take(held[numbers == number])) for number in np.unique(numbers).tolist()
        ]

    def once_a_key(self, found: list[Acting]) -> list[Acting]:
        """Check or reduce the rows to insert in ``found``."""
        plan = self._plan
        inserts = [each for each in found if (each.kinds == INSERTED).any()]
        if not inserts or self._are_unique(inserts):
            return found
        rest = [each for each in found if not (each.kinds == INSERTED).any()]
        keys = pa.record_batch(
            {key: pa.concat_arrays([each.new[key] for each in inserts]) for key in plan.keys}
        )
        groups = np.zeros(keys.num_rows, np.int64)
        judged = np.zeros(keys.num_rows, np.bool_)
        positions, codes = KeyFilter(pa.Table.from_batches([keys]), plan.options.null_safe).encode(
            keys.columns
        )
        groups[positions], judged[positions] = codes, True
        sources = np.concatenate([_source_rows(each) for each in inserts])
        kept = self._once(groups, judged, sources, np.arange(len(sources)), is_reduced=False)
        starts = np.cumsum([0, *(len(each.kinds) for each in inserts)])
        for each, start in zip(inserts, starts.tolist(), strict=False):
            own = kept[(kept >= start) & (kept < start + len(each.kinds))] - start
            rest.append(each if len(own) == len(each.kinds) else each.take(own))
        return rest

    def _are_unique(self, inserts: Sequence[Acting]) -> bool:
        """Return True if all keys of the source are different and inserted unchanged."""
        takes_all = all(self._plan.resolved.clauses[each.clause].takes_all for each in inserts)
        return takes_all and self._plan._keys.is_unique

    def _once(
        self, groups: Indices, judged: Mask, source_rows: Indices | None, held: Indices, is_reduced: bool
    ) -> Indices:
        """Return the indices of the rows that act."""
        assert source_rows is not None
        sources = source_rows[held]
        options = self._plan.options
        if options.first_by:
            return first_of_each(groups, self._order[sources], judged)
        if is_reduced:
            return first_of_each(groups, sources, judged)
        count, samples = duplicated(
            groups, judged, self._plan.source, sources, self._plan.keys, options.duplicates_shown
        )
        self._count += count
        self._samples += samples
        return np.arange(len(held))

    @cached_property
    def _order(self) -> Indices:
        return self._plan.evaluator.order()


def _source_rows(each: Acting) -> Indices:
    assert each.rows.source_rows is not None
    return each.rows.source_rows


_OPERATIONS = (
    ("update", [KINDS.index("updated")]),
    ("delete", [KINDS.index("deleted"), MOVED]),
    ("insert", [INSERTED, MOVED]),
)
"""The kinds of rows that each operation writes. A moved row is deleted and inserted."""


def _changes(table: AcidTable, schema: pa.Schema, operation: str, rows: Acting) -> pa.RecordBatch:
    count = len(rows.kinds)
    columns = []
    for name, data_type in zip(schema.names, schema.types, strict=True):
        if name == CHANGE_COLUMN:
            columns.append(pa.repeat(operation, count))
        elif name == ROW_ID_COLUMN:
            columns.append(pa.nulls(count, data_type) if rows.row_ids is None else rows.row_ids)
        elif operation == "delete":
            columns.append(pa.nulls(count, data_type))
        else:
            new = rows.new[name]
            columns.append(new if new.type == data_type else in_nanoseconds(table, name, new))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _counted(groups: pa.Array, kinds: pa.Array) -> list[tuple[Any, str, int]]:
    """Return the number of rows by group and kind."""
    counts = (
        pa.table([groups, kinds], ["group", "kind"])
        .group_by(["group", "kind"])
        .aggregate([([], "count_all")])
    )
    columns = (_python_values(counts["group"]), counts["kind"].to_pylist(), counts["count_all"].to_pylist())
    return list(zip(*columns, strict=True))


def _python_values(values: pa.ChunkedArray) -> list[Any]:
    """Return Python values, or strings if Python's type cannot hold one, such as a date in the year 10000."""
    try:
        found: list[Any] = values.to_pylist()
    except (ValueError, OverflowError):
        found = values.cast(pa.string()).to_pylist()
    return found
