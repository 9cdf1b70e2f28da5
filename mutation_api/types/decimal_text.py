"""Decimals of texts, exactly: Python's own arithmetic rounds to 28 digits, and takes 1e-99999999 for 0."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["decimals_of_texts", "exact_decimal", "is_number_text"]

PLACES_MAX = 76
"""Digits before and behind the point that Arrow can hold; a column of Hive has 38."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DIGITS_MAX = 38


def is_number_text(text: str) -> bool:
    """Whether a text is a finite number; Python also takes ``1_000``, blanks and digits of other scripts."""
    return _NUMBER.fullmatch(text) is not None


def decimals_of_texts(texts: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Numbers with all their digits.

    Args:
        texts: n texts, ``-12.50`` or ``1.25E+1``.
        target: the type of the result.

    Raises:
        pa.ArrowInvalid: a text is no number, or has other digits than zeros that the type does not hold.
    """
    # Arrow's cast overflows silently (pyarrow 26): 7 as decimal(38,38) is 0.194…, 39 digits behind the point
    # as decimal(38,0) are 0. So it gets only texts that are too short for that, or whose digits are counted.
    if pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
        return _scientific(texts, target)
    if (pc.max(pc.binary_length(texts)).as_py() or 0) + target.scale <= _DIGITS_MAX:
        try:
            return texts.cast(target)
        except pa.ArrowInvalid:
            pass  # some Arrows do not take more fraction digits than the scale has, even if they are zeros
    whole, scale = target.precision - target.scale, target.scale
    shape = rf"^[+-]?(0*[0-9]{{1,{whole + 1}}}(\.[0-9]{{0,{scale}}}0*)?|\.[0-9]{{0,{scale}}}0*)$"
    if not pc.all(pc.match_substring_regex(texts, shape)).as_py():
        raise pa.ArrowInvalid("a text is no number of the type")
    short = pc.replace_substring_regex(texts, r"^([+-]?)0+([0-9])", r"\1\2")
    short = pc.replace_substring_regex(short, r"(\.[0-9]*?)0+$", r"\1")
    wide = pa.decimal256(76, scale)
    return short.cast(wide).cast(target)


def _scientific(texts: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """One by one, since they are rare: Java prints a BigDecimal with a negative scale so."""
    # Arrow reads a text with a far negative exponent as 0.
    try:
        numbers = [None if text is None else exact_decimal(text) for text in texts.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.array(numbers, pa.decimal256(76, target.scale)).cast(target)


def exact_decimal(text: str | int | Decimal) -> Decimal:
    """The number of a text, with all its digits and without zeros at the end of a fraction.

    Args:
        text: ``-12.50``, ``1.25E+1``; or a number.

    Raises:
        ValueError: it is no finite number, or has a digit too far from the point for any column.
    """
    if isinstance(text, str) and not is_number_text(text):
        raise ValueError(f"{text} is not a number")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text} is not a number") from None
    if not number.is_finite():
        raise ValueError(f"{text} is not a finite number")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return Decimal(0)
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    dropped = min(zeros, max(0, -exponent))
    digits, exponent = digits[: len(digits) - dropped], exponent + dropped
    if exponent < -PLACES_MAX or exponent + len(digits) > PLACES_MAX:
        raise ValueError(f"{text} has a digit more than {PLACES_MAX} places from the point")
    return Decimal((sign, digits + (0,) * max(0, exponent), min(0, exponent)))
