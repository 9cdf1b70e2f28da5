from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from metastore_client.testing import InMemoryMetastore
from mutation_api.cdc.ingest_report import list_watermarks
from mutation_api.cdc.watermark import Watermark, Watermarks
from mutation_api.errors import ConfigurationError
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.watermark_table import ensure_watermark_table, watermark_table_beside
from tests.fixtures.fix_metastore import LINES

NAME = "default.mutation_watermarks"
MARKS = [
    Watermark("a", "orders", "default.orders", (1,), "1", 1, datetime(2026, 1, 2)),
    Watermark("a", "rows", "default.rows", (2,), "2", 1, datetime(2026, 1, 2)),
    Watermark("b", "orders", "default.orders", (3,), "3", 1, datetime(2026, 1, 2)),
]


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """One with the watermarks above."""
    made = InMemoryMetastore(tmp_path, capabilities=LINES["4.1"])
    ensure_watermark_table(made, NAME)
    with (
        MutatorClientBuilder().metastore(made).add_sink_table(*NAME.split(".")).build() as client,
        client.new_transaction() as transaction,
    ):
        Watermarks.read(transaction, NAME).write(transaction, MARKS)
    return made


def test_watermarks_are_found_by_source_and_target(metastore: InMemoryMetastore) -> None:
    """Both must fit; names of tables go by any case, and the lock is released."""
    assert list_watermarks(metastore, NAME.upper()) == MARKS
    assert list_watermarks(metastore, NAME, target="Default.ORDERS") == [MARKS[0], MARKS[2]]
    assert list_watermarks(metastore, NAME, target="default.orders", source_id="b") == MARKS[2:]
    assert list_watermarks(metastore, NAME, source_id="c") == []
    assert metastore.show_locks() == []


def test_no_table_is_no_watermark(metastore: InMemoryMetastore) -> None:
    """It is created by the first run that applies a source; names that are none are refused."""
    assert list_watermarks(metastore, "default.others") == []
    assert watermark_table_beside("Sales.orders") == "sales.mutation_watermarks"
    with pytest.raises(ConfigurationError, match="not the full name of a table"):
        watermark_table_beside("orders")
    with pytest.raises(ConfigurationError, match="not the full name of a table"):
        list_watermarks(metastore, NAME, target="orders")
