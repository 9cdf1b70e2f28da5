"""Ingest a log of operations: ours, Spark's rewriting of the table, and delta-rs with the log reduced for it.

    python -m benchmarks ingest                  # 1,000,000 operations on 300,000 keys, 10,000,000 rows
    python -m benchmarks ingest --quick          # a tenth of that

The log is Tungsten's staging files (an update is a delete and an insert), in files of 100,000 operations.
``ours`` reads, reduces and merges them and moves the watermark, in one transaction. ``spark`` does what a
rebuild of the table does: it reads the files as CSV, keeps the last record of each key by a window, joins the
table without these keys, and writes all rows as new ORC files. ``local`` does the same as ``ours`` without
Spark. ``delta-rs`` merges the last operation of each key, which it finds ready in a Parquet file. Every round
brings a new log on other keys. In the end the tables of all must hold the same.

Beside that, reading alone: our reader of the staging files and Spark's reader of CSV, each into a sink that
keeps nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession, Window

from benchmarks.data.ingest_data import CSV_COLUMNS, DATABASE, SERVICE, SOURCE_TABLE, OperationLogs
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.measure import (
    Contestant,
    Result,
    alternate,
    as_figures,
    compared,
    consume,
    machine,
    tell,
    versions,
)
from benchmarks.measuring.report import save_cases, show_case
from benchmarks.merging.merge_stage import OURS_KINDS, Content, Stage, checksums
from metastore_client import open_client
from mutation_api import LocalOptions, read_table
from mutation_api.cdc import SourceTable, TableMapping, TungstenSource, ingest, read_source

HELP = "ingest a log of operations, in turn with rewriting the table and with delta-rs"

ROWS_DEFAULT, OPERATIONS_DEFAULT, KEYS_DEFAULT = 10_000_000, 1_000_000, 300_000
QUICK_SHARE = 10
ROUNDS = Rounds(3, warm_up=3)
OURS, LOCAL, SPARK, DELTA = "ours", "local", "spark", "delta-rs"
AIMS = {(OURS, SPARK): 0.4, (LOCAL, DELTA): 1.2}
READING_AIM = 1.2
LOCAL_OPTIONS = LocalOptions(memory_bytes=4 << 30)
"""Half of which is for the operations of a log; the default is for smaller ones."""
TABLE = "orders"
FULL_NAME = f"default.{TABLE}"
ROW_COLUMNS = ("id", "acct", "name", "amount", "quantity")
SPARK_KINDS = ("driver", "java", "python")
RESULTS = Path(__file__).parent / "results" / "ingest.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"rows of the table (default: {ROWS_DEFAULT:,})")
    parser.add_argument(
        "--quick", action="store_true", help=f"a {QUICK_SHARE}th of rows, operations and keys"
    )
    ROUNDS.add_argument(parser)
    parser.add_argument("--work", type=Path, help="folder that keeps prepared tables (default: thrown away)")
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all tables end up with the same content."""
    rows = arguments.rows or ROWS_DEFAULT // (QUICK_SHARE if arguments.quick else 1)
    operations, keys = (n * rows // ROWS_DEFAULT for n in (OPERATIONS_DEFAULT, KEYS_DEFAULT))
    repeat, warm_up = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    with contextlib.ExitStack() as stack:
        work = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        stage = stack.enter_context(Stage.opened(work.resolve(), rows, {}))
        logs = OperationLogs(rows, operations, keys, warm_up + repeat, stage.folder / "logs")
        tell(f"writing {logs.rounds} logs of {operations:,} operations")
        logs.write()
        cases = [ingest_case(stage, stack, logs, repeat), reading_case(stage, logs, repeat)]
        for case in cases:
            show_case(case)
    if arguments.save:
        save_cases(
            cases,
            RESULTS,
            title="Change sources",
            versions=", ".join(versions("pyspark", "pyarrow", "deltalake")),
            machine=machine(),
        )
    return 0 if all(case["is_right"] for case in cases) else 1


def ingest_case(
    stage: Stage, stack: contextlib.ExitStack, logs: OperationLogs, repeat: int
) -> dict[str, Any]:
    """From the log to the committed table."""
    follower, here = Follower(stage, logs), Follower(stage, logs, "orders_here", by_spark=False)
    rewriter = Rewriter(stage, logs)
    peer = stage.peer("delta", DELTA, stack)
    folder = stage.new_folder("delta")
    peer.call("load", str(folder), stage.base)
    contestants = [
        Contestant(OURS, follower.ingest, OURS_KINDS, follower.table, follower.receive),
        Contestant(LOCAL, here.ingest, ("driver",), here.table, here.receive),
        Contestant(SPARK, rewriter.rewrite, SPARK_KINDS, rewriter.folder),
        Contestant(DELTA, lambda n: peer.call("merge", str(folder), str(logs.reduced(n))), (DELTA,), folder),
    ]
    results = alternate(contestants, repeat, stage.watch(), warm_up=logs.rounds - repeat, tell=tell)
    delta_rows = stage.spark.read.parquet(*peer.call("files", str(folder)))
    contents = [follower.content(), here.content(), checksums(rewriter.rows()), checksums(delta_rows)]
    return _case(
        f"{logs.rows:,} rows, {logs.operations:,} operations on {logs.keys:,} keys",
        "Reading, reducing, merging and committing; delta-rs is given the log reduced",
        results,
        AIMS,
        is_right=len(set(contents)) == 1,
    )


def reading_case(stage: Stage, logs: OperationLogs, repeat: int) -> dict[str, Any]:
    """The staging files alone, read to their end."""
    follower = Follower(stage, logs, "read_only")
    for number in range(logs.rounds):
        follower.receive(number)
    files = [file for number in range(logs.rounds) for file in logs.staging_files(number)]
    contestants = [
        Contestant(OURS, lambda _: consume(follower.operations()), SPARK_KINDS, logs.folder),
        Contestant(SPARK, lambda _: consume(read_records(stage.spark, files)), SPARK_KINDS, logs.folder),
    ]
    results = alternate(contestants, repeat, stage.watch(), warm_up=logs.rounds - repeat, tell=tell)
    counts = follower.operations().count(), read_records(stage.spark, files).count()
    size = sum(file.stat().st_size for file in files) / 2**20
    return _case(
        f"{counts[1]:,} records read",
        f"{size:.0f} MiB of staging files into a sink that keeps nothing",
        results,
        {(OURS, SPARK): READING_AIM},
        is_right=counts[0] == counts[1],
    )


class Follower:
    """Our table, which follows the staging files that have arrived."""

    def __init__(
        self, stage: Stage, logs: OperationLogs, name: str = TABLE, *, by_spark: bool = True
    ) -> None:
        self._stage = stage
        self._engine: dict[str, Any] = {"spark": stage.spark} if by_spark else {"local": LOCAL_OPTIONS}
        self._logs = logs
        self._name = f"default.{name}"
        self._staging = stage.new_folder("staging")
        self._arrived = self._staging / SERVICE / DATABASE / SOURCE_TABLE
        self._arrived.mkdir(parents=True)
        self._source = TungstenSource(
            self._staging, SERVICE, columns={f"{DATABASE}.{SOURCE_TABLE}": ROW_COLUMNS}
        )
        self.table = stage.tables.create(stage.spark, name, "id")

    def receive(self, number: int) -> None:
        """Let the files of a round arrive."""
        for file in self._logs.staging_files(number):
            os.link(file, self._arrived / file.name)

    def ingest(self, number: int) -> None:
        """Bring the table up to them."""
        with open_client(self._stage.metastore.uri) as metastore:
            followed = [TableMapping(SOURCE_TABLE, self._name, ("id",))]
            report = ingest(metastore, followed, self._source, **self._engine)
        if report.position is None:
            raise RuntimeError("the log had nothing new")

    def operations(self) -> DataFrame:
        """All operations of the files."""
        with self._stage.tables.client(self._name.partition(".")[2]) as client:
            target = client.open_snapshot(self._name).table(self._name)
        tables = [SourceTable(SOURCE_TABLE, target, ("id",))]
        return read_source(self._stage.spark, self._source, tables, {}).tables[0].operations

    def content(self) -> Content:
        """What the table holds."""
        with self._stage.tables.client(self._name.partition(".")[2]) as client:
            return checksums(
                read_table(client.open_snapshot(self._name), self._name, spark=self._stage.spark)
            )


class Rewriter:
    """A table of plain ORC files, written anew in each round."""

    def __init__(self, stage: Stage, logs: OperationLogs) -> None:
        self._spark = stage.spark
        self._logs = logs
        self.folder = stage.new_folder("rewritten")
        self._newest = self.folder / "first"
        self._write(self._spark.read.parquet(stage.base))

    def rewrite(self, number: int) -> None:
        """Keep the last record of each key, and write the rows of all others and these."""
        records = read_records(self._spark, self._logs.staging_files(number))
        newest_first = Window.partitionBy("id").orderBy(sf.desc("seqno"), sf.desc("row_no"))
        ranked = records.withColumn("rank", sf.row_number().over(newest_first))
        last = ranked.where("rank = 1").drop("rank")
        others = self.rows().join(last.select("id"), "id", "left_anti").select(*ROW_COLUMNS)
        now = others.unionByName(last.where("op = 'I'").select(*ROW_COLUMNS))
        self._newest = self.folder / f"round-{number}"
        self._write(now)

    def rows(self) -> DataFrame:
        """What the newest files hold."""
        return self._spark.read.orc(str(self._newest))

    def _write(self, rows: DataFrame) -> None:
        rows.write.option("compression", "zlib").orc(str(self._newest))


def read_records(spark: SparkSession, files: list[Path]) -> DataFrame:
    """Staging files, by Spark's reader of CSV."""
    reader = spark.read.schema(CSV_COLUMNS).option("sep", "\x01").option("nullValue", r"\N")
    return reader.option("quote", "").csv([str(file) for file in files])


def _case(
    label: str, text: str, results: list[Result], aims: Mapping[tuple[str, str], float], *, is_right: bool
) -> dict[str, Any]:
    found = {result.name: result for result in results if result.usages}
    pairs = [(a, b) for a in (OURS, LOCAL) for b in (SPARK, DELTA) if a in found and b in found]
    return {
        "case": label,
        "text": f"{text}; contents are {'the same' if is_right else 'DIFFERENT'}.",
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {f"{ours} / {peer}": compared(found[ours], found[peer]) for ours, peer in pairs},
        "aims": {f"{ours} / {peer}": {"wall": aim} for (ours, peer), aim in aims.items()},
        "is_right": is_right and not any(result.failure for result in results),
    }
