"""Lease: an open transaction that is kept alive and holds its lock. Writers and readers both work under one.

The order is: list the writers of the tables, open the transaction and start its heartbeat, allocate a write
id for each sink and report to the cleaner which tables are read. Then lock, and read the open transactions
and the tables' write ids. These last two are the snapshot. Write ids come before the lock, so that the
server's record of the lock includes them.

**Roll-over.** At commit the server checks for writers that committed after the transaction was *opened*. So a
transaction that had to wait for its lock cannot commit after the writer it waited for, no matter how recent
its snapshot is. Before any work is done, such a transaction therefore hands over to a second one, opened
while the first holds the lock. The first stays open as the guard: it keeps other writers out until the second
has ended. The second locks the tables shared, which is compatible with the guard's lock, and does all the
work. Its locks are determined again, because the previous writer may have created partitions.

A writer that commits between the open and the lock has the same effect: nothing waited, and yet the commit
would fail. It is detected by comparing the writers that were listed before the open with the transactions
still listed under the lock.

**Write ids** must increase in the order in which rows become visible. If a row has a higher write id than its
delete event, one of Hive's readers keeps the row and the other does not (observed on 3.1.3). So the second
transaction gets new write ids. A transaction that finds a higher write id in its snapshot also hands over: an
inserter, which waits for no lock, allocated it.

If the second transaction is not granted its shared lock immediately, a request for an exclusive lock is
queued between the two and waits for the guard. Both transactions give way to it and start over behind it.

Rejected alternative: queue the second behind the first and then abort the first. Two clients that wait for
each other's commits then pass the lock back and forth endlessly, since each queues between the other's two
requests (observed on Hive 2.3.10: both gave up after five rounds).

Observed on 2.3.10, 3.1.3 and 4.1.0: without the roll-over the commit fails with a write conflict; with it
the second transaction commits.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError, MetastoreUnavailableError, NoSuchTxnError
from metastore_client.model import CompactionType, DataOperationType, LockComponent, LockType, OpenTxns
from metastore_client.valid_ids import (
    RangeValidity,
    ValidIdList,
    ValidTxnList,
    ValidWriteIdList,
    listed_ids,
)
from mutation_api.errors import ClientError, LockNotAcquiredError
from mutation_api.transaction.clock import Clock
from mutation_api.transaction.commit_outcome import abort_later
from mutation_api.transaction.heartbeat import Heartbeat
from mutation_api.transaction.listener import client_error
from mutation_api.transaction.lock import Lock, Marks
from mutation_api.transaction.machine_queue import Place, queue_up

LOCK_REQUESTS = 2
"""Number of transactions to try if the connection breaks during the lock request. Each makes one request."""

ROLL_OVERS = 5
"""Number of transactions to try under one guard while others keep inserting with higher write ids."""

GIVE_WAYS = 3
"""The number of times a lease gives way to requests for an exclusive lock."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeaseSettings:
    """Settings of all leases of a client. ``txn_timeout_seconds`` is the server's ``hive.txn.timeout``."""

    marks: Marks
    txn_timeout_seconds: float
    lock_timeout_seconds: float


class Lease:
    """One transaction with its heartbeat and lock, from :meth:`acquire` to :meth:`stop` or :meth:`abort`.

    Args:
        metastore: a client that allows calls from several threads.
        clock: times the waits.
        find_components: asks the metastore what to lock; called before each lock request.
        settings: the client's settings.
        on_lost: called once if the transaction is lost after :meth:`acquire`; see Heartbeat.
        changed_tables: full names of the sinks whose rows may be updated or deleted, or depend on other rows.
        queues: full names of sinks, by the number of this machine's writers that may work on them at the same
            time. Other writers wait; see :func:`.machine_queue.queue_up`.
        under_lock: called while the lock is held, at the same time as the snapshot is taken. The results of
            the last call count. Its argument is True if ``find_components`` was called under the lock, or
            just before a lock that was granted immediately.
        compaction: see :meth:`MetastoreClient.open_txn`. Such a transaction has no write id.
    """

    def __init__(
        self,
        metastore: MetastoreClient,
        clock: Clock,
        find_components: Callable[[], tuple[LockComponent, ...]],
        settings: LeaseSettings,
        on_lost: Callable[[ClientError], None],
        changed_tables: Sequence[str] = (),
        *,
        queues: Mapping[int, Sequence[str]] = MappingProxyType({}),
        under_lock: Callable[[bool], None] | None = None,
        compaction: CompactionType | None = None,
    ) -> None:
        self.roll_overs = 0
        self.lock_wait_seconds = 0.0
        self._metastore = metastore
        self._clock = clock
        self._find_components = find_components
        self._components: tuple[LockComponent, ...] = ()
        self._settings = settings
        self._on_lost = on_lost
        self._changed_tables = tuple(sorted(changed_tables))
        self._queues = queues
        self._under_lock = under_lock
        self._compaction = compaction
        self._places: list[Place] = []
        self._opened: list[int] = []
        self._lock: Lock | None = None
        self.heartbeats: list[Heartbeat] = []
        self._open_txns = OpenTxns(0, ())
        self._write_ids: dict[str, int] = {}
        self._guard_write_ids: dict[str, int] = {}
        self._valid_write_ids: dict[str, ValidWriteIdList] = {}

    @property
    def txn_id(self) -> int:
        """The transaction's id. It may change until :meth:`acquire` has returned."""
        return self._opened[-1]

    @property
    def txn_ids(self) -> frozenset[int]:
        """The ids of the transaction and its guards."""
        return frozenset(self._opened)

    @property
    def lock_id(self) -> int | None:
        """The id of the lock."""
        return None if self._lock is None else self._lock.id

    @property
    def lost(self) -> ClientError | None:
        """The reason why the transaction, or the guard that holds its lock, is lost; None if neither is."""
        return next((h.lost for h in self.heartbeats if h.lost is not None), None)

    @property
    def open_txns(self) -> OpenTxns:
        """The open and aborted transactions as listed under the lock."""
        return self._open_txns

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The snapshot, taken under the lock. With write ids it ends at this transaction, as Hive's does."""
        return ValidTxnList.from_open_txns(self._open_txns, self.txn_id, has_write_ids=self._has_write_ids)

    @property
    def valid_write_ids(self) -> Mapping[str, ValidWriteIdList]:
        """The snapshot of each table by ``database.table``; empty on a server without write ids."""
        return self._valid_write_ids

    def valid_ids(self, table_name: str) -> ValidIdList:
        """Return the ids in a table's files that the snapshot sees."""
        return self._valid_write_ids[table_name] if self._has_write_ids else self.valid_txn_list

    def write_id(self, table_name: str) -> int | None:
        """Return the transaction's write id for a sink; None on a server without write ids."""
        return self._write_ids.get(table_name)

    @property
    def has_guard(self) -> bool:
        """True if a guard, whose write ids are smaller, stays open until the transaction has ended."""
        return len(self._opened) > 1

    def is_complete_below(self, table_name: str) -> bool:
        """Return True if no row can appear in a sink below its write id that the snapshot does not see.

        Once true, this remains true. Raises MetastoreError if the server could not be queried.
        """
        write_id, seen = self._write_ids[table_name], self._valid_write_ids[table_name]
        unseen = {id for id in seen.exceptions if id < write_id}
        unseen.update(listed_ids(seen.high_watermark + 1, write_id - 1))
        unseen -= seen.aborted | {self._guard_write_ids.get(table_name, 0)}
        if not unseen:
            return True
        txns = ValidTxnList.from_open_txns(self._metastore.get_open_txns(), None, has_write_ids=True)
        return unseen <= self._metastore.get_valid_write_ids([table_name], txns)[table_name].aborted

    def acquire(self) -> None:
        """Open a transaction and hold its lock.

        Raises:
            LockNotAcquiredError: If the lock was not granted in time (the message names its holders), or
                other transactions repeatedly inserted between the allocation of the write ids and the
                snapshot.
            TransactionAbortedError, LockLostError, ConnectionFailedError, TransactionError: See failure.py.
            After any error, nothing stays open.
        """
        try:
            self._acquire()
        except MetastoreError as error:
            self._abandon()
            raise client_error(error, f"could not begin transaction {self._opened[-1:]}") from error
        except BaseException:
            self._abandon()
            raise

    def beat(self) -> None:
        """Send a heartbeat, unless the server has just confirmed the transaction.

        :attr:`lost` holds the result. An unreachable server alone does not make the transaction lost.
        """
        # If the client dies, its transaction must not outlive the guard; see ``WrittenTables.output``.
        for heartbeat in reversed(self.heartbeats):
            heartbeat.confirm()

    def stop(self) -> None:
        """Stop the heartbeats: the transaction is about to end."""
        for heartbeat in self.heartbeats:
            heartbeat.stop()

    def release(self) -> None:
        """End the guards after the transaction has ended. A failure is only logged: the guard times out."""
        self.stop()
        for txn_id in self._opened[:-1]:
            self._end_quietly(txn_id)
        self._leave_queue()

    def _leave_queue(self) -> None:
        for place in self._places:
            place.give_back()

    def abort(self) -> None:
        """Stop the heartbeats and abort.

        It is not an error if the transaction has already ended. Raises MetastoreError if it is not aborted.
        If the server was unreachable, the abort is repeated later.
        """
        self.stop()
        try:
            self._abort(self.txn_id)
        finally:
            self.release()

    def _acquire(self) -> None:
        started = self._clock.now()
        deadline = started + self._settings.lock_timeout_seconds
        for at_once, names in sorted(self._queues.items()):
            tables = sorted(names)
            place = queue_up(self._metastore, tables, self._clock, deadline, at_once=at_once)
            self._places.append(place)
        give_ways = 0
        while not self._attempt(deadline, may_give_way=give_ways < GIVE_WAYS):
            give_ways += 1
            self._drop_all()
        self.lock_wait_seconds = self._clock.now() - started
        if (lost := self.lost) is not None:
            raise lost

    def _attempt(self, deadline: float, *, may_give_way: bool) -> bool:
        """Return True if the transaction may start; False if it blocks a request for an exclusive lock."""
        writers: frozenset[int]
        writers, self._components = self._metastore.together(self._writers, self._find_components)
        waited = self._open_and_lock(deadline)
        if waited and self._can_conflict():
            return self._roll_over(deadline, may_give_way=may_give_way)
        self._look(knows_tables=not waited)
        if not self._can_conflict():
            return True
        if _is_overtaken(writers, self.txn_id, self._open_txns) or self._is_behind():
            return self._roll_over(deadline, may_give_way=may_give_way)
        return True

    @property
    def _has_write_ids(self) -> bool:
        return self._metastore.capabilities().has_write_ids

    def _look(self, *, knows_tables: bool) -> None:
        """Take the snapshot, and read the tables."""
        calls: list[Callable[[], None]] = [self._take_snapshot]
        if self._under_lock is not None:
            calls.append(functools.partial(self._under_lock, knows_tables))
        self._metastore.together(*calls)

    def _take_snapshot(self) -> None:
        self._open_txns = self._metastore.get_open_txns()
        if self._has_write_ids:
            names = _table_names(self._components)
            self._valid_write_ids = self._metastore.get_valid_write_ids(names, self.valid_txn_list)

    def _is_behind(self) -> bool:
        """Return True if the snapshot sees rows of a sink with a higher write id than this transaction's."""
        changed = {_full_name(c) for c in self._components if c.operation is DataOperationType.UPDATE}
        seen = {name: self._valid_write_ids[name] for name in changed & self._write_ids.keys()}
        return any(
            ids.range_validity(self._write_ids[name] + 1, ids.high_watermark) is not RangeValidity.NONE
            for name, ids in seen.items()
        )

    def _can_conflict(self) -> bool:
        return any(c.type is not LockType.SHARED_READ for c in self._components)

    def _writers(self) -> frozenset[int]:
        """Return transactions that hold or await a lock on the sinks and may change the same rows."""
        names = [name.partition(".") for name in self._changed_tables]
        locks = [lock for database, _, table in names for lock in self._metastore.show_locks(database, table)]
        return frozenset(i.txn_id for i in locks if i.txn_id and i.type is not LockType.SHARED_READ)

    def _open_and_lock(self, deadline: float) -> bool:
        """Open a transaction and lock; return True if it had to wait."""
        lock = self._open_and_request(self._components)
        if not (is_acquired := lock.is_acquired):
            lock.wait(deadline)
        return not is_acquired

    def _open_and_request(self, components: tuple[LockComponent, ...]) -> Lock:
        for _ in range(LOCK_REQUESTS - 1):
            opened = len(self._opened)
            try:
                return self._request(components)
            except MetastoreUnavailableError as error:
                if len(self._opened) == opened:
                    raise
                _log.warning(
                    "the connection broke while transaction %d requested its lock: %s", self.txn_id, error
                )
                self._drop_latest()
        return self._request(components)

    def _request(self, components: tuple[LockComponent, ...]) -> Lock:
        marks = self._settings.marks
        who = (marks.user, marks.hostname, marks.agent_info)
        self._opened.append(self._metastore.open_txn(*who, compaction=self._compaction))
        timeout = self._settings.txn_timeout_seconds
        heartbeat = Heartbeat(self._metastore, self.txn_id, timeout, self._clock, self._on_lost)
        self.heartbeats.append(heartbeat)
        heartbeat.start()
        if self._has_write_ids:
            keep = functools.partial(self._keep_files, _table_names(components))
            self._write_ids, _ = self._metastore.together(lambda: self._allocate(components), keep)
        self._lock = Lock(self._metastore, self._clock, self.txn_id, components, marks)
        self._lock.request()
        return self._lock

    def _keep_files(self, table_names: list[str]) -> None:
        """Report to the cleaner the tables of the snapshot, which is taken later."""
        if self._metastore.capabilities().has_min_history:
            self._metastore.keep_files(self.txn_id, table_names)

    def _allocate(self, components: Iterable[LockComponent]) -> dict[str, int]:
        """Allocate a write id for each sink."""
        components = () if self._compaction else components
        sinks = {_full_name(c): c for c in components if c.operation is not DataOperationType.SELECT}
        return {
            name: self._metastore.allocate_write_id(self.txn_id, c.database, c.table or "")
            for name, c in sorted(sinks.items())
        }

    def _drop_latest(self) -> None:
        self.heartbeats.pop().stop()
        self._end_quietly(self._opened.pop())

    def _drop_all(self) -> None:
        _log.info("transactions %s give way to a request for an exclusive lock on their tables", self._opened)
        if self._lock is not None:
            self._lock.give_up()
        while self._opened:
            self._drop_latest()

    def _roll_over(self, deadline: float, *, may_give_way: bool) -> bool:
        """Open the transaction that will do the work; the one that holds the lock becomes its guard.

        Returns False if another request is queued between the two.
        """
        guard, self._guard_write_ids = self.txn_id, self._write_ids
        for _ in range(ROLL_OVERS):
            self._components = self._find_components()
            lock = self._open_and_request(_shared(self._components))
            if not lock.is_acquired:
                if may_give_way:
                    return False
                lock.wait(deadline)
            self.roll_overs += 1
            self._look(knows_tables=True)
            if not self._is_behind():
                _log.info("transaction %d continues under the lock of transaction %d", self.txn_id, guard)
                return True
            self._drop_latest()
        raise LockNotAcquiredError(
            f"transaction {guard}: {ROLL_OVERS} times in a row, other writers inserted rows with higher "
            "write ids between the allocation of its write ids and its snapshot. Try again when fewer "
            "clients write to the table"
        )

    def _abandon(self) -> None:
        self.stop()
        if self._lock is not None:
            self._lock.give_up()
        for txn_id in self._opened:
            self._end_quietly(txn_id)
        self._leave_queue()

    def _end_quietly(self, txn_id: int) -> None:
        try:
            self._abort(txn_id)
        except MetastoreError as error:
            _log.warning("could not abort transaction %d: %s", txn_id, error)

    def _abort(self, txn_id: int) -> None:
        try:
            self._metastore.abort_txn(txn_id)
        except NoSuchTxnError:
            _log.debug("transaction %d had already ended", txn_id)
        except MetastoreUnavailableError:
            abort_later(self._metastore, txn_id, self._clock, self._settings.txn_timeout_seconds)
            raise


def _shared(components: Iterable[LockComponent]) -> tuple[LockComponent, ...]:
    """Return the same components as SHARED_READ, which is compatible with every lock but EXCLUSIVE."""
    return tuple(dataclasses.replace(c, type=LockType.SHARED_READ) for c in components)


def _full_name(component: LockComponent) -> str:
    return f"{component.database}.{component.table}"


def _table_names(components: Iterable[LockComponent]) -> list[str]:
    return sorted(set(map(_full_name, components)))


def _is_overtaken(writers: frozenset[int], txn_id: int, after: OpenTxns) -> bool:
    """Return True if another transaction may have committed to the tables since ``txn_id`` was opened.

    ``writers`` were listed just before that, ``after`` under the lock. A transaction that was opened later
    and has ended may have written anything.
    """
    listed = {t.id for t in after.txns}
    gone_later = after.high_watermark - txn_id - sum(i > txn_id for i in listed)
    return bool(writers - listed) or gone_later > 0
