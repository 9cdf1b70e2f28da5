"""MutatorClient: connects, checks the tables, and creates transactions and snapshots."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import overload

from metastore_client.client import MetastoreClient
from metastore_client.errors import InvalidConfigurationError, MetastoreError
from metastore_client.hive_site import current_user, parse_duration_seconds
from metastore_client.model import CompactionType
from mutation_api.errors import (
    ClientError,
    ConfigurationError,
    ConnectionFailedError,
    TransactionStateError,
)
from mutation_api.storage.hadoop_settings import log_in_as_spark
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec, split_full_name
from mutation_api.transaction.clock import Clock
from mutation_api.transaction.commit_outcome import close_after_aborts
from mutation_api.transaction.committer import DML_EVENTS
from mutation_api.transaction.descriptors import POSITIONAL_EVOLUTION
from mutation_api.transaction.hold import Hold
from mutation_api.transaction.lease import LeaseSettings
from mutation_api.transaction.listener import LockFailureListener, metastore_errors_as_ours
from mutation_api.transaction.lock import Marks, WriteLock
from mutation_api.transaction.past_snapshot import AsOf, PastSnapshot
from mutation_api.transaction.snapshot import ClientSession, ClosedAtEnd, NotPickled, Snapshot
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionState

AGENT_NAME = "hive-mutation-api"
"""Part of the agent information of this library's transactions and locks."""

TXN_TIMEOUT = "hive.txn.timeout"
TXN_TIMEOUT_DEFAULT = "300s"
INITIATOR_ON = "hive.compactor.initiator.on"
TXN_MANAGER = "hive.txn.manager"
DB_TXN_MANAGER = "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager"
SUPPORT_CONCURRENCY = "hive.support.concurrency"
MAX_MARK_LENGTH = 120
"""Limit of the marks: the server's columns hold 128 characters."""

_UNSAFE_IN_MARKS = re.compile(r"[^ -~]|['\"\\]")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClientOptions:
    """The options that the builder collected; see the methods of MutatorClientBuilder."""

    user: str | None
    time_zone: str | None
    lock_timeout_seconds: float
    listener: LockFailureListener | None
    write_lock: WriteLock
    clock: Clock


class MutatorClient(ClosedAtEnd, NotPickled):
    """Creates transactions and snapshots of tables of one metastore. Created by MutatorClientBuilder.

    As a context manager it connects on entry and closes on exit.

    Args:
        connect: creates the metastore's client; called by :meth:`connect`.
        owns_metastore: True if :meth:`close` closes that client.
        specs: the tables, one entry each.
        options: all other options.
    """

    WHAT = "a client"

    def __init__(
        self,
        connect: Callable[[], MetastoreClient],
        *,
        owns_metastore: bool,
        specs: tuple[TableSpec, ...],
        options: ClientOptions,
    ) -> None:
        self._connect = connect
        self._owns_metastore = owns_metastore
        self._specs = specs
        self._options = options
        self._session: ClientSession | None = None
        self._tables: tuple[AcidTable, ...] = ()
        self._warnings: tuple[str, ...] = ()
        self._transactions: list[Transaction] = []
        self._snapshots: list[Snapshot] = []

    @property
    def tables(self) -> tuple[AcidTable, ...]:
        """The tables as they were at :meth:`connect`: bound to no transaction, and without partitions."""
        return self._tables

    @property
    def warnings(self) -> tuple[str, ...]:
        """The findings of :meth:`connect` that do not prevent the work but may be unexpected.

        They are also logged.
        """
        return self._warnings

    @property
    def metastore(self) -> MetastoreClient:
        """The metastore's client. Raises TransactionStateError if the client is not connected."""
        return self._connected().metastore

    def connect(self) -> MutatorClient:
        """Connect, check every table, and return the client. Do nothing if it is connected.

        Raises:
            ConnectionFailedError: If no metastore could be reached.
            ConfigurationError: If the metastore's address is invalid, or Spark's keytab cannot be used here.
            TableNotFoundError: If a table does not exist.
            TableNotMutableError: If a table violates a rule; the message names both.
        """
        if self._session is None:
            log_in_as_spark()
            try:
                metastore = self._connect()
            except InvalidConfigurationError as error:
                raise ConfigurationError(str(error)) from error
            except MetastoreError as error:
                raise ConnectionFailedError(f"could not connect to the metastore: {error}") from error
            try:
                self._look_around(metastore)
            except BaseException:
                self._close_metastore(metastore)
                raise
        return self

    def new_transaction(self) -> Transaction:
        """Return a transaction over all tables of the client. It has not begun yet.

        Raises TransactionStateError if the client is not connected, and ConfigurationError if there are no
        tables.
        """
        session = self._connected()
        if not session.specs:
            raise ConfigurationError(
                "the client has no tables: add them with add_sink_table() and add_source_table()"
            )
        self._transactions = [t for t in self._transactions if t.state in _UNFINISHED]
        self._transactions.append(Transaction(session))
        return self._transactions[-1]

    @overload
    def open_snapshot(self, *full_names: str) -> Snapshot: ...

    @overload
    def open_snapshot(self, *full_names: str, as_of: AsOf) -> PastSnapshot: ...

    def open_snapshot(self, *full_names: str, as_of: AsOf | None = None) -> Snapshot | PastSnapshot:
        """Return a consistent view of tables (``database.table``), which need not be among the client's.

        The view is protected until it or the client is closed.

        Args:
            full_names: the tables.
            as_of: the point in the past to read: a write id of one table (on Hive 2 a transaction id), a
                moment with a time zone, or one of these by table. If None, the present. For the meaning and
                the limits see :class:`~mutation_api.transaction.past_snapshot.PastSnapshot`.

        Raises:
            TableNotFoundError: If a table does not exist.
            TableNotMutableError: If a table has no ROW__IDs.
            DirectoryStateError: If a compaction removed the past state; the message names its directory and
                the lowest id or earliest moment that can still be read.
            ConfigurationError: If no table is given; see also PastSnapshot.
            LockNotAcquiredError, ConnectionFailedError, TransactionError: See Transaction.begin.
        """
        session = self._connected()
        if not full_names:
            raise ConfigurationError("a snapshot needs the name of at least one table")
        snapshot = Snapshot(session, _sources(full_names)).open()
        self._snapshots = [*(s for s in self._snapshots if not s.closed), snapshot]
        if as_of is None:
            return snapshot
        try:
            past = PastSnapshot(snapshot, as_of)
            past.check_history()
        except BaseException:
            snapshot.close()
            raise
        return past

    def open_exclusively(self, *full_names: str) -> Snapshot:
        """Return a view of tables (``database.table``) under the exclusive lock of DDL.

        Nobody else can read or change them until it is closed.

        Raises:
            Errors: See :meth:`open_snapshot`.
        """
        return Snapshot(self._connected(), _sources(full_names), is_exclusive=True).open()

    def open_compaction(
        self, table: str, kind: CompactionType = CompactionType.MAJOR, partitions: Sequence[str] = ("",)
    ) -> Snapshot:
        """Return the view of a compaction of partitions of a table (``database.table``) on Hive 4.

        It must be ended by ``commit`` or ``abort``. A rebalance, which gives new ROW__IDs, excludes
        writers of the partitions. In an unpartitioned table the only one is ''.

        Raises:
            Errors: See :meth:`open_snapshot`.
        """
        return Snapshot(self._connected(), _sources((table,)), compaction=kind, partitions=partitions).open()

    def open_hold(self, *full_names: str, seconds: float) -> Hold:
        """Prevent the cleaner from removing files of tables until the hold is closed or has expired.

        It outlives this client, but not the metastore's client.

        Args:
            full_names: the tables.
            seconds: the time limit.

        Raises:
            TableNotMutableError, LockNotAcquiredError, ConnectionFailedError: See :meth:`open_snapshot`.
        """
        return Hold(self._connected(), _sources(full_names), seconds).open()

    def close(self) -> None:
        """Abort open transactions, release snapshots and disconnect. May be called twice."""
        session, self._session = self._session, None
        if session is None:
            return
        for snapshot in self._snapshots:
            snapshot.close()
        for transaction in self._transactions:
            _abort_quietly(transaction)
        self._snapshots, self._transactions = [], []
        self._close_metastore(session.metastore)

    def __enter__(self) -> MutatorClient:
        """Connect."""
        return self.connect()

    def _connected(self) -> ClientSession:
        if self._session is None:
            raise TransactionStateError(
                "the client is not connected; call connect(), or use it in a with statement"
            )
        return self._session

    def _look_around(self, metastore: MetastoreClient) -> None:
        catalog = Catalog(
            metastore,
            self._options.time_zone,
            self._options.write_lock,
            self._options.user or current_user(),
            self._options.clock,
        )
        with metastore_errors_as_ours("could not connect"):
            opened = [catalog.read_and_probe(spec) for spec in self._specs]
            settings = self._settings(metastore)
            unwritable = [catalog.probe_partitions(each) for each in opened]
            self._warnings = (*self._find_warnings(metastore), *filter(None, unwritable))
        self._tables = tuple(o.table for o in opened)
        self._session = ClientSession(
            metastore, self._options.clock, settings, catalog, self._specs, self._options.listener
        )
        for warning in dict.fromkeys(self._warnings):
            if warning not in _told:
                _told.add(warning)
                _log.warning("%s", warning)

    def _settings(self, metastore: MetastoreClient) -> LeaseSettings:
        text = metastore.get_config_value(TXN_TIMEOUT, TXN_TIMEOUT_DEFAULT)
        return LeaseSettings(
            marks=marks_of(self._options.user),
            txn_timeout_seconds=parse_duration_seconds(text),
            lock_timeout_seconds=self._options.lock_timeout_seconds,
        )

    def _find_warnings(self, metastore: MetastoreClient) -> list[str]:
        found = _server_warnings(metastore)
        has_sinks = any(s.role is TableRole.SINK for s in self._specs)
        if has_sinks and self._options.listener is None:
            found.append(
                "only the next step, or commit(), reports that a transaction is lost; for an immediate "
                "call, set the builder's lock_failure_listener(…) or on_lost(…)"
            )
        return found

    def _close_metastore(self, metastore: MetastoreClient) -> None:
        if self._owns_metastore:
            close_after_aborts(metastore)


def _sources(full_names: Sequence[str]) -> tuple[TableSpec, ...]:
    names = [split_full_name(name) for name in full_names]
    return tuple(TableSpec(d, t, TableRole.SOURCE) for d, t in dict.fromkeys(names))


_told: set[str] = set()
"""Warnings that this process has logged: a query that creates a client per batch does not repeat them."""

_UNFINISHED = (TransactionState.INACTIVE, TransactionState.OPEN, TransactionState.COMMITTING)


def ask_settings(metastore: MetastoreClient) -> None:
    """Request the server's settings that transactions need; the client caches the answers.

    Raises ConnectionFailedError if the server could not be queried.
    """
    with metastore_errors_as_ours("could not connect"):
        metastore.get_config_value(TXN_TIMEOUT, TXN_TIMEOUT_DEFAULT)
        metastore.get_config_value(POSITIONAL_EVOLUTION, "")
        metastore.get_config_value(DML_EVENTS, "false")
        _server_warnings(metastore)


def _server_warnings(metastore: MetastoreClient) -> list[str]:
    """Return warnings about the server's settings. A setting that is not reported causes no warning."""
    found = []
    if metastore.get_config_value(INITIATOR_ON, "true").strip().lower() != "true":
        found.append(
            f"{INITIATOR_ON}=false at the metastore: nothing is compacted unless another metastore has it "
            "on; set it to true on exactly one"
        )
    manager = metastore.get_config_value(TXN_MANAGER, DB_TXN_MANAGER).strip()
    if manager != DB_TXN_MANAGER:
        found.append(
            f"the metastore's {TXN_MANAGER} is {manager}: to see the tables, Hive sessions need "
            f"{DB_TXN_MANAGER}"
        )
    if metastore.get_config_value(SUPPORT_CONCURRENCY, "true").strip().lower() != "true":
        found.append(
            f"the metastore's {SUPPORT_CONCURRENCY} is not true: a Hive session with this setting takes no "
            "locks and cannot write the tables"
        )
    return found


def marks_of(user: str | None) -> Marks:
    """Return the identification of this process's transactions; if ``user`` is None, with its user."""
    return Marks(
        user=_mark(user or current_user()),
        hostname=_mark(socket.gethostname()),
        agent_info=_mark(f"{AGENT_NAME} pid {os.getpid()}"),
    )


def _mark(text: str) -> str:
    """Make a string storable: the server builds SQL from such strings, and its columns are short."""
    return _UNSAFE_IN_MARKS.sub("_", text)[:MAX_MARK_LENGTH]


def _abort_quietly(transaction: Transaction) -> None:
    if transaction.state is not TransactionState.OPEN or transaction.is_of_another_process:
        return
    try:
        transaction.abort(because="its client was closed")
    except ClientError as error:
        _log.warning("could not abort a transaction: %s", error)
