"""Values that are not a date or a finite number: refused with table, column and key, or NULL where asked."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from mutation_api.cdc.update.settings import find_settings
from mutation_api.cli.main import main
from mutation_api.cli.update import enable
from mutation_api.errors import ConfigurationError, RecordValueError
from tests.support.shops import Shop
from tests.unit.cdc.update.conftest import MakeShop

DEFINITION = "CREATE TABLE orders (id INTEGER PRIMARY KEY, day TEXT, price NUMERIC)"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("day", "date"), ColumnInfo("price", "decimal(9,2)"))


def _rows(shop: Shop) -> list[tuple[Any, ...]]:
    return sorted((row["id"], str(row["day"]), str(row["price"])) for row in shop.rows())


def test_the_way_on_leads_to_equal_rows(make_shop: MakeShop) -> None:
    """A refusal names where the value is; its option may be given to a table that is followed already."""
    shop = make_shop(DEFINITION, COLUMNS)
    shop.enable()
    shop.source.run("INSERT INTO orders VALUES (1, '2024-05-01', 1)")
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES (2, 'infinity', 2), (3, '2024-05-03', 9e999)")
    with pytest.raises(
        RecordValueError, match=r"table orders, row id=2: column 'day'.*'infinity'.*--null-for day"
    ):
        shop.extract()
    shop.enable(null_for=["day"])
    with pytest.raises(RecordValueError, match=r"row id=3: column 'price'.*Infinity.*--null-for price"):
        shop.extract()
    shop.enable(null_for=["Price", "day"])
    shop.extract()
    assert _rows(shop) == [(1, "2024-05-01", "1.00"), (2, "None", "2.00"), (3, "2024-05-03", "None")]
    shop.source.run("UPDATE orders SET day = '9999-12-31', price = 'x' WHERE id = 2")
    with pytest.raises(RecordValueError, match=r"row id=2: column 'price'.*'x'"):
        shop.extract()


def test_a_key_is_never_null(make_shop: MakeShop) -> None:
    """A string holds any value, also in a key."""
    definition = "CREATE TABLE orders (price NUMERIC PRIMARY KEY, n INTEGER)"
    shop = make_shop(definition, (ColumnInfo("price", "decimal(9,2)"), ColumnInfo("n", "int")))
    with pytest.raises(ConfigurationError, match="price: is a key column"):
        shop.enable(null_for=["price"])
    shop.enable()
    shop.source.run("INSERT INTO orders VALUES (-9e999, 1)")
    with pytest.raises(
        RecordValueError, match=r"row price=-inf: column 'price'.* in which price is a string$"
    ):
        shop.extract()
    shop.source.run("UPDATE orders SET price = -1")
    shop.extract()
    assert [row["n"] for row in shop.rows()] == [1]


def test_columns_of_null_for_are_not_taken_away(make_shop: MakeShop) -> None:
    """Values that are NULL in Hive would stay so; and a name that is not a column is refused."""
    shop = make_shop(DEFINITION, COLUMNS)
    with pytest.raises(ConfigurationError, match="dya: is not a column"):
        shop.enable(null_for=["dya"])
    shop.enable(null_for=["day"])
    with pytest.raises(ConfigurationError, match="already enabled"):
        shop.enable()
    with pytest.raises(ConfigurationError, match="already enabled"):
        shop.enable(null_for=["day", "price"], time_zone="Asia/Kolkata")
    assert shop.enable(null_for=["day"]).settings.null_for == ("day",)


def test_a_text_that_is_not_utf8_is_named(make_shop: MakeShop) -> None:
    """SQLite stores any bytes as text."""
    definition = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)"
    shop = make_shop(definition, (ColumnInfo("id", "bigint"), ColumnInfo("item", "string")))
    shop.enable()
    shop.source.run("INSERT INTO orders VALUES (1, CAST(x'61ff' AS TEXT))")
    with pytest.raises(RecordValueError, match="not valid UTF-8: Could not decode to UTF-8 column 'item'"):
        shop.extract()
    shop.source.run("UPDATE orders SET item = 'a'")
    shop.extract()
    assert shop.rows() == [{"id": 1, "item": "a"}]


def test_the_options_of_the_command(make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """--null-for may be repeated; --no-verify-version switches the verification off."""
    shop = make_shop(DEFINITION, COLUMNS)
    monkeypatch.setattr(enable, "metastore_from", lambda arguments: nullcontext(shop.metastore))
    command = ["update", "enable", "--source", shop.source.url, "--table", "default.orders"]
    options = ["--method", "row-version", "--version-column", "id", "--no-verify-version"]
    assert main([*command, *options, "--null-for", "day", "--null-for", "price"]) == 0
    found = find_settings(shop.metastore, "default.orders")
    assert found is not None
    assert (found.null_for, found.verifies_version) == (("day", "price"), False)
