"""One lock request, the bounded wait, and the roll-over after it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import pytest

from metastore_client.capabilities import Capabilities
from metastore_client.errors import MetastoreUnavailableError, TxnAbortedError
from metastore_client.model import (
    DataOperationType,
    HeartbeatResult,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    TxnState,
)
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConnectionFailedError, LockLostError, LockNotAcquiredError
from mutation_api.transaction.clock import WAIT_LOG
from mutation_api.transaction.lease import Lease, LeaseSettings
from mutation_api.transaction.lock import MIN_LOOK_SECONDS, LockedTable, Marks, WriteLock, lock_components
from tests.fixtures.fix_clock import FakeClock, wait_until

MARKS = Marks("us", "here", "test")
SETTINGS = LeaseSettings(MARKS, txn_timeout_seconds=300, lock_timeout_seconds=60)


class ScriptedClock(FakeClock):
    """Something happens while the lease sleeps: the n-th sleep runs the n-th action."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        super().__init__()
        self._actions = list(actions)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self._actions:
            self._actions.pop(0)()


def _sink(name: str = "t", **changes: object) -> LockedTable:
    return LockedTable("default", name, **{"is_partitioned": True, "is_sink": True, **changes})


@pytest.fixture(params=[HIVE_2_3, HIVE_3_1, HIVE_4_1], ids=lambda c: c.line)
def capabilities(request: pytest.FixtureRequest) -> Capabilities:
    """Each release of Hive in turn."""
    found: Capabilities = request.param
    return found


def _lease(
    metastore: InMemoryMetastore, clock: FakeClock, *tables: LockedTable, mode: str = "exclusive"
) -> Lease:
    lock_type = WriteLock(mode).lock_type(metastore.capabilities())
    wanted = [dataclasses.replace(t, write_lock=lock_type) for t in tables or (_sink(),)]
    changed = [t.full_name for t in wanted if t.lock_type is not LockType.SHARED_READ]
    return Lease(metastore, clock, lambda: lock_components(wanted), SETTINGS, lambda error: None, changed)


def _writes(metastore: InMemoryMetastore, txn_id: int) -> None:
    """Register an update of a partition, as its writer does."""
    has_write_ids = metastore.capabilities().has_write_ids
    write_id = metastore.allocate_write_id(txn_id, "default", "t") if has_write_ids else None
    metastore.add_dynamic_partitions(
        txn_id, "default", "t", ["ds=a/hr=1"], DataOperationType.UPDATE, write_id=write_id
    )


def _other_writer(metastore: InMemoryMetastore, *, registers: bool = True) -> int:
    """A writer that holds, or waits for, the lock on default.t and may have registered a partition."""
    txn_id = metastore.open_txn("them", "there", "Hive")
    metastore.lock(LockRequest(lock_components([_sink()]), txn_id, "them", "there", "Hive"))
    if registers:
        _writes(metastore, txn_id)
    return txn_id


def _commits_update(metastore: InMemoryMetastore, txn_id: int) -> None:
    _writes(metastore, txn_id)
    metastore.commit_txn(txn_id)


def test_components_are_sorted_and_of_the_right_kind() -> None:
    """Sinks exclude other writers, sources and insert-only sinks do not; partitioned sinks are dynamic."""
    components = lock_components(
        [
            _sink("z", is_partitioned=False),
            _sink("B"),
            _sink("a", is_sink=False),
            _sink("i", insert_only=True),
        ]
    )

    def expected(name: str, type: LockType, operation: DataOperationType, dynamic: bool) -> LockComponent:
        return LockComponent(type, LockLevel.TABLE, "default", name, None, operation, True, dynamic)

    read, write = LockType.SHARED_READ, LockType.SHARED_WRITE
    assert sorted(components, key=lambda c: c.table) == [
        expected("a", read, DataOperationType.SELECT, False),
        expected("b", write, DataOperationType.UPDATE, True),
        expected("i", read, DataOperationType.INSERT, True),
        expected("z", write, DataOperationType.UPDATE, False),
    ]
    assert lock_components([_sink("z"), _sink("a")]) == lock_components([_sink("a"), _sink("z")])


@pytest.mark.parametrize(
    "how", [{}, {"insert_only": True}, {"is_sink": False}], ids=["sink", "insert-only sink", "source"]
)
def test_partitions_are_locked_for_reading_only(how: dict[str, bool]) -> None:
    """Whatever the table's operation: a partition's lock says SELECT, so it is not recorded as written."""
    _, *partitions = lock_components([_sink(**how, partition_names=("ds=b", "ds=a"))])
    assert partitions == [
        LockComponent(
            LockType.SHARED_READ,
            LockLevel.PARTITION,
            "default",
            "t",
            name,
            DataOperationType.SELECT,
            is_transactional=True,
            is_dynamic_partition_write=False,
        )
        for name in ("ds=a", "ds=b")
    ]


def test_partitions_made_by_the_writer_that_was_waited_for_are_locked(capabilities: Capabilities) -> None:
    """The second transaction looks up what to lock again: its snapshot shows the new partitions."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    names = ["ds=old"]
    lock_type = WriteLock.EXCLUSIVE.lock_type(capabilities)
    clock = ScriptedClock(lambda: (names.append("ds=new"), metastore.commit_txn(other)))
    lease = Lease(
        metastore,
        clock,
        lambda: lock_components([_sink(partition_names=tuple(names), write_lock=lock_type)]),
        SETTINGS,
        lambda error: None,
        ["default.t"],
    )
    lease.acquire()
    locked = {i.partition for i in metastore.show_locks() if i.txn_id == lease.txn_id}
    assert locked == {None, "ds=new", "ds=old"}
    lease.abort()


def test_a_free_table_is_locked_at_once(clock: FakeClock, capabilities: Capabilities) -> None:
    """One request, no polling, no roll-over."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert metastore.calls.count("lock") == 1
    assert "check_lock" not in metastore.calls
    assert lease.roll_overs == 0


def test_waits_then_rolls_over_and_can_commit(capabilities: Capabilities) -> None:
    """After a wait a new transaction sees the other's commit and does not conflict with it."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    clock = ScriptedClock(lambda: None, lambda: metastore.commit_txn(other))
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert lease.roll_overs == 1
    assert clock.sleeps == [MIN_LOOK_SECONDS, MIN_LOOK_SECONDS]
    assert lease.valid_txn_list.is_valid(other)
    states = {t.id: t.state for t in metastore.get_open_txns().txns}
    assert [i for i, s in states.items() if s is TxnState.OPEN] == [lease.txn_id - 1, lease.txn_id]
    assert lease.txn_ids == {lease.txn_id - 1, lease.txn_id}
    # One request per transaction: ours and the one that replaced it.
    assert metastore.calls.count("lock") == 1 + 2
    _commits_update(metastore, lease.txn_id)


def test_without_the_roll_over_the_commit_would_conflict(capabilities: Capabilities) -> None:
    """The rule that makes the roll-over necessary: a transaction opened before the other's commit loses."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    ours = metastore.open_txn("us", "here", "")
    metastore.commit_txn(other)
    metastore.lock(LockRequest(lock_components([_sink()]), ours, "us", "here", ""))
    with pytest.raises(Exception, match="write conflict"):
        _commits_update(metastore, ours)


def test_a_writer_that_commits_between_open_and_lock_is_noticed(clock: FakeClock) -> None:
    """Nothing waited, and still the commit would fail; so the transaction is replaced as well."""

    class Metastore(InMemoryMetastore):
        def lock(self, request: LockRequest):  # type: ignore[no-untyped-def]
            if request.user == "us" and other in (t.id for t in self.get_open_txns().txns):
                self.commit_txn(other)
            return super().lock(request)

    metastore = Metastore()
    other = 0
    other = _other_writer(metastore)
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert lease.roll_overs == 1
    _commits_update(metastore, lease.txn_id)


def test_insert_only_never_rolls_over(capabilities: Capabilities) -> None:
    """Inserts never conflict, so a wait (for DDL) costs no second transaction."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    ddl = metastore.open_txn("them", "there", "")
    exclusive = LockComponent(
        LockType.EXCLUSIVE, LockLevel.TABLE, "default", "t", None, DataOperationType.UPDATE
    )
    metastore.lock(LockRequest((exclusive,), ddl, "them", "there", ""))
    lease = _lease(metastore, ScriptedClock(lambda: metastore.commit_txn(ddl)), _sink(insert_only=True))
    lease.acquire()
    lease.stop()
    assert lease.roll_overs == 0
    assert lease.lock_wait_seconds > 0


def test_a_writer_in_the_queue_neither_overtakes_nor_starves(capabilities: Capabilities) -> None:
    """A client that queued behind us while we waited gets the lock only after we have ended."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    first = _other_writer(metastore)
    third: list[int] = []
    clock = ScriptedClock(
        lambda: (third.append(_other_writer(metastore, registers=False)), metastore.commit_txn(first))
    )
    lease = _lease(metastore, clock)
    lease.acquire()
    lock_of_third = next(i.lock_id for i in metastore.show_locks() if i.txn_id == third[0])
    assert metastore.check_lock(lock_of_third, third[0]).state is LockState.WAITING
    lease.stop()
    _commits_update(metastore, lease.txn_id)
    assert metastore.check_lock(lock_of_third, third[0]).state is LockState.WAITING
    lease.release()
    assert metastore.check_lock(lock_of_third, third[0]).state is LockState.ACQUIRED


def test_the_loss_of_the_guard_is_a_loss(capabilities: Capabilities) -> None:
    """Without its lock other writers can come in, so the transaction that works under it must stop."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    lease = _lease(metastore, ScriptedClock(lambda: metastore.commit_txn(other)))
    lease.acquire()
    metastore.abort_txn(lease.txn_id - 1)
    lease.beat()
    assert f"transaction {lease.txn_id - 1} was aborted" in str(lease.lost)
    lease.abort()
    assert metastore.show_locks() == []


def test_the_wait_is_bounded_and_names_the_holder(clock: FakeClock, capabilities: Capabilities) -> None:
    """After lock_timeout_seconds: an error with user and transaction of the holder; nothing stays behind."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    reader = metastore.open_txn("reader", "there", "")
    reads = lock_components([_sink(is_sink=False, partition_names=("ds=a", "ds=b"))])
    metastore.lock(LockRequest(reads, reader, "reader", "there", ""))
    with pytest.raises(LockNotAcquiredError, match=rf"transaction {other}, them@there \(Hive\)") as caught:
        _lease(metastore, clock).acquire()
    assert "reader@" not in str(caught.value), "no request waits for a reader's lock"
    metastore.abort_txn(reader)
    assert sum(clock.sleeps) == pytest.approx(60)
    assert max(clock.sleeps) <= 15
    assert [i.txn_id for i in metastore.show_locks()] == [other]
    assert [t.id for t in metastore.get_open_txns().txns if t.state is TxnState.OPEN] == [other]


class NotReached(InMemoryMetastore):
    """It never gets a heartbeat."""

    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        raise MetastoreUnavailableError("no answer")


def test_a_lease_that_is_lost_while_it_waits_is_given_up(capabilities: Capabilities) -> None:
    """It would otherwise keep the lock until the server's timeout, and the next attempt would wait for it."""
    metastore = NotReached(capabilities=capabilities)
    other = _other_writer(metastore)

    def lose_then_grant() -> None:
        clock.advance(SETTINGS.txn_timeout_seconds)
        wait_until(lambda: lease.lost is not None, "the loss")
        metastore.commit_txn(other)

    clock = ScriptedClock(lose_then_grant)
    lease = _lease(metastore, clock)
    with pytest.raises(LockLostError, match="could not reach the metastore"):
        lease.acquire()
    assert metastore.show_locks() == []
    assert [t.id for t in metastore.get_open_txns().txns if t.state is TxnState.OPEN] == []


def test_a_long_wait_is_told_once(
    clock: FakeClock, capabilities: Capabilities, caplog: pytest.LogCaptureFixture
) -> None:
    """Who holds the lock, and how long it is waited for; below WARNING, which Python would print unasked."""
    caplog.set_level(logging.INFO, WAIT_LOG)
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    with pytest.raises(LockNotAcquiredError):
        _lease(metastore, clock).acquire()
    (told,) = [record for record in caplog.records if record.name == WAIT_LOG]
    assert told.levelno == logging.INFO
    assert f"transaction {other}, them@there (Hive); it waits for at most 57 s more" in told.getMessage()


def test_a_short_wait_is_not_told(capabilities: Capabilities, caplog: pytest.LogCaptureFixture) -> None:
    """A second or two are nothing to speak of."""
    caplog.set_level(logging.INFO, WAIT_LOG)
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    still = [lambda: None] * 36
    lease = _lease(metastore, ScriptedClock(*still, lambda: metastore.commit_txn(other)))
    lease.acquire()
    lease.release()
    assert lease.lock_wait_seconds > 1
    assert [record for record in caplog.records if record.name == WAIT_LOG] == []


def test_a_broken_lock_request_starts_over_with_a_new_transaction(
    clock: FakeClock, capabilities: Capabilities
) -> None:
    """It is never repeated in the same transaction, whether it arrived or not."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    metastore.fail_next("lock", MetastoreUnavailableError("connection cut"), after=True)
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert lease.txn_id == 2
    assert {(i.txn_id, i.state) for i in metastore.show_locks()} == {(2, LockState.ACQUIRED)}


def test_two_broken_lock_requests_are_an_error(clock: FakeClock, capabilities: Capabilities) -> None:
    """Starting over has a bound; what was opened is aborted."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    metastore.fail_next("lock", MetastoreUnavailableError("connection cut"), after=True, times=2)
    with pytest.raises(ConnectionFailedError, match="connection cut"):
        _lease(metastore, clock).acquire()
    assert metastore.show_locks() == []


def test_a_broken_poll_is_repeated(capabilities: Capabilities) -> None:
    """Asking again for a waiting lock is harmless, so a broken connection only costs time."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    metastore.fail_next("check_lock", MetastoreUnavailableError("connection cut"), times=3)
    lease = _lease(metastore, ScriptedClock(*[lambda: None] * 3, lambda: metastore.commit_txn(other)))
    lease.acquire()
    lease.stop()
    assert lease.roll_overs == 1


V2 = pytest.mark.parametrize("capabilities", [HIVE_3_1, HIVE_4_1], indirect=True, ids=lambda c: c.line)


def _inserts(metastore: InMemoryMetastore, txn_id: int) -> int:
    """Commit an insert, which waits for no lock; returns its write id."""
    write_id = metastore.allocate_write_id(txn_id, "default", "t")
    names = ["ds=a/hr=1"]
    metastore.add_dynamic_partitions(
        txn_id, "default", "t", names, DataOperationType.INSERT, write_id=write_id
    )
    metastore.commit_txn(txn_id)
    return write_id


class InsertersAtEachLock(InMemoryMetastore):
    """Before each lock of ours a transaction opened earlier inserts, so its write id is above ours."""

    inserters: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()

    def lock(self, request: LockRequest):  # type: ignore[no-untyped-def]
        if request.user == "us" and self.inserters:
            first, *rest = self.inserters
            self.inserters = tuple(rest)
            self.seen += (_inserts(self, first),)
        return super().lock(request)


@V2
def test_the_second_transaction_has_write_ids_of_its_own(capabilities: Capabilities) -> None:
    """They must grow with the order of commits: above those of the writer that was waited for."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    lease = _lease(metastore, ScriptedClock(lambda: metastore.commit_txn(other)))
    lease.acquire()
    lease.stop()
    assert (metastore.allocate_write_id(lease.txn_id, "default", "t"), lease.write_id("default.t")) == (3, 3)
    valid = lease.valid_ids("default.t")
    assert valid is lease.valid_write_ids["default.t"]
    assert [valid.is_valid(i) for i in (1, 2, 4)] == [True, False, False]
    assert lease.write_id("default.other") is None


@V2
def test_a_higher_write_id_in_the_snapshot_costs_a_roll_over(
    clock: FakeClock, capabilities: Capabilities
) -> None:
    """If a row's write id is above that of its delete event, one of Hive's readers keeps the row."""
    metastore = InsertersAtEachLock(capabilities=capabilities)
    metastore.inserters = tuple(metastore.open_txn("them", "there", "") for _ in range(2))
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert metastore.seen == (2, 4)
    assert lease.write_id("default.t") == 5
    assert lease.roll_overs == 2
    assert all(lease.valid_ids("default.t").is_valid(i) for i in metastore.seen)
    _commits_update(metastore, lease.txn_id)


@V2
def test_endless_inserts_are_an_error(clock: FakeClock, capabilities: Capabilities) -> None:
    """The number of transactions that are tried has a bound; nothing stays open."""
    metastore = InsertersAtEachLock(capabilities=capabilities)
    metastore.inserters = tuple(metastore.open_txn("them", "there", "") for _ in range(9))
    with pytest.raises(
        LockNotAcquiredError, match="5 times in a row, other writers inserted rows with higher write ids"
    ):
        _lease(metastore, clock).acquire()
    assert metastore.show_locks() == []
    alive = [t.user for t in metastore.get_open_txns().txns if t.state is TxnState.OPEN]
    assert set(alive) <= {"them"}


@V2
def test_insert_only_needs_no_highest_write_id(clock: FakeClock, capabilities: Capabilities) -> None:
    """Inserts delete nothing, so a higher write id does no harm."""
    metastore = InsertersAtEachLock(capabilities=capabilities)
    metastore.inserters = (metastore.open_txn("them", "there", ""),)
    lease = _lease(metastore, clock, _sink(insert_only=True))
    lease.acquire()
    lease.stop()
    assert (lease.write_id("default.t"), lease.roll_overs) == (1, 0)


@pytest.mark.parametrize("capabilities", [HIVE_4_1], indirect=True, ids=["4.1"])
def test_who_wants_the_table_for_himself_is_let_past(capabilities: Capabilities) -> None:
    """DDL that queues between guard and second waits for the guard, and the second for the DDL: give way."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    ddl: list[int] = []

    def queue_ddl() -> None:
        ddl.append(metastore.open_txn("them", "there", "ddl"))
        exclusive = LockComponent(
            LockType.EXCLUSIVE, LockLevel.TABLE, "default", "t", None, DataOperationType.SELECT
        )
        metastore.lock(LockRequest((exclusive,), ddl[0], "them", "there", "ddl"))
        metastore.commit_txn(other)

    lease = _lease(metastore, ScriptedClock(queue_ddl, lambda: metastore.commit_txn(ddl[0])))
    lease.acquire()
    lease.stop()
    assert lease.roll_overs == 1
    owners = {i.txn_id for i in metastore.show_locks()}
    assert owners == {lease.txn_id, lease.txn_id - 1}, "nothing of the first try stays"
    _commits_update(metastore, lease.txn_id)


def test_optimistic_writers_wait_where_the_server_gives_no_choice(capabilities: Capabilities) -> None:
    """Hive 4 lets two SHARED_WRITE in at once, and its commit refuses the second of them."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)
    clock = ScriptedClock(lambda: metastore.commit_txn(other))
    lease = _lease(metastore, clock, mode="optimistic")
    lease.acquire()
    lease.stop()
    if not capabilities.has_exclusive_write_lock:
        assert clock.sleeps == [MIN_LOOK_SECONDS]
        return
    assert (clock.sleeps, lease.roll_overs) == ([], 0)
    metastore.commit_txn(other)
    with pytest.raises(TxnAbortedError, match=rf"write conflict on default/t.* committed by \[txnid:{other}"):
        _commits_update(metastore, lease.txn_id)


def test_a_line_that_breaks_during_the_roll_over_keeps_the_guard(capabilities: Capabilities) -> None:
    """The guard holds the lock; only the transaction that was being opened is tried again."""
    metastore = InMemoryMetastore(capabilities=capabilities)
    other = _other_writer(metastore)

    def commit() -> None:
        metastore.commit_txn(other)
        metastore.fail_next("open_txn", MetastoreUnavailableError("connection cut"))

    with pytest.raises(ConnectionFailedError, match="connection cut"):
        _lease(metastore, ScriptedClock(commit)).acquire()
    assert metastore.show_locks() == []
