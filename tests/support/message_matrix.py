"""Random values in messages of change logs, for columns of every Hive type, and what is promised.

Written from the tables of values in the modules of the formats (Maxwell, Canal, Debezium) alone.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from mutation_api.format.hive_type import HiveType
from tests.support.text_matrix import Given, promised_text, random_text
from tests.support.value_matrix import RefusedError

FORMATS = ("maxwell", "canal", "debezium")
_TEXT_KINDS = ("string", "varchar", "char")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_EPOCH = datetime.datetime(1970, 1, 1)
_TOKEN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


@dataclass(frozen=True)
class Semantic:
    """How Debezium writes a column.

    Attributes:
        schema: the field's schema.
        make: the JSON text of a random value.
        read: the text that a value of JSON means in columns of these kinds; raises RefusedError.
        kinds: of columns that can hold it.
    """

    schema: dict[str, Any]
    make: Callable[[random.Random], str]
    read: Callable[[Any, HiveType], Any]
    kinds: tuple[str, ...]


def message(form: str, identifier: int, raw: str, semantic: Semantic | None = None) -> str:
    """A message that inserts a row (id, v); ``raw`` is the JSON text of v."""
    row = {"id": identifier, "v": "@value@"}
    match form:
        case "maxwell":
            found: dict[str, Any] = {"database": "shop", "table": "t", "type": "insert"}
            found |= {"position": f"bin.000001:{identifier + 4}", "xoffset": 0, "primary_key_columns": ["id"]}
            found["data"] = row
        case "canal":
            found = {"database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "pkNames": ["id"]}
            found |= {"id": 1, "old": None, "data": [{"id": str(identifier), "v": "@value@"}]}
        case _:
            block = {"db": "shop", "table": "t", "file": "bin.000001", "pos": identifier + 4, "row": 0}
            found = {"op": "c", "before": None, "after": row, "source": block}
            if semantic is not None:
                fields = [{"field": "id", "type": "int64"}, {**semantic.schema, "field": "v"}]
                schemas = [
                    {"type": "struct", "fields": fields, "field": each} for each in ("before", "after")
                ]
                found = {"schema": {"type": "struct", "fields": schemas}, "payload": found}
    return json.dumps(found).replace('"@value@"', raw)


def random_value(rng: random.Random, form: str, kind: HiveType, semantic: Semantic | None) -> str:
    """The JSON text of a value."""
    if rng.random() < 0.1:
        return "null"
    if semantic is not None:
        return semantic.make(rng)
    if form != "canal" and rng.random() < 0.08:
        return rng.choice(('{"b":[1,2.50],"a":null}', "[]", '["x","y"]', "true", "false", '"\\ud800"', "NaN"))
    text = random_text(rng, kind) or ""
    if form != "canal" and _TOKEN.fullmatch(text) and rng.random() < 0.7:
        return text
    return json.dumps(text, ensure_ascii=rng.random() < 0.5)


def promised_value(raw: str, form: str, kind: HiveType, semantic: Semantic | None) -> Any:
    """What is stored, or `Given`. Raises RefusedError."""
    try:
        value = json.loads(raw, parse_float=_Number, parse_int=_Number, parse_constant=_refused)
    except ValueError as error:
        raise RefusedError from error
    if semantic is not None:
        if kind.kind not in semantic.kinds:
            return Given(None) if value is None else _none()
        return None if value is None else semantic.read(value, kind)
    if value is None:
        return None
    if kind.kind == "binary":
        return _bytes(value, "latin1" if form == "canal" else "base64")
    return _plain(value, kind)


class _Number(str):
    """The token of a number."""


def _refused(_word: str) -> Any:
    raise ValueError("no JSON")


def _bytes(value: Any, form: str) -> Any:
    if type(value) is not str:
        raise RefusedError
    try:
        return value.encode("latin-1") if form == "latin1" else base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error) as error:
        raise RefusedError from error


def _plain(value: Any, kind: HiveType) -> Any:
    """A value whose text counts."""
    if isinstance(value, _Number):
        return _of_number(value, kind)
    if isinstance(value, dict | list):
        text = _canonical(value)
        return promised_text(text, kind) if kind.kind in _TEXT_KINDS else _none()
    if isinstance(value, bool):
        return promised_text(str(value).lower(), kind)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RefusedError from error
    return promised_text(value, kind)


def _none() -> Any:
    raise RefusedError


def _canonical(value: Any) -> str:
    """JSON, fields sorted, no blanks, numbers by their shortest."""
    if isinstance(value, dict):
        return "{" + ",".join(f'"{name}":{_canonical(value[name])}' for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, _Number):
        return str(Decimal(value).normalize()) if "." in value else str(value)
    return json.dumps(value)


def _of_number(token: str, kind: HiveType) -> Any:
    """Without exponent its shortest text; with one it must be the double that it names."""
    if len(token) > 1000:
        return Given(promised_text(token, kind))
    if kind.kind in ("float", "double"):
        return promised_text(token, kind)
    if not {"e", "E"} & set(token):
        plain = token.rstrip("0").removesuffix(".") if "." in token else token
        return promised_text("0" if plain == "-0" else plain, kind)
    exact = Decimal(token) or Decimal(0)
    if abs(exact.adjusted()) > 308 or Fraction(Decimal(repr(float(exact)))) != Fraction(exact):
        raise RefusedError
    if kind.kind in _TEXT_KINDS:
        return Given(promised_text(_java(float(exact)), kind))
    digits = f"{exact:f}"
    return Given(promised_text(digits.rstrip("0").removesuffix(".") if "." in digits else digits, kind))


def _java(double: float) -> str:
    """As Java prints a double."""
    number = Decimal(repr(double))
    if number == 0 or Decimal("0.001") <= abs(number) < 10_000_000:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = number.normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{rest}E{len(digits) + int(exponent) - 1}"


# ---- Debezium


def random_semantic(rng: random.Random, kind: HiveType) -> Semantic:
    """A way in which Debezium writes a column, mostly one that the Hive column holds."""
    scale = rng.choice((0, 2, 5, 10, 38))
    made = (
        _number_type(),
        _boolean_type(),
        _text_type(),
        _double_type(),
        _bytes_type(),
        _bits(),
        _decimal(scale),
        _variable_decimal(),
        _days(),
        *map(_clock, _CLOCKS),
        *map(_time, _CLOCKS),
        _zoned(),
    )
    fitting = [each for each in made if kind.kind in each.kinds]
    return rng.choice(fitting if rng.random() < 0.9 else made)


def _number_type() -> Semantic:
    def make(rng: random.Random) -> str:
        return rng.choice(
            ("0", "1", "-1", "127", "128", "2147483648", "9223372036854775807", "1.0", "12", '"7"')
        )

    kinds = (*_WHOLE, *_TEXT_KINDS, "decimal", "float", "double", "boolean")
    return Semantic({"type": "int64"}, make, _plain, kinds)


def _boolean_type() -> Semantic:
    def read(value: Any, kind: HiveType) -> Any:
        if isinstance(value, bool) and kind.kind in _WHOLE:
            return int(value)
        return _plain(value, kind)

    kinds = ("boolean", "decimal", "float", "double", *_WHOLE, *_TEXT_KINDS)
    return Semantic(
        {"type": "boolean"}, lambda rng: rng.choice(("true", "false", "1", "0", "2")), read, kinds
    )


def _text_type() -> Semantic:
    def make(rng: random.Random) -> str:
        return json.dumps(rng.choice(("", "a", "abcd", "12", "1.50", "2017-06-07", "é😀xy", "x\0y", "[1]")))

    return Semantic({"type": "string"}, make, _plain, (*_TEXT_KINDS, *_WHOLE, "decimal", "date", "timestamp"))


def _double_type() -> Semantic:
    def make(rng: random.Random) -> str:
        return rng.choice(
            ("1.1", "0.1", "-0.0", "1e10", "1.0E-5", "16777217", "1e300", '"NaN"', '"Infinity"', "1e400")
        )

    return Semantic({"type": "double"}, make, _plain, ("float", "double", *_TEXT_KINDS))


def _bytes_type() -> Semantic:
    def make(rng: random.Random) -> str:
        return rng.choice(
            (json.dumps(base64.b64encode(rng.randbytes(rng.randrange(4))).decode()), '"YQ"', '"_w=="', "5")
        )

    return Semantic({"type": "bytes"}, make, lambda value, _kind: _bytes(value, "base64"), ("binary",))


def _bits() -> Semantic:
    def make(rng: random.Random) -> str:
        return json.dumps(base64.b64encode(rng.randbytes(rng.choice((1, 2, 8, 9)))).decode())

    def read(value: Any, kind: HiveType) -> Any:
        data = _bytes(value, "base64")
        if kind.kind == "binary":
            return data
        if len(data) > 8:
            raise RefusedError
        return promised_text(str(int.from_bytes(data, "little")), kind)

    schema = {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "8"}}
    return Semantic(schema, make, read, (*_WHOLE, "decimal", "binary"))


def _unscaled(rng: random.Random) -> str:
    digits = rng.choice((1, 3, 10, 37, 38, 39))
    number = rng.choice((0, 1, -1, 10**digits - 1, 1 - 10**digits, 25 * 10 ** (digits // 2)))
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def _of_unscaled(text: Any, scale: int, kind: HiveType) -> Any:
    data = _bytes(text, "base64")
    if not data:
        raise RefusedError
    number = int.from_bytes(data, "big", signed=True)
    if abs(number) >= 10**38:
        raise RefusedError
    if kind.kind in _TEXT_KINDS:
        shown = f"{Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)):f}"
        return Given(promised_text("0" if not number and not scale else shown, kind))
    exact = Fraction(number) / Fraction(10) ** scale
    digits = 38 if exact.denominator != 1 else 0
    shown = (
        str(exact.numerator)
        if not digits
        else f"{Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)):f}"
    )
    return promised_text(shown, kind)


def _decimal(scale: int) -> Semantic:
    schema = {"type": "bytes", "name": _DECIMAL, "parameters": {"scale": str(scale)}}

    def read(value: Any, kind: HiveType) -> Any:
        return _of_unscaled(value, scale, kind)

    return Semantic(schema, lambda rng: json.dumps(_unscaled(rng)), read, ("decimal", *_WHOLE, *_TEXT_KINDS))


def _variable_decimal() -> Semantic:
    def make(rng: random.Random) -> str:
        return json.dumps({"scale": rng.choice((0, 2, 37, 38, -3, -30, 60)), "value": _unscaled(rng)})

    def read(value: Any, kind: HiveType) -> Any:
        scale = int(value["scale"])
        found = _of_unscaled(value["value"], scale, kind)
        return found if 0 <= scale <= 38 else Given(found)

    schema = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    return Semantic(schema, make, read, ("decimal", *_WHOLE, *_TEXT_KINDS))


def _whole_number(value: Any, bits: int) -> int:
    if not isinstance(value, _Number) or not re.fullmatch(r"-?[0-9]{1,30}", value):
        raise RefusedError
    number = int(value)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise RefusedError
    return number


def _days() -> Semantic:
    def read(value: Any, kind: HiveType) -> Any:
        try:
            day = _EPOCH.date() + datetime.timedelta(_whole_number(value, 32))
        except OverflowError as error:
            raise RefusedError from error
        return day if kind.kind == "date" else promised_text(day.isoformat(), kind)

    def make(rng: random.Random) -> str:
        return rng.choice(("0", "17000", "-719162", "-719163", "2932896", "2932897", "1.5", "99999999999"))

    return Semantic({"type": "int32", "name": "io.debezium.time.Date"}, make, read, ("date", *_TEXT_KINDS))


_CLOCKS = {"": 1000, "Micro": 1, "Nano": Fraction(1, 1000)}


def _stamps(rng: random.Random, factor: Any) -> str:
    second = int(1_000_000 / factor)
    return (
        str(
            rng.choice(
                (0, second, 1_500_000_000 * second + 1, -second * 86_400, -62_135_596_800 * second, 2**63 - 1)
            )
        )
        if rng.random() < 0.9
        else rng.choice(("1.5", str(2**63), str(253_402_300_800 * second)))
    )


def _micros_of(value: Any, factor: Any) -> int:
    micros = _whole_number(value, 64) * Fraction(factor)
    if micros.denominator != 1:
        raise RefusedError
    return int(micros)


def _clock(name: str) -> Semantic:
    def read(value: Any, kind: HiveType) -> Any:
        try:
            moment = _EPOCH + datetime.timedelta(microseconds=_micros_of(value, _CLOCKS[name]))
        except OverflowError as error:
            raise RefusedError from error
        if kind.kind == "timestamp":
            text = moment.isoformat()
            return text.rstrip("0") if "." in text else text
        return promised_text(moment.isoformat(" "), kind)

    schema = {"type": "int64", "name": f"io.debezium.time.{name}Timestamp"}
    return Semantic(schema, lambda rng: _stamps(rng, _CLOCKS[name]), read, ("timestamp", *_TEXT_KINDS))


def _time(name: str) -> Semantic:
    def make(rng: random.Random) -> str:
        second = int(1_000_000 / _CLOCKS[name])
        return str(
            rng.choice((0, second, 86_399 * second, -3_020_399 * second, second // 4, 36_000 * second))
        )

    def read(value: Any, kind: HiveType) -> Any:
        micros = _micros_of(value, _CLOCKS[name])
        seconds, rest = divmod(abs(micros), 1_000_000)
        text = f"{'-' * (micros < 0)}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return promised_text(f"{text}.{rest:06}" if rest else text, kind)

    schema = {"type": "int64", "name": f"io.debezium.time.{name}Time"}
    return Semantic(schema, make, read, _TEXT_KINDS)


def _zoned() -> Semantic:
    def make(rng: random.Random) -> str:
        return json.dumps(
            rng.choice(
                (
                    *(
                        "2018-06-20T13:37:03Z",
                        "2018-06-20T13:37:03.25Z",
                        "2018-06-20T15:37:03+02:00",
                        "2018-06-20Z",
                    ),
                    *(
                        "0001-01-01T00:00:00+02:00",
                        "9999-12-31T23:59:59-01:00",
                        "2018-06-20 13:37:03",
                        "2018-06-20",
                    ),
                    *("2018-06-20T13:37:03.1234567Z", "2018-02-30T13:37:03Z", "2018-06-20T13:37Z"),
                )
            )
        )

    def read(value: Any, kind: HiveType) -> Any:
        found = re.fullmatch(
            r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?(Z|[+-]\d\d:\d\d)", value
        )
        if found is None or (not found[2] and found[3] != "Z"):
            raise RefusedError
        if kind.kind in _TEXT_KINDS:
            return promised_text(value, kind)
        if kind.kind == "date":
            if found[3] != "Z":
                raise RefusedError
            return promised_text(f"{found[1]} {found[2]}" if found[2] else found[1], kind)
        clock = found[2] or "00:00:00"
        stored = promised_text(f"{found[1]} {clock}", kind)
        text = stored.value if isinstance(stored, Given) else stored
        offset = 0 if found[3] == "Z" else int(found[3][:3]) * 60 + int(found[3][0] + found[3][4:])
        try:
            moment = datetime.datetime.fromisoformat(text) - datetime.timedelta(minutes=offset)
        except OverflowError as error:
            raise RefusedError from error
        shown = moment.isoformat()
        return (
            Given(shown.rstrip("0") if "." in shown else shown)
            if len(clock) < 8
            else (shown.rstrip("0") if "." in shown else shown)
        )

    schema = {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
    return Semantic(schema, make, read, ("timestamp", "date", *_TEXT_KINDS))
