"""Rows that are read by a growing column: none is missed, whatever the application writes into the column."""

from __future__ import annotations

from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from mutation_api.cdc.update.progress_mark import ProgressMark
from mutation_api.errors import ConfigurationError, SourcePositionError
from tests.support.shops import Shop
from tests.unit.cdc.update.conftest import MakeShop

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
VERSIONED = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, changed INTEGER)"
OPTIONS: dict[str, Any] = {
    "method": "row-version",
    "version_column": "changed",
    "ignored_columns": ["changed"],
}


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    """A shop with three rows that were extracted."""
    shop = make_shop(VERSIONED, COLUMNS)
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', 10), (2, 'wine', 20), (3, 'rum', 30)")
    shop.enable(**OPTIONS)
    shop.extract()
    return shop


def _extracted(shop: Shop) -> tuple[dict[int, str], list[str]]:
    """Extract; returns the items by id, and what was found besides greater versions."""
    report = shop.extract()
    return {row["id"]: row["item"] for row in shop.rows()}, list(report.differences)


def _items(shop: Shop) -> dict[int, str]:
    return dict(shop.source.rows("SELECT id, item FROM orders"))


@pytest.mark.long
@pytest.mark.parametrize("version", ["NULL", "9e999", "-9e999", "'text'", "x'00'", "40"])
def test_a_row_whose_version_is_not_a_point_of_the_order_is_read_each_time(shop: Shop, version: str) -> None:
    """It does not become the bound of other rows."""
    for number in (1, 2):
        shop.source.run(
            f"UPDATE orders SET item = 'changed {number}', changed = {version} WHERE id = 1",
            f"INSERT INTO orders VALUES ({10 + number}, 'new {number}', {version})",
        )
        assert _extracted(shop)[0] == _items(shop)
        shop.source.run(f"INSERT INTO orders VALUES ({20 + number}, 'later {number}', 50)")
        assert _extracted(shop) == (_items(shop), [])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE orders SET item = 'changed', changed = 5 WHERE id = 2",
        "UPDATE orders SET item = 'changed', changed = 5 WHERE id = 3",
        "UPDATE orders SET item = 'changed', changed = 11 WHERE id = 1",
        "INSERT INTO orders VALUES (4, 'new', 10)",
        "INSERT INTO orders VALUES (4, 'new', -1)",
    ],
)
def test_a_version_below_the_bound_makes_the_extraction_compare_the_table(shop: Shop, statement: str) -> None:
    """Once; the next extraction reads from the bound on."""
    shop.source.run(statement)
    items, said = _extracted(shop)
    assert items == _items(shop)
    assert said == ["1 rows got a changed below 30: the whole table is compared"]
    assert _extracted(shop) == (_items(shop), [])


@pytest.mark.thorough
def test_numbers_that_are_given_again_are_seen(shop: Shop) -> None:
    """The greatest row is deleted, and MAX + 1 gives its number to another one."""
    shop.source.run("DELETE FROM orders WHERE id = 3", "INSERT INTO orders VALUES (4, 'new', 21)")
    items, said = _extracted(shop)
    assert (items[4], len(said)) == ("new", 1)
    shop.source.run("DELETE FROM orders WHERE id = 4")
    assert _extracted(shop)[1] == []
    shop.source.run("INSERT INTO orders VALUES (5, 'newer', 21)")
    items, said = _extracted(shop)
    assert (items[5], said) == ("newer", [])


def test_rows_that_go_are_not_taken_for_rows_that_fell(shop: Shop) -> None:
    """Deletes, and updates of old rows, leave the extraction as small as it was."""
    shop.source.run(
        "INSERT INTO orders VALUES (4, 'x', 31), (5, 'x', 32), (6, 'x', 33)",
        "DELETE FROM orders WHERE id = 1",
        "UPDATE orders SET item = 'changed', changed = 34 WHERE id = 2",
    )
    items, said = _extracted(shop)
    assert said == []
    assert items == {1: "tea", **_items(shop)}  # deletes are not seen


def test_without_verification_versions_must_grow(make_shop: MakeShop) -> None:
    """The greatest value still may not fall."""
    shop = make_shop(VERSIONED, COLUMNS)
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', 10), (2, 'wine', 20)")
    shop.enable(**OPTIONS, verify_version=False)
    shop.extract()
    shop.source.run("UPDATE orders SET item = 'missed', changed = 11 WHERE id = 1")
    assert _extracted(shop) == ({1: "tea", 2: "wine"}, [])
    shop.source.run("UPDATE orders SET item = 'changed', changed = 12 WHERE id = 2")
    items, said = _extracted(shop)
    assert items == _items(shop)
    assert said == ["changed is at 12, but was at 20: the whole table is compared"]


def test_a_comparison_of_keys_needs_no_version(make_shop: MakeShop) -> None:
    """It reads all rows, so versions may be anything."""
    shop = make_shop(VERSIONED, COLUMNS)
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', 10), (2, 'wine', 20)")
    shop.enable(**OPTIONS, compare_keys=True)
    shop.extract()
    shop.source.run("UPDATE orders SET item = 'changed'", "UPDATE orders SET changed = 1 WHERE id = 1")
    assert _extracted(shop) == (_items(shop), [])


def test_an_altered_version_column_makes_the_extraction_compare_the_table(shop: Shop) -> None:
    """Values of the new type lie elsewhere in the order."""
    shop.source.run(
        "CREATE TABLE new_orders (id INTEGER PRIMARY KEY, item TEXT, changed TEXT)",
        "INSERT INTO new_orders SELECT id, item || ' again', changed FROM orders",
        "DROP TABLE orders",
        "ALTER TABLE new_orders RENAME TO orders",
    )
    items, said = _extracted(shop)
    assert items == _items(shop)
    assert "column changed was altered: the whole table is compared" in said
    shop.source.run("INSERT INTO orders VALUES (4, 'new', '4')")
    assert _extracted(shop) == (_items(shop), [])


def test_a_renamed_version_column_is_refused_with_a_way_on(make_shop: MakeShop) -> None:
    """Which ends with equal tables."""
    shop = make_shop(VERSIONED, COLUMNS)
    options = {**OPTIONS, "ignored_columns": ["changed", "version"]}
    shop.enable(**options)
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', 10)")
    shop.extract()
    shop.source.run(
        "ALTER TABLE orders RENAME COLUMN changed TO version", "UPDATE orders SET item = 'x', version = 31"
    )
    with pytest.raises(
        ConfigurationError, match=r"does not have the version column changed.*disable.*--discard.*enable"
    ):
        shop.extract()
    shop.disable(discard=True)
    shop.enable(**{**options, "version_column": "version"})
    assert _extracted(shop)[0] == _items(shop)


def test_texts_are_read_from_the_overlap_on(make_shop: MakeShop) -> None:
    """As times where they are some; otherwise all of them are read."""
    shop = make_shop("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, changed TEXT)", COLUMNS)
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '2024-05-01 10:00:00')")
    shop.enable(**OPTIONS, overlap="60", verify_version=False)
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (2, 'late', '2024-05-01T09:59:30'), (3, 'it''s', 'it''s')")
    assert _extracted(shop)[0] == _items(shop)
    shop.source.run("INSERT INTO orders VALUES (4, 'early', 'a'), (5, 'number', 7)")
    assert _extracted(shop)[0] == _items(shop)


@pytest.mark.parametrize("overlap", ["-5", "1 day", "0x1"])
def test_an_overlap_is_a_number(make_shop: MakeShop, overlap: str) -> None:
    """A negative one would leave rows out."""
    shop = make_shop(VERSIONED, COLUMNS)
    with pytest.raises(ConfigurationError, match="expected a number of at least 0"):
        shop.enable(**OPTIONS, overlap=overlap)


def test_the_numbers_below_the_bound_are_a_short_text(shop: Shop) -> None:
    """Of the position, which is shown to people."""
    mark = shop.extract().mark
    assert mark is not None
    assert sum(mark.below) == 2
    text = mark.to_position().text
    assert len(text) < 1000
    assert ProgressMark.of(text) == mark
    with pytest.raises(SourcePositionError, match="was not written by incremental update"):
        ProgressMark.of(text.replace('"below": "', '"below": "0'))
