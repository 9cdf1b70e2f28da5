"""Capture by triggers in real databases: nothing is missed, whatever statement made the change."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.update.database import PASSWORD_VARIABLE, connect_database
from mutation_api.errors import ConnectionFailedError, RecordLayoutError
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


@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_a_refused_password_names_the_place_that_it_comes_from(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is wrong or missing; the password itself is not shown."""
    for password, said in (
        ("tops3cret", "refused the account or its password"),
        ("", "no password was given"),
    ):
        monkeypatch.setenv(PASSWORD_VARIABLE, password)
        database = connect_database(source.url)
        with pytest.raises(ConnectionFailedError, match=rf"{said} \(.*{PASSWORD_VARIABLE}.*\): ") as caught:
            database.describe("orders")
        database.close()
        assert "tops3cret" not in str(caught.value)


@pytest.mark.long
@pytest.mark.sampled(1)
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


@pytest.mark.long
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


ITEMS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("buyer", "bigint"))
STATEMENTS = {
    "postgresql": (
        "MERGE INTO orders o USING (VALUES (1, 'MERGED'), (2, NULL), (7, 'new')) s(id, item) "
        "ON o.id = s.id WHEN MATCHED AND s.item IS NULL THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET item = s.item WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.item, 1)",
        "COPY orders FROM PROGRAM 'printf \"20,a,1\\n21,b,2\\n\"' (FORMAT csv)",
        "UPDATE orders o SET item = 'of ' || b.id FROM buyers b WHERE b.id = o.buyer AND o.id > 3",
        "UPDATE buyers SET id = 9 WHERE id = 2",
        "DELETE FROM buyers WHERE id = 9",
        "WITH gone AS (DELETE FROM orders WHERE id < 5 RETURNING *) "
        "INSERT INTO orders SELECT id + 50, item, buyer FROM gone",
    ),
    "mysql": (
        "INSERT INTO orders SELECT id + 10, item, buyer FROM orders",
        "INSERT IGNORE INTO orders VALUES (1, 'ignored', 1), (30, 'kept', 1)",
        "UPDATE orders o JOIN buyers b ON b.id = o.buyer SET o.item = CONCAT('of ', b.id) WHERE o.id > 3",
        "DELETE o FROM orders o JOIN buyers b ON b.id = o.buyer WHERE b.id = 2",
        "REPLACE INTO orders SELECT id, 'replaced', buyer FROM orders WHERE id < 12",
        "UPDATE orders SET id = id + 100 ORDER BY id DESC",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_g2_statements_of_each_kind_are_captured(source: Source, tmp_path: Path) -> None:
    """One that touches several rows by another table, or moves rows; on PostgreSQL also by a foreign key."""
    key = "REFERENCES buyers ON DELETE CASCADE ON UPDATE CASCADE" if source.kind == "postgresql" else ""
    source.run(
        "CREATE TABLE buyers (id BIGINT PRIMARY KEY)",
        "INSERT INTO buyers VALUES (1), (2)",
        f"CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(20), buyer BIGINT {key})",
        "INSERT INTO orders VALUES " + ", ".join(f"({n}, 'x{n}', {n % 2 + 1})" for n in range(6)),
    )
    metastore = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    shop = Shop(source, metastore, "default", ITEMS)
    shop.enable()
    shop.extract()
    for text in STATEMENTS[source.kind]:
        before = source.rows("SELECT * FROM orders ORDER BY id")
        source.run(text)
        expected = source.rows("SELECT * FROM orders ORDER BY id")
        assert expected != before, text
        shop.extract()
        assert sorted(tuple(row.values()) for row in shop.rows()) == expected, text


@pytest.mark.parametrize("source", KINDS[1:2], indirect=True)
def test_a_table_that_a_foreign_key_changes_is_refused(source: Source, tmp_path: Path) -> None:
    """No trigger of MariaDB sees it."""
    shop = _shop(source, tmp_path)
    source.run(
        "CREATE TABLE buyers (id BIGINT PRIMARY KEY)",
        "ALTER TABLE orders ADD FOREIGN KEY (id) REFERENCES buyers (id) ON DELETE CASCADE",
    )
    with pytest.raises(RecordLayoutError, match="which fires no trigger in mysql"):
        shop.enable()
    assert source.objects() == []


@pytest.mark.long
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
