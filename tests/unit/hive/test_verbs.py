"""Delete and update by a condition, upsert, overwrite and truncate: what a reader finds; what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.testing import HIVE_4_1
from mutation_api.errors import (
    ConfigurationError,
    DeltaWriteError,
    DuplicateKeyError,
    MutationError,
    RecordLayoutError,
    RecordValueError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedLocallyError,
)
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_table import HiveTable
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.location import Location
from mutation_api.write import apply
from tests.unit.hive.conftest import NAME, MakeHive
from tests.unit.hive.test_steps import read, row, rows

FIRST = (row(1), row(2, "milk", "2.00"), row(3, "tea", "3.00", 1), row(4, "water", "4.00", 2))


@pytest.fixture(params=["2.3", "3.1", "4.1"])
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    """A table with four rows in three partitions."""
    connected = make_hive(request.param)
    assert connected.table(NAME).append(rows(*FIRST), create_partitions=True) == 4
    return connected


def counts(report: Any) -> tuple[int, int, int, int]:
    """Rows inserted, updated, deleted and moved."""
    total = report.total
    return (total.inserted, total.updated, total.deleted, total.moved)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("item = 'tea'", [2, 4]),
        ("day < date '2024-06-01' OR price >= 4", [3]),
        (pc.field("item") == "tea", [2, 4]),
        ((pc.field("day") == datetime.date(2024, 5, 1)) & (pc.field("id") > 1), [1, 3, 4]),
        ("id IN (1, 4) AND item LIKE 'te%'", [2, 3, 4]),
        ("id > 100", [1, 2, 3, 4]),
        ("item = NULL", [1, 2, 3, 4]),
    ],
    ids=range(7),
)
def test_delete_by_a_condition(hive: Hive, where: Any, left: list[int]) -> None:
    """Rows for which it is NULL stay; a dry run deletes nothing and reports the same."""
    tried = hive.table(NAME).delete(where=where, dry_run=True)
    assert read(hive) == list(FIRST)
    report = hive.table(NAME).delete(where=where)
    assert counts(report) == counts(tried) == (0, 0, 4 - len(left), 0)
    assert [each[0] for each in read(hive)] == left


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "where", "expected"),
    [
        ({"price": "price * 1.1"}, "item = 'tea'", {1: {"price": "1.10"}, 3: {"price": "3.30"}}),
        ({"ITEM": "'x'"}, None, {id_: {"item": "x"} for id_ in range(1, 5)}),
        ({"item": pc.scalar("y"), "price": Decimal("9.99")}, "id = 4", {4: {"item": "y", "price": "9.99"}}),
        (
            {"price": pc.add(pc.field("price"), pc.field("price"))},
            pc.field("id") == 2,
            {2: {"price": "4.00"}},
        ),
        ({"item": "CASE WHEN id > 3 THEN 'big' ELSE item END"}, "id >= 3", {4: {"item": "big"}}),
    ],
    ids=range(5),
)
def test_update_by_a_condition(hive: Hive, values: Any, where: Any, expected: dict[int, Any]) -> None:
    """Values are SQL, expressions or constants over the old row."""
    report = hive.table(NAME).update(set=values, where=where)
    assert report.total.updated == len(expected)
    names = ("id", "item", "price", "day")
    for before, after in zip(FIRST, read(hive), strict=True):
        wanted = dict(zip(names, before, strict=True)) | expected.get(before[0], {})
        wanted["price"] = Decimal(wanted["price"])
        assert after == tuple(wanted.values())


@pytest.mark.thorough(1)
def test_an_update_of_the_partition_moves_the_row(hive: Hive) -> None:
    """As a merge does."""
    report = hive.table(NAME).update(set={"day": "date '2024-07-01'"}, where="item = 'tea'")
    assert (report.total.updated, report.total.moved) == (0, 2)
    assert [each[3].month for each in read(hive)] == [7, 5, 7, 7]


@pytest.mark.thorough(1)
def test_upsert(hive: Hive) -> None:
    """Existing keys are updated, others inserted; a key that occurs twice is refused."""
    report = hive.table(NAME).upsert(rows(row(1, "cocoa"), row(9, "new", day=2)), on=["id"])
    assert counts(report) == (1, 1, 0, 0)
    assert read(hive) == [row(1, "cocoa"), *FIRST[1:], row(9, "new", day=2)]
    with pytest.raises(DuplicateKeyError):
        hive.table(NAME).upsert(rows(row(9), row(9)), on="id")


NEW = (row(10, "a", day=1), row(11, "b", day=1))


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "left"),
    [
        ({}, ()),
        ({"partitions": "dynamic"}, (FIRST[0], FIRST[1], FIRST[3])),
        ({"partitions": [{"day": "2024-06-01"}, {"DAY": datetime.date(2024, 7, 1)}]}, FIRST[:2]),
        ({"where": "day = date '2024-06-01'"}, (FIRST[0], FIRST[1], FIRST[3])),
        ({"where": pc.field("id") > 1}, FIRST[:1]),
        ({"partitions": [{"day": "2024-06-01"}, {"day": "1999-01-01"}]}, (FIRST[0], FIRST[1], FIRST[3])),
    ],
    ids=range(6),
)
def test_overwrite(hive: Hive, how: dict[str, Any], left: tuple[Any, ...]) -> None:
    """Replaced: all rows, those of the new rows' partitions, of named partitions, or by a condition."""
    report = hive.table(NAME).overwrite(rows(*NEW), **how)
    assert (report.deleted, report.inserted) == (4 - len(left), 2)
    assert read(hive) == sorted((*left, *NEW))
    is_base = hive.metastore.capabilities() == HIVE_4_1 and "where" not in how
    assert report.is_base is is_base
    assert bool(bases(hive)) is is_base


@pytest.mark.thorough(1)
def test_an_overwrite_by_a_condition_names_the_partitions_that_change(hive: Hive) -> None:
    """Those with old rows, and those with new ones; a dry run names the same."""
    for dry_run in (True, False):
        moved = rows(row(4, "x", day=1))
        report = hive.table(NAME).overwrite(moved, where="id = 4", dry_run=dry_run)
        assert report.partitions == ("day=2024-06-01", "day=2024-07-01")
    nothing = hive.table(NAME).overwrite(rows(), where="id > 90")
    assert (nothing.deleted, nothing.inserted, nothing.partitions) == (0, 0, ())


def bases(hive: Hive) -> list[str]:
    """The bases of all partitions."""
    location = hive.metastore.get_table(*NAME.split(".")).location
    found = [*Path(location.removeprefix("file:")).glob("day=*/base_*")]
    assert all((each / "_orc_acid_version").exists() for each in found)
    return sorted(f"{each.parent.name}/{each.name}" for each in found)


STEPS: dict[str, Callable[[HiveTable], object]] = {
    "append": lambda t: t.append(rows(row(20))),
    "delete by ROW__ID": lambda t: t.delete(t.scan([], row_ids=True, where=pc.field("id") == 10)),
    "delete by a condition": lambda t: t.delete(where="id = 10"),
    "update": lambda t: t.update(set={"item": "'x'"}, where="id = 11"),
    "merge": lambda t: t.upsert(rows(row(11, "merged", day=1), row(12)), on=["id"]),
    "truncate": lambda t: t.truncate(),
    "overwrite": lambda t: t.overwrite(rows(row(30, day=1)), partitions="dynamic"),
    "overwrite a condition": lambda t: t.overwrite(rows(row(10, "b")), where="id = 10"),
    "scan": lambda t: t.scan().to_arrow(),
    "dry run": lambda t: t.delete(where="id = 10", dry_run=True),
}


@pytest.mark.long
@pytest.mark.parametrize(
    "how", [{}, {"partitions": "dynamic"}, {"partitions": [{"day": "2024-06-01"}]}], ids=range(3)
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("new", [NEW, ()], ids=["rows", "no rows"])
def test_a_step_after_an_overwrite_deletes_the_old_rows(
    make_hive: MakeHive, how: dict[str, Any], step: str, new: Any
) -> None:
    """A base would hide the deltas of its write id. The rows are those on Hive 3.1, which writes no bases."""
    found = []
    for release in ("3.1", "4.1"):
        hive = make_hive(release)
        hive.table(NAME).append(rows(*FIRST), create_partitions=True)
        with hive.transaction(NAME, create_partitions=True) as tx:
            report = tx.table(NAME).overwrite(rows(*new), **how)
            STEPS[step](tx.table(NAME))
        found.append((read(hive), report.deleted, report.inserted))
        replaced_nothing = not new and "dynamic" in how.values() and step in ("overwrite", "truncate")
        assert bases(hive) == [] or replaced_nothing
        hive.drop_table(NAME)
    assert found[0] == found[1]


def test_a_failed_step_does_not_turn_an_overwrite_into_an_append(
    make_hive: MakeHive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are still to be replaced if their deletes could not be written."""
    hive = make_hive("4.1")
    hive.table(NAME).append(rows(*FIRST), create_partitions=True)
    with hive.transaction(NAME) as tx:
        tx.table(NAME).overwrite(rows(*NEW))
        with monkeypatch.context() as patched:
            patched.setattr(apply, "write_change_set", Mock(side_effect=DeltaWriteError("full")))
            with pytest.raises(DeltaWriteError, match="full"):
                tx.table(NAME).append(rows(row(20)))
        assert tx.summary.tables[0].deleted == 4
    assert read(hive) == [*NEW]
    assert len(bases(hive)) == 3


def test_an_aborted_overwrite_leaves_nothing(make_hive: MakeHive) -> None:
    """Neither before nor after its files were published."""
    hive = make_hive("4.1")
    hive.table(NAME).append(rows(*FIRST), create_partitions=True)
    with pytest.raises(ZeroDivisionError), hive.transaction(NAME) as tx:
        tx.table(NAME).overwrite(rows(*NEW))
        raise ZeroDivisionError
    with pytest.raises(TransactionAbortedError), hive.transaction(NAME) as tx:
        tx.table(NAME).overwrite(rows(*NEW))
        commit = hive.metastore.commit_txn

        def refused(txn_id: int, **given: Any) -> None:
            assert len(bases(hive)) == 3
            hive.metastore.abort_txn(txn_id)
            commit(txn_id, **given)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(hive.metastore, "commit_txn", refused)
            tx.commit()
    assert bases(hive) == []
    assert read(hive) == [*FIRST]


@pytest.mark.thorough(1)
def test_overwrite_with_no_rows(hive: Hive) -> None:
    """Named partitions become empty; dynamic replaces nothing."""
    assert hive.table(NAME).overwrite(rows(), partitions="dynamic").deleted == 0
    assert hive.table(NAME).overwrite(rows(), partitions=[{"day": "2024-05-01"}]).deleted == 2
    assert read(hive) == [FIRST[2], FIRST[3]]
    assert hive.table(NAME).overwrite(rows()).to_dict()["deleted"] == 2
    assert read(hive) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        (
            {"partitions": [{"day": "2024-05-01"}]},
            RecordValueError,
            "day=2024-06-01, which are not",
        ),
        ({"where": "id < 10"}, RecordValueError, "2 of the new rows do not meet the condition"),
        ({"partitions": "static"}, ConfigurationError, 'must be "dynamic" or a list'),
        ({"partitions": [{"month": 1}]}, ConfigurationError, "the partition columns day"),
        ({"partitions": [{}]}, ConfigurationError, "values of some of day"),
        ({"partitions": "dynamic", "where": "id = 1"}, ConfigurationError, "not both"),
        ({"where": "nothing = 1"}, RecordLayoutError, "column nothing does not exist"),
    ],
    ids=range(7),
)
def test_overwrites_that_are_refused(
    hive: Hive, how: dict[str, Any], error: type[MutationError], message: str
) -> None:
    """Before anything is written, and the transaction goes on."""
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        with pytest.raises(error, match=message):
            orders.overwrite(rows(*NEW), **how)
        orders.append(rows(row(20)))
    assert read(hive) == [*FIRST, row(20)]


@pytest.mark.thorough(1)
def test_truncate(hive: Hive) -> None:
    """All rows go; the partitions stay."""
    assert hive.table(NAME).truncate(dry_run=True).total.deleted == 4
    assert hive.table(NAME).truncate().total.deleted == 4
    assert read(hive) == []
    with hive.transaction(NAME) as tx:  # no partition has to be created
        tx.table(NAME).append(rows(*FIRST))
    assert read(hive) == list(FIRST)


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.delete(), ConfigurationError, r"truncate\(\) deletes all rows"),
        (lambda t: t.delete(rows(), where="id = 1"), ConfigurationError, "needs rows with ROW__ID, or where"),
        (lambda t: t.delete(rows(), dry_run=True), ConfigurationError, "dry_run cannot be combined"),
        (lambda t: t.update(rows(), set={"id": 1}), ConfigurationError, "needs rows with ROW__ID, or set"),
        (lambda t: t.update(where="id = 1"), ConfigurationError, "needs rows with ROW__ID, or set"),
        (lambda t: t.update(set={"no": "1"}), RecordLayoutError, "no"),
        (lambda t: t.update(set={"price": "missing + 1"}), RecordLayoutError, "missing does not exist"),
        (lambda t: t.update(set={"price": "rand()"}), UnsupportedLocallyError, "rand"),
        (lambda t: t.delete(where="upper(item) = 'TEA'"), UnsupportedLocallyError, "upper"),
        (lambda t: t.delete(where="id + 1"), RecordLayoutError, "must be boolean"),
        (lambda t: t.delete(where=pc.field("nothing") == 1), RecordLayoutError, "nothing"),
        (lambda t: t.scan(where="nothing = 1"), RecordLayoutError, "nothing does not exist"),
    ],
    ids=range(12),
)
def test_calls_that_are_refused(
    hive: Hive, call: Callable[[HiveTable], object], error: type[MutationError], message: str
) -> None:
    """With what to do instead; nothing is changed."""
    with hive.transaction(NAME) as tx, pytest.raises(error, match=message):
        call(tx.table(NAME))
    assert read(hive) == list(FIRST)


@pytest.mark.thorough(1)
def test_verbs_see_each_other(hive: Hive) -> None:
    """In one transaction; on Hive 2 the second is refused by name."""
    is_hive_2 = "2.3" in str(hive.metastore.capabilities())
    with hive.transaction(NAME, create_partitions=True) as tx:
        orders = tx.table(NAME)
        orders.delete(where="item = 'tea'")
        if not orders_take_steps(orders):
            with pytest.raises(TransactionStateError, match="On Hive 2"):
                orders.update(set={"price": "price + 1"})
            assert not is_hive_2 or read(hive) == list(FIRST)
            return
        orders.update(set={"price": "price + 1"}, where="id < 4")
        orders.upsert(rows(row(2, "milk", "7.00"), row(5, "juice", "1.00")), on=["id"])
        orders.overwrite(rows(row(6, "cola", day=2)), partitions="dynamic")
        assert orders.scan(["id"], "price > 1").to_arrow()["id"].to_pylist() == [2]
        orders.truncate()
        orders.append(rows(row(7)))
    assert read(hive) == [row(7)]


def orders_take_steps(orders: HiveTable) -> bool:
    """True on Hive 3 and later."""
    try:
        orders.scan()
    except TransactionStateError:
        return False
    return True


def test_scan_by_sql(hive: Hive) -> None:
    """SQL, an expression, or the name of a boolean column."""
    with hive.snapshot(NAME) as view:
        table = view.table(NAME)
        for where in ("item = 'tea' AND price < 2", (pc.field("item") == "tea") & (pc.field("price") < 2)):
            assert table.scan(["id"], where).to_arrow()["id"].to_pylist() == [1]


def test_a_table_without_comparable_columns(make_hive: MakeHive) -> None:
    """Conditions need no key: a table of maps and doubles can be changed, too."""
    hive = make_hive("4.1")
    hive.create_table("default.odd", "m map<string,int>, x double")
    data = pa.table(
        {
            "m": pa.array([[("a", 1)], [("b", 2)], None], pa.map_(pa.string(), pa.int32())),
            "x": [1.0, float("nan"), 3.0],
        }
    )
    odd = hive.table("default.odd")
    odd.append(data)
    assert odd.delete(where=pc.field("x") == 3.0).total.deleted == 1
    assert odd.update(set={"x": pc.scalar(7.0)}, where=pc.is_nan(pc.field("x"))).total.updated == 1
    with hive.snapshot("default.odd") as view:
        assert sorted(view.table("default.odd").scan(["x"]).to_arrow()["x"].to_pylist()) == [1.0, 7.0]


def test_an_upsert_by_the_primary_key(make_hive: MakeHive) -> None:
    """Without on, the declared key counts; without a declared one it is refused."""
    hive = make_hive("3.1")
    with pytest.raises(ConfigurationError, match=r"declares no primary key.*ADD CONSTRAINT"):
        hive.table(NAME).upsert(rows(row(1)))
    hive.metastore.set_constraints(*NAME.split("."), (), primary_key=["ID"])  # type: ignore[attr-defined]
    report = hive.table(NAME).upsert(rows(row(1)), create_partitions=True)
    assert report.total.inserted == 1
    assert hive.table(NAME).upsert(rows(row(1, "milk"))).total.updated == 1


@pytest.mark.thorough
@pytest.mark.parametrize("line", ["2.3", "4.1"])
def test_columns_that_the_table_lacks_are_added(make_hive: MakeHive, line: str) -> None:
    """With schema="add", before the transaction; older rows have NULL. A dry run changes nothing."""
    hive = make_hive(line)
    hive.table(NAME).append(rows(row(1)), create_partitions=True)
    wider = rows(row(1, "milk"), row(2)).append_column("Note", pa.array(["a", "b"]))
    with pytest.raises(RecordLayoutError, match="Note"):
        hive.table(NAME).append(wider)
    with pytest.raises(ConfigurationError, match="expected 'exact' or 'add'"):
        hive.table(NAME).append(wider, schema="merge")  # type: ignore[arg-type]
    tried = hive.table(NAME).upsert(wider, on=["id"], dry_run=True, schema="add")
    assert counts(tried) == (1, 1, 0, 0) and "note" not in hive.table(NAME).schema.names
    hive.table(NAME).upsert(wider, on=["id"], schema="add")
    more = (
        rows(row(3)).append_column("size", pa.array([7], pa.int32())).append_column("note", pa.array(["c"]))
    )
    assert hive.table(NAME).append(more, schema="add") == 1
    with hive.snapshot(NAME) as view:
        found = view.table(NAME).scan(["id", "item", "note", "size"]).to_arrow().sort_by("id").to_pydict()
    assert found["note"] == ["a", "b", "c"] and found["size"] == [None, None, 7]
    odd = rows(row(4)).append_column("gap", pa.array([1], pa.duration("s")))
    with pytest.raises(MutationError, match="gap"):
        hive.table(NAME).append(odd, schema="add")


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 5", {5}),
        ("id = 5 or id = 105", {5, 105}),
        ("price > 3 and id < 10", set(range(4, 10))),
        ("id is null", set()),
    ],
)
def test_strings_are_read_only_of_files_with_a_row_to_change(
    make_hive: MakeHive, monkeypatch: pytest.MonkeyPatch, where: str, expected: set[int]
) -> None:
    """The columns of the condition are read first, of all files."""
    connected = make_hive("4.1", keys=())
    for first in (0, 100):
        ids = range(first, first + 10)
        prices = pa.array([Decimal(n % 100) for n in ids], pa.decimal128(8, 2))
        data = pa.table({"id": pa.array(ids, pa.int64()), "item": ["tea"] * 10, "price": prices})
        connected.table(NAME).append(data)
    ids_of, asked = dict[Location, set[int]](), set[Location]()
    decoded = OrcInput.read_stripe

    def read_stripe(file: OrcInput, index: int, columns: Sequence[str], groups: Any = None) -> pa.RecordBatch:
        found = decoded(file, index, columns, groups)
        if "row.id" in columns and file.location not in ids_of:
            ids_of[file.location] = set(found.column("row").field("id").to_pylist())
        if "row.item" in columns:
            asked.add(file.location)
        return found

    monkeypatch.setattr(OrcInput, "read_stripe", read_stripe)
    assert connected.table(NAME).update(set={"item": "'milk'"}, where=where).total.updated == len(expected)
    assert len(ids_of) == 4
    assert asked == {file for file, ids in ids_of.items() if ids & expected}
    with connected.snapshot(NAME) as view:
        milk = view.table(NAME).scan(["id"], where="item = 'milk'").to_arrow()
    assert set(milk["id"].to_pylist()) == expected
