"""WritePermissions: checks once for each partition whether this user may write there.

Without this check the commit would fail, after all the work.
"""

from __future__ import annotations

from functools import partial

from mutation_api.errors import DeltaWriteError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.permissions import KnowsPermissions
from mutation_api.storage.side_by_side import Background

__all__ = ["WritePermissions"]


class WritePermissions:
    """Checks permissions in the background of the writing, on storages that report them beforehand.

    Args:
        table_name: table of the partitions, for messages.
        background: runs the checks; its next call raises DeltaWriteError if a partition may not be written.
    """

    def __init__(self, table_name: str, background: Background) -> None:
        self._table_name = table_name
        self._background = background
        self._asked_for: set[Location] = set()

    def ask(self, partition_location: Location) -> None:
        """Start the check of a partition, once. Raises the error of earlier background work."""
        if partition_location in self._asked_for:
            return
        self._asked_for.add(partition_location)
        storage = storage_at(partition_location)
        if isinstance(storage, KnowsPermissions):
            work = partial(self._check, storage, partition_location)
            self._background.submit(work, 0, storage.threads)

    def _check(self, storage: KnowsPermissions, location: Location) -> None:
        refusal: OSError | None
        try:
            refusal = storage.refusal(location)
        except OSError as error:
            refusal = error
        if refusal is not None:
            raise DeltaWriteError(
                f"table {self._table_name}: {location} cannot be written: {refusal}"
            ) from refusal
