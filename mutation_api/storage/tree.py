"""Walks over directories with several requests at once, and the permissions of new files.

Work that mostly waits for storage, done in parallel.

Lists everything below a directory with as few requests as a storage allows.

An object store has no directories. One request lists a thousand of all files below a location; a request for
each directory lists only a few. So a flat listing takes one request for a partition, and for a table a
thousandth of its number of files.

Checks before the first write whether this user may write.
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

__all__ = [
    "BACKGROUND_BYTES",
    "Background",
    "Directories",
    "FlatStorage",
    "KnowsPermissions",
    "ListedTree",
    "directories_below",
    "refused",
    "side_by_side",
]


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

BACKGROUND_BYTES = 64 * 1024 * 1024
"""Bound for files that are written but not closed. Their buffers are in memory, of large ones only a part."""
LARGEST_SHARE_BYTES = BACKGROUND_BYTES // 4
"""A larger file counts as this many bytes: no storage holds more of a file in memory."""


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """The results of ``work`` for all items, in their order; ``threads`` at a time (:attr:`Storage.threads`).

    Raises the error of the first item that failed, after all have been tried.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


class Background:
    """Work for which a writer need not wait: mostly the closing of files.

    It is bounded: :meth:`submit` waits if the number of threads, or BACKGROUND_BYTES of files that are not
    closed, would be exceeded. No thread starts before the first work.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._submitted_count = 0
        self._unfinished_count = 0
        self._byte_count = 0
        self._errors: dict[int, BaseException] = {}

    def submit(self, work: Callable[[], None], byte_count: int, threads: int) -> None:
        """Do work on a file of this many bytes in the background; the first call sets the number of threads.

        Raises the error of an earlier work.
        """
        self._raise_first()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads)
        byte_count = min(byte_count, LARGEST_SHARE_BYTES)
        number = self._enter(byte_count, threads)
        self._pool.submit(self._run, work, number, byte_count)

    def finish(self) -> None:
        """Wait for all work. Raises the first error."""
        self.stop()
        self._raise_first()

    def stop(self) -> None:
        """Wait for work that runs; its errors are dropped."""
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
    """Lists directories and opens files: a storage, or a listing taken from one."""

    def list(self, directory: Location) -> list[FileEntry]:
        """See :meth:`Storage.list`."""
        ...

    def open_input(self, location: Location) -> pa.NativeFile:
        """See :meth:`Storage.open_input`."""
        ...


@runtime_checkable
class FlatStorage(Protocol):
    """A storage that lists all files below a location as cheaply as those directly in it."""

    def list_below(self, directory: Location) -> Iterable[FileEntry]:
        """Files below a directory, in any order, and marks of directories as directories. Raises OSError."""
        ...


class ListedTree:
    """Everything that lay below some locations when they were listed.

    Args:
        storage: opens files, and lists all other locations.
        roots: the listed locations.
        entries: files and directories below them; the directories between need not be among them.
    """

    def __init__(self, storage: Storage, roots: Iterable[Location], entries: Iterable[FileEntry]) -> None:
        self._storage = storage
        self._roots = frozenset(roots)
        self._children: dict[Location, dict[str, FileEntry]] = {}
        for entry in entries:
            self._add(entry)

    def list(self, directory: Location) -> list[FileEntry]:
        """Children of a directory, sorted by name."""
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
        """Add an entry and the directories that hold it, up to the root."""
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
    """An object that lists the directories below some locations, in any storages.

    Where a flat listing is cheaper, everything is listed now; otherwise each directory when it is asked for.
    Missing locations are not directories. Raises OSError.
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
    """Asks the storage that holds a location."""

    known: Mapping[tuple[str, str], Directories]

    def list(self, directory: Location) -> list[FileEntry]:
        return self.known[_storage_of(directory)].list(directory)

    def open_input(self, location: Location) -> pa.NativeFile:
        return self.known[_storage_of(location)].open_input(location)


def _storage_of(location: Location) -> tuple[str, str]:
    return location.scheme, location.authority


@runtime_checkable
class KnowsPermissions(Protocol):
    """A storage that can report without writing whether this user may write."""

    threads: int

    def refusal(self, directory: Location) -> PermissionError | None:
        """Why this user may create nothing in a directory; None: the user may, or the directory is missing.

        Raises OSError.
        """
        ...


def refused(directories: Iterable[Location]) -> list[PermissionError]:
    """An error for each of these directories in which this user may create nothing.

    Storages that do not know permissions are not asked. Missing directories are fine. Raises OSError.
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
