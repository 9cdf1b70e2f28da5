"""Wall clocks to instants in a time zone, and back, as Java's java.sql.Timestamp does it.

Where the clock is put forward, a time in the gap is read with the offset before the change. Where it is put
back, the later of the two instants is taken. Compared with Java on 366,000 wall clocks of 16 zones.
The only known differences come from the zone database (Tehran in 1978, Casablanca after 2037).

``pyarrow.compute.assume_timezone`` is not used: it knows no summer time after 2037.
"""

from __future__ import annotations

import datetime
import functools
import zoneinfo
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, RecordValueError

__all__ = ["FIRST_KNOWN_INSTANT", "instants_of_wall_clocks", "wall_clock_of_instant"]

FIRST_KNOWN_INSTANT = -2_208_988_800
"""1900-01-01 00:00:00 UTC, in seconds since 1970. Before it Java's zones have the offset that is their
standard time today (``sun.util.calendar.ZoneInfoFile``), where the zone database has older ones."""

_FIRST_YEAR = 1901
_END_YEAR = 2100
_CALENDAR_CYCLE = 146_097 * 24 * 60 * 60
_LATE = 240_000_000_000
"""In the year 9575."""
_PROBE_STEP = datetime.timedelta(hours=12)
"""In every zone, two changes are more than half a day apart."""


@dataclass(frozen=True)
class _Zone:
    """``offsets[i]`` seconds east of UTC hold from wall clock ``since[i]``; ``fixed``: it never changed."""

    since: NDArray[np.int64]
    offsets: NDArray[np.int64]
    fixed: bool


def instants_of_wall_clocks(
    seconds: NDArray[np.int64], time_zone: str, valid: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Turn wall clocks into instants.

    Args:
        seconds: int64, shape (n,), wall clock read as if it were UTC, seconds since 1970.
        time_zone: an IANA name.
        valid: bool, shape (n,); where false the value is ignored.

    Returns:
        int64, shape (n,), seconds since 1970-01-01 00:00:00 UTC.

    Raises:
        ConfigurationError: the zone is unknown.
        RecordValueError: a wall clock before 1901 or after 2099 in a zone whose offset has changed: there
            Java and the zone database disagree.
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
            f"row {row}: timestamp {clock}: in zone {time_zone} the bucket of a timestamp outside "
            f"{_FIRST_YEAR}-{_END_YEAR - 1} depends on the Java release; the first row of the batch is row 0"
        )
    indices = np.searchsorted(zone.since, seconds, "right") - 1
    instants: NDArray[np.int64] = seconds - zone.offsets[np.maximum(indices, 0)]
    return instants


def wall_clock_of_instant(seconds: int, zone: zoneinfo.ZoneInfo) -> int:
    """Turn an instant into a wall clock.

    Args:
        seconds: since 1970-01-01 00:00:00 UTC, of the years 1 to 9999.
        zone: the zone.

    Returns:
        The wall clock read as if it were UTC, in seconds since 1970.
    """
    if seconds < FIRST_KNOWN_INSTANT:
        return seconds + _standard_offset(zone)
    # The calendar repeats itself after 400 years, and Python ends with the year 9999.
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
            f"time zone {name!r} is not known; use a name such as Europe/Berlin or UTC"
        ) from error
    instants, offsets = _changes(zone)
    earliest = datetime.datetime(1, 1, 2, tzinfo=datetime.UTC)
    fixed = len(offsets) == 1 and _offset(zone, earliest) == offsets[0]
    table = np.array(offsets, np.int64)
    return _Zone(np.array(instants, np.int64) + table, table, fixed)


def _changes(zone: zoneinfo.ZoneInfo) -> tuple[list[int], list[int]]:
    """Instants (seconds) from which an offset holds, and the offsets; found by probing and bisection."""
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
