"""HiveTransaction: changes of some tables, all or nothing, as a ``with`` block."""

from __future__ import annotations

from types import TracebackType

from mutation_api.errors import TransactionStateError
from mutation_api.hive.change_part import MemoryShare
from mutation_api.hive.hive_table import HiveTable
from mutation_api.hive.table_changes import TableChanges
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.snapshot import OfOneProcess
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionSummary, ended_meanwhile
from mutation_api.write.local_plan import LocalOptions

__all__ = ["HiveTransaction"]

_COLLECTING_PART = 4
"""One part in _COLLECTING_PART of the memory is for changes that wait for the commit."""


class HiveTransaction(OfOneProcess):
    """Changes of some tables, all or nothing. Made by ``Hive.transaction``; used once, from one thread.

    Its block begins it. At the end of the block everything is written and committed; if the block raises,
    nothing of it remains.

    Args:
        client: of its tables, not connected yet; it is closed with the transaction.
        local: memory and threads.
        options: of the files; None for the defaults.
    """

    def __init__(self, client: MutatorClient, local: LocalOptions, options: WriterOptions | None) -> None:
        super().__init__()
        self._client = client
        self._local = local
        self._options = options
        self._share = MemoryShare(local.memory_bytes // _COLLECTING_PART)
        self._transaction: Transaction | None = None
        self._changes: dict[str, TableChanges] = {}
        self._is_over = False
        self._was_ended = False

    @property
    def is_over(self) -> bool:
        """Whether it was committed or aborted."""
        return self._is_over

    @property
    def id(self) -> int:
        """The transaction's id. Raises TransactionStateError before it has begun."""
        return self._begun().id

    @property
    def summary(self) -> TransactionSummary:
        """What the transaction has done; after the commit, what is visible.

        Raises TransactionStateError before it has begun.
        """
        return self._begun().summary

    def begin(self) -> HiveTransaction:
        """Lock the tables and take the snapshot, as the ``with`` statement does; returns self.

        Raises:
            TransactionStateError: it has begun already, or is over.
            TableNotMutableError: a table breaks a rule; the message names both.
            LockNotAcquiredError: others held the lock for too long.
            ConnectionFailedError, TransactionError: the metastore failed.
        """
        if self._transaction is not None or self._is_over:
            raise TransactionStateError("a transaction is used once: make another one")
        try:
            transaction = self._client.connect().new_transaction()
            transaction.begin(just_connected=True)
        except BaseException:
            self.close()
            raise
        self._transaction = transaction
        return self

    def table(self, name: str) -> HiveTable:
        """One of its tables: ``database.table``, in any case.

        Raises:
            TransactionStateError: the transaction is not open.
            ConfigurationError: it was made without the table.
        """
        transaction = self._begun()
        full_name = transaction.table(name).full_name
        if full_name not in self._changes:
            self._changes[full_name] = TableChanges(transaction, full_name, self._share)
        return HiveTable(transaction, full_name, self._changes[full_name], self._local)

    def check(self) -> None:
        """Raise if the transaction cannot be committed any more. Cheap: it makes no call.

        Raises:
            LockLostError, TransactionAbortedError: the transaction is lost; the message says why.
            TransactionStateError: it is not open.
        """
        self._begun().check()

    def commit(self) -> None:
        """Write everything and commit, as the end of the ``with`` block does. If this raises, nothing is
        visible.

        The one exception is CommitOutcomeUnknownError: the outcome is unknown, and nothing was removed.

        Raises:
            RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, RecordSequenceError: a
                change is wrong, or a row is changed twice; the message names rows.
            DeltaWriteError, PartitionCreationError, TableNotMutableError: it cannot be written.
            LockLostError, TransactionAbortedError: the transaction is lost, or another writer committed
                first: run it again.
            CommitOutcomeUnknownError, ConnectionFailedError, TransactionError: see Transaction.commit.
            TransactionStateError: it is not open, or a merge was described and not executed.
        """
        transaction = self._begun()
        transaction.check()
        self._was_ended = True
        try:
            for changes in self._changes.values():
                changes.check_merges()
            for changes in self._changes.values():
                changes.write(self._local, self._options)
            transaction.commit()
        finally:
            self.close()

    def abort(self) -> None:
        """Abort; nothing remains. Does nothing if it is over."""
        self._was_ended = True
        self.close()

    def close(self) -> None:
        """Abort unless it is committed, and give back everything. May be called twice.

        A block that has not ended yet raises at its end. In a forked process it does nothing.
        """
        if self.is_of_another_process:
            return
        self._is_over = True
        for changes in self._changes.values():
            changes.close()
        self._client.close()

    def __enter__(self) -> HiveTransaction:
        """Begin, unless it has begun."""
        return self.begin() if self._transaction is None or self._is_over else self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, or abort if the block raised.

        Raises TransactionStateError: the connection was closed meanwhile, or the block ended in a forked
        process.
        """
        if error is None:
            self.check_process()
            if self._is_over and not self._was_ended:
                txn_id = None if self._transaction is None else self._transaction.id
                raise ended_meanwhile(txn_id, "its connection was closed, or close() was called on it")
            if not self._is_over:
                self.commit()
        self.close()

    def _begun(self) -> Transaction:
        self.check_process()
        if self._transaction is None:
            raise TransactionStateError(
                "the transaction has not begun: use it in a with statement, or call begin()"
            )
        return self._transaction
