"""Hive answers ``count(*)`` from the number of rows that the metastore records; it stays right.

Whoever made the table, whoever filled it, through Hive's next statements and its compactions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api import Hive, HiveTransaction, connect, create_acid_table
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.verify.verify import verify_table
from tests.fixtures.fix_newest import HIVE_4

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ANSWERED = {"hive.compute.query.using.stats": "true"}
READ = {"hive.compute.query.using.stats": "false"}
MAKERS = ("hive", "us")
DAYS = ("a", "b")


@dataclass
class Counted:
    """A table of ``id``, ``item`` and ``day``; ``rows`` are the ids that it should have, by day."""

    judge: HiveJudge
    hive: Hive
    metastore: ThriftMetastoreClient
    name: str
    is_partitioned: bool
    rows: dict[str, set[int]] = field(default_factory=lambda: {day: set() for day in DAYS})
    next_id: int = 0

    def create(self, maker: str) -> None:
        """By Hive's SQL or by us."""
        data = "id int, item string"
        if maker == "hive":
            columns = (
                f"({data}) partitioned by (day string)" if self.is_partitioned else f"({data}, day string)"
            )
            self.judge.sql(
                f"create table {self.name} {columns} stored as orc tblproperties ('transactional'='true')"
            )
            return
        made = [ColumnInfo("id", "int"), ColumnInfo("item", "string")]
        day = [ColumnInfo("day", "string")]
        keys = day if self.is_partitioned else []
        create_acid_table(self.metastore, self.name, made if keys else made + day, keys)

    def new_ids(self, count: int = 3) -> list[int]:
        """Ids that were never used."""
        self.next_id += count
        return list(range(self.next_id - count, self.next_id))

    def check(self, step: str) -> None:
        """What Hive answers, with statistics (also of each day) and without."""
        expected = {day: len(self.rows[day]) for day in DAYS}
        by_day = {day: self._count(f" where day = '{day}'", ANSWERED) for day in DAYS}
        totals = [self._count("", settings) for settings in (ANSWERED, READ)]
        assert (by_day, totals) == (expected, [sum(expected.values())] * 2), step

    def _count(self, where: str, settings: dict[str, str]) -> int:
        ((count,),) = self.judge.sql(f"select count(*) from {self.name}{where}", settings=settings)
        return int(str(count))

    # -- steps -------------------------------------------------------------------------------------------
    def we_append(self, day: str) -> None:
        """Three rows."""
        with self._begin() as tx:
            self._append(tx, day, self.new_ids())

    def we_replace(self, day: str) -> None:
        """Delete a row and append one, in a transaction that may also create the partition."""
        gone = self._some(day)
        with self._begin() as tx:
            table = tx.table(self.name)
            is_gone = pc.field("id").isin(pa.array(gone, pa.int32())) & (pc.field("day") == day)
            if gone:
                table.delete(table.scan(row_ids=True, where=is_gone))
            self._append(tx, day, self.new_ids(1))
        self.rows[day] -= {*gone}

    def we_merge(self, day: str) -> None:
        """Update a row and insert two."""
        ids = self._some(day) + self.new_ids(2)
        with self._begin() as tx:
            merge = tx.table(self.name).merge(_rows(day, ids), on=["id", "day"])
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.rows[day] |= {*ids}

    def we_fail(self, day: str) -> None:
        """A transaction that is aborted when all was published."""
        ids = self.new_ids()
        with pytest.MonkeyPatch.context() as patch, pytest.raises(_LostError), self._begin() as tx:
            tx.table(self.name).append(_rows(day, ids))
            patch.setattr(Transaction, "_beat_and_check", _fails_at_second_call())

    def hive_inserts(self, day: str) -> None:
        """Three rows, one statement."""
        ids = self.new_ids()
        where = f" partition (day='{day}')" if self.is_partitioned else ""
        more = "" if self.is_partitioned else f", '{day}'"
        values = ", ".join(f"({id}, 'h'{more})" for id in ids)
        self.judge.sql(f"insert into table {self.name}{where} values {values}")
        self.rows[day] |= {*ids}

    def hive_updates(self, day: str) -> None:
        """One row."""
        for id in self._some(day):
            self.judge.sql(f"update {self.name} set item = 'u' where id = {id} and day = '{day}'")

    def hive_deletes(self, day: str) -> None:
        """One row."""
        gone = self._some(day)
        for id in gone:
            self.judge.sql(f"delete from {self.name} where id = {id} and day = '{day}'")
        self.rows[day] -= {*gone}

    def minor(self, day: str) -> None:
        """Hive's compaction of deltas."""
        self._compact("minor", day)

    def major(self, day: str) -> None:
        """Hive's compaction into a base."""
        self._compact("major", day)

    def _compact(self, kind: str, day: str) -> None:
        database, table = self.name.split(".")
        if self.is_partitioned and f"day={day}" not in self.metastore.get_partition_names(database, table):
            return
        self.judge.compact(self.name, kind, partition=f"day='{day}'" if self.is_partitioned else None)

    def _begin(self) -> HiveTransaction:
        return self.hive.transaction(self.name, create_partitions=self.is_partitioned)

    def _append(self, tx: HiveTransaction, day: str, ids: list[int]) -> None:
        tx.table(self.name).append(_rows(day, ids))
        self.rows[day] |= {*ids}

    def _some(self, day: str) -> list[int]:
        return sorted(self.rows[day])[:1]


class _LostError(Exception):
    """Raised in the place of a lost lock."""


def _fails_at_second_call() -> object:
    calls = []

    def check(_: Transaction) -> None:
        calls.append(None)
        if len(calls) == 2:
            raise _LostError

    return check


def _rows(day: str, ids: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int32()), "item": ["w"] * len(ids), "day": [day] * len(ids)})


STEPS = [
    "we_append",
    "we_replace",
    "we_merge",
    "we_fail",
    "hive_inserts",
    "hive_updates",
    "hive_deletes",
    "minor",
    "major",
]


@pytest.fixture
def counted(hive_line: HiveJudge, line_database: str, request: pytest.FixtureRequest) -> Iterator[Counted]:
    """A table, partitioned or not, by its maker."""
    maker, is_partitioned = request.param
    with open_client(hive_line.uri) as metastore, connect(metastore) as hive:
        table = Counted(hive_line, hive, metastore, f"{line_database}.t", is_partitioned)
        table.create(maker)
        yield table


@pytest.mark.long
@pytest.mark.parametrize(
    "counted", [("us", False), ("hive", True)], indirect=True, ids=["ours", "partitioned"]
)
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_the_count_stays_right(counted: Counted) -> None:
    """The lie this is about: our rows, Hive's UPDATE, its minor compaction; then everything else once."""
    for step in ("we_append", "hive_updates", "minor", "hive_inserts", "we_fail", "hive_deletes", "minor"):
        getattr(counted, step)("a")
        counted.check(step)
    for step in ("we_merge", "we_replace", "major", "we_append"):
        getattr(counted, step)("b")
        counted.check(step)
    assert verify_table(counted.metastore, counted.name).findings == ()


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_a_number_that_nobody_vouches_for_is_counted_anew(
    hive_line: HiveJudge, line_database: str, is_partitioned: bool
) -> None:
    """As tables have it that an older Hive, or a program that knows no statistics, wrote."""
    with open_client(hive_line.uri) as metastore, connect(metastore) as hive:
        table = Counted(hive_line, hive, metastore, f"{line_database}.t", is_partitioned)
        table.create("hive")
        where = " partition (day='a')" if is_partitioned else ""
        for step in ("hive_inserts", "hive_updates", "hive_deletes", "we_replace"):
            getattr(table, step)("a")
        lie = f"alter table {table.name}{where} update statistics set ('numRows'='1000')"
        hive_line.sql(lie)
        table.we_merge("a")
        table.hive_updates("a")
        table.minor("a")
        table.check("minor")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "counted", [(maker, keys) for maker in MAKERS for keys in (False, True)], indirect=True
)
@pytest.mark.parametrize("hive_line", HIVE_4, indirect=True)
def test_the_count_stays_right_through_any_steps(counted: Counted, seed: int) -> None:
    """Random ones."""
    chosen = random.Random(f"{seed}")
    done = []
    for _ in range(16):
        step, day = chosen.choice(STEPS), chosen.choice(DAYS)
        getattr(counted, step)(day)
        done.append(f"{step}({day})")
        counted.check(" ".join(done))
    assert verify_table(counted.metastore, counted.name).findings == ()
