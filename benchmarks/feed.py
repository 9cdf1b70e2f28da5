"""The change feed: a few changes in a large table, and how fast they get into Kafka.

    python -m benchmarks feed                # 10,000,000 rows
    python -m benchmarks feed --quick        # 1,000,000
    python -m benchmarks feed --rows 100000

* Read 2,000 changes (updates, deletes, inserts) of a table of N rows with the images of updated and deleted
  rows, all their columns or only the keys, beside delta-rs, which reads the same changes from the change data
  feed that its merge wrote.
* The same beside ``hive-mutate diff --since``, which compares both states of the table.
* The same with changes of 1 % of the rows, beside delta-rs.
* Send N/100 inserts in ten transactions to Kafka in Debezium's form, exactly once, beside a producer that
  sends these very messages in transactions.

The metastore is that of Hive 4.1. Opening and closing the feed count. All give the same number of changes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data.merge_data import COLUMNS, ChangeSets, base_batches, write_base
from benchmarks.measuring.arguments import Rounds, add_case_arguments
from benchmarks.measuring.local_metastore import METASTORE
from benchmarks.measuring.measure import Contestant, Watch, beside_baseline
from benchmarks.measuring.report import finish
from benchmarks.merging.merge_tables import BUCKETS
from benchmarks.peers import PeerProcess
from judges.hive.hive_judges import Hive41
from judges.kafka import Kafka
from mutation_api import Hive, connect
from mutation_api.cdc import ChangeTopics
from mutation_api.cdc.kafka.feed_messages import DebeziumMessages, FeedMessage, FeedTopics
from mutation_api.cdc.kafka.feed_producer import FeedProducer
from mutation_api.cli.main import main
from mutation_api.cli.terminal import EXIT_OK

HELP = "the change feed, beside delta-rs' change data feed, a diff, and a bare producer of Kafka"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
ROUNDS = Rounds(7, warm_up=2)
CHANGES = 2_000
READS = 10
"""A round reads the changes so many times, since one time is too short to measure."""
CHANGED_PART = 100
TRANSACTIONS = 10
LOCAL_MEMORY_MIB = 4096
"""The diff has both states of the table in memory."""
CDF_AIM, DIFF_AIM, KAFKA_AIM = 1.0, 1 / 30, 2.0
KINDS = ("driver", METASTORE)
DELTA, FEED, KEYS, DIFF, PRODUCER = "delta-rs", "feed", "feed, images of keys", "diff", "producer"
TABLE = "feed.orders"
RESULTS = Path(__file__).parent / "results" / "feed.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_case_arguments(
        parser, ROUNDS, rows=ROWS_DEFAULT, quick=f"{QUICK_ROWS:,} rows, one round", cases=CASES
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all contestants found the same changes."""
    cases = run_cases(arguments, ROUNDS, CASES)
    return finish(
        cases, RESULTS if arguments.save else None, title="Change feed", packages=("pyarrow", "deltalake")
    )


def run_cases(
    arguments: argparse.Namespace, rounds: Rounds, cases: Mapping[str, Callable[[Stage], dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Run the requested cases, each on a stage of its own."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    found = []
    for name in arguments.only or cases:
        with Stage.opened(rows, (rounds.measured_of(arguments), rounds.warm_up_of(arguments))) as stage:
            found.append(cases[name](stage))
    return found


@dataclass
class Stage:
    """A metastore with its Hive, and a loaded table."""

    rows: int
    rounds: tuple[int, int]
    folder: Path
    uri: str
    hive: Hive
    kinds: dict[int, str]
    stack: contextlib.ExitStack

    @classmethod
    @contextlib.contextmanager
    def opened(cls, rows: int, rounds: tuple[int, int], data: pa.Table | None = None) -> Iterator[Stage]:
        """Start all of it. ``data`` are the rows; if None, those of ``base_batches``."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            judge = stack.enter_context(Hive41(folder / "hive"))
            judge.sql("create database feed")
            hive = stack.enter_context(connect(judge.uri))
            table = hive.create_table(TABLE, COLUMNS, clustered_by=["id"], num_buckets=BUCKETS)
            table.append(pa.concat_tables(base_batches(rows)) if data is None else data)
            yield cls(rows, rounds, folder, judge.uri, hive, {judge.pid: METASTORE}, stack)

    def position(self) -> str:
        """The position of now."""
        with self.hive.changes(TABLE, since="now") as feed:
            return feed.position

    def merge(self, count: int) -> Path:
        """Merge changes of the table, and return their file."""
        sets = ChangeSets(self.rows, count, 1, self.folder / "changes")
        sets.write()
        file = sets.path(0)
        merge_file(self.hive, TABLE, file)
        return file

    def delta(self, changes: Path) -> PeerProcess:
        """delta-rs with the same table and changes, whose feed is switched on."""
        peer = self.stack.enter_context(PeerProcess("delta"))
        self.kinds[peer.pid] = DELTA
        write_base(self.rows, self.folder / "base")
        peer.call("load_with_feed", str(self.folder / "delta"), str(self.folder / "base"))
        peer.call("merge", str(self.folder / "delta"), str(changes))
        return peer

    def read(self, since: str, **options: Any) -> int:
        """Read all changes into memory, and return their number."""
        with self.hive.changes(TABLE, since=since, **options) as feed:
            return sum(table.to_arrow().num_rows for each in feed for table in each.tables.values())

    def compared(self, label: str, text: str, aim: float, *contestants: Contestant) -> dict[str, Any]:
        """A case; the last contestant is the baseline, and the first one has the aim."""
        case = beside_baseline(label, text, contestants, self.rounds, Watch(self.kinds))
        aims = {f"{contestants[0].name} / {contestants[-1].name}": {"wall": aim}}
        return {**case, "aims": aims}


def merge_file(hive: Hive, table: str, changes: Path) -> None:
    """Merge a file of changes of ``ChangeSets``."""
    with hive.transaction(table) as transaction:
        merge = transaction.table(table).merge(pq.read_table(changes), on=["id"])
        merge.when_matched_delete("source.op = 'D'").when_matched_update_all()
        merge.when_not_matched_insert_all().execute()


def changes_case(stage: Stage, count: int | None = None) -> dict[str, Any]:
    """Read changes in turn with delta-rs, and count the bytes that are read."""
    since, found = stage.position(), {}
    changes = count or min(CHANGES, stage.rows // 10)
    peer = stage.delta(stage.merge(changes))

    def ours(_: int) -> None:
        for _ in range(READS):
            found[FEED] = stage.read(since)

    def keys(_: int) -> None:
        for _ in range(READS):
            found[KEYS] = stage.read(since, on=["id"], images="keys")

    def theirs(_: int) -> None:
        for _ in range(READS):
            found[DELTA] = peer.call("changes", str(stage.folder / "delta"), 1)

    case = stage.compared(
        f"{changes:,} changes of {stage.rows:,} rows, {READS} times",
        "Read into memory, with the rows before updates and deletes.",
        CDF_AIM,
        Contestant(FEED, ours, KINDS, stage.folder / "hive"),
        Contestant(KEYS, keys, KINDS, stage.folder / "hive"),
        Contestant(DELTA, theirs, (DELTA,), stage.folder / "delta"),
    )
    before = bytes_read()
    stage.read(since)
    text = f"{case['text']} The feed reads {(bytes_read() - before) / 1e6:,.2f} MB"
    with stage.hive.snapshot(TABLE) as view:
        location = view.table(TABLE).descriptor.location
    sizes = [(f.parent.name, f.stat().st_size) for f in Path(location.local_path or "").rglob("bucket_*")]
    new = sum(size for name, size in sizes if not name.startswith("delta_0000001"))
    text += f" of {sum(size for _, size in sizes) / 1e6:,.2f} MB; the deltas have {new / 1e6:,.2f} MB."
    return {**case, "text": text, "is_right": case["is_right"] and len({*found.values()}) == 1}


def diff_case(stage: Stage) -> dict[str, Any]:
    """Read changes in turn with a comparison of the states."""
    since = stage.position()
    changes = min(CHANGES, stage.rows // 10)
    stage.merge(changes)
    words = ["diff", "--table", TABLE, "--since", "1", "--key", "id", "--summary", "--engine", "local"]
    words += ["--local-memory", str(LOCAL_MEMORY_MIB)]

    def theirs(_: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            assert main([*words, "--metastore", stage.uri]) == EXIT_OK

    return stage.compared(
        f"{changes:,} changes of {stage.rows:,} rows, beside a diff",
        "hive-mutate diff --since compares both states by key, and counts the differences.",
        DIFF_AIM,
        Contestant(FEED, lambda _: stage.read(since), KINDS, stage.folder / "hive"),
        Contestant(DIFF, theirs, KINDS, stage.folder / "hive"),
    )


def many_case(stage: Stage) -> dict[str, Any]:
    """Read changes of 1 % of the rows."""
    return changes_case(stage, stage.rows // CHANGED_PART)


def kafka_case(stage: Stage) -> dict[str, Any]:
    """Send inserts, in turn with a producer that has the messages already."""
    kafka = stage.stack.enter_context(Kafka(stage.folder / "kafka"))
    since, count = stage.position(), stage.rows // CHANGED_PART // TRANSACTIONS
    for number in range(TRANSACTIONS):
        rows = next(base_batches(count))
        ids = pa.array([stage.rows + number * count + at for at in range(count)], pa.int64())
        stage.hive.table(TABLE).append(rows.set_column(0, "id", ids))
    form = DebeziumMessages(FeedTopics("bare"), {TABLE: ("id",)}, "bare", lambda: 0)
    with stage.hive.changes(TABLE, since=since, on=["id"]) as feed:
        messages: list[FeedMessage] = [message for each in feed for message in form.messages(each)]
    sent: dict[str, int] = {}

    def ours(number: int) -> None:
        with ChangeTopics(kafka.servers, topic_prefix=f"feed{number}") as topics:
            sent[FEED] = topics.send(stage.hive, TABLE, since=since, on=["id"]).message_count

    def theirs(number: int) -> None:
        settings = {"bootstrap.servers": kafka.servers}
        producer = FeedProducer(f"bare{number}", settings, "bare.position", 30)
        try:
            producer.create_topics([f"bare.{TABLE}", "bare.transaction"])
            producer.begin()
            for message in messages:
                producer.send(message)
            producer.commit(since)
        finally:
            producer.close()
        sent[PRODUCER] = len(messages)

    case = stage.compared(
        f"{len(messages):,} messages to Kafka",
        f"{TRANSACTIONS} transactions of {count:,} inserts in Debezium's form, beside a producer that has "
        "the messages in memory.",
        KAFKA_AIM,
        Contestant(FEED, ours, KINDS, stage.folder / "hive"),
        Contestant(PRODUCER, theirs, KINDS, stage.folder / "kafka"),
    )
    wall = case["contestants"][FEED].get("wall_seconds")
    text = f"{case['text']} {len(messages) / wall:,.0f} messages a second." if wall else case["text"]
    return {**case, "text": text, "is_right": case["is_right"] and len({*sent.values()}) == 1}


CASES: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "changes": changes_case,
    "diff": diff_case,
    "many": many_case,
    "kafka": kafka_case,
}


def bytes_read() -> int:
    """Return the bytes that this process has read."""
    text = Path("/proc/self/io").read_text(encoding="ascii")
    return int(dict(line.split(": ") for line in text.splitlines())["rchar"])
