"""A driver of a cluster; run as a script, since nothing but the installed package may be needed.

    python cluster_driver.py MASTER METASTORE_URI TABLE EXECUTOR_JAVA_OPTIONS [NAME=VALUE…]

Inserts, merges by key and reads what is there, in three transactions; NAME=VALUE are settings of Spark.
Prints, as one JSON object, the rows that the snapshot has, and where the tasks ran.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutation_api import MutatorClientBuilder, apply_changes, local_spark_session, merge_into, read_table

ROWS = 200
PARTITIONS = 4


def main(master: str, uri: str, table: str, java_options: str, *pairs: str) -> int:
    settings = {
        "spark.executor.extraJavaOptions": java_options,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        **dict(pair.split("=", 1) for pair in pairs),
    }
    builder = MutatorClientBuilder().metastore(uri)
    builder.add_sink_table(*table.split("."), create_partitions=True)
    with local_spark_session("cluster", master=master, settings=settings) as spark, builder.build() as client:
        rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr(
            "cast(id as int) id", "concat('m', id) msg", "concat('d', id % 3) ds"
        )
        with client.new_transaction() as transaction:
            apply_changes(transaction, table, rows.selectExpr("'insert' operation", "*"))
        changes = rows.where("id % 2 = 0").selectExpr("if(id % 4 = 0, 'D', 'U') op", "id", "'new' msg", "ds")
        with client.new_transaction() as transaction:
            merge_into(transaction, table, source=changes, on=["id"]).whenMatched(
                "source.op = 'D'"
            ).delete().whenMatched().updateAll().execute()
        with client.new_transaction() as transaction:
            found = read_table(transaction, table, spark=spark).select("id", "msg", "ds").collect()
        places = spark.range(0, 16, 1, 16).mapInArrow(places_of_tasks, "place string").distinct().collect()
    print(json.dumps({"rows": sorted(map(list, found)), "places": sorted(row[0] for row in places)}))
    return 0


def places_of_tasks(batches: Iterator[Any]) -> Iterator[Any]:
    """Where a task runs, and what it was told of storage."""
    import pyarrow as pa

    for _ in batches:
        pass
    place = {
        "runs in": str(Path.cwd().parent),
        "temporary": tempfile.gettempdir(),
        "shuffles": os.environ["SPARK_LOCAL_DIRS"].split("/spark-")[0],
        "told": os.environ.get("HADOOP_CONF_DIR", "nothing"),
    }
    yield pa.RecordBatch.from_pydict({"place": [json.dumps(place)]})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
