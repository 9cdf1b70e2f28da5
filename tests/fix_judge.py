"""Real Hive as a judge; one JVM a line for the whole run, started by the first test that asks for it.

A judge that cannot start fails every test that asks for it: a run without its judges proves nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import pytest

from judges.hive import NOTIFICATIONS, Hive23, Hive31, Hive41, HiveJudge
from tests.run_notes import NOTES

LINES = ("2.3", "3.1", "4.1")
"""The lines of Hive, as parameters of ``hive_line``."""

FIXTURES = {"2.3": "hive", "3.1": "hive31", "4.1": "hive41"}

Judge = TypeVar("Judge", bound=HiveJudge)

_numbers = itertools.count(1)


def note_judge(config: pytest.Config, description: str) -> None:
    """Add a judge to the summary of this run."""
    config.stash[NOTES].judges.add(description)


@pytest.fixture(scope="session")
def hive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hive23]:
    """Real Hive 2.3.10: metastore over Thrift, SQL, compactor, readers, hash."""
    with started(Hive23, request, tmp_path_factory) as judge:
        yield judge


@pytest.fixture(scope="session")
def hive31(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hive31]:
    """Real Hive 3.1.3: metastore over Thrift, SQL, compactor, hash."""
    with started(Hive31, request, tmp_path_factory) as judge:
        yield judge


@pytest.fixture(scope="session")
def hive41(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hive41]:
    """Real Hive 4.1.0: metastore over Thrift, SQL, compactor, hash."""
    with started(Hive41, request, tmp_path_factory) as judge:
        yield judge


@pytest.fixture(scope="session")
def hive31_notifying(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hive31]:
    """Real Hive 3.1.3 that keeps its log of events; a JVM of its own."""
    with started(Hive31, request, tmp_path_factory, NOTIFICATIONS) as judge:
        yield judge


@pytest.fixture(scope="session")
def hive41_notifying(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Hive41]:
    """Real Hive 4.1.0 with DML events on, which keeps its write-notification log; a JVM of its own."""
    with started(Hive41, request, tmp_path_factory, NOTIFICATIONS) as judge:
        yield judge


@pytest.fixture(scope="session")
def hive_line(request: pytest.FixtureRequest) -> HiveJudge:
    """Give the judge of the line that an indirect parameter names: ``2.3``, ``3.1`` or ``4.1``.

    ``@pytest.mark.parametrize("hive_line", LINES, indirect=True)`` runs a test on each.
    """
    judge: HiveJudge = request.getfixturevalue(FIXTURES[request.param])
    return judge


@contextmanager
def started(
    kind: type[Judge],
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    configuration: Mapping[str, str] | None = None,
) -> Iterator[Judge]:
    """Start a judge, with settings of its own if a test needs them; without it every test that asks fails."""
    with kind(tmp_path_factory.mktemp("hive"), configuration) as judge:
        note_judge(request.config, judge.description)
        yield judge


@pytest.fixture
def hive_database(hive: Hive23) -> Iterator[str]:
    """A new database in the metastore of Hive 2.3; dropped with its tables after the test."""
    with new_database(hive) as name:
        yield name


@pytest.fixture
def line_database(hive_line: HiveJudge) -> Iterator[str]:
    """A new database in the metastore of ``hive_line``; dropped with its tables after the test."""
    with new_database(hive_line) as name:
        yield name


@contextmanager
def new_database(judge: HiveJudge) -> Iterator[str]:
    """Make a database with a name of its own, and drop it with its tables at the end."""
    name = f"d{next(_numbers)}"
    judge.sql(f"CREATE DATABASE {name}")
    yield name
    judge.time_out_transactions(0)  # a lock that the test left behind would make the DROP wait
    judge.sql(f"DROP DATABASE {name} CASCADE")
