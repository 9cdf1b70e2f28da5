"""The outcome of a commit, even if the connection breaks, and aborts that are repeated.

=====================================  ====================================================================
first answer                           then
=====================================  ====================================================================
success                                committed
reported as aborted                aborted
no such transaction                    listed as aborted: aborted; else another client ended it: unknown
connection broken, or server fault     repeat the commit (which is harmless), then look up the transaction,
and abort it if it is still open =====================================
====================================================================

After a broken connection "no such transaction" means committed: the commit was done and its record was
removed. An aborted transaction that has recorded its writes would stay listed until its files are removed.

An abort that fails because the metastore is unreachable is repeated until it answers. A transaction that is
never aborted keeps its lock until the server's ``hive.txn.timeout`` has passed, and the next writer waits
that long. A metastore that restarts is back much sooner.

Source: TxnHandler.commitTxn and openTxns of Hive 2.3, observed on 2.3.10.
"""

from __future__ import annotations

import enum
import logging
import threading
import weakref
from dataclasses import dataclass, field

from metastore_client.client import MetastoreClient
from metastore_client.errors import (
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchTxnError,
    TxnAbortedError,
)
from metastore_client.model import TxnState
from mutation_api.errors import ClientError, CommitOutcomeUnknownError, TransactionAbortedError
from mutation_api.transaction.clock import Clock
from mutation_api.transaction.listener import client_error

COMMIT_RETRY_SECONDS = 60.0
"""Time to repeat a commit whose response was lost. A metastore can restart in that time."""

FIRST_PAUSE_SECONDS = 0.2
MAX_PAUSE_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Outcome(enum.Enum):
    """The outcome of a commit."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


def commit_and_find_out(
    metastore: MetastoreClient,
    clock: Clock,
    txn_id: int,
    *,
    has_records: bool,
    retry_seconds: float = COMMIT_RETRY_SECONDS,
) -> tuple[Outcome, MetastoreError | None]:
    """Commit a transaction and determine the outcome.

    Args:
        metastore: the metastore in which the transaction is open.
        clock: measures the time of the retries.
        txn_id: the transaction; its heartbeat has stopped.
        has_records: True if the server has recorded that the transaction wrote something.
        retry_seconds: limit of the retries; must be below the transaction's timeout.

    Returns:
        The outcome, and the metastore's error that explains why it is not COMMITTED.
    """
    try:
        metastore.commit_txn(txn_id)
    except TxnAbortedError as error:
        return Outcome.ABORTED, error
    except NoSuchTxnError as error:
        state, _ = _look(metastore, txn_id)
        is_aborted = state is TxnState.ABORTED or not has_records
        return (Outcome.ABORTED if is_aborted else Outcome.UNKNOWN), error
    except MetastoreError as error:
        _log.warning("the response to the commit of transaction %d was lost, asking again: %s", txn_id, error)
        return _ask_again(metastore, clock, txn_id, error, clock.now() + retry_seconds)
    return Outcome.COMMITTED, None


def _ask_again(
    metastore: MetastoreClient, clock: Clock, txn_id: int, first: MetastoreError, deadline: float
) -> tuple[Outcome, MetastoreError | None]:
    pause = FIRST_PAUSE_SECONDS
    error: MetastoreError | None = first
    while error is not None:
        if clock.now() >= deadline:
            return _settle(metastore, txn_id), error
        clock.sleep(min(pause, max(0.0, deadline - clock.now())))
        pause = min(pause * 2, MAX_PAUSE_SECONDS)
        error = _attempt(metastore, txn_id)
        if isinstance(error, TxnAbortedError):
            return Outcome.ABORTED, error
        if isinstance(error, NoSuchTxnError):
            state, has_looked = _look(metastore, txn_id)
            if has_looked:
                return _outcome_of(state), error
    return Outcome.COMMITTED, None


def _attempt(metastore: MetastoreClient, txn_id: int) -> MetastoreError | None:
    try:
        metastore.commit_txn(txn_id)
    except MetastoreError as error:
        return error
    return None


def _settle(metastore: MetastoreClient, txn_id: int) -> Outcome:
    """Abort the transaction if the server still lists it as open, so that it cannot be committed later."""
    state, looked = _look(metastore, txn_id)
    if not looked or state is not TxnState.OPEN:
        return _outcome_of(state) if looked else Outcome.UNKNOWN
    try:
        metastore.abort_txn(txn_id)
    except NoSuchTxnError:
        return Outcome.COMMITTED
    except MetastoreError:
        return Outcome.UNKNOWN
    return Outcome.ABORTED


def _outcome_of(state: TxnState | None) -> Outcome:
    if state is None:
        return Outcome.COMMITTED
    return Outcome.ABORTED if state is TxnState.ABORTED else Outcome.UNKNOWN


def _look(metastore: MetastoreClient, txn_id: int) -> tuple[TxnState | None, bool]:
    """Return the transaction's state (None if it is not listed), and whether the server answered."""
    try:
        listing = metastore.get_open_txns()
    except MetastoreError as error:
        _log.warning("could not look up the state of transaction %d: %s", txn_id, error)
        return None, False
    return next((t.state for t in listing.txns if t.id == txn_id), None), listing.high_watermark >= txn_id


def refused_commit(txn_id: int, error: MetastoreError | None) -> ClientError:
    """Return the error for a transaction that is aborted; ``error`` is the server's answer, if any."""
    doing = f"transaction {txn_id} could not be committed"
    return TransactionAbortedError(doing) if error is None else client_error(error, doing)


def unknown_outcome(txn_id: int, error: MetastoreError | None) -> CommitOutcomeUnknownError:
    """Return the error for a transaction whose commit may or may not have succeeded."""
    return CommitOutcomeUnknownError(
        f"transaction {txn_id}: the outcome of the commit could not be determined ({error}). Do not run the "
        "job again before you have checked 'hive-mutate show txns': if the transaction is listed as open "
        "or aborted, none of its changes are visible; if it is not listed, it is committed"
    )


ABORT_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
"""Each pause is twice as long as the previous one, up to this limit."""


@dataclass
class _Pending:
    """The remaining work for one metastore; its thread ends when nothing remains.

    ``until`` maps a transaction to the time of the clock at which the server has aborted it by itself.
    """

    until: dict[int, float] = field(default_factory=dict)
    closes: bool = False


_mutex = threading.Lock()
_pending: weakref.WeakKeyDictionary[MetastoreClient, _Pending] = weakref.WeakKeyDictionary()


def abort_later(metastore: MetastoreClient, txn_id: int, clock: Clock, timeout_seconds: float) -> None:
    """Abort a transaction as soon as the metastore answers again, in a thread that ends with the process.

    Args:
        metastore: a client that could not reach its server just now. See :func:`close_after_aborts`.
        txn_id: the transaction; it no longer has a heartbeat.
        clock: times the pauses.
        timeout_seconds: the server's ``hive.txn.timeout``, after which the server aborts by itself.
    """
    with _mutex:
        found = _pending.get(metastore)
        is_new = found is None
        if found is None:
            found = _pending[metastore] = _Pending()
        found.until[txn_id] = clock.now() + timeout_seconds
    if is_new:
        name = f"late aborts of {metastore!r}"
        threading.Thread(target=_work, args=(metastore, found, clock), name=name, daemon=True).start()


def close_after_aborts(metastore: MetastoreClient) -> None:
    """Close a metastore's client: immediately, or after the thread that still aborts transactions with it."""
    with _mutex:
        pending = _pending.get(metastore)
        if pending is not None:
            pending.closes = True
            return
    metastore.close()


def _work(metastore: MetastoreClient, pending: _Pending, clock: Clock) -> None:
    pause, never = ABORT_PAUSE_SECONDS, threading.Event()
    while _has_more(metastore, pending):
        clock.wait(never, pause)
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        with _mutex:
            waiting = dict(pending.until)
        for txn_id, until in waiting.items():
            if clock.now() >= until or _is_over(metastore, txn_id):
                with _mutex:
                    del pending.until[txn_id]
    if pending.closes:
        metastore.close()


def _has_more(metastore: MetastoreClient, pending: _Pending) -> bool:
    """Return True if transactions remain. If none remain, later ones get a new thread."""
    with _mutex:
        if not pending.until:
            del _pending[metastore]
        return bool(pending.until)


def _is_over(metastore: MetastoreClient, txn_id: int) -> bool:
    """Abort, and return True if the server has answered."""
    try:
        metastore.abort_txn(txn_id)
    except MetastoreUnavailableError:
        return False
    except MetastoreError as error:
        _log.debug("transaction %d had already ended: %s", txn_id, error)
    else:
        _log.info("transaction %d was aborted as soon as the metastore could be reached again", txn_id)
    return True
