"""Sources of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.shops import MySqlShopSource, PostgresSource, Source, SqliteSource

KINDS = ("postgresql", "mysql", "sqlite")


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A new database in a source; its kind is an indirect parameter."""
    kind = request.param
    if kind == "postgresql":
        server, name = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_database")
        return PostgresSource(server, name)
    if kind == "mysql":
        server, name = request.getfixturevalue("mysql"), request.getfixturevalue("mysql_database")
        return MySqlShopSource(server, name)
    return SqliteSource(tmp_path)


@pytest.fixture
def either_engine(source: Source, engine_session: SparkSession | None) -> None:
    """Tables of the source are extracted without Spark, and in a long run by Spark, too."""
    source.spark = engine_session
