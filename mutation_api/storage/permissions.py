"""Where this user may not write, asked before anything is written."""

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
    """A storage that can say beforehand, without writing, whether this user may write."""

    threads: int

    def refusal(self, directory: Location) -> PermissionError | None:
        """Why this user may make nothing in a directory; None: it may be, or is not there.

        Raises OSError.
        """
        ...


def refused(directories: Iterable[Location]) -> list[PermissionError]:
    """Why this user may make nothing in some of these directories: an error for each, with its text.

    Other storages are not asked; missing directories are fine. Raises OSError.
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
