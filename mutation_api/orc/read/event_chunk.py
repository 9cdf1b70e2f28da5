"""EventChunk: events of one stripe; some of their columns may be read later."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.merge_events import EventKeys
from mutation_api.acid.row_id import RecordIdentifier

__all__ = ["EventChunk", "LateColumns", "StripeEvents"]


class LateColumns:
    """Columns of some rows of a stripe, read on first use.

    Holds the values of these rows only, not of the whole stripe.

    Args:
        read: returns the values by column, in the order of the rows.
    """

    def __init__(self, read: Callable[[], dict[str, pa.Array]]) -> None:
        self._read = read

    @functools.cached_property
    def arrays(self) -> dict[str, pa.Array]:
        """Values by column."""
        return self._read()


@dataclass(frozen=True)
class EventChunk:
    """Events of one stripe: n keys and n values for each requested column (none for delete deltas).

    If only certain rows are wanted, ``late_rows`` (shape (n,)) holds the index of each row in ``late``; -1
    for a row that is not wanted, but needed in the merge. ``rows`` then lacks the columns of ``late``.
    """

    keys: EventKeys
    rows: dict[str, pa.Array]
    late: LateColumns | None = None
    late_rows: NDArray[np.int64] | None = None

    def slice(self, start: int, stop: int) -> EventChunk:
        """Events start..stop-1, without a copy."""
        rows = {name: array.slice(start, stop - start) for name, array in self.rows.items()}
        late_rows = None if self.late_rows is None else self.late_rows[start:stop]
        return EventChunk(self.keys.slice(start, stop), rows, self.late, late_rows)

    def take(self, indices: NDArray[np.int64]) -> EventChunk:
        """The events at these positions; without a copy if they are consecutive."""
        count = len(indices)
        if count and indices[-1] - indices[0] + 1 == count and bool((indices[1:] > indices[:-1]).all()):
            return self.slice(int(indices[0]), int(indices[-1]) + 1)
        taken = pa.array(indices)
        rows = {name: array.take(taken) for name, array in self.rows.items()}
        late_rows = None if self.late_rows is None else self.late_rows[indices]
        return EventChunk(self.keys.take(indices), rows, self.late, late_rows)

    def filter(self, mask: NDArray[np.bool_], *, with_keys: bool = True) -> EventChunk:
        """The events where the mask (shape (n,)) is true, without a copy if all are.

        ``with_keys``: whether the result has the keys of its events; otherwise it has them or none.
        """
        if mask.all():
            return self
        wanted = pa.array(mask)
        rows = {name: array.filter(wanted) for name, array in self.rows.items()}
        keys = self.keys.filter(wanted) if with_keys else self.keys.slice(0, 0)
        return EventChunk(keys, rows, self.late, None if self.late_rows is None else self.late_rows[mask])

    def complete(self) -> EventChunk:
        """The same events with all columns; each of them must be wanted."""
        if self.late is None:
            return self
        taken = pa.array(self.late_rows)
        late = {name: array.take(taken) for name, array in self.late.arrays.items()}
        return EventChunk(self.keys, self.rows | late)


@dataclass(frozen=True)
class StripeEvents:
    """One stripe of a file.

    Attributes:
        chunk: its events; rows that are not wanted may be missing.
        row_count: rows of the whole stripe.
        first: ROW__ID of its first event.
        complete_through: no later stripe has an event with a ROW__ID up to this one; None if unknown.
        is_last: whether this is the last stripe.
    """

    chunk: EventChunk
    row_count: int
    first: RecordIdentifier
    complete_through: RecordIdentifier | None
    is_last: bool
