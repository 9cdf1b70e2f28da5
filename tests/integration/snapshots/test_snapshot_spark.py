"""``spark.snapshot``: the rows Hive sees, as a DataFrame; what it refuses and what its errors look like."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.orc
import pytest
from pyspark.sql import DataFrame, SparkSession

from judges.hive.hive_judges import Hive23
from metastore_client.client import MetastoreClient
from mutation_api import read_table, translated_worker_errors
from mutation_api.errors import CorruptFileError, MutationError, RecordLayoutError, RecordValueError
from mutation_api.format.event import Operation
from mutation_api.table.acid_table import SnapshotView
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import Change, FilledTable, LiveTable, delete, insert, update
from tests.support.left_threads import no_thread_is_left

pytestmark = pytest.mark.slow

LONGEST_MESSAGE = 1000


@pytest.fixture
def seen(filled: FilledTable) -> Iterator[SnapshotView]:
    """A snapshot of the filled table that a client opened."""
    with filled.client() as client:
        yield client.open_snapshot(filled.full_name)


def rows_of(frame: DataFrame, *values: str) -> list[tuple[object, ...]]:
    """Rows as (partition, ROW__ID, values), sorted."""
    found = []
    for row in frame.collect():
        row_id = tuple(row["ROW__ID"])
        partition = row_id[3] if len(row_id) == 4 else ""
        found.append((partition, row_id[:3], tuple(row[name] for name in values)))
    return sorted(found, key=repr)


def rows_of_hive(table: LiveTable) -> list[tuple[object, ...]]:
    """The same, as both of Hive's readers agree on them."""
    return sorted(((row.partition or "", row.row_id, row.values) for row in table.rows()), key=repr)


def test_rows_and_row_ids_are_hives(filled_anew: FilledTable, spark: SparkSession) -> None:
    """After an update, a delete and an insert: values, ROW__IDs and partitions as Hive reads them."""
    table = filled_anew
    table.commit(
        update("a", table.row_id(2), 2), delete("a", table.row_id(4)), insert("a", 20), insert("a", 21)
    )
    with table.client() as client, client.new_transaction() as transaction:
        assert rows_of(read_table(transaction, table.full_name, spark=spark), "id", "msg") == rows_of_hive(
            table
        )


def test_schema(filled: FilledTable, seen: SnapshotView, spark: SparkSession) -> None:
    """ROW__ID, with the partition's name in a partitioned table, then data and partition columns."""
    found = read_table(seen, filled.full_name, spark=spark).schema.simpleString()
    assert found == (
        "struct<ROW__ID:struct<transactionid:bigint,bucketid:int,rowid:bigint,partition:string>,"
        "id:bigint,msg:string,ds:string>"
    )


def test_columns_are_chosen(filled: FilledTable, seen: SnapshotView, spark: SparkSession) -> None:
    """Any case, in the order wanted, partition columns too; none at all is enough to count."""
    chosen = read_table(seen, filled.full_name, columns=["DS", "id"], spark=spark)
    assert chosen.columns == ["ROW__ID", "ds", "id"]
    assert {(row["ds"], row["id"]) for row in chosen.collect()} == {(d, n) for d in "ab" for n in range(12)}
    assert read_table(seen, filled.full_name, columns=[], spark=spark).count() == 24


def test_partitions_are_chosen(filled: FilledTable, seen: SnapshotView, spark: SparkSession) -> None:
    """Only the partitions named are read; one that is not there is refused, and so is a doubled column."""
    chosen = read_table(seen, filled.full_name, columns=["ds"], partitions=["ds=b"], spark=spark)
    assert {row["ds"] for row in chosen.collect()} == {"b"}
    with pytest.raises(RecordLayoutError, match="this snapshot does not have the partition ds=z"):
        read_table(seen, filled.full_name, partitions=["ds=b", "ds=z"], spark=spark)
    with pytest.raises(RecordLayoutError, match="cannot be read"):
        read_table(seen, filled.full_name, columns=["id", "ID"], spark=spark)


def test_partition_columns_are_typed(make_table: MakeTable, spark: SparkSession) -> None:
    """A date and a number as partition keys; NULL is Hive's default partition."""
    table = make_table(keys="d date, n int")
    day = datetime.date(2024, 2, 29)
    table.commit(insert([day, 7], 1), insert([None, 8], 2))
    with table.client() as client, client.open_snapshot(table.full_name) as opened:
        frame = read_table(opened, table.full_name, columns=["id", "d", "n"], spark=spark)
        assert [f.dataType.simpleString() for f in frame.schema.fields[1:]] == ["bigint", "date", "int"]
        found = {row["id"]: (row["ROW__ID"]["partition"], row["d"], row["n"]) for row in frame.collect()}
    assert found == {
        1: ("d=2024-02-29/n=7", day, 7),
        2: ("d=__HIVE_DEFAULT_PARTITION__/n=8", None, 8),
    }


def test_a_client_holds_a_lock_until_it_is_closed(filled: FilledTable, spark: SparkSession) -> None:
    """Without a transaction the client keeps the files readable, as long as it is connected."""

    def locks() -> list[object]:
        return list(filled.metastore.show_locks(filled.info.database, filled.info.name))

    assert not locks()
    with filled.client() as client, client.open_snapshot(filled.full_name) as opened:
        frame = read_table(opened, filled.full_name, columns=[], spark=spark)
        assert locks()
        assert frame.count() == 24
        assert locks()
    assert not locks()


@pytest.mark.parametrize("readings", [20, pytest.param(200, marks=pytest.mark.long)])
def test_many_readings_leave_nothing(filled: FilledTable, spark: SparkSession, readings: int) -> None:
    """A loop in a notebook piles up neither locks and transactions at the server nor threads here."""
    metastore = filled.metastore
    before = {t.id for t in metastore.get_open_txns().txns}
    with filled.client() as client, no_thread_is_left():
        for number in range(readings):
            with client.open_snapshot(filled.full_name) as view:
                frame = read_table(view, filled.full_name, columns=["id"], spark=spark)
                assert number % 10 or frame.count() == 24
                assert metastore.show_locks(filled.info.database, filled.info.name)
                assert {t.id for t in metastore.get_open_txns().txns} - before
        assert not metastore.show_locks(filled.info.database, filled.info.name)
        assert {t.id for t in metastore.get_open_txns().txns} <= before


def test_an_undeclared_table_is_refused(
    filled: FilledTable, make_table: MakeTable, spark: SparkSession
) -> None:
    """A transaction reads only tables that it locked; the error names the table."""
    other = make_table()
    with (
        filled.client() as client,
        client.new_transaction() as transaction,
        pytest.raises(MutationError, match=other.full_name),
    ):
        read_table(transaction, other.full_name, spark=spark)


@pytest.mark.long
def test_nanoseconds_are_refused_or_dropped(make_table: MakeTable, spark: SparkSession) -> None:
    """Spark cannot hold them: reading is an error of ours, unless the caller allows them to be dropped."""
    table = make_table(columns="id bigint, at timestamp", keys="")
    stamp = pa.scalar(1_700_000_000_123_456_789, pa.timestamp("ns"))
    table.commit(Change(Operation.INSERT, None, {"id": 1, "at": stamp}))
    with table.client() as client, client.open_snapshot(table.full_name) as opened:
        frame = read_table(opened, table.full_name, spark=spark)
        with pytest.raises(RecordValueError, match="at"), translated_worker_errors("reading"):
            frame.collect()
        (row,) = read_table(opened, table.full_name, truncate_nanoseconds=True, spark=spark).collect()
    assert row["at"] == datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)


@pytest.mark.long
def test_a_corrupt_file_is_named(
    hive: Hive23, live_metastore: MetastoreClient, live_database: str, spark: SparkSession
) -> None:
    """The caller's own action would raise pyspark's long exception; the block makes it our short one."""
    table = FilledTable.fill(hive, live_metastore, live_database, "legacy")
    (file,) = [name for name in table.files() if name.startswith("ds=a/") and name.endswith("bucket_00001")]
    content = (table.directory / file).read_bytes()
    (table.directory / file).write_bytes(content[: len(content) // 2])
    with table.client() as client, client.open_snapshot(table.full_name) as opened:
        frame = read_table(opened, table.full_name, spark=spark)
        with (
            pytest.raises(CorruptFileError, match="bucket_00001") as caught,
            translated_worker_errors("reading"),
        ):
            frame.collect()
        assert len(str(caught.value)) < LONGEST_MESSAGE
        assert read_table(opened, table.full_name, partitions=["ds=b"], spark=spark).count() == 12


@pytest.mark.long
def test_open_and_aborted_transactions_are_not_seen(filled_anew: FilledTable, spark: SparkSession) -> None:
    """What commits after the snapshot was opened stays unseen by it; what was aborted, by everybody."""
    table = filled_anew
    aborted = table.metastore.open_txn("somebody", "somewhere", "a test")
    table.metastore.abort_txn(aborted)
    with table.client() as reader, table.client() as writer:
        writing = writer.new_transaction()
        writing.begin()
        opened = reader.open_snapshot(table.full_name)
        before = rows_of(read_table(opened, table.full_name, spark=spark), "id", "msg")
        assert len(before) == 24
        writing.abort()
        table.commit(insert("a", 50))
        (delta,) = {p.parent for p in table.directory.glob(f"ds=a/delta_{table.txn_id:07d}_*/bucket_*")}
        shutil.copytree(delta, delta.parent / f"delta_{aborted:07d}_{aborted:07d}_0000")
        assert rows_of(read_table(opened, table.full_name, spark=spark), "id", "msg") == before
        after = read_table(reader.open_snapshot(table.full_name), table.full_name, spark=spark)
        assert rows_of(after, "id", "msg") == rows_of_hive(table)
        assert after.count() == 25


def test_original_files(make_table: MakeTable, layout: str, spark: SparkSession) -> None:
    """Files from before the table was transactional: ROW__IDs of transaction 0, and updates of them."""
    table = make_table(keys="", layout=layout)
    for bucket in (0, 1):
        rows = pa.table({"id": [bucket, bucket + 2], "msg": ["old", "old"]})
        table.directory.mkdir(parents=True, exist_ok=True)
        pa.orc.write_table(rows, table.directory / f"00000{bucket}_0")
    table.commit(update(None, (0, 0, 1), 2), delete(None, (0, 1, 0)))
    with table.client() as client, client.open_snapshot(table.full_name) as opened:
        found = rows_of(read_table(opened, table.full_name, spark=spark), "id", "msg")
    assert found == rows_of_hive(table)
    assert sorted(values for _, _, values in found) == [(0, "old"), (2, "changed"), (3, "old")]
