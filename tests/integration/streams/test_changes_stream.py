"""``hive_changes``: a query of Spark reads what changed, with restarts at any step, nothing twice."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from mutation_api import HiveChangesSource, connect
from mutation_api.spark.versions import has_read_limits
from tests.fixtures.fix_clock import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LINES = pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)


class Crash(Exception):
    """Ends a query at some step of a batch."""


class Query:
    """A table that Hive changes, and a query that writes each batch into a folder of its own."""

    def __init__(self, judge: HiveJudge, database: str, spark: SparkSession, folder: Path) -> None:
        self.judge, self.spark, self.folder = judge, spark, folder
        self.name = f"{database}.orders"
        judge.sql(
            f"CREATE TABLE {self.name} (id bigint, item string, price decimal(9,2), parts array<int>) "
            "CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES "
            "('transactional'='true', 'transactional_properties'='default')"
        )
        spark.dataSource.register(HiveChangesSource)

    def insert(self, *ids: int) -> None:
        """By Hive's SQL."""
        rows = " UNION ALL ".join(f"SELECT {id}, 'item {id}', {id}.50, array({id}, 7)" for id in ids)
        self.judge.sql(f"INSERT INTO {self.name} {rows}")

    def changes(self, **options: str) -> DataFrame:
        """The stream."""
        options = {"table": self.name, "metastore": self.judge.uri, "since": "beginning", **options}
        return self.spark.readStream.format("hive_changes").options(**options).load()

    def run(self, before: Any = None, after: Any = None, **options: str) -> None:
        """Run to the end of what is there; ``before`` and ``after`` are called with each batch's number."""

        def write(batch: DataFrame, number: int) -> None:
            if before is not None:
                before(number)
            batch.write.mode("overwrite").parquet(str(self.folder / "out" / f"batch={number}"))
            if after is not None:
                after(number)

        writer = self.changes(**options).writeStream.foreachBatch(write)
        checkpoint = str(self.folder / "checkpoint")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    def batches(self) -> dict[int, Counter[str]]:
        """The rows of each batch."""
        found = {}
        for path in sorted((self.folder / "out").iterdir()):
            rows = self.spark.read.parquet(str(path)).collect()
            found[int(path.name.split("=")[1])] = Counter(str(row.asDict(recursive=True)) for row in rows)
        return found

    def check(self, since: str) -> None:
        """What was written is the whole at the beginning and then what the local feed has."""
        first, *others = self.batches().values()
        with connect(self.judge.uri) as hive, hive.changes(self.name, since=since) as feed:
            expected = Counter(
                str(row) for each in feed for row in each.tables[self.name].to_arrow().to_pylist()
            )
        assert first and sum(others, Counter()) == expected

    def position(self) -> str:
        """The position of now."""
        with connect(self.judge.uri) as hive, hive.changes(self.name, since="now") as feed:
            return feed.position


@pytest.fixture
def query(hive_line: HiveJudge, line_database: str, spark: SparkSession, tmp_path: Path) -> Query:
    """A table with two rows."""
    found = Query(hive_line, line_database, spark, tmp_path)
    found.insert(1, 2)
    return found


def crash_at(number: int) -> Callable[[int], None]:
    """A step that fails in one batch."""

    def fail(current: int) -> None:
        if current == number:
            raise Crash

    return fail


@LINES
def test_a_query_that_crashes_goes_on(query: Query) -> None:
    """Before and after a batch was written, with a compaction in between; batches keep their content."""
    since = query.position()
    query.run()
    query.insert(3)
    query.judge.sql(f"UPDATE {query.name} SET item = 'new' WHERE id = 1")
    query.judge.sql(f"DELETE FROM {query.name} WHERE id = 2")
    limit = {"maxTransactionsPerTrigger": "1"}
    with pytest.raises(StreamingQueryException):
        query.run(before=crash_at(1), **limit)
    query.judge.compact(query.name, "minor")
    with pytest.raises(StreamingQueryException):
        query.run(after=crash_at(2), **limit)
    seen = query.batches()
    assert list(seen) == [0, 1, 2]
    query.insert(4)
    query.run(**limit)
    found = query.batches()
    assert list(found) == [0, 1, 2, 3, 4] and {number: found[number] for number in seen} == seen
    query.run()
    assert query.batches() == found
    query.check(since)


KILLS = 6


def run_and_kill(query: Query, death: float | None) -> None:
    """Run it in a process, which is killed so many seconds after its next batch was planned."""
    command = [sys.executable, "-m", "tests.integration.drivers.changes_driver", query.judge.uri, query.name]
    log, offsets = query.folder / "log", query.folder / "checkpoint" / "offsets"
    planned = len(list(offsets.glob("*")))
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [*command, str(query.folder)], stdout=subprocess.PIPE, stderr=errors, cwd=ROOT
        )
    with process:
        assert process.stdout is not None and process.stdout.readline() == b"starting\n", log.read_text()
        if death is not None:
            wait_until(
                lambda: process.poll() is not None or len(list(offsets.glob("*"))) > planned, "the next batch"
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(death)
            process.kill()
            return
        process.wait()
        assert process.returncode == 0, log.read_text()[-3000:]


@pytest.mark.long
@LINES
def test_a_query_that_is_killed_loses_and_repeats_nothing(query: Query) -> None:
    """At random times, with more changes and a compaction in between; Spark's sink keeps each batch once."""
    rng = random.Random(5)
    run_and_kill(query, None)
    since, first = query.position(), query.spark.read.parquet(str(query.folder / "out")).collect()
    for kill in range(KILLS):
        for at in range(3):
            query.insert(10 * kill + at + 10)
            query.judge.sql(f"UPDATE {query.name} SET item = concat(item, 'u') WHERE id = {10 * kill + 10}")
        if kill == KILLS // 2:
            query.judge.compact(query.name, "minor")
        run_and_kill(query, rng.uniform(0, 3))
    run_and_kill(query, None)
    rows = query.spark.read.parquet(str(query.folder / "out")).collect()
    found = Counter(str(row.asDict(recursive=True)) for row in rows)
    with connect(query.judge.uri) as hive, hive.changes(query.name, since=since) as feed:
        later = [str(row) for each in feed for row in each.tables[query.name].to_arrow().to_pylist()]
    assert found == Counter([*later, *(str(row.asDict(recursive=True)) for row in first)])


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_compaction_above_the_checkpoint_ends_the_query(query: Query) -> None:
    """With the library's error, in the message of Spark's; wrong options have theirs at the load."""
    query.run()
    query.insert(3)
    query.judge.compact(query.name, "major")
    with pytest.raises(StreamingQueryException, match="DirectoryStateError: changes since this position"):
        query.run()
    assert list(query.batches()) == [0]
    with pytest.raises(PySparkException, match="ConfigurationError: hive_changes has no option key"):
        query.changes(key="id")


@pytest.mark.long
@LINES
def test_a_hold_survives_major_compactions(query: Query, tmp_path: Path) -> None:
    """The query goes on without an end, while Hive compacts and its cleaner runs between two batches."""
    start = query.position()
    options = {"hold": "600", "since": start}
    if has_read_limits():
        options["maxTransactionsPerTrigger"] = "2"
    out = str(tmp_path / "followed")
    writer = query.changes(**options).writeStream.format("parquet").option("path", out)
    running = writer.option("checkpointLocation", str(tmp_path / "followed-checkpoint")).start()
    try:
        for number in range(3):
            running.processAllAvailable()
            for id in range(10 * number + 10, 10 * number + 13):
                query.insert(id)
            query.judge.sql(f"DELETE FROM {query.name} WHERE id = {10 * number + 10}")
            with contextlib.suppress(HiveError):  # Hive 4 refuses before it has cleaned up after the last one
                query.judge.compact(query.name, "major", clean=False)
            query.judge.cleaner()
        running.processAllAvailable()
    finally:
        running.stop()
    changes = query.spark.read.parquet(out).select("_change", "id").collect()
    expected = [(kind, 10 * n + 10) for n in range(3) for kind in ("insert", "delete")]
    expected += [("insert", 10 * n + at) for n in range(3) for at in (11, 12)]
    assert sorted(map(tuple, changes)) == sorted(expected)
