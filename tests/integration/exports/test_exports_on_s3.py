"""Exports to an S3 server, through the storages of deltalake and pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from judges.storages.s3_server import S3Server
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api import Hive, connect
from mutation_api.cdc import Export
from mutation_api.storage.location import Location

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    """A connection with an empty table."""
    with connect(InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)) as connected:
        connected.create_table("default.t", "id bigint, item string, p int", partitioned_by=["p"])
        yield connected


def follow(hive: Hive, export: Export) -> None:
    """A first copy, and changes."""
    rows = pa.table({"id": [1, 2, 3], "item": ["a", "b", "c"], "p": pa.array([1, 2, 2], pa.int32())})
    with hive.transaction("default.t", create_partitions=True) as tx:
        tx.table("default.t").append(rows)
    assert export.run().is_changed
    hive.table("default.t").delete(where="id = 2")
    assert export.run().is_changed
    assert export.verify().is_equal


def test_delta_on_s3(hive: Hive, s3: S3Server, s3_root: Location) -> None:
    """Data files, the log, and the reader."""
    options = {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ACCESS_KEY_ID": s3.settings["fs.s3a.access.key"],
        "AWS_SECRET_ACCESS_KEY": s3.settings["fs.s3a.secret.key"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    url = f"{s3_root}/delta"
    follow(hive, Export(hive, "default.t", to=f"delta:{url}", options=options))
    found = DeltaTable(url.replace("s3a:", "s3:"), storage_options=options).to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == [1, 3]


def test_iceberg_on_s3(hive: Hive, s3: S3Server, s3_root: Location, tmp_path: Path) -> None:
    """The catalog is a file, everything else is on the server."""
    options = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{s3_root}/iceberg".replace("s3a:", "s3:"),
        "s3.endpoint": s3.endpoint,
        "s3.access-key-id": s3.settings["fs.s3a.access.key"],
        "s3.secret-access-key": s3.settings["fs.s3a.secret.key"],
        "s3.region": "us-east-1",
    }
    follow(hive, Export(hive, "default.t", to="iceberg:lake.copies.t", options=options))
    found = load_catalog("lake", **options).load_table("copies.t").scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 3]
