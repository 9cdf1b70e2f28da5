"""A streaming query under a steady load: 5,000 changes a second from Kafka into a table of 10,000,000 rows.

    python -m benchmarks stream                  # 30 minutes
    python -m benchmarks stream --quick          # 1,000,000 rows, two minutes

A producer writes Debezium's messages at that rate, of rows all over the table. A query (``hive_sink``)
takes them in batches of ten seconds, each a transaction that reduces them to the last of each key and merges
it. Hive's own compactor works beside it: a minor compaction is asked for again and again. The rate is held if
the last batch ends soon after the last message. Memory is what each kind of process holds, in the second
quarter of the time and in the last one. In the end Hive's SQL must find the sums that the changes leave.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from benchmarks.data.order_changes import Totals, send
from benchmarks.measuring.arguments import SteadyLoad
from benchmarks.measuring.measure import machine, tell, versions
from benchmarks.measuring.memory import MemoryCourse, growth, quarters
from benchmarks.measuring.report import save_cases, show_case
from examples.local import create_table
from examples.stream_query import COLUMNS, ORDERS, changes, started
from judges.hive.hive_judges import Hive23
from judges.kafka import Kafka, spark_jars
from metastore_client import CompactionType, open_client
from mutation_api import MutatorClientBuilder, apply_changes, local_spark_session
from mutation_api.cdc import HiveSink, ReduceLog, hive_sink

HELP = "changes from Kafka at a steady rate, by a streaming query"

LOAD = SteadyLoad(10_000_000)
BATCH_SECONDS = 10.0
MOST_CHANGES = 200_000
"""Of a batch: one that is late may catch up."""
LATEST_SECONDS = 2 * BATCH_SECONDS
"""From the last message to the end of the batch that writes it."""
GROWTH_AIM = 1.1
COMPACTION_BATCHES = 30
COMPACTION_SECONDS = 1800.0
LOOK_SECONDS = 1.0
BUCKETS = 8
PARTITIONS = 4
TOPIC = "erp.shop.orders"
RESULTS = Path(__file__).parent / "results" / "stream.json"
WATCHED = {"driver": "driver's Python", "java": "Spark's JVM", "python": "workers", "hive": "Hive"}


@dataclass
class Timed:
    """What the query calls for each batch: writes it, and notes how long it took."""

    write: HiveSink
    seconds: list[float] = field(default_factory=list)
    last_end: float = 0.0

    def __call__(self, batch: DataFrame, number: int) -> None:
        """See :class:`HiveSink`."""
        began = time.monotonic()
        self.write(batch, number)
        self.last_end = time.monotonic()
        self.seconds.append(self.last_end - began)
        tell(f"batch {number}: {self.seconds[-1]:.1f} s")


@dataclass(frozen=True)
class Course:
    """What was measured.

    ``sent``: changes; ``sending_seconds``: from the first to the last; ``late_seconds``: from the last one to
    the end of its batch.
    """

    sent: int
    sending_seconds: float
    late_seconds: float
    batch_seconds: list[float]
    looks: list[dict[str, int]]
    totals: Totals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    LOAD.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if the rate was held, memory flat (not in a quick run), and Hive agrees."""
    load = LOAD.requested(arguments)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        hive = stack.enter_context(Hive23(work / "hive"))
        kafka = stack.enter_context(Kafka(work / "kafka"))
        kafka.create_topic(TOPIC, PARTITIONS)
        settings = {
            "spark.jars": spark_jars(),
            "spark.local.dir": str(work / "spark"),
            "spark.sql.shuffle.partitions": "4",
        }
        spark = stack.enter_context(local_spark_session("stream", master="local[2]", settings=settings))
        _prepare(spark, hive, load.rows)
        course = _course(spark, hive, kafka, work, (load.rows, load.changes, load.minutes * 60))
        found = _found(hive)
        about = f"{hive.description}, {kafka.description}"
    tell(f"Hive: {found}; expected: {course.totals}")
    is_held, grown = course.late_seconds <= LATEST_SECONDS, growth(course.looks, WATCHED)
    case = _case(load.rows, course, grown)
    show_case(case)
    if arguments.save:
        about = ", ".join((about, *versions("pyarrow", "pyspark", "confluent-kafka")))
        save_cases([case], RESULTS, title="Streaming query", versions=about, machine=machine())
    is_flat = arguments.quick or max(grown.values()) <= GROWTH_AIM
    return 0 if found == course.totals and is_held and is_flat else 1


def _prepare(spark: SparkSession, hive: Hive23, rows: int) -> None:
    """The table with its rows."""
    began = time.monotonic()
    database, _ = ORDERS.split(".")
    hive.sql(f"CREATE DATABASE {database}")
    create_table(hive.uri, ORDERS, COLUMNS[ORDERS], "", "id", BUCKETS, layout="default")
    numbers = spark.range(1, rows + 1)
    made = numbers.select(
        sf.lit("insert").alias("operation"),
        "id",
        sf.expr("concat('customer ', id % 9973)").alias("customer"),
        sf.expr("cast(id % 100000 / 100 as decimal(9,2))").alias("total"),
        sf.lit("new").alias("status"),
    )
    client = MutatorClientBuilder().metastore(hive.uri).add_sink_table(ORDERS).build()
    with client, client.new_transaction() as transaction:
        apply_changes(transaction, ORDERS, made)
    tell(f"made {rows:,} rows in {time.monotonic() - began:.0f} s")


def _course(
    spark: SparkSession, hive: Hive23, kafka: Kafka, work: Path, load: tuple[int, int, float]
) -> Course:
    """Send, and let the query write meanwhile and until it has written all.

    ``load``: rows of the table, changes a second, seconds.
    """
    action = ReduceLog(ORDERS, key=["id"], order_by=["place"], rows=changes)
    timed = Timed(hive_sink(hive.uri, "orders", action))
    ours, theirs = multiprocessing.Pipe(duplex=False)
    producer = multiprocessing.get_context("spawn").Process(
        target=send, args=(kafka.servers, TOPIC, *load, theirs), daemon=True
    )
    producer.start()
    names: Mapping[int, str] = {hive.pid: "hive", kafka.pid: "kafka", int(producer.pid or 0): "producer"}
    checkpoint = f"file:{work}/checkpoint"
    with MemoryCourse(os.getpid(), names, LOOK_SECONDS) as course, _compactions(hive, timed):
        query = started(spark, kafka.servers, TOPIC, checkpoint, timed, BATCH_SECONDS, MOST_CHANGES)
        while not ours.poll(1.0):
            if query.exception() is not None or not producer.is_alive():
                timed.write.await_termination(query, 1)
                raise RuntimeError("the producer has ended")
        sent, sending, totals = ours.recv()
        sent_at = time.monotonic()
        query.processAllAvailable()
        query.stop()
    late = max(0.0, timed.last_end - sent_at)
    return Course(sent, sending, late, timed.seconds, course.looks, totals)


@contextlib.contextmanager
def _compactions(hive: Hive23, timed: Timed) -> Iterator[None]:
    """Hive's compactor works beside the query, asked from time to time."""
    stopped = threading.Event()
    database, table = ORDERS.split(".")

    def work() -> None:
        asked = 0
        with open_client(hive.uri) as metastore:
            while not stopped.wait(1.0):
                if len(timed.seconds) // COMPACTION_BATCHES > asked:
                    asked += 1
                    began = time.monotonic()
                    metastore.compact(database, table, None, CompactionType.MINOR)
                    hive.worker()
                    tell(f"minor compaction: {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(COMPACTION_SECONDS)


def _found(hive: Hive23) -> Totals:
    [[rows, ids, total]] = hive.sql(f"SELECT count(*), sum(id), sum(total) FROM {ORDERS}")
    return Totals(int(rows), int(ids), Decimal(str(total)))


def _case(rows: int, course: Course, grown: Mapping[str, float]) -> dict[str, Any]:
    seconds = course.batch_seconds
    memory = {kind: [round(each) for each in quarters(course.looks, kind)] for kind in WATCHED}
    told = "; ".join(
        f"{WATCHED[kind]} {second:,} and {last:,} MiB ({grown[kind]:.2f})"
        for kind, (second, last) in memory.items()
    )
    rate = course.sent / course.sending_seconds
    return {
        "case": f"{rate:,.0f} changes a second into {rows:,} rows",
        "text": (
            f"{course.sent:,} changes in {course.sending_seconds / 60:.1f} minutes. {len(seconds)} batches, "
            f"one every {BATCH_SECONDS:g} s if the last one has ended: median "
            f"{statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s. The last change was visible "
            f"{course.late_seconds:.1f} s after it was sent, aim {LATEST_SECONDS:g} s. Memory in the second "
            f"quarter of the time and in the last one: {told}."
        ),
        "seconds": [round(each, 2) for each in seconds],
        "late_seconds": round(course.late_seconds, 1),
        "memory_mib": memory,
        "contestants": {},
        "ratios": {},
    }
