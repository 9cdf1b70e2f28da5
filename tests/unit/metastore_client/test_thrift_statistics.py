"""Statistics of columns as they come over the wire; what real servers send is in tests/integration/upkeep."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from metastore_client.errors import InvalidAnswerError
from metastore_client.model import ColumnStatistics
from metastore_client.remote.thrift_answers import Answer
from metastore_client.remote.thrift_statistics import column_statistics
from metastore_client.remote.thrift_values import ttypes


def _of(column: str, kind: str, data: Any) -> Any:
    return ttypes.ColumnStatisticsObj(column, "t", ttypes.ColumnStatisticsData(**{kind: data}))


def _read(*statistics: Any, columns: str = "at d msg n ok p u w") -> tuple[ColumnStatistics, ...]:
    return column_statistics(Answer(list(statistics), "tableStats"), columns.split())


def _decimals(unscaled: bytes, scale: int) -> Any:
    return ttypes.DecimalColumnStatsData(ttypes.Decimal(unscaled=unscaled, scale=scale), None, 0)


_LONG = ttypes.LongColumnStatsData(numNulls=0)


def test_each_kind_of_value() -> None:
    """Ordered by column, whose name comes in any case; decimals are signed."""
    low, high = ttypes.Decimal(unscaled=b"\xff\x7f", scale=2), ttypes.Decimal(unscaled=b"\x0f", scale=1)
    found = _read(
        *[
            _of("P", "decimalStats", ttypes.DecimalColumnStatsData(low, high, 0)),
            _of(
                "d", "dateStats", ttypes.DateColumnStatsData(ttypes.Date(-1), ttypes.Date(19_844), numNulls=1)
            ),
            _of(
                "at",
                "timestampStats",
                ttypes.TimestampColumnStatsData(ttypes.Timestamp(-1), None, numNulls=2),
            ),
            _of("ok", "booleanStats", ttypes.BooleanColumnStatsData(3, 4, 5)),
            _of("n", "longStats", ttypes.LongColumnStatsData(numNulls=6)),
            _of("msg", "stringStats", ttypes.StringColumnStatsData(numNulls=7)),
        ]
    )
    assert found == (
        ColumnStatistics("at", "t", 2, low=datetime(1969, 12, 31, 23, 59, 59)),
        ColumnStatistics("d", "t", 1, low=date(1969, 12, 31), high=date(2024, 5, 1)),
        ColumnStatistics("msg", "t", 7),
        ColumnStatistics("n", "t", 6),
        ColumnStatistics("ok", "t", 5, true_count=3, false_count=4),
        ColumnStatistics("p", "t", 0, low=Decimal("-1.29"), high=Decimal("1.5")),
    )


def test_what_python_has_no_words_for() -> None:
    """A day beyond the calendar is no end of a range; a kind of a later release is left out."""
    far = ttypes.DateColumnStatsData(ttypes.Date(0), ttypes.Date(10**9), numNulls=0)
    unknown = ttypes.ColumnStatisticsObj("u", "t", ttypes.ColumnStatisticsData())
    (found,) = _read(_of("d", "dateStats", far), unknown)
    assert found == ColumnStatistics("d", "t", 0, low=date(1970, 1, 1), high=None)


def test_decimals_keep_all_digits() -> None:
    """Hive's have up to 38, more than Python's decimals keep unless they are told to."""
    digits = 12345678901234567890123456789012345678
    value = ttypes.Decimal(unscaled=digits.to_bytes(16, "big"), scale=10)
    (found,) = _read(_of("p", "decimalStats", ttypes.DecimalColumnStatsData(value, value, 0)))
    assert found.low == found.high == Decimal(f"{digits}E-10")


@pytest.mark.parametrize(
    ("statistics", "what"),
    [
        (_of("other", "longStats", ttypes.LongColumnStatsData(numNulls=0)), r"\[0\]\.colName is 'other'"),
        (_of("n", "longStats", ttypes.LongColumnStatsData()), r"longStats\.numNulls is absent"),
        (
            _of("n", "stringStats", ttypes.StringColumnStatsData(numNulls=-1)),
            r"numNulls is -1, expected a number from",
        ),
        (_of("n", "booleanStats", ttypes.BooleanColumnStatsData(1, None, 1)), r"numFalses is absent"),
        (ttypes.ColumnStatisticsObj("n", "t"), r"\[0\]\.statsData is absent"),
        (ttypes.ColumnStatisticsObj(None, "t", _of("n", "longStats", _LONG).statsData), r"colName is absent"),
        (_of("n", "decimalStats", _decimals(b"\x7f" * 17, 0)), r"lowValue\.unscaled is b'.*38 digits"),
        (_of("n", "decimalStats", _decimals(b"\x01", 300)), r"lowValue\.scale is 300"),
        (
            _of("n", "dateStats", ttypes.DateColumnStatsData(ttypes.Date(), None, 0)),
            r"daysSinceEpoch is absent",
        ),
    ],
)
def test_what_is_no_statistics_is_refused(statistics: Any, what: str) -> None:
    with pytest.raises(InvalidAnswerError, match=what):
        _read(statistics)
