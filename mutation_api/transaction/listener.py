"""Listeners, phases of a transaction, and its failures.

LockFailureListener: the user's callback for the loss of a running transaction.

Phases: how long each step of a transaction took.

Turns the metastore client's errors into errors of this package, at the boundary and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from metastore_client.errors import (
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchTxnError,
    TxnAbortedError,
)
from mutation_api.errors import (
    ClientError,
    ConnectionFailedError,
    LockLostError,
    TransactionAbortedError,
    TransactionError,
    WriteConflictError,
)
from mutation_api.transaction.clock import Clock

__all__ = ["LockFailureListener", "Phases", "SaidByTheNextStep", "client_error", "metastore_errors_as_ours"]


class LockFailureListener(Protocol):
    """Called once per transaction, from the heartbeat's thread, as soon as the loss is known.

    The transaction cannot be committed any more, so stop the work that still runs. An exception of the
    listener is logged and changes nothing.
    """

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """The lock of transaction ``txn_id`` on ``tables`` (``database.table``) is lost, because of
        ``error``.
        """
        ...


class SaidByTheNextStep:
    """Does nothing: the loss is logged, and raised by the next step of its transaction.

    For calls that begin and end a transaction by themselves; whoever keeps one open should hear of a loss.
    """

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """See :class:`LockFailureListener`."""


class Phases:
    """Seconds by the name of a phase; each begins when the one before it ends."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._started = clock.now()

    def restart(self) -> None:
        """The first phase begins now."""
        self._started = self._clock.now()

    def end(self, name: str) -> None:
        """A phase ends."""
        now = self._clock.now()
        self.seconds[name] = now - self._started
        self._started = now


_CONFLICT = re.compile(r"write conflict on (?P<resource>.+?) committed by \[?(?:txnid:)?(?P<winner>\d+)")


def client_error(error: MetastoreError, doing: str) -> ClientError:
    """Our error for a metastore's error, to be raised ``from`` it.

    ``doing`` names the failed step and its transaction.
    """
    text = f"{doing}: {error}"
    if isinstance(error, MetastoreUnavailableError):
        return ConnectionFailedError(f"{text}. The metastore could not be reached, or the connection broke")
    if isinstance(error, TxnAbortedError):
        return _aborted(error, text)
    if isinstance(error, NoSuchTxnError):
        return TransactionAbortedError(
            f"{text}. Another client ended the transaction; nothing of it is visible"
        )
    if isinstance(error, NoSuchLockError):
        return LockLostError(
            f"{text}. The lock ended with its transaction, which timed out or was aborted by another client"
        )
    return TransactionError(text)


@contextmanager
def metastore_errors_as_ours(doing: str) -> Iterator[None]:
    """Raise :func:`client_error` for every MetastoreError of the block."""
    try:
        yield
    except MetastoreError as error:
        raise client_error(error, doing) from error


def _aborted(error: TxnAbortedError, text: str) -> TransactionAbortedError:
    conflict = _CONFLICT.search(str(error))
    if conflict is None:
        return TransactionAbortedError(
            f"{text}. The transaction timed out, or another client aborted it; nothing of it is visible: run "
            "the whole job again"
        )
    return WriteConflictError(
        f"{text}. Transaction {conflict['winner']} changed {conflict['resource']} and committed first; "
        "nothing of ours is visible: run the whole job again, against a new snapshot"
    )
