"""Spark for tests: one local session for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from judges.judge import SPEED_OPTIONS
from mutation_api.spark.session import local_session

SMALL_JOBS = {"spark.driver.extraJavaOptions": " ".join(SPEED_OPTIONS)}
"""Setting of a session that has little to do; it takes a quarter of the CPU of a random merge away."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores and up to two attempts for a task; its workers run this interpreter."""
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        **SMALL_JOBS,
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    with local_session("tests", master="local[2,2]", settings=settings) as session:
        yield session
