"""Decimals of texts, exactly: Python's own arithmetic rounds to 28 digits, and takes 1e-99999999 for 0."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

__all__ = ["exact_decimal"]

PLACES_MAX = 76
"""Digits before and behind the point that Arrow can hold; a column of Hive has 38."""


def exact_decimal(text: str | int | Decimal) -> Decimal:
    """The number of a text, with all its digits and without zeros at the end of a fraction.

    Args:
        text: ``-12.50``, ``1.25E+1``; or a number.

    Raises:
        ValueError: it is no finite number, or has a digit too far from the point for any column.
    """
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
