"""GrowingColumn: the SQL that reads rows by a growing column.

An extraction reads the rows whose value is not below a bound. A row falls out of that condition in two ways:

* its value is not a point of the order: NULL, NaN, an infinity, a zero date. Such rows are read each time.
  Their values are never the bound, since nothing would ever lie above NaN;
* its value is below the bound, since the application or a clock gave a smaller one. The numbers of rows
  below the bound show that: they may only fall, as rows are deleted or get greater values. They are counted
  in BUCKETS groups by key and value, so that a row that came rarely makes up for another one that went.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["BUCKETS", "GrowingColumn", "appeared_below", "minus"]

BUCKETS = 512
"""Groups in which the rows below the bound are counted; a power of two."""


def minus(literal: str, overlap: str) -> str:
    """Return the SQL of a number minus an overlap."""
    return f"{literal} - {overlap}"


@dataclass(frozen=True)
class GrowingColumn:
    """A growing column in the SQL of its database; ``{0}`` stands for the column or the value.

    Attributes:
        name: the column.
        bucket: the group of a row, from 0 to BUCKETS - 1; ``{1}`` stands for its key columns.
        shown: the greatest value as text from which ``literal`` makes the same value again.
        literal: the value of such a text.
        regular: the condition of values that can be the bound; empty if all can.
        lowest: the condition of values below all others, which are read each time; empty if there are none.
        others: the condition of rows that are read each time because of the kind of the bound's literal.
        lowered: the literal minus an overlap.
    """

    name: str
    bucket: str
    shown: str = "{0}"
    literal: str = "{0}"
    regular: str = ""
    lowest: str = ""
    others: Callable[[str], str] = lambda literal: ""
    lowered: Callable[[str, str], str] = minus

    def greatest(self, table: str, before: str) -> str:
        """Return the query of the greatest value as text, and whether it is below the bound ``before``."""
        where = f" WHERE {self.regular.format(self.name)}" if self.regular else ""
        is_below = f"CASE WHEN MAX({self.name}) < {self._value(before)} THEN 1 ELSE 0 END" if before else "0"
        return f"SELECT {self.shown.format(f'MAX({self.name})')}, {is_below} FROM {table}{where}"

    def from_bound(self, bound: str, overlap: str) -> str:
        """Return the condition of the rows that an extraction reads."""
        start = self._start(bound, overlap)
        always = [f"{self.name} IS NULL", self.lowest.format(self.name), self._others(bound)]
        return " OR ".join([f"{self.name} >= {start}", *filter(None, always)])

    def counts_below(self, table: str, keys: Sequence[str], bounds: Sequence[str], overlap: str) -> str:
        """Return the query of groups, and how many rows of each lie below each of the bounds."""
        counted = [
            f"COUNT(CASE WHEN {self._below(bound, overlap)} THEN 1 END)" if bound else "0" for bound in bounds
        ]
        regular = [f"NOT ({self.lowest.format(self.name)})"] if self.lowest else []
        where = " AND ".join([f"{self.name} IS NOT NULL", *regular])
        bucket = self.bucket.format(self.name, ", ".join(keys))
        return f"SELECT {bucket}, {', '.join(counted)} FROM {table} WHERE {where} GROUP BY 1"

    def _below(self, bound: str, overlap: str) -> str:
        others = self._others(bound)
        return f"{self.name} < {self._start(bound, overlap)}{f' AND NOT ({others})' if others else ''}"

    def _others(self, bound: str) -> str:
        return self.others(self._value(bound)).format(self.name)

    def _start(self, bound: str, overlap: str) -> str:
        return self.lowered(self._value(bound), overlap) if overlap else self._value(bound)

    def _value(self, bound: str) -> str:
        return self.literal.format(bound)


def appeared_below(before: Sequence[int], now: Sequence[int]) -> int:
    """Return the number of rows that must have appeared below the bound; deletes may hide some."""
    return sum(max(0, found - was) for was, found in zip(before, now, strict=True))
