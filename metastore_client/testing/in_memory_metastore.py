"""InMemoryMetastore: the complete in-memory metastore, with the methods that only tests need."""

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
    ) -> bool:
        """Queue a compaction. Return False if one is already queued or running.

        See :meth:`MetastoreClient.compact`. The entry stays in the queue; nothing is compacted.
        """
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
        """Return the compaction queue and its history. See :meth:`MetastoreClient.show_compactions`."""
        return list(self._compactions)
