"""GrowingColumn: the SQL that reads rows by a growing column.

An extraction reads the rows whose value is not below a bound. A row falls out of that condition in two ways:

* its value is not a point of the order: NULL, NaN, an infinity, a zero date. Such rows are read each time.
  Their values are never the bound, since nothing would ever lie above NaN;
* its value is below the bound, since the application or a clock gave a smaller one. The numbers of rows
  below the bound show that: they may only fall, as rows are deleted or get greater values. They are counted
  in BUCKETS groups by key and value, so that a row that came rarely makes up for another one that went.

A bound is text of a position in Hive. It is part of a statement only as the literal that the module of the
database makes of it, which refuses what is no value of the column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from mutation_api.errors import ConfigurationError, SourcePositionError

__all__ = [
    "BUCKETS",
    "NUMBER",
    "GrowingColumn",
    "appeared_below",
    "matching",
    "minus",
    "plain_number",
    "seconds_of",
]

BUCKETS = 512
"""Groups in which the rows below the bound are counted; a power of two."""

OVERLAP_SECONDS_MAX = 10 * 366 * 86_400
NUMBER = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"
"""Form of a number, as all databases write it."""


def matching(form: str, text: str) -> str:
    """Return a text that has a form, a regular expression. Raises ValueError: it has not."""
    if not re.fullmatch(form, text, re.DOTALL):
        raise ValueError(text)
    return text


def plain_number(text: str) -> str:
    """Return the literal of a number. Raises ValueError: the text is none."""
    return matching(NUMBER, text)


def seconds_of(overlap: Decimal) -> str:
    """Return an overlap of a column of times as SQL.

    Raises ConfigurationError: it is so long that the result may not be a time of the database. MySQL would
    take NULL for it, and read nothing.
    """
    if overlap > OVERLAP_SECONDS_MAX:
        raise ConfigurationError(
            f"overlap={overlap}: for a column of dates or times it is a number of seconds, of at most "
            f"{OVERLAP_SECONDS_MAX:,} (ten years)"
        )
    return f"{overlap:f}"


def minus(literal: str, overlap: Decimal) -> str:
    """Return the SQL of a number minus an overlap."""
    return f"{literal} - {overlap:f}"


def _as_it_is(value: str) -> str:
    return value


def _none(value: str) -> str:
    return ""


@dataclass(frozen=True)
class GrowingColumn:
    """A growing column in the SQL of its database.

    Attributes:
        name: the column, quoted.
        bucket: makes the group of a row, from 0 to BUCKETS - 1, of the SQL of its key columns and the column.
        shown: makes, of a value, the text from which ``literal`` makes the same value again.
        literal: makes the value of such a text. Raises ValueError: the text is not of a value.
        regular: makes the condition of values that can be the bound; empty if all can.
        lowest: makes the condition of values below all others, which are read each time; empty if there are
            none.
        others: makes, of the bound's literal and the column, the condition of rows that are read each time
            because of the kind of the literal; empty if there are none.
        lowered: makes a literal minus an overlap.
    """

    name: str
    bucket: Callable[[str, str], str]
    shown: Callable[[str], str] = _as_it_is
    literal: Callable[[str], str] = plain_number
    regular: Callable[[str], str] = _none
    lowest: Callable[[str], str] = _none
    others: Callable[[str, str], str] = lambda literal, name: ""
    lowered: Callable[[str, Decimal], str] = minus

    def greatest(self, table: str, before: str) -> str:
        """Return the query of the greatest value as text, and whether it is below the bound ``before``."""
        regular = self.regular(self.name)
        where = f" WHERE {regular}" if regular else ""
        is_below = f"CASE WHEN MAX({self.name}) < {self._value(before)} THEN 1 ELSE 0 END" if before else "0"
        return f"SELECT {self.shown(f'MAX({self.name})')}, {is_below} FROM {table}{where}"

    def from_bound(self, bound: str, overlap: Decimal | None) -> str:
        """Return the condition of the rows that an extraction reads."""
        start = self._start(bound, overlap)
        always = [f"{self.name} IS NULL", self.lowest(self.name), self._others(bound)]
        return " OR ".join([f"{self.name} >= {start}", *filter(None, always)])

    def counts_below(
        self, table: str, keys: Sequence[str], bounds: Sequence[str], overlap: Decimal | None
    ) -> str:
        """Return the query of groups, and how many rows of each lie below each of the bounds."""
        counted = [
            f"COUNT(CASE WHEN {self._below(bound, overlap)} THEN 1 END)" if bound else "0" for bound in bounds
        ]
        lowest = self.lowest(self.name)
        regular = [f"NOT ({lowest})"] if lowest else []
        where = " AND ".join([f"{self.name} IS NOT NULL", *regular])
        bucket = self.bucket(", ".join(keys), self.name)
        return f"SELECT {bucket}, {', '.join(counted)} FROM {table} WHERE {where} GROUP BY 1"

    def _below(self, bound: str, overlap: Decimal | None) -> str:
        others = self._others(bound)
        return f"{self.name} < {self._start(bound, overlap)}{f' AND NOT ({others})' if others else ''}"

    def _others(self, bound: str) -> str:
        return self.others(self._value(bound), self.name)

    def _start(self, bound: str, overlap: Decimal | None) -> str:
        return self._value(bound) if overlap is None else self.lowered(self._value(bound), overlap)

    def _value(self, bound: str) -> str:
        try:
            return self.literal(bound)
        except ValueError as error:
            raise SourcePositionError(
                f"column {self.name}: the position in Hive has the bound {bound[:200]!r}, which is not a "
                "value of the column. Either the column got another type, or somebody altered the position. "
                "Nothing was read. Disable incremental update and discard (hive-mutate update disable "
                "--discard), then enable it anew: the first extraction compares the two tables"
            ) from error


def appeared_below(before: Sequence[int], now: Sequence[int]) -> int:
    """Return the number of rows that must have appeared below the bound; deletes may hide some."""
    return sum(max(0, found - was) for was, found in zip(before, now, strict=True))
