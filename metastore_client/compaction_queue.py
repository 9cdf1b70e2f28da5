"""CompactionQueue: the part of a metastore client that requests compactions, and takes them as a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from metastore_client.model import CompactionEnd, CompactionInfo, CompactionJob, CompactionType


class CompactionQueue(Protocol):
    """The calls about compactions. See :class:`~metastore_client.client.MetastoreClient`."""

    def compact(
        self,
        database: str,
        table: str,
        partition: str | None,
        type: CompactionType,
        properties: Mapping[str, str] | None = None,
        *,
        pool: str | None = None,
    ) -> bool:
        """Queue a compaction. Return False if one is already queued or running.

        ``pool`` names the workers that may take it, which servers before Hive 4 ignore.
        """
        ...

    def show_compactions(self, id: int | None = None) -> list[CompactionInfo]:
        """Return the compaction queue and its history, or only the entry with a number (Hive 4)."""
        ...

    def next_compaction(
        self, worker_id: str, worker_version: str, pool: str | None = None
    ) -> CompactionJob | None:
        """Take a compaction from the queue. Return None if there is none.

        Args:
            worker_id: name of the worker, which the queue shows: ``host-number``.
            worker_version: version of the worker, which the queue shows.
            pool: take only compactions of this pool. If None, only those without a pool.

        Raises:
            UnsupportedByServerError: If the server does not have ``has_compaction_workers``.
        """
        ...

    def compaction_job(self, entry: CompactionInfo) -> CompactionJob:
        """Return the job of an entry of the queue, to report that its worker is dead. Makes no call."""
        ...

    def compaction_began(
        self, job: CompactionJob, txn_id: int, highest_write_id: int, run_as: str
    ) -> CompactionJob:
        """Report the transaction of a compaction, and the highest write id up to which it reads.

        If the transaction aborts, the server remembers it until its files are gone. ``run_as`` is the user as
        whom the server's cleaner removes old files, unless the request named one; without a user, the cleaner
        fails. Returns the job for later calls.
        """
        ...

    def compaction_ended(self, job: CompactionJob, end: CompactionEnd, reason: str = "") -> None:
        """Report how a compaction ended.

        After DONE, commit its transaction; the server then removes old files.

        ``reason`` is shown in the queue.
        """
        ...


def compactions_of(queue: CompactionQueue, database: str, table: str) -> list[CompactionInfo]:
    """Return the entries of one table (names in lower case) in the queue and its history."""
    return [each for each in queue.show_compactions() if (each.database, each.table) == (database, table)]
