"""A Spark driver that may log in and whose workers may not; run as a program by test_hdfs_kerberos.

    python -m tests.integration.drivers.kerberos_driver METASTORE_URI TABLE FILE

It inserts, changes and merges rows of TABLE (id int, msg string, ds string), and reads them when FILE, its
ticket or token, is gone. The last line of its output is what it read, as JSON.
"""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from metastore_client.delegation_token import tokens_in
from mutation_api import apply_changes, local_spark_session, merge_into, read_table
from mutation_api.spark.credentials import worker_settings
from mutation_api.storage.connect import configure_storage, storage_at
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient

TICKETS = "KRB5CCNAME"
TOKENS = "HADOOP_TOKEN_FILE_LOCATION"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    f"spark.executorEnv.{TICKETS}": "FILE:/nowhere/ticket",
    f"spark.executorEnv.{TOKENS}": "",
}


class Lines(logging.Handler):
    """Keeps all that is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def main(uri: str, table: str, file: str) -> None:
    lines = Lines()
    logging.getLogger().addHandler(lines)
    logging.getLogger().setLevel(logging.DEBUG)
    database, _, name = table.partition(".")
    client = (
        MutatorClientBuilder().metastore(uri).add_sink_table(database, name, create_partitions=True).build()
    )
    with local_spark_session(master="local[2]", settings=SETTINGS) as spark, client:
        location = client.tables[0].location
        shipped = worker_settings(spark.sparkContext, [location])
        assert "No Kerberos credentials" in told_by_worker(spark, location, shipped.with_tokens(b""))
        assert told_by_worker(spark, location, shipped) == "read"
        write(spark, client, table)
        rows = read_table(client.open_snapshot(table), table, spark=spark)
        Path(file).unlink()
        read = sorted((row.id, row.msg, row.ds) for row in rows.collect())
        plan = rows._jdf.queryExecution().toString()
        told = "\n".join([*lines.lines, repr(shipped), str(shipped), plan, repr(client.tables)])
        check_secrets(shipped, told)
    print(json.dumps(read))


def write(spark: SparkSession, client: MutatorClient, table: str) -> None:
    with client.new_transaction() as transaction:
        first = spark.sql(
            "select 'insert' as operation, cast(id as int) as id, concat('m', id) as msg, "
            "if(id < 5, 'a', 'b') as ds from range(1, 7)"
        )
        apply_changes(transaction, table, first)
    with client.new_transaction() as transaction:
        rows = read_table(transaction, table, spark=spark)
        odd = rows.where("id % 2 = 1").selectExpr("'delete' as operation", "*")
        even = rows.where("id = 2").selectExpr("'update' as operation", "ROW__ID", "id", "'new' as msg", "ds")
        apply_changes(transaction, table, odd.unionByName(even), verify_row_ids=True)
    with client.new_transaction() as transaction:
        source = spark.sql("select * from values (4, 'merged', 'a'), (9, 'm9', 'c') as s(id, msg, ds)")
        merge = merge_into(transaction, table, source=source, on=["id"])
        merge.whenMatched().updateAll().whenNotMatched().insertAll().execute()


def told_by_worker(spark: SparkSession, location: Location, settings: HadoopSettings) -> str:
    """What becomes of its attempt to read with these."""

    def attempt(numbers: Iterator[int]) -> Iterator[str]:
        configure_storage(settings)
        try:
            storage_at(location).list(location)
            yield "read"
        except PermissionError as error:
            yield str(error)
        finally:
            configure_storage(None)

    (told,) = spark.sparkContext.parallelize([0], 1).mapPartitions(attempt).collect()
    return told


def check_secrets(shipped: HadoopSettings, told: str) -> None:
    """No text of ours has a password."""
    tokens = tokens_in(shipped.tokens, "shipped")
    assert [token.kind for token in tokens] == ["HDFS_DELEGATION_TOKEN"], tokens
    assert "Answer received" in told, "what is said to the JVM before is logged"
    for secret in (token.password for token in tokens):
        for form in (secret.hex(), repr(secret)[2:-1], str(list(secret))[1:-1], *in_base64(secret)):
            assert form not in told


def in_base64(secret: bytes) -> Iterator[str]:
    """What is certain of it in base64, wherever in a group of three bytes it begins."""
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + secret).decode()
        yield text[4 if shift else 0 : -4]


if __name__ == "__main__":
    main(*sys.argv[1:])
