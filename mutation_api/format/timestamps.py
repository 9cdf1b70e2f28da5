"""Dates and timestamps: calendars, local times of a time zone, and units. Pure.

Hive 2.3 counts days with Java's hybrid calendar: Julian before 1582-10-15, Gregorian from then on. Arrow,
Spark 3 and Hive 3.1 always use the proleptic Gregorian calendar. Both store a day number, so the same label
(``1500-03-01``) has two numbers. The conversion keeps the label and changes the number. From 1582-10-15 on,
both numbers are the same.

* The hybrid calendar does not have the days from 1582-10-05 to 1582-10-14. Like ``java.sql.Date.valueOf``,
  this module reads such a label as Julian, so Hive shows it ten days later (1582-10-10 as 1582-10-20).
* 29 February of 1500, 1400, 1300, … exists only in the hybrid calendar. It becomes 1 March, as in Java's
  lenient calendars.

A local time is a timestamp without time zone. It is converted to an instant as Java's java.sql.Timestamp
does. If the clock is put forward, a time in the gap is read with the offset before the change. If it is put
back, the later of the two instants is taken. The results were compared with Java on 366,000 local times in 16
zones. The only known differences come from the zone database (Tehran in 1978, Casablanca after 2037).
``pyarrow.compute.assume_timezone`` is not used because it has no summer time after 2037.

Nanoseconds cover the years 1678 to 2261, microseconds all years.

Source: java.util.GregorianCalendar; compared with java.sql.Date on 20,400 days and every special case above.
"""

from __future__ import annotations

import datetime
import functools
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.format.plain_array import (
    has_timestamp,
    map_parts,
    plain_array,
    rebased_list,
    struct_fields,
    union_parts,
)

FIRST_GREGORIAN_DAY = -141427
"""1582-10-15 in days since 1970-01-01: the first day of the hybrid calendar's Gregorian part."""

SECONDS_PER_DAY = 86_400
UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units per second, by Arrow's name for the unit of a timestamp."""

# Years are counted from 1 March, so that a leap day is the last day of its year. A label is then (year, day
# of year), without a month. These are the days on which year 0 began.
_GREGORIAN_START = -719468
_JULIAN_START = -719470

_Days = TypeVar("_Days", np.int32, np.int64)


def hybrid_from_proleptic_days(days: NDArray[_Days]) -> NDArray[_Days]:
    """Return the day numbers that Hive 2.3 stores for dates given as proleptic day numbers.

    Args:
        days: int32 or int64, shape (n,), days since 1970-01-01, years 1 to 9999.

    Returns:
        An array of the same shape and type. It is the same array if no day is before 1582-10-15.
    """
    early = days < FIRST_GREGORIAN_DAY
    if not early.any():
        return days
    converted = days.copy()
    converted[early] = _julian_number(*_gregorian_label(days[early].astype(np.int64)))
    return converted


def proleptic_from_hybrid_days(days: NDArray[_Days]) -> NDArray[_Days]:
    """Return Arrow's day numbers for those in a file of Hive 2.3.

    This is the inverse of :func:`hybrid_from_proleptic_days`.
    """
    early = days < FIRST_GREGORIAN_DAY
    if not early.any():
        return days
    converted = days.copy()
    converted[early] = _gregorian_number(*_julian_label(days[early].astype(np.int64)))
    return converted


def hybrid_from_proleptic_timestamps(values: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Return the timestamps that Hive 2.3 stores for proleptic ones.

    The day number changes; the time of day does not.

    Args:
        values: int64, shape (n,), units since 1970-01-01 00:00:00.
        unit: ``s``, ``ms``, ``us`` or ``ns``.
    """
    return _shift(values, unit, hybrid_from_proleptic_days)


def proleptic_from_hybrid_timestamps(values: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Return Arrow's timestamps for those in a file of Hive 2.3.

    This is the inverse of :func:`hybrid_from_proleptic_timestamps`.
    """
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
    """Return (year from 1 March, day of that year from 0) for proleptic day numbers."""
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


FIRST_KNOWN_INSTANT = -2_208_988_800
"""1900-01-01 00:00:00 UTC, in seconds since 1970.

Before it, Java's zones have the offset of today's standard time (``sun.util.calendar.ZoneInfoFile``), while
the zone database has older offsets.
"""

_FIRST_YEAR = 1901
_END_YEAR = 2100
_CALENDAR_CYCLE = 146_097 * 24 * 60 * 60
_LATE = 240_000_000_000
"""An instant in the year 9575, in seconds since 1970."""
_PROBE_STEP = datetime.timedelta(hours=12)
"""In every zone, two changes are more than half a day apart."""


@dataclass(frozen=True)
class _Zone:
    """The offsets of a zone: ``offsets[i]`` seconds east of UTC apply from local time ``since[i]``.

    ``fixed`` is true if the offset never changed.
    """

    since: NDArray[np.int64]
    offsets: NDArray[np.int64]
    fixed: bool


def instants_of_wall_clocks(
    seconds: NDArray[np.int64], time_zone: str, valid: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Convert local times to instants.

    Args:
        seconds: int64, shape (n,); local times in seconds since 1970, read as if they were UTC.
        time_zone: an IANA name.
        valid: bool, shape (n,). Where it is false, the value is ignored.

    Returns:
        int64, shape (n,), seconds since 1970-01-01 00:00:00 UTC.

    Raises:
        ConfigurationError: If the zone is unknown.
        RecordValueError: If a local time is before 1901 or after 2099 and the zone's offset has ever changed.
            There, Java and the zone database disagree.
    """
    zone = _zone(time_zone)
    if zone.fixed:
        shifted: NDArray[np.int64] = seconds - zone.offsets[0]
        return shifted
    outside = valid & ((seconds < _seconds(_FIRST_YEAR)) | (seconds >= _seconds(_END_YEAR)))
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        clock = np.datetime64(int(seconds[row]), "s")
        raise RecordValueError(
            f"row {row}: timestamp {clock}: in time zone {time_zone}, the bucket of a timestamp outside "
            f"{_FIRST_YEAR}-{_END_YEAR - 1} depends on the Java release; rows of the batch are counted from 0"
        )
    indices = np.searchsorted(zone.since, seconds, "right") - 1
    instants: NDArray[np.int64] = seconds - zone.offsets[np.maximum(indices, 0)]
    return instants


def wall_clock_of_instant(seconds: int, zone: zoneinfo.ZoneInfo) -> int:
    """Convert an instant to local time.

    Args:
        seconds: seconds since 1970-01-01 00:00:00 UTC, in the years 1 to 9999.
        zone: the time zone.

    Returns:
        The local time in seconds since 1970, read as if it were UTC.
    """
    if seconds < FIRST_KNOWN_INSTANT:
        return seconds + _standard_offset(zone)
    # The calendar repeats after 400 years, and Python's calendar ends with the year 9999.
    known = seconds if seconds < _LATE else seconds - _CALENDAR_CYCLE
    return seconds + _offset(zone, datetime.datetime.fromtimestamp(known, datetime.UTC))


@functools.lru_cache(maxsize=16)
def _standard_offset(zone: zoneinfo.ZoneInfo) -> int:
    winter_and_summer = [datetime.datetime(_END_YEAR, month, 1, tzinfo=datetime.UTC) for month in (1, 7)]
    return min(_offset(zone, each) for each in winter_and_summer)


@functools.lru_cache(maxsize=16)
def _zone(name: str) -> _Zone:
    try:
        zone = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
        raise ConfigurationError(
            f"unknown time zone {name!r}; use a name such as Europe/Berlin or UTC"
        ) from error
    instants, offsets = _changes(zone)
    earliest = datetime.datetime(1, 1, 2, tzinfo=datetime.UTC)
    fixed = len(offsets) == 1 and _offset(zone, earliest) == offsets[0]
    table = np.array(offsets, np.int64)
    return _Zone(np.array(instants, np.int64) + table, table, fixed)


def _changes(zone: zoneinfo.ZoneInfo) -> tuple[list[int], list[int]]:
    """Return the instants (seconds) from which offsets apply, and the offsets, by probing and bisection."""
    before = datetime.datetime(_FIRST_YEAR, 1, 1, tzinfo=datetime.UTC) - 2 * _PROBE_STEP
    end = datetime.datetime(_END_YEAR, 1, 2, tzinfo=datetime.UTC)
    instants, offsets = [int(before.timestamp())], [_offset(zone, before)]
    while before < end:
        after = before + _PROBE_STEP
        offset = _offset(zone, after)
        if offset != offsets[-1]:
            instants.append(_bisect(zone, before, after))
            offsets.append(offset)
        before = after
    return instants, offsets


def _bisect(zone: zoneinfo.ZoneInfo, before: datetime.datetime, after: datetime.datetime) -> int:
    low, high, offset = int(before.timestamp()), int(after.timestamp()), _offset(zone, after)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, datetime.datetime.fromtimestamp(middle, datetime.UTC)) == offset:
            high = middle
        else:
            low = middle
    return high


def _offset(zone: zoneinfo.ZoneInfo, instant: datetime.datetime) -> int:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _seconds(year: int) -> int:
    return int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp())


_PER_MICROSECOND = 1000


def exact_unit(array: pa.Array | pa.ChunkedArray) -> str:
    """Return ``ns`` if a timestamp, at any depth, has digits below microseconds, otherwise ``us``.

    Raises:
        UnfitTypeError: If :func:`~mutation_api.format.plain_array.plain_array` refuses the array.
    """
    if "[ns" not in str(array.type):
        return "us"
    return "ns" if any(map(_has_fine_digits, _timestamps(plain_array(array)))) else "us"


def _has_fine_digits(array: pa.Array) -> bool:
    values = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return bool(np.any(values % _PER_MICROSECOND))


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            yield array
    elif has_timestamp(kind):
        for child in _children(array):
            yield from _timestamps(child)


def _children(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(array.type):
        return struct_fields(array)
    if pa.types.is_map(array.type):
        return [*map_parts(array)[1:]]
    if pa.types.is_union(array.type):
        return union_parts(array)[1]
    return [rebased_list(array)[1]]
