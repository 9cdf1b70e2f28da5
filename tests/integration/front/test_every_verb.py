"""Every verb, by every way to call it: Python and the shell, without Spark and with it, on each Hive.

One list of steps runs by all four ways. After each step Hive reads the rows of a plain Python model.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from judges.hive.judge import HiveJudge
from mutation_api import (
    MutatorClientBuilder,
    Transaction,
    connect,
    delete_where,
    merge_into,
    overwrite,
    track,
    update_where,
)
from mutation_api.cli.terminal import EXIT_OK
from mutation_api.errors import TransactionStateError
from mutation_api.hive.connection import Hive
from mutation_api.hive.table_handle import TableHandle
from tests.fixtures.fix_judge import LINES
from tests.integration.conftest import Run
from tests.support.hive_site import write_hive_site

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [("id", pa.int64()), ("item", pa.string()), ("price", pa.decimal128(8, 2)), ("day", pa.date32())]
)
VERSIONS = pa.schema(
    [("id", pa.int64()), ("item", pa.string()), ("at", pa.int64()), ("operation", pa.string())]
)
MAY, JUNE, JULY = (datetime.date(2024, month, 1) for month in (5, 6, 7))
Row = tuple[int, str, Decimal, datetime.date]
Version = tuple[int, str | None, int, int | None]


def row(id_: int, item: str, price: str, day: datetime.date) -> Row:
    """A row of the table."""
    return (id_, item, Decimal(price), day)


def data(*rows: Row) -> pa.Table:
    """Rows as Arrow."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in rows], SCHEMA)


class Way(Protocol):
    """How a user calls the verbs; each call is one transaction."""

    def append(self, rows: pa.Table) -> None: ...
    def delete(self, where: str) -> None: ...
    def update(self, where: str, **values: str) -> None: ...
    def upsert(self, rows: pa.Table) -> None: ...
    def overwrite(self, rows: pa.Table, **what: Any) -> None: ...
    def truncate(self) -> None: ...
    def track(self, changes: pa.Table) -> None: ...


@dataclass
class Orders:
    """A table of orders, the history of their items, and what both should hold."""

    judge: HiveJudge
    database: str
    expected: dict[int, Row] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.database}.orders"

    @property
    def history(self) -> str:
        return f"{self.database}.order_history"

    def create(self, hive: Hive) -> None:
        buckets: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": 2}
        hive.create_table(self.name, SCHEMA, partitioned_by=["day"], **buckets)
        columns = "id bigint, item string, valid_from bigint, valid_to bigint"
        hive.create_table(self.history, columns, **buckets)

    def put(self, *rows: Row) -> None:
        self.expected |= {each[0]: each for each in rows}

    def keep(self, stays: Callable[[Row], bool]) -> None:
        self.expected = {id_: each for id_, each in self.expected.items() if stays(each)}

    def check(self) -> None:
        """Hive has the rows that are expected."""
        query = f"SELECT id, item, cast(price AS string), cast(day AS string) FROM {self.name}"
        found = [(id_, item, Decimal(price), day) for id_, item, price, day in self.judge.sql(query)]
        assert sorted(found) == sorted((*each[:3], str(each[3])) for each in self.expected.values())

    def check_history(self, *versions: Version) -> None:
        query = f"SELECT id, item, valid_from, valid_to FROM {self.history} ORDER BY id, valid_from"
        assert [tuple(each) for each in self.judge.sql(query)] == [*versions]


class WithoutSpark:
    """``connect()`` and the methods of its tables."""

    def __init__(self, hive: Hive, orders: Orders) -> None:
        self._hive, self._orders = hive, orders

    @property
    def _table(self) -> TableHandle:
        return self._hive.table(self._orders.name)

    def append(self, rows: pa.Table) -> None:
        self._table.append(rows, create_partitions=True)

    def delete(self, where: str) -> None:
        self._table.delete(where=where)

    def update(self, where: str, **values: str) -> None:
        self._table.update(set=values, where=where)

    def upsert(self, rows: pa.Table) -> None:
        self._table.upsert(rows, on=["id"], create_partitions=True)

    def overwrite(self, rows: pa.Table, **what: Any) -> None:
        self._table.overwrite(rows, create_partitions=True, **what)

    def truncate(self) -> None:
        self._table.truncate()

    def track(self, changes: pa.Table) -> None:
        self._hive.table(self._orders.history).track(changes, key=["id"], sequence="at")


class BySpark:
    """The functions for DataFrames, in a transaction of a client."""

    def __init__(self, spark: SparkSession, uri: str, orders: Orders) -> None:
        self._spark, self._uri, self._orders = spark, uri, orders

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(rows)

    def _run(self, verb: Callable[[Transaction, str], object], name: str = "") -> None:
        name = name or self._orders.name
        builder = MutatorClientBuilder().metastore(self._uri)
        client = builder.add_sink_table(*name.split("."), create_partitions=True).build()
        with client, client.new_transaction() as transaction:
            verb(transaction, name)

    def append(self, rows: pa.Table) -> None:
        def verb(transaction: Transaction, name: str) -> object:
            merge = merge_into(transaction, name, source=self._frame(rows), on=["id"])
            return merge.whenNotMatched().insertAll().execute()

        self._run(verb)

    def delete(self, where: str) -> None:
        self._run(lambda tx, name: delete_where(tx, name, where))

    def update(self, where: str, **values: str) -> None:
        self._run(lambda tx, name: update_where(tx, name, values, where))

    def upsert(self, rows: pa.Table) -> None:
        def verb(transaction: Transaction, name: str) -> object:
            merge = merge_into(transaction, name, source=self._frame(rows), on=["id"])
            return merge.whenMatched().updateAll().whenNotMatched().insertAll().execute()

        self._run(verb)

    def overwrite(self, rows: pa.Table, **what: Any) -> None:
        self._run(lambda tx, name: overwrite(tx, name, self._frame(rows), **what))

    def truncate(self) -> None:
        self._run(lambda tx, name: delete_where(tx, name, "true"))

    def track(self, changes: pa.Table) -> None:
        frame = self._frame(changes)
        self._run(lambda tx, name: track(tx, name, frame, ["id"], "at"), self._orders.history)


class ByCommand:
    """``hive-mutate``, which finds the metastore in ``hive-site.xml``."""

    def __init__(self, run: Run, engine: str, folder: Path, orders: Orders) -> None:
        self._run_here, self._engine, self._folder, self._orders = run, engine, folder, orders
        self._numbers = itertools.count(1)

    def _file(self, rows: pa.Table) -> Path:
        path = self._folder / f"rows{next(self._numbers)}.parquet"
        pq.write_table(rows, path)
        return path

    def _run(self, verb: str, *words: object, table: str = "") -> None:
        table = table or self._orders.name
        options = ("--engine", self._engine, "--create-partitions", "--json")
        before = self._rows()
        for dry in (("--dry-run",), ()):
            done = self._run_here(verb, table, *words, *options, *dry)
            assert done.returncode == EXIT_OK, done.stderr
            assert json.loads(done.stdout)["dry_run"] is bool(dry)
            if dry:
                assert self._rows() == before

    def _rows(self) -> list[list[Any]]:
        return [
            sorted(self._orders.judge.sql(f"SELECT id, item FROM {each}"))
            for each in (self._orders.name, self._orders.history)
        ]

    def append(self, rows: pa.Table) -> None:
        self.upsert(rows)

    def delete(self, where: str) -> None:
        self._run("delete", "--where", where)

    def update(self, where: str, **values: str) -> None:
        sets = [word for name, value in values.items() for word in ("--set", f"{name} = {value}")]
        self._run("update-rows", *sets, "--where", where)

    def upsert(self, rows: pa.Table) -> None:
        self._run("upsert", self._file(rows), "--key", "id")

    def overwrite(self, rows: pa.Table, **what: Any) -> None:
        words: list[object] = ["--where", what["where"]] if "where" in what else []
        partitions = what.get("partitions", ())
        if isinstance(partitions, str):
            words += ["--partitions", partitions]
        else:
            for each in partitions:
                words += ["--partition", ",".join(f"{name}={value}" for name, value in each.items())]
        self._run("overwrite", self._file(rows), *words)

    def truncate(self) -> None:
        self._run("truncate")

    def track(self, changes: pa.Table) -> None:
        words = ("--key", "id", "--sequence", "at", "--operation-column", "operation")
        self._run("track", self._file(changes), *words, table=self._orders.history)


@pytest.fixture
def orders(hive_line: HiveJudge, line_database: str) -> Orders:
    """The empty tables."""
    return Orders(hive_line, line_database)


@pytest.fixture
def connected(hive_line: HiveJudge, orders: Orders) -> Iterator[Hive]:
    """A connection; the tables exist."""
    with connect(hive_line.uri) as hive:
        orders.create(hive)
        yield hive


@pytest.fixture(params=["python", "python with spark", "shell", "shell with spark"])
def way(
    request: pytest.FixtureRequest,
    connected: Hive,
    orders: Orders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Way:
    """Each way to call the verbs."""
    if request.param == "python":
        return WithoutSpark(connected, orders)
    if request.param == "python with spark":
        return BySpark(request.getfixturevalue("spark"), orders.judge.uri, orders)
    write_hive_site(tmp_path, orders.judge.uri)
    monkeypatch.setenv("HIVE_CONF_DIR", str(tmp_path))
    engine = "spark" if "spark" in request.param else "local"
    return ByCommand(request.getfixturevalue("run_here"), engine, tmp_path, orders)


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_hive_reads_what_each_verb_leaves(way: Way, orders: Orders) -> None:
    """Append, delete, update, upsert, four overwrites, truncate and track, one transaction each."""
    first = [row(n, ["tea", "milk"][n % 2], f"{n}.50", (MAY, JUNE, JULY)[n % 3]) for n in range(9)]
    way.append(data(*first))
    orders.put(*first)
    orders.check()

    way.delete("day < date '2024-06-01' AND price > 1")
    orders.keep(lambda each: not (each[3] < JUNE and each[2] > 1))
    orders.check()

    way.update("item = 'tea'", price="price * 2", item="'green tea'")
    orders.put(
        *(row(e[0], "green tea", str(e[2] * 2), e[3]) for e in orders.expected.values() if e[1] == "tea")
    )
    orders.check()

    new = [row(1, "moved", "7.00", JULY), row(20, "new", "0.10", MAY)]
    way.upsert(data(*new))
    orders.put(*new)
    orders.check()

    new = [row(30, "dynamic", "1.00", JUNE), row(31, "dynamic", "1.00", JUNE)]
    way.overwrite(data(*new), partitions="dynamic")
    orders.keep(lambda each: each[3] != JUNE)
    orders.put(*new)
    orders.check()

    new = [row(40, "one partition", "2.00", MAY)]
    way.overwrite(data(*new), partitions=[{"day": "2024-05-01"}])
    orders.keep(lambda each: each[3] != MAY)
    orders.put(*new)
    orders.check()

    new = [row(50, "where", "3.00", JULY)]
    way.overwrite(data(*new), where="item = 'where' OR item = 'moved'")
    orders.keep(lambda each: each[1] != "moved")
    orders.put(*new)
    orders.check()

    new = [row(60, "whole table", "4.00", MAY), row(61, "whole table", "5.00", JULY)]
    way.overwrite(data(*new))
    orders.expected.clear()
    orders.put(*new)
    orders.check()

    way.truncate()
    orders.expected.clear()
    orders.check()

    changes = [(1, "tea", 10, "insert"), (2, "milk", 10, "insert"), (2, None, 15, "delete")]
    way.track(versions(*changes))
    way.track(versions((1, "late", 5, "insert"), (1, "green tea", 20, "update")))
    orders.check_history(
        (1, "late", 5, 10), (1, "tea", 10, 20), (1, "green tea", 20, None), (2, "milk", 10, 15)
    )


def versions(*changes: tuple[int, str | None, int, str]) -> pa.Table:
    """Changes of a source, as Arrow."""
    return pa.Table.from_pylist([dict(zip(VERSIONS.names, each, strict=True)) for each in changes], VERSIONS)


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_the_verbs_of_one_transaction_see_each_other(connected: Hive, orders: Orders) -> None:
    """All verbs on two tables in one transaction; nobody reads them before its end. Hive 2.3 refuses by name
    to look at what a step wrote.
    """
    first = [row(n, ["tea", "milk"][n % 2], f"{n}.50", (MAY, JUNE, JULY)[n % 3]) for n in range(9)]
    connected.table(orders.name).append(data(*first), create_partitions=True)
    orders.put(*first)
    with connected.transaction(orders.name, orders.history, create_partitions=True) as tx:
        written = tx.table(orders.name)
        written.delete(where="day < date '2024-06-01'")
        if orders.judge.line == "2.3":
            with pytest.raises(TransactionStateError, match=r"On Hive 2, "):
                written.update(set={"price": "price * 2"}, where="item = 'tea'")
            tx.table(orders.history).track(versions((1, "tea", 10, "insert")), key=["id"], sequence="at")
            orders.check()
        else:
            written.update(set={"price": "price * 2"}, where="item = 'tea'")
            written.upsert(data(row(1, "moved", "7.00", JULY), row(20, "new", "0.10", MAY)), on=["id"])
            written.overwrite(data(row(30, "dynamic", "1.00", JUNE)), partitions="dynamic")
            seen = written.scan(["id", "price"], where="price >= 1").to_arrow().to_pylist()
            found = sorted((each["id"], str(each["price"])) for each in seen)
            assert found == [(1, "7.00"), (2, "5.00"), (5, "5.50"), (8, "17.00"), (30, "1.00")]
            orders.check()
            orders.check_history()
            written.truncate()
            assert written.scan().to_arrow().num_rows == 0
            written.append(data(row(40, "last", "1.00", MAY)))
            tx.table(orders.history).track(versions((1, "tea", 10, "insert")), key=["id"], sequence="at")
    if orders.judge.line == "2.3":
        orders.keep(lambda each: each[3] >= JUNE)
    else:
        orders.expected = {40: row(40, "last", "1.00", MAY)}
    orders.check()
    orders.check_history((1, "tea", 10, None))
