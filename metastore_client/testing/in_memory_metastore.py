"""InMemoryMetastore: the complete in-memory metastore, with the methods that only tests need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from metastore_client.capabilities import Capabilities
from metastore_client.errors import UnsupportedByServerError
from metastore_client.model import CompactionEnd, CompactionInfo, CompactionJob, CompactionType
from metastore_client.testing.memory_transactions import MemoryTransactions
from metastore_client.testing.server_calls import HIVE_2_3, TXN_TIMEOUT_SECONDS_DEFAULT, server_call
from metastore_client.testing.written_resources import Resource, Written


class InMemoryMetastore(MemoryTransactions):
    """A metastore in this process.

    It is thread safe.

    Args:
        warehouse: directory for the default locations of tables. Directories of tables and partitions are
            then created (and removed by ``drop_table``), as a server does. If None, nothing is written to
            disk.
        txn_timeout_seconds: age of the last heartbeat at which :meth:`reap` aborts a transaction.
        clock: function that returns seconds since 1970. Pass your own to let time pass in a test.
        configuration: values that :meth:`get_config_value` returns.
        capabilities: the release of Hive to behave like: HIVE_2_3, HIVE_3_1 or HIVE_4_1.

    Attributes:
        calls: names of all calls, in the order of arrival.
        write_notifications: notifications received by :meth:`add_write_notifications`, without those of
            aborted transactions.
        kept_files: open transaction -> tables whose files it keeps. See :meth:`keep_files`.
    """

    def __init__(
        self,
        warehouse: str | Path | None = None,
        *,
        txn_timeout_seconds: float = TXN_TIMEOUT_SECONDS_DEFAULT,
        clock: Callable[[], float] = time.time,
        configuration: Mapping[str, str] | None = None,
        capabilities: Capabilities = HIVE_2_3,
    ) -> None:
        super().__init__(
            warehouse,
            txn_timeout_seconds=txn_timeout_seconds,
            clock=clock,
            configuration=configuration,
            capabilities=capabilities,
        )
        self._compactions: list[CompactionInfo] = []

    def reap(self) -> tuple[int, ...]:
        """Abort transactions and drop separate locks without heartbeats, as the server's reaper does.

        Returns:
            The ids of the aborted transactions.
        """
        with self._mutex:
            oldest = self._clock() - self.txn_timeout_seconds
            dead = tuple(t.id for t in self._txns.values() if not t.aborted and t.last_heartbeat < oldest)
            for txn_id in dead:
                self._abort(self._txns[txn_id])
            self._locks.remove_separate(oldest)
            return dead

    def forget_empty_aborted(self) -> tuple[int, ...]:
        """Remove aborted transactions that recorded nothing, as the server's compaction initiator does.

        From then on, readers consider these ids as committed.
        """
        with self._mutex:
            empty = tuple(t.id for t in self._txns.values() if t.aborted and not t.written)
            for txn_id in empty:
                del self._txns[txn_id]
            return empty

    @server_call
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

        See :meth:`MetastoreClient.compact`. The entry stays in the queue until a worker takes it.
        """
        entry = CompactionInfo(
            database=database.lower(),
            table=table.lower(),
            partition=partition,
            type=type,
            state="initiated",
            id=len(self._compactions) + 1,
            enqueue_time=int(time.time() * 1000) if self._capabilities.has_compaction_workers else None,
            pool=(pool or "") if self._capabilities.has_compaction_workers else "",
        )
        same = (entry.database, entry.table, entry.partition)
        queued = [c for c in self._compactions if c.state in ("initiated", "working")]
        if any((c.database, c.table, c.partition) == same for c in queued):
            return False
        self._compactions.append(entry)
        return True

    @server_call
    def show_compactions(self, id: int | None = None) -> list[CompactionInfo]:
        """Return the compaction queue and its history. See :meth:`MetastoreClient.show_compactions`."""
        return [each for each in self._compactions if id in (None, each.id)]

    @server_call
    def next_compaction(
        self, worker_id: str, worker_version: str, pool: str | None = None
    ) -> CompactionJob | None:
        """Take a compaction from the queue. See :meth:`MetastoreClient.next_compaction`."""
        del worker_version
        if not self.capabilities().has_compaction_workers:
            raise UnsupportedByServerError("only Hive 4 lets other programs run compactions")
        for each in self._compactions:
            assert each.id is not None
            if each.state == "initiated" and each.pool == (pool or ""):
                self._change(each.id, state="working", worker_id=worker_id)
                return CompactionJob(
                    each.id, each.database, each.table, each.partition, each.type, "", each.id
                )
        return None

    def compaction_job(self, entry: CompactionInfo) -> CompactionJob:
        """Return the job of an entry of the queue. See :meth:`MetastoreClient.compaction_job`."""
        assert entry.id is not None
        return CompactionJob(
            entry.id, entry.database, entry.table, entry.partition, entry.type, entry.run_as, entry.id
        )

    @server_call
    def compaction_began(
        self, job: CompactionJob, txn_id: int, highest_write_id: int, run_as: str
    ) -> CompactionJob:
        """Report the transaction of a compaction. See :meth:`MetastoreClient.compaction_began`."""
        self._txns[txn_id].written.append(Written(Resource(job.database, job.table, job.partition), "c"))
        self._change(job.id, highest_write_id=highest_write_id, run_as=job.run_as or run_as, txn_id=txn_id)
        return replace(job, run_as=job.run_as or run_as)

    @server_call
    def compaction_ended(self, job: CompactionJob, end: CompactionEnd, reason: str = "") -> None:
        """Report how a compaction ended. See :meth:`MetastoreClient.compaction_ended`."""
        states = {
            CompactionEnd.DONE: "ready for cleaning",
            CompactionEnd.FAILED: "failed",
            CompactionEnd.REFUSED: "refused",
        }
        self._change(job.id, state=states[end], error=reason)

    def _change(self, id: int, **changes: Any) -> None:
        self._compactions[id - 1] = replace(self._compactions[id - 1], **changes)
