"""The first copy: streamed into an empty target whatever its size, merged into one that has rows."""

from __future__ import annotations

import pytest

from metastore_client.model import ColumnInfo
from mutation_api import LocalOptions
from mutation_api.cdc import local_copy
from mutation_api.errors import (
    DuplicateKeyError,
    PartitionCreationError,
    RecordValueError,
    UnsupportedLocallyError,
)
from tests.unit.cdc.update.conftest import COLUMNS, ORDERS, MakeShop

LITTLE = LocalOptions(memory_bytes=1 << 20, threads=2)
BY_KEYS = {"method": "row-version", "version_column": "id", "compare_keys": True}
MANY = 9_000
INSERT_MANY = (
    f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY}) "
    "INSERT INTO orders SELECT i, printf('%0700d', i), i % 100 FROM n"
)


@pytest.mark.long
def test_g4_a_table_far_larger_than_the_memory_is_copied(make_shop: MakeShop) -> None:
    """Six times the memory; each row once, in the bucket of its key, in one transaction."""
    shop = make_shop()
    shop.source.run(INSERT_MANY)
    shop.enable()
    report = shop.extract(local=LITTLE)
    (table,) = report.ingested.tables
    assert (table.merge.total.inserted, table.operation_count, table.key_count) == (MANY, MANY, MANY)
    assert table.merge.written is not None
    assert table.merge.written.bucket_count == 2
    rows = shop.rows()
    assert [row["id"] for row in rows] == sorted(range(1, MANY + 1), key=lambda n: f"{{'id': {n},")
    assert all(int(row["item"]) == row["id"] for row in rows)
    assert shop.extract(local=LITTLE).ingested.position is None


def test_partitions_are_counted_and_made(make_shop: MakeShop) -> None:
    """A dry run says the same, and writes nothing."""
    shop = make_shop(ORDERS, COLUMNS[:2], COLUMNS[2])
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1'), (2, 'wine', '2'), (3, 'beer', '2')")
    shop.enable()
    planned = shop.extract(dry_run=True).ingested.tables[0].merge
    assert shop.rows() == []
    done = shop.extract().ingested.tables[0].merge
    assert planned.partitions == done.partitions
    inserted = {name: counts.inserted for name, counts in done.partitions.items()}
    assert inserted == {"price=1": 1, "price=2": 2}
    assert planned.new_partitions == done.new_partitions == ("price=1", "price=2")
    assert planned.file_count == done.file_count == 2
    assert [row["item"] for row in shop.rows()] == ["tea", "wine", "beer"]


def test_partitions_that_may_not_be_made_are_refused_before_the_copy(make_shop: MakeShop) -> None:
    """By the dry run as by the run, and nothing is written."""
    shop = make_shop(ORDERS, COLUMNS[:2], COLUMNS[2])
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1')")
    shop.enable(create_partitions=False)
    for dry_run in (True, False):
        with pytest.raises(PartitionCreationError, match="price=1 do not exist"):
            shop.extract(dry_run=dry_run)
    assert shop.rows() == []


def test_an_empty_table_is_copied(make_shop: MakeShop) -> None:
    """There is nothing to write but the position."""
    shop = make_shop()
    shop.enable()
    report = shop.extract()
    assert report.mark is not None
    assert report.mark.extraction == 1
    assert shop.rows() == []


@pytest.mark.parametrize("is_hash_shared", [False, True])
def test_keys_with_several_rows_are_refused(
    make_shop: MakeShop, monkeypatch: pytest.MonkeyPatch, *, is_hash_shared: bool
) -> None:
    """And named; nothing is written. Keys that only share their hash are told apart."""
    if is_hash_shared:
        plain = local_copy.hash_columns
        monkeypatch.setattr(local_copy, "hash_columns", lambda *given: plain(*given) % 2)
    columns = (ColumnInfo("code", "string"), ColumnInfo("n", "int"))
    shop = make_shop("CREATE TABLE orders (code TEXT, n INTEGER)", columns)
    shop.source.run("INSERT INTO orders VALUES ('a', 1), ('a', 2), ('b', 3), ('c', 4), ('d', 5)")
    shop.enable(key=["code"])
    with pytest.raises(DuplicateKeyError, match=r'1 key has more than one row.*\{"code":"a"\}'):
        shop.extract()
    assert shop.rows() == []
    shop.source.run("DELETE FROM orders WHERE n = 2")
    shop.extract()
    assert [row["code"].strip() for row in shop.rows()] == ["a", "b", "c", "d"]


def test_a_row_without_key_is_refused(make_shop: MakeShop) -> None:
    """SQLite lets a primary key be NULL."""
    columns = (ColumnInfo("code", "string"), ColumnInfo("n", "int"))
    shop = make_shop("CREATE TABLE orders (code TEXT PRIMARY KEY, n INTEGER)", columns)
    shop.source.run("INSERT INTO orders VALUES ('a', 1), (NULL, 2)")
    shop.enable()
    with pytest.raises(RecordValueError, match=r"\"code\":null"):
        shop.extract()
    assert shop.rows() == []


@pytest.mark.long
def test_rows_of_the_target_are_seen_under_the_lock(make_shop: MakeShop) -> None:
    """The copy is merged into them, and is equal to the source; a copy that does not fit then is refused."""
    shop = make_shop()
    shop.source.run(INSERT_MANY)
    shop.enable()
    shop.extract(local=LITTLE)
    shop.metastore.drop_table("default", "mutation_watermarks_orders", delete_data=True)
    shop.source.run("DELETE FROM orders WHERE id > 2", "UPDATE orders SET item = 'x' WHERE id = 2")
    (table,) = shop.extract(local=LITTLE).ingested.tables
    assert (table.merge.total.deleted, table.merge.total.updated, table.merge.total.unchanged) == (
        MANY - 2,
        1,
        1,
    )
    shop.source.run("DELETE FROM orders", INSERT_MANY)
    shop.metastore.drop_table("default", "mutation_watermarks_orders", delete_data=True)
    with pytest.raises(
        UnsupportedLocallyError, match=r"(?:allow more|raise the limit) with LocalOptions\(memory_bytes"
    ):
        shop.extract(local=LITTLE)
    assert len(shop.rows()) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["log", "keys"])
def test_an_emptied_source_empties_a_target_that_has_rows(make_shop: MakeShop, by: str) -> None:
    """A dry run counts the same deletes, and deletes nothing."""
    shop = make_shop()
    shop.source.run("INSERT INTO orders VALUES (1, 'tea', '1'), (2, 'wine', '2'), (3, 'beer', '2')")
    shop.enable(**({} if by == "log" else BY_KEYS))
    shop.extract()
    assert len(shop.rows()) == 3
    shop.source.run("DELETE FROM orders")
    if by == "log":
        shop.metastore.drop_table("default", "mutation_watermarks_orders", delete_data=True)
    planned = shop.extract(dry_run=True).ingested.tables[0].merge
    assert (planned.total.deleted, len(shop.rows())) == (3, 3)
    done = shop.extract().ingested.tables[0].merge
    assert (done.total, shop.rows()) == (planned.total, [])
    shop.source.run("INSERT INTO orders VALUES (4, 'rum', '4')")
    shop.extract()
    assert [row["id"] for row in shop.rows()] == [4]
