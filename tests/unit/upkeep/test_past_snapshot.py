"""PastSnapshot: which directories leave the past complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import ConfigurationError, DirectoryStateError
from mutation_api.upkeep.past_snapshot import PastSnapshot
from tests.support.client_support import builder, table_info

LAST = 5
NEWEST = 9


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """A metastore of Hive 2.3 with a table and nine committed transactions."""
    metastore = InMemoryMetastore()
    metastore.create_table(table_info(partitioned=False, location=tmp_path.as_uri()))
    for _ in range(NEWEST - 1):
        metastore.commit_txn(metastore.open_txn("u", "h", "a"))
    return metastore


@pytest.mark.parametrize(
    ("directories", "culprit"),
    [
        (["base_0000005", "delta_0000006_0000006_0000", "delta_0000007_0000009"], None),
        (
            ["delta_0000001_0000005", "delete_delta_0000001_0000005", "delta_0000006_0000009", "_tmp_base_9"],
            None,
        ),
        ([f"base_{-(2**63)}", "delta_0000002_0000002"], None),
        ([], None),
        (["base_0000005", "base_0000009"], "base_0000009"),
        (["delta_0000002_0000002", "delta_0000005_0000006"], "delta_0000005_0000006"),
        (["delete_delta_0000001_0000009"], "delete_delta_0000001_0000009"),
    ],
)
def test_what_spans_the_id_is_refused(
    metastore: InMemoryMetastore, tmp_path: Path, directories: list[str], culprit: str | None
) -> None:
    """A base above the id, or a delta on both sides of it, has replaced older files; others have not."""
    for name in directories:
        (tmp_path / name).mkdir()
    with builder(metastore, None).build() as client, client.open_snapshot("default.t") as opened:
        past = PastSnapshot(opened, "default.t", LAST)
        assert past.valid_ids("default.t") == opened.valid_ids("default.t").up_to(LAST)
        if culprit is None:
            past.check_history("default.t")
            return
        with pytest.raises(
            DirectoryStateError, match=rf"as it was at id 5: {culprit} holds rows from before and after"
        ):
            past.check_history("default.t")


@pytest.mark.parametrize("last_id", [-1, 100])
def test_there_is_no_past_beyond_the_ids(metastore: InMemoryMetastore, last_id: int) -> None:
    """An id that was never given is a mistake, not an empty difference."""
    with builder(metastore, None).build() as client, client.open_snapshot("default.t") as opened:
        newest = opened.valid_ids("default.t").high_watermark
        with pytest.raises(
            ConfigurationError,
            match=f"cannot be read as it was at id {last_id}; its ids go from 0 to {newest}",
        ):
            PastSnapshot(opened, "default.t", last_id)
