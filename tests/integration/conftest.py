"""Tables in the judge's metastore, made and read without SQL."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyspark.sql import SparkSession

from judges.hive.hive_judges import Hive23
from judges.hive.judge import HiveJudge
from judges.mysql import MySqlJudge
from metastore_client.model import TxnState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.cli import spark_engine
from mutation_api.cli.main import main
from tests.fixtures.fix_hive_elsewhere import judge_elsewhere
from tests.fixtures.fix_judge import new_database
from tests.integration.ingests.followed_tables import FollowedTables
from tests.integration.storages.remote_table import check_nothing_is_left
from tests.integration.transactions.live_table import LAYOUTS, FilledTable, LiveTable

_numbers = itertools.count(1)

_JUDGE_OF_DATABASE = {
    "database_elsewhere": "hive_elsewhere",
    "database_on_s3": "hive_on_s3",
    "database_on_hdfs": "hive_on_hdfs",
    "hive_database": "hive",
    "line_database": "hive_line",
}
"""Fixtures that give a database of a test's own, and those that give its judge."""


Run = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs ``hive-mutate`` with these words."""


class MakeTable(Protocol):
    """Makes a table; see LiveTable.create."""

    def __call__(self, **how: Any) -> LiveTable: ...


@pytest.fixture(scope="session")
def live_metastore(hive: Hive23) -> Iterator[ThriftMetastoreClient]:
    """One client of the judge's metastore for all tests."""
    with open_client(hive.uri) as metastore:
        yield metastore


@pytest.fixture(scope="module")
def live_database(live_metastore: ThriftMetastoreClient) -> str:
    """A database for the tables of one module; a table of its own for each test needs no other."""
    name = f"live{next(_numbers)}"
    live_metastore.create_database(name)
    return name


@pytest.fixture
def own_transactions(live_metastore: ThriftMetastoreClient) -> Iterator[None]:
    """Abort what the test leaves open, so that its locks are gone."""
    last_before = live_metastore.get_open_txns().high_watermark
    yield
    for txn in live_metastore.get_open_txns().txns:
        if txn.id > last_before and txn.state is TxnState.OPEN:
            live_metastore.abort_txn(txn.id)


@pytest.fixture
def make_table(
    hive: Hive23,
    live_metastore: ThriftMetastoreClient,
    live_database: str,
    own_transactions: None,
    request: pytest.FixtureRequest,
) -> Iterator[MakeTable]:
    """Make tables for one test; an indirect parameter ``hdfs`` or ``s3`` says that they lie there."""
    storage = getattr(request, "param", "local")
    if storage == "local":
        yield functools.partial(LiveTable.create, hive, live_metastore, live_database)
        return
    with judge_elsewhere(storage, "2.3", request) as judge, new_database(judge) as database:
        yield from _tables_elsewhere(judge, database)


@pytest.fixture
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the test, when its transactions are over and were swept, nothing of ours lies hidden in the
    tables of its database, on whatever storage.
    """
    name = next(each for each in _JUDGE_OF_DATABASE if each in request.fixturenames)
    database: str = request.getfixturevalue(name)
    judge: HiveJudge = request.getfixturevalue(_JUDGE_OF_DATABASE[name])
    yield
    judge.time_out_transactions(0)
    with open_client(judge.uri) as metastore:
        check_nothing_is_left(metastore, database)


@pytest.fixture
def make_table_elsewhere(hive_elsewhere: HiveJudge, database_elsewhere: str) -> Iterator[MakeTable]:
    """Make tables for one test on a ``storage`` and for a ``line``, 2.3, that are its parameters."""
    yield from _tables_elsewhere(hive_elsewhere, database_elsewhere)


def _tables_elsewhere(judge: HiveJudge, database: str) -> Iterator[MakeTable]:
    """Afterwards nothing of ours is left in any of them."""
    assert isinstance(judge, Hive23)
    with open_client(judge.uri) as metastore:
        yield functools.partial(LiveTable.create, judge, metastore, database)
        judge.time_out_transactions(0)
        check_nothing_is_left(metastore, database)


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    """Both layouts of a Hive 2.3 table: ``legacy``, and ``default`` (split update)."""
    return str(request.param)


@pytest.fixture(scope="module")
def filled_tables(
    hive: Hive23, live_metastore: ThriftMetastoreClient, live_database: str
) -> dict[str, FilledTable]:
    """By layout: a table with twelve rows in each of two partitions, for tests that leave it unchanged."""
    return {each: FilledTable.fill(hive, live_metastore, live_database, each) for each in LAYOUTS}


@pytest.fixture
def filled(filled_tables: dict[str, FilledTable], own_transactions: None) -> FilledTable:
    """The filled table in legacy layout; tests leave it unchanged."""
    return filled_tables["legacy"]


@pytest.fixture
def filled_anew(
    hive: Hive23,
    live_metastore: ThriftMetastoreClient,
    live_database: str,
    own_transactions: None,
    layout: str,
) -> FilledTable:
    """A filled table of the test's own, in each layout."""
    return FilledTable.fill(hive, live_metastore, live_database, layout)


@pytest.fixture
def run_here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command in this process, on Spark that runs already; a process would start a JVM first.

    What a command caches it drops again, or Spark gives it to the next that reads files of these names.
    """
    spark.catalog.clearCache()  # what other tests left
    monkeypatch.setattr(spark_engine, "spark_session", lambda name: contextlib.nullcontext(spark))

    def run_command(*words: object) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main([str(word) for word in words])
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    yield run_command
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


@pytest.fixture
def mysql_tables(
    mysql: MySqlJudge,
    mysql_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    engine_session: SparkSession | None,
) -> Iterator[FollowedTables]:
    """A new database of MariaDB, and the commands by which Hive follows its tables."""
    made = FollowedTables(mysql, mysql_database, tmp_path, monkeypatch, capsys, engine_session)
    yield made
    made.close()
