"""Erasure on HDFS, where snapshots keep files, and on S3, where uploads may be unfinished."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import MiniHdfs
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api import Location, connect, erase
from mutation_api.hive import erasure_run
from mutation_api.storage.connect import storage_at
from mutation_api.upkeep import ErasureReport
from mutation_api.upkeep.transaction_files import files_below
from tests.integration.erasures.people import cleaning, email

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(erasure_run, "POLL_SECONDS", 0.1)
    yield


def fill(judge: HiveJudge, name: str) -> None:
    """A table without compression, in which people come and change."""
    legacy = ", 'transactional_properties'='default'" if judge.line == "2.3" else ""
    judge.sql(
        f"create table {name} (id int, mail string) partitioned by (ds string) "
        "clustered by (id) into 2 buckets stored as orc "
        f"tblproperties ('transactional'='true', 'orc.compress'='NONE'{legacy})"
    )
    with connect(judge.uri) as hive:
        for day in "ab":
            ids = list(range(6))
            rows = {"id": pa.array(ids, pa.int32()), "mail": [email(n) for n in ids], "ds": [day] * 6}
            hive.table(name).append(pa.table(rows), create_partitions=True)
        hive.table(name).update(set={"mail": "'other'"}, where="id = 4")


def location_of(metastore: ThriftMetastoreClient, name: str) -> Location:
    return Location.parse(metastore.get_table(*name.split(".")).location)


def holds(root: Location, person: int) -> list[str]:
    """The files whose bytes hold a person's string."""
    storage = storage_at(root)
    found = []
    for entry in files_below(root):
        with storage.open_input(entry.location) as stream:
            if email(person).encode() in stream.read():
                found.append(str(entry.location))
    return found


def erased(judge: HiveJudge, metastore: ThriftMetastoreClient, name: str) -> ErasureReport:
    with cleaning(judge, worker=True):
        return erase(metastore, [3], {name: "id"}, wait_seconds=100)


@pytest.mark.parametrize("hive_on_hdfs", ["2.3", "3.1", "4.1"], indirect=True)
def test_a_snapshot_of_hdfs(hdfs: MiniHdfs, hive_on_hdfs: HiveJudge, database_on_hdfs: str) -> None:
    """It keeps the files, wherever above the table it was taken; without it they are gone."""
    name = f"{database_on_hdfs}.t"
    fill(hive_on_hdfs, name)
    with open_client(hive_on_hdfs.uri) as metastore:
        root = location_of(metastore, name)
        assert holds(root, 3)
        hdfs.snapshot(root.parent.path, "before")
        report = erased(hive_on_hdfs, metastore, name)
        assert [each.kind for each in report.obstacles] == ["snapshot"]
        assert "/.snapshot/before" in report.obstacles[0].found
        assert not report.is_erased
        assert holds(root, 3) == []
        hdfs.delete_snapshot(root.parent.path, "before")
        assert erased(hive_on_hdfs, metastore, name).is_erased


@pytest.mark.parametrize("hive_on_s3", ["4.1"], indirect=True)
def test_an_unfinished_upload(hive_on_s3: HiveJudge, database_on_s3: str) -> None:
    """Its bytes cannot be read, so nothing is erased before it is gone."""
    name = f"{database_on_s3}.t"
    fill(hive_on_s3, name)
    with open_client(hive_on_s3.uri) as metastore:
        root = location_of(metastore, name)
        storage = storage_at(root)
        file = storage.stage(root / "_mutation_999/x", root / "ds=a/delta_0000999_0000999_0000/bucket_00000")
        file.write(b"x")
        file.close()
        report = erased(hive_on_s3, metastore, name)
        assert [each.kind for each in report.obstacles] == ["uploads"]
        storage.abandon([file.staged])
        assert erased(hive_on_s3, metastore, name).is_erased
        assert holds(root, 3) == []
