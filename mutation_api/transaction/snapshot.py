"""Snapshot: a consistent view of some tables, protected while it is read.

It is a read-only transaction. Its read lock keeps Hive's cleaner from removing the snapshot's files, and its
heartbeat keeps the lock alive.

A :class:`ClientSession` has the objects that all transactions and snapshots of a connected client share. Only
the process that created such objects can use them.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from metastore_client.model import (
    CompactionType,
    LockComponent,
    LockLevel,
    LockType,
    PartitionInfo,
    TableInfo,
)
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.errors import ClientError, ConfigurationError, TransactionStateError
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.catalog import Catalog, OpenTable, TableSpec
from mutation_api.transaction.clock import Clock
from mutation_api.transaction.commit_outcome import (
    Outcome,
    commit_and_find_out,
    refused_commit,
    unknown_outcome,
)
from mutation_api.transaction.lease import Lease, LeaseSettings
from mutation_api.transaction.listener import LockFailureListener, metastore_errors_as_ours
from mutation_api.transaction.lock import lock_components, rebalance_lock
from mutation_api.transaction.machine_queue import in_turn

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClientSession:
    """A metastore, the settings for its use, and the tables that all transactions of the client use."""

    metastore: MetastoreClient
    clock: Clock
    settings: LeaseSettings
    catalog: Catalog
    specs: tuple[TableSpec, ...]
    listener: LockFailureListener | None

    def in_turn(self, tables: Sequence[str]) -> AbstractContextManager[None]:
        """Return the block for describing or changing tables; see :func:`.machine_queue.in_turn`."""
        return in_turn(self.metastore, tables, self.clock)

    def tell_listener(
        self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception
    ) -> None:
        """Report a loss to the user's listener. Its exceptions are logged."""
        if self.listener is None:
            return
        try:
            self.listener.lock_failed(lock_id, txn_id, tables, error)
        except Exception:
            _log.exception("the LockFailureListener failed when transaction %d was lost", txn_id)


def call_quietly(callback: Callable[[ClientError], None], error: ClientError) -> None:
    """Report a loss to a callback. Its exceptions are logged."""
    try:
        callback(error)
    except Exception:
        _log.exception("a callback for the loss of a transaction failed")


_WAY_ON = (
    "send rows to the process that began it, or let workers write with the descriptor of a table "
    "(MutatorCoordinator with Transaction.table(name)) and add their manifests there"
)


class NotPickled:
    """Base class of objects that hold connections: they cannot be sent to another process or copied."""

    WHAT: ClassVar[str]
    """The object's name in messages, with an article."""
    WAY_ON: ClassVar[str] = (
        "connect in each process by the metastore's address, or read here and send Arrow tables"
    )
    """Advice on how to proceed instead."""

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled. Raises TransactionStateError."""
        raise TransactionStateError(f"{self.WHAT} cannot be pickled for another process: {self.WAY_ON}")

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        """Refuse to be pickled. Raises TransactionStateError."""
        self.__reduce__()


class ClosedAtEnd(ABC):
    """Base class of context managers that are closed at the end of their block."""

    @abstractmethod
    def close(self) -> None:
        """Close. May be called twice."""

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class OfOneProcess(NotPickled):
    """Base class of objects whose heartbeat and changes belong to one process.

    A forked process holds a copy. Changes that are added to the copy are lost, and ending the copy would end
    the transaction of the first process.
    """

    WHAT = "a transaction"
    WAY_ON = _WAY_ON

    def __init__(self) -> None:
        self._process_id = os.getpid()

    @property
    def is_of_another_process(self) -> bool:
        """True if this is a copy in a forked process."""
        return os.getpid() != self._process_id

    def check_process(self) -> None:
        """Raise TransactionStateError in another process."""
        if self.is_of_another_process:
            raise TransactionStateError(
                f"this transaction belongs to process {self._process_id}; process {os.getpid()}, which was "
                f"forked, cannot use it: {_WAY_ON}"
            )


class Snapshot(ClosedAtEnd, NotPickled):
    """The tables as they were when the snapshot was opened, until :meth:`close`.

    See ``MutatorClient.open_snapshot``.
    """

    WHAT = "a snapshot"

    def __init__(
        self,
        session: ClientSession,
        specs: tuple[TableSpec, ...],
        *,
        compaction: CompactionType | None = None,
        partitions: Sequence[str] = (),
        is_exclusive: bool = False,
    ) -> None:
        self._session = session
        self._specs = specs
        self._compaction = compaction
        self._partitions = partitions
        self._is_exclusive = is_exclusive
        self._tables: dict[str, OpenTable] = {}
        self._lease: Lease | None = None

    def open(self) -> Snapshot:
        """Lock the tables for reading and read their descriptions; called once.

        Raises TableNotMutableError (if a table has no ROW__IDs), LockNotAcquiredError,
        ConnectionFailedError.
        """
        session = self._session
        lease = Lease(
            session.metastore,
            session.clock,
            self._to_lock,
            session.settings,
            self._lose,
            [spec.full_name for spec in self._specs] if self._gives_new_row_ids else (),
            compaction=self._compaction,
        )
        lease.acquire()
        self._lease = lease
        try:
            with metastore_errors_as_ours("could not read the tables of a snapshot"):
                opened = [self._read(session.catalog, spec) for spec in self._specs]
        except BaseException:
            self.close()
            raise
        self._tables = {o.table.full_name: o for o in opened}
        return self

    def _read(self, catalog: Catalog, spec: TableSpec) -> OpenTable:
        """Read a table; for a compaction only its partitions, since there may be thousands."""
        if self._compaction is not None:
            return catalog.read_with_these_partitions(spec, self._partitions)
        return catalog.with_partitions(catalog.read_with_partition_names(spec))

    @property
    def closed(self) -> bool:
        """True if it was closed or never opened. A snapshot that has lost its lock is not closed."""
        return self._lease is None

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The transactions that the snapshot sees."""
        return self._open_lease().valid_txn_list

    @property
    def txn_id(self) -> int:
        """The id of the reading transaction."""
        return self._open_lease().txn_id

    @property
    def table_names(self) -> tuple[str, ...]:
        """The full names of its tables."""
        self._open_lease()
        return tuple(self._tables)

    def table(self, table: str) -> AcidTable:
        """Return the descriptor of a table. It is bound to no transaction, so the table can only be read."""
        return self._opened(table).table

    def description(self, table: str) -> TableInfo:
        """Return a table as the metastore described it when the snapshot was opened."""
        return self._opened(table).description

    def valid_ids(self, table: str) -> ValidIdList:
        """Return the ids in the table's files that the snapshot sees: write ids, or transaction ids in v1."""
        return self._open_lease().valid_ids(self._opened(table).table.full_name)

    def partitions(self, table: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a table; empty if it has no partition keys."""
        return self._opened(table).partitions or ()

    def check(self) -> None:
        """Raise LockLostError or TransactionAbortedError if the lock is lost; Hive may then remove files."""
        lost = self._open_lease().lost
        if lost is not None:
            raise type(lost)(str(lost)) from lost

    def confirm(self) -> None:
        """Ask the server whether the transaction is alive. Raises like :meth:`check` if it is not."""
        for heartbeat in self._open_lease().heartbeats:
            heartbeat.require()

    def commit(self) -> None:
        """End the transaction of a compaction whose files are complete.

        Raises:
            TransactionAbortedError: If it was aborted. Its files are never read.
            CommitOutcomeUnknownError: If the answer was lost and the server does not know the outcome.
        """
        lease = self._open_lease()
        lease.stop()
        self._lease = None
        session = self._session
        outcome, error = commit_and_find_out(session.metastore, session.clock, lease.txn_id, has_records=True)
        lease.release()
        if outcome is Outcome.ABORTED:
            raise refused_commit(lease.txn_id, error)
        if outcome is Outcome.UNKNOWN:
            raise unknown_outcome(lease.txn_id, error)

    def abort(self) -> None:
        """Abort the transaction. A failure is only logged, since the transaction times out."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            lease.abort()
        except MetastoreError as error:
            _log.warning("could not abort transaction %d: %s", lease.txn_id, error)

    def close(self) -> None:
        """Release the lock. May be called twice. A failure is only logged, since the lock times out."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        lease.stop()
        try:
            self._session.metastore.commit_txn(lease.txn_id)
        except MetastoreError as error:
            _log.warning("could not end the reading transaction %d: %s", lease.txn_id, error)

    @property
    def _gives_new_row_ids(self) -> bool:
        return self._compaction is CompactionType.REBALANCE

    def _to_lock(self) -> tuple[LockComponent, ...]:
        if self._gives_new_row_ids:
            (spec,) = self._specs
            return tuple(rebalance_lock(spec.database, spec.name, each) for each in self._partitions)
        catalog = self._session.catalog
        with metastore_errors_as_ours("could not read the tables of a snapshot"):
            components = lock_components([catalog.to_lock(s) for s in self._specs])
        if not self._is_exclusive:
            return components
        return tuple(
            # Partitions stay locked for reading, for the cleaner of Hive 2 and 3.
            replace(each, type=LockType.EXCLUSIVE) if each.level is LockLevel.TABLE else each
            for each in components
        )

    def _opened(self, table: str) -> OpenTable:
        self._open_lease()
        opened = self._tables.get(table.strip().lower())
        if opened is None:
            raise ConfigurationError(
                f"table {table} is not in this snapshot, which contains {', '.join(self._tables)}"
            )
        return opened

    def _open_lease(self) -> Lease:
        if self._lease is None:
            raise TransactionStateError(
                "the snapshot is closed; open another one with client.open_snapshot()"
            )
        return self._lease

    def _lose(self, error: ClientError) -> None:
        lease = self._lease
        if lease is not None:
            _log.error("a snapshot of %s is lost: %s", ", ".join(s.full_name for s in self._specs), error)
            tables = [s.full_name for s in self._specs]
            self._session.tell_listener(lease.lock_id, lease.txn_id, tables, error)
