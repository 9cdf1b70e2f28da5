"""Columns of MySQL and MariaDB as columns of Hive: one table of types, for SELECT and for the log.

=======================================  ====================================================================
column in the source                     column in Hive
=======================================  ====================================================================
tinyint … bigint, signed or unsigned,    an integer type or decimal; each value must fit. ``bigint unsigned``
year                                     needs ``decimal(20,0)`` for all of its values. Or a string type
tinyint(1) (``boolean``), bit(1)         the same, or boolean if all values are 0 or 1
bit(n)                                   the same, with the bits as an unsigned number
decimal(p,s)                             decimal with at least s digits after the point; each value must fit
float, double                            float (from float alone), double
char, varchar, …text, enum, set, json    string, or char(n) and varchar(n) of at least the same length. A set
of MariaDB                               becomes its members in definition order, separated by commas
binary, varbinary, …blob                 binary
geometry and its kinds                   binary: four bytes of SRID and the well-known binary form
date                                     date
datetime                                 timestamp, unchanged
timestamp                                timestamp: local time in the chosen time zone (default: UTC)
time                                     string: [-]hh:mm:ss with the column's fractional digits
json of MySQL, uuid, inet4, inet6,       not supported; the error names the column. Leave it out
vector, compressed columns, temporal
columns made before MySQL 5.6
=======================================  ====================================================================

A date or time with a zero month or day (``0000-00-00``) is not a date in Hive: it is an error, or becomes
NULL if so chosen. A date that does not exist (``2023-02-30``) is always an error. Character sets: utf8mb3,
utf8mb4, ascii, latin1, utf16, utf16le, ucs2, utf32; others are errors.

Source: MySQL's "Data Type Storage Requirements" and "Replication and the binary log" in its manual; MariaDB's
knowledge base on data types. Tests compare each value with a running MariaDB.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import INTEGER_KINDS, TEXT_KINDS, HiveType

ZERO_DATES = ("error", "null")
ZERO_DATES_DEFAULT = "error"
TIME_ZONE_DEFAULT = "UTC"

# MySQL's latin1 is Windows code page 1252; the five bytes that have no character there stay as they are.
_LATIN1 = {
    byte: bytes([byte]).decode("cp1252")
    for byte in range(0x80, 0xA0)
    if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
_CODECS = {"utf16": "utf-16-be", "utf16le": "utf-16-le", "ucs2": "utf-16-be", "utf32": "utf-32-be"}
_UTF8 = ("utf8", "utf8mb3", "utf8mb4", "ascii")
_LABEL = re.compile(r"'((?:[^']|'')*)'")
_ESCAPE = re.compile(r"''|\\.", re.S)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "Z": "\x1a"}
_CHARACTER_KINDS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set")
GEOMETRY_KINDS = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
)
_INTEGER_DIGITS = 20
_MICROS = 1_000_000


@dataclass(frozen=True)
class SourceColumn:
    """A column as described by the source's catalog, or by its log if ``is_logged``.

    ``kind``: name of the type (``bigint``). ``type_text``: the full type (``bigint(20) unsigned``).
    ``length``: number of characters, bytes or bits. ``fraction``: number of fractional digits of a second.
    """

    name: str
    kind: str
    type_text: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    fraction: int = 0
    charset: str | None = None
    is_logged: bool = False

    @property
    def is_unsigned(self) -> bool:
        """True for an integer column without negative numbers."""
        return "unsigned" in self.type_text

    @property
    def labels(self) -> tuple[str, ...]:
        """The members of an enum or a set, in the order of their definition."""
        return tuple(_ESCAPE.sub(_unescaped, label) for label in _LABEL.findall(self.type_text))


@dataclass(frozen=True)
class ValueOptions:
    """The user's choices about values.

    ``time_zone``: the zone in which a TIMESTAMP becomes a local timestamp. ``zero_dates``: ``error`` or
    ``null``.
    """

    time_zone: str = TIME_ZONE_DEFAULT
    zero_dates: str = ZERO_DATES_DEFAULT


@dataclass(frozen=True)
class Family:
    """A family of types that are stored, selected and converted in the same way.

    ``hive``: kinds of Hive types that can hold the values. ``of_text`` converts the bytes that SELECT
    returns. ``of_log`` converts the values that :mod:`mutation_api.cdc.mysql.row_events` decodes.
    ``select`` turns the quoted name into an expression for SELECT.
    """

    hive: tuple[str, ...]
    of_text: Callable[[SourceColumn, pa.Array, ValueOptions], pa.Array]
    of_log: Callable[[SourceColumn, list[Any], ValueOptions], pa.Array]
    select: Callable[[str], str] = lambda name: name


def family_of(column: SourceColumn, table: str) -> Family:
    """Return how to read a column. Raises RecordLayoutError, which names ``table``, for unsupported types."""
    family = _FAMILIES.get(column.kind)
    # MariaDB adds a comment to the type of a column that is compressed, or in a format of MySQL 5.5.
    if family is None or ("/*" in column.type_text and column.kind not in ("enum", "set")):
        raise RecordLayoutError(
            f"source table {table}, column {column.name!r}: type {column.type_text} is not supported. Leave "
            "the column out, or change its type (ALTER TABLE … FORCE rebuilds columns that an old server "
            "release created)"
        )
    if column.charset is not None and column.charset not in (*_UTF8, *_CODECS, "latin1", "binary"):
        known = ", ".join((*_UTF8, *_CODECS, "latin1"))
        raise RecordLayoutError(
            f"source table {table}, column {column.name!r}: character set {column.charset} is not supported, "
            f"expected one of {known}. Convert the column, or leave it out"
        )
    return family


def _unescaped(found: re.Match[str]) -> str:
    letter = found[0][1]
    return _ESCAPED.get(letter, letter)


def check_target(column: SourceColumn, hive_type: HiveType, table: str) -> None:
    """Raise RecordLayoutError if a Hive column cannot hold the source's values."""
    allowed = family_of(column, table).hive
    if column.kind == "float":
        allowed = ("float", "double")
    # The log does not distinguish tinyint(1) from tinyint; the values are checked later.
    is_flag = column.type_text.startswith("tinyint(1)") or (column.kind == "tinyint" and column.is_logged)
    if is_flag or (column.kind == "bit" and column.length == 1):
        allowed = ("boolean", *allowed)
    reason = ""
    if hive_type.kind not in allowed:
        reason = f"expected one of {', '.join(allowed)}"
    elif column.kind == "decimal" and hive_type.kind == "decimal" and hive_type.scale < column.scale:
        reason = f"the source has {column.scale} digits after the decimal point"
    elif hive_type.kind in ("char", "varchar") and _text_length(column) > hive_type.length:
        reason = f"a value may have {_text_length(column)} characters"
    if reason:
        raise RecordLayoutError(
            f"source table {table}, column {column.name!r} ({column.type_text}) cannot be stored in a column "
            f"of type {hive_type.text}: {reason}"
        )


def _text_length(column: SourceColumn) -> int:
    if column.kind == "time":
        return len("-838:59:59.") + column.fraction
    return max(column.length, _INTEGER_DIGITS if column.kind not in _CHARACTER_KINDS else 0)


def to_column(column: SourceColumn, hive_type: HiveType, values: pa.Array) -> pa.Array:
    """Convert values to the type of a Hive column.

    Raises:
        RecordValueError: If a value does not fit. The message contains the column and the value.
    """
    if hive_type.kind == "boolean":
        others = pc.drop_null(pc.filter(values, pc.greater(values, 1)))
        negative = pc.drop_null(pc.filter(values, pc.less(values, 0)))
        if len(others) or len(negative):
            found = pa.chunked_array([others, negative])[0]
            raise RecordValueError(f"column {column.name!r}: {found} is not a boolean: expected 0 or 1")
        return pc.equal(values, 1)
    return convert_to_column(values, hive_type, column=column.name, timestamp_unit="us")


def _integers_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    return pa.array(values, pa.uint64() if column.is_unsigned or column.kind == "bit" else pa.int64())


def _integers_of_text(column: SourceColumn, texts: pa.Array, _options: ValueOptions) -> pa.Array:
    kind = pa.uint64() if column.is_unsigned or column.kind == "bit" else pa.int64()
    return texts.cast(pa.string()).cast(kind)


def _decimals_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    return pa.array(values, pa.decimal256(column.precision, column.scale))


def _decimals_of_text(column: SourceColumn, texts: pa.Array, _options: ValueOptions) -> pa.Array:
    return texts.cast(pa.string()).cast(pa.decimal256(column.precision, column.scale))


def _floats_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    return pa.array(values, pa.float32() if column.kind == "float" else pa.float64())


def _floats_of_text(column: SourceColumn, texts: pa.Array, _options: ValueOptions) -> pa.Array:
    doubles = texts.cast(pa.string()).cast(pa.float64())
    return doubles.cast(pa.float32(), safe=False) if column.kind == "float" else doubles


def _texts_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    if column.charset in _UTF8:
        return _utf8(column, pa.array(values, pa.binary()))
    decode = codec_of(column.charset)
    assert decode is not None, column.charset
    try:
        return pa.array([None if value is None else decode(value) for value in values], pa.string())
    except UnicodeError as error:
        raise RecordValueError(f"column {column.name!r} ({column.charset}): {error}") from error


def codec_of(charset: str | None) -> Callable[[bytes], str] | None:
    """Return the decoder of a character set, or None if it is not supported."""
    if charset == "latin1":
        return lambda value: value.decode("latin-1").translate(_LATIN1)
    codec = "utf-8" if charset in _UTF8 else _CODECS.get(charset or "")
    return None if codec is None else lambda value: value.decode(codec)


def _utf8(column: SourceColumn, values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise RecordValueError(f"column {column.name!r}: {error}") from error


def _texts_of_text(column: SourceColumn, texts: pa.Array, _options: ValueOptions) -> pa.Array:
    return _utf8(column, texts)


def _bytes_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    if column.kind == "binary":  # the log omits trailing zero bytes
        values = [None if value is None else value.ljust(column.length, b"\0") for value in values]
    return pa.array(values, pa.binary())


def _bytes_of_text(_column: SourceColumn, texts: pa.Array, _options: ValueOptions) -> pa.Array:
    return texts


def _enums_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    # Number 0 is the empty string, which MySQL stores for a value that is not a member.
    return pa.array(["", *column.labels], pa.string()).take(pa.array(values, pa.int64()))


def _sets_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    labels = column.labels
    texts = {
        mask: ",".join(label for bit, label in enumerate(labels) if mask >> bit & 1)
        for mask in {*values} - {None}
    }
    return pa.array([None if mask is None else texts[mask] for mask in values], pa.string())


def _dates_of_log(column: SourceColumn, values: list[Any], options: ValueOptions) -> pa.Array:
    """Decode packed dates: the low five bits are the day, the next four the month, the rest the year."""
    packed, valid = _numbers(values)
    days, valid = _days(column, packed >> 9, packed >> 5 & 15, packed & 31, valid, options)
    return pa.array(days.astype(np.int32), mask=~valid).cast(pa.date32())


def _dates_of_text(column: SourceColumn, texts: pa.Array, options: ValueOptions) -> pa.Array:
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    days, valid = _days(column, *_date_fields(texts.cast(pa.string())), valid, options)
    return pa.array(days.astype(np.int32), mask=~valid).cast(pa.date32())


def _datetimes_of_log(column: SourceColumn, values: list[Any], options: ValueOptions) -> pa.Array:
    """Decode ``packed * 1,000,000 + microseconds``.

    ``packed`` holds year * 13 + month, day, hour, minute and second.
    """
    numbers, valid = _numbers(values)
    packed, micros = np.divmod(numbers, _MICROS)
    months = packed >> 22
    days, valid = _days(column, months // 13, months % 13, packed >> 17 & 31, valid, options)
    seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    return _wall_clocks((days * 86400 + seconds) * _MICROS + micros, valid)


def _datetimes_of_text(column: SourceColumn, texts: pa.Array, options: ValueOptions) -> pa.Array:
    return _wall_clocks(*_micros_of_text(column, texts, options))


def _timestamps_of_log(column: SourceColumn, values: list[Any], options: ValueOptions) -> pa.Array:
    """Convert microseconds since 1970; 0 means ``0000-00-00``, since TIMESTAMP starts one second later."""
    micros, valid = _numbers(values)
    return _in_zone(micros, _without_zeros(column, valid, micros == 0, options), options)


def _timestamps_of_text(column: SourceColumn, texts: pa.Array, options: ValueOptions) -> pa.Array:
    return _in_zone(*_micros_of_text(column, texts, options), options)


def _micros_of_text(
    column: SourceColumn, texts: pa.Array, options: ValueOptions
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    valid = texts.is_valid().to_numpy(zero_copy_only=False)
    strings = texts.cast(pa.string())
    days, valid = _days(column, *_date_fields(strings), valid, options)
    hours, minutes, seconds = (_slice(strings, start, start + 2) for start in (11, 14, 17))
    micros = (days * 86400 + hours * 3600 + minutes * 60 + seconds) * _MICROS
    if column.fraction:
        fraction = _slice(strings, 20, 20 + column.fraction)
        micros += fraction * 10 ** (6 - column.fraction)
    return micros, valid


def _times_of_log(column: SourceColumn, values: list[Any], _options: ValueOptions) -> pa.Array:
    texts = [None if micros is None else _time_text(micros, column.fraction) for micros in values]
    return pa.array(texts, pa.string())


def _time_text(micros: int, fraction: int) -> str:
    seconds, rest = divmod(abs(micros), _MICROS)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{rest:06}"[: len(text) + 1 + fraction] if fraction else text


def _numbers(values: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the values as numpy integers, with 0 for None, and a mask of the values that are not None."""
    array = pa.array(values, pa.int64())
    filled = pc.fill_null(array, 0) if array.null_count else array
    return filled.to_numpy(), array.is_valid().to_numpy(zero_copy_only=False)


def _date_fields(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    return _slice(texts, 0, 4), _slice(texts, 5, 7), _slice(texts, 8, 10)


def _slice(texts: pa.Array, start: int, stop: int) -> NDArray[np.int64]:
    numbers = pc.utf8_slice_codeunits(texts, start, stop).cast(pa.int64())
    found: NDArray[np.int64] = (pc.fill_null(numbers, 0) if numbers.null_count else numbers).to_numpy()
    return found


def _days(
    column: SourceColumn,
    years: NDArray[np.int64],
    months: NDArray[np.int64],
    days: NDArray[np.int64],
    valid: NDArray[np.bool_],
    options: ValueOptions,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return days since 1970 and a mask of valid dates.

    Zero dates are NULL or an error, depending on the options. Other invalid dates are always an error.
    """
    valid = _without_zeros(column, valid, (months == 0) | (days == 0), options)
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    dates = first.astype("datetime64[D]") + (days - 1)
    wrong = valid & (dates.astype("datetime64[M]") != first)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        text = f"{years[at]:04}-{months[at]:02}-{days[at]:02}"
        raise RecordValueError(f"column {column.name!r}: {text} is not a date; correct it in the source")
    return dates.astype(np.int64), valid


def _without_zeros(
    column: SourceColumn, valid: NDArray[np.bool_], zeros: NDArray[np.bool_], options: ValueOptions
) -> NDArray[np.bool_]:
    if options.zero_dates == "error" and (valid & zeros).any():
        raise RecordValueError(
            f"column {column.name!r} ({column.type_text}): a date with a zero month or day is not a date in "
            "Hive. Correct it in the source, or convert such dates to NULL (--zero-dates null, in Python "
            "zero_dates='null')"
        )
    left: NDArray[np.bool_] = valid & ~zeros
    return left


def _wall_clocks(micros: NDArray[np.int64], valid: NDArray[np.bool_]) -> pa.Array:
    return pa.array(micros, mask=~valid).cast(pa.timestamp("us"))


def _in_zone(micros: NDArray[np.int64], valid: NDArray[np.bool_], options: ValueOptions) -> pa.Array:
    instants = pa.array(micros, mask=~valid).cast(pa.timestamp("us", tz=options.time_zone))
    return pc.local_timestamp(instants)


_NUMBER_TARGETS = (*INTEGER_KINDS, "decimal", *TEXT_KINDS)
_INTEGERS = Family(_NUMBER_TARGETS, _integers_of_text, _integers_of_log)
_BITS = Family(_NUMBER_TARGETS, _integers_of_text, _integers_of_log, lambda name: f"{name}+0")
_DECIMALS = Family(("decimal",), _decimals_of_text, _decimals_of_log)
# SELECT shows only six digits of a float; multiplied into a double, it shows all of them.
_FLOATS = Family(("double",), _floats_of_text, _floats_of_log, lambda name: f"{name}*1e0")
_TEXTS = Family(TEXT_KINDS, _texts_of_text, _texts_of_log)
_BYTES = Family(("binary",), _bytes_of_text, _bytes_of_log)

_FAMILIES = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year"), _INTEGERS),
    "bit": _BITS,
    "decimal": _DECIMALS,
    **dict.fromkeys(("float", "double"), _FLOATS),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _TEXTS),
    "enum": Family(TEXT_KINDS, _texts_of_text, _enums_of_log),
    "set": Family(TEXT_KINDS, _texts_of_text, _sets_of_log),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    **dict.fromkeys(GEOMETRY_KINDS, _BYTES),
    "date": Family(("date",), _dates_of_text, _dates_of_log),
    "datetime": Family(("timestamp",), _datetimes_of_text, _datetimes_of_log),
    "timestamp": Family(("timestamp",), _timestamps_of_text, _timestamps_of_log),
    "time": Family(TEXT_KINDS, _texts_of_text, _times_of_log),
}
