"""LockFailureListener: the user's callback for the loss of a running transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["LockFailureListener", "SaidByTheNextStep"]


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
