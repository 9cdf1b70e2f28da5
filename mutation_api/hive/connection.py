"""``connect``, the connection that it opens to a metastore, and snapshots of tables as ``with`` blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from metastore_client.client import MetastoreClient
from metastore_client.errors import InvalidConfigurationError, MetastoreError
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote import thrift_client
from mutation_api.errors import ConfigurationError, ConnectionFailedError, TransactionStateError
from mutation_api.hive.hive_table import SnapshotTable
from mutation_api.hive.hive_transaction import HiveTransaction
from mutation_api.storage.hadoop_settings import log_in_as_spark
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import (
    LOCK_TIMEOUT_SECONDS_DEFAULT,
    MetastoreTarget,
    MutatorClientBuilder,
    user_of,
)
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.commit_outcome import close_after_aborts
from mutation_api.transaction.listener import LockFailureListener, SaidByTheNextStep
from mutation_api.transaction.lock import WriteLock
from mutation_api.transaction.mutator_client import MutatorClient, ask_settings
from mutation_api.transaction.past_snapshot import AsOf, PastSnapshot
from mutation_api.transaction.snapshot import NotPickled, Snapshot
from mutation_api.write.local_plan import LocalOptions

__all__ = ["Hive", "HiveSnapshot", "connect"]


class HiveSnapshot(NotPickled):
    """The tables as they are when the block begins. Created by ``Hive.snapshot``.

    Its read lock keeps Hive from removing the files. Other transactions can change the tables meanwhile.

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
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True if the snapshot was closed."""
        return self._is_over

    def open(self) -> HiveSnapshot:
        """Open the snapshot, as the ``with`` statement does, and return it. Do nothing if it is open.

        Raises:
            TransactionStateError: If it was closed.
            TableNotMutableError: If a table does not exist or has no ROW__IDs.
            DirectoryStateError: If a compaction has removed the requested past state.
            LockNotAcquiredError, ConnectionFailedError, TransactionError: See Transaction.begin.
        """
        if self._is_over:
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
        self._is_over = True
        self._client.close()

    def __enter__(self) -> HiveSnapshot:
        """Open."""
        return self.open()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


def connect(
    metastore: MetastoreTarget = None,
    *,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    write_lock: str = WriteLock.EXCLUSIVE.value,
    time_zone: str | None = None,
    lock_failure_listener: LockFailureListener | None = None,
    local: LocalOptions | None = None,
) -> Hive:
    """Connect to a metastore. Use the result as a context manager, or call its ``close()``.

    Args:
        metastore: ``thrift://host:port`` (several separated by commas), the keys of a hive-site.xml, its
            path, a MetastoreConfig, or an existing client, which you close yourself. If None, the
            hive-site.xml in HIVE_CONF_DIR or HADOOP_CONF_DIR is read.
        user: user name for the metastore and for lists of transactions. If None, this process's user.
        lock_timeout_seconds: the longest wait for a lock, > 0.
        write_lock: ``exclusive``, or on Hive 4 ``optimistic``; see MutatorClientBuilder.write_lock.
        time_zone: time zone of Hive's own processes, needed only for tables clustered by a timestamp column.
        lock_failure_listener: called when a running transaction is lost. Without it, the next step of the
            transaction raises the loss, at the latest its commit.
        local: memory and threads of the local engine.

    Raises:
        ConfigurationError: If an option is invalid.
        ConnectionFailedError: If no metastore could be reached.
    """
    user = user_of(metastore, user)
    options = _Options(
        user, lock_timeout_seconds, write_lock, time_zone, lock_failure_listener, local or LocalOptions()
    )
    options.builder()  # raises if an option is invalid
    hive = _opened(metastore, options)
    try:
        ask_settings(hive.metastore)
    except BaseException:
        hive.close()
        raise
    return hive


def _opened(metastore: MetastoreTarget, options: _Options) -> Hive:
    if not isinstance(metastore, str | Path | Mapping | MetastoreConfig | None):
        return Hive(metastore, options, owns_metastore=False)
    log_in_as_spark()
    try:
        return Hive(thrift_client.connect(metastore, user=options.user), options, owns_metastore=True)
    except InvalidConfigurationError as error:
        raise ConfigurationError(str(error)) from error
    except MetastoreError as error:
        raise ConnectionFailedError(f"could not connect to the metastore: {error}") from error


@dataclass(frozen=True)
class _Options:
    """The options of :func:`connect`, except for the metastore."""

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


class Hive(NotPickled):
    """A connection to a metastore. Created by :func:`connect`.

    Args:
        metastore: the metastore's client.
        options: see :func:`connect`.
        owns_metastore: True if :meth:`close` closes the client.
    """

    WHAT = "a connection"

    def __init__(self, metastore: MetastoreClient, options: _Options, *, owns_metastore: bool) -> None:
        self._metastore = metastore
        self._options = options
        self._owns_metastore = owns_metastore
        self._is_open = True
        self._users: list[HiveTransaction | HiveSnapshot] = []

    @property
    def metastore(self) -> MetastoreClient:
        """The metastore's client, which lists and creates databases and tables."""
        return self._metastore

    def transaction(
        self,
        *tables: str,
        read: Sequence[str] = (),
        create_partitions: bool = False,
        insert_only: bool = False,
        options: WriterOptions | None = None,
    ) -> HiveTransaction:
        """Return a transaction, which begins with its ``with`` block and commits at the end of the block::

            with hive.transaction("sales.orders") as tx:
                tx.table("sales.orders").append(rows)

        Args:
            tables: the tables that it may change and read: ``database.table``. Other transactions that
                change these tables wait for it.
            read: the tables that it only reads.
            create_partitions: True to create missing partitions; otherwise they are refused.
            insert_only: True if it will only append. Other inserters then need not wait, and its commit
                cannot conflict. A merge is refused.
            options: stripe size and compression of the files.

        Raises:
            ConfigurationError: If no table is given, or a name is not the full name of a table.
            TransactionStateError: If the connection is closed.
        """
        self._check_open()
        if not tables and not read:
            raise ConfigurationError("a transaction needs the name of at least one table")
        builder = self._options.builder().metastore(self._metastore)
        for name in dict.fromkeys(".".join(split_full_name(each)) for each in tables):
            builder.add_sink_table(name, create_partitions=create_partitions, insert_only=insert_only)
        for name in read:
            builder.add_source_table(name)
        transaction = HiveTransaction(builder.build(), self._options.local, options)
        self._remember(transaction)
        return transaction

    def snapshot(self, *tables: str, as_of: AsOf | None = None) -> HiveSnapshot:
        """Return a consistent view of tables, opened by its ``with`` block; writers do not wait for it::

            with hive.snapshot("sales.orders") as view:
                view.table("sales.orders").scan().to_arrow()

        Args:
            tables: ``database.table``, at least one.
            as_of: the point in the past to read: a write id of one table (on Hive 2 a transaction id), a
                moment with a time zone, or one of these by table. If None, the present. See
                ``MutatorClient.open_snapshot``.

        Raises:
            MutationError: See :meth:`transaction`.
        """
        self._check_open()
        if not tables:
            raise ConfigurationError("a snapshot needs the name of at least one table")
        client: MutatorClient = self._options.builder().metastore(self._metastore).build()
        snapshot = HiveSnapshot(client, tables, self._options.local, as_of)
        self._remember(snapshot)
        return snapshot

    def close(self) -> None:
        """Abort open transactions, release snapshots and disconnect. May be called twice."""
        if not self._is_open:
            return
        self._is_open = False
        for user in self._users:
            user.close()
        self._users = []
        if self._owns_metastore:
            close_after_aborts(self._metastore)

    def __enter__(self) -> Hive:
        """Return itself."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise TransactionStateError("the connection is closed: open another one with connect()")

    def _remember(self, user: HiveTransaction | HiveSnapshot) -> None:
        self._users = [*(each for each in self._users if not each.is_over), user]
