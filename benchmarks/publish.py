"""One commit that publishes thousands of files on an object store which answers slowly.

    python -m benchmarks publish                        # 8,000 files, 30 ms before each request
    python -m benchmarks publish --quick                # 800

``ours`` is ``Transaction.commit`` after a coordinator has written a row into each bucket of each partition:
it checks every file, registers the partitions, has the files appear, and commits. ``bare`` completes as many
uploads by boto3, in as many threads, and does nothing else. The store is moto behind a proxy that waits
before it passes a request on, both in one process of this machine, whose processor time is counted; metastore
and judge are a real Hive 2.3. Writing the files, creating the partitions, opening the transaction and its
lock are not measured.

Before that Hive reads a small table there and must find its rows.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measuring.arguments import Rounds
from benchmarks.measuring.local_metastore import METASTORE
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
from examples.local import PrintLoss, create_table
from judges.hive.hive_judges import Hive23
from judges.storages.s3_server import BUCKET, S3Server
from metastore_client import open_client
from mutation_api import (
    BucketIdResolver,
    HadoopSettings,
    Location,
    MutatorClient,
    MutatorClientBuilder,
    MutatorCoordinator,
    Transaction,
    configure_storage,
)
from mutation_api.storage.connect import storage_at
from mutation_api.storage.protocol import Staged
from mutation_api.storage.tree import side_by_side

HELP = "a commit of thousands of files on an object store, beside the bare requests"

FILES_DEFAULT = 8_000
QUICK_FILES = 800
BUCKETS = 8
JUDGED_PARTITIONS = 2
LATENCY_SECONDS = 0.03
ROUNDS = Rounds(3, warm_up=1)
AIM_SECONDS = 60
"""What the commit of 8,000 files may take."""
RESULTS = Path(__file__).parent / "results" / "publish.json"
DATABASE = "default"
STORE = "store"
"""The kind of the store's process."""
OURS, BARE = "ours", "bare"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--rows", type=int, help=f"one in each file, at most {FILES_DEFAULT:,} (the default)")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_FILES:,} files")
    ROUNDS.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; 0 if all files were there after each commit and Hive found its rows."""
    wanted = arguments.rows or (QUICK_FILES if arguments.quick else FILES_DEFAULT)
    repeat = ROUNDS.measured_of(arguments)
    partitions = max(1, min(wanted, FILES_DEFAULT) // BUCKETS)
    with store_and_hive() as (store, hive, folder):
        is_right = hive_agrees(Ours(store, hive, JUDGED_PARTITIONS), hive)
        case = run_case(store, hive, folder, partitions, repeat)
        if arguments.save:
            names = (hive.description, store.description, *versions("boto3", "pyarrow"))
            title = "Publishing on an object store"
            save_cases([case], RESULTS, title=title, versions=", ".join(names), machine=machine())
    return 0 if is_right and case["is_right"] else 1


@contextlib.contextmanager
def store_and_hive() -> Iterator[tuple[S3Server, Hive23, Path]]:
    """A fresh store, a Hive whose warehouse lies there, and an empty folder."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        for name in ("store", "hive", "none"):
            (folder / name).mkdir()
        store = stack.enter_context(S3Server(folder / "store"))
        settings = {"hive.metastore.warehouse.dir": f"s3a://{BUCKET}/warehouse", **store.settings}
        hive = stack.enter_context(Hive23(folder / "hive", settings))
        configure_storage(HadoopSettings(store.settings))
        stack.callback(configure_storage, None)
        yield store, hive, folder / "none"


def run_case(store: S3Server, hive: Hive23, folder: Path, partitions: int, repeat: int) -> dict[str, Any]:
    """Both in turn, on new files each round."""
    tell(f"{partitions * BUCKETS:,} files")
    ours, bare = Ours(store, hive, partitions), Bare(store, partitions * BUCKETS)
    parts = [
        Contestant(OURS, ours.commit, ("driver", METASTORE, STORE), folder, ours.prepare),
        Contestant(BARE, bare.complete, ("driver", STORE), folder, bare.prepare),
    ]
    results = alternate(parts, repeat, Watch({hive.pid: METASTORE, store.pid: STORE}), tell=tell)
    ours.close()
    return case_of(partitions, results, ours, store)


def hive_agrees(ours: Ours, hive: Hive23) -> bool:
    """Whether Hive finds the rows of a small table that was published slowly."""
    ours.prepare(-1)
    ours.commit(-1)
    ours.close()
    ((count,),) = hive.sql(f"SELECT count(*) FROM {DATABASE}.{ours.table}")
    is_right = int(str(count)) == ours.partitions * BUCKETS
    tell(f"Hive {hive.line} {'agrees' if is_right else 'DISAGREES'} on {ours.table}: {count} rows")
    return is_right


@dataclass
class Ours:
    """Transactions whose files are uploaded and whose commits are not done yet.

    ``written`` and ``committed`` count the requests of the last one by operation.
    """

    store: S3Server
    hive: Hive23
    partitions: int
    table: str = ""
    written: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)
    is_complete: bool = True

    def __post_init__(self) -> None:
        """Begin without any."""
        self._client: MutatorClient | None = None
        self._transaction: Transaction | None = None

    def prepare(self, number: int) -> None:
        """Upload a row into each bucket of a new table."""
        self.close()
        self.store.fail()
        self.table = f"t{self.partitions}_{number + 1}"
        name = f"{DATABASE}.{self.table}"
        create_table(
            self.hive.uri,
            f"{DATABASE}.{self.table}",
            "id bigint",
            "ds string",
            "id",
            BUCKETS,
            layout="default",
        )
        values = [(f"p{number:04d}",) for number in range(self.partitions)]
        with open_client(self.hive.uri) as metastore:
            metastore.add_partitions(DATABASE, self.table, values)
        builder = MutatorClientBuilder().metastore(self.hive.uri).lock_failure_listener(PrintLoss())
        self._client = builder.add_sink_table(DATABASE, self.table).build()
        self._client.connect()
        self._transaction = self._client.new_transaction()
        self._transaction.begin()
        table = self._transaction.table(name)
        rows = pa.record_batch({"id": pa.array(range(BUCKETS), pa.int64())})
        rows = rows.take(pc.sort_indices(BucketIdResolver(table).resolve(rows)))
        self.store.take_counts()
        with MutatorCoordinator(table) as coordinator:
            for value in values:
                coordinator.insert(value, rows)
        self._transaction.add_manifests(name, coordinator.writer_id, coordinator.close())
        self.written = self.store.take_counts()
        self.store.fail(latency_seconds=LATENCY_SECONDS)

    def commit(self, number: int) -> None:
        """Publish and commit."""
        assert self._transaction is not None
        self._transaction.commit()
        self.committed = self.store.take_counts()

    def close(self) -> None:
        """Forget the last one, when its files have been counted."""
        if self._client is not None:
            location = self._client.tables[0].location
            self.is_complete = (
                self.is_complete and _file_count(self.store, location) == self.partitions * BUCKETS
            )
            self._client.close()
            self._client = None


@dataclass
class Bare:
    """Uploads that are not complete yet."""

    store: S3Server
    files: int

    def prepare(self, number: int) -> None:
        """Upload as many small files as ours has."""
        self.store.fail()
        root = Location.parse(f"s3a://{BUCKET}/bare{number}")
        storage = storage_at(root)

        def upload(location: Location) -> Staged:
            file = storage.stage(location, location)
            file.write(b"some bytes")
            file.close()
            return file.staged

        locations = [root / f"{index // BUCKETS}/{index % BUCKETS}" for index in range(self.files)]
        self._uploads = side_by_side(upload, locations, storage.threads)
        self._threads = storage.threads
        self._s3 = self.store.client()
        self.store.fail(latency_seconds=LATENCY_SECONDS)

    def complete(self, number: int) -> None:
        """Complete them."""

        def complete(staged: Staged) -> None:
            _, tag = staged.part_tags
            self._s3.complete_multipart_upload(
                Bucket=BUCKET,
                Key=staged.location.path.lstrip("/"),
                UploadId=staged.upload_id,
                MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]},
            )

        side_by_side(complete, self._uploads, self._threads)


def case_of(partitions: int, results: list[Result], ours: Ours, store: S3Server) -> dict[str, Any]:
    """Put figures and requests together for the report."""
    files = partitions * BUCKETS
    ratios = {}
    if all(result.usages for result in results):
        ratios = {f"{OURS} / {BARE}": compared(results[0], results[1])}
    seconds = max((usage.wall_seconds for usage in results[0].usages), default=0.0)
    is_right = ours.is_complete and not any(result.failure for result in results)
    written, committed = Counter(ours.written), Counter(ours.committed)
    case = {
        "case": f"{files:,} files, {LATENCY_SECONDS * 1000:g} ms before each request",
        "text": (
            f"{partitions:,} partitions of {BUCKETS} buckets; {'' if is_right else 'NOT '}all files there. "
            f"A commit of {FILES_DEFAULT:,} files should take {AIM_SECONDS} s at most; the slowest took "
            f"{seconds:.1f} s. Requests for a file: {written.total() / files:.3f} to write it "
            f"({_text(written)}), {committed.total() / files:.3f} to publish it ({_text(committed)})."
        ),
        "requests": {"written": dict(written), "committed": dict(committed)},
        "contestants": {result.name: as_figures(result) for result in results},
        "ratios": ratios,
        "is_right": is_right,
    }
    show_case(case)
    return case


def _file_count(store: S3Server, directory: Location) -> int:
    """How many bucket files lie below a directory."""
    store.fail()
    pages = store.client().get_paginator("list_objects_v2")
    found = pages.paginate(Bucket=BUCKET, Prefix=directory.path.lstrip("/") + "/")
    return sum("/bucket_" in each["Key"] for page in found for each in page.get("Contents", ()))


def _text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
