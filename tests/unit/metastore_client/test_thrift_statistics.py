"""Statistics of columns as they come over the wire; what real servers send is in tests/integration/upkeep."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from metastore_client.model import ColumnStatistics
from metastore_client.remote.thrift_statistics import column_statistics
from metastore_client.remote.thrift_values import ttypes


def _of(column: str, kind: str, data: Any) -> Any:
    return ttypes.ColumnStatisticsObj(column, "t", ttypes.ColumnStatisticsData(**{kind: data}))


def test_each_kind_of_value() -> None:
    """Ordered by column, whose name comes in any case; decimals are signed."""
    low, high = ttypes.Decimal(unscaled=b"\xff\x7f", scale=2), ttypes.Decimal(unscaled=b"\x0f", scale=1)
    found = column_statistics(
        [
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
    (found,) = column_statistics([_of("d", "dateStats", far), unknown])
    assert found == ColumnStatistics("d", "t", 0, low=date(1970, 1, 1), high=None)
