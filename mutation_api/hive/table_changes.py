"""TableChanges: the changes of one table in a transaction, written step by step.

Appends, updates and deletes are collected and written together: their result is the same as for a sequence
of statements. A read of the table within the transaction (a scan, a merge) first writes the collected
changes, as a separate step, and therefore sees them. Files of Hive 2 cannot express a second step, so there a
read after a change is refused, and everything is written as one change set at the end.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import TransactionStateError
from mutation_api.format.event import ADDED_OPERATION, DELETE, INSERT
from mutation_api.merge.clauses import CHANGE_COLUMN, TARGET
from mutation_api.merge.evaluator import target_types
from mutation_api.merge.local_merge import LocalMerge
from mutation_api.merge.sql_conditions import resolved_condition
from mutation_api.merge.timeline import HistoryChanges
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import (
    PlannedFiles,
    open_table,
)
from mutation_api.table.acid_table import AcidTable, TableRole, WriterOptions
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.apply import ReplacedRows, apply_arrow, write_change_set
from mutation_api.write.change_set import ChangeSet, MemoryShare, OverwriteReport, Replaced
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.local_plan import LocalOptions


def as_filter(where: pc.Expression | str, table: AcidTable) -> pc.Expression | str:
    """Return a condition on a table's rows as a scan takes it: an expression, or the name of a column.

    Raises:
        UnsupportedLocallyError: If only Spark or Hive can interpret the SQL.
        RecordLayoutError: If it names a column that does not exist, or is not a condition.
    """
    types = target_types(table)
    if not isinstance(where, str) or where.lower() in types:
        return where
    what = f"table {table.full_name}: the condition"
    return resolved_condition(where, {}, types, (TARGET,), what, is_flat=True)[0]


class TableChanges:
    """The changes of one table in one transaction.

    Args:
        transaction: a transaction that has begun.
        table_name: ``database.table``, one of the transaction's sinks.
        share: memory for waiting changes, shared by all tables of the transaction.
        local: memory and threads.
        options: options of the files. If None, the defaults.
    """

    def __init__(
        self,
        transaction: Transaction,
        table_name: str,
        share: MemoryShare,
        local: LocalOptions,
        options: WriterOptions | None,
    ) -> None:
        self._transaction = transaction
        self._name = table_name
        self._share = share
        self._local = local
        self._options = options
        self._insert_files: int | None = None
        self._merges: list[LocalMerge] = []
        self._begin_step()

    def add(
        self,
        data: object,
        operation: str | None,
        *,
        operation_column: str = ADDED_OPERATION,
        verify_row_ids: bool = False,
    ) -> int:
        """Collect changes and return their number.

        Args:
            data: any object with an Arrow interface. It is read now.
            operation: the operation of all rows. If None, ``operation_column`` holds it.
            operation_column: the column with each row's operation.
            verify_row_ids: True to look up the ROW__IDs of all changes of the step before they are written.

        Raises:
            TransactionStateError, LockLostError, TransactionAbortedError: See :meth:`checked_sink`.
            Other errors: See :meth:`mutation_api.write.change_set.ChangeSet.add`.
        """
        self.checked_sink()
        self._settle()
        added = self._changes.add(data, operation, operation_column=operation_column)
        self._verify_row_ids |= verify_row_ids and added > 0
        return added

    def add_merged(
        self,
        _transaction: object,
        _table_name: str,
        changes: pa.RecordBatchReader,
        *,
        operation_column: str,
        insert_files: int | None,
        options: WriterOptions | None,
        local: LocalOptions,
        read_now: bool,
    ) -> ApplySummary | None:
        """Write the change set of a merge, or collect it on Hive 2.

        For the arguments and errors see :func:`~mutation_api.write.apply.apply_arrow`.
        """
        options = options or self._options
        if not self._takes_steps:
            self._changes.add(changes, None, operation_column=operation_column)
            self._insert_files, self._options = insert_files, options
            return None
        written = apply_arrow(
            self._transaction,
            self._name,
            changes,
            operation_column=operation_column,
            insert_files=insert_files,
            read_now=read_now,
            options=options,
            local=local,
        )
        self._begin_step()
        return written

    def add_history(self, found: HistoryChanges) -> None:
        """Write the changes of a history, or collect them on Hive 2."""
        if batches := [*found.batches()]:
            self.add_merged(
                self._transaction,
                self._name,
                pa.RecordBatchReader.from_batches(batches[0].schema, batches),
                operation_column=CHANGE_COLUMN,
                insert_files=None,
                options=None,
                local=self._local,
                read_now=True,
            )

    def truncate(self, *, dry_run: bool) -> Mapping[str, int] | None:
        """Replace all rows by nothing, and return their numbers by partition.

        Nothing is done, and None is returned, if the rows must be deleted one by one.
        """
        self.before_reading()
        self.checked_sink()
        view = open_table(self._transaction, self._name)
        whole = ReplacedRows.of(self._transaction, view, [*view.locations], self._local)
        if whole is None:
            return None
        if not dry_run:
            whole.replace()
        return whole.counts

    def overwrite(self, data: object, replaced: Replaced, *, dry_run: bool) -> OverwriteReport:
        """Write new rows, and delete the rows that they replace; see ``HiveTable.overwrite``."""
        self.before_reading()
        table = self.checked_sink()
        try:
            inserted = self._changes.add(replaced.checked(table, data), INSERT)
            view = open_table(self._transaction, self._name)
            names = replaced.partitions(table, [*view.locations], self._changes.partitions())
            whole = None
            if replaced.where is None:
                whole = ReplacedRows.of(self._transaction, view, names, self._local)
            if whole is None:
                files = PlannedFiles(tuple(view.plan(names)), view.valid_ids)
                old = TableScan(view, columns=[], where=replaced.where, row_ids=True, files=files)
                deleted = self._changes.add(old, DELETE) if names else 0
            else:
                deleted = whole.row_count
            if replaced.where is not None:
                names = self._changes.partitions()
            if dry_run:  # before it nothing was collected
                self._changes.close()
                self._begin_step()
            elif self._takes_steps:
                self.write()
            if whole is not None and not dry_run:
                whole.replace()
        except BaseException:
            self._changes.close()
            self._begin_step()
            raise
        touched = tuple(sorted(names)) if table.partition_keys else ()
        is_base = whole is not None and deleted > 0
        return OverwriteReport(self._name, deleted, inserted, touched, is_base, dry_run)

    def before_reading(self) -> None:
        """Write the collected changes, so that a read sees them.

        Raises:
            TransactionStateError: If there are changes that a read cannot see on Hive 2.
            Other errors: See :meth:`write`.
        """
        self._transaction.check()
        if self._takes_steps:
            self._settle()
            self.write()
        elif len(self._changes):
            raise TransactionStateError(
                f"table {self._name} already has changes in this transaction. On Hive 2, whose files cannot "
                "express several steps, a scan or merge would not see them: scan or merge first, or do it in "
                "another transaction"
            )

    def checked_sink(self) -> AcidTable:
        """Return the table's descriptor.

        Raises:
            TransactionStateError: If the transaction is not open, or only reads the table.
            LockLostError, TransactionAbortedError: If it is lost.
        """
        self._transaction.check()
        table = self._table
        if table.role is not TableRole.SINK:
            raise TransactionStateError(
                f"table {table.full_name} is only read in this transaction: pass it to transaction() as a "
                "table to change, not under read"
            )
        return table

    def expect(self, merge: LocalMerge) -> None:
        """Refuse to write until the merge has been executed or dry-run."""
        self._merges.append(merge)

    def check_merges(self) -> None:
        """Raise TransactionStateError if a merge was described but never executed."""
        if any(merge.is_described_only for merge in self._merges):
            raise TransactionStateError(
                f"table {self._name}: a merge was described but not executed: end it with .execute(), or "
                "with .dry_run() to see what it would do. Nothing was committed"
            )

    def write(self) -> None:
        """Write the collected changes as one change set.

        Raises:
            MutationError: See :func:`~mutation_api.write.apply.apply_arrow`.
        """
        if not len(self._changes):
            return
        write_change_set(
            self._transaction,
            self._changes,
            insert_files=self._insert_files,
            verify_row_ids=self._verify_row_ids,
            options=self._options,
            local=self._local,
        )
        self._changes.close()
        self._begin_step()

    def close(self) -> None:
        """Discard the changes, and remove temporary files."""
        self._changes.close()
        self._merges = []

    def _settle(self) -> None:
        """Write the deletes of an overwrite. No changes were collected before it."""
        self._transaction.settle(self._name)
        if not len(self._changes):
            self._begin_step()

    def _begin_step(self) -> None:
        self._changes = ChangeSet(self._transaction, self._name, self._share, self._local)
        self._verify_row_ids = False

    @property
    def _takes_steps(self) -> bool:
        return self._table.version.uses_write_ids

    @property
    def _table(self) -> AcidTable:
        return self._transaction.table(self._name)
