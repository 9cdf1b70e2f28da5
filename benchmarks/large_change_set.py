"""A change set half as large as its table: 10,000,000 rows in 30 partitions of 8 buckets, 5,000,000 changes.

    python -m benchmarks large_change_set            # the whole of it
    python -m benchmarks large_change_set --quick    # a fiftieth

Half of the changes are inserts, 40 % updates, 10 % deletes. Two cores, 4 GiB for the Spark driver. Wall
seconds are reported by phase, and the peak resident memory of every Python worker, which has to stay below 1
GiB. In the end real Hive counts the rows of each partition and adds up checksums over every column; they must
be the expected ones.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measuring.measure import versions
from benchmarks.measuring.memory import MemoryWatch
from examples.local import PrintLoss, create_table
from judges.hive.hive_judges import Hive23
from metastore_client import EmbeddedMetastore
from mutation_api import MutatorClient, MutatorClientBuilder, apply_changes, local_spark_session, read_table

HELP = "commit a change set half as large as its table, and have Hive check the result"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 200_000
PARTITIONS = 30
BUCKETS = 8
CORES = 2
DRIVER_MEMORY = "4g"
WORKER_LIMIT_BYTES = 1 << 30
TABLE = "default.large"
RESULTS = Path(__file__).parent / "results"

CHECKSUMS = (
    "count(*), sum(id), sum(cast(substr(msg, 5) AS bigint)), "
    "sum(CASE WHEN substr(msg, 1, 3) = 'upd' THEN 1 ELSE 0 END), sum(cast(v * 4 AS bigint))"
)
"""Over every column; the same text for Hive and for Spark."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--rows", type=int, default=ROWS_DEFAULT, help="rows of the table (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help=f"a table of {QUICK_ROWS:,} rows")
    parser.add_argument(
        "--layout", choices=("legacy", "default"), default="legacy", help="format of the table"
    )
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if Hive's checksums are right and every worker stayed within its limit."""
    rows = QUICK_ROWS if arguments.quick else arguments.rows
    phases = Phases()
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        metastore = stack.enter_context(EmbeddedMetastore(work / "metastore"))
        columns = "id bigint, msg string, v double"
        create_table(metastore.uri, TABLE, columns, "ds string", "id", BUCKETS, layout=arguments.layout)
        settings = {
            "spark.driver.memory": DRIVER_MEMORY,
            "spark.local.dir": str(work / "spark"),
        }
        with (
            MemoryWatch(os.getpid()) as memory,
            local_spark_session(master=f"local[{CORES}]", settings=settings) as spark,
        ):
            builder = MutatorClientBuilder().metastore(metastore.uri).lock_failure_listener(PrintLoss())
            builder.add_sink_table("default.large", create_partitions=True)
            with builder.build() as client:
                load(client, spark, rows, phases)
                change(client, spark, rows, work / "changes", phases)
            expected = expected_checksums(spark, rows)
        hive = stack.enter_context(Hive23(work / "hive", {"hive.metastore.uris": metastore.uri}))
        with phases.measured("Hive's checksums"):
            found = hive_checksums(hive)
    return report(arguments, rows, phases, memory, is_equal=found == expected)


def load(client: MutatorClient, spark: SparkSession, rows: int, phases: Phases) -> None:
    """Fill the table."""
    with client.new_transaction() as transaction:
        changes = base_rows(spark, rows).withColumn("operation", sf.lit("insert"))
        with phases.measured("load: write"):
            print(apply_changes(transaction, TABLE, changes))
        started = time.monotonic()
    phases.seconds["load: commit"] = time.monotonic() - started


def change(client: MutatorClient, spark: SparkSession, rows: int, folder: Path, phases: Phases) -> None:
    """Compute the change set to files, so that its making is not measured with its writing; then apply it."""
    started = time.monotonic()
    with client.new_transaction() as transaction:
        phases.seconds["changes: begin"] = time.monotonic() - started
        with phases.measured("changes: read the snapshot and compute"):
            table = read_table(transaction, TABLE, spark=spark)
            change_set(table, spark, rows).write.parquet(str(folder))
        with phases.measured("changes: write"):
            print(apply_changes(transaction, TABLE, spark.read.parquet(str(folder))))
        started = time.monotonic()
    phases.seconds["changes: commit"] = time.monotonic() - started


def base_rows(spark: SparkSession, rows: int) -> DataFrame:
    """The table's first contents."""
    return _with_values(spark.range(rows), "row")


def change_set(table: DataFrame, spark: SparkSession, rows: int) -> DataFrame:
    """Of the table's rows every fifth is updated and every twentieth deleted; a quarter as many come new."""
    existing = table.where(sf.col("id") % 20 < 5)
    updates = _with_values(existing.where(sf.col("id") % 20 < 4), "upd").withColumn(
        "operation", sf.lit("update")
    )
    deletes = existing.where(sf.col("id") % 20 == 4).withColumn("operation", sf.lit("delete"))
    inserts = _new_rows(spark, rows).withColumn("operation", sf.lit("insert"))
    return updates.unionByName(deletes).unionByName(inserts, allowMissingColumns=True)


def expected_checksums(spark: SparkSession, rows: int) -> dict[str, list[int]]:
    """What the table must hold, computed from the formulas alone."""
    kept = base_rows(spark, rows).where(sf.col("id") % 20 > 4)
    updated = _with_values(spark.range(rows).where(sf.col("id") % 20 < 4), "upd")
    kept.unionByName(updated).unionByName(_new_rows(spark, rows)).createOrReplaceTempView("expected")
    found = spark.sql(f"SELECT ds, {CHECKSUMS} FROM expected GROUP BY ds").collect()
    return {row[0]: [int(value) for value in row[1:]] for row in found}


def hive_checksums(hive: Hive23) -> dict[str, list[int]]:
    """What Hive finds, partition by partition."""
    settings = {"hive.vectorized.execution.enabled": "false"}
    found = {}
    for ds in (f"p{i:02d}" for i in range(PARTITIONS)):
        (row,) = hive.sql(f"SELECT {CHECKSUMS} FROM {TABLE} WHERE ds = '{ds}'", settings=settings)
        found[ds] = [int(value) for value in row]
    return found


def report(
    arguments: argparse.Namespace, rows: int, phases: Phases, memory: MemoryWatch, *, is_equal: bool
) -> int:
    """Print the figures, save them if asked, and judge."""
    workers, java, driver = (memory.peaks(kind) for kind in ("python", "java", "driver"))
    figures = {
        "command": f"python -m benchmarks large_change_set --rows {rows} --layout {arguments.layout}",
        "machine": f"{CORES} of {os.cpu_count()} cores, {platform.machine()}",
        "versions": ", ".join(versions("pyspark", "pyarrow")),
        "rows": rows,
        "changes": rows // 2,
        "seconds": {name: round(seconds, 1) for name, seconds in phases.seconds.items()},
        "changes_per_second": round(rows / 2 / phases.seconds["changes: write"]),
        "worker_peak_mib": [round(b / 2**20) for b in workers],
        "jvm_peak_mib": [round(b / 2**20) for b in java],
        "driver_python_peak_mib": [round(b / 2**20) for b in driver],
        "hive_agrees": is_equal,
    }
    print(json.dumps(figures, indent=2))
    if arguments.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"large_change_set_{arguments.layout}.json").write_text(
            json.dumps(figures, indent=2) + "\n"
        )
    is_small = bool(workers) and workers[0] < WORKER_LIMIT_BYTES
    print(f"Hive {'agrees' if is_equal else 'DISAGREES'}; workers {'within' if is_small else 'ABOVE'} 1 GiB")
    return 0 if is_equal and is_small else 1


class Phases:
    """Wall seconds by phase, printed as they pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def measured(self, name: str) -> Iterator[None]:
        """Measure the block."""
        print(f"{name} …", flush=True)
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started
        print(f"{name}: {self.seconds[name]:.1f} s", flush=True)


def _new_rows(spark: SparkSession, rows: int) -> DataFrame:
    return _with_values(spark.range(rows, rows + rows // 4), "new")


def _with_values(ids: DataFrame, prefix: str) -> DataFrame:
    """Values of the other columns, computed from the id; a row keeps its partition."""
    return (
        ids.withColumn(
            "msg", sf.concat(sf.lit(f"{prefix}-"), (sf.col("id") * 7919 % 1_000_003).cast("string"))
        )
        .withColumn("v", sf.col("id") / 4)
        .withColumn("ds", sf.format_string("p%02d", sf.col("id") * 7919 % 1_000_003 % PARTITIONS))
    )
