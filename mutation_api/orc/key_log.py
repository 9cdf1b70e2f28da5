"""KeyLog: the keys of the rows at which an encoder may end a stripe."""

from __future__ import annotations

import numpy as np

__all__ = ["KeyLog"]


class KeyLog:
    """(original_txn, row_id) by number of rows up to and including the row; 24 bytes for each entry."""

    def __init__(self) -> None:
        self._ends: list[np.ndarray] = []
        self._txns: list[np.ndarray] = []
        self._row_ids: list[np.ndarray] = []

    def note(self, ends: np.ndarray, txns: np.ndarray, row_ids: np.ndarray) -> None:
        """Add entries; ``ends`` ascend over all calls."""
        self._ends.append(ends)
        self._txns.append(txns)
        self._row_ids.append(row_ids)

    def at(self, ends: np.ndarray) -> tuple[list[int], list[int]]:
        """Original_txns and row_ids of the rows at these ends. Raises KeyError for one that was not noted."""
        if not len(ends):
            return [], []
        known = np.concatenate(self._ends) if self._ends else np.zeros(1, np.int64)
        places = np.minimum(np.searchsorted(known, ends), len(known) - 1)
        missing = ends[known[places] != ends]
        if len(missing):
            raise KeyError(int(missing[0]))
        return np.concatenate(self._txns)[places].tolist(), np.concatenate(self._row_ids)[places].tolist()
