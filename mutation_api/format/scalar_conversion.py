"""Conversion of values that are not nested. For the accepted types see :mod:`mutation_api.format.conversion`.

The fast way is one Arrow cast for the batch. Only if it fails are the values checked one by one, to name the
first that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.hive_type import (
    INTEGER_BITS,
    HiveType,
    MisfitError,
    TypeFamily,
    UnfitTypeError,
    arrow_type,
)
from mutation_api.format.timestamps import SECONDS_PER_DAY, UNITS_PER_SECOND

MIN_DAYS = -719162
MAX_DAYS = 2932896
"""0001-01-01 and 9999-12-31 in days since 1970-01-01. Outside this range, Hive releases disagree."""

CAST_FIRST = "cast them first"
"""The end of the reason why a type does not fit, if there is no more specific advice."""

_WIDEST_DECIMAL = 75
"""Maximum number of digits that can be rounded. Arrow has 76, and rounding needs one more than the value."""
_WHOLE_BITS = {"float": 24, "double": 53}
"""Number of bits in a float's mantissa."""
_SHOWN_BYTES = 60
"""Maximum number of bytes of a malformed string that a message shows."""


def convert_scalars(array: pa.Array, hive_type: HiveType, unit: str) -> pa.Array:
    """Convert a plain array. ``unit`` is the unit of timestamps in the result.

    Raises:
        MisfitError: If a value does not fit.
        UnfitTypeError: If values of this type can never be stored in the column.
    """
    return _CONVERSIONS[hive_type.family](array, hive_type, unit)


def _to_boolean(array: pa.Array, hive_type: HiveType, _unit: str) -> pa.Array:
    if not pa.types.is_boolean(array.type):
        raise _unfit(array, hive_type)
    return array


def _to_integer(array: pa.Array, hive_type: HiveType, _unit: str) -> pa.Array:
    target = arrow_type(hive_type)
    if array.type == target:
        return array
    if pa.types.is_floating(array.type):
        return _whole_floats(array, hive_type)
    if not pa.types.is_integer(array.type) and not pa.types.is_decimal(array.type):
        raise _unfit(array, hive_type)
    limit = 2 ** (INTEGER_BITS[hive_type.kind] - 1)

    def fits(value: str) -> bool:
        number = Decimal(value)
        return number == number.to_integral_value() and -limit <= number < limit

    return _cast(array, target, fits, f"is not a whole number from {-limit} to {limit - 1}")


def _whole_floats(array: pa.Array, hive_type: HiveType) -> pa.Array:
    values = _numbers(array.cast(pa.float64()))
    limit = 2.0 ** (INTEGER_BITS[hive_type.kind] - 1)
    # NaN compares false, so it is also bad.
    bad = ~((values >= -limit) & (values < limit) & (values == np.trunc(values)))
    _refuse(bad, array, f"is not a whole number from {-int(limit)} to {int(limit) - 1}")
    _refuse_rounded(values, array)
    return _with_nulls_of(values.astype(f"int{INTEGER_BITS[hive_type.kind]}"), array)


def _refuse_rounded(values: NDArray[np.floating], array: pa.Array) -> None:
    """Raise an error for floats that may stand for several integers.

    If there is a NULL, pandas converts integers to doubles.
    """
    bits = _WHOLE_BITS[str(array.type)]
    _refuse(
        np.abs(values) >= 2.0**bits,
        array,
        f"may be a rounded number: a {array.type} represents integers exactly only below 2**{bits}; "
        "pass integers or decimals (pandas: Int64 or ArrowDtype, which to_pandas() of a scan returns)",
    )


def _to_float(array: pa.Array, hive_type: HiveType, _unit: str) -> pa.Array:
    target = arrow_type(hive_type)
    if array.type == target:
        return array
    if pa.types.is_floating(array.type):
        return _narrowed(array.cast(target, safe=False), array, hive_type)
    if pa.types.is_decimal(array.type):
        # Through a string, to the nearest: Arrow's cast is one unit off for some (measured: 999999999.999).
        return _narrowed(array.cast(pa.string()).cast(target), array, hive_type)
    if pa.types.is_integer(array.type):
        nearest = np.float32 if hive_type.kind == "float" else float
        reason = f"is not exact as a {hive_type.kind}"
        return _cast(array, target, lambda text: int(nearest(int(text))) == int(text), reason)
    raise _unfit(array, hive_type)


def _narrowed(converted: pa.Array, array: pa.Array, hive_type: HiveType) -> pa.Array:
    infinite = np.isinf(_numbers(converted))
    if pa.types.is_floating(array.type):
        infinite &= ~np.isinf(_numbers(array))
    _refuse(infinite, array, f"is too large for a {hive_type.kind}")
    return converted


def _to_decimal(array: pa.Array, hive_type: HiveType, _unit: str) -> pa.Array:
    if pa.types.is_floating(array.type):
        return _decimals_of_floats(array, hive_type)
    numbers = array.cast(pa.decimal128(20, 0)) if pa.types.is_integer(array.type) else array
    if not pa.types.is_decimal(numbers.type) or numbers.type.precision > _WIDEST_DECIMAL:
        raise _unfit(array, hive_type)
    rounded = _rounded(numbers, hive_type.scale)
    _refuse_too_wide(rounded, hive_type, shown=array)
    return rounded.cast(arrow_type(hive_type))


def _refuse_too_wide(array: pa.Array, hive_type: HiveType, shown: pa.Array) -> None:
    """Check the digits before the point, which Arrow does not check.

    Arrow does not check the values of an array that already has the right type, and its cast to a larger
    scale wraps around silently (measured: 7 as decimal(38,38) became 0.194…).
    """
    digits = hive_type.precision - hive_type.scale
    bound = Decimal(10) ** digits
    extremes = pc.min_max(array)
    if extremes["min"].is_valid and not -bound < extremes["min"].as_py() <= extremes["max"].as_py() < bound:
        reason = f"has more than {digits} digits before the point"
        _refuse_first(array, lambda text: _has_digits(text, hive_type), reason, shown)


def _rounded(array: pa.Array, scale: int) -> pa.Array:
    """Round half up, away from zero, with one more digit of precision, since 9.99 may become 10.0."""
    if array.type.scale <= scale:
        return array
    wider = array.type.precision + 1
    room = pa.decimal128(wider, array.type.scale) if wider <= 38 else pa.decimal256(wider, array.type.scale)
    return pc.round(array.cast(room), ndigits=scale, round_mode="half_towards_infinity")


def _has_digits(text: str, hive_type: HiveType) -> bool:
    with localcontext() as context:
        context.prec = 100
        rounded = Decimal(text).quantize(Decimal(1).scaleb(-hive_type.scale), ROUND_HALF_UP)
        return abs(rounded) < Decimal(10) ** (hive_type.precision - hive_type.scale)


def _decimals_of_floats(array: pa.Array, hive_type: HiveType) -> pa.Array:
    """Convert floats by their shortest decimal form, as Hive does: 1.1 is 1.10, not 1.10000000000000009."""
    texts = array.cast(pa.string())

    def fits(text: str) -> bool:
        try:
            exact = Decimal(text)
            exponent = exact.normalize().as_tuple().exponent
        except InvalidOperation:
            return False
        return isinstance(exponent, int) and -exponent <= hive_type.scale and _has_digits(text, hive_type)

    reason = f"is not exact as a {hive_type.text}; round it first"
    values = _numbers(array)
    # NaN compares false, so it is also bad.
    _refuse(~(np.abs(values) < 10.0 ** (hive_type.precision - hive_type.scale)), array, reason)
    _refuse_rounded(values, array)
    # Arrow refuses a string with more fraction digits than the type's scale, even if they are zeros ("1.0").
    trimmed = pc.replace_substring_regex(texts, r"\.0$", "")
    converted = _cast(trimmed, arrow_type(hive_type), fits, reason, array)
    # But Arrow reads a string with a very negative exponent as 0 (measured: 3e-219).
    if (_numbers(converted.cast(pa.float64())).astype(values.dtype) != values).any():
        _refuse_first(trimmed, fits, reason, array)
    return converted


def _to_string(array: pa.Array, hive_type: HiveType, _unit: str) -> pa.Array:
    if _is_text(array.type):
        _refuse_malformed(array)
        texts = _cast_whole(array, pa.string())
    elif pa.types.is_integer(array.type):
        texts = array.cast(pa.string())
    elif pa.types.is_date(array.type):
        texts = _to_date(array, HiveType("date"), "").cast(pa.string())
    else:
        raise _unfit(array, hive_type)
    if hive_type.length:
        texts = _cut(texts, hive_type.length)
    return pc.utf8_rtrim(texts, " ") if hive_type.kind == "char" else texts


def _refuse_malformed(array: pa.Array) -> None:
    """Raise an error for bytes that are not UTF-8.

    ORC's strings are UTF-8; readers fail on other bytes or replace them. Spark accepts such bytes (a cast
    from binary). The check takes 7 ms for a million short strings.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(array.cast(pa.large_binary()).to_pylist()):
            if value is not None and not _is_utf8(value):
                reason = "is not UTF-8; repair it (Spark: make_valid_utf8), or keep bytes in a binary column"
                raise MisfitError(row, repr(value[:_SHOWN_BYTES]), reason) from None
        raise


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _cut(texts: pa.Array, length: int) -> pa.Array:
    longest = pc.max(pc.utf8_length(texts)).as_py()
    return texts if longest is None or longest <= length else pc.utf8_slice_codeunits(texts, 0, length)


def _to_binary(array: pa.Array, hive_type: HiveType, _unit: str) -> pa.Array:
    if not _is_bytes(array.type):
        raise _unfit(array, hive_type)
    return _cast_whole(array, pa.binary())


def _to_date(array: pa.Array, hive_type: HiveType, _unit: str) -> pa.Array:
    if pa.types.is_date32(array.type):
        days = _numbers(array.view(pa.int32())).astype(np.int64)
    elif pa.types.is_date64(array.type):
        days = _whole_days(array, SECONDS_PER_DAY * 1000)
    elif pa.types.is_timestamp(array.type):
        _refuse_zone(array)
        days = _whole_days(array, SECONDS_PER_DAY * UNITS_PER_SECOND[array.type.unit])
    else:
        raise _unfit(array, hive_type)
    _refuse((days < MIN_DAYS) | (days > MAX_DAYS), array, "is not between 0001-01-01 and 9999-12-31")
    if pa.types.is_date32(array.type):
        return array
    return _with_nulls_of(days.astype(np.int32), array).view(pa.date32())


def _whole_days(array: pa.Array, units_per_day: int) -> NDArray[np.int64]:
    days, rest = np.divmod(_numbers(array.view(pa.int64())), units_per_day)
    _refuse(rest != 0, array, "is not at midnight; a date would lose its time")
    return days


def _to_timestamp(array: pa.Array, hive_type: HiveType, unit: str) -> pa.Array:
    if pa.types.is_date(array.type):
        array = _to_date(array, HiveType("date"), "").cast(pa.timestamp("s"))
    if not pa.types.is_timestamp(array.type):
        raise _unfit(array, hive_type)
    _refuse_zone(array)
    source, target = UNITS_PER_SECOND[array.type.unit], UNITS_PER_SECOND[unit]
    values = _numbers(array.view(pa.int64()))
    if target >= source:
        _refuse_out_of_years(values, source, array)
        factor = target // source
        limit = (2**63 - 1) // factor
        outside = (values > limit) | (values < -limit)
        _refuse(outside, array, f"does not fit a timestamp in {unit} (years 1678 to 2261)")
        return array if factor == 1 else _with_nulls_of(values * factor, array).view(pa.timestamp(unit))
    scaled, rest = np.divmod(values, source // target)
    _refuse(rest != 0, array, f"has digits below {unit}, which would be lost")
    _refuse_out_of_years(scaled, target, array)
    return _with_nulls_of(scaled, array).view(pa.timestamp(unit))


def _refuse_out_of_years(values: NDArray[np.int64], units_per_second: int, array: pa.Array) -> None:
    per_day = SECONDS_PER_DAY * units_per_second
    if per_day * -MIN_DAYS >= 2**63:
        return
    bad = values < MIN_DAYS * per_day
    if (MAX_DAYS + 1) * per_day < 2**63:
        bad |= values >= (MAX_DAYS + 1) * per_day
    _refuse(bad, array, "is not in the years 1 to 9999")


def _refuse_zone(array: pa.Array) -> None:
    if array.type.tz is not None:
        raise UnfitTypeError(
            f"values of type {array.type} are instants, but the column has timestamps without time zone: "
            "first convert them to local time in the zone that you mean (in Spark, cast to timestamp_ntz)"
        )


def _cast(
    array: pa.Array,
    target: pa.DataType,
    fits: Callable[[str], bool],
    reason: str,
    shown: pa.Array | None = None,
) -> pa.Array:
    """Cast an array. If Arrow refuses, find the first value that does not fit, and name it in an error."""
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        _refuse_first(array, fits, reason, shown)
    # All fit: Arrow's check is stricter than the rule (integers over 2**53 that are exact as a double).
    return array.cast(target, safe=False)


def _refuse_first(
    array: pa.Array, fits: Callable[[str], bool], reason: str, shown: pa.Array | None = None
) -> None:
    for row, text in enumerate(array.cast(pa.string()).to_pylist()):
        if text is not None and not fits(text):
            raise MisfitError(row, shown_value(array if shown is None else shown, row), reason)


def _refuse(bad: NDArray[np.bool_], array: pa.Array, reason: str) -> None:
    """Raise an error for the first bad value. Nulls are never bad, although their slots contain zeros."""
    if not bad.any():
        return
    if array.null_count:
        bad = bad & array.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(bad)
    if len(rows):
        raise MisfitError(int(rows[0]), shown_value(array, int(rows[0])), reason)


def _cast_whole(array: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        reason = f"a batch of {len(array)} values is too large or not valid ({error}); pass fewer values"
        raise UnfitTypeError(reason) from error


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return the values as a numpy array of the same type, with 0 in place of null."""
    filled = pc.fill_null(array, 0) if array.null_count else array
    values: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return values


def _with_nulls_of(values: NDArray[np.integer], array: pa.Array) -> pa.Array:
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(values, mask=mask)


def shown_value(array: pa.Array, row: int) -> str:
    """Return a value for a message."""
    try:
        return repr(array[row].as_py())
    except (ValueError, OverflowError, ArithmeticError):
        # Python's own types cannot hold this date or timestamp, or one within the value.
        if array.type.num_fields:
            return " ".join(array.slice(row, 1).to_string().split())
        integer = pa.int32() if pa.types.is_date32(array.type) else pa.int64()
        return f"{array.view(integer)[row]} ({array.type})"


def _is_bytes(arrow: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(is_kind(arrow) for is_kind in (*kinds, pa.types.is_binary_view))


def _is_text(arrow: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_kind(arrow) for is_kind in kinds)


def _unfit(array: pa.Array, hive_type: HiveType) -> UnfitTypeError:
    return UnfitTypeError(
        f"values of type {array.type} cannot become {hive_type.text} without loss; {CAST_FIRST}"
    )


_CONVERSIONS: dict[TypeFamily, Callable[[pa.Array, HiveType, str], pa.Array]] = {
    TypeFamily.BOOLEAN: _to_boolean,
    TypeFamily.INTEGER: _to_integer,
    TypeFamily.FLOAT: _to_float,
    TypeFamily.DECIMAL: _to_decimal,
    TypeFamily.TEXT: _to_string,
    TypeFamily.BINARY: _to_binary,
    TypeFamily.DATE: _to_date,
    TypeFamily.TIMESTAMP: _to_timestamp,
}
