"""The search for events of Hive 2 beside writers whose files go away meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import MutatorClientBuilder
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.transaction import base_files
from tests.support.client_support import table_info


class Vanishing:
    """Lists a delta that is gone when it is looked into."""

    def __init__(self, table: Location) -> None:
        self._table = table

    def list(self, directory: Location) -> list[FileEntry]:
        if directory == self._table:
            return [FileEntry(directory / "delta_0000007_0000007_0000", True, 0)]
        raise FileNotFoundError(str(directory))


def test_a_delta_that_an_abort_removes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no events any more; the commit beside it goes on."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_4_1)
    metastore.create_table(table_info("t", partitioned=False))
    with MutatorClientBuilder().metastore(metastore).add_sink_table("default.t").build() as client:
        (table,) = client.tables
    monkeypatch.setattr(base_files, "directories_below", lambda _: Vanishing(table.location))
    base_files.refuse_old_events(table, [""])
