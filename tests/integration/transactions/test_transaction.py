"""Transactions on a real metastore, with real Hive as the reader."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from judges.hive.hive_judges import Hive23
from metastore_client.model import DataOperationType, LockState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.errors import (
    LockNotAcquiredError,
    PartitionCreationError,
    TableNotMutableError,
    TransactionAbortedError,
)
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.transaction.written_tables import PartitionCreator
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_clock import FakeClock, wait_until

pytestmark = pytest.mark.slow

Rows = Sequence[tuple[int, str]]


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, list[str]]] = []

    def lock_failed(self, lock_id, txn_id, tables, error) -> None:  # type: ignore[no-untyped-def]
        self.told.append((txn_id, list(tables)))


@pytest.fixture
def metastore(hive: Hive23) -> Iterator[ThriftMetastoreClient]:
    with open_client(hive.uri) as client:
        yield client


@pytest.fixture
def flat(hive: Hive23, hive_database: str) -> str:
    return _create(hive, f"{hive_database}.flat")


@pytest.fixture
def parts(hive: Hive23, hive_database: str) -> str:
    return _create(hive, f"{hive_database}.parts", "PARTITIONED BY (ds string)")


def _create(hive: Hive23, full_name: str, partitioned_by: str = "", layout: str = "legacy") -> str:
    hive.sql(
        f"CREATE TABLE {full_name} (id bigint, msg string) {partitioned_by} CLUSTERED BY (id) INTO 2 BUCKETS "
        f"STORED AS ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='{layout}')"
    )
    return full_name


def _builder(hive: Hive23, *sinks: str, **options: object) -> MutatorClientBuilder:
    result = MutatorClientBuilder().metastore(hive.uri).lock_timeout_seconds(60)
    for sink in sinks:
        result = result.add_sink_table(*sink.split("."), **options)  # type: ignore[arg-type]
    return result


@pytest.fixture
def client(hive: Hive23, flat: str, parts: str) -> Iterator[MutatorClient]:
    with _builder(hive, flat, parts, create_partitions=True).build() as result:
        yield result


def _insert(transaction: Transaction, full_name: str, rows: Rows, partition: str | None = None) -> None:
    """Insert rows as a plain process would, one record at a time, bucket by bucket."""
    values = [] if partition is None else [partition]
    with MutatorCoordinator(transaction.table(full_name)) as coordinator:
        for id, msg in sorted(rows, key=lambda row: row[0] % 2):
            coordinator.insert(values, {"id": id, "msg": msg})
        manifests = coordinator.close()
    transaction.add_manifests(full_name, coordinator.writer_id, manifests)


def _rows(hive: Hive23, full_name: str, columns: str = "id, msg") -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in hive.sql(f"SELECT {columns} FROM {full_name}"))


def test_hive_sees_all_tables_after_commit_and_nothing_before(
    hive: Hive23, client: MutatorClient, flat: str, parts: str
) -> None:
    """One transaction over an unpartitioned and a partitioned table; new partitions have any text."""
    with client.new_transaction() as transaction:
        _insert(transaction, flat, [(1, "a"), (2, "b")])
        _insert(transaction, parts, [(3, "c"), (4, "d")], partition="x:y/z %q")
        assert _rows(hive, flat) == _rows(hive, parts) == []
    assert _rows(hive, flat) == [(1, "a"), (2, "b")]
    assert _rows(hive, parts, "id, msg, ds") == [(3, "c", "x:y/z %q"), (4, "d", "x:y/z %q")]


def test_hive_changes_our_rows_and_we_follow(
    hive: Hive23, client: MutatorClient, flat: str, parts: str
) -> None:
    """SQL updates and compactions between two of our transactions disturb neither side."""
    with client.new_transaction() as transaction:
        _insert(transaction, parts, [(1, "a"), (2, "b")], partition="p")
    hive.sql(f"UPDATE {parts} SET msg = 'changed' WHERE id = 1")
    with client.new_transaction() as transaction:
        _insert(transaction, parts, [(3, "c")], partition="p")
    expected = [(1, "changed"), (2, "b"), (3, "c")]
    assert _rows(hive, parts) == expected
    for kind in ("minor", "major"):
        hive.compact(parts, kind, partition="ds='p'")
        assert _rows(hive, parts) == expected


@pytest.mark.feature("no leftovers after an abort or a crash")
def test_aborted_rows_stay_invisible_even_after_the_initiator(
    hive: Hive23, client: MutatorClient, parts: str
) -> None:
    """A Hive 2.3 metastore forgets empty aborted transactions; ours left no file that could come to life."""
    transaction = client.new_transaction()
    with pytest.raises(ZeroDivisionError), transaction:
        _insert(transaction, parts, [(1, "ghost")], partition="p")
        raise ZeroDivisionError
    hive.initiator()
    assert _rows(hive, parts) == []
    with client.new_transaction() as following:
        _insert(following, parts, [(2, "real")], partition="p")
    assert _rows(hive, parts) == [(2, "real")]


def _in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.feature("writers wait for each other")
def test_a_second_writer_waits_rolls_over_and_commits(
    hive: Hive23, client: MutatorClient, metastore: ThriftMetastoreClient, parts: str
) -> None:
    """Hive's own API gets past a held lock here, and then the first writer loses its work."""
    first = client.new_transaction()
    first.begin()
    _insert(first, parts, [(1, "first")], partition="p")
    second = client.new_transaction()
    waiting = _in_background(second.begin)
    database, table = parts.split(".")
    wait_until(
        lambda: any(i.state is LockState.WAITING for i in metastore.show_locks(database, table)),
        "the second writer in the queue",
    )
    first.commit()
    waiting.join(60)
    assert second.state is TransactionState.OPEN
    assert second.summary.roll_overs == 1
    assert second.valid_txn_list.is_valid(first.txn_id)
    _insert(second, parts, [(2, "second")], partition="p")
    second.commit()
    assert _rows(hive, parts) == [(1, "first"), (2, "second")]


def test_the_wait_has_a_bound_and_names_the_holder(hive: Hive23, client: MutatorClient, parts: str) -> None:
    """Nothing of the one who gave up stays in the queue."""
    holder = client.new_transaction()
    holder.begin()
    expected = rf"of transaction {holder.txn_id}, .*hive-mutation-api"
    impatient = _builder(hive, parts).lock_timeout_seconds(0.5).build()
    with impatient as other, pytest.raises(LockNotAcquiredError, match=expected):
        other.new_transaction().begin()
    _insert(holder, parts, [(1, "a")], partition="p")
    holder.commit()
    with client.new_transaction() as transaction:
        assert transaction.summary.lock_wait_seconds < 60


def test_writers_in_a_row_never_conflict(hive: Hive23, flat: str) -> None:
    """Two clients that commit to one table as fast as they can: every commit succeeds, every row is there."""

    def work(number: int) -> None:
        with _builder(hive, flat).build() as client:
            for round in range(4):
                with client.new_transaction() as transaction:
                    _insert(transaction, flat, [(10 * number + round, "x")])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (1, 2)))
    assert [row[0] for row in _rows(hive, flat)] == [10, 11, 12, 13, 20, 21, 22, 23]


def test_a_conflict_on_a_partition_is_refused(
    hive: Hive23, client: MutatorClient, metastore: ThriftMetastoreClient, parts: str
) -> None:
    """The error names winner and partition; no reader ever sees a row of the loser."""
    database, table = parts.split(".")
    with client.new_transaction() as transaction:
        _insert(transaction, parts, [(1, "old"), (2, "old")], partition="p")
    loser = client.new_transaction()
    loser.begin()
    with MutatorCoordinator(loser.table(parts)) as coordinator:
        coordinator.delete(["p"], {"ROW__ID": (transaction.txn_id, 0, 0)})
    loser.add_manifests(parts, coordinator.writer_id, coordinator.close())
    winner = metastore.open_txn("them", "there", "no lock")
    metastore.add_dynamic_partitions(winner, database, table, ["ds=p"], DataOperationType.UPDATE)
    metastore.commit_txn(winner)
    with pytest.raises(
        TransactionAbortedError, match=rf"Transaction {winner} changed {database}/{table}/ds=p"
    ):
        loser.commit()
    assert loser.state is TransactionState.ABORTED
    assert _rows(hive, parts) == [(1, "old"), (2, "old")]


def test_a_reaped_transaction_is_told_and_cannot_commit(hive: Hive23, parts: str) -> None:
    """The server timed it out: the listener hears of it at the next beat, the commit is refused."""
    clock, listener, lost = FakeClock(), Listener(), []
    client = (
        _builder(hive, parts, create_partitions=True).lock_failure_listener(listener).clock(clock).build()
    )
    with client:
        transaction = client.new_transaction()
        transaction.begin()
        transaction.on_lost(lost.append)
        _insert(transaction, parts, [(1, "late")], partition="p")
        hive.time_out_transactions(-60)
        clock.wait_for_waiters(2)
        clock.advance(200)
        wait_until(lambda: bool(lost), "the loss")
        with pytest.raises(TransactionAbortedError):
            transaction.commit()
    assert listener.told == [(transaction.txn_id, [parts])]
    assert _rows(hive, parts) == []


def test_files_survive_a_race_for_their_partitions(hive: Hive23, hive_database: str) -> None:
    """Three clients create the same partitions and put a file into each at once; all files stay."""
    names = {f"ds={p}": (p,) for p in "abc"}
    found = {}
    together = threading.Barrier(3)
    for race in range(5):
        full_name = _create(hive, f"{hive_database}.race{race}", "PARTITIONED BY (ds string)")
        builder = _builder(hive, full_name, create_partitions=True)
        with builder.build() as client, client.new_transaction() as transaction:
            table = transaction.table(full_name)
        root = Path(table.location.path)

        def work(number: int, table: AcidTable = table, root: Path = root) -> None:
            with open_client(hive.uri) as metastore:
                together.wait(60)
                PartitionCreator(metastore).ensure(table, names)
            for name in names:
                (root / name / f"_{number}").touch()

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(work, range(3)))
        found[race] = len(list(root.glob("ds=*/_*")))
    assert found == dict.fromkeys(range(5), 9)


def test_inserters_do_not_wait_for_each_other_and_race_for_partitions(hive: Hive23, parts: str) -> None:
    """Several insert-only clients create the same partitions at the same time; every row arrives, though the
    server removes the directories that it made for who comes too late.
    """
    started = threading.Barrier(3)

    def work(number: int) -> int:
        with _builder(hive, parts, create_partitions=True, insert_only=True).build() as client:
            with client.new_transaction() as transaction:
                started.wait(60)
                for partition in "abc":
                    _insert(transaction, parts, [(number, partition)], partition=partition)
            return transaction.summary.roll_overs

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, range(3))) == [0, 0, 0]
    assert _rows(hive, parts, "id, ds") == [(n, p) for n in range(3) for p in "abc"]


def test_a_partition_elsewhere_gets_its_rows_there(
    hive: Hive23, client: MutatorClient, parts: str, tmp_path: Path
) -> None:
    """The metastore's word counts, not the default place."""
    place = tmp_path / "else where%3A"
    place.mkdir()
    hive.sql(f"ALTER TABLE {parts} ADD PARTITION (ds='p') LOCATION 'file:{place}'")
    with client.new_transaction() as transaction:
        _insert(transaction, parts, [(1, "a")], partition="p")
    assert [p.name for p in place.iterdir() if not p.name.startswith(("_", "."))] == [
        f"delta_{transaction.txn_id:07d}_{transaction.txn_id:07d}_0000"
    ]
    assert _rows(hive, parts) == [(1, "a")]


def test_missing_partitions_are_refused_without_create_partitions(hive: Hive23, parts: str) -> None:
    """Hive's own API commits here and the rows are invisible for ever."""
    with _builder(hive, parts).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        _insert(transaction, parts, [(1, "a")], partition="new")
        with pytest.raises(PartitionCreationError, match="ds=new do not exist"):
            transaction.commit()
    assert hive.sql(f"SHOW PARTITIONS {parts}") == []


def test_dropped_meanwhile_is_named(
    client: MutatorClient, metastore: ThriftMetastoreClient, flat: str
) -> None:
    """Only tools that take no lock can do that; nothing is published into the old place."""
    transaction = client.new_transaction()
    transaction.begin()
    _insert(transaction, flat, [(1, "a")])
    metastore.drop_table(*flat.split("."), delete_data=False)
    with pytest.raises(TableNotMutableError, match=f"{flat} was dropped"):
        transaction.commit()


@pytest.mark.feature("`count(*)`, min and max right after a commit")
def test_statistics_do_not_lie_after_a_commit(hive: Hive23, client: MutatorClient, parts: str) -> None:
    """What ANALYZE said about a touched partition is no longer marked as accurate."""
    with client.new_transaction() as transaction:
        _insert(transaction, parts, [(1, "a")], partition="p")
    hive.sql(f"ANALYZE TABLE {parts} PARTITION (ds='p') COMPUTE STATISTICS")
    with client.new_transaction() as transaction:
        _insert(transaction, parts, [(2, "b")], partition="p")
    described = str(hive.sql(f"DESCRIBE FORMATTED {parts} PARTITION (ds='p')"))
    assert "COLUMN_STATS_ACCURATE" not in described
    assert hive.sql(f"SELECT count(*) FROM {parts}") == [[2]]


def test_a_snapshot_keeps_the_cleaner_away(hive: Hive23, client: MutatorClient, parts: str) -> None:
    """Files that a compaction made obsolete stay as long as a snapshot may read them; later commits are
    hidden from it.
    """
    for id in (1, 2):
        with client.new_transaction() as transaction:
            _insert(transaction, parts, [(id, "a")], partition="p")
    place = hive.warehouse / parts.replace(".", ".db/") / "ds=p"
    snapshot = client.open_snapshot(parts)
    with client.new_transaction() as later:
        _insert(later, parts, [(3, "b")], partition="p")
    assert snapshot.valid_txn_list.is_valid(transaction.txn_id)
    assert not snapshot.valid_txn_list.is_valid(later.txn_id)
    delta = f"delta_{transaction.txn_id:07d}_{transaction.txn_id:07d}_0000"
    hive.compact(parts, "major", partition="ds='p'")
    names = {p.name for p in place.iterdir()}
    assert {delta, f"base_{transaction.txn_id:07d}"} <= names
    snapshot.close()
    hive.cleaner()
    assert delta not in {p.name for p in place.iterdir()}
    assert _rows(hive, parts, "id") == [(1,), (2,), (3,)]


@pytest.mark.parametrize("insert_only", [False, True])
def test_a_writing_transaction_keeps_the_cleaner_from_what_it_reads(
    hive: Hive23, parts: str, insert_only: bool
) -> None:
    """The files under the snapshot of a sink stay until the transaction ends, though Hive compacts them."""
    builder = _builder(hive, parts, create_partitions=True, insert_only=insert_only)
    with builder.build() as client:
        for id in (1, 2):
            with client.new_transaction() as transaction:
                _insert(transaction, parts, [(id, "a")], partition="p")
        delta = f"delta_{transaction.txn_id:07d}_{transaction.txn_id:07d}_0000"
        place = hive.warehouse / parts.replace(".", ".db/") / "ds=p"
        with client.new_transaction() as reading:
            hive.compact(parts, "major", partition="ds='p'")
            assert {delta, f"base_{transaction.txn_id:07d}"} <= {p.name for p in place.iterdir()}
            _insert(reading, parts, [(3, "b")], partition="p")
        hive.cleaner()
    assert delta not in {p.name for p in place.iterdir()}
    assert _rows(hive, parts, "id") == [(1,), (2,), (3,)]


def test_locks_on_partitions_change_nothing_for_other_writers(
    hive: Hive23, client: MutatorClient, metastore: ThriftMetastoreClient, parts: str
) -> None:
    """Hive inserts into a partition that we hold; another writer waits, with all parts of its lock."""
    for partition in ("p", "q"):
        with client.new_transaction() as transaction:
            _insert(transaction, parts, [(1, "a")], partition=partition)
    first, second = client.new_transaction(), client.new_transaction()
    first.begin()
    hive.sql(f"INSERT INTO {parts} PARTITION (ds='p') VALUES (2, 'Hive')")
    waiting = threading.Thread(target=second.begin)
    waiting.start()
    database, table = parts.split(".")

    def states_of_others() -> list[LockState]:
        return [i.state for i in metastore.show_locks(database, table) if i.txn_id != first.txn_id]

    wait_until(lambda: len(states_of_others()) == 3, "the second writer's lock on table and partitions")
    assert set(states_of_others()) == {LockState.WAITING}
    _insert(first, parts, [(3, "ours")], partition="p")
    first.commit()
    waiting.join(60)
    assert second.state is TransactionState.OPEN
    with MutatorCoordinator(second.table(parts)) as coordinator:
        coordinator.delete(["q"], {"ROW__ID": (transaction.txn_id, 1, 0)})
    second.add_manifests(parts, coordinator.writer_id, coordinator.close())
    second.commit()
    assert _rows(hive, parts, "id, msg, ds") == [(1, "a", "p"), (2, "Hive", "p"), (3, "ours", "p")]
