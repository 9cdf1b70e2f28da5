"""orjson in front of the exact reader: the same values, and what it would lose is left to the other one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from mutation_api.cdc.messages.json_rows import ValueColumn
from mutation_api.cdc.messages.json_text import (
    MessageParser,
    Number,
    QuickParser,
    digits_of,
    is_rough,
    parsed,
    text_of,
    written,
)

orjson = pytest.importorskip("orjson")

NUMBERS = (
    *("0", "-0", "7", "-12", "9223372036854775807", "18446744073709551615", "18446744073709551616"),
    *("1.5", "1.50", "-0.0", "100.0", "0.1", "1e5", "1E5", "1.0E10", "1e16", "1e+16", "1e-7", "0.00001"),
    *(
        "0.0001",
        "1e400",
        "5e-324",
        "0.1234567890123456789",
        "12345678901234567890.5",
        "1e22",
        "123456789.125",
    ),
)
TEXTS = ('""', '"a"', '"é"', '"\\u00e9"', '"\\n\\t\\"\\\\"', '"\\/"', '"/"', '"\\u0001"', '"\\u001F"', '"😀"')
NAMES = ('"a"', '"b"', '"\\u0061"', '"schema"')


def told(value: Any) -> Any:
    """A value's meaning: kind, text, whether it is exact; objects with the order of their fields."""
    if isinstance(value, dict):
        return [(name, told(each)) for name, each in value.items()]
    if isinstance(value, list):
        return list(map(told, value))
    is_number = value.__class__ in (int, float, Number)
    return ("number" if is_number else value.__class__, text_of(value), is_rough(value))


def random_json(chance: random.Random, depth: int = 3) -> str:
    """A text of JSON, now and then with what orjson would lose."""
    kind = chance.randrange(6 if depth else 4)
    blank = " " if chance.random() < 0.02 else ""
    if kind == 0:
        return chance.choice(("null", "true", "false"))
    if kind == 1:
        return chance.choice(TEXTS)
    if kind in (2, 3):
        return chance.choice(NUMBERS) if chance.random() < 0.2 else repr(round(chance.uniform(-1e6, 1e6), 3))
    parts = [random_json(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 4:
        return "[" + f",{blank}".join(parts) + "]"
    names = [chance.choice(NAMES) if chance.random() < 0.3 else f'"{n}"' for n in range(len(parts))]
    return "{" + ",".join(f"{name}:{blank}{part}" for name, part in zip(names, parts, strict=True)) + "}"


@pytest.mark.thorough(1)
@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_quickly_has_the_meaning_of_the_exact_reader(seed: int) -> None:
    """Whatever the text; and texts of which that reader knows better are not read quickly."""
    chance = random.Random(seed)
    quick, refused, left = 0, 0, 0
    for _ in range(3000):
        text = random_json(chance)
        found = QuickParser().parsed(text)
        try:
            exact = told(parsed(text))
        except ValueError:
            assert found is None, text
            refused += 1
            continue
        left += found is None
        if found is not None:
            assert told(found[0]) == exact, text
            assert text_of(found[0]) == text_of(parsed(text))
            quick += 1
    assert quick > 1000
    assert left > 100
    assert refused > 10


@pytest.mark.parametrize(
    "text",
    [
        *('{"a":1,"a":1}', '[{"b":{"a":1,"a":2}}]', '{"a":1,"\\u0061":1}', '{"a":1} ', ' {"a":1}', "1.50"),
        *("1E10", "1e5", "-0", "18446744073709551616", "1e400", '"\\u00e9"', '"\\ud800"', "NaN", "", "[1,]"),
    ],
)
def test_what_is_left_to_the_exact_reader(text: str) -> None:
    """Of most of these orjson would lose something."""
    assert QuickParser().parsed(text) is None


@pytest.mark.thorough
def test_a_double_has_the_text_that_was_read() -> None:
    """Of any size."""
    chance = random.Random(7)
    for _ in range(20_000):
        number = chance.uniform(-1, 1) * 10.0 ** chance.randrange(-320, 308)
        text = orjson.dumps(number).decode()
        (found,) = QuickParser().parsed(text) or (None,)
        assert isinstance(found, float)
        assert written(found) == text
        assert text_of(found) == text_of(Number(text))


def test_a_log_that_is_written_otherwise_is_not_tried_for_ever() -> None:
    """Yet read to its end."""
    parser = MessageParser()
    for number in range(200):
        assert text_of(parser.parsed(f'{{"a": {number}}}')) == f'{{"a":{number}}}'
    assert parser._quick.parsed('{"a":1}') is None
    mixed = QuickParser()
    for number in range(1000):
        text = json.dumps({"a": number}, separators=(",", ":")) if number % 2 else '{"a": 1}'
        assert (mixed.parsed(text) is None) == (number % 2 == 0)


def test_a_column_of_floats_has_the_same_strings_as_its_values() -> None:
    """All at once or one by one; a single exponent makes a difference to none of the others."""
    rng = random.Random(20261201)
    plain = [1.0, -0.0, 0.0, 100.0, 0.5, -12.25, 84.459, 0.0001, 999999999999999.9, None]
    for others in ([], [1e16], [1e-7, None], [5e-324, 1.7976931348623157e308]):
        values = [*plain, *others, *(round(rng.uniform(-1e6, 1e6), rng.randrange(6)) for _ in range(500))]
        rng.shuffle(values)
        column = ValueColumn(values)
        assert (column.plain_floats is None) == bool(set(others) - {None})
        assert column.texts.to_pylist() == list(map(text_of, values))
        assert column.digits.to_pylist() == list(map(digits_of, values))
        assert column.is_rough.to_pylist() == list(map(is_rough, values))
