"""Spark for tests: one local session for the whole run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from judges.judge import SPEED_OPTIONS
from mutation_api.spark.session import local_session

SUBMIT_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
SMALL_JOBS = (
    *SPEED_OPTIONS,
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    "-Dspark.sql.shuffle.partitions=4",
)
"""Java options for sessions that have little to do at a time: nothing is compiled that runs once.

Spark itself reads them from the environment, so they hold for the programs that tests start, too.
"""


def pytest_configure() -> None:
    """Let all sessions of the run start quickly."""
    os.environ[SUBMIT_OPTIONS_VARIABLE] = " ".join(SMALL_JOBS)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and up to two attempts for a task; its workers run this interpreter."""
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.python.daemon.module": "tests.warm_daemon",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    with local_session("tests", master="local[2,2]", settings=settings) as session:
        yield session
