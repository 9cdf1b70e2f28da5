"""Statistics of columns as a server reports them.

Source: ColumnStatisticsData in Hive's hive_metastore.thrift. Before 4.0 timestamps come as ``longStats``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal

from metastore_client.model import ColumnStatistics
from metastore_client.remote.thrift_answers import Answer

__all__ = ["column_statistics"]

_EPOCH = date(1970, 1, 1)
_EPOCH_TIME = datetime(1970, 1, 1)
_MOST_DIGITS = 38
"""Of a decimal in Hive."""
_EXACT = Context(prec=_MOST_DIGITS)
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


def column_statistics(answer: Answer, columns: Iterable[str]) -> tuple[ColumnStatistics, ...]:
    """The server's answer for a table or a partition, ordered by column; unknown kinds are left out.

    Ends of a range that lie beyond Python's calendar are None.

    Args:
        answer: the list of statistics.
        columns: those that were asked for, in lower case.

    Raises InvalidAnswerError.
    """
    found = [known for each in answer.elements() for known in _known(each, columns)]
    return tuple(sorted(found, key=lambda each: each.column))


def _known(answer: Answer, columns: Iterable[str]) -> list[ColumnStatistics]:
    kinds = [kind for kind in _KINDS if not answer["statsData"][kind].is_absent]
    if not kinds:
        return []
    kind, data = kinds[0], answer["statsData"][kinds[0]]
    read = _ENDS.get(kind)
    is_boolean = kind == "booleanStats"
    return [
        ColumnStatistics(
            answer["colName"].one_of(columns),
            answer["colType"].text(),
            data["numNulls"].number_from(0),
            low=None if read is None else data["lowValue"].optional(read),
            high=None if read is None else data["highValue"].optional(read),
            true_count=data["numTrues"].number_from(0) if is_boolean else None,
            false_count=data["numFalses"].number_from(0) if is_boolean else None,
        )
    ]


def _decimal(answer: Answer) -> Decimal:
    """Its unscaled value is a signed integer, highest byte first."""
    unscaled = int.from_bytes(answer["unscaled"].octets(), "big", signed=True)
    if abs(unscaled) >= 10**_MOST_DIGITS:
        answer["unscaled"].refuse(f"a number of at most {_MOST_DIGITS} digits")
    scale = answer["scale"].number_from(-_MOST_DIGITS, _MOST_DIGITS)
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def _day(answer: Answer) -> date | None:
    days = answer["daysSinceEpoch"].number()
    try:
        return _EPOCH + timedelta(days=days)
    except OverflowError:
        return None


def _moment(answer: Answer) -> datetime | None:
    seconds = answer["secondsSinceEpoch"].number()
    try:
        return _EPOCH_TIME + timedelta(seconds=seconds)
    except OverflowError:
        return None


_ENDS: dict[str, Callable[[Answer], int | float | Decimal | date | datetime | None]] = {
    "longStats": Answer.number,
    "doubleStats": Answer.real,
    "decimalStats": _decimal,
    "dateStats": _day,
    "timestampStats": _moment,
}
"""How the ends of a range are read, of the kinds that have one."""
