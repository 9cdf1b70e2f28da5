"""The calls that the product makes to a metastore: the protocol of every implementation.

Implementations: :class:`metastore_client.remote.thrift_client.ThriftMetastoreClient` (a real server) and
:class:`metastore_client.testing.InMemoryMetastore` (for tests, yours too). Both pass ``tests/contract``.

An implementation may be called from several threads at once; a Thrift client keeps one connection per thread.
Every call may raise :class:`~metastore_client.errors.MetastoreUnavailableError`; each call lists its other
errors.
Database and table names are sent in lower case by the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from metastore_client.capabilities import Capabilities
from metastore_client.model import (
    ColumnStatistics,
    CompactionInfo,
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
from metastore_client.valid_ids import CountRows, ValidTxnList, ValidWriteIdList

__all__ = ["MetastoreClient"]


class MetastoreClient(Protocol):
    """The calls of the mutation path."""

    # -- the server --------------------------------------------------------------------------------
    @property
    def address(self) -> str:
        """Where the server is: the addresses as they were given. No two servers have the same."""
        ...

    def capabilities(self) -> Capabilities:
        """The capabilities of this server, probed once and kept."""
        ...

    def get_config_value(self, name: str, default: str) -> str:
        """A configuration value of the server; the default if the server refuses to report it.

        Each connection asks once.
        """
        ...

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """Make calls that do not need each other, so that they wait for the network at the same time.

        Args:
            calls: functions that call this client.

        Returns:
            Their results, in their order. Of several errors the first one's is raised, after all have ended.
        """
        ...

    def close(self) -> None:
        """Close the connections of all threads. May be called twice."""
        ...

    # -- databases, tables, partitions -------------------------------------------------------------
    def create_database(
        self, name: str, location: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        """Raises AlreadyExistsError."""
        ...

    def get_database_parameters(self, database: str) -> Mapping[str, str]:
        """The properties of a database. Raises NoSuchObjectError."""
        ...

    def get_all_tables(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted."""
        ...

    def create_table(self, table: TableInfo) -> None:
        """Create a table. A server that asks for capabilities hears that we can write full ACID tables.

        Raises AlreadyExistsError, InvalidRequestError, NoSuchObjectError (database).
        """
        ...

    def drop_table(self, database: str, table: str, *, delete_data: bool) -> None:
        """Raises NoSuchObjectError."""
        ...

    def get_table(self, database: str, table: str) -> TableInfo:
        """Raises NoSuchObjectError."""
        ...

    def get_constraints(self, database: str, table: str) -> tuple[ConstraintInfo, ...]:
        """NOT NULL, CHECK and DEFAULT constraints of a table, ordered by kind, column and name.

        A server without write ids has no such constraints. A missing table has none either.
        """
        ...

    def get_partition_names(self, database: str, table: str) -> list[str]:
        """Escaped names (``ds=2024-01-01/hr=3``) of all partitions; empty for an unpartitioned table."""
        ...

    def get_partitions_by_names(self, database: str, table: str, names: Sequence[str]) -> list[PartitionInfo]:
        """Partitions that exist among ``names``; missing ones are left out. Fetched in batches."""
        ...

    def add_partitions(
        self, database: str, table: str, values: Sequence[Sequence[str]]
    ) -> list[PartitionInfo]:
        """Create partitions at their default location; existing ones are skipped. Returns those created.

        ``values`` are unescaped texts, one per partition key. The caller must have replaced None and '' by
        the default partition's name. Duplicates within the call are dropped. Sent in batches.

        Raises: InvalidRequestError (wrong number of values, names the server rejects), NoSuchObjectError.
        """
        ...

    def set_table_parameters(self, database: str, table: str, changes: Mapping[str, str | None]) -> None:
        """Set parameters of a table, and remove those that are None; all others stay.

        The server has no call for this: the table is read, changed and written back at once, so a change that
        another client makes in between may be lost. Raises NoSuchObjectError.
        """
        ...

    def record_row_counts(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        count: CountRows,
        *,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
        described: TableInfo | None = None,
    ) -> int:
        """Record accurate numbers of rows, and that no statistics of columns are accurate any more.

        A server that does not answer queries from statistics, or a writer that tells no ids, is not asked for
        numbers: that any statistics are accurate is taken back.

        Args:
            database: of the table.
            table: its name.
            partition_names: escaped names, those that do not exist are left out; None for the table itself.
            count: gives the new numbers for the recorded ones; called once for some hundred partitions.
            write_id: the writer's.
            valid_write_ids: those that the writer sees; both ids or neither are given.
            described: the table as it was read just before, which saves reading it again.

        Returns:
            How many objects were changed.

        Raises: NoSuchObjectError; InvalidRequestError: only one of the two ids is given.
        """
        ...

    def get_column_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        columns: Sequence[str],
        *,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> dict[str, tuple[ColumnStatistics, ...]]:
        """What is recorded of columns, be it true or not; see COLUMN_STATS_ACCURATE in the parameters.

        Args:
            database: of the table.
            table: its name.
            partition_names: escaped names; None for an unpartitioned table. Fetched in batches.
            columns: names of data columns.
            valid_write_ids: those of a snapshot. A server that answers queries from statistics leaves out
                what it would not answer that snapshot's queries from.

        Returns:
            By partition name, '' for an unpartitioned table, ordered by column; what has no statistics is
            left out.

        Raises NoSuchObjectError: there is no such table.
        """
        ...

    # -- transactions ------------------------------------------------------------------------------
    def open_txn(self, user: str, hostname: str, agent_info: str) -> int:
        """Open one transaction and return its id."""
        ...

    def get_open_txns(self) -> OpenTxns:
        """All transactions that are open, or aborted and not yet cleaned."""
        ...

    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        """Send a heartbeat for first..last (both included). Never raises for a transaction's state."""
        ...

    def commit_txn(self, txn_id: int) -> None:
        """Commit; the client never repeats this call.

        Raises: NoSuchTxnError, TxnAbortedError (its text names a write conflict), MetastoreUnavailableError
        (the outcome is unknown).
        """
        ...

    def abort_txn(self, txn_id: int) -> None:
        """Abort; an aborted transaction is fine. Raises NoSuchTxnError (committed or unknown)."""
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
        """Register partitions (escaped names) as written by the transaction. Sent in batches.

        Raises: NoSuchTxnError, TxnAbortedError.
        """
        ...

    # -- write ids: only where the server has them, else UnsupportedByServerError ---------------------------
    def allocate_write_id(self, txn_id: int, database: str, table: str) -> int:
        """The transaction's write id for a table; repeated calls return the same id.

        The server does not check whether the table exists.

        Raises: NoSuchTxnError, TxnAbortedError, MetastoreError (the transaction is not open).
        """
        ...

    def get_valid_write_ids(
        self, full_names: Sequence[str], valid_txn_list: ValidTxnList
    ) -> dict[str, ValidWriteIdList]:
        """The write ids of tables (``database.table``) that belong to the transactions of a snapshot.

        Returns:
            By full name in lower case, one for each.
        """
        ...

    def keep_files(self, txn_id: int, full_names: Sequence[str]) -> None:
        """Keep the cleaner from all files of tables (``database.table``) until the transaction ends.

        To be told before the snapshot is taken: what the cleaner removes later is not in the snapshot then.
        The server does not check that the transaction is open.

        Raises UnsupportedByServerError unless the server ``has_min_history``.
        """
        ...

    def add_write_notifications(self, notifications: Sequence[WriteNotification]) -> None:
        """Report to the server which files a transaction wrote, before it commits.

        Raises UnsupportedByServerError unless the server ``has_write_notifications``.
        """
        ...

    # -- locks -------------------------------------------------------------------------------------
    def lock(self, request: LockRequest) -> LockResponse:
        """Ask for a lock once; the client never repeats this call, not even on a broken connection.

        Raises: NoSuchTxnError, TxnAbortedError, UnsupportedByServerError (EXCL_WRITE on a server that does
        not have it).
        """
        ...

    def check_lock(self, lock_id: int, txn_id: int) -> LockResponse:
        """Ask again for a waiting lock; also a heartbeat.

        Raises: NoSuchLockError, NoSuchTxnError, TxnAbortedError.
        """
        ...

    def unlock(self, lock_id: int) -> None:
        """Release a waiting lock. Raises NoSuchLockError, TxnOpenError."""
        ...

    def show_locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """All locks, or those of a database or table."""
        ...

    # -- compaction --------------------------------------------------------------------------------
    def compact(
        self,
        database: str,
        table: str,
        partition: str | None,
        type: CompactionType,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """Queue a compaction; returns False if one is queued or running already."""
        ...

    def show_compactions(self) -> list[CompactionInfo]:
        """The compaction queue and its history."""
        ...
