"""Merges of Arrow data into a table by key, in an open transaction, without Spark; and their preview.

The rules are those of :func:`mutation_api.merge_into`: the first clause whose condition holds acts on a row,
duplicates are refused or reduced, a row whose partition or bucket changes is moved, and the report is the
same. The clauses have the names that delta-rs uses. Conditions and values are Arrow expressions.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordLayoutError, UnsupportedLocallyError
from mutation_api.merge.clauses import (
    CHANGE_COLUMN,
    SOURCE,
    TARGET,
    Action,
    Clause,
    Match,
    MergeOptions,
    MergeOptionsDict,
    checked_keys,
)
from mutation_api.merge.evaluator import (
    ArrowAnalyser,
    ArrowEvaluator,
    as_expression,
    as_value,
    check_countable,
    target_types,
    with_expressions,
)
from mutation_api.merge.local_plan import LocalMergePlan
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.preview import (
    SAMPLES_DEFAULT,
    Preview,
)
from mutation_api.merge.resolve import resolve
from mutation_api.merge.source_rows import check_read_bytes, plain_batch, source_rows
from mutation_api.merge.sql_conditions import resolved_condition
from mutation_api.read.table_view import open_table
from mutation_api.table.acid_table import WriterOptions
from mutation_api.table.evaluation import char_paths
from mutation_api.table.row_type import checked_assignments
from mutation_api.write.apply import apply_arrow
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.local_plan import LocalOptions, forecast_arrow
from mutation_api.write.staged_writer import LookingTransaction


def write_plan(
    transaction: LookingTransaction,
    plan: LocalMergePlan,
    insert_files: int | None,
    options: WriterOptions | None,
    before_writing: Callable[[MergeReport], None] | None,
    write: Callable[..., ApplySummary | None] = apply_arrow,
) -> MergeReport:
    """Evaluate the merge and write the changes.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        plan: the checked merge.
        insert_files: see :func:`mutation_api.apply_changes`.
        options: see :func:`mutation_api.apply_changes`.
        before_writing: called with the report before anything is written. An exception ends the merge.
        write: called with the change set, like :func:`mutation_api.write.apply.apply_arrow`.

    Raises:
        Errors: See :attr:`LocalMergePlan.acting` and :func:`mutation_api.write.apply.apply_arrow`.
    """
    report = plan.outcome.report(transaction, plan.table, is_dry_run=False)
    if before_writing is not None:
        before_writing(report)
    if not report.total.changed:
        return report
    written = write(
        transaction,
        plan.table.full_name,
        plan.changes(),
        operation_column=CHANGE_COLUMN,
        insert_files=insert_files,
        read_now=True,
        options=options,
        local=plan.local,
    )
    return dataclasses.replace(report, written=written)


def preview_plan(
    transaction: LookingTransaction, plan: LocalMergePlan, insert_files: int | None
) -> MergeReport:
    """Return the report with forecast, locks of other clients and sample rows. Nothing is written.

    Raises:
        Errors: Those that :func:`mutation_api.write.apply.apply_arrow` raises before it writes.
    """
    report = plan.outcome.report(transaction, plan.table, is_dry_run=True)
    forecast = forecast_arrow(
        transaction,
        plan.table.full_name,
        plan.changes(),
        operation_column=CHANGE_COLUMN,
        insert_files=insert_files,
        local=plan.local,
    )
    preview = Preview.of(transaction, plan.table, forecast, plan.outcome.samples)
    return dataclasses.replace(report, preview=preview)


Condition: TypeAlias = pc.Expression | str | None
"""An Arrow expression, or SQL such as ``"source.qty > target.qty"``. If None, it is always true."""

Values: TypeAlias = Mapping[str, Any]
"""New values by column: an Arrow expression, a column (of the source, or ``target.x``), SQL, or a constant.

A string that does not name a column is SQL, such as ``"target.qty + 1"``. A constant string is
``pc.scalar("text")``, or ``"'text'"`` in SQL.
"""


def local_merge(
    transaction: LookingTransaction,
    table: str,
    *,
    source: object,
    on: Sequence[str],
    local: LocalOptions | None = None,
    **options: Unpack[MergeOptionsDict],
) -> LocalMerge:
    """Begin a merge. Add clauses to the result, then call ``execute()`` or ``dry_run()``.

    In conditions and values, columns are ``pc.field("source", "x")`` and ``pc.field("target", "x")``, with
    all names in lower case. A condition can also be SQL, such as ``"source.qty > target.qty"``: see
    :mod:`mutation_api.merge.sql_conditions`. Columns without a side are those of the source if it has them.

    Args:
        transaction: an open transaction; the table is one of its sinks.
        table: ``database.table``.
        source: the rows to merge: any object with the Arrow C stream interface. It is read once and held in
            memory, together with the table rows that it matches.
        on: key columns that both sides have; a string is a single column. They are compared as in Spark.
            Types for which Arrow cannot do this are refused, see
            :mod:`mutation_api.merge.key_columns`.
        local: memory limit and number of threads.
        **options: see :class:`~mutation_api.merge.clauses.MergeOptionsDict`.

    Raises:
        ConfigurationError: If an option is invalid.
        UnsupportedLocallyError: If the source needs more memory than allowed.
        RecordLayoutError: If the source is not Arrow data or has duplicate columns.
    """
    keys, checked = checked_keys(on, f"table {table}: on"), MergeOptions(**options)
    given = local or LocalOptions()
    full_name = transaction.table(table).full_name
    rows = source_rows(full_name, source, given)
    return LocalMerge(transaction, full_name, rows, keys, checked, given)


def changed_rows(
    transaction: LookingTransaction, table_name: str, local: LocalOptions | None = None
) -> LocalMerge:
    """Begin a change of rows by a condition: a merge without source rows.

    Its clauses ``when_not_matched_by_source_…`` act on all rows that meet their condition.
    """
    full_name = transaction.table(table_name).full_name
    return LocalMerge(transaction, full_name, pa.table({}), (), MergeOptions(), local or LocalOptions())


GivenClause: TypeAlias = "tuple[Match, Condition, Action, Values | None]"
"""A clause as it was given: rows, condition, action and values."""


class MergeClauses(ABC):
    """The clauses of a merge. The first one whose condition holds acts on a row."""

    def when_matched_update_all(self, when: Condition = None) -> Self:
        """Update every column of matched rows to the source's value."""
        return self._then(Match.MATCHED, when, Action.UPDATE)

    def when_matched_update(self, values: Values, when: Condition = None) -> Self:
        """Update some columns of matched rows. Other columns keep their values."""
        return self._then(Match.MATCHED, when, Action.UPDATE, values)

    def when_matched_delete(self, when: Condition = None) -> Self:
        """Delete matched rows."""
        return self._then(Match.MATCHED, when, Action.DELETE)

    def when_not_matched_insert_all(self, when: Condition = None) -> Self:
        """Insert source rows that match no table row."""
        return self._then(Match.NOT_MATCHED, when, Action.INSERT)

    def when_not_matched_insert(self, values: Values, when: Condition = None) -> Self:
        """Insert source rows that match no table row, with these values. Other columns become NULL."""
        return self._then(Match.NOT_MATCHED, when, Action.INSERT, values)

    def when_not_matched_by_source_update(self, values: Values, when: Condition = None) -> Self:
        """Update some columns of table rows that match no source row. Other columns keep their values."""
        return self._then(Match.NOT_MATCHED_BY_SOURCE, when, Action.UPDATE, values)

    def when_not_matched_by_source_delete(self, when: Condition = None) -> Self:
        """Delete table rows that match no source row."""
        return self._then(Match.NOT_MATCHED_BY_SOURCE, when, Action.DELETE)

    @abstractmethod
    def _then(self, match: Match, when: Condition, action: Action, values: Values | None = None) -> Self:
        """Add a clause."""


@dataclass
class LocalMerge(MergeClauses):
    """A merge under construction, made by :func:`local_merge`.

    ``write`` is called with the change set, like :func:`~mutation_api.write.apply.apply_arrow`. It may keep
    the change set, to write it together with other changes, and return None. ``before_reading`` is called
    before the table is read. ``read_bytes_max`` is the maximum size of the table's files to read. If None,
    there is no limit.
    """

    transaction: LookingTransaction
    table: str
    source: pa.Table
    keys: tuple[str, ...]
    options: MergeOptions
    local: LocalOptions
    clauses: list[Clause[pc.Expression]] = field(default_factory=list)
    write: Callable[..., ApplySummary | None] = apply_arrow
    before_reading: Callable[[], None] = lambda: None
    read_bytes_max: int | None = None
    is_described_only: bool = field(default=True, init=False)
    """True until :meth:`execute` or :meth:`dry_run` is called, so the merge has had no effect."""

    def execute(
        self,
        *,
        insert_files: int | None = None,
        options: WriterOptions | None = None,
        before_writing: Callable[[MergeReport], None] | None = None,
    ) -> MergeReport:
        """Write the changes. They become visible when the transaction commits.

        Args:
            insert_files: see :func:`mutation_api.apply_changes`.
            options: see :func:`mutation_api.apply_changes`.
            before_writing: called with the report before anything is written. An exception ends the merge.

        Raises:
            DuplicateKeyError: If several source rows would act on one row or insert one key.
            RecordLayoutError: If columns are missing, extra or unknown, if types do not fit or cannot be
                compared, if a condition cannot be resolved, or if the merge has no clause.
            RecordValueError: If a value does not fit its column, or if a key to insert would be stored as a
                different key. The message shows the row's key.
            TableNotMutableError: If the table is insert-only and a clause does more than insert.
            PartitionCreationError: If rows belong to missing partitions that must not be created.
            DirectoryStateError: If rows lie in wrong buckets, see ``prune_buckets``.
            UnsupportedLocallyError: If the merge needs more memory than allowed, or see ``read_bytes_max``.
            Other errors: See :func:`mutation_api.apply_changes`. Nothing has been written after the errors
                above.
        """
        return write_plan(self.transaction, self._plan(), insert_files, options, before_writing, self.write)

    def dry_run(self, *, samples: int = SAMPLES_DEFAULT, insert_files: int | None = None) -> MergeReport:
        """Report what :meth:`execute` would do, without writing.

        Args:
            samples: number of rows of each kind that are shown before and after the merge.
            insert_files: see :meth:`execute`.

        Raises:
            ConnectionFailedError: If the metastore cannot be queried for the locks of other clients.
            Other errors: Those that :meth:`execute` raises before it writes.
        """
        return preview_plan(self.transaction, self._plan(samples=max(0, samples)), insert_files)

    def _plan(self, *, samples: int = 0) -> LocalMergePlan:
        """Check names, types and conditions, without reading the table."""
        self.is_described_only = False
        self.transaction.check()
        self.before_reading()
        inserts = any(clause.action.adds_row for clause in self.clauses)
        self.transaction.merging(self.table, self.keys, inserts=inserts)
        table, source = self.transaction.table(self.table), plain_batch(self.source)
        types = {field.name: field.type for field in source.schema}
        chars = char_paths({column.name: column.type for column in table.all_columns}, TARGET)
        analyser = ArrowAnalyser(
            table.full_name, types, target_types(table), self.keys, self.options.null_safe, chars
        )
        checked = with_expressions(table, source.schema, self.options)
        check_countable(table, source.schema, self.options.count_by)
        resolved = resolve(table, analyser, self.keys, None, tuple(self.clauses), checked)
        evaluator = ArrowEvaluator(table, resolved, source, self.options)
        plan = LocalMergePlan(
            open_table(self.transaction, table.full_name),
            table,
            source,
            self.keys,
            resolved,
            evaluator,
            self.options,
            self.local,
            samples,
        )
        if self.read_bytes_max is not None:  # it lists directories
            check_read_bytes(table.full_name, plan.bytes_to_read, self.read_bytes_max)
        return plan

    def _then(self, match: Match, when: Condition, action: Action, values: Values | None = None) -> Self:
        side = match.sides[0]
        columns = {
            SOURCE: [name.lower() for name in self.source.column_names],
            TARGET: [column.name for column in self.transaction.table(self.table).all_columns],
        }
        condition = None if when is None else self._condition(when, match, columns, side)
        what, assignments = f"table {self.table}", None
        if values is not None:
            assignments = {
                name: self._value(value, match, columns, side, f"{what}: the value of {name}")
                for name, value in checked_assignments(values, what).items()
            }
        self.clauses.append(Clause(match, condition, action, assignments))
        return self

    def _condition(
        self, when: pc.Expression | str, match: Match, columns: Mapping[str, Sequence[str]], side: str
    ) -> pc.Expression:
        """Return a condition as an expression. A string is the name of a column, or SQL.

        Raises:
            UnsupportedLocallyError: If only Spark can interpret the SQL.
            RecordLayoutError: If it is something else, or if a column does not exist.
        """
        what = f"table {self.table}: the condition"
        if not isinstance(when, str) or when.lower() in columns[side]:
            return as_expression(when, columns, side, what)
        return self._translated(when, match, what, columns, side, is_condition=True)

    def _value(
        self, value: Any, match: Match, columns: Mapping[str, Sequence[str]], side: str, what: str
    ) -> pc.Expression:
        """Return an assigned value as an expression. A string is the name of a column, or SQL."""
        if not isinstance(value, str) or _names_column(value, columns, side):
            return as_value(value, columns, side, what)
        try:
            return self._translated(value, match, what, columns, side, is_condition=False)
        except RecordLayoutError as error:
            raise RecordLayoutError(f"{error}. A constant string is pc.scalar({value!r})") from error

    def _translated(
        self,
        sql: str,
        match: Match,
        what: str,
        columns: Mapping[str, Sequence[str]],
        side: str,
        *,
        is_condition: bool,
    ) -> pc.Expression:
        source = {field.name: field.type for field in plain_batch(self.source.slice(0, 0)).schema}
        target = target_types(self.transaction.table(self.table))
        try:
            return resolved_condition(sql, source, target, match.sides, what, is_condition=is_condition)[0]
        except UnsupportedLocallyError as error:
            raise UnsupportedLocallyError(
                f'{error}. Pass an Arrow expression, such as pc.field("{side}", "{columns[side][0]}") > 1, '
                "or merge with Spark: merge_into, or hive-mutate merge with --engine spark"
            ) from error


def with_clauses(merge: LocalMerge, clauses: Iterable[GivenClause]) -> LocalMerge:
    """Add clauses that were given before the merge began. Raises like the methods of LocalMerge."""
    for clause in clauses:
        merge._then(*clause)
    return merge


def _names_column(text: str, columns: Mapping[str, Sequence[str]], side: str) -> bool:
    """Return True if a string is the name of a column, with or without its side."""
    first, _, rest = text.lower().partition(".")
    at, name = (first, rest) if rest and first in columns else (side, text.lower())
    return name in columns[at]
