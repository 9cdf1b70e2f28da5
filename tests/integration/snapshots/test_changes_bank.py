"""A bank whose accounts are in two tables: each transaction of the feed leaves the sum as it was."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from mutation_api import Hive, HiveTransaction, connect
from tests.integration.snapshots.test_changes_judged import run_cleaner

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

ACCOUNTS = 20
START = 100
SECONDS = 90.0
WRITERS = 2


class Bank:
    """Accounts of even numbers in one table, the others in another one; and their balances by the feed."""

    def __init__(self, judge: HiveJudge, hive: Hive, database: str) -> None:
        self.judge, self.hive = judge, hive
        self.names = (f"{database}.even", f"{database}.odd")
        for name in self.names:
            judge.sql(
                f"CREATE TABLE {name} (id bigint, balance bigint) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS "
                "ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='default')"
            )
        with hive.transaction(*self.names) as tx:
            for parity, name in enumerate(self.names):
                ids = range(parity, ACCOUNTS, 2)
                balances = pa.array([START] * len(ids), pa.int64())
                tx.table(name).append(pa.table({"id": pa.array(ids, pa.int64()), "balance": balances}))
        self.balances: dict[int, int] = {}
        self.since = "beginning"
        self.looks = self.transactions = 0

    def transfer(self, hive: Hive, rng: random.Random) -> None:
        """Move an amount from an account of one table to one of the other."""
        even, odd = rng.randrange(0, ACCOUNTS, 2), rng.randrange(1, ACCOUNTS, 2)
        amount = rng.randrange(-50, 50)

        def moved(tx: HiveTransaction) -> None:
            for name, id, change in zip(self.names, (even, odd), (amount, -amount), strict=True):
                tx.table(name).update(set={"balance": f"balance + {change}"}, where=f"id = {id}")

        hive.run(moved, *self.names)

    def look(self) -> None:
        """Follow the feed; the sum is constant after each of its transactions."""
        with self.hive.changes(*self.names, since=self.since, on=["id"], hold=600) as feed:
            for transaction in feed:
                for table in transaction.tables.values():
                    for row in table.to_arrow().to_pylist():
                        if row["_change"] in ("delete", "update_before"):
                            assert self.balances.pop(row["id"]) == row["balance"]
                    for row in table.to_arrow().to_pylist():
                        if row["_change"] in ("insert", "update_after"):
                            assert self.balances.setdefault(row["id"], row["balance"]) == row["balance"]
                assert sum(self.balances.values()) == ACCOUNTS * START
                assert len(self.balances) == ACCOUNTS
                self.transactions += 1
            self.since = feed.position
        self.looks += 1

    def compact(self, rng: random.Random) -> None:
        """Compact a table, and let the cleaner run. Hive refuses while a hold keeps it from cleaning up."""
        with contextlib.suppress(HiveError):
            self.judge.compact(rng.choice(self.names), rng.choice(["minor", "major"]), clean=False)
        run_cleaner(self.judge)


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_sum_is_constant_after_each_transaction(
    hive_line: HiveJudge, line_database: str, seed: int
) -> None:
    """While accounts change, tables are compacted, and the cleaner runs."""
    ended = threading.Event()

    def write(number: int) -> int:
        count, rng = 0, random.Random(100 * seed + number)
        with connect(hive_line.uri) as hive:
            while not ended.is_set():
                bank.transfer(hive, rng)
                count += 1
        return count

    def compact() -> None:
        rng = random.Random(seed)
        while not ended.is_set():
            bank.compact(rng)
            ended.wait(1)

    with connect(hive_line.uri) as hive, ThreadPoolExecutor(WRITERS + 1) as pool:
        bank = Bank(hive_line, hive, line_database)
        writers = [pool.submit(write, number) for number in range(WRITERS)]
        compactor = pool.submit(compact)
        try:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end and not any(each.done() for each in (*writers, compactor)):
                bank.look()
        finally:
            ended.set()
        written = sum(each.result() for each in writers)
        compactor.result()
        bank.look()
        found = [row for name in bank.names for row in hive_line.sql(f"SELECT id, balance FROM {name}")]
        assert bank.balances == {int(str(id)): int(str(balance)) for id, balance in found}
        assert bank.transactions == written + 1
