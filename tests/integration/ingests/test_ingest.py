"""Ingesting under real metastores: a driver that dies at any step, two runs at once, every line of Hive."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession

from judges.hive.hive_judges import Hive23
from judges.hive.judge import HiveJudge
from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo, LockState
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from mutation_api.cdc import IngestReport, LocalBatch, TableMapping, ingest
from mutation_api.cdc.watermark import Watermarks
from mutation_api.errors import LockNotAcquiredError
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_judge import LINES
from tests.integration.conftest import MakeTable
from tests.integration.ingests.mortal import END, Died, Mortal, bury, last_of
from tests.integration.transactions.live_table import LiveTable
from tests.support.change_source import Entry, ListSource, entries, position

pytestmark = pytest.mark.slow

USER = "mortal"
DEADLY = ("publish", "commit_txn", END)
"""Steps before which the short test lets the driver die, each at its last call."""

PARTS = 6
"""Tests among which the long run shares all steps."""

LONG = (pytest.mark.long, pytest.mark.timeout(1800))


Engine = Mapping[str, Any]
"""The argument of ``ingest`` that asks for an engine."""

LOCAL: Engine = {"local": LocalOptions()}


@pytest.fixture(params=["spark", "local"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine."""
    return LOCAL if request.param == "local" else {"spark": request.getfixturevalue("spark")}


class Shop:
    """Two tables that follow a source: orders, and customers by country."""

    def __init__(self, make_table: MakeTable, engine: Engine, layout: str) -> None:
        self.engine = engine
        self.orders: LiveTable = make_table(keys="", buckets=1, layout=layout)
        self.customers: LiveTable = make_table(keys="country string", buckets=1, layout=layout)
        self.metastore = self.orders.metastore
        self.watermark_table = f"{self.orders.full_name}_marks"
        self.mappings = (
            TableMapping("orders", self.orders.full_name, ("id",)),
            TableMapping("customers", self.customers.full_name, ("id",)),
        )
        self.log: list[Entry] = []

    def go_on(self) -> None:
        """Operations of one more source transaction: new rows, changed and deleted ones, a new country."""
        n = self.log[-1].seqno + 1 if self.log else 1
        self.log += entries(
            f"{n} insert {n} new\n{n} update {n} newer\n{n} update {n - 1} old\n{n} delete {n - 2}"
        )
        customer = {"id": n, "msg": "x", "country": f"c{n}"}
        self.log.append(Entry(n, "customers", "insert", customer))
        self.log.append(Entry(n, "customers", "update", {**customer, "id": 0}))

    def expected(self) -> list[Any]:
        """The rows of both tables, and the position, after replaying the log one by one."""
        rows: dict[str, dict[int, Any]] = {"orders": {}, "customers": {}}
        for entry in self.log:
            values = dict(entry.values)
            key = values["id"]
            place = [f"country={values['country']}"] if "country" in values else []
            rows[entry.table].pop(key, None)
            if entry.operation != "delete":
                rows[entry.table][key] = (*place, key, values["msg"])
        return [*[sorted(each.values(), key=repr) for each in rows.values()], [(self.log[-1].seqno,)] * 2]

    def found(self) -> list[Any]:
        """The same, as Hive's readers and the watermarks tell."""
        with MutatorClientBuilder().metastore(self.metastore).build() as client:
            marks = Watermarks.read(client.open_snapshot(self.watermark_table), self.watermark_table)
            return [self.orders.values(), self.customers.values(), [mark.order for mark in marks]]

    def ingest(self, metastore: Any = None, **options: Any) -> IngestReport:
        return ingest(
            metastore or self.metastore,
            self.mappings,
            options.pop("source", None) or ListSource(list(self.log)),
            watermark_table=self.watermark_table,
            create_partitions=True,
            user=USER,
            **options,
            **self.engine,
        )

    def bury(self) -> None:
        """End what the dead left open, as the server's reaper does after its timeout."""
        bury(self.metastore, USER)

    def dies(self, last: int, monkeypatch: pytest.MonkeyPatch) -> str:
        """Ingest and die before a step; its name."""
        mortal = Mortal(self.metastore, last)
        with mortal.at_files(monkeypatch), pytest.raises(Died) as caught:
            self.ingest(mortal)
            mortal.take(END)
        self.bury()
        return str(caught.value)

    def steps(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The steps of a run that lives."""
        mortal = Mortal(self.metastore)
        with mortal.at_files(monkeypatch):
            self.ingest(mortal)
        return [*mortal.steps, END]


@pytest.mark.parametrize("part", [None, *[pytest.param(n, marks=LONG) for n in range(PARTS)]])
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=LONG)], indirect=True)
def test_a_driver_that_dies_at_any_step_loses_and_repeats_nothing(
    make_table: MakeTable,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    part: int | None,
) -> None:
    """Between any two calls to the metastore or changes of files. Tables and watermarks are those of
    before, or all new; the next run makes them new, as replaying the whole log one by one does.
    """
    shop = Shop(make_table, engine, "default")
    for _ in range(2):
        shop.go_on()
        steps = shop.steps(monkeypatch)
    assert shop.found() == shop.expected()
    deadly = sorted(map(last_of(steps), DEADLY))
    if part is not None:
        deadly = [*range(1 + part, len(steps), PARTS), len(steps)]
    died_after_commit = 0
    for last in deadly:
        before = shop.expected()
        shop.go_on()
        name = shop.dies(last, monkeypatch)
        after = shop.expected()
        left = shop.found()
        assert left in (before, after), f"died before {name}, step {last}"
        died_after_commit += left == after
        report = shop.ingest()
        assert (report.position is None) == (left == after)
        assert shop.found() == after, f"died before {name}, step {last}"
    assert died_after_commit == 1


class Slow(ListSource):
    """A source that is read only when it may be."""

    def __init__(self, log: list[Entry]) -> None:
        super().__init__(log)
        self.is_read = threading.Event()
        self.may_go_on = threading.Event()

    def read_local(self, *arguments: Any) -> LocalBatch:
        self.is_read.set()
        assert self.may_go_on.wait(100)
        return super().read_local(*arguments)


@pytest.fixture
def second(hive: Hive23) -> Iterator[MetastoreClient]:
    """A connection of the second run's own."""
    with open_client(hive.uri) as metastore:
        yield metastore


def test_of_two_runs_at_once_the_second_waits(make_table: MakeTable, second: MetastoreClient) -> None:
    """It sees what the first has left, so nothing is applied twice; or it gives up and says who holds it."""
    shop = Shop(make_table, LOCAL, "legacy")
    shop.go_on()
    source = Slow(shop.log)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shop.ingest, source=source)
        try:
            assert source.is_read.wait(100)
            with pytest.raises(LockNotAcquiredError, match=r"did not get lock .* held by SHARED_WRITE"):
                shop.ingest(second, lock_timeout_seconds=0.5)
            waiting = pool.submit(shop.ingest, second, lock_timeout_seconds=100)
            names = shop.watermark_table.split(".")
            wait_until(
                lambda: any(lock.state is LockState.WAITING for lock in second.show_locks(*names)), "the lock"
            )
        finally:
            source.may_go_on.set()
        assert first.result(100).position == position(1)
        assert waiting.result(100).position is None
    assert shop.found() == shop.expected()
    shop.go_on()
    assert shop.ingest().before == {"orders": position(1), "customers": position(1)}
    assert shop.found() == shop.expected()


@pytest.mark.long
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_tables_and_watermarks_on_every_line(
    hive_line: HiveJudge, line_database: str, spark: SparkSession
) -> None:
    """Hive's own SQL reads both, and may correct the watermark; the next run goes on from what it says,
    whichever engine it has.
    """
    name, marks = f"{line_database}.orders", f"{line_database}.mutation_watermarks"
    columns = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
    log = entries("1 insert 1 one\n2 insert 2 two\n3 update 1 uno\n4 delete 2")

    def rows(what: str, table: str) -> list[list[Any]]:
        return sorted(hive_line.sql(f"SELECT {what} FROM {table}"))

    with open_client(hive_line.uri) as metastore:
        create_acid_table(metastore, name, columns, clustered_by=["id"], num_buckets=2)
        engines: Sequence[Engine] = ({"spark": spark}, LOCAL)
        for end, engine in zip((2, 4), engines, strict=True):
            report = ingest(
                metastore, [TableMapping("orders", name, ("id",))], ListSource(log[:end]), **engine
            )
        assert rows("id, msg", name) == [[1, "uno"]]
        shown = "source_id, source_table, target_table, position_order, position_text, txn_id"
        assert rows(shown, marks) == [["list:test", "orders", name, "[4]", '{"seqno": 4}', report.txn_id]]
        hive_line.sql(f"UPDATE {marks} SET position_order = '[2]', position_text = 'by hand'")
        report = ingest(metastore, [TableMapping("orders", name, ("id",))], ListSource(log), **LOCAL)
        assert report.before["orders"].text == "by hand"
        assert report.tables[0].merge.total.changed == 0
        assert rows("id, msg", name) == [[1, "uno"]]
        assert rows("position_order", marks) == [["[4]"]]
