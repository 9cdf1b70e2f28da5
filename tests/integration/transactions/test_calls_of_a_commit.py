"""How often a small transaction calls the metastore: each call waits for the network and for the server."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from benchmarks.measuring.counted_metastore import CountedMetastore
from judges.hive.judge import HiveJudge
from metastore_client.model import ColumnInfo
from mutation_api.hive.connection import connect
from mutation_api.upkeep.create_acid_table import create_acid_table

MOST = {"2.3": 9, "3.1": 14, "4.1": 14, "4.2": 14}
"""Hive 3 has write ids and constraints, Hive 4 numbers of rows, too."""

pytestmark = [pytest.mark.slow, pytest.mark.tasks]


@pytest.mark.parametrize("hive_line", ["2.3", "3.1", "4.1"], indirect=True)
def test_one_row(hive_line: HiveJudge, line_database: str) -> None:
    name = f"{line_database}.calls"
    with CountedMetastore(hive_line.uri) as metastore:
        create_acid_table(metastore, name, [ColumnInfo("id", "bigint")], clustered_by=["id"], num_buckets=1)
        with connect(metastore) as hive:
            for number in range(2):
                metastore.calls.clear()
                with hive.transaction(name) as transaction:
                    transaction.table(name).append(pa.table({"id": [number]}))
                called = Counter(call.name for call in metastore.calls)
                assert called.total() <= MOST[hive_line.line], called
                assert called["get_table_req"] <= 2
    assert hive_line.sql(f"select count(*), sum(id) from {name}") == [[2, 1]]
