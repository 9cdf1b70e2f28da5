"""Keys that are two in the source and would be one in Hive: refused before anything is made."""

from __future__ import annotations

import pytest

from metastore_client.model import ColumnInfo
from mutation_api.cdc.update.database import CapturedTable, KeyKind, SourceColumn, check_key
from mutation_api.errors import ContradictionError, RecordLayoutError
from mutation_api.format.hive_type import parse_hive_type
from tests.support.shops import Shop
from tests.unit.cdc.update.conftest import MakeShop

TABLE = CapturedTable("shop", "orders", (), ())
COLUMN = SourceColumn("code", "text")


@pytest.mark.parametrize(
    ("target", "kind", "zone"),
    [
        ("char(3)", KeyKind(ignores_trailing_spaces=True), "UTC"),
        ("varchar(3)", KeyKind(), "UTC"),
        ("string", KeyKind(is_text=True), "UTC"),
        ("timestamp", KeyKind(is_instant=True), "UTC"),
        ("timestamp", KeyKind(is_instant=True), "Asia/Kolkata"),
        ("timestamp", KeyKind(), "Europe/Berlin"),
        ("int", KeyKind(is_text=True), "UTC"),
    ],
)
def test_keys_that_stay_apart(target: str, kind: KeyKind, zone: str) -> None:
    """The column is taken."""
    check_key(TABLE, COLUMN, parse_hive_type(target), kind, zone)


@pytest.mark.parametrize(
    ("target", "kind", "zone", "advice"),
    [
        ("char(3)", KeyKind(), "UTC", "Make the column a varchar or a string"),
        ("timestamp", KeyKind(is_instant=True), "Europe/Berlin", "--time-zone UTC"),
        ("string", KeyKind(is_instant=True), "America/New_York", "--time-zone UTC"),
        ("timestamp", KeyKind(is_instant=True), "Europe/Moscow", "--time-zone UTC"),
        ("date", KeyKind(is_text=True), "UTC", "Make the column a string"),
        ("decimal(9,2)", KeyKind(is_text=True), "UTC", "Make the column a string"),
    ],
)
def test_keys_that_would_be_one(target: str, kind: KeyKind, zone: str, advice: str) -> None:
    """The refusal names the column and what to do."""
    with pytest.raises(RecordLayoutError, match=rf"shop\.orders, key column 'code' \(text\).*{advice}"):
        check_key(TABLE, COLUMN, parse_hive_type(target), kind, zone)


def test_the_way_on_keeps_both_rows(make_shop: MakeShop) -> None:
    """A char would have one of them."""
    definition = "CREATE TABLE orders (code TEXT PRIMARY KEY, n INTEGER)"
    shop = make_shop(definition, (ColumnInfo("code", "char(3)"), ColumnInfo("n", "int")))
    with pytest.raises(RecordLayoutError, match="Make the column a varchar"):
        shop.enable()
    assert shop.source.objects() == []
    columns = (ColumnInfo("code", "varchar(3)"), ColumnInfo("n", "int"))
    better = Shop(shop.source, shop.metastore, "default", columns, bucketed_by="code", name="better")
    better.enable()
    better.extract()
    shop.source.run("INSERT INTO orders VALUES ('a', 1), ('a ', 2)")
    better.extract()
    assert [(row["code"], row["n"]) for row in better.rows()] == [("a ", 2), ("a", 1)]


def test_two_rows_of_a_key_are_not_read_by_version(make_shop: MakeShop) -> None:
    """The user named a key that is not one; the last row would win."""
    shop = make_shop(
        "CREATE TABLE orders (code TEXT, n INTEGER)", (ColumnInfo("code", "string"), ColumnInfo("n", "int"))
    )
    shop.enable(key=["code"], method="row-version", version_column="n")
    shop.extract()
    shop.source.run("INSERT INTO orders VALUES ('a', 1), ('a', 2)")
    with pytest.raises(ContradictionError, match=r'two operations on key \{"code":"a"\}'):
        shop.extract()
    assert shop.rows() == []
    shop.source.run("DELETE FROM orders WHERE n = 1")
    shop.extract()
    assert shop.rows() == [{"code": "a", "n": 2}]
