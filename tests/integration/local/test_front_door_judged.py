"""Real Hive of each line reads what the front door writes, and the front door reads what Hive writes.

No Spark: every change is Arrow data of this process.
"""

from __future__ import annotations

import datetime
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import DuplicateKeyError, RecordSequenceError, TableNotFoundError, WriteConflictError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.merge.merge_report import MergeCounts
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from tests.fixtures.fix_judge import FIXTURES
from tests.integration.storages.remote_table import check_nothing_is_left
from tests.support.left_threads import no_thread_is_left

pytestmark = pytest.mark.slow

LAYOUTS = {
    "2.3-legacy": "PARTITIONED BY (day date) CLUSTERED BY (id) INTO 2 BUCKETS",
    "2.3-split": "PARTITIONED BY (day date) CLUSTERED BY (id) INTO 2 BUCKETS",
    "3.1-buckets": "PARTITIONED BY (day date) CLUSTERED BY (id) INTO 2 BUCKETS",
    "3.1-plain": "",
    "4.1-buckets": "PARTITIONED BY (day date) CLUSTERED BY (id) INTO 2 BUCKETS",
    "4.1-plain": "PARTITIONED BY (day date)",
}
READERS = {
    "row": {"hive.vectorized.execution.enabled": "false", "hive.fetch.task.conversion": "none"},
    "vectorised": {"hive.vectorized.execution.enabled": "true", "hive.fetch.task.conversion": "none"},
}
MAY, JUNE = datetime.date(2024, 5, 1), datetime.date(2024, 6, 1)
DYNAMIC = {"hive.exec.dynamic.partition.mode": "nonstrict"}
_numbers = itertools.count(1)

Row = tuple[int, str | None, str, datetime.date]


@dataclass
class Orders:
    """A table ``orders``, two ways to it, and the rows that it should hold, by id."""

    judge: HiveJudge
    hive: Hive
    name: str
    is_partitioned: bool
    expected: dict[int, Row] = field(default_factory=dict)

    def sql(self, text: str) -> None:
        """Run a statement in which ``$T`` stands for the table."""
        self.judge.sql(text.replace("$T", self.name), settings=DYNAMIC)

    def check(self) -> None:
        """Both of Hive's readers and a scan show the expected rows."""
        rows = sorted(self.expected.values())
        shown = [[id_, item, str(Decimal(price).normalize()), str(day)] for id_, item, price, day in rows]
        query = f"SELECT id, item, price, day FROM {self.name} ORDER BY id"
        for reader, settings in READERS.items():
            found = self.judge.sql(query, settings=settings)
            assert [[*r[:2], str(Decimal(r[2]).normalize()), r[3]] for r in found] == shown, reader
        assert self.judge.sql(f"SELECT count(*) FROM {self.name}") == [[len(rows)]]
        with self.hive.snapshot(self.name) as view:
            table = view.table(self.name)
            assert (
                sorted(map(_values, table.scan(["id", "item", "price", "day"]).to_arrow().to_pylist()))
                == rows
            )
            assert table.scan().count() == len(rows)
            june = table.scan(["id"], where=(pc.field("day") == JUNE) & (pc.field("id") > 1)).to_arrow()
            assert sorted(june["id"].to_pylist()) == [r[0] for r in rows if r[3] == JUNE and r[0] > 1]


def _values(row: dict[str, Any]) -> Row:
    return row["id"], row["item"], str(row["price"]), row["day"]


def rows(*given: Row) -> pa.Table:
    """Rows to append or merge."""
    ids, items, prices, days = zip(*given, strict=True)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "item": pa.array(items, pa.string()),
            "price": pa.array(map(Decimal, prices), pa.decimal128(8, 2)),
            "day": pa.array(days, pa.date32()),
        }
    )


@pytest.fixture(params=LAYOUTS)
def orders(request: pytest.FixtureRequest) -> Iterator[Orders]:
    """An empty table of each layout; afterwards no thread, transaction or hidden file is left."""
    line, _, layout = request.param.partition("-")
    judge: HiveJudge = request.getfixturevalue(FIXTURES[line])
    clauses, database = LAYOUTS[request.param], f"front{next(_numbers)}"
    properties = {"transactional": "true"} | (
        {"transactional_properties": "default"} if layout == "split" else {}
    )
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    day = "" if "PARTITIONED" in clauses else ", day date"
    judge.time_out_transactions(0)
    judge.sql(f"CREATE DATABASE {database}")
    judge.sql(
        f"CREATE TABLE {database}.orders (id bigint, item string, price decimal(8,2){day}) {clauses} "
        f"STORED AS ORC TBLPROPERTIES ({listed})"
    )
    with no_thread_is_left(), connect(judge.uri) as hive:
        yield Orders(judge, hive, f"{database}.orders", "PARTITIONED" in clauses)
    judge.time_out_transactions(0)
    with open_client(judge.uri) as metastore:
        check_nothing_is_left(metastore, database)
    judge.sql(f"DROP DATABASE {database} CASCADE")


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_a_created_table_is_one_for_hive(hive_line: HiveJudge) -> None:
    """Hive's SQL describes, fills, changes and reads it; a dropped one is gone, with its files."""
    judge, name = hive_line, f"front{next(_numbers)}.made"
    database = name.partition(".")[0]
    judge.sql(f"CREATE DATABASE {database}")
    with no_thread_is_left(), connect(judge.uri) as hive:
        schema = rows((1, "tea", "3.50", MAY)).schema.append(pa.field("tags", pa.list_(pa.string())))
        options: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": 2}
        made = hive.create_table(name, schema, partitioned_by=["day"], **options)
        written = "id bigint, item string, price decimal(8,2), day date, tags array<string>"
        hive.create_table(f"{database}.text", written, partitioned_by=["day"], **options)
        assert hive.tables(database) == [name, f"{database}.text"]
        described = [list(judge.sql(f"DESCRIBE {each}")) for each in hive.tables(database)]
        assert described[0] == described[1]
        columns = [(row[0].strip(), row[1].strip()) for row in described[0] if row[0] and row[1]]
        types = [("id", "bigint"), ("item", "string"), ("price", "decimal(8,2)"), ("tags", "array<string>")]
        assert columns[:5] == [*types, ("day", "date")]

        for values in ("1, 'tea', 3.50, array('a', 'b')", "2, 'oil', 4, array('')"):
            judge.sql(f"INSERT INTO {name} PARTITION (day) SELECT {values}, '2024-05-01'", settings=DYNAMIC)
        with hive.transaction(name, create_partitions=True) as tx:
            table = tx.table(name)
            table.append(
                pa.table({"id": [3], "item": ["rice"], "price": [Decimal(2)], "day": [JUNE], "tags": [["c"]]})
            )
        judge.sql(f"UPDATE {name} SET item = 'green tea' WHERE id IN (1, 3)", settings=DYNAMIC)
        judge.sql(f"DELETE FROM {name} WHERE id = 2", settings=DYNAMIC)
        expected = [(1, "green tea", ["a", "b"]), (3, "green tea", ["c"])]
        found = judge.sql(f"SELECT id, item, size(tags) FROM {name} ORDER BY id")
        assert [tuple(row) for row in found] == [(id_, item, len(tags)) for id_, item, tags in expected]
        with hive.snapshot(name) as view:
            assert view.table(name).schema == made.schema
            shown = view.table(name).scan(["id", "item", "tags"]).to_arrow().sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in shown] == expected
        assert len(made.history().entries) == 5
        report = made.verify()
        assert (report.is_sound, report.row_count) == (True, 2), report

        directory = Location.parse(hive.metastore.get_table(database, "made").location)
        assert storage_at(directory).list(directory)
        hive.drop_table(name)
        assert judge.sql(f"SHOW TABLES IN {database}") == [["text"]]
        with pytest.raises(FileNotFoundError):
            storage_at(directory).list(directory)
        with pytest.raises(TableNotFoundError, match=f"{name} does not exist at {judge.uri}"):
            hive.table(name)
        judge.sql(f"CREATE TABLE {name} (id bigint) STORED AS ORC TBLPROPERTIES ('transactional'='false')")
        assert judge.sql(f"SELECT count(*) FROM {name}") == [[0]]
        check_nothing_is_left(hive.metastore, database)
    judge.sql(f"DROP DATABASE {database} CASCADE")


@pytest.mark.long
def test_hive_reads_what_the_front_door_writes(orders: Orders) -> None:
    """Appends, a merge, updates and deletes, in one transaction and over Hive's own rows; and the reverse."""
    first: list[Row] = [(1, "tea", "3.50", MAY), (2, "coffee", "4.20", MAY), (3, None, "1.00", JUNE)]
    with orders.hive.transaction(orders.name, create_partitions=True) as tx:
        tx.table(orders.name).append(rows(*first))
    orders.expected = {row[0]: row for row in first}
    orders.check()

    day = "PARTITION (day)" if orders.is_partitioned else ""
    orders.sql(
        f"INSERT INTO $T {day} VALUES (10, 'milk', 1.10, '2024-05-01'), (11, 'oil', 7.00, '2024-06-01')"
    )
    orders.sql("UPDATE $T SET item = 'sparkling water' WHERE id = 3")
    orders.expected |= {
        3: (3, "sparkling water", "1.00", JUNE),
        10: (10, "milk", "1.10", MAY),
        11: (11, "oil", "7.00", JUNE),
    }
    orders.check()

    with orders.hive.transaction(orders.name, create_partitions=True) as tx:
        table = tx.table(orders.name)
        source = rows((1, "tea", "3.75", MAY), (10, "milk", "1.10", JUNE), (12, "rice", "2.00", JUNE))
        merge = table.merge(source, on=["id"]).when_matched_update_all().when_not_matched_insert_all()
        report = merge.execute()
        moved = int(orders.is_partitioned)
        assert report.total == MergeCounts(inserted=1, updated=2 - moved, deleted=0, moved=moved, unchanged=0)
        table.append(rows((13, "salt", "0.50", MAY)))
        table.delete(table.scan(columns=[], row_ids=True, where=pc.field("id").isin([2, 11])))
        water = table.scan(row_ids=True, where=pc.field("id") == 3).to_arrow()
        at = water.schema.get_field_index("price")
        table.update(water.set_column(at, "price", pa.array([Decimal("1.25")], pa.decimal128(8, 2))))
    orders.expected = {
        1: (1, "tea", "3.75", MAY),
        3: (3, "sparkling water", "1.25", JUNE),
        10: (10, "milk", "1.10", JUNE),
        12: (12, "rice", "2.00", JUNE),
        13: (13, "salt", "0.50", MAY),
    }
    orders.check()

    orders.sql("DELETE FROM $T WHERE id IN (1, 12)")
    del orders.expected[1], orders.expected[12]
    orders.check()
    for partition in ("day='2024-05-01'", "day='2024-06-01'") if orders.is_partitioned else (None,):
        orders.judge.compact(orders.name, "major", partition=partition)
    orders.check()


def test_what_is_refused_leaves_nothing(orders: Orders) -> None:
    """A row that two calls change, duplicate keys, an error of the block."""
    row = (1, "tea", "3.50", MAY)
    with orders.hive.transaction(orders.name, create_partitions=True) as tx:
        tx.table(orders.name).append(rows(row))
    orders.expected = {1: row}
    with pytest.raises(RecordSequenceError), orders.hive.transaction(orders.name) as tx:
        table = tx.table(orders.name)
        found = table.scan(row_ids=True).to_arrow()
        table.update(found)
        table.delete(found)
    with pytest.raises(DuplicateKeyError), orders.hive.transaction(orders.name) as tx:
        merge = tx.table(orders.name).merge(rows(row, (1, "x", "1.00", MAY)), on=["id"])
        merge.when_matched_update_all().execute()
    with pytest.raises(KeyError), orders.hive.transaction(orders.name) as tx:
        tx.table(orders.name).append(rows((2, "x", "1.00", MAY)))
        raise KeyError
    orders.check()


@pytest.mark.parametrize("transactions", [20, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("hive_line", ["2.3", "4.1"], indirect=True)
def test_many_small_transactions_leave_nothing(
    hive_line: HiveJudge, line_database: str, transactions: int
) -> None:
    """No thread, connection, lock or open transaction; Hive counts their rows."""
    name = f"{line_database}.t"
    hive_line.sql(
        f"CREATE TABLE {name} (id bigint) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional'='true', 'no_auto_compaction'='true')"
    )
    port = int(hive_line.uri.rpartition(":")[2])
    database, _, table = name.partition(".")
    others = _connections(port)
    with connect(hive_line.uri) as hive:
        with no_thread_is_left():
            for number in range(transactions):
                with hive.transaction(name) as tx:
                    tx.table(name).append(pa.table({"id": [number]}))
                with hive.snapshot(name) as view:
                    assert number % 10 or view.table(name).scan().count() == number + 1
        # A new connection closes those of threads that have ended: the new one and this thread's are left.
        asking = threading.Thread(target=hive.metastore.get_all_tables, args=(database,))
        asking.start()
        asking.join()
        assert len(_connections(port) - others) <= 2
        assert not hive.metastore.show_locks(database, table)
    assert hive_line.sql(f"SELECT count(*), max(id) FROM {name}") == [[transactions, transactions - 1]]


def _connections(port: int) -> set[str]:
    """Sockets of this process that are connected to a port; Linux lists them by remote address and inode."""
    own = {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    tables = [Path("/proc/self/net", name).read_text("ascii") for name in ("tcp", "tcp6")]
    fields = [line.split() for table in tables for line in table.splitlines()[1:]]
    return own & {f"socket:[{each[9]}]" for each in fields if int(each[2].rpartition(":")[2], 16) == port}


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_optimistic_writers_conflict(hive_line: HiveJudge, line_database: str) -> None:
    """The first to commit wins, including through the front door."""
    name = f"{line_database}.t"
    hive_line.sql(f"CREATE TABLE {name} (id bigint) STORED AS ORC TBLPROPERTIES ('transactional'='true')")
    with connect(hive_line.uri, write_lock="optimistic") as hive:
        with hive.transaction(name) as tx:
            tx.table(name).append(pa.table({"id": [1, 2]}))
        with pytest.raises(WriteConflictError), hive.transaction(name) as late:
            late.table(name).delete(late.table(name).scan(row_ids=True, where=pc.field("id") == 1))
            with hive.transaction(name) as early:
                early.table(name).delete(early.table(name).scan(row_ids=True, where=pc.field("id") == 2))
    assert hive_line.sql(f"SELECT id FROM {name}") == [[1]]
