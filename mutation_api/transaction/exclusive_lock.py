"""Transactions that write nothing: one that only stays open, and one with the exclusive lock of DDL."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError
from metastore_client.hive_site import parse_duration_seconds
from metastore_client.model import DataOperationType, LockComponent, LockLevel, LockType
from mutation_api.transaction.clock import Clock
from mutation_api.transaction.heartbeat import Heartbeat
from mutation_api.transaction.lock import Lock
from mutation_api.transaction.mutator_client import TXN_TIMEOUT, TXN_TIMEOUT_DEFAULT, marks_of

_log = logging.getLogger(__name__)


@contextmanager
def open_transaction(metastore: MetastoreClient, user: str | None, clock: Clock) -> Iterator[Heartbeat]:
    """Keep a transaction without locks open in a ``with`` block, and return its heartbeat.

    Files that are staged under its id are not swept meanwhile.

    Args:
        metastore: the metastore.
        user: owner of the transaction. If None, this process's user.
        clock: times the heartbeats.

    Raises:
        MetastoreError: If the server failed.
    """
    marks = marks_of(user)
    txn_id = metastore.open_txn(marks.user, marks.hostname, marks.agent_info)
    txn_timeout = parse_duration_seconds(metastore.get_config_value(TXN_TIMEOUT, TXN_TIMEOUT_DEFAULT))
    heartbeat = Heartbeat(
        metastore, txn_id, txn_timeout, clock, on_lost=lambda lost: _log.warning("%s", lost)
    )
    try:
        heartbeat.start()
        yield heartbeat
    finally:
        heartbeat.stop()
        try:
            # Nothing was written in it. An aborted transaction would be listed until it is cleaned.
            metastore.commit_txn(txn_id)
        except MetastoreError as error:
            _log.warning("transaction %d was left to its timeout: %s", txn_id, error)


@contextmanager
def under_exclusive_lock(
    metastore: MetastoreClient,
    database: str,
    name: str,
    user: str | None,
    timeout: float,
    clock: Clock,
    *,
    partition: str | None = None,
) -> Iterator[int]:
    """Hold the exclusive lock that Hive's DDL takes on a table, in a transaction of its own; return its id.

    Args:
        metastore: the metastore of the table.
        database: the table's database.
        name: the table.
        user: owner of the lock. If None, this process's user.
        timeout: the longest wait for others, in seconds.
        clock: measures the wait.
        partition: the escaped name of the partition to lock. If None, the whole table.

    Raises:
        LockNotAcquiredError: If others used the table for too long.
        MetastoreError: If the server failed.
    """
    # SELECT, since Hive 2 refuses NO_TXN, with which Hive's own DDL has no transaction there.
    component = LockComponent(
        LockType.EXCLUSIVE,
        LockLevel.TABLE if partition is None else LockLevel.PARTITION,
        database,
        name,
        partition,
        DataOperationType.SELECT,
    )
    with open_transaction(metastore, user, clock) as heartbeat:
        lock = Lock(metastore, clock, heartbeat.txn_id, (component,), marks_of(user))
        try:
            if not lock.request():
                lock.wait(clock.now() + timeout)
            yield heartbeat.txn_id
        finally:
            heartbeat.stop()
            lock.give_up()
