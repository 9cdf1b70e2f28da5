"""The typed value of a partition's string as Hive reads it, and the string of a value as Hive writes it."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api.errors import RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import INTEGER_BITS, HiveType, TypeFamily, parse_hive_type
from mutation_api.format.number_text import exact_decimal, texts_of_decimals

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
    """Return the value as :func:`partition_value` does, but None if Hive shows NULL for the partition.

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
    if not hive_type.facts.is_partition_key:
        raise RecordValueError(
            f"partition value {text!r}: type {hive_type.text} is not supported as a partition key"
        )
    try:
        return _FORMS[hive_type.family].read(text, hive_type)
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


def _plain_texts(array: pa.Array, _type: HiveType) -> pa.Array:
    return array.cast(pa.string())


def _string_texts(array: pa.Array, hive_type: HiveType) -> pa.Array:
    """Pad a char to the declared length, as Hive's writable prints it. So '' becomes blanks, not NULL."""
    return pc.utf8_rpad(array, hive_type.length, " ") if hive_type.kind == "char" else array.cast(pa.string())


def _timestamp_texts(array: pa.Array, _type: HiveType) -> pa.Array:
    texts = array.cast(pa.string())
    return pc.replace_substring_regex(texts, r"\.?0*$", "") if len(texts) else texts


def _decimal_texts(array: pa.Array, _type: HiveType) -> pa.Array:
    return texts_of_decimals(array)


def _float_texts(array: pa.Array, _type: HiveType) -> pa.Array:
    shortest = array.cast(pa.string()).to_pylist()
    return pa.array([None if text is None else _java_float(text) for text in shortest], pa.string())


def _java_float(text: str) -> str:
    """Write the shortest form of a float as Java's toString does: 1.0, 1.0E10, 1.0E-4, NaN, -Infinity."""
    value = float(text)
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return f"{sign}Infinity"
    if value == 0:
        return f"{sign}0.0"
    number = Decimal(text).copy_abs().normalize()
    digits = "".join(map(str, number.as_tuple().digits))
    exponent = number.adjusted()
    if -3 <= exponent < 7:
        plain = f"{number:f}"
        return sign + (plain if "." in plain else f"{plain}.0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def texts_of_values(values: pa.Array, hive_type: HiveType) -> pa.Array:
    """Return the strings of n values of a partition column, as Hive writes them; not escaped."""
    return _FORMS[hive_type.family].write(values, hive_type)


@dataclass(frozen=True)
class _Form:
    """The functions that read values of a family from names of partitions, and write them there."""

    read: Callable[[str, HiveType], object]
    write: Callable[[pa.Array, HiveType], pa.Array]


_FORMS = {
    TypeFamily.BOOLEAN: _Form(_read_boolean, _plain_texts),
    TypeFamily.INTEGER: _Form(_read_integer, _plain_texts),
    TypeFamily.FLOAT: _Form(_read_float, _float_texts),
    TypeFamily.DECIMAL: _Form(_read_decimal, _decimal_texts),
    TypeFamily.TEXT: _Form(_read_string, _string_texts),
    TypeFamily.DATE: _Form(_read_date, _plain_texts),
    TypeFamily.TIMESTAMP: _Form(_read_timestamp, _timestamp_texts),
}
