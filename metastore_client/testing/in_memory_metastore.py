"""InMemoryMetastore: the whole of it, and what a test can do to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from metastore_client.capabilities import Capabilities
from metastore_client.model import CompactionInfo, CompactionType
from metastore_client.testing.memory_transactions import MemoryTransactions
from metastore_client.testing.server_calls import HIVE_2_3, TXN_TIMEOUT_SECONDS_DEFAULT, server_call

__all__ = ["InMemoryMetastore"]


class InMemoryMetastore(MemoryTransactions):
    """A metastore that lives in this process.

    Thread safe. ``calls`` names every call in the order of arrival.

    Args:
        warehouse: directory under which tables get their default location. Directories of tables and
            partitions are then created (and removed by ``drop_table``), as a server does. Without a warehouse
            the disk is not touched.
        txn_timeout_seconds: age of the last heartbeat at which :meth:`reap` aborts a transaction.
        clock: seconds since 1970; pass your own to let time pass in a test.
        configuration: answers of :meth:`get_config_value`.
        capabilities: which release of Hive it behaves like: HIVE_2_3, HIVE_3_1 or HIVE_4_1.

    Attributes:
        calls: see above.
        write_notifications: those received by :meth:`add_write_notifications`, without aborted transactions.
        kept_files: open transaction -> tables of which it keeps the files; see :meth:`keep_files`.
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
        """Do what the server's reaper does: abort transactions and drop separate locks without heartbeats.

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
        """Do what the server's compaction initiator does: remove aborted transactions that recorded nothing.

        From then on readers take their ids for committed.
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
    ) -> bool:
        """See :meth:`MetastoreClient.compact`; the queue is kept, nothing is ever compacted."""
        entry = CompactionInfo(
            database=database.lower(),
            table=table.lower(),
            partition=partition,
            type=type,
            state="initiated",
            id=len(self._compactions) + 1,
        )
        same = (entry.database, entry.table, entry.partition)
        if any((c.database, c.table, c.partition) == same for c in self._compactions):
            return False
        self._compactions.append(entry)
        return True

    @server_call
    def show_compactions(self) -> list[CompactionInfo]:
        """See :meth:`MetastoreClient.show_compactions`."""
        return list(self._compactions)
