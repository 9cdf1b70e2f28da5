"""merge_into: merge a set of rows into a table by key, in one open transaction.

The API follows PySpark's ``DataFrame.mergeInto``. A row is matched (``matching``) and given to the first
clause that holds. Its values are converted (``assignment``), duplicates are refused (``duplicates``), and it
becomes one change for :func:`mutation_api.apply_changes`. The rows are cached, so the report, the check
for duplicates and the writing see the same rows, and the join runs once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame

from mutation_api.errors import ConfigurationError
from mutation_api.merge.clauses import (
    CHANGE_COLUMN,
    COLLECTED_KEYS_DEFAULT,
    DUPLICATES_SHOWN_DEFAULT,
    SOURCE,
    TARGET,
    Action,
    Clause,
    FirstBy,
    Match,
    MergeOptions,
    checked_options,
)
from mutation_api.merge.local_merge import preview_rows, write_plan
from mutation_api.merge.local_plan import LocalMergePlan
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.preview import SAMPLES_DEFAULT
from mutation_api.merge.spark_evaluator import few_rows_plan
from mutation_api.merge.spark_expressions import Expression, sides_of, with_sides
from mutation_api.merge.spark_plan import MergePlan
from mutation_api.merge.spark_preview import preview_changes
from mutation_api.spark.frame_table import counted_by_rows
from mutation_api.spark.job import apply_changes
from mutation_api.spark.plan import default_num_partitions
from mutation_api.spark.versions import ansi_rules
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import WriterOptions
from mutation_api.table.row_type import checked_assignments
from mutation_api.write.staged_writer import LookingTransaction

__all__ = [
    "MergeInto",
    "WhenMatched",
    "WhenNotMatched",
    "WhenNotMatchedBySource",
    "merge_into",
]


ROWS_PER_TASK = 20_000
"""Rows per writing task. Starting a task costs about as much as writing this number of rows."""


def merge_into(
    transaction: LookingTransaction,
    table_name: str,
    *,
    source: DataFrame,
    on: Sequence[str] | Expression,
    null_safe: bool = False,
    on_duplicate: str | FirstBy = "error",
    missing_columns: str = "null",
    write_unchanged: bool = False,
    duplicates_shown: int = DUPLICATES_SHOWN_DEFAULT,
    collected_keys: int = COLLECTED_KEYS_DEFAULT,
    prune_buckets: bool = True,
    count_by: str | None = None,
) -> MergeInto:
    """Begin a merge: add clauses to the result, then call ``merge()`` or ``dry_run()``.

    Clauses are tried in their order, and the first that holds decides a row. A row for which none holds stays
    unchanged. Conditions and assignments are SQL text or Columns over ``source`` and ``target``
    (``"source.op = 'D'"``); they must be deterministic. Columns are matched by name, ignoring case. A
    TIMESTAMP is the wall clock that it shows in the session's time zone.

    ``source`` is evaluated more than once. Materialise a non-deterministic source first (cache, checkpoint, a
    table).

    Args:
        transaction: begun; the table is one of its sinks.
        table_name: ``database.table``.
        source: the rows to merge.
        on: key columns that both sides have, or a condition.
        null_safe: with key columns, whether NULL equals NULL; in SQL it does not.
        on_duplicate: what to do if several source rows would act on one row or insert one key: ``"error"``,
            or :func:`~mutation_api.merge.clauses.first_by`. Rows for which no clause holds do not count.
            Repeated matches do not count if the only clause for matched rows is an unconditional delete.
        missing_columns: what to do if the source lacks columns for ``updateAll`` or ``insertAll``: ``"null"``
            inserts NULL and keeps their values on update; ``"error"`` refuses the merge.
        write_unchanged: do not compare updates with the rows that they replace. Updates without a difference
            are written, too, and counted as updated.
        duplicates_shown: number of keys that the error names.
        collected_keys: maximum number of source rows whose keys the driver collects, to read the table by
            them. More keys are shuffled to their buckets; if they do not determine buckets, Spark joins
            source and table. The option bounds the driver's memory and does not change the result.
        prune_buckets: if the keys determine a row's bucket, read only the buckets of the source's keys. If a
            row lies in a bucket other than its hash says, the merge is refused. Buckets that are not read are
            not checked. False reads all buckets, and so does a table that Hive's ALTER TABLE changed.
        count_by: a column of the source. The report also counts rows by its values. It need not be a column
            of the table.

    Raises:
        ConfigurationError: an option is invalid.
    """
    keys = None if isinstance(on, str | Column) else tuple(name.lower() for name in on)
    options = checked_options(
        keys=keys,
        null_safe=null_safe,
        on_duplicate=on_duplicate,
        missing_columns=missing_columns,
        write_unchanged=write_unchanged,
        duplicates_shown=duplicates_shown,
        collected_keys=collected_keys,
        prune_buckets=prune_buckets,
        count_by=count_by,
    )
    condition = on if isinstance(on, str | Column) else None
    return MergeInto(transaction, table_name, source, keys, condition, options)


@dataclass
class MergeInto:
    """A merge under construction; made by :func:`merge_into`."""

    transaction: LookingTransaction
    table_name: str
    source: DataFrame
    keys: tuple[str, ...] | None
    on: Expression | None
    options: MergeOptions
    clauses: list[Clause[Expression]] = field(default_factory=list)

    def whenMatched(self, condition: Expression | None = None) -> WhenMatched:  # noqa: N802
        """Begin a clause for rows on both sides."""
        return WhenMatched(self, Match.MATCHED, condition)

    def whenNotMatched(self, condition: Expression | None = None) -> WhenNotMatched:  # noqa: N802
        """Begin a clause for rows that only the source has; it sees ``source`` only."""
        return WhenNotMatched(self, Match.NOT_MATCHED, condition)

    def whenNotMatchedBySource(self, condition: Expression | None = None) -> WhenNotMatchedBySource:  # noqa: N802
        """Begin a clause for rows that only the table has; it sees ``target`` only."""
        return WhenNotMatchedBySource(self, Match.NOT_MATCHED_BY_SOURCE, condition)

    def merge(
        self,
        *,
        num_partitions: int | None = None,
        insert_files: int | None = None,
        options: WriterOptions | None = None,
        before_writing: Callable[[MergeReport], None] | None = None,
    ) -> MergeReport:
        """Write the changes; they become visible when the transaction commits.

        Args:
            num_partitions: number of writing tasks, as for :func:`mutation_api.apply_changes`. By
                default at most one for each ROWS_PER_TASK rows.
            insert_files: as for :func:`mutation_api.apply_changes`.
            options: as of :func:`mutation_api.apply_changes`.
            before_writing: called with the report before anything is written; an exception ends the merge.

        Raises:
            DuplicateKeyError: several source rows would act on one row, or insert one key.
            RecordLayoutError: columns are missing, extra or unknown, their types cannot fit, a condition
                cannot be resolved, or the merge has no clause.
            RecordValueError: a value does not fit its column, or a key to insert would be stored as another
                one (rounded, cut); the message names the row's key. Or an expression has no value for a row
                (an overflow, a cast that fails).
            TableNotMutableError: the table is insert-only, and a clause does more than insert.
            PartitionCreationError: rows are of missing partitions, which may not be created.
            DirectoryStateError: rows lie in wrong buckets, see ``prune_buckets``.
            Others: as :func:`mutation_api.apply_changes`. After all those above nothing is written.
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
        if (few := self._few_rows_plan(num_partitions)) is not None:
            with translated_worker_errors(self._what):
                return write_plan(few, insert_files, options, before_writing)
        with self._planned() as plan:
            report = plan.report(is_dry_run=False)
            if before_writing is not None:
                before_writing(report)
            if not report.total.changed:
                return report
            written = apply_changes(
                self.transaction,
                self.table_name,
                plan.changes(),
                num_partitions=num_partitions or self._task_count(report),
                operation_column=CHANGE_COLUMN,
                insert_files=insert_files,
                options=options,
            )
        return dataclasses.replace(report, written=written)

    def dry_run(
        self,
        *,
        samples: int = SAMPLES_DEFAULT,
        num_partitions: int | None = None,
        insert_files: int | None = None,
    ) -> MergeReport:
        """Report what :meth:`merge` would do, without writing.

        Args:
            samples: number of rows of each kind that are shown before and after.
            num_partitions: as for :meth:`merge`; the files of unbucketed tables depend on it.
            insert_files: as for :meth:`merge`.

        Raises:
            ConnectionFailedError: the metastore could not be asked for locks of others.
            Others: what :meth:`merge` would raise before it writes.
        """
        with ansi_rules(self.source.sparkSession):
            return self._with_sides()._previewed(samples, num_partitions, insert_files)

    def _previewed(self, samples: int, num_partitions: int | None, insert_files: int | None) -> MergeReport:
        if (few := self._few_rows_plan(num_partitions, shows_rows=samples > 0)) is not None:
            with translated_worker_errors(self._what):
                report = few.report(is_dry_run=True)
                return dataclasses.replace(report, preview=preview_rows(few, samples, insert_files))
        with self._planned(keeps_old_rows=samples > 0) as plan:
            report = plan.report(is_dry_run=True)
            preview = preview_changes(
                self.transaction,
                self.table_name,
                plan.changes(),
                plan.shown_rows() if samples > 0 else None,
                operation_column=CHANGE_COLUMN,
                samples=samples,
                num_partitions=num_partitions or self._task_count(report),
                insert_files=insert_files,
            )
            return dataclasses.replace(report, preview=preview)

    def _few_rows_plan(
        self, num_partitions: int | None, *, shows_rows: bool = False
    ) -> LocalMergePlan | None:
        if num_partitions is not None:  # the user asks for tasks
            return None
        with translated_worker_errors(self._what):
            return few_rows_plan(
                self.transaction,
                self.table_name,
                self.source,
                self.keys,
                tuple(self.clauses),
                self.options,
                shows_rows=shows_rows,
            )

    def _with_sides(self) -> MergeInto:
        """The same; a column in SQL that one side alone has gets its name, as by PySpark's mergeInto."""
        inserts = any(clause.action is Action.INSERT for clause in self.clauses)
        self.transaction.merging(self.table_name, self.keys, inserts=inserts)
        spark = self.source.sparkSession
        columns = {
            SOURCE: frozenset(name.lower() for name in self.source.columns),
            TARGET: frozenset(c.name for c in self.transaction.table(self.table_name).all_columns),
        }

        def named(expression: Expression, sides: Sequence[str]) -> Expression:
            if not isinstance(expression, str):
                return expression
            with suppress(ConfigurationError):  # told with table and clause when it is resolved
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
        return f"merging into {self.table_name}"

    def _task_count(self, report: MergeReport) -> int:
        location = self.transaction.table(self.table_name).location
        most = default_num_partitions(self.source.sparkSession, location)
        return max(1, min(most, math.ceil(report.total.changed / ROWS_PER_TASK)))

    @contextmanager
    def _planned(self, *, keeps_old_rows: bool = False) -> Iterator[MergePlan]:
        with translated_worker_errors(self._what), counted_by_rows(self.source.sparkSession):
            plan = MergePlan.of(
                self.transaction,
                self.table_name,
                self.source,
                self.keys,
                self.on,
                tuple(self.clauses),
                self.options,
                keeps_old_rows=keeps_old_rows,
            )
            try:
                plan.check_keys()
                plan.check_duplicates()
                yield plan
            finally:
                plan.close()


@dataclass(frozen=True)
class _When:
    merge: MergeInto
    match: Match
    condition: Expression | None

    def _then(self, action: Action, assignments: Mapping[str, Expression] | None = None) -> MergeInto:
        what = f"table {self.merge.table_name}"
        lower = None if assignments is None else checked_assignments(assignments, what)
        self.merge.clauses.append(Clause(self.match, self.condition, action, lower))
        return self.merge


class _MayDelete(_When):
    def update(self, assignments: Mapping[str, Expression]) -> MergeInto:
        """Give columns new values; other columns keep theirs."""
        return self._then(Action.UPDATE, assignments)

    def delete(self) -> MergeInto:
        """Delete the row."""
        return self._then(Action.DELETE)


class WhenMatched(_MayDelete):
    """The action for rows on both sides."""

    def updateAll(self) -> MergeInto:  # noqa: N802
        """Give every column the source's value."""
        return self._then(Action.UPDATE)


class WhenNotMatchedBySource(_MayDelete):
    """The action for rows that only the table has."""


class WhenNotMatched(_When):
    """The action for rows that only the source has."""

    def insert(self, assignments: Mapping[str, Expression]) -> MergeInto:
        """Insert a row of these values; other columns become NULL."""
        return self._then(Action.INSERT, assignments)

    def insertAll(self) -> MergeInto:  # noqa: N802
        """Insert a row of the source's values."""
        return self._then(Action.INSERT)
