"""Real Hive as a judge; one JVM for the whole run, started by the first test that asks for it.

A judge that cannot start ends the run: a run without its judges proves nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from judges.errors import JudgeError
from judges.hive import Hive23
from metastore_client.java import JavaNotFoundError

_JUDGES = pytest.StashKey[list[str]]()
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Make room for the names of the judges that this run uses."""
    used: list[str] = []
    config.stash[_JUDGES] = used


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which judges were used, and say it also if there was none."""
    used: list[str] = config.stash[_JUDGES]
    terminalreporter.write_line(f"judges: {'; '.join(used) or 'none used'}")


def note_judge(config: pytest.Config, description: str) -> None:
    """Add a judge to the summary of this run."""
    if description not in config.stash[_JUDGES]:
        config.stash[_JUDGES].append(description)


@pytest.fixture(scope="session")
def hive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hive23]:
    """Real Hive 2.3.10: metastore over Thrift, SQL, compactor, readers, hash."""
    try:
        judge = Hive23(tmp_path_factory.mktemp("hive"))
    except (JudgeError, JavaNotFoundError) as error:
        pytest.exit(f"the judge does not start: {error}", returncode=3)
    with judge:
        note_judge(request.config, judge.description)
        yield judge


@pytest.fixture
def hive_database(hive: Hive23) -> Iterator[str]:
    """A new database in the judge's metastore; dropped with its tables after the test."""
    name = f"d{next(_numbers)}"
    hive.sql(f"CREATE DATABASE {name}")
    yield name
    hive.time_out_transactions(0)  # a lock that the test left behind would make the DROP wait
    hive.sql(f"DROP DATABASE {name} CASCADE")
