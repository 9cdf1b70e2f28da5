"""Decimals of texts, exactly: Python's own arithmetic rounds to 28 digits, and takes 1e-99999999 for 0."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["decimals_of_texts", "exact_decimal", "is_number_text", "rescaled", "texts_of_decimals"]

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
    whole, scale = target.precision - target.scale, target.scale
    if not 0 <= scale <= target.precision or pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
        return _one_by_one(texts, target)
    if (pc.max(pc.binary_length(texts)).as_py() or 0) + scale <= _DIGITS_MAX:
        try:
            return texts.cast(target)
        except pa.ArrowInvalid:
            pass  # some Arrows do not take more fraction digits than the scale has, even if they are zeros
    shape = rf"^[+-]?(0*[0-9]{{1,{whole + 1}}}(\.[0-9]{{0,{scale}}}0*)?|\.[0-9]{{0,{scale}}}0*)$"
    if not pc.all(pc.match_substring_regex(texts, shape)).as_py():
        raise pa.ArrowInvalid("a text is no number of the type")
    short = pc.replace_substring_regex(texts, r"^([+-]?)0+([0-9])", r"\1\2")
    short = pc.replace_substring_regex(short, r"(\.[0-9]*?)0+$", r"\1")
    return short.cast(pa.decimal256(PLACES_MAX, scale)).cast(target)


def rescaled(values: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Decimals of another scale.

    Args:
        values: n values of decimal128, of any scale.
        target: the type of the result.

    Raises:
        pa.ArrowInvalid: a value has other digits than zeros that the type does not hold.
    """
    found = values.type.scale
    if not target.scale - _DIGITS_MAX <= found <= PLACES_MAX:
        return _one_by_one(pc.binary_join_element_wise(_unscaled(values), str(-found), "e"), target)
    # To 256 bits nothing overflows, and the cast from there checks the digits.
    return values.cast(pa.decimal256(PLACES_MAX, max(found, target.scale))).cast(target)


def texts_of_decimals(values: pa.Array, *, keeps_zeros: bool = False) -> pa.Array:
    """All digits, never an exponent, as Arrow and Java print small numbers.

    Args:
        values: n values of decimal128, of any scale.
        keeps_zeros: whether zeros at the end of a fraction stay.
    """
    scale, whole = values.type.scale, _unscaled(values)
    if scale < 0:
        return pc.if_else(pc.equal(whole, "0"), whole, pc.binary_join_element_wise(whole, "0" * -scale, ""))
    if not scale or not len(values):
        return whole
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    fraction = pc.utf8_slice_codeunits(digits, -scale)
    fraction = fraction if keeps_zeros else pc.utf8_rtrim(fraction, "0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    return pc.binary_join_element_wise(sign, pc.utf8_slice_codeunits(digits, 0, -scale), point, fraction, "")


def _unscaled(values: pa.Array) -> pa.Array:
    """The digits as texts, without a point."""
    bare = pa.decimal128(_DIGITS_MAX, 0)
    return pa.Array.from_buffers(bare, len(values), values.buffers(), offset=values.offset).cast(pa.string())


def _one_by_one(texts: pa.Array, target: pa.Decimal128Type) -> pa.Array:
    """Of texts that are rare: Java prints a BigDecimal with a negative scale with an exponent."""
    # Arrow reads a text with a far negative exponent as 0.
    try:
        numbers = [None if text is None else exact_decimal(text) for text in texts.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from error
    return pa.array(numbers, pa.decimal256(PLACES_MAX, target.scale)).cast(target)


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
