"""delete_where, update_where and overwrite by Spark: several steps, by tasks and by the driver."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import apply_changes, delete_where, overwrite, read_table, update_where
from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.spark.job import FEW_BYTES_DEFAULT
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction import Transaction
from tests.fixtures.fix_spark import few_rows_to_the_driver

pytestmark = pytest.mark.slow

NAME = "default.verbs"
DAYS = [datetime.date(2024, month, 1) for month in (5, 6, 7)]


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    """A partitioned and bucketed table with six rows."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    schema = "id bigint, item string, price decimal(8,2), day date"
    layout: dict[str, Any] = {"partitioned_by": ["day"], "clustered_by": ["id"], "num_buckets": 2}
    with connect(metastore) as hive:
        hive.create_table(NAME, schema, **layout)
        rows = {
            "id": range(6),
            "item": ["tea", "milk"] * 3,
            "price": pa.array([Decimal(n) for n in range(6)], pa.decimal128(8, 2)),
            "day": [DAYS[n % 3] for n in range(6)],
        }
        hive.table(NAME).append(pa.table(rows), create_partitions=True)
        yield hive


def new_rows(spark: SparkSession, *ids: int, month: int = 6) -> DataFrame:
    """Rows of one partition."""
    rows = [(id_, "new", Decimal(9), datetime.date(2024, month, 1)) for id_ in ids]
    return spark.createDataFrame(rows, "id bigint, item string, price decimal(8,2), day date")


def ids(transaction: Transaction) -> list[int]:
    """What the transaction reads."""
    return sorted(row.id for row in read_table(transaction, NAME).collect())


@pytest.mark.long
@pytest.mark.parametrize("few_bytes", [FEW_BYTES_DEFAULT, 0])
def test_steps_by_spark_see_each_other(hive: Hive, spark: SparkSession, few_bytes: int) -> None:
    """Each verb reads what the verbs before it wrote; the commit shows the end."""
    builder = MutatorClientBuilder().metastore(hive.metastore)
    client = builder.add_sink_table(*NAME.split("."), create_partitions=True).build()
    with few_rows_to_the_driver(spark, few_bytes), client, client.new_transaction() as transaction:
        assert delete_where(transaction, NAME, "item = 'tea' AND price > 3").total.deleted == 1
        assert ids(transaction) == [0, 1, 2, 3, 5]
        report = update_where(transaction, NAME, {"price": "price + 1"}, "id = 5")
        assert report.total.updated == 1
        replaced = overwrite(transaction, NAME, new_rows(spark, 10, 11), partitions="dynamic")
        assert (replaced.deleted, replaced.inserted, replaced.partitions) == (1, 2, ("day=2024-06-01",))
        assert ids(transaction) == [0, 2, 3, 5, 10, 11]
        with pytest.raises(RecordValueError, match="new rows do not meet the condition"):
            overwrite(transaction, NAME, new_rows(spark, 12), where="id > 50")
        with pytest.raises(RecordValueError, match="day=2024-06-01, which are not"):
            overwrite(transaction, NAME, new_rows(spark, 12), partitions=[{"day": "2024-05-01"}])
        with pytest.raises(ConfigurationError, match="not both"):
            overwrite(transaction, NAME, new_rows(spark, 12), partitions="dynamic", where="id = 12")
        for dry_run in (True, False):
            new = new_rows(spark, 12, month=8)
            replaced = overwrite(transaction, NAME, new, where="id >= 10", dry_run=dry_run)
            assert replaced.deleted == 2 and replaced.partitions == ("day=2024-06-01", "day=2024-08-01")
        assert delete_where(transaction, NAME, "id = 12").total.deleted == 1
        overwrite(
            transaction,
            NAME,
            new_rows(spark, 20, month=8),
            partitions=[{"day": DAYS[0]}, {"day": "2024-08-01"}],
        )
    with hive.snapshot(NAME) as view:
        found = view.table(NAME).scan(["id", "price"]).to_arrow().to_pylist()
    assert sorted((row["id"], row["price"]) for row in found) == [
        (2, Decimal(2)),
        (5, Decimal(6)),
        (20, Decimal(9)),
    ]


@pytest.mark.parametrize("few_bytes", [FEW_BYTES_DEFAULT, 0])
@pytest.mark.parametrize("step", ["none", "delete", "apply", "read"])
def test_an_overwrite_by_spark_becomes_a_base_if_it_is_the_only_step(
    hive: Hive, spark: SparkSession, tmp_path: Path, few_bytes: int, step: str
) -> None:
    """Any other step deletes the old rows first."""
    builder = MutatorClientBuilder().metastore(hive.metastore)
    client = builder.add_sink_table(*NAME.split("."), create_partitions=True).build()
    with few_rows_to_the_driver(spark, few_bytes), client, client.new_transaction() as transaction:
        report = overwrite(transaction, NAME, new_rows(spark, 10, 11), partitions="dynamic")
        assert (report.deleted, report.inserted, report.is_base) == (2, 2, True)
        if step == "delete":
            assert delete_where(transaction, NAME, "id = 10").total.deleted == 1
        elif step == "apply":
            changes = new_rows(spark, 12).withColumn("operation", sf.lit("insert"))
            assert apply_changes(transaction, NAME, changes).inserted == 1
        elif step == "read":
            assert ids(transaction) == [0, 2, 3, 5, 10, 11]
    with hive.snapshot(NAME) as view:
        found = sorted(view.table(NAME).scan(["id"]).to_arrow().column("id").to_pylist())
    expected = {"delete": [0, 2, 3, 5, 11], "apply": [0, 2, 3, 5, 10, 11, 12]}
    assert found == expected.get(step, [0, 2, 3, 5, 10, 11])
    assert len([*tmp_path.rglob("base_*")]) == (step == "none")
