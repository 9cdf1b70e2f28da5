"""Merges by tasks into a table without rows: plain inserts, with the same checks and report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession

from metastore_client import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import (
    DuplicateKeyError,
    MergeCounts,
    MergeInto,
    MutatorClient,
    MutatorClientBuilder,
    RecordValueError,
    Transaction,
    create_acid_table,
    merge_into,
    read_table,
)

pytestmark = [pytest.mark.slow, pytest.mark.tasks]

NAME = "default.t"
ROWS = 50


@pytest.fixture
def client(tmp_path: Path) -> Iterator[MutatorClient]:
    """A client of an empty table (id, msg) partitioned by ds."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    columns = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
    create_acid_table(
        metastore, NAME, columns, [ColumnInfo("ds", "string")], clustered_by=["id"], num_buckets=2
    )
    builder = MutatorClientBuilder().metastore(metastore).add_sink_table(NAME, create_partitions=True)
    with builder.build() as made:
        yield made


def source(spark: SparkSession, tmp_path: Path, rows: DataFrame | None = None) -> DataFrame:
    """Rows in files."""
    made = spark.range(ROWS).selectExpr("id", "IF(id = 7, NULL, 'a.b') msg", "concat('p', id % 3) ds")
    files = str(tmp_path / "source.parquet")
    (made if rows is None else made.union(rows)).write.parquet(files)
    return spark.read.parquet(files)


def whole(transaction: Transaction, rows: DataFrame) -> MergeInto:
    """Make the table equal to the rows."""
    merge = merge_into(transaction, NAME, source=rows, on=["id"], count_by="ds")
    merge.whenMatched().updateAll()
    merge.whenNotMatched().insertAll()
    merge.whenNotMatchedBySource().delete()
    return merge


@pytest.mark.long
def test_it_is_a_plain_insert_with_a_report(
    spark: SparkSession, client: MutatorClient, tmp_path: Path
) -> None:
    """Counts by partition and value; merging the same again changes nothing."""
    rows = source(spark, tmp_path)
    for expected, is_first in ((MergeCounts(inserted=ROWS), True), (MergeCounts(unchanged=ROWS), False)):
        with client.new_transaction() as transaction:
            report = whole(transaction, rows).execute()
        assert report.total == expected
        if is_first:
            assert report.partitions == {
                f"ds=p{n}": MergeCounts(inserted=len(range(n, ROWS, 3))) for n in range(3)
            }
            assert report.new_partitions == ("ds=p0", "ds=p1", "ds=p2")
        assert sorted(report.counts_by) == ["p0", "p1", "p2"]
        with client.open_snapshot(NAME) as view:
            found = read_table(view, NAME, columns=["id", "msg", "ds"], spark=spark).drop("ROW__ID")
            assert sorted(found.collect()) == sorted(rows.collect(), key=lambda row: row["id"])


@pytest.mark.long
def test_texts_that_a_partition_stores_as_null(spark: SparkSession, client: MutatorClient) -> None:
    """'' is stored as NULL, refused as key, and no change later; the name of NULL is refused."""
    rows = spark.sql("select 1L id, 'm' msg, '' ds")

    def merge(rows: DataFrame, on: list[str]) -> MergeCounts:
        with client.new_transaction() as transaction:
            begun = merge_into(transaction, NAME, source=rows, on=on)
            begun.whenMatched().updateAll()
            return begun.whenNotMatched().insertAll().execute(num_partitions=1).total

    with pytest.raises(RecordValueError, match=r"keys to insert would be stored as different.*ds='' as None"):
        merge(rows, ["id", "ds"])
    with pytest.raises(RecordValueError, match=r"is the server's name for NULL"):
        merge(rows.withColumn("ds", sf.lit("__HIVE_DEFAULT_PARTITION__")), ["id"])
    assert merge(rows, ["id"]).inserted == 1
    with client.open_snapshot(NAME) as view:
        assert read_table(view, NAME, columns=["ds"], spark=spark).select("ds").collect() == [(None,)]
    assert merge(rows, ["id"]).unchanged == 1


def test_a_key_that_occurs_twice_is_refused(
    spark: SparkSession, client: MutatorClient, tmp_path: Path
) -> None:
    """Nothing is written."""
    rows = source(spark, tmp_path, spark.sql("SELECT 3L id, 'again' msg, 'p9' ds"))
    with client.new_transaction() as transaction:
        with pytest.raises(DuplicateKeyError, match=r"\(id=3\) in 2 rows"):
            whole(transaction, rows).execute()
        transaction.abort()


def test_conditions_and_values_hold(spark: SparkSession, client: MutatorClient, tmp_path: Path) -> None:
    """Only some rows are inserted, with assigned values."""
    with client.new_transaction() as transaction:
        merge = merge_into(transaction, NAME, source=source(spark, tmp_path), on=["id"])
        merge.whenNotMatched("source.id < 5").insertAll()
        assert merge.execute().total == MergeCounts(inserted=5)
