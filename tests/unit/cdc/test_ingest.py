"""ingest: the operations of a log in tables, and the watermark with them, in one transaction."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo, TxnState
from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api import LocalOptions, MergeCounts
from mutation_api.cdc import Contradictions, IngestReport, Position, TableMapping, ingest
from mutation_api.cdc.watermark import Watermark, Watermarks
from mutation_api.errors import (
    ConfigurationError,
    ContradictionError,
    InputFormatError,
    LockNotAcquiredError,
    PartitionCreationError,
    RecordLayoutError,
    SourcePositionError,
)
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.watermark_table import ensure_watermark_table
from tests.support.change_source import Entry, ListSource, entries, position
from tests.support.client_support import files_below

pytestmark = pytest.mark.slow

ORDERS = TableMapping("orders", "default.orders", ("id",))
MARKS = "default.mutation_watermarks"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))

FIRST = """
1 insert 1 one
1 insert 2 two
2 update 1 uno
3 insert 3 three
4 delete 3
5 delete 9
"""
AFTER_FIRST = [(1, "uno"), (2, "two")]


ENGINES = ("spark", "local")


class Warehouse:
    """A metastore in memory with a table ``default.orders``.

    ``engine``: the name of the engine that ingests, and the argument that asks for it.
    """

    def __init__(self, place: Path, engine: tuple[str, Any], capabilities: Any = HIVE_4_1) -> None:
        self.metastore: MetastoreClient = InMemoryMetastore(place, capabilities=capabilities)
        self.engine, asked = engine
        self.by: dict[str, Any] = {self.engine: asked}
        self.place = place
        self.create("default.orders")

    def create(self, name: str, *keys: str, columns: Sequence[ColumnInfo] = COLUMNS) -> None:
        partition_keys = [ColumnInfo(key, "string") for key in keys]
        create_acid_table(self.metastore, name, columns, partition_keys, clustered_by=["id"], num_buckets=1)

    def ingest(self, source: ListSource, *tables: TableMapping, **options: Any) -> IngestReport:
        return ingest(self.metastore, tables or (ORDERS,), source, **options, **self.by)

    def rows(self, name: str = "default.orders") -> list[tuple[Any, ...]]:
        with MutatorClientBuilder().metastore(self.metastore).build() as client:
            snapshot = client.open_snapshot(name)
            table, valid = snapshot.table(name), snapshot.valid_ids(name)
            names = [p.name for p in snapshot.partitions(name)] or [""]
            places = {each: table.partition_location(each) for each in names}
            splits = [s for p, at in places.items() for s in plan_splits(table, p, at, valid)]
            batches = [batch for split in splits for batch in read_split(table, split, valid, row_ids=False)]
        return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())

    def marks(self, name: str = MARKS) -> list[Watermark]:
        with MutatorClientBuilder().metastore(self.metastore).build() as client:
            return list(Watermarks.read(client.open_snapshot(name), name))

    def files(self) -> list[str]:
        return files_below(self.place, hidden=True)

    def open_txns(self) -> list[int]:
        return [t.id for t in self.metastore.get_open_txns().txns if t.state is TxnState.OPEN]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Each engine."""
    name: str = request.param
    return name, LocalOptions() if name == "local" else request.getfixturevalue("spark")


@pytest.fixture
def warehouse(tmp_path: Path, engine: tuple[str, Any]) -> Warehouse:
    return Warehouse(tmp_path, engine)


@pytest.mark.long
def test_operations_and_watermark_are_applied_together(warehouse: Warehouse) -> None:
    """Report, rows and watermark after the first part of a log, and after the next."""
    report = warehouse.ingest(ListSource(entries(FIRST)))
    assert warehouse.rows() == AFTER_FIRST
    (mark,) = warehouse.marks()
    assert mark.key == ("list:test", "orders", "default.orders")
    assert (mark.order, mark.text, mark.txn_id) == ((5,), '{"seqno": 5}', report.txn_id)
    assert (report.position, dict(report.before)) == (position(5), {})
    (table,) = report.tables
    assert (table.operation_count, table.key_count, table.merge.total) == (6, 4, MergeCounts(inserted=2))
    assert table.contradictions == Contradictions(deletes_of_absent=1)
    assert str(report).splitlines() == [
        f'list:test: applied in transaction {report.txn_id} up to {{"seqno": 5}} ({warehouse.engine})',
        "  TABLE           OPERATIONS  KEYS  INSERTED  UPDATED  DELETED  MOVED  UNCHANGED",
        "  default.orders           6     4         2        0        0      0          0",
        "  default.orders: 1 deletes of absent keys",
    ]

    more = [*entries(FIRST), *entries("6 update 2 zwei\n6 delete 1\n7 insert 4 four")]
    report = warehouse.ingest(ListSource(more))
    assert warehouse.rows() == [(2, "zwei"), (4, "four")]
    assert report.before == {"orders": position(5)}
    assert report.tables[0].merge.total == MergeCounts(inserted=1, updated=1, deleted=1)
    assert report.tables[0].contradictions == Contradictions()
    assert [each.order for each in warehouse.marks()] == [(7,)]
    assert warehouse.open_txns() == []
    values = report.to_dict()
    assert (values["source"], values["engine"]) == ("list:test", warehouse.engine)
    assert (values["before"], values["position"]) == ({"orders": '{"seqno": 5}'}, '{"seqno": 7}')
    assert values["tables"][0]["contradictions"]["inserts_of_present"] == 0  # type: ignore[index]


@pytest.mark.long
def test_running_again_changes_nothing(warehouse: Warehouse) -> None:
    """No file comes or goes, and the watermark stays. Without the watermark the whole log is applied
    again, and still nothing changes.
    """
    source = ListSource(entries(FIRST))
    warehouse.ingest(source)
    files, marks = warehouse.files(), warehouse.marks()
    report = warehouse.ingest(source)
    assert str(report) == 'list:test: nothing new after {"seqno": 5}'
    assert (report.txn_id, report.position, report.tables) == (None, None, ())
    assert (warehouse.files(), warehouse.marks()) == (files, marks)
    assert warehouse.open_txns() == []

    again = warehouse.ingest(source, watermark_table="default.other_marks")
    assert again.tables[0].merge.total == MergeCounts(unchanged=2)
    assert again.tables[0].merge.written is None
    assert warehouse.rows() == AFTER_FIRST
    assert again.tables[0].contradictions == Contradictions(inserts_of_present=2, deletes_of_absent=1)


@pytest.mark.long
def test_a_table_that_was_emptied_has_the_rows_that_came_later(warehouse: Warehouse) -> None:
    """Rows that no later operation writes are deleted in the same transaction; what came before the truncate
    contradicts nothing, and what needs rows from before it does.
    """
    log = entries("1 insert 1 one\n1 insert 2 two\n1 insert 3 three")
    warehouse.ingest(ListSource(log))
    log += entries("2 update 1 uno\n2 truncate 0\n3 insert 2 two\n3 insert 4 four")
    for dry_run in (True, False):
        (table,) = warehouse.ingest(ListSource(log), strict=True, dry_run=dry_run).tables
        assert (table.is_emptied, table.operation_count) == (True, 2)
        assert table.merge.total == MergeCounts(inserted=1, deleted=2, unchanged=1)
    assert warehouse.rows() == [(2, "two"), (4, "four")]

    more = entries("4 truncate 0\n5 update 2 zwei")
    with pytest.raises(ContradictionError, match=r"1 updates of absent keys: update of key .*2"):
        warehouse.ingest(ListSource(log + more), strict=True)
    assert warehouse.rows() == [(2, "two"), (4, "four")]
    report = warehouse.ingest(ListSource(log + more[:1]))
    assert str(report).splitlines()[-1] == "  default.orders: emptied first"
    assert warehouse.rows() == []
    assert warehouse.ingest(ListSource(log + more[:1])).position is None


def test_a_log_without_operations_leaves_the_table_untouched(warehouse: Warehouse) -> None:
    """Neither an empty log nor one without operations on the table touches it; of the second the
    watermark tells how far it was read.
    """
    report = warehouse.ingest(ListSource([]))
    assert str(report) == "list:test: nothing new"
    assert (warehouse.rows(), warehouse.marks(), warehouse.files()) == ([], [], [])
    report = warehouse.ingest(ListSource(entries("8 insert 1 x", table="elsewhere")))
    assert str(report).splitlines()[1] == "  no operations on these tables"
    assert warehouse.rows() == []
    assert [mark.order for mark in warehouse.marks()] == [(8,)]
    assert not [file for file in warehouse.files() if "orders" in file]


def test_the_overlap_of_first_copy_and_log_is_harmless(warehouse: Warehouse) -> None:
    """A full copy that already holds what the log says later; every operation comes twice."""
    copy = entries("0 insert 1 new\n0 insert 2 two")
    warehouse.ingest(ListSource(copy))
    log = entries("1 insert 1 old\n2 update 1 new\n3 insert 9 x\n4 delete 9\n5 insert 2 two")
    report = warehouse.ingest(ListSource([*copy, *log]))
    assert warehouse.rows() == [(1, "new"), (2, "two")]
    assert report.tables[0].merge.total == MergeCounts(unchanged=2)


def test_deletes_and_upserts_are_applied_in_one_transaction(warehouse: Warehouse) -> None:
    """The target without the deleted keys, without those upserted, and the upserts; against the documented
    way over sets, on random logs.
    """
    rng = random.Random(9)
    target: dict[int, str] = {}
    log: list[Entry] = []
    for seqno in range(3):
        upserts: dict[int, str] = {}
        deletes: set[int] = set()
        for n in range(60):
            key, operation = rng.randrange(30), rng.choice(["insert", "update", "delete"])
            log.append(Entry(seqno, "orders", operation, {"id": key, "msg": f"{seqno}.{n}"}))
            if operation == "delete":
                upserts.pop(key, None)
                deletes.add(key)
            else:
                deletes.discard(key)
                upserts[key] = f"{seqno}.{n}"
        target = {k: v for k, v in target.items() if k not in deletes and k not in upserts} | upserts
        report = warehouse.ingest(ListSource(list(log)))
        assert warehouse.rows() == sorted(target.items())
        assert report.tables[0].key_count == len(upserts) + len(deletes)
    assert len({mark.txn_id for mark in warehouse.marks()}) == 1


def test_a_failure_moves_neither_table_nor_watermark(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step fails, all is as before, and the next run applies everything."""
    source = ListSource(entries(FIRST))
    warehouse.ingest(source)
    before = (warehouse.rows(), warehouse.marks(), warehouse.files())
    source = ListSource([*source.log, *entries("6 insert 7 seven")])
    for owner, name in (
        (Watermarks, "write"),
        (type(warehouse.metastore), "record_row_counts"),
        (ListSource, {"spark": "read", "local": "read_local"}[warehouse.engine]),
    ):
        with monkeypatch.context() as patched, pytest.raises(InputFormatError, match="broken"):
            patched.setattr(owner, name, _fails)
            warehouse.ingest(source)
        assert (warehouse.rows(), warehouse.marks(), warehouse.files()) == before
        assert warehouse.open_txns() == []
    warehouse.ingest(source)
    assert warehouse.rows() == [*AFTER_FIRST, (7, "seven")]


def _fails(*arguments: object, **options: object) -> None:
    raise InputFormatError("broken")


def test_several_tables_at_once(warehouse: Warehouse) -> None:
    """One transaction, a watermark for each; a table that comes later gets the whole log."""
    warehouse.create("default.customers", "country", columns=COLUMNS)
    log = [
        *entries("1 insert 1 one"),
        Entry(1, "kunden", "insert", {"id": 1, "msg": "ann", "country": "de"}),
        Entry(2, "kunden", "insert", {"id": 2, "msg": "bob", "country": "fr"}),
        Entry(3, "kunden", "update", {"id": 1, "msg": "ann", "country": "fr"}),
    ]
    warehouse.ingest(ListSource(log[:1]))
    both = (ORDERS, TableMapping("kunden", "DEFAULT.Customers", ("ID",)))
    for dry_run in (True, False):
        with pytest.raises(PartitionCreationError):
            warehouse.ingest(ListSource(log), *both, dry_run=dry_run)
    report = warehouse.ingest(ListSource(log), *both, create_partitions=True)
    assert [(t.target, t.merge.total.inserted) for t in report.tables] == [
        ("default.orders", 0),
        ("default.customers", 2),
    ]
    assert [table.merge.new_partitions for table in report.tables] == [(), ("country=fr",)]
    assert warehouse.rows("default.customers") == [(1, "ann"), (2, "bob")]
    assert {(m.target, m.order, m.txn_id) for m in warehouse.marks()} == {
        ("default.orders", (3,), report.txn_id),
        ("default.customers", (3,), report.txn_id),
    }


def test_a_dry_run_writes_nothing(warehouse: Warehouse) -> None:
    """It counts as the run then does, with and without a watermark table; it makes none."""
    source = ListSource(entries(FIRST))
    dry = warehouse.ingest(source, dry_run=True)
    assert (warehouse.rows(), warehouse.files()) == ([], [])
    assert "mutation_watermarks" not in warehouse.metastore.get_all_tables("default")
    done = warehouse.ingest(source)
    assert (dry.is_dry_run, dry.txn_id) == (True, None)
    assert str(dry).startswith('list:test: would be applied up to {"seqno": 5}')
    assert dry.tables[0].merge.total == done.tables[0].merge.total
    assert dry.tables[0].contradictions == done.tables[0].contradictions
    files = warehouse.files()
    assert warehouse.ingest(source, dry_run=True).position is None
    again = warehouse.ingest(ListSource([*source.log, *entries("6 delete 1")]), dry_run=True)
    assert again.tables[0].merge.total == MergeCounts(deleted=1)
    assert warehouse.files() == files


def test_strict_refuses_contradictions(warehouse: Warehouse) -> None:
    """Within the log and with the table, naming keys and positions; nothing is written, dry or not."""
    first = entries("1 insert 1 one\n2 insert 2 two")
    warehouse.ingest(ListSource(first), strict=True)
    files, marks = warehouse.files(), warehouse.marks()
    cases = {
        "3 delete 1\n4 delete 1": "contradicts itself: 1 deletes of absent keys: delete of absent key",
        "3 insert 1 x": 'the rows of default.orders: 1 inserts of present keys: insert of key {"id":1}',
        "3 update 5 x": 'update of key {"id":5} at {"position":{"seqno":3,"row_id":2}}',
        "3 update 5 x\n4 delete 5": '1 updates of absent keys: update of key {"id":5}',
        "3 delete 5\n4 insert 5 x": '1 deletes of absent keys: delete of key {"id":5}',
    }
    for number, (log, message) in enumerate(cases.items()):
        source = ListSource([*first, *entries(log), *entries("9 update 2 zwei")])
        with pytest.raises(ContradictionError) as caught:
            warehouse.ingest(source, strict=True, dry_run=number > 1)
        assert message in str(caught.value)
        assert (warehouse.files(), warehouse.marks()) == (files, marks)


@pytest.mark.long
@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("3 insert 1 x\n4 delete 1", Contradictions(inserts_of_present=1)),
        ("3 delete 5\n4 insert 5 x\n3 update 6 y\n4 delete 6", Contradictions(0, 1, 1)),
    ],
)
def test_contradictions_with_the_table_are_counted(
    warehouse: Warehouse, log: str, expected: Contradictions
) -> None:
    """By what the log first says of a key, whatever it says last; in a dry run too."""
    warehouse.ingest(ListSource(entries("1 insert 1 one")))
    source = ListSource(entries("1 insert 1 one\n" + log))
    dry = warehouse.ingest(source, dry_run=True)
    assert dry.tables[0].contradictions == warehouse.ingest(source).tables[0].contradictions == expected


def test_strict_takes_a_log_that_fits(warehouse: Warehouse) -> None:
    """Every kind of operation where it may stand."""
    log = entries("1 insert 1 a\n2 update 1 b\n3 delete 1\n4 insert 1 c\n5 insert 2 x\n6 delete 2")
    assert warehouse.ingest(ListSource(log), strict=True).tables[0].contradictions.total == 0
    more = entries("7 update 1 d\n8 insert 2 y\n9 delete 2\n9 insert 3 z")
    report = warehouse.ingest(ListSource([*log, *more]), strict=True)
    assert report.tables[0].contradictions.total == 0
    assert warehouse.rows() == [(1, "d"), (3, "z")]


def test_a_source_that_was_set_back(warehouse: Warehouse) -> None:
    """Its end lies before what was applied: refused, nothing changes."""
    warehouse.ingest(ListSource(entries(FIRST)))
    before = (warehouse.rows(), warehouse.marks(), warehouse.files())

    class SetBack(ListSource):
        def read(self, spark, tables, after):  # type: ignore[no-untyped-def]
            return dataclasses.replace(super().read(spark, tables, {}), position=Position((2,), "two"))

        def read_local(self, tables, after):  # type: ignore[no-untyped-def]
            return dataclasses.replace(super().read_local(tables, {}), position=Position((2,), "two"))

    with pytest.raises(SourcePositionError, match=r"its position two \[2\] lies before"):
        warehouse.ingest(SetBack(entries(FIRST)))
    assert (warehouse.rows(), warehouse.marks(), warehouse.files()) == before


def test_who_holds_the_watermarks_is_waited_for(warehouse: Warehouse) -> None:
    """Another source's run, too, into another table: for so long, and then it is named."""
    ensure_watermark_table(warehouse.metastore, MARKS)
    source = ListSource(entries(FIRST))
    builder = MutatorClientBuilder().metastore(warehouse.metastore).add_sink_table(*MARKS.split("."))
    with builder.build() as client, client.new_transaction() as transaction:
        with pytest.raises(
            LockNotAcquiredError, match=f"held by EXCL_WRITE .* transaction {transaction.txn_id}"
        ):
            warehouse.ingest(source, lock_timeout_seconds=0.2)
        assert warehouse.open_txns() == [transaction.txn_id]
    assert warehouse.rows() == []


@pytest.mark.long
def test_tables_of_hive_2(tmp_path: Path, engine: tuple[str, Any]) -> None:
    """Without write ids."""
    warehouse = Warehouse(tmp_path, engine, HIVE_2_3)
    for end in (3, 5, 6):
        warehouse.ingest(ListSource(entries(FIRST)[:end]))
    assert warehouse.rows() == AFTER_FIRST
    assert [mark.order for mark in warehouse.marks()] == [(5,)]


def test_what_is_said_on_the_way(warehouse: Warehouse) -> None:
    """A line for each step."""
    lines: list[str] = []
    report = warehouse.ingest(ListSource(entries(FIRST)), progress=lines.append)
    assert lines == [
        "list:test: waiting for the lock on default.orders",
        f"list:test: reading, in transaction {report.txn_id}",
        "default.orders: 6 operations on 4 keys",
        "default.orders: merged 2 inserted, 0 updated, 0 deleted, 0 moved, 0 unchanged",
        f"list:test: committing transaction {report.txn_id}",
    ]


def test_the_source_may_say_which_columns_are_the_key(warehouse: Warehouse) -> None:
    """Who names none, and follows a source that does not say, is told so."""
    without = TableMapping("orders", "default.orders")
    with pytest.raises(ConfigurationError, match="source list:test does not define it"):
        warehouse.ingest(ListSource(entries(FIRST)), without)
    warehouse.ingest(ListSource(entries(FIRST), key=("id",)), without)
    assert warehouse.rows() == AFTER_FIRST


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        ([], {}, "no table given: name at least one target table"),
        ([ORDERS, TableMapping("x", "DEFAULT.orders")], {}, r"table default\.orders is listed twice"),
        ([ORDERS, TableMapping("orders", "default.x")], {}, "table orders is listed twice"),
        (
            [ORDERS, TableMapping("x", "other.x")],
            {},
            r"several databases \(default, other\): name the watermark table",
        ),
        (
            [ORDERS],
            {"watermark_table": "Default.Orders"},
            "cannot be both a target and the watermark table",
        ),
        ([TableMapping("x", "orders")], {}, "not the full name of a table: 'orders'"),
    ],
)
def test_tables_that_make_no_sense(
    warehouse: Warehouse, tables: list[TableMapping], options: dict[str, Any], message: str
) -> None:
    """Refused before anything is asked of the source or the metastore."""
    with pytest.raises(ConfigurationError, match=message):
        ingest(warehouse.metastore, tables, ListSource([]), **options, **warehouse.by)
    assert warehouse.metastore.get_all_tables("default") == ["orders"]


def test_columns_that_frames_of_operations_need_for_themselves(warehouse: Warehouse) -> None:
    """A table that has a column of such a name is refused rather than filled with positions."""
    warehouse.create("default.t", columns=[ColumnInfo("id", "bigint"), ColumnInfo("__operation", "string")])
    with pytest.raises(RecordLayoutError, match="the column name '__operation' is reserved; rename"):
        warehouse.ingest(ListSource(entries("1 insert 1 x", "t")), TableMapping("t", "default.t", ("id",)))
    assert warehouse.rows("default.t") == []


def test_a_table_may_have_an_operation_and_a_position(warehouse: Warehouse) -> None:
    """As any other columns."""
    names = ("operation", "position")
    warehouse.create(
        "default.t", columns=[ColumnInfo("id", "bigint"), *(ColumnInfo(name, "string") for name in names)]
    )
    log = [
        Entry(1, "t", "insert", {"id": 1, "operation": "hip", "position": "left"}),
        Entry(2, "t", "insert", {"id": 2, "operation": "knee", "position": "right"}),
        Entry(3, "t", "update", {"id": 1, "operation": "hip", "position": "right"}),
    ]
    warehouse.ingest(ListSource(log), TableMapping("t", "default.t", ("id",)))
    assert warehouse.rows("default.t") == [(1, "hip", "right"), (2, "knee", "right")]
