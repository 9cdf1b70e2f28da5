"""Reduce a log of operations to the last one of each key in this process, by the rules of :mod:`reduce`.

The operations are sorted by key and position, and :class:`~mutation_api.cdc.log_walk.LogWalk` passes over
them once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.cdc.engine import check_key_columns, check_operation_columns
from mutation_api.cdc.ingest_report import (
    OPERATIONS,
    SAMPLES_SHOWN,
    SINGULARS,
    Contradictions,
    LogCounts,
    log_contradicts_itself,
)
from mutation_api.cdc.log_walk import (
    CONTRADICTION,
    CONTRADICTION_POSITION,
    CONTRADICTIONS,
    DOUBLED_POSITION,
    FIRST_OPERATION,
    FIRST_POSITION,
    NO_KEY,
    NO_OPERATION,
    NOT_ORDERED,
    OPERATION_COUNT,
    LogWalk,
    doubled_texts,
    names_of,
)
from mutation_api.cdc.source import CHANGED_AT, OPERATION, POSITION, SourceTable
from mutation_api.errors import ConfigurationError, ContradictionError, RecordLayoutError, RecordValueError
from mutation_api.format.json_values import json_texts
from mutation_api.format.plain_array import plain_array, struct_fields
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.source_rows import plain_batch
from mutation_api.write.layout import is_text

ROWS_PER_STEP = 1 << 16
"""The number of operations in each batch of the walk."""

_ORDER = "position"
"""The name of the position in messages; it is the same as in Spark's reduction."""


@dataclass
class HeldOperations:
    """The memory for the operations of all tables of a run: ``taken`` of ``byte_limit`` bytes are in use."""

    byte_limit: int
    taken: int = 0

    def take(self, byte_count: int, what: str) -> None:
        """Take bytes for operations of the log ``what``. Raises ConfigurationError if too few are left."""
        self.taken += byte_count
        if self.taken > self.byte_limit:
            raise ConfigurationError(
                f"{what}: the new operations need more than the {self.byte_limit:,} bytes that the local "
                "engine may hold for all tables. Allow more with LocalOptions(memory_bytes=…), half of which "
                "is for operations, or ingest with Spark. Nothing was written"
            )


@dataclass(frozen=True)
class LocalLog:
    """A reduced log.

    ``rows`` has one row for each key: the columns of the operations without POSITION, then FIRST_OPERATION
    and FIRST_POSITION.
    """

    rows: pa.Table
    counts: LogCounts


def reduce_here(table: SourceTable, operations: pa.Table, *, strict: bool, what: str) -> LocalLog:
    """Return the last operation of each key, with the findings of the walk.

    Args:
        table: the table, whose key is known.
        operations: see :func:`collected`.
        strict: refuse a log that contradicts itself.
        what: name of the log in messages.

    Raises: See :meth:`mutation_api.cdc.engine.TableLog.reduced`.
    """
    if CHANGED_AT in operations.column_names:
        operations = operations.drop_columns([CHANGED_AT])
    log = _Log(table.key, _checked_columns(table, operations))
    if not log.rows.num_rows:
        return _nothing(log.rows)
    log.check_operations()
    walked = log.walked()
    log.check_positions(walked)
    counts = _counts(walked)
    if strict and counts.contradictions.total:
        raise log_contradicts_itself(what, counts.contradictions, log.samples(walked))
    return LocalLog(walked.select([*log.data_columns, FIRST_OPERATION, FIRST_POSITION]), counts)


def collected(
    table: SourceTable, operations: Iterable[pa.RecordBatch], held: HeldOperations, what: str
) -> pa.Table:
    """Return all operations, with column names in lower case.

    Args:
        table: the table.
        operations: see :class:`~mutation_api.cdc.source.LocalOperations`.
        held: the memory for them.
        what: name of the log in messages.

    Raises:
        ConfigurationError: If the operations need more memory than allowed.
        Others: The errors of the source.
    """
    batches = []
    for batch in operations:
        held.take(batch.nbytes, what)
        batches.append(batch)
    if not batches:
        position = pa.struct([(_ORDER, pa.int64())])
        times = [(CHANGED_AT, pa.timestamp("us"))] if table.wants_times else []
        return pa.schema(
            [(OPERATION, pa.string()), (POSITION, position), *times, *target_types(table.target).items()]
        ).empty_table()
    found = pa.Table.from_batches(batches)
    return found.rename_columns([name.lower() for name in found.column_names])


def _checked_columns(table: SourceTable, found: pa.Table) -> pa.Table:
    """Return the operations, after checking that they have the required columns and comparable types."""
    check_operation_columns(table, found.column_names)
    check_key_columns(table.key, found.schema)
    if not is_text(found.schema.field(OPERATION).type):
        raise RecordLayoutError(
            f"table {table.target.full_name}: column {OPERATION} must be a string, got "
            f"{found.schema.field(OPERATION).type}"
        )
    position = found.schema.field(POSITION).type
    if not (pa.types.is_struct(position) and all(pa.types.is_integer(field.type) for field in position)):
        raise RecordLayoutError(
            f"table {table.target.full_name}: column {POSITION} must be a struct of integers, got {position}"
        )
    at = found.column_names.index(OPERATION)
    return found.set_column(at, OPERATION, found[OPERATION].cast(pa.string()))


@dataclass(frozen=True)
class _Log:
    """Operations whose columns were checked."""

    key: tuple[str, ...]
    rows: pa.Table

    @property
    def data_columns(self) -> list[str]:
        """The names of all columns except POSITION."""
        return [name for name in self.rows.column_names if name != POSITION]

    def check_operations(self) -> None:
        """Raise RecordValueError for the first row that is not a valid operation."""
        no_key = pc.is_null(self.rows[self.key[0]])
        for name in self.key[1:]:
            no_key = pc.or_(no_key, pc.is_null(self.rows[name]))
        is_known = pc.is_in(self.rows[OPERATION], value_set=pa.array(OPERATIONS))
        wrong = {
            NO_KEY: no_key,
            NOT_ORDERED: pc.is_null(self.rows[POSITION]),
            NO_OPERATION: pc.invert(is_known),
        }
        first = {reason: pc.index(mask, True).as_py() for reason, mask in wrong.items()}
        found = {reason: row for reason, row in first.items() if row >= 0}
        if found:
            reason = min(found, key=lambda each: found[each])
            row = self.rows.slice(found[reason], 1)
            (operation,) = json_texts(_struct({"operation": row[OPERATION]}))
            (key,) = self._key_texts(row)
            (position,) = json_texts(_struct({_ORDER: row[POSITION]}))
            raise RecordValueError(f"operation {operation}, key {key}, position {position}: {reason}")

    def walked(self) -> pa.Table:
        """Return the last operation of each key, ordered by key, with the findings of the walk."""
        names = self.data_columns
        walk = LogWalk(tuple(map(names.index, self.key)), names.index(OPERATION), len(names))
        return pa.Table.from_batches(list(walk(self._in_order())))

    def _in_order(self) -> Iterator[pa.RecordBatch]:
        """Return the operations sorted by key and position; the position is the last column."""
        rows = self.rows.combine_chunks()
        positions = struct_fields(plain_array(rows[POSITION]))
        parts = [*(rows[name] for name in self.key), *positions]
        sorted_by = pa.table(parts, names=[str(number) for number in range(len(parts))])
        order = pc.sort_indices(sorted_by, sort_keys=[(name, "ascending") for name in sorted_by.column_names])
        for start in range(0, len(order), ROWS_PER_STEP):
            batch = plain_batch(rows.take(order.slice(start, ROWS_PER_STEP)))
            position = _struct({_ORDER: batch.column(POSITION)})
            columns = [batch.column(name) for name in self.data_columns]
            yield pa.RecordBatch.from_arrays([*columns, position], [*self.data_columns, POSITION])

    def check_positions(self, walked: pa.Table) -> None:
        """Raise ContradictionError for the first key with two operations at the same position."""
        row = pc.index(pc.is_valid(walked[DOUBLED_POSITION]), True).as_py()
        if row >= 0:
            found = walked.slice(row, 1)
            (key,) = self._key_texts(found)
            (position,) = json_texts(plain_array(found[DOUBLED_POSITION]))
            before, behind = doubled_texts(names_of(found[DOUBLED_POSITION].type))
            raise ContradictionError(f"two operations on key {key} {before}{position}{behind}")

    def samples(self, walked: pa.Table) -> list[str]:
        """Return some of the keys with contradictions, each with the position of its first contradiction."""
        wrong = walked.filter(pc.is_valid(walked[CONTRADICTION]))
        orders = json_texts(plain_array(wrong[CONTRADICTION_POSITION]))
        found = sorted(zip(orders, self._key_texts(wrong), wrong[CONTRADICTION].to_pylist(), strict=True))
        return [f"{SINGULARS[kind]} key {key} at {order}" for order, key, kind in found[:SAMPLES_SHOWN]]

    def _key_texts(self, rows: pa.Table) -> list[str]:
        return json_texts(_struct({name: rows[name] for name in self.key}))


def _struct(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.StructArray:
    return pa.StructArray.from_arrays([plain_array(each) for each in columns.values()], names=list(columns))


def _counts(walked: pa.Table) -> LogCounts:
    sums = (OPERATION_COUNT, *CONTRADICTIONS)
    groups = (
        walked.group_by([FIRST_OPERATION, OPERATION])
        .aggregate([([], "count_all"), *((name, "sum") for name in sums)])
        .to_pylist()
    )
    return LogCounts(
        sum(group[f"{OPERATION_COUNT}_sum"] for group in groups),
        {(group[FIRST_OPERATION], group[OPERATION]): group["count_all"] for group in groups},
        Contradictions(*(sum(group[f"{name}_sum"] for group in groups) for name in CONTRADICTIONS)),
    )


def _nothing(rows: pa.Table) -> LocalLog:
    """Return the reduction of a log without operations."""
    position = pa.struct([(_ORDER, rows.schema.field(POSITION).type)])
    fields = [pa.field(FIRST_OPERATION, pa.string()), pa.field(FIRST_POSITION, position)]
    data = [field for field in rows.schema if field.name != POSITION]
    return LocalLog(pa.schema([*data, *fields]).empty_table(), LogCounts(0, {}, Contradictions()))
