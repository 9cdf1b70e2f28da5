"""Histories of keys by Spark, with the rules of :mod:`mutation_api.merge.timeline`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame

from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import DELETE, INSERT, ROW_ID_COLUMN, UPDATE
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.plain_array import plain_array, struct_fields
from mutation_api.merge.clauses import CHANGE_COLUMN, COLLECTED_KEYS_DEFAULT
from mutation_api.merge.history import (
    HistoryOptionsDict,
    HistoryReport,
    HistoryRules,
    check_columns,
    events_of,
)
from mutation_api.merge.resolve import Equality
from mutation_api.merge.spark_expressions import Sides
from mutation_api.merge.spark_matching import ScatteredKeys, source_keys
from mutation_api.merge.timeline import HistoryChanges, history_changes
from mutation_api.read.key_groups import in_key_types, key_type
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.spark.job import apply_changes
from mutation_api.spark.plan import default_num_partitions
from mutation_api.spark.snapshot_frame import read_table, read_table_by_bucket
from mutation_api.spark.tasks import snapshot_ddl
from mutation_api.spark.versions import try_cast
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import AcidTable, AcidTableSerializer
from mutation_api.table.row_type import quoted
from mutation_api.write.staged_writer import LookingTransaction

_EVENT, _STORED, _ROUTE = "event", "stored", "__key_{}"
HISTORY_ROWS = 1 << 16
"""After this number of rows, a task compares the histories read so far, at the next new key."""


def track(
    transaction: LookingTransaction,
    table: str,
    changes: DataFrame,
    key: Sequence[str],
    sequence: str | Sequence[str],
    *,
    dry_run: bool = False,
    **options: Unpack[HistoryOptionsDict],
) -> HistoryReport:
    """Keep the history of keys (slowly changing dimension, type 2). No row is collected.

    The rules are those of ``HiveTable.track``. All versions of a changed key go to one task.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table: ``database.table``.
        changes: rows with the key, the sequence and the columns of a version; possibly an operation.
        key: the columns that identify a key.
        sequence: the column of the changes that orders those of a key. Further columns break ties.
        dry_run: True to report what would be done, without writing.
        **options: see :class:`~mutation_api.merge.history.HistoryOptionsDict`.

    Raises:
        Errors: See ``HiveTable.track`` and :func:`mutation_api.apply_changes`.
    """
    rules = HistoryRules.of(transaction.table(table), key, sequence, **options)
    return add_to_history(transaction, table, rules, changes, dry_run=dry_run)


def add_to_history(
    transaction: LookingTransaction,
    table: str,
    rules: HistoryRules,
    changes: DataFrame,
    *,
    dry_run: bool = False,
) -> HistoryReport:
    """Add changes to a history whose options are checked. See :func:`track`."""
    acid_table = transaction.table(table)
    sides = Sides.of(acid_table, changes)
    check_columns(acid_table, rules, sides.source.columns)
    transaction.merging(acid_table.full_name, rules.key, inserts=True)
    names = [quoted(name) for name in rules.of_source(sides.source.columns)]
    types = {field.name: field.dataType for field in sides.target_schema}
    events = sides.source.select(
        *(try_cast(name, types[name]).alias(_ROUTE.format(at)) for at, name in enumerate(rules.key)),
        sf.struct(*names).alias(_EVENT),
    )
    stored = _stored_versions(transaction, acid_table, sides, rules)
    rows = events.unionByName(
        stored.select(
            *(sf.col(quoted(name)).alias(_ROUTE.format(at)) for at, name in enumerate(rules.key)),
            sf.struct(*(sf.col(quoted(name)) for name in stored.columns)).alias(_STORED),
        ),
        allowMissingColumns=True,
    )
    route = [_ROUTE.format(at) for at in range(len(rules.key))]
    columns = snapshot_ddl(acid_table, acid_table.all_columns)
    task = _HistoryTask(AcidTableSerializer.encode(acid_table), rules)
    tasks = default_num_partitions(changes.sparkSession)
    cached = rows.repartition(tasks, *route).sortWithinPartitions(*route).persist()
    found = cached.mapInArrow(task, f"`{CHANGE_COLUMN}` string, {columns}")
    try:
        with translated_worker_errors(f"table {acid_table.full_name}: its history"):
            is_event = sf.col(_EVENT).isNotNull()
            if rules.deletes == "ignore" and rules.operation_column in sides.source.columns:
                is_event &= sf.lower(sf.col(quoted(_EVENT, rules.operation_column))) != DELETE
            count = cached.where(is_event).count()
            if dry_run:
                counts = {row[0]: row[1] for row in found.groupBy(CHANGE_COLUMN).count().collect()}
                inserted, updated, deleted = (counts.get(name, 0) for name in (INSERT, UPDATE, DELETE))
        if not dry_run:
            written = apply_changes(transaction, table, found, operation_column=CHANGE_COLUMN, read_now=True)
            inserted, updated, deleted = written.inserted, written.updated, written.deleted
    finally:
        cached.unpersist()
    return HistoryReport(acid_table.full_name, count, inserted, updated, deleted, dry_run)


def _stored_versions(
    transaction: LookingTransaction, table: AcidTable, sides: Sides, rules: HistoryRules
) -> DataFrame:
    """Return the versions of the changes' keys, and possibly those of other keys."""
    equalities = [Equality(name, name, null_safe=False) for name in rules.key]
    keys = source_keys(
        sides, equalities, COLLECTED_KEYS_DEFAULT, table=table, prune_buckets=True, is_whole_condition=True
    )
    if isinstance(keys, ScatteredKeys):
        return read_table_by_bucket(transaction, table.full_name, keys.rows)
    return read_table(
        transaction,
        table.full_name,
        keys=None if keys is None else in_key_types(table, keys.table),
        spark=sides.source.sparkSession,
    )


@dataclass(frozen=True)
class _HistoryTask:
    """The function that runs in tasks: it takes rows ordered by key, and yields batches of a change set."""

    table_text: str
    rules: HistoryRules

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        kinds = {column.name: key_type(column) for column in table.all_columns}
        row_id = {CHANGE_COLUMN: pa.string(), ROW_ID_COLUMN: full_row_id_type(table)}
        schema = pa.schema({**row_id, **kinds})
        for rows in _whole_keys(batches, len(self.rules.key)):
            for changed in self._changes(table, rows).batches():
                yield pa.record_batch(
                    [each.cast(kind) for each, kind in zip(changed.columns, schema.types, strict=True)],
                    schema=schema,
                )

    def _changes(self, table: AcidTable, rows: pa.RecordBatch) -> HistoryChanges:
        event, stored = (plain_array(rows.column(name)) for name in (_EVENT, _STORED))
        events = _flat(event.filter(event.is_valid()))
        versions = _flat(stored.filter(stored.is_valid()))
        columns = {
            column.name: convert_to_column(
                versions.column(column.name),
                parse_hive_type(column.type),
                column=column.name,
                timestamp_unit="us",
            )
            for column in table.all_columns
        }
        row_ids = versions.column(ROW_ID_COLUMN).cast(full_row_id_type(table))
        versions = pa.record_batch({ROW_ID_COLUMN: row_ids, **columns})
        return history_changes(table, self.rules, versions, events_of(table, self.rules, events))


def _flat(rows: pa.StructArray) -> pa.RecordBatch:
    return pa.record_batch(
        [plain_array(each) for each in struct_fields(rows)], names=[field.name for field in rows.type]
    )


def _whole_keys(batches: Iterator[pa.RecordBatch], key_count: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches that hold all rows of their keys. The rows are ordered by the first columns."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) < HISTORY_ROWS:
            continue
        rows = pa.concat_batches(held)
        last = pa.record_batch(
            [rows.column(at).slice(rows.num_rows - 1) for at in range(key_count)],
            names=rows.schema.names[:key_count],
        )
        cut = _first_of_key(rows, last)
        if cut:
            yield rows.slice(0, cut)
        held = [rows.slice(cut)]
    if held and sum(each.num_rows for each in held):
        yield pa.concat_batches(held)


def _first_of_key(rows: pa.RecordBatch, last: pa.RecordBatch) -> int:
    """Return the index of the first row with the key of the last one."""
    same = np.ones(rows.num_rows, np.bool_)
    for at, value in enumerate(last.columns):
        column = rows.column(at)
        equal = pc.equal(column, value[0]) if value[0].is_valid else column.is_null()
        same &= pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
    return int(np.argmax(same))
