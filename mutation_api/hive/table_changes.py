"""TableChanges: the changes of one table in a transaction, collected and then written as one change set.

A table takes one change set per transaction: two could change the same row, and their files would have the
same names. So the calls are collected. The result is the same as for a sequence of statements: an append,
update or delete does not depend on earlier changes, and a merge, which would, must come first.
"""

from __future__ import annotations

import pyarrow as pa

from mutation_api.errors import TransactionStateError
from mutation_api.format.event import ADDED_OPERATION
from mutation_api.merge.local_merge import LocalMerge
from mutation_api.table.acid_table import AcidTable, TableRole, WriterOptions
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.apply import write_change_set
from mutation_api.write.change_set import ChangeSet, MemoryShare
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.local_plan import LocalOptions

__all__ = ["TableChanges"]


class TableChanges:
    """The changes of one table in one transaction.

    Args:
        transaction: a transaction that has begun.
        table_name: ``database.table``, one of the transaction's sinks.
        share: memory for waiting changes, shared by all tables of the transaction.
        local: memory and threads.
    """

    def __init__(
        self, transaction: Transaction, table_name: str, share: MemoryShare, local: LocalOptions
    ) -> None:
        self._transaction = transaction
        self._name = table_name
        self._local = local
        self._changes = ChangeSet(transaction, table_name, share, local)
        self._merges: list[LocalMerge] = []
        self._verify_row_ids = False
        self._insert_files: int | None = None
        self._options: WriterOptions | None = None

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
            verify_row_ids: True to look up the ROW__IDs of all changes of the table before they are written.

        Raises:
            TransactionStateError, LockLostError, TransactionAbortedError: See :meth:`checked_sink`.
            Other errors: See :meth:`mutation_api.write.change_set.ChangeSet.add`.
        """
        self.checked_sink()
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
    ) -> None:
        """Collect the change set of a merge; for the arguments see
        :func:`~mutation_api.write.apply.apply_arrow`.

        Raises:
            TransactionStateError: See :meth:`check_first`.
        """
        self.check_first()
        self._changes.add(changes, None, operation_column=operation_column)
        self._insert_files, self._options = insert_files, options

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

    def check_first(self) -> None:
        """Raise TransactionStateError if the table already has changes, which a merge would not see."""
        self.checked_sink()
        if len(self._changes):
            raise TransactionStateError(
                f"table {self._name} already has changes in this transaction. A merge would not see them, "
                "since it compares with the snapshot: merge first, or merge in another transaction"
            )

    def expect(self, merge: LocalMerge) -> None:
        """Refuse to write until the merge has been executed or tried."""
        self._merges.append(merge)

    def check_merges(self) -> None:
        """Raise TransactionStateError if a merge was described but never executed."""
        if any(merge.is_described_only for merge in self._merges):
            raise TransactionStateError(
                f"table {self._name}: a merge was described but not executed: end it with .execute(), or "
                "with .dry_run() to see what it would do. Nothing was committed"
            )

    def write(self, options: WriterOptions | None) -> ApplySummary | None:
        """Write everything as one change set; return None if there is nothing to write.

        Raises:
            MutationError: See :func:`~mutation_api.write.apply.apply_arrow`.
        """
        if not len(self._changes):
            return None
        return write_change_set(
            self._transaction,
            self._changes,
            insert_files=self._insert_files,
            verify_row_ids=self._verify_row_ids,
            options=self._options or options,
            local=self._local,
        )

    def close(self) -> None:
        """Discard the changes, and remove temporary files."""
        self._changes.close()
        self._merges = []

    @property
    def _table(self) -> AcidTable:
        return self._transaction.table(self._name)
