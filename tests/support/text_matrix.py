"""Random texts and JSON values for columns of every Hive type, and what is promised.

Written from the table "Values in files" of docs/guides/change-rows.md alone. A text that it does not speak of
(``+1``, ``inf``) may be refused; if it is stored, then as the number that it names.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from mutation_api.errors import MutationError
from mutation_api.format.hive_type import HiveType
from tests.support.value_matrix import HIVE_TYPES, RefusedError

FLAT_TYPES = tuple(each for each in HIVE_TYPES if each != "binary")
NESTED_TYPES = tuple(
    f"{name}<{rest}"
    for name, rest in (
        ("array", "{}>"),
        ("map", "string,{}>"),
        ("struct", "a:{},b:bigint>"),
        ("map", "varchar(2),{}>"),
        ("map", "bigint,{}>"),
    )
)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(" "))


_INTEGERS = (
    *_words("0 1 -1 -0 007 127 128 -128 -129 32767 32768 2147483647 2147483648 9223372036854775807"),
    *_words("-9223372036854775808 9223372036854775808 +5 1_000 0x1F 1,5 \u0663 \uff11"),
    *("1" * 38, "9" * 39, "1" * 5000),
)
_DECIMALS = (
    *_words("1.5 -1.50 12.345 12.3400 99999999.99 99999999.995 0.1 .5 5. -.5 1e2 1E+2 1.25E+1 15e-1 1e-3"),
    *_words("1e-40 1e40 1e999999999 -1e-999999999 0e999999999 1e --1 1.2.3 - ."),
    *(f"0.{'1' * 38}", f"0.{'1' * 39}", f"{'1' * 36}.25"),
)
_FLOATS = (
    *_words("1e10 -1.5 NaN nan -NaN Infinity -Infinity +Infinity inf -inf INF 1e400 -1e400 1e39 1e308 0.1"),
    *_words("3.4028236e38 3.4028235677973366e38 1e-400 16777217 9007199254740993 1.1 -0.0 1f 1.5d 0x1p3"),
    *("1.0000000596046448", "1.00000005960464478"),
)
_DATES = (
    *_words("2017-06-07 0001-01-01 9999-12-31 0000-00-00 0000-01-01 10000-01-01 2024-02-29 2023-02-29"),
    *_words("1900-02-29 1582-10-10 2024-2-3 2017-06-07T00:00:00.000 20170607 2017-06-07Z -0001-01-01"),
    *_words("+2017-06-07 2017/06/07 2017-13-01 17-06-07"),
    *("2017-06-07 00:00:00", "2017-06-07 00:00:01", "2017-06-07 "),
)
_CLOCKS = (
    *_words("09:22:28 09:22:28.123456 09:22:28.1234567 09:22:28.123456000 09:22:28.000000000000 09:22 09"),
    *_words("24:00:00 23:59:60 09:22:28Z 09:22:28+01:00 9:22:28"),
)
_TIMES = (
    *(f"2017-06-07 {clock}" for clock in (*_CLOCKS, " 09:22:28")),
    *_words("2017-06-07T09:22:28.1 2017-06-07T092228"),
    *("9999-12-31 23:59:59.999999", "0001-01-01 00:00:00", "0000-00-00 00:00:00", "10000-01-01 00:00:00"),
    *("1969-12-31 23:59:58.5", "300000-01-01 00:00:00"),
)
_BOOLEANS = _words("true false TRUE False 0 1 t yes 2 on")
_TEXTS = (
    *_words("a abcd é😀xy e\u0301 a,b \\N NULL null ' \\ \u2028 \ufeff # \x7f YQ== YQ /+== -_=="),
    *("", "ab  ", " ab", 'say "x"', '"', "a\nb", "a\r\nb", "a\rb", "\t", "Y Q==", "x" * 300),
)
_ALL = (_INTEGERS, _DECIMALS, _FLOATS, _DATES, _TIMES, _BOOLEANS, _TEXTS)
_OF_KIND = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _INTEGERS),
    **dict.fromkeys(("float", "double"), _FLOATS + _DECIMALS),
    **dict.fromkeys(("string", "varchar", "char"), _TEXTS),
    "decimal": _DECIMALS + _INTEGERS,
    "date": _DATES,
    "timestamp": _TIMES,
    "boolean": _BOOLEANS,
    "binary": _TEXTS,
}


@dataclass(frozen=True)
class Given:
    """A value whose text the documentation does not speak of: stored as this, or refused."""

    value: Any


def random_text(rng: random.Random, kind: HiveType) -> str | None:
    """A text, mostly of the kind of the type; None for NULL."""
    if rng.random() < 0.1:
        return None
    text = rng.choice(_OF_KIND[kind.kind] if rng.random() < 0.7 else rng.choice(_ALL))
    return rng.choice((" ", "\t", "")) + text if rng.random() < 0.05 else text


def promised_text(text: str | None, kind: HiveType) -> Any:
    """What a text is stored as, or `Given`; timestamps as TimestampForm.TEXT.

    Raises:
        RefusedError: it is no value of the type.
    """
    if text is None:
        return None
    match kind.kind:
        case "boolean":
            return _only(text.lower() in ("0", "1", "true", "false"), text.lower() in ("1", "true"))
        case "tinyint" | "smallint" | "int" | "bigint":
            return _integer(text, {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}[kind.kind])
        case "float" | "double":
            return _floating(text, is_single=kind.kind == "float")
        case "decimal":
            return _decimal(text, kind)
        case "date":
            return _date(text)
        case "timestamp":
            return _timestamp(text)
        case "binary":
            return _base64(text)
        case "array" | "map" | "struct":
            return promised_json(text, kind)
    cut = text[: kind.length] if kind.length else text
    return cut.rstrip(" ") if kind.kind == "char" else cut


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise RefusedError from error


def _only(condition: bool, value: Any) -> Any:
    if not condition:
        raise RefusedError
    return value


def _integer(text: str, bits: int) -> Any:
    is_plain = re.fullmatch(r"-?[0-9]{1,4000}", text)
    found = re.fullmatch(r"[+-]?[0-9]{1,4000}", text)
    value = int(_only(bool(found), text))
    _only(-(2 ** (bits - 1)) <= value < 2 ** (bits - 1), None)
    return value if is_plain else Given(value)


def _exact(text: str) -> Fraction | None:
    """The number that a decimal text names; None if it is none, or too far from 1 to be told."""
    found = re.fullmatch(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?", text)
    if not found or not found[2] + found[3]:
        raise RefusedError
    digits, exponent = int((found[2] + found[3])[:4000]), int(found[4] or 0) - len(found[3])
    if digits and abs(exponent) > 5000:
        return None
    number = Fraction(digits) * (Fraction(10) ** exponent if digits else 1)
    return -number if found[1] == "-" else number


def _floating(text: str, *, is_single: bool) -> Any:
    words = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    if text in words:
        return words[text]
    loose = {
        "nan": math.nan,
        "-nan": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "+inf": math.inf,
        "+infinity": math.inf,
        "infinity": math.inf,
        "-infinity": -math.inf,
    }
    if text.lower() in loose:
        return Given(loose[text.lower()])
    _exact(text)
    value = float(text)
    if is_single and not math.isinf(value):
        value = _nearest_single(text)
    _only(not math.isinf(value), None)
    return value if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text) else Given(value)


def _nearest_single(text: str) -> float:
    """The nearest float of 32 bits; a double between would be rounded twice."""
    exact = _exact(text)
    if exact is None:
        return float(text)
    if abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103:
        return math.copysign(math.inf, float(text))
    with np.errstate(over="ignore"):
        start = np.float32(float(text))
        near = [start, *(np.nextafter(start, np.float32(end)) for end in (math.inf, -math.inf))]
    finite = [each for each in near if np.isfinite(each)]
    return float(
        min(finite, key=lambda each: (abs(Fraction(float(each)) - exact), int(each.view(np.int32)) & 1))
    )


def _decimal(text: str, kind: HiveType) -> Any:
    number = _exact(text)
    if number is None:
        raise RefusedError
    scaled = number * 10**kind.scale
    _only(scaled.denominator == 1 and abs(scaled) < 10**kind.precision, None)
    value = _as_decimal(int(scaled), kind.scale)
    is_plain = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text) and len(text) < 60
    return value if is_plain else Given(value)


def _as_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _date(text: str) -> Any:
    found = re.fullmatch(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]00:00:00(?:\.0+)?)?", text, re.ASCII)
    _only(bool(found), None)
    try:
        return datetime.date.fromisoformat(found[1])
    except ValueError as error:
        raise RefusedError from error


def _timestamp(text: str) -> Any:
    whole = re.fullmatch(
        r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2})(?::([0-9]{2}))?(?::([0-9]{2})(?:\.([0-9]+))?)?)?",
        text,
        re.ASCII,
    )
    _only(bool(whole), None)
    day = _date(whole[1])
    hour, minute, second = (int(whole[at] or 0) for at in (2, 3, 4))
    _only(hour < 24 and minute < 60 and second < 60, None)
    fraction = whole[5] or ""
    _only(not fraction[6:].strip("0"), None)
    moment = datetime.datetime.combine(
        day, datetime.time(hour, minute, second, int(fraction[:6].ljust(6, "0") or 0))
    )
    stored = moment.isoformat()
    stored = stored.rstrip("0") if "." in stored else stored
    is_documented = not (whole[2] and not whole[4]) and len(fraction) <= 9
    return stored if is_documented else Given(stored)


def random_json(rng: random.Random, kind: HiveType) -> str:
    """The JSON text of a value, mostly of the kind of the type."""
    if rng.random() < 0.1:
        return "null"
    if rng.random() < 0.05:
        return rng.choice(('{"a":1}', "[1]", "[]", "{}", "[null]", '"\\ud800"', '{"a":{"a":[]}}'))
    match kind.kind:
        case "array":
            return f"[{','.join(random_json(rng, kind.children[0]) for _ in range(rng.randrange(3)))}]"
        case "map":
            if kind.children[0].kind == "bigint" and rng.random() < 0.8:
                both = [[random_json(rng, child) for child in kind.children] for _ in range(rng.randrange(3))]
                return f"[{','.join(f'[{key},{value}]' for key, value in both)}]"
            keys = [rng.choice(("", "k", "key", "keys", "1")) for _ in range(rng.randrange(3))]
            return (
                f"{{{','.join(f'{json.dumps(key)}:{random_json(rng, kind.children[1])}' for key in keys)}}}"
            )
        case "struct":
            fields = [
                f'"a":{random_json(rng, kind.children[0])}',
                f'"b":{rng.choice(("1", "null"))}',
                '"c":1',
                '"A":1',
            ]
            return f"{{{','.join(rng.sample(fields[: rng.choice((2, 2, 2, 3, 4))], rng.randrange(3)))}}}"
    text = random_text(rng, kind) or "null"
    is_token = text in ("true", "false", "NaN", "Infinity", "-Infinity") or re.fullmatch(
        r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", text, re.ASCII
    )
    if is_token and rng.random() < 0.7:
        return text
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)


class _Number(str):
    """The token of a number."""


class _Word(str):
    """NaN, Infinity, -Infinity."""


def promised_json(text: str, kind: HiveType) -> Any:
    """What a JSON text is stored as, with `Given` in it; a map as list of pairs.

    Raises:
        RefusedError: it is no value of the type.
    """
    try:
        value = json.loads(
            text, parse_float=_Number, parse_int=_Number, parse_constant=_Word, object_pairs_hook=_Pairs
        )
    except ValueError as error:
        raise RefusedError from error
    return _json_value(value, kind)


class _Pairs(list[tuple[str, Any]]):
    """An object."""


def _json_value(value: Any, kind: HiveType) -> Any:
    if value is None:
        return None
    if isinstance(value, _Pairs):
        _only(len({key for key, _ in value}) == len(value), None)
    match kind.kind:
        case "array":
            _only(isinstance(value, list) and not isinstance(value, _Pairs), None)
            return [_json_value(each, kind.children[0]) for each in value]
        case "map":
            has_texts = kind.children[0].kind in ("string", "varchar")
            _only(has_texts is isinstance(value, _Pairs) or value == _Pairs(), None)
            _only(isinstance(value, list) and all(isinstance(each, list | tuple) for each in value), None)
            _only(all(len(pair) == 2 and pair[0] is not None for pair in value), None)
            of_key = promised_text if has_texts else _json_value
            pairs = [(of_key(k, kind.children[0]), _json_value(v, kind.children[1])) for k, v in value]
            return _only(len({key for key, _ in pairs}) == len(pairs), pairs)
        case "struct":
            _only(isinstance(value, _Pairs) and {name for name, _ in value} <= set(kind.field_names), None)
            found = dict(value)
            return {
                n: _json_value(found.get(n), c) for n, c in zip(kind.field_names, kind.children, strict=True)
            }
    _only(isinstance(value, str | bool), None)
    return _json_scalar(value, kind)


def _json_scalar(value: Any, kind: HiveType) -> Any:
    is_number, is_text = isinstance(value, _Number), type(value) is str
    match kind.kind:
        case "boolean":
            return _only(isinstance(value, bool), value)
        case "tinyint" | "smallint" | "int" | "bigint":
            return promised_text(_only(is_number, value), kind)
        case "float" | "double":
            if isinstance(value, str) and value.upper() in (
                "NAN",
                "INF",
                "+INF",
                "-INF",
                "+INFINITY",
                "INFINITY",
                "-INFINITY",
            ):
                return promised_text(value, kind)
            return promised_text(_only(is_number, value), kind)
        case "decimal":
            return promised_text(_only(is_number or is_text, value), kind)
        case "date" | "timestamp":
            return promised_text(_only(is_text, value), kind)
        case "binary":
            return _base64(_only(is_text, value))
    if isinstance(value, bool):
        value = str(value).lower()
    elif not is_text:
        _only(is_number and re.fullmatch(r"-?[0-9]{1,4000}", value), None)
        value = str(int(value))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RefusedError from error
    return promised_text(value, kind)


def holds(found: Any, promised: Any) -> bool:
    """Whether a stored value is the promised one; NaN is NaN, -0.0 is not 0.0."""
    if isinstance(promised, Given):
        return holds(found, promised.value)
    if isinstance(promised, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(promised)
            and all(map(holds, found, promised))
        )
    if isinstance(promised, dict):
        return (
            isinstance(found, dict)
            and found.keys() == promised.keys()
            and all(holds(found[name], value) for name, value in promised.items())
        )
    return repr(found) == repr(promised)


def may_be_refused(promised: Any) -> bool:
    """Whether something of it is `Given`."""
    if isinstance(promised, dict):
        promised = list(promised.values())
    if isinstance(promised, list | tuple):
        return any(map(may_be_refused, promised))
    return isinstance(promised, Given)


def check_promise(what: str, store: Callable[[], list[Any]], promised: list[Any] | None) -> None:
    """Store values, and fail if they are others than promised, or are refused by an error that is not ours.

    Args:
        what: for messages.
        store: stores the values and gives what is read.
        promised: the values; None if they are refused.
    """
    try:
        found = store()
    except MutationError as error:
        assert promised is None or may_be_refused(promised), f"{what} is refused: {error}"
        return
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    assert promised is not None, f"{what} is stored as {found}"
    assert holds(found, promised), f"{what}: {found}, promised is {promised}"
