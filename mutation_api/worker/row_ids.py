"""RowIds: the ROW__IDs of n changes as they came: whole, in part or not at all. Pure numpy and Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.acid.row_id import RowIdArrays

__all__ = ["Mask", "RowIds"]

Mask = npt.NDArray[np.bool_]
"""Which of n changes; shape (n,)."""

_MISSING = -1


@dataclass(frozen=True)
class RowIds:
    """ROW__IDs of n changes, of which parts may be missing.

    Attributes:
        numbers: original transaction (in v2 write id), bucket field and row id; -1 where missing.
        present: which of the three are there, in the same order.
        partitions: names of the partitions that they carry, null where unknown; None if none has one.
    """

    numbers: RowIdArrays
    present: tuple[Mask, Mask, Mask]
    partitions: pa.StringArray | None = None

    @classmethod
    def none(cls, count: int) -> RowIds:
        """No change has one."""
        missing, absent = np.full(count, _MISSING, np.int64), np.zeros(count, np.bool_)
        return cls(RowIdArrays(missing, missing, missing), (absent, absent, absent))

    @classmethod
    def complete(cls, numbers: RowIdArrays) -> RowIds:
        """Every change has all of it; partitions are not known."""
        there = np.ones(len(numbers), np.bool_)
        return cls(numbers, (there, there, there))

    @classmethod
    def of_columns(cls, parts: Iterable[pa.Array], partitions: pa.Array | None = None) -> RowIds:
        """From columns.

        Args:
            parts: original transaction, bucket field and row id: three columns of n whole numbers.
            partitions: n texts; None if they are not known.

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
        """Where at least the bucket is there; an insert may carry it alone."""
        return self.present[1]

    @cached_property
    def is_complete(self) -> Mask:
        """Where all three parts are there."""
        complete: Mask = np.logical_and.reduce(self.present)
        return complete

    def shown(self, index: int) -> tuple[int | str | None, ...] | None:
        """One of them for a message: its parts, the partition last if it is known; None if it has none."""
        parts = [
            number if mask[index] else None
            for number, mask in zip(self.numbers.at(index), self.present, strict=True)
        ]
        name = None if self.partitions is None else self.partitions[index].as_py()
        if name is None and not any(mask[index] for mask in self.present):
            return None
        return tuple(parts) if name is None else (*parts, name)
