"""Rows and change sets of the benchmarks of writing."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.data.event_data import BUCKETS, CHANGE_FILES, Content, Shape, bucket_of, content
from mutation_api.format.bucket_hash import bucket_ids, hash_columns
from mutation_api.format.hive_type import parse_hive_type

pytestmark = pytest.mark.slow

ROWS = 4_000


def loaded(spark: SparkSession, shape: Shape) -> DataFrame:
    """The table's rows with ROW__IDs as a snapshot of Hive 2 has them."""
    row_id = sf.struct(sf.lit(1).alias("transactionid"), bucket_of(sf.col("id")).alias("bucketid"))
    return shape.base(spark).select(row_id.alias("ROW__ID"), "id", "ds")


def test_rows_are_random(spark: SparkSession) -> None:
    """Keys are distinct, not negative and far apart; texts differ; all partitions are met about alike."""
    rows = Shape(ROWS, 4).base(spark).toPandas()
    keys = rows["id"].to_numpy()
    assert len(np.unique(keys)) == ROWS
    assert 0 <= keys.min() < keys.max() < 2**39
    assert np.median(np.abs(np.diff(keys))) > 2**35
    assert rows["msg"].nunique() > ROWS * 0.99
    assert 14 < rows["msg"].str.len().mean() < 28
    assert (rows["v"] * 4 % 1 == 0).all()
    assert sorted(rows["ds"].unique()) == ["2023-01-01", "2023-01-02", "2023-01-03", "2023-01-04"]
    assert rows["ds"].value_counts().min() > ROWS / 4 * 0.85


def test_buckets_are_those_of_hive(spark: SparkSession) -> None:
    """By the hash that the library proves against Hive itself; and all are met about alike."""
    rows = Shape(ROWS, 1).base(spark).select("id", bucket_of(sf.col("id")).alias("bucket")).toPandas()
    hashes = hash_columns([pa.array(rows["id"])], [parse_hive_type("bigint")], 1)
    assert (bucket_ids(hashes, BUCKETS) == rows["bucket"]).all()
    assert np.bincount(rows["bucket"], minlength=BUCKETS).min() > ROWS / BUCKETS * 0.8


def test_hot_rows_share_a_bucket(spark: SparkSession) -> None:
    """And their keys are as distinct as others."""
    rows = (
        Shape(ROWS, 30, hot_percent=90).base(spark).withColumn("bucket", bucket_of(sf.col("id"))).toPandas()
    )
    hot = rows[(rows["ds"] == "2023-01-01") & (rows["bucket"] == 0)]
    assert 0.88 < len(hot) / ROWS < 0.92
    assert rows["id"].nunique() == ROWS


def test_a_change_set_is_mixed(spark: SparkSession) -> None:
    """Half updates, a tenth deletes, four tenths inserts, in random order; deletes have no values."""
    shape = Shape(ROWS, 3)
    table = loaded(spark, shape)
    changes = shape.changes(table)
    rows = changes.toPandas()
    shares = {operation: count / len(rows) for operation, count in Counter(rows["operation"]).items()}
    assert shares == pytest.approx({"update": 0.5, "delete": 0.1, "insert": 0.4}, abs=0.03)
    assert changes.rdd.getNumPartitions() == CHANGE_FILES
    assert Counter(rows["operation"][:200]).keys() == shares.keys()
    is_insert, is_delete = rows["operation"] == "insert", rows["operation"] == "delete"
    assert (rows["ROW__ID"].isna() == is_insert).all()
    assert (rows["id"].isna() == is_delete).all()
    assert (rows["msg"].isna() == is_delete).all()
    assert rows["bucket_id"].notna().all()
    old = {row["id"] for row in table.select("id").collect()}
    assert not old & set(rows["id"][is_insert].astype(int))
    assert old > set(rows["id"][rows["operation"] == "update"].astype(int))


def test_the_expected_content_follows(spark: SparkSession) -> None:
    """What is left when the change set is applied by hand."""
    shape = Shape(ROWS, 3)
    table = {row["id"]: row for row in shape.base(spark).collect()}
    ids = {(row["ds"], row["ROW__ID"], row["id"]) for row in loaded(spark, shape).collect()}
    assert len(ids) == ROWS
    keyed = shape.changes(loaded(spark, shape).withColumn("ROW__ID", sf.struct("id")))
    for row in keyed.collect():
        if row["operation"] != "insert":
            before = table.pop(row["ROW__ID"]["id"])
            assert before["ds"] == row["ds"]
            assert before["msg"] != row["msg"]
        if row["operation"] != "delete":
            assert row["id"] not in table
            table[row["id"]] = row
    kept = [(row["id"], row["msg"], row["v"], row["ds"]) for row in table.values()]
    applied: Content = content(
        spark.createDataFrame(kept, "id bigint, msg string, v double, ds string"), shape.checksums
    )
    assert applied == shape.expected(spark)
