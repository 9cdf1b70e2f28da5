"""KeyLog: the keys of the rows at which an encoder may end a stripe."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mutation_api.acid.row_id import RecordIdentifier, RowIdArrays

__all__ = ["KeyLog"]


class KeyLog:
    """ROW__IDs by number of rows up to and including the row; 28 to 32 bytes for each entry."""

    def __init__(self) -> None:
        self._ends: list[NDArray[np.int64]] = []
        self._keys: list[RowIdArrays] = []

    def note(self, ends: NDArray[np.int64], keys: RowIdArrays) -> None:
        """Add entries; ``ends`` ascend over all calls."""
        self._ends.append(ends)
        self._keys.append(keys)

    def at(self, ends: NDArray[np.int64]) -> list[RecordIdentifier]:
        """ROW__IDs of the rows at these ends. Raises KeyError if one was not recorded."""
        if not len(ends):
            return []
        known = np.concatenate(self._ends) if self._ends else np.zeros(1, np.int64)
        indices = np.minimum(np.searchsorted(known, ends), len(known) - 1)
        missing = ends[known[indices] != ends]
        if len(missing):
            raise KeyError(int(missing[0]))
        txns, buckets, numbers = (
            np.concatenate(parts)[indices].tolist()
            for parts in zip(*((k.original_txns, k.buckets, k.row_ids) for k in self._keys), strict=True)
        )
        return [RecordIdentifier(*key) for key in zip(txns, buckets, numbers, strict=True)]
