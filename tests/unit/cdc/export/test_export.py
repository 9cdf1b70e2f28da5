"""An export brings its target to the state of the table, whatever happened to the table in between."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.export.export import Export
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from tests.support.dying_targets import Died, Mortal
from tests.support.lakes import KINDS, Lake, in_order

LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
ORDERS = "default.orders"


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A place for targets of each format."""
    return Lake(tmp_path / "lake", request.param)


@pytest.fixture(params=LINES)
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
