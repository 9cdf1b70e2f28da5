"""local_diff: compare two states of a table in this process and return a change set for ``apply_arrow``.

Rows, counts and errors are the same as those of :func:`mutation_api.diff`. Both states are held in memory.
Keys are compared as Spark groups them: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, and strings are
compared by their characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import TableNotMutableError, UnsupportedLocallyError
from mutation_api.format.differences import differs
from mutation_api.format.event import ROW_ID_COLUMN, Mask
from mutation_api.format.json_values import json_texts
from mutation_api.format.plain_array import plain_array
from mutation_api.merge.clauses import DUPLICATES_SHOWN_DEFAULT
from mutation_api.merge.differences import (
    NEW_STATE,
    OLD_STATE,
    OPERATIONS,
    check_states,
    checked_key,
    not_unique,
)
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.resolve import check_type, converted
from mutation_api.merge.source_rows import check_memory, check_wall_clocks, dense_ranks, plain_batch
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import null_text_of
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.write.local_plan import LocalOptions

Indices = NDArray[np.int64]


def local_diff(
    table: AcidTable,
    old: pa.RecordBatchReader,
    new: pa.RecordBatchReader,
    key: Sequence[str],
    *,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
    local: LocalOptions | None = None,
) -> pa.Table:
    """Return the changes that turn ``old`` into ``new``, ordered by key and operation.

    Args:
        table: the table of ``old``.
        old: a snapshot of the table, with all columns and ROW__ID.
        new: the table's columns, in any order and case. A ROW__ID is ignored. Values are compared as the
            table would store them.
        key: names of the columns that identify a row.
        operation_column: name of the operation column.
        local: options of the local engine. ``memory_bytes`` limits both states and the changes.

    Returns:
        The operation, the ROW__ID from ``old`` (null for inserts), and the table's columns. They hold the new
        values, or the old values for deletes.

    Raises:
        UnsupportedLocallyError: If a key column is nested, if ``new`` holds timestamps with time zone, which
            only Spark compares, or if more memory is needed than allowed.
        TableNotMutableError: If a column is a union.
        Other errors: See :func:`mutation_api.diff`.
    """
    wanted = checked_key(table, key, operation_column)
    check_states(table, old.schema.names, new.schema.names)
    _check_types(table, wanted, new.schema)
    budget = _Budget(table, local or LocalOptions())
    stored = (_stored(table, wanted, batch) for batch in new)
    before = _State(table, wanted, OLD_STATE, _held(budget.counted(old), old.schema))
    after = _State(table, wanted, NEW_STATE, _held(budget.counted(stored), pa.schema(target_types(table))))
    return _in_order(
        _Difference(before, after).changes(operation_column, budget), [*wanted, operation_column]
    )


def count_operations(changes: pa.Table, operation_column: str = OPERATION_COLUMN_DEFAULT) -> dict[str, int]:
    """Return the number of changes in a change set for each of OPERATIONS."""
    counted = changes.column(operation_column).value_counts().to_pylist()
    found = {each["values"]: each["counts"] for each in counted}
    return {operation: found.get(operation, 0) for operation in OPERATIONS}


class _Budget:
    """A counter of the bytes that are held in memory."""

    def __init__(self, table: AcidTable, local: LocalOptions) -> None:
        self._table = table
        self._local = local
        self._byte_count = 0

    def add(self, byte_count: int) -> None:
        """Raise UnsupportedLocallyError if the total exceeds the memory limit."""
        self._byte_count += byte_count
        most = self._local.memory_bytes
        check_memory(self._table.full_name, "both states and their changes", self._byte_count, most)

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches and add their sizes."""
        for batch in batches:
            self.add(batch.nbytes)
            yield batch


@dataclass(frozen=True)
class _State:
    """One of the two states: its rows in the table's types, with names in lower case."""

    table: AcidTable
    key: tuple[str, ...]
    name: str
    rows: pa.RecordBatch

    def check_unique(self, codes: Indices) -> None:
        """Raise DuplicateKeyError if a key occurs twice. ``codes`` holds a code for the key of each row."""
        counts = np.bincount(codes)
        doubled = np.flatnonzero(counts > 1)
        if not len(doubled):
            return
        shown = doubled[: DUPLICATES_SHOWN_DEFAULT + 1]
        firsts = [int(np.flatnonzero(codes == code)[0]) for code in shown]
        keys = self.rows.select(list(self.key)).take(pa.array(firsts, pa.int64()))
        texts = json_texts(keys.to_struct_array())
        raise not_unique(
            self.table, self.key, self.name, list(zip(texts, counts[shown].tolist(), strict=True))
        )


@dataclass(frozen=True)
class _Difference:
    """The difference of two states, whose rows are paired by key."""

    old: _State
    new: _State

    def changes(self, operation_column: str, budget: _Budget) -> pa.Table:
        """Return the changes in any order. See :func:`local_diff`."""
        old_at, new_at = self._rows_by_key()
        both = (old_at >= 0) & (new_at >= 0)
        olds, news = old_at[both], new_at[both]
        changed, moved = self._differing(olds, news)
        deletes = np.append(old_at[(old_at >= 0) & (new_at < 0)], olds[moved])
        inserts = np.append(new_at[(new_at >= 0) & (old_at < 0)], news[moved])
        updated = changed & ~moved
        parts = (
            ("insert", None, self.new, inserts),
            ("update", olds[updated], self.new, news[updated]),
            ("delete", deletes, self.old, deletes),
        )
        made = (self._made(operation_column, *part) for part in parts)
        return pa.Table.from_batches(budget.counted(made))

    def _rows_by_key(self) -> tuple[Indices, Indices]:
        """Return the index of each key's row in the old and the new state, or -1 if it has none.

        Raises:
            DuplicateKeyError: If a key occurs twice in a state.
        """
        columns = {
            name: pa.concat_arrays([self.old.rows.column(name), self.new.rows.column(name)])
            for name in self.old.key
        }
        _, codes = KeyFilter(pa.table(columns), null_safe=True).encode(list(columns.values()))
        key_count = int(codes.max()) + 1 if len(codes) else 0
        start, found = 0, []
        for state in (self.old, self.new):
            own = codes[start : start + state.rows.num_rows]
            state.check_unique(own)
            found.append(np.full(key_count, -1))
            found[-1][own] = np.arange(len(own))
            start += len(own)
        return found[0], found[1]

    def _differing(self, olds: Indices, news: Indices) -> tuple[Mask, Mask]:
        """Return masks of the pairs that differ, and of those that differ in a partition or bucket column."""
        table = self.old.table
        changed, moved = np.zeros(len(olds), np.bool_), np.zeros(len(olds), np.bool_)
        old_rows, new_rows = pa.array(olds), pa.array(news)
        for column in table.all_columns:
            name = column.name
            other = differs(
                self.old.rows.column(name).take(old_rows), self.new.rows.column(name).take(new_rows)
            )
            changed |= other
            if name in table.placing_columns:
                moved |= other
        return changed, moved

    def _made(
        self, operation_column: str, operation: str, olds: Indices | None, state: _State, rows: Indices
    ) -> pa.RecordBatch:
        """Return the changes of one operation: ROW__IDs of the old state, values of the given state."""
        indices = pa.array(rows)
        row_ids = self.old.rows.column(ROW_ID_COLUMN)
        ids = pa.nulls(len(rows), row_ids.type) if olds is None else row_ids.take(pa.array(olds))
        values = {c.name: state.rows.column(c.name).take(indices) for c in state.table.all_columns}
        operations = pa.repeat(pa.scalar(operation, pa.string()), len(rows))
        return pa.record_batch({operation_column: operations, ROW_ID_COLUMN: ids, **values})


def _check_types(table: AcidTable, key: Sequence[str], new: pa.Schema) -> None:
    unions = [f"{c.name} {c.type}" for c in table.all_columns if "uniontype<" in c.type.lower()]
    if unions:
        raise TableNotMutableError(f"table {table.full_name}: unions cannot be compared: {', '.join(unions)}")
    types = target_types(table)
    nested = [f"{name} {types[name]}" for name in key if pa.types.is_nested(types[name])]
    if nested:
        raise UnsupportedLocallyError(
            f"table {table.full_name}: only Spark can compare nested key columns: {', '.join(nested)}"
        )
    found = {field.name.lower(): field.type for field in new}
    wanted = {name: found[name] for name in types}
    check_wall_clocks(table.full_name, NEW_STATE, wanted)
    for column in table.all_columns:
        check_type(table.full_name, column, wanted[column.name], str(wanted[column.name]))


def _held(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    return plain_batch(pa.Table.from_batches(batches, schema))


def _stored(table: AcidTable, key: Sequence[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with the table's columns, in the table's order and types."""
    given = {name.lower(): column for name, column in zip(batch.schema.names, batch.columns, strict=True)}

    def key_of(row: int) -> str:
        parts = [plain_array(given[name].slice(row, 1)) for name in key]
        return json_texts(pa.StructArray.from_arrays(parts, names=list(key)))[0]

    columns = [
        converted(
            table.full_name,
            column,
            plain_array(given[column.name]),
            key_of,
            null_text=null_text_of(table, column.name),
        )
        for column in table.all_columns
    ]
    return pa.record_batch(columns, schema=pa.schema(target_types(table)))


def _in_order(changes: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort the changes as Spark does: NULL first, NaN last, -0.0 equals 0.0."""
    ranks = [dense_ranks(_unsigned_zeros(changes.column(name)), is_descending=False) for name in names]
    return changes.take(pa.array(np.lexsort(ranks[::-1])))


def _unsigned_zeros(column: pa.ChunkedArray) -> pa.Array:
    values = plain_array(column)
    return pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values
