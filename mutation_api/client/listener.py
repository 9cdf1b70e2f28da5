"""LockFailureListener: who wants to hear that a running transaction was lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["LockFailureListener"]


class LockFailureListener(Protocol):
    """Told once per transaction, from the heartbeat's thread, as soon as the loss is known.

    The transaction cannot be committed any more. Work that still goes on is in vain: stop it. What the
    listener raises is logged and changes nothing.
    """

    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Sequence[str], error: Exception) -> None:
        """The lock of transaction ``txn_id`` on ``tables`` (``database.table``) is lost, because of
        ``error``.
        """
        ...
