"""HiveTransaction and HiveSnapshot, which are ``with`` blocks, and the options that they share.

HiveTransaction: atomic changes of some tables.

HiveSnapshot: a consistent view of some tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from mutation_api.errors import TransactionStateError
from mutation_api.hive.hive_table import HiveTable, SnapshotTable
from mutation_api.hive.table_changes import TableChanges
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.listener import LockFailureListener, SaidByTheNextStep
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.past_snapshot import AsOf, PastSnapshot
from mutation_api.transaction.snapshot import ClosedAtEnd, NotPickled, OfOneProcess, Snapshot
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionSummary, ended_meanwhile
from mutation_api.write.change_set import MemoryShare
from mutation_api.write.local_plan import LocalOptions

_COLLECTING_PART = 4
"""The fraction of the memory for changes that wait for the commit is 1/_COLLECTING_PART."""


@dataclass(frozen=True)
class ConnectionOptions:
    """The options of ``connect``, except for the metastore."""

    user: str | None
    lock_timeout_seconds: float
    write_lock: str
    time_zone: str | None
    listener: LockFailureListener | None
    local: LocalOptions

    def builder(self) -> MutatorClientBuilder:
        """Return a builder of clients with these options."""
        builder = MutatorClientBuilder()
        builder.lock_timeout_seconds(self.lock_timeout_seconds).write_lock(self.write_lock)
        builder.lock_failure_listener(self.listener or SaidByTheNextStep())
        if self.user is not None:
            builder.user(self.user)
        if self.time_zone is not None:
            builder.time_zone(self.time_zone)
        return builder


class HiveTransaction(OfOneProcess):
    """Atomic changes of some tables. Created by ``Hive.transaction``; used once, from one thread.

    The transaction begins with its block. At the end of the block everything is written and committed. If the
    block raises, nothing remains.

    Args:
        client: a client of its tables, not connected yet; it is closed with the transaction.
        local: memory and threads.
        options: options of the files. If None, the defaults.
    """

    def __init__(self, client: MutatorClient, local: LocalOptions, options: WriterOptions | None) -> None:
        super().__init__()
        self._client = client
        self._local = local
        self._options = options
        self._share = MemoryShare(local.memory_bytes // _COLLECTING_PART)
        self._transaction: Transaction | None = None
        self._changes: dict[str, TableChanges] = {}
        self._closed = False
        self._was_ended = False

    @property
    def closed(self) -> bool:
        """True if the transaction was committed or aborted."""
        return self._closed

    @property
    def txn_id(self) -> int:
        """The transaction's id. Raises TransactionStateError before it has begun."""
        return self._begun().txn_id

    @property
    def summary(self) -> TransactionSummary:
        """The result of the transaction; after the commit, the visible changes.

        Raises TransactionStateError before it has begun.
        """
        return self._begun().summary

    def begin(self) -> HiveTransaction:
        """Lock the tables and take the snapshot, as the ``with`` statement does; return the transaction.

        Raises:
            TransactionStateError: If it has already begun or ended.
            TableNotFoundError: If a table does not exist.
            TableNotMutableError: If a table violates a rule; the message names both.
            LockNotAcquiredError: If other transactions held the lock for too long.
            ConnectionFailedError, TransactionError: If the metastore failed.
        """
        if self._transaction is not None or self._closed:
            raise TransactionStateError("a transaction can be used only once: create another one")
        try:
            transaction = self._client.connect().new_transaction()
            transaction.begin(just_connected=True)
        except BaseException:
            self.close()
            raise
        self._transaction = transaction
        return self

    def table(self, name: str) -> HiveTable:
        """Return one of its tables, by its name ``database.table`` in any case.

        Raises:
            TransactionStateError: If the transaction is not open.
            ConfigurationError: If it was created without this table.
        """
        transaction = self._begun()
        full_name = transaction.table(name).full_name
        if full_name not in self._changes:
            self._changes[full_name] = TableChanges(
                transaction, full_name, self._share, self._local, self._options
            )
        changes, metastore = self._changes[full_name], self._client.metastore
        return HiveTable(transaction, full_name, changes, self._local, metastore)

    def check(self) -> None:
        """Raise an error if the transaction can no longer be committed. This is cheap: no call is made.

        Raises:
            LockLostError, TransactionAbortedError: If the transaction is lost; the message states the reason.
            TransactionStateError: If it is not open.
        """
        self._begun().check()

    def commit(self) -> None:
        """Write everything and commit, as the end of the ``with`` block does.

        If this raises, nothing is visible. The only exception is CommitOutcomeUnknownError: the outcome is
        unknown, and nothing was removed.

        Raises:
            RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, RecordSequenceError: If a
                change is wrong, or a row is changed twice; the message names rows.
            DeltaWriteError, PartitionCreationError, TableNotMutableError: If the changes cannot be written.
            LockLostError, TransactionAbortedError: If the transaction is lost, or another writer committed
                first. Run it again.
            CommitOutcomeUnknownError, ConnectionFailedError, TransactionError: See Transaction.commit.
            TransactionStateError: If it is not open, or a merge was described but not executed.
        """
        transaction = self._begun()
        transaction.check()
        self._was_ended = True
        try:
            for changes in self._changes.values():
                changes.check_merges()
            for changes in self._changes.values():
                changes.write()
            transaction.commit()
        finally:
            self.close()

    def abort(self) -> None:
        """Abort the transaction, so that nothing remains. Do nothing if it has already ended."""
        self._was_ended = True
        self.close()

    def close(self) -> None:
        """Abort unless committed, and release everything. May be called twice.

        A block that has not ended yet raises at its end. In a forked process this does nothing.
        """
        if self.is_of_another_process:
            return
        self._closed = True
        for changes in self._changes.values():
            changes.close()
        self._client.close()

    def __enter__(self) -> HiveTransaction:
        """Begin, unless it has already begun."""
        return self.begin() if self._transaction is None or self._closed else self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Commit, or abort if the block raised.

        Raises:
            TransactionStateError: If the connection has been closed, or the block ended in a forked
                process.
        """
        if error is None:
            self.check_process()
            if self._closed and not self._was_ended:
                txn_id = None if self._transaction is None else self._transaction.txn_id
                raise ended_meanwhile(txn_id, "its connection was closed, or close() was called on it")
            if not self._closed:
                self.commit()
        self.close()

    def _begun(self) -> Transaction:
        self.check_process()
        if self._transaction is None:
            raise TransactionStateError(
                "the transaction has not begun: use it in a with statement, or call begin()"
            )
        return self._transaction


class HiveSnapshot(ClosedAtEnd, NotPickled):
    """The tables as they are when the block begins. Created by ``Hive.snapshot``.

    Its read lock keeps Hive from removing the files. Other transactions can change the tables in the
    meantime.

    Args:
        client: a client that is not connected yet; it is closed with the snapshot.
        tables: ``database.table``.
        local: memory and threads.
        as_of: the point in the past. If None, the present.
    """

    WHAT = "a snapshot"

    def __init__(
        self,
        client: MutatorClient,
        tables: Sequence[str],
        local: LocalOptions,
        as_of: AsOf | None = None,
    ) -> None:
        self._client = client
        self._names = tables
        self._local = local
        self._as_of = as_of
        self._snapshot: Snapshot | PastSnapshot | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if the snapshot was closed."""
        return self._closed

    def open(self) -> HiveSnapshot:
        """Open the snapshot, as the ``with`` statement does, and return it. Do nothing if it is open.

        Raises:
            TransactionStateError: If it was closed.
            TableNotFoundError: If a table does not exist.
            TableNotMutableError: If a table has no ROW__IDs.
            DirectoryStateError: If a compaction has removed the requested past state.
            LockNotAcquiredError, ConnectionFailedError, TransactionError: See Transaction.begin.
        """
        if self._closed:
            raise TransactionStateError("the snapshot is closed: open another one")
        if self._snapshot is None:
            try:
                self._snapshot = self._opened(self._client.connect())
            except BaseException:
                self.close()
                raise
        return self

    def _opened(self, client: MutatorClient) -> Snapshot | PastSnapshot:
        if self._as_of is None:
            return client.open_snapshot(*self._names)
        return client.open_snapshot(*self._names, as_of=self._as_of)

    def table(self, name: str) -> SnapshotTable:
        """Return one of its tables.

        Raises:
            TransactionStateError: If the snapshot is not open.
            ConfigurationError: If it does not hold the table.
        """
        if self._snapshot is None:
            raise TransactionStateError(
                "the snapshot is not open: use it in a with statement, or call open()"
            )
        return SnapshotTable(self._snapshot, name, self._local)

    def close(self) -> None:
        """Release the lock. May be called twice."""
        self._closed = True
        self._client.close()

    def __enter__(self) -> HiveSnapshot:
        """Open."""
        return self.open()
