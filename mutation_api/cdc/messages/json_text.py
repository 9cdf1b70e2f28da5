"""Exact reading of JSON: numbers keep their digits, and a duplicate field is an error. Pure.

A value is None, a bool, a string, a number, a list, or a dict. A number is a :class:`Number`, or an int or
float that was read without loss. In a string column, a number gets its shortest form: ``1.50`` is ``1.5``,
and a number with an exponent is written as the double that it is (``1.0E10``, as Java writes it). A number
with an exponent that is not equal to any double is rough: it is refused as the value of a column.

If orjson is installed, it reads the strings for which its result is certain to be exact. It silently takes
the last of two fields with the same name, and reads numbers with a point or exponent as doubles. But if it
reproduces a string byte for byte, the string has no duplicate field, since a dict cannot have one, and each
double was written as orjson writes it. All other strings are left to the exact reader: those with blanks,
``1.50``, ``1E10``, unnecessary escapes, or integers above 64 bits. Kafka's converter, Maxwell and Canal
mostly write as orjson does.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

HAS_DEFAULT = "has_default"
"""The mark of a field of a converted schema, which has no defaults, if the field had one that is not null."""

ORJSON: Any = importlib.import_module("orjson") if importlib.util.find_spec("orjson") else None
"""The module orjson from the extra ``json``. Without it the exact reader takes three times as long."""

_TRIES, _MISSES_IN_TEN = 64, 6
"""The number of strings after which the parser stops if it has failed on too many, and the number of failures
in ten above which it does."""


class QuickParser:
    """Reads strings one by one, as long as it can read most of them."""

    def __init__(self) -> None:
        self._tries = self._misses = 0
        self._is_worth_it = ORJSON is not None

    def parsed(self, text: str) -> tuple[Any] | None:
        """Return the value in a string as a tuple; None if only the exact reader can read it.

        Numbers are of class int or float; :func:`written` returns the string of a float.
        """
        if not self._is_worth_it:
            return None
        self._tries += 1
        try:
            value = ORJSON.loads(text)
            if ORJSON.dumps(value) == text.encode():
                return (value,)
        except ValueError:
            pass
        self._misses += 1
        self._is_worth_it = self._tries < _TRIES or self._misses * 10 <= self._tries * _MISSES_IN_TEN
        return None


def written(number: float) -> str:
    """Return the string from which :class:`QuickParser` read a float."""
    text: bytes = ORJSON.dumps(number)
    return text.decode()


def written_texts(numbers: Sequence[float | None]) -> pa.StringArray:
    """Return the strings from which :class:`QuickParser` read floats, of which there is at least one."""
    texts = ORJSON.dumps(numbers)[1:-1].split(b",")
    return pc.replace_with_mask(
        pa.array(texts, pa.binary()).cast(pa.string()),
        pa.array([number is None for number in numbers]),
        pa.scalar(None, pa.string()),
    )


def shortest_texts(texts: pa.StringArray) -> pa.StringArray:
    """Return the shortest form, as :func:`text_of` does, of numbers with a point and without an exponent."""
    plain = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    return pc.if_else(pc.equal(plain, "-0"), "0", plain)


T = TypeVar("T")

Fields = Mapping[str, Any]
"""The fields of an object."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = str.maketrans({**{chr(code): f"\\u{code:04X}" for code in range(32)}, **_ESCAPES})

_DOUBLED = "an object has two fields with the same name"

_HEAD_FIELD = "schema"
_HEAD_START = re.compile(r'[ \t\r\n]*\{[ \t\r\n]*"schema"[ \t\r\n]*:[ \t\r\n]*')
_HEAD_END = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_HEADS_MAX = 32
"""The number of schemas that are cached. If there are more, messages are parsed as a whole, since a search
would take too long."""

_DIGITS_MAX = 100
"""The number of digits above which a number does not fit into any column."""

_LEAST_PLAIN, _LEAST_LARGE = Decimal("0.001"), 10_000_000
"""Java writes doubles in this range (without the upper bound) without an exponent."""


class Number(str):
    """A JSON number, as it is written."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """Return the one JSON value in a string.

    Raises ValueError if it is not one value, has an object with two fields of the same name, or has
    characters that cannot be encoded in a file.
    """
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            _texts_within(value).encode()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return value


class RepeatedObject(dict[str, Any]):
    """An object shared by several messages; values derived from it are computed once."""

    __slots__ = ("_derived",)

    def derived(self, rule: Callable[[Any], T]) -> T:
        """Return the result of a rule for this object."""
        known: dict[Any, Any] = getattr(self, "_derived", None) or {}
        if rule not in known:
            self._derived = {**known, rule: rule(self)}
        found: T = self._derived[rule]
        return found


class MessageParser:
    """Parses strings one by one, with the same result as :func:`parsed`, but faster.

    A beginning that messages repeat is parsed once. Kafka's converter puts the schema in front of each
    message, which is several times as long as the message. An object that begins with a known string
    ``{"schema":…,`` therefore consists of the known field and the rest. orjson is used for everything that it
    reads without loss.
    """

    def __init__(self) -> None:
        self._heads: list[tuple[str, RepeatedObject]] = []
        self._quick = QuickParser()

    def parsed(self, text: str) -> Any:
        """Return the JSON value in a string. See :func:`parsed`."""
        for head, schema in self._heads:
            if text.startswith(head) and text.startswith('"', len(head)):
                rest = self._quickly_parsed("{" + text[len(head) :])
                if _HEAD_FIELD in rest:
                    raise ValueError(_DOUBLED)
                return {_HEAD_FIELD: schema, **rest}
        if len(self._heads) == _HEADS_MAX or not _HEAD_START.match(text):
            return self._quickly_parsed(text)
        value = parsed(text)
        if isinstance(value, dict):
            self._remember(text, value.get(_HEAD_FIELD))
        return value

    def _quickly_parsed(self, text: str) -> Any:
        found = self._quick.parsed(text)
        return parsed(text) if found is None else found[0]

    def _remember(self, text: str, schema: object) -> None:
        start = _HEAD_START.match(text)
        if start is None or not isinstance(schema, dict):
            return
        _, end = _DECODER.raw_decode(text, start.end())
        comma = _HEAD_END.match(text, end)
        if comma is not None:
            self._heads.append((text[: comma.end()], RepeatedObject(schema)))


def fields_of(value: Any) -> Fields | None:
    """Return the fields of an object, or None if the value is not an object."""
    return value if isinstance(value, dict) else None


def field_of(fields: Fields | None, name: str) -> Any:
    """Return a field's value, or None if it is missing or null."""
    return None if fields is None else fields.get(name)


def objects_of(value: Any) -> list[Fields | None] | None:
    """Return the elements of an array, replacing non-objects by None; None if it is not an array."""
    return [fields_of(each) for each in value] if isinstance(value, list) else None


def texts_of(value: Any) -> tuple[str, ...] | None:
    """Return the elements of an array that are not null as strings; None if the value is not an array."""
    if not isinstance(value, list):
        return None
    return tuple(text for each in value if (text := text_of(each)) is not None)


def text_of(value: Any) -> str | None:
    """Return a value as a string: a number in its shortest form, an object or array as JSON; None if null."""
    if value is None or value.__class__ is str:
        return value
    if value.__class__ is Number:
        return _number_text(value)
    return str(value) if value.__class__ is int else _json(value)


def number_of_java(digits: str) -> str:
    """Return the JSON value that Java writes for a double or single.

    ``digits``: the shortest decimal that is equal to this number, as Python writes it; ``nan``, ``inf`` and
    ``-inf`` are strings in JSON.
    """
    exact = Decimal(digits)
    if exact.is_nan():
        return "NaN"
    return _infinity(exact > 0) if exact.is_infinite() else Number(_java_text(exact))


def digits_of(value: Any) -> str | None:
    """Return a number with all its digits and no exponent; other values as :func:`text_of` does."""
    text = written(value) if value.__class__ is float else value
    if value.__class__ not in (Number, float) or not {"e", "E"} & set(text):
        return str(text) if value.__class__ in (Number, float) else text_of(value)
    exact = Decimal(text)
    return format(exact, "f") if abs(exact.adjusted()) < _DIGITS_MAX else text_of(value)


def is_rough(value: Any) -> bool:
    """Return True if a value contains a number that was rounded, or is infinite."""
    if value.__class__ is Number:
        return _is_rounded(value)
    if value.__class__ is float:
        return _is_rounded(Number(written(value)))
    if isinstance(value, dict):
        return any(map(is_rough, value.values()))
    return isinstance(value, list) and any(map(is_rough, value))


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(_DOUBLED)
    return fields


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_without_doubles, parse_int=Number, parse_float=Number, parse_constant=_refused
)


def _texts_within(value: Any) -> str:
    """Return all strings and field names of a value, concatenated."""
    if isinstance(value, dict):
        return "".join(name + _texts_within(each) for name, each in value.items())
    if isinstance(value, list):
        return "".join(map(_texts_within, value))
    return value if isinstance(value, str) else ""


def _number_text(number: Number) -> str:
    if "e" in number or "E" in number:
        return _double_text(float(number))
    plain = number.rstrip("0").removesuffix(".") if "." in number else str(number)
    return "0" if plain == "-0" else plain


def _is_rounded(number: Number) -> bool:
    if "e" not in number and "E" not in number:
        return False
    double = float(number)
    return math.isinf(double) or Decimal(repr(double)) != Decimal(number)


def _double_text(double: float) -> str:
    """Return a double as Java writes it."""
    return _infinity(double > 0) if math.isinf(double) else _java_text(Decimal(repr(double)))


def _infinity(is_positive: bool) -> str:
    return "Infinity" if is_positive else "-Infinity"


def _java_text(number: Decimal) -> str:
    """Return a finite number as Java writes it; it must be the shortest form of a double or single."""
    if number == 0 or _LEAST_PLAIN <= abs(number) < _LEAST_LARGE:
        text = format(number, "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = number.normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{first}.{rest}E{len(digits) + exponent - 1}"


def _json(value: Any) -> str:
    """Return a value's JSON with sorted fields and without blanks."""
    if isinstance(value, dict):
        names = sorted(value, key=_utf_16)
        return "{" + ",".join(f"{_quoted(name)}:{_json(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value) if isinstance(value, int) else _number_text(Number(written(value)))
    return _number_text(value) if isinstance(value, Number) else _quoted(value)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPED)}"'


def _utf_16(name: str) -> bytes:
    """Return a sort key that orders names as Java does."""
    return name.encode("utf-16-be")
