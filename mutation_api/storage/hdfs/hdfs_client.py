"""The client library for one HDFS: its address, and its requests.

Requests wait for a NameNode that is down, starts, or hands over to another. A client made before a fork hangs
for ever after it, so each process makes its own.
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
    """The URL of a NameNode, a name service or a mount table, as the client library wants it.

    Raises:
        OSError: EINVAL, neither the location nor ``fs.defaultFS`` names a NameNode.
    """
    if authority:
        return _url(scheme, authority, settings)
    default = settings.get("fs.defaultFS") or settings.get("fs.default.name") or ""
    if not default.startswith(f"{scheme}://"):
        raise OSError(
            errno.EINVAL,
            f"the location names no NameNode, and neither does fs.defaultFS ({default!r}): set "
            "HADOOP_CONF_DIR, or name the NameNode",
            f"{scheme}:/",
        )
    return default.rstrip("/")


def _url(scheme: str, authority: str, settings: HadoopSettings) -> str:
    services = [name.strip() for name in (settings.get("dfs.nameservices") or "").split(",")]
    if scheme == "hdfs" and ":" not in authority and authority not in services:
        return f"{scheme}://{authority}:{_DEFAULT_PORT}"
    return f"{scheme}://{authority}"


class PatientClient:
    """Makes requests to one HDFS and waits while it is down; ``settings`` are passed to the library."""

    def __init__(self, url: str, settings: HadoopSettings) -> None:
        """Raises OSError (EINVAL): a setting is not a number."""
        self.url = url
        self._patience = Patience(settings)
        self.settings = self._patience.settings
        self._guard = threading.Lock()
        self._clients: dict[int, Client] = {}

    @property
    def seconds(self) -> float:
        """About how long a request waits for an HDFS that is down."""
        return self._patience.seconds

    def ask(
        self,
        location: Location,
        work: Callable[[Client], _Result],
        *,
        again: Callable[[Client], _Result] | None = None,
    ) -> _Result:
        """Do ``work``; if the NameNode is down a while, later ``again``, which finds what ``work`` did."""

        def translated(ask: Callable[[Client], _Result]) -> _Result:
            with os_errors(location):
                return ask(self.connected())

        return self._patience.repeat(
            lambda: translated(work),
            is_passing,
            None if again is None else lambda: translated(again),
        )

    def connected(self) -> Client:
        """The library's client of this process. That of the parent is kept, since dropping it would hang."""
        process_id = os.getpid()
        client = self._clients.get(process_id)
        if client is None:
            with self._guard:
                client = self._clients.get(process_id) or Client(*log_in(self.url, self.settings))
                self._clients[process_id] = client
        return client
