"""Walks over directories with as few requests as a storage allows, and the check for write permission.

An object store has no directories. One request lists a thousand of all files below a location, while a
request for each directory lists only a few. So a flat listing takes one request for a partition. For a table,
it takes one request per thousand files. Work that mostly waits for storage runs in parallel.

Write permission is checked before the first write.
"""

from __future__ import annotations

import errno
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage, os_error

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

BACKGROUND_BYTES = 64 * 1024 * 1024
"""Limit on the bytes of files that are written but not closed.

Their buffers are in memory. For a large file, only a part of its bytes is in memory.
"""
LARGEST_SHARE_BYTES = BACKGROUND_BYTES // 4
"""A larger file counts as this many bytes, since no storage holds more of a file in memory."""


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """Run ``work`` for all items, ``threads`` at a time, and return the results in the order of the items.

    For ``threads`` see :attr:`Storage.threads`. After all items have been tried, the error of the first
    failed item is raised.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


class Background:
    """Work for which a writer need not wait, mostly the closing of files.

    Threads and bytes are limited: :meth:`submit` waits while there are too many threads, or more than
    BACKGROUND_BYTES of files that are not closed. No thread starts before the first work.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._submitted_count = 0
        self._unfinished_count = 0
        self._byte_count = 0
        self._errors: dict[int, BaseException] = {}

    def submit(self, work: Callable[[], None], byte_count: int, threads: int) -> None:
        """Do work on a file of this many bytes in the background. The first call sets the number of threads.

        If earlier work failed, its error is raised.
        """
        self._raise_first()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads)
        byte_count = min(byte_count, LARGEST_SHARE_BYTES)
        number = self._enter(byte_count, threads)
        self._pool.submit(self._run, work, number, byte_count)

    def finish(self) -> None:
        """Wait for all work and raise the first error."""
        self.stop()
        self._raise_first()

    def stop(self) -> None:
        """Wait for running work and drop its errors."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _run(self, work: Callable[[], None], number: int, byte_count: int) -> None:
        error = None
        try:
            work()
        except BaseException as caught:  # raised by the next call
            error = caught
        with self._changed:
            if error is not None:
                self._errors[number] = error
            self._unfinished_count -= 1
            self._byte_count -= byte_count
            self._changed.notify()

    def _enter(self, byte_count: int, threads: int) -> int:
        with self._changed:
            self._changed.wait_for(
                lambda: self._unfinished_count < threads and self._byte_count + byte_count <= BACKGROUND_BYTES
            )
            self._unfinished_count += 1
            self._byte_count += byte_count
            self._submitted_count += 1
            return self._submitted_count

    def _raise_first(self) -> None:
        with self._changed:
            if self._errors:
                raise self._errors[min(self._errors)]


class Directories(Protocol):
    """A storage, or a listing taken from one, that lists directories and opens files."""

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory. See :meth:`Storage.list`."""
        ...

    def open_input(self, location: Location) -> pa.NativeFile:
        """Return a stream over a file. See :meth:`Storage.open_input`."""
        ...


@runtime_checkable
class FlatStorage(Protocol):
    """A storage that lists all files below a location as cheaply as those directly in it."""

    def list_below(self, directory: Location) -> Iterable[FileEntry]:
        """List the files below a directory, in any order. Marks of directories are listed as directories.

        Raises:
            OSError: If the storage fails.
        """
        ...


class ListedTree:
    """Everything that existed below some locations when they were listed.

    Args:
        storage: storage that opens files and lists all other locations.
        roots: the listed locations.
        entries: files and directories below the roots. The directories in between may be missing.
    """

    def __init__(self, storage: Storage, roots: Iterable[Location], entries: Iterable[FileEntry]) -> None:
        self._storage = storage
        self._roots = frozenset(roots)
        self._children: dict[Location, dict[str, FileEntry]] = {}
        for entry in entries:
            self._add(entry)

    def list(self, directory: Location) -> list[FileEntry]:
        """Return the children of a directory, sorted by name."""
        if not self._covers(directory):
            return self._storage.list(directory)
        found = self._children.get(directory)
        if found is None:
            raise os_error(errno.ENOENT, directory)
        return [found[name] for name in sorted(found)]

    def open_input(self, location: Location) -> pa.NativeFile:
        """Open a file."""
        return self._storage.open_input(location)

    def _add(self, entry: FileEntry) -> None:
        """Add an entry and the directories that contain it, up to the root."""
        if entry.is_directory:
            self._children.setdefault(entry.location, {})
        while entry.location not in self._roots:
            parent = entry.location.parent
            known = self._children.setdefault(parent, {}).setdefault(entry.name, entry)
            if known is not entry or parent == entry.location:
                return
            entry = FileEntry(parent, True, 0)

    def _covers(self, directory: Location) -> bool:
        while directory not in self._roots:
            if directory.path == "/":
                return False
            directory = directory.parent
        return True


def directories_below(roots: Iterable[Location]) -> Directories:
    """Return an object that lists the directories below some locations, in any storages.

    If a flat listing is cheaper, everything is listed now. Otherwise, each directory is listed on request.
    Missing locations are not directories.

    Raises:
        OSError: If a storage fails.
    """
    by_storage: dict[tuple[str, str], list[Location]] = {}
    for root in dict.fromkeys(roots):
        by_storage.setdefault(_storage_of(root), []).append(root)
    return _ByStorage({key: _below(locations) for key, locations in by_storage.items()})


def _below(roots: Sequence[Location]) -> Directories:
    storage = storage_at(roots[0])
    if not isinstance(storage, FlatStorage):
        return storage
    found = side_by_side(lambda root: list(storage.list_below(root)), roots, storage.threads)
    return ListedTree(storage, roots, itertools.chain.from_iterable(found))


@dataclass(frozen=True)
class _ByStorage:
    """Listings of several storages, each used for its own locations."""

    known: Mapping[tuple[str, str], Directories]

    def list(self, directory: Location) -> list[FileEntry]:
        return self.known[_storage_of(directory)].list(directory)

    def open_input(self, location: Location) -> pa.NativeFile:
        return self.known[_storage_of(location)].open_input(location)


def _storage_of(location: Location) -> tuple[str, str]:
    return location.scheme, location.authority


@runtime_checkable
class KnowsPermissions(Protocol):
    """A storage that can report, without writing, whether this user may write."""

    threads: int

    def refusal(self, directory: Location) -> PermissionError | None:
        """Return the reason why this user may not create files in a directory.

        Return None if the user may, or if the directory is missing.

        Raises:
            OSError: If the storage fails.
        """
        ...


def refused(directories: Iterable[Location]) -> list[PermissionError]:
    """Return an error for each of these directories in which this user may not create files.

    Storages that do not know permissions are skipped. Missing directories are not errors.

    Raises:
        OSError: If a storage fails.
    """
    by_storage: dict[KnowsPermissions, list[Location]] = defaultdict(list)
    for directory in directories:
        storage = storage_at(directory)
        if isinstance(storage, KnowsPermissions):
            by_storage[storage].append(directory)
    return [
        error
        for storage, locations in by_storage.items()
        for error in side_by_side(storage.refusal, locations, storage.threads)
        if error is not None
    ]
