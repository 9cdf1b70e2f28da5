"""Disabling cleans up whatever became of the source's table, and says what it could not remove."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConnectionFailedError, OutstandingChangesError
from tests.integration.update.conftest import KINDS
from tests.support.shops import PostgresSource, Shop, Source, SqliteSource

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
CREATE = "CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY, item VARCHAR(20))"
ALTERED = {
    "key renamed": ("ALTER TABLE orders RENAME COLUMN id TO number",),
    "table swapped": (
        "CREATE TABLE ghost (id INTEGER NOT NULL PRIMARY KEY, item VARCHAR(20))",
        "ALTER TABLE orders RENAME TO old",
        "ALTER TABLE ghost RENAME TO orders",
    ),
    "table dropped": ("DROP TABLE orders",),
    "key dropped": ("ALTER TABLE orders RENAME TO old", "CREATE TABLE orders (item VARCHAR(20))"),
}


def _followed(source: Source, place: Path) -> Shop:
    source.run(CREATE, "INSERT INTO orders VALUES (1, 'tea')")
    metastore = InMemoryMetastore(place / "warehouse", capabilities=HIVE_4_1)
    shop = Shop(source, metastore, "default", COLUMNS)
    shop.enable()
    shop.extract()
    return shop


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", KINDS, indirect=True)
@pytest.mark.parametrize("altered", ALTERED.values(), ids=ALTERED)
def test_every_object_is_removed(source: Source, altered: tuple[str, ...], tmp_path: Path) -> None:
    """Of a table whose key was renamed, that another took the place of, or that is gone."""
    shop = _followed(source, tmp_path)
    source.run(*altered)
    report = shop.disable()
    assert (source.objects(), report.left) == ([], ())
    assert "update" not in str(shop.metastore.get_table("default", "orders").parameters)


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_what_is_outstanding_in_a_table_that_is_gone_is_discarded_only_if_asked(
    source: Source, tmp_path: Path
) -> None:
    """The same for a log that is gone."""
    shop = _followed(source, tmp_path)
    source.run("INSERT INTO orders VALUES (2, 'wine')", "DROP TABLE orders")
    with pytest.raises(OutstandingChangesError, match="1 changes"):
        shop.disable()
    source.run(*[f"DROP TABLE {name}" for name in source.objects() if name.endswith("_log")])
    with pytest.raises(
        OutstandingChangesError, match=r"cannot determine whether .* are outstanding: .*\(--discard\)"
    ):
        shop.disable()
    assert source.objects()
    shop.disable(discard=True)
    assert source.objects() == []


@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_what_may_not_be_removed_is_reported_with_its_statement(source: Source, tmp_path: Path) -> None:
    """The account lost the table; without --discard nothing is given up."""
    assert isinstance(source, PostgresSource)
    owner = f"leaver_{tmp_path.name[-20:].replace('-', '_')}"
    source.run(
        f"CREATE ROLE {owner} LOGIN PASSWORD 'secret'", f"GRANT ALL ON SCHEMA public TO {owner}", CREATE
    )
    source.run(f"ALTER TABLE orders OWNER TO {owner}")
    source.url = source.url.replace(f"{source.server.user}@", f"{owner}@")
    source.password = "secret"
    shop = Shop(source, InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1), "default", COLUMNS)
    shop.enable()
    shop.extract()
    source.run(f"ALTER TABLE orders OWNER TO {source.server.user}")
    with pytest.raises(ConnectionFailedError, match="must be owner"):
        shop.disable()
    report = shop.disable(discard=True)
    assert [each for each in report.left if "To remove it by hand: DROP TRIGGER IF EXISTS" in each]
    assert "changelog table" in str(report.removed)
    assert "not removed: trigger" in str(report)


def test_a_source_that_is_gone_is_left_if_asked(tmp_path: Path) -> None:
    """A server that was switched off for good does not keep Hive's table."""
    source = SqliteSource(tmp_path)
    shop = _followed(source, tmp_path)
    source.path.unlink()
    source.path.mkdir()
    with pytest.raises(ConnectionFailedError):
        shop.disable()
    report = shop.disable(discard=True)
    assert "not removed: triggers" in str(report)
