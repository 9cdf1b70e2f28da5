"""The hybrid calendar of Hive 2.3 against what java.sql.Date says."""

from __future__ import annotations

import datetime

import numpy as np
import pytest

from mutation_api.format.timestamps import (
    FIRST_GREGORIAN_DAY,
    hybrid_from_proleptic_days,
    hybrid_from_proleptic_timestamps,
    proleptic_from_hybrid_days,
    proleptic_from_hybrid_timestamps,
)

EPOCH = datetime.date(1970, 1, 1).toordinal()

JAVA_DAYS = {
    "0001-01-01": -719164,
    "1000-01-01": -354280,
    "1500-02-28": -171597,
    "1500-03-01": -171595,
    "1582-10-01": -141431,
    "1582-10-04": -141428,
    "1582-10-05": -141427,
    "1582-10-10": -141422,
    "1582-10-14": -141418,
    "1582-10-15": -141427,
    "1582-10-16": -141426,
    "1970-01-01": 0,
    "9999-12-31": 2932896,
}
"""``java.sql.Date.valueOf(label)`` in days, printed by a JVM in UTC."""


def proleptic(label: str) -> int:
    return datetime.date.fromisoformat(label).toordinal() - EPOCH


@pytest.mark.parametrize(("label", "day"), JAVA_DAYS.items())
def test_a_label_gets_the_day_that_java_gives_it(label: str, day: int) -> None:
    """The label stays, the number becomes that of java.sql.Date, also for the ten days that do not exist."""
    assert hybrid_from_proleptic_days(np.array([proleptic(label)], np.int32)).tolist() == [day]


@pytest.mark.parametrize("label", [each for each in JAVA_DAYS if not "1582-10-05" <= each <= "1582-10-14"])
def test_a_stored_day_gets_its_label_back(label: str) -> None:
    """Reading is the inverse of writing for every day that exists in both calendars."""
    assert proleptic_from_hybrid_days(np.array([JAVA_DAYS[label]], np.int64)).tolist() == [proleptic(label)]


def test_the_leap_day_that_only_the_hybrid_calendar_has() -> None:
    """Java's 1500-02-29 is day -171596; it is read as 1 March, as Java's lenient calendars read it."""
    assert proleptic_from_hybrid_days(np.array([-171596])).tolist() == [proleptic("1500-03-01")]


def test_days_since_1582_are_not_even_copied() -> None:
    """From 1582-10-15 on nothing changes."""
    days = np.array([FIRST_GREGORIAN_DAY, 0, 2932896], np.int32)
    assert hybrid_from_proleptic_days(days) is days
    assert proleptic_from_hybrid_days(days) is days


@pytest.mark.parametrize(("unit", "per_second"), [("s", 1), ("ms", 10**3), ("us", 10**6)])
def test_the_time_of_day_stays(unit: str, per_second: int) -> None:
    """Of a wall clock only the date moves, also one second before midnight."""
    second = proleptic("1582-10-04") * 86400 + 86399
    values = np.array([second * per_second, 0], np.int64)
    shifted = hybrid_from_proleptic_timestamps(values, unit)
    assert shifted.tolist() == [(-141428 * 86400 + 86399) * per_second, 0]
    assert proleptic_from_hybrid_timestamps(shifted, unit).tolist() == values.tolist()


def test_nanoseconds_never_reach_the_old_calendar() -> None:
    """64-bit nanoseconds begin in 1677; the smallest one must not overflow on the way."""
    values = np.array([-(2**63), 2**63 - 1], np.int64)
    assert hybrid_from_proleptic_timestamps(values, "ns").tolist() == values.tolist()


def test_every_day_of_both_calendars() -> None:
    """There and back over 1,500 years; the order of days stays."""
    days = np.arange(proleptic("0001-01-01"), proleptic("1582-10-05"))
    hybrid = hybrid_from_proleptic_days(days)
    assert (proleptic_from_hybrid_days(hybrid) == days).all()
    assert (np.diff(hybrid) >= 1).all()
    # Twelve leap days (100, 200, 300, 500, ... 1500) exist in the hybrid calendar only.
    assert int((np.diff(hybrid) == 2).sum()) == 12
