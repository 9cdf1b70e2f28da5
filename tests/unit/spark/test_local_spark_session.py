"""The local session: what it takes from this machine, and that it logs nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TIMEOUT_SECONDS = 300
PROGRAM = """
import sys
import pyarrow
from mutation_api import local_spark_session

def executable(batches):
    yield from (pyarrow.record_batch({"path": [sys.executable]}) for batch in batches if batch.num_rows)

settings = {"spark.driver.extraJavaOptions": "-Dmine=yes"}
with local_spark_session("mine", master="local[1]", settings=settings) as spark:
    java = spark.sparkContext._jvm.java.lang.System.getProperty("mine")
    python = spark.range(1).mapInArrow(executable, "path string").collect()[0][0]
    print(spark.sparkContext.appName, spark.sparkContext.master, java, python == sys.executable)
"""


def test_a_program_prints_only_its_own_output() -> None:
    """Spark says nothing at its start or end; the caller's Java options stay; workers run this Python."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine local[1] yes True\n", "")
