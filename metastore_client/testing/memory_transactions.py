"""MemoryTransactions: transactions, their write ids and locks in the in-memory metastore."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    NoSuchLockError,
    NoSuchTxnError,
    TxnAbortedError,
    TxnOpenError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    CompactionType,
    DataOperationType,
    HeartbeatResult,
    LockInfo,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
    OpenTxns,
    TxnInfo,
    TxnState,
    WriteNotification,
)
from metastore_client.partition_name import check_name
from metastore_client.testing.lock_queue import LockQueue
from metastore_client.testing.memory_tables import MemoryTables
from metastore_client.testing.server_calls import server_call
from metastore_client.testing.written_resources import (
    OPERATION_LETTERS,
    Resource,
    Written,
    recorded,
    resource_of,
)
from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList, ValidWriteIdList


class _Committed(NamedTuple):
    """A committed update or delete. ``commit_id`` is the highest id assigned before its commit."""

    written: Written
    txn_id: int
    commit_id: int


@dataclass
class _Txn:
    id: int
    user: str
    hostname: str
    agent_info: str
    started: float
    last_heartbeat: float
    aborted: bool = False
    written: list[Written] = field(default_factory=list)


class MemoryTransactions(MemoryTables):
    """The calls about transactions, write ids, locks and written files."""

    def __init__(self, warehouse: str | Path | None, **server: Any) -> None:
        super().__init__(warehouse, **server)
        self.write_notifications: list[WriteNotification] = []
        self.kept_files: dict[int, set[str]] = {}
        self._txns: dict[int, _Txn] = {}
        self._last_txn_id = 0
        self._locks = LockQueue(self._capabilities)
        self._completed: set[int] = set()
        self._write_ids: dict[tuple[str, str], dict[int, int]] = {}
        self._write_set: list[_Committed] = []

    # -- transactions ------------------------------------------------------------------------------
    @server_call
    def open_txn(
        self, user: str, hostname: str, agent_info: str, *, compaction: CompactionType | None = None
    ) -> int:
        """Open one transaction and return its id. See :meth:`MetastoreClient.open_txn`."""
        del compaction  # nothing here waits for it
        self._last_txn_id += 1
        now = self._clock()
        self._txns[self._last_txn_id] = _Txn(self._last_txn_id, user, hostname, agent_info, now, now)
        return self._last_txn_id

    @server_call
    def get_open_txns(self) -> OpenTxns:
        """Return all transactions that are open, or aborted and not yet cleaned.

        See :meth:`MetastoreClient.get_open_txns`.
        """
        return OpenTxns(
            self._last_txn_id,
            tuple(
                TxnInfo(
                    id=txn.id,
                    state=TxnState.ABORTED if txn.aborted else TxnState.OPEN,
                    user=txn.user,
                    hostname=txn.hostname,
                    agent_info=txn.agent_info,
                    started_time=round(txn.started * 1000),
                    last_heartbeat_time=round(txn.last_heartbeat * 1000),
                )
                for txn in sorted(self._txns.values(), key=lambda t: t.id)
            ),
        )

    @server_call
    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        """Send a heartbeat for the transactions first..last, both included.

        See :meth:`MetastoreClient.heartbeat_txn_range`.
        """
        aborted, nosuch = set(), set()
        for txn_id in range(first, last + 1):
            txn = self._txns.get(txn_id)
            if txn is None:
                nosuch.add(txn_id)
            elif txn.aborted:
                aborted.add(txn_id)
            else:
                txn.last_heartbeat = self._clock()
        return HeartbeatResult(frozenset(aborted), frozenset(nosuch))

    @server_call
    def commit_txn(self, txn_id: int) -> None:
        """Commit a transaction. The client never repeats this call.

        See :meth:`MetastoreClient.commit_txn`.
        """
        if txn_id not in self._txns and txn_id in self._completed:
            return
        txn = self._open_txn(txn_id)
        changes = {w for w in txn.written if w.operation in ("u", "d")}
        conflict = self._conflict(txn_id, changes)
        if conflict is not None:
            self._abort(txn)
            raise TxnAbortedError(conflict)
        self._write_set.extend(_Committed(written, txn_id, self._last_txn_id) for written in changes)
        if txn.written or self._capabilities.has_exclusive_write_lock:  # 4.x remembers empty ones for a while
            self._completed.add(txn_id)
        del self._txns[txn_id]
        self.kept_files.pop(txn_id, None)
        self._locks.remove_of(txn_id)
        self._forget_old_writes()

    @server_call
    def abort_txn(self, txn_id: int) -> None:
        """Abort a transaction. Aborting an aborted transaction succeeds.

        See :meth:`MetastoreClient.abort_txn`.
        """
        txn = self._txns.get(txn_id)
        if txn is None:
            raise self._no_such_txn(txn_id)
        self._abort(txn)

    @server_call
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

        See :meth:`MetastoreClient.add_dynamic_partitions`.
        """
        txn = self._open_txn(txn_id)
        if operation not in OPERATION_LETTERS:
            raise MetastoreError(f"unexpected operation {operation.name} for add_dynamic_partitions")
        for name in partition_names:
            check_name(name, f"{database}.{table}")
        if partition_names and self._capabilities.has_write_ids and write_id is None:
            raise InvalidRequestError(f"{database}.{table}: a server with write ids requires the writer's id")
        whole = Resource(database.lower(), table.lower(), None)
        if partition_names:
            txn.written = [w for w in txn.written if not (w.is_placeholder and w.resource == whole)]
        txn.written.extend(
            Written(whole._replace(partition=name), OPERATION_LETTERS[operation]) for name in partition_names
        )

    def _open_txn(self, txn_id: int) -> _Txn:
        txn = self._txns.get(txn_id)
        if txn is None:
            raise self._no_such_txn(txn_id)
        if txn.aborted:
            raise TxnAbortedError(f"Transaction txnid:{txn_id} already aborted")
        return txn

    def _no_such_txn(self, txn_id: int) -> NoSuchTxnError:
        if txn_id in self._completed:
            return NoSuchTxnError(f"Transaction txnid:{txn_id} is already committed.")
        return NoSuchTxnError(f"No such transaction txnid:{txn_id}")

    def _abort(self, txn: _Txn) -> None:
        txn.aborted = True
        self.kept_files.pop(txn.id, None)
        self.write_notifications = [n for n in self.write_notifications if n.txn_id != txn.id]
        self._locks.remove_of(txn.id)

    def _conflict(self, txn_id: int, changes: Iterable[Written]) -> str | None:
        """Return Hive's message about a committed change that the transaction did not see, or None.

        The first committer wins.
        """
        may_not_both_delete = self._capabilities.has_exclusive_write_lock
        for ours in sorted(changes, key=str):
            for theirs in self._write_set:
                if (
                    theirs.written.resource == ours.resource
                    and theirs.commit_id >= txn_id
                    and (may_not_both_delete or "u" in (theirs.written.operation, ours.operation))
                ):
                    return (
                        f"Aborting [txnid:{txn_id},{self._last_txn_id}] "
                        f"due to a write conflict on {ours.resource} "
                        f"committed by [txnid:{theirs.txn_id},{theirs.commit_id}] "
                        f"{ours.operation}/{theirs.written.operation}"
                    )
        return None

    def _forget_old_writes(self) -> None:
        first_open = min((t.id for t in self._txns.values() if not t.aborted), default=self._last_txn_id + 1)
        self._write_set = [w for w in self._write_set if w.commit_id >= first_open]

    # -- write ids -----------------------------------------------------------------------------------
    @server_call
    def allocate_write_id(self, txn_id: int, database: str, table: str) -> int:
        """Return the transaction's write id for a table. Repeated calls return the same id.

        See :meth:`MetastoreClient.allocate_write_id`.
        """
        self._require_write_ids()
        self._open_txn(txn_id)
        ids = self._write_ids.setdefault((database.lower(), table.lower()), {})
        return ids.setdefault(txn_id, len(ids) + 1)

    @server_call
    def get_valid_write_ids(
        self, full_names: Sequence[str], valid_txn_list: ValidTxnList
    ) -> dict[str, ValidWriteIdList]:
        """Return the write ids of tables (``database.table``) that belong to the transactions of a snapshot.

        See :meth:`MetastoreClient.get_valid_write_ids`.
        """
        self._require_write_ids()
        names = sorted({name.lower() for name in full_names})
        return {name: self._valid_write_ids(name, valid_txn_list) for name in names}

    @server_call
    def keep_files(self, txn_id: int, full_names: Sequence[str]) -> None:
        """Prevent the cleaner from removing any file of the tables until the transaction ends.

        See :meth:`MetastoreClient.keep_files`.
        """
        if not self._capabilities.has_min_history:
            raise UnsupportedByServerError(
                "the server does not accept the list of tables that a transaction reads"
            )
        self.kept_files.setdefault(txn_id, set()).update(name.lower() for name in full_names)

    @server_call
    def add_write_notifications(self, notifications: Sequence[WriteNotification]) -> None:
        """Report to the server which files a transaction wrote, before it commits.

        See :meth:`MetastoreClient.add_write_notifications`.
        """
        if not self._capabilities.has_write_notifications:
            raise UnsupportedByServerError("the server does not accept notifications of written files")
        for notification in notifications:
            self._table(notification.database, notification.table)
        self.write_notifications.extend(notifications)

    def _require_write_ids(self) -> None:
        if not self._capabilities.has_write_ids:
            raise UnsupportedByServerError("the server has no write ids")

    def _valid_write_ids(self, full_name: str, txns: ValidTxnList) -> ValidWriteIdList:
        """Return the write ids up to the highest id of the snapshot's transactions, as servers do.

        If the snapshot has none, return those up to the last id of all.
        """
        database, dot, table = full_name.partition(".")
        if not (database and dot and table):
            raise InvalidRequestError(f"get_valid_write_ids: expected database.table, got {full_name!r}")
        ids = self._write_ids.get((database, table), {})
        watermark = max((ids[t] for t in ids if t <= txns.high_watermark), default=len(ids))
        invalid = {id: txn for txn, id in ids.items() if id <= watermark and not txns.is_valid(txn)}
        aborted = frozenset(id for id, txn in invalid.items() if txn in txns.aborted)
        min_open = min(set(invalid) - aborted, default=NO_OPEN_ID)
        if self._capabilities.has_exclusive_write_lock and invalid and len(invalid) == watermark:
            watermark = min(invalid)  # if none is valid, 4.x names only the first
            return ValidWriteIdList(watermark, (watermark,), min_open, aborted & {watermark}, full_name)
        return ValidWriteIdList(watermark, tuple(sorted(invalid)), min_open, aborted, full_name)

    # -- locks -------------------------------------------------------------------------------------
    @server_call
    def lock(self, request: LockRequest) -> LockResponse:
        """Request a lock once. The client never repeats this call, not even after a broken connection.

        See :meth:`MetastoreClient.lock`.
        """
        if not request.components:
            raise InvalidRequestError("a lock request must have components, got none")
        if not self._capabilities.has_exclusive_write_lock and any(
            c.type is LockType.EXCL_WRITE for c in request.components
        ):
            raise UnsupportedByServerError("the server does not have the lock type EXCL_WRITE")
        resources = tuple(resource_of(component) for component in request.components)
        written = [w for c in request.components if (w := recorded(c, self._capabilities)) is not None]
        if request.txn_id > 0:
            self._open_txn(request.txn_id).written.extend(written)
        return self._locks.try_to_grant(self._locks.add(request, resources, self._clock()))

    @server_call
    def check_lock(self, lock_id: int, txn_id: int) -> LockResponse:
        """Check the state of a waiting lock. The call also counts as a heartbeat.

        See :meth:`MetastoreClient.check_lock`.
        """
        lock = self._locks.get(lock_id)
        if lock is None:
            raise NoSuchLockError(f"No such lock lockid:{lock_id}")
        if lock.request.txn_id > 0:
            self._open_txn(lock.request.txn_id).last_heartbeat = self._clock()
        lock.last_heartbeat = self._clock()
        return self._locks.try_to_grant(lock)

    @server_call
    def unlock(self, lock_id: int) -> None:
        """Release a waiting lock.

        See :meth:`MetastoreClient.unlock`. A missing lock is not an error, as on 2.3.
        """
        lock = self._locks.get(lock_id)
        if lock is None:
            return
        if lock.request.txn_id > 0 and lock.state is LockState.ACQUIRED:
            raise TxnOpenError(
                f"Unlocking locks associated with transaction not permitted. lockid:{lock_id} "
                f"txnid:{lock.request.txn_id}"
            )
        self._locks.remove(lock_id)

    @server_call
    def show_locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """Return all locks, or those of a database or table. See :meth:`MetastoreClient.show_locks`."""
        return self._locks.shown(database, table)
