"""The change feed under a steady load: 5,000 changes a second through a Hive table into Kafka.

    python -m benchmarks feed_stream                 # 5,000,000 rows, 30 minutes
    python -m benchmarks feed_stream --quick         # a tenth of the rows, two minutes

Every ten seconds a merge updates, inserts and deletes rows all over the table. Another process sends the
changes to Kafka in Debezium's form, with the rows before and after them, as ``hive-mutate changes --follow
--hold`` does. A third one reads the committed messages and adds up the rows after the changes, less those
before them. The library's compactor joins all files of the table again and again, and Hive's cleaner removes
what nobody holds.

The rate is held if the last change can be read from Kafka soon after its commit. The memory of the sender,
and the seconds that it takes to send the changes of a merge, are those of the second quarter of the time and
of the last one. In the end the sums of the messages, of the changes and of Hive's SQL must be equal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from benchmarks.data.order_changes import CENTS, OrderChanges, Totals, order_rows
from benchmarks.measuring.arguments import SteadyLoad
from benchmarks.measuring.measure import machine, tell, versions
from benchmarks.measuring.memory import MemoryCourse, growth, quarters
from benchmarks.measuring.report import save_cases, show_case
from judges.hive.hive_judges import Hive41
from judges.kafka import Kafka
from mutation_api import Hive, connect
from mutation_api.cdc import ChangeTopics
from mutation_api.upkeep import compact_table

HELP = "the change feed to Kafka, while a table changes at a steady rate"

LOAD = SteadyLoad(5_000_000)
MERGE_SECONDS = 10.0
FOLLOW_SECONDS = 5.0
HOLD_SECONDS = 600.0
COMPACTION_MERGES = 15
COMPACTION_SECONDS = 600.0
LATEST_SECONDS = 2 * MERGE_SECONDS
"""From the last commit until its changes were read from Kafka."""
GROWTH_AIM = 1.1
LOOK_SECONDS = 1.0
READ_SECONDS = 300.0
BUCKETS = 8
TABLE, PREFIX = "feed.orders", "hive"
TOPIC = f"{PREFIX}.{TABLE}"
COLUMNS = "id bigint, customer string, cents bigint, status string"
RESULTS = Path(__file__).parent / "results" / "feed_stream.json"


@dataclass(frozen=True)
class Course:
    """What was measured.

    ``merge_seconds`` and ``send_seconds`` are of one merge each; ``late_seconds``: from the last commit until
    its changes were read from Kafka; ``messages``: without tombstones.
    """

    sent: int
    seconds: float
    late_seconds: float
    merge_seconds: list[float]
    send_seconds: list[float]
    compaction_seconds: list[float]
    looks: list[dict[str, int]]
    messages: int
    expected: Totals
    found: Totals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    LOAD.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all sums agree, the rate was held, and (not in a quick run) nothing grew."""
    load = LOAD.requested(arguments)
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        judge = stack.enter_context(Hive41(work / "hive"))
        kafka = stack.enter_context(Kafka(work / "kafka"))
        kafka.create_topic(TOPIC, retention_bytes=2**30, segment_bytes=2**26)
        judge.sql(f"CREATE DATABASE {TABLE.partition('.')[0]}")
        hive = stack.enter_context(connect(judge.uri))
        table = hive.create_table(TABLE, COLUMNS, clustered_by=["id"], num_buckets=BUCKETS)
        ids = np.arange(1, load.rows + 1, dtype=np.int64)
        table.append(order_rows(ids, ids % CENTS))
        course = _course(hive, judge, kafka, (load.rows, load.changes, load.minutes * 60))
        of_hive = _sums(judge)
        about = f"{judge.description}, {kafka.description}"
    tell(f"Hive: {of_hive}; messages: {course.found}; expected: {course.expected}")
    grown = growth(course.looks, ["sender"])["sender"]
    case = _case(load.rows, course, grown)
    show_case(case)
    if arguments.save:
        about = ", ".join((about, *versions("pyarrow", "confluent-kafka")))
        save_cases([case], RESULTS, title="Change feed, steady load", versions=about, machine=machine())
    is_right = course.found == course.expected == of_hive
    is_held = course.late_seconds <= LATEST_SECONDS and course.seconds <= load.minutes * 60 + LATEST_SECONDS
    return 0 if is_right and is_held and (arguments.quick or grown <= GROWTH_AIM) else 1


def _course(hive: Hive, judge: Hive41, kafka: Kafka, load: tuple[int, int, float]) -> Course:
    """Merge, send, read and compact at the same time, until all changes were read.

    ``load``: rows of the table, changes a second, seconds.
    """
    rows, a_second, seconds = load
    merges, count = round(seconds / MERGE_SECONDS), round(a_second * MERGE_SECONDS)
    changes = OrderChanges(rows, merges * count)
    before = changes.totals()
    with hive.changes(TABLE, since="now") as feed:
        since = feed.position
    with (
        _started(_follow, judge.uri, kafka.servers, since) as sender,
        _started(_add_up, kafka.servers) as reader,
    ):
        names = {judge.pid: "hive", kafka.pid: "kafka", sender.pid: "sender", reader.pid: "reader"}
        merge_seconds: list[float] = []
        watch = MemoryCourse(os.getpid(), names, LOOK_SECONDS)
        with _compactions(judge, merge_seconds) as compaction_seconds, watch as course:
            began = time.monotonic()
            for number in range(merges):
                rows_of_merge = changes.rows(count)
                time.sleep(max(0.0, began + number * MERGE_SECONDS - time.monotonic()))
                began_merge = time.monotonic()
                _merge(hive, rows_of_merge)
                committed = time.monotonic()
                merge_seconds.append(committed - began_merge)
                tell(f"merge {number + 1} of {merges}: {merge_seconds[-1]:.1f} s")
                sender.check()
            taken = max(committed - began, merges * MERGE_SECONDS)
            sender.pipe.send(None)
            sent: list[tuple[float, int]] = sender.pipe.recv()
            reader.pipe.send(None)
            messages, *sums = reader.pipe.recv()
            late = time.monotonic() - committed
    found = Totals(before.rows + sums[0], before.ids + sums[1], before.total + Decimal(sums[2]) / 100)
    send_seconds = [each for each, messages in sent if messages]
    course_of = merge_seconds, send_seconds, compaction_seconds, course.looks
    return Course(merges * count, taken, late, *course_of, messages, changes.totals(), found)


def _merge(hive: Hive, rows: Any) -> None:
    with hive.transaction(TABLE) as transaction:
        merge = transaction.table(TABLE).merge(rows, on=["id"])
        merge.when_matched_delete("source.op = 'D'").when_matched_update_all()
        merge.when_not_matched_insert_all("source.op != 'D'").execute()


@dataclass(frozen=True)
class _Process:
    """A process of its own, and the pipe to it."""

    pid: int
    pipe: Connection
    is_alive: Any

    def check(self) -> None:
        """Raise RuntimeError if it has ended."""
        if not self.is_alive():
            raise RuntimeError("a process of the benchmark has ended")


@contextlib.contextmanager
def _started(target: Any, *arguments: Any) -> Iterator[_Process]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()  # its end is an EOFError for us
    try:
        yield _Process(int(process.pid or 0), ours, process.is_alive)
    finally:
        process.terminate()
        process.join()


def _follow(uri: str, servers: str, since: str, pipe: Connection) -> None:
    """Send what is new every few seconds; asked to end, return the seconds and messages of each time."""
    sent: list[tuple[float, int]] = []
    settings = {"compression.type": "lz4"}
    with connect(uri) as hive, ChangeTopics(servers, topic_prefix=PREFIX, settings=settings) as topics:
        is_last = False
        while not is_last:
            is_last = pipe.poll(FOLLOW_SECONDS)
            began = time.monotonic()
            found = topics.send(hive, TABLE, since=since, on=["id"], hold=HOLD_SECONDS)
            sent.append((time.monotonic() - began, found.message_count))
    pipe.send(sent)


def _add_up(servers: str, pipe: Connection) -> None:
    """Add up the rows of committed messages; asked for it, return the sums once no message is left."""
    settings = {"bootstrap.servers": servers, "group.id": "sums", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    sums, count, is_asked = [0, 0, 0], 0, False
    end = float("inf")
    while time.monotonic() < end:
        messages = consumer.consume(10_000, 0.5)
        for message in messages:
            if message.error() or message.value() is None:
                continue
            count += 1
            payload = json.loads(message.value())["payload"]
            for image, sign in ((payload["after"], 1), (payload["before"], -1)):
                if image is not None:
                    for at, value in enumerate((1, image["id"], image["cents"])):
                        sums[at] += sign * value
        if not is_asked and pipe.poll():
            pipe.recv()
            is_asked, end = True, time.monotonic() + READ_SECONDS
        if is_asked and not messages:
            break
    consumer.close()
    pipe.send((count, *sums))


@contextlib.contextmanager
def _compactions(judge: Hive41, merges: list[float]) -> Iterator[list[float]]:
    """Compact in a process of its own after so many merges, and let Hive's cleaner remove old files."""
    stopped, seconds = threading.Event(), list[float]()

    def work() -> None:
        done = 0
        while not stopped.wait(1.0):
            if len(merges) // COMPACTION_MERGES > done:
                done += 1
                began = time.monotonic()
                process = multiprocessing.get_context("spawn").Process(target=_compact, args=(judge.uri,))
                process.start()
                process.join(COMPACTION_SECONDS)
                if process.exitcode != 0:
                    process.kill()
                    raise RuntimeError(f"a compaction has failed, or takes too long: {process.exitcode=}")
                seconds.append(time.monotonic() - began)
                judge.cleaner()
                tell(f"compaction: {seconds[-1]:.1f} s")

    with ThreadPoolExecutor(1) as pool:
        compactions = pool.submit(work)
        try:
            yield seconds
        finally:
            stopped.set()
        compactions.result()


def _compact(uri: str) -> None:
    with connect(uri) as hive:
        compact_table(hive.metastore, TABLE, kind="major", engine="local")


def _sums(judge: Hive41) -> Totals:
    [[rows, ids, cents]] = judge.sql(f"SELECT count(*), sum(id), sum(cents) FROM {TABLE}")
    return Totals(int(rows), int(ids), Decimal(int(cents)) / 100)


def _case(rows: int, course: Course, grown: float) -> dict[str, Any]:
    second, last = quarters(course.looks, "sender")
    sends = course.send_seconds
    quarter = max(1, len(sends) // 4)
    early, late = (statistics.median(part) for part in (sends[quarter : 2 * quarter], sends[-quarter:]))
    compactions = len(course.compaction_seconds)
    return {
        "case": f"{course.sent / course.seconds:,.0f} changes a second of {rows:,} rows",
        "text": (
            f"{course.sent:,} changes in {course.seconds / 60:.1f} minutes, {course.messages:,} messages. "
            f"{len(course.merge_seconds)} merges, one every {MERGE_SECONDS:g} s: median "
            f"{statistics.median(course.merge_seconds):.1f} s. The changes of a merge were sent in "
            f"{early:.1f} s in the second quarter of the time, and in {late:.1f} s in the last one. The last "
            f"was read from Kafka {course.late_seconds:.1f} s after its commit, aim {LATEST_SECONDS:g} s. "
            f"Memory of the sender: {second:,.0f} and {last:,.0f} MiB ({grown:.2f}). {compactions} major "
            f"compactions, the longest in {max(course.compaction_seconds, default=0.0):.0f} s."
        ),
        "merge_seconds": [round(each, 2) for each in course.merge_seconds],
        "send_seconds": [round(each, 2) for each in sends],
        "compaction_seconds": [round(each, 1) for each in course.compaction_seconds],
        "late_seconds": round(course.late_seconds, 1),
        "memory_mib": {"sender": [round(second), round(last)]},
        "contestants": {},
        "ratios": {},
    }
