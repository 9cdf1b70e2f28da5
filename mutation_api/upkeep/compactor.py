"""Compactions done by this library, as a worker of the queue of Hive 4.

A worker takes a compaction from the queue. It opens a transaction of the kind COMPACTION, which holds a
shared lock, and reads up to the highest write id below which no transaction is open. A new directory has the
transaction in its name (``base_9_v12``, ``delta_4_9_v12``), so no reader sees it before the commit. Before
that it is compared with the files that it replaces (:mod:`.partition_compaction`). After the commit, the
server's cleaner removes the old files when nobody reads them any more.

If the worker dies, the server aborts its transaction, gives the compaction to another worker, and its cleaner
removes the directory.

Source: Hive's Worker and AcidCompactionService (4.0 to 4.2).
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from metastore_client.model import CompactionEnd, CompactionJob, CompactionType, TxnState
from mutation_api.errors import CommitOutcomeUnknownError, CompactionError, ConfigurationError
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.hold import open_holds
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.snapshot import Snapshot
from mutation_api.upkeep.compaction_terms import CompactedDirectory, CompactionSettings
from mutation_api.upkeep.compaction_view import compactable_view
from mutation_api.upkeep.kept_files import (
    KeptFiles,
    check_can_keep,
    keep_files,
    remove_expired,
    removed_after_errors,
)
from mutation_api.upkeep.partition_compaction import (
    COMPACTED_KINDS,
    PartitionCompaction,
)
from mutation_api.upkeep.rebalance import parse_order_by
from mutation_api.upkeep.unqueued_compaction import compact_unqueued

_log = logging.getLogger(__name__)

THREADS_DEFAULT = 2
LOCAL_KINDS = tuple(each.name.lower() for each in COMPACTED_KINDS)
"""The kinds of compactions that this library does itself."""


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
    keep_old: timedelta | None = None,
) -> CompactedDirectory | None:
    """Take one compaction from the queue of Hive 4, and do it.

    Args:
        metastore: a server of Hive 4.
        pool: see :meth:`MetastoreClient.next_compaction`.
        threads: number of buckets that are compacted at once. Each holds a stripe of each of its files.
        options: stripe size and compression of the new files.
        keep_old: how long to keep the old files, so that
            :func:`mutation_api.upkeep.restore.restore_table` can bring them back. If None, they are not kept.

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
    settings = CompactionSettings(threads, options or WriterOptions(), None, keep_old)
    return _taken_and_done(metastore, pool, settings)


def _taken_and_done(
    metastore: MetastoreClient, pool: str | None, settings: CompactionSettings
) -> CompactedDirectory | None:
    with metastore_errors_as_ours("could not take a compaction from the queue"):
        job = metastore.next_compaction(_worker_id(), "hive-mutation-api", pool)
    if job is None:
        return None
    try:
        return _done(metastore, job, settings)
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
    kind: str = "major",
    threads: int = THREADS_DEFAULT,
    options: WriterOptions | None = None,
    up_to: int | None = None,
    keep_old: timedelta | None = None,
    num_buckets: int | None = None,
    sort_by: Sequence[str] = (),
    without_queue: bool = False,
    wait_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
) -> CompactedDirectory:
    """Compact one partition of a table now, on Hive 4 under a pool that no other worker serves.

    Args:
        metastore: see :func:`compact_next`.
        table: ``database.table``.
        partition: the escaped name of the partition; '' for an unpartitioned table.
        kind: ``major``, ``minor`` to join the deltas above the base, or ``rebalance`` to spread the rows of a
            table without buckets evenly over files, with new ROW__IDs.
        threads: see :func:`compact_next`.
        options: see :func:`compact_next`.
        up_to: the highest id to compact. If None, all ids that have ended. See
            :func:`mutation_api.upkeep.watermark_table.read_by_consumers`.
        keep_old: see :func:`compact_next`.
        num_buckets: the number of files of a rebalance. If None, as many as there are.
        sort_by: columns by which a rebalance sorts rows, each with `` desc`` for a descending order, so that
            readers skip more stripes. If empty, rows stay in the order of their ROW__IDs.
        without_queue: True to compact a table of Hive 2.3 or 3.1 (major); see :mod:`.unqueued_compaction`.
        wait_seconds: without the queue, the longest wait for the end of other transactions.

    Raises:
        ConfigurationError: If the kind is another one, a setting does not fit it, or the server is older than
            Hive 4 (with ``without_queue``, if it is Hive 4, or Hive's compactor may begin at any time).
        CompactionError: If a compaction of the partition is queued or running. See also :func:`compact_next`.
        Other errors: See :func:`compact_next`.
    """
    if kind not in LOCAL_KINDS:
        raise ConfigurationError(f"kind={kind!r}: expected one of {', '.join(LOCAL_KINDS)}")
    settings = CompactionSettings(
        threads, options or WriterOptions(), up_to, keep_old, num_buckets, tuple(sort_by)
    )
    (found,) = compact_partitions(
        metastore,
        table,
        [partition],
        CompactionType[kind.upper()],
        settings,
        without_queue=without_queue,
        wait_seconds=wait_seconds,
    )
    return found


def compact_partitions(
    metastore: MetastoreClient,
    table: str,
    partitions: Sequence[str],
    kind: CompactionType,
    settings: CompactionSettings,
    *,
    at_once: int = 1,
    without_queue: bool = False,
    wait_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    progress: Callable[[CompactedDirectory], None] = lambda done: None,
) -> list[CompactedDirectory]:
    """Compact partitions of a table now. See :func:`compact_partition`.

    Args:
        metastore: see :func:`compact_next`.
        table: ``database.table``.
        partitions: the escaped names of the partitions.
        kind: the kind of the compactions.
        settings: how to compact each of them.
        at_once: the number of partitions to compact at once. One without the queue, where a compaction waits
            for all other transactions.
        without_queue: see :func:`compact_partition`.
        wait_seconds: see :func:`compact_partition`.
        progress: called with each result.

    Returns:
        The results, in the order of the partitions.

    Raises:
        Errors: See :func:`compact_partition`. After an error, the other partitions are compacted.
    """
    settings.check_kind(kind)
    if without_queue:
        if kind is not CompactionType.MAJOR:
            raise ConfigurationError(
                f"kind={kind.name.lower()!r}: without the queue only major compactions are possible"
            )
        at_once = 1
    else:
        _check_has_workers(metastore)
        with metastore_errors_as_ours(f"table {table}: cannot request a compaction"):
            _fail_those_of_dead_workers(metastore)

    def compact(partition: str) -> CompactedDirectory:
        if without_queue:
            done = compact_unqueued(metastore, table, partition, settings=settings, wait_seconds=wait_seconds)
        else:
            done = _requested_and_done(metastore, table, partition, kind, settings)
        progress(done)
        return done

    return side_by_side(compact, partitions, at_once)


def _requested_and_done(
    metastore: MetastoreClient, table: str, partition: str, kind: CompactionType, settings: CompactionSettings
) -> CompactedDirectory:
    database, name = split_full_name(table)
    pool = f"hive-mutation-api-{uuid.uuid4().hex[:12]}"
    where = f"{table}/{partition}" if partition else table
    with metastore_errors_as_ours(f"table {where}: cannot request a compaction"):
        is_new = metastore.compact(database, name, partition or None, kind, pool=pool)
    found = _taken_and_done(metastore, pool, settings) if is_new else None
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
            "programs. Let Hive compact (hive-mutate compact), or do without its queue: hive-mutate compact "
            "--engine local --without-queue"
        )


def _report(metastore: MetastoreClient, job: CompactionJob, end: CompactionEnd, reason: str) -> None:
    try:
        metastore.compaction_ended(job, end, reason)
    except MetastoreError as error:
        _log.warning("could not report the end of compaction %d: %s", job.id, error)


def _done(metastore: MetastoreClient, job: CompactionJob, settings: CompactionSettings) -> CompactedDirectory:
    name, partition = f"{job.database}.{job.table}", job.partition or ""
    kind = job.type.name.lower()
    if job.type not in COMPACTED_KINDS:
        raise CompactionError(f"table {name}: {kind} compactions are left to Hive. Request a major one")
    if job.num_buckets or job.order_by:
        settings = replace(
            settings,
            num_buckets=job.num_buckets or settings.num_buckets,
            sort_by=parse_order_by(job.order_by) if job.order_by else settings.sort_by,
        )
    started = time.monotonic()
    with MutatorClientBuilder().metastore(metastore).build() as client:
        snapshot = client.open_compaction(name, job.type, partition)
        try:
            job, work = _planned(metastore, job, snapshot, settings)
            if not work.is_needed:
                # As Hive's worker does: without new files, the cleaner still removes those of aborted ids.
                end = CompactionEnd.DONE if work.has_unread else CompactionEnd.REFUSED
                metastore.compaction_ended(job, end, "there is nothing to compact")
                snapshot.commit()
                return CompactedDirectory(name, partition, kind, None)
            files = work.publish()
        except BaseException:
            snapshot.abort()
            raise
        kept = _committed(metastore, job, snapshot, work)
    remove_expired(work.view.locations[partition])
    return CompactedDirectory(
        name,
        partition,
        kind,
        work.directories[0].name,
        sum(file.row_count for file in files),
        sum(file.byte_count for file in files),
        work.byte_count,
        time.monotonic() - started,
        _holds_on(metastore, name),
        "" if kept is None else kept.until,
    )


def _committed(
    metastore: MetastoreClient, job: CompactionJob, snapshot: Snapshot, work: PartitionCompaction
) -> KeptFiles | None:
    """Commit a compaction whose files are published. On an error, they are removed. Return what is kept."""
    keep_old, name = work.settings.keep_old, work.view.table.full_name
    try:
        kept = None if keep_old is None else keep_files(work, keep_old)
        with removed_after_errors(kept):
            with metastore_errors_as_ours(f"table {name}: its compaction could not be committed"):
                _check_no_rival(metastore, work)
                _check_still_given(metastore, job)
                metastore.compaction_ended(job, CompactionEnd.DONE)
            snapshot.commit()
    except CommitOutcomeUnknownError:
        raise
    except BaseException:
        snapshot.abort()
        work.remove()
        raise
    return kept


def _check_no_rival(metastore: MetastoreClient, work: PartitionCompaction) -> None:
    """Refuse if another worker has compacted the partition at the same time, or still does.

    Two compactors of this library look after their directories are there, so at least one finds the other.
    """
    rivals = work.rivals()
    if not rivals:
        return
    aborted = {each.id for each in metastore.get_open_txns().txns if each.state is TxnState.ABORTED}
    for each in rivals:
        if each.compaction_txn not in aborted:
            raise CompactionError(
                f"table {work.view.table.full_name}: the compaction of transaction {each.compaction_txn} "
                f"wrote {each.name} at the same time. No row was changed, and the new files are removed"
            )


def _check_still_given(metastore: MetastoreClient, job: CompactionJob) -> None:
    """Refuse if the server has given the compaction to another worker.

    It takes a report from anybody, and would clean up after the other worker's compaction before its end.
    """
    for each in metastore.show_compactions(job.id):
        if (each.state, each.worker_id) != ("working", _worker_id()):
            worker = f" by {each.worker_id}" if each.worker_id else ""
            raise CompactionError(
                f"table {job.database}.{job.table}: the server no longer expects compaction {job.id} from "
                f"this process: it is {each.state}{worker}. No row was changed, and the new files are removed"
            )


def _holds_on(metastore: MetastoreClient, table: str) -> str:
    """Return who keeps the server's cleaner from the files of a table, '' if nobody says so."""
    try:
        holds = open_holds(metastore.get_open_txns())
    except MetastoreError as error:
        _log.warning("could not ask who holds the files of %s: %s", table, error)
        return ""
    hosts = sorted({host for host, tables, _ in holds if table in tables.split(",")})
    if not hosts:
        return ""
    return (
        f"a change feed on {', '.join(hosts)} has a hold on them. The cleaner removes them when it has ended"
    )


def _planned(
    metastore: MetastoreClient,
    job: CompactionJob,
    snapshot: Snapshot,
    settings: CompactionSettings,
) -> tuple[CompactionJob, PartitionCompaction]:
    """Plan the compaction, and report its transaction."""
    partition = job.partition or ""
    view = compactable_view(metastore, snapshot, job.database, job.table, partition, settings.up_to)
    # Hive's worker takes the owner of the directory, which is the table's owner unless it was changed.
    owner = metastore.get_table(job.database, job.table).owner
    job = metastore.compaction_began(job, snapshot.txn_id, view.valid_ids.high_watermark, owner)
    if settings.keep_old is not None:
        check_can_keep(view.locations[partition])
    work = PartitionCompaction.planned(job.type, view, partition, snapshot.txn_id, settings, snapshot.confirm)
    return job, work
