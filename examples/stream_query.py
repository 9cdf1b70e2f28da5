"""The streaming query of the demo: it writes Debezium's messages about orders from Kafka to two Hive tables.

    python -m examples.stream_query METASTORE_URI KAFKA_SERVERS CHECKPOINT

``sales.orders`` is a copy of the shop's table, and ``sales.order_history`` has a row for each message. Each
batch changes both in one transaction and prints a line of JSON. The program ends when its own input ends and
every message is written. It may be killed at any time and started again.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from judges.kafka import spark_jars
from mutation_api import local_spark_session
from mutation_api.cdc import AppendRows, BatchReport, HiveSink, ReduceLog, hive_sink

TOPIC = "erp.shop.orders"
DATABASE = "sales"
ORDERS, HISTORY = f"{DATABASE}.orders", f"{DATABASE}.order_history"
COLUMNS = {
    ORDERS: "id bigint, customer string, total decimal(9,2), status string",
    HISTORY: "id bigint, operation string, status string, total decimal(9,2), place bigint",
}
QUERY = "orders"

_ROW = "struct<id bigint, customer string, total string, status string>"
ENVELOPE = f"before {_ROW}, after {_ROW}, op string"
OPERATIONS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}
BATCH_SECONDS = 2.0
MOST_MESSAGES = 20_000
"""The maximum number of messages in a batch."""
Write = Callable[[DataFrame, int], None]


def changes(batch: DataFrame) -> DataFrame:
    """Return the operations on rows in Kafka's messages. The tombstone after a delete adds nothing."""
    told = sf.from_json(sf.col("value").cast("string"), ENVELOPE)
    names = sf.create_map(*(sf.lit(word) for pair in OPERATIONS.items() for word in pair))
    rows = batch.where("value IS NOT NULL").select(told.alias("told"), sf.col("offset").alias("place"))
    return rows.select(
        names[sf.col("told.op")].alias("operation"),
        sf.coalesce("told.after", "told.before").alias("row"),
        "place",
    ).select(
        "operation",
        "row.id",
        "row.customer",
        sf.col("row.total").cast("decimal(9,2)").alias("total"),
        "row.status",
        "place",
    )


def history(batch: DataFrame) -> DataFrame:
    """Return a history row for each operation."""
    return changes(batch).select("id", "operation", "status", "total", "place")


def sink(uri: str) -> HiveSink:
    """Return the function that writes a batch."""
    return hive_sink(
        uri,
        QUERY,
        ReduceLog(ORDERS, key=["id"], order_by=["place"], rows=changes),
        AppendRows(HISTORY, rows=history),
        progress=tell,
    )


def tell(report: BatchReport) -> None:
    """Print a line for the demo."""
    print(json.dumps({"batch": report.number, "transaction": report.txn_id}), flush=True)


def started(
    spark: SparkSession, servers: str, topic: str, checkpoint: str, write: Write, seconds: float, most: int
) -> StreamingQuery:
    """Start a query that reads a Kafka topic, as any program would.

    Args:
        spark: a session that has the jars of :func:`judges.kafka.spark_jars`.
        servers: Kafka's brokers.
        topic: the topic to read, from its beginning.
        checkpoint: Spark's checkpoint directory.
        write: function that writes a batch.
        seconds: time from the start of one batch to the start of the next.
        most: maximum number of messages in a batch.
    """
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", most)
        .load()
    )
    return (
        messages.writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{seconds:g} seconds")
        .start()
    )


def main(arguments: Sequence[str]) -> int:
    """Run the query until the input of this program ends."""
    uri, servers, checkpoint = arguments
    settings = {
        "spark.jars": spark_jars(),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
    }
    with local_spark_session("orders", master="local[2]", settings=settings) as spark:
        write = sink(uri)
        query = started(spark, servers, TOPIC, checkpoint, write, BATCH_SECONDS, MOST_MESSAGES)

        def stop_at_the_end() -> None:
            sys.stdin.read()
            query.processAllAvailable()
            query.stop()

        threading.Thread(target=stop_at_the_end, daemon=True).start()
        write.await_termination(query)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
