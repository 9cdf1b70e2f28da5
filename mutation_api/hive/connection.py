"""The connection, which creates tables and begins transactions and snapshots."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from metastore_client.client import MetastoreClient
from mutation_api.errors import ConfigurationError, TransactionStateError
from mutation_api.hive.change_feed import ChangeFeed
from mutation_api.hive.consumer import Consumer
from mutation_api.hive.feed_rules import FeedKeys, Images
from mutation_api.hive.hive_transaction import ConnectionOptions, HiveSnapshot, HiveTransaction
from mutation_api.hive.table_handle import TableHandle
from mutation_api.table.acid_table import TableRole, WriterOptions
from mutation_api.transaction.attempts import LOST_RACES, Attempts, check_function
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.catalog import (
    Catalog,
    TableSpec,
    normal_full_name,
    split_full_name,
    table_names,
)
from mutation_api.transaction.commit_outcome import close_after_aborts
from mutation_api.transaction.feed_position import Since
from mutation_api.transaction.hold import Holds, HoldTime
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.past_snapshot import AsOf
from mutation_api.transaction.snapshot import ClosedAtEnd, NotPickled
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.upkeep.alter_acid_table import AlteredTable, alter_acid_table
from mutation_api.upkeep.create_acid_table import (
    columns_of,
    create_acid_table,
    drop_acid_table,
    split_partition_columns,
)

if TYPE_CHECKING:
    import polars as pl

_T = TypeVar("_T")


class Hive(ClosedAtEnd, NotPickled):
    """A connection to a metastore. Created by ``connect``.

    Args:
        metastore: the metastore's client.
        options: see ``connect``.
        owns_metastore: True if :meth:`close` closes the client.
    """

    WHAT = "a connection"

    def __init__(
        self, metastore: MetastoreClient, options: ConnectionOptions, *, owns_metastore: bool
    ) -> None:
        self._metastore = metastore
        self._options = options
        self._owns_metastore = owns_metastore
        self._is_open = True
        self._holds = Holds()
        self._users: list[tuple[frozenset[str], HiveTransaction | HiveSnapshot | ChangeFeed]] = []

    @property
    def metastore(self) -> MetastoreClient:
        """The metastore's client, which lists and creates databases and tables."""
        return self._metastore

    def builder(self) -> MutatorClientBuilder:
        """Return a builder of clients with the metastore and the options of this connection."""
        return self._options.builder().metastore(self._metastore)

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
            tables: the tables (``database.table``) that it may change and read. Their other writers wait.
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
        builder = self.builder()
        for name in dict.fromkeys(normal_full_name(each) for each in tables):
            builder.add_sink_table(name, create_partitions=create_partitions, insert_only=insert_only)
        for name in read:
            builder.add_source_table(name)
        transaction = HiveTransaction(builder.build(), self._options.local, options)
        self._remember(transaction, *tables, *read)
        return transaction

    def run(
        self,
        function: Callable[[HiveTransaction], _T],
        *tables: str,
        attempts: int | Attempts = 5,
        read: Sequence[str] = (),
        create_partitions: bool = False,
        insert_only: bool = False,
        options: WriterOptions | None = None,
    ) -> _T:
        """Call a function with a transaction, commit, and return its result; repeat this after a lost race::

            def load(tx):
                rows = pyarrow.dataset.dataset("changes").scanner().to_reader()
                merge = tx.table("sales.orders").merge(rows, on=["id"])
                return merge.when_matched_update_all().when_not_matched_insert_all().execute()

            report = hive.run(load, "sales.orders")

        A race is lost if another transaction committed first, the lock was not granted in time, or the
        transaction was ended from outside (WriteConflictError, LockNotAcquiredError, TransactionAbortedError,
        LockLostError). Nothing is visible then. The next attempt begins after a random pause, in a new
        transaction with a new snapshot.

        Each attempt calls the function, so it must read everything itself: ROW__IDs of an earlier snapshot
        may be gone, and a RecordBatchReader can be read only once, so open it in the function, as above.

        Args:
            function: called with the transaction, which has begun.
            tables: the tables that it may change and read.
            attempts: the maximum number of attempts, or Attempts with other pauses.
            read: the tables that it only reads. For this and the rest see :meth:`transaction`.
            create_partitions: True to create missing partitions.
            insert_only: True if the function only appends.
            options: stripe size and compression of the files.

        Raises:
            ConfigurationError: If an argument is invalid.
            TransactionStateError: If the function lost another race after it had committed by itself.
            Other errors: Those of the function and of the transaction; from the second attempt on, with a
                note of the number of attempts. Only a lost race is repeated, never CommitOutcomeUnknownError.
        """
        check_function(function)
        begin = functools.partial(self.transaction, *tables, read=read, create_partitions=create_partitions)

        def attempt(_: int) -> _T:
            with begin(insert_only=insert_only, options=options) as tx:
                try:
                    return function(tx)
                except LOST_RACES as error:
                    if not tx.closed or tx.summary.state == TransactionState.ABORTED.value:
                        raise
                    raise TransactionStateError(
                        f"transaction {tx.txn_id}: the function passed to run() committed it and then lost "
                        "a race, so it is not called again. Let run() commit, or use hive.transaction()"
                    ) from error

        return Attempts.of(attempts).run(f"transaction on {', '.join((*tables, *read))}", attempt)

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
        snapshot = HiveSnapshot(self.builder().build(), tables, self._options.local, as_of)
        self._remember(snapshot, *tables)
        return snapshot

    def scan_polars(self, name: str) -> pl.LazyFrame:
        """Return a table (``database.table``) as a lazy frame of Polars. Each ``collect()`` reads it again.

        Raises MutationError: See :meth:`table`, and when it is collected :meth:`snapshot`.
        """
        from mutation_api.hive.lazy_frame import lazy_frame  # pyarrow.dataset imports pandas

        handle = self.table(name)
        return lazy_frame(functools.partial(self.snapshot, name), handle.name, handle.schema)

    def changes(
        self,
        *tables: str,
        since: Since | None = None,
        consumer: str | None = None,
        on: FeedKeys | None = None,
        net: bool = False,
        columns: Sequence[str] | None = None,
        images: Images = "all",
        watermark_table: str | None = None,
        hold: HoldTime | None = None,
    ) -> ChangeFeed:
        """Return the changes of tables in a ``with`` block, transaction by transaction::

            with hive.changes("sales.orders", since=position) as feed:
                for transaction in feed:
                    print(transaction.txn_id, transaction.tables["sales.orders"].to_arrow())

        Args:
            tables: ``database.table``, at least one.
            since: the ``position`` of an earlier feed of these tables, or a moment with a time zone.
                ``"beginning"`` returns the rows as they are, as inserts. ``"now"`` returns only a position.
            consumer: the name of a consumer, whose position ``ChangeFeed.commit`` moves. ``since`` is then
                used only by its first feed.
            on: key columns that make a delete and an insert ``update_before`` and ``update_after``: names, or
                names by table.
            net: True for all changes together, without rows that were inserted and deleted since.
            columns: names of data and partition columns. If None, all.
            images: ``"keys"`` to read only the columns of ``on`` of rows as they were before a delete or an
                update. Other data columns are NULL. This is much faster for scattered changes.
            watermark_table: the table of consumers' positions, ``database.table``; created if it does not
                exist. If None, ``mutation_watermarks`` in the database of the tables.
            hold: the seconds for which Hive's cleaner must keep the files for the next feed of the tables.

        Raises MutationError: See :meth:`transaction` and ``ChangeFeed.open``.
        """
        self._check_open()
        if not tables:
            raise ConfigurationError("a change feed needs the name of at least one table")
        named = None
        if consumer is not None:
            named = Consumer(self._metastore, self._options, consumer, tables, watermark_table)
        feed = ChangeFeed(
            self.builder().build(),
            tables,
            since,
            on=on,
            net=net,
            columns=columns,
            images=images,
            local=self._options.local,
            consumer=named,
            holds=self._holds,
            hold=hold,
        )
        self._remember(feed, *tables)
        return feed

    def create_table(
        self,
        name: str,
        schema: object,
        *,
        partitioned_by: Sequence[str] = (),
        clustered_by: Sequence[str] = (),
        num_buckets: int | None = None,
        insert_only: bool = False,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> TableHandle:
        """Create an ACID table for this library and for Hive's SQL, and return it::

            hive.create_table("sales.orders", "id bigint, item string, day date", partitioned_by=["day"])

        Args:
            name: ``database.table``; the database must exist.
            schema: all columns: an Arrow or Spark schema, Hive's types by name, or a string as above.
            partitioned_by: names of the partition columns, in order. Other columns are data columns.
            clustered_by: names of the bucket columns. Hive 2 requires at least one.
            num_buckets: number of buckets; required with ``clustered_by``, and only allowed then.
            insert_only: True for a table without updates and deletes; Hive 3 and later.
            location: the table's directory. If None, the server's default.
            properties: further table properties, such as ``{"orc.compress": "SNAPPY"}``.

        Raises:
            ConfigurationError: If the table exists, its database does not, or an argument is invalid.
            RecordLayoutError: If Hive has no type for a column, or a partition column is not in the schema.
            TableNotMutableError: If this server's Hive does not support such a table.
            ConnectionFailedError, TransactionError: If the server could not be queried.
            TransactionStateError: If the connection is closed.
        """
        self._check_open()
        name = normal_full_name(name)
        columns, keys = split_partition_columns(columns_of(_schema(schema), name), partitioned_by, name)
        create_acid_table(
            self._metastore,
            name,
            columns,
            keys,
            clustered_by=clustered_by,
            num_buckets=num_buckets,
            insert_only=insert_only,
            location=location,
            properties=properties,
        )
        return self.table(name)

    def table(self, name: str) -> TableHandle:
        """Return a table (``database.table``): schema, history, checks, reads, and single changes::

            hive.table("sales.orders").delete(where="item = 'tea'")

        Raises:
            TableNotFoundError: If it does not exist.
            TableNotMutableError: If this library cannot read it; the message names the violated rule.
            ConnectionFailedError, TransactionError: If the server could not be queried.
            TransactionStateError: If the connection is closed.
        """
        self._check_open()
        database, table = split_full_name(name)
        with metastore_errors_as_ours(f"could not look up table {database}.{table}"):
            opened = Catalog(self._metastore).read(TableSpec(database, table, TableRole.SOURCE))
        return TableHandle(self._metastore, opened.table, self.transaction, self.snapshot, self.alter_table)

    def tables(self, database: str, *, like: str = "*") -> list[str]:
        """Return the names ``database.table`` of a database's tables and views, sorted.

        Args:
            database: the database, in any case.
            like: a pattern for names of tables with ``*`` and ``?``, in any case.

        Raises:
            ConfigurationError: If the database does not exist.
            ConnectionFailedError, TransactionError: If the server could not be queried.
            TransactionStateError: If the connection is closed.
        """
        self._check_open()
        return table_names(self._metastore, database, like)

    def alter_table(
        self,
        name: str,
        *,
        add: object = None,
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, str] | None = None,
        missing_only: bool = False,
        dry_run: bool = False,
    ) -> AlteredTable:
        """Add, rename and widen columns of an ACID table (``database.table``) and of all its partitions::

            hive.alter_table("sales.orders", add={"note": "string"}, widen={"price": "decimal(12,2)"})

        No file changes: in existing rows, new columns are NULL. An exclusive lock waits for others that read
        or change the table. All changes are checked first and then made in one step.

        Args:
            name: the table.
            add: new data columns: Hive's types by name, or a schema as for :meth:`create_table`.
            rename: new names of data columns by name; only on Hive 4.
            widen: new types of data columns by their names; a wider type holds all values of the old one.
            missing_only: True to leave out columns of ``add`` that the table has, and ROW__ID. ``add`` may
                then be the schema of rows that will be written.
            dry_run: True to check everything and to change nothing.

        Raises:
            ConfigurationError: If a change is not possible; the message names the column and the reason.
            TransactionStateError: If an open transaction or snapshot of this connection uses it.
            Other errors: See ``alter_acid_table``. In these cases the table stays as it is.
        """
        self._check_open()
        name = normal_full_name(name)
        self._check_unused(name, "altered")
        return alter_acid_table(
            self._metastore,
            name,
            add=_schema(add),
            rename=rename,
            widen=widen,
            missing_only=missing_only,
            dry_run=dry_run,
            user=self._options.user,
            lock_timeout_seconds=self._options.lock_timeout_seconds,
        )

    def drop_table(self, name: str, *, missing_ok: bool = False) -> None:
        """Drop an ACID table (``database.table``) with its files, as Hive's DROP TABLE does.

        An exclusive lock waits for others that read or change the table. The server removes the files, into
        the trash if its file system has one. Positions of ingests into the table stay in the watermark table.
        ``missing_ok``: True to do nothing if the table does not exist.

        Raises:
            TableNotFoundError: If it does not exist.
            TransactionStateError: If an open transaction or snapshot of this connection uses it.
            Other errors: See ``drop_acid_table``. In these cases the table stays.
        """
        self._check_open()
        name = normal_full_name(name)
        self._check_unused(name, "dropped")
        drop_acid_table(
            self._metastore,
            name,
            missing_ok=missing_ok,
            user=self._options.user,
            lock_timeout_seconds=self._options.lock_timeout_seconds,
        )

    def close(self) -> None:
        """Abort open transactions, release snapshots and disconnect. May be called twice."""
        if not self._is_open:
            return
        self._is_open = False
        for _, user in self._users:
            user.close()
        self._users = []
        self._holds.close()
        if self._owns_metastore:
            close_after_aborts(self._metastore)

    def _check_open(self) -> None:
        if not self._is_open:
            raise TransactionStateError("the connection is closed: open another one with connect()")

    def _check_unused(self, name: str, be: str) -> None:
        if any(name in names and not user.closed for names, user in self._users):
            raise TransactionStateError(
                f"table {name} cannot be {be}: a transaction or snapshot of this connection uses it. End it "
                "first"
            )

    def _remember(self, user: HiveTransaction | HiveSnapshot | ChangeFeed, *tables: str) -> None:
        names = frozenset(normal_full_name(each) for each in tables)
        self._users = [*(each for each in self._users if not each[1].closed), (names, user)]


def _schema(schema: Any) -> object:
    """Return a schema in a form that ``columns_of`` accepts, which does not support Spark's schemas."""
    kind = type(schema)
    if (kind.__module__, kind.__name__) != ("pyspark.sql.types", "StructType"):
        return schema
    from mutation_api.spark.frame_table import hive_columns  # pyspark is loaded only for a schema of Spark

    return hive_columns(schema)
