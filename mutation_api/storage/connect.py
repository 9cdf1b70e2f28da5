"""Which storage a location lies in: the only place that lists schemes."""

from __future__ import annotations

import errno
import importlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage

__all__ = ["configure", "settings", "storage_at"]


@dataclass(frozen=True)
class _Kind:
    """A module here with ``connect(scheme, authority, settings)``, and the extra with what it needs."""

    module: str
    extra: str


_KINDS: Mapping[str, _Kind] = {
    "hdfs": _Kind("hdfs", "hdfs"),
    "viewfs": _Kind("hdfs", "hdfs"),
    "s3a": _Kind("s3", "s3"),
}

_LOCAL = LocalStorage()
_guard = threading.Lock()
_configured: HadoopSettings | None = None
_connected: dict[tuple[str, str], Storage] = {}


def configure(given: HadoopSettings) -> None:
    """Use these settings in this process from now on. What is open stays as it is."""
    global _configured
    with _guard:
        if given != _configured:
            _configured = given
            _connected.clear()


def settings() -> HadoopSettings:
    """What :func:`configure` set, else what the environment tells; it travels to workers."""
    with _guard:
        return _settings()


def storage_at(location: Location) -> Storage:
    """The storage that holds a location.

    Raises:
        OSError: EPROTONOSUPPORT, a scheme that this version cannot reach, or whose package is not installed;
            others, if the settings make no sense.
    """
    if location.scheme == "file":
        return _LOCAL
    key = (location.scheme, location.authority)
    with _guard:
        if key not in _connected:
            _connected[key] = _connect(location, _settings())
        return _connected[key]


def _settings() -> HadoopSettings:
    global _configured
    if _configured is None:
        _configured = HadoopSettings.from_environment()
    return _configured


def _connect(location: Location, known: HadoopSettings) -> Storage:
    kind = _KINDS.get(location.scheme)
    if kind is None:
        schemes = ", ".join(sorted({"file", *_KINDS}))
        raise OSError(
            errno.EPROTONOSUPPORT, f"no storage is known for this scheme (there is: {schemes})", str(location)
        )
    try:
        module = importlib.import_module(f"mutation_api.storage.{kind.module}")
    except ImportError as error:
        raise OSError(
            errno.EPROTONOSUPPORT,
            f"{location.scheme}: needs a package that is missing ({error.name}): "
            f"pip install hive-mutation-api[{kind.extra}]",
            str(location),
        ) from error
    storage: Storage = module.connect(location.scheme, location.authority, known)
    return storage
