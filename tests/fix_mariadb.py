"""A real MariaDB server for the run, and a database in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from judges.mariadb import MariaDb
from tests.fix_judge import note_judge

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mariadb(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """MariaDB with row-based logging; without it every test that asks fails."""
    with MariaDb(tmp_path_factory.mktemp("mariadb")) as server:
        note_judge(request.config, server.description)
        yield server


@pytest.fixture
def mariadb_database(mariadb: MariaDb) -> Iterator[str]:
    """A new database in MariaDB; dropped after the test."""
    name = f"shop{next(_numbers)}"
    mariadb.sql(f"CREATE DATABASE {name}")
    yield name
    mariadb.sql(f"DROP DATABASE {name}")
