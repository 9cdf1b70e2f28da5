"""Capture by triggers in real databases: nothing is missed, whatever statement made the change."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import RecordLayoutError
from tests.integration.update.conftest import KINDS
from tests.integration.update.order_table import (
    COLUMNS,
    CREATE,
    DAY,
    Order,
    in_order,
    quoted_names,
    source_rows,
    statement,
)
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow


def _shop(source: Source, place: Path) -> Shop:
    source.run(CREATE[source.kind])
    metastore = InMemoryMetastore(place / "warehouse", capabilities=HIVE_4_1)
    return Shop(source, metastore, "default", COLUMNS, DAY)


def _check(shop: Shop) -> int:
    found = in_order([tuple(row.values()) for row in shop.rows()])
    assert found == source_rows(shop.source)
    return len(found)


def _insert(order: Order, kind: str) -> str:
    return f"INSERT INTO orders ({quoted_names(kind)}) VALUES ({', '.join(order.literals(kind))})"


@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_g2_g3_random_transactions_leave_the_target_like_the_source(source: Source, tmp_path: Path) -> None:
    """Inserts, updates, deletes, upserts, statements of many rows, changes of keys and of the partition."""
    shop = _shop(source, tmp_path)
    rng = random.Random(5)
    source.run(*[statement(rng, source.kind) for _ in range(40)])
    shop.enable()
    shop.extract()
    assert _check(shop)
    for _ in range(4):
        for _ in range(5):
            source.run(*[statement(rng, source.kind) for _ in range(6)])
        shop.extract()
        _check(shop)
    assert shop.extract().ingested.position is None


@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_g4_a_transaction_that_commits_late_is_not_skipped(source: Source, tmp_path: Path) -> None:
    """Its log rows have smaller numbers than those of an extraction that ran while it was open."""
    shop = _shop(source, tmp_path)
    shop.enable()
    shop.extract()
    late = source.session()
    try:
        late.cursor().execute(
            _insert(
                Order("nörd", 1, "late", None, None, None, None, Order.random(random.Random(1)).day),
                source.kind,
            )
        )
        source.run(
            _insert(
                Order("nörd", 2, "early", None, None, None, None, Order.random(random.Random(1)).day),
                source.kind,
            )
        )
        first = shop.extract()
        assert [row["item"] for row in shop.rows()] == ["early"]
        late.commit()
    finally:
        late.close()
    second = shop.extract()
    assert sorted(row["item"] for row in shop.rows()) == ["early", "late"]
    assert first.mark is not None
    assert second.mark is not None
    assert int(second.mark.position) == int(first.mark.position)  # a smaller number came later
    assert second.removed == 1


@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_a_table_that_is_emptied_at_once_is_emptied_in_hive(source: Source, tmp_path: Path) -> None:
    """TRUNCATE is seen, also by a source whose triggers do not fire for it."""
    shop = _shop(source, tmp_path)
    rng = random.Random(2)
    source.run(*[statement(rng, source.kind) for _ in range(30)])
    shop.enable()
    shop.extract()
    assert _check(shop)
    source.run("TRUNCATE TABLE orders", _insert(Order.random(rng), source.kind))
    shop.extract()
    assert _check(shop) == 1


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_rows_with_which_a_partition_is_attached_are_extracted(source: Source, tmp_path: Path) -> None:
    """No trigger sees them; what is logged is not read twice, and an empty partition costs nothing."""
    parts = CREATE["postgresql"].replace("PRIMARY KEY (region, id))", "PRIMARY KEY (region, id, day))")
    source.run(
        f"{parts} PARTITION BY RANGE (day)",
        "CREATE TABLE first PARTITION OF orders FOR VALUES FROM ('2024-05-01') TO ('2024-05-02')",
    )
    metastore = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    shop = Shop(source, metastore, "default", COLUMNS, DAY)
    rng = random.Random(3)
    orders = [replace(Order.random(rng), id=number, day=date(2024, 5, number)) for number in (1, 2, 3)]
    source.run(_insert(orders[0], source.kind))
    shop.enable()
    shop.extract()
    assert _check(shop) == 1
    attached = _insert(orders[1], source.kind).replace("INTO orders", "INTO second")
    bounds = "FOR VALUES FROM ('2024-05-02') TO ('2024-05-03')"
    source.run(
        "CREATE TABLE second (LIKE orders INCLUDING ALL)",
        attached,
        f"ALTER TABLE orders ATTACH PARTITION second {bounds}",
        "CREATE TABLE third PARTITION OF orders FOR VALUES FROM ('2024-05-03') TO ('2024-05-04')",
        _insert(orders[2], source.kind),
    )
    report = shop.extract()
    assert report.run is not None
    assert (report.run.inserted, report.removed) == (2, 1)
    assert _check(shop) == 3
    assert shop.extract().ingested.position is None
    source.run("CREATE TABLE fourth PARTITION OF orders FOR VALUES FROM ('2024-05-04') TO ('2024-05-05')")
    assert shop.extract().ingested.tables == ()
    assert shop.extract().ingested.position is None
    source.run(f"DELETE FROM second WHERE id = {orders[1].id}")
    shop.extract()
    assert _check(shop) == 2


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_a_table_that_others_inherit_is_refused(source: Source, tmp_path: Path) -> None:
    """Their rows are its rows, and its triggers do not see them."""
    shop = _shop(source, tmp_path)
    source.run("CREATE TABLE heir () INHERITS (orders)")
    with pytest.raises(RecordLayoutError, match="heir inherits it"):
        shop.enable()
    assert source.objects() == []


@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_g15_disable_removes_every_object(source: Source, tmp_path: Path) -> None:
    """What enable makes in the source is listed by its dry run, and gone in the end."""
    shop = _shop(source, tmp_path)
    planned = shop.enable(dry_run=True)
    assert source.objects() == []
    assert "CREATE TABLE" in str(planned)
    shop.enable()
    shop.extract()
    assert source.objects()
    shop.disable()
    assert source.objects() == []
    assert shop.metastore.get_all_tables("default") == ["orders"]
    assert not [name for name in shop.metastore.get_table("default", "orders").parameters if "update" in name]
