"""Compactions that were taken from the queue of Hive 4, done in one transaction.

A transaction of the kind COMPACTION holds a shared lock on the table. New directories have it in their names
(``base_9_v12``, ``delta_4_9_v12``), so no reader sees them before the commit.

The end is reported to the queue after the commit. If a process reported it before and died in between, the
cleaner of Hive 4.2 would wait for that commit for ever, and no compaction of the partition would be accepted
again. After the commit, the worst that stays is an entry of a dead worker, which ends like all of them.

Small partitions of one table share a transaction, since opening, locking and committing take the server
several times as long as it takes to compact them. One that fails does not hold up the others: its directories
are removed before the commit. If they cannot be, nothing is committed.

Source: Hive's Worker and AcidCompactionService (4.0 to 4.2).
"""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from metastore_client.model import CompactionEnd, CompactionJob, TxnState
from mutation_api.errors import CommitOutcomeUnknownError, CompactionError
from mutation_api.storage.connect import storage_at
from mutation_api.transaction.hold import open_holds
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.snapshot import Snapshot
from mutation_api.upkeep.compacted_files import CompactedFile
from mutation_api.upkeep.compaction_terms import CompactedDirectory, CompactionSettings
from mutation_api.upkeep.compaction_view import compactable_view
from mutation_api.upkeep.kept_files import (
    KeptFiles,
    check_can_keep,
    keep_files,
    remove_expired,
    remove_kept,
)
from mutation_api.upkeep.partition_compaction import COMPACTED_KINDS, PartitionCompaction
from mutation_api.upkeep.rebalance import parse_order_by

_log = logging.getLogger(__name__)


def worker_id() -> str:
    """Return the name of this process as a worker: ``host-mutate-pid``."""
    return f"{worker_prefix()}{os.getpid()}"


def worker_prefix() -> str:
    """Return the beginning of the names of this machine's processes as workers."""
    return f"{os.uname().nodename}-mutate-"


def compact_queued(
    metastore: MetastoreClient,
    client: MutatorClient,
    jobs: Sequence[CompactionJob],
    settings: CompactionSettings,
) -> dict[str, CompactedDirectory | Exception]:
    """Do compactions of partitions of one table, of one kind, in one transaction.

    Args:
        metastore: the server that gave the compactions to this process.
        client: opens the transaction.
        jobs: the compactions, at least one.
        settings: how to compact each partition.

    Returns:
        The results by partition ('' if unpartitioned), or the errors of those that failed beside others that
        did not.

    Raises:
        CommitOutcomeUnknownError: If the answer to the commit was lost and nobody knows its outcome.
        Other errors: If all failed. See :func:`mutation_api.upkeep.compactor.compact_next`.
    """
    try:
        parts = _done(metastore, client, [_Part(metastore, job, settings) for job in jobs])
    except CommitOutcomeUnknownError:
        raise
    except BaseException as error:
        for job in jobs:
            _report_failure(metastore, job, error)
        raise
    for part in parts:
        if part.error is not None:
            _report_failure(metastore, part.job, part.error)
    kept_for = _holds_on(metastore, parts[0].name) if any(part.files is not None for part in parts) else ""
    return {part.partition: part.error or part.result(kept_for) for part in parts}


def _report_failure(metastore: MetastoreClient, job: CompactionJob, error: BaseException) -> None:
    _report(metastore, job, CompactionEnd.FAILED, f"{type(error).__name__}: {error}")


def _report(metastore: MetastoreClient, job: CompactionJob, end: CompactionEnd, reason: str = "") -> None:
    """Report to the queue how a compaction ended. If this fails, it is only logged."""
    try:
        metastore.compaction_ended(job, end, reason)
    except MetastoreError as failure:
        _log.warning("could not report the end of compaction %d: %s", job.id, failure)


def _done(metastore: MetastoreClient, client: MutatorClient, parts: list[_Part]) -> list[_Part]:
    job = parts[0].job
    name = f"{job.database}.{job.table}"
    if job.type not in COMPACTED_KINDS:
        raise CompactionError(
            f"table {name}: {job.type.name.lower()} compactions are left to Hive. Request a major one"
        )
    snapshot = client.open_compaction(name, job.type, [part.partition for part in parts])
    try:
        for part in parts:
            part.try_to(functools.partial(part.publish, snapshot))
        for part in parts:
            part.try_to(part.check)
        _check_committable(parts)
        snapshot.commit()
    except CommitOutcomeUnknownError:
        raise
    except BaseException:
        snapshot.abort()
        for part in parts:
            part.remove()
        raise
    for part in parts:
        if part.error is None:
            part.end()
    return parts


def _check_committable(parts: Sequence[_Part]) -> None:
    """Raise the first error if all failed. Refuse if a failed one has left a directory."""
    errors = [part.error for part in parts if part.error is not None]
    if len(errors) == len(parts):
        raise errors[0]
    for part in parts:
        part.check_removed()


@dataclass
class _Part:
    """One partition's compaction: its files, or the error that ended it."""

    metastore: MetastoreClient
    job: CompactionJob
    settings: CompactionSettings
    work: PartitionCompaction | None = None
    files: Sequence[CompactedFile] | None = None
    kept: KeptFiles | None = None
    outcome: CompactionEnd = CompactionEnd.DONE
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def partition(self) -> str:
        """The escaped name of the partition; '' for an unpartitioned table."""
        return self.job.partition or ""

    @property
    def name(self) -> str:
        """The full name of the table."""
        return f"{self.job.database}.{self.job.table}"

    def try_to(self, step: Callable[[], None]) -> None:
        """Take a step. An error ends this compaction and removes its files."""
        if self.error is not None:
            return
        began = time.monotonic()
        try:
            step()
        except Exception as error:
            self.error = error
            self.remove()
        self.seconds += time.monotonic() - began

    def publish(self, snapshot: Snapshot) -> None:
        """Plan the compaction, report its transaction, and write and publish the files."""
        settings, job = self.settings, self.job
        if job.num_buckets or job.order_by:
            settings = replace(
                settings,
                num_buckets=job.num_buckets or settings.num_buckets,
                sort_by=parse_order_by(job.order_by) if job.order_by else settings.sort_by,
            )
        view = compactable_view(snapshot, self.name, self.partition, settings.up_to)
        # Hive's worker takes the owner of the directory, which is the table's owner unless it was changed.
        owner = snapshot.description(self.name).owner
        last = view.valid_ids.high_watermark
        self.job = self.metastore.compaction_began(job, snapshot.txn_id, last, owner)
        if settings.keep_old is not None:
            check_can_keep(view.locations[self.partition])
        self.work = PartitionCompaction.planned(
            job.type, view, self.partition, snapshot.txn_id, settings, snapshot.confirm
        )
        self.files = self.work.publish() if self.work.is_needed else None

    def check(self) -> None:
        """Keep the old files if they are to be kept, and check that nobody else compacted the partition."""
        assert self.work is not None
        if self.files is None:
            # As Hive's worker does: without new files, the cleaner still removes those of aborted ids.
            self.outcome = CompactionEnd.DONE if self.work.has_unread else CompactionEnd.REFUSED
            return
        if self.work.settings.keep_old is not None:
            self.kept = keep_files(self.work, self.work.settings.keep_old)
        with metastore_errors_as_ours(f"table {self.name}: its compaction could not be committed"):
            self._check_no_rival()
            self._check_still_given()

    def end(self) -> None:
        """Report the committed compaction to the queue, and remove files that were kept long enough."""
        assert self.work is not None
        if self.files is None:
            _report(self.metastore, self.job, self.outcome, "there is nothing to compact")
            return
        _report(self.metastore, self.job, self.outcome)
        remove_expired(self.work.view.locations[self.partition])

    def remove(self) -> None:
        """Remove the files that were written or kept. A failure is only logged."""
        if self.kept is not None:
            remove_kept(self.kept.directory)
            self.kept = None
        if self.files is not None and self.work is not None:
            self.work.remove()

    def check_removed(self) -> None:
        """Refuse to commit if directories of a failed compaction are still there: readers would see them."""
        if self.error is None or self.work is None:
            return
        for directory in self.work.directories:
            if storage_at(directory).stat(directory) is not None:
                raise CompactionError(
                    f"table {self.name}: its compaction failed ({self.error}), and {directory} could not be "
                    "removed. Nothing was committed"
                ) from self.error

    def result(self, kept_for: str) -> CompactedDirectory:
        """Return the result of a compaction that succeeded; ``kept_for`` as there."""
        assert self.work is not None
        kind = self.job.type.name.lower()
        if self.files is None:
            return CompactedDirectory(self.name, self.partition, kind, None)
        return CompactedDirectory(
            self.name,
            self.partition,
            kind,
            self.work.directories[0].name,
            sum(file.row_count for file in self.files),
            sum(file.byte_count for file in self.files),
            self.work.byte_count,
            self.seconds,
            kept_for,
            "" if self.kept is None else self.kept.until,
        )

    def _check_no_rival(self) -> None:
        """Refuse if another worker has compacted the partition at the same time, or still does.

        Two compactors of this library look after their directories are there, so at least one finds the
        other.
        """
        assert self.work is not None
        rivals = self.work.rivals()
        if not rivals:
            return
        open_txns = self.metastore.get_open_txns().txns
        aborted = {each.id for each in open_txns if each.state is TxnState.ABORTED}
        for each in rivals:
            if each.compaction_txn not in aborted:
                raise CompactionError(
                    f"table {self.name}: the compaction of transaction {each.compaction_txn} wrote "
                    f"{each.name} at the same time. No row was changed, and the new files are removed"
                )

    def _check_still_given(self) -> None:
        """Refuse if the server has given the compaction to another worker.

        It takes a report from anybody, and would clean up after the other worker's compaction before its end.
        """
        for each in self.metastore.show_compactions(self.job.id):
            if (each.state, each.worker_id) != ("working", worker_id()):
                worker = f" by {each.worker_id}" if each.worker_id else ""
                raise CompactionError(
                    f"table {self.name}: the server no longer expects compaction {self.job.id} from this "
                    f"process: it is {each.state}{worker}. No row was changed, and the new files are removed"
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
