"""Drivers that die at a chosen step, without the process that runs the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.errors import TxnAbortedError
from metastore_client.model import TxnState
from mutation_api.storage.local import LocalStorage

STORAGE_STEPS = ("create_directory", "create", "stage", "publish", "sync_directory", "delete_directory")
END = "end"
"""The step after the last."""


class Died(BaseException):
    """The driver is gone: whatever it would have done from here on is not done."""


class Mortal:
    """A driver's way to the metastore and to files; it dies before step number ``last``.

    From then on nothing gets through, as if the process had been killed, but the JVM of Spark need not start
    anew for every death.
    """

    def __init__(self, metastore: MetastoreClient, last: int | None = None) -> None:
        self.steps: list[str] = []
        self._metastore = metastore
        self._last = last
        self._guard = threading.Lock()

    @contextmanager
    def at_files(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The block in which changes of local files are steps, too."""
        with monkeypatch.context() as patched:
            for name in STORAGE_STEPS:
                patched.setattr(LocalStorage, name, self.wrap(name, getattr(LocalStorage, name)))
            yield

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._metastore, name)
        return self.wrap(name, found) if callable(found) else found

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*arguments: Any, **options: Any) -> Any:
            self.take(name)
            return function(*arguments, **options)

        return stepped

    def take(self, name: str) -> None:
        with self._guard:
            if name == "heartbeat_txn_range":
                if self._last is not None and len(self.steps) >= self._last:
                    raise TxnAbortedError("the driver is dead")
                return
            if name == "capabilities" or not (self.steps or name == "open_txn"):
                return
            self.steps.append(name)
            if self._last is not None and len(self.steps) >= self._last:
                raise Died(name)


def bury(metastore: MetastoreClient, user: str) -> None:
    """End what the dead left open, as the server's reaper does after its timeout."""
    for txn in metastore.get_open_txns().txns:
        if txn.user == user and txn.state is TxnState.OPEN:
            metastore.abort_txn(txn.id)


def last_of(steps: list[str]) -> Callable[[str], int]:
    """Tells the number of the last step of a name."""

    def number(name: str) -> int:
        return len(steps) - steps[::-1].index(name)

    return number
