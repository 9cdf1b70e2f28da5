"""JSON values: read exactly or refused, and their texts."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mutation_api.cdc.messages.json_text import MessageParser, RepeatedObject, is_rough, parsed, text_of


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


HEAD = '{"schema":{"type":"struct","n":1.50},'
WITH_HEADS = [
    HEAD + '"payload":{"id":1}}',
    HEAD + '"payload":{"id":2,"id":3}}',
    HEAD + ' "payload":null}',
    HEAD + "}",
    HEAD + '"schema":{},"payload":1}',
    HEAD + '"payload":"\\ud800"}',
    HEAD + '"payload":1} 2',
    HEAD + '"payload":1,}',
    HEAD + '"payload',
    '{"schema":{"type":"struct","n":1.50} , "payload":1}',
    ' { "schema" : {"a":[1]} , "payload":2}',
    '{"payload":1,"schema":{"type":"struct"}}',
    '{"schema":"text","payload":1}',
    '{"schema":null,"payload":1}',
    '{"schema":{"a":1,"a":2},"payload":1}',
    '{"schema":{}}',
    '"schema"',
    "[" * 100_000,
    "17",
]


def outcome(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except ValueError:
        return "refused"


@pytest.mark.parametrize("seed", range(20))
def test_what_messages_repeat_is_parsed_as_if_it_were_not_known(seed: int) -> None:
    """Whatever came before, a text has the value, or the error, that it has alone."""
    texts = WITH_HEADS * 3
    random.Random(seed).shuffle(texts)
    parser = MessageParser()
    for text in texts:
        alone = outcome(parsed, text)
        found = outcome(parser.parsed, text)
        assert (found == "refused") == (alone == "refused"), text
        assert text_of(found) == text_of(alone)
        assert not isinstance(alone, dict) or list(found) == list(alone)


def test_many_schemas_are_not_all_kept() -> None:
    """A parser stays small, and right, however many schemas there are."""
    parser = MessageParser()
    for number in [*range(200), *range(200)]:
        text = f'{{"schema":{{"n":{number}}},"payload":{number}}}'
        assert text_of(parser.parsed(text)) == text_of(parsed(text))
    assert len(parser._heads) == 32


def test_what_follows_from_a_shared_object_is_computed_once() -> None:
    """By each rule."""
    seen: list[object] = []

    def rule(value: object) -> int:
        seen.append(value)
        return 7

    shared = RepeatedObject({"a": 1})
    assert [shared.derived(rule) for _ in range(3)] == [7, 7, 7]
    assert shared.derived(len) == 1
    assert seen == [{"a": 1}]
