"""Values of source columns, and monotonically increasing columns.

Values that a driver gives, as the type of a column of Hive: exactly, or not at all.

GrowingColumn: the SQL that reads rows by a growing column.

An extraction reads the rows whose value is not below a bound. A row falls out of that condition in two ways:

* its value is not a point of the order: NULL, NaN, an infinity, a zero date. Such rows are read each time.
  Their values are never the bound, since nothing would ever lie above NaN;
* its value is below the bound, since the application or a clock gave a smaller one. The numbers of rows
  below the bound show that: they may only fall, as rows are deleted or get greater values. They are counted
  in BUCKETS groups by key and value, so that a row that came rarely makes up for another one that went.

A bound is text of a position in Hive. It is part of a statement only as the literal that the module of the
database makes of it, which refuses what is no value of the column.
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
from mutation_api.format.hive_type import INTEGER_KINDS, HiveType

__all__ = [
    "BUCKETS",
    "NUMBER",
    "GrowingColumn",
    "InvalidError",
    "appeared_below",
    "matching",
    "minus",
    "null_advice",
    "plain_number",
    "seconds_of",
    "to_hive_column",
]


_WIDEST = 70
_NANOSECONDS = re.compile(r"[.,]\d{6}0*[1-9]")
_FIRST = {"date": pa.scalar(date.min), "timestamp": pa.scalar(datetime.min, pa.timestamp("us"))}
"""The first value of a type; the text of an earlier one need not be refused by Arrow."""


def to_hive_column(
    name: str, target: HiveType, values: Sequence[Any], *, nulls_invalid: bool = False, advice: str = ""
) -> pa.Array:
    """Convert Python values to the type of a column of Hive.

    Texts are taken for dates, timestamps and decimals where the column is one (ISO 8601), since SQLite has no
    such types; 0 and 1 for booleans. A decimal is never rounded, and no digit of a second is cut.

    Args:
        name: the column's name, for messages.
        target: its type in Hive.
        values: None, or numbers, texts, bytes, dates and timestamps without zone.
        nulls_invalid: whether invalid values become NULL: a text that is not a date of the years 1 to 9999,
            and a number that is not finite where the column holds finite numbers only.
        advice: the way on if such a value is refused.

    Raises:
        RecordValueError: a value does not fit; names it.
        RecordLayoutError: values of this kind can never be stored in the column.
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
    return _decimals(values, target) if target.kind == "decimal" else _plain(values, target)


def null_advice(column: SourceColumn) -> str:
    """Return the way on for a value that no date or finite number of Hive is, to be put behind it."""
    string = f". Correct the value, or follow the table by one that has {column.name} as a string"
    if column.is_key:
        return string
    return (
        f"{string}; or let such values become NULL (hive-mutate update enable … --null-for {column.name}, in "
        f"Python null_for=[{column.name!r}], with the other options as before)"
    )


def _is_invalid(value: Any, target: HiveType) -> bool:
    """Return whether a value is one that may become NULL."""
    convert = _PREPARED.get(target.kind)
    if value is None or convert is None:
        return False
    try:
        found = convert(value)
    except InvalidError:
        return True
    except _MisfitError:
        return False
    return target.kind == "decimal" and not found.is_finite()


class _MisfitError(Exception):
    """A value does not fit; the message says why."""


class InvalidError(_MisfitError):
    """A value is not a date, or not a finite number, whatever the size of the column."""


def _plain(values: Sequence[Any], target: HiveType) -> pa.Array:
    """Values as an array; those that are of the expected type alone need no look at each."""
    convert = _PREPARED.get(target.kind)
    if target.kind in _FIRST and (found := _times_of_texts(values, target.kind)) is not None:
        return found
    if convert is None or set(map(type, values)) <= {_EXPECTED.get(target.kind), type(None)}:
        return pa.array(values, _HINTS.get(target.kind))
    return pa.array([None if v is None else convert(v) for v in values], _HINTS.get(target.kind))


def _times_of_texts(values: Sequence[Any], kind: str) -> pa.Array | None:
    """Convert texts in ISO 8601 at once; None if there are others, each of which needs a look."""
    if not set(map(type, values)) <= {str, type(None)}:
        return None
    try:
        array = pa.array(values, pa.string()).cast(_HINTS[kind])
    except pa.ArrowInvalid:
        return None
    return None if pc.any(pc.less(array, _FIRST[kind])).as_py() else array


def _decimals(values: Sequence[Any], target: HiveType) -> pa.Array:
    kept = [value for value in values if value is not None]
    if not set(map(type, kept)) <= {Decimal}:
        values = [None if value is None else _decimal(value) for value in values]
        kept = [value for value in values if value is not None]
    if not all(map(Decimal.is_finite, kept)):
        raise InvalidError(f"{next(value for value in kept if not value.is_finite())} is not a finite number")
    try:
        return pa.array(values, pa.decimal256(_WIDEST, target.scale))
    except pa.ArrowInvalid as error:
        wrong = next((v for v in kept if _digits(v) > target.scale), None)
        if wrong is None:
            ready = [None if value is None else value.normalize() for value in values]
            return pa.array(ready, pa.decimal256(_WIDEST, target.scale))
        raise _MisfitError(f"{wrong} has more than {target.scale} digits after the point") from error


def _digits(value: Decimal) -> int:
    exponent = value.normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _decimal(value: Any) -> Decimal:
    if isinstance(value, Decimal):
        return value
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise _MisfitError(f"{value!r} is no number") from error


def _integer(value: Any) -> Any:
    if isinstance(value, Decimal | float) and not math.isfinite(value):
        raise InvalidError(f"{value!r} is not a finite number")
    if isinstance(value, Decimal | float) and value == int(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _MisfitError(f"{value!r} is no whole number")
    return value


def _boolean(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise _MisfitError(f"{value!r} is neither 0 nor 1, so it is not a boolean")


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _MisfitError(f"{value!r} is no number")
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes | memoryview | float):
        raise _MisfitError(f"{value!r} is no text")
    return str(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _MisfitError(f"{value!r} are no bytes")


def _date(value: Any) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise InvalidError(
                f"{value!r} is not a date of the years 1 to 9999, such as 2024-05-31"
            ) from error
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise _MisfitError(f"{value!r} is no date")


def _timestamp(value: Any) -> datetime:
    found = value
    if isinstance(value, str):
        if _NANOSECONDS.search(value):
            raise _MisfitError(f"{value!r} has more than 6 digits of a second")
        try:
            found = datetime.fromisoformat(value)
        except ValueError as error:
            raise InvalidError(
                f"{value!r} is not a time of the years 1 to 9999, such as 2024-05-31 12:00:00"
            ) from error
    if not isinstance(found, datetime) or found.tzinfo is not None:
        raise _MisfitError(f"{value!r} is no time without zone")
    return found


_PREPARED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(INTEGER_KINDS, _integer),
    **dict.fromkeys(("string", "char", "varchar"), _text),
    **dict.fromkeys(("float", "double"), _float),
    "boolean": _boolean,
    "decimal": _decimal,
    "binary": _bytes,
    "date": _date,
    "timestamp": _timestamp,
}
_EXPECTED: dict[str, type] = {
    **dict.fromkeys(INTEGER_KINDS, int),
    **dict.fromkeys(("string", "char", "varchar"), str),
    **dict.fromkeys(("float", "double"), float),
    "boolean": bool,
    "binary": bytes,
    "date": date,
}
_HINTS: dict[str, pa.DataType] = {
    **dict.fromkeys(INTEGER_KINDS, pa.int64()),
    **dict.fromkeys(("string", "char", "varchar"), pa.string()),
    **dict.fromkeys(("float", "double"), pa.float64()),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
}


BUCKETS = 512
"""Groups in which the rows below the bound are counted; a power of two."""

OVERLAP_SECONDS_MAX = 10 * 366 * 86_400
NUMBER = r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"
"""Form of a number, as all databases write it."""


def matching(form: str, text: str) -> str:
    """Return a text that has a form, a regular expression. Raises ValueError: it has not."""
    if not re.fullmatch(form, text, re.DOTALL):
        raise ValueError(text)
    return text


def plain_number(text: str) -> str:
    """Return the literal of a number. Raises ValueError: the text is none."""
    return matching(NUMBER, text)


def seconds_of(overlap: Decimal) -> str:
    """Return an overlap of a column of times as SQL.

    Raises ConfigurationError: it is so long that the result may not be a time of the database. MySQL would
    take NULL for it, and read nothing.
    """
    if overlap > OVERLAP_SECONDS_MAX:
        raise ConfigurationError(
            f"overlap={overlap}: for a column of dates or times it is a number of seconds, of at most "
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
    """A growing column in the SQL of its database.

    Attributes:
        name: the column, quoted.
        bucket: makes the group of a row, from 0 to BUCKETS - 1, of the SQL of its key columns and the column.
        shown: makes, of a value, the text from which ``literal`` makes the same value again.
        literal: makes the value of such a text. Raises ValueError: the text is not of a value.
        regular: makes the condition of values that can be the bound; empty if all can.
        lowest: makes the condition of values below all others, which are read each time; empty if there are
            none.
        others: makes, of the bound's literal and the column, the condition of rows that are read each time
            because of the kind of the literal; empty if there are none.
        lowered: makes a literal minus an overlap.
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
        """Return the query of the greatest value as text, and whether it is below the bound ``before``."""
        regular = self.regular(self.name)
        where = f" WHERE {regular}" if regular else ""
        is_below = f"CASE WHEN MAX({self.name}) < {self._value(before)} THEN 1 ELSE 0 END" if before else "0"
        return f"SELECT {self.shown(f'MAX({self.name})')}, {is_below} FROM {table}{where}"

    def from_bound(self, bound: str, overlap: Decimal | None) -> str:
        """Return the condition of the rows that an extraction reads."""
        start = self._start(bound, overlap)
        always = [f"{self.name} IS NULL", self.lowest(self.name), self._others(bound)]
        return " OR ".join([f"{self.name} >= {start}", *filter(None, always)])

    def counts_below(
        self, table: str, keys: Sequence[str], bounds: Sequence[str], overlap: Decimal | None
    ) -> str:
        """Return the query of groups, and how many rows of each lie below each of the bounds."""
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
                "value of the column. Either the column got another type, or somebody altered the position. "
                "Nothing was read. Disable incremental update and discard (hive-mutate update disable "
                "--discard), then enable it anew: the first extraction compares the two tables"
            ) from error


def appeared_below(before: Sequence[int], now: Sequence[int]) -> int:
    """Return the number of rows that must have appeared below the bound; deletes may hide some."""
    return sum(max(0, found - was) for was, found in zip(before, now, strict=True))
