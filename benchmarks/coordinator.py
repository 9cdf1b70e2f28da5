"""One thread that writes grouped rows: our coordinator beside Hive's Java writers.

    python -m benchmarks coordinator                # 1,000,000 rows in 4 x 4 and in 100 x 8 groups
    python -m benchmarks coordinator --quick        # 200,000 rows; Hive reads a partition of each table

All write the same rows to new directories each round, packed with zlib. Two things are compared:

* writing alone: ``ours`` is a coordinator that takes an Arrow batch a group, computes and checks buckets and
  forces its files to disk; ``updater`` is Hive's bare RecordUpdater, which is given the bucket, checks
  nothing and leaves the files to the operating system; ``updater-cold`` is the same in a JVM that has just
  started and loaded the rows;
* a whole transaction on partitions that exist, from connecting to the commit, on the same metastore:
  ``ours-transaction`` with a batch a group, ``ours-records`` with a record at a time, and ``java-api``,
  Hive's Mutation API, which knows nothing but records.

Rounds before the measured ones warm up; a JVM goes on compiling for three or so. A ratio is ours divided by
theirs in seconds, so "five times as fast" is 0.2. In the end the files of all are read by pyarrow: number of
rows and sum of keys must be those of the rows given.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc

from benchmarks.data.group_data import COLUMNS, GroupedRows
from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.local_metastore import METASTORE, measured_metastore
from benchmarks.measuring.measure import (
    Contestant,
    Result,
    Watch,
    alternate,
    as_figures,
    compared,
    machine,
    tell,
    versions,
)
from benchmarks.measuring.report import save_cases, show_case
from benchmarks.peers.java_writers import JavaWriters
from examples.local import PrintLoss, create_table
from judges.hive.hive_judges import Hive23
from metastore_client import EmbeddedMetastore, open_client
from mutation_api import (
    AcidColumn,
    AcidTable,
    AcidVersion,
    Location,
    MutatorClientBuilder,
    MutatorCoordinator,
)

HELP = "write grouped rows on one thread, in turn with Hive's Java writers"

ROWS_DEFAULT = 1_000_000
QUICK_ROWS = 200_000
ROUNDS = Rounds(5, warm_up=3)
RESULTS = Path(__file__).parent / "results" / "coordinator.json"

OURS, UPDATER, UPDATER_COLD = "ours", "updater", "updater-cold"
OURS_TRANSACTION, OURS_RECORDS, JAVA_API = "ours-transaction", "ours-records", "java-api"
CONTESTANTS = (OURS, UPDATER, UPDATER_COLD, OURS_TRANSACTION, OURS_RECORDS, JAVA_API)

TIMES_AS_FAST = {
    "few": {
        (OURS, UPDATER): 1.3,
        (OURS, UPDATER_COLD): 4.0,
        (OURS_TRANSACTION, JAVA_API): 5.0,
        (OURS_RECORDS, JAVA_API): 0.5,
    },
    "many": {(OURS_TRANSACTION, JAVA_API): 10.0},
}
"""The aims by shape: the first contestant is to be this many times as fast as the second."""


@dataclass(frozen=True)
class Shape:
    """The groups of a case's rows, and its contestants."""

    name: str
    partitions: int
    buckets: int
    contestants: tuple[str, ...]

    def label(self, rows: int) -> str:
        """The case's name."""
        groups = self.partitions * self.buckets
        return f"{self.partitions} partitions x {self.buckets} buckets, {rows // groups:,} rows each"


SHAPES = (Shape("few", 4, 4, CONTESTANTS), Shape("many", 100, 8, (OURS_TRANSACTION, JAVA_API)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"rows of a round (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows; Hive reads them")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if every contestant wrote the given rows."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    repeat, warm_up = ROUNDS.measured_of(arguments), ROUNDS.warm_up_of(arguments)
    cases, used = [], set(versions("pyarrow"))
    for shape in SHAPES:
        with Stage.opened(shape, rows, warm_up + repeat) as stage:
            cases.append(run_case(stage, warm_up, is_judged=arguments.quick))
            used.update(stage.versions)
        show_case(cases[-1])
    if arguments.save:
        save_cases(cases, RESULTS, title="One thread", versions=", ".join(sorted(used)), machine=machine())
    return 0 if all(case["is_equal"] for case in cases) else 1


@dataclass
class Stage:
    """What the contestants of one case share.

    ``rounds`` includes the warm-up rounds; ``kinds`` are the processes that were started for contestants.
    """

    shape: Shape
    rows: GroupedRows
    rounds: int
    folder: Path
    java_rows: Path
    metastore: EmbeddedMetastore
    kinds: dict[int, str]
    stack: contextlib.ExitStack
    versions: set[str] = field(default_factory=set)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, shape: Shape, count: int, rounds: int) -> Iterator[Stage]:
        """Make the rows and start a metastore."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
            rows = GroupedRows.made(
                bound_table(folder / "nowhere", shape.buckets, 1), shape.partitions, count
            )
            rows.write_for_java(folder / "rows")
            metastore, kinds = stack.enter_context(measured_metastore(folder / "metastore"))
            yield cls(shape, rows, rounds, folder, folder / "rows", metastore, kinds, stack)

    def java(self, kind: str) -> JavaWriters:
        """A JVM that has the rows, until the stage is left; its processes are of this kind."""
        log = self.folder / f"{kind}-{len(self.kinds)}.log"
        java = JavaWriters(self.java_rows, self.shape.partitions, self.shape.buckets, log)
        self.stack.callback(java.close)
        self.kinds[java.pid] = kind
        self.versions.add(java.version)
        return java

    def new_database(self, name: str) -> Path:
        """Create a database for a contestant's tables; returns the folder in which they will lie."""
        with open_client(self.metastore.uri) as metastore:
            metastore.create_database(name)
        return self.metastore.warehouse / f"{name}.db"

    def new_table(self, full_name: str) -> None:
        """Create ``database.table`` with its partitions."""
        create_table(self.metastore.uri, full_name, COLUMNS, "ds string", "id", self.shape.buckets)
        database, _, table = full_name.partition(".")
        with open_client(self.metastore.uri) as metastore:
            metastore.add_partitions(database, table, [(value,) for value in self.rows.partition_values()])


def run_case(stage: Stage, warm_up: int, *, is_judged: bool) -> dict[str, Any]:
    """Let the contestants of a shape take turns, then read what they wrote."""
    names = stage.shape.contestants
    label = stage.shape.label(stage.rows.count)
    tell(label)
    contestants = [_MAKERS[name](stage) for name in names]
    rounds = stage.rounds - warm_up
    results = alternate(contestants, rounds, Watch(stage.kinds), warm_up=warm_up, tell=tell)
    expected = expected_content(stage.rows.batches, stage.rounds)
    wrong = [
        contestant.name
        for contestant, result in zip(contestants, results, strict=True)
        if not result.failure and written_content(contestant.folder) != expected
    ]
    disagreeing = hive_disagrees(stage) if is_judged else []
    by_name = {result.name: result for result in results if result.usages}
    pairs = {pair: aim for pair, aim in TIMES_AS_FAST[stage.shape.name].items() if set(pair) <= set(by_name)}
    return {
        "case": label,
        "text": _text(stage.rows.count, wrong, disagreeing, by_name, is_judged=is_judged),
        "rows": stage.rows.count,
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {f"{a} / {b}": compared(by_name[a], by_name[b]) for a, b in pairs},
        "aims": {f"{a} / {b}": {"wall": round(1 / aim, 3)} for (a, b), aim in pairs.items()},
        "is_equal": not wrong and not disagreeing and not any(result.failure for result in results),
    }


# ---- contestants


def ours(stage: Stage) -> Contestant:
    """A coordinator alone, a batch a group; each round is another transaction in one folder."""
    folder = stage.folder / OURS
    folder.mkdir()

    def write(number: int) -> None:
        with MutatorCoordinator(bound_table(folder, stage.shape.buckets, number + 1)) as coordinator:
            insert_batches(coordinator, stage.rows)

    return Contestant(OURS, write, ("driver",), folder)


def updater(stage: Stage) -> Contestant:
    """Hive's bare RecordUpdater, in one JVM for all rounds."""
    folder = stage.folder / UPDATER
    folder.mkdir()
    java = stage.java(UPDATER)
    return Contestant(UPDATER, lambda number: java.update(folder, number + 1), (UPDATER,), folder)


def updater_cold(stage: Stage) -> Contestant:
    """The same, in a new JVM each round; their starts and the loading of the rows are not measured."""
    folder = stage.folder / UPDATER_COLD
    folder.mkdir()
    new = [stage.java(UPDATER_COLD) for _ in range(stage.rounds)]
    return Contestant(
        UPDATER_COLD, lambda number: new[number].update(folder, number + 1), (UPDATER_COLD,), folder
    )


def ours_transaction(stage: Stage) -> Contestant:
    """Our whole transaction, a batch a group."""
    return _transactions(stage, OURS_TRANSACTION, insert_batches)


def ours_records(stage: Stage) -> Contestant:
    """Our whole transaction, a record at a time."""
    columns = [batch.to_pydict() for batch in stage.rows.batches]

    def insert_records(coordinator: MutatorCoordinator, rows: GroupedRows) -> None:
        for (value, _), group in zip(rows.groups(), columns, strict=True):
            for number, text, amount in zip(group["id"], group["msg"], group["v"], strict=True):
                coordinator.insert([value], {"id": number, "msg": text, "v": amount})

    return _transactions(stage, OURS_RECORDS, insert_records)


def java_api(stage: Stage) -> Contestant:
    """A whole transaction of Hive's Mutation API, in one JVM for all rounds."""
    folder = stage.new_database(database_of(JAVA_API))
    java = stage.java(JAVA_API)

    def write(number: int) -> None:
        java.run_transaction(stage.metastore.uri, table_of(JAVA_API, number))

    def create(number: int) -> None:
        stage.new_table(table_of(JAVA_API, number))

    return Contestant(JAVA_API, write, (JAVA_API, METASTORE), folder, create)


def _transactions(
    stage: Stage, name: str, insert: Callable[[MutatorCoordinator, GroupedRows], None]
) -> Contestant:
    folder = stage.new_database(database_of(name))

    def write(number: int) -> None:
        table = table_of(name, number)
        builder = MutatorClientBuilder().metastore(stage.metastore.uri).lock_failure_listener(PrintLoss())
        client = builder.add_sink_table(database_of(name), table_name(number)).build()
        with client, client.new_transaction() as transaction:
            with MutatorCoordinator(transaction.table(table)) as coordinator:
                insert(coordinator, stage.rows)
            transaction.add_manifests(table, coordinator.writer_id, coordinator.close())

    def create(number: int) -> None:
        stage.new_table(table_of(name, number))

    return Contestant(name, write, ("driver", METASTORE), folder, create)


_MAKERS: Mapping[str, Callable[[Stage], Contestant]] = {
    OURS: ours,
    UPDATER: updater,
    UPDATER_COLD: updater_cold,
    OURS_TRANSACTION: ours_transaction,
    OURS_RECORDS: ours_records,
    JAVA_API: java_api,
}


def insert_batches(coordinator: MutatorCoordinator, rows: GroupedRows) -> None:
    """Insert all rows, a batch a group."""
    for value, batch in rows.groups():
        coordinator.insert([value], batch)


def bound_table(folder: Path, buckets: int, txn_id: int) -> AcidTable:
    """The table that no metastore knows, bound to a transaction."""
    return AcidTable(
        database="default",
        name="alone",
        location=Location.given(folder),
        columns=tuple(AcidColumn(name, kind) for name, kind in map(str.split, COLUMNS.split(", "))),
        partition_keys=(AcidColumn("ds", "string"),),
        num_buckets=buckets,
        bucket_columns=("id",),
        version=AcidVersion.V1_LEGACY,
        create_partitions=True,
        txn_id=txn_id,
    )


# ---- what was written


def expected_content(batches: Iterable[pa.RecordBatch], rounds: int = 1) -> tuple[int, int]:
    """Rows and sum of keys after these rounds."""
    counts = [(batch.num_rows, int(pc.sum(batch["id"]).as_py())) for batch in batches]
    return sum(count for count, _ in counts) * rounds, sum(total for _, total in counts) * rounds


def written_content(folder: Path) -> tuple[int, int]:
    """Rows and sum of keys of all files of buckets below a folder, staged ones included."""
    count = total = 0
    for path in folder.rglob("*bucket_*"):
        if not path.name.startswith("."):  # a checksum file of Hadoop's
            ids = orc.ORCFile(path).read(columns=["row.id"])["row"].combine_chunks()
            count += len(ids)
            total += pc.sum(pc.struct_field(ids, "id")).as_py() or 0
    return count, total


def hive_disagrees(stage: Stage) -> list[str]:
    """The contestants in whose last table Hive reads a partition differently than written.

    One partition: Hive starts a task for each file, a tenth of a second apiece.
    """
    value = stage.rows.partition_values()[-1]
    expected = [list(expected_content(batch for found, batch in stage.rows.groups() if found == value))]
    names = [n for n in stage.shape.contestants if n in (OURS_TRANSACTION, OURS_RECORDS, JAVA_API)]
    statements = {
        name: f"SELECT count(*), sum(id) FROM {table_of(name, stage.rounds - 1)} WHERE ds = '{value}'"
        for name in names
    }
    configuration = {"hive.metastore.uris": stage.metastore.uri}
    settings = {"hive.vectorized.execution.enabled": "false"}
    with Hive23(stage.folder / "hive", configuration) as hive:
        stage.versions.add(hive.description)
        return [name for name, text in statements.items() if hive.sql(text, settings=settings) != expected]


def _text(
    count: int,
    wrong: Sequence[str],
    disagreeing: Sequence[str],
    results: Mapping[str, Result],
    *,
    is_judged: bool,
) -> str:
    same = f"contents of {', '.join(wrong)} are WRONG" if wrong else "contents are right"
    hive = f"; Hive DISAGREES on {', '.join(disagreeing)}" if disagreeing else "; Hive agrees"
    rates = "; ".join(
        f"{name} {count / as_figures(result)['wall_seconds'] / 1e6:.2f}" for name, result in results.items()
    )
    return f"{count:,} rows; {same}{hive if is_judged else ''}. Million rows a second: {rates}."


def database_of(contestant: str) -> str:
    """Each contestant has its own database, whose folder holds what it wrote."""
    return contestant.replace("-", "_")


def table_of(contestant: str, number: int) -> str:
    """``database.table`` of a round."""
    return f"{database_of(contestant)}.{table_name(number)}"


def table_name(number: int) -> str:
    """The table of a round, in each contestant's database."""
    return f"t{number}"
