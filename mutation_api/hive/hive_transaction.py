"""HiveTransaction and HiveSnapshot, which are ``with`` blocks.

HiveTransaction: atomic changes of some tables.

HiveSnapshot: a consistent view of some tables.

TableHandle: one table outside of both; each change is a separate transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.client import MetastoreClient
from mutation_api.errors import TransactionStateError
from mutation_api.hive.hive_table import HiveTable, SnapshotTable
from mutation_api.hive.table_changes import TableChanges
from mutation_api.merge.history import HistoryOptionsDict, HistoryReport
from mutation_api.merge.local_merge import Condition, Values
from mutation_api.merge.merge_report import MergeReport
from mutation_api.read.table_scan import arrow_schema
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.past_snapshot import AsOf, PastSnapshot
from mutation_api.transaction.snapshot import ClosedAtEnd, NotPickled, OfOneProcess, Snapshot
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionSummary, ended_meanwhile
from mutation_api.upkeep.alter_acid_table import AlteredTable, SchemaMode, added_columns, check_mode
from mutation_api.upkeep.history import TableHistory, table_history
from mutation_api.upkeep.verify.verify import Progress, VerifyReport, verify_table
from mutation_api.write.arrow_input import arrow_reader
from mutation_api.write.change_set import MemoryShare, OverwriteReport
from mutation_api.write.local_plan import LocalOptions

__all__ = ["HiveSnapshot", "HiveTransaction", "TableHandle"]

_COLLECTING_PART = 4
"""The fraction of the memory for changes that wait for the commit is 1/_COLLECTING_PART."""


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


class TableHandle:
    """A table of a metastore, as it was described when the handle was made. Created by ``Hive.table``.

    It holds no lock. To read rows, use ``Hive.snapshot``. Each change is a separate transaction. For
    several changes in one, use ``Hive.transaction``.

    Args:
        metastore: the metastore's client.
        table: the table's descriptor.
        transaction: begins a transaction of the table; see ``Hive.transaction``.
        alter: adds columns to the table; see ``Hive.alter_table``.
    """

    def __init__(
        self,
        metastore: MetastoreClient,
        table: AcidTable,
        transaction: Callable[..., HiveTransaction],
        alter: Callable[..., AlteredTable],
    ) -> None:
        self._metastore = metastore
        self._table = table
        self._transaction = transaction
        self._alter = alter

    def __repr__(self) -> str:
        """Return the name and the columns."""
        columns = ", ".join(f"{column.name} {column.type}" for column in self._table.all_columns)
        return f"TableHandle({self.name}: {columns})"

    @property
    def name(self) -> str:
        """The name ``database.table``, in lower case."""
        return self._table.full_name

    @property
    def schema(self) -> pa.Schema:
        """The columns as scans read them: data columns, then partition columns."""
        return arrow_schema(self._table)

    def history(self) -> TableHistory:
        """Return the changes of the table, transaction by transaction; see ``table_history``.

        Raises:
            TableNotFoundError: If the table was dropped.
            ConnectionFailedError, TransactionError: If the server could not be queried.
            OSError: If a directory cannot be listed.
        """
        return table_history(self._metastore, self.name)

    def verify(self, *, threads: int | None = None, progress: Progress | None = None) -> VerifyReport:
        """Examine all files of the table, as a snapshot of this moment reads them; see ``verify_table``.

        Args:
            threads: the number of files to examine at a time. If None, one per processor.
            progress: called periodically, from any thread.

        Raises:
            TableNotFoundError: If the table was dropped.
            LockNotAcquiredError, ConnectionFailedError, TransactionError: See Transaction.begin.
            ReadError, OSError: If a directory cannot be listed, or this machine cannot read a file.
        """
        return verify_table(self._metastore, self.name, threads=threads, progress=progress)

    def append(self, data: object, *, create_partitions: bool = False, schema: SchemaMode = "exact") -> int:
        """Add rows in a separate transaction; see ``HiveTable.append``.

        Args:
            data: the rows.
            create_partitions: True to create missing partitions.
            schema: ``"add"`` to add the columns that the table lacks before the transaction begins, as
                ``Hive.alter_table`` does. They are NULL in older rows. ``"exact"`` refuses them.
        """
        data = self._with_columns(data, schema)
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).append(data)

    def delete(self, *, where: pc.Expression | str, dry_run: bool = False) -> MergeReport:
        """Delete rows by a condition in a separate transaction; see ``HiveTable.delete``."""
        with self._transaction(self.name) as tx:
            return tx.table(self.name).delete(where=where, dry_run=dry_run)

    def update(self, *, set: Values, where: Condition = None, dry_run: bool = False) -> MergeReport:
        """Update rows by a condition in a separate transaction; see ``HiveTable.update``."""
        with self._transaction(self.name) as tx:
            return tx.table(self.name).update(set=set, where=where, dry_run=dry_run)

    def upsert(
        self,
        data: object,
        on: Sequence[str] | None = None,
        *,
        create_partitions: bool = False,
        dry_run: bool = False,
        schema: SchemaMode = "exact",
    ) -> MergeReport:
        """Update or insert rows in a separate transaction; see ``HiveTable.upsert`` and :meth:`append`."""
        data = self._with_columns(data, schema, dry_run=dry_run)
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).upsert(data, on, dry_run=dry_run)

    def overwrite(
        self,
        data: object,
        *,
        partitions: str | Sequence[Mapping[str, object]] | None = None,
        where: Condition = None,
        create_partitions: bool = False,
        dry_run: bool = False,
    ) -> OverwriteReport:
        """Replace rows in a separate transaction; see ``HiveTable.overwrite``."""
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).overwrite(data, partitions=partitions, where=where, dry_run=dry_run)

    def track(
        self,
        changes: object,
        key: Sequence[str],
        sequence: str | Sequence[str],
        *,
        create_partitions: bool = False,
        dry_run: bool = False,
        **options: Unpack[HistoryOptionsDict],
    ) -> HistoryReport:
        """Add changes to a history in a separate transaction; see ``HiveTable.track``."""
        with self._transaction(self.name, create_partitions=create_partitions) as tx:
            return tx.table(self.name).track(changes, key, sequence, dry_run=dry_run, **options)

    def truncate(self, *, dry_run: bool = False) -> MergeReport:
        """Delete all rows in a separate transaction; see ``HiveTable.truncate``."""
        with self._transaction(self.name) as tx:
            return tx.table(self.name).truncate(dry_run=dry_run)

    def _with_columns(self, data: object, schema: SchemaMode, *, dry_run: bool = False) -> object:
        """Add columns that the data has and the table lacks. A dry run leaves them out of the data."""
        check_mode(schema, f"table {self.name}")
        if schema == "exact":
            return data
        reader = arrow_reader(data, f"table {self.name}: the rows")
        missing = added_columns(self._table, reader.schema)
        self._alter(self.name, add=missing, missing_only=True, dry_run=dry_run)
        if not (dry_run and missing):
            return reader
        lost = {column.name.lower() for column in missing}
        return reader.read_all().select([each for each in reader.schema.names if each.lower() not in lost])
