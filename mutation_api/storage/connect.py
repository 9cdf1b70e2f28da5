"""The storage that holds a location, and files that are replaced as a whole. Only this module lists schemes.

Exports, reports and similar files may replace older ones; files of tables never replace others.
On a local disk, an older file is replaced in one step. Other storages cannot do that. There, the older file
is deleted when the new one is complete, just before the new one gets its name.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mutation_api.storage.hadoop_settings import HadoopSettings, active_spark_context, use_tokens
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile, Staged, Storage


@dataclass(frozen=True)
class _Kind:
    """A kind of storage.

    ``package`` is the name of its package here, which has ``connect(scheme, authority, settings)``. The extra
    with its dependencies has the same name. ``takes_tokens`` is true if it uses Hadoop's delegation tokens.
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
"""The number of reading threads. With more, threads would wait for the processor, since data must be decoded
after it is read."""


class _Connections:
    """The current settings of this process, and the storages that were opened with them."""

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
    """Use these settings in this process from now on. If None, those of the environment and of Spark."""
    with _connections.guard:
        _connections.configure(given)


def settings() -> HadoopSettings:
    """Return the settings of :func:`configure_storage`, or those of the environment and the Spark session.

    They are sent to workers.

    Raises:
        OSError: If a file is not a configuration (EINVAL).
    """
    with _connections.guard:
        return _connections.settings()


def token_issuers(locations: Iterable[Location]) -> tuple[str, ...]:
    """Return the locations' file systems for which workers need delegation tokens, as Hadoop names them."""
    if not settings().is_secure:
        return ()
    roots = {
        f"{each.scheme}://{each.authority}/"
        for each in locations
        if each.scheme in _KINDS and _KINDS[each.scheme].takes_tokens
    }
    return tuple(sorted(roots))


def storage_at(location: Location) -> Storage:
    """Return the storage that contains a location.

    Raises:
        OSError: If the scheme is not supported or its package is not installed (EPROTONOSUPPORT), or if a
            setting is invalid (EINVAL).
    """
    if location.scheme == "file":
        return _LOCAL
    with _connections.guard:
        return _connections.storage(location)


def reading_threads(storage: Storage) -> int:
    """Return the number of files to read in parallel. It is one on a local disk, where reads hardly wait."""
    return 1 if storage is _LOCAL else min(storage.threads, _READING_THREADS)


def _connect(location: Location, known: HadoopSettings) -> Storage:
    kind = _KINDS.get(location.scheme)
    if kind is None:
        schemes = ", ".join(sorted({"file", *_KINDS}))
        raise OSError(
            errno.EPROTONOSUPPORT, f"unsupported scheme; the supported schemes are: {schemes}", str(location)
        )
    try:
        module = importlib.import_module(f"mutation_api.storage.{kind.package}_storage")
    except ImportError as error:
        raise OSError(
            errno.EPROTONOSUPPORT,
            f"{location.scheme}: a required package is missing ({error.name}): "
            f"pip install hive-mutation-api[{kind.package}]",
            str(location),
        ) from error
    storage: Storage = module.connect(location.scheme, location.authority, known)
    return storage


_COPIED_BYTES = 4 * 1024 * 1024


@contextlib.contextmanager
def replacing(location: Location) -> Iterator[pa.NativeFile]:
    """Open a stream into a file that replaces an older one when the block ends without an error.

    After an error, no part of the new file remains. Its directory must exist.

    Raises:
        OSError: If the storage fails.
    """
    file = storage_at(location).stage(hidden_beside(location), location)
    try:
        with stream_into(file) as stream:
            yield stream
        file.close()
        _replace_older(file.staged, location)
    except BaseException:
        file.discard()
        raise


def stream_into(file: OutputFile) -> pa.NativeFile:
    """Return a stream that writes to the file. Closing the stream does not close the file."""
    return pa.PythonFile(_Sink(file), mode="w")


def move_to(part: Location, location: Location) -> None:
    """Rename a complete file and replace an older one with the new name.

    Raises:
        OSError: If the storage fails.
    """
    storage = storage_at(location)
    if storage.publishes_by_rename:
        _replace_older(Staged(part), location)
        return
    with storage.open_input(part) as source, replacing(location) as target:
        while block := source.read(_COPIED_BYTES):
            target.write(block)
    storage.delete_file(part)


def copy_file(source: Location, target: Location) -> None:
    """Copy a file of a table, which never changes, within a storage. On a local disk, the copy is a link.

    The target's directory must exist.

    Raises:
        FileExistsError: If the target exists.
        OSError: If the storage fails.
    """
    storage = storage_at(source)
    if isinstance(storage, LocalStorage) and storage.link(source, target):
        return
    file = storage_at(target).create(target)
    try:
        with storage.open_input(source) as stream:
            while block := stream.read(_COPIED_BYTES):
                file.write(block)
        file.close()
    except BaseException:
        file.discard()
        raise


def hidden_beside(location: Location) -> Location:
    """Return a new hidden name in the same directory."""
    return location.parent / f".{location.name}-{uuid.uuid4().hex}"


def _replace_older(staged: Staged, location: Location) -> None:
    if location.local_path is not None:
        os.replace(staged.location.path, location.path)  # noqa: PTH105 - both are strings
        return
    storage = storage_at(location)
    entry = storage.stat(location)
    if entry is not None and not entry.is_directory:
        storage.delete_file(location)
    storage.publish(staged, location)


class _Sink:
    """The methods of a file that pyarrow needs for writing."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._count = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._count += self._file.write(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._count

    def flush(self) -> None:
        """Do nothing: an incomplete file is not read."""

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""
        self.closed = True
