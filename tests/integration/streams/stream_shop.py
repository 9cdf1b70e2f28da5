"""A streaming query over JSON files, the tables that it writes, and what they must hold."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from judges.hive.judge import HiveJudge
from mutation_api.cdc import (
    AppendRows,
    BatchReport,
    HistoryRows,
    HiveSink,
    MergeRows,
    OverwriteRows,
    ReduceLog,
    hive_sink,
)

FIRST_TIME = 1_700_000_000
COLUMNS = "number int, id int, item string, operation string"


def create_tables(judge: HiveJudge, database: str) -> None:
    """``events`` has every row, ``latest`` the last of each id, ``kept`` what operations leave.

    ``history`` has the versions of each id, and ``page`` the last file.
    """
    properties = "CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    judge.sql(f"CREATE TABLE {database}.events (number int, id int, item string) {properties}")
    judge.sql(f"CREATE TABLE {database}.latest (id int, item string) {properties}")
    judge.sql(f"CREATE TABLE {database}.kept (number int, id int, item string) {properties}")
    judge.sql(f"CREATE TABLE {database}.page (number int, id int, item string) {properties}")
    versions = "id int, item string, valid_from int, valid_to int"
    judge.sql(f"CREATE TABLE {database}.history ({versions}) {properties}")


def make_file(folder: Path, number: int, rows: int = 6) -> list[dict[str, Any]]:
    """The file of this number, always with the same rows; written at once, so that no reader sees a part."""
    rng = random.Random(number)
    made = [
        {
            "number": number * 100 + n,
            "id": rng.randrange(8),
            "item": rng.choice(["pen", "ink", "pad"]),
            "operation": rng.choice(["insert", "update", "delete"]),
        }
        for n in range(rows)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{number}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in made))
    os.utime(hidden, (FIRST_TIME + number, FIRST_TIME + number))  # Spark reads files in this order
    hidden.rename(folder / f"{number:05}.json")
    return made


def last_by_id(batch: DataFrame) -> DataFrame:
    """The row with the greatest number of each id."""
    last = sf.max(sf.struct("number", "item")).alias("last")
    return batch.groupBy("id").agg(last).select("id", "last.item")


def with_part(batch: DataFrame) -> DataFrame:
    """With the file's number, which orders the log and is no column of the table."""
    return batch.withColumn("part", sf.floor(sf.col("number") / 100))


def sink_of(
    uri: str, database: str, progress: Callable[[BatchReport], None], name: str, **options: Any
) -> HiveSink:
    """All kinds of actions without ROW__ID, in one transaction a batch."""
    return hive_sink(
        uri,
        name,
        AppendRows(f"{database}.events", rows=lambda batch: batch.drop("operation")),
        MergeRows(f"{database}.latest", on=["id"], rows=last_by_id),
        ReduceLog(f"{database}.kept", key=["id"], order_by=["part", "number"], rows=with_part),
        HistoryRows(f"{database}.history", key=["id"], sequence="number"),
        OverwriteRows(f"{database}.page", partitions=None, rows=lambda batch: batch.drop("operation")),
        progress=progress,
        **options,
    )


def started(spark: SparkSession, sink: HiveSink, files: Path, checkpoint: Path) -> Any:
    """The query, a file a batch, until there are no more."""
    return (
        spark.readStream.schema(COLUMNS)
        .option("maxFilesPerTrigger", 1)
        .json(str(files))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


@dataclass
class Shop:
    """The query in this process, and its tables."""

    judge: HiveJudge
    database: str
    spark: SparkSession
    folder: Path
    name: str = "shop"
    reports: list[BatchReport] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def files(self) -> Path:
        """What the query reads."""
        return self.folder / "in"

    @property
    def checkpoint(self) -> Path:
        """Spark's folder."""
        return self.folder / "checkpoint"

    def make(self, *numbers: int) -> None:
        """New files."""
        for number in numbers:
            self.rows += make_file(self.files, number)

    def run(
        self,
        *,
        then: Callable[[BatchReport], None] = lambda report: None,
        checkpoint: Path | None = None,
        **options: Any,
    ) -> list[BatchReport]:
        """Read what is new; returns the reports of this run. The options are those of ``hive_sink``."""
        reports: list[BatchReport] = []

        def progress(report: BatchReport) -> None:
            reports.append(report)
            then(report)

        sink = sink_of(self.judge.uri, self.database, progress, self.name, **options)
        query = started(self.spark, sink, self.files, checkpoint or self.checkpoint)
        try:
            sink.await_termination(query, 240)
        finally:
            query.stop()
        return reports

    def copy_checkpoint(self, name: str) -> Path:
        """A copy, as a backup would make it."""
        copied = self.folder / name
        shutil.copytree(self.checkpoint, copied)
        return copied

    def check(self) -> None:
        """Hive reads what the files say."""
        check_tables(self.judge, self.database, self.rows)


def check_tables(judge: HiveJudge, database: str, rows: list[dict[str, Any]]) -> None:
    """All tables hold what these rows, in this order, leave."""
    latest: dict[int, str] = {}
    kept: dict[int, list[Any]] = {}
    for row in rows:
        latest[row["id"]] = row["item"]
        kept.pop(row["id"], None)
        if row["operation"] != "delete":
            kept[row["id"]] = [row["number"], row["id"], row["item"]]
    events = sorted([row["number"], row["id"], row["item"]] for row in rows)
    assert sorted(judge.sql(f"SELECT number, id, item FROM {database}.events")) == events
    assert sorted(judge.sql(f"SELECT id, item FROM {database}.latest")) == sorted(map(list, latest.items()))
    assert sorted(judge.sql(f"SELECT number, id, item FROM {database}.kept")) == sorted(kept.values())
    page = [
        [row["number"], row["id"], row["item"]]
        for row in rows
        if row["number"] // 100 == rows[-1]["number"] // 100
    ]
    assert sorted(judge.sql(f"SELECT number, id, item FROM {database}.page")) == sorted(page)
    shown = judge.sql(
        f"SELECT id, item, valid_from, valid_to FROM {database}.history ORDER BY id, valid_from"
    )
    assert shown == _versions(rows)


def _versions(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """The history of each id; a delete after another, or before all else, has an empty interval."""
    found: list[list[Any]] = []
    for id_ in sorted({row["id"] for row in rows}):
        of_id = sorted((row for row in rows if row["id"] == id_), key=lambda row: int(row["number"]))
        ends = [*(row["number"] for row in of_id[1:]), None]
        after_state = False
        for row, end in zip(of_id, ends, strict=True):
            is_delete = row["operation"] == "delete"
            if not is_delete:
                found.append([id_, row["item"], row["number"], end])
            elif not after_state:
                found.append([id_, None, row["number"], row["number"]])
            after_state = not is_delete
    return found
