"""Column statistics and constraints of tables, read from a server's answers, and row counts to record.

Before Hive 4.0, statistics of timestamps come as ``longStats``.

Source: ColumnStatisticsData, SQLNotNullConstraint, SQLCheckConstraint and SQLDefaultConstraint in Hive's
    hive_metastore.thrift.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from metastore_client.model import ColumnStatistics, ConstraintInfo, ConstraintKind
from metastore_client.remote.thrift_answers import Answer
from metastore_client.remote.thrift_values import CATALOG, ttypes
from metastore_client.valid_ids import CountRows, ValidWriteIdList, accurate_row_count, with_row_count

_EPOCH = date(1970, 1, 1)
_EPOCH_TIME = datetime(1970, 1, 1)
_MOST_DIGITS = 38
"""The maximum number of digits of a decimal in Hive."""
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
    """Return the statistics of a table or a partition, ordered by column. Skip unknown kinds.

    Ends of a range that are outside Python's calendar are None.

    Args:
        answer: the list of statistics.
        columns: the columns that were requested, in lower case.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    found = [known for each in answer.elements() for known in _known(each, columns)]
    return tuple(sorted(found, key=lambda each: each.column))


def _known(answer: Answer, columns: Iterable[str]) -> list[ColumnStatistics]:
    kinds = [kind for kind in _KINDS if not answer["statsData"][kind].is_absent]
    if not kinds:
        return []
    kind, data = kinds[0], answer["statsData"][kinds[0]]
    read = _ENDS.get(kind)
    is_boolean, has_lengths = kind == "booleanStats", kind in _WITH_LENGTHS
    is_estimated = kind not in _WITHOUT_ESTIMATE
    return [
        ColumnStatistics(
            answer["colName"].one_of(columns),
            answer["colType"].text(),
            data["numNulls"].number_from(0),
            low=None if read is None else data["lowValue"].optional(read),
            high=None if read is None else data["highValue"].optional(read),
            true_count=data["numTrues"].number_from(0) if is_boolean else None,
            false_count=data["numFalses"].number_from(0) if is_boolean else None,
            distinct_count=data["numDVs"].optional(Answer.number) if is_estimated else None,
            sketch=(data["bitVectors"].optional(Answer.octets) or b"") if is_estimated else b"",
            max_length=data["maxColLen"].optional(Answer.number) if has_lengths else None,
            average_length=data["avgColLen"].optional(Answer.real) if has_lengths else None,
        )
    ]


def statistics_of_partitions(
    database: str,
    table: str,
    statistics: Mapping[str, Sequence[ColumnStatistics]],
    *,
    has_timestamps: bool,
) -> list[Any]:
    """Return statistics as the server takes them, a structure for each partition ('' for the table).

    ``has_timestamps`` is True from Hive 4.0 on. Before, the range of timestamps consists of seconds.
    """
    found = []
    for name, columns in statistics.items():
        description = ttypes.ColumnStatisticsDesc(
            isTblLevel=not name,
            dbName=database.lower(),
            tableName=table.lower(),
            partName=name or None,
            catName=CATALOG,
        )
        structures = [_structure(each, has_timestamps) for each in columns]
        found.append(ttypes.ColumnStatistics(statsDesc=description, statsObj=structures, engine=ENGINE))
    return found


def _structure(each: ColumnStatistics, has_timestamps: bool) -> Any:
    """Return one column's statistics as the server takes them."""
    kind = _KINDS_OF_TYPES.get(each.type.partition("(")[0], "longStats")
    if kind == "timestampStats" and not has_timestamps:
        kind = "longStats"
    fields: dict[str, Any] = {"numNulls": each.null_count}
    if kind == "booleanStats":
        fields |= {"numTrues": each.true_count, "numFalses": each.false_count}
    if kind in _WITH_LENGTHS:
        fields |= {"maxColLen": each.max_length, "avgColLen": each.average_length}
    if kind not in _WITHOUT_ESTIMATE:
        fields |= {"numDVs": each.distinct_count, "bitVectors": each.sketch or None}
    if kind in _WRITTEN_ENDS:
        write = _WRITTEN_ENDS[kind]
        ends = {"lowValue": each.low, "highValue": each.high}
        fields |= {name: None if end is None else write(end) for name, end in ends.items()}
    data = ttypes.ColumnStatisticsData(**{kind: _STRUCTURES[kind](**fields)})
    return ttypes.ColumnStatisticsObj(colName=each.column, colType=each.type, statsData=data)


def _decimal(answer: Answer) -> Decimal:
    """Return a decimal. Its unscaled value is a signed integer with the highest byte first."""
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


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH_TIME) // timedelta(seconds=1)


def _decimal_structure(value: Decimal) -> Any:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(exponent, 0)
    size = unscaled.bit_length() // 8 + 1
    return ttypes.Decimal(unscaled=unscaled.to_bytes(size, "big", signed=True), scale=max(-exponent, 0))


ENGINE = "hive"
"""The engine whose statistics are meant. 4.x also stores those of other engines."""
_WITH_LENGTHS = ("stringStats", "binaryStats")
_WITHOUT_ESTIMATE = ("booleanStats", "binaryStats")
_KINDS_OF_TYPES = {
    "boolean": "booleanStats",
    **dict.fromkeys(("float", "double"), "doubleStats"),
    **dict.fromkeys(("string", "varchar", "char"), "stringStats"),
    "binary": "binaryStats",
    "decimal": "decimalStats",
    "date": "dateStats",
    "timestamp": "timestampStats",
}
"""By the name of a column's type; all others are integers."""
_STRUCTURES = {
    "booleanStats": ttypes.BooleanColumnStatsData,
    "longStats": ttypes.LongColumnStatsData,
    "doubleStats": ttypes.DoubleColumnStatsData,
    "stringStats": ttypes.StringColumnStatsData,
    "binaryStats": ttypes.BinaryColumnStatsData,
    "decimalStats": ttypes.DecimalColumnStatsData,
    "dateStats": ttypes.DateColumnStatsData,
    "timestampStats": ttypes.TimestampColumnStatsData,
}
_WRITTEN_ENDS: dict[str, Callable[[Any], Any]] = {
    "longStats": lambda end: _seconds(end) if isinstance(end, datetime) else int(end),
    "doubleStats": float,
    "decimalStats": _decimal_structure,
    "dateStats": lambda day: ttypes.Date(daysSinceEpoch=(day - _EPOCH).days),
    "timestampStats": lambda moment: ttypes.Timestamp(secondsSinceEpoch=_seconds(moment)),
}
"""The function that writes an end of the range, for each kind that has a range."""
_ENDS: dict[str, Callable[[Answer], int | float | Decimal | date | datetime | None]] = {
    "longStats": Answer.number,
    "doubleStats": Answer.real,
    "decimalStats": _decimal,
    "dateStats": _day,
    "timestampStats": _moment,
}
"""The function that reads an end of the range, for each kind that has a range."""


CONSTRAINTS = ("notNullConstraints", "checkConstraints", "defaultConstraints")
"""The fields of answers with the arguments of :func:`constraint_infos`."""


def constraint_infos(
    not_null: Iterable[Answer], checks: Iterable[Answer], defaults: Iterable[Answer]
) -> tuple[ConstraintInfo, ...]:
    """Return the constraints in the server's answers, ordered by kind, column and name.

    Raises:
        InvalidAnswerError: If an answer lacks a field or contains an invalid value.
    """
    found = [_info(ConstraintKind.NOT_NULL, each, "nn_name", None) for each in not_null]
    found += [_info(ConstraintKind.CHECK, each, "dc_name", "check_expression") for each in checks]
    found += [_info(ConstraintKind.DEFAULT, each, "dc_name", "default_value") for each in defaults]
    return tuple(sorted(found, key=ConstraintInfo.order))


def _info(kind: ConstraintKind, answer: Answer, name: str, expression: str | None) -> ConstraintInfo:
    """Return one constraint. ``name`` and ``expression`` are the fields that contain them.

    Only a CHECK may have no column; it then applies to the whole table.
    """
    column = answer["column_name"]
    return ConstraintInfo(
        kind,
        answer[name].text_or_empty(),
        (column.text_or_empty() if kind is ConstraintKind.CHECK else column.text()).lower(),
        "" if expression is None else answer[expression].text(),
        answer["enable_cstr"].flag(),
    )


def with_row_counts(
    found: Mapping[str, tuple[Mapping[str, str], Any]],
    count: CountRows,
    valid_write_ids: ValidWriteIdList | None,
    columns: Mapping[str, Collection[str]],
) -> list[Any]:
    """Set the row counts and return the tables or partitions that this changes. They are changed in place.

    Args:
        found: the parameters and the structure to send back, by name.
        count: see MetastoreClient.record_row_counts.
        valid_write_ids: the write ids that the writer sees. If None, no number is accurate.
        columns: see MetastoreClient.record_row_counts.
    """
    counts: Mapping[str, int | None] = dict.fromkeys(found)
    if valid_write_ids is not None:
        counts = count(
            {
                name: accurate_row_count(parameters, raw.writeId, valid_write_ids)
                for name, (parameters, raw) in found.items()
            }
        )
    changed = []
    for name, (before, raw) in found.items():
        parameters = with_row_count(before, counts[name], columns.get(name, ()))
        if parameters != before:
            raw.parameters = parameters
            changed.append(raw)
    return changed


def writer_ids(write_id: int | None, valid_write_ids: ValidWriteIdList | None) -> dict[str, Any]:
    """Return the writer's ids, as the server requires them to change statistics.

    The result is empty if there are no ids.
    """
    if valid_write_ids is None:
        return {}
    return {"writeId": write_id, "validWriteIdList": valid_write_ids.to_text()}
