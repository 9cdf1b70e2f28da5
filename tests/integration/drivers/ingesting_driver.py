"""Brings tables up to a MariaDB server's log; as a program it may kill itself at a step.

    …ingesting_driver METASTORE_URI USER PORT DATABASE HIVE_DATABASE LAST_STEP

Every call to the metastore, every change of a directory and every question to the source is a step; before
step number LAST_STEP the process kills itself. With LAST_STEP 0 it runs to the end and prints the number of
steps.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import SparkSession

from judges.mysql import MySqlJudge
from metastore_client.remote.thrift_client import open_client
from mutation_api import LocalOptions
from mutation_api.cdc import IngestReport, MySqlAddress, MySqlSource, TableMapping, ingest
from mutation_api.cdc.mysql.server import MySqlServer
from mutation_api.spark.local_spark_session import local_spark_session
from mutation_api.storage.local import LocalStorage
from tests.integration.drivers.steps import STORAGE_STEPS, SteppedMetastore, Steps
from tests.integration.ingests.mysql_workload import TABLES

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
}
LOCK_TIMEOUT_SECONDS = 60.0


def source_of(port: int, database: str) -> MySqlSource:
    """The judge's database as a source."""
    return MySqlSource(MySqlAddress("127.0.0.1", MySqlJudge.user, MySqlJudge.password, port), database)


def ingest_all(
    metastore: Any,
    spark: SparkSession | None,
    source: MySqlSource,
    hive_database: str,
    user: str | None = None,
) -> IngestReport:
    """Bring all tables of the workload up to the end of the log; without Spark in this process."""
    mappings = [TableMapping(name, f"{hive_database}.{name}") for name in TABLES]
    return ingest(
        metastore,
        mappings,
        source,
        user=user,
        lock_timeout_seconds=LOCK_TIMEOUT_SECONDS,
        spark=spark,
        local=LocalOptions() if spark is None else None,
    )


def main(uri: str, user: str, port: str, database: str, hive_database: str, last_step: str) -> None:
    """Run once, to the end or to the step."""
    with local_spark_session(user, master="local[1]", settings=SETTINGS) as spark:
        steps = Steps(int(last_step))
        for name in STORAGE_STEPS:
            setattr(LocalStorage, name, steps.wrap(name, getattr(LocalStorage, name)))
        for name in ("position", "tables", "check_settings"):
            setattr(MySqlServer, name, steps.wrap(name, getattr(MySqlServer, name)))
        with source_of(int(port), database) as source:
            ingest_all(SteppedMetastore(open_client(uri), steps), spark, source, hive_database, user)
        print(len(steps.names), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
