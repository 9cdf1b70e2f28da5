"""Pairs of source and target rows with equal keys. Pure numpy and Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.worker.row_ids import Mask

__all__ = ["Pairs", "SourceKeys"]

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """n pairs: indices of their rows in the source and in the target's rows."""

    source: Indices
    target: Indices


@dataclass(frozen=True)
class SourceKeys:
    """The keys of the source's rows.

    Attributes:
        rows: a column for each key column, in the table's types; a row for each source row.
        lost: source rows with a value that equals no value of its column; they match nothing.
        null_safe: whether NULL equals NULL.
    """

    rows: pa.RecordBatch
    lost: Mask
    null_safe: bool

    @cached_property
    def distinct(self) -> pa.Table:
        """The keys that may match, each once."""
        rows = self._filter.keys
        known = rows.filter(pa.array(~self.lost)) if self.lost.any() else rows
        kept = known if self.null_safe else known.drop_null()
        return kept if self.is_unique else kept.group_by(kept.column_names).aggregate([])

    @property
    def is_unique(self) -> bool:
        """Whether no two source rows that may match have the same key."""
        codes = self._codes[1]
        return len(codes) == 0 or int(np.bincount(codes).max()) == 1

    def pairs(self, target_keys: Sequence[pa.Array]) -> Pairs:
        """All pairs of rows with equal keys.

        Args:
            target_keys: n values of each key column, in the order and types of ``rows``.
        """
        positions, codes = self._codes
        order = np.argsort(codes, kind="stable")
        in_order = codes[order]
        found, wanted = self._filter.encode(target_keys)
        first = np.searchsorted(in_order, wanted, side="left")
        counts = np.searchsorted(in_order, wanted, side="right") - first
        target = np.repeat(found, counts)
        ends = np.cumsum(counts)
        within = np.arange(len(target)) - np.repeat(ends - counts, counts)
        return Pairs(positions[order[np.repeat(first, counts) + within]], target)

    @cached_property
    def _filter(self) -> KeyFilter:
        return KeyFilter(pa.Table.from_batches([self.rows]), self.null_safe)

    @cached_property
    def _codes(self) -> tuple[Indices, Indices]:
        """Source rows that may match, and the number of the key of each."""
        positions, codes = self._filter.encode(self.rows.columns)
        if self.lost.any():
            kept = ~self.lost[positions]
            positions, codes = positions[kept], codes[kept]
        return positions, codes
