"""Tables of a metastore in memory, changed by the local engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.upkeep.create_acid_table import create_acid_table

LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
DS = (ColumnInfo("ds", "string"),)


@dataclasses.dataclass(frozen=True)
class LocalTable:
    """A table and a client that may write it."""

    name: str
    client: MutatorClient
    location: Path

    def rows(self, **how: Any) -> list[dict[str, Any]]:
        """All visible rows, ordered."""
        with self.client.open_snapshot(self.name) as view:
            found = TableScan(open_table(view, self.name), **how).to_arrow().to_pylist()
        return sorted(found, key=repr)

    def files(self) -> list[str]:
        """Relative paths of all data files, hidden ones too."""
        found = (path.relative_to(self.location) for path in self.location.rglob("*") if path.is_file())
        return sorted(str(path) for path in found if "acid_version" not in path.name)


MakeTable = Callable[..., LocalTable]


@pytest.fixture
def make_table(tmp_path: Path) -> Iterator[MakeTable]:
    """Make a table ``default.t (id bigint, msg string)`` of a line, partitioned and bucketed as wanted."""
    clients = []

    def make(line: str = "4.1", *, legacy: bool = False, columns: Any = COLUMNS, **how: Any) -> LocalTable:
        metastore = InMemoryMetastore(tmp_path, capabilities=LINES[line])
        if line == "2.3":
            how = {"clustered_by": ["id"], "num_buckets": 3, **how}
        made = create_acid_table(metastore, "default.t", columns, **how)
        if legacy:
            metastore.drop_table("default", "t", delete_data=True)
            metastore.create_table(dataclasses.replace(made, parameters={"transactional": "true"}))
        builder = MutatorClientBuilder().metastore(metastore)
        client = builder.add_sink_table("default.t", create_partitions=True).build()
        client.connect()
        clients.append(client)
        return LocalTable("default.t", client, Path(made.location.removeprefix("file:")))

    yield make
    for client in clients:
        client.close()
