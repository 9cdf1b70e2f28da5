"""The main job on real input: a register of the world's airports, updated from release to release.

    python -m examples.demo [--hive 2.3|3.1|4.1|4.2] [--storage local|hdfs|s3]

The demo fetches three releases of the PyPI package ``airportsdata`` and starts a metastore of that Hive
version. Then it

1. merges the first release into an empty transactional Hive table, in one transaction;
2. merges the second release, after a dry run that reports what will be done: new airports are inserted,
   changed ones are updated, missing ones are deleted, and an airport that changed its country moves to
   another partition;
3. merges the third release;
4. starts one more transaction, writes half the work and aborts it.

After each step, real Hive of the same version reads the table with SQL, and the rows are compared with the
expected ones. Hive 3.1, 4.1 and 4.2 come from Maven Central (downloaded once, 120 to 150 MB).
``--storage`` puts the table on an HDFS or S3 server that is started for the demo.
The exit status is 0 only if all rows are equal. Ctrl-C stops everything that was started.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import importlib
import io
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from examples.local import PrintLoss, create_table
from judges.hive.hive_judges import Hive23, Hive31, Hive41, Hive42
from judges.hive.judge import HiveJudge
from judges.storages.hdfs_cluster import MiniHdfs
from judges.storages.s3_server import BUCKET, S3Server
from metastore_client import EmbeddedMetastore
from mutation_api import (
    ROW_ID_COLUMN,
    AcidTable,
    ApplySummary,
    HadoopSettings,
    MergeCounts,
    MergeReport,
    MutatorClient,
    MutatorClientBuilder,
    apply_changes,
    configure_storage,
    list_staged,
    local_spark_session,
    merge_into,
    read_table,
)

CACHE = Path(__file__).resolve().parents[1] / ".cache"
PACKAGE = "airportsdata"
WHEEL_SHA256 = {
    "20201106": "648c2efbaf9d1f49d3d29a32e20e5ef480759d3d818d68af0add2d19eb192287",
    "20221121": "f1da691afa077b2d3c39ce4c6ab8f5b3d9d739df4184f90fe0fdcc027bd6902a",
    "20240806": "946964d1ccc12f5095d85f4e633ae11d5b2403bb21f955c31cf3c134bec65a00",
}
RELEASES = tuple(WHEEL_SHA256)
DOWNLOAD_TIMEOUT_SECONDS = 300
READING_TIMEOUT_SECONDS = 1200
"""The timeout for Hive to read the whole table. An object store gets several requests per file (3,800)."""

TABLE = "default.airports"
KEY = "icao"
PARTITION_KEY = "country"
DATA_COLUMNS = ("icao", "iata", "name", "city", "subd", "elevation", "lat", "lon", "tz")
COLUMNS = (*DATA_COLUMNS, PARTITION_KEY)
"""The ten columns that all releases have. All are strings in the table, as in the register: a height that
changes from 820.0 to 820 is an update."""
NUM_BUCKETS = 4

EXPECTED = {
    "20201106": MergeCounts(inserted=28865),
    "20221121": MergeCounts(inserted=2148, updated=25968, deleted=2883, moved=14),
    "20240806": MergeCounts(inserted=281, updated=27549, deleted=185, moved=1, unchanged=395),
}
"""The differences of each release from the previous one."""

DRY_RUN_OF = "20221121"
SHOWN_COUNTRIES = 5
"""The number of countries to show, those with the most changes."""

Airport = tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """One line of the table that is printed at the end."""

    name: str
    outcome: str
    applied: ApplySummary
    begin_seconds: float
    end_seconds: float


class Aborted(Exception):
    """Raised on purpose in the middle of the last transaction."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 if Hive read the right rows after every transaction, else 1 (Ctrl-C: 130)."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--cache", type=Path, default=CACHE, help="directory for downloads (default: %(default)s)"
    )
    parser.add_argument(
        "--hive", choices=JUDGES, default="2.3", help="Hive version to run on (default: %(default)s)"
    )
    parser.add_argument(
        "--storage", choices=STORAGES, default="local", help="storage for the table (default: %(default)s)"
    )
    parser.add_argument(
        "--incremental",
        action="store_true",
        help="run the demo of incremental update instead: see examples/incremental.py for its options",
    )
    parser.add_argument(
        "--stream",
        action="store_true",
        help="run the demo of streams instead: see examples/stream.py for its options",
    )
    parser.add_argument(
        "--feed",
        action="store_true",
        help="run the demo of the change feed instead: see examples/feed.py for its options",
    )
    options, others = parser.parse_known_args(arguments)
    for name in ("incremental", "stream", "feed"):
        if getattr(options, name):  # each requires packages that the others do not
            return int(importlib.import_module(f"examples.{name}").main(others))
    if others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    if (options.hive, options.storage) == ("3.1", "s3"):
        parser.error("Hive 3.1 is not tested on S3. Choose another --hive")
    signal.signal(signal.SIGTERM, _stop)
    try:
        return run(options.hive, options.storage, options.cache)
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started is stopped", file=sys.stderr)
        return 130


def run(line: str, storage: str, cache: Path) -> int:
    """Fetch the releases, start the servers, merge, compare with Hive, and report."""
    releases = {release: fetch(release, cache) for release in RELEASES}
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airports-")))
        if storage != "local":
            uri, hive = elsewhere(line, storage, work, stack)
        else:
            uri, hive = start_2_3(work, stack) if line == "2.3" else start_in_one(line, work, stack)
        with step("starting Spark"):
            # Spark's default of two hundred partitions is too many for few rows.
            settings = {"spark.local.dir": str(work / "spark"), "spark.sql.shuffle.partitions": "8"}
            spark = stack.enter_context(local_spark_session("airports", settings=settings))
            # pyspark's handler of Ctrl-C would fill the screen with py4j's stacks.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        columns = ", ".join(f"{name} string" for name in DATA_COLUMNS)
        create_table(uri, TABLE, columns, f"{PARTITION_KEY} string", KEY, NUM_BUCKETS)
        with _client(uri) as client:
            reports, is_right = mutate(client, spark, hive, releases)
    print_reports(reports)
    print(
        f"\nHive's own reading {'equals' if is_right else 'DIFFERS FROM'} release {RELEASES[-1]}, row for "
        "row."
    )
    return 0 if is_right else 1


def start_2_3(work: Path, stack: contextlib.ExitStack) -> tuple[str, HiveJudge]:
    """Return a metastore's address and real Hive that uses it. Both end with the stack."""
    with step("starting a Hive 2.3 metastore"):
        metastore = stack.enter_context(EmbeddedMetastore(work / "metastore"))
    with step("starting real Hive 2.3 (SQL) on that metastore"):
        hive = stack.enter_context(Hive23(work / "hive", {"hive.metastore.uris": metastore.uri}))
    return metastore.uri, hive


def start_in_one(line: str, work: Path, stack: contextlib.ExitStack) -> tuple[str, HiveJudge]:
    """Return a metastore's address and real Hive, both in one process."""
    with step(f"starting real Hive {line} (metastore and SQL)"):
        hive = stack.enter_context(JUDGES[line](work / "hive"))
        return hive.uri, hive


def elsewhere(line: str, storage: str, work: Path, stack: contextlib.ExitStack) -> tuple[str, HiveJudge]:
    """Return a metastore's address and real Hive with its warehouse on HDFS or S3. All end with the stack."""
    with step(f"starting {storage.upper()}"):
        root, properties = STORAGES[storage](work, stack)
    configure_storage(HadoopSettings(properties))
    settings = {
        "hive.metastore.warehouse.dir": f"{root}/warehouse",
        "hive.conf.hidden.list": "javax.jdo.option.ConnectionPassword",
        **properties,
    }
    # Hive keeps its scratch files on the local disk.
    settings.pop("fs.defaultFS", None)
    with step(f"starting real Hive {line} (metastore and SQL)"):
        hive = stack.enter_context(JUDGES[line](work / "hive", settings))
        return hive.uri, hive


def start_hdfs(work: Path, stack: contextlib.ExitStack) -> tuple[str, dict[str, str]]:
    """Return the root of an HDFS and the settings for clients."""
    cluster = stack.enter_context(MiniHdfs(work / "hdfs"))
    cluster.make_directory("/warehouse", mode="777")
    return cluster.location, cluster.settings


def start_s3(work: Path, stack: contextlib.ExitStack) -> tuple[str, dict[str, str]]:
    """Return a bucket of an S3 server and the settings for clients."""
    server = stack.enter_context(S3Server(work / "s3"))
    return f"s3a://{BUCKET}", server.settings


def start_nothing(work: Path, stack: contextlib.ExitStack) -> tuple[str, dict[str, str]]:
    """Return a directory on the local disk, which needs no server."""
    return f"file:{work}", {}


STORAGES = {"local": start_nothing, "hdfs": start_hdfs, "s3": start_s3}
"""The functions that start each storage."""

JUDGES: Mapping[str, type[HiveJudge]] = {"2.3": Hive23, "3.1": Hive31, "4.1": Hive41, "4.2": Hive42}


def mutate(
    client: MutatorClient, spark: SparkSession, hive: HiveJudge, releases: Mapping[str, list[Airport]]
) -> tuple[list[Report], bool]:
    """Run the transactions. Return a report of each, and True if Hive always read the right rows."""
    reports, is_right = [], True
    for number, (release, airports) in enumerate(releases.items(), start=1):
        print(f"\n{number}. Merge release {release}: {len(airports):,} airports")
        reports.append(merge_release(client, spark, release, airports))
        is_right &= check(hive, airports)
    print(f"\n{len(releases) + 1}. Delete every airport, but abort half way")
    reports.append(abort_half_way(client, spark))
    is_right &= check(hive, airports)
    return reports, is_right


def merge_release(
    client: MutatorClient, spark: SparkSession, release: str, airports: list[Airport]
) -> Report:
    """Make the table equal to a release, changing only the rows that differ."""
    started = time.monotonic()
    with client.new_transaction() as transaction:
        begun = time.monotonic()
        merge = merge_into(transaction, TABLE, source=to_dataframe(spark, airports), on=[KEY])
        merge.whenMatched().updateAll()
        merge.whenNotMatched().insertAll()
        merge.whenNotMatchedBySource().delete()
        if release == DRY_RUN_OF:
            with step(f"transaction {transaction.txn_id}: dry run"):
                report = merge.dry_run()
            show(report, release)
        with step(f"transaction {transaction.txn_id}: merging"):
            report = merge.execute()
        show(report, release)
        ending = time.monotonic()
    if report.written is None:
        raise RuntimeError(f"release {release} should have changed the table")
    return Report("merge", "committed", report.written, begun - started, time.monotonic() - ending)


def show(report: MergeReport, release: str) -> None:
    """Print a report with its first few countries, and a note if it is not as expected."""
    lines = str(report).splitlines()
    countries = [line for line in lines if line.startswith((f"  {PARTITION_KEY}=", "  … and "))]
    hidden = set(countries[SHOWN_COUNTRIES:])
    print("\n".join(f"     {line}" for line in lines if line not in hidden))
    if report.total != EXPECTED[release]:
        print(f"   NOTE: expected {EXPECTED[release]}")


def abort_half_way(client: MutatorClient, spark: SparkSession) -> Report:
    """Write deletes of all rows, then let the block fail as in a program with an error."""
    started = time.monotonic()
    with contextlib.suppress(Aborted), client.new_transaction() as transaction:
        begun, table = time.monotonic(), transaction.table(TABLE)
        rows = read_table(transaction, TABLE, columns=[], spark=spark)
        changes = rows.select(ROW_ID_COLUMN, sf.lit("delete").alias("operation"))
        with step(f"transaction {transaction.txn_id}: writing"):
            applied = apply_changes(transaction, TABLE, changes)
        print(
            f"   {len(staged_locations(table)):,} files are staged and hidden from every reader; now the "
            "program fails"
        )
        ending = time.monotonic()
        raise Aborted
    left = staged_locations(table)
    print(f"   after the abort {len(left):,} staged files remain")
    if left:
        raise RuntimeError(f"the aborted transaction left {left[:3]} …")
    return Report("delete", "aborted", applied, begun - started, time.monotonic() - ending)


def check(hive: HiveJudge, expected: list[Airport]) -> bool:
    """Read the table with Hive's SQL and compare the rows."""
    with step("real Hive reads the table"):
        found = hive.sql(f"SELECT {', '.join(COLUMNS)} FROM {TABLE}", timeout_seconds=READING_TIMEOUT_SECONDS)
    is_equal = sorted(map(tuple, found)) == sorted(expected)
    verdict = "equal, row for row" if is_equal else "DIFFERENT"
    print(f"   Hive sees {len(found):,} rows, expected {len(expected):,}: {verdict}")
    return is_equal


def to_dataframe(spark: SparkSession, airports: list[Airport]) -> DataFrame:
    """Return a release as a DataFrame with COLUMNS."""
    table = pa.table({name: [a[i] for a in airports] for i, name in enumerate(COLUMNS)})
    return spark.createDataFrame(table)


def staged_locations(table: AcidTable) -> list[str]:
    """Return the hidden files and uploads of the transaction to which the table is bound."""
    staged = list_staged(table, table.required_txn_id())
    return [str(each.location) for each in staged.uploads or staged.files]


def fetch(release: str, cache: Path) -> list[Airport]:
    """Return the rows of a release, with COLUMNS. It is downloaded once, and its hash is checked."""
    wheel = cache / f"{PACKAGE}-{release}-py3-none-any.whl"
    if not wheel.exists():
        with step(f"downloading {PACKAGE} {release} from PyPI"):
            _download(release, cache)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256[release]:
        raise RuntimeError(
            f"{wheel} has SHA-256 {found}, expected {WHEEL_SHA256[release]}. Delete it and try again"
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
    """Print the step and the time that it takes."""
    print(f"   {what} … ", end="", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print("stopped", flush=True)
        raise
    print(f"{time.monotonic() - started:.1f} s", flush=True)


def print_reports(reports: Sequence[Report]) -> None:
    """Print the table of transactions at the end."""
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
        counts = (applied.inserted, applied.updated, applied.deleted)
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
