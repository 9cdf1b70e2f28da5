"""Jobs on a real YARN: its containers have what the job brings, and what goes wrong there changes nothing.

Hive, which shares nothing with the job but HDFS and the metastore, says which rows there are.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_yarn import SubmittedJob, YarnCluster, submit
from tests.integration.clusters.rows_of_job import JOB, check_rows, create_table
from tests.integration.storages.remote_table import check_nothing_is_left

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True),
]

ROWS = 6000
ONE_A_MACHINE = {"spark.executor.memory": "2g", "spark.executor.memoryOverhead": "1300m"}
"""Executors of which a NodeManager has no room for two."""
ALONE = {"spark.executor.instances": "1"}
"""For faults that need no second executor: a JVM less."""


@pytest.fixture
def table(hive_on_hdfs: HiveJudge, database_on_hdfs: str) -> str:
    """An empty partitioned table on HDFS."""
    return create_table(hive_on_hdfs, f"{database_on_hdfs}.t")


@pytest.fixture
def markers(tmp_path: Path) -> Path:
    """An empty folder for faults that happen once."""
    folder = tmp_path / "markers"
    folder.mkdir()
    return folder


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """An empty folder for what Spark logs of jobs."""
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


def run(
    yarn: YarnCluster,
    hive: HiveJudge,
    table: str,
    markers: Path,
    fault: str = "",
    *,
    mode: str = "cluster",
    rows: int = ROWS,
    settings: Mapping[str, str] | None = None,
) -> SubmittedJob:
    """Submit the job."""
    words = (hive.uri, table, str(rows), str(markers), fault)
    return submit(yarn, JOB, words, mode=mode, settings=settings)


def check_brought(place: Mapping[str, Any]) -> None:
    """A container's Python: the interpreter, the library and all packages come from the job's archive.

    It names itself by where the archive was unpacked, or by the link to that in the container's folder.
    """
    assert "/usercache/" in place["folder"], place
    is_link = place["python"].startswith(f"{place['folder']}/python/")
    assert is_link or "/filecache/" in place["python"], place
    root = place["python"].partition("/bin/")[0]
    assert place["library"].startswith(f"{root}/lib/"), place
    brought = ("/filecache/", "/usercache/", "/pyspark/jars/spark-core_")  # the last is Spark's own
    foreign = [each for each in place["path"] if each.startswith("/") and not any(b in each for b in brought)]
    assert foreign == [], place
    assert ".venv" not in place["PATH"], place


def spark_events(folder: Path) -> list[dict[str, Any]]:
    """All events that Spark logged in a folder."""
    files = [
        file for file in folder.rglob("*") if file.is_file() and "events" in file.name + file.parent.name
    ]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def logged(events: Path) -> dict[str, str]:
    """Settings with which Spark logs its events in plain files."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def reasons(found: Sequence[Mapping[str, Any]]) -> set[str]:
    """Why tasks ended."""
    return {each["Task End Reason"]["Reason"] for each in found if each["Event"] == "SparkListenerTaskEnd"}


def repeated_stages(found: Sequence[Mapping[str, Any]]) -> set[int]:
    """Stages of which there was a second attempt."""
    infos = [each["Stage Info"] for each in found if each["Event"] == "SparkListenerStageSubmitted"]
    return {info["Stage ID"] for info in infos if info["Stage Attempt ID"] > 0}


def count(found: Sequence[Mapping[str, Any]], event: str) -> int:
    """How often an event was logged."""
    return sum(each["Event"] == f"SparkListener{event}" for each in found)


@pytest.mark.long
def test_a_job_that_brings_its_python(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path
) -> None:
    """Driver and executor, each in a container, have nothing else; Hive has every row once."""
    found = run(yarn, hive_on_hdfs, table, markers, rows=600, settings=ALONE).result()
    for each in [found["driver"], *found["tasks"]]:
        check_brought(each)
    check_rows(hive_on_hdfs, table, 600)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["cluster", "client"])
def test_an_executor_dies(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, mode: str
) -> None:
    """With all that it shuffled, when it writes. In client mode the driver is a program of this machine."""
    found = run(yarn, hive_on_hdfs, table, markers, "executor dies", mode=mode).result()
    assert (markers / "executor").exists()
    for each in found["tasks"]:
        check_brought(each)
    check_rows(hive_on_hdfs, table, ROWS)


@pytest.mark.long
@pytest.mark.parametrize("fault", ["task raises", "worker dies"])
def test_a_lost_attempt(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, fault: str
) -> None:
    """The first attempt at each task fails: it is tried again."""
    run(yarn, hive_on_hdfs, table, markers, fault, settings=ALONE).result()
    check_rows(hive_on_hdfs, table, ROWS)


@pytest.mark.long
@pytest.mark.parametrize(("fault", "most"), [("task raises", "1"), ("task always raises", "2")])
def test_as_many_failures_as_spark_allows(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, fault: str, most: str
) -> None:
    """``spark.task.maxFailures`` is reached: the job fails, and Hive has what was there before."""
    settings = {**ALONE, "spark.task.maxFailures": most, "spark.yarn.maxAppAttempts": "1"}
    done = run(yarn, hive_on_hdfs, table, markers, fault, settings=settings)
    assert done.exit_code != 0
    assert done.application.final_status == "FAILED"
    assert "the disk is on fire" in done.logs, done.told()
    check_first_rows_only(hive_on_hdfs, table)


@pytest.mark.long
def test_shuffled_data_is_lost(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, events: Path
) -> None:
    """Tasks cannot fetch their input: the stage before is repeated, and tasks that had written already."""
    run(yarn, hive_on_hdfs, table, markers, "shuffle is lost", settings=logged(events)).result()
    found = spark_events(events)
    assert "FetchFailed" in reasons(found), reasons(found)
    assert repeated_stages(found)
    check_rows(hive_on_hdfs, table, ROWS)


@pytest.mark.long
def test_executors_come_and_go(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, events: Path
) -> None:
    """Dynamic allocation: the idle are given back, others come, and one dies with what it shuffled."""
    settings = {
        **logged(events),
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "3",
        "spark.dynamicAllocation.initialExecutors": "1",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",  # Spark counts whole seconds
        "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    }
    run(yarn, hive_on_hdfs, table, markers, "executor dies", settings=settings).result()
    found = spark_events(events)
    assert count(found, "ExecutorAdded") > 2
    assert count(found, "ExecutorRemoved") > 1
    check_rows(hive_on_hdfs, table, ROWS)


@pytest.mark.long
def test_an_executor_is_decommissioned(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path
) -> None:
    """It hands over what it shuffled while it writes."""
    settings = {
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
    }
    done = run(yarn, hive_on_hdfs, table, markers, "executor is decommissioned", settings=settings)
    done.result()
    assert (markers / "decommissioned").exists()
    assert "decommission" in done.logs.lower()
    check_rows(hive_on_hdfs, table, ROWS)


@pytest.mark.long
def test_a_twin_of_a_slow_task(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, events: Path
) -> None:
    """A task stalls when it has begun its file; one on the other machine wins, and its files alone count."""
    settings = {
        **logged(events),
        **ONE_A_MACHINE,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    run(yarn, hive_on_hdfs, table, markers, "task stalls", settings=settings).result()
    assert (markers / "stalled").exists()
    ends = [each for each in spark_events(events) if each["Event"] == "SparkListenerTaskEnd"]
    won = [each for each in ends if each["Task Info"]["Speculative"] and not each["Task Info"]["Killed"]]
    assert won, reasons(ends)
    check_rows(hive_on_hdfs, table, ROWS)


@pytest.mark.long
@pytest.mark.parametrize("attempts", [1, 2])
def test_the_driver_dies_before_the_commit(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, attempts: int
) -> None:
    """Everything is written, nothing committed. One attempt: nothing of the transaction is there. With a
    second, YARN runs the whole program again, also its first transaction, which had been committed. So a
    program whose repetition changes more must be allowed one attempt only.
    """
    settings = {**ALONE, "spark.yarn.maxAppAttempts": str(attempts)}
    if attempts > 1:
        threading.Thread(target=end_transactions, args=(yarn, hive_on_hdfs, markers), daemon=True).start()
    done = run(yarn, hive_on_hdfs, table, markers, "driver dies", settings=settings)
    assert done.application.attempts == attempts, done.told()
    if attempts == 1:
        assert done.exit_code != 0
        check_first_rows_only(hive_on_hdfs, table)
    else:
        done.result()
        query = f"SELECT count(*), sum(if(id < {ROWS}, 1, 0)) FROM {table}"
        kept = sum(n % 3 != 1 for n in range(ROWS))
        assert hive_on_hdfs.sql(query) == [[2 * kept + ROWS, 2 * kept]]


@pytest.mark.long
@pytest.mark.parametrize("round_", range(3))
def test_executors_die_at_random(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, markers: Path, round_: int
) -> None:
    """Up to three of them, at any task."""
    settings = {"spark.task.maxFailures": "8", "spark.yarn.max.executor.failures": "20"}
    run(yarn, hive_on_hdfs, table, markers, "executors die at random", settings=settings).result()
    check_rows(hive_on_hdfs, table, ROWS)


def end_transactions(yarn: YarnCluster, hive: HiveJudge, markers: Path) -> None:
    """What Hive does after five minutes without a heartbeat of a driver, as soon as it is dead."""
    wait_until((markers / "driver").exists, "the death of the driver", 300)
    wait_until(lambda: yarn.yarn.applications()[-1].attempts > 1, "the second driver", 60)
    hive.time_out_transactions(0)


def check_first_rows_only(hive: HiveJudge, table: str) -> None:
    """The first transaction's rows, and nothing that the second left once it is over."""
    hive.time_out_transactions(0)
    query = f"SELECT count(*), count(DISTINCT id), sum(id), sum(if(msg = 'new', 1, 0)) FROM {table}"
    assert hive.sql(query) == [[ROWS, ROWS, ROWS * (ROWS - 1) // 2, 0]]
    with open_client(hive.uri) as metastore:
        check_nothing_is_left(metastore, table.partition(".")[0])
