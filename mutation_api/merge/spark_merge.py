"""merge_into: merge a set of rows into a table by key, in one open transaction.

The API follows PySpark's ``DataFrame.mergeInto``. If the source is small, the driver merges it
(``spark_evaluator``). If tasks can own the rows, each merges its buckets (``spark_buckets``). Otherwise Spark
pairs the rows: a row is matched (``spark_matching``) and assigned to the first clause whose condition holds.
Tasks then apply the clauses (``spark_acting``), and their results are cached, so the report, the check for
duplicates and the writing use the same rows, and the join runs once.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Unpack

from pyspark.sql import Column, DataFrame

from mutation_api.errors import ConfigurationError, RecordValueError, WorkerError
from mutation_api.merge.clauses import (
    SOURCE,
    TARGET,
    Action,
    Clause,
    Match,
    MergeOptions,
    MergeOptionsDict,
    checked_keys,
)
from mutation_api.merge.local_merge import preview_plan, write_plan
from mutation_api.merge.local_plan import LocalMergePlan
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.preview import SAMPLES_DEFAULT, Preview
from mutation_api.merge.spark_buckets import BucketPlan, Merged, bucket_plan
from mutation_api.merge.spark_evaluator import few_rows_plan
from mutation_api.merge.spark_expressions import CheckedMerge, Expression, sides_of, with_sides
from mutation_api.merge.spark_plan import MergePlan
from mutation_api.spark.frame_table import counted_by_rows
from mutation_api.spark.job import apply_plan, new_writer, stage
from mutation_api.spark.jvm import spark_context
from mutation_api.spark.plan import default_num_partitions, forecast_changes
from mutation_api.spark.tasks import ChangeWriter, Manifests
from mutation_api.spark.versions import ansi_rules
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import WriterOptions
from mutation_api.table.row_type import checked_assignments
from mutation_api.write.staged_writer import LookingTransaction, check_sink

ROWS_PER_TASK = 20_000
"""The number of rows per writing task. Starting a task costs about as much as writing this many rows."""


def merge_into(
    transaction: LookingTransaction,
    table: str,
    *,
    source: DataFrame,
    on: Sequence[str] | Expression,
    **options: Unpack[MergeOptionsDict],
) -> MergeInto:
    """Begin a merge. Add clauses to the result, then call ``execute()`` or ``dry_run()``.

    Clauses are tried in order, and the first whose condition holds acts on a row. Rows to which no clause
    applies stay unchanged. Conditions and assignments are SQL strings or Columns over ``source`` and
    ``target`` (``"source.op = 'D'"``) and must be deterministic. Columns are matched by name, ignoring case.
    A TIMESTAMP is interpreted as its local time in the session's time zone.

    ``source`` is evaluated more than once. Materialise a non-deterministic source first (cache, checkpoint, a
    table).

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table: ``database.table``.
        source: the rows to merge.
        on: key columns that both sides have, or a condition.
        **options: see :class:`~mutation_api.merge.clauses.MergeOptionsDict`.

    Raises:
        ConfigurationError: If an option is invalid.
    """
    checked = MergeOptions(**options)
    if isinstance(on, str | Column):
        return MergeInto(transaction, table, source, None, on, checked)
    keys = checked_keys(on, f"table {table}: on")
    return MergeInto(transaction, table, source, keys, None, checked)


logger = logging.getLogger(__name__)


class _PairedInsteadError(Exception):
    """Raised if Spark has to pair the rows, since no task may own them."""


class _NothingChangedError(Exception):
    """Raised after a job that changed no row. Its writer is removed."""


@dataclass
class MergeInto:
    """A merge under construction, made by :func:`merge_into`."""

    transaction: LookingTransaction
    table: str
    source: DataFrame
    keys: tuple[str, ...] | None
    on: Expression | None
    options: MergeOptions
    clauses: list[Clause[Expression]] = field(default_factory=list)

    def whenMatched(self, condition: Expression | None = None) -> WhenMatched:  # noqa: N802
        """Begin a clause for matched rows."""
        return WhenMatched(self, Match.MATCHED, condition)

    def whenNotMatched(self, condition: Expression | None = None) -> WhenNotMatched:  # noqa: N802
        """Begin a clause for source rows that match no table row. It can only read ``source``."""
        return WhenNotMatched(self, Match.NOT_MATCHED, condition)

    def whenNotMatchedBySource(self, condition: Expression | None = None) -> WhenNotMatchedBySource:  # noqa: N802
        """Begin a clause for table rows that match no source row. It can only read ``target``."""
        return WhenNotMatchedBySource(self, Match.NOT_MATCHED_BY_SOURCE, condition)

    def execute(
        self,
        *,
        num_partitions: int | None = None,
        insert_files: int | None = None,
        options: WriterOptions | None = None,
        before_writing: Callable[[MergeReport], None] | None = None,
    ) -> MergeReport:
        """Write the changes. They become visible when the transaction commits.

        Args:
            num_partitions: number of writing tasks, see :func:`mutation_api.apply_changes`. By default, at
                most one per ROWS_PER_TASK rows.
            insert_files: see :func:`mutation_api.apply_changes`.
            options: see :func:`mutation_api.apply_changes`.
            before_writing: called with the report before the changes are added to the transaction. An
                exception ends the merge. Tasks may have staged files, which are then removed.

        Raises:
            DuplicateKeyError: If several source rows would act on one row or insert one key.
            RecordLayoutError: If columns are missing, extra or unknown, if types do not fit, if a condition
                cannot be resolved, or if the merge has no clause.
            RecordValueError: If a value does not fit its column, or if a key to insert would be stored as a
                different key (rounded, cut). The message shows the row's key. Also if an expression fails for
                a row (an overflow, an invalid cast).
            TableNotMutableError: If the table is insert-only and a clause does more than insert.
            PartitionCreationError: If rows belong to missing partitions that must not be created.
            DirectoryStateError: If rows lie in wrong buckets, see ``prune_buckets``.
            Other errors: See :func:`mutation_api.apply_changes`. Nothing is kept after the errors above.
        """
        with ansi_rules(self.source.sparkSession):
            return self._with_sides()._merged(num_partitions, insert_files, options, before_writing)

    def _merged(
        self,
        num_partitions: int | None,
        insert_files: int | None,
        options: WriterOptions | None,
        before_writing: Callable[[MergeReport], None] | None,
    ) -> MergeReport:
        self.transaction.settle(self.table)
        merge = self._checked()
        if (few := self._few_rows_plan(merge, num_partitions)) is not None:
            with translated_worker_errors(self._what):
                return write_plan(self.transaction, few, insert_files, options, before_writing)
        with translated_worker_errors(self._what), suppress(_PairedInsteadError):
            buckets = self._bucket_plan(merge, num_partitions, insert_files)
            return self._written_by_buckets(buckets, options, before_writing)
        with self._planned(merge) as plan:
            report = plan.outcome.report(self.transaction, plan.table, is_dry_run=False)
            if before_writing is not None:
                before_writing(report)
            if not report.total.changed:
                return report
            tasks = num_partitions or self._task_count(report)
            written = apply_plan(
                self.transaction, self.table, lambda: plan.changes(tasks, insert_files), options
            )
        return dataclasses.replace(report, written=written)

    def dry_run(
        self,
        *,
        samples: int = SAMPLES_DEFAULT,
        num_partitions: int | None = None,
        insert_files: int | None = None,
    ) -> MergeReport:
        """Report what :meth:`execute` would do, without writing.

        Args:
            samples: number of rows of each kind that are shown before and after the merge.
            num_partitions: see :meth:`execute`. The files of unbucketed tables depend on it.
            insert_files: see :meth:`execute`.

        Raises:
            ConnectionFailedError: If the metastore cannot be queried for the locks of other clients.
            Other errors: Those that :meth:`execute` raises before it writes.
        """
        with ansi_rules(self.source.sparkSession):
            return self._with_sides()._previewed(samples, num_partitions, insert_files)

    def _previewed(self, samples: int, num_partitions: int | None, insert_files: int | None) -> MergeReport:
        merge, samples = self._checked(), max(0, samples)
        if (few := self._few_rows_plan(merge, num_partitions, samples=samples)) is not None:
            with translated_worker_errors(self._what):
                return preview_plan(self.transaction, few, insert_files)
        with translated_worker_errors(self._what), suppress(_PairedInsteadError):
            buckets = self._bucket_plan(merge, num_partitions, insert_files, samples=samples)
            return self._previewed_by_buckets(buckets)
        with self._planned(merge, samples=samples) as plan:
            report = plan.outcome.report(self.transaction, plan.table, is_dry_run=True)
            tasks = num_partitions or self._task_count(report)
            forecast = forecast_changes(plan.changes(tasks, insert_files))
            preview = Preview.of(self.transaction, plan.table, forecast, plan.outcome.samples)
            return dataclasses.replace(report, preview=preview)

    def _checked(self) -> CheckedMerge:
        with translated_worker_errors(self._what):
            return CheckedMerge.of(
                self.transaction,
                self.table,
                self.source,
                self.keys,
                self.on,
                tuple(self.clauses),
                self.options,
            )

    def _few_rows_plan(
        self, merge: CheckedMerge, num_partitions: int | None, *, samples: int = 0
    ) -> LocalMergePlan | None:
        if num_partitions is not None:  # the user asked for tasks
            return None
        with translated_worker_errors(self._what):
            return few_rows_plan(merge, samples=samples)

    def _bucket_plan(
        self, merge: CheckedMerge, num_partitions: int | None, insert_files: int | None, *, samples: int = 0
    ) -> BucketPlan:
        plan = bucket_plan(merge, num_partitions=num_partitions, insert_files=insert_files, samples=samples)
        if isinstance(plan, str):
            logger.info("table %s: Spark pairs the rows of a merge: %s", self.table, plan)
            raise _PairedInsteadError
        return plan

    def _written_by_buckets(
        self,
        plan: BucketPlan,
        options: WriterOptions | None,
        before_writing: Callable[[MergeReport], None] | None,
    ) -> MergeReport:
        """Merge in tasks that own buckets. If nothing changes, the table does not receive a change set."""
        table = plan.merge.table
        reports: list[MergeReport] = []

        def write(writer: ChangeWriter) -> Manifests:
            found = self._run(plan, writer)
            report = found.outcome.report(self.transaction, table, is_dry_run=False)
            reports.append(report)
            if before_writing is not None:
                before_writing(report)
            if not report.total.changed:
                raise _NothingChangedError
            return found.manifests

        check_sink(table)
        try:
            with self.transaction.changing(table.full_name):
                self.transaction.check()
                context = spark_context(self.source.sparkSession)
                written = stage(self.transaction, table, context, options, write)
        except _NothingChangedError:
            return reports[0]
        return dataclasses.replace(reports[0], written=written)

    def _previewed_by_buckets(self, plan: BucketPlan) -> MergeReport:
        table = plan.merge.table
        writer = new_writer(table, spark_context(self.source.sparkSession), None)
        found = self._run(plan, writer, is_dry_run=True)
        report = found.outcome.report(self.transaction, table, is_dry_run=True)
        preview = Preview.of(self.transaction, table, found.forecast, found.outcome.samples)
        return dataclasses.replace(report, preview=preview)

    def _run(self, plan: BucketPlan, writer: ChangeWriter, *, is_dry_run: bool = False) -> Merged:
        try:
            with translated_worker_errors(self._what), counted_by_rows(self.source.sparkSession):
                return plan.run(writer, is_dry_run=is_dry_run)
        except (RecordValueError, WorkerError) as error:
            if not plan.has_computed:
                raise
            logger.info("table %s: Spark pairs the rows of a merge, since %s", self.table, error)
            raise _PairedInsteadError from error

    def _with_sides(self) -> MergeInto:
        """Return the merge with the side added to SQL columns that only one side has, as in PySpark."""
        inserts = any(clause.action.adds_row for clause in self.clauses)
        self.transaction.merging(self.table, self.keys, inserts=inserts)
        spark = self.source.sparkSession
        columns = {
            SOURCE: frozenset(name.lower() for name in self.source.columns),
            TARGET: frozenset(c.name for c in self.transaction.table(self.table).all_columns),
        }

        def named(expression: Expression, sides: Sequence[str]) -> Expression:
            if not isinstance(expression, str):
                return expression
            with suppress(ConfigurationError):  # resolving it raises the error with table and clause
                return with_sides(spark, expression, sides_of(columns, sides))
            return expression

        clauses = [
            dataclasses.replace(
                each,
                condition=None if each.condition is None else named(each.condition, each.match.sides),
                assignments=each.assignments
                and {name: named(value, each.match.sides) for name, value in each.assignments.items()},
            )
            for each in self.clauses
        ]
        on = None if self.on is None else named(self.on, (SOURCE, TARGET))
        return dataclasses.replace(self, on=on, clauses=clauses)

    @property
    def _what(self) -> str:
        return f"merging into {self.table}"

    def _task_count(self, report: MergeReport) -> int:
        location = self.transaction.table(self.table).location
        most = default_num_partitions(self.source.sparkSession, location)
        return max(1, min(most, math.ceil(report.total.changed / ROWS_PER_TASK)))

    @contextmanager
    def _planned(self, merge: CheckedMerge, *, samples: int = 0) -> Iterator[MergePlan]:
        with translated_worker_errors(self._what), counted_by_rows(self.source.sparkSession):
            plan = MergePlan.of(merge, samples=samples)
            try:
                plan.check()
                yield plan
            finally:
                plan.close()


@dataclass(frozen=True)
class _When:
    merge: MergeInto
    match: Match
    condition: Expression | None

    def _then(self, action: Action, assignments: Mapping[str, Expression] | None = None) -> MergeInto:
        what = f"table {self.merge.table}"
        lower = None if assignments is None else checked_assignments(assignments, what)
        self.merge.clauses.append(Clause(self.match, self.condition, action, lower))
        return self.merge


class _MayDelete(_When):
    def update(self, assignments: Mapping[str, Expression]) -> MergeInto:
        """Update some columns. Other columns keep their values."""
        return self._then(Action.UPDATE, assignments)

    def delete(self) -> MergeInto:
        """Delete the row."""
        return self._then(Action.DELETE)


class WhenMatched(_MayDelete):
    """The actions for matched rows."""

    def updateAll(self) -> MergeInto:  # noqa: N802
        """Update every column to the source's value."""
        return self._then(Action.UPDATE)


class WhenNotMatchedBySource(_MayDelete):
    """The actions for table rows that match no source row."""


class WhenNotMatched(_When):
    """The actions for source rows that match no table row."""

    def insert(self, assignments: Mapping[str, Expression]) -> MergeInto:
        """Insert a row with these values. Other columns become NULL."""
        return self._then(Action.INSERT, assignments)

    def insertAll(self) -> MergeInto:  # noqa: N802
        """Insert a row with the source's values."""
        return self._then(Action.INSERT)
