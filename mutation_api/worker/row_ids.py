"""RowIds: the ROW__IDs of n changes as given: complete, in part or missing. Pure numpy and Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.acid.row_id import RowIdArrays

__all__ = ["Mask", "RowIds"]

Mask = NDArray[np.bool_]
"""Selects some of n changes; shape (n,)."""

_MISSING = -1


@dataclass(frozen=True)
class RowIds:
    """ROW__IDs of n changes; parts may be missing.

    Attributes:
        numbers: original transaction (in v2 write id), bucket field and row id; -1 where missing.
        present: masks of the present values of the three parts, in the same order.
        partitions: names of the partitions in the ROW__IDs, null where unknown; None if all are unknown.
    """

    numbers: RowIdArrays
    present: tuple[Mask, Mask, Mask]
    partitions: pa.StringArray | None = None

    @classmethod
    def none(cls, count: int) -> RowIds:
        """ROW__IDs that are all missing."""
        missing, absent = np.full(count, _MISSING, np.int64), np.zeros(count, np.bool_)
        return cls(RowIdArrays(missing, missing, missing), (absent, absent, absent))

    @classmethod
    def complete(cls, numbers: RowIdArrays) -> RowIds:
        """ROW__IDs that are all complete; partitions are unknown."""
        there = np.ones(len(numbers), np.bool_)
        return cls(numbers, (there, there, there))

    @classmethod
    def of_columns(cls, parts: Iterable[pa.Array], partitions: pa.Array | None = None) -> RowIds:
        """ROW__IDs from columns.

        Args:
            parts: original transaction, bucket field and row id: three columns of n whole numbers.
            partitions: n texts; None if they are unknown.

        Raises:
            pa.ArrowException: a column has another type.
        """
        columns = [part.cast(pa.int64()) for part in parts]
        numbers = RowIdArrays(*(np.asarray(pc.fill_null(column, _MISSING)) for column in columns))
        txns, buckets, row_ids = (np.asarray(pc.is_valid(column)) for column in columns)
        names = None if partitions is None else partitions.cast(pa.string())
        return cls(numbers, (txns, buckets, row_ids), names)

    def __len__(self) -> int:
        """Number of changes."""
        return len(self.numbers)

    @property
    def has_bucket(self) -> Mask:
        """The changes whose ROW__ID has a bucket; an insert may have a bucket only."""
        return self.present[1]

    @cached_property
    def is_complete(self) -> Mask:
        """The changes whose ROW__ID has all three parts."""
        complete: Mask = np.logical_and.reduce(self.present)
        return complete

    def shown(self, index: int) -> tuple[int | str | None, ...] | None:
        """One ROW__ID for a message: its parts, the partition last if known; None if all are missing."""
        parts = [
            number if mask[index] else None
            for number, mask in zip(self.numbers.at(index), self.present, strict=True)
        ]
        name = None if self.partitions is None else self.partitions[index].as_py()
        if name is None and not any(mask[index] for mask in self.present):
            return None
        return tuple(parts) if name is None else (*parts, name)
