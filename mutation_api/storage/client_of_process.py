"""ClientOfProcess: a client of a store, one for each process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["ClientOfProcess"]

_Client = TypeVar("_Client")


class ClientOfProcess(Generic[_Client]):
    """A client, made at its first use. A forked process makes its own: connections must not be shared."""

    def __init__(self, make: Callable[[], _Client]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._known: tuple[int, _Client] | None = None

    def get(self) -> _Client:
        """The client of this process."""
        process_id = os.getpid()
        known = self._known
        if known is not None and known[0] == process_id:
            return known[1]
        with self._guard:
            if self._known is None or self._known[0] != process_id:
                self._known = (process_id, self._make())
            return self._known[1]

    def forget(self, client: _Client) -> None:
        """Make a new client at the next :meth:`get`, unless this one has been replaced already."""
        with self._guard:
            if self._known is not None and self._known[1] is client:
                self._known = None
