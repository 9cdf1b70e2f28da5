"""WritePermissions: asks once for each partition whether this user may write there.

What was written for one that may not be written would be refused by the committer, after all the work.
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
    """Asks storages that know beforehand, in the background of the writing.

    Args:
        table_name: whose partitions, for messages.
        background: does the asking; its next call raises DeltaWriteError if one may not be written.
    """

    def __init__(self, table_name: str, background: Background) -> None:
        self._table_name = table_name
        self._background = background
        self._asked_for: set[Location] = set()

    def ask(self, partition_location: Location) -> None:
        """Have it asked for, unless it was. Raises what an earlier question, or other work there, raised."""
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
