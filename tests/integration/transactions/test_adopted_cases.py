"""Cases that others test, held by this package too; Hive's own readers, SQL and compactor judge.

The first section has the cases of the test suite of Hive's Mutation API, the others have cases of
Hive's streaming and transaction suites that mean something for an outside writer on Hive 2.3.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from judges.errors import HiveError
from judges.hive.hive_judges import Hive23
from judges.hive.model import Compaction
from metastore_client.errors import MetastoreUnavailableError, TxnAbortedError
from metastore_client.model import (
    CompactionType,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    TxnInfo,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import (
    BucketIdError,
    ConfigurationError,
    ConnectionFailedError,
    GroupRevisitedError,
    LockNotAcquiredError,
    RecordSequenceError,
    RowIdNotFoundError,
    TransactionAbortedError,
    TransactionStateError,
)
from mutation_api.format.event import Operation, RowIdArrays
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.table.acid_table import AcidTableSerializer
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.group_writer import GroupingValidator, SequenceValidator
from tests.fixtures.fix_clock import FakeClock, wait_until
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import (
    FilledTable,
    LiveTable,
    delete,
    insert,
    is_aborted,
    update,
    write,
)
from tests.support.client_support import table_info

pytestmark = pytest.mark.slow

PLACES = "continent string, country string"
INDIA, UK, FRANCE = ["Asia", "India"], ["Europe", "UK"], ["Europe", "France"]


def _name(place: list[str]) -> str:
    return f"continent={place[0]}/country={place[1]}"


@pytest.fixture
def places(make_table: MakeTable, layout: str) -> LiveTable:
    """A table partitioned by continent and country, with one bucket, in each layout."""
    return make_table(keys=PLACES, buckets=1, layout=layout)


# -- Hive's suite of the Mutation API ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys", [pytest.param(PLACES, id="partitioned"), pytest.param("", id="unpartitioned")]
)
def test_an_empty_transaction_commits_or_aborts_without_files(make_table: MakeTable, keys: str) -> None:
    """Begun and committed, or aborted after an empty coordinator: the state says so, and no file is made."""
    table = make_table(keys=keys)
    with table.client() as client:
        committed, aborted = client.new_transaction(), client.new_transaction()
        committed.begin()
        committed.commit()
        aborted.begin()
        MutatorCoordinator(aborted.table(table.full_name)).close()
        aborted.abort()
    assert (committed.state, aborted.state) == (TransactionState.COMMITTED, TransactionState.ABORTED)
    assert table.files(hidden=True) == set()
    assert table.rows() == ()


@pytest.mark.parametrize(
    ("keys", "place"),
    [pytest.param(PLACES, INDIA, id="partitioned"), pytest.param("", [], id="unpartitioned")],
)
def test_one_insert_becomes_row_zero_of_one_file(make_table: MakeTable, keys: str, place: list[str]) -> None:
    """One file of the transaction's id alone; the row is (id, bucket 0, row 0)."""
    table = make_table(keys=keys, buckets=1)
    txn_id = table.commit(insert(place, 1, "Namaste streaming 1"))
    name = _name(place) if place else ""
    prefix = f"{name}/" if name else ""
    assert table.files() - {f"{prefix}_orc_acid_version"} == {
        f"{prefix}delta_{txn_id:07d}_{txn_id:07d}_0000/bucket_00000"
    }
    assert [(r.partition, r.row_id, r.values) for r in table.rows()] == [
        (name, (txn_id, 0, 0), (1, "Namaste streaming 1"))
    ]


def test_inserts_into_three_partitions_create_the_missing_one(places: LiveTable) -> None:
    """Rows are numbered from 0 in each partition; the partition that was missing exists afterwards."""
    table = places
    table.metastore.add_partitions(table.info.database, table.info.name, [INDIA, UK])
    txn_id = table.commit(insert(INDIA, 1), insert(INDIA, 2), insert(UK, 3), insert(FRANCE, 4))
    assert set(table.partitions()) == {_name(INDIA), _name(UK), _name(FRANCE)}
    assert {(r.partition, r.row_id) for r in table.rows()} == {
        (_name(INDIA), (txn_id, 0, 0)),
        (_name(INDIA), (txn_id, 0, 1)),
        (_name(UK), (txn_id, 0, 0)),
        (_name(FRANCE), (txn_id, 0, 0)),
    }


def test_inserts_of_an_aborted_transaction_leave_nothing(places: LiveTable) -> None:
    """Two inserts into different partitions, handed in, then aborted: nothing."""
    before = places.state()
    with places.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, places.full_name, [insert(INDIA, 1), insert(UK, 2)])
        transaction.abort()
    assert places.state() == before
    assert places.files(hidden=True) == set()


def test_updates_and_deletes_use_no_row_ids_of_inserts(places: LiveTable) -> None:
    """Update and insert, delete, delete and update; where updates keep ROW__ID they use up no row id."""
    table = places
    numbers = zip((INDIA, INDIA, UK, UK, FRANCE, FRANCE), range(1, 7), strict=True)
    first = table.commit(*(insert(place, n, f"old {n}") for place, n in numbers))
    second = table.commit(
        update(INDIA, (first, 0, 1), 2),
        insert(INDIA, 20),
        delete(UK, (first, 0, 0)),
        delete(FRANCE, (first, 0, 0)),
        update(FRANCE, (first, 0, 1), 6),
    )
    new = second if table.is_split else first
    updated = {True: (new, 0, 0), False: (new, 0, 1)}[table.is_split]
    assert {(r.partition, r.row_id, r.values) for r in table.rows()} == {
        (_name(INDIA), (first, 0, 0), (1, "old 1")),
        (_name(INDIA), updated, (2, "changed")),
        (_name(INDIA), (second, 0, 1 if table.is_split else 0), (20, "new")),
        (_name(UK), (first, 0, 1), (4, "old 4")),
        (_name(FRANCE), updated, (6, "changed")),
    }
    has_delta = f"{_name(UK)}/delta_{second:07d}_{second:07d}_0000/bucket_00000" in table.files()
    assert has_delta is not table.is_split  # deletes alone need no delta where they have files of their own


def test_coordinator_opens_a_file_per_partition_and_bucket(make_table: MakeTable) -> None:
    """A change of partition or bucket closes one file and opens another; one manifest for each."""
    table = make_table()
    with table.transaction() as transaction:
        with MutatorCoordinator(transaction.table(table.full_name), writer_id="w") as coordinator:
            for ds, number in (("a", 0), ("a", 2), ("a", 1), ("b", 4)):
                coordinator.insert([ds], pa.table({"id": [number], "msg": ["x"]}))
        manifests = coordinator.close()
        assert [(m.partition_name, m.bucket_id, m.insert_count) for m in manifests] == [
            ("ds=a", 0, 2),
            ("ds=a", 1, 1),
            ("ds=b", 0, 1),
        ]
        transaction.add_manifests(table.full_name, "w", manifests)
    assert [row[1] for row in table.values()] == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param(
            lambda t: [delete("a", t.row_id(2)), delete("a", t.row_id(0))], RecordSequenceError, id="sequence"
        ),
        pytest.param(lambda t: [insert("a", n) for n in (20, 21, 22)], GroupRevisitedError, id="grouping"),
        pytest.param(lambda t: [insert("a", 21, ROW__ID=(0, 0, 0))], BucketIdError, id="bucket-of-insert"),
        pytest.param(lambda t: [update("a", t.row_id(0), 1)], BucketIdError, id="bucket-of-update"),
    ],
)
def test_coordinator_refuses_bad_order_revisited_groups_and_bad_buckets(
    filled: FilledTable, changes: Callable[[FilledTable], list[Any]], error: type[Exception]
) -> None:
    """Bad order, a revisited group, a bad bucket of an insert or update raise; close() raises again."""
    with filled.transaction() as transaction:
        coordinator = MutatorCoordinator(transaction.table(filled.full_name), writer_id="w")
        for _ in range(2):
            with pytest.raises(error):
                _send_and_close(coordinator, changes(filled))
        coordinator.abort()
    assert not filled.staged()


def _send_and_close(coordinator: MutatorCoordinator, changes: list[Any]) -> None:
    try:
        for change in changes:
            change.send(coordinator)
    except TransactionStateError:
        pass  # it has failed before; close() tells why
    coordinator.close()


def _steps(validator: SequenceValidator, *ids: tuple[int, int]) -> None:
    for txn, row in ids:
        row_id = RowIdArrays(np.array([txn]), np.zeros(1, np.int64), np.array([row]))
        validator.check(np.array([Operation.UPDATE], np.int8), row_id)


def test_order_is_checked_for_every_record_of_a_group() -> None:
    """By row id, by transaction, mixed, negative; the first record counts, and each group begins anew."""
    _steps(SequenceValidator("g", inserts_last=True), (-1, 5), (0, 0), (0, 3), (0, 4), (7, 0), (9, 2))
    for second in ((3, 4), (3, 5), (2, 9)):
        with pytest.raises(RecordSequenceError):
            _steps(SequenceValidator("g", inserts_last=True), (3, 5), second)


def test_a_group_that_comes_back_is_refused_whatever_lies_between() -> None:
    """Distinct groups in any order pass; each that comes back does not, whatever lies between."""
    validator = GroupingValidator("t")
    groups = [("a", 0), ("a", 1), ("b", 0), ("a", 2), ("b", 5)]
    assert [validator.enter(*group) for group in groups] == [True] * len(groups)
    assert validator.enter("b", 5) is False
    for group in groups[:-1]:
        with pytest.raises(GroupRevisitedError):
            validator.enter(*group)


def test_client_without_connect_or_server_is_refused() -> None:
    """A failing metastore is wrapped; an unconnected client makes no transaction; closing it is harmless."""
    nobody = MutatorClientBuilder().metastore("thrift://127.0.0.1:9").add_sink_table("default", "t").build()
    with pytest.raises(TransactionStateError, match="not connected"):
        nobody.new_transaction()
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1"):
        nobody.connect()
    nobody.close()


def test_waiting_for_a_lock_ends_at_the_bound_and_leaves_nothing(filled: FilledTable) -> None:
    """The refused transaction is aborted, and its place in the queue is free."""
    with (
        filled.client() as holder,
        filled.builder().lock_timeout_seconds(0.2).build() as waiter,
        holder.new_transaction(),
    ):
        refused = waiter.new_transaction()
        with pytest.raises(LockNotAcquiredError):
            refused.begin()
        assert refused.state is TransactionState.ABORTED
        locks = filled.metastore.show_locks(filled.info.database, filled.info.name)
        assert {lock.state for lock in locks} == {LockState.ACQUIRED}


def test_heartbeat_threads_live_from_begin_to_the_end(filled: FilledTable) -> None:
    """Its threads start with the lock and end with the transaction."""
    with filled.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        name = f"mutation-heartbeat-{transaction.txn_id}"
        assert _threads(name)
        transaction.commit()
        wait_until(lambda: not _threads(name), "the heartbeat's end")


def _threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@pytest.mark.parametrize("ending", ["abort_txn", "commit_txn"])
def test_listener_is_called_if_a_transaction_ends_from_outside(
    filled: FilledTable, clock: FakeClock, ending: str
) -> None:
    """A transaction that the server no longer knows as open is lost, however it ended."""
    told: list[int] = []

    class Listener:
        def lock_failed(self, lock_id: Any, txn_id: int, tables: Any, error: Exception) -> None:
            told.append(txn_id)

    with filled.builder().clock(clock).lock_failure_listener(Listener()).build() as client:
        transaction = client.new_transaction()
        transaction.begin()
        clock.wait_for_waiters(2)
        getattr(filled.metastore, ending)(transaction.txn_id)
        clock.advance(100)
        wait_until(lambda: told, "the listener is told")
        assert told == [transaction.txn_id]


def test_heartbeat_goes_on_after_a_broken_connection(clock: FakeClock) -> None:
    """A beat that finds no server is tried again before the transaction counts as lost."""
    metastore = InMemoryMetastore(clock=clock.now)
    metastore.create_table(table_info())
    builder = MutatorClientBuilder().metastore(metastore).clock(clock).add_source_table("default", "t")
    with builder.build() as client, client.new_transaction() as transaction:
        clock.wait_for_waiters(2)
        metastore.fail_next("heartbeat_txn_range", MetastoreUnavailableError("the connection is cut"))
        beats = metastore.calls.count("heartbeat_txn_range")
        for _ in range(2):
            clock.wait_for_waiters(2)
            clock.advance(100)
            wait_until(lambda: metastore.calls.count("heartbeat_txn_range") > beats, "a beat")  # noqa: B023
            beats = metastore.calls.count("heartbeat_txn_range")
        transaction.check()


def test_descriptor_survives_its_text_with_and_without_transaction(filled: FilledTable) -> None:
    """Bound or not, the text gives the same descriptor; a foreign or cut text is refused."""
    with filled.client() as client, client.new_transaction() as transaction:
        for table in (client.tables[0], transaction.table(filled.full_name)):
            text = AcidTableSerializer.encode(table)
            assert AcidTableSerializer.decode(text) == table
            for wrong in (f"x{text}", text[:-1], "", "TableV1:"):
                with pytest.raises(ConfigurationError):
                    AcidTableSerializer.decode(wrong)


# -- time-out ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_transaction_without_heartbeats_cannot_commit(filled_anew: FilledTable, clock: FakeClock) -> None:
    """Without a beat for longer than the time-out the reaper aborts it; a fresh transaction works."""
    table = filled_anew
    with table.builder().clock(clock).build() as client:
        transaction = client.new_transaction()
        with table.refuses(TransactionAbortedError, "was aborted"):
            transaction.begin()
            write(transaction, table.full_name, [update("a", table.row_id(0), 0)])
            table.hive.time_out_transactions(0)
            transaction.commit()
    table.commit(update("a", table.row_id(0), 0))
    assert table.values() == table.expected({0: "changed"})


@pytest.mark.long
def test_a_transaction_with_heartbeats_survives_the_reaper(filled: FilledTable, clock: FakeClock) -> None:
    """Its last heartbeat moves, so the reaper takes the silent one beside it and leaves it alone."""
    metastore = filled.metastore
    with filled.builder().clock(clock).build() as client, client.new_transaction() as transaction:
        silent = metastore.open_txn("user", "host", "silent")
        while _silence_seconds(filled, transaction.txn_id, silent) < 4:
            before = _txn(filled, transaction.txn_id).last_heartbeat_time
            clock.wait_for_waiters(2)
            clock.advance(100)
            wait_until(lambda: _txn(filled, transaction.txn_id).last_heartbeat_time != before, "a beat")  # noqa: B023
        filled.hive.time_out_transactions(3)
        assert is_aborted(filled, silent)
        transaction.check()
    assert transaction.state is TransactionState.COMMITTED


def _silence_seconds(table: LiveTable, beating: int, silent: int) -> float:
    times = [_txn(table, txn_id).last_heartbeat_time or 0 for txn_id in (beating, silent)]
    return (times[0] - times[1]) / 1000


def _txn(table: LiveTable, txn_id: int) -> TxnInfo:
    found = table.txn(txn_id)
    assert found is not None
    return found


# -- buckets -----------------------------------------------------------------------------------------------

ALL_TYPES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127],
    "smallint": [-32768, 300],
    "int": [-(2**31), 77],
    "bigint": [-(2**63), 2**40 + 1],
    "float": [-0.5, 1e30],
    "double": [-0.1, 1e300],
    "string": ["", "grün €"],
    "varchar(5)": ["abc", "ünïcö"],
    "char(5)": ["ab", "abcde"],
    "decimal(20,4)": [Decimal("-1.5"), Decimal("1234567890.1200")],
    "date": [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    "timestamp": [datetime.datetime(1970, 1, 1), datetime.datetime(2024, 2, 29, 12, 30, 1, 500000)],
    "binary": [b"", b"\x00\xff"],
    "array<int>": [[], [1, None, 3]],
    "struct<x:int,y:string>": [{"x": 1, "y": None}, {"x": None, "y": "y"}],
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("types", "bucket_columns"),
    [
        pytest.param(list(ALL_TYPES), [f"c{n}" for n in range(len(ALL_TYPES))], id="all-types"),
        pytest.param(["double", "string", "bigint"], ["c2"], id="bucket-column-not-first"),
    ],
)
def test_buckets_equal_those_of_hives_own_insert(
    make_table: MakeTable, types: list[str], bucket_columns: list[str]
) -> None:
    """Hive's SQL, copying our rows into a like table, puts each into the bucket where we put it."""
    columns = ", ".join(["id int", *(f"c{n} {kind}" for n, kind in enumerate(types))])
    how: dict[str, Any] = {"columns": columns, "keys": "", "buckets": 8, "bucket_columns": bucket_columns}
    ours, hives = make_table(**how), make_table(**how)
    rows = [_row_of(types, number) for number in range(3 * len(types) + 1)]
    with ours.builder().time_zone("UTC").build() as client, client.new_transaction() as transaction:
        _insert_by_bucket(transaction, ours, rows)
    ours.hive.sql(f"INSERT INTO TABLE {hives.full_name} SELECT * FROM {ours.full_name}")
    found = {row.values: (row.row_id or (0, 0, 0))[1] for row in map(_hashable, ours.rows())}
    assert found == {row.values: (row.row_id or (0, 0, 0))[1] for row in map(_hashable, hives.rows())}
    assert len(found) == len(rows)
    assert len(set(found.values())) > 1


def _row_of(types: list[str], number: int) -> dict[str, Any]:
    """Row 0 is all NULL; each later one differs from it, or from the row of first values, in one column."""
    row: dict[str, Any] = {"id": number}
    at, kind_of_row = divmod(number - 1, 3)
    for n, kind in enumerate(types):
        values = [None, *ALL_TYPES[kind]]
        row[f"c{n}"] = None if not number else values[kind_of_row if n == at else 1]
    return row


def _insert_by_bucket(transaction: Transaction, table: LiveTable, rows: list[dict[str, Any]]) -> None:
    descriptor = transaction.table(table.full_name)
    with MutatorCoordinator(descriptor, writer_id="w") as coordinator:
        resolver = BucketIdResolver(descriptor)
        batch = pa.Table.from_pylist(rows)
        order = np.argsort(resolver.resolve(batch).to_numpy(), kind="stable")
        coordinator.insert(None, batch.take(pa.array(order)))
    transaction.add_manifests(table.full_name, "w", coordinator.close())


def _hashable(row: Any) -> Any:
    return type(row)(row.partition, row.row_id, (repr(row.values),))


KEY_TYPES = [kind for kind in ALL_TYPES if "<" not in kind and kind not in ("binary", "timestamp")]


@pytest.mark.long
def test_partition_names_equal_those_of_hives_own_insert(make_table: MakeTable) -> None:
    """Typed values of every key type, NULL among them, name the partitions that Hive's SQL names."""
    names = [f"k{n}" for n in range(len(KEY_TYPES))]
    keys = ", ".join(map("{} {}".format, names, KEY_TYPES))
    ours, hives = make_table(keys=keys), make_table(keys=keys)
    source = make_table(columns=f"id bigint, msg string, {keys}", keys="")
    rows = [[ALL_TYPES[kind][at] for kind in KEY_TYPES] for at in (0, 1)] + [[None] * len(KEY_TYPES)]
    ours.commit(*(insert(values, 2 * n) for n, values in enumerate(rows)))
    typed = (insert(None, 2 * n, **dict(zip(names, row, strict=True))) for n, row in enumerate(rows))
    source.commit(*typed)
    columns = ", ".join(names)
    ours.hive.sql(
        f"INSERT INTO TABLE {hives.full_name} PARTITION ({columns}) "
        f"SELECT id, msg, {columns} FROM {source.full_name}"
    )
    assert set(ours.partitions()) == set(hives.partitions())
    assert ours.values() == hives.values()


# -- leader and workers ------------------------------------------------------------------------------------


def test_rows_of_workers_are_visible_only_after_the_leaders_commit(places: LiveTable) -> None:
    """Until the leader's commit nobody sees a row or a partition of either worker."""
    table = places
    with table.transaction() as leader:
        text = AcidTableSerializer.encode(leader.table(table.full_name))
        for worker, place, number in (("w1", INDIA, 1), ("w2", UK, 2)):
            with MutatorCoordinator(AcidTableSerializer.decode(text), writer_id=worker) as coordinator:
                coordinator.insert(place, {"id": number, "msg": worker})
            leader.add_manifests(table.full_name, worker, coordinator.close())
        assert (table.rows(), table.partitions(), table.files()) == ((), (), set())
        with pytest.raises(TransactionStateError):
            leader.begin()
    assert table.values() == [(_name(INDIA), 1, "w1"), (_name(UK), 2, "w2")]


# -- write conflicts ---------------------------------------------------------------------------------------


class Rival:
    """A transaction of somebody else, as Hive's SQL makes it: partition locks just before the commit."""

    def __init__(self, metastore: ThriftMetastoreClient) -> None:
        self._metastore = metastore
        self.txn_id = metastore.open_txn("rival", "host", "SQL")

    def change_and_commit(
        self, table: LiveTable, partition: str | None, operation: DataOperationType
    ) -> None:
        """Lock one partition (None: the table) for the operation and commit."""
        is_read = operation is DataOperationType.SELECT
        component = LockComponent(
            LockType.SHARED_READ if is_read else LockType.SHARED_WRITE,
            LockLevel.TABLE if partition is None else LockLevel.PARTITION,
            table.info.database,
            table.info.name,
            partition,
            operation,
        )
        answer = self._metastore.lock(LockRequest((component,), self.txn_id, "rival", "host", "SQL"))
        assert answer.state is LockState.ACQUIRED
        self._metastore.commit_txn(self.txn_id)


UPDATE, DELETE, SELECT = DataOperationType.UPDATE, DataOperationType.DELETE, DataOperationType.SELECT


@pytest.mark.long
@pytest.mark.parametrize(
    ("ours", "partition", "theirs"),
    [
        pytest.param("update", "ds=a", UPDATE, id="update-update"),
        pytest.param("update", "ds=a", DELETE, id="update-delete"),
        pytest.param("delete", "ds=a", UPDATE, id="delete-update"),
        pytest.param("delete", "ds=a", DELETE, id="delete-delete"),
    ],
)
def test_the_second_commit_to_one_partition_is_refused(
    filled_tables: dict[str, FilledTable],
    filled_anew: FilledTable,
    live_metastore: ThriftMetastoreClient,
    ours: str,
    partition: str,
    theirs: DataOperationType,
) -> None:
    """Two that overlap in time and change one partition: the server refuses the second commit."""
    table = filled_anew
    rival = Rival(live_metastore)
    table.commit({"update": update("a", table.row_id(0), 0), "delete": delete("a", table.row_id(0))}[ours])
    with pytest.raises(TxnAbortedError, match="write conflict"):
        rival.change_and_commit(table, partition, theirs)


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "partition", "theirs"),
    [
        pytest.param("before", "ds=a", UPDATE, id="one-after-the-other"),
        pytest.param("overlapping", "ds=b", UPDATE, id="another-partition"),
        pytest.param("overlapping", "ds=a", SELECT, id="a-reader"),
        pytest.param("aborted", "ds=a", UPDATE, id="we-aborted"),
        pytest.param("inserting", "ds=a", UPDATE, id="we-inserted-only"),
    ],
)
def test_transactions_apart_in_time_or_place_do_not_conflict(
    make_table: MakeTable,
    live_metastore: ThriftMetastoreClient,
    how: str,
    partition: str,
    theirs: DataOperationType,
) -> None:
    """Apart in time or place, a reader, or the first aborted or only inserting: both commit."""
    table = make_table()
    first = table.commit(insert("a", 0), insert("b", 0))
    rival = None if how == "before" else Rival(live_metastore)
    change = insert("a", 2) if how == "inserting" else update("a", (first, 0, 0), 0)
    with table.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, table.full_name, [change])
        transaction.abort() if how == "aborted" else transaction.commit()
    (rival or Rival(live_metastore)).change_and_commit(table, partition, theirs)


@pytest.mark.long
def test_partitions_of_one_name_in_two_tables_do_not_conflict(
    make_table: MakeTable, live_metastore: ThriftMetastoreClient
) -> None:
    """The same partition name of another table."""
    table, other = make_table(), make_table()
    for each in (table, other):
        each.commit(insert("a", 0))
    rival = Rival(live_metastore)
    table.commit(update("a", (_only_txn(table), 0, 0), 0))
    rival.change_and_commit(other, "ds=a", UPDATE)


@pytest.mark.long
def test_hives_insert_and_an_update_of_one_partition_both_commit(filled_anew: FilledTable) -> None:
    """Hive's SQL may insert into the partition that we update; its rows and ours are all there."""
    table = filled_anew
    with table.transaction() as transaction:
        write(transaction, table.full_name, [update("a", table.row_id(0), 0), insert("a", 20)])
        table.hive.sql(f"INSERT INTO TABLE {table.full_name} PARTITION (ds='a') VALUES (22, 'new')")
        assert table.values() == table.expected(added=[22])
    assert table.values() == table.expected({0: "changed"}, added=[20, 22])


def _only_txn(table: LiveTable) -> int:
    (row,) = table.rows()
    assert row.row_id is not None
    return row.row_id[0]


# -- statistics, original files, new columns ---------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("keys", [pytest.param("", id="table"), pytest.param("ds string", id="partition")])
def test_a_commit_marks_statistics_as_inaccurate(make_table: MakeTable, keys: str) -> None:
    """What claims to be accurate before our commit does not claim it after, and count(*) is right."""
    accurate = {"COLUMN_STATS_ACCURATE": '{"BASIC_STATS":"true"}', "numRows": "1"}
    table = make_table(keys=keys, parameters=accurate)
    place = "a" if keys else None
    table.commit(*(insert(place, n) for n in (0, 2, 4)))
    if keys:
        table.hive.sql(f"ANALYZE TABLE {table.full_name} PARTITION (ds) COMPUTE STATISTICS NOSCAN")
        assert "COLUMN_STATS_ACCURATE" in _parameters(table)
        table.commit(insert(place, 6))
    assert "COLUMN_STATS_ACCURATE" not in _parameters(table)
    settings = {"hive.compute.query.using.stats": "true"}
    count = table.hive.sql(f"SELECT count(*) FROM {table.full_name}", settings=settings)
    assert count == [[4 if keys else 3]]


def _parameters(table: LiveTable) -> dict[str, str]:
    database, name = table.info.database, table.info.name
    if not table.info.partition_keys:
        return dict(table.metastore.get_table(database, name).parameters)
    (partition,) = table.metastore.get_partitions_by_names(database, name, table.partitions())
    return dict(partition.parameters)


@pytest.mark.long
@pytest.mark.parametrize("compaction", ["minor", "major"])
def test_original_files_take_updates_and_deletes_and_compact(
    make_table: MakeTable, hive: Hive23, layout: str, compaction: str
) -> None:
    """Files from before the table became transactional take our updates and deletes, and compact."""
    plain = make_table(keys="", parameters={"transactional": "false"})
    hive.sql(f"INSERT INTO TABLE {plain.full_name} VALUES (0, 'o'), (1, 'o'), (2, 'o'), (3, 'o'), (4, 'o')")
    properties = "" if layout == "legacy" else f", 'transactional_properties'='{layout}'"
    hive.sql(f"ALTER TABLE {plain.full_name} SET TBLPROPERTIES ('transactional'='true'{properties})")
    table = LiveTable(hive, plain.metastore, plain.metastore.get_table(plain.info.database, plain.info.name))
    ids = table.row_ids()
    assert {row_id[0] for row_id in ids.values()} == {0}
    changes = [update(None, ids[0], 0), delete(None, ids[4]), insert(None, 6), update(None, ids[3], 3)]
    table.commit(*sorted(changes, key=lambda c: c.record["ROW__ID"][1:] if "ROW__ID" in c.record else (0, 9)))
    expected = [(0, "changed"), (1, "o"), (2, "o"), (3, "changed"), (6, "new")]
    assert table.values() == expected
    assert _our_values(table) == expected
    _compact(table, None, compaction)
    assert table.values() == expected
    assert _our_values(table) == expected


@pytest.mark.long
def test_added_columns_are_null_in_old_rows_before_and_after_compaction(
    make_table: MakeTable, hive: Hive23, layout: str
) -> None:
    """After ADD COLUMNS old rows read NULL there, ours the value, before and after a major compaction."""
    old = make_table(keys="", layout=layout)
    first = old.commit(*(insert(None, n, "old") for n in (0, 2, 1)))
    hive.sql(f"ALTER TABLE {old.full_name} ADD COLUMNS (extra int, detail struct<x:int>)")
    table = LiveTable(hive, old.metastore, old.metastore.get_table(old.info.database, old.info.name))
    more: dict[str, Any] = {"extra": 7, "detail": {"x": 8}}
    changed = update(None, (first, 0, 0), 0)
    table.commit(
        type(changed)(changed.operation, None, {**changed.record, **more}),
        insert(None, 4, **more),
        delete(None, (first, 1, 0)),
    )
    expected = [(0, "changed", 7, "8"), (2, "old", None, "None"), (4, "new", 7, "8")]
    for _ in ("as written", "compacted"):
        assert _with_extra(table) == expected
        assert [row[2:] for row in _our_values(table)] == [(7, {"x": 8}), (None, None), (7, {"x": 8})]
        _compact(table, None, "major")


def _with_extra(table: LiveTable) -> list[tuple[Any, ...]]:
    """Values, with the text of its only field for the struct."""
    found = []
    for id_, msg, extra, more in (row.values for row in table.rows()):
        inner = next(iter(more.values() if isinstance(more, dict) else more), None) if more else None
        found.append((id_, msg, extra, str(inner)))
    return sorted(found)


def _our_values(table: LiveTable) -> list[tuple[Any, ...]]:
    """The rows as our own snapshot reader sees them."""
    with table.client() as client, client.open_snapshot(table.full_name) as snapshot:
        return sorted(_read(snapshot, table))


def _read(snapshot: Any, table: LiveTable) -> Iterator[tuple[Any, ...]]:
    descriptor, valid = snapshot.table(table.full_name), snapshot.valid_txn_list
    places = [(p.name, descriptor.partition_location(p.name)) for p in snapshot.partitions(table.full_name)]
    for name, location in places if descriptor.partition_keys else [("", descriptor.location)]:
        for split in plan_splits(descriptor, name, location, valid):
            for batch in read_split(descriptor, split, valid, row_ids=False):
                yield from (tuple(row.values()) for row in batch.to_pylist())


# -- compaction around us ----------------------------------------------------------------------------------


def _compact(table: LiveTable, partition: str | None, kind: str) -> None:
    types = {"minor": CompactionType.MINOR, "major": CompactionType.MAJOR}
    table.metastore.compact(table.info.database, table.info.name, partition, types[kind])
    _work_off(table)
    assert {c.state for c in _compactions(table)} <= {"ready for cleaning", "succeeded"}
    table.hive.cleaner()


def _work_off(table: LiveTable) -> None:
    """Let the compactor work until nothing waits any more, of other tests' tables neither.

    Those may be damaged on purpose; what became of our own table the caller sees.
    """
    while any(c.state == "initiated" for c in table.hive.compactions()):
        with suppress(HiveError):
            table.hive.worker()


@contextmanager
def _open(client: MutatorClient) -> Iterator[Transaction]:
    transaction = client.new_transaction()
    transaction.begin()
    yield transaction
    transaction.commit()


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["minor", "major"])
def test_a_commit_after_a_compaction_is_read_on_top_of_its_result(
    filled_anew: FilledTable, kind: str
) -> None:
    """It takes what was committed before; our later commit is read on top of its result."""
    table = filled_anew
    table.commit(update("a", table.row_id(0), 0), insert("a", 20))
    ids = {n: row_id for n, row_id in _ids_in_a(table).items() if n in (0, 2, 20)}
    with table.client() as client, _open(client) as transaction:
        changes = [delete("a", ids[n]) for n in sorted(ids, key=lambda n: ids[n])]
        write(transaction, table.full_name, [*changes, insert("a", 30)])
        _compact(table, "ds=a", kind)
        assert table.values() == table.expected({0: "changed"}, added=[20])
    assert table.values() == table.expected(gone=[0, 2], added=[30])
    table.hive.cleaner()  # it waited for our lock, and fails on a partition that is compacted twice meanwhile
    _compact(table, "ds=a", kind)
    assert table.values() == table.expected(gone=[0, 2], added=[30])


def _ids_in_a(table: LiveTable) -> dict[Any, tuple[int, int, int]]:
    return {r.values[0]: r.row_id for r in table.rows() if r.partition == "ds=a" and r.row_id is not None}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["minor", "major"])
def test_aborted_transactions_leave_nothing_to_compact(filled_anew: FilledTable, kind: str) -> None:
    """Transactions of ours that aborted, before and after they had published, leave nothing to compact."""
    table = filled_anew
    table.commit(update("a", table.row_id(0), 0))
    for place, error in (("a", RuntimeError), ("zz", RowIdNotFoundError)):
        with pytest.raises(error), table.transaction() as transaction:
            write(transaction, table.full_name, [delete(place, table.row_id(2))])
            if error is RuntimeError:
                raise RuntimeError("the job failed after writing; the other fails while it publishes")
    table.commit(insert("a", 20))
    _compact(table, "ds=a", kind)
    assert table.values() == table.expected({0: "changed"}, added=[20])
    assert len([name for name in table.files() if name.startswith("ds=a/delta_")]) == (
        2 if kind == "minor" else 0
    )


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["minor", "major"])
def test_compacted_deletes_read_right_and_take_further_changes(filled_anew: FilledTable, kind: str) -> None:
    """Two transactions that only delete; afterwards our own changes to the compacted rows read right."""
    table = filled_anew
    table.commit(*(delete("a", table.row_id(n)) for n in (0, 4, 1)))
    table.commit(*(delete("a", table.row_id(n)) for n in (2, 3)))
    _compact(table, "ds=a", kind)
    assert table.values() == table.expected(gone=[0, 1, 2, 3, 4])
    table.commit(update("a", table.row_id(6), 6), delete("a", table.row_id(5)))
    assert table.values() == table.expected({6: "changed"}, gone=[0, 1, 2, 3, 4, 5])
    assert _our_values(table) == sorted(row[1:] for row in table.values())


COMPACTED_OFTEN = {
    "no_auto_compaction": "false",
    "compactorthreshold.hive.compactor.delta.num.threshold": "1",
}
"""Properties of a table that the initiator queues after two deltas."""


@pytest.mark.long
def test_initiator_queues_written_partitions_and_not_the_table(
    make_table: MakeTable, hive: Hive23, layout: str
) -> None:
    """It queues each partition that we touched often enough, not the table: what we wrote is recorded by
    partition; the rows are the same after the compaction.
    """
    table = make_table(layout=layout, parameters=COMPACTED_OFTEN)
    first = table.commit(insert("a", 0), insert("a", 2), insert("b", 0))
    table.commit(update("a", (first, 0, 0), 0))
    before = table.rows()
    hive.initiator()
    assert {(c.partition, c.state) for c in _compactions(table)} == {("ds=a", "initiated")}
    _work_off(table)
    hive.cleaner()
    assert {(c.partition, c.state) for c in _compactions(table)} == {("ds=a", "succeeded")}
    assert table.rows() == before


@pytest.mark.long
def test_initiator_queues_a_written_table_without_partitions(make_table: MakeTable, hive: Hive23) -> None:
    """The table itself is queued."""
    table = make_table(keys="", parameters=COMPACTED_OFTEN)
    first = table.commit(insert(None, 0))
    table.commit(update(None, (first, 0, 0), 0))
    hive.initiator()
    assert {(c.partition, c.state) for c in _compactions(table)} == {(None, "initiated")}
    _work_off(table)
    hive.cleaner()
    assert table.values() == [(0, "changed")]


def _compactions(table: LiveTable) -> list[Compaction]:
    return [
        c for c in table.hive.compactions() if (c.database, c.table) == (table.info.database, table.info.name)
    ]


@pytest.mark.long
def test_cleaner_keeps_obsolete_files_while_a_snapshot_is_open(filled_anew: FilledTable) -> None:
    """Files that a compaction made obsolete stay as long as a snapshot that needs them is open."""
    table = filled_anew
    table.commit(update("a", table.row_id(0), 0))
    expected = sorted(row[1:] for row in table.values())
    with table.client() as client:
        with client.open_snapshot(table.full_name) as snapshot:
            needed = {name for name in table.files() if name.startswith("ds=a/d")}
            _compact(table, "ds=a", "major")
            assert needed <= table.files()
            assert sorted(_read(snapshot, table)) == expected
        table.hive.cleaner()
        assert not needed & table.files()
    assert _our_values(table) == expected
