"""Dates and times of MySQL and MariaDB, some of which are not dates of Hive.

The server may store a zero month or day, in some modes a day that a month does not have, and the year 0. They
are refused, NULL if that was chosen, or kept in a string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordValueError
from mutation_api.inputs.mysql.column_types import SourceColumn as MySqlColumn
from mutation_api.inputs.mysql.column_types import ValueOptions, family_of
from mutation_api.inputs.mysql.column_types import to_column as mysql_to_column
from mutation_api.types.hive_type import HiveType
from mutation_api.update.rdbms.database import SourceColumn
from mutation_api.update.rdbms.values import null_advice

__all__ = ["times_to_column"]

_NO_TIME = b"0000-00-00"


def times_to_column(
    column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
) -> pa.Array:
    """Convert texts of dates and times.

    Args:
        column: a column of the type date, datetime or timestamp.
        target: date, timestamp or string.
        values: bytes as the server sends them, with the zone UTC.
        time_zone: the zone of a timestamp's wall clock.

    Raises:
        RecordValueError: a value is not a date of Hive.
    """
    detail: MySqlColumn = column.detail[0]
    if target.kind == "string":
        return _as_texts(detail, values, time_zone)
    try:
        return _convert(detail, target, values, time_zone)
    except RecordValueError as error:
        valid = [_is_valid(detail, target, value, time_zone) for value in values]
        if column.nulls_invalid:
            kept = [value if ok else None for value, ok in zip(values, valid, strict=True)]
            return _convert(detail, target, kept, time_zone)
        wrong = next((value for value, ok in zip(values, valid, strict=True) if not ok), None)
        if wrong is None:
            raise
        raise RecordValueError(
            f"column {column.name!r} ({target.text}): {wrong.decode()!r} is not a date of the years 1 to "
            f"9999{null_advice(column)}"
        ) from error


def _convert(detail: MySqlColumn, target: HiveType, values: Sequence[Any], time_zone: str) -> pa.Array:
    texts = pa.array(values, pa.binary())
    found = family_of(detail, detail.name).of_text(detail, texts, ValueOptions(time_zone))
    return mysql_to_column(detail, target, found)


def _is_valid(detail: MySqlColumn, target: HiveType, value: Any, time_zone: str) -> bool:
    try:
        _convert(detail, target, [value], time_zone)
    except RecordValueError:
        return False
    return True


def _as_texts(detail: MySqlColumn, values: Sequence[Any], time_zone: str) -> pa.Array:
    """Return the texts of the server; those of instants in the time zone."""
    texts = pa.array(values, pa.binary()).cast(pa.string())
    if detail.kind != "timestamp":
        return texts
    instants = [None if value is None or value.startswith(_NO_TIME) else value for value in values]
    of_text = family_of(detail, detail.name).of_text
    local = of_text(detail, pa.array(instants, pa.binary()), ValueOptions(time_zone)).cast(pa.string())
    length = len("2024-05-31 12:00:00") + (1 + detail.fraction if detail.fraction else 0)
    return pc.coalesce(pc.utf8_slice_codeunits(local, 0, length), texts)
