"""Two to eight writers of one table, with each kind of lock and of change: no key twice, no update lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from mutation_api import Hive, connect
from mutation_api.errors import WriteConflictError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PARTITIONS = 3
KEYS = 4
TURNS = 4
"""Transactions of each writer."""
ATTEMPTS = 200
"""After so many conflicts of one change something else is wrong."""
HIVES_TURNS = 2
HIVES_KEY = 5000
"""The first key that Hive's MERGE inserts; no other writer has it."""
EXCLUSIVE_MERGES = {"hive.txn.xlock.mergeinsert": "true"}
"""Without it two MERGEs of Hive 4 may insert one key, whoever the other writer is."""
TRY_AGAIN = ("conflict", "Conflict", "aborted", "get file permissions")
"""Of Hive's errors: another writer won, or Hive listed a directory in which a hidden one was just removed."""


@dataclass
class Writers:
    """A table ``k, n, p``: each change but a replacement adds to the sum of n what ``added`` says.

    A replacement makes one row of a partition's rows, with the sum of their n.
    """

    judge: HiveJudge
    name: str
    is_partitioned: bool
    added: int = 0
    failures: list[BaseException] = field(default_factory=list)
    conflicts: int = 0
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _next_key: int = 1000

    def work(self, number: int, seed: int) -> None:
        """Do some transactions, each again as long as another writer committed first."""
        try:
            choice = random.Random(f"{seed} {number}")
            modes = ["exclusive"] if self.judge.line == "3.1" else ["exclusive", "optimistic"]
            with connect(self.judge.uri, write_lock=choice.choice(modes), lock_timeout_seconds=600) as hive:
                for _ in range(TURNS):
                    self._once(
                        hive, choice.choice([self._append, self._merge, self._merge, self._replace]), choice
                    )
        except BaseException as error:
            self.failures.append(error)

    def work_by_hive(self, seed: int) -> None:
        """Hive's own MERGE as another writer; that of 3.1 may insert a key that another one inserts, too."""
        choice = random.Random(seed)
        try:
            for turn in range(HIVES_TURNS):
                key, partition = choice.randrange(KEYS), choice.randrange(PARTITIONS)
                self._by_hive(f"update {self.name} set n = n where k = {key}")
                if self.judge.line == "3.1":
                    continue
                self._by_hive(
                    f"merge into {self.name} t using (select {HIVES_KEY + turn} as k, {partition} as p "
                    f"union all select {key} as k, {partition} as p) s on t.k = s.k and t.p = s.p "
                    "when matched then update set n = t.n "
                    f"when not matched and s.k >= {HIVES_KEY} then insert values (s.k, 1, s.p)"
                )
                self._add(1)
        except BaseException as error:
            self.failures.append(error)

    def _by_hive(self, statement: str) -> None:
        """Again until it succeeds: twice is as once, since it may fail behind its commit."""
        for _ in range(ATTEMPTS):
            try:
                self.judge.sql(statement, settings=EXCLUSIVE_MERGES)
            except HiveError as error:
                if not any(text in str(error) for text in TRY_AGAIN):
                    raise
                continue
            return
        raise AssertionError(f"{ATTEMPTS} conflicts of Hive")

    def _once(self, hive: Hive, change: Callable[[Hive, random.Random], int], choice: random.Random) -> None:
        for _ in range(ATTEMPTS):
            try:
                self._add(change(hive, choice))
            except WriteConflictError:
                with self._mutex:
                    self.conflicts += 1
                continue
            return
        raise AssertionError(f"{ATTEMPTS} conflicts")

    def _add(self, count: int) -> None:
        with self._mutex:
            self.added += count

    def _append(self, hive: Hive, choice: random.Random) -> int:
        with self._mutex:
            self._next_key += 1
            key = self._next_key
        rows = _rows([(key, 1, choice.randrange(PARTITIONS))])
        alone = choice.random() < 0.5
        with hive.transaction(self.name, create_partitions=True, insert_only=alone) as tx:
            tx.table(self.name).append(rows)
        return 1

    def _merge(self, hive: Hive, choice: random.Random) -> int:
        keys = choice.sample([(k, p) for k in range(KEYS) for p in range(PARTITIONS)], choice.randint(1, 3))
        rows = _rows([(k, 1, p) for k, p in keys])
        with hive.transaction(self.name, create_partitions=True) as tx:
            merge = tx.table(self.name).merge(rows, on=["k", "p"])
            merge.when_matched_update({"n": pc.field("target", "n") + pc.field("source", "n")})
            merge.when_not_matched_insert_all().execute()
        return len(keys)

    def _replace(self, hive: Hive, choice: random.Random) -> int:
        partition = choice.randrange(PARTITIONS)
        with hive.transaction(self.name, create_partitions=True) as tx:
            table = tx.table(self.name)
            there = table.scan(row_ids=True, where=pc.field("p") == partition).to_arrow()
            if there.num_rows:
                table.delete(there)
            total = pc.sum(there["n"], min_count=0).as_py()
            table.append(_rows([(-1 - partition, total, partition)]))
        return 0


def _rows(rows: list[tuple[int, int, int]]) -> pa.Table:
    keys, numbers, partitions = zip(*rows, strict=True)
    kinds = (("k", pa.int32(), keys), ("n", pa.int64(), numbers), ("p", pa.int32(), partitions))
    return pa.table({name: pa.array(values, kind) for name, kind, values in kinds})


@pytest.mark.parametrize("layout", ["partitioned", "plain"])
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))])
@pytest.mark.parametrize("hive_line", [pytest.param("3.1", marks=pytest.mark.long), "4.1"], indirect=True)
def test_random_schedules(hive_line: HiveJudge, line_database: str, seed: int, layout: str) -> None:
    """Each change that was committed counts once, and Hive finds no key twice."""
    is_partitioned = layout == "partitioned"
    name = f"{line_database}.t"
    columns = "(k int, n bigint) partitioned by (p int)" if is_partitioned else "(k int, n bigint, p int)"
    hive_line.sql(
        f"create table {name} {columns} clustered by (k) into 2 buckets stored as orc "
        "tblproperties ('transactional'='true')"
    )
    writers = Writers(hive_line, name, is_partitioned)
    count = random.Random(seed).randint(2, 8)
    threads = [threading.Thread(target=writers.work, args=(each, seed)) for each in range(count)]
    threads.append(threading.Thread(target=writers.work_by_hive, args=(seed,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [str(each)[:500] for each in writers.failures] == []
    found = hive_line.sql(f"select count(*), count(distinct k, p), sum(n) from {name}")
    assert found[0][0] == found[0][1], hive_line.sql(f"select k, p, count(*) from {name} group by k, p")
    assert found[0][2] == writers.added
    with connect(hive_line.uri) as hive, hive.snapshot(name) as snapshot:
        ours = snapshot.table(name).scan(["n"]).to_arrow()
    assert pc.sum(ours["n"]).as_py() == writers.added
