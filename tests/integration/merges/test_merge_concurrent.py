"""A bank's accounts in two tables, and several who merge transfers into both at the same time.

One of them is a process of its own and is killed at some moment, over and over. Money moves
from one table to the other, so the sum is right in a snapshot of Hive's only if that has all of a transfer or
none of it.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from metastore_client.errors import NoSuchTxnError, TxnAbortedError
from metastore_client.model import ColumnInfo, TxnState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from metastore_client.valid_ids import ValidTxnList
from mutation_api import merge_into
from mutation_api.errors import TransactionAbortedError
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_judge import new_database
from tests.integration.conftest import MakeTable
from tests.integration.drivers.merging_driver import ACCOUNTS, client_of, transfer
from tests.integration.transactions.live_table import LiveTable

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
BALANCE = 100
TOTAL = 2 * len(ACCOUNTS) * BALANCE
MERGERS = 2
"""Threads beside the process that is killed; each has a client of its own."""

WORDS_BEFORE_DEATH = 12
"""Three transfers' worth: somewhere among them the process is killed."""

DEATH_TIMEOUT_SECONDS = 400.0
READING_TRIES = 20
_numbers = count(1)


@dataclass
class Bank:
    """Two tables, and how Hive reads their sum in one snapshot."""

    uri: str
    tables: Sequence[str]
    read_total: Callable[[], int]
    metastore: ThriftMetastoreClient
    write_lock: str = "exclusive"
    transfers: list[str] = field(default_factory=list)
    """User by user, as they were committed."""
    conflicts: list[TransactionAbortedError] = field(default_factory=list)

    def fill(self, spark: SparkSession) -> None:
        """Open all accounts in one transaction."""
        rows = spark.createDataFrame(pa.table({"id": [*ACCOUNTS], "balance": [BALANCE] * len(ACCOUNTS)}))
        with client_of(self.uri, "founder", self.tables) as client, client.new_transaction() as transaction:
            for table in self.tables:
                merge = merge_into(transaction, table, source=rows, on=["id"])
                assert merge.whenNotMatched().insertAll().execute().total.inserted == len(ACCOUNTS)

    def total(self) -> int:
        """The sum as Hive reads it; on a local disk its listing fails if a directory that it does not even
        read goes away meanwhile: a hidden one, as those of a commit do, or the delta of one who lost.
        """
        for _ in range(READING_TRIES):
            try:
                return self.read_total()
            except HiveError as error:
                if "No such file or directory" not in str(error):
                    raise
        pytest.fail(f"Hive could not list the tables in {READING_TRIES} tries")

    def merge_until(self, is_over: threading.Event, spark: SparkSession, user: str, at_least: int) -> None:
        """Make transfers, each tried again until it succeeds."""
        rng = random.Random(user)
        done = 0
        with client_of(self.uri, user, self.tables, write_lock=self.write_lock) as client:
            while done < at_least or not is_over.is_set():
                try:
                    transfer(spark, client, self.tables, rng)
                except TransactionAbortedError as conflict:
                    self.conflicts.append(conflict)
                else:
                    done += 1
                    self.transfers.append(user)

    def kill_one(self, rng: random.Random) -> None:
        """Start a process that merges, kill it at some moment, and end its transactions as the server's
        reaper would after its timeout.
        """
        user = f"mortal-{next(_numbers)}"
        arguments = (self.uri, user, str(rng.random()), self.write_lock, *self.tables)
        command = [sys.executable, "-m", "tests.integration.drivers.merging_driver", *arguments]
        last_word = rng.randrange(1, WORDS_BEFORE_DEATH)
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            too_late = threading.Timer(DEATH_TIMEOUT_SECONDS, process.kill)
            too_late.start()
            assert process.stdout
            words = [process.stdout.readline() for _ in range(last_word)]
            threading.Event().wait(rng.uniform(0, 0.5))
            process.kill()
            too_late.cancel()
        assert words[-1], f"{user} ended by itself after {words}"
        for txn in self.metastore.get_open_txns().txns:
            if txn.user == user and txn.state is TxnState.OPEN:
                try:
                    self.metastore.abort_txn(txn.id)
                except (NoSuchTxnError, TxnAbortedError):
                    continue  # its last words reached the server after all


def check(bank: Bank, spark: SparkSession, *, deaths: int, at_least: int, seed: int) -> None:
    """Merge and die while Hive reads; the sum never changes."""
    bank.fill(spark)
    assert bank.total() == TOTAL
    rng = random.Random(seed)
    is_over = threading.Event()
    seen = []
    with ThreadPoolExecutor(MERGERS + 1) as pool:
        working: list[Future[None]] = [
            pool.submit(bank.merge_until, is_over, spark, f"merger-{n}", at_least) for n in range(MERGERS)
        ]

        def die() -> None:
            try:
                for _ in range(deaths):
                    bank.kill_one(rng)
            finally:
                is_over.set()

        working.append(pool.submit(die))
        while wait(working, timeout=0.2).not_done:
            seen.append(bank.total())
    for future in working:
        future.result()
    seen.append(bank.total())
    assert set(seen) == {TOTAL}, seen
    assert len(bank.transfers) >= MERGERS * at_least
    for conflict in bank.conflicts:
        assert "committed first" in str(conflict), conflict


@pytest.mark.long
def test_the_sum_is_the_same_in_every_snapshot(make_table: MakeTable, spark: SparkSession) -> None:
    """Hive's own reader, with one list of valid transactions for both tables."""
    columns = "id bigint, balance bigint"
    tables = [make_table(columns=columns, keys="", layout=layout) for layout in ("legacy", "default")]
    first = tables[0]

    def total() -> int:
        valid = ValidTxnList.from_open_txns(first.metastore.get_open_txns(), None)
        return sum(_balance(table, valid) for table in tables)

    with open_client(first.hive.uri) as metastore:
        bank = Bank(first.hive.uri, [table.full_name for table in tables], total, metastore)
        check(bank, spark, deaths=6, at_least=6, seed=1)


def _balance(table: LiveTable, valid: ValidTxnList) -> int:
    return sum(row.values[1] for row in table.rows(valid))


@pytest.fixture
def bank_of_line(hive_line: HiveJudge) -> Iterator[Bank]:
    """Where tables have write ids: one bucketed, one not; where there is the choice nobody waits."""
    with new_database(hive_line) as database, open_client(hive_line.uri) as metastore:
        tables = [f"{database}.bucketed", f"{database}.plain"]
        columns = (ColumnInfo("id", "bigint"), ColumnInfo("balance", "bigint"))
        create_acid_table(metastore, tables[0], columns, clustered_by=["id"], num_buckets=2)
        create_acid_table(metastore, tables[1], columns)
        both = " UNION ALL ".join(f"SELECT balance FROM {table}" for table in tables)

        def total() -> int:
            ((found,),) = hive_line.sql(f"SELECT sum(balance) FROM ({both}) accounts")
            return int(found)

        has_choice = metastore.capabilities().has_exclusive_write_lock
        write_lock = "optimistic" if has_choice else "exclusive"
        yield Bank(hive_line.uri, tables, total, metastore, write_lock)


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
def test_the_sum_is_the_same_in_every_snapshot_of_sql(bank_of_line: Bank, spark: SparkSession) -> None:
    """One statement of Hive's SQL reads both tables."""
    check(bank_of_line, spark, deaths=3, at_least=4, seed=2)
