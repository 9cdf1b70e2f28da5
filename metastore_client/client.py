"""The protocol of metastore clients: the calls that hive-mutation-api makes to a metastore.

Implementations: :class:`metastore_client.remote.thrift_client.ThriftMetastoreClient` (a real server) and
:class:`metastore_client.testing.InMemoryMetastore` (for tests, including yours). Both pass
``tests/contract``.

An implementation may be called from several threads at once. A Thrift client keeps one connection per thread.
Every call may raise :class:`~metastore_client.errors.MetastoreUnavailableError`; each call lists its other
errors. The implementation sends database and table names in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from metastore_client.capabilities import Capabilities
from metastore_client.model import (
    ColumnInfo,
    CompactionEnd,
    CompactionInfo,
    CompactionJob,
    CompactionType,
    ConstraintInfo,
    DataOperationType,
    HeartbeatResult,
    LockInfo,
    LockRequest,
    LockResponse,
    OpenTxns,
    PartitionInfo,
    TableInfo,
    WriteNotification,
)
from metastore_client.statistics_records import StatisticsRecords
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList


class CompactionQueue(Protocol):
    """The calls about compactions."""

    def compact(
        self,
        database: str,
        table: str,
        partition: str | None,
        type: CompactionType,
        properties: Mapping[str, str] | None = None,
        *,
        pool: str | None = None,
    ) -> bool:
        """Queue a compaction. Return False if one is already queued or running.

        ``pool`` names the workers that may take it, which servers before Hive 4 ignore.
        """
        ...

    def show_compactions(self, id: int | None = None) -> list[CompactionInfo]:
        """Return the compaction queue and its history, or only the entry with a number (Hive 4)."""
        ...

    def next_compaction(
        self, worker_id: str, worker_version: str, pool: str | None = None
    ) -> CompactionJob | None:
        """Take a compaction from the queue. Return None if there is none.

        Args:
            worker_id: name of the worker, which the queue shows: ``host-number``.
            worker_version: version of the worker, which the queue shows.
            pool: take only compactions of this pool. If None, only those without a pool.

        Raises:
            UnsupportedByServerError: If the server does not have ``has_compaction_workers``.
        """
        ...

    def compaction_job(self, entry: CompactionInfo) -> CompactionJob:
        """Return the job of an entry of the queue, to report that its worker is dead. Makes no call."""
        ...

    def compaction_began(
        self, job: CompactionJob, txn_id: int, highest_write_id: int, run_as: str
    ) -> CompactionJob:
        """Report the transaction of a compaction, and the highest write id up to which it reads.

        If the transaction aborts, the server remembers it until its files are gone. ``run_as`` is the user as
        whom the server's cleaner removes old files, unless the request named one; without a user, the cleaner
        fails. Returns the job for later calls.
        """
        ...

    def compaction_ended(self, job: CompactionJob, end: CompactionEnd, reason: str = "") -> None:
        """Report how a compaction ended.

        After DONE, commit its transaction; the server then removes old files.

        ``reason`` is shown in the queue.
        """
        ...


class MetastoreClient(CompactionQueue, StatisticsRecords, Protocol):
    """A client of a metastore, with the calls that reading and changing ACID tables need."""

    # -- the server --------------------------------------------------------------------------------
    @property
    def address(self) -> str:
        """The server's addresses as they were given. Different metastores have different addresses."""
        ...

    def capabilities(self) -> Capabilities:
        """Return the capabilities of this server. They are probed once and then cached."""
        ...

    def get_config_value(self, name: str, default: str) -> str:
        """Return a configuration value of the server, or the default if the server refuses to report it.

        Each connection requests a value only once.
        """
        ...

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """Make independent calls concurrently, so that they wait for the network at the same time.

        Args:
            calls: functions that call this client.

        Returns:
            The results, in the order of the calls. If several calls fail, the error of the first of them is
            raised after all have ended.
        """
        ...

    def close(self) -> None:
        """Close the connections of all threads. May be called more than once."""
        ...

    # -- databases, tables, partitions -------------------------------------------------------------
    def create_database(
        self, name: str, location: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        """Create a database.

        Raises:
            AlreadyExistsError: If the database exists.
        """
        ...

    def get_database_parameters(self, database: str) -> Mapping[str, str]:
        """Return the properties of a database.

        Raises:
            NoSuchObjectError: If the database does not exist.
        """
        ...

    def get_all_tables(self, database: str) -> list[str]:
        """Return the names of all tables of a database, sorted."""
        ...

    def create_table(self, table: TableInfo) -> None:
        """Create a table.

        If the server asks its clients for their capabilities, the client declares that it can write full ACID
        tables.

        Raises:
            AlreadyExistsError: If the table exists.
            InvalidRequestError: If the server refuses the definition.
            NoSuchObjectError: If the database does not exist.
        """
        ...

    def drop_table(self, database: str, table: str, *, delete_data: bool) -> None:
        """Drop a table, with its files if ``delete_data`` is true.

        Raises:
            NoSuchObjectError: If the table does not exist.
        """
        ...

    def get_table(self, database: str, table: str) -> TableInfo:
        """Return the description of a table.

        Raises:
            NoSuchObjectError: If the table does not exist.
        """
        ...

    def get_constraints(self, database: str, table: str) -> tuple[ConstraintInfo, ...]:
        """Return the NOT NULL, CHECK and DEFAULT constraints of a table, ordered by kind, column and name.

        The result is empty if the server has no write ids (it has no such constraints) or if the table does
        not exist.
        """
        ...

    def get_primary_key(self, database: str, table: str) -> tuple[str, ...]:
        """Return the columns of a table's primary key, in order and in lower case.

        Hive never enforces it. The result is empty if the table has none, or does not exist.
        """
        ...

    def get_partition_names(self, database: str, table: str) -> list[str]:
        """Return the escaped names (``ds=2024-01-01/hr=3``) of all partitions.

        The list is empty for an unpartitioned table.
        """
        ...

    def get_partitions_by_names(
        self, database: str, table: str, names: Sequence[str], *, described: TableInfo | None = None
    ) -> list[PartitionInfo]:
        """Return the partitions in ``names`` that exist; skip the others. They are fetched in batches.

        ``described`` is the table as it was just read, which saves reading it again.
        """
        ...

    def add_partitions(
        self, database: str, table: str, values: Sequence[Sequence[str]]
    ) -> list[PartitionInfo]:
        """Create partitions at their default location and return them. Skip those that exist.

        ``values`` are unescaped strings, one per partition key. The caller must have replaced None and ''
        with the name of the default partition. Duplicates within the call are dropped. The partitions are
        sent in batches.

        Raises:
            InvalidRequestError: If the number of values is wrong, or if the server rejects a name.
            NoSuchObjectError: If the table does not exist.
        """
        ...

    def drop_partition(self, database: str, table: str, partition_name: str) -> None:
        """Drop a partition (escaped name) with its files. The server takes no lock.

        Raises:
            NoSuchObjectError: If the table or the partition does not exist.
        """
        ...

    def set_table_parameters(self, database: str, table: str, changes: Mapping[str, str | None]) -> None:
        """Set parameters of a table and remove those that are None. All others stay unchanged.

        The server has no call for this. The client reads the table, changes it and writes it back
        immediately, so a change that another client makes in between may be lost.

        Raises:
            NoSuchObjectError: If the table does not exist.
        """
        ...

    def set_columns(
        self,
        database: str,
        table: str,
        columns: Sequence[ColumnInfo],
        *,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> None:
        """Replace the data columns of a table and of all its partitions, as ALTER TABLE … CASCADE does.

        The server does this in one step. It drops the statistics of columns that are removed or get another
        type. Rows and files stay as they are. The client reads the table, changes it and writes it back
        immediately, so the caller must hold an exclusive lock on the table.

        Args:
            database: name of the table's database.
            table: name of the table.
            columns: all data columns, in table order. Those that stay come first.
            write_id: the caller's write id for the table. A 4.x server refuses to drop statistics without it.
            valid_write_ids: the write ids that the caller sees. Pass both ids or neither.

        Raises:
            InvalidRequestError: If the server cannot change the type of a column, or if only
                one of the two ids is given.
            NoSuchObjectError: If the table does not exist.
        """
        ...

    # -- transactions ------------------------------------------------------------------------------
    def open_txn(
        self, user: str, hostname: str, agent_info: str, *, compaction: CompactionType | None = None
    ) -> int:
        """Open one transaction and return its id.

        With ``compaction``, Hive 4 remembers it as the transaction of a compaction of this kind.
        """
        ...

    def get_open_txns(self) -> OpenTxns:
        """Return all transactions that are open, or aborted and not yet cleaned.

        A 4.x server cannot name the users while an id of the last second is missing. Users, hosts and times
        are unknown then.
        """
        ...

    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        """Send a heartbeat for the transactions first..last, both included.

        The state of a transaction never causes an error.
        """
        ...

    def commit_txn(self, txn_id: int) -> None:
        """Commit a transaction. The client never repeats this call.

        Raises:
            NoSuchTxnError: If the transaction is unknown.
            TxnAbortedError: If it is aborted. The message describes a write conflict if there was one.
            MetastoreUnavailableError: If the outcome is unknown.
        """
        ...

    def abort_txn(self, txn_id: int) -> None:
        """Abort a transaction. Aborting an aborted transaction succeeds.

        Raises:
            NoSuchTxnError: If the transaction is committed or unknown.
        """
        ...

    def add_dynamic_partitions(
        self,
        txn_id: int,
        database: str,
        table: str,
        partition_names: Sequence[str],
        operation: DataOperationType,
        *,
        write_id: int | None = None,
    ) -> None:
        """Register partitions (escaped names) as written by the transaction. They are sent in batches.

        Raises:
            NoSuchTxnError: If the transaction is unknown.
            TxnAbortedError: If the transaction is aborted.
        """
        ...

    # -- write ids: only on servers that have them, otherwise UnsupportedByServerError ----------------------
    def allocate_write_id(self, txn_id: int, database: str, table: str) -> int:
        """Return the transaction's write id for a table. Repeated calls return the same id.

        The server does not check whether the table exists.

        Raises:
            NoSuchTxnError: If the transaction is unknown.
            TxnAbortedError: If the transaction is aborted.
            MetastoreError: If the transaction is not open.
        """
        ...

    def get_valid_write_ids(
        self, full_names: Sequence[str], valid_txn_list: ValidTxnList
    ) -> dict[str, ValidWriteIdList]:
        """Return the write ids of tables (``database.table``) that belong to the transactions of a snapshot.

        Returns:
            One list per table, by its full name in lower case.
        """
        ...

    def keep_files(self, txn_id: int, full_names: Sequence[str]) -> None:
        """Prevent the cleaner from removing any file of the tables until the transaction ends.

        ``full_names`` are names such as ``database.table``. Call this before taking the snapshot; then no
        file that the cleaner removes is part of the snapshot. The server does not check that the transaction
        is open.

        Raises:
            UnsupportedByServerError: If the server does not have ``has_min_history``.
        """
        ...

    def add_write_notifications(self, notifications: Sequence[WriteNotification]) -> None:
        """Report to the server which files a transaction wrote, before it commits.

        Raises:
            UnsupportedByServerError: If the server does not have ``has_write_notifications``.
        """
        ...

    # -- locks -------------------------------------------------------------------------------------
    def lock(self, request: LockRequest) -> LockResponse:
        """Request a lock once. The client never repeats this call, not even after a broken connection.

        Raises:
            NoSuchTxnError: If the transaction is unknown.
            TxnAbortedError: If the transaction is aborted.
            UnsupportedByServerError: If the request contains EXCL_WRITE and the server does not have it.
        """
        ...

    def check_lock(self, lock_id: int, txn_id: int) -> LockResponse:
        """Check the state of a waiting lock. The call also counts as a heartbeat.

        Raises:
            NoSuchLockError: If the lock does not exist.
            NoSuchTxnError: If the transaction is unknown.
            TxnAbortedError: If the transaction is aborted.
        """
        ...

    def unlock(self, lock_id: int) -> None:
        """Release a waiting lock.

        Raises:
            NoSuchLockError: If the lock does not exist.
            TxnOpenError: If the lock belongs to an open transaction.
        """
        ...

    def show_locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """Return all locks, or those of a database or table."""
        ...


def compactions_of(queue: CompactionQueue, database: str, table: str) -> list[CompactionInfo]:
    """Return the entries of one table (names in lower case) in the queue and its history."""
    return [each for each in queue.show_compactions() if (each.database, each.table) == (database, table)]
