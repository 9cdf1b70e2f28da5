"""JSON values: read exactly or refused, and their texts."""

from __future__ import annotations

import pytest

from mutation_api.inputs.messages.json_text import is_rough, parsed, text_of


@pytest.mark.parametrize(
    ("json", "text"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("12", "12"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("123456789012345678901234567890.10", "123456789012345678901234567890.1"),
        ("1.50", "1.5"),
        ("-0.00", "0"),
        ("100.00", "100"),
        ("1e3", "1000.0"),
        ("1.5E-3", "0.0015"),
        ("15e5", "1500000.0"),
        ("1e7", "1.0E7"),
        ("-2.5e-4", "-2.5E-4"),
        ("1.7976931348623157e308", "1.7976931348623157E308"),
        ("0e5", "0.0"),
        ("true", "true"),
        ("null", None),
        ('"1.50"', "1.50"),
        ('{"b": [1.0, "x\\u0001\\u001f\\"/"], "a": {}}', '{"a":{},"b":[1,"x\\u0001\\u001F\\"/"]}'),
        ('{"\\uffff": 1, "\\ud83d\\ude00": null}', '{"😀":null,"\uffff":1}'),
    ],
)
def test_texts_of_values(json: str, text: str | None) -> None:
    """Numbers as short as can be, all their digits; objects with their fields in Java's order."""
    value = parsed(json)
    assert text_of(value) == text
    assert not is_rough(value)


@pytest.mark.parametrize(
    "json", ["1e400", "-1e999", "1.2345678901234567890e1", '{"a": [9007199254740993e0]}']
)
def test_numbers_that_no_double_is(json: str) -> None:
    """With an exponent, and more digits than a double has, or out of its range."""
    assert is_rough(parsed(json))


@pytest.mark.parametrize(
    "json",
    [
        "",
        " ",
        "{",
        "1 2",
        '{"a": 1}{"a": 1}',
        '{"a": 1, "a": 1}',
        '[{"b": {"a": 1, "a": 2}}]',
        "NaN",
        "[-Infinity]",
        "01",
        "1.",
        '"\t"',
        '"\\ud83d"',
        '{"\\udc00": 1}',
        "[" * 100_000,
    ],
)
def test_what_is_not_one_value(json: str) -> None:
    """Refused, whatever Python's own reader would make of it."""
    with pytest.raises(ValueError):
        parsed(json)
