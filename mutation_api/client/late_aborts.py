"""Aborts that the metastore could not be told: they are tried again until it answers.

A transaction that is never aborted keeps its lock until the server's ``hive.txn.timeout`` has passed, and the
next writer waits for that long. A metastore that restarts is back much sooner.
"""

from __future__ import annotations

import logging
import threading
import weakref
from dataclasses import dataclass, field

from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError, MetastoreUnavailableError
from mutation_api.client.clock import Clock

__all__ = ["abort_later", "close_after_aborts"]

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
"""Each pause is twice the one before, up to this one."""

_log = logging.getLogger(__name__)


@dataclass
class _Pending:
    """What is left to do with one metastore; the thread that does it ends when nothing is left.

    ``until`` holds by transaction the time of the clock at which the server has given it up.
    """

    until: dict[int, float] = field(default_factory=dict)
    closes: bool = False


_mutex = threading.Lock()
_pending: weakref.WeakKeyDictionary[MetastoreClient, _Pending] = weakref.WeakKeyDictionary()


def abort_later(metastore: MetastoreClient, txn_id: int, clock: Clock, timeout_seconds: float) -> None:
    """Abort a transaction as soon as the metastore answers again, in a thread that ends with the process.

    Args:
        metastore: could not be reached just now. See :func:`close_after_aborts`.
        txn_id: nothing beats for it any more.
        clock: times the pauses.
        timeout_seconds: the server's ``hive.txn.timeout``; after it the server has aborted by itself.
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
    """Close a metastore's client: at once, or by the thread that still has transactions to abort with it."""
    with _mutex:
        pending = _pending.get(metastore)
        if pending is not None:
            pending.closes = True
            return
    metastore.close()


def _work(metastore: MetastoreClient, pending: _Pending, clock: Clock) -> None:
    pause, never = FIRST_PAUSE_SECONDS, threading.Event()
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
    """Whether there are transactions left. If not, later ones get a thread of their own."""
    with _mutex:
        if not pending.until:
            del _pending[metastore]
        return bool(pending.until)


def _is_over(metastore: MetastoreClient, txn_id: int) -> bool:
    """Abort. Returns whether the server has answered."""
    try:
        metastore.abort_txn(txn_id)
    except MetastoreUnavailableError:
        return False
    except MetastoreError as error:
        _log.debug("transaction %d was already over: %s", txn_id, error)
    else:
        _log.info("transaction %d is aborted, now that the metastore can be reached again", txn_id)
    return True
