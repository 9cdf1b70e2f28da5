"""Extraction from a log of keys: what the source has is what the target has, whatever happened in between."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from mutation_api import connect
from mutation_api.errors import LockNotAcquiredError, RecordValueError
from tests.support.shops import Shop
from tests.unit.cdc.update.conftest import COLUMNS, MakeShop


def _shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=str)


def test_g4_first_all_rows_then_what_changed_then_nothing(make_shop: MakeShop) -> None:
    """The log is empty after each extraction, and its rows are in the report by kind."""
    shop = make_shop()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '3.50'), (2, 'coffee', '4.10'), (3, 'wine', '9')")
    shop.enable()
    shop.source.run("UPDATE orders SET price = '10' WHERE id = 3")
    first = shop.extract()
    assert first.removed == 1  # it is part of the copy
    assert _shown(shop.rows()) == [
        (1, "tea", Decimal("3.50")),
        (2, "coffee", Decimal("4.10")),
        (3, "wine", Decimal("10.00")),
    ]
    shop.source.run(
        "UPDATE orders SET price = '5' WHERE id = 2",
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (4, 'water', NULL), (5, 'gone', '1')",
        "DELETE FROM orders WHERE id = 5",
        "UPDATE orders SET id = 30 WHERE id = 3",
    )
    second = shop.extract()
    assert _shown(shop.rows()) == [
        (2, "coffee", Decimal("5.00")),
        (30, "wine", Decimal("10.00")),
        (4, "water", None),
    ]
    assert second.run is not None
    assert (second.run.inserted, second.run.updated, second.run.deleted) == (2, 1, 3)
    assert second.removed == 7
    third = shop.extract()
    assert third.ingested.position is None
    assert str(third) == "default.orders: nothing new"


def test_g4_what_was_applied_and_not_removed_is_removed_by_the_next(make_shop: MakeShop) -> None:
    """Killed between Hive's commit and the deletion: nothing is applied twice, nor stays in the log."""
    shop = make_shop()
    shop.enable()
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '3.50')")
    log = f"hm_orders_{shop.enable().settings.identifier}_log"
    kept = shop.source.rows(f"SELECT * FROM {log} WHERE hm_sequence > 0")
    shop.extract()
    shop.source.run(f"UPDATE {log} SET hm_sequence = -1", f"INSERT INTO {log} VALUES {kept[0]!r}")
    assert shop.extract().ingested.position is None
    assert shop.source.rows(f"SELECT hm_sequence FROM {log}") == [(-2,)]


def test_a_target_with_rows_is_made_equal_by_the_first_extraction(make_shop: MakeShop) -> None:
    """Rows that the source lacks are deleted, equal ones are not written."""
    shop = make_shop()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '3.50'), (2, 'coffee', '4.10')")
    shop.enable()
    shop.extract()
    shop.metastore.drop_table("default", "mutation_watermarks_orders", delete_data=True)
    shop.source.run("DELETE FROM orders WHERE id = 1", "UPDATE orders SET item = 'x' WHERE id = 2")
    (table,) = shop.extract().ingested.tables
    assert (table.merge.total.deleted, table.merge.total.updated) == (1, 1)
    assert _shown(shop.rows()) == [(2, "x", Decimal("4.10"))]


def test_replace_removes_rows_without_firing_a_trigger(make_shop: MakeShop) -> None:
    """The row that was in the way of another unique key is deleted in the target, too."""
    shop = make_shop("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT UNIQUE, price TEXT)")
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1'), (2, 'coffee', '2'), (3, 'wine', '3')")
    shop.enable()
    shop.extract()
    shop.source.run(
        "INSERT OR REPLACE INTO orders VALUES (9, 'tea', '9')",
        "UPDATE OR REPLACE orders SET item = 'wine' WHERE id = 2",
    )
    shop.extract()
    assert _shown(shop.rows()) == [(2, "wine", Decimal("2.00")), (9, "tea", Decimal("9.00"))]


def test_keys_that_the_source_takes_for_equal_are_different_in_hive(make_shop: MakeShop) -> None:
    """A change of case in a key without case is a delete and an insert."""
    columns = (ColumnInfo("code", "string"), ColumnInfo("n", "int"))
    shop = make_shop("CREATE TABLE orders (code TEXT COLLATE NOCASE PRIMARY KEY, n INTEGER)", columns)
    shop.source.run("INSERT INTO orders VALUES ('abc', 1), ('x', 2)")
    shop.enable()
    shop.extract()
    shop.source.run("UPDATE orders SET code = 'ABC' WHERE code = 'abc'")
    shop.extract()
    assert _shown(shop.rows()) == [("ABC", 1), ("x", 2)]


def test_g5_a_second_extraction_waits_for_the_first(make_shop: MakeShop) -> None:
    """Whoever holds it is named; what was captured stays in the log; other tables are not held up."""
    shop = make_shop()
    other = Shop(shop.source, shop.metastore, "default", COLUMNS, name="other")
    shop.enable()
    other.enable()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    with connect(shop.metastore) as hive, hive.transaction(shop.table):
        with pytest.raises(LockNotAcquiredError, match=r"default\.orders"):
            shop.extract(lock_timeout_seconds=0.2)
        other.extract()
    assert shop.rows() == []
    shop.extract()
    assert shop.rows() == other.rows() != []


def test_a_dry_run_writes_nothing(make_shop: MakeShop) -> None:
    """On neither side."""
    shop = make_shop()
    shop.enable()
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    report = shop.extract(dry_run=True)
    assert report.ingested.tables[0].merge.total.inserted == 1
    assert shop.rows() == []
    assert shop.extract().removed == 1


def test_values_that_do_not_fit_are_refused(make_shop: MakeShop) -> None:
    """Nothing is rounded; the log keeps what was not applied."""
    shop = make_shop()
    shop.enable()
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1.005')")
    with pytest.raises(
        RecordValueError, match=r"'price'.*1\.005 has more than 2 digits after the decimal point"
    ):
        shop.extract()
    shop.source.run("UPDATE orders SET price = '1.01'")
    shop.extract()
    assert _shown(shop.rows()) == [(1, "tea", Decimal("1.01"))]
