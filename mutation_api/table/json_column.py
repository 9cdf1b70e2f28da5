"""JSON values as columns for the bucket hash.

Numbers may be JSON numbers or strings; decimals, dates and timestamps are strings; binary is hexadecimal; a
map is an object or a list of pairs, a struct an object or a list by position, a union ``[tag, value]``.
``"NaN"`` and ``"Infinity"`` are strings, since JSON does not have them.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

from mutation_api.errors import RecordValueError
from mutation_api.types.conversion import convert_to_column
from mutation_api.types.decimal_text import exact_decimal, is_number_text
from mutation_api.types.hive_type import INTEGER_KINDS, HiveType
from mutation_api.types.plain_array import offsets_of_lists

__all__ = ["column_from_json"]

_TIMESTAMP = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?")
_FLOAT_WORDS = ("NaN", "Infinity", "-Infinity")


def column_from_json(values: Sequence[object], hive_type: HiveType) -> pa.Array:
    """Make a column of JSON values (read with ``parse_float=Decimal``, so that no digit is lost).

    Args:
        values: n parsed values; None is null.
        hive_type: the column's type.

    Returns:
        n values as :func:`~mutation_api.bucketing.bucket_hash.hash_columns` accepts them: char and varchar
        cut, decimals rounded, timestamps as a struct of seconds and nanoseconds so that every one fits.

    Raises:
        RecordValueError: a value is not one of this type.
    """
    nested = _NESTED.get(hive_type.kind)
    try:
        if nested:
            return nested(values, hive_type)
        read = _READERS[hive_type.kind]
        array = pa.array(
            [None if value is None else read(value) for value in values], _ARROW.get(hive_type.kind)
        )
    except (ValueError, TypeError, ArithmeticError, InvalidOperation) as error:
        raise RecordValueError(f"not a {hive_type.text}: {error}") from error
    if hive_type.kind == "timestamp":
        return array
    return convert_to_column(array, hive_type, column=hive_type.text)


def _array(values: Sequence[object], hive_type: HiveType) -> pa.Array:
    lists = [None if value is None else _list(value) for value in values]
    elements = [element for each in lists if each is not None for element in each]
    return pa.ListArray.from_arrays(
        offsets_of_lists(lists), column_from_json(elements, hive_type.children[0])
    )


def _map(values: Sequence[object], hive_type: HiveType) -> pa.Array:
    maps = [None if value is None else _pairs(value) for value in values]
    entries = [entry for each in maps if each is not None for entry in each]
    if any(key is None for key, _ in entries):
        raise ValueError("a key of a map cannot be null")
    keys = column_from_json([key for key, _ in entries], hive_type.children[0])
    return pa.MapArray.from_arrays(
        offsets_of_lists(maps), keys, column_from_json([v for _, v in entries], hive_type.children[1])
    )


def _struct(values: Sequence[object], hive_type: HiveType) -> pa.Array:
    rows = [None if value is None else _fields(value, hive_type) for value in values]
    children = [
        column_from_json([None if row is None else row[index] for row in rows], child)
        for index, child in enumerate(hive_type.children)
    ]
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(children, names=list(hive_type.field_names), mask=mask)


def _union(values: Sequence[object], hive_type: HiveType) -> pa.Array:
    """Build a union. Arrow's unions cannot be null, so a null becomes a null of the first alternative."""
    tags, positions = np.zeros(len(values), np.int8), np.zeros(len(values), np.int32)
    parts: list[list[object]] = [[] for _ in hive_type.children]
    for row, value in enumerate(values):
        tag, held = (0, None) if value is None else _list(value)
        if not isinstance(tag, int) or not 0 <= tag < len(parts):
            raise ValueError(f"tag {tag!r} is not 0 to {len(parts) - 1}")
        tags[row], positions[row] = tag, len(parts[tag])
        parts[tag].append(held)
    children = [column_from_json(part, child) for part, child in zip(parts, hive_type.children, strict=True)]
    return pa.UnionArray.from_dense(pa.array(tags), pa.array(positions), children)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, found {value!r}")
    return value


def _pairs(value: object) -> list[tuple[object, object]]:
    if isinstance(value, dict):
        return list(value.items())
    pairs = [_list(entry) for entry in _list(value)]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"expected [key, value] pairs, found {value!r}")
    return [(pair[0], pair[1]) for pair in pairs]


def _fields(value: object, hive_type: HiveType) -> list[object]:
    if isinstance(value, dict):
        given = {name.lower(): field for name, field in value.items()}
        extra = set(given) - {name.lower() for name in hive_type.field_names}
        if extra:
            raise ValueError(f"the struct has no field {sorted(extra)}")
        return [given.get(name.lower()) for name in hive_type.field_names]
    fields = _list(value)
    if len(fields) != len(hive_type.children):
        raise ValueError(f"expected {len(hive_type.children)} fields, found {len(fields)}")
    return fields


def _read_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"expected true or false, found {value!r}")


def _read_integer(value: object) -> int:
    if type(value) is int:
        return value
    number = _read_exact_decimal(value)
    if number != number.to_integral_value():
        raise ValueError(f"expected a whole number, found {value!r}")
    return int(number)


def _read_float(value: object) -> float:
    return float(str(value)) if value in _FLOAT_WORDS else float(_read_decimal(value))


def _read_decimal(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise TypeError(f"expected a number, found {value!r}")
    if isinstance(value, str) and not is_number_text(value):
        raise ValueError(f"expected a number, found {value!r}")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"expected a number, found {value!r}") from None
    if not number.is_finite():
        raise ValueError(f"expected a number, found {value!r}")
    return number


def _read_exact_decimal(value: object) -> Decimal:
    return exact_decimal(_read_decimal(value))


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, found {value!r}")
    return value


def _read_binary(value: object) -> bytes:
    return bytes.fromhex(_read_text(value))


def _read_date(value: object) -> datetime.date:
    return datetime.date.fromisoformat(_read_text(value))


def _read_timestamp(value: object) -> dict[str, int]:
    found = _TIMESTAMP.fullmatch(_read_text(value))
    if not found:
        raise ValueError(f"expected yyyy-MM-dd HH:mm:ss[.f], found {value!r}")
    date, hour, minute, second, fraction = found.groups()
    time = datetime.time(int(hour), int(minute), int(second))
    days = datetime.date.fromisoformat(date).toordinal() - datetime.date(1970, 1, 1).toordinal()
    seconds = days * 86400 + time.hour * 3600 + time.minute * 60 + time.second
    return {"seconds": seconds, "nanos": int((fraction or "").ljust(9, "0"))}


_NESTED = {"array": _array, "map": _map, "struct": _struct, "uniontype": _union}

_READERS: dict[str, Callable[[object], object]] = {
    "boolean": _read_boolean,
    **dict.fromkeys(INTEGER_KINDS, _read_integer),
    **dict.fromkeys(("float", "double"), _read_float),
    "decimal": _read_exact_decimal,
    **dict.fromkeys(("string", "varchar", "char"), _read_text),
    "binary": _read_binary,
    "date": _read_date,
    "timestamp": _read_timestamp,
}

_ARROW = {
    "boolean": pa.bool_(),
    **dict.fromkeys(INTEGER_KINDS, pa.int64()),
    **dict.fromkeys(("float", "double"), pa.float64()),
    **dict.fromkeys(("string", "varchar", "char"), pa.string()),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.struct([("seconds", pa.int64()), ("nanos", pa.int64())]),
}
"""Arrow type to build before conversion; Arrow chooses a decimal's by its digits."""
