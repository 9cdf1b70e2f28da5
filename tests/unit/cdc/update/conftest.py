"""A shop on SQLite, followed by a table of a metastore in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from tests.support.shops import Shop, SqliteSource

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price TEXT)"
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"), ColumnInfo("price", "decimal(9,2)"))

MakeShop = Callable[..., Shop]


@pytest.fixture
def make_shop(tmp_path: Path) -> MakeShop:
    """Make a shop with a table of this definition."""

    def make(definition: str = ORDERS, columns: tuple[ColumnInfo, ...] = COLUMNS, *keys: ColumnInfo) -> Shop:
        source = SqliteSource(tmp_path)
        source.run(definition)
        metastore = InMemoryMetastore(tmp_path / "warehouse", capabilities=HIVE_4_1)
        return Shop(source, metastore, "default", columns, *keys, bucketed_by=columns[0].name)

    return make
