"""Checks before the first write whether this user may write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.side_by_side import side_by_side

__all__ = ["KnowsPermissions", "refused"]


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
