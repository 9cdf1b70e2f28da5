"""Names of schemas, tables and columns in statements may be any that the source allows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.cdc.update.status import update_status
from mutation_api.errors import RecordLayoutError
from tests.integration.update.conftest import KINDS
from tests.support.shops import Shop, Source

pytestmark = pytest.mark.slow

NAMES = (
    "$hm$",
    "$hm",
    "a{b}",
    "{0}",
    "{}",
    "a\\b",
    "a\\",
    "a'b",
    "'); drop table orders; --",
    'a"b',
    "a`b",
    "100%",
    "a%sb",
    "%(a)s",
    "a;--",
    "a/*b",
    ":a",
    "?",
    "a b",
    "ä",
)


def _quoted(source: Source, name: str) -> str:
    mark = "`" if source.kind == "mysql" else '"'
    return mark + name.replace(mark, mark * 2) + mark


def _rows(shop: Shop) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in shop.rows())


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS, indirect=True)
@pytest.mark.parametrize("method", ["changelog", "row-version"])
def test_names_are_only_names(source: Source, method: str, tmp_path: Path) -> None:
    """A key column, a version column and a table of such a name are followed from enable to disable."""
    has_version = method == "row-version"
    for number, given in enumerate(NAMES):
        table, name = f"t{number}{given}", given.replace("`", "_").replace(":", "_")  # which Hive cannot have
        quoted, column, version = (_quoted(source, each) for each in (table, name, f"v{name}"))
        source.run(
            f"CREATE TABLE {quoted} ({column} INTEGER NOT NULL PRIMARY KEY, item VARCHAR(20), "
            f"{version} INTEGER)",
            f"INSERT INTO {quoted} VALUES (1, 'tea', 1), (2, 'wine', 2)",
        )
        columns = (ColumnInfo(name, "bigint"), ColumnInfo("item", "string"))
        metastore = InMemoryMetastore(tmp_path / str(number), capabilities=HIVE_4_1)
        shop = Shop(source, metastore, "default", columns, bucketed_by=name)
        options = {"version_column": f"v{name}", "overlap": "5"} if has_version else {}
        shop.enable(source_table=table, ignored_columns=[f"v{name}"], method=method, **options)
        shop.extract()
        assert _rows(shop) == [(1, "tea"), (2, "wine")], name
        source.run(
            f"INSERT INTO {quoted} VALUES (3, 'rum', 3)",
            f"UPDATE {quoted} SET item = 'changed', {version} = 4 WHERE {column} = 1",
        )
        shop.extract()
        assert _rows(shop) == [(1, "changed"), (2, "wine"), (3, "rum")], name
        status = update_status(metastore, shop.table, password=source.password, source=source.url)
        assert has_version or not status.source_error, name
        if not has_version:
            shop.repair()
            shop.extract()
            source.run(f"DELETE FROM {quoted} WHERE {column} = 2")
            shop.extract()
            assert _rows(shop) == [(1, "changed"), (3, "rum")], name
        shop.disable()
        assert source.objects() == [], name
        source.run(f"DROP TABLE {quoted}")


@pytest.mark.long
@pytest.mark.parametrize("source", KINDS[:2], indirect=True)
def test_schemas_have_any_name(source: Source, tmp_path: Path) -> None:
    """Of a point alone nothing is known: it parts schema and table."""
    word = "DATABASE" if source.kind == "mysql" else "SCHEMA"
    for number, name in enumerate(NAMES):
        schema = _quoted(source, f"{name}{number}")
        source.run(
            f"CREATE {word} {schema}",
            f"CREATE TABLE {schema}.orders (id INTEGER PRIMARY KEY, item VARCHAR(20))",
            f"INSERT INTO {schema}.orders VALUES (1, 'tea')",
        )
        try:
            columns = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
            metastore = InMemoryMetastore(tmp_path / str(number), capabilities=HIVE_4_1)
            shop = Shop(source, metastore, "default", columns)
            shop.enable(source_table=f"{name}{number}.orders")
            shop.extract()
            source.run(f"UPDATE {schema}.orders SET item = 'wine'")
            shop.extract()
            assert _rows(shop) == [(1, "wine")], name
            shop.disable()
        finally:
            with suppress(Exception):
                source.run(f"DROP {word} {schema}" + (" CASCADE" if word == "SCHEMA" else ""))


@pytest.mark.parametrize("source", ["mysql"], indirect=True)
@pytest.mark.parametrize("name", ["tä", "表_%", "a`b", "Ünï#p#x"])
def test_a_truncation_is_noticed_whatever_the_name(source: Source, name: str, tmp_path: Path) -> None:
    """No trigger sees it, and the engine has names of its own; those of other tables are like ours."""
    table = _quoted(source, name)
    beside = [_quoted(source, each) for each in ("ta", f"{name}x", "表_x")]
    rows = [(1, "tea"), (7, "wine")]
    columns = "(id INTEGER PRIMARY KEY, item VARCHAR(20))"
    source.run(
        f"CREATE TABLE {table} {columns} PARTITION BY RANGE (id) (PARTITION `ä P` VALUES LESS THAN (5), "
        "PARTITION q VALUES LESS THAN (9))",
        *(f"CREATE TABLE {each} {columns}" for each in beside),
        f"INSERT INTO {table} VALUES (1, 'tea'), (7, 'wine')",
    )
    metastore = InMemoryMetastore(tmp_path / "w", capabilities=HIVE_4_1)
    shop = Shop(source, metastore, "default", (ColumnInfo("id", "bigint"), ColumnInfo("item", "string")))
    shop.enable(source_table=name)
    shop.extract()
    assert _rows(shop) == rows
    source.run(*(f"TRUNCATE TABLE {each}" for each in beside))
    shop.extract()
    source.run(f"ALTER TABLE {table} TRUNCATE PARTITION `ä P`")
    shop.extract()
    assert _rows(shop) == rows[1:]
    source.run(f"TRUNCATE TABLE {table}")
    shop.extract()
    assert _rows(shop) == []
    shop.disable()


@pytest.mark.server("MySQL")
@pytest.mark.parametrize("source", ["mysql"], indirect=True)
def test_a_table_without_a_file_of_its_own(source: Source, tmp_path: Path) -> None:
    """MySQL lists tables under their names by their files alone, and says others as names of files."""
    metastore = InMemoryMetastore(tmp_path / "w", capabilities=HIVE_4_1)
    columns = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
    create = "(id INTEGER PRIMARY KEY, item VARCHAR(20)) TABLESPACE innodb_system"
    source.run(f"CREATE TABLE `tä` {create}", f"CREATE TABLE ta {create}", "INSERT INTO ta VALUES (1, 'x')")
    shop = Shop(source, metastore, "default", columns)
    with pytest.raises(RecordLayoutError, match=r"table shop\d+/tä.*TABLESPACE innodb_file_per_table"):
        shop.enable(source_table="tä")
    assert source.objects() == []
    shop.enable(source_table="ta")
    shop.extract()
    source.run("TRUNCATE ta")
    shop.extract()
    assert _rows(shop) == []
    shop.disable()
