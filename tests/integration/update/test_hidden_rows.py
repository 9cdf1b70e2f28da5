"""Rows and columns that one side does not have: hidden by the source, or of one name there."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import RecordLayoutError
from tests.integration.update.conftest import KINDS
from tests.support.shops import PostgresSource, Shop, Source

pytestmark = pytest.mark.slow
EITHER = pytest.mark.usefixtures("either_engine")

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
POLICY = "CREATE POLICY few ON orders USING (id < 3)"


def _shop(source: Source, place: Path, *columns: ColumnInfo) -> Shop:
    metastore = InMemoryMetastore(place / "warehouse", capabilities=HIVE_4_1)
    return Shop(source, metastore, "default", columns or COLUMNS)


def _owned(source: Source, owner: str) -> None:
    """The table belongs to an account that may not do everything, which extracts."""
    assert isinstance(source, PostgresSource)
    source.run(
        f"CREATE ROLE {owner} LOGIN PASSWORD 'secret'",
        f"GRANT CREATE ON SCHEMA public TO {owner}",
        "CREATE TABLE orders (id bigint PRIMARY KEY, item text)",
        "INSERT INTO orders VALUES (1, 'tea'), (2, 'coffee'), (3, 'wine')",
        f"ALTER TABLE orders OWNER TO {owner}",
    )
    source.url = source.url.replace(f"{source.server.user}@", f"{owner}@")
    source.password = "secret"


@EITHER
@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_rows_that_a_policy_hides_are_not_taken_for_deleted(source: Source, tmp_path: Path) -> None:
    """Refused when it is enabled, and when the policy is made later; without it both sides are equal."""
    owner = f"owner_{tmp_path.name[-20:].replace('-', '_')}"
    _owned(source, owner)
    forced = "ALTER TABLE orders FORCE ROW LEVEL SECURITY"
    hide = (POLICY, "ALTER TABLE orders ENABLE ROW LEVEL SECURITY", forced)
    show = ("ALTER TABLE orders NO FORCE ROW LEVEL SECURITY",)
    shop = _shop(source, tmp_path)
    source.run(*hide)
    with pytest.raises(RecordLayoutError, match=r"row level security hides rows .*BYPASSRLS"):
        shop.enable()
    assert source.objects() == []
    source.run(*show)
    shop.enable()
    shop.extract()
    assert len(shop.rows()) == 3
    source.run(forced, "UPDATE orders SET item = 'x' WHERE id = 3")
    with pytest.raises(RecordLayoutError, match="row level security hides rows"):
        shop.extract()
    assert len(shop.rows()) == 3
    source.run(*show)
    shop.extract()
    assert [tuple(row.values()) for row in shop.rows()] == source.rows("SELECT * FROM orders ORDER BY id")


@EITHER
@pytest.mark.parametrize("source", KINDS[:1], indirect=True)
def test_columns_whose_names_differ_in_case_only_are_told_apart(source: Source, tmp_path: Path) -> None:
    """Refused with both names; one of them is ignored by its spelling."""
    source.run(
        'CREATE TABLE orders (id bigint PRIMARY KEY, item text, "Item" text)',
        "INSERT INTO orders VALUES (1, 'small', 'great')",
    )
    shop = _shop(source, tmp_path)
    with pytest.raises(RecordLayoutError, match=r"columns 'item' and 'Item'.*--ignore-column item"):
        shop.enable()
    shop.enable(ignored_columns=["item"])
    shop.extract()
    assert [row["item"] for row in shop.rows()] == ["great"]
    source.run("UPDATE orders SET item = 'x', \"Item\" = 'greater'")
    shop.extract()
    assert [row["item"] for row in shop.rows()] == ["greater"]
    source.run(
        'ALTER TABLE orders DROP COLUMN "Item"', "ALTER TABLE orders ADD COLUMN \"Item\" text DEFAULT 'new'"
    )
    shop.extract()
    assert [row["item"] for row in shop.rows()] == ["new"]
    source.run('ALTER TABLE orders ADD COLUMN "ITEM" text')
    with pytest.raises(RecordLayoutError, match=r"columns 'Item' and 'ITEM'"):
        shop.extract()
