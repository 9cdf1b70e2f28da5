"""Behaviours of locks, in memory and on Hive 2.3.10, 3.1.3, 4.1.0 and 4.2.1."""

from __future__ import annotations

import itertools
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
    UnsupportedByServerError,
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
EXCL_WRITE = LockType.EXCL_WRITE


class Held(NamedTuple):
    txn_id: int
    lock_id: int
    is_granted: bool


def component(
    type: LockType, database: str, table: str | None = "t", partition: str | None = None
) -> LockComponent:
    is_write = type in (WRITE, EXCL_WRITE)
    operation = DataOperationType.UPDATE if is_write else DataOperationType.SELECT
    level = LockLevel.DB if table is None else LockLevel.TABLE if partition is None else LockLevel.PARTITION
    return LockComponent(
        type, level, database, table, partition, operation, is_dynamic_partition_write=is_write
    )


@pytest.fixture
def writer(metastore: MetastoreClient) -> LockType:
    """The lock of a writer that excludes all others: 4.x has a separate type for it."""
    return EXCL_WRITE if metastore.capabilities().has_exclusive_write_lock else WRITE


def take(metastore: MetastoreClient, *components: LockComponent) -> Held:
    """Lock in a new transaction."""
    txn_id = metastore.open_txn("user", "host", "agent")
    response = metastore.lock(LockRequest(components, txn_id, "user", "host", "agent"))
    assert response.state in (LockState.ACQUIRED, LockState.WAITING)
    return Held(txn_id, response.lock_id, response.state is LockState.ACQUIRED)


def is_granted_now(metastore: MetastoreClient, held: Held) -> bool:
    return metastore.check_lock(held.lock_id, held.txn_id).state is LockState.ACQUIRED


WAITS = {(WRITE, WRITE), (READ, ALONE), (WRITE, ALONE), *((ALONE, type) for type in (READ, WRITE, ALONE))}
"""Held and wanted types of 2.3 and 3.1."""
WAITS_4 = {
    *[(WRITE, EXCL_WRITE), (EXCL_WRITE, WRITE), (EXCL_WRITE, EXCL_WRITE)],
    *((ALONE, type) for type in LockType),
    *((type, ALONE) for type in LockType),
}
"""The same for 4.x: optimistic writers do not wait for each other."""


def test_compatibility(metastore: MetastoreClient, database: str) -> None:
    """The table of lock types; what had to wait is granted when the holder is gone."""
    is_4 = metastore.capabilities().has_exclusive_write_lock
    types = [READ, WRITE, *([EXCL_WRITE] if is_4 else []), ALONE]
    waits = set()
    for held, wanted in itertools.product(types, types):
        table = f"{held.name}_{wanted.name}"
        first = take(metastore, component(held, database, table))
        assert first.is_granted
        second = take(metastore, component(wanted, database, table))
        if not second.is_granted:
            waits.add((held, wanted))
            assert not is_granted_now(metastore, second)
        metastore.commit_txn(first.txn_id)
        assert is_granted_now(metastore, second)
        metastore.abort_txn(second.txn_id)
    assert waits == (WAITS_4 if is_4 else WAITS)


def test_only_some_servers_have_an_exclusive_write_lock(metastore: MetastoreClient, database: str) -> None:
    """The others would hang up on a type that they do not know; so they are not asked."""
    if metastore.capabilities().has_exclusive_write_lock:
        assert take(metastore, component(EXCL_WRITE, database)).is_granted
        return
    with pytest.raises(UnsupportedByServerError, match="does not have the lock type EXCL_WRITE"):
        take(metastore, component(EXCL_WRITE, database))
    assert metastore.show_locks(database) == []


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
    writer: LockType,
    held: tuple[str | None, str | None],
    wanted: tuple[str | None, str | None],
    is_granted: bool,
) -> None:
    """A lock on the whole covers its parts; different parts do not touch."""
    assert take(metastore, component(writer, database, *held)).is_granted
    assert take(metastore, component(writer, database, *wanted)).is_granted is is_granted


def test_using_a_database_and_taking_one_of_its_tables_alone_do_not_conflict(
    metastore: MetastoreClient, database: str
) -> None:
    """A shared lock on a database only keeps the database from being dropped."""
    assert take(metastore, component(READ, database, None)).is_granted
    assert take(metastore, component(ALONE, database, "t")).is_granted


def test_names_of_databases_and_tables_have_no_case(
    metastore: MetastoreClient, database: str, writer: LockType
) -> None:
    """Two spellings of a table exclude each other, though a 2.3 server compares as sent."""
    assert take(metastore, component(writer, database.upper(), "T")).is_granted
    assert not take(metastore, component(writer, database, "t")).is_granted


def test_all_components_are_granted_or_none(
    metastore: MetastoreClient, database: str, writer: LockType
) -> None:
    """A request that waits for one part holds none of the others."""
    first = take(metastore, component(writer, database, "a"))
    second = take(metastore, component(writer, database, "a"), component(writer, database, "b"))
    assert not second.is_granted
    states = {lock.state for lock in metastore.show_locks(database) if lock.lock_id == second.lock_id}
    assert states == {LockState.WAITING}
    metastore.abort_txn(first.txn_id)
    assert is_granted_now(metastore, second)


def test_waiting_writers_queue_by_age(metastore: MetastoreClient, database: str, writer: LockType) -> None:
    """The younger one stays behind the older one, even if it asks first."""
    holder, older, younger = (take(metastore, component(writer, database)) for _ in range(3))
    metastore.commit_txn(holder.txn_id)
    assert not is_granted_now(metastore, younger)
    assert is_granted_now(metastore, older)
    assert not is_granted_now(metastore, younger)


def test_who_passes_a_waiting_exclusive_lock(metastore: MetastoreClient, database: str) -> None:
    """On 2.3 DDL that waits for a reader does not hold up later locks; later releases queue."""
    assert take(metastore, component(READ, database)).is_granted
    alone = take(metastore, component(ALONE, database))
    assert not alone.is_granted
    passes = not metastore.capabilities().has_write_ids
    reader = take(metastore, component(READ, database))
    assert reader.is_granted is passes
    assert take(metastore, component(WRITE, database)).is_granted is passes
    metastore.abort_txn(alone.txn_id)
    assert is_granted_now(metastore, reader)


def test_only_earlier_locks_are_waited_for(metastore: MetastoreClient, database: str) -> None:
    """An exclusive lock that waited is granted when the locks before it are gone."""
    reader = take(metastore, component(READ, database))
    alone = take(metastore, component(ALONE, database))
    take(metastore, component(READ, database))
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


def test_show_locks_names_owner_and_blocker(
    metastore: MetastoreClient, database: str, writer: LockType
) -> None:
    """A waiting lock names the lock for which it waits."""
    holder = take(metastore, component(writer, database, "t", "ds=a"))
    waiter = take(metastore, component(writer, database, "t", "ds=a"))
    first, second = sorted(metastore.show_locks(database, "t"), key=lambda lock: lock.lock_id)
    assert (first.lock_id, first.txn_id, first.state) == (
        holder.lock_id,
        holder.txn_id,
        LockState.ACQUIRED,
    )
    assert (first.database, first.table, first.partition) == (database, "t", "ds=a")
    assert (first.type, first.user, first.hostname, first.agent_info) == (writer, "user", "host", "agent")
    assert first.blocked_by is None
    assert (second.lock_id, second.state, second.blocked_by) == (
        waiter.lock_id,
        LockState.WAITING,
        holder.lock_id,
    )
    assert metastore.show_locks(database, "another") == []


def test_a_waiting_lock_can_be_given_up(metastore: MetastoreClient, database: str, writer: LockType) -> None:
    """It may be called twice; the transaction lives on."""
    take(metastore, component(writer, database))
    waiting = take(metastore, component(writer, database))
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
    """Invalid requests leave no lock behind."""
    txn_id = metastore.open_txn("user", "host", "agent")
    with pytest.raises(InvalidRequestError):
        metastore.lock(LockRequest((), txn_id, "user", "host", "agent"))
    unset = LockComponent(WRITE, LockLevel.TABLE, database, "t", None, DataOperationType.UNSET)
    with pytest.raises(MetastoreError):
        metastore.lock(LockRequest((unset,), txn_id, "user", "host", "agent"))
    assert metastore.show_locks(database) == []


def test_a_component_without_dynamic_partitions_is_recorded_when_locked(
    metastore: MetastoreClient, database: str, writer: LockType
) -> None:
    """Unpartitioned tables need no registration: the lock request itself brings the conflict check."""
    txn_ids = [metastore.open_txn("user", "host", "agent") for _ in range(2)]
    update = LockComponent(writer, LockLevel.TABLE, database, "t", None, DataOperationType.UPDATE)
    requests = [LockRequest((update,), txn_id, "user", "host", "agent") for txn_id in txn_ids]
    assert metastore.lock(requests[0]).state is LockState.ACQUIRED
    waiting = metastore.lock(requests[1])
    metastore.commit_txn(txn_ids[0])
    assert metastore.check_lock(waiting.lock_id, txn_ids[1]).state is LockState.ACQUIRED
    with pytest.raises(TxnAbortedError, match=f"write conflict on {database}/t committed by"):
        metastore.commit_txn(txn_ids[1])
