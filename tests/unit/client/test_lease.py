"""One lock request, the bounded wait, and the roll-over after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    TxnState,
)
from metastore_client.testing import InMemoryMetastore
from mutation_api.client.lease import Lease, LeaseSettings
from mutation_api.client.lock import LockedTable, Marks, lock_components
from mutation_api.errors import ConnectionFailedError, LockNotAcquiredError
from tests.fix_clock import FakeClock

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


def _lease(metastore: InMemoryMetastore, clock: FakeClock, *tables: LockedTable) -> Lease:
    return Lease(
        metastore, clock, lambda: lock_components(tables or (_sink(),)), SETTINGS, lambda error: None
    )


def _other_writer(metastore: InMemoryMetastore, *, registers: bool = True) -> int:
    """A writer that holds, or waits for, the lock on default.t and may have registered a partition."""
    txn_id = metastore.open_txn("them", "there", "Hive")
    metastore.lock(LockRequest(lock_components([_sink()]), txn_id, "them", "there", "Hive"))
    if registers:
        metastore.add_dynamic_partitions(txn_id, "default", "t", ["ds=a/hr=1"], DataOperationType.UPDATE)
    return txn_id


def _commits_update(metastore: InMemoryMetastore, txn_id: int) -> None:
    metastore.add_dynamic_partitions(txn_id, "default", "t", ["ds=a/hr=1"], DataOperationType.UPDATE)
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
    """Whatever is done with the table: a partition's lock says SELECT, so it is not recorded as written."""
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


def test_partitions_made_by_the_writer_that_was_waited_for_are_locked() -> None:
    """The second transaction looks again at what there is: its snapshot shows the new partitions."""
    metastore = InMemoryMetastore()
    other = _other_writer(metastore)
    names = ["ds=old"]
    clock = ScriptedClock(lambda: (names.append("ds=new"), metastore.commit_txn(other)))
    lease = Lease(
        metastore,
        clock,
        lambda: lock_components([_sink(partition_names=tuple(names))]),
        SETTINGS,
        lambda error: None,
    )
    lease.acquire()
    locked = {i.partition for i in metastore.show_locks() if i.txn_id == lease.txn_id}
    assert locked == {None, "ds=new", "ds=old"}
    lease.abort()


def test_a_free_table_is_locked_at_once(clock: FakeClock) -> None:
    """One request, no polling, no roll-over."""
    metastore = InMemoryMetastore()
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert metastore.calls.count("lock") == 1
    assert "check_lock" not in metastore.calls
    assert lease.roll_overs == 0


def test_waits_then_rolls_over_and_can_commit() -> None:
    """Who had to wait gets a new transaction, sees the other's commit, and does not conflict with it."""
    metastore = InMemoryMetastore()
    other = _other_writer(metastore)
    clock = ScriptedClock(lambda: None, lambda: metastore.commit_txn(other))
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert lease.roll_overs == 1
    assert clock.sleeps == [0.1, 0.2]
    assert lease.valid_txn_list.is_valid(other)
    states = {t.id: t.state for t in metastore.get_open_txns().txns}
    assert [i for i, s in states.items() if s is TxnState.OPEN] == [lease.txn_id - 1, lease.txn_id]
    # One request per transaction: ours and the one that took its place.
    assert metastore.calls.count("lock") == 1 + 2
    _commits_update(metastore, lease.txn_id)


def test_without_the_roll_over_the_commit_would_conflict() -> None:
    """The rule that makes the roll-over necessary: a transaction opened before the other's commit loses."""
    metastore = InMemoryMetastore()
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


def test_insert_only_never_rolls_over() -> None:
    """Inserts conflict with nobody, so a wait (for DDL) costs no second transaction."""
    metastore = InMemoryMetastore()
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


def test_a_writer_in_the_queue_neither_overtakes_nor_starves() -> None:
    """Whoever queued behind us while we waited gets the lock after us, and not before we have ended."""
    metastore = InMemoryMetastore()
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


def test_the_loss_of_the_guard_is_a_loss() -> None:
    """Without its lock other writers can come in, so the transaction that works under it must stop."""
    metastore = InMemoryMetastore()
    other = _other_writer(metastore)
    lease = _lease(metastore, ScriptedClock(lambda: metastore.commit_txn(other)))
    lease.acquire()
    metastore.abort_txn(lease.txn_id - 1)
    lease.beat()
    assert f"transaction {lease.txn_id - 1} was aborted" in str(lease.lost)
    lease.abort()
    assert metastore.show_locks() == []


def test_the_wait_is_bounded_and_names_the_holder(clock: FakeClock) -> None:
    """After lock_timeout_seconds: an error with owner and transaction of the holder; nothing stays behind."""
    metastore = InMemoryMetastore()
    other = _other_writer(metastore)
    reader = metastore.open_txn("reader", "there", "")
    reads = lock_components([_sink(is_sink=False, partition_names=("ds=a", "ds=b"))])
    metastore.lock(LockRequest(reads, reader, "reader", "there", ""))
    with pytest.raises(LockNotAcquiredError, match=rf"transaction {other}, them@there \(Hive\)") as caught:
        _lease(metastore, clock).acquire()
    assert "reader@" not in str(caught.value), "who only reads keeps nobody waiting"
    metastore.abort_txn(reader)
    assert sum(clock.sleeps) == pytest.approx(60)
    assert max(clock.sleeps) <= 15
    assert [i.txn_id for i in metastore.show_locks()] == [other]
    assert [t.id for t in metastore.get_open_txns().txns if t.state is TxnState.OPEN] == [other]


def test_a_broken_lock_request_starts_over_with_a_new_transaction(clock: FakeClock) -> None:
    """It is never repeated in the same transaction, whether it arrived or not."""
    metastore = InMemoryMetastore()
    metastore.fail_next("lock", MetastoreUnavailableError("line cut"), after=True)
    lease = _lease(metastore, clock)
    lease.acquire()
    lease.stop()
    assert lease.txn_id == 2
    assert {(i.txn_id, i.state) for i in metastore.show_locks()} == {(2, LockState.ACQUIRED)}


def test_two_broken_lock_requests_are_an_error(clock: FakeClock) -> None:
    """Starting over has a bound; what was opened is aborted."""
    metastore = InMemoryMetastore()
    metastore.fail_next("lock", MetastoreUnavailableError("line cut"), after=True, times=2)
    with pytest.raises(ConnectionFailedError, match="line cut"):
        _lease(metastore, clock).acquire()
    assert metastore.show_locks() == []


def test_a_broken_poll_is_repeated() -> None:
    """Asking again for a waiting lock is harmless, so a broken line only costs time."""
    metastore = InMemoryMetastore()
    other = _other_writer(metastore)
    metastore.fail_next("check_lock", MetastoreUnavailableError("line cut"), times=3)
    lease = _lease(metastore, ScriptedClock(*[lambda: None] * 3, lambda: metastore.commit_txn(other)))
    lease.acquire()
    lease.stop()
    assert lease.roll_overs == 1
