"""An erasure that compacts past the queue, on a metastore in memory: who is in the way is named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_2_3, HIVE_3_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError
from mutation_api.hive import erasure_run
from mutation_api.hive.connect import connect
from mutation_api.hive.erasure import erase
from mutation_api.upkeep.create_acid_table import create_acid_table

TABLE = "default.t"
LINES = {"2.3": HIVE_2_3, "3.1": HIVE_3_1}


@pytest.mark.thorough
@pytest.mark.parametrize("line", LINES)
def test_an_open_transaction_is_named(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps old files in place; after its end, the next run erases. The initiator must be off."""
    monkeypatch.setattr(erasure_run, "POLL_SECONDS", 0.05)
    metastore = InMemoryMetastore(tmp_path, capabilities=LINES[line])
    columns = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
    create_acid_table(metastore, TABLE, columns, clustered_by=["id"], num_buckets=2)
    with connect(metastore) as hive:
        for number in range(2):
            hive.table(TABLE).append(
                pa.table({"id": pa.array([number, number + 10], pa.int64()), "msg": ["a", "b"]})
            )
    with pytest.raises(ConfigurationError, match="initiator may have Hive compact it"):
        erase(metastore, [1], {TABLE: "id"}, wait_seconds=1, compact="local")
    info = metastore.get_table("default", "t")
    metastore.set_table_parameters("default", "t", {**info.parameters, "no_auto_compaction": "true"})
    txn_id = metastore.open_txn("ann", "host", "agent")
    report = erase(metastore, [1], {TABLE: "id"}, wait_seconds=1, compact="local")
    assert report.state == "unfinished"
    assert f"transaction {txn_id} of ann@host" in str(report)
    metastore.commit_txn(txn_id)
    report = erase(metastore, [1], {TABLE: "id"}, wait_seconds=30, compact="local")
    assert report.is_erased, str(report)
    with connect(metastore) as hive, hive.snapshot(TABLE) as view:
        assert sorted(view.table(TABLE).scan(["id"]).to_arrow()["id"].to_pylist()) == [0, 10, 11]
