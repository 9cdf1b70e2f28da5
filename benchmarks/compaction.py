"""A compaction by this library, beside the one of Hive 4.2's own worker.

    python -m benchmarks compaction                 # 10,000,000 rows in 100 deltas
    python -m benchmarks compaction --quick         # 1,000,000 rows in 20
    python -m benchmarks compaction --kind minor    # joins the deltas only
    python -m benchmarks compaction --partitions 1000   # a base and one small delta each, in one bucket

Each round compacts a new partition, whose files are links to those of the first one: rows in as many deltas,
of which 1 % are deleted, in 8 buckets. The library's compaction reads the new files again and compares them
with the old ones. It runs in a process of its own, whose peak of memory is compared with that of Hive's
server. Afterwards Hive counts the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.data.merge_data import COLUMNS, base_batches
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.local_metastore import METASTORE
from benchmarks.measuring.measure import Contestant, Watch, beside_baseline
from benchmarks.measuring.report import finish
from benchmarks.merging.merge_tables import BUCKETS, linked_copy
from judges.hive.hive_judges import Hive42
from metastore_client import CompactionType
from mutation_api import connect
from mutation_api.upkeep import CompactionThreshold, compact_partition, compact_table

HELP = "a compaction beside Hive's own"

ROWS_DEFAULT, DELTAS_DEFAULT = 10_000_000, 100
QUICK_ROWS, QUICK_DELTAS = 1_000_000, 20
ROUNDS = Rounds(3, warm_up=1)
DELETED_PART = 100
TIME_AIM, MEMORY_AIM = 0.7, 0.5
SMALL_ROWS = 80
SOME = 50
COMPACTOR = "compactor"
KINDS, SMALL_KINDS = (COMPACTOR, METASTORE), ("driver", METASTORE)
DATABASE, TABLE = "compacted", "t"
NAME = f"{DATABASE}.{TABLE}"
RESULTS = Path(__file__).parent / "results" / "compaction.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"rows of a partition (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--deltas", type=int, help=f"deltas of a partition (default: {DELTAS_DEFAULT})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows in {QUICK_DELTAS} deltas")
    parser.add_argument("--kind", choices=("major", "minor"), default="major", help="kind of compaction")
    parser.add_argument("--partitions", type=int, help="compact so many small partitions instead")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all partitions hold what they should."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    deltas = arguments.deltas or (QUICK_DELTAS if arguments.quick else DELTAS_DEFAULT)
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    if arguments.partitions:
        return _many(arguments.partitions, rounds[0])
    with Stage.opened(rows, deltas, arguments.kind) as stage, _compactor(stage) as process:
        case = beside_baseline(
            "compaction" if stage.kind == "major" else "minor compaction",
            f"{stage.kind} compaction of {rows:,} rows in {deltas} deltas, {BUCKETS} buckets, 1 % deleted",
            [
                Contestant("ours", stage.by_us, KINDS, stage.folder, stage.add_partition),
                Contestant("Hive", stage.by_hive, KINDS, stage.folder, stage.add_partition),
            ],
            rounds,
            Watch({stage.judge.pid: METASTORE, process: COMPACTOR}),
        )
        case["aims"] = {"ours / Hive": {"wall": TIME_AIM}}
        case["text"] += _memory(case)
        case["is_right"] = case["is_right"] and stage.is_right()
    is_saved = arguments.save and arguments.kind == "major"
    return finish([case], RESULTS if is_saved else None, title="Compaction", packages=("pyarrow",))


def _many(partitions: int, repeat: int) -> int:
    """Compact many partitions with a base and one small delta each, in four threads and in one."""
    with Stage.opened(SMALL_ROWS, 1, "major", buckets=1) as stage:
        stage.make_base()
        case = beside_baseline(
            "small compactions",
            f"compactions of {partitions:,} partitions of {SMALL_ROWS} rows with a base and one delta each",
            [
                Contestant(
                    name,
                    functools.partial(stage.by_us_all, at_once),
                    SMALL_KINDS,
                    stage.folder,
                    add,
                )
                for name, at_once in (("three threads", 3), ("one thread", 1))
                for add in [functools.partial(stage.add_partitions, partitions)]
            ],
            (repeat, 0),
            Watch({stage.judge.pid: METASTORE}),
        )
        case["is_right"] = case["is_right"] and stage.is_right()
    return finish([case], None, title="Small compactions", packages=("pyarrow",))


def _memory(case: dict[str, Any]) -> str:
    """The peaks of the two processes that compact, as text."""
    ours = case["contestants"]["ours"]["peak_mib_by_kind"][COMPACTOR]
    hive = case["contestants"]["Hive"]["peak_mib_by_kind"][METASTORE]
    return (
        f"; memory: our process {ours:,} MiB, Hive's server {hive:,} MiB, ratio {ours / hive:.2f} "
        f"(aim {MEMORY_AIM})"
    )


@contextlib.contextmanager
def _compactor(stage: Stage) -> Iterator[int]:
    """Start the process that compacts for the library, and yield its id."""
    context = multiprocessing.get_context("spawn")
    stage.orders, theirs = context.Pipe()
    process = context.Process(target=_compact, args=(theirs, stage.judge.uri, stage.kind), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.terminate()
        process.join()


def _compact(orders: Connection, uri: str, kind: str) -> None:
    """Compact each partition that is ordered, and answer with the new directory or the error."""
    with connect(uri) as hive:
        while True:
            partition = orders.recv()
            try:
                orders.send(compact_partition(hive.metastore, NAME, partition, kind=kind).directory)
            except Exception as error:
                orders.send(repr(error))


@dataclass
class Stage:
    """A Hive 4.2 with a table; partition 0 has the files that all others are links to."""

    judge: Hive42
    folder: Path
    row_count: int
    kind: str
    orders: Connection | None = None
    last: int = 0
    added: list[str] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, rows: int, deltas: int, kind: str, buckets: int = BUCKETS) -> Iterator[Stage]:
        """Start Hive and fill the table."""
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as name,
            Hive42(Path(name) / "hive", is_measured=True) as judge,
        ):
            judge.sql(f"create database {DATABASE}")
            with connect(judge.uri) as hive:
                hive.create_table(
                    NAME, f"{COLUMNS}, p int", partitioned_by=["p"], clustered_by=["id"], num_buckets=buckets
                )
                table = pa.concat_tables(base_batches(rows))
                table = table.append_column("p", pa.array([0] * rows, pa.int32()))
                size = -(-rows // deltas)
                for start in range(0, rows, size):
                    with hive.transaction(NAME, create_partitions=True) as tx:
                        tx.table(NAME).append(table.slice(start, size))
                hive.table(NAME).delete(where=f"id % {DELETED_PART} = 0")
                info = hive.metastore.get_table(DATABASE, TABLE)
            folder = Path(info.location.removeprefix("file:"))
            ((count,),) = judge.sql(f"select count(*) from {NAME}")
            yield cls(judge, folder, int(str(count)), kind)

    def make_base(self) -> None:
        """Compact the first partition, and add a delta of as many rows."""
        with connect(self.judge.uri) as hive:
            compact_partition(hive.metastore, NAME, "p=0")
            self.judge.clean(NAME)
            rows = pa.concat_tables(base_batches(self.row_count))
            hive.table(NAME).append(rows.append_column("p", pa.array([0] * self.row_count, pa.int32())))
        ((count,),) = self.judge.sql(f"select count(*) from {NAME}")
        self.row_count = int(str(count))

    def add_partition(self, number: int) -> None:
        """Add a partition with links to the files of the first one."""
        del number
        self.last += 1
        linked_copy(self.folder / "p=0", self.folder / f"p={self.last}")
        with connect(self.judge.uri) as hive:
            hive.metastore.add_partitions(DATABASE, TABLE, [(str(self.last),)])

    def add_partitions(self, count: int, number: int) -> None:
        """Add partitions with links to the files of the first one."""
        del number
        first, self.last = self.last + 1, self.last + count
        for each in range(first, self.last + 1):
            linked_copy(self.folder / "p=0", self.folder / f"p={each}")
        with connect(self.judge.uri) as hive:
            hive.metastore.add_partitions(
                DATABASE, TABLE, [(str(each),) for each in range(first, self.last + 1)]
            )
        self.added = [f"p={each}" for each in range(first, self.last + 1)]

    def by_us_all(self, at_once: int, number: int) -> None:
        """Compact the partitions that were added last."""
        del number
        with connect(self.judge.uri) as hive:
            report = compact_table(
                hive.metastore,
                NAME,
                partitions=self.added,
                threshold=CompactionThreshold(None, file_count=1),
                at_once=at_once,
                engine="local",
            )
            assert [each.state for each in report.partitions] == ["succeeded"] * len(self.added)

    def by_us(self, number: int) -> None:
        """Compact the last partition with the library."""
        del number
        assert self.orders is not None
        self.orders.send(f"p={self.last}")
        done = self.orders.recv()
        assert (done or "").startswith(("base_", "delta_", "delete_delta_")), done

    def by_hive(self, number: int) -> None:
        """Compact the last partition with Hive's worker."""
        del number
        with connect(self.judge.uri) as hive:
            assert hive.metastore.compact(
                DATABASE, TABLE, f"p={self.last}", CompactionType[self.kind.upper()]
            )
        while any(each.state == "initiated" for each in self.judge.worker()):
            continue

    def is_right(self) -> bool:
        """Whether Hive counts the same rows in some partitions; Derby cannot lock a thousand for a query."""
        some = ", ".join(str(each) for each in range(1, self.last + 1, -(-self.last // SOME)))
        counted = self.judge.sql(f"select p, count(*) from {NAME} where p in ({some}) group by p")
        return {int(str(count)) for _, count in counted} == {self.row_count}
