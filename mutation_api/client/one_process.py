"""What only the process that made it can use: connections, clients, snapshots and transactions."""

from __future__ import annotations

import os
from typing import Any, ClassVar, NoReturn

from mutation_api.errors import TransactionStateError

__all__ = ["NotPickled", "OfOneProcess"]

_WAY_ON = (
    "send rows to the process that began it, or let workers write with the descriptor of a table "
    "(MutatorCoordinator with Transaction.table(name)) and add their manifests there"
)


class NotPickled:
    """Base class of what holds connections: it cannot be sent to another process, nor copied."""

    WHAT: ClassVar[str]
    """Its name in messages, with an article."""
    WAY_ON: ClassVar[str] = (
        "connect in each process by the metastore's address, or read here and send Arrow tables"
    )
    """What to do instead."""

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled. Raises TransactionStateError."""
        raise TransactionStateError(f"{self.WHAT} cannot be pickled for another process: {self.WAY_ON}")

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        """Refuse to be pickled. Raises TransactionStateError."""
        self.__reduce__()


class OfOneProcess(NotPickled):
    """Base class of what has a heartbeat and changes that no other process has.

    A process that was forked holds a copy. What it adds there is lost, and what it ends would end the
    transaction of the first process.
    """

    WHAT = "a transaction"
    WAY_ON = _WAY_ON

    def __init__(self) -> None:
        self._process_id = os.getpid()

    @property
    def is_of_another_process(self) -> bool:
        """Whether this is a copy in a process that was forked."""
        return os.getpid() != self._process_id

    def check_process(self) -> None:
        """Raise TransactionStateError in another process."""
        if self.is_of_another_process:
            raise TransactionStateError(
                f"this transaction belongs to process {self._process_id}; process {os.getpid()}, which was "
                f"forked, cannot use it: {_WAY_ON}"
            )
