"""What apply_changes would write, against what it then writes, for every layout of a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import DataFrame, SparkSession

from metastore_client.capabilities import Capabilities
from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.format.layout import AcidVersion
from mutation_api.spark.job import apply_changes
from mutation_api.spark.plan import forecast_changes, plan_changes
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.write.forecast import ApplySummary, Forecast, GroupCount

COLUMNS = [
    ColumnInfo("id", "bigint"),
    ColumnInfo("name", "string"),
    ColumnInfo("amount", "decimal(12,2)"),
    ColumnInfo("at", "timestamp"),
    ColumnInfo("tags", "map<string,int>"),
]
BUCKETED: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": 3}
PARTITIONED: dict[str, Any] = {"partitioned_by": [ColumnInfo("ds", "int")]}
TABLES: list[tuple[Capabilities, dict[str, dict[str, Any]]]] = [
    (HIVE_2_3, {"split": BUCKETED, "legacy": BUCKETED | PARTITIONED}),
    (HIVE_3_1, {"plain": {}, "mm": {"insert_only": True}}),
    (HIVE_4_1, {"plain_parts": PARTITIONED}),
]
FORECAST_EMPTY = ("mm", "plain_parts")
ROWS = 3000

pytestmark = pytest.mark.tasks


def test_which_files_a_group_makes() -> None:
    """With split updates, old versions go to a separate file; in legacy tables all share one."""
    split, legacy = AcidVersion.V2_HIVE4, AcidVersion.V1_LEGACY
    expected = {(1, 0, 0): (1, 0), (0, 1, 0): (1, 1), (0, 0, 1): (0, 1), (1, 0, 1): (1, 1)}
    for counts, files in expected.items():
        group = GroupCount(None, 0, *counts)
        assert (group.has_delta(split), group.has_delete_delta(split)) == files
        assert (group.has_delta(legacy), group.has_delete_delta(legacy)) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "tables"),
    [
        pytest.param(*case, id=name, marks=[] if name == "3.1" else pytest.mark.long)
        for name, case in zip(["2.3", "3.1", "4.1"], TABLES, strict=True)
    ],
)
def test_it_comes_true(
    spark: SparkSession, tmp_path: Path, line: Capabilities, tables: dict[str, dict[str, Any]]
) -> None:
    """Rows, groups and files exactly, bytes within a factor of three: inserts into an empty table, then
    changes of all kinds.
    """
    metastore = InMemoryMetastore(tmp_path, capabilities=line)
    builder = MutatorClientBuilder().metastore(metastore)
    for name, how in tables.items():
        create_acid_table(metastore, f"default.{name}", COLUMNS, **how)
        if name == "legacy":
            made = metastore.get_table("default", name)
            metastore.drop_table("default", name, delete_data=True)
            metastore.create_table(dataclasses.replace(made, parameters={"transactional": "true"}))
        builder.add_sink_table("default", name, create_partitions=True)
    with builder.build() as client:
        with client.new_transaction() as transaction:
            for name in tables:
                changes = _inserts(spark, range(ROWS))
                if name in FORECAST_EMPTY:
                    _check(transaction, f"default.{name}", changes)
                else:
                    flat = changes if "partitioned_by" in tables[name] else changes.drop("ds")
                    apply_changes(transaction, f"default.{name}", flat)
        with client.new_transaction() as transaction:
            for name in tables.keys() - {"mm"}:
                _check(transaction, f"default.{name}", _changes(spark, transaction, f"default.{name}"))


def _check(transaction: Transaction, name: str, changes: DataFrame) -> None:
    table = transaction.table(name)
    changes = changes if table.partition_keys else changes.drop("ds")
    found = forecast_changes(plan_changes(table, changes, transaction.valid_ids(name), num_partitions=3))
    written = apply_changes(transaction, name, changes, num_partitions=3)
    assert _counts(found) == (
        *(written.inserted, written.updated, written.deleted),
        *(written.file_count, written.bucket_count, written.partitions),
    ), name
    assert found.row_count == written.row_count > 0
    assert written.byte_count / 3 < found.byte_count < written.byte_count * 3, _sizes(name, found, written)


def _counts(found: Forecast) -> tuple[object, ...]:
    operations = ("inserted", "updated", "deleted")
    return (
        *(sum(getattr(group, name) for group in found.groups) for name in operations),
        *(
            found.file_count,
            len(found.groups),
            tuple(sorted({g.partition for g in found.groups if g.partition})),
        ),
    )


def _sizes(name: str, found: Forecast, written: ApplySummary) -> str:
    return f"{name}: {found.byte_count} bytes forecast, {written.byte_count} written"


def _inserts(spark: SparkSession, ids: range) -> DataFrame:
    return spark.range(ids.start, ids.stop).selectExpr(
        "'insert' operation",
        "id",
        "left(sha2(cast(id AS string), 256), cast(id % 50 AS int)) name",
        "cast(hash(id) / 100.0 AS decimal(12,2)) amount",
        "timestamp_seconds(hash(id)) at",
        "map('k', cast(id AS int)) tags",
        "cast(sqrt(id % 100) AS int) ds",
    )


def _changes(spark: SparkSession, transaction: Transaction, name: str) -> DataFrame:
    """Partitions differ in what happens to them: in 7 only deletes, in 8 only updates, in 9 nothing."""
    rows = read_table(transaction, name, spark=spark)
    column = "ds" if transaction.table(name).partition_keys else "0"
    updates = rows.where(f"id % 10 < 3 AND {column} NOT IN (7, 9)")
    updates = updates.withColumns({"name": sf.upper("name"), "operation": sf.lit("update")})
    deletes = rows.where(f"id % 10 = 4 AND {column} NOT IN (8, 9)").withColumn("operation", sf.lit("delete"))
    inserts = _inserts(spark, range(ROWS, 2 * ROWS)).where("id % 7 = 0 AND ds < 5")
    return updates.unionByName(deletes, True).unionByName(inserts, True)
