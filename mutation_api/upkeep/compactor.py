"""Compactions done by this library, as a worker of the queue of Hive 4.

A worker takes a compaction from the queue, opens a transaction (:mod:`.queued_compaction`), and reads up to
the highest write id below which no transaction is open. The new directories are compared with the files that
they replace (:mod:`.partition_compaction`). After the commit, the server's cleaner removes the old files when
nobody reads them any more.

If the worker dies, the server aborts its transaction, gives the compaction to another worker, and its cleaner
removes the directory.

Source: Hive's Worker and AcidCompactionService (4.0 to 4.2).
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from metastore_client.client import MetastoreClient
from metastore_client.model import CompactionEnd, CompactionInfo, CompactionJob, CompactionType, TxnState
from mutation_api.errors import CompactionError, ConfigurationError
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import WriterOptions
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT, MutatorClientBuilder
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.upkeep.compaction_terms import CompactedDirectory, CompactionSettings
from mutation_api.upkeep.partition_compaction import COMPACTED_KINDS
from mutation_api.upkeep.queued_compaction import compact_queued, worker_id, worker_prefix
from mutation_api.upkeep.unqueued_compaction import compact_unqueued

_log = logging.getLogger(__name__)

THREADS_DEFAULT = 2
MOST_TOGETHER, MOST_BYTES_TOGETHER = 32, 64 * 1024 * 1024
"""The number of partitions, and the bytes of their files, that share a transaction at most."""
LOCAL_KINDS = tuple(each.name.lower() for each in COMPACTED_KINDS)
"""The kinds of compactions that this library does itself."""
_VERSION = "hive-mutation-api"
_numbers = itertools.count(1)
_LISTENERS = "hive.metastore.transactional.event.listeners"


def _fail_abandoned(metastore: MetastoreClient) -> None:
    """Report compactions as failed that nobody will complete.

    Their process, one of this library on this machine, is dead. It may have requested them or done them. The
    server itself waits for a day (``hive.compactor.worker.timeout``), and accepts no other compaction of the
    partition until then. After a request it would wait forever, since nobody else serves the pool.

    Or a worker of Hive reported the end, and its transaction was aborted instead of committed: the cleaner of
    Hive 4.2 would wait forever.
    """
    entries = metastore.show_compactions()
    reported = {each.txn_id for each in entries if each.state == "ready for cleaning"} - {None}
    aborted = reported and {
        each.id for each in metastore.get_open_txns().txns if each.state is TxnState.ABORTED
    }
    for each in entries:
        if each.state == "ready for cleaning" and each.txn_id in aborted:
            reason = "its transaction was aborted"
        elif _has_dead_process(each):
            reason = "the process of the worker died"
        else:
            continue
        _log.warning("compaction %s of %s.%s: %s", each.id, each.database, each.table, reason)
        if each.state == "initiated":
            job = metastore.next_compaction(worker_id(), _VERSION, each.pool)
        else:
            job = metastore.compaction_job(each)
        if job is not None:  # otherwise another process was faster
            metastore.compaction_ended(job, CompactionEnd.FAILED, reason)


def _has_dead_process(entry: CompactionInfo) -> bool:
    """Return True if a process of this library on this machine requested or did it, and is dead."""
    name = {"working": entry.worker_id, "initiated": entry.pool}.get(entry.state, "")
    pid = name.removeprefix(worker_prefix()).partition("-")[0]
    return name.startswith(worker_prefix()) and pid.isdecimal() and not _is_alive(int(pid))


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
        _fail_abandoned(metastore)
    settings = CompactionSettings(threads, options or WriterOptions(), None, keep_old)
    with MutatorClientBuilder().metastore(metastore).build() as client:
        found = _taken_and_done(metastore, client, pool, settings)
    return _or_raised([*found.values()])[0] if found else None


def _taken_and_done(
    metastore: MetastoreClient,
    client: MutatorClient,
    pool: str | None,
    settings: CompactionSettings,
    count: int = 1,
) -> dict[str, CompactedDirectory | Exception]:
    """Take up to so many compactions of one table from the queue, and do them in one transaction.

    Returns:
        The results or errors by partition; empty if the queue is.
    """
    jobs: list[CompactionJob] = []
    with metastore_errors_as_ours("could not take a compaction from the queue"):
        while len(jobs) < count:
            job = metastore.next_compaction(worker_id(), _VERSION, pool)
            if job is None:
                break
            jobs.append(job)
    return compact_queued(metastore, client, jobs, settings) if jobs else {}


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
    sizes: Mapping[str, int] | None = None,
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
        sizes: the bytes of the partitions' files. Small ones then share a transaction, if nobody listens to
            the server's events about compactions, which name only one partition.
        at_once: the number of transactions at once. One without the queue, where a compaction waits
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
            _fail_abandoned(metastore)

    def compact(names: Sequence[str]) -> list[CompactedDirectory]:
        found: list[CompactedDirectory | Exception]
        if without_queue:
            (name,) = names
            found = [compact_unqueued(metastore, table, name, settings=settings, wait_seconds=wait_seconds)]
        else:
            found = _requested_and_done(metastore, client, table, names, kind, settings)
        for each in found:
            if isinstance(each, CompactedDirectory):
                progress(each)
        return _or_raised(found)

    is_shared = not without_queue and sizes is not None and _may_share(metastore, kind)
    groups = _groups(partitions, sizes or {}) if is_shared else [[each] for each in partitions]
    with MutatorClientBuilder().metastore(metastore).build() as client:
        return list(itertools.chain(*side_by_side(compact, groups, at_once)))


def _may_share(metastore: MetastoreClient, kind: CompactionType) -> bool:
    """Return True if compactions may share a transaction.

    When it commits, a server with a listener of events sends one event, about one of its partitions. Impala
    reads by these events which files are new.
    """
    with metastore_errors_as_ours("could not ask the server for its listeners"):
        listeners = metastore.get_config_value(_LISTENERS, "")
    return kind is not CompactionType.REBALANCE and not listeners.strip()


def _groups(partitions: Sequence[str], sizes: Mapping[str, int]) -> list[list[str]]:
    """Return the partitions in groups that share a transaction; a large one is alone."""
    groups: list[list[str]] = []
    byte_count = 0
    for partition in partitions:
        byte_count += sizes[partition]
        if not groups or len(groups[-1]) == MOST_TOGETHER or byte_count > MOST_BYTES_TOGETHER:
            groups.append([])
            byte_count = sizes[partition]
        groups[-1].append(partition)
    return groups


def _requested_and_done(
    metastore: MetastoreClient,
    client: MutatorClient,
    table: str,
    partitions: Sequence[str],
    kind: CompactionType,
    settings: CompactionSettings,
) -> list[CompactedDirectory | Exception]:
    """Compact partitions in one transaction, under a pool that no other worker serves."""
    database, name = split_full_name(table)
    pool = f"{worker_id()}-{next(_numbers)}"
    count = 0
    for partition in partitions:
        with metastore_errors_as_ours(f"table {_place(table, partition)}: cannot request a compaction"):
            count += metastore.compact(database, name, partition or None, kind, pool=pool)
    done = _taken_and_done(metastore, client, pool, settings, count) if count else {}
    return [
        done.get(partition)
        or CompactionError(
            f"table {_place(table, partition)}: a compaction is queued, running or not cleaned yet. Wait "
            "for it: hive-mutate show compactions"
        )
        for partition in partitions
    ]


def _place(table: str, partition: str) -> str:
    return f"{table}/{partition}" if partition else table


def _or_raised(found: Sequence[CompactedDirectory | Exception]) -> list[CompactedDirectory]:
    """Return the results, or raise the first error."""
    for each in found:
        if isinstance(each, Exception):
            raise each
    return [each for each in found if isinstance(each, CompactedDirectory)]


def _check_has_workers(metastore: MetastoreClient) -> None:
    if not metastore.capabilities().has_compaction_workers:
        raise ConfigurationError(
            f"the server is of {metastore.capabilities().line}, and only Hive 4 gives compactions to other "
            "programs. Let Hive compact (hive-mutate compact), or do without its queue: hive-mutate compact "
            "--engine local --without-queue"
        )
