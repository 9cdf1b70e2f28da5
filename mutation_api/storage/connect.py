"""Which storage a location lies in: the only module that lists schemes."""

from __future__ import annotations

import errno
import importlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mutation_api.storage.hadoop_settings import HadoopSettings, active_spark_context
from mutation_api.storage.hdfs.token_file import use_tokens
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage

__all__ = ["configure_storage", "reading_threads", "settings", "storage_at", "token_issuers"]


@dataclass(frozen=True)
class _Kind:
    """A kind of storage.

    ``package`` names its package here, which has ``connect(scheme, authority, settings)``, and the extra with
    its dependencies. ``takes_tokens``: it uses Hadoop's delegation tokens.
    """

    package: str
    takes_tokens: bool = False


_KINDS: Mapping[str, _Kind] = {
    "hdfs": _Kind("hdfs", takes_tokens=True),
    "viewfs": _Kind("hdfs", takes_tokens=True),
    "s3a": _Kind("s3"),
    "gs": _Kind("gcs"),
    "abfss": _Kind("azure"),
}

_LOCAL = LocalStorage()
_READING_THREADS = 16
"""Data has to be decoded after it is read: more threads would wait for the processor, not for the storage."""


class _Connections:
    """The settings in force in this process, and the storages that were opened with them."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self._given: HadoopSettings | None = None
        self._found: HadoopSettings | None = None
        self._context: Any = None
        self._storages: dict[tuple[str, str], Storage] = {}

    def configure(self, given: HadoopSettings | None) -> None:
        if given is None or given != self._given:
            self._given = given
            self._found = None
            use_tokens(b"" if given is None else given.tokens)
            self._storages.clear()

    def settings(self) -> HadoopSettings:
        if self._given is not None:
            return self._given
        context = active_spark_context()
        if self._found is None or context is not self._context:
            found = HadoopSettings.from_environment()
            found = found if context is None else found.with_spark(context)
            if found != self._found:
                self._storages.clear()
            self._found, self._context = found, context
        return self._found

    def storage(self, location: Location) -> Storage:
        known = self.settings()
        key = (location.scheme, location.authority)
        if key not in self._storages:
            self._storages[key] = _connect(location, known)
        return self._storages[key]


_connections = _Connections()


def configure_storage(given: HadoopSettings | None) -> None:
    """Use these settings in this process from now on; None: those of the environment and of Spark."""
    with _connections.guard:
        _connections.configure(given)


def settings() -> HadoopSettings:
    """The settings of :func:`configure_storage`, else those of the environment and the Spark session.

    They travel to workers. Raises OSError (EINVAL) for a file that is not a configuration.
    """
    with _connections.guard:
        return _connections.settings()


def token_issuers(locations: Iterable[Location]) -> tuple[str, ...]:
    """Those file systems of the locations that want delegation tokens of workers, as Hadoop names them."""
    if not settings().is_secure:
        return ()
    roots = {
        f"{each.scheme}://{each.authority}/"
        for each in locations
        if each.scheme in _KINDS and _KINDS[each.scheme].takes_tokens
    }
    return tuple(sorted(roots))


def storage_at(location: Location) -> Storage:
    """The storage that holds a location.

    Raises:
        OSError: EPROTONOSUPPORT, the scheme is not supported or its package is not installed; EINVAL, a
            setting is invalid.
    """
    if location.scheme == "file":
        return _LOCAL
    with _connections.guard:
        return _connections.storage(location)


def reading_threads(storage: Storage) -> int:
    """Number of files to read in parallel: one on a local disk, where a read hardly waits."""
    return 1 if storage is _LOCAL else min(storage.threads, _READING_THREADS)


def _connect(location: Location, known: HadoopSettings) -> Storage:
    kind = _KINDS.get(location.scheme)
    if kind is None:
        schemes = ", ".join(sorted({"file", *_KINDS}))
        raise OSError(
            errno.EPROTONOSUPPORT, f"no storage is known for this scheme (there is: {schemes})", str(location)
        )
    try:
        module = importlib.import_module(f"mutation_api.storage.{kind.package}.{kind.package}_storage")
    except ImportError as error:
        raise OSError(
            errno.EPROTONOSUPPORT,
            f"{location.scheme}: needs a package that is missing ({error.name}): "
            f"pip install hive-mutation-api[{kind.package}]",
            str(location),
        ) from error
    storage: Storage = module.connect(location.scheme, location.authority, known)
    return storage
