"""Input of the benchmarks of writing: change sets in files, and the tables that they are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark.sql.functions as sf
from pyspark.sql import SparkSession

from benchmarks.data.event_data import BUCKETS, KEY, PARTITION_KEYS, RowSource, bucket_of, shuffled
from benchmarks.writing.write_stage import DATABASE, LAYOUTS, Layout, Server, Stage
from examples.local import PrintLoss, create_table
from mutation_api import MutatorClient, MutatorClientBuilder, apply_changes, read_table


@dataclass(frozen=True)
class Prepared:
    """Input of the writers of one release of Hive: a change set, and the table that it is for.

    Attributes:
        name: part of the names of tables.
        columns: of the tables, as Hive declares them.
        server: where tables are created.
        changes: folder of the change set's files.
        counts: changes by operation.
        base: folder with the table's first rows; None if it begins without any.
        partitions: values of ``ds`` in it.
    """

    name: str
    columns: str
    server: Server
    changes: Path
    counts: Mapping[str, int]
    base: Path | None = None
    partitions: tuple[str, ...] = ()


def prepare_changes(stage: Stage, name: str, source: RowSource, line: str) -> Prepared:
    """Load a table, and compute a change set for it.

    The rows are loaded by our own writer, and their ROW__IDs read from the files.

    Args:
        stage: where.
        name: not used by another prepared change set of this release.
        source: of the rows.
        line: the release of Hive whose ROW__IDs the changes shall have.
    """
    server, table, changes = stage.servers[line], f"base_{name}", stage.folder / f"{name}-{line}"
    new_table(server, table, source.columns, LAYOUTS["split"])
    with client_of(server, table) as client:
        with client.new_transaction() as transaction:
            rows = source.base(stage.spark).withColumn("operation", sf.lit("insert"))
            summary = apply_changes(transaction, f"{DATABASE}.{table}", rows)
        full_name = f"{DATABASE}.{table}"
        loaded = read_table(
            client.open_snapshot(full_name), full_name, columns=["id", "ds"], spark=stage.spark
        )
        source.changes(loaded).write.parquet(str(changes))
    days = tuple(each.partition("=")[2] for each in summary.partitions)
    counts = _counts(stage.spark, changes)
    return Prepared(name, source.columns, server, changes, counts, server.warehouse / table, days)


def prepare_inserts(stage: Stage, name: str, source: RowSource, line: str) -> Prepared:
    """The rows of a source as inserts, in random order, for a table without rows; arguments as above."""
    changes = stage.folder / f"{name}-inserts"
    if not changes.exists():
        rows = source.base(stage.spark).withColumn("operation", sf.lit("insert"))
        shuffled(rows.withColumn("bucket_id", bucket_of(sf.col(KEY)))).write.parquet(str(changes))
    counts = _counts(stage.spark, changes)
    return Prepared(name, source.columns, stage.servers[line], changes, counts)


def _counts(spark: SparkSession, changes: Path) -> dict[str, int]:
    found = spark.read.parquet(str(changes)).groupBy("operation").count().collect()
    return {row[0]: row[1] for row in found}


def new_table(server: Server, table: str, columns: str, layout: Layout, location: str = "") -> None:
    """Create an empty table.

    Args:
        server: where.
        table: its name.
        columns: as Hive declares them.
        layout: its format.
        location: the table's location; '' for the server's default.
    """
    create_table(
        server.uri,
        f"{DATABASE}.{table}",
        columns,
        PARTITION_KEYS,
        KEY,
        BUCKETS,
        layout=layout.transactional_properties,
        location=location,
    )


def client_of(server: Server, table: str) -> MutatorClient:
    """A client, not connected yet, that may write a table and create its partitions."""
    builder = MutatorClientBuilder().metastore(server.uri).lock_failure_listener(PrintLoss())
    return builder.add_sink_table(DATABASE, table, create_partitions=True).build()
