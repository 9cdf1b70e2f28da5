"""The past by Spark, as Hive read it then."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from mutation_api.spark.snapshot_frame import read_table
from tests.integration.conftest import MakeTable
from tests.integration.transactions.live_table import delete, insert, update

pytestmark = pytest.mark.slow


@pytest.mark.feature("reading the past")
def test_spark_reads_what_hive_read_then(spark: SparkSession, make_table: MakeTable, layout: str) -> None:
    """Rows and ROW__IDs, by the id of each transaction."""
    table = make_table(layout=layout)
    table.commit(*(insert("a", n, "old") for n in (0, 2, 1, 3)))
    ids = table.row_ids()
    then = {table.valid().high_watermark: table.rows()}
    table.commit(update("a", ids[0], 0), delete("a", ids[2]), insert("a", 4, "new"))
    then[table.valid().high_watermark] = table.rows()
    table.commit(insert("a", 6, "new"))
    for id, expected in then.items():
        with table.client() as client, client.open_snapshot(table.full_name, as_of=id) as past:
            rows = read_table(past, table.full_name, spark=spark).collect()
        found = {(tuple(r["ROW__ID"])[:3], (r["id"], r["msg"])) for r in rows}
        assert found == {(r.row_id, r.values) for r in expected}
