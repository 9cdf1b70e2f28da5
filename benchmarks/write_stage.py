"""What the benchmarks of writing share: Spark, metastores with real Hive behind them, and who writes.

A table in each round is a new one, whose first rows are links to the same files, so that every round does
the same work on the same table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow
import pyspark
import pyspark.sql.functions as sf
from pyarrow import orc
from pyspark.sql import DataFrame, SparkSession

from benchmarks.event_data import BUCKETS, COLUMNS, KEY, PARTITION_KEYS, Shape, bucket_of, shuffled
from benchmarks.measure import Contestant, Watch
from benchmarks.memory import process_tree
from benchmarks.merge_tables import linked_copy
from examples.local import PrintLoss, create_table
from judges.hive import Hive23, Hive41, HiveJudge
from metastore_client.embedded import EmbeddedMetastore
from metastore_client.thrift_client import connect
from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.mutator_client import MutatorClient
from mutation_api.spark.job import apply_changes
from mutation_api.spark.read import snapshot
from mutation_api.spark.session import local_session
from mutation_api.spark.summary import ApplySummary

__all__ = [
    "LAYOUTS",
    "Layout",
    "Prepared",
    "Server",
    "SparkWriter",
    "Stage",
    "TableWriter",
    "add_common_arguments",
    "numbers",
    "plain_files",
    "prepare_changes",
    "prepare_inserts",
    "sorted_events",
    "spark_settings",
]

CORES = 2
DRIVER_MEMORY = "4g"
DATABASE = "default"
METASTORE = "metastore"
OURS_KINDS = ("driver", "java", "python", METASTORE)
SPARK_KINDS = ("driver", "java")
OWN_ID = 1_000_000
"""Transaction of events that Spark writes; above those of all rows."""
COUNTER_TIMEOUT_SECONDS = 30.0
COUNTER_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Layout:
    """A format of ACID tables: which line of Hive has it, and the table property that asks for it."""

    name: str
    line: str
    transactional_properties: str


LAYOUTS = {
    layout.name: layout
    for layout in (
        Layout("split", "2.3", "default"),
        Layout("v2", "4.1", "default"),
        Layout("legacy", "2.3", "legacy"),
    )
}
"""``split``: Hive 2.3's default, an update is a delete and an insert; ``v2``: with write ids, as Hive 3.1 and
4.1 have it; ``legacy``: all events of a bucket in one file."""


def add_common_arguments(parser: argparse.ArgumentParser, *, rows: int, quick_rows: int, repeat: int) -> None:
    """Declare the arguments that all benchmarks of writing have."""
    parser.add_argument("--rows", type=int, default=rows, help="number of changes (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{quick_rows:,} changes, fewer rounds")
    parser.add_argument("--repeat", type=int, help=f"measured rounds (default: {repeat})")
    parser.add_argument("--work", type=Path, help="folder to work in (default: a temporary one)")
    parser.add_argument(
        "--spark", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; repeatable"
    )
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def spark_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """Settings that were named on the command line."""
    return dict(each.partition("=")[::2] for each in arguments.spark)


def numbers(text: str) -> tuple[int, ...]:
    """Numbers between commas."""
    return tuple(int(word) for word in text.split(","))


@dataclass(frozen=True)
class Server:
    """A metastore of a line of Hive, and that line's Hive as a judge, which is there while it judges."""

    uri: str
    warehouse: Path
    pid: int
    judge: Callable[[], contextlib.AbstractContextManager[HiveJudge]]


@dataclass
class Stage:
    """Spark, metastores by line of Hive, and a folder; see :meth:`opened`."""

    folder: Path
    spark: SparkSession
    servers: Mapping[str, Server]
    settings: Mapping[str, str]
    versions: set[str] = field(default_factory=set)

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls, work: Path | None, layouts: Sequence[Layout], more_settings: Mapping[str, str]
    ) -> Iterator[Stage]:
        """Start what these layouts need; all of it ends, and its files go, with the block.

        Args:
            work: below which folder to work; None for the system's temporary folder.
            layouts: of the tables that will be written.
            more_settings: of Spark; they win.
        """
        with contextlib.ExitStack() as stack:
            if work is not None:
                work.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=work)))
            lines = sorted({layout.line for layout in layouts})
            servers = {line: START[line](folder / f"hive-{line}", stack) for line in lines}
            settings = {
                "spark.driver.memory": DRIVER_MEMORY,
                "spark.local.dir": str(folder / "spark"),
                # Spark tells how much was shuffled on its page only.
                "spark.ui.enabled": "true",
                "spark.ui.port": "0",
                "spark.ui.liveUpdate.period": "0",
                **more_settings,
            }
            spark = stack.enter_context(local_session(master=f"local[{CORES}]", settings=settings))
            versions = {
                f"Python {platform.python_version()}",
                f"pyspark {pyspark.__version__}",
                f"pyarrow {pyarrow.__version__}",
            }
            yield cls(folder, spark, servers, dict(more_settings), versions)

    def watch(self) -> Watch:
        """Counters that know the metastores, and what Spark shuffles."""
        kinds = dict.fromkeys((server.pid for server in self.servers.values()), METASTORE)
        return Watch(kinds, lambda: shuffled_bytes(self.spark))


def _start_2_3(folder: Path, stack: contextlib.ExitStack) -> Server:
    before = _java_processes()
    metastore = stack.enter_context(EmbeddedMetastore(folder / "metastore"))
    (pid,) = _java_processes() - before
    settings = {"hive.metastore.uris": metastore.uri}
    return Server(metastore.uri, metastore.warehouse, pid, lambda: Hive23(folder / "judge", settings))


def _start_4_1(folder: Path, stack: contextlib.ExitStack) -> Server:
    """Metastore and judge in one process."""
    hive = stack.enter_context(Hive41(folder))
    return Server(hive.uri, hive.warehouse, hive.pid, lambda: contextlib.nullcontext(hive))


START = {"2.3": _start_2_3, "4.1": _start_4_1}
"""How a line of Hive is started."""


@dataclass(frozen=True)
class Prepared:
    """Input of the writers of one line of Hive: a change set, and the table that it is for.

    Attributes:
        name: part of the names of tables.
        server: where tables are created.
        changes: folder of the change set's files.
        counts: changes by operation.
        base: folder with the table's first rows; None if it begins without any.
        partitions: values of ``ds`` in it.
    """

    name: str
    server: Server
    changes: Path
    counts: Mapping[str, int]
    base: Path | None = None
    partitions: tuple[str, ...] = ()


def prepare_changes(stage: Stage, name: str, shape: Shape, line: str) -> Prepared:
    """Load a table, and compute a change set for it.

    The rows are loaded by our own writer, and their ROW__IDs read from the files.

    Args:
        stage: where.
        name: no other prepared change set's of this line.
        shape: of the rows.
        line: of Hive, whose ROW__IDs the changes shall have.
    """
    server, table, changes = stage.servers[line], f"base_{name}", stage.folder / f"{name}-{line}"
    _create(server, table, LAYOUTS["split"])
    with _client(server, table) as client:
        with client.new_transaction() as transaction:
            rows = shape.base(stage.spark).withColumn("operation", sf.lit("insert"))
            summary = apply_changes(transaction, f"{DATABASE}.{table}", rows)
        loaded = snapshot(stage.spark, client, f"{DATABASE}.{table}", columns=["id", "ds"])
        shape.changes(loaded).write.parquet(str(changes))
    days = tuple(each.partition("=")[2] for each in summary.partitions)
    return Prepared(name, server, changes, _counts(stage.spark, changes), server.warehouse / table, days)


def prepare_inserts(stage: Stage, name: str, shape: Shape, line: str) -> Prepared:
    """The rows of a shape as inserts, in random order, for a table without rows; arguments as above."""
    changes = stage.folder / f"{name}-inserts"
    if not changes.exists():
        rows = shape.base(stage.spark).withColumn("operation", sf.lit("insert"))
        shuffled(rows.withColumn("bucket_id", bucket_of(sf.col(KEY)))).write.parquet(str(changes))
    return Prepared(name, stage.servers[line], changes, _counts(stage.spark, changes))


def _counts(spark: SparkSession, changes: Path) -> dict[str, int]:
    found = spark.read.parquet(str(changes)).groupBy("operation").count().collect()
    return {row[0]: row[1] for row in found}


class TableWriter:
    """Ours: applies a prepared change set to a new table each round, and commits.

    Args:
        stage: where.
        name: of the contestant.
        prepared: what to apply.
        layout: of the table.
    """

    def __init__(self, stage: Stage, name: str, prepared: Prepared, layout: Layout) -> None:
        self._stage = stage
        self._prepared = prepared
        self._layout = layout
        self._client: MutatorClient | None = None
        self._summary: ApplySummary | None = None
        self.table = ""
        warehouse = prepared.server.warehouse
        self.contestant = Contestant(name, self._write, OURS_KINDS, warehouse, self._prepare)

    def is_complete(self) -> bool:
        """Whether the last round wrote all changes."""
        found, counts = self._summary, self._prepared.counts
        return found is not None and (found.insert_count, found.update_count, found.delete_count) == tuple(
            counts.get(operation, 0) for operation in ("insert", "update", "delete")
        )

    def close(self) -> None:
        """Leave the table as it is, with what the last round wrote."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _prepare(self, number: int) -> None:
        self._drop()
        server, self.table = self._prepared.server, f"{self._prepared.name}_{self._layout.name}_{number}"
        _create(server, self.table, self._layout)
        self._client = _client(server, self.table)
        self._client.connect()
        if self._prepared.base is not None:
            linked_copy(self._prepared.base, server.warehouse / self.table)
            with connect(server.uri) as metastore:
                days = [(day,) for day in self._prepared.partitions]
                metastore.add_partitions(DATABASE, self.table, days)
            with self._client.new_transaction():
                """Takes the write id that the base's files are named by."""

    def _write(self, number: int) -> None:
        assert self._client is not None
        changes = self._stage.spark.read.parquet(str(self._prepared.changes)).drop("bucket_id")
        with self._client.new_transaction() as transaction:
            self._summary = apply_changes(transaction, f"{DATABASE}.{self.table}", changes)

    def _drop(self) -> None:
        self.close()
        if self.table:
            with connect(self._prepared.server.uri) as metastore:
                metastore.drop_table(DATABASE, self.table, delete_data=True)


class SparkWriter:
    """Spark's own writer: writes what ``plan`` makes of the prepared rows to a new folder each round.

    Args:
        stage: where.
        name: of the contestant.
        prepared: whose rows.
        plan: rows to what is written.
        partition_by: columns that become folders.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        prepared: Prepared,
        plan: Callable[[DataFrame], DataFrame],
        partition_by: Sequence[str],
    ) -> None:
        self._stage = stage
        self._prepared = prepared
        self._plan = plan
        self._partition_by = tuple(partition_by)
        self.folder = stage.folder / f"{prepared.name}-{name}"
        self.folder.mkdir()
        self.contestant = Contestant(name, self._write, SPARK_KINDS, self.folder, self._prepare)

    def is_complete(self) -> bool:
        """Whether the last round wrote all rows."""
        # Spark takes files of events for a Hive table's, and then cannot count them.
        written = sum(orc.ORCFile(path).nrows for path in Path(self._written).rglob("*.orc"))
        return bool(written == sum(self._prepared.counts.values()))

    def close(self) -> None:
        """Leave the files as they are."""

    @property
    def _written(self) -> str:
        return str(self.folder / "written")

    def _prepare(self, number: int) -> None:
        shutil.rmtree(self._written, ignore_errors=True)

    def _write(self, number: int) -> None:
        rows = self._plan(self._stage.spark.read.parquet(str(self._prepared.changes)))
        writer = rows.write.partitionBy(*self._partition_by).option("compression", "zlib")
        writer.orc(self._written)


def sorted_events(changes: DataFrame) -> DataFrame:
    """A change set as ACID events in writing order, as far as Spark alone can make them.

    New rows are not numbered, and the bucket is taken as given.
    """
    row_id, is_insert = sf.col(ROW_ID_COLUMN), sf.col("operation") == "insert"
    code = sf.array_position(
        sf.array(*(sf.lit(each.name.lower()) for each in Operation)), sf.col("operation")
    )
    own_id = sf.lit(OWN_ID).cast("bigint")
    row = sf.when(sf.col("operation") != "delete", sf.struct("id", "msg", "v"))
    events = changes.select(
        "ds",
        "bucket_id",
        (code - 1).cast("int").alias("operation"),
        sf.when(is_insert, own_id).otherwise(row_id["transactionid"]).alias("originalTransaction"),
        sf.col("bucket_id").alias("bucket"),
        sf.when(is_insert, 0).otherwise(row_id["rowid"]).cast("bigint").alias("rowId"),
        own_id.alias("currentTransaction"),
        row.alias("row"),
    )
    return events.repartition("ds", "bucket_id").sortWithinPartitions(
        "ds", "bucket_id", "originalTransaction", "rowId"
    )


def plain_files(rows: DataFrame) -> DataFrame:
    """Rows grouped as a plain bucketed table has them, without any ACID column."""
    return rows.select("ds", "bucket_id", "id", "msg", "v").repartition("ds", "bucket_id")


def shuffled_bytes(spark: SparkSession) -> int:
    """What Spark's tasks wrote for others since the session began, when its counter has come to rest."""
    deadline = time.monotonic() + COUNTER_TIMEOUT_SECONDS
    before = -1
    while time.monotonic() < deadline:
        executors = _executors(spark)
        now = sum(executor["totalShuffleWrite"] for executor in executors)
        if now == before and not any(executor["activeTasks"] for executor in executors):
            return now
        before = now
        time.sleep(COUNTER_PAUSE_SECONDS)
    raise TimeoutError(f"Spark's tasks did not end within {COUNTER_TIMEOUT_SECONDS:g} s")


def _executors(spark: SparkSession) -> list[dict[str, int]]:
    context = spark.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/allexecutors"
    with urllib.request.urlopen(address, timeout=COUNTER_TIMEOUT_SECONDS) as answer:
        return list(json.load(answer))


def _create(server: Server, table: str, layout: Layout) -> None:
    create_table(
        server.uri,
        f"{DATABASE}.{table}",
        COLUMNS,
        PARTITION_KEYS,
        KEY,
        BUCKETS,
        layout=layout.transactional_properties,
    )


def _client(server: Server, table: str) -> MutatorClient:
    builder = MutatorClientBuilder().metastore(server.uri).lock_failure_listener(PrintLoss())
    return builder.add_sink_table(DATABASE, table, create_partitions=True).build()


def _java_processes() -> set[int]:
    return {process.pid for process in process_tree(os.getpid()) if process.kind == "java"}
