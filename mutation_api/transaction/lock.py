"""Lock: one request for all tables of a transaction, a bounded wait, and the release.

A lock request is never repeated, not even after a broken connection: Hive 2.3 and 3.1 grant a transaction's
second request even if another transaction holds the lock. (Hive's own Mutation API repeats requests, and then
two writers work on one table.) A queued request is polled with :meth:`Lock.poll`, which also keeps the
transaction alive.

Source: Hive's DbLockManager (back-off) and TxnHandler.checkLock, observed on 2.3.10.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from metastore_client.capabilities import Capabilities
from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError, MetastoreUnavailableError, NoSuchLockError
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockInfo,
    LockLevel,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
)
from mutation_api.errors import LockNotAcquiredError
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.clock import TELL_AFTER_SECONDS, WAIT_LOG, Clock
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.machine_queue import few_at_once

MIN_ASK_SECONDS = 0.02
"""Pause before a transaction that is first in line requests its lock. A request keeps the server busy for 5
to 20 ms, during which it grants no other lock."""
MIN_LOOK_SECONDS = 0.01
"""Pause before the transaction that is next in line checks whether the lock is still held. A check takes 1 to
2 ms of the server's time."""
MIN_LOOK_OF_OTHERS_SECONDS = 0.05
"""Pause before other transactions check, for each transaction ahead of them."""
POLL_SHARE = 0.1
"""The maximum of such a pause, as a fraction of the time since the queue last moved."""
MAX_LOOKING_SECONDS = 1.0
"""The maximum pause for which a transaction only checks. After a longer pause, it requests the lock even if
others seem to be ahead of it."""
MAX_POLL_SECONDS = 15.0
"""The maximum pause between two requests. In Hive, the pauses of all waiters double from 100 ms to 60 s, so a
contended lock is mostly idle."""

_log = logging.getLogger(__name__)
_wait_log = logging.getLogger(WAIT_LOG)


class WriteLock(enum.Enum):
    """The ways in which two writers of one table exclude each other, if the server leaves clients the choice.

    EXCLUSIVE: the second writer waits, so a long job cannot lose its work to a short one. Inserts of Hive's
    own SQL wait too. OPTIMISTIC: no writer waits. If two change one partition, the first to commit wins, as
    with Hive 4's own SQL. On a server without the choice, updates wait for each other.
    """

    EXCLUSIVE = "exclusive"
    OPTIMISTIC = "optimistic"

    def lock_type(self, capabilities: Capabilities) -> LockType:
        """Return the lock type that a transaction with updates or deletes requests."""
        if capabilities.has_exclusive_write_lock and self is WriteLock.EXCLUSIVE:
            return LockType.EXCL_WRITE
        return LockType.SHARED_WRITE


@dataclass(frozen=True)
class LockedTable:
    """A table, and the transaction's use of it.

    If ``is_sink`` is False, the table is only read. If ``insert_only`` is True, the sink takes no updates or
    deletes, so other inserters need not wait. ``partition_names`` are the partitions whose files must not be
    removed while the transaction reads them. ``write_lock`` is the lock type of a sink with updates or
    deletes.
    """

    database: str
    name: str
    is_partitioned: bool
    is_sink: bool
    insert_only: bool = False
    partition_names: tuple[str, ...] = ()
    write_lock: LockType = LockType.SHARED_WRITE

    @property
    def full_name(self) -> str:
        """The name ``database.table``."""
        return f"{self.database}.{self.name}"

    @property
    def lock_type(self) -> LockType:
        """The lock type. For all but SHARED_READ, the server checks for conflicting writers at commit."""
        return self.write_lock if self.is_sink and not self.insert_only else LockType.SHARED_READ


@dataclass(frozen=True)
class Marks:
    """The identification of this library's transactions and locks: user, host and a readable string."""

    user: str
    hostname: str
    agent_info: str


def lock_components(tables: Iterable[LockedTable]) -> tuple[LockComponent, ...]:
    """Return one component per table, and one per partition that may be read.

    They are sorted by name, so two jobs on the same tables cannot deadlock.

    A partitioned sink is a dynamic partition write: the server records the writes when the partitions are
    registered one by one (``add_dynamic_partitions``). Hive's own compactor and conflict check need this.

    Partitions of sources and sinks are locked only for reading, so they keep no writer out and are not
    recorded as written. These locks are for the cleaner of Hive 2 and 3, which keeps the files of a compacted
    partition only if that very partition is locked. Neither a lock on the table nor the open transaction
    stops it (observed on 2.3.10 and 3.1.3).
    """
    ordered = sorted(tables, key=lambda t: (t.database, t.name))
    return tuple(c for table in ordered for c in (_component(table), *_partition_components(table)))


def rebalance_lock(database: str, name: str, partition: str) -> LockComponent:
    """Return the lock of a rebalance, which excludes writers. Partition '' is an unpartitioned table.

    With the operation UPDATE, the server refuses the commit of a change that began before the rebalance
    ended, whose ROW__IDs would be old ones.

    Source: Hive's AcidCompactionService (4.0 to 4.2).
    """
    return LockComponent(
        type=LockType.EXCL_WRITE,
        level=LockLevel.PARTITION if partition else LockLevel.TABLE,
        database=database.lower(),
        table=name.lower(),
        partition=partition or None,
        operation=DataOperationType.UPDATE,
        is_transactional=True,
    )


def _partition_components(table: LockedTable) -> Iterable[LockComponent]:
    read = _component(dataclasses.replace(table, is_sink=False))
    for name in sorted(table.partition_names):
        yield dataclasses.replace(read, level=LockLevel.PARTITION, partition=name)


def _component(table: LockedTable) -> LockComponent:
    operation = DataOperationType.SELECT
    if table.is_sink:
        operation = DataOperationType.INSERT if table.insert_only else DataOperationType.UPDATE
    return LockComponent(
        type=table.lock_type,
        level=LockLevel.TABLE,
        database=table.database.lower(),
        table=table.name.lower(),
        partition=None,
        operation=operation,
        is_transactional=True,
        is_dynamic_partition_write=table.is_sink and table.is_partitioned,
    )


def locks_of_others(
    metastore: MetastoreClient, table: AcidTable, ours: Collection[int]
) -> tuple[LockInfo, ...]:
    """Return the locks that others hold or wait for on a table or its partitions at the moment.

    SHARED_READ locks are left out, because their holders only read, or insert without changing existing rows.
    They neither wait for a writer nor conflict with one. Locks on the whole database are not listed.

    Args:
        metastore: lists the locks.
        table: the table.
        ours: ids of the transactions whose locks are left out.

    Raises:
        ConnectionFailedError, TransactionError: If the metastore failed.
    """
    with metastore_errors_as_ours(f"could not list the locks of table {table.full_name}"):
        locks = metastore.show_locks(table.database, table.name)
    return tuple(i for i in locks if i.txn_id not in ours and i.type is not LockType.SHARED_READ)


@dataclass
class Pace:
    """Decides when a waiting transaction checks again: sooner if its turn is near and transactions are short.

    Attributes:
        moved: the clock's time when it began to wait, or when a transaction before it was last seen to end.
        ahead: the number of transactions before it, including the holder.
    """

    moved: float
    ahead: int

    def see(self, now: float, ahead: int) -> None:
        """Record the current number of transactions ahead of it."""
        if ahead < self.ahead:
            self.moved = now
        self.ahead = ahead

    def pause(self, now: float) -> float:
        """Return the time in seconds until it checks or requests again."""
        least = {0: MIN_ASK_SECONDS, 1: MIN_LOOK_SECONDS}.get(self.ahead, MIN_LOOK_OF_OTHERS_SECONDS)
        return min(max(1, self.ahead) * max(least, POLL_SHARE * (now - self.moved)), MAX_POLL_SECONDS)


class Lock:
    """The lock of one transaction; ``id`` is None until the lock has been requested."""

    def __init__(
        self,
        metastore: MetastoreClient,
        clock: Clock,
        txn_id: int,
        components: tuple[LockComponent, ...],
        marks: Marks,
    ) -> None:
        self.id: int | None = None
        self.is_acquired = False
        self._metastore = metastore
        self._clock = clock
        self._txn_id = txn_id
        self._components = components
        self._marks = marks

    def request(self) -> bool:
        """Request the lock, once. Return True if it was granted immediately.

        Raises:
            LockNotAcquiredError: If the server refused it outright.
            MetastoreUnavailableError: If the connection broke. The lock may be queued: abort the transaction.
            NoSuchTxnError, TxnAbortedError: If the transaction has ended.
        """
        marks = self._marks
        request = LockRequest(self._components, self._txn_id, marks.user, marks.hostname, marks.agent_info)
        with few_at_once(self._metastore, self._clock):
            response = self._metastore.lock(request)
        self.id = response.lock_id
        return self._evaluate(response)

    def poll(self) -> bool:
        """Query whether the lock has been granted. A broken connection counts as "not yet".

        Raises:
            LockNotAcquiredError: If the server has dropped the request.
            NoSuchLockError, NoSuchTxnError, TxnAbortedError: If the lock is gone.
        """
        assert self.id is not None
        try:
            with few_at_once(self._metastore, self._clock):
                response = self._metastore.check_lock(self.id, self._txn_id)
            return self._evaluate(response)
        except MetastoreUnavailableError as error:
            _log.warning("could not check lock %d of transaction %d: %s", self.id, self._txn_id, error)
            return False

    def wait(self, deadline: float) -> None:
        """Poll until the lock is granted. A long wait is logged once, at level INFO.

        Raises:
            LockNotAcquiredError: If it is not granted by ``deadline`` (the clock's time); the message names
                the holders. See also :meth:`poll`.
        """
        started = asked = self._clock.now()
        pace = Pace(started, self._ahead())
        is_told = False
        _log.info("transaction %d waits for lock %s on %s", self._txn_id, self.id, self._resources())
        while not self._is_granted(pace, asked):
            remaining = deadline - self._clock.now()
            if remaining <= 0:
                raise LockNotAcquiredError(self._timeout_text(self._clock.now() - started))
            if not is_told and self._clock.now() - started >= TELL_AFTER_SECONDS:
                is_told = True
                self._tell(remaining)
            asked = self._clock.now()
            self._clock.sleep(min(pace.pause(asked), remaining))

    def _ahead(self) -> int:
        """Return the number of known transactions that hold the lock or requested it earlier.

        The server grants locks in the order of their ids.
        """
        assert self.id is not None
        try:
            others = self._locks_of_others()
        except MetastoreError as error:
            _log.warning("could not list the locks before lock %d: %s", self.id, error)
            return 0
        return len({each.txn_id for each in others if each.lock_id < self.id})

    def _is_granted(self, pace: Pace, asked: float) -> bool:
        """Check how many transactions are ahead of this one, which is cheap.

        Request the lock if there are none.
        """
        if pace.ahead and self._clock.now() - asked < MAX_LOOKING_SECONDS:
            pace.see(self._clock.now(), self._ahead())
            if pace.ahead:
                return False
        return self.poll()

    def _tell(self, remaining: float) -> None:
        if _wait_log.isEnabledFor(logging.INFO):
            text = "transaction %d waits for lock %s on %s, %s; it waits for at most %.0f s more"
            _wait_log.info(text, self._txn_id, self.id, self._resources(), self._blockers(), remaining)

    def give_up(self) -> None:
        """Leave the queue. A granted lock is released with its transaction.

        Failures are only logged, since the transaction is aborted next.
        """
        if self.id is None or self.is_acquired:
            return
        try:
            self._metastore.unlock(self.id)
        except NoSuchLockError:
            pass
        except MetastoreError as error:
            _log.warning("could not release lock %d of transaction %d: %s", self.id, self._txn_id, error)

    def _evaluate(self, response: LockResponse) -> bool:
        if response.state in (LockState.ABORT, LockState.NOT_ACQUIRED):
            raise LockNotAcquiredError(
                f"lock {response.lock_id} of transaction {self._txn_id} on {self._resources()} was refused "
                f"by the metastore ({response.state.name}): {response.message or 'no reason given'}"
            )
        self.is_acquired = response.state is LockState.ACQUIRED
        return self.is_acquired

    def _resources(self) -> str:
        tables = {(c.database, c.table): c for c in reversed(self._components)}
        return ", ".join(sorted(f"{c.database}.{c.table} ({c.type.name})" for c in tables.values()))

    def _timeout_text(self, waited_seconds: float) -> str:
        return (
            f"transaction {self._txn_id} did not get lock {self.id} on {self._resources()} within "
            f"{waited_seconds:.1f} s; {self._blockers()}. Wait for the holders, raise lock_timeout_seconds, "
            "or abort a holder whose client is dead with 'hive-mutate abort TXN'"
        )

    def _blockers(self) -> str:
        try:
            held = [each for each in self._locks_of_others() if each.state is LockState.ACQUIRED]
        except MetastoreError as error:
            return f"its holders are unknown, because the metastore could not be queried ({error})"
        return "held by " + ("; ".join(map(_describe, held)) or "no other transaction now")

    def _locks_of_others(self) -> list[LockInfo]:
        """Return others' locks on the tables, held or awaited, that may block the request.

        SHARED_READ blocks only a request for an exclusive lock.
        """
        tables = sorted({(c.database, c.table) for c in self._components})
        locks = [each for table in tables for each in self._metastore.show_locks(*table)]
        is_exclusive = any(c.type is LockType.EXCLUSIVE for c in self._components)
        return [
            i
            for i in locks
            if i.txn_id != self._txn_id and (is_exclusive or i.type is not LockType.SHARED_READ)
        ]


def _describe(info: LockInfo) -> str:
    resource = ".".join(filter(None, (info.database, info.table))) + (
        f"/{info.partition}" if info.partition else ""
    )
    owner = f"transaction {info.txn_id}" if info.txn_id else "no transaction"
    agent = f" ({info.agent_info})" if info.agent_info else ""
    return (
        f"{info.type.name} lock {info.lock_id} on {resource} of {owner}, {info.user}@{info.hostname}{agent}"
    )
