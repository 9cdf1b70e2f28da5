"""Behaviours of write ids, exclusive writers and notifications, in memory and on real Hives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    NoSuchTxnError,
    TxnAbortedError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
    TableInfo,
    WriteNotification,
)
from metastore_client.testing import InMemoryMetastore
from metastore_client.valid_ids import NO_OPEN_ID, ValidTxnList
from tests.fixtures.fix_metastore import kinds
from tests.fixtures.fix_newest import HIVE_4

MakeTable = Callable[..., TableInfo]
UPDATE = DataOperationType.UPDATE
NEVER_USED_TXN_ID = 9_000_000


with_write_ids = pytest.mark.parametrize("metastore", kinds("3.1", "4.1"), indirect=True)
on_hive_4 = pytest.mark.parametrize("metastore", kinds("4.1"), indirect=True)


def open_txn(metastore: MetastoreClient) -> int:
    return metastore.open_txn("user", "host", "agent")


def snapshot_of(metastore: MetastoreClient, txn_id: int) -> ValidTxnList:
    return ValidTxnList.from_open_txns(metastore.get_open_txns(), txn_id, has_write_ids=True)


def lock(
    metastore: MetastoreClient, txn_id: int, table: TableInfo, type: LockType, *, dynamic: bool = False
) -> LockResponse:
    component = LockComponent(
        type,
        LockLevel.TABLE,
        table.database,
        table.name,
        None,
        UPDATE,
        is_dynamic_partition_write=dynamic,
    )
    return metastore.lock(LockRequest((component,), txn_id, "user", "host", "agent"))


# -- write ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metastore", kinds("2.3"), indirect=True)
def test_a_server_without_write_ids_is_not_asked(metastore: MetastoreClient, database: str) -> None:
    """It does not know the calls."""
    for call in (
        lambda: metastore.allocate_write_id(open_txn(metastore), database, "t"),
        lambda: metastore.get_valid_write_ids([f"{database}.t"], ValidTxnList(1)),
    ):
        with pytest.raises(UnsupportedByServerError, match="no write ids"):
            call()


@with_write_ids
def test_write_ids_count_by_table_in_the_order_of_asking(metastore: MetastoreClient, database: str) -> None:
    """From 1; the same for the same transaction, in any spelling of the names; no table need exist."""
    older, younger = open_txn(metastore), open_txn(metastore)
    assert metastore.allocate_write_id(younger, database, "t") == 1
    assert metastore.allocate_write_id(older, database, "t") == 2
    assert metastore.allocate_write_id(younger, database.upper(), "T") == 1
    assert metastore.allocate_write_id(older, database, "t") == 2
    assert metastore.allocate_write_id(older, database, "another") == 1


@with_write_ids
def test_only_an_open_transaction_gets_a_write_id(
    metastore: MetastoreClient, database: str, make_table: MakeTable
) -> None:
    """Servers fail or hang up; the client says what is wrong, and the next call works."""
    make_table("t", "ds")
    aborted, committed = open_txn(metastore), open_txn(metastore)
    for txn_id in (aborted, committed):
        # What has no records may be forgotten.
        write_id = metastore.allocate_write_id(txn_id, database, "t")
        metastore.add_dynamic_partitions(txn_id, database, "t", ["ds=a"], UPDATE, write_id=write_id)
    metastore.abort_txn(aborted)
    metastore.commit_txn(committed)
    for txn_id, error in (
        (aborted, TxnAbortedError),
        (committed, NoSuchTxnError),
        (NEVER_USED_TXN_ID, NoSuchTxnError),
    ):
        with pytest.raises(error, match=f"{txn_id}"):
            metastore.allocate_write_id(txn_id, database, "t")
    assert metastore.allocate_write_id(open_txn(metastore), database, "t") == 3


@with_write_ids
def test_a_registration_needs_the_write_id(metastore: MetastoreClient, make_table: MakeTable) -> None:
    """Without it the server would hang up."""
    table, txn_id = make_table("t", "ds"), open_txn(metastore)
    with pytest.raises(InvalidRequestError):
        metastore.add_dynamic_partitions(txn_id, table.database, table.name, ["ds=a"], UPDATE)


@with_write_ids
def test_valid_write_ids_follow_the_snapshot(metastore: MetastoreClient, database: str) -> None:
    """Own and committed ones are valid, open and aborted ones are not, younger ones count as open."""
    committed, aborted, other, own, younger = (open_txn(metastore) for _ in range(5))
    for txn_id in (committed, aborted, younger, other, own):
        metastore.allocate_write_id(txn_id, database, "t")
    metastore.allocate_write_id(younger, database, "young")
    metastore.commit_txn(committed)
    metastore.abort_txn(aborted)
    metastore.commit_txn(younger)
    names = [f"{database.upper()}.T", f"{database}.t", f"{database}.young", f"{database}.missing"]
    found = metastore.get_valid_write_ids(names, snapshot_of(metastore, own))
    assert {name: ids.to_text() for name, ids in found.items()} == {
        f"{database}.t": f"{database}.t:5:3:3,4:2",
        f"{database}.young": f"{database}.young:1:1:1:",
        f"{database}.missing": f"{database}.missing:0:{NO_OPEN_ID}::",
    }
    assert [i for i in range(1, 8) if found[f"{database}.t"].is_valid(i)] == [1, 5]
    later = open_txn(metastore)
    (ids,) = metastore.get_valid_write_ids([f"{database}.t"], snapshot_of(metastore, later)).values()
    assert ids.to_text() == f"{database}.t:5:4:4,5:2"
    assert metastore.get_valid_write_ids([], snapshot_of(metastore, later)) == {}


@with_write_ids
def test_many_aborted_write_ids(metastore: MetastoreClient, database: str, line: str) -> None:
    """More than a byte of bits; 4.x shortens a list in which nothing is valid to its first id."""
    txn_ids = [open_txn(metastore) for _ in range(20)]
    for txn_id in txn_ids:
        metastore.allocate_write_id(txn_id, database, "t")
    aborted = frozenset({1, 8, 9, 10, 17})
    for write_id in aborted:
        metastore.abort_txn(txn_ids[write_id - 1])
    own = open_txn(metastore)
    snapshot = snapshot_of(metastore, own)
    (ids,) = metastore.get_valid_write_ids([f"{database}.t"], snapshot).values()
    assert not any(ids.is_valid(id) for id in range(1, 22))
    if line in HIVE_4:
        assert ids.to_text() == f"{database}.t:1:2::1"
    else:
        assert (ids.high_watermark, ids.aborted) == (20, aborted)
    metastore.allocate_write_id(own, database, "t")
    (ids,) = metastore.get_valid_write_ids([f"{database}.t"], snapshot).values()
    assert (ids.high_watermark, ids.aborted, ids.min_open) == (21, aborted, 2)
    assert ids.exceptions == tuple(range(1, 21))


@with_write_ids
@pytest.mark.parametrize("name", ["t", "", ".t", "d."])
def test_a_name_without_its_database_is_refused(metastore: MetastoreClient, name: str) -> None:
    """A server would hang up on it."""
    with pytest.raises(InvalidRequestError, match=r"database\.table"):
        metastore.get_valid_write_ids([name], ValidTxnList(1))


# -- writers that exclude each other, and writers that do not ------------------------------------------------


@on_hive_4
def test_the_first_optimistic_writer_to_commit_wins(
    metastore: MetastoreClient, make_table: MakeTable
) -> None:
    """On 4.x SHARED_WRITE lets both in; without partitions, with them, and before they are registered."""
    plain, partitioned, announced = make_table("plain"), make_table("parts", "ds"), make_table("dyn", "ds")
    for table in (plain, partitioned, announced):
        winner, loser = open_txn(metastore), open_txn(metastore)
        for txn_id in (winner, loser):
            write_id = metastore.allocate_write_id(txn_id, table.database, table.name)
            locked = lock(metastore, txn_id, table, LockType.SHARED_WRITE, dynamic=table is not plain)
            assert locked.state is LockState.ACQUIRED
            if table is partitioned:
                metastore.add_dynamic_partitions(
                    txn_id, table.database, table.name, ["ds=1"], UPDATE, write_id=write_id
                )
        metastore.commit_txn(winner)
        resource = f"{table.database}/{table.name}{'/ds=1' if table is partitioned else ''}"
        conflict = rf"{loser}.* due to a write conflict on {resource} committed by \[txnid:{winner},.* u/u"
        with pytest.raises(TxnAbortedError, match=conflict):
            metastore.commit_txn(loser)


@on_hive_4
def test_registered_partitions_take_the_place_of_the_table(
    metastore: MetastoreClient, make_table: MakeTable
) -> None:
    """Optimistic writers of different partitions of one table both commit."""
    table, txn_ids = make_table("t", "ds"), [open_txn(metastore) for _ in range(2)]
    for txn_id in txn_ids:
        write_id = metastore.allocate_write_id(txn_id, table.database, "t")
        assert lock(metastore, txn_id, table, LockType.SHARED_WRITE, dynamic=True).state is LockState.ACQUIRED
        names = [f"ds={txn_id}"]
        metastore.add_dynamic_partitions(txn_id, table.database, "t", names, UPDATE, write_id=write_id)
    for txn_id in txn_ids:
        metastore.commit_txn(txn_id)


def test_a_writer_that_waited_rolls_over(metastore: MetastoreClient, make_table: MakeTable) -> None:
    """A transaction that waited aborts by a conflict; a second one, queued behind it, commits."""
    is_4 = metastore.capabilities().has_exclusive_write_lock
    type = LockType.EXCL_WRITE if is_4 else LockType.SHARED_WRITE
    table = make_table("t")
    holder, waiter, stubborn = (open_txn(metastore) for _ in range(3))
    assert lock(metastore, holder, table, type).state is LockState.ACQUIRED
    first = lock(metastore, waiter, table, type)
    third = lock(metastore, stubborn, table, type)
    assert (first.state, third.state) == (LockState.WAITING, LockState.WAITING)
    metastore.commit_txn(holder)
    assert metastore.check_lock(first.lock_id, waiter).state is LockState.ACQUIRED
    second_txn = open_txn(metastore)
    second = lock(metastore, second_txn, table, type)
    assert second.state is LockState.WAITING
    metastore.abort_txn(waiter)
    assert metastore.check_lock(third.lock_id, stubborn).state is LockState.ACQUIRED
    with pytest.raises(TxnAbortedError, match="write conflict"):
        metastore.commit_txn(stubborn)
    assert metastore.check_lock(second.lock_id, second_txn).state is LockState.ACQUIRED
    metastore.commit_txn(second_txn)


# -- files of a snapshot -------------------------------------------------------------------------------------


def test_a_transaction_tells_its_tables(
    metastore: MetastoreClient, database: str, make_table: MakeTable, line: str
) -> None:
    """Twice does no harm, nor do no tables at all; the end of the transaction is the end of it."""
    names = [f"{database}.{make_table(name).name}".upper() for name in ("t", "u")]
    txn_id = open_txn(metastore)
    if line not in HIVE_4:
        with pytest.raises(UnsupportedByServerError, match="tables that a transaction reads"):
            metastore.keep_files(txn_id, names)
        return
    for told in (names, names[:1], []):
        metastore.keep_files(txn_id, told)
    if isinstance(metastore, InMemoryMetastore):
        assert metastore.kept_files == {txn_id: {name.lower() for name in names}}
    metastore.commit_txn(txn_id)
    if isinstance(metastore, InMemoryMetastore):
        assert metastore.kept_files == {}


# -- notifications -------------------------------------------------------------------------------------------


def test_written_files_are_told(
    metastore: MetastoreClient, database: str, make_table: MakeTable, line: str
) -> None:
    """With files, without, for partitions of several tables; where the server takes them."""
    made = [make_table("t"), make_table("p", "ds")]
    txn_id = open_txn(metastore)
    told = []
    for table in made:
        directory = "delta_0000001_0000001_0000"
        values = ("a b",) if table.partition_keys else ()
        path = f"{table.location}/{'ds=a b/' if values else ''}{directory}/bucket_00000"
        told.append(WriteNotification(txn_id, 1, database.upper(), table.name, values, ((path, directory),)))
    told.append(WriteNotification(txn_id, 1, database, "p", ("empty",), ()))
    if line not in HIVE_4:
        with pytest.raises(UnsupportedByServerError, match="written files"):
            metastore.add_write_notifications(told)
        return
    for table in made:
        metastore.allocate_write_id(txn_id, database, table.name)
    metastore.add_partitions(database, "p", [("a b",), ("empty",)])
    metastore.add_write_notifications([])
    metastore.add_write_notifications(told)
    metastore.commit_txn(txn_id)
    if isinstance(metastore, InMemoryMetastore):
        assert metastore.write_notifications == told


@on_hive_4
def test_files_of_a_missing_table_are_refused(metastore: MetastoreClient, database: str) -> None:
    """The transaction must not commit with files that were not reported."""
    txn_id = open_txn(metastore)
    with pytest.raises(MetastoreError):
        metastore.add_write_notifications([WriteNotification(txn_id, 1, database, "missing", (), ())])
    metastore.abort_txn(txn_id)
