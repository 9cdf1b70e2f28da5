"""Several steps on one table in a transaction: each sees those before it, a reader sees all or nothing."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mutation_api.errors import MutationError, RowIdNotFoundError, TransactionStateError
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_table import HiveTable
from tests.unit.hive.conftest import NAME, MakeHive

DAYS = [datetime.date(2024, month, 1) for month in (5, 6, 7)]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("item", pa.string()), ("price", pa.decimal128(8, 2)), ("day", pa.date32())]
)

Row = tuple[int, str, Decimal, datetime.date]


def row(id_: int, item: str = "tea", price: str = "1.00", day: int = 0) -> Row:
    """A row of the table."""
    return (id_, item, Decimal(price), DAYS[day])


def rows(*given: Row) -> pa.Table:
    """Rows as Arrow data."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in given], SCHEMA)


def seen(table: Any) -> list[tuple[Any, ...]]:
    """What a scan finds, ordered."""
    return sorted(tuple(each[n] for n in SCHEMA.names) for each in table.scan().to_arrow().to_pylist())


def read(hive: Hive, name: str = NAME) -> list[tuple[Any, ...]]:
    """What a reader finds."""
    with hive.snapshot(name) as view:
        return seen(view.table(name))


@pytest.fixture(params=["3.1", "4.1"])
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    """A table that takes steps, with two rows."""
    connected = make_hive(request.param)
    with connected.transaction(NAME, create_partitions=True) as tx:
        tx.table(NAME).append(rows(row(1), row(2, day=1)))
    return connected


def addressed(table: HiveTable, id_: int) -> pa.Table:
    """The row with its ROW__ID."""
    return table.scan(row_ids=True, where=pc.field("id") == id_).to_arrow()


def priced(found: pa.Table, price: str) -> pa.Table:
    """The same rows with another price."""
    at = found.schema.get_field_index("price")
    return found.set_column(at, "price", pa.array([Decimal(price)] * len(found), pa.decimal128(8, 2)))


@pytest.mark.thorough
def test_each_step_sees_the_steps_before(hive: Hive) -> None:
    """A new row, in a new partition too, can be updated, deleted and merged; readers see the end."""
    with hive.transaction(NAME, create_partitions=True) as tx:
        orders = tx.table(NAME)
        orders.append(rows(row(3, day=2), row(4)))
        assert [each[0] for each in seen(orders)] == [1, 2, 3, 4]
        orders.update(priced(addressed(orders, 3), "7.00"))
        assert seen(orders)[2] == row(3, price="7.00", day=2)
        orders.update(priced(addressed(orders, 3), "8.00"))
        orders.delete(addressed(orders, 4))
        merge = orders.merge(rows(row(3, "milk", "9.00", 2), row(5)), on=["id"])
        report = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        assert (report.total.updated, report.total.inserted) == (1, 1)
        assert report.written is not None
        assert seen(orders) == [row(1), row(2, day=1), row(3, "milk", "9.00", 2), row(5)]
        assert read(hive) == [row(1), row(2, day=1)]
    assert read(hive) == [row(1), row(2, day=1), row(3, "milk", "9.00", 2), row(5)]
    steps = [(step.inserted, step.updated, step.deleted) for step in tx.summary.tables[0].steps]
    assert steps == [(2, 0, 0), (0, 1, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)]


def test_a_block_that_raises_leaves_nothing_of_any_step(hive: Hive, tmp_path: Path) -> None:
    """Neither rows nor files."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ZeroDivisionError), hive.transaction(NAME, create_partitions=True) as tx:
        orders = tx.table(NAME)
        orders.append(rows(row(3)))
        orders.delete(addressed(orders, 1))
        assert [each[0] for each in seen(orders)] == [2, 3]
        raise ZeroDivisionError
    assert read(hive) == [row(1), row(2, day=1)]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.thorough(1)
@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_row_that_an_earlier_step_removed_cannot_be_changed(hive: Hive, change: str) -> None:
    """Its ROW__ID was read before that step; the transaction goes on."""
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        old = addressed(orders, 1)
        orders.delete(addressed(orders, 1))
        assert len(seen(orders)) == 1
        getattr(orders, change)(old)
        with pytest.raises(RowIdNotFoundError, match=r"does not contain"):
            seen(orders)
        tx.abort()
    assert len(read(hive)) == 2


def test_a_row_id_of_a_step_to_come_is_refused(hive: Hive) -> None:
    """A later statement of the transaction has not written it."""
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        orders.append(rows(row(3)))
        own = addressed(orders, 3)
        ids = own["ROW__ID"].combine_chunks()
        fields = {each.name: ids.field(each.name) for each in ids.type}
        later = pa.StructArray.from_arrays(
            [*({**fields, "bucketid": pc.add(fields["bucketid"], 1)}.values())], names=list(fields)
        )
        with pytest.raises(RowIdNotFoundError, match="cannot contain"):
            orders.delete(pa.table({"ROW__ID": later}))
        tx.abort()


def test_collected_calls_are_one_step(hive: Hive, tmp_path: Path) -> None:
    """Calls that read nothing of the table do not multiply files."""
    with hive.transaction(NAME) as tx:
        orders = tx.table(NAME)
        old = addressed(orders, 2)
        for id_ in range(10, 20):
            orders.append(rows(row(id_)))
        orders.delete(old)
    names = {path.name for path in tmp_path.rglob("*delta_0000002*")}
    assert names == {"delta_0000002_0000002_0000", "delete_delta_0000002_0000002_0000"}


def test_hive_2_refuses_a_read_after_a_change(make_hive: MakeHive) -> None:
    """Its files cannot express steps: refused by name, and what was collected can still be committed."""
    hive = make_hive("2.3")
    with hive.transaction(NAME, create_partitions=True) as tx:
        orders = tx.table(NAME)
        assert seen(orders) == []
        merge = orders.merge(rows(row(1)), on=["id"]).when_not_matched_insert_all()
        merge.execute()
        orders.append(rows(row(2)))
        for call in (orders.scan, merge.execute, merge.dry_run):
            with pytest.raises(TransactionStateError, match=r"On Hive 2, .*scan or merge first"):
                call()
    assert read(hive) == [row(1), row(2)]


OTHER = "default.others"
STEPS = 8


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_equal_their_model(hive: Hive, seed: int) -> None:
    """Any verbs in any order on two tables, with scans between them."""
    _run_programs(hive, seed, 3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(0, 1000, 20))
def test_a_thousand_random_programs(hive: Hive, seed: int) -> None:
    """Twenty at a time on the same tables."""
    _run_programs(hive, 1000 + seed, 20)


def _run_programs(hive: Hive, seed: int, count: int) -> None:
    rng = random.Random(seed)
    hive.create_table(OTHER, SCHEMA, partitioned_by=["day"])
    models: dict[str, Model] = {NAME: {1: row(1), 2: row(2, day=1)}, OTHER: {}}
    for _ in range(count):
        with hive.transaction(NAME, OTHER, create_partitions=True) as tx:
            for _ in range(rng.randrange(1, STEPS + 1)):
                name = rng.choice((NAME, OTHER))
                models[name] = rng.choice(OPERATIONS)(tx.table(name), models[name], rng)
                if rng.random() < 0.6:
                    assert seen(tx.table(name)) == sorted(models[name].values())
        for name, model in models.items():
            assert read(hive, name) == sorted(model.values())


Model = dict[int, Row]


def _some(model: Model, rng: random.Random) -> list[int]:
    return [id_ for id_ in model if rng.random() < 0.4]


def _append(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    first = max(model, default=0) + 1
    new = [row(first + n, f"i{rng.random():.3f}", "2.00", rng.randrange(3)) for n in range(rng.randrange(4))]
    orders.append(rows(*new))
    return model | {each[0]: each for each in new}


def _delete(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    gone = _some(model, rng)
    orders.delete(orders.scan(["id"], pc.field("id").isin(gone), row_ids=True))
    return {id_: each for id_, each in model.items() if id_ not in gone}


def _update(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    ids, price = _some(model, rng), f"{rng.randrange(100)}.50"
    orders.update(priced(orders.scan(where=pc.field("id").isin(ids), row_ids=True).to_arrow(), price))
    return model | {id_: (*model[id_][:2], Decimal(price), model[id_][3]) for id_ in ids}


def _merge(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    first = max(model, default=0) + 1
    ids = [*_some(model, rng), first, first + 1]
    new = [row(id_, "merged", f"{rng.randrange(100)}.25", rng.randrange(3)) for id_ in ids]
    merge = orders.merge(rows(*new), on=["id"]).when_matched_update_all().when_not_matched_insert_all()
    gone: set[int] = set()
    if rng.random() < 0.3:
        merge = merge.when_not_matched_by_source_delete(pc.field("target", "item") == "tea")
        gone = {id_ for id_, each in model.items() if each[1] == "tea" and id_ not in ids}
    merge.execute()
    return {id_: each for id_, each in model.items() if id_ not in gone} | {each[0]: each for each in new}


def _delete_where(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    least = rng.randrange(1, 60)
    orders.delete(where=f"id % 5 = 1 AND price < {least}")
    return {id_: each for id_, each in model.items() if not (id_ % 5 == 1 and each[2] < least)}


def _update_where(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    day = DAYS[rng.randrange(3)]
    orders.update(set={"price": "price + 1", "day": pc.scalar(day)}, where="item <> 'tea'")
    return {
        id_: each if each[1] == "tea" else (id_, each[1], each[2] + 1, day) for id_, each in model.items()
    }


def _overwrite(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    first = max(model, default=0) + 1
    new = [row(first + n, "new", "3.00", rng.randrange(3)) for n in range(rng.randrange(3))]
    if rng.random() < 0.5:
        orders.overwrite(rows(*new), partitions="dynamic")
        kept = {id_: each for id_, each in model.items() if each[3] not in {each[3] for each in new}}
    else:
        orders.overwrite(rows(*new), where="price < 5")
        kept = {id_: each for id_, each in model.items() if each[2] >= 5}
    return kept | {each[0]: each for each in new}


def _upsert(orders: HiveTable, model: Model, rng: random.Random) -> Model:
    ids = [*_some(model, rng), max(model, default=0) + 1]
    new = [row(id_, "upserted", f"{rng.randrange(9)}.75", rng.randrange(3)) for id_ in ids]
    orders.upsert(rows(*new), on=["id"])
    return model | {each[0]: each for each in new}


OPERATIONS: list[Callable[[HiveTable, Model, random.Random], Model]] = [
    *(_append, _delete, _update, _merge, _upsert, _delete_where, _update_where, _overwrite)
]


def test_a_step_that_fails_leaves_the_steps_before(hive: Hive) -> None:
    """It is the caller's choice to go on."""
    with hive.transaction(NAME, create_partitions=True) as tx:
        orders = tx.table(NAME)
        orders.append(rows(row(3)))
        doubled = rows(row(7), row(7))
        with pytest.raises(MutationError, match="7"):
            orders.merge(doubled, on=["id"]).when_not_matched_insert_all().execute()
        assert [each[0] for each in seen(orders)] == [1, 2, 3]
    assert [each[0] for each in read(hive)] == [1, 2, 3]
