"""Bucket hashes of values that are written as JSON: one array of bucket column values per line.

``hive-mutate bucket`` reads such lines. Numbers may be JSON numbers or strings. Decimals, dates and
timestamps are strings; binary is hexadecimal. A map is an object or a list of pairs, a struct an object or a
list by position, a union ``[tag, value]``. ``"NaN"`` and ``"Infinity"`` are strings, because JSON does not
have them.
"""

from __future__ import annotations

import datetime
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, MutationError, RecordValueError
from mutation_api.format.bucket_hash import bucket_ids, check_hashable, hash_columns
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import INTEGER_KINDS, HiveType
from mutation_api.format.number_text import exact_decimal, is_number_text
from mutation_api.format.plain_array import offsets_of_lists

__all__ = ["BATCH_LINES", "BucketHash", "column_from_json", "hash_json_lines"]


_TIMESTAMP = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?")
_FLOAT_WORDS = ("NaN", "Infinity", "-Infinity")


def column_from_json(values: Sequence[object], hive_type: HiveType) -> pa.Array:
    """Make a column of JSON values (parsed with ``parse_float=Decimal``, so that no digit is lost).

    Args:
        values: n parsed values. None is null.
        hive_type: the column's type.

    Returns:
        n values in the form that :func:`~mutation_api.format.bucket_hash.hash_columns` accepts: char and
        varchar are cut and decimals are rounded. Timestamps are structs of seconds and nanoseconds, which
        hold every timestamp.

    Raises:
        RecordValueError: If a value is not valid for this type.
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
        raise ValueError("a map key must not be null")
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
            raise ValueError(f"tag {tag!r} is not in 0 to {len(parts) - 1}")
        tags[row], positions[row] = tag, len(parts[tag])
        parts[tag].append(held)
    children = [column_from_json(part, child) for part, child in zip(parts, hive_type.children, strict=True)]
    return pa.UnionArray.from_dense(pa.array(tags), pa.array(positions), children)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {value!r}")
    return value


def _pairs(value: object) -> list[tuple[object, object]]:
    if isinstance(value, dict):
        return list(value.items())
    pairs = [_list(entry) for entry in _list(value)]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"expected [key, value] pairs, got {value!r}")
    return [(pair[0], pair[1]) for pair in pairs]


def _fields(value: object, hive_type: HiveType) -> list[object]:
    if isinstance(value, dict):
        given = {name.lower(): field for name, field in value.items()}
        extra = set(given) - {name.lower() for name in hive_type.field_names}
        if extra:
            raise ValueError(f"the struct does not have the fields {sorted(extra)}")
        return [given.get(name.lower()) for name in hive_type.field_names]
    fields = _list(value)
    if len(fields) != len(hive_type.children):
        raise ValueError(f"expected {len(hive_type.children)} fields, got {len(fields)}")
    return fields


def _read_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise ValueError(f"expected true or false, got {value!r}")


def _read_integer(value: object) -> int:
    if type(value) is int:
        return value
    number = _read_exact_decimal(value)
    if number != number.to_integral_value():
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(number)


def _read_float(value: object) -> float:
    return float(str(value)) if value in _FLOAT_WORDS else float(_read_decimal(value))


def _read_decimal(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
        raise TypeError(f"expected a number, got {value!r}")
    if isinstance(value, str) and not is_number_text(value):
        raise ValueError(f"expected a number, got {value!r}")
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise ValueError(f"expected a number, got {value!r}") from None
    if not number.is_finite():
        raise ValueError(f"expected a number, got {value!r}")
    return number


def _read_exact_decimal(value: object) -> Decimal:
    return exact_decimal(_read_decimal(value))


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value


def _read_binary(value: object) -> bytes:
    return bytes.fromhex(_read_text(value))


def _read_date(value: object) -> datetime.date:
    return datetime.date.fromisoformat(_read_text(value))


def _read_timestamp(value: object) -> dict[str, int]:
    found = _TIMESTAMP.fullmatch(_read_text(value))
    if not found:
        raise ValueError(f"expected yyyy-MM-dd HH:mm:ss[.f], got {value!r}")
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
"""The Arrow type that is built before conversion. Arrow chooses the type of a decimal by its digits."""


BATCH_LINES = 50_000
"""The number of lines that are hashed at once."""


@dataclass(frozen=True)
class BucketHash:
    """The settings of a table's hash: bucket count, version, and column types in CLUSTERED BY order.

    ``time_zone`` is the time zone of Hive's own processes; version 1 hashes timestamps with it.

    Raises:
        TableNotMutableError, ConfigurationError: See :func:`~mutation_api.format.bucket_hash.check_hashable`.
    """

    types: tuple[HiveType, ...]
    num_buckets: int
    version: int
    time_zone: str

    def __post_init__(self) -> None:
        check_hashable(self.types, self.version, self.time_zone)


def hash_json_lines(lines: Iterable[str], how: BucketHash) -> Iterator[tuple[int, int]]:
    """Yield the hash and the bucket of each line.

    Args:
        lines: JSON arrays with one value per bucket column, in the form that
            :mod:`mutation_api.table.bucket_rows` reads. Decimals keep all their digits.
        how: the settings of the table's hash.

    Yields:
        (hash, bucket) of each line, as ints. If a batch contains an invalid line, none of its lines is
        yielded.

    Raises:
        RecordValueError: If a line is not a JSON array of such values. The message has the line number,
            counted from 1.
        TableNotMutableError: If the bucket count is out of range.
    """
    rest = iter(lines)
    first = 1
    while batch := list(itertools.islice(rest, BATCH_LINES)):
        hashes = _batch_hashes(batch, first, how)
        buckets = bucket_ids(hashes, how.num_buckets)
        yield from zip(hashes.tolist(), buckets.tolist(), strict=True)
        first += len(batch)


def _batch_hashes(lines: Sequence[str], first: int, how: BucketHash) -> NDArray[np.int32]:
    rows = [_row(line, number, how) for number, line in enumerate(lines, first)]
    try:
        return _hashes(rows, how)
    except MutationError:
        _refuse_bad_line(rows, first, how)
        raise


def _row(line: str, number: int, how: BucketHash) -> list[object]:
    try:
        row = json.loads(line, parse_float=Decimal)
    except ValueError as error:
        raise RecordValueError(f"line {number}: not JSON: {error}") from error
    if not isinstance(row, list) or len(row) != len(how.types):
        found = line.strip()[:200]
        raise RecordValueError(f"line {number}: expected an array of {len(how.types)} value(s), got {found}")
    return row


def _hashes(rows: Sequence[Sequence[object]], how: BucketHash) -> NDArray[np.int32]:
    columns = [column_from_json([row[at] for row in rows], kind) for at, kind in enumerate(how.types)]
    return hash_columns(columns, how.types, how.version, how.time_zone)


def _refuse_bad_line(rows: Sequence[Sequence[object]], first: int, how: BucketHash) -> None:
    """Raise an error for the first invalid line of a batch that failed as a whole."""
    for number, row in enumerate(rows, first):
        try:
            _hashes([row], how)
        except ConfigurationError:
            raise
        except MutationError as error:
            raise RecordValueError(f"line {number}: {error}") from error
