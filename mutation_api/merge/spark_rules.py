"""Merges described by rules, and changes of rows by a condition, by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Unpack

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.format.event import ADDED_OPERATION, DELETE, INSERT, ROW_ID_COLUMN
from mutation_api.merge.clauses import (
    SOURCE,
    TARGET,
    MergeOptionsDict,
    MergeRules,
    first_by,
    parsed_order,
    rule_clauses,
)
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.spark_expressions import Expression, names_side, with_sides
from mutation_api.merge.spark_merge import MergeInto, merge_into
from mutation_api.read.table_view import open_table
from mutation_api.spark.job import apply_changes
from mutation_api.spark.jvm import given_or_active
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.spark.versions import collected
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import partition_names
from mutation_api.write.apply import ReplacedRows
from mutation_api.write.change_set import OverwriteReport, Replaced
from mutation_api.write.staged_writer import LookingTransaction


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
        rules: the rules of the merge.
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

        Spark's parser would treat DESC as a name.
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
    transaction: LookingTransaction,
    table: str,
    where: str,
    *,
    dry_run: bool = False,
    spark: SparkSession | None = None,
) -> MergeReport:
    """Delete the rows of a table that meet a condition. No row is collected.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table: ``database.table``.
        where: SQL over the table's columns. A row for which it is NULL stays.
        dry_run: True to report what would be done, without writing.
        spark: the session. If None, the active one.

    Raises:
        Errors: See :meth:`MergeInto.execute`.
    """
    _check_sql(table, where)
    return _done(_all_rows(transaction, table, spark).whenNotMatchedBySource(where).delete(), dry_run)


def update_where(
    transaction: LookingTransaction,
    table: str,
    set: Mapping[str, str],
    where: str | None = None,
    *,
    dry_run: bool = False,
    spark: SparkSession | None = None,
) -> MergeReport:
    """Update the rows of a table that meet a condition. No row is collected.

    Args:
        transaction: see :func:`delete_where`.
        table: ``database.table``.
        set: new values by column: SQL over the table's columns. A row whose partition or bucket changes is
            moved.
        where: see :func:`delete_where`. If None, all rows are updated.
        dry_run: see :func:`delete_where`.
        spark: see :func:`delete_where`.

    Raises:
        Errors: See :meth:`MergeInto.execute`.
    """
    _check_sql(table, *set.values(), *([] if where is None else [where]))
    return _done(_all_rows(transaction, table, spark).whenNotMatchedBySource(where).update(set), dry_run)


def _done(merge: MergeInto, dry_run: bool) -> MergeReport:
    return merge.dry_run() if dry_run else merge.execute()


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
    dry_run: bool = False,
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
        dry_run: see :func:`delete_where`.

    Raises:
        ConfigurationError: If both are given, or a partition column does not exist.
        RecordValueError: If a new row does not belong to the rows that are replaced.
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
    kept = rows.limit(0)
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
    if dry_run:
        counts = {row[0]: row[1] for row in changes.groupBy(ADDED_OPERATION).count().collect()}
        deleted, inserted = counts.get(DELETE, 0), counts.get(INSERT, 0)
    else:
        written = apply_changes(transaction, table, changes, operation_column=ADDED_OPERATION, read_now=True)
        deleted, inserted = written.deleted, written.inserted
    if whole is not None:
        deleted = whole.row_count
        if not dry_run:
            whole.replace()
    if where is not None:
        names = _named(acid_table, kept, rows) if dry_run else list(written.partitions)
    touched = tuple(sorted(names)) if acid_table.partition_keys else ()
    is_base = whole is not None and deleted > 0
    return OverwriteReport(acid_table.full_name, deleted, inserted, touched, is_base, dry_run)


def _partitions_of(table: AcidTable, rows: DataFrame, replaced: Replaced) -> list[str]:
    """Return the names of the partitions of new rows, if these partitions are replaced."""
    if not table.partition_keys or not (replaced.is_dynamic or replaced.specs):
        return []
    return _named(table, rows)


def _named(table: AcidTable, *frames: DataFrame) -> list[str]:
    """Return the names of the partitions of rows."""
    names: dict[str, None] = {}
    for rows in frames if table.partition_keys else ():
        found = collected(rows.select(*table.partition_key_names).distinct())
        columns = dict(zip(found.column_names, found.columns, strict=True))
        names.update(dict.fromkeys(partition_names(table, columns).unique().to_pylist()))
    return [*names]


def _check_meets(table: str, rows: DataFrame, where: str) -> None:
    if rows.where(~sf.coalesce(sf.expr(where), sf.lit(False))).take(1):
        raise RecordValueError(
            f"table {table}: overwrite: new rows do not meet the condition of the rows to replace ({where}): "
            "leave them out, or append them"
        )
