"""Merges whose key tells the bucket: what they read, and what they refuse to rely on; judged by Hive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from judges.hive.hive_judges import Hive23
from metastore_client.remote.thrift_client import open_client
from mutation_api import MergeCounts, MergeInto, merge_into
from mutation_api.errors import BucketIdError, CorruptFileError, DirectoryStateError
from mutation_api.transaction.transaction import Transaction
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import LiveTable

pytestmark = [pytest.mark.slow, pytest.mark.tasks]


@pytest.fixture
def table(make_table: MakeTable, spark: SparkSession) -> LiveTable:
    """Rows with the keys -20 to 19 in four buckets."""
    table = make_table(columns="id int, msg string", keys="", buckets=4, layout="default")
    with table.transaction() as transaction:
        merged(
            transaction, table, spark.range(-20, 20).selectExpr("cast(id AS int) id", "'old' msg")
        ).execute()
    return table


def merged(transaction: Transaction, table: LiveTable, source: DataFrame, **options: object) -> MergeInto:
    merge = merge_into(transaction, table.full_name, source=source, on=["id"], **options)  # type: ignore[arg-type]
    return merge.whenMatched().updateAll().whenNotMatched().insertAll()


def source_of(spark: SparkSession, *ids: int, kind: str = "int") -> DataFrame:
    return spark.createDataFrame([(each, "new") for each in ids], f"id {kind}, msg string")


def bucket_file(table: LiveTable, bucket_id: int) -> Path:
    (found,) = table.directory.glob(f"delta_*/bucket_{bucket_id:05}")
    return found


@pytest.mark.parametrize("collected_keys", [pytest.param(0, marks=pytest.mark.long), 100])
def test_only_buckets_of_the_keys_are_read(
    table: LiveTable, spark: SparkSession, collected_keys: int
) -> None:
    """Another bucket's file may be damaged, and nobody minds, unless all buckets are asked for."""
    file = bucket_file(table, 1)
    content = file.read_bytes()
    file.write_bytes(b"damaged")
    source = source_of(spark, 4, 8, 400)  # in bucket 0
    with table.transaction() as transaction:
        every = merged(transaction, table, source, prune_buckets=False, collected_keys=collected_keys)
        with pytest.raises(CorruptFileError, match=file.name):
            every.dry_run()
        some = merged(transaction, table, source, collected_keys=collected_keys)
        assert some.execute().total == MergeCounts(inserted=1, updated=2)
    file.write_bytes(content)
    expected = {**dict.fromkeys(range(-20, 20), "old"), 4: "new", 8: "new", 400: "new"}
    assert sorted(row.values for row in table.rows()) == sorted(expected.items())


@pytest.mark.parametrize("collected_keys", [pytest.param(0, marks=pytest.mark.long), 100])
def test_rows_in_other_buckets_than_their_key_tells_are_not_overlooked(
    table: LiveTable, spark: SparkSession, hive: Hive23, collected_keys: int
) -> None:
    """Another program altered the table, and nothing tells of it: what is read is checked, and refused."""
    with open_client(hive.uri) as metastore:
        raw: Any = metastore.get_table(*table.full_name.split(".")).sent
        raw.sd.numBuckets = 8
        metastore._alter_raw_table(raw, {})
    before = sorted(row.values for row in table.rows())
    source = source_of(spark, 4, 3)
    with table.transaction() as transaction:
        for act in (MergeInto.dry_run, MergeInto.execute):
            with pytest.raises(DirectoryStateError, match="a program other than Hive altered the table"):
                act(merged(transaction, table, source, collected_keys=collected_keys))
    assert sorted(row.values for row in table.rows()) == before
    with table.transaction() as transaction:
        every = merged(transaction, table, source, prune_buckets=False, collected_keys=collected_keys)
        with pytest.raises(BucketIdError, match="id=4"):
            every.execute()
    with table.transaction() as transaction:
        some = source.where("id = 3")
        every = merged(transaction, table, some, prune_buckets=False, collected_keys=collected_keys)
        assert every.execute().total == MergeCounts(updated=1)
    assert len(table.rows()) == len(before)


def test_many_keys_are_searched_bucket_by_bucket(table: LiveTable, spark: SparkSession) -> None:
    """The plan shuffles the keys and what they found, and the table's other rows never."""
    source = spark.range(-30, 20, 2).selectExpr("cast(id AS int) id", "'new' msg")
    with table.transaction() as transaction:
        report = merged(transaction, table, source, collected_keys=10).execute()
        assert report.total == MergeCounts(inserted=5, updated=20)
    expected = {n: "old" if n % 2 else "new" for n in range(-20, 20)} | dict.fromkeys(
        range(-30, -20, 2), "new"
    )
    assert sorted(row.values for row in table.rows()) == sorted(expected.items())
