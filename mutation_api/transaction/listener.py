"""Callbacks, time measurements and errors of a running transaction.

:class:`LockFailureListener` is the user's callback for the loss of a transaction. :class:`Phases` measures
how long each step took. Errors of the metastore's client become errors of this package only here.
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


class LockFailureListener(Protocol):
    """The user's callback, called once per transaction from the heartbeat's thread as soon as a loss is
    known.

    The transaction can no longer be committed, so stop the work that still runs. An exception of the listener
    is logged and has no effect.
    """

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """Handle the loss of transaction ``txn_id`` and its lock on ``tables`` (``database.table``).

        ``error`` is the cause.
        """
        ...


class SaidByTheNextStep:
    """A listener that does nothing: the loss is logged, and the next step of the transaction raises it. It is
    meant for calls that begin and end a transaction by themselves. Callers that keep a transaction open
    should set their own listener.
    """

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """Do nothing; see :class:`LockFailureListener`."""


class Phases:
    """Seconds by name of a phase; each phase begins when the previous one ends."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._started = clock.now()

    def restart(self) -> None:
        """Begin the first phase now."""
        self._started = self._clock.now()

    def end(self, name: str) -> None:
        """End a phase."""
        now = self._clock.now()
        self.seconds[name] = now - self._started
        self._started = now


_CONFLICT = re.compile(r"write conflict on (?P<resource>.+?) committed by \[?(?:txnid:)?(?P<winner>\d+)")


def client_error(error: MetastoreError, doing: str) -> ClientError:
    """Return this package's error for a metastore's error, to be raised ``from`` it.

    ``doing`` names the failed step and its transaction.
    """
    text = f"{doing}: {error}"
    if isinstance(error, MetastoreUnavailableError):
        return ConnectionFailedError(f"{text}. The metastore could not be reached, or the connection broke")
    if isinstance(error, TxnAbortedError):
        return _aborted(error, text)
    if isinstance(error, NoSuchTxnError):
        return TransactionAbortedError(
            f"{text}. Another client ended the transaction; none of its changes are visible"
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
            f"{text}. The transaction timed out, or another client aborted it; none of its changes are "
            "visible: run the whole job again"
        )
    return WriteConflictError(
        f"{text}. Transaction {conflict['winner']} changed {conflict['resource']} and committed first. "
        "None of the changes of this transaction are visible: run the whole job again, against a new snapshot"
    )
