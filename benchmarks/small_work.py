"""Small work, by Spark and without it: a first load, a register's releases, a command from prompt to commit.

    python -m benchmarks small_work               # 1,000,000 rows for the first load
    python -m benchmarks small_work --quick       # 100,000

* The first load merges rows into an empty table of 8 buckets by key. ``spark`` is ``write.orc`` of the same
  rows into plain files, which nobody can update.
* The register is that of the demo: 28,000 airports in 236 partitions of 4 buckets. Its first release is
  merged into an empty table, the second into the first; missing airports are deleted. Then all airports of
  the first release are deleted by their keys. Spark is warm: the rounds before are not measured.
* The command is ``hive-mutate apply`` of two rows, beside ``python -c "import pyarrow"``, without which no
  Arrow is read, and ``python -c "import mutation_api"``.

All of ours are whole transactions, on a real metastore. The rows of the tables are counted afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.data.merge_data import COLUMNS, base_batches
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.local_metastore import METASTORE, measured_metastore
from benchmarks.measuring.measure import (
    Contestant,
    Watch,
    beside_baseline,
    machine,
    versions,
)
from benchmarks.measuring.report import save_cases, show_case
from examples import demo
from examples.local import PrintLoss, create_table
from metastore_client import EmbeddedMetastore
from mutation_api import Hive, MutatorClientBuilder, connect, local_spark_session, merge_into

HELP = "a first load, a register's releases and a command, by Spark and without it"

ROWS_DEFAULT = 1_000_000
QUICK_ROWS = 100_000
ROUNDS = Rounds(5, warm_up=3)
BUCKETS = 8
SOURCE_FILES = 4
"""So that plain Spark reads and writes with all cores."""
CORES = 2
DRIVER_MEMORY = "4g"
RESULTS = Path(__file__).parent / "results" / "small_work.json"

OURS, OURS_LOCAL, SPARK = "ours", "ours-local", "spark"
SPARK_KINDS = ("driver", "java", "python", METASTORE)
LOCAL_KINDS = ("driver", METASTORE)
FIRST_LOAD_AIM = {"wall": 1.5}
AIRPORT_COLUMNS = ", ".join(f"{name} string" for name in demo.DATA_COLUMNS)
COMMANDS_TABLE = "default.two_rows"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"rows of the first load (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all tables hold what they should."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    with Stage.opened() as stage:
        cases = [run_commands(stage, rounds), run_first_load(stage, rows, rounds)]
        cases += run_airports(stage, rounds)
    for case in cases:
        show_case(case)
    if arguments.save:
        save_cases(
            cases,
            RESULTS,
            title="Small work",
            versions=", ".join(versions("pyspark", "pyarrow")),
            machine=machine(),
        )
    return 0 if all(case["is_right"] for case in cases) else 1


@dataclass(frozen=True)
class Stage:
    """A metastore, Spark, a connection without it, and tables with names of their own."""

    folder: Path
    metastore: EmbeddedMetastore
    spark: SparkSession
    hive: Hive
    kinds: dict[int, str]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[Stage]:
        """Start all of it."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            metastore, kinds = stack.enter_context(measured_metastore(folder / "metastore"))
            settings = {"spark.driver.memory": DRIVER_MEMORY, "spark.local.dir": str(folder / "spark")}
            spark = stack.enter_context(local_spark_session(master=f"local[{CORES}]", settings=settings))
            hive = stack.enter_context(connect(metastore.uri))
            yield cls(folder, metastore, spark, hive, kinds)

    def new_table(self, columns: str, partition_keys: str, bucket_column: str, num_buckets: int) -> str:
        """An empty table."""
        name = f"default.t{next(self.numbers)}"
        create_table(
            self.metastore.uri, name, columns, partition_keys, bucket_column, num_buckets, layout="default"
        )
        return name

    def count(self, table: str) -> int:
        """Rows of a table."""
        with self.hive.snapshot(table) as view:
            return view.table(table).scan().count()

    def compared(
        self, label: str, text: str, contestants: Sequence[Contestant], rounds: tuple[int, int]
    ) -> dict[str, Any]:
        """A case of contestants in turn; the last one is the baseline of the others."""
        return beside_baseline(label, text, contestants, rounds, Watch(self.kinds))


def run_commands(stage: Stage, rounds: tuple[int, int]) -> dict[str, Any]:
    """The command line, each time a new process."""
    create_table(stage.metastore.uri, COMMANDS_TABLE, "id bigint, msg string", "", "id", 2, layout="default")
    changes = stage.folder / "two.csv"
    changes.write_text("operation,id,msg\ninsert,1,one\ninsert,2,two\n", encoding="utf-8")
    apply = [sys.executable, "-m", "mutation_api.cli.main", "apply", COMMANDS_TABLE, str(changes)]
    commands = {
        "hive-mutate apply": [*apply, "--metastore", stage.metastore.uri],
        "import mutation_api": [sys.executable, "-c", "import mutation_api"],
        "import pyarrow": [sys.executable, "-c", "import pyarrow"],
    }
    contestants = [
        Contestant(name, _command(command), LOCAL_KINDS, stage.folder) for name, command in commands.items()
    ]
    case = stage.compared(
        "two rows by the command line",
        "From the start of the process to its end. Aims: 1.0 s, and 0.15 s for the import.",
        contestants,
        rounds,
    )
    return {**case, "is_right": case["is_right"] and stage.count(COMMANDS_TABLE) == 2 * sum(rounds)}


def _command(command: Sequence[str]) -> Callable[[int], object]:
    return lambda number: subprocess.run(command, check=True, capture_output=True)


def run_first_load(stage: Stage, rows: int, rounds: tuple[int, int]) -> dict[str, Any]:
    """Rows into an empty table, beside Spark's plain files."""
    source = stage.folder / "source"
    source.mkdir()
    table = pa.concat_tables(base_batches(rows))
    for number in range(SOURCE_FILES):
        part = table.slice(number * rows // SOURCE_FILES, rows // SOURCE_FILES)
        pq.write_table(part, source / f"part-{number}.parquet")
    del table
    plain = stage.folder / "plain"
    loads = [
        Merging(stage, OURS, lambda: stage.new_table(COLUMNS, "", "id", BUCKETS), source, "id"),
        Merging(stage, OURS_LOCAL, lambda: stage.new_table(COLUMNS, "", "id", BUCKETS), source, "id"),
    ]
    writer = Contestant(
        SPARK,
        lambda _: stage.spark.read.parquet(str(source)).write.option("compression", "zlib").orc(str(plain)),
        SPARK_KINDS,
        stage.folder,
        lambda _: shutil.rmtree(plain, ignore_errors=True),
    )
    contestants = [*(load.contestant() for load in loads), writer]
    text = f"{BUCKETS} buckets by key; the table is empty."
    case = stage.compared(f"{rows:,} rows, first load", text, contestants, rounds)
    return {
        **case,
        "aims": dict.fromkeys(case["ratios"], FIRST_LOAD_AIM),
        "is_right": case["is_right"] and all(stage.count(load.table) == rows for load in loads),
    }


def run_airports(stage: Stage, rounds: tuple[int, int]) -> Iterator[dict[str, Any]]:
    """Two releases of the register, each merged by Spark and without it."""
    releases = []
    for release in demo.RELEASES[:2]:
        airports = demo.fetch(release, demo.CACHE)
        file = stage.folder / f"airports-{release}.parquet"
        names = enumerate(demo.COLUMNS)
        pq.write_table(pa.table({name: [each[i] for each in airports] for i, name in names}), file)
        releases.append((release, file, len(airports)))

    def new_table(before: Path | None) -> str:
        name = stage.new_table(AIRPORT_COLUMNS, f"{demo.PARTITION_KEY} string", demo.KEY, demo.NUM_BUCKETS)
        if before is not None:
            with stage.hive.transaction(name, create_partitions=True) as transaction:
                transaction.table(name).append(pq.read_table(before))
        return name

    for before, (release, file, count) in zip([None, *releases], releases, strict=False):
        table = functools.partial(new_table, None if before is None else before[1])
        merges = [Merging(stage, name, table, file, demo.KEY, True) for name in (OURS, OURS_LOCAL)]
        into = "an empty table" if before is None else f"release {before[0]}"
        case = stage.compared(
            f"airports, release {release} into {into}",
            f"{count:,} airports. Aims: 2 s by Spark, 1 s without it.",
            [each.contestant() for each in merges],
            rounds,
        )
        is_right = case["is_right"] and all(stage.count(each.table) == count for each in merges)
        yield {**case, "is_right": is_right}
    release, file, count = releases[0]
    table = functools.partial(new_table, file)
    merges = [Merging(stage, name, table, file, demo.KEY, True, True) for name in (OURS, OURS_LOCAL)]
    case = stage.compared(
        f"airports, release {release} deleted",
        f"{count:,} deletes. Aim: 3 s by Spark.",
        [each.contestant() for each in merges],
        rounds,
    )
    is_right = case["is_right"] and all(stage.count(each.table) == 0 for each in merges)
    yield {**case, "is_right": is_right}


@dataclass
class Merging:
    """One way to make a new table equal to Parquet files by key; each round on a new table.

    ``deletes``: delete the rows with these keys instead.
    """

    stage: Stage
    name: str
    new_table: Callable[[], str]
    source: Path
    key: str
    is_partitioned: bool = False
    deletes: bool = False
    table: str = ""

    def contestant(self) -> Contestant:
        """It, for :func:`alternate`."""
        is_local = self.name == OURS_LOCAL
        return Contestant(
            self.name,
            self._merge_locally if is_local else self._merge_by_spark,
            LOCAL_KINDS if is_local else SPARK_KINDS,
            self.stage.metastore.warehouse,
            self._prepare,
        )

    def _prepare(self, number: int) -> None:
        self.table = self.new_table()

    def _merge_locally(self, number: int) -> None:
        with self.stage.hive.transaction(self.table, create_partitions=self.is_partitioned) as transaction:
            merge = transaction.table(self.table).merge(pq.read_table(self.source), on=[self.key])
            if self.deletes:
                merge.when_matched_delete().execute()
                return
            merge.when_matched_update_all().when_not_matched_insert_all()
            merge.when_not_matched_by_source_delete().execute()

    def _merge_by_spark(self, number: int) -> None:
        database, _, name = self.table.partition(".")
        builder = (
            MutatorClientBuilder().metastore(self.stage.metastore.uri).lock_failure_listener(PrintLoss())
        )
        builder.add_sink_table(database, name, create_partitions=self.is_partitioned)
        with builder.build() as client, client.new_transaction() as transaction:
            source = self.stage.spark.read.parquet(str(self.source))
            merge = merge_into(transaction, self.table, source=source, on=[self.key])
            if self.deletes:
                merge.whenMatched().delete()
            else:
                merge.whenMatched().updateAll()
                merge.whenNotMatched().insertAll()
                merge.whenNotMatchedBySource().delete()
            merge.execute()
