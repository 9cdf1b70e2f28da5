"""What a successor of Hive's Mutation API owes its users, one test for each rule.

The rules are those of Hive's own documentation of that API, put so that a test can hold them; where it
was wrong about itself, or where this package does better, the docstring says what holds here.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from examples import plain_python
from judges.hive.hive_judges import Hive23
from metastore_client.model import LockType
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import (
    BucketIdError,
    DeltaWriteError,
    GroupRevisitedError,
    ManifestError,
    PartitionCreationError,
    RecordSequenceError,
    RecordValueError,
    RowIdNotFoundError,
    TableNotMutableError,
    TransactionAbortedError,
    TransactionStateError,
)
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.table.acid_table import AcidTableSerializer
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.manifest import DeltaManifest
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.record_inspector import RecordInspector
from tests.fixtures.fix_clock import FakeClock, wait_until
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import FilledTable, LiveTable, delete, insert, update, write

pytestmark = pytest.mark.slow


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, tuple[str, ...]]] = []

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        self.calls.append((txn_id, tuple(tables)))


def _builder_for(*tables: LiveTable) -> MutatorClientBuilder:
    builder = MutatorClientBuilder().metastore(tables[0].metastore)
    for table in tables:
        builder.add_sink_table(table.info.database, table.info.name, True)
    return builder


@pytest.mark.long
def test_a_commit_shows_all_tables_and_partitions_or_none(make_table: MakeTable) -> None:
    """Two tables and three partitions become visible at one commit; after an abort none of it is."""
    tables = (make_table(), make_table(keys="", layout="default"))
    changes = ([insert("a", 1), insert("b", 1)], [insert(None, 2)])
    with _builder_for(*tables).build() as client:
        for ending in ("abort", "commit"):
            transaction = client.new_transaction()
            transaction.begin()
            for table, its_changes in zip(tables, changes, strict=True):
                write(transaction, table.full_name, its_changes)
            assert [table.values() for table in tables] == [[], []]
            getattr(transaction, ending)()
            if ending == "abort":
                assert [table.values() for table in tables] == [[], []]
                assert all(not table.files() and not table.staged() for table in tables)
    assert tables[0].values() == [("ds=a", 1, "new"), ("ds=b", 1, "new")]
    assert tables[1].values() == [(2, "new")]


def _work(table_text: str, partition: str, first: int) -> tuple[str, list[str]]:
    """A worker in a process of its own: a thousand rows in one partition."""
    coordinator = MutatorCoordinator(AcidTableSerializer.decode(table_text), writer_id=f"worker-{partition}")
    numbers = list(range(first, first + 2000, 2))
    coordinator.insert([partition], pa.table({"id": numbers, "msg": ["x"] * len(numbers)}))
    return coordinator.writer_id, [manifest.to_json() for manifest in coordinator.close()]


@pytest.mark.long
def test_workers_write_with_only_the_text_of_the_table(make_table: MakeTable) -> None:
    """One process holds the transaction; others write, knowing nothing but the table's text."""
    table = make_table()
    with table.transaction() as transaction, ProcessPoolExecutor(2, get_context("spawn")) as pool:
        text = AcidTableSerializer.encode(transaction.table(table.full_name))
        results = [pool.submit(_work, text, ds, first) for ds, first in (("a", 0), ("b", 1))]
        for writer_id, manifests in (result.result(timeout=120) for result in results):
            found = [DeltaManifest.from_json(manifest) for manifest in manifests]
            transaction.add_manifests(table.full_name, writer_id, found)
    expected = [("ds=a", n, "x") for n in range(0, 2000, 2)] + [("ds=b", n, "x") for n in range(1, 2001, 2)]
    assert table.values() == sorted(expected, key=repr)


def test_a_group_whose_row_ids_descend_is_refused(filled: FilledTable) -> None:
    """Updates and deletes ascend by (original transaction, row id), else the set is refused."""
    with filled.refuses(RecordSequenceError, "comes after"), filled.transaction() as transaction:
        write(transaction, filled.full_name, [delete("a", filled.row_id(n)) for n in (4, 2)])


def test_an_insert_lies_in_its_computed_bucket(make_table: MakeTable, hive: Hive23) -> None:
    """Each row's bucket is Hive's hash of it; attached ids are checked, and need not be attached."""
    table = make_table(columns="id string, msg string", buckets=5, keys="")
    texts = [f"key {n}" for n in range(40)]
    buckets = [(code & 0x7FFFFFFF) % 5 for code in hive.hash(["string"], [[text] for text in texts])]
    ordered = sorted(zip(buckets, texts, strict=True))
    with table.transaction() as transaction:
        descriptor = transaction.table(table.full_name)
        resolved = BucketIdResolver(descriptor).resolve(pa.table({"id": texts})).to_pylist()
        assert resolved == buckets
        records = pa.table({"id": [text for _, text in ordered], "msg": [str(b) for b, _ in ordered]})
        with MutatorCoordinator(descriptor, writer_id="w") as coordinator:
            coordinator.insert(None, records)
        transaction.add_manifests(table.full_name, "w", coordinator.close())
    assert {(r.row_id[1], r.values[1]) for r in table.rows() if r.row_id} == {(b, str(b)) for b in buckets}
    wrong = insert(None, texts[0], ROW__ID=(0, (buckets[0] + 1) % 5, 0))
    with table.refuses(BucketIdError, "attached to an insert"), table.transaction() as transaction:
        write(transaction, table.full_name, [wrong])


def test_records_that_are_not_grouped_are_refused(filled: FilledTable) -> None:
    """Records of one partition and bucket follow one another, or the set is refused."""
    with filled.refuses(GroupRevisitedError, "sort them"), filled.transaction() as transaction:
        write(transaction, filled.full_name, [insert("a", 20), insert("b", 20), insert("a", 22)])


def test_an_insert_takes_only_the_bucket_from_its_row_id(filled_anew: FilledTable) -> None:
    """Transaction and row id of an insert are ignored; the writer numbers its rows from 0."""
    inserts = [insert("a", 20, ROW__ID=(77, 0, 88)), insert("a", 22, ROW__ID=(1, 0, 0))]
    txn_id = filled_anew.commit(*inserts)
    found = {r.values[0]: r.row_id for r in filled_anew.rows() if r.values[1] == "new"}
    assert found == {20: (txn_id, 0, 0), 22: (txn_id, 0, 1)}


def test_a_delete_ignores_all_but_the_row_id(filled_anew: FilledTable) -> None:
    """The values of a delete are not looked at, not even when they fit no column."""
    filled_anew.commit(delete("a", filled_anew.row_id(2), id="not a number", msg=5, more="x"))
    assert filled_anew.values() == filled_anew.expected(gone=[2])


def test_an_update_that_moves_a_row_to_another_bucket_is_refused(filled: FilledTable) -> None:
    """An update whose bucket columns compute to another bucket."""
    with filled.refuses(BucketIdError, "cannot move its row"), filled.transaction() as transaction:
        write(transaction, filled.full_name, [update("a", filled.row_id(0), 7)])


def test_a_broken_sequence_ends_the_coordinator(filled: FilledTable) -> None:
    """After the error nothing more can be written, and the transaction, aborted, leaves nothing."""
    before = filled.state()
    with filled.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        coordinator = MutatorCoordinator(transaction.table(filled.full_name), writer_id="w")
        ids = [
            dict(zip(("transactionid", "bucketid", "rowid"), filled.row_id(n), strict=True)) for n in (4, 2)
        ]
        with pytest.raises(RecordSequenceError, match="comes after"):
            coordinator.delete(["a"], pa.table({"ROW__ID": ids}))
        with pytest.raises(TransactionStateError, match="failed earlier"):
            coordinator.insert(["a"], {"id": 20, "msg": "x"})
        transaction.abort()
    assert filled.state() == before


def test_a_closed_group_cannot_be_reopened(filled: FilledTable) -> None:
    """Its file is complete; one more would hide it."""
    with (
        filled.refuses(GroupRevisitedError, "bucket 0: it occurs again"),
        filled.transaction() as transaction,
    ):
        write(transaction, filled.full_name, [insert("a", 20), insert("a", 21), insert("a", 22)])


def test_bucket_columns_are_hashed_in_the_order_of_clustered_by(make_table: MakeTable, hive: Hive23) -> None:
    """CLUSTERED BY (s, n) is hashed in that order, whatever the order in the table and in the record."""
    table = make_table(columns="n int, v double, s string", keys="", bucket_columns=("s", "n"), buckets=7)
    rows = [{"s": f"s{n}", "v": 0.5, "n": n * 13} for n in range(30)]
    hashes = hive.hash(["string", "int"], [[row["s"], row["n"]] for row in rows])
    bucket_of = {row["n"]: (code & 0x7FFFFFFF) % 7 for row, code in zip(rows, hashes, strict=True)}
    with table.transaction() as transaction:
        with MutatorCoordinator(transaction.table(table.full_name), writer_id="w") as coordinator:
            coordinator.insert(None, pa.Table.from_pylist(sorted(rows, key=lambda r: bucket_of[r["n"]])))
        transaction.add_manifests(table.full_name, "w", coordinator.close())
    assert {row.values[0]: row.row_id[1] for row in table.rows() if row.row_id} == bucket_of


def test_a_record_inspector_maps_names_of_the_client_to_columns(make_table: MakeTable) -> None:
    """A record inspector of the client's maps its own names and ROW__ID onto the table's columns."""
    table = make_table()
    first = table.commit(insert("a", 2, "old"))
    with table.transaction() as transaction:
        descriptor = transaction.table(table.full_name)
        inspector = RecordInspector(descriptor, row_id_column="rid", column_names={"id": "key"})
        with MutatorCoordinator(descriptor, writer_id="w", record_inspector=inspector) as coordinator:
            coordinator.update(["a"], {"MSG": "changed", "Key": 2, "rid": (first, 0, 0)})
            coordinator.insert(["a"], {"msg": "new", "key": 4})
        transaction.add_manifests(table.full_name, "w", coordinator.close())
    assert table.values() == [("ds=a", 2, "changed"), ("ds=a", 4, "new")]


@pytest.mark.parametrize(
    ("how", "match"),
    [
        pytest.param({"sort_columns": ("id",)}, r"it is sorted", id="sorted"),
        pytest.param(
            {
                "parameters": {"transactional": "false"},
                "serde": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            },
            r"must be transactional",
            id="not-transactional",
        ),
        pytest.param(
            {"parameters": {"repl.last.id": "5"}}, r"target of a replication", id="replication-target"
        ),
        pytest.param({"parameters": {"EXTERNAL": "TRUE"}}, r"must be a managed table", id="external"),
    ],
)
def test_an_unfit_table_is_refused_at_connect(
    make_table: MakeTable, how: dict[str, object], match: str
) -> None:
    """The message names the table and the rule that it breaks."""
    table = make_table(**how)
    with pytest.raises(TableNotMutableError, match=rf"{table.full_name} .*{match}"):
        table.client().connect()


def test_an_unpartitioned_table_is_written_with_an_empty_partition_list(make_table: MakeTable) -> None:
    """No partition values, no partitions."""
    table = make_table(keys="")
    with table.transaction() as transaction:
        assert transaction.partitions(table.full_name) == ()
        write(transaction, table.full_name, [insert([], 1)])
    assert table.values() == [(1, "new")]


def test_connect_warns_of_a_server_without_compactor(filled: FilledTable, tmp_path: Path) -> None:
    """A metastore with the wrong manager or without its initiator gives warnings; a right one gives none."""
    with filled.builder().lock_failure_listener(Listener()).build() as client:
        assert client.warnings == ()
    wrong = {"hive.compactor.initiator.on": "false", "hive.txn.manager": "DummyTxnManager"}
    metastore = InMemoryMetastore(tmp_path, configuration=wrong)
    with MutatorClientBuilder().metastore(metastore).build() as client:
        initiator, manager = client.warnings
    assert "hive.compactor.initiator.on=false" in initiator
    assert "DummyTxnManager" in manager


def test_the_lock_is_held_from_begin_to_the_end(filled: FilledTable, clock: FakeClock) -> None:
    """begin() takes the lock and starts the heartbeat; abort(), like commit(), releases it."""
    database, name = filled.info.database, filled.info.name
    with filled.builder().clock(clock).build() as client:
        transaction = client.new_transaction()
        assert filled.metastore.show_locks(database, name) == []
        transaction.begin()
        assert {lock.txn_id for lock in filled.metastore.show_locks(database, name)} == {transaction.txn_id}
        clock.wait_for_waiters(2)
        filled.hive.time_out_transactions(0)  # it is dead, and the next beat finds out
        clock.advance(100)
        wait_until(lambda: _is_lost(transaction), "the heartbeat's finding")
        transaction.abort()
        assert filled.metastore.show_locks(database, name) == []
        with client.new_transaction() as second:
            assert {lock.txn_id for lock in filled.metastore.show_locks(database, name)} == {second.txn_id}
        assert second.state is TransactionState.COMMITTED
    assert filled.metastore.show_locks(database, name) == []


def _is_lost(transaction) -> bool:  # type: ignore[no-untyped-def]
    try:
        transaction.check()
    except TransactionAbortedError:
        return True
    return False


def test_a_listener_is_called_once_and_connect_warns_without_one(
    filled: FilledTable, clock: FakeClock
) -> None:
    """Without a listener connect() warns; with one it hears of the loss, once."""
    with filled.client() as client:
        assert any("lock_failure_listener" in warning for warning in client.warnings)
    listener = Listener()
    with filled.builder().lock_failure_listener(listener).clock(clock).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        clock.wait_for_waiters(2)
        filled.metastore.abort_txn(transaction.txn_id)
        clock.advance(100)
        wait_until(lambda: listener.calls, "the listener is told")
        assert listener.calls == [(transaction.txn_id, (filled.full_name,))]


def test_the_descriptor_of_a_wide_table_is_a_short_text(make_table: MakeTable) -> None:
    """A table of 200 columns is a few kilobytes of plain letters that fit into a configuration value."""
    columns = ", ".join(f"column_{n} decimal(10,{n % 10})" for n in range(200))
    table = make_table(columns=f"id bigint, {columns}")
    with table.transaction() as transaction:
        text = AcidTableSerializer.encode(transaction.table(table.full_name))
    assert len(text) < 4096
    assert text.isascii()
    assert not set(text) & set(" \t\r\n'\"$\\{}<>")


def test_manifests_of_one_table_are_refused_for_another(make_table: MakeTable) -> None:
    """What a coordinator wrote to one table cannot be handed in for another."""
    one, two = make_table(), make_table()
    with (
        one.refuses(ManifestError, f"handed in for table {two.full_name}"),
        _builder_for(one, two).build() as client,
        client.new_transaction() as transaction,
    ):
        coordinator = MutatorCoordinator(transaction.table(one.full_name), writer_id="w")
        coordinator.insert(["a"], {"id": 1, "msg": "x"})
        for table in (one, two):
            transaction.add_manifests(table.full_name, "w", coordinator.close())


@pytest.mark.long
def test_racing_creators_of_a_partition_all_succeed(make_table: MakeTable) -> None:
    """Eight clients insert into the same new partitions at once; nobody fails, all rows are there."""
    table = make_table()

    def work(number: int) -> None:
        with (
            table.client(insert_only=True) as client,
            client.new_transaction() as transaction,
        ):
            changes = [insert(ds, number * 2, f"by {number}") for ds in ("a", "b", "c")]
            write(transaction, table.full_name, changes, writer_id=f"w{number}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert table.partitions() == ("ds=a", "ds=b", "ds=c")
    expected = [(f"ds={ds}", n * 2, f"by {n}") for ds in "abc" for n in range(8)]
    assert table.values() == sorted(expected, key=repr)


def test_a_client_can_create_the_partitions_that_the_manifests_name(make_table: MakeTable) -> None:
    """With creation off the manifests name the partitions as Hive does; once created, the commit works."""
    table = make_table(keys="ds string, hr int")
    with table.transaction(create_partitions=False) as transaction:
        coordinator = MutatorCoordinator(transaction.table(table.full_name), writer_id="w")
        coordinator.insert(["a:b", 7], {"id": 1, "msg": "new"})
        (manifest,) = coordinator.close()
        assert manifest.partition_name == "ds=a%3Ab/hr=7"
        assert f"/{manifest.partition_name}/delta_" in str(manifest.target)
        table.metastore.add_partitions(table.info.database, table.info.name, [manifest.partition_values])
        transaction.add_manifests(table.full_name, "w", [manifest])
    assert table.values() == [("ds=a%3Ab/hr=7", 1, "new")]


def test_a_source_table_is_locked_and_read_within_the_transaction(
    filled: FilledTable, make_table: MakeTable
) -> None:
    """A source has a read lock, a list of valid transactions and ROW__IDs; the end releases it."""
    sink = make_table()
    builder = _builder_for(sink).add_source_table(filled.info.database, filled.info.name)
    with builder.build() as client:
        with client.new_transaction() as transaction:
            locks = filled.metastore.show_locks(filled.info.database, filled.info.name)
            assert {(lock.type, lock.txn_id) for lock in locks} == {
                (LockType.SHARED_READ, transaction.txn_id)
            }
            table, valid = transaction.table(filled.full_name), transaction.valid_txn_list
            found = {
                (partition.name, *row["ROW__ID"].values()): (row["id"], row["msg"])
                for partition in transaction.partitions(filled.full_name)
                for split in plan_splits(
                    table, partition.name, table.partition_location(partition.name), valid
                )
                for batch in read_split(table, split, valid)
                for row in batch.to_pylist()
            }
        assert found == {(row.partition, *(row.row_id or ())): row.values for row in filled.rows()}
    assert filled.metastore.show_locks(filled.info.database, filled.info.name) == []


@pytest.mark.long
def test_hive_reads_what_the_fourteen_steps_of_its_api_wrote(
    hive: Hive23, live_metastore: ThriftMetastoreClient
) -> None:
    """The original's procedure, in its order, is an example that runs; Hive reads what it says."""
    try:
        assert plain_python.main([hive.uri]) == 0
        found = hive.sql(f"SELECT article, name, pieces, hall FROM {plain_python.TABLE}")
        assert sorted(found) == [[1, "bolt", 150, "east"], [3, "gear", 7, "west"]]
    finally:
        live_metastore.drop_table(*plain_python.TABLE.split("."), delete_data=True)


def test_a_failed_group_is_written_again_in_order(make_table: MakeTable) -> None:
    """When a write fails the coordinator halts; another attempt writes all records again, in order."""
    table = make_table()
    records = pa.table({"id": [2, 4], "msg": ["x", "y"]})
    with table.transaction() as transaction:
        descriptor = transaction.table(table.full_name)
        failing = MutatorCoordinator(descriptor, writer_id="job", attempt_id="0")
        failing.insert(["a"], records.slice(0, 1))
        staging = table.directory / f"_mutation_{transaction.txn_id}"
        shutil.rmtree(staging)
        staging.write_bytes(b"a file where the next group needs a directory")
        with pytest.raises(DeltaWriteError):
            failing.insert(["b"], records)
            failing.close()
        staging.unlink()
        with MutatorCoordinator(descriptor, writer_id="job", attempt_id="1") as again:
            again.insert(["a"], records)
            again.insert(["b"], records)
        transaction.add_manifests(table.full_name, "job", again.close())
    assert table.values() == [(f"ds={ds}", n, msg) for ds in "ab" for n, msg in ((2, "x"), (4, "y"))]


@pytest.mark.long
def test_a_row_id_of_another_partition_is_refused(filled: FilledTable) -> None:
    """A ROW__ID that knows its partition cannot be used in another; the advice works: delete and insert."""
    elsewhere = (*filled.row_id(2), "ds=a")
    for change in (update("b", elsewhere, 2), delete("b", elsewhere)):
        with (
            filled.refuses(
                RecordValueError, r"delete the old row and insert the new one.* row='ds=a', .*given='ds=b'"
            ),
            filled.transaction() as transaction,
        ):
            write(transaction, filled.full_name, [change])


def test_a_row_moves_by_delete_and_insert_in_one_transaction(filled_anew: FilledTable) -> None:
    """Both halves are in one transaction, so no reader sees the row twice or not at all."""
    filled_anew.commit(delete("a", (*filled_anew.row_id(2), "ds=a")), insert("b", 200))
    expected = [*filled_anew.expected(gone=[2]), ("ds=b", 200, "new")]
    assert filled_anew.values() == sorted(expected, key=repr)


def test_a_location_that_cannot_be_written_is_refused_at_connect(make_table: MakeTable) -> None:
    """A location that cannot be written is refused at connect, before a lock is asked for."""
    table = make_table()
    shutil.rmtree(table.directory)
    table.directory.write_bytes(b"not a directory")
    try:
        with pytest.raises(TableNotMutableError, match=r"cannot be read: .*Not a directory"):
            table.client().connect()
    finally:
        os.unlink(table.directory)


@pytest.mark.long
def test_an_update_in_a_created_partition_is_refused(make_table: MakeTable) -> None:
    """Also where a worker has created the partition: an update of it would come out as a new row."""
    table = make_table()
    txn_id = table.commit(insert("a", 0))
    before = table.rows()
    with pytest.raises(RowIdNotFoundError, match="ds=zz"), table.transaction() as transaction:
        table.metastore.add_partitions(table.info.database, table.info.name, [["zz"]])
        write(transaction, table.full_name, [update("zz", (txn_id, 0, 0), 0)])
    assert table.rows() == before


@pytest.mark.long
def test_workers_need_no_metastore_and_the_commit_creates_partitions(make_table: MakeTable) -> None:
    """Hive's coordinators created partitions, each with a connection of its own. Ours know the table by its
    text alone; the commit creates what is missing, or refuses it, and an abort leaves no empty partition.
    """
    table = make_table()

    def written(transaction: Transaction, ds: str) -> tuple[DeltaManifest, ...]:
        descriptor = AcidTableSerializer.decode(
            AcidTableSerializer.encode(transaction.table(table.full_name))
        )
        with MutatorCoordinator(descriptor, writer_id="w") as coordinator:
            for number in (0, 1):
                coordinator.insert([ds], {"id": number, "msg": "new"})
        return coordinator.close()

    with table.transaction() as transaction:
        manifests = written(transaction, "a")
        assert table.partitions() == ()
        transaction.add_manifests(table.full_name, "w", manifests)
    assert table.values() == [("ds=a", 0, "new"), ("ds=a", 1, "new")]
    with (
        table.refuses(PartitionCreationError, "ds=z"),
        table.transaction(create_partitions=False) as transaction,
    ):
        transaction.add_manifests(table.full_name, "w", written(transaction, "z"))
    assert table.partitions() == ("ds=a",)
