"""Converts strings to values of a column's type, for whole Arrow arrays. An invalid value never becomes NULL.

The accepted forms are those that Hive, MySQL and MariaDB print:

=================  ====================================================================================
column             accepted strings
=================  ====================================================================================
boolean            ``0``, ``1``, ``true``, ``false`` (any case)
tinyint … bigint   decimal digits in range, with or without a leading ``-``
float, double      ``-1.5``, ``1e10``, ``NaN``, ``Infinity``: rounded to the nearest, overflow is refused
decimal(p,s)       ``-12.50``, ``1.25E+1``: a loss of digits is refused
string             every string
char, varchar      every string; a merge cuts strings that are too long, as Hive does
date               ``2017-06-07``, or with midnight: ``2017-06-07 00:00:00.000``
timestamp          ``2017-06-07 09:22:28`` with up to six digits of a second, or with ``T`` in the middle,
                   or only a date; further digits must be zeros, since Spark's timestamps cannot hold
                   them
binary             see :class:`BinaryEncoding`
=================  ====================================================================================

Blanks around a value, empty strings (except in string columns), time zones and MySQL's zero dates are
refused. Columns of nested types have no string form here.
"""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.format.hive_type import HiveType, MisfitError, TypeFamily, UnfitTypeError, arrow_type
from mutation_api.format.number_text import decimals_of_texts
from mutation_api.format.scalar_conversion import MAX_DAYS, MIN_DAYS

_SHOWN_LENGTH = 80
"""Maximum number of characters of a value that a message shows."""

_ZERO_DATE = "0000-00-00"


class BinaryEncoding(enum.Enum):
    """The encoding of a binary column as strings. Formats do not state it, so the user must."""

    UTF8 = "utf8"
    """The bytes of the string itself."""
    HEX = "hex"
    """Two digits for each byte."""
    BASE64 = "base64"


def check_text_type(hive_type: HiveType, binary: BinaryEncoding | None) -> None:
    """Raise UnfitTypeError unless strings can be converted to values of this type."""
    if hive_type.family is TypeFamily.BINARY and binary is None:
        forms = ", ".join(form.value for form in BinaryEncoding)
        raise UnfitTypeError(f"the encoding of binary values in strings is not set; choose one of {forms}")
    if hive_type.family not in _PARSERS:
        raise UnfitTypeError(f"a string cannot be converted to a value of type {hive_type.text}")


def values_of_texts(
    texts: pa.Array, hive_type: HiveType, *, binary: BinaryEncoding | None = None
) -> pa.Array:
    """Convert strings to values. Nulls stay nulls.

    Args:
        texts: n strings, of Arrow's type string.
        hive_type: type of the column.
        binary: encoding of binary values; required only for binary columns.

    Returns:
        n values of ``arrow_type(hive_type, timestamp_unit="us")``.

    Raises:
        MisfitError: If a string is not a value of the type. It contains the row (counted from 0), the string
            and the reason.
        UnfitTypeError: If :func:`check_text_type` refuses the type.
    """
    check_text_type(hive_type, binary)

    def parse(some: pa.Array) -> pa.Array:
        if binary and family is TypeFamily.BINARY:
            return _BINARY_PARSERS[binary](some)
        return _PARSERS[family](some, target)

    family, target = hive_type.family, arrow_type(hive_type, timestamp_unit="us")
    try:
        return parse(texts)
    except pa.ArrowInvalid:
        row = first_refused(texts, parse)
    value = texts[row].as_py()
    raise MisfitError(row, shown(value), _reason(value, hive_type, binary))


def shown(value: str) -> str:
    """Return a string for a message, in quotes and cut to a limit."""
    return repr(value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…")


def first_refused(texts: pa.Array, parse: Callable[[pa.Array], pa.Array]) -> int:
    """Return the row of the first string that ``parse`` refuses with ArrowInvalid, by bisection.

    There must be such a string.
    """
    low, high = 0, len(texts)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            parse(texts.slice(low, middle - low))
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return low


def _boolean(texts: pa.Array, target: pa.DataType) -> pa.Array:
    return texts.cast(target)


def _integer(texts: pa.Array, target: pa.DataType) -> pa.Array:
    # Arrow also reads 0x1F. Searching the bytes of all strings takes a hundredth of the time of the cast.
    content = texts.buffers()[2]
    if content is not None and any(letter in content.to_pybytes() for letter in (b"x", b"X")):
        _refuse_any(pc.match_substring(texts, "x", ignore_case=True))
    return texts.cast(target)


def _float(texts: pa.Array, target: pa.DataType) -> pa.Array:
    values = texts.cast(target)
    infinite = pc.is_inf(values)
    if pc.any(infinite).as_py():
        _refuse_any(pc.invert(pc.match_substring(texts.filter(infinite), "inf", ignore_case=True)))
    return values


def _string(texts: pa.Array, _target: pa.DataType) -> pa.Array:
    return texts


def _date(texts: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        days = texts.cast(target)
    except pa.ArrowInvalid:
        days = pc.replace_substring_regex(texts, r"[ T]00:00:00(\.0+)?$", "").cast(target)
    numbers = days.view(pa.int32())
    _refuse_any(pc.or_(pc.less(numbers, MIN_DAYS), pc.greater(numbers, MAX_DAYS)))
    return days


def _timestamp(texts: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        values = texts.cast(target)
    except pa.ArrowInvalid:
        values = pc.replace_substring_regex(texts, r"(\.\d{6})0+$", r"\1").cast(target)
    per_day = 86_400 * 1_000_000
    _refuse_any(pc.less(values.view(pa.int64()), MIN_DAYS * per_day))
    return values


def _utf8_bytes(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.binary())


def _hex_bytes(texts: pa.Array) -> pa.Array:
    return _decoded(texts, binascii.unhexlify)


def _base64_bytes(texts: pa.Array) -> pa.Array:
    return _decoded(texts, lambda text: base64.b64decode(text, validate=True))


def _decoded(texts: pa.Array, decode: Callable[[str], bytes]) -> pa.Array:
    """Decode the strings one by one, since Arrow decodes neither form."""
    try:
        return pa.array([None if t is None else decode(t) for t in texts.to_pylist()], pa.binary())
    except (ValueError, binascii.Error) as error:
        raise pa.ArrowInvalid(str(error)) from error


def _refuse_any(is_wrong: pa.Array) -> None:
    if pc.any(is_wrong).as_py():
        raise pa.ArrowInvalid("a string is not a value of the type")


def _reason(value: str, hive_type: HiveType, binary: BinaryEncoding | None) -> str:
    family = hive_type.family
    if family in (TypeFamily.DATE, TypeFamily.TIMESTAMP) and value.startswith(_ZERO_DATE):
        return "is MySQL's zero date, which is not a date: make it NULL in the source, or the column a string"
    if family is TypeFamily.INTEGER:
        bits = arrow_type(hive_type).bit_width
        return f"is not a whole number from {-(2 ** (bits - 1))} to {2 ** (bits - 1) - 1}"
    if family is TypeFamily.DECIMAL:
        digits = hive_type.precision - hive_type.scale
        return f"is not a number of at most {digits} digits before and {hive_type.scale} after the point"
    if family is TypeFamily.BINARY and binary is not None:
        return f"is not {binary.value}"
    return _REASONS[family].format(kind=hive_type.kind)


_REASONS = {
    TypeFamily.BOOLEAN: "is not 0, 1, true or false",
    TypeFamily.FLOAT: "is not a number that a {kind} can hold",
    TypeFamily.DATE: "is not a date such as 2017-06-07, from the years 1 to 9999",
    TypeFamily.TIMESTAMP: "is not a timestamp without time zone such as 2017-06-07 09:22:28.123456 (six "
    "digits of a second), from the years 1 to 9999",
}

_Parser = Callable[[pa.Array, pa.DataType], pa.Array]

_PARSERS: dict[TypeFamily, _Parser] = {
    TypeFamily.BOOLEAN: _boolean,
    TypeFamily.INTEGER: _integer,
    TypeFamily.FLOAT: _float,
    TypeFamily.DECIMAL: decimals_of_texts,
    TypeFamily.TEXT: _string,
    TypeFamily.DATE: _date,
    TypeFamily.TIMESTAMP: _timestamp,
    TypeFamily.BINARY: lambda texts, _target: _utf8_bytes(texts),
}

_BINARY_PARSERS: dict[BinaryEncoding, Callable[[pa.Array], pa.Array]] = {
    BinaryEncoding.UTF8: _utf8_bytes,
    BinaryEncoding.HEX: _hex_bytes,
    BinaryEncoding.BASE64: _base64_bytes,
}
