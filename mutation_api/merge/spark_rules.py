"""Merges described by rules, changes of rows by a condition, and histories, by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import ADDED_OPERATION, DELETE, INSERT, ROW_ID_COLUMN, UPDATE
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.plain_array import plain_array, struct_fields
from mutation_api.merge.clauses import (
    CHANGE_COLUMN,
    COLLECTED_KEYS_DEFAULT,
    SOURCE,
    TARGET,
    MergeOptionsDict,
    MergeRules,
    first_by,
    parsed_order,
    rule_clauses,
)
from mutation_api.merge.history import (
    HistoryOptionsDict,
    HistoryReport,
    HistoryRules,
    check_columns,
    events_of,
)
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.resolve import Equality
from mutation_api.merge.spark_expressions import Expression, Sides, names_side, with_sides
from mutation_api.merge.spark_matching import ScatteredKeys, source_keys
from mutation_api.merge.spark_merge import MergeInto, merge_into
from mutation_api.merge.timeline import HistoryChanges, history_changes
from mutation_api.read.key_groups import in_key_types, key_type
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.read.table_view import open_table
from mutation_api.spark.job import apply_changes
from mutation_api.spark.jvm import given_or_active
from mutation_api.spark.plan import default_num_partitions
from mutation_api.spark.snapshot_frame import read_table, read_table_by_bucket
from mutation_api.spark.tasks import snapshot_ddl
from mutation_api.spark.versions import collected, try_cast
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import AcidTable, AcidTableSerializer
from mutation_api.table.partition import partition_names
from mutation_api.table.row_type import quoted
from mutation_api.write.apply import ReplacedRows
from mutation_api.write.change_set import OverwriteReport, Replaced
from mutation_api.write.staged_writer import LookingTransaction

__all__ = ["delete_where", "merge_by_rules", "overwrite", "track", "update_where"]


def merge_by_rules(
    transaction: LookingTransaction,
    table: str,
    *,
    source: DataFrame,
    on: Sequence[str],
    rules: MergeRules,
    **options: Unpack[MergeOptionsDict],
) -> MergeInto:
    """Describe a merge by rules. Call ``execute()`` or ``dry_run()`` on the result.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table: ``database.table``.
        source: the rows to merge.
        on: key columns that both sides have.
        rules: the rules for what happens to rows.
        **options: see :class:`~mutation_api.merge.clauses.MergeOptionsDict`. The order of ``rules`` replaces
            ``on_duplicate``.

    Raises:
        ConfigurationError: If a condition or an order is not SQL, if rules contradict each other, or if an
            option is invalid.
    """
    acid_table = transaction.table(table)
    target = (*acid_table.column_names, *acid_table.partition_key_names)
    conditions = _SqlConditions(source.sparkSession, tuple(source.columns), target)
    orders = [conditions.order(text) for text in rules.first_by]
    options["on_duplicate"] = first_by(*orders) if orders else "error"
    merge = merge_into(transaction, acid_table.full_name, source=source, on=on, **options)
    merge.clauses += rule_clauses(rules, conditions)
    return merge


@dataclass(frozen=True)
class _SqlConditions:
    """Conditions as SQL with the side before each column. Columns of both sides are taken from the source.

    A :class:`~mutation_api.merge.clauses.RuleConditions`.
    """

    spark: SparkSession
    source: Sequence[str]
    target: Sequence[str]

    def of_both(self, text: str) -> Expression:
        return with_sides(self.spark, text, {**self._all(TARGET), **self._all(SOURCE)})

    def of_source(self, text: str) -> Expression:
        return with_sides(self.spark, text, self._all(SOURCE))

    def of_target(self, text: str) -> Expression:
        return with_sides(self.spark, text, self._all(TARGET))

    def reads_target(self, text: str) -> bool:
        sides = {**self._all(TARGET), **self._all(SOURCE)}
        return names_side(self.spark, with_sides(self.spark, text, sides), TARGET)

    def unless(self, gone: Expression, wanted: Expression | None) -> Expression:
        stays = f"NOT coalesce(({gone}), false)"
        return stays if wanted is None else f"({wanted}) AND {stays}"

    def order(self, text: str) -> Column:
        """Return an order such as ``updated DESC NULLS LAST`` as a Column.

        Spark's parser would take DESC for a name.
        """
        found = parsed_order(text)
        column = sf.expr(with_sides(self.spark, found.value, self._all(SOURCE)))
        order, nulls = "desc" if found.is_descending else "asc", "last" if found.nulls_last else "first"
        sort: Callable[[], Column] = getattr(column, f"{order}_nulls_{nulls}")
        return sort()

    def _all(self, side: str) -> Mapping[str, str]:
        names = self.source if side == SOURCE else self.target
        return {name.lower(): side for name in names}


def delete_where(
    transaction: LookingTransaction, table: str, where: str, *, spark: SparkSession | None = None
) -> MergeReport:
    """Delete the rows of a table that meet a condition. No row is collected.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table: ``database.table``.
        where: SQL over the table's columns. A row for which it is NULL stays.
        spark: the session. If None, the active one.

    Raises:
        Errors: See :meth:`MergeInto.execute`.
    """
    _check_sql(table, where)
    return _all_rows(transaction, table, spark).whenNotMatchedBySource(where).delete().execute()


def update_where(
    transaction: LookingTransaction,
    table: str,
    set: Mapping[str, str],
    where: str | None = None,
    *,
    spark: SparkSession | None = None,
) -> MergeReport:
    """Give the rows of a table that meet a condition new values. No row is collected.

    Args:
        transaction: see :func:`delete_where`.
        table: ``database.table``.
        set: new values by column: SQL over the table's columns. A row whose partition or bucket changes is
            moved.
        where: see :func:`delete_where`. If None, all rows are updated.
        spark: see :func:`delete_where`.

    Raises:
        Errors: See :meth:`MergeInto.execute`.
    """
    _check_sql(table, *set.values(), *([] if where is None else [where]))
    return _all_rows(transaction, table, spark).whenNotMatchedBySource(where).update(set).execute()


def _check_sql(table: str, *texts: str) -> None:
    """Refuse Columns, which would have to name the side of a merge."""
    for each in texts:
        if not isinstance(each, str):
            raise ConfigurationError(
                f'table {table}: expected SQL such as "price > 5", got {each!r} of type {type(each).__name__}'
            )


def _all_rows(transaction: LookingTransaction, table: str, spark: SparkSession | None) -> MergeInto:
    """Return a merge without source rows, whose clauses by source act on all rows."""
    nothing = given_or_active(spark).createDataFrame([], "nothing int")
    return merge_into(transaction, table, source=nothing, on=sf.lit(False))


def overwrite(
    transaction: LookingTransaction,
    table: str,
    rows: DataFrame,
    *,
    partitions: str | Sequence[Mapping[str, object]] | None = None,
    where: str | None = None,
) -> OverwriteReport:
    """Replace rows of a table by the rows of a DataFrame. No row is collected.

    ``rows`` is evaluated more than once with ``partitions`` or ``where``: materialise it first if it is not
    deterministic.

    Args:
        transaction: see :func:`delete_where`.
        table: ``database.table``.
        rows: the new rows, with all columns of the table.
        partitions: ``"dynamic"`` to replace the partitions of the new rows, or the partitions to replace,
            such as ``[{"day": "2024-05-01"}]``. If None, the whole table is replaced.
        where: the rows to replace, as SQL. New rows must meet it as well.

    Raises:
        ConfigurationError: If both are given, or a partition column does not exist.
        RecordValueError: If a new row does not belong to what is replaced.
        Errors: See :func:`mutation_api.apply_changes`.
    """
    acid_table = transaction.table(table)
    replaced = Replaced.of(acid_table, partitions, None)
    if where is not None:
        _check_sql(table, where)
        Replaced.of(acid_table, partitions, where)
        _check_meets(acid_table.full_name, rows, where)
    view = open_table(transaction, table)
    names = replaced.partitions(acid_table, [*view.locations], _partitions_of(acid_table, rows, replaced))
    changes = rows.withColumn(ADDED_OPERATION, sf.lit(INSERT))
    whole = ReplacedRows.of(transaction, view, names) if where is None else None
    if whole is None and (names or not acid_table.partition_keys):
        old = read_table(
            transaction,
            table,
            columns=[] if where is None else None,
            partitions=names if acid_table.partition_keys else None,
            spark=rows.sparkSession,
        )
        kept = old if where is None else old.where(where)
        deletes = kept.select(sf.lit(DELETE).alias(ADDED_OPERATION), ROW_ID_COLUMN)
        changes = changes.unionByName(deletes, allowMissingColumns=True)
    written = apply_changes(transaction, table, changes, operation_column=ADDED_OPERATION, read_now=True)
    deleted = written.deleted
    if whole is not None:
        whole.replace()
        deleted = whole.row_count
    touched = tuple(sorted(names)) if acid_table.partition_keys else ()
    is_base = whole is not None and deleted > 0
    return OverwriteReport(acid_table.full_name, deleted, written.inserted, touched, is_base)


def _partitions_of(table: AcidTable, rows: DataFrame, replaced: Replaced) -> list[str]:
    """Return the names of the partitions of new rows, if they decide what is replaced."""
    if not table.partition_keys or not (replaced.is_dynamic or replaced.specs):
        return []
    found = collected(rows.select(*table.partition_key_names).distinct())
    columns = dict(zip(found.column_names, found.columns, strict=True))
    names: list[str] = partition_names(table, columns).unique().to_pylist()
    return names


def _check_meets(table: str, rows: DataFrame, where: str) -> None:
    if rows.where(~sf.coalesce(sf.expr(where), sf.lit(False))).take(1):
        raise RecordValueError(
            f"table {table}: overwrite: new rows do not meet the condition of the rows to replace ({where}): "
            "leave them out, or append them"
        )


_EVENT, _STORED, _ROUTE = "event", "stored", "__key_{}"
HISTORY_ROWS = 1 << 16
"""A task compares histories after this number of rows, at the next new key."""


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

    The rule is that of ``HiveTable.track``. All versions of a changed key go to one task.

    Args:
        transaction: see :func:`delete_where`.
        table: ``database.table``.
        changes: rows with the key, the sequence and the columns of a version; possibly an operation.
        key: the columns that identify a key.
        sequence: the column of the changes that orders those of a key. Further columns decide ties.
        dry_run: True to report what would be done, without writing.
        **options: see :class:`~mutation_api.merge.history.HistoryOptionsDict`.

    Raises:
        Errors: See ``HiveTable.track`` and :func:`mutation_api.apply_changes`.
    """
    acid_table = transaction.table(table)
    rules = HistoryRules.of(acid_table, key, sequence, **options)
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
    """Return the versions of the changes' keys, and possibly those of others."""
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
