"""The client library's view of one HDFS: where it is, and how it is asked.

A NameNode that is away, starts, or hands over to another is waited for. A client that was made before a fork
hangs for ever after it, so each process has one of its own.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from hdfs_native import Client

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.hdfs.hdfs_errors import is_passing, os_errors
from mutation_api.storage.hdfs.hdfs_login import log_in
from mutation_api.storage.hdfs.patience import Patience
from mutation_api.storage.location import Location

__all__ = ["PatientClient", "url_of"]

_DEFAULT_PORT = 8020

_Result = TypeVar("_Result")


def url_of(scheme: str, authority: str, settings: HadoopSettings) -> str:
    """Where a NameNode, a name service or a mount table is, as the client library wants it.

    Raises:
        OSError: EINVAL, the location names no NameNode and ``fs.defaultFS`` none either.
    """
    if authority:
        return _url(scheme, authority, settings)
    default = settings.get("fs.defaultFS") or settings.get("fs.default.name") or ""
    if not default.startswith(f"{scheme}://"):
        raise OSError(
            errno.EINVAL,
            f"a location without a NameNode goes by fs.defaultFS, which is {default!r}: set HADOOP_CONF_DIR, "
            "or name the NameNode",
            f"{scheme}:/",
        )
    return default.rstrip("/")


def _url(scheme: str, authority: str, settings: HadoopSettings) -> str:
    services = [name.strip() for name in (settings.get("dfs.nameservices") or "").split(",")]
    if scheme == "hdfs" and ":" not in authority and authority not in services:
        return f"{scheme}://{authority}:{_DEFAULT_PORT}"
    return f"{scheme}://{authority}"


class PatientClient:
    """Asks one HDFS, and waits for it; ``settings`` are those that the library gets."""

    def __init__(self, url: str, settings: HadoopSettings) -> None:
        """Raises OSError (EINVAL): a setting is no number."""
        self.url = url
        self._patience = Patience(settings)
        self.settings = self._patience.settings
        self._guard = threading.Lock()
        self._clients: dict[int, Client] = {}

    @property
    def seconds(self) -> float:
        """About how long an HDFS that is away is waited for."""
        return self._patience.seconds

    def ask(
        self,
        location: Location,
        work: Callable[[Client], _Result],
        *,
        again: Callable[[Client], _Result] | None = None,
    ) -> _Result:
        """Ask the NameNode; if it is away for a while, later ``again``, which finds what ``work`` did."""

        def translated(ask: Callable[[Client], _Result]) -> _Result:
            with os_errors(location):
                return ask(self.connected())

        return self._patience.repeat(
            lambda: translated(work),
            is_passing,
            None if again is None else lambda: translated(again),
        )

    def connected(self) -> Client:
        """The library's client of this process; that of the parent is kept, too, for it would hang when it is
        dropped.
        """
        process_id = os.getpid()
        client = self._clients.get(process_id)
        if client is None:
            with self._guard:
                client = self._clients.get(process_id) or Client(*log_in(self.url, self.settings))
                self._clients[process_id] = client
        return client
