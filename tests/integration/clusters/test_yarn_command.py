"""``hive-mutate`` on a real YARN: how a command that is refused there ends here, and Hive has what it had."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import MiniHdfs
from mutation_api.cli import main as command
from mutation_api.cli.terminal import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from tests.fixtures.fix_yarn import (
    PYTHON,
    YarnCluster,
    put_text,
    submitting_environment,
    write_defaults,
)
from tests.integration.clusters.rows_of_job import create_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("hive_on_hdfs", ["2.3"], indirect=True),
]

ROOT = Path(__file__).parents[3]
TIMEOUT_SECONDS = 500
ONE_EXECUTOR = ("--spark-conf", "spark.executor.instances=1")
BEFORE = [[1, "before", "d1"]]
TWICE = "id,msg,ds\n1,one,d1\n1,other,d1\n"


@pytest.fixture
def table(hive_on_hdfs: HiveJudge, database_on_hdfs: str) -> str:
    """A table with a row."""
    name = create_table(hive_on_hdfs, f"{database_on_hdfs}.t")
    hive_on_hdfs.sql(f"INSERT INTO {name} PARTITION (ds = 'd1') VALUES (1, 'before')")
    return name


@pytest.fixture
def twice(hdfs: MiniHdfs, table: str) -> str:
    """A file in HDFS with two rows of one key: a task on an executor finds that."""
    return put_text(hdfs, f"/tests/clusters/{table}/twice.csv", TWICE)


def run(words: list[str], yarn: YarnCluster, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program that submits, with our Python."""
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        cwd=folder,
        env={
            **submitting_environment(yarn.conf),
            "PYTHONPATH": str(ROOT),
            "SPARK_CONF_DIR": str(write_defaults(folder / "spark")),
        },
    )


def on_yarn(yarn: YarnCluster, hive: HiveJudge, mode: str) -> list[str]:
    """Words for ``--master yarn``."""
    archive = yarn.archive.removesuffix("#python")
    place = ["--master", "yarn", "--deploy-mode", mode, "--python-archive", archive]
    return [*place, *ONE_EXECUTOR, "--metastore", hive.uri]


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_task_refuses(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, twice: str, tmp_path: Path, mode: str
) -> None:
    """Wherever the driver runs, the last line here is the library's own message, and the exit code is 1.
    YARN has the message, too.
    """
    words = ["merge", "--table", table, "--key", "id", "--source", twice]
    program = [sys.executable, "-m", command.__name__]
    done = run([*program, *words, *on_yarn(yarn, hive_on_hdfs, mode)], yarn, tmp_path)
    assert done.returncode == EXIT_FAILED, done.stderr[-3000:]
    told = done.stderr.splitlines()[-1]
    assert told.startswith("hive-mutate merge: DuplicateKeyError: "), done.stderr[-3000:]
    assert table in told
    if mode == "cluster":
        assert told in yarn.yarn.applications()[-1].diagnostics
    check_unchanged(hive_on_hdfs, table)


def test_the_driver_on_the_cluster_refuses(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, twice: str, tmp_path: Path
) -> None:
    """Contradicting options are wrong usage there as here."""
    words = ["merge", "--table", table, "--key", "id", "--source", twice, "--no-update", "--no-insert"]
    program = [sys.executable, "-m", command.__name__]
    done = run([*program, *words, *on_yarn(yarn, hive_on_hdfs, "cluster")], yarn, tmp_path)
    assert done.returncode == EXIT_USAGE, done.stderr[-3000:]
    assert done.stderr.splitlines()[-1] == (
        "hive-mutate merge: error: --no-update and --no-insert leave nothing to do"
    )
    check_unchanged(hive_on_hdfs, table)


@pytest.mark.parametrize("is_there", [True, False])
def test_under_spark_submit(
    yarn: YarnCluster, hive_on_hdfs: HiveJudge, table: str, hdfs: MiniHdfs, tmp_path: Path, is_there: bool
) -> None:
    """``spark-submit`` shows what YARN knows of the end: our message, if there is no such table."""
    source = put_text(hdfs, f"/tests/clusters/{table}/once.csv", "id,msg,ds\n1,after,d1\n")
    name = table if is_there else f"{table}_gone"
    options = {
        "spark.archives": yarn.archive,
        "spark.pyspark.python": PYTHON,
        "spark.executor.instances": "1",
    }
    words = [
        str(Path(submitting_environment(yarn.conf)["SPARK_HOME"]) / "bin" / "spark-submit"),
        *("--master", "yarn", "--deploy-mode", "cluster"),
        *(word for option, text in options.items() for word in ("--conf", f"{option}={text}")),
        *(command.__file__, "merge", "--table", name, "--key", "id", "--source", source),
        *("--metastore", hive_on_hdfs.uri),
    ]
    done = run(words, yarn, tmp_path)
    if is_there:
        assert done.returncode == EXIT_OK, done.stderr[-3000:]
        assert hive_on_hdfs.sql(f"SELECT id, msg, ds FROM {table}") == [[1, "after", "d1"]]
    else:
        assert done.returncode == EXIT_FAILED
        assert "hive-mutate ended with 1: hive-mutate merge: " in done.stderr, done.stderr[-3000:]
        assert name in done.stderr.partition("hive-mutate ended with")[2]
        check_unchanged(hive_on_hdfs, table)


def check_unchanged(hive: HiveJudge, table: str) -> None:
    """The row is as before."""
    assert hive.sql(f"SELECT id, msg, ds FROM {table}") == BEFORE
