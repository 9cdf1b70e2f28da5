"""Values of source columns as Hive stores them, and rows above a value of a monotonically increasing column.

A value from a driver gets the type of its Hive column, either exactly or not at all.

An extraction reads the rows whose value is not below a bound. A row can miss this condition in two ways:

* Its value cannot be ordered: NULL, NaN, an infinity, a zero date. Such rows are read each time. Their values
  are never the bound, because no value is ever above NaN.
* Its value is below the bound, because the application or a clock assigned a smaller one. The numbers of rows
  below the bound show this: they may only fall, as rows are deleted or get greater values. They are counted
  in BUCKETS groups by key and value, so that a row that appeared is rarely offset by another one that
  disappeared.

A bound is a string from a position in Hive. It becomes part of a statement only as a literal. The module of
the database creates the literal and rejects a string that is not a value of the column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.cdc.update.database import SourceColumn
from mutation_api.errors import ConfigurationError, RecordValueError, SourcePositionError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.hive_type import HiveType, TypeFamily

WIDEST_DECIMAL = 70
"""The digits of a decimal column before it gets the type of its Hive column."""
_NANOSECONDS = re.compile(r"[.,]\d{6}0*[1-9]")
_FIRST = {
    TypeFamily.DATE: pa.scalar(date.min),
    TypeFamily.TIMESTAMP: pa.scalar(datetime.min, pa.timestamp("us")),
}
"""The first value of a type; Arrow may accept the string of an earlier one."""


def to_hive_column(
    name: str, target: HiveType, values: Sequence[Any], *, nulls_invalid: bool = False, advice: str = ""
) -> pa.Array:
    """Convert Python values to the type of a Hive column.

    ISO 8601 strings are accepted for dates, timestamps and decimals, because SQLite does not have such types.
    0 and 1 are accepted for booleans. A decimal is never rounded, and no fractional digit of a second is cut
    off.

    Args:
        name: the column's name, for messages.
        target: its type in Hive.
        values: None, numbers, strings, bytes, dates, or timestamps without time zone.
        nulls_invalid: True to convert invalid values to NULL: a string that is not a date in the years 1 to
            9999, or a number that is not finite if the column holds only finite numbers.
        advice: what to do if such a value is refused.

    Raises:
        RecordValueError: If a value does not fit. The message contains the value.
        RecordLayoutError: If values of this type can never be stored in the column.
    """
    try:
        array = _array(values, target)
    except InvalidError as invalid:
        if nulls_invalid:
            kept = [None if _is_invalid(value, target) else value for value in values]
            return to_hive_column(name, target, kept)
        raise RecordValueError(f"column {name!r} ({target.text}): {invalid}{advice}") from invalid
    except _MisfitError as misfit:
        raise RecordValueError(f"column {name!r} ({target.text}): {misfit}") from misfit
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise RecordValueError(f"column {name!r} ({target.text}): {error}") from error
    return convert_to_column(array, target, column=name, timestamp_unit="us")


def _array(values: Sequence[Any], target: HiveType) -> pa.Array:
    return _decimals(values, target) if target.family is TypeFamily.DECIMAL else _plain(values, target)


def null_advice(column: SourceColumn) -> str:
    """Return advice for a value that is not a valid date or finite number, to append to a message."""
    string = f". Correct the value, or use a Hive table in which {column.name} is a string"
    if column.is_key:
        return string
    return (
        f"{string}; or convert such values to NULL (hive-mutate update enable … --null-for {column.name}, in "
        f"Python null_for=[{column.name!r}], with the other options as before)"
    )


def _is_invalid(value: Any, target: HiveType) -> bool:
    """Return True if a value is one that may become NULL."""
    convert = _PREPARED.get(target.family)
    if value is None or convert is None:
        return False
    try:
        found = convert(value)
    except InvalidError:
        return True
    except _MisfitError:
        return False
    return target.family is TypeFamily.DECIMAL and not found.is_finite()


class _MisfitError(Exception):
    """Raised when a value does not fit; the message states the reason."""


class InvalidError(_MisfitError):
    """Raised when a value is not a valid date or finite number, regardless of the column's size."""


def _plain(values: Sequence[Any], target: HiveType) -> pa.Array:
    """Return values as an array; if all have the expected type, they are not checked individually."""
    convert = _PREPARED.get(target.family)
    kinds = set(map(type, values))
    if target.family in _FIRST and kinds <= {str, type(None)}:
        found = times_of_texts(pa.array(values, pa.string()), target.family)
        if found is not None:
            return found
    if convert is None or kinds <= {_EXPECTED.get(target.family), type(None)}:
        return pa.array(values, _HINTS.get(target.family))
    return pa.array([None if v is None else convert(v) for v in values], _HINTS.get(target.family))


def times_of_texts(texts: pa.StringArray, family: TypeFamily) -> pa.Array | None:
    """Convert ISO 8601 strings at once; return None if others need individual checks."""
    try:
        array = texts.cast(_HINTS[family])
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.less(array, _FIRST[family])).as_py() else array


def _decimals(values: Sequence[Any], target: HiveType) -> pa.Array:
    kept = [value for value in values if value is not None]
    if not set(map(type, kept)) <= {Decimal}:
        values = [None if value is None else _decimal(value) for value in values]
        kept = [value for value in values if value is not None]
    if not all(map(Decimal.is_finite, kept)):
        raise InvalidError(f"{next(value for value in kept if not value.is_finite())} is not a finite number")
    try:
        return pa.array(values, pa.decimal256(WIDEST_DECIMAL, target.scale))
    except pa.ArrowInvalid as error:
        wrong = next((v for v in kept if _digits(v) > target.scale), None)
        if wrong is None:
            ready = [None if value is None else value.normalize() for value in values]
            return pa.array(ready, pa.decimal256(WIDEST_DECIMAL, target.scale))
        raise _MisfitError(f"{wrong} has more than {target.scale} digits after the decimal point") from error


def _digits(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise _MisfitError(f"{value!r} is not a number") from error


def _integer(value: Any) -> Any:
    if isinstance(value, Decimal | float) and not math.isfinite(value):
        raise InvalidError(f"{value!r} is not a finite number")
    if isinstance(value, Decimal | float) and value == int(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _MisfitError(f"{value!r} is not a whole number")
    return value


def _boolean(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise _MisfitError(f"{value!r} is not a boolean: expected 0 or 1")


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _MisfitError(f"{value!r} is not a number")
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | memoryview | float):
        raise _MisfitError(f"{value!r} is not a string")
    return str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _MisfitError(f"{value!r} is not bytes")


def _date(value: Any) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise InvalidError(
                f"{value!r} is not a date in the years 1 to 9999, such as 2024-05-31"
            ) from error
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise _MisfitError(f"{value!r} is not a date")


def _timestamp(value: Any) -> datetime:
    found = value
    if isinstance(value, str):
        if _NANOSECONDS.search(value):
            raise _MisfitError(f"{value!r} has more than 6 fractional digits of a second")
        try:
            found = datetime.fromisoformat(value)
        except ValueError as error:
            raise InvalidError(
                f"{value!r} is not a time in the years 1 to 9999, such as 2024-05-31 12:00:00"
            ) from error
    if not isinstance(found, datetime) or found.tzinfo is not None:
        raise _MisfitError(f"{value!r} is not a time without time zone")
    return found


_PREPARED: dict[TypeFamily, Callable[[Any], Any]] = {
    TypeFamily.INTEGER: _integer,
    TypeFamily.TEXT: _text,
    TypeFamily.FLOAT: _float,
    TypeFamily.BOOLEAN: _boolean,
    TypeFamily.DECIMAL: _decimal,
    TypeFamily.BINARY: _bytes,
    TypeFamily.DATE: _date,
    TypeFamily.TIMESTAMP: _timestamp,
}
_EXPECTED: dict[TypeFamily, type] = {
    TypeFamily.INTEGER: int,
    TypeFamily.TEXT: str,
    TypeFamily.FLOAT: float,
    TypeFamily.BOOLEAN: bool,
    TypeFamily.BINARY: bytes,
    TypeFamily.DATE: date,
}
_HINTS: dict[TypeFamily, pa.DataType] = {
    TypeFamily.INTEGER: pa.int64(),
    TypeFamily.TEXT: pa.string(),
    TypeFamily.FLOAT: pa.float64(),
    TypeFamily.BOOLEAN: pa.bool_(),
    TypeFamily.BINARY: pa.binary(),
    TypeFamily.DATE: pa.date32(),
    TypeFamily.TIMESTAMP: pa.timestamp("us"),
}


BUCKETS = 512
"""The number of groups in which the rows below the bound are counted; a power of two."""

OVERLAP_SECONDS_MAX = 10 * 366 * 86_400
NUMBER = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"
"""The pattern of a number, as all databases write it."""


def matching(form: str, text: str) -> str:
    """Return a string that matches a regular expression. Raises ValueError if it does not."""
    if not re.fullmatch(form, text, re.DOTALL):
        raise ValueError(text)
    return text


def plain_number(text: str) -> str:
    """Return the literal of a number. Raises ValueError if the string is not a number."""
    return matching(NUMBER, text)


def seconds_of(overlap: Decimal) -> str:
    """Return the overlap of a column of times as SQL.

    Raises:
        ConfigurationError: If the overlap is so long that the result may not be a valid time in the database.
            MySQL would use NULL instead and read nothing.
    """
    if overlap > OVERLAP_SECONDS_MAX:
        raise ConfigurationError(
            f"overlap={overlap}: expected a number of seconds for a column of dates or times, of at most "
            f"{OVERLAP_SECONDS_MAX:,} (ten years)"
        )
    return f"{overlap:f}"


def minus(literal: str, overlap: Decimal) -> str:
    """Return the SQL of a number minus an overlap."""
    return f"{literal} - {overlap:f}"


def _as_it_is(value: str) -> str:
    return value


def _none(value: str) -> str:
    return ""


@dataclass(frozen=True)
class GrowingColumn:
    """A monotonically increasing column in the SQL of its database.

    Attributes:
        name: the column, quoted.
        bucket: returns the group of a row, from 0 to BUCKETS - 1, from the SQL of its key columns and the
            column.
        shown: returns a value as a string from which ``literal`` creates the same value again.
        literal: returns the value of such a string. Raises ValueError if the string is not a value.
        regular: returns the condition for values that can be the bound; empty if all can.
        lowest: returns the condition for values below all others, which are read each time; empty if there
            are none.
        others: returns, from the bound's literal and the column, the condition for rows that are read each
            time because of the literal's kind; empty if there are none.
        lowered: returns a literal minus an overlap.
    """

    name: str
    bucket: Callable[[str, str], str]
    shown: Callable[[str], str] = _as_it_is
    literal: Callable[[str], str] = plain_number
    regular: Callable[[str], str] = _none
    lowest: Callable[[str], str] = _none
    others: Callable[[str, str], str] = lambda literal, name: ""
    lowered: Callable[[str, Decimal], str] = minus

    def greatest(self, table: str, before: str) -> str:
        """Return the query for the greatest value as a string and for whether it is below ``before``."""
        regular = self.regular(self.name)
        where = f" WHERE {regular}" if regular else ""
        is_below = f"CASE WHEN MAX({self.name}) < {self._value(before)} THEN 1 ELSE 0 END" if before else "0"
        return f"SELECT {self.shown(f'MAX({self.name})')}, {is_below} FROM {table}{where}"

    def from_bound(self, bound: str, overlap: Decimal | None) -> str:
        """Return the condition for the rows that an extraction reads."""
        start = self._start(bound, overlap)
        always = [f"{self.name} IS NULL", self.lowest(self.name), self._others(bound)]
        return " OR ".join([f"{self.name} >= {start}", *filter(None, always)])

    def counts_below(
        self, table: str, keys: Sequence[str], bounds: Sequence[str], overlap: Decimal | None
    ) -> str:
        """Return the query for groups, with the number of rows of each below each of the bounds."""
        counted = [
            f"COUNT(CASE WHEN {self._below(bound, overlap)} THEN 1 END)" if bound else "0" for bound in bounds
        ]
        lowest = self.lowest(self.name)
        regular = [f"NOT ({lowest})"] if lowest else []
        where = " AND ".join([f"{self.name} IS NOT NULL", *regular])
        bucket = self.bucket(", ".join(keys), self.name)
        return f"SELECT {bucket}, {', '.join(counted)} FROM {table} WHERE {where} GROUP BY 1"

    def _below(self, bound: str, overlap: Decimal | None) -> str:
        others = self._others(bound)
        return f"{self.name} < {self._start(bound, overlap)}{f' AND NOT ({others})' if others else ''}"

    def _others(self, bound: str) -> str:
        return self.others(self._value(bound), self.name)

    def _start(self, bound: str, overlap: Decimal | None) -> str:
        return self._value(bound) if overlap is None else self.lowered(self._value(bound), overlap)

    def _value(self, bound: str) -> str:
        try:
            return self.literal(bound)
        except ValueError as error:
            raise SourcePositionError(
                f"column {self.name}: the position in Hive has the bound {bound[:200]!r}, which is not a "
                "value of the column. Either the column's type was changed, or the position was altered. "
                "Nothing was read. Run hive-mutate update disable --discard, then enable incremental "
                "update again: the first extraction compares the two tables"
            ) from error


def appeared_below(before: Sequence[int], now: Sequence[int]) -> int:
    """Return the number of rows that must have appeared below the bound; deletes may hide some."""
    return sum(max(0, found - was) for was, found in zip(before, now, strict=True))
