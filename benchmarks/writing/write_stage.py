"""What the benchmarks of writing run on: Spark, and metastores with real Hive behind them."""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pyspark.sql import SparkSession

from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.local_metastore import METASTORE, measured_metastore
from benchmarks.measuring.measure import Watch, versions
from judges.hive.hive_judges import Hive23, Hive41
from judges.hive.judge import HiveJudge
from mutation_api import local_spark_session

CORES = 2
DRIVER_MEMORY = "4g"
DATABASE = "default"
PARTITIONS_DEFAULT = 30
COUNTER_TIMEOUT_SECONDS = 300.0
COUNTER_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Layout:
    """A format of ACID tables: the release of Hive that has it, and the table property that requests it."""

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


def add_common_arguments(
    parser: argparse.ArgumentParser, *, rows: int, quick_rows: int, rounds: Rounds
) -> None:
    """Declare the arguments that all benchmarks of writing have."""
    parser.add_argument("--rows", type=int, default=rows, help="number of changes (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"{quick_rows:,} changes, fewer rounds")
    rounds.add_argument(parser)
    parser.add_argument("--work", type=Path, help="folder to work in (default: a temporary one)")
    parser.add_argument(
        "--spark", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; repeatable"
    )
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def add_partitions_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the number of partitions, for a benchmark that has one shape of table."""
    parser.add_argument(
        "--partitions",
        type=int,
        default=PARTITIONS_DEFAULT,
        help="number of partitions (default: %(default)s)",
    )


@dataclass(frozen=True)
class Server:
    """A metastore of a Hive release, and Hive of that release as a judge, which runs only while it judges."""

    uri: str
    warehouse: Path
    pid: int
    judge: Callable[[], contextlib.AbstractContextManager[HiveJudge]]


@dataclass
class Stage:
    """Spark, metastores by release of Hive, and a folder; see :meth:`opened`."""

    folder: Path
    spark: SparkSession
    servers: Mapping[str, Server]
    settings: Mapping[str, str]
    versions: set[str] = field(default_factory=set)
    is_warm: bool = False
    """Whether a case was measured here."""
    kinds: dict[int, str] = field(default_factory=dict)
    """Other processes that work here, by id, and what they are called."""

    _shared: ClassVar[Stage | None] = None

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
        if cls._shared is not None:
            yield cls._shared
            return
        with contextlib.ExitStack() as stack:
            if work is not None:
                work.mkdir(parents=True, exist_ok=True)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=work)))
            lines = sorted({layout.line for layout in layouts})
            servers = {line: START[line](folder / f"hive-{line}", stack) for line in lines}
            settings = {
                "spark.driver.memory": DRIVER_MEMORY,
                "spark.local.dir": str(folder / "spark"),
                # Spark shows how much was shuffled only on its web page.
                "spark.ui.enabled": "true",
                "spark.ui.port": "0",
                "spark.ui.liveUpdate.period": "0",
                **more_settings,
            }
            spark = stack.enter_context(local_spark_session(master=f"local[{CORES}]", settings=settings))
            yield cls(folder, spark, servers, dict(more_settings), set(versions("pyspark", "pyarrow")))

    @classmethod
    @contextlib.contextmanager
    def shared(cls) -> Iterator[None]:
        """Within the block every opened stage is the same one, with all layouts and without settings."""
        with cls.opened(None, tuple(LAYOUTS.values()), {}) as stage:
            cls._shared = stage
            try:
                yield
            finally:
                cls._shared = None

    def watch(self) -> Watch:
        """Counters that know the metastores and other servers, and what Spark shuffles."""
        kinds = dict.fromkeys((server.pid for server in self.servers.values()), METASTORE)
        return Watch(kinds | self.kinds, lambda: shuffled_bytes(self.spark))


def _start_2_3(folder: Path, stack: contextlib.ExitStack) -> Server:
    metastore, (pid,) = stack.enter_context(measured_metastore(folder / "metastore"))
    settings = {"hive.metastore.uris": metastore.uri}
    return Server(metastore.uri, metastore.warehouse, pid, lambda: Hive23(folder / "judge", settings))


def _start_4_1(folder: Path, stack: contextlib.ExitStack) -> Server:
    """Metastore and judge in one process."""
    hive = stack.enter_context(Hive41(folder))
    return Server(hive.uri, hive.warehouse, hive.pid, lambda: contextlib.nullcontext(hive))


START = {"2.3": _start_2_3, "4.1": _start_4_1}
"""How a release of Hive is started."""


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
