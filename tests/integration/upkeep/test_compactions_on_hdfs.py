"""Compactions of tables on HDFS, where an empty directory counts in listings, unlike on a local disk.

HIVE-29567: a major compaction of Hive by query (``hive.compactor.crud.query.based``) first makes the empty
directory of its result, and its own snapshot counts its own transaction as committed. On HDFS the query then
reads the empty base in place of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import MiniHdfs
from metastore_client.remote.thrift_client import open_client
from mutation_api import connect
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from tests.fixtures.fix_hive_elsewhere import KINDS, TRY_AGAIN
from tests.fixtures.fix_judge import new_database, started
from tests.integration.upkeep.compacted_shop import Shop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def compacts_by_query(
    hdfs: MiniHdfs, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiveJudge]:
    """A judge with its warehouse on HDFS that compacts by query, which is not the default."""
    warehouse = f"/by_query{request.param}"
    hdfs.make_directory(warehouse, mode="777")
    configuration = {
        "hive.metastore.warehouse.dir": f"{hdfs.location}{warehouse}",
        "dfs.replication": "1",
        "hive.compactor.crud.query.based": "true",
        **TRY_AGAIN,
    }
    with started(KINDS[request.param], request, tmp_path_factory, configuration) as judge:
        configure_storage(HadoopSettings(hdfs.settings))
        yield judge
        configure_storage(None)


def filled(shop: Shop, properties: str) -> Shop:
    """A table with two inserts and, if it can have one, a delete."""
    shop.create("", properties)
    shop.append(1, 2, 3)
    shop.append(4, 5)
    if not shop.is_insert_only:
        shop.hive.table(shop.name).delete(where="id = 2")
    return shop


def ids(shop: Shop) -> list[object]:
    """The ids that Hive reads."""
    return sorted(row[1] for row in shop.rows())  # type: ignore[type-var]


@pytest.mark.long
@pytest.mark.parametrize("compacts_by_query", ["4.1", "4.2"], indirect=True)
def test_a_major_compaction_by_query_loses_all_rows(compacts_by_query: HiveJudge) -> None:
    """That of Hive; ours keeps them in the same place, minor and major, also if none is left."""
    judge = compacts_by_query
    with (
        new_database(judge) as database,
        connect(judge.uri, write_lock="optimistic") as hive,
        open_client(judge.uri) as metastore,
    ):
        for properties in ("default", "insert_only"):
            for kind in ("minor", "major"):
                shop = filled(
                    Shop(judge, hive, metastore, f"{database}.hive_{kind}_{properties}"), properties
                )
                before = ids(shop)
                assert before
                judge.compact(shop.name, kind)
                is_lost = (kind, properties) == ("major", "default")
                assert (ids(shop), shop.states()) == ([] if is_lost else before, ["succeeded"])
            shop = filled(Shop(judge, hive, metastore, f"{database}.ours_{properties}"), properties)
            assert shop.compact(kind="minor") is not None
            shop.append(6)
            assert shop.compact() is not None
            if properties == "default":
                shop.hive.table(shop.name).delete(where="id > 0")
                assert shop.compact() is not None
                assert shop.rows() == []
                shop.append(7)
                assert ids(shop) == [7]
