"""Texts become values, or are refused with row and reason."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.format.hive_type import MisfitError, UnfitTypeError, arrow_type, parse_hive_type
from mutation_api.format.text_values import BinaryEncoding, values_of_texts

CASES: list[tuple[str, str, Any]] = [
    ("boolean", "1", True),
    ("boolean", "0", False),
    ("boolean", "TRUE", True),
    ("boolean", "false", False),
    ("tinyint", "-128", -128),
    ("smallint", "0012", 12),
    ("int", "-2147483648", -(2**31)),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("float", "1.5", 1.5),
    ("double", "1e-3", 0.001),
    ("double", "-Infinity", -math.inf),
    ("decimal(10,2)", "-12.5", Decimal("-12.50")),
    ("decimal(10,2)", "1.230000", Decimal("1.23")),
    ("decimal(10,2)", "7", Decimal("7.00")),
    ("decimal(10,2)", "1.25E+1", Decimal("12.50")),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("decimal(38,0)", f"{'0' * 40}7.{'0' * 40}", Decimal(7)),
    ("decimal(38,38)", "-0.5", Decimal("-0.5").scaleb(0)),
    ("decimal(38,2)", f"{'1' * 36}.250000", Decimal(f"{'1' * 36}.25")),
    ("string", "", ""),
    ("varchar(3)", "longer", "longer"),
    ("char(3)", "a ", "a "),
    ("date", "2017-06-07", datetime.date(2017, 6, 7)),
    ("date", "2017-06-07 00:00:00.000", datetime.date(2017, 6, 7)),
    ("date", "0001-01-01", datetime.date(1, 1, 1)),
    ("date", "9999-12-31", datetime.date(9999, 12, 31)),
    ("timestamp", "2017-06-07 09:22:28.000", datetime.datetime(2017, 6, 7, 9, 22, 28)),
    ("timestamp", "2017-06-07T09:22:28.123456", datetime.datetime(2017, 6, 7, 9, 22, 28, 123456)),
    ("timestamp", "2017-06-07 09:22:28.123456000", datetime.datetime(2017, 6, 7, 9, 22, 28, 123456)),
    ("timestamp", "2017-06-07", datetime.datetime(2017, 6, 7)),
    ("timestamp", "9999-12-31 23:59:59.999999", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
]

REFUSED = [
    ("boolean", "t", "is not 0, 1, true or false"),
    ("boolean", "", "is not 0"),
    ("tinyint", "128", "from -128 to 127"),
    ("int", "0x1F", "is not a whole number"),
    ("int", "0X1F", "is not a whole number"),
    ("int", " 1", "is not a whole number"),
    ("int", "1.0", "is not a whole number"),
    ("int", "", "is not a whole number"),
    ("int", "١", "is not a whole number"),
    ("bigint", "9223372036854775808", "is not a whole number"),
    ("float", "1e39", "that a float can hold"),
    ("double", "1e400", "that a double can hold"),
    ("double", "1,5", "that a double can hold"),
    ("decimal(10,2)", "1.234", "at most 8 digits before and 2 after"),
    ("decimal(10,2)", "123456789", "at most 8 digits before"),
    ("decimal(10,2)", "1e-3", "2 after the point"),
    ("decimal(10,2)", "3e-219", "2 after the point"),
    ("decimal(10,2)", "1e99", "at most 8 digits"),
    ("decimal(10,2)", "1_000e0", "is not a number"),
    ("decimal(10,2)", " 1e2", "is not a number"),
    ("decimal(10,2)", "\u0663e0", "is not a number"),
    ("decimal(10,2)", "one", "is not a number"),
    ("decimal(10,2)", "NaN", "is not a number"),
    ("date", "0000-00-00", "zero date"),
    ("date", "0000-01-01", "is not a date"),
    ("date", "2017-02-29", "is not a date"),
    ("date", "2017-06-07 09:22:28", "is not a date"),
    ("timestamp", "0000-00-00 00:00:00", "zero date"),
    ("timestamp", "2017-06-07 09:22:28.1234567", "is not a timestamp"),
    ("timestamp", "2017-06-07 09:22:28Z", "without time zone"),
    ("timestamp", "2017-06-07 24:00:00", "is not a timestamp"),
    ("timestamp", "0000-12-31 23:59:59", "the years 1 to 9999"),
]


@pytest.mark.parametrize(("hive_type", "text", "value"), CASES)
def test_text_becomes_the_value_it_prints(hive_type: str, text: str, value: object) -> None:
    """Also beside a null, which stays null; the result has exactly the column's Arrow type."""
    kind = parse_hive_type(hive_type)
    found = values_of_texts(pa.array([None, text, text]), kind)
    assert found.type == arrow_type(kind, timestamp_unit="us")
    assert found.to_pylist() == [None, value, value]


def test_nan_is_a_double() -> None:
    """The one value that does not equal itself."""
    assert math.isnan(values_of_texts(pa.array(["NaN"]), parse_hive_type("double"))[0].as_py())


@pytest.mark.parametrize(
    ("hive_type", "text"),
    [
        ("decimal(38,38)", "7"),
        ("decimal(38,38)", "007"),
        ("decimal(38,38)", "1e0"),
        ("decimal(38,0)", f"0.{'1' * 39}"),
        ("decimal(38,0)", f"{'1' * 38}.5"),
        ("decimal(38,0)", "9" * 39),
        ("decimal(38,5)", "9" * 34),
    ],
)
def test_decimals_that_overflow(hive_type: str, text: str) -> None:
    """Pyarrow's own cast makes other numbers of some of them."""
    with pytest.raises(MisfitError, match="is not a number of at most"):
        values_of_texts(pa.array([text]), parse_hive_type(hive_type))


@pytest.mark.parametrize(("hive_type", "text", "reason"), REFUSED)
def test_text_that_is_no_value_is_refused(hive_type: str, text: str, reason: str) -> None:
    """The error names the row of the first such text, whatever the others are; nothing becomes NULL."""
    good = next(each for kind, each, _ in CASES if kind.partition("(")[0] == hive_type.partition("(")[0])
    texts = pa.array([good, None, *[good] * 5, text, good, text])
    with pytest.raises(MisfitError) as caught:
        values_of_texts(texts, parse_hive_type(hive_type))
    assert caught.value.row == 7
    assert caught.value.value == repr(text)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("form", "text", "wrong"),
    [
        (BinaryEncoding.UTF8, "é\n", None),
        (BinaryEncoding.HEX, "c3A90a", "c3 a9"),
        (BinaryEncoding.BASE64, "w6kK", "w6kK\n"),
    ],
)
def test_bytes_have_the_form_that_was_chosen(form: BinaryEncoding, text: str, wrong: str | None) -> None:
    """A text of another form is refused."""
    kind = parse_hive_type("binary")
    assert values_of_texts(pa.array([text, None]), kind, binary=form).to_pylist() == ["é\n".encode(), None]
    if wrong is not None:
        with pytest.raises(MisfitError, match=f"is not {form.value}"):
            values_of_texts(pa.array([text, wrong]), kind, binary=form)


@pytest.mark.parametrize("hive_type", ["binary", "array<int>", "map<string,int>", "struct<a:int>"])
def test_types_without_a_text_form_are_refused(hive_type: str) -> None:
    """Nested types have no text form, and the encoding of bytes must be chosen."""
    with pytest.raises(UnfitTypeError):
        values_of_texts(pa.array([], pa.string()), parse_hive_type(hive_type))


def test_long_values_are_cut_in_messages() -> None:
    """A message stays readable: long texts are cut."""
    with pytest.raises(MisfitError) as caught:
        values_of_texts(pa.array(["9" * 1000]), parse_hive_type("int"))
    assert len(caught.value.value) < 100


def test_why_a_text_is_no_value() -> None:
    """The reason of the error; a text whose further digits are zeros is one."""
    price = parse_hive_type("decimal(9,2)")
    with pytest.raises(MisfitError) as caught:
        values_of_texts(pa.array(["3.010", "3.005"]), price)
    reason = "is not a number of at most 7 digits before and 2 after the point"
    assert (caught.value.row, caught.value.reason) == (1, reason)
