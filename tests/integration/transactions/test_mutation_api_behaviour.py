"""What Hive's own Mutation API does when it is used rightly and wrongly, and what this package does instead.

Each test is one or more lines of ``docs/mutation-api-behaviour.md``, which tells what Hive's API did in the
same case. Hive's readers, the row reader and the vectorised one, say what a transaction has left; after a
refusal they, the files and the partitions must be as before.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from metastore_client.errors import InvalidRequestError
from metastore_client.model import LockState, LockType
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api.errors import (
    BucketIdError,
    ConfigurationError,
    GroupRevisitedError,
    LockLostError,
    LockNotAcquiredError,
    ManifestError,
    MutationError,
    PartitionCreationError,
    RecordLayoutError,
    RecordSequenceError,
    RowIdNotFoundError,
    TableNotMutableError,
    TransactionAbortedError,
    TransactionStateError,
)
from mutation_api.spark.job import apply_changes
from mutation_api.table.acid_table import AcidTableSerializer
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction_state import TransactionState
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_clock import FakeClock, wait_until
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import (
    Change,
    FilledTable,
    LiveTable,
    delete,
    insert,
    update,
    write,
)

pytestmark = pytest.mark.slow


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[int | None, int, tuple[str, ...], Exception]] = []

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        self.calls.append((lock_id, txn_id, tuple(tables), error))


# -- grouping ----------------------------------------------------------------------------------------------


def _groups(*groups: str) -> list[Change]:
    """An insert into each ``partition/bucket`` of three buckets; ids tell the bucket."""
    pairs = (group.split("/") for group in groups)
    return [insert(ds, 300 + 3 * at + int(bucket)) for at, (ds, bucket) in enumerate(pairs)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "groups",
    [
        pytest.param(["a/0", "a/1", "a/0"], id="bucket-revisited"),
        pytest.param(["a/0", "b/0", "a/0"], id="partition-revisited"),
        pytest.param(["a/0", "a/1", "a/2", "a/0"], id="first-bucket-revisited-after-two"),
    ],
)
def test_revisited_group_is_refused(make_table: MakeTable, groups: list[str]) -> None:
    """A (partition, bucket) that was left cannot come back: the check itself says so, not the file system."""
    table = make_table(buckets=3)
    table.commit(insert("a", 0))
    with (
        table.refuses(GroupRevisitedError, r"partition 'ds=a', bucket 0: it occurs again after group"),
        table.transaction() as transaction,
    ):
        write(transaction, table.full_name, _groups(*groups))


@pytest.mark.long
@pytest.mark.parametrize(
    "groups",
    [
        pytest.param(["a/0", "b/0", "a/1"], id="partition-revisited-in-another-bucket"),
        pytest.param(["a/0", "a/1", "b/0", "a/2"], id="all-groups-distinct"),
    ],
)
def test_distinct_groups_in_any_order_are_written(make_table: MakeTable, groups: list[str]) -> None:
    """Groups need not be sorted; that none comes twice is enough."""
    table = make_table(buckets=3)
    changes = _groups(*groups)
    table.commit(*changes)
    assert {(f"{row.partition[3:]}/{row.row_id[1]}") for row in table.rows() if row.row_id} == set(groups)
    assert len(table.rows()) == len(changes)


def test_refused_coordinator_fails_the_same_way_until_aborted(filled: FilledTable) -> None:
    """After a refusal close() raises the first error again, every write is refused, and abort() cleans up."""
    with (
        filled.refuses(GroupRevisitedError, "it occurs again after group"),
        filled.transaction() as transaction,
    ):
        coordinator = MutatorCoordinator(transaction.table(filled.full_name), writer_id="w")
        with pytest.raises(GroupRevisitedError) as first:
            for number in (20, 21, 22):
                coordinator.insert(["a"], pa.table({"id": [number], "msg": ["x"]}))
        with pytest.raises(TransactionStateError, match=r"failed earlier .* abort it"):
            coordinator.insert(["a"], {"id": 24, "msg": "x"})
        with pytest.raises(GroupRevisitedError) as again:
            coordinator.close()
        assert again.value is first.value
        coordinator.abort()
        assert not filled.staged()
        raise first.value


# -- sequence inside a group -------------------------------------------------------------------------------

# Changes of partition a, bucket 0: u3 updates the row with row id 3, d4 deletes one, i inserts.


def _sequence(table: FilledTable, text: str) -> list[Change]:
    return [_step(table, step, at) for at, step in enumerate(text.split())]


def _step(table: FilledTable, step: str, at: int) -> Change:
    if step == "i":
        return insert("a", 100 + 2 * at)
    number = 2 * int(step[1:])
    if step[0] == "d":
        return delete("a", table.row_id(number))
    return update("a", table.row_id(number), number)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sequence", "changed", "gone", "added"),
    [
        pytest.param("u1 u3 d4 i", {2: "changed", 6: "changed"}, [8], [106], id="ascending-inserts-last"),
        pytest.param("d0 u1 d2", {2: "changed"}, [0, 4], [], id="updates-between-deletes"),
    ],
)
def test_ascending_sequence_is_applied(
    filled_anew: FilledTable, sequence: str, changed: dict[int, str], gone: list[int], added: list[int]
) -> None:
    """Updates and deletes ascend by row id, inserts follow: every change is read back once."""
    filled_anew.commit(*_sequence(filled_anew, sequence))
    assert filled_anew.values() == filled_anew.expected(changed, gone, added)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sequence", "match"),
    [
        pytest.param("u5 u3", r", 3\) comes after .*, 5\)", id="first-record-too-high"),
        pytest.param("u1 u3 u2", r", 2\) comes after .*, 3\)", id="third-record-too-low"),
        pytest.param("u1 u3 d3", r", 3\) occurs twice", id="updated-then-deleted"),
        pytest.param("u1 d1", r", 1\) occurs twice", id="first-updated-then-deleted"),
    ],
)
def test_broken_sequence_is_refused(
    filled_tables: dict[str, FilledTable], own_transactions: None, layout: str, sequence: str, match: str
) -> None:
    """Out of order, or one row twice: refused wherever in the group it happens, the first record included."""
    table = filled_tables[layout]
    with table.refuses(RecordSequenceError, match), table.transaction() as transaction:
        write(transaction, table.full_name, _sequence(table, sequence))


@pytest.mark.long
@pytest.mark.parametrize(
    "sequence",
    [
        pytest.param("i u1 u2", id="insert-first"),
        pytest.param("u1 i u2", id="insert-between-updates"),
    ],
)
def test_update_after_insert_needs_split_files(filled_anew: FilledTable, sequence: str) -> None:
    """A combined delta must end with its inserts: refused; with split update any order is right."""
    changes = _sequence(filled_anew, sequence)
    if filled_anew.is_split:
        filled_anew.commit(*changes)
        changed = {2: "changed", 4: "changed"}
        added = [100 + 2 * sequence.split().index("i")]
        assert filled_anew.values() == filled_anew.expected(changed, added=added)
        return
    with (
        filled_anew.refuses(RecordSequenceError, "follows an insert"),
        filled_anew.transaction() as transaction,
    ):
        write(transaction, filled_anew.full_name, changes)


def test_sequence_begins_anew_in_each_group(filled_anew: FilledTable) -> None:
    """Bucket 0 may end at row id 5 and bucket 1 begin at row id 0."""
    changes = [
        update("a", filled_anew.row_id(10), 10),
        update("a", filled_anew.row_id(1), 1),
    ]
    filled_anew.commit(*changes)
    assert filled_anew.values() == filled_anew.expected({1: "changed", 10: "changed"})


@pytest.mark.long
def test_update_of_a_missing_row_is_found_when_asked(
    filled: FilledTable, spark: SparkSession, own_transactions: None
) -> None:
    """A ROW__ID that no row has would become a row; ``verify_row_ids`` looks each up before writing."""
    ddl = (
        "operation string, ROW__ID struct<transactionid:bigint,bucketid:int,rowid:bigint>, "
        "id bigint, msg string, ds string"
    )
    changes = spark.createDataFrame([("update", (filled.txn_id, 0, 999), 2, "ghost", "a")], ddl)
    with filled.refuses(RowIdNotFoundError, "999"), filled.transaction() as transaction:
        apply_changes(transaction, filled.full_name, changes, verify_row_ids=True)


def test_update_of_a_row_of_the_future_is_refused(filled: FilledTable) -> None:
    """A ROW__ID of this or a later transaction is in no snapshot."""
    with (
        filled.refuses(RowIdNotFoundError, r"names a row that the snapshot .*\(999999, 0, 0\)"),
        filled.transaction() as transaction,
    ):
        write(transaction, filled.full_name, [update("a", (999999, 0, 0), 0)])


# -- buckets -----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: update("a", t.row_id(0), 1), id="update"),
        pytest.param(lambda t: insert("a", 21, ROW__ID=(None, 0, None)), id="insert"),
    ],
)
def test_contradicted_bucket_is_refused(filled: FilledTable, change: Callable[[FilledTable], Change]) -> None:
    """The row hashes to bucket 1, its ROW__ID says 0."""
    with (
        filled.refuses(BucketIdError, "bucket=0, .*computed bucket=1"),
        filled.transaction() as transaction,
    ):
        write(transaction, filled.full_name, [change(filled)])


@pytest.mark.long
def test_bucket_change_is_a_delete_and_an_insert(filled_anew: FilledTable) -> None:
    """An update cannot move a row to another bucket; the refusal says what can, and that works."""
    row_id = filled_anew.row_id(4)
    with (
        filled_anew.refuses(BucketIdError, "delete the old row and insert the new one"),
        filled_anew.transaction() as transaction,
    ):
        write(transaction, filled_anew.full_name, [update("a", row_id, 55)])
    filled_anew.commit(delete("a", row_id), insert("a", 55))
    assert filled_anew.values() == filled_anew.expected(gone=[4], added=[55])


def test_bucket_column_may_change_within_its_bucket(filled_anew: FilledTable) -> None:
    """An update that gives the bucket column another value of the same bucket is an update like any other."""
    filled_anew.commit(update("a", filled_anew.row_id(4), 44, "new"))
    assert filled_anew.values() == filled_anew.expected(gone=[4], added=[44])


@pytest.mark.long
def test_insert_needs_no_attached_bucket(filled_anew: FilledTable) -> None:
    """The coordinator computes the bucket; without a ROW__ID, or with an empty one."""
    filled_anew.commit(insert("a", 20), insert("a", 31, ROW__ID=None))
    assert filled_anew.values() == filled_anew.expected(added=[20, 31])
    assert {n: row_id[1] for n, row_id in _ids_in(filled_anew, "ds=a").items() if n > 11} == {20: 0, 31: 1}


@pytest.mark.long
@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({}, id="without-values"),
        pytest.param({"id": None, "msg": None}, id="with-nulls"),
        pytest.param({"id": 999, "msg": "of bucket 1"}, id="with-values-of-another-bucket"),
    ],
)
def test_delete_looks_at_the_row_id_alone(filled_anew: FilledTable, columns: dict[str, Any]) -> None:
    """Whatever else the record holds, the row that ROW__ID names is deleted, in each bucket."""
    deletes = [delete("a", filled_anew.row_id(n), **columns) for n in (2, 8, 5)]
    filled_anew.commit(*deletes)
    assert filled_anew.values() == filled_anew.expected(gone=[2, 8, 5])


def test_delete_in_a_bucket_that_is_not_there_is_refused(filled: FilledTable) -> None:
    """No reader opens the file of bucket 7 of 2, so the delete would do nothing."""
    with (
        filled.refuses(BucketIdError, "does not have: expected 0 <= bucket < 2; .*bucket=7"),
        filled.transaction() as transaction,
    ):
        write(transaction, filled.full_name, [delete("a", (filled.txn_id, 7, 0))])


def _ids_in(table: LiveTable, partition: str) -> dict[Any, tuple[int, int, int]]:
    return {r.values[0]: r.row_id for r in table.rows() if r.partition == partition and r.row_id is not None}


# -- partitions --------------------------------------------------------------------------------------------


def test_missing_partition_is_created(make_table: MakeTable) -> None:
    """With ``create_partitions`` an insert brings its partition along, at the commit."""
    table = make_table()
    with table.transaction() as transaction:
        write(transaction, table.full_name, [insert("new", 1)])
        assert table.partitions() == ()
    assert table.partitions() == ("ds=new",)
    assert table.values() == [("ds=new", 1, "new")]


def test_missing_partition_is_refused_if_it_may_not_be_created(filled: FilledTable) -> None:
    """Rows in an unregistered directory are read by nobody, so they are never written."""
    with (
        filled.refuses(PartitionCreationError, "ds=zz do not exist; create them"),
        filled.transaction(create_partitions=False) as transaction,
    ):
        write(transaction, filled.full_name, [insert("zz", 1)])


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: update("zz", t.row_id(0), 0), id="update"),
        pytest.param(lambda t: delete("zz", t.row_id(0)), id="delete"),
    ],
)
def test_missing_partition_has_no_rows_to_change(
    filled: FilledTable, change: Callable[[FilledTable], Change]
) -> None:
    """An update or delete never creates a partition: no row of the snapshot can lie in it."""
    with (
        filled.refuses(RowIdNotFoundError, "ds=zz, which did not exist when the transaction began"),
        filled.transaction() as transaction,
    ):
        write(transaction, filled.full_name, [change(filled)])


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="none"),
        pytest.param(None, id="null"),
        pytest.param(["a", "b"], id="too-many"),
    ],
)
def test_wrong_number_of_partition_values_is_refused(filled: FilledTable, values: list[str] | None) -> None:
    """Neither the table's root nor a made-up key takes the rows."""
    with (
        filled.refuses(RecordLayoutError, r"got .* partition value\(s\) .*, but the table has 1"),
        filled.transaction() as transaction,
    ):
        write(transaction, filled.full_name, [insert(values, 1)])


@pytest.mark.long
def test_partition_value_is_where_hive_puts_it(make_table: MakeTable) -> None:
    """NULL and '' go to the default partition, others under their own name, exactly as with Hive's SQL."""
    ours, hives = make_table(), make_table()
    ours.commit(insert([None], 1), insert("", 3), insert("x:y/z%q r", 5))
    ours.hive.sql(
        f"INSERT INTO TABLE {hives.full_name} PARTITION (ds) "
        "VALUES (1, 'new', NULL), (3, 'new', ''), (5, 'new', 'x:y/z%q r')"
    )
    default, special = "ds=__HIVE_DEFAULT_PARTITION__", "ds=x%3Ay%2Fz%25q r"
    assert ours.values() == [(default, 1, "new"), (default, 3, "new"), (special, 5, "new")]
    assert ours.values() == hives.values()
    assert ours.hive.sql(f"SELECT ds, id FROM {ours.full_name} WHERE id = 5") == [["x:y/z%q r", 5]]


@pytest.mark.parametrize("values", [pytest.param(None, id="null"), pytest.param([], id="none")])
def test_unpartitioned_table_takes_no_values(make_table: MakeTable, values: list[str] | None) -> None:
    """None and [] both say that there is no partition."""
    table = make_table(keys="")
    table.commit(insert(values, 1))
    assert table.values() == [(1, "new")]


def test_unpartitioned_table_refuses_partition_values(make_table: MakeTable) -> None:
    """A value for a partition column that is not there."""
    table = make_table(keys="")
    with (
        table.refuses(RecordLayoutError, r"1 partition value\(s\) .* the table has 0"),
        table.transaction() as transaction,
    ):
        write(transaction, table.full_name, [insert("a", 1)])


# -- transaction and coordinator ---------------------------------------------------------------------------


def test_begin_twice_is_refused(make_table: MakeTable) -> None:
    """The second begin() raises and changes nothing: the transaction commits."""
    table = make_table()
    with table.transaction() as transaction:
        first = transaction.txn_id
        with pytest.raises(TransactionStateError, match="has already begun"):
            transaction.begin()
        assert transaction.txn_id == first
        write(transaction, table.full_name, [insert("a", 1)])
    assert table.values() == [("ds=a", 1, "new")]


def test_commit_twice_is_refused(make_table: MakeTable) -> None:
    """The second commit() raises; what the first did stays."""
    table = make_table()
    with table.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, table.full_name, [insert("a", 1)])
        transaction.commit()
        with pytest.raises(TransactionStateError, match="it is committed"):
            transaction.commit()
    assert transaction.state is TransactionState.COMMITTED
    assert table.values() == [("ds=a", 1, "new")]


def test_commit_without_begin_is_refused(filled: FilledTable) -> None:
    """There is nothing to commit; the transaction stays INACTIVE and can still begin."""
    with filled.client() as client:
        transaction = client.new_transaction()
        with pytest.raises(TransactionStateError, match=r"call begin\(\) first"):
            transaction.commit()
        assert transaction.state is TransactionState.INACTIVE


@pytest.mark.long
def test_nothing_is_written_without_begin(filled: FilledTable) -> None:
    """Neither an unbegun transaction's table nor the client's own makes a coordinator: no lock, no write."""
    with filled.client() as client:
        transaction = client.new_transaction()
        with filled.refuses(TransactionStateError, r"call begin\(\) first"):
            transaction.table(filled.full_name)
        with filled.refuses(TransactionStateError, "does not belong to a transaction"):
            MutatorCoordinator(client.tables[0], writer_id="w")


def test_commit_after_own_abort_is_refused(filled: FilledTable) -> None:
    """The transaction is over, and its files are gone."""
    with filled.client() as client, filled.refuses(TransactionStateError, "it is aborted"):
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, filled.full_name, [insert("a", 20)])
        transaction.abort()
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED


def test_commit_after_abort_from_outside_is_refused(filled: FilledTable) -> None:
    """The refusal names the transaction, its state is ABORTED, and its files are removed."""
    with filled.client() as client, filled.refuses(TransactionAbortedError, r"transaction \d+ was aborted"):
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, filled.full_name, [insert("a", 20)])
        filled.metastore.abort_txn(transaction.txn_id)
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED


def test_abort_after_commit_is_refused(make_table: MakeTable) -> None:
    """What is committed stays."""
    table = make_table()
    with table.transaction() as transaction:
        write(transaction, table.full_name, [insert("a", 1)])
    with pytest.raises(TransactionStateError, match="it is committed"):
        transaction.abort()
    assert table.values() == [("ds=a", 1, "new")]


def test_abort_after_abort_from_outside_cleans_up(filled: FilledTable) -> None:
    """abort() of a transaction that is over already succeeds and removes its files."""
    before = filled.state()
    with filled.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, filled.full_name, [insert("a", 20)])
        filled.metastore.abort_txn(transaction.txn_id)
        transaction.abort()
        transaction.abort()
    assert transaction.state is TransactionState.ABORTED
    assert filled.state() == before


def test_commit_after_commit_from_outside_is_refused(filled: FilledTable) -> None:
    """Nothing may become part of a transaction that others see as committed already."""
    with filled.client() as client, filled.refuses(LockLostError, "another client ended it"):
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, filled.full_name, [insert("a", 20)])
        filled.metastore.commit_txn(transaction.txn_id)
        transaction.commit()
    assert transaction.state is TransactionState.ABORTED


def test_writes_after_abort_from_outside_leave_nothing(filled: FilledTable) -> None:
    """Writing asks nobody and may go on; its files are hidden, the commit is refused and removes them."""
    with filled.refuses(TransactionAbortedError, "was aborted"), filled.transaction() as transaction:
        filled.metastore.abort_txn(transaction.txn_id)
        write(transaction, filled.full_name, [insert("a", 20)])
        assert filled.staged()


def test_listener_hears_of_an_abort_within_one_beat(filled: FilledTable, clock: FakeClock) -> None:
    """Beats come each third of the server's timeout; the first after the abort tells the listener, once."""
    listener = Listener()
    client = filled.builder().lock_failure_listener(listener).clock(clock).build()
    with client, filled.refuses(TransactionAbortedError, "was aborted"):
        transaction = client.new_transaction()
        transaction.begin()
        clock.wait_for_waiters(2)
        write(transaction, filled.full_name, [insert("a", 20)])
        filled.metastore.abort_txn(transaction.txn_id)
        clock.advance(100)
        wait_until(lambda: listener.calls, "the listener is told")
        with pytest.raises(TransactionAbortedError):
            transaction.check()
        transaction.commit()
    ((lock_id, txn_id, tables, error),) = listener.calls
    assert (txn_id, tables) == (transaction.txn_id, (filled.full_name,))
    assert lock_id is not None
    assert isinstance(error, TransactionAbortedError)


def test_commit_before_close_is_refused(filled: FilledTable) -> None:
    """Rows of an open coordinator would be lost, or come after the commit."""
    with filled.client() as client, filled.refuses(ManifestError, "'?w'? wrote files but handed in no"):
        transaction = client.new_transaction()
        transaction.begin()
        coordinator = MutatorCoordinator(transaction.table(filled.full_name), writer_id="w")
        coordinator.insert(["a"], pa.table({"id": [20], "msg": ["x"]}))
        transaction.commit()


@pytest.mark.long
def test_nothing_is_written_after_the_end(make_table: MakeTable) -> None:
    """A coordinator that outlives its transaction makes nothing visible, whatever is written and closed."""
    table = make_table()
    table.commit(insert("a", 1))
    before = (table.rows(), table.files())
    with table.client() as client:
        transaction = client.new_transaction()
        transaction.begin()
        coordinator = MutatorCoordinator(transaction.table(table.full_name), writer_id="w")
        coordinator.insert(["a"], pa.table({"id": [2], "msg": ["x"]}))
        with pytest.raises(ManifestError):
            transaction.commit()
        _write_late(coordinator)
        with pytest.raises(TransactionStateError):
            transaction.add_manifests(table.full_name, "w", ())
    assert (table.rows(), table.files()) == before
    table.commit(insert("a", 3))
    assert [row[1] for row in table.values()] == [1, 3]
    assert not table.staged()


def _write_late(coordinator: MutatorCoordinator) -> None:
    """Its file may have been removed already, which may be an error of its own, but only one of ours."""
    try:
        coordinator.insert(["a"], pa.table({"id": [4], "msg": ["late"]}))
        coordinator.close()
    except MutationError:
        coordinator.abort()


def test_forgotten_coordinator_stops_the_commit(filled: FilledTable) -> None:
    """One coordinator handed in, another never did: its rows would be missing in silence."""
    with (
        filled.refuses(ManifestError, "forgotten wrote files but handed in no"),
        filled.transaction() as transaction,
    ):
        write(transaction, filled.full_name, [insert("a", 20)])
        forgotten = MutatorCoordinator(transaction.table(filled.full_name), writer_id="forgotten")
        forgotten.insert(["b"], pa.table({"id": [21], "msg": ["x"]}))


def test_insert_after_close_is_refused(filled: FilledTable) -> None:
    """A closed coordinator says that it is closed."""
    with (
        filled.refuses(TransactionStateError, "the coordinator is closed"),
        filled.transaction() as transaction,
    ):
        coordinator = MutatorCoordinator(transaction.table(filled.full_name), writer_id="w")
        coordinator.close()
        coordinator.insert(["a"], {"id": 20, "msg": "x"})


def test_closing_twice_returns_the_same(make_table: MakeTable) -> None:
    """The second close() gives the same manifests and writes nothing."""
    table = make_table()
    with table.transaction() as transaction:
        coordinator = MutatorCoordinator(transaction.table(table.full_name), writer_id="w")
        coordinator.insert(["a"], {"id": 1, "msg": "new"})
        manifests = coordinator.close()
        assert manifests == coordinator.close()
        transaction.add_manifests(table.full_name, "w", manifests)
    assert table.values() == [("ds=a", 1, "new")]


def test_no_event_at_all_commits(filled: FilledTable) -> None:
    """An empty transaction commits and leaves no file."""
    before = filled.state()
    with filled.transaction() as transaction:
        write(transaction, filled.full_name, [])
    assert transaction.state is TransactionState.COMMITTED
    assert filled.state() == before


def test_nothing_is_seen_before_the_commit(make_table: MakeTable) -> None:
    """There is no flush(): rows show at the commit; until then there is no file that a reader opens."""
    table = make_table()
    with table.transaction() as transaction:
        write(transaction, table.full_name, [insert("a", n) for n in (0, 2, 1)])
        assert table.files() == set()
        assert table.staged()
    assert [row[1] for row in table.values()] == [0, 1, 2]


def test_closing_the_client_aborts_what_is_open(filled: FilledTable) -> None:
    """close() ends open transactions; a commit after it is refused."""
    client = filled.client().connect()
    with filled.refuses(TransactionStateError, "it is aborted"):
        transaction = client.new_transaction()
        transaction.begin()
        write(transaction, filled.full_name, [insert("a", 20)])
        client.close()
        transaction.commit()
    assert filled.metastore.show_locks(filled.info.database, filled.info.name) == []


_DYING_DRIVER = """
import os, signal, sys
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.write.coordinator import MutatorCoordinator
uri, database, name = sys.argv[1:]
client = MutatorClientBuilder().metastore(uri).add_sink_table(database, name, True).build().connect()
transaction = client.new_transaction()
transaction.begin()
table = transaction.table(f"{database}.{name}")
with MutatorCoordinator(table, writer_id="w") as coordinator:
    coordinator.insert(["a"], {"id": 20, "msg": "x"})
transaction.add_manifests(table.full_name, "w", coordinator.close())
print(transaction.txn_id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long
def test_killed_driver_leaves_nothing_once_it_has_timed_out(filled_anew: FilledTable) -> None:
    """Its lock stays until the server's time-out; then the next transaction works and removes its files."""
    table = filled_anew
    before = table.state()
    arguments = [sys.executable, "-c", _DYING_DRIVER, table.hive.uri, table.info.database, table.info.name]
    died = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    txn_id = int(died.stdout)
    assert table.staged()
    with (
        table.builder().lock_timeout_seconds(0.2).build() as client,
        pytest.raises(LockNotAcquiredError, match=f"transaction {txn_id}"),
    ):
        client.new_transaction().begin()
    table.hive.time_out_transactions(0)
    assert table.rows() == before.rows
    table.commit(insert("a", 30))
    assert table.values() == table.expected(added=[30])
    assert not table.staged()


def test_second_attempt_replaces_the_first(make_table: MakeTable) -> None:
    """A task that is tried again writes files of its own; the manifests of one attempt count."""
    table = make_table()
    with table.transaction() as transaction:
        descriptor = transaction.table(table.full_name)
        first = MutatorCoordinator(descriptor, writer_id="job", attempt_id="0")
        first.insert(["a"], pa.table({"id": [1], "msg": ["first"]}))
        second = MutatorCoordinator(descriptor, writer_id="job", attempt_id="1")
        second.insert(["a"], pa.table({"id": [1], "msg": ["second"]}))
        assert len(first.close()) == len(second.close()) == 1
        transaction.add_manifests(table.full_name, "job", second.close())
    assert table.values() == [("ds=a", 1, "second")]
    assert not table.staged()


def test_both_attempts_at_once_are_refused(filled: FilledTable) -> None:
    """Handing in both attempts of a task would double its rows."""
    with filled.refuses(ManifestError, "written 2 times"), filled.transaction() as transaction:
        descriptor = transaction.table(filled.full_name)
        attempts = [MutatorCoordinator(descriptor, writer_id="job", attempt_id=a) for a in "01"]
        for attempt in attempts:
            attempt.insert(["a"], {"id": 20, "msg": "x"})
        manifests = [manifest for attempt in attempts for manifest in attempt.close()]
        transaction.add_manifests(filled.full_name, "job", manifests)


def test_leftovers_of_a_dead_transaction_are_removed(make_table: MakeTable) -> None:
    """The next transaction on the table clears the staging directories of transactions that are over."""
    table = make_table()
    table.commit(insert("a", 1))
    dead = table.metastore.open_txn("user", "host", "test")
    table.metastore.abort_txn(dead)
    leftover = table.directory / f"_mutation_{dead}" / "w" / "0" / "0_delta_bucket_00000"
    leftover.parent.mkdir(parents=True)
    leftover.write_bytes(b"half a file")
    table.commit(insert("a", 2))
    assert not leftover.parent.parent.parent.exists()
    assert [row[1] for row in table.values()] == [1, 2]


# -- locks -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_second_writer_never_passes_a_held_lock(make_table: MakeTable) -> None:
    """B asks once and waits; at its bound it is refused, naming A. A commits; then B's next try works."""
    table = make_table()
    with table.builder().lock_timeout_seconds(0.5).build() as b, table.client() as a:
        long_job = a.new_transaction()
        long_job.begin()
        write(long_job, table.full_name, [insert("a", 1)])
        with pytest.raises(LockNotAcquiredError, match=rf"held by .* of transaction {long_job.txn_id}"):
            b.new_transaction().begin()
        long_job.commit()
        with b.new_transaction() as short_job:
            write(short_job, table.full_name, [insert("a", 3)])
    assert [row[1] for row in table.values()] == [1, 3]


@pytest.mark.long
def test_waiting_writer_starts_over_when_the_lock_is_free(make_table: MakeTable) -> None:
    """B waits while A works, goes on under a new transaction, sees A's rows, and both commit."""
    table = make_table()
    with table.client() as a, table.client() as b, ThreadPoolExecutor(1) as pool:
        first = a.new_transaction()
        first.begin()
        write(first, table.full_name, [insert("a", 1)])
        second = b.new_transaction()
        begun = pool.submit(second.begin)
        wait_until(lambda: _waits(table), "B to stand in the queue")
        first.commit()
        begun.result(timeout=30)
        assert second.summary.roll_overs == 1
        assert second.valid_txn_list.is_valid(first.txn_id)
        write(second, table.full_name, [update("a", (first.txn_id, 1, 0), 1)])
        second.commit()
    assert table.values() == [("ds=a", 1, "changed")]


def _waits(table: LiveTable) -> bool:
    locks = table.metastore.show_locks(table.info.database, table.info.name)
    return any(lock.state is LockState.WAITING for lock in locks)


def test_lock_is_on_the_table_and_says_whose_it_is(filled: FilledTable) -> None:
    """SHARED_WRITE on the table, SHARED_READ on its partitions, each with user, host and agent."""
    with filled.builder().user("etl").build() as client, client.new_transaction() as transaction:
        locks = filled.metastore.show_locks(filled.info.database, filled.info.name)
        assert {(lock.type, lock.partition) for lock in locks} == {
            (LockType.SHARED_WRITE, None),
            (LockType.SHARED_READ, "ds=a"),
            (LockType.SHARED_READ, "ds=b"),
        }
        for lock in locks:
            assert (lock.txn_id, lock.user, lock.state) == (transaction.txn_id, "etl", LockState.ACQUIRED)
            assert lock.hostname
            assert "hive-mutation-api" in lock.agent_info


# -- tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buckets", [pytest.param(2, id="bucketed"), pytest.param(-1, id="not-bucketed")])
def test_table_that_is_not_transactional_is_refused(make_table: MakeTable, buckets: int) -> None:
    """connect() names the table and the rule."""
    bucket_columns = ("id",) if buckets > 0 else ()
    table = make_table(buckets=buckets, bucket_columns=bucket_columns, parameters={"transactional": "false"})
    with pytest.raises(TableNotMutableError, match=rf"{table.full_name} .* must be transactional"):
        table.client().connect()


def test_missing_table_is_refused(live_metastore: ThriftMetastoreClient, live_database: str) -> None:
    """connect() names the table, or its database."""
    nowhere = MutatorClientBuilder().metastore(live_metastore).add_sink_table("no_such_database.t")
    with pytest.raises(TableNotMutableError, match="its database no_such_database does not exist"):
        nowhere.build().connect()
    builder = MutatorClientBuilder().metastore(live_metastore).add_sink_table(live_database, "no_such")
    with pytest.raises(TableNotMutableError, match=rf"{live_database}\.no_such does not exist at thrift"):
        builder.build().connect()


def test_transactional_table_without_buckets_cannot_exist(make_table: MakeTable) -> None:
    """A Hive 2.3 metastore refuses to create one."""
    with pytest.raises(InvalidRequestError, match="must be bucketed"):
        make_table(buckets=-1, bucket_columns=())


def test_client_without_tables_is_refused(live_metastore: ThriftMetastoreClient) -> None:
    """new_transaction() says what is missing, before anything is asked of the server."""
    with (
        MutatorClientBuilder().metastore(live_metastore).build() as client,
        pytest.raises(ConfigurationError, match="the client has no tables"),
    ):
        client.new_transaction()


def test_source_table_is_locked_for_reading(filled: FilledTable, make_table: MakeTable) -> None:
    """A source takes part with a read lock, and cannot be written."""
    sink = make_table()
    builder = sink.builder().add_source_table(filled.info.database, filled.info.name)
    with builder.build() as client, client.new_transaction() as transaction:
        locks = filled.metastore.show_locks(filled.info.database, filled.info.name)
        assert {(lock.type, lock.txn_id) for lock in locks} == {(LockType.SHARED_READ, transaction.txn_id)}
        with pytest.raises(TransactionStateError, match="is a source"):
            MutatorCoordinator(transaction.table(filled.full_name), writer_id="w")
        write(transaction, sink.full_name, [insert("a", 1)])
    assert sink.values() == [("ds=a", 1, "new")]


@pytest.mark.long
def test_split_table_needs_no_setting(make_table: MakeTable) -> None:
    """The table's own properties decide: updates and deletes go to delete deltas, and read right."""
    table = make_table(layout="default")
    first = table.commit(*(insert("a", n, "old") for n in (0, 2, 4, 1)))
    table.commit(update("a", (first, 0, 0), 0), delete("a", (first, 0, 1)), insert("a", 6))
    second = table.commit(delete("a", (first, 0, 2)))
    assert table.values() == [("ds=a", 0, "changed"), ("ds=a", 1, "old"), ("ds=a", 6, "new")]
    assert f"ds=a/delete_delta_{second:07d}_{second:07d}_0000/bucket_00000" in table.files()


def test_table_text_round_trip(filled: FilledTable) -> None:
    """A descriptor survives its text form; Hive's own text form is refused, not misread."""
    with filled.transaction() as transaction:
        table = transaction.table(filled.full_name)
        assert AcidTableSerializer.decode(AcidTableSerializer.encode(table)) == table
    with pytest.raises(ConfigurationError, match="not a serialized table"):
        AcidTableSerializer.decode("AcidTableV1:AAdkZWZhdWx0AAF0AQAAAAAAAAAB")
