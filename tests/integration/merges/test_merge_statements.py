"""Merges that others test, held by this package too; Hive's own readers and SQL judge, and write in between.

Case → test; one without a file is here. What a merge refuses, word for word, is in ``test_merge_judged.py``
(``test_refusals_and_the_cases_of_hive``, below "refusals"), random merges too.

Hive, TestTxnCommands and TestTxnCommands2
    testMergeUpdateDelete, testMergeCardinalityViolation, testSetClauseFakeColumn    refusals
    testMergeDeleteUpdate        test_hive_delete_then_update_and_type_2_scd
    testMergeType2SCD01, 02      test_hive_delete_then_update_and_type_2_scd
    testQuotedIdentifier         test_hive_quoted_identifiers
Hive, TestDbTxnManager2
    testConcurrent2MergeInsertsNoDuplicates      test_hive_merges_of_the_same_new_keys_wait_for_each_other
    …InsertMergeInsertGenerateDuplicates         test_hive_plain_insert_beside_a_merge_doubles_a_key
    testConcurrent2MergeUpdatesConflict          test_hive_of_two_merges_that_update_one_row_the_first_wins
    testWriteSetTracking1 to 11                      test_adopted_cases.py, below "write conflicts"
Trino, TestHiveTransactionalTable
    inserter × deleter, all rows of a partition, delete after delete, count(*)
                                                     test_trino_delete_after_delete
    delete over many splits, bucketed delete         test_trino_delete_over_buckets_and_splits
    insert-only with two writers                     test_trino_two_writers_of_an_insert_only_table
    column rename, swap, added, type change          test_trino_changed_columns
    update with original files                       test_trino_and_spark_acid_original_files
spark-acid, MergeSuite and LockSuite
    merge on original files                          test_trino_and_spark_acid_original_files
    merging complex data types                       test_spark_acid_and_pyiceberg_nested_values
    conflicting matches, first clause wins; insert alone; cardinality                refusals
    update of the partition column                   test_merge_judged.py, test_random_merges (a row moves)
    two statements' rows in one bucket               test_spark_acid_rows_of_two_statements_in_one_bucket
    READ beside UPDATE and DELETE                    test_transaction.py, test_hive_sees_all_tables_after_…
    and behind what locks all                        test_transaction_lines.py, test_the_wait_has_a_bound_…
Iceberg, TestMerge
    concurrent append of a matching row, serializable    as testConcurrent2MergeInserts: another writer waits
    the same, snapshot isolation                     test_iceberg_merges_between_appends
    nulls in keys and conditions, self-merge         test_iceberg_nulls_and_self_merge
    several updates of a row, small and large source test_iceberg_nulls_and_self_merge
    condition that is not deterministic              refusals
    unconditional delete of several matches          test_delta_duplicates_count_only_where_they_act
Delta, delta-rs test_merge and IdempotentCommitRetrySuite
    duplicates that do nothing, deletes              test_delta_duplicates_count_only_where_they_act
    blanks in partition values, twice; decimals      test_delta_merged_twice_changes_nothing
    casing and special characters                    test_hive_quoted_identifiers
    a commit whose answer is lost                    test_commit_faults.py, test_a_line_cut_during_commit
pyiceberg, test_upsert
    empty target; nulls; composite, date and string keys; two upserts in one transaction
                                                     test_pyiceberg_two_upserts_in_one_transaction
    struct as key and not                            test_spark_acid_and_pyiceberg_nested_values
    duplicate rows in the target                     test_hive_plain_insert_beside_a_merge_doubles_a_key
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from judges.errors import HiveError
from judges.hive.hive_judges import Hive23, Hive31, Hive41
from metastore_client.model import ColumnInfo, LockState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api import MergeCounts, MergeReport, merge_into
from mutation_api.errors import (
    ConfigurationError,
    DuplicateKeyError,
    LockNotAcquiredError,
    TransactionStateError,
    WriteConflictError,
)
from mutation_api.format.event import Operation, bucket_ids
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_judge import new_database
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import Change, LiveTable, write

pytestmark = pytest.mark.slow

NONSTRICT = {"hive.exec.dynamic.partition.mode": "nonstrict"}


def given(spark: SparkSession, **columns: list[Any]) -> DataFrame:
    """A local relation, whose size Spark knows."""
    return spark.createDataFrame(pa.table(columns))


def records(table: LiveTable, *rows: tuple[Any, ...]) -> list[Change]:
    """Inserts of rows, partition values last; without Spark, so for tables of one bucket."""
    names = [column.name for column in table.info.columns]
    at = len(names)
    ordered = sorted(rows, key=lambda row: row[at:])
    return [
        Change(Operation.INSERT, row[at:] or None, dict(zip(names, row[:at], strict=True))) for row in ordered
    ]


def upsert(transaction: Transaction, table: LiveTable, source: DataFrame, *on: str) -> MergeReport:
    """Update what is there, insert what is not."""
    merge = merge_into(transaction, table.full_name, source=source, on=on)
    return merge.whenMatched().updateAll().whenNotMatched().insertAll().execute()


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def waiters(table: LiveTable) -> set[int]:
    """Transactions that wait for a lock on the table."""
    locks = table.metastore.show_locks(table.info.database, table.info.name)
    return {lock.txn_id or 0 for lock in locks if lock.state is LockState.WAITING}


# -- Hive's own suites -------------------------------------------------------------------------------------


@pytest.mark.long
def test_hive_delete_then_update_and_type_2_scd(make_table: MakeTable, spark: SparkSession) -> None:
    """The first clause that holds is the row's; and a history of which the latest row of a key is marked,
    whose source is made of the table itself in the same transaction.
    """
    numbers = make_table(columns="a int, b int", keys="", buckets=1, bucket_columns=("a",))
    history = make_table(columns="key int, data int, cur int", keys="", buckets=1, bucket_columns=("key",))
    numbers.commit(*records(numbers, (2, 1), (4, 3), (5, 6), (7, 8)))
    history.commit(*records(history, (1, 5, 1), (2, 6, 1), (1, 18, 0)))
    builder = numbers.builder().add_sink_table(history.info.database, history.info.name)
    with builder.build() as client, client.new_transaction() as transaction:
        source = given(spark, a=[2, 4, 5, 11], b=[2, 44, 5, 11])
        merge = merge_into(transaction, numbers.full_name, source=source, on=["a"])
        merge.whenMatched("source.a < 5").delete().whenMatched("source.a < 3").update({"b": "0"})
        assert merge.whenNotMatched().insertAll().execute().total == MergeCounts(inserted=1, deleted=2)

        current = read_table(transaction, history.full_name, spark=spark).where("cur = 1").select("key")
        new = given(spark, key=[1, 3], data=[7, 8])
        inserts = new.withColumn("o/p\n", sf.lit(0))
        source = inserts.unionByName(new.join(current, "key", "left_semi").withColumn("o/p\n", sf.lit(1)))
        merge = merge_into(
            transaction,
            history.full_name,
            source=source,
            on="target.key = source.key AND target.cur = 1 AND source.`o/p\n` = 1",
        )
        merge.whenMatched().update({"cur": "0"})
        merge.whenNotMatched().insert({"key": "source.key", "data": "source.data", "cur": "1"})
        assert merge.execute().total == MergeCounts(inserted=2, updated=1)
    assert numbers.values() == [(11, 11), (5, 6), (7, 8)]
    assert history.values() == [(1, 18, 0), (1, 5, 0), (1, 7, 1), (2, 6, 1), (3, 8, 1)]


@pytest.mark.long
def test_hive_quoted_identifiers(make_table: MakeTable, spark: SparkSession, hive: Hive23) -> None:
    """Columns whose names are no identifiers, in clauses and as keys; names have no case on either side."""
    table = make_table(
        columns="i int, d?*d/e decimal(5,2), vc-ä varchar(128)", keys="", buckets=1, bucket_columns=("i",)
    )
    table.commit(*records(table, (1, Decimal("1.10"), "x"), (6, Decimal("6.10"), "y")))
    with table.transaction() as transaction:
        source = given(
            spark,
            I=[1, 6, 7],
            **{"D?*D/E": [Decimal("1.1"), Decimal("6.1"), Decimal("7.1")], "VC-Ä": [*"pqr"]},
        )
        merge = merge_into(transaction, table.full_name, source=source, on=["i", "D?*d/E"])
        merge.whenMatched("target.`i` > 5 AND source.`d?*d/e` > 6").delete()
        merge.whenMatched().update({"Vc-ä": "concat(target.`vc-ä`, source.`vC-ä`)"})
        merge.whenNotMatched().insertAll()
        assert merge.execute().total == MergeCounts(inserted=1, updated=1, deleted=1)
    found = hive.sql(f"SELECT i, `d?*d/e`, `vc-ä` FROM {table.full_name}")
    assert sorted(found) == [[1, "1.1", "xp"], [7, "7.1", "r"]]


@pytest.mark.long
def test_hive_merges_of_the_same_new_keys_wait_for_each_other(
    make_table: MakeTable, spark: SparkSession, hive: Hive23
) -> None:
    """Hive's MERGE and another of ours come while ours is open; each finds what the one before inserted. That
    of Hive is refused where it might update what changed meanwhile, and is then tried again.
    """
    table = make_table(columns="a int, b int", keys="", buckets=1, bucket_columns=("a",))
    source = given(spark, a=[1, 2], b=[0, 0])
    inserted: list[int] = []
    refused: list[HiveError] = []
    statement = (
        f"MERGE INTO {table.full_name} t USING (SELECT stack(2, 2, 0, 3, 0) AS (a, b)) s ON t.a = s.a "
        "WHEN MATCHED AND s.b > 0 THEN UPDATE SET b = 1 WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b)"
    )

    def merge_too() -> None:
        with table.transaction() as transaction:
            inserted.append(upsert(transaction, table, source, "a").total.inserted)

    def hive_merges() -> None:
        try:
            hive.sql(statement, settings={"hive.auto.convert.join": "false"})
        except HiveError as error:
            assert "write conflict" in str(error)
            refused.append(error)

    with table.transaction() as transaction:
        assert upsert(transaction, table, source, "a").total == MergeCounts(inserted=2)
        threads = [in_background(work) for work in (merge_too, hive_merges)]
        wait_until(lambda: len(waiters(table)) >= 2, "both in the queue")
    for thread in threads:
        thread.join(120)
    assert inserted == [0]
    if refused:
        hive_merges()
    assert len(refused) < 2
    assert table.values() == [(1, 0), (2, 0), (3, 0)]


def test_hive_plain_insert_beside_a_merge_doubles_a_key(make_table: MakeTable, spark: SparkSession) -> None:
    """An inserter waits for nobody and is not seen, in Hive as here, so a key may come twice. Hive's tables
    have no unique keys: a later merge changes all rows of the key.
    """
    table = make_table(columns="a int, b int", keys="", buckets=1, bucket_columns=("a",))
    source = given(spark, a=[1, 2], b=[10, 20])
    with table.transaction() as merging:
        with table.client(insert_only=True) as inserter, inserter.new_transaction() as plain:
            write(plain, table.full_name, records(table, (1, 0)))
        assert upsert(merging, table, source, "a").total == MergeCounts(inserted=2)
    assert table.values() == [(1, 0), (1, 10), (2, 20)]
    with table.transaction() as transaction:
        report = upsert(transaction, table, source.withColumn("b", sf.col("b") + 1), "a")
    assert report.total == MergeCounts(updated=3)
    assert table.values() == [(1, 11), (1, 11), (2, 21)]


# -- Trino, spark-acid -------------------------------------------------------------------------------------


@pytest.mark.long
def test_trino_delete_after_delete(make_table: MakeTable, spark: SparkSession, hive: Hive23) -> None:
    """Rows of Hive's and of ours, deleted by ours and by Hive in turns, to the last of a partition."""
    by_hive, by_us = tables = [make_table(layout=layout) for layout in ("default", "legacy")]
    hive.sql(
        f"INSERT INTO {by_hive.full_name} PARTITION (ds) "
        "SELECT stack(6, 1, 'x', 'a', 2, 'x', 'a', 3, 'x', 'a', 1, 'x', 'b', 2, 'x', 'b', 3, 'x', 'b')",
        settings=NONSTRICT,
    )
    everything = given(spark, id=[1, 2, 3] * 2, msg=["x"] * 6, ds=[*"aaabbb"])
    with by_us.transaction() as transaction:
        assert upsert(transaction, by_us, everything, "id", "ds").total == MergeCounts(inserted=6)
    hive.sql(f"DELETE FROM {by_us.full_name} WHERE id = 1")
    with by_hive.transaction() as transaction:
        merge = merge_into(transaction, by_hive.full_name, source=given(spark, id=[1]), on=["id"])
        assert merge.whenMatched().delete().execute().total == MergeCounts(deleted=2)
    both = by_us.builder().add_sink_table(by_hive.info.database, by_hive.info.name)
    with both.build() as client:
        hive.sql(f"DELETE FROM {by_hive.full_name} WHERE ds = 'a'")
        with client.new_transaction() as transaction:
            nothing = everything.where("false").select("id", "ds")
            merge = merge_into(transaction, by_us.full_name, source=nothing, on=["id", "ds"])
            deleted = merge.whenNotMatchedBySource("target.ds = 'a'").delete().execute().total
            assert deleted == MergeCounts(deleted=2)
            merge = merge_into(transaction, by_hive.full_name, source=given(spark, id=[1, 2]), on=["id"])
            assert merge.whenMatched().delete().execute().total == MergeCounts(deleted=1)
        for table, left in ((by_hive, [3]), (by_us, [2, 3])):
            assert table.values() == [("ds=b", number, "x") for number in left]
            opened = client.open_snapshot(table.full_name)
            ours = read_table(opened, table.full_name, columns=["ds", "id", "msg"], spark=spark)
            assert sorted(row[1:] for row in ours.collect()) == [("b", number, "x") for number in left]
    counts = " UNION ALL ".join(f"SELECT count(*) FROM {table.full_name}" for table in tables)
    assert sorted(hive.sql(counts)) == [[1], [2]]


@pytest.mark.long
def test_trino_delete_over_buckets_and_splits(make_table: MakeTable, spark: SparkSession) -> None:
    """Some rows of all buckets of a table that Hive reads in many splits, and of none."""
    table = make_table(columns="id int, b int", keys="", buckets=4, layout="default")
    with table.transaction() as transaction:
        rows = spark.range(3000).selectExpr("cast(id AS int) id", "cast(id % 7 AS int) b")
        assert upsert(transaction, table, rows, "id").total == MergeCounts(inserted=3000)
    with table.transaction() as transaction:
        merge = merge_into(
            transaction, table.full_name, source=rows.where("id % 3 = 0").select("id"), on=["id"]
        )
        assert merge.whenMatched("target.b = 7").delete().dry_run().total == MergeCounts()
        merge = merge_into(
            transaction, table.full_name, source=rows.where("id % 3 = 0").select("id"), on=["id"]
        )
        assert merge.whenMatched("target.b <> 1").delete().execute().total == MergeCounts(deleted=857)
    columns = [(column.name, column.type) for column in table.info.columns]
    found = table.hive.read(
        table.directory,
        columns,
        table.valid().to_text(),
        transactional_properties="default",
        buckets=4,
        settings={"mapred.max.split.size": "1000"},
    )
    expected = [(n, n % 7) for n in range(3000) if n % 3 or n % 7 == 1]
    assert sorted(row.values for row in found) == expected


@pytest.mark.long
def test_trino_changed_columns(make_table: MakeTable, spark: SparkSession, hive: Hive23) -> None:
    """Columns renamed, swapped, widened and added after rows were written: the merge finds, keeps and
    compares what Hive itself reads there now.
    """
    table = make_table(
        columns="id int, old string, a string, b string, n int", keys="", buckets=1, layout="default"
    )
    table.commit(*records(table, (1, "r1", "a1", "b1", 11), (2, "r2", "a2", "b2", 12)))
    for change in (
        "CHANGE old new string",
        "CHANGE a a_ string",
        "CHANGE b a string",
        "CHANGE a_ b string",
        "CHANGE n n bigint",
        "ADD COLUMNS (extra string)",
    ):
        hive.sql(f"ALTER TABLE {table.full_name} {change}")
    query = f"SELECT id, new, a, b, n, extra FROM {table.full_name}"
    before = {row[0]: row for row in hive.sql(query)}
    assert before[1][4:] == [11, None]
    with table.transaction() as transaction:
        source = given(spark, id=[1, 3], n=[2**40, 13], extra=["e1", "e3"])
        assert upsert(transaction, table, source, "id").total == MergeCounts(inserted=1, updated=1)
    after = {1: [*before[1][:4], 2**40, "e1"], 2: before[2], 3: [3, None, None, None, 13, "e3"]}
    assert {row[0]: row for row in hive.sql(query)} == after
    names = ("id", "new", "a", "b")
    columns = {name: [row[at] for row in after.values()] for at, name in enumerate(names)}
    with table.transaction() as transaction:
        merge = merge_into(transaction, table.full_name, source=given(spark, **columns), on=["id"])
        assert merge.whenMatched().updateAll().dry_run().total == MergeCounts(unchanged=3)


def test_trino_and_spark_acid_original_files(make_table: MakeTable, spark: SparkSession) -> None:
    """Rows from before the table was transactional, in two buckets: found, changed, moved."""
    table = make_table(columns="id int, msg string", keys="", buckets=2, layout="default")
    table.directory.mkdir(parents=True, exist_ok=True)
    for name, ids in (("000000_0", [0, 2, 4, 6]), ("000001_0", [1, 3])):
        old = pa.table({"id": pa.array(ids, pa.int32()), "msg": ["old"] * len(ids)})
        pyarrow.orc.write_table(old, table.directory / name)
    with table.transaction() as transaction:
        source = given(spark, id=[1, 2, 4, 6, 8], op=[*"MUDUI"])
        merge = merge_into(transaction, table.full_name, source=source, on=["id"])
        merge.whenMatched("source.op = 'D'").delete()
        merge.whenMatched("source.op = 'M'").update({"id": "source.id + 99"})
        merge.whenMatched().update({"msg": "concat(target.msg, source.op)"})
        merge.whenNotMatched().insert({"id": "source.id", "msg": "source.op"})
        total = merge.execute().total
    assert total == MergeCounts(inserted=1, updated=2, deleted=1, moved=1)
    assert table.values() == [(0, "old"), (100, "old"), (2, "oldU"), (3, "old"), (6, "oldU"), (8, "I")]


@pytest.mark.long
def test_spark_acid_and_pyiceberg_nested_values(make_table: MakeTable, spark: SparkSession) -> None:
    """Structs of arrays, and maps: inserted, updated, compared; a struct as key, and as none."""
    address = pa.struct({"line": pa.list_(pa.string()), "zip": pa.list_(pa.string())})
    place = pa.struct({"x": pa.int32(), "y": pa.string()})
    tags = pa.map_(pa.int32(), pa.string())
    table = make_table(
        columns="id int, at struct<x:int,y:string>, addr struct<line:array<string>,zip:array<string>>, "
        "prop map<int,string>",
        keys="",
        buckets=1,
        layout="default",
    )

    def source(ids: list[int], xs: list[int | None], line: str, zips: list[str] | None) -> DataFrame:
        count = len(ids)
        rows = {
            "id": pa.array(ids, pa.int32()),
            "at": pa.array([{"x": x, "y": "y"} for x in xs], place),
            "addr": pa.array([{"line": [line, None], "zip": zips}] * count, address),
            "prop": pa.array([[(1, line), (2, None)]] * count, tags),
        }
        return spark.createDataFrame(pa.table(rows))

    with table.transaction() as transaction:
        total = upsert(transaction, table, source([1, 2, 3], [1, 2, None], "xyz", []), "id").total
        assert total == MergeCounts(inserted=3)
    with table.transaction() as transaction:
        same = source([1, 2, 3], [1, 2, None], "xyz", [])
        merge = merge_into(transaction, table.full_name, source=same, on=["id"]).whenMatched().updateAll()
        assert merge.dry_run().total == MergeCounts(unchanged=3)
        total = upsert(transaction, table, source([1, 20, 4], [1, 2, 4], "uvw", None), "at").total
        assert total == MergeCounts(inserted=1, updated=1, moved=1)
    query = f"SELECT id, at.x, addr, prop FROM {table.full_name}"
    new = ['{"line":["uvw",null],"zip":null}', '{1:"uvw",2:null}']
    old = ['{"line":["xyz",null],"zip":[]}', '{1:"xyz",2:null}']
    found = {row[0]: row[1:] for row in table.hive.sql(query)}
    assert found == {1: [1, *new], 20: [2, *new], 3: [None, *old], 4: [4, *new]}


# -- Iceberg, Delta, pyiceberg -----------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.long)])
def test_iceberg_merges_between_appends(make_table: MakeTable, spark: SparkSession, rounds: int) -> None:
    """Rows that match come while a merge is open: every commit succeeds, the next merge sees them all."""
    table = make_table(columns="id int, n int", keys="", buckets=1)
    with table.client() as client, table.client(insert_only=True) as appender:
        for round_ in range(rounds):
            with client.new_transaction() as transaction:
                source = given(spark, id=[0])
                merge = merge_into(transaction, table.full_name, source=source, on=["id"])
                merge.whenMatched().update({"n": "target.n + 1"})
                report = merge.execute()
                with appender.new_transaction() as append:
                    write(append, table.full_name, records(table, (0, 0)))
            assert report.total == MergeCounts(updated=round_)
    assert sorted(table.values()) == [(0, n) for n in range(rounds)]


@pytest.mark.long
def test_iceberg_nulls_and_self_merge(make_table: MakeTable, spark: SparkSession) -> None:
    """NULL equals nothing unless told so, and a condition that is NULL does not hold; the table may be its
    own source; several source rows for a row are found among many, too.
    """
    table = make_table(columns="id int, b string", keys="", buckets=1)
    table.commit(*records(table, (None, "n"), (1, "a"), (2, "b"), (3, "c")))
    source = given(spark, id=[None, 1, 2, 4], b=["N", "A", None, "D"])
    with table.transaction() as transaction:
        many = spark.range(20_000).selectExpr("cast(id % 19998 AS int) id", "'x' b")
        merge = merge_into(transaction, table.full_name, source=many, on=["id"]).whenMatched().updateAll()
        said = r"1 key has more than one source row .*\(id=1\) in 2 rows"
        with pytest.raises(DuplicateKeyError, match=said):
            merge.dry_run()
        merge = merge_into(transaction, table.full_name, source=source, on=["id"])
        merge.whenMatched("source.b > 'A'").updateAll().whenNotMatched().insertAll()
        assert merge.dry_run().total == MergeCounts(inserted=2)
        merge = merge_into(transaction, table.full_name, source=source, on=["id"], null_safe=True)
        merge.whenMatched("source.b > 'A'").updateAll().whenNotMatched().insertAll()
        assert merge.execute().total == MergeCounts(inserted=1, updated=1)
    expected = [(1, "a"), (2, "b"), (3, "c"), (4, "D"), (None, "N")]
    assert table.values() == expected
    with table.transaction() as transaction:
        itself = read_table(transaction, table.full_name, columns=["id", "b"], spark=spark).drop("ROW__ID")
        merge = merge_into(transaction, table.full_name, source=itself, on=["id"])
        merge.whenMatched("source.id > 2").update({"b": "upper(source.b)"}).whenMatched(
            "source.id = 1"
        ).delete()
        assert merge.execute().total == MergeCounts(updated=1, unchanged=1, deleted=1)
    assert table.values() == [(2, "b"), (3, "C"), (4, "D"), (None, "N")]


@pytest.mark.long
def test_delta_duplicates_count_only_where_they_act(make_table: MakeTable, spark: SparkSession) -> None:
    """Source rows for which no clause holds are no duplicates; nor is it one to delete a row twice, unless a
    condition decides.
    """
    table = make_table(columns="id int, b string", keys="", buckets=1)
    table.commit(*records(table, (1, "a"), (2, "b"), (3, "c")))
    source = given(spark, id=[1, 1, 2], b=["x", "y", "z"])
    with table.transaction() as transaction:
        merge = merge_into(transaction, table.full_name, source=source, on=["id"])
        conditional = merge.whenMatched("source.b < 'z'").delete()
        with pytest.raises(DuplicateKeyError, match=r"\(id=1\) in 2 rows"):
            conditional.dry_run()
        merge = merge_into(transaction, table.full_name, source=source, on=["id"])
        assert merge.whenMatched("source.b > 'x'").updateAll().dry_run().total == MergeCounts(updated=2)
        merge = merge_into(transaction, table.full_name, source=source, on=["id"])
        assert merge.whenMatched().delete().execute().total == MergeCounts(deleted=2)
    assert table.values() == [(3, "c")]


@pytest.mark.long
def test_delta_merged_twice_changes_nothing(make_table: MakeTable, spark: SparkSession) -> None:
    """Partition values with blanks and signs, keys and values that are decimals of another scale: the second
    merge finds all as it is and writes nothing.
    """
    table = make_table(columns="id decimal(10,2), amount decimal(8,1)", keys="day date, ds string", buckets=1)
    day = datetime.date(1582, 10, 4)
    source = given(
        spark,
        id=[Decimal("1.1"), Decimal("2.5"), Decimal("2.5")],
        amount=[Decimal("0.25"), Decimal("0.10"), None],
        day=[day] * 3,
        ds=["a b ", "a b ", "x:y/z %q ä"],
    )
    source = source.withColumn("id", sf.col("id").cast("decimal(12,3)"))
    for expected in (MergeCounts(inserted=3), MergeCounts(unchanged=3)):
        with table.transaction() as transaction:
            report = upsert(transaction, table, source, "day", "ds", "id")
        assert report.total == expected
        assert bool(report.written) == bool(expected.changed)
    assert len(report.partitions) == len(table.partitions()) == 2
    found = {(row[0].partition("ds=")[2], *row[1:]) for row in table.values()}
    assert found == {("a b ", "1.1", "0.3"), ("a b ", "2.5", "0.1"), ("x%3Ay%2Fz %25q ä", "2.5", None)}


@pytest.mark.long
def test_pyiceberg_two_upserts_in_one_transaction(make_table: MakeTable, spark: SparkSession) -> None:
    """Two tables, the first of them empty, by keys of several types of which a part may be NULL; a table that
    was changed cannot be changed again in the same transaction.
    """
    days = [datetime.date(2024, 1, 1), datetime.date(1969, 12, 31), None]
    composite = make_table(columns="id int, day date, name string, n int", keys="", buckets=1)
    other = make_table(columns="name string, n int", keys="", buckets=1, bucket_columns=("name",))
    other.commit(*records(other, ("ä", 1), ("", 2), ("A", 3)))
    source = given(spark, id=[1, 1, 1], day=days, name=["x", "x", "x"], n=[1, 2, 3])
    names = given(spark, name=["a", "", "ä"], n=[4, 5, 1])
    builder = composite.builder().add_sink_table(other.info.database, other.info.name)
    with builder.build() as client:
        with client.new_transaction() as transaction:
            keys = ("id", "day", "name")
            assert upsert(transaction, composite, source, *keys).total == MergeCounts(inserted=3)
            total = upsert(transaction, other, names, "name").total
            assert total == MergeCounts(inserted=1, updated=1, unchanged=1)
            with pytest.raises(TransactionStateError, match=f"{other.full_name}.*once"):
                upsert(transaction, other, names.withColumn("n", sf.lit(9)), "name")
        with client.new_transaction() as transaction:
            more = source.withColumn("n", sf.col("n") * 10)
            total = upsert(transaction, composite, more, *keys).total
            assert total == MergeCounts(inserted=1, updated=2), "NULL equals nothing"
    assert sorted(row[3] for row in composite.values()) == [3, 10, 20, 30]
    assert other.values() == [("", 5), ("A", 3), ("a", 4), ("ä", 1)]


# -- where tables have write ids ---------------------------------------------------------------------------


class Line:
    """Hive 3.1 or 4.1 with a database of its own."""

    def __init__(self, judge: Hive31 | Hive41, database: str, metastore: ThriftMetastoreClient) -> None:
        self.judge = judge
        self.database = database
        self.metastore = metastore

    def create(self, name: str, **how: Any) -> str:
        """A table without buckets of a and b; returns its full name."""
        full_name = f"{self.database}.{name}"
        columns = (ColumnInfo("a", "int"), ColumnInfo("b", "int"))
        create_acid_table(self.metastore, full_name, columns, **how)
        return full_name

    def builder(self, full_name: str, **how: Any) -> MutatorClientBuilder:
        """A builder with the table as a sink."""
        builder = MutatorClientBuilder().metastore(self.judge.uri).lock_timeout_seconds(60)
        return builder.add_sink_table(self.database, full_name.partition(".")[2], **how)

    def rows(self, full_name: str) -> list[tuple[Any, ...]]:
        """By both of Hive's readers."""
        found = self.judge.table_rows(full_name, row_ids=False)
        return sorted(tuple(row.values) for row in found)


each_line = pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True, scope="module")


@contextmanager
def line_of(judge: Hive31 | Hive41) -> Iterator[Line]:
    with new_database(judge) as database, open_client(judge.uri) as metastore:
        yield Line(judge, database, metastore)


@pytest.fixture(scope="module")
def line(hive_line: Hive31 | Hive41) -> Iterator[Line]:
    with line_of(hive_line) as made:
        yield made


@pytest.mark.long
@each_line
def test_spark_acid_rows_of_two_statements_in_one_bucket(line: Line, spark: SparkSession) -> None:
    """Hive's MERGE numbers its updates and its inserts as two statements, whose rows differ in their bucket
    property though not in their bucket: both are found, and changed.
    """
    name = line.create("statements")
    with line.builder(name).build() as client:
        with client.new_transaction() as transaction:
            source = given(spark, a=[1, 2], b=[0, 0])
            merge = merge_into(transaction, name, source=source, on=["a"])
            assert merge.whenNotMatched().insertAll().execute().total == MergeCounts(inserted=2)
        line.judge.sql(
            f"MERGE INTO {name} t USING (SELECT stack(2, 2, 5, 3, 5) AS (a, b)) s ON t.a = s.a "
            "WHEN MATCHED THEN UPDATE SET b = s.b WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b)"
        )
        rows = line.judge.table_rows(name)
        by_hive = {row.row_id[1] for row in rows if row.row_id and row.values[1] == 5}
        assert len(by_hive) == 2
        assert len({*bucket_ids(np.array([*by_hive]))}) == 1
        with client.new_transaction() as transaction:
            source = given(spark, a=[1, 2, 3, 4], b=[7, 7, 7, 7])
            merge = merge_into(transaction, name, source=source, on=["a"])
            total = merge.whenMatched().updateAll().whenNotMatched().insertAll().execute().total
            assert total == MergeCounts(inserted=1, updated=3)
    assert line.rows(name) == [(1, 7), (2, 7), (3, 7), (4, 7)]


@pytest.mark.long
@each_line
def test_trino_two_writers_of_an_insert_only_table(line: Line, spark: SparkSession) -> None:
    """Both merge what is not there. Where others insert meanwhile neither may, since it does not see their
    keys; else the second one waits for the first.
    """
    name = line.create("plain", insert_only=True)
    line.judge.sql(f"INSERT INTO {name} VALUES (1, 0)")
    with line.builder(name, insert_only=True).build() as one, one.new_transaction() as first:
        merge = merge_into(first, name, source=given(spark, a=[1, 2], b=[1, 1]), on=["a"])
        with pytest.raises(ConfigurationError, match="others may insert at the same time"):
            merge.whenNotMatched().insertAll().execute()
    with line.builder(name).build() as one, one.new_transaction() as first:
        merge = merge_into(first, name, source=given(spark, a=[1, 2, 3], b=[1, 1, 1]), on=["a"])
        assert merge.whenNotMatched().insertAll().execute().total == MergeCounts(inserted=2)
        with line.builder(name).lock_timeout_seconds(0.1).build() as two, pytest.raises(LockNotAcquiredError):
            two.new_transaction().begin()
    with line.builder(name).build() as two, two.new_transaction() as second:
        merge = merge_into(second, name, source=given(spark, a=[1, 3, 4], b=[2, 2, 2]), on=["a"])
        assert merge.whenNotMatched().insertAll().execute().total == MergeCounts(inserted=1)
    assert line.rows(name) == [(1, 0), (2, 1), (3, 1), (4, 2)]


@pytest.mark.long
def test_hive_of_two_merges_that_update_one_row_the_first_wins(hive41: Hive41, spark: SparkSession) -> None:
    """Where writers need not wait: the second commit is refused and names the winner, by ours and by Hive;
    tried again it finds the winner's row.
    """
    with line_of(hive41) as line:
        name = line.create("conflict")
        with line.builder(name).write_lock("optimistic").build() as client:

            def merge(transaction: Transaction, b: int) -> MergeCounts:
                step = merge_into(transaction, name, source=given(spark, a=[1], b=[b]), on=["a"])
                step.whenMatched().update({"b": "target.b * 10 + source.b"}).whenNotMatched().insertAll()
                return step.execute().total

            with client.new_transaction() as transaction:
                assert merge(transaction, 1) == MergeCounts(inserted=1)
            winner, loser = client.new_transaction(), client.new_transaction()
            for each in (winner, loser):
                each.begin()
            assert merge(loser, 3) == merge(winner, 2) == MergeCounts(updated=1)
            winner.commit()
            with pytest.raises(WriteConflictError, match=f"{winner.txn_id} changed {name.replace('.', '/')}"):
                loser.commit()
            late = client.new_transaction()
            late.begin()
            line.judge.sql(
                f"MERGE INTO {name} t USING (SELECT 1 AS a) s ON t.a = s.a "
                "WHEN MATCHED THEN UPDATE SET b = t.b * 10 + 4"
            )
            merge(late, 5)
            with pytest.raises(WriteConflictError, match="committed first"):
                late.commit()
            with client.new_transaction() as again:
                assert merge(again, 6) == MergeCounts(updated=1)
        assert line.rows(name) == [(1, 1246)]
