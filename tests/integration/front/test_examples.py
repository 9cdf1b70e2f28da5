"""Every example runs as it stands and ends with status 0; those that show more, as a program."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from examples import spark_job, two_tables
from metastore_client.embedded.server import EmbeddedMetastore
from mutation_api.cli.terminal import EXIT_INTERRUPTED
from tests.fixtures.fix_clock import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_SECONDS = 500


def run(module: str, *arguments: str) -> str:
    """Run an example; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{module}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_plain_python_example_runs_the_fourteen_steps_of_hives_api() -> None:
    """The procedure of Hive's own API, in its order, without Spark; starts a metastore of its own."""
    assert "[(1, 'bolt', 150, 'east'), (3, 'gear', 7, 'west')]" in run("plain_python")


@pytest.mark.long
def test_a_table_is_changed_and_read_without_spark() -> None:
    """As Arrow, in a few lines; starts a metastore of its own."""
    printed = run("without_spark")
    assert "upserted: MergeCounts(inserted=1, updated=1, deleted=0, moved=0, unchanged=0)" in printed
    assert "[('coffee', '5.20'), ('green tea', '3.50'), ('juice', '2.50')]" in printed


Show = Callable[[ModuleType], str]


@pytest.fixture
def show(
    spark: SparkSession,
    embedded_metastore: EmbeddedMetastore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Show:
    """Runs an example on the Spark and the metastore that tests have; returns what it printed."""

    def run_here(example: ModuleType) -> str:
        monkeypatch.setattr(example, "local_spark_session", lambda: contextlib.nullcontext(spark))
        assert example.main([embedded_metastore.uri]) == 0
        return capsys.readouterr().out

    return run_here


@pytest.mark.long
def test_spark_job(show: Show) -> None:
    """Insert, update and delete from one DataFrame."""
    printed = show(spark_job)
    assert "1 inserted, 2 updated, 1 deleted" in printed
    assert "spade" in printed


def test_example_of_a_transfer_changes_both_tables_or_none(show: Show) -> None:
    """A transfer is in both tables or in none."""
    printed = show(two_tables)
    assert "1: 750, 2: 1250, 3: 1000, 4: 1000" in printed
    assert "journal [(1, 2, 250)]" in printed


@pytest.mark.long
def test_mariadb_to_hive() -> None:
    """Copied, followed, and nothing new; the rows are the same on both sides."""
    printed = run("mariadb_to_hive")
    assert printed.count("applied in transaction") == 2
    assert "nothing new" in printed


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments", [(), *(("--hive", line) for line in ("3.1", "4.1", "4.2"))], ids=" ".join
)
def test_demo(arguments: tuple[str, ...]) -> None:
    """The demo on real input, on each line: its numbers, and that Hive's own reading equals each release
    after its transaction, and the last one after the aborted one.
    """
    printed = run("demo", *arguments)
    dry = "would merge 2,148 inserted, 25,968 updated, 2,883 deleted, 14 moved, 0 unchanged"
    assert dry in printed
    assert dry.replace("would merge", "merged") in printed
    assert "merged 281 inserted, 27,549 updated, 185 deleted, 1 moved, 395 unchanged" in printed
    assert "NOTE" not in printed
    assert printed.count("equal, row for row") == 4
    assert "Hive's own reading equals release 20240806, row for row." in printed


@pytest.mark.long
def test_stream_demo() -> None:
    """From MariaDB to a second Hive, with a kill in a batch; in the end all three are equal."""
    printed = run("demo", "--stream", "--rows", "5000")
    assert "killed the streaming query in the middle of a batch (kill -9)" in printed
    *_, last = printed.splitlines()
    assert " equal, " in last


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_feed_demo(seed: int) -> None:
    """From MariaDB through Hive and Kafka to a second database, with compactions and kills."""
    printed = run("demo", "--feed", "--rows", "1000", "--rounds", "3", "--seed", str(seed))
    assert "major compactions" in printed
    assert printed.count("killed (kill -9) and started again; all have made the trip") == 2
    *_, last = printed.splitlines()
    assert " equal, " in last


@pytest.mark.long
@pytest.mark.parametrize("moment", ["starting a Hive 2.3 metastore", "merging", "real Hive reads the table"])
def test_ctrl_c_stops_everything_that_the_demo_started(moment: str, tmp_path: Path) -> None:
    """Interrupted as from a terminal, the demo leaves no process and no temporary file behind."""
    temporary, log = tmp_path / "tmp", tmp_path / "log"
    temporary.mkdir()
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "examples.demo"],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(temporary)},
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: f"{moment} …" in log.read_text() or demo.poll() is not None,
            f"{moment!r} in {log}",
            TIMEOUT_SECONDS,
        )
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.wait(TIMEOUT_SECONDS) == EXIT_INTERRUPTED, log.read_text()
    finally:
        demo.kill()
        demo.wait()
    wait_until(lambda: not processes_with(f"TMPDIR={temporary}"), "the end of all processes", 60)
    assert "interrupted; everything that was started is stopped" in log.read_text()
    assert list(temporary.iterdir()) == []


def processes_with(setting: str) -> list[int]:
    """Processes that inherited an environment setting, however they were started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if setting.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue  # it has ended meanwhile, or belongs to somebody else
    return found
