"""Decimals of texts: every digit, or an error of ours."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from mutation_api.errors import RecordValueError
from mutation_api.format.hive_type import MisfitError, parse_hive_type
from mutation_api.format.number_text import exact_decimal, rescaled, texts_of_decimals
from mutation_api.format.text_values import values_of_texts
from mutation_api.table.bucket_rows import column_from_json
from mutation_api.table.partition_value import partition_value

FAR = ("1e-99999999", "1e99999999", "-1e99999999", "12e-78", "9.9e76", "NaN", "Infinity", "1e", "", "x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.5E+1", "15"),
        ("1E-2", "0.01"),
        ("-12.50", "-12.5"),
        ("0e99999999", "0"),
        ("-0E-99999999", "0"),
        ("1234567890123456789012345678901234567.0E1", "12345678901234567890123456789012345670"),
        ("12345678901234567890123456789012345678E0", "12345678901234567890123456789012345678"),
        ("1e75", "1" + "0" * 75),
        ("1e-76", "0." + "0" * 75 + "1"),
        ("100e-78", "0." + "0" * 75 + "1"),
    ],
)
def test_no_digit_is_lost(text: str, expected: str) -> None:
    """Nor is one rounded, as Python's default context does."""
    found = exact_decimal(text)
    assert f"{found:f}" == expected
    assert found == Decimal(expected)


@pytest.mark.parametrize("text", FAR)
def test_what_no_column_holds_is_refused(text: str) -> None:
    """In texts of files and messages, in JSON, and in the names of partitions."""
    with pytest.raises(ValueError, match=r"number|places from the point"):
        exact_decimal(text)
    kind = parse_hive_type("decimal(38,2)")
    if text:
        with pytest.raises(MisfitError):
            values_of_texts(pa.array([text]), kind)
        with pytest.raises(RecordValueError, match="is not a number"):
            column_from_json([text], kind)
        with pytest.raises(RecordValueError):
            partition_value(text, kind)


def unscaled(number: int, scale: int) -> pa.Array:
    """A decimal of 38 digits and any scale."""
    data = number.to_bytes(16, "little", signed=True)
    return pa.Array.from_buffers(pa.decimal128(38, scale), 1, [None, pa.py_buffer(data)])


@pytest.mark.parametrize(
    ("number", "scale", "plain", "with_zeros"),
    [
        (9, 10, "0.0000000009", "0.0000000009"),
        (-1, 60, f"-0.{'0' * 59}1", f"-0.{'0' * 59}1"),
        (1250, 2, "12.5", "12.50"),
        (0, 2, "0", "0.00"),
        (25, -3, "25000", "25000"),
        (0, -3, "0", "0"),
        (-7, 0, "-7", "-7"),
    ],
)
def test_decimals_as_texts(number: int, scale: int, plain: str, with_zeros: str) -> None:
    """Never with an exponent, as pyarrow writes them."""
    assert texts_of_decimals(unscaled(number, scale)).to_pylist() == [plain]
    assert texts_of_decimals(unscaled(number, scale), keeps_zeros=True).to_pylist() == [with_zeros]


@pytest.mark.parametrize(
    ("number", "scale", "target", "expected"),
    [
        (7, 0, (38, 38), None),
        (10**37, 2, (38, 38), None),
        (-1, 60, (38, 38), None),
        (5, -30, (38, 38), None),
        (10**37, -30, (38, 0), None),
        (5 * 10**22, 60, (38, 38), "5E-38"),
        (5, -3, (10, 2), "5000.00"),
        (0, -99, (38, 38), "0"),
        (9, 3, (10, 2), None),
    ],
)
def test_decimals_of_another_scale(
    number: int, scale: int, target: tuple[int, int], expected: str | None
) -> None:
    """Pyarrow's own cast makes 0.194 of 7 as decimal(38,38)."""
    if expected is None:
        with pytest.raises(pa.ArrowInvalid):
            rescaled(unscaled(number, scale), pa.decimal128(*target))
    else:
        found = rescaled(unscaled(number, scale), pa.decimal128(*target))
        assert found.to_pylist() == [Decimal(expected)]
