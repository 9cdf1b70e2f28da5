"""Reading a snapshot, beside readers that take the same files without knowing what they are.

    python -m benchmarks read               # 10,000,000 rows, 1 % of them deleted
    python -m benchmarks read --quick       # 1,000,000

``ours`` is ``read_table`` with ROW__ID: deleted rows are left out. ``spark`` is ``read.orc`` of the data
files alone, deleted rows included. Once with one column (id), once with all. Everything that is read is
handed to Spark's sink ``noop``, which takes rows and keeps nothing. Spark's reader fails on files of this
format unless all six columns of the events are asked for, so it reads ``operation`` and
``currentTransaction`` too, which are the same in all rows; of the rows' own columns it reads what is asked
for. Before the first round the rows of both are counted.

Then without Spark: ``ours-local`` is ``scan(...).to_arrow()`` of all columns, ``pyarrow`` is
``pyarrow.dataset`` on the data files alone, deleted rows included.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.local_metastore import measured_metastore
from benchmarks.measuring.measure import (
    Contestant,
    Watch,
    alternate,
    as_figures,
    compared,
    consume,
    machine,
    tell,
    versions,
)
from benchmarks.measuring.report import save_cases, show_case
from examples.local import PrintLoss, create_table
from mutation_api import (
    HiveSnapshot,
    MutatorClient,
    MutatorClientBuilder,
    Snapshot,
    apply_changes,
    connect,
    local_spark_session,
    read_table,
)

HELP = "read a snapshot, beside Spark and pyarrow reading the bare files"

ROWS_DEFAULT = 10_000_000
QUICK_ROWS = 1_000_000
ROUNDS = Rounds(5, warm_up=2)
BUCKETS = 8
DELETED_PERCENT = 1
AIM_RATIO = 1.25
LOCAL_AIM_RATIO = 1.5
CORES = 2
DRIVER_MEMORY = "4g"
RESULTS = Path(__file__).parent / "results" / "read.json"

DATABASE, TABLE_NAME = "default", "rows_to_read"
TABLE = f"{DATABASE}.{TABLE_NAME}"
COLUMNS = "id bigint, msg string, v double"
NAMES = tuple(column.split()[0] for column in COLUMNS.split(", "))
READS = {"one column": ("id",), "all columns": NAMES}
OURS, SPARK = "ours", "spark"
OURS_LOCAL, PYARROW = "ours-local", "pyarrow"
EVENT_SCHEMA = (
    "operation int, originalTransaction bigint, bucket int, rowId bigint, currentTransaction bigint, "
    "row struct<{row}>"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"rows of the table (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if both saw the rows they should see."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    rounds = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    with Stage.opened(rows) as stage:
        is_right = stage.is_right()
        cases = [run_case(stage, what, columns, rounds, is_right=is_right) for what, columns in READS.items()]
        cases.append(run_local_case(stage, rounds))
        for case in cases:
            show_case(case)
    if arguments.save:
        save_cases(
            cases,
            RESULTS,
            title="Reading a snapshot",
            versions=", ".join(versions("pyspark", "pyarrow")),
            machine=machine(),
        )
    failed = any("failure" in figures for case in cases for figures in case["contestants"].values())
    return 0 if all(case["is_right"] for case in cases) and not failed else 1


@dataclass(frozen=True)
class Stage:
    """A table with deleted rows, and a snapshot that sees them deleted.

    ``files`` are those with rows; ``deleted`` is how many of the rows are deleted.
    """

    rows: int
    deleted: int
    spark: SparkSession
    snapshot: Snapshot
    local: HiveSnapshot
    files: tuple[str, ...]
    kinds: dict[int, str]

    @classmethod
    @contextlib.contextmanager
    def opened(cls, rows: int) -> Iterator[Stage]:
        """Start metastore and Spark; write the rows, then delete some."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            metastore, kinds = stack.enter_context(measured_metastore(folder / "metastore"))
            settings = {"spark.driver.memory": DRIVER_MEMORY, "spark.local.dir": str(folder / "spark")}
            spark = stack.enter_context(local_spark_session(master=f"local[{CORES}]", settings=settings))
            create_table(metastore.uri, TABLE, COLUMNS, "", "id", BUCKETS, layout="default")
            builder = MutatorClientBuilder().metastore(metastore.uri).lock_failure_listener(PrintLoss())
            client = stack.enter_context(builder.add_sink_table(DATABASE, TABLE_NAME).build())
            tell(f"writing {rows:,} rows")
            deleted = fill(client, spark, rows)
            directory = metastore.warehouse / TABLE_NAME
            files = tuple(sorted(map(str, directory.glob("delta_*/bucket_*"))))
            opened = stack.enter_context(client.open_snapshot(TABLE))
            local = stack.enter_context(stack.enter_context(connect(metastore.uri)).snapshot(TABLE))
            yield cls(rows, deleted, spark, opened, local, files, kinds)

    def ours(self, columns: Sequence[str]) -> DataFrame:
        """The snapshot's rows."""
        return read_table(self.snapshot, TABLE, columns=columns, spark=self.spark)

    def bare(self, columns: Sequence[str]) -> DataFrame:
        """What lies in the files with rows."""
        types = dict(column.split() for column in COLUMNS.split(", "))
        row = ", ".join(f"{name}: {types[name]}" for name in columns)
        return self.spark.read.schema(EVENT_SCHEMA.format(row=row)).orc(list(self.files))

    def is_right(self) -> bool:
        """Whether ours sees all rows but the deleted ones, and Spark all."""
        counts = self.ours(["id"]).count(), self.bare(["id"]).select(*EVENT_COLUMNS).rdd.count()
        return counts == (self.rows - self.deleted, self.rows)

    def ours_local(self) -> pa.Table:
        """The snapshot's rows, without Spark."""
        return self.local.table(TABLE).scan(columns=NAMES).to_arrow()

    def bare_local(self) -> pa.Table:
        """What lies in the files with rows, by pyarrow."""
        return pds.dataset(list(self.files), format="orc").to_table(columns=["row"])

    def is_local_right(self) -> bool:
        """As :meth:`is_right`, without Spark."""
        counts = self.ours_local().num_rows, self.bare_local().num_rows
        return counts == (self.rows - self.deleted, self.rows)


EVENT_COLUMNS = tuple(field.split()[0] for field in EVENT_SCHEMA.split(", "))


def fill(client: MutatorClient, spark: SparkSession, rows: int) -> int:
    """Insert rows with random texts, then delete every hundredth by a hash; returns how many."""
    made = spark.range(rows).select(
        sf.col("id"),
        sf.substring(sf.sha2(sf.col("id").cast("string"), 256), 1, 20).alias("msg"),
        (sf.pmod(sf.xxhash64("id"), sf.lit(4_000_000)) / 4).alias("v"),
        sf.lit("insert").alias("operation"),
    )
    with client.new_transaction() as transaction:
        apply_changes(transaction, TABLE, made)
    with client.new_transaction() as transaction:
        found = read_table(transaction, TABLE, columns=["id"], spark=spark)
        gone = found.where(sf.pmod(sf.xxhash64("id", sf.lit(1)), sf.lit(100)) < DELETED_PERCENT)
        written = apply_changes(transaction, TABLE, gone.withColumn("operation", sf.lit("delete")))
    return written.deleted


def run_case(
    stage: Stage, what: str, columns: Sequence[str], rounds: tuple[int, int], *, is_right: bool
) -> dict[str, Any]:
    """Both read the columns in turn; ``rounds`` are measured ones and those before."""
    kinds, nowhere = ("driver", "java", "python"), Path(stage.files[0]).parent
    ours = Contestant(OURS, lambda _: consume(stage.ours(columns)), kinds, nowhere)
    theirs = Contestant(SPARK, lambda _: consume(stage.bare(columns)), kinds, nowhere)
    return compare(stage, what, (ours, theirs), rounds, AIM_RATIO, is_right=is_right)


def run_local_case(stage: Stage, rounds: tuple[int, int]) -> dict[str, Any]:
    """The whole rows as one Arrow table, without Spark."""
    kinds, nowhere = ("driver",), Path(stage.files[0]).parent
    ours = Contestant(OURS_LOCAL, lambda _: stage.ours_local(), kinds, nowhere)
    theirs = Contestant(PYARROW, lambda _: stage.bare_local(), kinds, nowhere)
    is_right = stage.is_local_right()
    return compare(
        stage, "all columns, without Spark", (ours, theirs), rounds, LOCAL_AIM_RATIO, is_right=is_right
    )


def compare(
    stage: Stage,
    what: str,
    contestants: tuple[Contestant, Contestant],
    rounds: tuple[int, int],
    aim_ratio: float,
    *,
    is_right: bool,
) -> dict[str, Any]:
    """Ours and the other one in turn."""
    repeat, warm_up = rounds
    label = f"{stage.rows:,} rows, {what}"
    tell(label)
    results = alternate(contestants, repeat, Watch(stage.kinds), warm_up=warm_up, tell=tell)
    both = all(result.usages for result in results)
    pair = f"{contestants[0].name} / {contestants[1].name}"
    return {
        "case": label,
        "text": (
            f"{stage.deleted:,} of the rows are deleted, in {len(stage.files)} files of rows; "
            f"the numbers of rows read are {'right' if is_right else 'WRONG'}."
        ),
        "rows": stage.rows,
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {pair: compared(*results)} if both else {},
        "aims": {pair: {"wall": aim_ratio}},
        "is_right": is_right,
    }
