"""Spark for tests: one local session for the whole run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from judges.judge import SPEED_OPTIONS
from metastore_client.java import JavaNotFoundError
from mutation_api.spark.session import local_session
from tests import class_archive
from tests.class_archive import SUBMIT_OPTIONS_VARIABLE

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
    options = list(SMALL_JOBS)
    with contextlib.suppress(JavaNotFoundError):  # who needs Java says what is missing
        options += class_archive.reading_options(class_archive.archive_path())
    os.environ[SUBMIT_OPTIONS_VARIABLE] = " ".join(options)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and up to two attempts for a task; its workers run this interpreter."""
    class_archive.make(class_archive.archive_path())
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
