"""ClientSession: what the transactions and snapshots of one connected client share; who hears of a loss."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from mutation_api.client.clock import Clock
from mutation_api.client.lease import LeaseSettings
from mutation_api.client.listener import LockFailureListener
from mutation_api.client.machine_queue import in_turn
from mutation_api.client.tables.catalog import Catalog, TableSpec
from mutation_api.errors import ClientError

__all__ = ["ClientSession", "call_quietly"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ClientSession:
    """A metastore, the settings for its use, and the tables of every transaction of the client."""

    metastore: MetastoreClient
    clock: Clock
    settings: LeaseSettings
    catalog: Catalog
    specs: tuple[TableSpec, ...]
    listener: LockFailureListener | None

    def in_turn(self, tables: Sequence[str]) -> AbstractContextManager[None]:
        """The block in which tables are described or changed; see :func:`.machine_queue.in_turn`."""
        return in_turn(self.metastore, tables, self.clock)

    def tell_listener(
        self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception
    ) -> None:
        """Report a loss to the user's listener. Its exceptions are logged."""
        if self.listener is None:
            return
        try:
            self.listener.lock_failed(lock_id, txn_id, tables, error)
        except Exception:
            _log.exception("the LockFailureListener failed on the loss of transaction %d", txn_id)


def call_quietly(callback: Callable[[ClientError], None], error: ClientError) -> None:
    """Tell a callback of a loss; its exceptions are logged."""
    try:
        callback(error)
    except Exception:
        _log.exception("a callback failed on the loss of a transaction")
