"""The watermark table: made on demand, read and written without Spark, never set back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.model import ColumnInfo
from metastore_client.testing import InMemoryMetastore
from mutation_api.cdc.watermark import Watermark, Watermarks
from mutation_api.errors import ConfigurationError, SourcePositionError
from mutation_api.read.table_scan import TableScan
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.watermark_table import ensure_watermark_table, watermark_table_exists
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_metastore import LINES
from tests.support.client_support import files_below

NAME = "default.mutation_watermarks"
MARK = Watermark(
    "list:a", "orders", "d.orders", (5, -1), '{"seqno": "é"}', 1, datetime(2026, 1, 2, 3, 4, 5, 678901)
)


@pytest.fixture(params=LINES)
def metastore(request: pytest.FixtureRequest, tmp_path: Path) -> MetastoreClient:
    """One of each release, in memory."""
    return InMemoryMetastore(tmp_path, capabilities=LINES[request.param])


@pytest.fixture
def client(metastore: MetastoreClient) -> Iterator[MutatorClient]:
    """A client that writes watermarks."""
    ensure_watermark_table(metastore, NAME)
    with MutatorClientBuilder().metastore(metastore).add_sink_table(*NAME.split(".")).build() as made:
        yield made


def write(client: MutatorClient, *marks: Watermark) -> None:
    with client.new_transaction() as transaction:
        Watermarks.read(transaction, NAME).write(transaction, marks)


def read(client: MutatorClient) -> list[Watermark]:
    """As a reader without a write lock sees them."""
    snapshot = client.open_snapshot(NAME)
    try:
        return list(Watermarks.read(snapshot, NAME))
    finally:
        snapshot.close()


def moved(mark: Watermark, *order: int, **changes: Any) -> Watermark:
    """The watermark at another position."""
    return dataclasses.replace(mark, order=order, text=f"at {order}", **changes)


def test_what_is_known_is_not_read_again(client: MutatorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless somebody wrote meanwhile; what is then written replaces the rows that were known."""
    write(client, MARK)
    snapshot = client.open_snapshot(NAME)
    known = Watermarks.read(snapshot, NAME)
    snapshot.close()
    with client.new_transaction() as transaction:
        with monkeypatch.context() as patch:
            patch.setattr(TableScan, "to_arrow", lambda self: pytest.fail("the files are read again"))
            again = Watermarks.read(transaction, NAME, known=known)
        again.write(transaction, [moved(MARK, 6, 0)])
    assert [mark.order for mark in read(client)] == [(6, 0)]
    with client.new_transaction() as transaction:
        late = Watermarks.read(transaction, NAME, known=known)
        assert [mark.order for mark in late] == [(6, 0)]


@pytest.mark.thorough(1)
def test_a_watermark_comes_back_as_it_was(client: MutatorClient) -> None:
    """Each table of a source has one, for each target; a later one replaces it."""
    others = [
        dataclasses.replace(MARK, source_table="customers"),
        dataclasses.replace(MARK, target="d.other"),
        dataclasses.replace(MARK, source_id="list:b"),
    ]
    write(client, MARK, *others)
    assert read(client) == sorted([MARK, *others], key=lambda mark: mark.key)
    later = [moved(MARK, 5, 0, txn_id=2), moved(others[1], 6, -5, txn_id=2)]
    new = dataclasses.replace(MARK, source_id="list:c")
    write(client, new, *later)
    assert read(client) == sorted([*later, others[0], others[2], new], key=lambda mark: mark.key)
    write(client, later[0])
    assert len(read(client)) == 5


def test_without_watermarks(client: MutatorClient) -> None:
    """An empty table; a transaction that writes none leaves no file."""
    assert read(client) == []
    write(client)
    assert files_below(client.tables[0].location) == []


@pytest.mark.thorough(1)
@pytest.mark.parametrize("order", [(5, -2), (4, 9), (), (6,), (5, -1, 0)])
def test_it_never_moves_backwards(client: MutatorClient, order: tuple[int, ...]) -> None:
    """Nor to a position that cannot be compared; nothing is written, not even the others."""
    write(client, MARK)
    before = files_below(client.tables[0].location, hidden=True)
    new = dataclasses.replace(MARK, source_table="new")
    with (
        pytest.raises(SourcePositionError) as caught,
        client.new_transaction() as transaction,
    ):
        Watermarks.read(transaction, NAME).write(transaction, [new, moved(MARK, *order)])
    message = str(caught.value)
    assert message.startswith(f"source list:a, table orders: its position at {order} {list(order)} ")
    assert ("lies before" if len(order) == 2 else "cannot be compared with") in message
    assert "up to which transaction 1 has applied it to d.orders. Nothing was written" in message
    assert read(client) == [MARK]
    assert files_below(client.tables[0].location, hidden=True) == before


def test_it_is_created_once(metastore: MetastoreClient) -> None:
    """The second client, even at the same time, takes the table as it is."""
    assert not watermark_table_exists(metastore, NAME)
    ensure_watermark_table(metastore, NAME)
    assert watermark_table_exists(metastore, NAME)
    made = metastore.get_table(*NAME.split("."))
    ensure_watermark_table(metastore, NAME.upper())
    ensure_watermark_table(_BlindOnce(metastore), NAME)  # type: ignore[arg-type]
    assert metastore.get_table(*NAME.split(".")) == made


class _BlindOnce:
    """A metastore in which the table appears only after it was looked for."""

    def __init__(self, metastore: MetastoreClient) -> None:
        self._metastore = metastore
        self._is_blind = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metastore, name)

    def get_table(self, database: str, table: str) -> Any:
        is_blind, self._is_blind = self._is_blind, False
        return self._metastore.get_table(database, "not yet" if is_blind else table)


def test_its_database_must_exist(metastore: MetastoreClient) -> None:
    """The refusal of create_acid_table goes through."""
    with pytest.raises(ConfigurationError, match=r"table no\.marks could not be created"):
        ensure_watermark_table(metastore, "no.marks")


def test_another_table_is_refused(metastore: MetastoreClient) -> None:
    """A table of other columns is not written to."""
    create_acid_table(metastore, NAME, [ColumnInfo("id", "bigint")], clustered_by=["id"], num_buckets=1)
    ensure_watermark_table(metastore, NAME)
    builder = MutatorClientBuilder().metastore(metastore).add_sink_table(*NAME.split("."))
    with (
        builder.build() as client,
        pytest.raises(ConfigurationError, match="is not a watermark table: its columns are id bigint"),
    ):
        read(client)


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_order": "[1, 2.5]"}, "position_order must be a JSON list of whole numbers"),
        ({"position_order": "5"}, "position_order must be a JSON list of whole numbers"),
        ({"position_order": "[1"}, "position_order must be a JSON list of whole numbers"),
        ({"position_text": None}, "no column may be null"),
        ({}, "has two watermarks of source list:a, table orders, target d.orders: delete the wrong one"),
    ],
)
def test_rows_that_are_no_watermarks(client: MutatorClient, changes: dict[str, Any], message: str) -> None:
    """Rows of another writer are refused; the message names the row."""
    record = {
        "source_id": "list:a",
        "source_table": "orders",
        "target_table": "d.orders",
        "position_order": "[5]",
        "position_text": "x",
        "txn_id": 1,
        "applied_at": MARK.applied_at,
    }
    with client.new_transaction() as transaction:
        with MutatorCoordinator(transaction.table(NAME)) as coordinator:
            coordinator.insert(None, {**record, **changes})
            coordinator.insert(None, record)
        transaction.add_manifests(NAME, coordinator.writer_id, coordinator.close())
    with pytest.raises(SourcePositionError) as caught:
        read(client)
    assert message in str(caught.value)
