"""Spark's classes in an archive that a JVM maps into memory: a program of ours starts in half the time.

The archive is made of the classes that a small job, this module as a program, has loaded at its end. A JVM
that finds no archive, or one of other jars, loads its classes one by one as ever, without a word.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from judges.jars import cache_directory
from metastore_client.java import find_java, spark_jars
from mutation_api.spark.local_spark_session import local_spark_session

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 900
SUBMIT_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options for the JVM of each Spark program, read by Spark itself."""


def archive_path() -> Path:
    """Where the archive for this Java and these jars lies, or will lie."""
    jars = "".join(f"{jar.name} {jar.stat().st_mtime_ns}\n" for jar in sorted(spark_jars().iterdir()))
    key = hashlib.sha256(f"{_java_home()}\n{spark_jars()}\n{jars}".encode()).hexdigest()[:16]
    return cache_directory() / "classes" / f"spark-{key}.jsa"


def reading_options(archive: Path) -> tuple[str, ...]:
    """Options for a JVM that reads the archive if it is there and fits."""
    return ("-Xshare:auto", f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")


def make(archive: Path) -> None:
    """Make the archive, unless it is there or somebody else is at it; takes as long as two starts of Spark.

    Raises:
        subprocess.SubprocessError: the job failed or took too long.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if not archive.exists():
            _make(archive)


@functools.cache
def _java_home() -> Path:
    """Where the JVM itself lies; the program that starts it may be a script elsewhere."""
    command = [find_java(), "-XshowSettings:properties", "-version"]
    told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_SECONDS).stderr
    (home,) = [line.partition("=")[2].strip() for line in told.splitlines() if "java.home =" in line]
    return Path(home)


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix="archive-") as work:
        classes = Path(work) / archive.name
        options = [f"-XX:ArchiveClassesAtExit={classes}", "-Xlog:disable"]
        if not (_java_home() / "lib" / "server" / "classes.jsa").exists():
            base = archive.with_suffix(".base.jsa")
            dump = [find_java(), "-Xshare:dump", f"-XX:SharedArchiveFile={base}", "-Xlog:disable"]
            subprocess.run(dump, check=True, capture_output=True, timeout=TIMEOUT_SECONDS)
            options.append(f"-XX:SharedArchiveFile={base}")
        before = os.environ.get(SUBMIT_OPTIONS_VARIABLE, "").split()
        kept = [option for option in before if option not in reading_options(archive)]
        environment = os.environ | {SUBMIT_OPTIONS_VARIABLE: " ".join([*kept, *options])}
        command = [sys.executable, "-m", __name__, work]
        subprocess.run(
            command, check=True, capture_output=True, timeout=TIMEOUT_SECONDS, env=environment, cwd=ROOT
        )
        classes.rename(archive)


def _use_spark(folder: Path) -> None:
    """Use what the tests use, so that its classes are loaded."""
    settings = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    with local_spark_session("archive", master="local[2]", settings=settings) as spark:
        rows = spark.range(1000).selectExpr("id", "id % 10 AS k", "cast(id AS string) AS msg").cache()
        rows.createOrReplaceTempView("v")
        spark.sql("SELECT k, count(*), max(msg) FROM v GROUP BY k ORDER BY k").collect()
        mapped = rows.repartition(4, "k").sortWithinPartitions("id").mapInArrow(lambda b: b, rows.schema)
        mapped.write.orc(str(folder / "rows"))
        spark.read.orc(str(folder / "rows")).join(rows, "id", "left_anti").toArrow()
        spark.createDataFrame([(1, "a")], "id bigint, msg string").union(rows.select("id", "msg")).count()


if __name__ == "__main__":
    _use_spark(Path(sys.argv[1]))
