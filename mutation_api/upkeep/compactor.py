"""Compactions done by this library, as a worker of the queue of Hive 4.

A worker takes a compaction from the queue. It opens a transaction of the kind COMPACTION, which holds a
shared lock, and reads up to the highest write id below which no transaction is open. The new directory has
the transaction in its name (``base_9_v12``), so no reader sees it before the commit. Before that it is
compared with the files that it replaces (:mod:`.compacted_files`). After the commit, the server's cleaner
removes the old files when nobody reads them any more.

If the worker dies, the server aborts its transaction, gives the compaction to another worker, and its cleaner
removes the directory.

Source: Hive's Worker and AcidCompactionService (4.0 to 4.2).
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from metastore_client.model import CompactionEnd, CompactionJob, CompactionType
from metastore_client.valid_ids import ValidWriteIdList
from mutation_api.errors import CommitOutcomeUnknownError, CompactionError, ConfigurationError
from mutation_api.format.layout import ACID_VERSION_FILE, base_directory_name, parse_directory_name
from mutation_api.orc.read.event_file import EventFileKind
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.table_view import TableView, open_table
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.committer import V2_MARK
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.manifest import staging_directory
from mutation_api.transaction.snapshot import Snapshot
from mutation_api.transaction.staging import children_of
from mutation_api.upkeep.compacted_files import CompactedFile, check_compacted, write_compacted

__all__ = ["THREADS_DEFAULT", "CompactedDirectory", "compact_next", "compact_partition"]

_log = logging.getLogger(__name__)

THREADS_DEFAULT = 2


@dataclass(frozen=True)
class CompactedDirectory:
    """The result of one compaction. ``directory`` is None if there was nothing to compact.

    ``row_count`` and ``byte_count`` are those of the new directory; ``byte_count_before`` is the size of the
    files that it replaces.
    """

    table: str
    partition: str
    kind: str
    directory: str | None
    row_count: int = 0
    byte_count: int = 0
    byte_count_before: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Return the result as a dict of JSON types only."""
        return {**vars(self), "seconds": round(self.seconds, 3)}

    def __str__(self) -> str:
        """Return one line."""
        where = f"{self.table}/{self.partition}" if self.partition else self.table
        if self.directory is None:
            return f"{where}: nothing to compact"
        return (
            f"{where}: wrote {self.directory}: {self.row_count:,} rows, {self.byte_count:,} bytes instead of "
            f"{self.byte_count_before:,} ({self.seconds:.1f} s)"
        )


def _worker_id() -> str:
    """Return the name of this process as a worker: ``host-mutate-pid``."""
    return f"{_worker_prefix()}{os.getpid()}"


def _worker_prefix() -> str:
    return f"{os.uname().nodename}-mutate-"


def _fail_those_of_dead_workers(metastore: MetastoreClient) -> None:
    """Report compactions as failed whose worker was a process of this library on this machine and is dead.

    The server itself waits for a day (``hive.compactor.worker.timeout``), and accepts no other compaction of
    the partition until then.
    """
    for each in metastore.show_compactions():
        pid = each.worker_id.removeprefix(_worker_prefix())
        if each.state == "working" and pid != each.worker_id and pid.isdecimal() and not _is_alive(int(pid)):
            _log.warning("compaction %s of %s.%s: its worker is dead", each.id, each.database, each.table)
            metastore.compaction_ended(
                metastore.compaction_job(each), CompactionEnd.FAILED, "the process of the worker died"
            )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def compact_next(
    metastore: MetastoreClient,
    *,
    pool: str | None = None,
    threads: int = THREADS_DEFAULT,
    options: WriterOptions | None = None,
) -> CompactedDirectory | None:
    """Take one major compaction from the queue of Hive 4, and do it.

    Args:
        metastore: a server of Hive 4.
        pool: see :meth:`MetastoreClient.next_compaction`.
        threads: number of buckets that are compacted at once. Each holds a stripe of each of its files.
        options: stripe size and compression of the new files.

    Returns:
        The result; None if the queue is empty.

    Raises:
        ConfigurationError: If the server is older than Hive 4.
        CompactionError: If the new files differ from the old ones; nothing has changed.
        CommitOutcomeUnknownError: If the answer to the commit was lost and nobody knows its outcome.
        Other errors: See :func:`mutation_api.read.snapshot_reader.read_split` and
            ``client.open_snapshot``. The queue then shows the compaction as failed, with the reason.
    """
    _check_has_workers(metastore)
    with metastore_errors_as_ours("could not take a compaction from the queue"):
        _fail_those_of_dead_workers(metastore)
    return _taken_and_done(metastore, pool, threads, options)


def _taken_and_done(
    metastore: MetastoreClient, pool: str | None, threads: int, options: WriterOptions | None
) -> CompactedDirectory | None:
    with metastore_errors_as_ours("could not take a compaction from the queue"):
        job = metastore.next_compaction(_worker_id(), "hive-mutation-api", pool)
    if job is None:
        return None
    try:
        return _done(metastore, job, threads, options or WriterOptions())
    except CommitOutcomeUnknownError:
        raise
    except BaseException as error:
        _report(metastore, job, CompactionEnd.FAILED, f"{type(error).__name__}: {error}")
        raise


def compact_partition(
    metastore: MetastoreClient,
    table: str,
    partition: str = "",
    *,
    threads: int = THREADS_DEFAULT,
    options: WriterOptions | None = None,
) -> CompactedDirectory:
    """Compact one partition of a table of Hive 4 now (major), under a pool that no other worker serves.

    Args:
        metastore: see :func:`compact_next`.
        table: ``database.table``.
        partition: the escaped name of the partition; '' for an unpartitioned table.
        threads: see :func:`compact_next`.
        options: see :func:`compact_next`.

    Raises:
        CompactionError: If a compaction of the partition is queued or running. See also :func:`compact_next`.
        Other errors: See :func:`compact_next`.
    """
    _check_has_workers(metastore)
    database, name = split_full_name(table)
    pool = f"hive-mutation-api-{uuid.uuid4().hex[:12]}"
    where = f"{table}/{partition}" if partition else table
    with metastore_errors_as_ours(f"table {where}: cannot request a compaction"):
        _fail_those_of_dead_workers(metastore)
        is_new = metastore.compact(database, name, partition or None, CompactionType.MAJOR, pool=pool)
    found = _taken_and_done(metastore, pool, threads, options) if is_new else None
    if found is None:
        raise CompactionError(
            f"table {where}: a compaction is queued or running already. Wait for it: hive-mutate show "
            "compactions"
        )
    return found


def _check_has_workers(metastore: MetastoreClient) -> None:
    if not metastore.capabilities().has_compaction_workers:
        raise ConfigurationError(
            f"the server is of {metastore.capabilities().line}, and only Hive 4 gives compactions to other "
            "programs. Let Hive compact: hive-mutate compact"
        )


def _report(metastore: MetastoreClient, job: CompactionJob, end: CompactionEnd, reason: str) -> None:
    try:
        metastore.compaction_ended(job, end, reason)
    except MetastoreError as error:
        _log.warning("could not report the end of compaction %d: %s", job.id, error)


def _done(
    metastore: MetastoreClient, job: CompactionJob, threads: int, options: WriterOptions
) -> CompactedDirectory:
    name, partition = f"{job.database}.{job.table}", job.partition or ""
    kind = job.type.name.lower()
    if job.type is not CompactionType.MAJOR:
        raise CompactionError(f"table {name}: {kind} compactions are left to Hive. Request a major one")
    started = time.monotonic()
    with MutatorClientBuilder().metastore(metastore).build() as client:
        snapshot = client.open_compaction(name)
        try:
            work = _Compaction.of(metastore, job, snapshot, partition, threads, options)
            if not work.is_needed:
                # As Hive's worker does: without new files, the cleaner still removes those of aborted ids.
                end = CompactionEnd.DONE if work.has_unread else CompactionEnd.REFUSED
                metastore.compaction_ended(work.job, end, "there is nothing to compact")
                snapshot.commit()
                return CompactedDirectory(name, partition, kind, None)
            files = work.publish()
        except BaseException:
            snapshot.abort()
            raise
        try:
            metastore.compaction_ended(work.job, CompactionEnd.DONE)
            snapshot.commit()
        except CommitOutcomeUnknownError:
            raise
        except BaseException:
            snapshot.abort()
            work.remove()
            raise
    return CompactedDirectory(
        name,
        partition,
        kind,
        work.directory.name,
        sum(file.row_count for file in files),
        sum(file.byte_count for file in files),
        sum(split.byte_count for split in work.splits),
        time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Compaction:
    """The major compaction of one partition. ``valid`` are the ids up to which it reads."""

    job: CompactionJob
    txn_id: int
    view: TableView
    valid: ValidWriteIdList
    partition: str
    splits: tuple[SnapshotSplit, ...]
    threads: int
    options: WriterOptions

    @classmethod
    def of(
        cls,
        metastore: MetastoreClient,
        job: CompactionJob,
        snapshot: Snapshot,
        partition: str,
        threads: int,
        options: WriterOptions,
    ) -> _Compaction:
        """Plan the compaction, and report its transaction."""
        view = open_table(snapshot, f"{job.database}.{job.table}")
        if partition not in view.locations:
            raise CompactionError(f"table {view.table.full_name}: it has no partition {partition!r} any more")
        info = metastore.get_table(job.database, job.table)
        if info.sort_columns:
            raise CompactionError(f"table {info.full_name} is sorted, which Hive does not compact either")
        assert isinstance(view.valid_ids, ValidWriteIdList)
        # Transactions with later ids may still write rows that the new base would hide.
        valid = view.valid_ids.up_to(view.valid_ids.min_open - 1)
        # Hive's worker takes the owner of the directory, which is the table's owner unless it was changed.
        job = metastore.compaction_began(job, snapshot.txn_id, valid.high_watermark, info.owner)
        view = TableView(view.table, view.locations, valid, view.valid_txns, check=view.check)
        splits = tuple(view.plan([partition]))
        return cls(job, snapshot.txn_id, view, valid, partition, splits, threads, options)

    @property
    def is_needed(self) -> bool:
        """True if there are several directories, or plain files."""
        files = [file for split in self.splits for file in split.files]
        has_plain_files = any(file.kind is EventFileKind.ORIGINAL for file in files)
        return has_plain_files or len({file.location.parent for file in files}) > 1

    @property
    def has_unread(self) -> bool:
        """True if there are directories of events that the snapshot does not read."""
        read = {file.location.parent for split in self.splits for file in split.files}
        entries = children_of(storage_at(self._location), self._location)
        parsed = (parse_directory_name(e.name, self.view.table.version) for e in entries if e.is_directory)
        return len(read) < sum(each is not None for each in parsed)

    @property
    def _location(self) -> Location:
        return self.view.locations[self.partition]

    @property
    def directory(self) -> Location:
        """The new directory."""
        name = base_directory_name(self.valid.high_watermark, self.txn_id)
        return self.view.locations[self.partition] / name

    def publish(self) -> list[CompactedFile]:
        """Write, publish and check the new files. On any error they are removed."""
        try:
            files = self._written()
            self.view.check()
            self._name(files)
            self._check(files)
            self.view.check()
        except BaseException:
            self.remove()
            raise
        finally:
            self._remove(self._staging)
        return files

    def remove(self) -> None:
        """Remove the new directory. A failure is only logged: the server's cleaner removes it later."""
        self._remove(self.directory)

    @property
    def _staging(self) -> Location:
        return staging_directory(self.view.locations[self.partition], self.txn_id)

    @property
    def _hidden(self) -> Location:
        return self._staging / "compaction" / "0"

    def _buckets(self) -> dict[int, list[SnapshotSplit]]:
        buckets = _by_bucket(self.splits)
        if min(buckets, default=0) < 0:
            file = buckets[min(buckets)][0].files[0].location
            raise CompactionError(f"{file} has no bucket in its name. Let Hive compact the partition")
        # A store without directories could not show an empty one.
        return buckets or {0: []}

    def _written(self) -> list[CompactedFile]:
        storage_at(self._hidden).create_directory(self._hidden)

        def write(bucket: tuple[int, list[SnapshotSplit]]) -> CompactedFile:
            self.view.check()
            return write_compacted(
                self.view.table, *bucket, self.valid, self.directory, self._hidden, self.options
            )

        return side_by_side(write, sorted(self._buckets().items()), self.threads)

    def _name(self, files: list[CompactedFile]) -> None:
        storage = storage_at(self.directory)
        storage.create_directory(self.directory)
        if self.view.table.version.has_row_ids:
            mark = storage.create(self.directory / ACID_VERSION_FILE)
            mark.write(V2_MARK)
            mark.close()
        side_by_side(lambda file: storage.publish(file.staged, file.target), files, storage.threads)
        storage.sync_directory(self.directory)

    def _check(self, files: list[CompactedFile]) -> None:
        """Compare what a snapshot reads that sees the compaction with what was read before."""
        found = _by_bucket(self.view.plan([self.partition]))
        unexpected = found.keys() - {file.bucket_id for file in files}
        if unexpected:
            raise CompactionError(f"{self.directory}: found files of the buckets {sorted(unexpected)}")

        def check(file: CompactedFile) -> None:
            self.view.check()
            check_compacted(self.view.table, file, found[file.bucket_id], self.valid)

        side_by_side(check, files, self.threads)

    def _remove(self, location: Location) -> None:
        try:
            storage_at(location).delete_directory(location)
        except OSError as error:
            _log.warning("could not remove %s: %s", location, error)


def _by_bucket(splits: Iterable[SnapshotSplit]) -> dict[int, list[SnapshotSplit]]:
    buckets: dict[int, list[SnapshotSplit]] = defaultdict(list)
    for split in splits:
        buckets[split.bucket_id].append(split)
    return buckets
