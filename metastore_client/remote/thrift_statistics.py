"""Statistics of columns as a server reports them.

Source: ColumnStatisticsData in Hive's hive_metastore.thrift. Before 4.0 timestamps come as ``longStats``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from metastore_client.model import ColumnStatistics

__all__ = ["column_statistics"]

_EPOCH = date(1970, 1, 1)
_EPOCH_TIME = datetime(1970, 1, 1)
_KINDS = (
    "booleanStats",
    "longStats",
    "doubleStats",
    "stringStats",
    "binaryStats",
    "decimalStats",
    "dateStats",
    "timestampStats",
)


def column_statistics(raw: Iterable[Any]) -> tuple[ColumnStatistics, ...]:
    """The server's answer for a table or a partition, ordered by column; unknown kinds are left out.

    Ends of a range that lie beyond Python's calendar are None.
    """
    return tuple(sorted((found for each in raw for found in _known(each)), key=lambda found: found.column))


def _known(raw: Any) -> list[ColumnStatistics]:
    data = next((found for kind in _KINDS if (found := getattr(raw.statsData, kind)) is not None), None)
    if data is None:
        return []
    return [
        ColumnStatistics(
            raw.colName.lower(),
            raw.colType,
            data.numNulls,
            low=_plain(getattr(data, "lowValue", None)),
            high=_plain(getattr(data, "highValue", None)),
            true_count=getattr(data, "numTrues", None),
            false_count=getattr(data, "numFalses", None),
        )
    ]


def _plain(value: Any) -> int | float | Decimal | date | datetime | None:
    """One end of a range. Decimals have their unscaled value as a signed integer, highest byte first."""
    try:
        if hasattr(value, "unscaled"):
            return Decimal(int.from_bytes(value.unscaled, "big", signed=True)).scaleb(-value.scale)
        if hasattr(value, "daysSinceEpoch"):
            return _EPOCH + timedelta(days=value.daysSinceEpoch)
        if hasattr(value, "secondsSinceEpoch"):
            return _EPOCH_TIME + timedelta(seconds=value.secondsSinceEpoch)
    except OverflowError:
        return None
    return value  # type: ignore[no-any-return]
