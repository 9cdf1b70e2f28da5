"""The effect of a merge on rows: the clause of each row, new values, outcome and partition. Pure Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.differences import differs
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.format.json_values import json_texts
from mutation_api.merge.clauses import SOURCE, TARGET, Action, Match
from mutation_api.merge.key_columns import key_in_type
from mutation_api.merge.resolve import ResolvedMerge, converted
from mutation_api.read.key_groups import key_type
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import null_text_of, partition_names

AnyMerge = ResolvedMerge[Any, Any]
"""A checked merge with expressions of any engine."""

KINDS = ("inserted", "updated", "deleted", "moved", "unchanged")
"""The outcomes of a row, which are fields of MergeCounts. The index is the code."""
INSERTED, UPDATED, _DELETED, MOVED, UNCHANGED = range(len(KINDS))

ROW_TEXT = "__text"
"""A column of the source's rows that names each row in messages, if the merge has no key columns."""

Indices = NDArray[np.int64]
Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class ClauseRule:
    """The parts of a clause that determine the outcome of a row. There are no expressions, so it can be sent
    to tasks.

    Attributes:
        match: the kind of rows to which it applies.
        action: its effect on them.
        assigned: the columns to which it assigns values.
        defaults: values of columns that the source lacks.
    """

    match: Match
    action: Action
    assigned: frozenset[str]
    defaults: Mapping[str, pa.Scalar]


@dataclass(frozen=True)
class RowRules:
    """The rules of a checked merge for rows. ``keys`` is None if the merge has another condition."""

    keys: tuple[str, ...] | None
    clauses: tuple[ClauseRule, ...]

    @property
    def assigned(self) -> frozenset[str]:
        """The columns to which at least one clause assigns values."""
        return frozenset[str]().union(*(each.assigned for each in self.clauses))


def rules_of(resolved: AnyMerge) -> RowRules:
    """Return the rules of a checked merge."""
    return RowRules(
        resolved.keys,
        tuple(
            ClauseRule(clause.match, clause.action, frozenset(values), clause.defaults)
            for clause, values in zip(resolved.clauses, resolved.values, strict=True)
        ),
    )


@dataclass(frozen=True)
class Candidates:
    """n rows that match in the same way.

    Attributes:
        match: the kind of match, which states which sides have the rows.
        source: all rows of the source.
        source_rows: index of the source row of each. None if they have none.
        target: columns of the table's rows, including ROW__ID unless the table is insert-only. None if they
            have none.
    """

    match: Match
    source: pa.RecordBatch
    source_rows: Indices | None
    target: Columns | None

    def __len__(self) -> int:
        """Return the number of rows."""
        if self.source_rows is not None:
            return len(self.source_rows)
        assert self.target is not None
        return len(next(iter(self.target.values())))

    def take(self, rows: Indices) -> Candidates:
        """Return the rows at these indices."""
        indices = pa.array(rows)
        return replace(
            self,
            source_rows=None if self.source_rows is None else self.source_rows[rows],
            target=None if self.target is None else {n: c.take(indices) for n, c in self.target.items()},
        )

    @cached_property
    def _are_all(self) -> bool:
        """True if the rows are exactly the rows of the source, in order."""
        rows = self.source_rows
        return rows is not None and np.array_equal(rows, np.arange(self.source.num_rows))

    def source_column(self, name: str) -> pa.Array:
        """Return the source's values of each row, without a copy if the rows are all rows of the source."""
        column = self.source.column(name)
        return column if self._are_all else column.take(pa.array(self.source_rows))

    def taken(self, names: Iterable[str], defaults: Mapping[str, pa.Scalar]) -> dict[str, pa.Array]:
        """Return source columns. A column of ``defaults``, which the source lacks, gets the default value."""
        return {
            name: pa.repeat(defaults[name], len(self)) if name in defaults else self.source_column(name)
            for name in names
        }

    def frame(self) -> pa.Table:
        """Return the rows in the form that expressions use: a struct per side."""
        sides: dict[str, pa.Array] = {"": pa.nulls(len(self))}  # so that literals get the number of rows
        if self.source_rows is not None and self.source.num_columns:
            rows = self.source if self._are_all else self.source.take(pa.array(self.source_rows))
            sides[SOURCE] = rows.to_struct_array()
        if self.target:
            sides[TARGET] = struct_of({n: c for n, c in self.target.items() if n != ROW_ID_COLUMN})
        return pa.table({side: rows for side, rows in sides.items() if side == "" or rows.type.num_fields})


@dataclass(frozen=True)
class Acting:
    """n rows on which one clause acts.

    Attributes:
        clause: number of the clause.
        rows: the candidates.
        new: new values of all columns, in the table's types. Empty for deletes.
        given: values that the clause assigns to key columns, before conversion.
        kinds: codes of KINDS.
        new_partitions: partition names of inserted and moved rows, null for others.
    """

    clause: int
    rows: Candidates
    new: Columns
    given: Columns
    kinds: NDArray[np.int8]
    new_partitions: pa.Array

    def take(self, rows: Indices) -> Acting:
        """Return the rows at these indices."""
        indices = pa.array(rows)
        return Acting(
            self.clause,
            self.rows.take(rows),
            {name: column.take(indices) for name, column in self.new.items()},
            {name: column.take(indices) for name, column in self.given.items()},
            self.kinds[rows],
            self.new_partitions.take(indices),
        )

    @property
    def row_ids(self) -> pa.Array | None:
        """The ROW__IDs of the rows. None if they have none."""
        return None if self.rows.target is None else self.rows.target.get(ROW_ID_COLUMN)

    @property
    def partitions(self) -> pa.Array:
        """The partition name of each row: the current one of existing rows, the target one of new rows.

        It is '' if the table is not partitioned.
        """
        row_ids = self.row_ids
        if row_ids is None or row_ids.type.get_field_index(PARTITION_FIELD) < 0:
            return pc.fill_null(self.new_partitions, "")
        return pc.coalesce(pc.struct_field(row_ids, PARTITION_FIELD), self.new_partitions)


def act(
    table: AcidTable, rules: RowRules, number: int, rows: Candidates, given: Columns, *, write_unchanged: bool
) -> Acting:
    """Apply one clause to its rows.

    Args:
        table: the table to change.
        rules: the rules of the merge.
        number: number of the clause.
        rows: n rows with the clause's kind of match.
        given: the values that the clause assigns, by column; see :meth:`Evaluator.assigned`. Empty if it
            writes no row.
        write_unchanged: True to count updates as changes even if the row stays the same.

    Raises:
        RecordValueError: If a value does not fit its column.
    """
    action = rules.clauses[number].action
    new = _new_values(table, rules, number, rows, given) if action.writes_row else {}
    if action.replaces_row:
        kinds = _kinds_of_updates(table, rules, rows, new, write_unchanged=write_unchanged)
    else:
        kinds = np.full(len(rows), KINDS.index(action.outcome), np.int8)
    placed = (kinds == INSERTED) | (kinds == MOVED)
    keys = {key: given[key] for key in rules.keys or () if key in given}
    return Acting(number, rows, new, keys, kinds, _new_partitions(table, new, placed))


def _new_values(
    table: AcidTable, rules: RowRules, number: int, rows: Candidates, given: Columns
) -> dict[str, pa.Array]:
    rule = rules.clauses[number]

    def key_of(row: int) -> str:
        return _key_text(rules, rows.take(np.array([row])))

    new = {}
    for column in table.all_columns:
        if column.name in rule.assigned:
            null_text = null_text_of(table, column.name)
            new[column.name] = converted(
                table.full_name, column, given[column.name], key_of, null_text=null_text
            )
        elif rule.action.replaces_row and rows.target is not None:
            new[column.name] = rows.target[column.name]
        else:
            new[column.name] = pa.nulls(len(rows), key_type(column))
    return new


def _kinds_of_updates(
    table: AcidTable, rules: RowRules, rows: Candidates, new: Columns, *, write_unchanged: bool
) -> NDArray[np.int8]:
    assert rows.target is not None
    names = rules.assigned & rows.target.keys()  # the others are compared later if necessary
    compared = names & table.placing_columns if write_unchanged else names
    moved = np.zeros(len(rows), np.bool_)
    changed = np.zeros(len(rows), np.bool_)
    for name in compared:
        other = differs(rows.target[name], new[name])
        changed |= other
        if name in table.placing_columns:
            moved |= other
    kinds = np.full(len(rows), UPDATED, np.int8)
    if not write_unchanged:
        kinds[~changed] = UNCHANGED
    kinds[moved] = MOVED
    return kinds


def _new_partitions(table: AcidTable, new: Columns, placed: NDArray[np.bool_]) -> pa.Array:
    nothing = pa.nulls(len(placed), pa.string())
    if not placed.any():
        return nothing
    if not table.partition_keys:
        return pc.if_else(pa.array(placed), "", nothing)
    columns = {name: new[name].filter(pa.array(placed)) for name in table.partition_key_names}
    names = partition_names(table, columns).cast(pa.string())
    return pc.replace_with_mask(nothing, pa.array(placed), names)


def _key_text(rules: RowRules, row: Candidates) -> str:
    """Return the key of a single row, or the whole row if there are no keys or the source has no such row."""
    if row.source_rows is None:
        assert row.target is not None
        return json_texts(struct_of(row.target))[0]
    if rules.keys is None:
        return str(row.source_column(ROW_TEXT)[0])
    return json_texts(struct_of({key: row.source_column(key) for key in rules.keys}))[0]


def altered_keys(table_name: str, keys: Sequence[str], each: Acting) -> Iterator[str]:
    """Yield JSON strings of keys that would be stored as different keys (rounded, cut), once per row.

    They hold the column and its value before and after. Such a key was matched before its conversion, and its
    stored form may be the key of an existing row.
    """
    is_told = np.zeros(len(each.rows), np.bool_)
    for key in sorted({*keys} & each.given.keys()):
        given, new = each.given[key], each.new[key]
        if given.type == new.type and given.equals(new):
            continue
        kept, is_lost = key_in_type(table_name, key, given, new.type)
        is_other = (is_lost | differs(kept, new)) & ~is_told
        is_told |= is_other
        column = pa.array([key] * int(is_other.sum()), pa.string())
        told = [column, *(values.filter(pa.array(is_other)) for values in (given, new))]
        yield from json_texts(pa.StructArray.from_arrays(told, ["column", "key", "stored"]))


def struct_of(columns: Columns) -> pa.StructArray:
    """Return the columns as rows. There must be at least one column."""
    return pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
