"""The engine that reads, reduces and merges a change source in this process, without Spark.

The operations of a log are reduced to the last one of each key by the rules of
:mod:`mutation_api.cdc.reduce`: they are sorted by key and position, and
:class:`~mutation_api.cdc.log_walk.LogWalk` passes over them once.

``LocalOptions.memory_bytes`` limits its memory; half of it is for the operations of all tables. The copy of a
whole table is streamed instead of being held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.cdc.engine import (
    AnySource,
    Reading,
    ReducedTable,
    TargetBytes,
    changed_samples,
    check_operation_columns,
    operation_clauses,
)
from mutation_api.cdc.ingest_report import (
    OPERATIONS,
    SAMPLES_SHOWN,
    SINGULARS,
    Contradictions,
    LogCounts,
    log_contradicts_itself,
)
from mutation_api.cdc.local_copy import copied_here
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
from mutation_api.cdc.source import OPERATION, POSITION, LocalBatch, LocalChangeSource, Position, SourceTable
from mutation_api.errors import ConfigurationError, ContradictionError, RecordLayoutError, RecordValueError
from mutation_api.format.event import DELETE, INSERT
from mutation_api.format.json_values import json_texts
from mutation_api.format.plain_array import plain_array, struct_fields
from mutation_api.merge.clauses import SOURCE
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.local_merge import LocalMerge, local_merge
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.source_rows import plain_batch
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.layout import is_text
from mutation_api.write.local_plan import LocalOptions

__all__ = ["HeldOperations", "LocalEngine", "LocalLog", "reduce_here"]


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


def reduce_here(
    table: SourceTable,
    operations: Iterable[pa.RecordBatch],
    held: HeldOperations,
    *,
    strict: bool,
    what: str,
) -> LocalLog:
    """Return the last operation of each key, with the findings of the walk.

    Args:
        table: the table, whose key is known.
        operations: see :class:`~mutation_api.cdc.source.LocalOperations`.
        held: the memory for them.
        strict: refuse a log that contradicts itself.
        what: name of the log in messages.

    Raises:
        ConfigurationError: If the operations need more memory than allowed.
        Others: See :meth:`mutation_api.cdc.engine.TableLog.reduced`.
    """
    log = _Log(table.key, _checked_columns(table, _collected(table, operations, held, what)))
    if not log.rows.num_rows:
        return _nothing(log.rows)
    log.check_operations()
    walked = log.walked()
    log.check_positions(walked)
    counts = _counts(walked)
    if strict and counts.contradictions.total:
        raise log_contradicts_itself(what, counts.contradictions, log.samples(walked))
    return LocalLog(walked.select([*log.data_columns, FIRST_OPERATION, FIRST_POSITION]), counts)


def _collected(
    table: SourceTable, operations: Iterable[pa.RecordBatch], held: HeldOperations, what: str
) -> pa.Table:
    """Return all operations, with column names in lower case."""
    batches = []
    for batch in operations:
        held.take(batch.nbytes, what)
        batches.append(batch)
    if not batches:
        position = pa.struct([(_ORDER, pa.int64())])
        return pa.schema(
            [(OPERATION, pa.string()), (POSITION, position), *target_types(table.target).items()]
        ).empty_table()
    found = pa.Table.from_batches(batches)
    return found.rename_columns([name.lower() for name in found.column_names])


def _checked_columns(table: SourceTable, found: pa.Table) -> pa.Table:
    """Return the operations, after checking that they have the required columns and comparable types."""
    check_operation_columns(table, found.column_names)
    unknown = [name for name in table.key if name not in found.column_names]
    if unknown:
        raise RecordLayoutError(
            f"the operations lack columns {', '.join(unknown)}; they have {', '.join(found.column_names)}"
        )
    for name in table.key:
        if pa.types.is_nested(found.schema.field(name).type):
            raise RecordLayoutError(
                f"key column {name!r} has the type {found.schema.field(name).type}, whose values cannot be "
                "compared without Spark"
            )
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


NAME = "local"
OPERATIONS_PART = 2
"""The fraction of the memory for operations is 1/OPERATIONS_PART."""
KEYS_AT_ONCE = 10_000
"""The number of keys that are looked up at once, until enough are found for a message."""

_NUMBER = "__number"


@dataclass(frozen=True)
class LocalEngine:
    """Reads sources in this process; ``local``: memory and threads."""

    local: LocalOptions

    def check(self, source: AnySource) -> None:
        """Raise ConfigurationError if the source can only be read by Spark."""
        if not isinstance(source, LocalChangeSource):
            raise ConfigurationError(
                f"source {source.source_id} can only be read by Spark (it does not have a method read_local)"
            )

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        _target_bytes: TargetBytes,
    ) -> Reading:
        """Read the source. See :class:`~mutation_api.cdc.engine.Engine`."""
        assert isinstance(source, LocalChangeSource)
        return self.reading(source.read_local(tables, after))

    def reading(self, batch: LocalBatch) -> Reading:
        """Return the reading of a batch that was read in this process."""
        held = HeldOperations(self.local.memory_bytes // OPERATIONS_PART)
        logs = tuple(
            _LocalTableLog(each.table, each.is_emptied, each.operations, held, self.local, each.is_copy)
            for each in batch.tables
        )
        return Reading(NAME, logs, batch.position, batch.stop, batch.set_back, batch.warnings)


@dataclass(frozen=True)
class _LocalTableLog:
    """A :class:`~mutation_api.cdc.engine.TableLog`."""

    table: SourceTable
    is_emptied: bool
    operations: Iterable[pa.RecordBatch]
    held: HeldOperations
    local: LocalOptions
    is_copy: bool

    @contextmanager
    def reduced(self, *, what: str, strict: bool) -> Iterator[ReducedTable]:
        if self.is_copy:
            yield copied_here(self.table, self.operations, self.local, is_emptied=self.is_emptied, what=what)
            return
        log = reduce_here(self.table, self.operations, self.held, strict=strict, what=what)
        yield _LocalReduced(self.table, log, self.is_emptied, self.local)


@dataclass(frozen=True)
class _LocalReduced:
    """A :class:`~mutation_api.cdc.engine.ReducedTable`."""

    table: SourceTable
    log: LocalLog
    is_emptied: bool
    local: LocalOptions

    @property
    def counts(self) -> LogCounts:
        return self.log.counts

    def merge(self, transaction: Transaction, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        return self._merge(transaction).execute(before_writing=before_writing)

    def dry_run(self, transaction: Transaction) -> MergeReport:
        return self._merge(transaction).dry_run(samples=0)

    def changed(self, transaction: Transaction) -> list[str]:
        return changed_samples(self._merge(transaction).dry_run(samples=SAMPLES_SHOWN))

    def contradicting(self, transaction: Transaction) -> list[str]:
        """Return keys in the order of their JSON, as Spark's engine does."""
        rows = self.log.rows
        orders = pa.array(json_texts(plain_array(rows[FIRST_POSITION])), pa.string())
        keys = pa.array(json_texts(_keys(rows, self.table.key).to_struct_array()), pa.string())
        texts = pa.table({"order": orders, "key": keys})
        in_order = pc.sort_indices(texts, sort_keys=[("order", "ascending"), ("key", "ascending")])
        found: list[str] = []
        for start in range(0, len(in_order), KEYS_AT_ONCE):
            some = in_order.slice(start, KEYS_AT_ONCE)
            operations = rows[FIRST_OPERATION].take(some)
            is_insert = pc.equal(operations, INSERT).to_numpy()
            wrong = np.flatnonzero(is_insert == self._are_present(transaction, rows.take(some)))
            for row in wrong[: SAMPLES_SHOWN - len(found)].tolist():
                at = some[row].as_py()
                found.append(f"{operations[row]} of key {keys[at]} at {orders[at]}")
            if len(found) == SAMPLES_SHOWN:
                break
        return found

    def _are_present(self, transaction: Transaction, rows: pa.Table) -> NDArray[np.bool_]:
        """Return True for each key that the target has, from the report of a merge that writes nothing."""
        present: NDArray[np.bool_] = np.zeros(rows.num_rows, np.bool_)
        if self.is_emptied:
            return present
        numbered = _keys(rows, self.table.key).append_column(_NUMBER, pa.array(np.arange(rows.num_rows)))
        looking = local_merge(
            transaction,
            self.table.target.full_name,
            source=numbered,
            on=self.table.key,
            count_by=_NUMBER,
            local=self.local,
        )
        found = looking.when_matched_delete().dry_run(samples=0).counts_by
        present[[number for number in found if isinstance(number, int)]] = True
        return present

    def _merge(self, transaction: Transaction) -> LocalMerge:
        merge = local_merge(
            transaction,
            self.table.target.full_name,
            source=self.log.rows.drop_columns([FIRST_POSITION]),
            on=self.table.key,
            missing_columns="error",
            count_by=FIRST_OPERATION,
            local=self.local,
        )
        is_delete = pc.field(SOURCE, OPERATION) == DELETE
        merge.clauses += operation_clauses(is_delete, ~is_delete, is_emptied=self.is_emptied)
        return merge


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return rows.select(list(key))
