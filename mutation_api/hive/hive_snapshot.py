"""HiveSnapshot: a consistent view of some tables, as a ``with`` block."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from mutation_api.client.mutator_client import MutatorClient
from mutation_api.client.one_process import NotPickled
from mutation_api.client.past_snapshot import AsOf, PastSnapshot
from mutation_api.client.snapshot import Snapshot
from mutation_api.errors import TransactionStateError
from mutation_api.hive.hive_table import SnapshotTable
from mutation_api.local.local_options import LocalOptions

__all__ = ["HiveSnapshot"]


class HiveSnapshot(NotPickled):
    """The tables as they are when its block begins. Made by ``Hive.snapshot``.

    Its read lock keeps Hive from removing the files. Other transactions change the tables meanwhile.

    Args:
        client: not connected yet; it is closed with the snapshot.
        tables: ``database.table``.
        local: memory and threads.
        as_of: the point in the past; None: now.
    """

    WHAT = "a snapshot"

    def __init__(
        self,
        client: MutatorClient,
        tables: Sequence[str],
        local: LocalOptions,
        as_of: AsOf | None = None,
    ) -> None:
        self._client = client
        self._names = tables
        self._local = local
        self._as_of = as_of
        self._snapshot: Snapshot | PastSnapshot | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether it was closed."""
        return self._is_over

    def open(self) -> HiveSnapshot:
        """Open it, as the ``with`` statement does; returns self. Does nothing if it is open.

        Raises:
            TransactionStateError: it was closed.
            TableNotMutableError: a table does not exist or has no ROW__IDs.
            DirectoryStateError: a compaction took the past that is asked for.
            LockNotAcquiredError, ConnectionFailedError, TransactionError: see Transaction.begin.
        """
        if self._is_over:
            raise TransactionStateError("the snapshot is closed: take another one")
        if self._snapshot is None:
            try:
                self._snapshot = self._opened(self._client.connect())
            except BaseException:
                self.close()
                raise
        return self

    def _opened(self, client: MutatorClient) -> Snapshot | PastSnapshot:
        if self._as_of is None:
            return client.open_snapshot(*self._names)
        return client.open_snapshot(*self._names, as_of=self._as_of)

    def table(self, name: str) -> SnapshotTable:
        """One of its tables.

        Raises:
            TransactionStateError: it is not open.
            ConfigurationError: it does not hold the table.
        """
        if self._snapshot is None:
            raise TransactionStateError(
                "the snapshot is not open: use it in a with statement, or call open()"
            )
        return SnapshotTable(self._snapshot, name, self._local)

    def close(self) -> None:
        """Release the lock. May be called twice."""
        self._is_over = True
        self._client.close()

    def __enter__(self) -> HiveSnapshot:
        """Open."""
        return self.open()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
