"""The typed value of a partition's string, as Hive reads it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api.errors import RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import INTEGER_BITS, INTEGER_KINDS, HiveType, parse_hive_type
from mutation_api.format.number_text import exact_decimal

__all__ = ["partition_value", "stored_partition_value"]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|[+-]?Infinity")
_INT = parse_hive_type("int")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2}) ([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.([0-9]{1,9}))?"
)


def partition_value(text: str, hive_type: HiveType, null_text: str = DEFAULT_PARTITION_NAME) -> object:
    """Return the typed value of a string in a partition's name, as Hive reads it.

    Args:
        text: the string, not escaped.
        hive_type: the partition column's type.
        null_text: the server's name of the default partition.

    Returns:
        int, bool, float, Decimal, str, datetime.date or datetime.datetime (without time zone). The value of
        the default partition is None. A char loses its padding.

    Raises:
        RecordValueError: If Hive could not read the string as this type either (it would show NULL), or if
            the string has nanoseconds, which Python's datetime cannot hold.
    """
    try:
        return _value(text, hive_type, null_text)
    except _NotOfTypeError as error:
        raise RecordValueError(f"partition value {text!r} is not a {hive_type.text}: {error}") from error


def stored_partition_value(text: str, hive_type: HiveType, null_text: str = DEFAULT_PARTITION_NAME) -> object:
    """Like :func:`partition_value`, for a partition that exists: return None if Hive shows NULL for it.

    A number too large for a tinyint or smallint, but not for an int, loses its upper bits.

    Source: observed on 3.1.3, 4.1.0 and 4.2.1.
    """
    try:
        return _value(text, hive_type, null_text)
    except _NotOfTypeError:
        bits = INTEGER_BITS.get(hive_type.kind, 32)
        if bits >= 32 or (number := stored_partition_value(text, _INT, null_text)) is None:
            return None
        return (int(str(number)) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


class _NotOfTypeError(Exception):
    """Raised for a string that Hive cannot read as the type either: it shows NULL."""


class _UnclearError(RecordValueError):
    """Raised for a string that Hive's releases read differently, or that no Python datetime can hold."""


def _value(text: str, hive_type: HiveType, null_text: str) -> object:
    if text in ("", null_text):
        return None
    read = _VALUES.get(hive_type.kind)
    if read is None:
        raise RecordValueError(
            f"partition value {text!r}: type {hive_type.text} is not supported as a partition key"
        )
    try:
        return read(text, hive_type)
    except _UnclearError:
        raise
    except (ValueError, InvalidOperation, RecordValueError) as error:
        raise _NotOfTypeError(str(error)) from error


def _read_boolean(text: str, _type: HiveType) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return text.lower() == "true"


def _read_integer(text: str, hive_type: HiveType) -> int:
    limit = 2 ** (INTEGER_BITS[hive_type.kind] - 1)
    if not _INTEGER.fullmatch(text) or not -limit <= int(text) < limit:
        raise ValueError(f"expected a whole number from {-limit} to {limit - 1}")
    return int(text)


def _read_float(text: str, hive_type: HiveType) -> float:
    if not _FLOAT.fullmatch(text):
        raise ValueError("expected a number, NaN or Infinity")
    return float(np.float32(text)) if hive_type.kind == "float" else float(text)


def _read_decimal(text: str, hive_type: HiveType) -> Decimal:
    value = exact_decimal(text)
    converted = convert_to_column(pa.array([value]), hive_type, column="").to_pylist()
    return Decimal(converted[0])


def _read_string(text: str, hive_type: HiveType) -> str:
    cut = text[: hive_type.length] if hive_type.length else text
    return cut.rstrip(" ") if hive_type.kind == "char" else cut


def _read_date(text: str, _type: HiveType) -> datetime.date:
    found = _DATE.fullmatch(text)
    if not found:
        raise ValueError("expected yyyy-MM-dd")
    try:
        return datetime.date(*map(int, found.groups()))
    except ValueError as error:
        raise _UnclearError(
            f"partition value {text!r}: Hive 3.1 reads it as a later day and Hive 4 as NULL ({error}); "
            "rename the partition"
        ) from error


def _read_timestamp(text: str, _type: HiveType) -> datetime.datetime:
    found = _TIMESTAMP.fullmatch(text)
    if not found:
        raise ValueError("expected yyyy-MM-dd HH:mm:ss[.f]")
    *parts, fraction = found.groups()
    nanos = int((fraction or "").ljust(9, "0"))
    if nanos % 1000:
        raise _UnclearError(f"partition value {text!r}: digits after microseconds are not supported")
    year, month, day, hour, minute, second = map(int, parts)
    return datetime.datetime(year, month, day, hour, minute, second, nanos // 1000)


_VALUES: dict[str, Callable[[str, HiveType], object]] = {
    "boolean": _read_boolean,
    **dict.fromkeys(INTEGER_KINDS, _read_integer),
    **dict.fromkeys(("float", "double"), _read_float),
    "decimal": _read_decimal,
    **dict.fromkeys(("string", "varchar", "char"), _read_string),
    "date": _read_date,
    "timestamp": _read_timestamp,
}
