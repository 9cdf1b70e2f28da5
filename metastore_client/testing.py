"""An in-memory metastore for tests: yours and ours.

:class:`InMemoryMetastore` follows the rules of Hive's transaction handler (ids, write ids, locks, recorded
components, conflict check at commit, time-outs) and passes the same contract suite as real servers. It is
server and client in one object: pass it wherever a :class:`~metastore_client.client.MetastoreClient` is
expected. Its capabilities decide which Hive it behaves like::

    InMemoryMetastore()                               # Hive 2.3
    InMemoryMetastore(capabilities=HIVE_3_1)
    InMemoryMetastore(capabilities=HIVE_4_1)

    metastore = InMemoryMetastore()
    metastore.create_table(TableInfo("default", "t", (ColumnInfo("id", "int"),), ...))
    metastore.fail_next("commit_txn", MetastoreUnavailableError("connection cut"), after=True)

Two faults of real servers are left out on purpose. Real servers grant a second ``lock`` in one transaction
past the transaction's own waiting one (2.3, 3.1), and they compare names with case (2.3).

Source: TxnHandler and CompactionTxnHandler of Hive 2.3; for 3.1 and 4.1 the behaviour of 3.1.3 and 4.1.0
    (tests/contract).
"""

from __future__ import annotations

import functools
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from metastore_client.capabilities import Capabilities
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    MetastoreError,
    NoSuchLockError,
    NoSuchObjectError,
    NoSuchTxnError,
    TxnAbortedError,
    TxnOpenError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    ColumnStatistics,
    CompactionInfo,
    CompactionType,
    DataOperationType,
    HeartbeatResult,
    LockComponent,
    LockInfo,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
    OpenTxns,
    PartitionInfo,
    TableInfo,
    TxnInfo,
    TxnState,
    WriteNotification,
)
from metastore_client.partition_name import (
    DEFAULT_PARTITION_NAME,
    check_partition_name,
    make_partition_name,
)
from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList, ValidWriteIdList

__all__ = ["HIVE_2_3", "HIVE_3_1", "HIVE_4_1", "TXN_TIMEOUT_SECONDS_DEFAULT", "InMemoryMetastore"]

HIVE_2_3 = Capabilities(version="3.0", has_write_ids=False)
"""The capabilities of a Hive 2.3 server."""
HIVE_3_1 = Capabilities(version="3.0", has_write_ids=True)
"""The capabilities of a Hive 3.1 server; it reports the same version as 2.3."""
HIVE_4_1 = Capabilities(
    version="4.1.0",
    has_write_ids=True,
    has_exclusive_write_lock=True,
    has_write_notifications=True,
    has_min_history=True,
)
"""The capabilities of a Hive 4.1 server."""

TXN_TIMEOUT_SECONDS_DEFAULT = 300.0
"""``hive.txn.timeout``: a transaction or lock without a heartbeat for longer than this is reaped."""

_COLUMN_STATS_ACCURATE = "COLUMN_STATS_ACCURATE"
_OPERATION_LETTERS = {
    DataOperationType.SELECT: "s",
    DataOperationType.INSERT: "i",
    DataOperationType.UPDATE: "u",
    DataOperationType.DELETE: "d",
}
_WAITS = {
    LockType.SHARED_READ: {LockType.EXCLUSIVE},
    LockType.SHARED_WRITE: {LockType.SHARED_WRITE, LockType.EXCLUSIVE},
    LockType.EXCLUSIVE: {LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE},
}
"""Requested type -> types of earlier locks of other transactions for which it waits; 2.3 and 3.1."""

_WAITS_OF_EXCLUSIVE_WRITERS = {
    LockType.SHARED_READ: {LockType.EXCLUSIVE},
    LockType.SHARED_WRITE: {LockType.EXCL_WRITE, LockType.EXCLUSIVE},
    LockType.EXCL_WRITE: {LockType.SHARED_WRITE, LockType.EXCL_WRITE, LockType.EXCLUSIVE},
    LockType.EXCLUSIVE: set(LockType),
}
"""The same for 4.x, which distinguishes exclusive writers from optimistic ones."""

_WAITS_FOR_WAITING = {
    LockType.SHARED_READ: set[LockType](),
    LockType.SHARED_WRITE: {LockType.SHARED_WRITE},
    LockType.EXCLUSIVE: {LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE},
}
"""The same for earlier locks that still wait; 2.3 only. Later releases treat a waiting lock as a held one."""

P = ParamSpec("P")
R = TypeVar("R")


class _Resource(NamedTuple):
    """The resource of a component: a table, or one partition of it."""

    database: str
    table: str | None
    partition: str | None

    def overlaps(self, other: _Resource) -> bool:
        """Whether both may touch the same rows: an unnamed table or partition stands for all of them."""
        return (
            self.database == other.database
            and (self.table is None or other.table is None or self.table == other.table)
            and (self.partition is None or other.partition is None or self.partition == other.partition)
        )

    def __str__(self) -> str:
        return "/".join(filter(None, self))


class _Written(NamedTuple):
    """A recorded component: the resource a transaction writes and how (one letter).

    ``is_placeholder``: it stands for partitions that are not registered yet.
    """

    resource: _Resource
    operation: str
    is_placeholder: bool = False


class _Committed(NamedTuple):
    """A committed update or delete; ``commit_id`` is the highest id given out when it committed."""

    written: _Written
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
    written: list[_Written] = field(default_factory=list)


@dataclass
class _Lock:
    """One lock request with all its components; they share their state."""

    id: int
    request: LockRequest
    resources: tuple[_Resource, ...]
    last_heartbeat: float
    state: LockState = LockState.WAITING
    blocked_by: tuple[int | None, ...] = ()


@dataclass
class _Table:
    info: TableInfo
    partitions: dict[str, PartitionInfo] = field(default_factory=dict)
    column_statistics: dict[str, tuple[ColumnStatistics, ...]] = field(default_factory=dict)


@dataclass
class _Fault:
    call: str
    error: BaseException
    after: bool


def _call(
    method: Callable[Concatenate[InMemoryMetastore, P], R],
) -> Callable[Concatenate[InMemoryMetastore, P], R]:
    """Make a method behave like a call to a server: serialised, recorded, and able to fail on demand."""

    def called(self: InMemoryMetastore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._mutex:
            self.calls.append(method.__name__)
            fault = self._take_fault(method.__name__)
            if fault is not None and not fault.after:
                raise fault.error
            result = method(self, *args, **kwargs)
            if fault is not None:
                raise fault.error
            return result

    functools.update_wrapper(called, method)
    return called


class InMemoryMetastore:
    """A metastore that lives in this process.

    Thread safe. ``calls`` names every call in the order of arrival.

    Args:
        warehouse: directory under which tables get their default location. Directories of tables and
            partitions are then created (and removed by ``drop_table``), as a server does. Without a warehouse
            the disk is not touched.
        txn_timeout_seconds: age of the last heartbeat at which :meth:`reap` aborts a transaction.
        clock: seconds since 1970; pass your own to let time pass in a test.
        configuration: answers of :meth:`get_config_value`.
        capabilities: which release of Hive it behaves like: HIVE_2_3, HIVE_3_1 or HIVE_4_1.

    Attributes:
        calls: see above.
        write_notifications: those received by :meth:`add_write_notifications`, without aborted transactions.
        kept_files: open transaction -> tables of which it keeps the files; see :meth:`keep_files`.
    """

    def __init__(
        self,
        warehouse: str | Path | None = None,
        *,
        txn_timeout_seconds: float = TXN_TIMEOUT_SECONDS_DEFAULT,
        clock: Callable[[], float] = time.time,
        configuration: Mapping[str, str] | None = None,
        capabilities: Capabilities = HIVE_2_3,
    ) -> None:
        self.calls: list[str] = []
        self.write_notifications: list[WriteNotification] = []
        self.kept_files: dict[int, set[str]] = {}
        self._capabilities = capabilities
        self.txn_timeout_seconds = txn_timeout_seconds
        self._warehouse = None if warehouse is None else Path(warehouse).absolute()
        self._clock = clock
        self._configuration = {
            "hive.txn.timeout": f"{round(txn_timeout_seconds * 1000)}ms",
            "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
            "hive.compactor.initiator.on": "true",
            "hive.exec.default.partition.name": DEFAULT_PARTITION_NAME,
            **(configuration or {}),
        }
        self._mutex = threading.RLock()
        self._faults: list[_Fault] = []
        self._databases: dict[str, str] = {"default": self._database_location("default")}
        self.database_parameters: dict[str, dict[str, str]] = {"default": {}}
        self._tables: dict[tuple[str, str], _Table] = {}
        self._txns: dict[int, _Txn] = {}
        self._last_txn_id = 0
        self._last_lock_id = 0
        self._locks: dict[int, _Lock] = {}
        self._completed: set[int] = set()
        self._write_ids: dict[tuple[str, str], dict[int, int]] = {}
        self._write_set: list[_Committed] = []
        self._compactions: list[CompactionInfo] = []

    # -- what a test can do to the server ----------------------------------------------------------
    def fail_next(self, call: str, error: BaseException, *, after: bool = False, times: int = 1) -> None:
        """Let the next calls of a name fail.

        Args:
            call: a method of :class:`~metastore_client.client.MetastoreClient`, such as ``"commit_txn"``.
            error: the error to raise.
            after: True: the call takes effect first, as if only the answer were lost.
            times: number of calls that fail.
        """
        if not hasattr(self, call):
            raise ValueError(f"no such call: {call}")
        with self._mutex:
            self._faults.extend(_Fault(call, error, after) for _ in range(times))

    def reap(self) -> tuple[int, ...]:
        """Do what the server's reaper does: abort transactions and drop separate locks without heartbeats.

        Returns:
            The ids of the aborted transactions.
        """
        with self._mutex:
            oldest = self._clock() - self.txn_timeout_seconds
            dead = tuple(t.id for t in self._txns.values() if not t.aborted and t.last_heartbeat < oldest)
            for txn_id in dead:
                self._abort(self._txns[txn_id])
            for lock in list(self._locks.values()):
                if lock.request.txn_id == 0 and lock.last_heartbeat < oldest:
                    del self._locks[lock.id]
            return dead

    def forget_empty_aborted(self) -> tuple[int, ...]:
        """Do what the server's compaction initiator does: remove aborted transactions that recorded nothing.

        From then on readers take their ids for committed.
        """
        with self._mutex:
            empty = tuple(t.id for t in self._txns.values() if t.aborted and not t.written)
            for txn_id in empty:
                del self._txns[txn_id]
            return empty

    def _take_fault(self, call: str) -> _Fault | None:
        fault = next((f for f in self._faults if f.call == call), None)
        if fault is not None:
            self._faults.remove(fault)
        return fault

    # -- the server --------------------------------------------------------------------------------
    @_call
    def capabilities(self) -> Capabilities:
        """The capabilities given at the start."""
        return self._capabilities

    @_call
    def get_config_value(self, name: str, default: str) -> str:
        """Answer from the configuration given at the start."""
        return self._configuration.get(name, default)

    def close(self) -> None:
        """Does nothing: the server and its transactions live on."""

    # -- databases, tables, partitions -------------------------------------------------------------
    @_call
    def create_database(
        self, name: str, location: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        """See :meth:`MetastoreClient.create_database`."""
        name = name.lower()
        if name in self._databases:
            raise AlreadyExistsError(f"Database {name} already exists")
        self._databases[name] = location or self._database_location(name)
        self.database_parameters[name] = dict(parameters or {})

    @_call
    def get_database_parameters(self, database: str) -> Mapping[str, str]:
        """See :meth:`MetastoreClient.get_database_parameters`."""
        if database.lower() not in self._databases:
            raise NoSuchObjectError(f"Database {database} does not exist")
        return dict(self.database_parameters[database.lower()])

    @_call
    def get_all_tables(self, database: str) -> list[str]:
        """See :meth:`MetastoreClient.get_all_tables`."""
        return sorted(name for in_database, name in self._tables if in_database == database.lower())

    @_call
    def create_table(self, table: TableInfo) -> None:
        """See :meth:`MetastoreClient.create_table`."""
        database, name = table.database.lower(), table.name.lower()
        if database not in self._databases:
            raise InvalidRequestError(f"The database {database} does not exist")
        if (database, name) in self._tables:
            raise AlreadyExistsError(f"Table {name} already exists")
        location = table.location or f"{self._databases[database]}/{name}"
        stored = replace(
            table,
            database=database,
            name=name,
            location=location,
            columns=tuple(replace(c, name=c.name.lower()) for c in table.columns),
            partition_keys=tuple(replace(c, name=c.name.lower()) for c in table.partition_keys),
            parameters=_checked_parameters(table, self._capabilities),
        )
        if self._capabilities.has_exclusive_write_lock:
            stored = _translated(stored)
        self._make_directory(location)
        self._tables[database, name] = _Table(stored)

    @_call
    def drop_table(self, database: str, table: str, *, delete_data: bool) -> None:
        """See :meth:`MetastoreClient.drop_table`."""
        location = self._table(database, table).info.location
        del self._tables[database.lower(), table.lower()]
        if delete_data and self._warehouse is not None:
            shutil.rmtree(_local_path(location), ignore_errors=True)

    @_call
    def get_table(self, database: str, table: str) -> TableInfo:
        """See :meth:`MetastoreClient.get_table`."""
        return self._table(database, table).info

    @_call
    def get_partition_names(self, database: str, table: str) -> list[str]:
        """See :meth:`MetastoreClient.get_partition_names`."""
        return sorted(self._table(database, table).partitions)

    @_call
    def get_partitions_by_names(self, database: str, table: str, names: Sequence[str]) -> list[PartitionInfo]:
        """See :meth:`MetastoreClient.get_partitions_by_names`."""
        partitions = self._table(database, table).partitions
        return [partitions[name] for name in sorted(set(names)) if name in partitions]

    @_call
    def add_partitions(
        self, database: str, table: str, values: Sequence[Sequence[str]]
    ) -> list[PartitionInfo]:
        """See :meth:`MetastoreClient.add_partitions`."""
        stored = self._table(database, table)
        keys = [key.name for key in stored.info.partition_keys]
        wanted = {_checked_partition_name(stored.info, keys, each): tuple(each) for each in values}
        created = []
        for name, texts in wanted.items():
            if name in stored.partitions:
                continue
            location = f"{stored.info.location}/{name}"
            self._make_directory(location)
            partition = PartitionInfo(stored.info.database, stored.info.name, texts, name, location)
            stored.partitions[name] = partition
            created.append(partition)
        return created

    @_call
    def set_table_parameters(self, database: str, table: str, changes: Mapping[str, str | None]) -> None:
        """See :meth:`MetastoreClient.set_table_parameters`."""
        stored = self._table(database, table)
        kept = {name: value for name, value in stored.info.parameters.items() if name not in changes}
        given = {name: value for name, value in changes.items() if value is not None}
        stored.info = replace(stored.info, parameters=kept | given)

    @_call
    def clear_accurate_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        *,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> int:
        """See :meth:`MetastoreClient.clear_accurate_statistics`."""
        stored = self._table(database, table)
        if (write_id is None) != (valid_write_ids is None):
            raise InvalidRequestError(f"{database}.{table}: a write id and valid write ids go together")
        if partition_names is None:
            had = _COLUMN_STATS_ACCURATE in stored.info.parameters
            stored.info = replace(stored.info, parameters=_without_accuracy(stored.info.parameters))
            return int(had)
        cleared = 0
        for name in dict.fromkeys(partition_names):
            partition = stored.partitions.get(name)
            if partition is not None and _COLUMN_STATS_ACCURATE in partition.parameters:
                stored.partitions[name] = replace(
                    partition, parameters=_without_accuracy(partition.parameters)
                )
                cleared += 1
        return cleared

    @_call
    def get_column_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        columns: Sequence[str],
        *,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> dict[str, tuple[ColumnStatistics, ...]]:
        """See :meth:`MetastoreClient.get_column_statistics`; valid ids change nothing."""
        recorded = self._table(database, table).column_statistics
        wanted = {name.lower() for name in columns}
        found = {
            name: tuple(each for each in recorded.get(name, ()) if each.column in wanted)
            for name in ([""] if partition_names is None else sorted(set(partition_names)))
        }
        return {name: statistics for name, statistics in found.items() if statistics}

    def set_column_statistics(
        self, database: str, table: str, partition: str | None, statistics: Sequence[ColumnStatistics]
    ) -> None:
        """Record statistics of columns for a table (``partition`` None) or a partition, as ANALYZE does."""
        with self._mutex:
            ordered = tuple(sorted(statistics, key=lambda each: each.column))
            self._table(database, table).column_statistics[partition or ""] = ordered

    def set_parameters(
        self, database: str, table: str, partition: str | None, parameters: Mapping[str, str]
    ) -> None:
        """Replace the parameters of a table (``partition`` None) or of a partition, like an ALTER."""
        with self._mutex:
            stored = self._table(database, table)
            if partition is None:
                stored.info = replace(stored.info, parameters=dict(parameters))
                return
            if partition not in stored.partitions:
                raise NoSuchObjectError(f"{stored.info.full_name} has no partition {partition}")
            changed = replace(stored.partitions[partition], parameters=dict(parameters))
            stored.partitions[partition] = changed

    def _table(self, database: str, table: str) -> _Table:
        stored = self._tables.get((database.lower(), table.lower()))
        if stored is None:
            raise NoSuchObjectError(f"{database.lower()}.{table.lower()} table not found")
        return stored

    def _database_location(self, name: str) -> str:
        root = f"file:{self._warehouse or '/warehouse'}"
        return root if name == "default" else f"{root}/{name}.db"

    def _make_directory(self, location: str) -> None:
        if self._warehouse is not None:
            _local_path(location).mkdir(parents=True, exist_ok=True)

    # -- transactions ------------------------------------------------------------------------------
    @_call
    def open_txn(self, user: str, hostname: str, agent_info: str) -> int:
        """See :meth:`MetastoreClient.open_txn`."""
        self._last_txn_id += 1
        now = self._clock()
        self._txns[self._last_txn_id] = _Txn(self._last_txn_id, user, hostname, agent_info, now, now)
        return self._last_txn_id

    @_call
    def get_open_txns(self) -> OpenTxns:
        """See :meth:`MetastoreClient.get_open_txns`."""
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

    @_call
    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        """See :meth:`MetastoreClient.heartbeat_txn_range`."""
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

    @_call
    def commit_txn(self, txn_id: int) -> None:
        """See :meth:`MetastoreClient.commit_txn`."""
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
        self._drop_locks_of(txn_id)
        self._forget_old_writes()

    @_call
    def abort_txn(self, txn_id: int) -> None:
        """See :meth:`MetastoreClient.abort_txn`."""
        txn = self._txns.get(txn_id)
        if txn is None:
            raise self._no_such_txn(txn_id)
        self._abort(txn)

    @_call
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
        """See :meth:`MetastoreClient.add_dynamic_partitions`."""
        txn = self._open_txn(txn_id)
        if operation not in _OPERATION_LETTERS:
            raise MetastoreError(f"unexpected operation {operation.name} for add_dynamic_partitions")
        for name in partition_names:
            _check_name(name, f"{database}.{table}")
        if partition_names and self._capabilities.has_write_ids and write_id is None:
            raise InvalidRequestError(f"{database}.{table}: a server with write ids wants the writer's")
        whole = _Resource(database.lower(), table.lower(), None)
        if partition_names:
            txn.written = [w for w in txn.written if not (w.is_placeholder and w.resource == whole)]
        txn.written.extend(
            _Written(whole._replace(partition=name), _OPERATION_LETTERS[operation])
            for name in partition_names
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
        self._drop_locks_of(txn.id)

    def _conflict(self, txn_id: int, changes: Iterable[_Written]) -> str | None:
        """Hive's text about a committed change that the transaction did not see: the first committer wins."""
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
    @_call
    def allocate_write_id(self, txn_id: int, database: str, table: str) -> int:
        """See :meth:`MetastoreClient.allocate_write_id`."""
        self._require_write_ids()
        self._open_txn(txn_id)
        ids = self._write_ids.setdefault((database.lower(), table.lower()), {})
        return ids.setdefault(txn_id, len(ids) + 1)

    @_call
    def get_valid_write_ids(
        self, full_names: Sequence[str], valid_txn_list: ValidTxnList
    ) -> dict[str, ValidWriteIdList]:
        """See :meth:`MetastoreClient.get_valid_write_ids`."""
        self._require_write_ids()
        names = sorted({name.lower() for name in full_names})
        return {name: self._valid_write_ids(name, valid_txn_list) for name in names}

    @_call
    def keep_files(self, txn_id: int, full_names: Sequence[str]) -> None:
        """See :meth:`MetastoreClient.keep_files`."""
        if not self._capabilities.has_min_history:
            raise UnsupportedByServerError("the server does not take the tables that a transaction reads")
        self.kept_files.setdefault(txn_id, set()).update(name.lower() for name in full_names)

    @_call
    def add_write_notifications(self, notifications: Sequence[WriteNotification]) -> None:
        """See :meth:`MetastoreClient.add_write_notifications`."""
        if not self._capabilities.has_write_notifications:
            raise UnsupportedByServerError("the server does not take the names of written files")
        for notification in notifications:
            self._table(notification.database, notification.table)
        self.write_notifications.extend(notifications)

    def _require_write_ids(self) -> None:
        if not self._capabilities.has_write_ids:
            raise UnsupportedByServerError("the server has no write ids")

    def _valid_write_ids(self, full_name: str, txns: ValidTxnList) -> ValidWriteIdList:
        """As on servers: up to the highest id of the snapshot's transactions, else to the last id of all."""
        database, dot, table = full_name.partition(".")
        if not (database and dot and table):
            raise InvalidRequestError(f"get_valid_write_ids: expected database.table, found {full_name!r}")
        ids = self._write_ids.get((database, table), {})
        watermark = max((ids[t] for t in ids if t <= txns.high_watermark), default=len(ids))
        invalid = {id: txn for txn, id in ids.items() if id <= watermark and not txns.is_valid(txn)}
        aborted = frozenset(id for id, txn in invalid.items() if txn in txns.aborted)
        min_open = min(set(invalid) - aborted, default=NO_OPEN_ID)
        if self._capabilities.has_exclusive_write_lock and invalid and len(invalid) == watermark:
            watermark = min(invalid)  # 4.x names the first only when none is valid
            return ValidWriteIdList(watermark, (watermark,), min_open, aborted & {watermark}, full_name)
        return ValidWriteIdList(watermark, tuple(sorted(invalid)), min_open, aborted, full_name)

    # -- locks -------------------------------------------------------------------------------------
    @_call
    def lock(self, request: LockRequest) -> LockResponse:
        """See :meth:`MetastoreClient.lock`."""
        if not request.components:
            raise InvalidRequestError("a lock request without components")
        if not self._capabilities.has_exclusive_write_lock and any(
            c.type is LockType.EXCL_WRITE for c in request.components
        ):
            raise UnsupportedByServerError("the server has no exclusive write lock")
        resources = tuple(_resource(component) for component in request.components)
        written = [w for c in request.components if (w := _recorded(c, self._capabilities)) is not None]
        if request.txn_id > 0:
            self._open_txn(request.txn_id).written.extend(written)
        self._last_lock_id += 1
        lock = _Lock(self._last_lock_id, request, resources, self._clock())
        self._locks[lock.id] = lock
        return self._try_to_grant(lock)

    @_call
    def check_lock(self, lock_id: int, txn_id: int) -> LockResponse:
        """See :meth:`MetastoreClient.check_lock`."""
        lock = self._locks.get(lock_id)
        if lock is None:
            raise NoSuchLockError(f"No such lock lockid:{lock_id}")
        if lock.request.txn_id > 0:
            self._open_txn(lock.request.txn_id).last_heartbeat = self._clock()
        lock.last_heartbeat = self._clock()
        return self._try_to_grant(lock)

    @_call
    def unlock(self, lock_id: int) -> None:
        """See :meth:`MetastoreClient.unlock`; a missing lock is not an error, as on 2.3."""
        lock = self._locks.get(lock_id)
        if lock is None:
            return
        if lock.request.txn_id > 0 and lock.state is LockState.ACQUIRED:
            raise TxnOpenError(
                f"Unlocking locks associated with transaction not permitted. lockid:{lock_id} "
                f"txnid:{lock.request.txn_id}"
            )
        del self._locks[lock_id]

    @_call
    def show_locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """See :meth:`MetastoreClient.show_locks`."""
        return [
            LockInfo(
                lock_id=lock.id,
                database=resource.database,
                table=resource.table,
                partition=resource.partition,
                state=lock.state,
                type=component.type,
                txn_id=lock.request.txn_id or None,
                user=lock.request.user,
                hostname=lock.request.hostname,
                agent_info=lock.request.agent_info,
                blocked_by=blocked_by,
            )
            for lock in sorted(self._locks.values(), key=lambda each: each.id)
            for component, resource, blocked_by in zip(
                lock.request.components, lock.resources, lock.blocked_by, strict=True
            )
            if database is None or resource.database == database.lower()
            if table is None or resource.table == table.lower()
        ]

    def _try_to_grant(self, lock: _Lock) -> LockResponse:
        if lock.state is LockState.WAITING:
            blockers = tuple(self._blocker(lock, at) for at in range(len(lock.resources)))
            granted = all(blocker is None for blocker in blockers)
            lock.state = LockState.ACQUIRED if granted else LockState.WAITING
            lock.blocked_by = blockers
        return LockResponse(lock.id, lock.state)

    def _blocker(self, lock: _Lock, at: int) -> int | None:
        """Id of an earlier lock for which component ``at`` has to wait; later locks never count."""
        wanted, resource = lock.request.components[at], lock.resources[at]
        for other in self._locks.values():
            if other.id >= lock.id or 0 < other.request.txn_id == lock.request.txn_id:
                continue
            waits = self._waits(other.state)
            for theirs, their_resource in zip(other.request.components, other.resources, strict=True):
                if (
                    theirs.type in waits[wanted.type]
                    and resource.overlaps(their_resource)
                    and not _is_database_use(wanted, theirs)
                    and not _is_database_use(theirs, wanted)
                ):
                    return other.id
        return None

    def _waits(self, other_state: LockState) -> Mapping[LockType, set[LockType]]:
        if self._capabilities.has_exclusive_write_lock:
            return _WAITS_OF_EXCLUSIVE_WRITERS
        if self._capabilities.has_write_ids or other_state is LockState.ACQUIRED:
            return _WAITS
        return _WAITS_FOR_WAITING

    def _drop_locks_of(self, txn_id: int) -> None:
        self._locks = {i: lock for i, lock in self._locks.items() if lock.request.txn_id != txn_id}

    # -- compaction --------------------------------------------------------------------------------
    @_call
    def compact(
        self,
        database: str,
        table: str,
        partition: str | None,
        type: CompactionType,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """See :meth:`MetastoreClient.compact`; the queue is kept, nothing is ever compacted."""
        entry = CompactionInfo(
            database=database.lower(),
            table=table.lower(),
            partition=partition,
            type=type,
            state="initiated",
            id=len(self._compactions) + 1,
        )
        same = (entry.database, entry.table, entry.partition)
        if any((c.database, c.table, c.partition) == same for c in self._compactions):
            return False
        self._compactions.append(entry)
        return True

    @_call
    def show_compactions(self) -> list[CompactionInfo]:
        """See :meth:`MetastoreClient.show_compactions`."""
        return list(self._compactions)


def _resource(component: LockComponent) -> _Resource:
    if component.partition is not None:
        _check_name(component.partition, f"{component.database}.{component.table}")
    table = None if component.table is None else component.table.lower()
    return _Resource(component.database.lower(), table, component.partition)


def _recorded(component: LockComponent, capabilities: Capabilities) -> _Written | None:
    """What the server records of a lock component for the conflict check and the compactor.

    4.x also records writes to partitions that are not known yet.
    """
    if not component.is_transactional or component.operation is DataOperationType.SELECT:
        return None
    if component.operation not in _OPERATION_LETTERS:
        raise MetastoreError(f"unexpected operation {component.operation.name} in a lock request")
    written = _Written(_resource(component), _OPERATION_LETTERS[component.operation])
    if component.is_dynamic_partition_write:
        return written._replace(is_placeholder=True) if capabilities.has_exclusive_write_lock else None
    return written


def _is_database_use(one: LockComponent, other: LockComponent) -> bool:
    """Using a database (shared, without a table) and dropping one of its tables do not conflict."""
    return (
        one.table is None
        and one.type is LockType.SHARED_READ
        and other.table is not None
        and other.type is LockType.EXCLUSIVE
    )


def _checked_parameters(table: TableInfo, capabilities: Capabilities) -> dict[str, str]:
    """Parameters as the server stores them; it refuses a transactional table that cannot be one."""
    parameters = dict(table.parameters)
    spelled = next((key for key in parameters if key.lower() == "transactional"), None)
    if spelled is None:
        return parameters
    is_transactional = parameters.pop(spelled).lower() == "true"
    must_be_bucketed = not capabilities.has_write_ids
    is_insert_only = parameters.get("transactional_properties") == "insert_only"
    if is_transactional and (
        (must_be_bucketed and not table.bucket_columns)
        or ("Orc" not in table.output_format and not is_insert_only)
    ):
        raise InvalidRequestError(
            f"{table.full_name}: The table must be {'bucketed and ' if must_be_bucketed else ''}"
            "stored using an ACID compliant format (such as ORC)"
        )
    if is_transactional and capabilities.has_write_ids:
        parameters.setdefault("transactional_properties", "default")
    parameters["transactional"] = "true" if is_transactional else "false"
    return parameters


def _translated(table: TableInfo) -> TableInfo:
    """What 4.x makes of a managed table that is not transactional."""
    if table.table_type != "MANAGED_TABLE" or table.parameters.get("transactional") == "true":
        return table
    marks = dict.fromkeys(("EXTERNAL", "TRANSLATED_TO_EXTERNAL", "external.table.purge"), "TRUE")
    return replace(table, table_type="EXTERNAL_TABLE", parameters={**table.parameters, **marks})


def _checked_partition_name(table: TableInfo, keys: Sequence[str], values: Sequence[str]) -> str:
    if len(values) != len(keys) or not keys or not all(values):
        raise InvalidRequestError(
            f"{table.full_name}: a partition needs one text per key, not empty: "
            f"keys {list(keys)}, values {list(values)}"
        )
    name = make_partition_name(keys, values)
    _check_name(name, table.full_name)
    return name


def _check_name(name: str, where: str) -> None:
    try:
        check_partition_name(name)
    except ValueError as error:
        raise InvalidRequestError(f"{where}: {error}") from error


def _without_accuracy(parameters: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in parameters.items() if key != _COLUMN_STATS_ACCURATE}


def _local_path(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))
