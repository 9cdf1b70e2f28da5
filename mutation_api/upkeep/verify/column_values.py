"""ColumnValues: what statistics say of a column, counted from its values batch by batch, and compared.

Hive 4 answers ``min``, ``max`` and ``count`` of a column from statistics that the metastore calls accurate.
Numbers of distinct values and histograms are estimates, and are not compared.

Source: Hive's GenericUDAFComputeStats and StatsOptimizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.model import ColumnStatistics

__all__ = ["ColumnValues"]

_GREGORIAN = date(1582, 10, 15)


@dataclass
class ColumnValues:
    """The values of one column in a table or a partition. ``has_nan``: their range means nothing to Hive."""

    null_count: int = 0
    true_count: int = 0
    false_count: int = 0
    low: Any = None
    high: Any = None
    has_nan: bool = False

    def add(self, values: pa.Array) -> None:
        """Count some values of the column; timestamps have microseconds."""
        self.null_count += values.null_count
        if values.null_count == len(values):
            return
        if pa.types.is_boolean(values.type):
            trues = pc.sum(values).as_py()
            self.true_count += trues
            self.false_count += len(values) - values.null_count - trues
        elif _has_range(values.type):
            self._extend(values)

    def _extend(self, values: pa.Array) -> None:
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            self.has_nan = True
            return
        ends = pc.min_max(values)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def difference(self, recorded: ColumnStatistics) -> tuple[str, str] | None:
        """What the values have, and what is recorded of them instead; None if that is true."""
        if recorded.null_count != self.null_count:
            return f"{self.null_count} nulls", f"{recorded.null_count} nulls"
        if recorded.true_count is not None:
            counts = (self.true_count, self.false_count), (recorded.true_count, recorded.false_count)
            there, claimed = (f"{true} times true and {false} times false" for true, false in counts)
            return None if there == claimed else (there, claimed)
        ours, theirs = (_seconds(self.low), _seconds(self.high)), (recorded.low, recorded.high)
        if not self._is_comparable(ours, theirs) or ours == theirs:
            return None
        return _shown(*ours), _shown(*theirs)

    def misleads(self, recorded: ColumnStatistics) -> bool:
        """Whether a difference is one of nulls or range; how often a boolean is true answers no query."""
        return recorded.null_count != self.null_count or recorded.true_count is None

    def _is_comparable(self, ours: tuple[Any, Any], theirs: tuple[Any, Any]) -> bool:
        """Whether both count in one way: not so early days, NaN, and timestamps before Hive 4."""
        ends = [each for each in (*ours, *theirs) if each is not None]
        kinds = {date if isinstance(each, date) else float for each in ends}
        return not self.has_nan and len(kinds) < 2 and not any(_is_early(each) for each in ends)


def _has_range(data_type: pa.DataType) -> bool:
    kinds = pa.types
    of_numbers = (kinds.is_integer, kinds.is_floating, kinds.is_decimal)
    return any(is_one(data_type) for is_one in (*of_numbers, kinds.is_date, kinds.is_timestamp))


def _seconds(value: Any) -> Any:
    """A timestamp as the metastore records it; other values as they are."""
    return value.replace(microsecond=0) if isinstance(value, datetime) else value


def _is_early(value: Any) -> bool:
    """Whether it is a day that releases number differently."""
    day = value.date() if isinstance(value, datetime) else value
    return isinstance(day, date) and day < _GREGORIAN


def _shown(low: Any, high: Any) -> str:
    if low is None and high is None:
        return "no value"
    return f"values from {low} to {high}"
