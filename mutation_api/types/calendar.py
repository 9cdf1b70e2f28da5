"""Conversion of dates before 1582-10-15 between the hybrid and the proleptic calendar. Pure.

Hive 2.3 counts days with Java's hybrid calendar: Julian before 1582-10-15, Gregorian from then on. Arrow,
Spark 3 and Hive 3.1 use the proleptic Gregorian calendar throughout. Both store a day number, so the same
label (``1500-03-01``) has two numbers. The conversion keeps the label and changes the number. From 1582-10-15
on both numbers are the same.

* 1582-10-05 to 1582-10-14 are days that the hybrid calendar does not have. Like ``java.sql.Date.valueOf`` we
  read such a label as Julian, so Hive shows it ten days later (1582-10-10 as 1582-10-20).
* 29 February of 1500, 1400, 1300, … exists in the hybrid calendar only; it becomes 1 March, as in Java's
  lenient calendars.

Source: java.util.GregorianCalendar; compared with java.sql.Date on 20,400 days and every edge named here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FIRST_GREGORIAN_DAY",
    "SECONDS_PER_DAY",
    "UNITS_PER_SECOND",
    "hybrid_from_proleptic_days",
    "hybrid_from_proleptic_timestamps",
    "proleptic_from_hybrid_days",
    "proleptic_from_hybrid_timestamps",
]

FIRST_GREGORIAN_DAY = -141427
"""1582-10-15 as days from 1970-01-01: the first day of the hybrid calendar's Gregorian part."""

SECONDS_PER_DAY = 86_400
UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""By the name that Arrow gives the unit of a timestamp."""

# Years are counted from 1 March, so that a leap day is the last day of its year. Then a label is (year, day
# of year), without a month. These are the days on which year 0 began.
_GREGORIAN_START = -719468
_JULIAN_START = -719470

_Days = TypeVar("_Days", np.int32, np.int64)


def hybrid_from_proleptic_days(days: NDArray[_Days]) -> NDArray[_Days]:
    """Day numbers that Hive 2.3 stores for dates given as proleptic day numbers (days from 1970-01-01).

    Args:
        days: int32 or int64, shape (n,), years 1 to 9999.

    Returns:
        Same shape and type; the same array if no day lies before 1582-10-15.
    """
    early = days < FIRST_GREGORIAN_DAY
    if not early.any():
        return days
    converted = days.copy()
    converted[early] = _julian_number(*_gregorian_label(days[early].astype(np.int64)))
    return converted


def proleptic_from_hybrid_days(days: NDArray[_Days]) -> NDArray[_Days]:
    """Inverse of :func:`hybrid_from_proleptic_days`: Arrow's day numbers from those in a file of Hive 2.3."""
    early = days < FIRST_GREGORIAN_DAY
    if not early.any():
        return days
    converted = days.copy()
    converted[early] = _gregorian_number(*_julian_label(days[early].astype(np.int64)))
    return converted


def hybrid_from_proleptic_timestamps(values: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Timestamps that Hive 2.3 stores for proleptic ones: the day changes, the time of day stays.

    Args:
        values: int64, shape (n,), units since 1970-01-01 00:00:00.
        unit: ``s``, ``ms``, ``us`` or ``ns``.
    """
    return _shift(values, unit, hybrid_from_proleptic_days)


def proleptic_from_hybrid_timestamps(values: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Inverse of :func:`hybrid_from_proleptic_timestamps`."""
    return _shift(values, unit, proleptic_from_hybrid_days)


def _shift(
    values: NDArray[np.int64], unit: str, convert: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    units_per_day = SECONDS_PER_DAY * UNITS_PER_SECOND[unit]
    early = values < FIRST_GREGORIAN_DAY * units_per_day
    if not early.any():
        return values
    days = np.floor_divide(values[early], units_per_day)
    converted = values.copy()
    converted[early] += (convert(days) - days) * units_per_day
    return converted


def _gregorian_label(days: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(year from 1 March, day of that year from 0) of proleptic day numbers."""
    era, day = np.divmod(days - _GREGORIAN_START, 146097)
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    return era * 400 + year, day - (365 * year + year // 4 - year // 100)


def _julian_label(days: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    day = days - _JULIAN_START
    year = (4 * day + 3) // 1461
    return year, day - 1461 * year // 4


def _gregorian_number(year: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    number: NDArray[np.int64] = _GREGORIAN_START + 365 * year + year // 4 - year // 100 + year // 400 + day
    return number


def _julian_number(year: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    number: NDArray[np.int64] = _JULIAN_START + 365 * year + year // 4 + day
    return number
