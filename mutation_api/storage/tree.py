"""Lists everything below a directory with as few requests as a storage allows.

An object store has no directories. One request lists a thousand of all files below a location; a request for
each directory lists only a few. So a flat listing takes one request for a partition, and for a table a
thousandth of its number of files.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry, Storage, os_error
from mutation_api.storage.side_by_side import side_by_side

__all__ = ["Directories", "FlatStorage", "ListedTree", "directories_below"]


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
