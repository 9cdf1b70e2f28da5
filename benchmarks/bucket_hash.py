"""What Hive's bucket hash costs, by type and version, alone and within a job.

    python -m benchmarks bucket_hash                        # 1,000,000 updates, fourteen types
    python -m benchmarks bucket_hash --quick                # 200,000 updates, two types
    python -m benchmarks bucket_hash --types 'string;date'

``hash`` computes the bucket of every row in this process, in batches as large as the job's.
``with`` is the whole job of ``apply_changes`` on a table of Hive 4.1, where the new bucket of each update is
computed and compared with that of its row; ``without`` is the same job on a table of Hive 3.1, where updated
rows stay where they are, and nothing is hashed. Otherwise the files differ by one flag. The ROW__IDs are made
up, as no old row is read, and no metastore takes part.

The share of the hash is the CPU time of ``hash`` (this thread's clock; the kernel's counters of processes go
by hundredths of a second) divided by that of ``with``: the difference between the two jobs is smaller than
what one job differs from the next.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.measure import (
    Contestant,
    Ratio,
    Result,
    Watch,
    alternate,
    as_figures,
    compared,
    machine,
    ratio_of,
    tell,
    versions,
)
from benchmarks.measuring.report import save_cases, show_case
from metastore_client import OpenTxns, PartitionInfo, ValidTxnList, ValidWriteIdList
from mutation_api import (
    AcidColumn,
    AcidTable,
    AcidVersion,
    BucketIdResolver,
    DeltaManifest,
    Location,
    apply_changes,
    local_spark_session,
)
from mutation_api.format.event import bucket_property
from mutation_api.write.writing_order import ADDRESSED_ROWS_MAX

HELP = "cost of the bucket hash, by type and version"

ROWS_DEFAULT = 1_000_000
QUICK_ROWS = 200_000
QUICK_TYPES = ("string", "timestamp")
ROUNDS = Rounds(3, warm_up=1)
VERSIONS = (1, 2)
BUCKETS = 8
AIM_SHARE = 0.03
CORES = 2
DRIVER_MEMORY = "4g"
RESULTS = Path(__file__).parent / "results" / "bucket_hash.json"

HASH, WITH, WITHOUT = "hash", "with", "without"
SPARK_KINDS = ("driver", "java", "python")
KEY = "k"
OLD_WRITE_ID, OWN_ID = 1, 2
DAY_SPAN = 20_000
"""Days after 1970 over which dates and timestamps are spread."""
_SEED = 20_190_523

Random = np.random.Generator


def _integers(arrow: pa.DataType, bits: int) -> Callable[[Random, int], pa.Array]:
    return lambda rng, n: pa.array(rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), n), pa.int64()).cast(
        arrow
    )


def _texts(rng: Random, n: int) -> pa.Array:
    """Twenty letters each."""
    letters = rng.integers(ord("a"), ord("z") + 1, n * 20, dtype=np.uint8)
    offsets = np.arange(0, len(letters) + 1, 20, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(letters))


def _decimals(rng: Random, n: int) -> pa.Array:
    """Whole numbers of up to twelve digits; an integer is cast only to a decimal that holds any of them."""
    return pa.array(rng.integers(0, 10**12, n)).cast(pa.decimal128(21, 2)).cast(pa.decimal128(18, 2))


TYPES: dict[str, Callable[[Random, int], pa.Array]] = {
    "bigint": _integers(pa.int64(), 64),
    "int": _integers(pa.int32(), 32),
    "smallint": _integers(pa.int16(), 16),
    "tinyint": _integers(pa.int8(), 8),
    "boolean": lambda rng, n: pa.array(rng.random(n) < 0.5),
    "float": lambda rng, n: pa.array(rng.random(n, np.float32)),
    "double": lambda rng, n: pa.array(rng.random(n)),
    "decimal(18,2)": _decimals,
    "string": _texts,
    "varchar(30)": _texts,
    "char(30)": _texts,
    "binary": lambda rng, n: _texts(rng, n).cast(pa.binary()),
    "date": lambda rng, n: pa.array(rng.integers(0, DAY_SPAN, n), pa.int32()).cast(pa.date32()),
    "timestamp": lambda rng, n: pa.array(rng.integers(0, DAY_SPAN * 86_400_000_000, n), pa.timestamp("us")),
}
"""Random values by Hive type."""

UNDEFINED = {("binary", 2)}
"""Type and version for which Hive has no hash that is well defined."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"updates of a round (default: {ROWS_DEFAULT:,})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} updates, two types")
    parser.add_argument("--types", type=_types, help=f"some of {'; '.join(TYPES)}; between semicolons")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if every job wrote all its updates."""
    rows = arguments.rows or (QUICK_ROWS if arguments.quick else ROWS_DEFAULT)
    repeat = ROUNDS.measured_of(arguments)
    types = arguments.types or (QUICK_TYPES if arguments.quick else tuple(TYPES))
    cases = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        settings = {"spark.driver.memory": DRIVER_MEMORY, "spark.local.dir": str(folder / "spark")}
        spark = stack.enter_context(local_spark_session(master=f"local[{CORES}]", settings=settings))
        for hive_type in types:
            for version in versions_of(hive_type):
                updates = Updates.made(folder / "updates", hive_type, version, rows)
                cases.append(run_case(spark, updates, repeat))
                show_case(cases[-1])
    if arguments.save:
        save_cases(
            cases,
            RESULTS,
            title="The bucket hash",
            versions=", ".join(versions("numpy", "pyarrow", "pyspark")),
            machine=machine(),
        )
    return 1 if any("failure" in figures for case in cases for figures in case["contestants"].values()) else 0


def versions_of(hive_type: str) -> list[int]:
    """Versions of the hash that a type has."""
    return [version for version in VERSIONS if (hive_type, version) not in UNDEFINED]


@dataclass(frozen=True)
class Updates:
    """New values of rows that lie in the buckets where they belong, in a Parquet file and in memory."""

    hive_type: str
    bucketing_version: int
    keys: pa.RecordBatch
    path: Path

    @classmethod
    def made(cls, folder: Path, hive_type: str, bucketing_version: int, count: int) -> Updates:
        """Make ``count`` random updates, in a folder that is replaced."""
        rng = np.random.default_rng(_SEED)
        keys = pa.record_batch({KEY: TYPES[hive_type](rng, count)})
        table = made_up_table(folder, hive_type, bucketing_version, AcidVersion.V2_HIVE4)
        buckets = BucketIdResolver(table).resolve(keys).to_numpy()
        rows = pa.table(
            {
                "operation": pa.array(["update"]).take(pa.array(np.zeros(count, np.int8))),
                "ROW__ID": _row_ids(buckets),
                KEY: keys[KEY],
                "msg": _texts(rng, count),
                "v": rng.random(count),
            }
        )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        pq.write_table(rows, folder / "updates.parquet", row_group_size=max(1, count // (2 * CORES)))
        return cls(hive_type, bucketing_version, keys, folder / "updates.parquet")

    def table(self, folder: Path, version: AcidVersion) -> AcidTable:
        """The table that they change."""
        return made_up_table(folder, self.hive_type, self.bucketing_version, version)

    def hash(self) -> float:
        """Compute the bucket of each; returns the CPU seconds that it took."""
        started = time.thread_time()
        resolver = BucketIdResolver(self.table(self.path.parent, AcidVersion.V2_HIVE4))
        for first in range(0, self.keys.num_rows, ADDRESSED_ROWS_MAX):
            resolver.resolve(self.keys.slice(first, ADDRESSED_ROWS_MAX))
        return time.thread_time() - started


class MadeUpTransaction:
    """An open transaction that only the job knows; it sees the write id of the rows."""

    def __init__(self, table: AcidTable) -> None:
        self._table = table

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """All transactions before it."""
        return ValidTxnList.from_open_txns(OpenTxns(OWN_ID, ()), OWN_ID, has_write_ids=True)

    def valid_ids(self, full_name: str) -> ValidWriteIdList:
        """All write ids before its own."""
        return ValidWriteIdList.parse(f"{full_name}:{OLD_WRITE_ID}:::")

    def table(self, full_name: str) -> AcidTable:
        """Its one table."""
        return self._table

    def partitions(self, full_name: str) -> Sequence[PartitionInfo]:
        """None; the table is not partitioned."""
        return ()

    def check(self) -> None:
        """It cannot be lost."""

    def on_lost(self, callback: Callable[[Exception], None]) -> None:
        """It cannot be lost."""

    def changing(self, full_name: str) -> contextlib.AbstractContextManager[None]:
        """It takes any number of change sets."""
        return contextlib.nullcontext()

    def settle(self, full_name: str) -> None:
        """Nothing was overwritten."""

    def add_manifests(self, full_name: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """There is no commit."""


def made_up_table(folder: Path, hive_type: str, bucketing_version: int, version: AcidVersion) -> AcidTable:
    """A table bucketed by a column of this type, which no metastore knows, bound to a transaction."""
    return AcidTable(
        database="default",
        name="hashed",
        location=Location.given(folder),
        columns=(AcidColumn(KEY, hive_type), AcidColumn("msg", "string"), AcidColumn("v", "double")),
        partition_keys=(),
        num_buckets=BUCKETS,
        bucket_columns=(KEY,),
        version=version,
        bucketing_version=bucketing_version,
        txn_id=OWN_ID,
        write_id=OWN_ID,
        time_zone="UTC",
    )


def run_case(spark: SparkSession, updates: Updates, repeat: int) -> dict[str, Any]:
    """The hash alone, and the job with and without it, in turn."""
    label = f"{updates.hive_type}, version {updates.bucketing_version}"
    tell(label)
    seconds: list[float] = []
    with fresh_folder(updates.path.parent.parent / "table") as folder:
        contestants = [
            Contestant(HASH, lambda _: seconds.append(updates.hash()), ("driver",), folder),
            job(spark, updates, WITH, AcidVersion.V2_HIVE4, folder),
            job(spark, updates, WITHOUT, AcidVersion.V2_HIVE3, folder),
        ]
        results = alternate(contestants, repeat, Watch({}), tell=tell)
    return case_of(label, results, seconds[-repeat:], updates.keys.num_rows)


def case_of(label: str, results: Sequence[Result], seconds: Sequence[float], count: int) -> dict[str, Any]:
    """Put the figures together for the report.

    Args:
        label: of the case.
        results: of the hash alone, and of the job with and without it.
        seconds: CPU seconds of the hash alone, in each measured round.
        count: rows of a round.
    """
    _, with_hash, without_hash = results
    jobs = with_hash.usages and without_hash.usages
    share = ratio_of(seconds, [u.total_cpu_seconds for u in with_hash.usages]) if jobs else None
    rate = count / statistics.median(seconds) / 1e6
    found = (
        f"its share of the job's CPU time is {_percent(share)}, aim {AIM_SHARE:.0%}"
        if share
        else "a job failed"
    )
    return {
        "case": label,
        "text": f"{count:,} updates; the hash takes {rate:.1f} million rows a second on one core; {found}.",
        "rows": count,
        "rows_per_second": round(rate * 1e6),
        "share": asdict(share) if share else None,
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": {f"{WITH} / {WITHOUT}": compared(with_hash, without_hash)} if jobs else {},
    }


def job(spark: SparkSession, updates: Updates, name: str, version: AcidVersion, folder: Path) -> Contestant:
    """A whole job on a table of this version."""
    transactions: list[MadeUpTransaction] = []

    def prepare(number: int) -> None:
        location = folder / f"{name}-{number}"
        location.mkdir()
        transactions.append(MadeUpTransaction(updates.table(location, version)))

    def write(number: int) -> None:
        done = apply_changes(transactions[-1], "default.hashed", spark.read.parquet(str(updates.path)))
        if done.updated != updates.keys.num_rows:
            raise RuntimeError(f"{done.updated} of {updates.keys.num_rows} updates written")

    return Contestant(name, write, SPARK_KINDS, folder, prepare)


@contextlib.contextmanager
def fresh_folder(path: Path) -> Iterator[Path]:
    """An empty folder, which goes with the block."""
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _row_ids(buckets: NDArray[np.int32]) -> pa.StructArray:
    properties = np.array([bucket_property(bucket) for bucket in range(BUCKETS)], np.int32)
    count = len(buckets)
    return pa.StructArray.from_arrays(
        [np.full(count, OLD_WRITE_ID, np.int64), properties[buckets], np.arange(count)],
        names=["writeid", "bucketid", "rowid"],
    )


def _percent(share: Ratio) -> str:
    return f"{share.median:.2%} ({share.low:.2%} to {share.high:.2%})"


def _types(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(";"))
    unknown = sorted(set(names) - set(TYPES))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are {', '.join(TYPES)}")
    return names
