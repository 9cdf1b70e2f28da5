"""verify_table: examines all files of a table, several at a time, and lists the findings."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from metastore_client.client import MetastoreClient
from mutation_api.errors import ConfigurationError, MutationError
from mutation_api.orc.format.checked_file import faults_of
from mutation_api.orc.read.event_file import EventFile, EventFileKind
from mutation_api.read.partition_plan import takes_deletes_of_all_buckets
from mutation_api.read.table_view import TableView, open_table
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import is_fault_of_machine
from mutation_api.storage.tree import Directories, directories_below
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.transaction_files import current_ids
from mutation_api.upkeep.verify.bucket_check import BucketCheck, BucketResult, HashCheck
from mutation_api.upkeep.verify.directory_check import PartitionFiles, check_directory
from mutation_api.upkeep.verify.file_check import check_file
from mutation_api.upkeep.verify.finding import Finding, KnownIds
from mutation_api.upkeep.verify.metastore_check import (
    Registered,
    has_younger,
    row_statistics,
    unregistered_partitions,
)
from mutation_api.upkeep.verify.statistics_check import column_statistics

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class VerifyProgress:
    """The progress of an examination: files and bytes done, and in total."""

    file_count: int
    byte_count: int
    total_file_count: int
    total_byte_count: int


Progress = Callable[[VerifyProgress], None]
"""A function that is called while files are examined."""


@dataclass(frozen=True)
class VerifyReport:
    """The result of examining a table.

    ``findings`` are sorted by partition and file. ``row_count`` is the number of rows that a reader sees; if
    None, damage prevented counting them.
    """

    table: str
    partition_count: int
    file_count: int
    byte_count: int
    row_count: int | None
    findings: tuple[Finding, ...]

    @property
    def damages(self) -> tuple[Finding, ...]:
        """The findings that make a reader fail or show wrong rows."""
        return tuple(each for each in self.findings if each.is_damage)

    @property
    def is_sound(self) -> bool:
        """True if nothing is damaged; there may be notices."""
        return not self.damages

    def to_dict(self) -> dict[str, object]:
        """Return the report as one JSON object."""
        return {
            "table": self.table,
            "sound": self.is_sound,
            "partition_count": self.partition_count,
            "file_count": self.file_count,
            "byte_count": self.byte_count,
            "row_count": self.row_count,
            "findings": [each.to_dict() for each in self.findings],
        }


def verify_table(
    metastore: MetastoreClient,
    table: str,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Examine all files of a table of the metastore, as a snapshot of this moment reads them.

    A read lock prevents Hive's cleaner from removing files during the examination; writers do not wait.

    Args:
        metastore: describes the table and its transactions.
        table: ``database.table``.
        threads: the number of files to examine at a time. If None, one per processor. Each needs a stripe
            of memory.
        progress: called periodically, from any thread.

    Raises:
        TableNotFoundError: If the table does not exist.
        TableNotMutableError: If the table cannot be read.
        LockNotAcquiredError, ConnectionFailedError, TransactionError: See Transaction.begin.
        ConfigurationError: If ``threads`` is below 1.
        ReadError, OSError: If a directory cannot be listed, or this machine cannot read a file.
    """
    database, name = split_full_name(table)
    full_name = f"{database}.{name}"
    builder = MutatorClientBuilder().metastore(metastore)
    with builder.build() as client, client.open_snapshot(full_name) as snapshot:
        view = open_table(snapshot, full_name)
        with metastore_errors_as_ours(f"could not examine table {full_name}"):
            info = metastore.get_table(database, name)
        return _verified(
            view,
            lambda: _known_now(metastore, view),
            threads,
            progress,
            registered=Registered(metastore, info, snapshot.partitions(full_name)),
        )


def verify_view(
    view: TableView, *, threads: int | None = None, progress: Progress | None = None
) -> VerifyReport:
    """Examine the files of a table that no metastore describes.

    Args:
        view: the directory; see :func:`~mutation_api.read.directory_scan.open_directory`. Its bucket columns
            are
            not known, so hashes are not compared.
        threads: see :func:`verify_table`.
        progress: see :func:`verify_table`.

    Raises:
        ConfigurationError, OSError: See :func:`verify_table`.
    """
    return _verified(view, lambda: KnownIds(view.valid_ids, view.valid_txns), threads, progress)


def _known_now(metastore: MetastoreClient, view: TableView) -> KnownIds:
    """Return the ids as the metastore reports them now."""
    with metastore_errors_as_ours(f"could not read the ids of table {view.table.full_name}"):
        return current_ids(metastore, view.table)


def _verified(
    view: TableView,
    ask_ids: Callable[[], KnownIds],
    threads: int | None,
    progress: Progress | None,
    registered: Registered | None = None,
) -> VerifyReport:
    if threads is not None and threads < 1:
        raise ConfigurationError(f"threads {threads}: it must be 1 or more")
    table = view.table
    elsewhere = [p for p in view.locations.values() if not p.is_within(table.location)]
    directories = directories_below([table.location, *elsewhere])
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        partitions = _check_directories(view, directories, ask_ids, pool)
        found = [finding for partition in partitions for finding in partition.findings]
        meter = _Meter(partitions, progress)
        damaged = _check_files(view, partitions, meter, pool)
        found += [finding for findings in damaged.values() for finding in findings]
        row_counts = _check_buckets(view, partitions, damaged, found, pool)
    if registered is not None:
        found += _check_metastore(view, registered, directories, row_counts, ask_ids, threads)
    rows = [count for count in row_counts.values() if count is not None]
    return VerifyReport(
        table=table.full_name,
        partition_count=len(partitions),
        file_count=sum(len(p.files) for p in partitions),
        byte_count=sum(file.byte_count for p in partitions for file in p.files),
        row_count=sum(rows) if len(rows) == len(row_counts) else None,
        findings=tuple(sorted(found, key=lambda f: (f.partition, str(f.location), f.rule_name))),
    )


def _check_directories(
    view: TableView, directories: Directories, ask_ids: Callable[[], KnownIds], pool: ThreadPoolExecutor
) -> list[PartitionFiles]:
    """Examine directories. Those whose ids seem too high are examined again, since they may be new."""
    known = ask_ids()

    def check(named: tuple[str, Location]) -> PartitionFiles:
        checked = check_directory(directories, view, *named, known)
        if any(f.rule_name in ("unknown-id", "unknown-compaction") for f in checked.findings):
            return check_directory(directories, view, *named, ask_ids())
        return checked

    return list(pool.map(check, sorted(view.locations.items())))


def _check_metastore(
    view: TableView,
    registered: Registered,
    directories: Directories,
    row_counts: Mapping[str, int | None],
    ask_ids: Callable[[], KnownIds],
    threads: int | None,
) -> Iterator[Finding]:
    """Yield differences between the metastore's entries and the files."""
    counted = [name for name, count in row_counts.items() if count is not None]
    with metastore_errors_as_ours(f"could not read the statistics of table {view.table.full_name}"):
        of_columns = list(column_statistics(view, registered, counted, threads))
    known = ask_ids()
    newest_id = known.ids.high_watermark
    yield from unregistered_partitions(view, directories, known)
    yield from row_statistics(view, registered, row_counts, newest_id=newest_id)
    if not has_younger(view, newest_id):  # otherwise the records may include younger rows
        yield from of_columns


class _Meter:
    """Counts finished files and bytes; threads share it."""

    def __init__(self, partitions: Iterable[PartitionFiles], progress: Progress | None) -> None:
        sizes = [file.byte_count for p in partitions for file in p.files]
        self._all = (len(sizes), sum(sizes))
        self._done = (0, 0)
        self._progress = progress
        self._lock = threading.Lock()

    def add(self, file: EventFile) -> None:
        """Count a finished file."""
        if self._progress is None:
            return
        with self._lock:
            self._done = (self._done[0] + 1, self._done[1] + file.byte_count)
            self._progress(VerifyProgress(*self._done, *self._all))


def _check_files(
    view: TableView, partitions: Sequence[PartitionFiles], meter: _Meter, pool: ThreadPoolExecutor
) -> dict[Location, list[Finding]]:
    """Return the findings about each file alone."""
    hashes = HashCheck.of(view.table)
    any_bucket = takes_deletes_of_all_buckets(view.table)

    def check(item: tuple[str, EventFile]) -> list[Finding]:
        partition, file = item
        view.check()
        found = check_file(view.table, partition, file, hashes, any_bucket=any_bucket)
        meter.add(file)
        return found

    items = [(p.partition, file) for p in partitions for file in p.files]
    results = pool.map(check, items)
    return {file.location: found for (_, file), found in zip(items, results, strict=True)}


def _check_buckets(
    view: TableView,
    partitions: Sequence[PartitionFiles],
    damaged: dict[Location, list[Finding]],
    found: list[Finding],
    pool: ThreadPoolExecutor,
) -> dict[str, int | None]:
    """Compare the files of each bucket, add to ``found``, and return the rows of each partition."""
    counts: dict[str, int | None] = {}
    groups = [(p, bucket, files) for p in partitions for bucket, files in _buckets(view, p)]

    def check(group: tuple[PartitionFiles, int, Sequence[EventFile]]) -> BucketResult | Finding:
        return _check_bucket(view, *group, damaged)

    for partition in partitions:
        has_damage = any(f.is_damage for f in partition.findings)
        counts[partition.partition] = None if has_damage else 0
    for (partition, _, _), result in zip(groups, pool.map(check, groups), strict=True):
        name = partition.partition
        before = counts[name]
        if isinstance(result, Finding):
            found.append(result)
            counts[name] = None
        else:
            found.extend(result.findings)
            counts[name] = None if before is None else before + result.row_count
    return counts


def _buckets(view: TableView, partition: PartitionFiles) -> Iterator[tuple[int, Sequence[EventFile]]]:
    """Yield groups of files whose events belong to the same rows."""
    version = view.table.version
    buckets: dict[int, list[EventFile]] = defaultdict(list)
    for file in partition.files:
        buckets[file.bucket_id].append(file)
    deletes = [f for f in partition.files if f.kind is EventFileKind.DELETE_DELTA]
    for bucket_id, files in sorted(buckets.items()):
        originals = [f for f in files if f.kind is EventFileKind.ORIGINAL]
        if not version.has_row_ids or (len(originals) > 1 and not version.numbers_files_through):
            yield from ((bucket_id, [file]) for file in originals)
            files = [f for f in files if f not in originals]
        if takes_deletes_of_all_buckets(view.table):
            files = [*files, *(f for f in deletes if f.bucket_id != bucket_id)]
        if files:
            yield bucket_id, files


def _check_bucket(
    view: TableView,
    partition: PartitionFiles,
    bucket_id: int,
    files: Sequence[EventFile],
    damaged: dict[Location, list[Finding]],
) -> BucketResult | Finding:
    view.check()
    check = BucketCheck(
        partition.partition,
        bucket_id,
        files,
        view.valid_ids,
        view.table.version,
        base_last=partition.base_last,
        any_bucket=takes_deletes_of_all_buckets(view.table),
    )
    try:
        with faults_of(files[0].location.parent):
            return check.run()
    except (MutationError, OSError) as error:
        if is_fault_of_machine(error):
            raise
        is_known = any(f.is_damage for file in files for f in damaged[file.location])
        rule_name = "not-merged" if is_known else "read"
        return Finding(
            rule_name, partition.partition, files[0].location.parent, str(error), "files that merge"
        )
