"""An export brings its target to the state of the table, whatever happened to the table in between."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore, memory_tables
from mutation_api.cdc.export import unit_writer
from mutation_api.cdc.export.export import Export
from mutation_api.cdc.export.exported_types import EXPORTED_TYPES, exported_batch
from mutation_api.cdc.export.target import TargetAddress, TargetFile
from mutation_api.errors import (
    ConfigurationError,
    ConnectionFailedError,
    DirectoryStateError,
    LockLostError,
    RecordLayoutError,
    RecordValueError,
    SourcePositionError,
)
from mutation_api.format.hive_type import NESTED_KINDS, PRIMITIVES
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from tests.fixtures.fix_clock import FakeClock
from tests.support.dying_targets import Died, Mortal
from tests.support.lakes import KINDS, Lake, in_order

LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
ORDERS = "default.orders"


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A place for targets of each format."""
    return Lake(tmp_path / "lake", request.param)


@pytest.fixture(params=["4.1", *(pytest.param(line, marks=pytest.mark.long) for line in ("2.3", "3.1"))])
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hive]:
    """A partitioned and bucketed table."""
    metastore = InMemoryMetastore(tmp_path / "warehouse", capabilities=LINES[request.param])
    with connect(metastore) as connected:
        connected.create_table(
            ORDERS,
            "id bigint, item string, price decimal(12,2), at timestamp, flag tinyint, tags "
            "array<smallint>, day date",
            partitioned_by=["day"],
            clustered_by=["id"],
            num_buckets=2,
            properties={"transactional_properties": "default"},
        )
        yield connected


def rows(*given: tuple[int, str, int]) -> pa.Table:
    """Rows: id, item, and the day of May."""
    return pa.table(
        {
            "id": pa.array([each[0] for each in given], pa.int64()),
            "item": [each[1] for each in given],
            "price": pa.array([each[0] for each in given], pa.decimal128(12, 2)),
            "at": pa.array([1_000_001 * each[0] for each in given], pa.timestamp("us")),
            "flag": pa.array([each[0] % 3 or None for each in given], pa.int8()),
            "tags": pa.array([[each[0] % 5, None] for each in given], pa.list_(pa.int16())),
            "day": pa.array([datetime.date(2024, 5, each[2]) if each[2] else None for each in given]),
        }
    )


def append(hive: Hive, *given: tuple[int, str, int]) -> None:
    """Append rows."""
    with hive.transaction(ORDERS, create_partitions=True) as tx:
        tx.table(ORDERS).append(rows(*given))


def table_rows(hive: Hive) -> list[Any]:
    """The rows of the table."""
    with hive.snapshot(ORDERS) as view:
        return in_order(view.table(ORDERS).scan().to_arrow())


@pytest.mark.thorough
def test_a_target_follows_its_table(hive: Hive, lake: Lake) -> None:
    """Inserts add files, deletes and updates replace those of their buckets, and nothing is done twice."""
    export = Export(hive, ORDERS, to=lake.address(), options=lake.options)
    append(hive, *((n, "a", n % 3) for n in range(40)))
    (first,) = export.run().tables
    assert first.is_first_copy and first.row_count == 40
    assert lake.rows() == table_rows(hive)
    assert not export.run().is_changed
    append(hive, (100, "b", 1))
    (appended,) = export.run().tables
    assert (appended.units_appended, appended.files_added, appended.files_removed) == (1, 1, 0)
    assert lake.rows() == table_rows(hive)
    hive.table(ORDERS).delete(where="id = 100")
    hive.table(ORDERS).update(set={"item": "'z'"}, where="id = 4")
    (replaced,) = Export(hive, ORDERS, to=lake.address(), options=lake.options).run().tables
    assert replaced.units_replaced <= 2 and replaced.units_appended == 0
    assert lake.rows() == table_rows(hive)
    verified = export.verify()
    assert verified.is_equal and verified.tables[0].row_count == 40
    hive.table(ORDERS).delete(where="id >= 0")
    (removed,) = export.run().tables
    assert removed.row_count == 0 and lake.rows() == table_rows(hive) == []


def change(hive: Hive, rng: random.Random, number: int) -> None:
    """A random change of the table."""
    table = hive.table(ORDERS)
    match rng.randrange(8):
        case 0 | 1 | 2:
            append(hive, *((10 * number + n, "a", rng.randrange(4)) for n in range(rng.randrange(1, 6))))
        case 3:
            table.update(set={"item": "'u'"}, where=f"id > {rng.randrange(10 * number)}")
        case 4:
            table.delete(where=f"id < {rng.randrange(10 * number)}")
        case 5:
            with hive.transaction(ORDERS, create_partitions=True) as tx:
                tx.table(ORDERS).overwrite(rows((number, "o", 1)), partitions="dynamic")
        case 6:
            database, name = ORDERS.split(".")
            names = hive.metastore.get_partition_names(database, name)
            if names:
                hive.metastore.drop_partition(database, name, rng.choice(names))
        case _:
            table.truncate()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 30))])
def test_random_changes_and_deaths_at_each_step(hive: Hive, lake: Lake, seed: int) -> None:
    """Wherever a run dies, the next one brings the target to the state of the table."""
    rng = random.Random(seed)
    deaths = 0
    for number in range(1, 13):
        for _ in range(rng.randrange(1, 4)):
            change(hive, rng, number)
        for last in (rng.randrange(1, 9), None):
            export = Export(hive, ORDERS, to=lake.address(), options=lake.options)
            Mortal(*export.targets, last)
            try:
                export.run()
            except Died:
                deaths += 1
        assert lake.rows() == table_rows(hive)
        assert not Export(hive, ORDERS, to=lake.address(), options=lake.options).run().is_changed
        assert export.verify().is_equal
    assert deaths > 3


LATEST = pytest.mark.parametrize("hive", ["4.1"], indirect=True)


def export_of(hive: Hive, lake: Lake, *tables: str, **options: Any) -> Export:
    """An export of ORDERS, or of other tables."""
    names = tables or (ORDERS,)
    return Export(hive, *names, to=lake.address("{table}"), options=lake.options, **options)


def commit_of_a_stranger(lake: Lake) -> None:
    """Append a row to the target without an export."""
    row = rows((7, "stranger", 1))
    if lake.kind == "delta":
        write_deltalake(str(lake.folder / "orders"), row, mode="append")
    else:
        table = lake.iceberg()
        table.append(row.cast(table.schema().as_arrow()))


@pytest.mark.thorough(1)
def test_deleted_rows_are_left_out_of_the_files_that_have_them(
    hive: Hive, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hive's files are read for new rows only, and files without deleted rows stay."""
    append(hive, *((n, "a", 1) for n in range(40)))
    export = export_of(hive, lake)
    export.run()
    append(hive, *((n, "b", 1) for n in range(40, 50)))
    export.run()
    before = {file.handle[0] if lake.kind == "delta" else file.handle.file_path for file in files_of(export)}
    hive.table(ORDERS).update(set={"item": "'z'"}, where="id < 3")
    hive.table(ORDERS).delete(where="id = 4")
    monkeypatch.setattr(unit_writer, "split_rows", lambda *_, **__: pytest.fail("the snapshot was read"))
    (rewritten,) = export.run().tables
    assert lake.rows() == table_rows(hive)
    assert 0 < rewritten.files_removed <= 2
    after = {file.handle[0] if lake.kind == "delta" else file.handle.file_path for file in files_of(export)}
    assert len(before & after) == len(before) - rewritten.files_removed >= 2


@pytest.mark.thorough
@LATEST
def test_rows_that_came_and_went_between_two_runs(hive: Hive, lake: Lake) -> None:
    """The target never had them, so none of its files changes."""
    append(hive, *((n, "a", 1) for n in range(10)))
    export = export_of(hive, lake)
    export.run()
    append(hive, *((n, "b", 1) for n in range(10, 20)))
    hive.table(ORDERS).delete(where="id >= 15")
    (appended,) = export.run().tables
    assert (appended.row_count, appended.files_removed) == (5, 0)
    assert lake.rows() == table_rows(hive)


def files_of(export: Export) -> list[TargetFile]:
    """The files of a target."""
    (target,) = export.targets
    target.load()
    return target.files()


@pytest.mark.thorough(1)
@LATEST
def test_files_that_lack_deleted_rows_are_replaced(
    hive: Hive, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file has other rows than its position says, the snapshot decides."""
    append(hive, *((n, "a", 1) for n in range(40)))
    export = export_of(hive, lake)
    real = unit_writer.split_rows
    with monkeypatch.context() as patched:
        patched.setattr(unit_writer, "split_rows", lambda *a, **k: (rows.slice(1) for rows in real(*a, **k)))
        export.run()
    assert lake.rows() != table_rows(hive)
    hive.table(ORDERS).delete(where="id < 10")
    export.run()
    assert lake.rows() == table_rows(hive)


@pytest.mark.thorough(1)
@LATEST
def test_an_insert_only_table_is_followed(hive: Hive, lake: Lake) -> None:
    """Its rows have no ROW__ID; inserts add files, and an overwrite replaces them."""
    name = "default.visits"
    table = hive.create_table(name, "user string, n int", insert_only=True)
    export = export_of(hive, lake, name)
    table.append(pa.table({"user": ["a", "b"], "n": pa.array([1, 2], pa.int32())}))
    export.run()
    table.append(pa.table({"user": ["c"], "n": pa.array([3], pa.int32())}))
    (appended,) = export.run().tables
    assert (appended.row_count, appended.files_removed) == (1, 0)
    assert sorted(lake.arrow("visits")["user"].to_pylist()) == ["a", "b", "c"]
    with hive.transaction(name) as tx:
        tx.table(name).overwrite(pa.table({"user": ["d"], "n": pa.array([4], pa.int32())}))
    (replaced,) = export.run().tables
    assert replaced.files_removed == 2 and replaced.copied_again == ("",)
    assert lake.arrow("visits").to_pylist() == [{"user": "d", "n": 4}]
    assert export.verify().is_equal


@pytest.mark.thorough(1)
@LATEST
def test_a_target_may_be_vacuumed(hive: Hive, lake: Lake) -> None:
    """Replaced files are removed, and the export goes on."""
    append(hive, *((n, "a", 1) for n in range(10)))
    export = export_of(hive, lake)
    export.run()
    hive.table(ORDERS).update(set={"item": "'z'"}, where="id < 5")
    export.run()
    if lake.kind == "delta":
        removed = DeltaTable(str(lake.folder / "orders")).vacuum(
            retention_hours=0, dry_run=False, enforce_retention_duration=False
        )
        assert removed
    else:
        table = lake.iceberg()
        old = [each.snapshot_id for each in table.snapshots()[:-1]]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    append(hive, (100, "b", 1))
    assert export.run().is_changed
    assert lake.rows() == table_rows(hive)


@pytest.mark.thorough(1)
@LATEST
def test_a_commit_of_a_stranger_is_refused(hive: Hive, lake: Lake) -> None:
    """Its rows are neither overwritten nor mixed with those of a later position."""
    append(hive, (1, "a", 1))
    export = export_of(hive, lake)
    export.run()
    commit_of_a_stranger(lake)
    append(hive, (2, "b", 1))
    before = lake.rows()
    for act in (export.run, export.verify, export.cutover):
        with pytest.raises(ConfigurationError, match="was not made by an export"):
            act()
    assert lake.rows() == before


@LATEST
def test_a_table_of_a_stranger_is_refused(hive: Hive, lake: Lake) -> None:
    """A target that no export made is left alone."""
    if lake.kind == "delta":
        write_deltalake(str(lake.folder / "orders"), rows((7, "stranger", 1)))
    else:
        catalog = load_catalog("lake", **lake.options)
        catalog.create_namespace("copies")
        catalog.create_table("copies.orders", rows((7, "x", 1)).select(["id", "item"]).schema)
    append(hive, (1, "a", 1))
    before = lake.rows()
    with pytest.raises(ConfigurationError, match="was not made by an export"):
        export_of(hive, lake).run()
    assert lake.rows() == before


@pytest.mark.thorough(1)
@LATEST
def test_of_two_runs_at_a_time_one_is_refused(
    hive: Hive, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit requires that the target is as it was read, also that of rows which are only added."""
    append(hive, (1, "a", 1))
    export_of(hive, lake).run()
    append(hive, (2, "b", 1))
    slow = export_of(hive, lake)
    commit = slow.targets[0].commit

    def late(change: Any) -> None:
        export_of(hive, lake).run()
        commit(change)

    monkeypatch.setattr(slow.targets[0], "commit", late)
    with pytest.raises(LockLostError, match="another commit came first"):
        slow.run()
    assert lake.rows() == table_rows(hive)
    assert not export_of(hive, lake).run().is_changed


@pytest.mark.thorough
@LATEST
def test_a_stranger_between_reading_and_committing_is_refused(
    hive: Hive, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if its rows conflict with none of the export's, and the export only adds rows and a column."""
    append(hive, (1, "a", 1))
    export_of(hive, lake).run()
    append(hive, (2, "b", 2))
    hive.alter_table(ORDERS, add={"note": "string"})
    slow = export_of(hive, lake)
    commit = slow.targets[0].commit

    def late(change: Any) -> None:
        commit_of_a_stranger(lake)
        commit(change)

    monkeypatch.setattr(slow.targets[0], "commit", late)
    with pytest.raises(LockLostError, match="another commit came first"):
        slow.run()
    assert len(lake.rows()) == 2
    with pytest.raises(ConfigurationError, match="was not made by an export"):
        export_of(hive, lake).run()


@pytest.mark.thorough(1)
@LATEST
def test_columns_are_added(hive: Hive, lake: Lake) -> None:
    """A new column is NULL in the rows before it, and dies nowhere between the column and the rows."""
    append(hive, (1, "a", 1), (2, "b", 2))
    export_of(hive, lake).run()
    hive.alter_table(ORDERS, add={"note": "string", "more": "map<string,smallint>"})
    (added,) = export_of(hive, lake).run().tables
    assert added.added_columns == ("note", "more")
    assert lake.rows() == table_rows(hive)
    hive.table(ORDERS).update(set={"note": "'x'"}, where="id = 2")
    export_of(hive, lake).run()
    assert lake.rows() == table_rows(hive)
    assert export_of(hive, lake).verify().is_equal


@LATEST
def test_columns_that_were_renamed_or_changed_are_refused_by_name(hive: Hive, lake: Lake) -> None:
    """The target stays as it is."""
    append(hive, (1, "a", 1))
    export_of(hive, lake).run()
    before = lake.rows()
    hive.alter_table(ORDERS, widen={"price": "decimal(20,2)"})
    with pytest.raises(ConfigurationError, match=r"price: the target has decimal128\(12, 2\)"):
        export_of(hive, lake).run()
    hive.alter_table(ORDERS, rename={"item": "thing"})
    with pytest.raises(ConfigurationError, match="item: the table no longer has it"):
        export_of(hive, lake).run()
    assert lake.rows() == before


@LATEST
def test_a_table_that_was_created_again_is_refused(
    hive: Hive, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ids begin again, so a position of the earlier table means nothing."""
    append(hive, (1, "a", 1))
    export_of(hive, lake).run()
    before = lake.rows()
    hive.drop_table(ORDERS)
    monkeypatch.setattr(memory_tables.time, "time", lambda: 4_000_000_000.5)
    hive.create_table(ORDERS, "id bigint, item string, day date", partitioned_by=["day"])
    with hive.transaction(ORDERS, create_partitions=True) as tx:
        tx.table(ORDERS).append(rows((2, "b", 1)).select(["id", "item", "day"]))
    with pytest.raises(SourcePositionError, match="dropped and created again"):
        export_of(hive, lake).run()
    assert lake.rows() == before


@LATEST
def test_types_without_an_equal_are_refused_by_name_or_become_strings(hive: Hive, lake: Lake) -> None:
    """A union at any depth is refused, with all such columns in one message."""
    hive.create_table("default.odd", "id int, u uniontype<int,string>, l array<uniontype<int,string>>")
    with pytest.raises(RecordLayoutError, match=r"u uniontype<int,string>; l array<uniontype<int,string>>"):
        export_of(hive, lake, "default.odd").run()
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()),
        pa.array([0, 0], pa.int32()),
        [pa.array([5], pa.int32()), pa.array(["x"])],
        ["_union_0", "_union_1"],
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), union)
    odd = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int32()), union, lists], ["id", "u", "l"])
    hive.table("default.odd").append(odd)
    export = export_of(hive, lake, "default.odd", unsupported_as_text=True)
    export.run()
    found = sorted(lake.arrow("odd").to_pylist(), key=lambda row: row["id"])
    assert [row["u"] for row in found] == ["[0, 5]", '[1, "x"]']  # the tag, and the value
    assert export.verify().is_equal


PARTITION_VALUES: dict[str, list[Any]] = {
    "string": ["a b/c=%d", "é\"'", None],
    "varchar(9)": ["x", None],
    "char(5)": ["y", None],
    "tinyint": [1, -5, None],
    "smallint": [7],
    "int": [3, None],
    "bigint": [1 << 40],
    "boolean": [True, False, None],
    "decimal(10,3)": [Decimal("1.500"), Decimal("0.001")],  # deltalake 1.6.6 cannot read negative ones
    "double": [1.5, 1e300],
    "float": [0.25],
    "date": [datetime.date(1582, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [datetime.datetime(2024, 5, 1, 12, 0, 0, 123456), datetime.datetime(1, 1, 1)],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", PARTITION_VALUES)
@LATEST
def test_values_of_partition_columns(hive: Hive, lake: Lake, kind: str) -> None:
    """Readers of the target see the values that Hive's partitions have."""
    name, values = "default.parts", PARTITION_VALUES[kind]
    table = hive.create_table(name, f"id bigint, p {kind}", partitioned_by=["p"])
    ids = pa.array(range(len(values)), pa.int64())
    with hive.transaction(name, create_partitions=True) as tx:
        tx.table(name).append(pa.table({"id": ids, "p": pa.array(values, table.schema.field("p").type)}))
    export = export_of(hive, lake, name)
    export.run()
    table.delete(where="id = 0")
    export.run()
    found = {row["id"]: row["p"] for row in lake.arrow("parts").to_pylist()}
    assert found == dict(enumerate(values[1:], 1))
    assert export.verify().is_equal


@LATEST
def test_nanoseconds_are_refused_or_cut(hive: Hive, lake: Lake) -> None:
    """A value that the target cannot hold is not changed silently."""
    hive.create_table("default.times", "at timestamp")
    hive.table("default.times").append(pa.table({"at": pa.array([1_000_000_001], pa.timestamp("ns"))}))
    with pytest.raises(RecordValueError):
        export_of(hive, lake, "default.times").run()
    export = export_of(hive, lake, "default.times", truncate_nanoseconds=True)
    export.run()
    assert lake.arrow("times")["at"].to_pylist() == [datetime.datetime(1970, 1, 1, 0, 0, 1)]
    assert export.verify().is_equal


@pytest.mark.thorough(1)
@LATEST
def test_tables_together_are_at_one_position(hive: Hive, lake: Lake) -> None:
    """All targets get the position of one snapshot, including those whose table did not change."""
    hive.create_table("default.items", "id bigint, item string")
    both = (ORDERS, "default.items")
    export = export_of(hive, lake, *both, tables_together=True)
    append(hive, (1, "a", 1))
    first = export.run()
    assert len({each.position for each in first.tables}) == 1
    hive.table("default.items").append(pa.table({"id": [1], "item": ["x"]}))
    second = export.run()
    assert len({each.position for each in second.tables} - {first.tables[0].position}) == 1
    assert all(each.is_changed for each in second.tables)
    assert not export.run().is_changed
    with pytest.raises(ConfigurationError, match="need one target each"):
        Export(hive, *both, to=lake.address("one"), options=lake.options)


@pytest.mark.thorough
@LATEST
def test_a_difference_is_found_and_stops_a_cutover(
    hive: Hive, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value that was written wrong is reported with its partition, and nothing is marked."""

    def wrong(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        found = exported_batch(batch, schema)
        keys, items = (found.column(name).to_pylist() for name in ("id", "item"))
        items = [None if key == 3 else item for key, item in zip(keys, items, strict=True)]
        return found.set_column(found.schema.get_field_index("item"), "item", pa.array(items, pa.string()))

    append(hive, *((n, "a", n % 3) for n in range(30)))
    export = export_of(hive, lake)
    with monkeypatch.context() as patched:
        patched.setattr(unit_writer, "exported_batch", wrong)
        export.run()
    verified = export.verify()
    (different,) = verified.tables[0].differences
    assert not verified.is_equal and different.source_count == different.target_count == 10
    assert different.values == {"day": None}
    assert "DIFFER" in str(verified) and verified.to_dict()["equal"] is False
    with pytest.raises(DirectoryStateError, match="no table was marked"):
        export.cutover()
    assert not export.run().is_changed


@pytest.mark.thorough
@LATEST
def test_a_cutover_copies_the_rest_and_ends_the_export(hive: Hive, lake: Lake) -> None:
    """The table has the mark, and its lock is free again."""
    append(hive, (1, "a", 1))
    export = export_of(hive, lake)
    export.run()
    append(hive, (2, "b", 1))
    report = export.cutover()
    assert report.verified.is_equal and report.exported.is_changed
    assert lake.rows() == table_rows(hive)
    assert hive.metastore.get_table("default", "orders").parameters[report.mark] == lake.address()
    append(hive, (3, "c", 1))
    with pytest.raises(ConfigurationError, match="was moved to"):
        export.run()
    assert json.loads(json.dumps(report.to_dict()))["verified"]["equal"] is True


@pytest.mark.thorough(1)
@LATEST
def test_a_run_repeats_itself_after_a_pause(hive: Hive, lake: Lake) -> None:
    """Each report is that of one run."""
    append(hive, (1, "a", 1))
    clock = FakeClock()
    following = export_of(hive, lake).follow(60, clock=clock)
    assert next(following).is_changed
    append(hive, (2, "b", 1))
    assert next(following).is_changed
    assert not next(following).is_changed
    assert lake.rows() == table_rows(hive)
    with pytest.raises(ConfigurationError, match="above 0"):
        next(export_of(hive, lake).follow(0))


@LATEST
def test_a_catalog_that_does_not_answer(hive: Hive) -> None:
    """Errors of the package become those of this library."""
    options = {"type": "sql", "uri": "sqlite:////no/such/folder/catalog.db", "warehouse": "/nowhere"}
    with pytest.raises(ConnectionFailedError, match=r"target iceberg:lake\.a\.b: OperationalError"):
        Export(hive, ORDERS, to="iceberg:lake.a.b", options=options).run()


def test_addresses_that_name_no_target_are_refused() -> None:
    """A kind and a place are needed."""
    for wrong in ("s3://bucket/t", "delta:", "iceberg:t", "iceberg:catalog.t", "iceberg:a..b"):
        with pytest.raises(ConfigurationError, match="expected delta:URL"):
            TargetAddress.parse(wrong)
    assert str(TargetAddress.parse("delta:s3a://bucket/t")) == "delta:s3://bucket/t"


def test_every_type_of_hive_has_a_place_in_the_table_of_types() -> None:
    """A new type must be mapped or refused on purpose."""
    assert set(EXPORTED_TYPES) == {*PRIMITIVES, *NESTED_KINDS}
