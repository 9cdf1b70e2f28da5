"""A dry run against the merge that follows it, with everything that it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import MergeCounts, MergeInto, merge_into
from mutation_api.spark.job import apply_changes
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.create_acid_table import create_acid_table

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
NAME = "default.t"


@pytest.mark.slow
def test_it_tells_what_the_merge_then_does(spark: SparkSession, tmp_path: Path) -> None:
    """Counts, partitions and files are those of the merge; locks of others and rows are shown; nothing is
    written by it.
    """
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    create_acid_table(
        metastore, NAME, COLUMNS, [ColumnInfo("ds", "string")], clustered_by=["id"], num_buckets=2
    )
    builder = MutatorClientBuilder().metastore(metastore).add_sink_table("default", "t", True)
    with builder.build() as client:
        with client.new_transaction() as transaction:
            rows = spark.range(8).selectExpr(
                "'insert' operation", "id", "'old' msg", "IF(id < 4, 'a', 'b') ds"
            )
            apply_changes(transaction, NAME, rows)
        with client.new_transaction() as transaction:
            writer = _lock(metastore, "ds=b")
            _lock(metastore, "ds=unheard")
            dry = _merge(spark, transaction).dry_run(samples=1)
            assert list(tmp_path.rglob("_mutation_*/**/*delta*")) == []
            metastore.abort_txn(writer)
            done = _merge(spark, transaction).execute()
    assert dry.total == done.total == MergeCounts(1, 1, 1, 1, 1)
    assert (dry.partitions, dry.new_partitions) == (done.partitions, done.new_partitions)
    assert dry.new_partitions == ("ds=c",)
    assert done.written is not None
    assert dry.file_count == done.file_count == done.written.file_count
    assert done.byte_count / 3 < dry.byte_count < done.byte_count * 3
    assert [(g.partition, g.row_count) for g in dry.groups if g.partition != "ds=a"] == [
        ("ds=b", 1),
        ("ds=c", 2),
    ]
    assert [(lock.txn_id, lock.partition) for lock in dry.locks] == [(writer, "ds=b")]
    assert [str(row) for row in dry.samples] == [
        'inserted in ds=c {"id":9}: id 9, msg "new", ds "c"',
        'updated in ds=a {"id":1}: msg "old" → "new"',
        'deleted in ds=b {"id":5}: id 5, msg "old", ds "b"',
        'moved in ds=a {"id":2}: msg "old" → "new", ds "a" → "c"',
    ]
    assert json.loads(json.dumps(dry.to_dict())) == dry.to_dict()
    assert f"lock: transaction {writer} (etl@host) waits for SHARED_WRITE on ds=b" in str(dry)


def _merge(spark: SparkSession, transaction: Transaction) -> MergeInto:
    source = spark.sql(
        "SELECT * FROM VALUES (1L, 'new', 'a'), (2L, 'new', 'c'), (3L, 'old', 'a'), (5L, NULL, 'b'), "
        "(9L, 'new', 'c') AS s(id, msg, ds)"
    )
    merge = merge_into(transaction, NAME, source=source, on=["id"])
    return (
        merge.whenMatched("source.msg IS NULL")
        .delete()
        .whenMatched()
        .updateAll()
        .whenNotMatched()
        .insertAll()
    )


def _lock(metastore: InMemoryMetastore, partition: str) -> int:
    txn_id = metastore.open_txn("etl", "host", "")
    operation = DataOperationType.UPDATE
    wanted = LockComponent(LockType.SHARED_WRITE, LockLevel.PARTITION, "default", "t", partition, operation)
    metastore.lock(LockRequest((wanted,), txn_id, "etl", "host", ""))
    return txn_id
