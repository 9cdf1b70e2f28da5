"""Methods without a log of ours: a growing column, and MySQL's binary log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import LocalOptions
from mutation_api.errors import (
    ConfigurationError,
    ContradictionError,
    DuplicateKeyError,
    OutstandingChangesError,
)
from tests.integration.update.conftest import KINDS
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("changed", "bigint"))
CREATE = "CREATE TABLE orders (id BIGINT PRIMARY KEY, item VARCHAR(20), changed BIGINT NOT NULL)"


def _shop(source: Source, place: Path) -> Shop:
    source.run(CREATE, "INSERT INTO orders VALUES (1, 'tea', 1), (2, 'wine', 2)")
    metastore = InMemoryMetastore(place / "warehouse", capabilities=HIVE_4_1)
    return Shop(source, metastore, "default", COLUMNS)


def _items(shop: Shop) -> list[str]:
    return sorted(row["item"] for row in shop.rows())


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_g2_xmin_sees_inserts_and_updates_of_late_transactions(source: Source, tmp_path: Path) -> None:
    """As ORA_ROWSCN does; a transaction that was open during an extraction is not lost. Nothing is made."""
    shop = _shop(source, tmp_path)
    shop.enable(method="row-version", version_column="xmin")
    assert source.objects() == []
    late = source.session()
    try:
        late.execute("INSERT INTO orders VALUES (3, 'late', 0)")
        source.run("UPDATE orders SET item = 'early' WHERE id = 1")
        shop.extract()
        assert _items(shop) == ["early", "wine"]
        source.run("INSERT INTO orders VALUES (4, 'later', 0)")
        shop.extract()
        assert _items(shop) == ["early", "later", "wine"]
        late.commit()
    finally:
        late.close()
    source.run("DELETE FROM orders WHERE id = 2")
    shop.extract()
    assert _items(shop) == ["early", "late", "later", "wine"]  # deletes are not seen
    shop.disable()


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_g2_a_growing_column_with_a_comparison_of_keys(source: Source, tmp_path: Path) -> None:
    """Deletes are found, too; without a bound of the database the column needs an overlap."""
    shop = _shop(source, tmp_path)
    options = {"method": "row-version", "version_column": "changed", "compare_keys": True}
    if source.kind != "sqlite":
        with pytest.raises(
            ConfigurationError, match="cannot determine which values of changed may still appear"
        ):
            shop.enable(**options)
    shop.enable(**options, overlap="" if source.kind == "sqlite" else "10")
    shop.extract()
    source.run("DELETE FROM orders WHERE id = 1", "UPDATE orders SET item = 'x', changed = 3 WHERE id = 2")
    with pytest.raises(OutstandingChangesError, match="2 changes of orders have not been extracted"):
        shop.disable()
    shop.extract()
    assert _items(shop) == ["x"]
    shop.disable()


@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_a_growing_column_is_read_from_the_overlap_on(source: Source, tmp_path: Path) -> None:
    """A late value above the bound less the overlap is found; without verification one below is not."""
    shop = _shop(source, tmp_path)
    shop.enable(method="row-version", version_column="changed", overlap="5", verify_version=False)
    source.run("INSERT INTO orders VALUES (3, 'high', 100)")
    shop.extract()
    source.run("INSERT INTO orders VALUES (4, 'late', 96), (5, 'too late', 94)")
    shop.extract()
    assert _items(shop) == ["high", "late", "tea", "wine"]


INSERT_ONLY = ("changelog-insert", "row-version-insert")


def _versioned(source: Source, method: str) -> dict[str, Any]:
    """Options of a method; a source without a bound needs an overlap."""
    if not method.startswith("row-version"):
        return {"method": method}
    overlap = "" if source.kind == "sqlite" else "5"
    return {"method": method, "version_column": "changed", "overlap": overlap}


@pytest.mark.long
@pytest.mark.parametrize("method", INSERT_ONLY)
@pytest.mark.parametrize("source", KINDS, indirect=True)
def test_rows_that_are_read_again_do_not_contradict_inserts(
    source: Source, method: str, tmp_path: Path
) -> None:
    """Only a row with other values does. The way on that the refusal names ends with equal tables."""
    shop = _shop(source, tmp_path)
    options = _versioned(source, method)
    shop.enable(**options)
    shop.extract()
    for number in (3, 4, 5):
        source.run(f"INSERT INTO orders VALUES ({number}, 'item {number}', {number})")
        report = shop.extract()
        assert report.ingested.tables[0].contradictions.total == 0
        shop.extract()
    assert _items(shop) == ["item 3", "item 4", "item 5", "tea", "wine"]
    source.run("DELETE FROM orders WHERE id = 5", "INSERT INTO orders VALUES (5, 'changed', 5)")
    with pytest.raises(
        ContradictionError, match=r'"id":5.*"item 5" → "changed".*disable .*--discard'
    ) as refused:
        shop.extract()
    assert "item 5" in _items(shop)
    better = method.removesuffix("-insert")
    assert f"--method {better}" in str(refused.value)
    shop.disable(discard=True)
    shop.enable(**{**options, "method": better})
    shop.extract()
    assert _items(shop) == ["changed", "item 3", "item 4", "tea", "wine"]
    shop.disable()


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS[2:], indirect=True)
def test_spark_reads_inserted_rows_again_as_well(source: Source, tmp_path: Path, spark: SparkSession) -> None:
    """The refusal names the same row with the same values."""
    shop = _shop(source, tmp_path)
    shop.enable(method="row-version-insert", version_column="changed")
    shop.extract()
    source.run("INSERT INTO orders VALUES (3, 'new', 3)")
    report = shop.extract(local=None, spark=spark)
    assert report.ingested.tables[0].contradictions.total == 0
    source.run("UPDATE orders SET item = 'changed' WHERE id = 3")
    with pytest.raises(ContradictionError, match=r'"id":3.*"new" → "changed"'):
        shop.extract(local=None, spark=spark)
    assert _items(shop) == ["new", "tea", "wine"]


@pytest.mark.parametrize("method", INSERT_ONLY)
@pytest.mark.parametrize("source", KINDS[2:], indirect=True)
def test_a_first_extraction_contradicts_no_rows(source: Source, method: str, tmp_path: Path) -> None:
    """A target with other rows is made equal, as by the other methods."""
    shop = _shop(source, tmp_path)
    shop.enable(**_versioned(source, method))
    shop.extract()
    shop.disable()
    source.run("UPDATE orders SET item = 'changed' WHERE id = 1")
    shop.enable(**_versioned(source, method))
    shop.extract()
    assert _items(shop) == ["changed", "wine"]


@pytest.mark.parametrize("source", KINDS[1:2], indirect=True)
def test_the_binary_log_is_a_method_like_the_others(source: Source, tmp_path: Path) -> None:
    """First the table whole, then its log; nothing is made in the source."""
    shop = _shop(source, tmp_path)
    shop.enable(method="binlog")
    shop.extract()
    source.run("DELETE FROM orders WHERE id = 1", "UPDATE orders SET item = 'x' WHERE id = 2")
    with pytest.raises(OutstandingChangesError):
        shop.disable()
    shop.extract()
    assert _items(shop) == ["x"]
    assert source.objects() == []
    shop.disable()


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS[2:], indirect=True)
def test_spark_extracts_the_same(source: Source, tmp_path: Path, spark: SparkSession) -> None:
    """For much that is new; its tasks read the rows that this process kept."""
    shop = _shop(source, tmp_path)
    shop.enable()
    shop.extract(local=None, spark=spark)
    source.run("DELETE FROM orders WHERE id = 1", "INSERT INTO orders VALUES (3, 'water', 3)")
    report = shop.extract(local=None, spark=spark)
    assert report.ingested.engine == "spark"
    assert report.removed == 2
    assert _items(shop) == ["water", "wine"]


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS[2:], indirect=True)
def test_spark_refuses_a_copy_with_keys_that_have_several_rows(
    source: Source, tmp_path: Path, spark: SparkSession
) -> None:
    """As this process does, with the same words."""
    source.run(
        "CREATE TABLE orders (code TEXT, n INTEGER)",
        "INSERT INTO orders VALUES ('a', 1), ('a', 2), ('b', 3)",
    )
    metastore = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
    columns = (ColumnInfo("code", "string"), ColumnInfo("n", "int"))
    shop = Shop(source, metastore, "default", columns, bucketed_by="code")
    shop.enable(key=["code"])
    told = []
    for engine in ({"local": LocalOptions()}, {"local": None, "spark": spark}):
        with pytest.raises(
            DuplicateKeyError, match=r'1 key has more than one row.*\{"code":"a"\}'
        ) as refused:
            shop.extract(**engine)
        told.append(str(refused.value))
    assert told[0] == told[1]
    assert shop.rows() == []
    source.run("DELETE FROM orders WHERE n = 2")
    shop.extract(local=None, spark=spark)
    assert sorted((row["code"].strip(), row["n"]) for row in shop.rows()) == [("a", 1), ("b", 3)]
