"""Behaviours of locks, on the in-memory metastore and on Hive 2.3.10."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    NoSuchLockError,
    NoSuchTxnError,
    TxnAbortedError,
    TxnOpenError,
)
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
)

READ, WRITE, ALONE = LockType.SHARED_READ, LockType.SHARED_WRITE, LockType.EXCLUSIVE


class Held(NamedTuple):
    txn_id: int
    lock_id: int
    is_granted: bool


def component(
    type: LockType, database: str, table: str | None = "t", partition: str | None = None
) -> LockComponent:
    operation = DataOperationType.UPDATE if type is WRITE else DataOperationType.SELECT
    level = LockLevel.DB if table is None else LockLevel.TABLE if partition is None else LockLevel.PARTITION
    return LockComponent(
        type, level, database, table, partition, operation, is_dynamic_partition_write=type is WRITE
    )


def take(metastore: MetastoreClient, *components: LockComponent) -> Held:
    """Lock in a new transaction."""
    txn_id = metastore.open_txn("user", "host", "agent")
    response = metastore.lock(LockRequest(components, txn_id, "user", "host", "agent"))
    assert response.state in (LockState.ACQUIRED, LockState.WAITING)
    return Held(txn_id, response.lock_id, response.state is LockState.ACQUIRED)


def is_granted_now(metastore: MetastoreClient, held: Held) -> bool:
    return metastore.check_lock(held.lock_id, held.txn_id).state is LockState.ACQUIRED


@pytest.mark.parametrize(
    ("held", "wanted", "is_granted"),
    [
        *[(READ, READ, True), (WRITE, READ, True), (ALONE, READ, False)],
        *[(READ, WRITE, True), (WRITE, WRITE, False), (ALONE, WRITE, False)],
        *[(READ, ALONE, False), (WRITE, ALONE, False), (ALONE, ALONE, False)],
    ],
)
def test_compatibility(
    metastore: MetastoreClient, database: str, held: LockType, wanted: LockType, is_granted: bool
) -> None:
    """The table of lock types; what had to wait is granted when the holder is gone."""
    first = take(metastore, component(held, database))
    assert first.is_granted
    second = take(metastore, component(wanted, database))
    assert second.is_granted is is_granted
    assert is_granted_now(metastore, second) is is_granted
    metastore.commit_txn(first.txn_id)
    assert is_granted_now(metastore, second)


@pytest.mark.parametrize(
    ("held", "wanted", "is_granted"),
    [
        *[(("t", None), ("t", "ds=a"), False), (("t", "ds=a"), ("t", None), False)],
        *[(("t", "ds=a"), ("t", "ds=b"), True), (("t", "ds=a"), ("t", "ds=a"), False)],
        *[(("t", None), ("u", None), True), ((None, None), ("t", "ds=a"), False)],
    ],
)
def test_overlap(
    metastore: MetastoreClient,
    database: str,
    held: tuple[str | None, str | None],
    wanted: tuple[str | None, str | None],
    is_granted: bool,
) -> None:
    """A lock on the whole covers its parts; different parts do not touch."""
    assert take(metastore, component(WRITE, database, *held)).is_granted
    assert take(metastore, component(WRITE, database, *wanted)).is_granted is is_granted


def test_using_a_database_and_taking_one_of_its_tables_alone_do_not_conflict(
    metastore: MetastoreClient, database: str
) -> None:
    """A shared lock on a database only keeps the database from being dropped."""
    assert take(metastore, component(READ, database, None)).is_granted
    assert take(metastore, component(ALONE, database, "t")).is_granted


def test_names_of_databases_and_tables_have_no_case(metastore: MetastoreClient, database: str) -> None:
    """Two spellings of a table exclude each other, though a 2.3 server compares as sent."""
    assert take(metastore, component(WRITE, database.upper(), "T")).is_granted
    assert not take(metastore, component(WRITE, database, "t")).is_granted


def test_all_components_are_granted_or_none(metastore: MetastoreClient, database: str) -> None:
    """A request that waits for one part holds none of the others."""
    first = take(metastore, component(WRITE, database, "a"))
    second = take(metastore, component(WRITE, database, "a"), component(WRITE, database, "b"))
    assert not second.is_granted
    states = {lock.state for lock in metastore.show_locks(database) if lock.lock_id == second.lock_id}
    assert states == {LockState.WAITING}
    metastore.abort_txn(first.txn_id)
    assert is_granted_now(metastore, second)


def test_waiting_writers_queue_by_age(metastore: MetastoreClient, database: str) -> None:
    """The younger one stays behind the older one, whoever asks first."""
    holder, older, younger = (take(metastore, component(WRITE, database)) for _ in range(3))
    metastore.commit_txn(holder.txn_id)
    assert not is_granted_now(metastore, younger)
    assert is_granted_now(metastore, older)
    assert not is_granted_now(metastore, younger)


def test_readers_and_writers_pass_a_waiting_exclusive_lock(metastore: MetastoreClient, database: str) -> None:
    """On 2.3 DDL that waits for a reader does not hold up those that come after it."""
    assert take(metastore, component(READ, database)).is_granted
    assert not take(metastore, component(ALONE, database)).is_granted
    assert take(metastore, component(READ, database)).is_granted
    assert take(metastore, component(WRITE, database)).is_granted


def test_only_earlier_locks_are_waited_for(metastore: MetastoreClient, database: str) -> None:
    """An exclusive lock that waited is granted when the locks before it are gone."""
    reader = take(metastore, component(READ, database))
    alone = take(metastore, component(ALONE, database))
    assert take(metastore, component(READ, database)).is_granted
    metastore.commit_txn(reader.txn_id)
    assert is_granted_now(metastore, alone)


def test_a_transaction_does_not_wait_for_itself(metastore: MetastoreClient, database: str) -> None:
    """Two components of one request may overlap."""
    assert take(metastore, component(WRITE, database), component(READ, database)).is_granted


@pytest.mark.parametrize("end", ["commit_txn", "abort_txn"])
def test_the_end_of_a_transaction_frees_its_locks(
    metastore: MetastoreClient, database: str, end: str
) -> None:
    """Neither commit nor abort leaves a lock behind."""
    held = take(metastore, component(WRITE, database))
    getattr(metastore, end)(held.txn_id)
    assert metastore.show_locks(database) == []
    with pytest.raises(NoSuchLockError):
        metastore.check_lock(held.lock_id, held.txn_id)


def test_show_locks_names_owner_and_blocker(metastore: MetastoreClient, database: str) -> None:
    """Who waits for whom can be seen."""
    holder = take(metastore, component(WRITE, database, "t", "ds=a"))
    waiter = take(metastore, component(WRITE, database, "t", "ds=a"))
    first, second = sorted(metastore.show_locks(database, "t"), key=lambda lock: lock.lock_id)
    assert (first.lock_id, first.txn_id, first.state) == (
        holder.lock_id,
        holder.txn_id,
        LockState.ACQUIRED,
    )
    assert (first.database, first.table, first.partition) == (database, "t", "ds=a")
    assert (first.type, first.user, first.hostname, first.agent_info) == (WRITE, "user", "host", "agent")
    assert first.blocked_by is None
    assert (second.lock_id, second.state, second.blocked_by) == (
        waiter.lock_id,
        LockState.WAITING,
        holder.lock_id,
    )
    assert metastore.show_locks(database, "another") == []


def test_a_waiting_lock_can_be_given_up(metastore: MetastoreClient, database: str) -> None:
    """It may be said twice; the transaction lives on."""
    take(metastore, component(WRITE, database))
    waiting = take(metastore, component(WRITE, database))
    metastore.unlock(waiting.lock_id)
    metastore.unlock(waiting.lock_id)
    assert len(metastore.show_locks(database)) == 1
    metastore.commit_txn(waiting.txn_id)


def test_a_granted_lock_of_a_transaction_cannot_be_given_up(
    metastore: MetastoreClient, database: str
) -> None:
    """Only the end of the transaction frees it."""
    held = take(metastore, component(WRITE, database))
    with pytest.raises(TxnOpenError):
        metastore.unlock(held.lock_id)
    assert len(metastore.show_locks(database)) == 1


def test_a_lock_needs_an_open_transaction(metastore: MetastoreClient, database: str) -> None:
    """An aborted or unknown transaction gets no lock."""
    held = take(metastore, component(WRITE, database))
    metastore.abort_txn(held.txn_id)
    for txn_id, error in ((held.txn_id, TxnAbortedError), (9_000_000, NoSuchTxnError)):
        with pytest.raises(error):
            metastore.lock(LockRequest((component(WRITE, database),), txn_id, "user", "host", "agent"))
    assert metastore.show_locks(database) == []


def test_a_request_that_names_nothing_or_no_operation_is_refused(
    metastore: MetastoreClient, database: str
) -> None:
    """Mistakes of the caller leave no lock behind."""
    txn_id = metastore.open_txn("user", "host", "agent")
    with pytest.raises(InvalidRequestError):
        metastore.lock(LockRequest((), txn_id, "user", "host", "agent"))
    unset = LockComponent(WRITE, LockLevel.TABLE, database, "t", None, DataOperationType.UNSET)
    with pytest.raises(MetastoreError):
        metastore.lock(LockRequest((unset,), txn_id, "user", "host", "agent"))
    assert metastore.show_locks(database) == []


def test_a_component_without_dynamic_partitions_is_recorded_when_locked(
    metastore: MetastoreClient, database: str
) -> None:
    """Unpartitioned tables need no registration: the lock request itself brings the conflict check."""
    txn_ids = [metastore.open_txn("user", "host", "agent") for _ in range(2)]
    update = LockComponent(WRITE, LockLevel.TABLE, database, "t", None, DataOperationType.UPDATE)
    requests = [LockRequest((update,), txn_id, "user", "host", "agent") for txn_id in txn_ids]
    assert metastore.lock(requests[0]).state is LockState.ACQUIRED
    waiting = metastore.lock(requests[1])
    metastore.commit_txn(txn_ids[0])
    assert metastore.check_lock(waiting.lock_id, txn_ids[1]).state is LockState.ACQUIRED
    with pytest.raises(TxnAbortedError, match=f"write conflict on {database}/t committed by"):
        metastore.commit_txn(txn_ids[1])
