"""Tables of a real MariaDB followed by tables of real Hive 2.3: a random workload in slices, and deaths."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.hive.hive_judges import Hive23
from judges.mysql import MySqlJudge
from metastore_client.errors import NoSuchTxnError, TxnAbortedError
from metastore_client.model import ColumnInfo, TableInfo, TxnState
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api.cdc.mysql.server import PASSWORD_VARIABLE
from mutation_api.cli import engine_arguments, spark_engine
from mutation_api.cli.main import main
from mutation_api.format.hive_type import parse_hive_type
from tests.integration.drivers.ingesting_driver import ingest_all, source_of
from tests.integration.files.hive_values import read_back
from tests.integration.ingests.mysql_workload import (
    KEYS,
    TABLES,
    Workload,
    create_tables,
    hive_types,
    in_order,
    source_rows,
)
from tests.integration.upkeep.soundness import check_sound

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DEATH_TIMEOUT_SECONDS = 300.0
LONG_TIMEOUT_SECONDS = 1800.0

_numbers = itertools.count(1)


class Pair:
    """The same tables in MariaDB and in Hive."""

    def __init__(
        self, mysql: MySqlJudge, database: str, hive: Hive23, metastore: ThriftMetastoreClient
    ) -> None:
        self.mysql = mysql
        self.database = database
        self.hive = hive
        self.metastore = metastore
        self.hive_database = f"followed{next(_numbers)}"
        metastore.create_database(self.hive_database)
        create_tables(mysql, database)
        for table in TABLES:
            self._create(table)

    def ingest(self, spark: SparkSession | None) -> None:
        """Bring Hive up to MariaDB, by Spark or here."""
        with source_of(self.mysql.port, self.database) as source:
            ingest_all(self.metastore, spark, source, self.hive_database)

    def check(self) -> int:
        """Hive's reader gives what SELECT gives; tells how many rows that are."""
        count = 0
        for table in TABLES:
            expected = source_rows(self.mysql, self.database, table)
            assert self.hive_rows(table) == expected
            assert check_sound(self.metastore, f"{self.hive_database}.{table}").row_count == len(expected)
            count += len(expected)
        return count

    def hive_rows(self, table: str) -> list[list[Any]]:
        """The rows as Hive reads them, in the common form, sorted."""
        types = [parse_hive_type(kind) for kind in hive_types(table).values()]
        found = self.hive.table_rows(f"{self.hive_database}.{table}", row_ids=False, reader="row")
        return in_order(
            [[read_back(value, kind) for value, kind in zip(row.values, types, strict=True)] for row in found]
        )

    def die(self, last_step: int) -> int:
        """Run a driver of its own, which kills itself before a step; 0 lets it live, and gives its steps."""
        user = f"mortal{next(_numbers)}"
        arguments = (self.hive.uri, user, self.mysql.port, self.database, self.hive_database, last_step)
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.drivers.ingesting_driver", *map(str, arguments)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEATH_TIMEOUT_SECONDS,
            check=False,
        )
        self._abort(user)
        assert done.returncode in (0, -signal.SIGKILL)
        return int(done.stdout or 0)

    def _abort(self, user: str) -> None:
        """Do at once what the server does to the dead after a while."""
        for txn in self.metastore.get_open_txns().txns:
            if txn.user == user and txn.state is TxnState.OPEN:
                try:
                    self.metastore.abort_txn(txn.id)
                except (NoSuchTxnError, TxnAbortedError):
                    continue  # its last words reached the server after all

    def _create(self, table: str) -> None:
        self.metastore.create_table(
            TableInfo(
                database=self.hive_database,
                name=table,
                columns=tuple(ColumnInfo(name, kind) for name, kind in hive_types(table).items()),
                num_buckets=2,
                bucket_columns=KEYS[table][:1],
                parameters={"transactional": "true"},
            )
        )


@pytest.fixture
def pair(
    mysql: MySqlJudge, mysql_database: str, hive: Hive23, live_metastore: ThriftMetastoreClient
) -> Iterator[Pair]:
    """Empty tables on both sides."""
    yield Pair(mysql, mysql_database, hive, live_metastore)


def test_the_command_follows_a_table(
    pair: Pair, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First all rows, by Spark since they are many; then what changed, then nothing; the password is in no
    line.
    """
    monkeypatch.setenv(PASSWORD_VARIABLE, pair.mysql.password)
    # The command stops the Spark that it starts; here it would be everybody's.
    monkeypatch.setattr(spark_engine, "spark_session", lambda name: contextlib.nullcontext(spark))
    rows = ", ".join(f"('many', {number}, 1.00, 'x')" for number in range(100, 1100))
    pair.mysql.sql(f"INSERT INTO {pair.database}.customers VALUES {rows}")
    monkeypatch.setattr(engine_arguments, "LOCAL_FILE_BYTES_MAX", 10_000)
    source = f"mysql://{pair.mysql.user}@127.0.0.1:{pair.mysql.port}/{pair.database}"
    command = ["ingest", "mysql", "--source", source, "--tables", "customers"]
    command += ["--database", pair.hive_database, "--metastore", pair.hive.uri]
    said = []
    for statements in (
        ["INSERT INTO customers VALUES ('north', 1, 2.50, 'a'), ('south', 2, NULL, NULL)"],
        ["UPDATE customers SET region = 'east' WHERE number = 1", "DELETE FROM customers WHERE number = 2"],
        [],
    ):
        for statement in statements:
            pair.mysql.sql(statement.replace("customers", f"{pair.database}.customers"))
        assert main(command) == 0
        said.append("".join(capsys.readouterr()))
        assert pair.hive_rows("customers") == source_rows(pair.mysql, pair.database, "customers")
    assert [line.endswith(" (spark)") for line in said[0].splitlines()].count(True) == 1
    assert "applied in transaction" in said[1]
    assert " (local)" in said[1]
    assert "nothing new" in said[2]
    assert pair.mysql.password not in "".join(said)


@pytest.mark.long
@pytest.mark.timeout(LONG_TIMEOUT_SECONDS)
@pytest.mark.parametrize("seed", range(3))
def test_slices_of_a_random_workload_leave_hive_like_the_source(
    pair: Pair, spark: SparkSession, seed: int
) -> None:
    """Thousands of statements; after each slice, the first of which is the full select, Hive's rows are the
    source's.
    """
    follow_slices(pair, spark, random.Random(seed), slices=12, transactions=100)


@pytest.mark.long  # test_ingest.py kills drivers always; here the log is a server's
def test_a_driver_that_is_killed_at_any_step_loses_and_repeats_nothing(
    pair: Pair, spark: SparkSession
) -> None:
    """Killed at any step of the first run or a later one, the next run goes on where the last commit was."""
    die_and_follow(pair, spark, random.Random(11), deaths=2)


@pytest.mark.long
@pytest.mark.timeout(LONG_TIMEOUT_SECONDS)
@pytest.mark.parametrize("seed", range(2))
def test_many_deaths(pair: Pair, spark: SparkSession, seed: int) -> None:
    """The same, oftener."""
    die_and_follow(pair, spark, random.Random(seed), deaths=15)


def follow_slices(
    pair: Pair, spark: SparkSession, rng: random.Random, *, slices: int, transactions: int
) -> None:
    """Change the source and follow, here and by Spark in turn; compare each time."""
    with Workload(pair.mysql, pair.database, rng) as workload:
        for number in range(slices):
            workload.run(rng.randint(1, transactions))
            pair.ingest(spark if number % 2 else None)
            assert pair.check()


def die_and_follow(pair: Pair, spark: SparkSession, rng: random.Random, *, deaths: int) -> None:
    """Between changes of the source a driver dies; the tables are compared after the one that follows it."""
    steps = 40
    with Workload(pair.mysql, pair.database, rng) as workload:
        for _ in range(deaths):
            workload.run(10)
            steps = pair.die(rng.randint(1, steps)) or steps
            workload.run(10)
            pair.ingest(spark)
            pair.check()
