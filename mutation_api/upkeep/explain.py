"""explain_transaction: the state of a transaction, the locks that it waits for, its files, and what to do
next.

The metastore lists transactions that are open, or aborted and not yet cleaned. It reports nothing about all
other transactions: they have committed, or were aborted and are forgotten. It never reports why a transaction
was aborted; causes that can be inferred from times are reported with their certainty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from metastore_client.hive_site import parse_duration_seconds
from metastore_client.model import LockInfo, LockState, OpenTxns, TxnInfo, TxnState
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction.catalog import Catalog, TableSpec, normal_full_name, split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.transaction_files import (
    TransactionDirectory,
    transaction_directories,
    transactions_of_write_ids,
)

OPEN, ABORTED, OVER, UNKNOWN = "open", "aborted", "over", "unknown"
"""States; OVER: committed, or aborted so long ago that the metastore has forgotten it."""

_TIMEOUT, _TIMEOUT_DEFAULT = "hive.txn.timeout", "300s"
_SURE_SECONDS = 30.0
"""Allowed difference between this machine's clock and the server's."""

_BEATS_PER_TIMEOUT = 2
"""Minimum number of heartbeats per timeout of Hive's clients; this library sends more.

Source: DbTxnManager.getHeartbeatInterval.
"""


@dataclass(frozen=True)
class HeldUp:
    """A waiting lock of the transaction, and the lock that it waits for, as far as the server reports it."""

    lock: LockInfo
    blocked_by: LockInfo | None


@dataclass(frozen=True)
class TransactionTable:
    """A table of the transaction. ``own_id`` is the transaction's id in file names, None if not known.

    ``reason`` states why the table could not be examined.
    """

    table: str
    own_id: int | None
    directories: tuple[TransactionDirectory, ...]
    reason: str | None = None


@dataclass(frozen=True)
class TransactionExplanation:
    """All available information.

    ``causes``: why it was aborted, most certain first; ``advice``: what to do next.
    """

    txn_id: int
    state: str
    txn: TxnInfo | None
    locks: tuple[LockInfo, ...]
    held_up: tuple[HeldUp, ...]
    holds_up: tuple[LockInfo, ...]
    tables: tuple[TransactionTable, ...]
    causes: tuple[str, ...]
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as one JSON object; times are in seconds since 1970."""
        txn = self.txn
        return {
            "txn": self.txn_id,
            "state": self.state,
            "user": txn.user if txn else None,
            "hostname": txn.hostname if txn else None,
            "agent_info": (txn.agent_info or None) if txn else None,
            "started": _seconds(txn.started_time) if txn else None,
            "last_heartbeat": _seconds(txn.last_heartbeat_time) if txn else None,
            "locks": [_lock_json(lock) for lock in self.locks],
            "held_up": [
                {
                    "lock": _lock_json(each.lock),
                    "by": None if each.blocked_by is None else _lock_json(each.blocked_by),
                }
                for each in self.held_up
            ],
            "holds_up": [_lock_json(lock) for lock in self.holds_up],
            "tables": [_table_json(table) for table in self.tables],
            "causes": list(self.causes),
            "advice": list(self.advice),
        }


def explain_transaction(
    metastore: MetastoreClient,
    txn_id: int,
    tables: Sequence[str] = (),
    *,
    now: Callable[[], float] = time.time,
) -> TransactionExplanation:
    """Explain the state of a transaction. Changes nothing.

    Args:
        metastore: the metastore in which it was opened.
        txn_id: the transaction.
        tables: ``database.table`` to search for files, in addition to those on which it holds locks; an
            aborted or committed transaction holds none.
        now: this machine's clock, in seconds since 1970.

    Raises:
        ConfigurationError: If ``txn_id`` is below 1, or a name is not the full name of a table.
        ConnectionFailedError, TransactionError: If the server could not be queried.
        OSError: If a directory cannot be listed.
    """
    if txn_id < 1:
        raise ConfigurationError(f"transaction {txn_id}: ids begin at 1")
    named = [normal_full_name(name) for name in tables]
    with metastore_errors_as_ours(f"could not explain transaction {txn_id}"):
        open_txns = metastore.get_open_txns()
        locks = metastore.show_locks()
        timeout = parse_duration_seconds(metastore.get_config_value(_TIMEOUT, _TIMEOUT_DEFAULT))
        txn = next((each for each in open_txns.txns if each.id == txn_id), None)
        own = tuple(lock for lock in locks if lock.txn_id == txn_id)
        names = sorted({*named, *(f"{lock.database}.{lock.table}" for lock in own if lock.table)})
        looked_at = tuple(_table(metastore, name, txn_id, open_txns) for name in names)
    state = _state(txn, txn_id, open_txns)
    held_up = tuple(_held_up(own, locks))
    silent = None if txn is None else _silent_seconds(txn, now())
    return TransactionExplanation(
        txn_id=txn_id,
        state=state,
        txn=txn,
        locks=own,
        held_up=held_up,
        holds_up=tuple(_held_by(own, locks)),
        tables=looked_at,
        causes=tuple(_causes(state, silent, timeout)),
        advice=tuple(_advice(txn_id, state, silent, timeout, held_up, looked_at)),
    )


def _state(txn: TxnInfo | None, txn_id: int, open_txns: OpenTxns) -> str:
    if txn is not None:
        return OPEN if txn.state is TxnState.OPEN else ABORTED
    return OVER if txn_id <= open_txns.high_watermark else UNKNOWN


def _silent_seconds(txn: TxnInfo, now: float) -> float | None:
    """Return the time since its last heartbeat, or since it began."""
    millis = txn.last_heartbeat_time or txn.started_time
    return None if millis is None else now - millis / 1000


def _held_up(own: Sequence[LockInfo], locks: Sequence[LockInfo]) -> Iterator[HeldUp]:
    by_id = {lock.lock_id: lock for lock in reversed(locks)}
    for lock in own:
        if lock.state is LockState.WAITING:
            yield HeldUp(lock, None if lock.blocked_by is None else by_id.get(lock.blocked_by))


def _held_by(own: Sequence[LockInfo], locks: Sequence[LockInfo]) -> Iterator[LockInfo]:
    """Yield locks of others that wait for one of its own."""
    ids = {lock.lock_id for lock in own}
    for lock in locks:
        if lock.state is LockState.WAITING and lock.blocked_by in ids and lock.lock_id not in ids:
            yield lock


def _table(metastore: MetastoreClient, name: str, txn_id: int, open_txns: OpenTxns) -> TransactionTable:
    catalog = Catalog(metastore)
    try:
        opened = catalog.with_partitions(
            catalog.read_with_partition_names(TableSpec(*split_full_name(name), TableRole.SOURCE))
        )
    except (TableNotMutableError, NoSuchObjectError) as error:
        return TransactionTable(name, None, (), str(error))
    table = opened.table
    own_id: int | None = txn_id
    if table.version.uses_write_ids:
        pairs = transactions_of_write_ids(metastore, name, open_txns.high_watermark)
        own_id = next((id for id, txn in pairs.items() if txn == txn_id), None)
    partitions = [p.name for p in opened.partitions or ()] if table.partition_keys else [""]
    return TransactionTable(name, own_id, tuple(transaction_directories(table, partitions, txn_id, own_id)))


def _causes(state: str, silent: float | None, timeout: float) -> Iterator[str]:
    if state != ABORTED:
        return
    if silent is not None and silent < timeout - _SURE_SECONDS:
        yield (
            f"it did not time out: its last heartbeat was {silent:.0f} s ago, and the timeout is "
            f"{timeout:.0f} s"
        )
        yield (
            "so its client or another client aborted it (hive-mutate abort, ABORT TRANSACTIONS), or its "
            "commit was refused because another transaction had changed the same partition (write conflict); "
            "the log of its client shows which"
        )
        return
    yield (
        f"maybe a timeout: no heartbeat for {silent or 0:.0f} s, and the timeout is {timeout:.0f} s; an "
        "explicit abort just before it would look the same"
    )
    yield "otherwise an explicit abort, or a write conflict at its commit; its client's log shows which"


def _advice(
    txn_id: int,
    state: str,
    silent: float | None,
    timeout: float,
    held_up: Sequence[HeldUp],
    tables: Sequence[TransactionTable],
) -> Iterator[str]:
    staged = [d for table in tables for d in table.directories if d.is_staged]
    if state == UNKNOWN:
        yield "there is no such transaction yet: check the number, and the metastore's address"
    elif state == OPEN:
        yield from _advice_for_open(txn_id, silent, timeout, held_up)
    elif state == ABORTED:
        yield "none of its changes are visible: run its work again"
    else:
        yield (
            "it has committed, or it was aborted and the metastore no longer lists it: directories with "
            "its id that verify reports as sound are visible"
        )
    if staged and state in (ABORTED, OVER):
        names = ", ".join(sorted({t.table for t in tables if any(d.is_staged for d in t.directories)}))
        yield f"its staged files are no longer needed: hive-mutate sweep {names}"


def _advice_for_open(
    txn_id: int, silent: float | None, timeout: float, held_up: Sequence[HeldUp]
) -> Iterator[str]:
    if silent is not None and silent > timeout + _SURE_SECONDS:
        yield (
            f"its client is gone (no heartbeat for {silent:.0f} s), and the server has not aborted it: "
            f"hive-mutate abort {txn_id}"
        )
        return
    is_silent = silent is not None and silent > _longest_pause(timeout) + min(_SURE_SECONDS, timeout / 4)
    if silent is not None and is_silent:
        yield _advice_for_silent(txn_id, silent, timeout)
    blockers = sorted({each.blocked_by.txn_id or 0 for each in held_up if each.blocked_by is not None})
    for blocker in blockers:
        yield (
            f"it waits for transaction {blocker}: hive-mutate explain {blocker}"
            if blocker
            else "it waits for a lock outside any transaction: hive-mutate show locks"
        )
    if held_up and not blockers:
        yield "it waits; the server does not report for whom: hive-mutate show locks"
    if not held_up and not is_silent:
        yield "its client is working: wait, or ask its user; hive-mutate abort would end it"


def _longest_pause(timeout: float) -> float:
    return timeout / _BEATS_PER_TIMEOUT


def _advice_for_silent(txn_id: int, silent: float, timeout: float) -> str:
    """Return advice on a transaction that has missed a heartbeat and has hardly timed out, if at all."""
    left = timeout - silent
    when = f"in {left:.0f} s" if left >= 1 else "now"
    return (
        f"its client is probably gone, or cut off from the metastore: its last heartbeat was {silent:.0f} s "
        f"ago, and a client sends one at least every {_longest_pause(timeout):.0f} s. Without one, the "
        f"server may abort it {when} ({_TIMEOUT} is {timeout:.0f} s), when it next checks for timeouts. "
        f"Wait for that, or if you know that the client is dead, hive-mutate abort {txn_id}"
    )


def _seconds(millis: int | None) -> float | None:
    return None if millis is None else millis / 1000


def _lock_json(lock: LockInfo) -> dict[str, Any]:
    return {**vars(lock), "state": lock.state.name.lower(), "type": lock.type.name.lower()}


def _table_json(table: TransactionTable) -> dict[str, Any]:
    directories = [{**vars(each), "location": str(each.location)} for each in table.directories]
    return {"table": table.table, "own_id": table.own_id, "directories": directories, "reason": table.reason}
