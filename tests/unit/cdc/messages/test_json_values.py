"""Texts of JSON values become values of columns, or are refused by row."""

from __future__ import annotations

import base64
import random
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from mutation_api.cdc.messages.json_values import READERS, Reader, can_read, values_of_json
from mutation_api.format.hive_type import MisfitError, arrow_type, parse_hive_type

SEED = 20240501
EXACT = Context(prec=80)


def read(texts: list[str | None], hive_type: str, reader: str, scale: int = 0) -> list[Any]:
    target = parse_hive_type(hive_type)
    assert can_read(Reader(reader, scale), target)
    values = values_of_json(pa.array(texts, pa.string()), target, Reader(reader, scale))
    assert values.type == arrow_type(target, timestamp_unit="us")
    values.validate(full=True)
    return values.to_pylist()


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unscaled(number: int) -> str:
    """A number as Kafka Connect's Decimal has it."""
    return base64_text(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def test_bytes_of_base64_are_those_that_python_decodes() -> None:
    """All texts of a column are decoded as one; lengths and paddings differ from text to text."""
    chance = random.Random(SEED)
    values = [chance.randbytes(chance.randrange(9)) for _ in range(500)]
    texts: list[str | None] = [base64_text(value) for value in values]
    assert read([*texts, None], "binary", "base64") == [*values, None]
    url_safe: list[str | None] = [base64.urlsafe_b64encode(value).decode() for value in values]
    assert read(url_safe, "binary", "base64-url-safe") == values
    assert read([value.hex() for value in values], "binary", "hex") == values
    assert read([value.decode("latin-1") for value in values], "binary", "latin1") == values


def test_unscaled_decimals_are_exact_to_38_digits() -> None:
    """No digit is lost, whatever the length, the sign and the scale."""
    chance = random.Random(SEED)
    numbers = [chance.randrange(-(10**n), 10**n) for n in range(1, 39) for _ in range(10)]
    numbers += [0, -1, 127, 128, -128, -129, 10**38 - 1, 1 - 10**38]
    texts = [unscaled(number) for number in numbers]
    expected = [Decimal(number).scaleb(-5, EXACT) for number in numbers]
    assert read([*texts, None], "decimal(38,5)", "decimal-bytes", 5) == [*expected, None]
    structs: list[str | None] = [f'{{"scale":5,"value":"{text}"}}' for text in texts]
    assert read([None, *structs], "decimal(38,5)", "decimal-struct") == [None, *expected]


def test_scales_differ_within_a_column() -> None:
    """PostgreSQL's numeric without a scale: every value has its own."""
    texts: list[str | None] = [
        f'{{"scale":{scale},"value":"{unscaled(n)}"}}' for scale, n in ((2, 1234), (0, 5), (-2, 5))
    ]
    assert read(texts, "decimal(10,2)", "decimal-struct") == [Decimal("12.34"), Decimal(5), Decimal(500)]
    assert read(texts[1:], "int", "decimal-struct") == [5, 500]


@pytest.mark.parametrize(
    ("reader", "texts", "hive_type", "expected"),
    [
        ("decimal-bytes", [unscaled(1200)], "int", [1200]),
        ("decimal-bytes", [unscaled(-1200)], "string", ["-1200"]),
        ("days", ["17000", "-1", None], "date", [date(2016, 7, 18), date(1969, 12, 31), None]),
        ("days", ["17000"], "string", ["2016-07-18"]),
        ("millis", ["1529476623123"], "timestamp", [datetime(2018, 6, 20, 6, 37, 3, 123000)]),
        ("micros", ["-1"], "timestamp", [datetime(1969, 12, 31, 23, 59, 59, 999999)]),
        ("nanos", ["1529476623000001000"], "timestamp", [datetime(2018, 6, 20, 6, 37, 3, 1)]),
        ("millis", ["1529476623000"], "string", ["2018-06-20 06:37:03"]),
        ("micros", ["1529476623000001"], "varchar(30)", ["2018-06-20 06:37:03.000001"]),
        ("time-micros", ["49023000000", "-3020399000000", None], "string", ["13:37:03", "-838:59:59", None]),
        ("time-millis", ["49023250"], "string", ["13:37:03.250000"]),
        ("utc", ["2018-06-20T13:37:03Z"], "timestamp", [datetime(2018, 6, 20, 13, 37, 3)]),
        ("utc", ["2018-06-20T13:37:03.25Z"], "string", ["2018-06-20T13:37:03.25Z"]),
        ("utc", ["2018-06-20T13:37:03+02:00"], "string", ["2018-06-20T13:37:03+02:00"]),
        (
            "utc",
            ["2024-01-01T10:00:00+02:00", "2024-01-01T00:00Z", None, "2024-01-01T00:00:00.000001-05:30:15"],
            "timestamp",
            [datetime(2024, 1, 1, 8), datetime(2024, 1, 1), None, datetime(2024, 1, 1, 5, 30, 15, 1)],
        ),
        ("utc", ["2024-03-01T00:30:00+01:00"], "timestamp", [datetime(2024, 2, 29, 23, 30)]),
        ("utc", [None, "2024-03-01T00:30+18:00"], "timestamp", [None, datetime(2024, 2, 29, 6, 30)]),
        ("utc", ["2017-09-15Z"], "date", [date(2017, 9, 15)]),
        ("decimal-number", ["12.00", "1e2"], "int", [12, 100]),
        ("flag", ["true", "false", "1", None], "boolean", [True, False, True, None]),
        ("flag", ["true", "false", "0"], "tinyint", [1, 0, 0]),
        ("bits", [base64_text(b"\x01\x80")], "int", [0x8001]),
        ("bits", [base64_text(b"\xff" * 8)], "decimal(20,0)", [Decimal(2**64 - 1)]),
        ("bits", [base64_text(b"\x01\x80")], "binary", [b"\x01\x80"]),
        ("text", ["12.50"], "decimal(6,2)", [Decimal("12.5")]),
    ],
)
def test_values(reader: str, texts: list[str | None], hive_type: str, expected: list[Any]) -> None:
    """What a text is to the reader, in columns that can hold it."""
    assert read(texts, hive_type, reader) == expected


@pytest.mark.parametrize(
    ("reader", "scale", "text", "hive_type", "reason"),
    [
        ("decimal-bytes", 2, unscaled(1051), "decimal(4,1)", "scale 2"),
        ("decimal-bytes", 2, unscaled(1000), "decimal(3,2)", "scale 2"),
        ("decimal-bytes", 2, unscaled(1250), "int", "scale 2"),
        ("decimal-bytes", 0, unscaled(10**38), "decimal(38,0)", "scale 0"),
        ("decimal-bytes", 0, unscaled(2**200), "decimal(38,0)", "scale 0"),
        ("decimal-bytes", 0, unscaled(200), "tinyint", "scale 0"),
        ("decimal-bytes", 0, "", "int", "scale 0"),
        ("decimal-bytes", 0, "12", "int", "not base64"),
        ("decimal-struct", 0, '{"value":"AQ=="}', "int", "no scale and value"),
        ("base64", 0, "abc", "binary", "not base64"),
        ("base64", 0, "ab=c", "binary", "not base64"),
        ("latin1", 0, "€", "binary", "do not stand for bytes"),
        ("days", 0, "2017-09-15", "date", "whole number"),
        ("days", 0, "99999999", "date", "years 1 to 9999"),
        ("millis", 0, str(2**63 - 1), "timestamp", "too large"),
        ("millis", 0, "999999999999999", "timestamp", "years 1 to 9999"),
        ("nanos", 0, "1529476623000001", "timestamp", "nanoseconds"),
        ("utc", 0, "2018-06-20T13:37:03+19:00", "timestamp", "no offset such as"),
        ("utc", 0, "2018-06-20T13:37:03+0200", "timestamp", "no offset such as"),
        ("utc", 0, "2018-06-20+02:00", "date", "no offset such as"),
        ("utc", 0, "2018-06-20T00:00:00+02:00", "date", "has an offset"),
        ("utc", 0, "0001-01-01T00:00:00+00:01", "timestamp", "years 1 to 9999"),
        ("utc", 0, "9999-12-31T23:59:59-00:01", "timestamp", "years 1 to 9999"),
        ("utc", 0, "2018-06-20T25:37:03+02:00", "timestamp", "is not a timestamp"),
        ("utc", 0, "2018-06-20T13:37:03", "timestamp", "UTC"),
        ("utc", 0, "2018-02-30T13:37:03Z", "timestamp", "is not a timestamp"),
        ("utc", 0, "2018-06-20T13:37:03.1234567Z", "timestamp", "is not a timestamp"),
        ("bits", 0, base64_text(b"\xff" * 8), "bigint", "whole number"),
        ("bits", 0, base64_text(b"\xff" * 9), "decimal(38,0)", "64 bits"),
        ("flag", 0, "yes", "tinyint", "whole number"),
    ],
)
def test_refused(reader: str, scale: int, text: str, hive_type: str, reason: str) -> None:
    """What is no such value, or does not fit, is refused by its row and text."""
    fine = dict.fromkeys(("bits", "decimal-bytes", "base64"), "AA==")
    fine |= {"utc": "2018-06-20Z", "decimal-struct": '{"scale":0,"value":"AA=="}'}
    with pytest.raises(MisfitError, match=reason) as refused:
        read([None, fine.get(reader, "0"), text, text], hive_type, reader, scale)
    assert (refused.value.row, refused.value.value) == (2, repr(text))


def test_decimals_that_are_json_numbers() -> None:
    """They have the scale of their type, and lose no digit."""
    texts = ["12.50", "-1", None, "0.0000"]
    assert read(texts, "string", "decimal-number", 2) == ["12.50", "-1.00", None, "0.00"]
    assert read(texts[:2], "decimal(9,3)", "decimal-number", 2) == [Decimal("12.5"), Decimal(-1)]
    with pytest.raises(MisfitError, match="scale 2"):
        read(["1.005"], "decimal(9,3)", "decimal-number", 2)


def test_readers_refuse_columns_that_cannot_hold_their_values() -> None:
    """A day is no number, and only JSON is read into nested columns."""
    assert not can_read(Reader("days"), parse_hive_type("int"))
    assert not can_read(Reader("text"), parse_hive_type("binary"))
    array = parse_hive_type("array<int>")
    assert [name for name in READERS if can_read(Reader(name), array)] == ["json"]


def test_json_in_strings() -> None:
    """It becomes a nested value; what is not JSON, or of another type, is refused."""
    assert read(['{"a":1,"b":["x",null]}', None], "struct<a:int,b:array<string>>", "json") == [
        {"a": 1, "b": ["x", None]},
        None,
    ]
    for text, reason in (("[1", "is not JSON"), ('["x"]', "not"), ("{}", "is not of type array<int>")):
        with pytest.raises(MisfitError, match=reason):
            read([text], "array<int>", "json")


def test_large_numbers_of_a_negative_scale() -> None:
    """Also beside a NULL: pyarrow's choice between both would overflow."""
    data = base64.b64encode((10**37 - 1).to_bytes(16, "big")).decode()
    texts = [None, f'{{"scale":-30,"value":"{data}"}}']
    assert read(texts, "string", "decimal-struct") == [None, "9" * 37 + "0" * 30]
    with pytest.raises(MisfitError, match="not a number with scale -30 that the column can hold"):
        read(texts, "decimal(38,0)", "decimal-struct")
