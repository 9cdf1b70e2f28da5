"""Sources of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shops import MariaDbSource, PostgresSource, Source, SqliteSource

KINDS = ("postgresql", "mysql", "sqlite")


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A new database in a source; its kind is an indirect parameter."""
    kind = request.param
    if kind == "postgresql":
        server, name = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_database")
        return PostgresSource(server, name)
    if kind == "mysql":
        server, name = request.getfixturevalue("mariadb"), request.getfixturevalue("mariadb_database")
        return MariaDbSource(server, name)
    return SqliteSource(tmp_path)
