"""Values in SQL as Arrow expressions with their types: constants, comparisons as in Hive, and conversions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.format.hive_type import DECIMALS_OF_INTEGERS

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Tree

_INT, _BIGINT = pa.int32(), pa.int64()
_FINE = pa.timestamp("ns")
_MOST_DIGITS = 38
"""The maximum number of digits of Hive's decimals."""
_MOST_WHOLE_DIGITS = 19
"""The maximum number of digits before the decimal point.

If vectorized, Hive 3.1 treats longer numbers as NULL next to some decimals.
"""
_PLAIN_AS_TEXT = (pa.types.is_signed_integer, pa.types.is_boolean, pa.types.is_date32)
"""The types whose values every engine converts to the same strings."""
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
COMPARISONS = {
    "EQ": pc.equal,
    "NEQ": pc.not_equal,
    "LT": pc.less,
    "LTE": pc.less_equal,
    "GT": pc.greater,
    "GTE": pc.greater_equal,
}
"""Class of sqlglot's expression -> Arrow's function."""
_SWAPPED = {"EQ": "EQ", "NEQ": "NEQ", "LT": "GT", "GT": "LT", "LTE": "GTE", "GTE": "LTE"}
"""For each comparison, the equivalent one with the sides swapped."""


class NotTranslatedError(Exception):
    """Raised if only an SQL engine can interpret a part of the SQL.

    ``part`` is the part, and ``why`` the reason. If the reason is empty, there is no rule for such a part.
    """

    def __init__(self, part: str, why: str = "") -> None:
        super().__init__(f"{part}: {why or 'only Hive can interpret it'}")
        self.part = part
        self.why = why


def refused(tree: Tree, why: str = "") -> NotTranslatedError:
    """Return the error for a part of the SQL."""
    return NotTranslatedError(tree.sql(dialect="hive"), why)


@dataclass(frozen=True)
class Value:
    """An expression with its type.

    ``is_char`` is True for a char(n), which is compared without its padding. ``constant`` is the value if it
    is written in the SQL: a number unchanged, a SQL string as ``str``.
    """

    expression: pc.Expression
    type: pa.DataType
    is_char: bool = False
    constant: object = None

    @property
    def is_float(self) -> bool:
        """True if it is a float or double."""
        return bool(pa.types.is_floating(self.type))

    @property
    def is_integer(self) -> bool:
        """True if it is a tinyint, smallint, int or bigint."""
        return bool(pa.types.is_integer(self.type))

    @property
    def is_number(self) -> bool:
        """True if it is an integer, a float or a decimal."""
        return self.is_float or self.is_integer or bool(pa.types.is_decimal(self.type))

    @property
    def is_text(self) -> bool:
        """True if it is a string, varchar or char."""
        return bool(pa.types.is_string(self.type))


def boolean(expression: pc.Expression) -> Value:
    """Return a condition as a value."""
    return Value(expression, pa.bool_())


def constant(value: object, kind: pa.DataType | None = None) -> Value:
    """Return a Python value. If ``kind`` is None, it has the type that Arrow gives it."""
    scalar = pa.scalar(value, kind)
    return Value(pc.scalar(scalar), scalar.type, constant=value)


def number(text: str, tree: Tree) -> Value:
    """Return a number with the type that Hive gives it.

    A number with an exponent is a double, one with a decimal point a decimal. Others are int or bigint.
    """
    if not _NUMBER.fullmatch(text):
        raise refused(tree)
    try:
        if "e" in text.lower():
            return constant(float(text))
        if "." not in text and abs(int(text)) < 2**63:
            return constant(int(text), _INT if abs(int(text)) < 2**31 else _BIGINT)
        whole, _, fraction = text.lstrip("0").partition(".")
        if len(whole) > _MOST_WHOLE_DIGITS or len(whole + fraction) > _MOST_DIGITS:
            raise refused(tree, "it has so many digits that Hive may treat it as NULL")
        return constant(Decimal(text))
    except (ArithmeticError, ValueError, pa.ArrowException):
        raise refused(tree) from None


def comparison(name: str, first: Value, second: Value, tree: Tree) -> pc.Expression:
    """Return the comparison for this class of sqlglot. Raises NotTranslatedError."""
    is_equality, are_numbers = name in ("EQ", "NEQ"), first.is_number and second.is_number
    if is_equality and are_numbers and first.is_integer != second.is_integer:
        raise refused(
            tree, "Hive treats NULL as unequal if one number is a whole number and the other cannot equal it"
        )
    one, two = _comparable(first, second, tree)
    fine, other = first.type == _FINE, second.type == _FINE
    if fine and not other:
        return _fine_comparison(name, one, two)
    if other and not fine:
        return _fine_comparison(_SWAPPED[name], two, one)
    return COMPARISONS[name](one, two)


def double_comparison(name: str, first: Value, second: Value) -> pc.Expression:
    """Compare numbers as doubles by Spark's rule: NaN equals NaN, and is greater than every other number.

    Raises NotTranslatedError for a column of decimals.
    """
    if name in ("NEQ", "LTE", "GTE"):
        return ~double_comparison({"NEQ": "EQ", "LTE": "GT", "GTE": "LT"}[name], first, second)
    one, two = as_double(first), as_double(second)
    if name == "EQ":
        return pc.equal(one, two) | (pc.is_nan(one) & pc.is_nan(two))
    if name == "GT":
        return pc.greater(one, two) | (pc.is_nan(one) & ~pc.is_nan(two))
    return pc.less(one, two) | (pc.is_nan(two) & ~pc.is_nan(one))


def exact_comparison(name: str, first: Value, second: Value, tree: Tree) -> pc.Expression:
    """Compare integers and decimals in a type that holds all their values. Raises NotTranslatedError."""
    if first.is_integer and second.is_integer:
        wide = max(first.type, second.type, key=lambda each: each.bit_width)
    else:
        # In a comparison, Spark takes a literal for a decimal with just its digits.
        given = [
            (len(str(abs(c))), 0) if isinstance(c := each.constant, int) else digits_of(each)
            for each in (first, second)
        ]
        if (wide := common_decimal(given)) is None:
            raise refused(tree, f"it needs more than {_MOST_DIGITS} digits")
    return COMPARISONS[name](as_type(first, wide), as_type(second, wide))


def _fine_comparison(name: str, fine: pc.Expression, other: pc.Expression) -> pc.Expression:
    """Compare nanoseconds with microseconds.

    Microseconds in distant years cannot be converted to nanoseconds.
    """
    floor = pc.floor_temporal(fine, unit="microsecond")
    whole = floor.cast(pa.timestamp("us"))
    if name in ("LT", "GTE"):
        return COMPARISONS[name](whole, other)
    equal = pc.equal(whole, other) & pc.equal(floor, fine)
    if name in ("EQ", "NEQ"):
        return equal if name == "EQ" else ~equal
    at_most = pc.less(whole, other) | equal
    return at_most if name == "LTE" else ~at_most


def _comparable(first: Value, second: Value, tree: Tree) -> tuple[pc.Expression, pc.Expression]:
    """Return both sides as Hive compares them, which converts neither of them with a loss."""
    if first.is_number and second.is_number:
        return _numbers(first, second, tree)
    if first.is_text and second.is_text:
        if (first.is_char or second.is_char) and any(
            isinstance(each.constant, str) and each.constant.endswith(" ") for each in (first, second)
        ):
            raise refused(tree, "Hive releases treat trailing blanks differently")
        return first.expression, second.expression
    for one, other, is_swapped in ((first, second, False), (second, first, True)):
        if (
            isinstance(other.constant, str)
            and (moment := _as_moment(one.type, other.constant, tree)) is not None
        ):
            pair = one.expression, pc.scalar(moment)
            return (pair[1], pair[0]) if is_swapped else pair
    if pa.types.is_timestamp(first.type) and pa.types.is_timestamp(second.type):
        return first.expression, second.expression
    if first.type == second.type and (pa.types.is_boolean(first.type) or pa.types.is_date32(first.type)):
        return first.expression, second.expression
    raise refused(tree, f"it compares {first.type} with {second.type}")


def _numbers(first: Value, second: Value, tree: Tree) -> tuple[pc.Expression, pc.Expression]:
    if not (first.is_float or second.is_float):
        return first.expression, second.expression
    if first.constant is None and second.constant is None:
        raise refused(
            tree, "it compares floating-point numbers of two columns, for which Hive releases differ"
        )
    for one, other in ((first, second), (second, first)):
        if pa.types.is_float32(one.type) and not _is_float32(other.constant):
            raise refused(tree, "it compares a float with a number that is not a float, which Hive may round")
    return as_double(first), as_double(second)


def _is_float32(value: object) -> bool:
    assert isinstance(value, int | float | Decimal)
    with np.errstate(over="ignore"):
        return Decimal(float(np.float32(float(value)))) == Decimal(value)


def _as_moment(kind: pa.DataType, text: str, tree: Tree) -> date | datetime | None:
    """Return the string as the date or timestamp with which it is compared."""
    if pa.types.is_date32(kind):
        return written_date(text, tree)
    return written_timestamp(text, tree) if pa.types.is_timestamp(kind) else None


def written_date(text: str, tree: Tree) -> date:
    """Return the date in a SQL string.

    Raises NotTranslatedError if it is not a date, or is written in another form.
    """
    if not _DATE.fullmatch(text):
        raise refused(tree, f"{text!r} must be written like 2024-05-01")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise refused(tree, f"{text!r} is not a date") from None


def written_timestamp(text: str, tree: Tree) -> datetime:
    """Return the timestamp in a SQL string.

    Raises NotTranslatedError if it is not a timestamp, or is written in another form.
    """
    if not _TIMESTAMP.fullmatch(text):
        raise refused(tree, f"{text!r} must be written like 2024-05-01 10:00:00")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise refused(tree, f"{text!r} is not a timestamp") from None


def check_arithmetic(tree: Tree, *values: Value) -> None:
    """Reject values that are not numbers, and small types whose overflow depends on the release."""
    for each in values:
        if not each.is_number or pa.types.is_float32(each.type):
            raise refused(tree)
    if all(each.is_integer and each.type.bit_width < _INT.bit_width for each in values):
        raise refused(tree, "its type is smaller than int")


def check_divisor(tree: Tree, divisor: Value) -> None:
    """Reject a divisor that may be zero, for which Hive returns NULL and Arrow fails."""
    if not isinstance(divisor.constant, int | float | Decimal) or not divisor.constant:
        raise refused(tree, "its divisor may be zero")


def as_double(value: Value) -> pc.Expression:
    """Return a number as the double that Hive compares and computes with.

    Raises NotTranslatedError for a column of decimals.
    """
    if isinstance(value.constant, int | float | Decimal):
        return pc.scalar(float(value.constant))
    if pa.types.is_decimal(value.type):
        raise NotTranslatedError(
            "a column of decimals beside floating-point numbers", "only Hive rounds it in this way"
        )
    return value.expression.cast(pa.float64(), safe=False)


def as_decimal(value: Value) -> Value:
    """Return an integer or decimal as a decimal that can hold all values of its type."""
    if pa.types.is_decimal(value.type):
        return value
    kind = DECIMALS_OF_INTEGERS[value.type]
    return Value(value.expression.cast(kind), kind)


def null(kind: pa.DataType) -> Value:
    """Return NULL of a type."""
    return Value(pc.scalar(pa.scalar(None, kind)), kind)


def is_exact(kind: pa.DataType) -> bool:
    """Return True for an integer or decimal type."""
    return bool(pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind))


def fits(value: object, kind: pa.DataType) -> bool:
    """Return True if the value is an integer that the type can hold."""
    if not isinstance(value, int) or not pa.types.is_integer(kind):
        return False
    return bool(-(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1))


def is_kept(value: Value, wanted: pa.DataType) -> bool:
    """Return True if the type can hold all values, so that a conversion neither fails nor changes one."""
    if value.is_integer and pa.types.is_integer(wanted):
        return bool(value.type.bit_width <= wanted.bit_width)
    if is_exact(value.type) and pa.types.is_decimal(wanted):
        whole, scale = digits_of(value)
        return bool(whole <= wanted.precision - wanted.scale and scale <= wanted.scale)
    return bool(pa.types.is_string(wanted)) and any(is_kind(value.type) for is_kind in _PLAIN_AS_TEXT)


def digits_of(value: Value) -> tuple[int, int]:
    """Return the digits before and after the decimal point that a number's type has in Spark."""
    if value.type == pa.int64():
        return 20, 0
    kind = as_decimal(value).type
    return kind.precision - kind.scale, kind.scale


def common_decimal(digits: Sequence[tuple[int, int]]) -> pa.DataType | None:
    """Return the decimal in which Spark compares numbers, or None if it might have to round them."""
    whole, scale = map(max, zip(*digits, strict=True))
    return pa.decimal128(whole + scale, scale) if whole + scale <= _MOST_DIGITS else None


def as_type(value: Value, kind: pa.DataType) -> pc.Expression:
    """Return the expression with a type that can hold all its values."""
    if value.type == kind:
        return value.expression
    if pa.types.is_decimal(kind) and isinstance(value.constant, int):
        return pc.scalar(pa.scalar(Decimal(value.constant), kind))
    return (as_decimal(value) if pa.types.is_decimal(kind) else value).expression.cast(kind)


def plain_value(column: pc.Expression, kind: pa.DataType) -> Value:
    """Return a column as a value of the types that Spark has for it."""
    if pa.types.is_large_string(kind):
        return Value(column.cast(pa.string()), pa.string())
    if pa.types.is_unsigned_integer(kind):
        wide = pa.decimal128(20, 0) if kind.bit_width == pa.int64().bit_width else pa.int64()
        return Value(column.cast(wide), wide)
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit in ("s", "ms"):
        return Value(column.cast(pa.timestamp("us")), pa.timestamp("us"))
    return Value(column, kind)
