"""Random values of Hive types, and the notation in which the judge prints them.

Values are Python objects as pyarrow takes them for the type's Arrow type; a map is a list of pairs. What the
judge prints differs from Python's own texts, so both sides are brought into one form: :func:`shown` for what
was written, :func:`read_back` for what the judge found.
"""

from __future__ import annotations

import datetime
import json
import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from mutation_api.format.hive_type import HiveType

NULL_SHARE = 0.15
EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_DATES = (datetime.date.min, datetime.date(1582, 10, 4), datetime.date(1582, 10, 15), datetime.date.max)
_TEXTS = ("", "a", "tail  ", "é", "日本語", "😀😀x", "a\0b", "a\nb\t'\"\\", "%2F", "\\N", "x" * 70)
_FLOATS = (0.0, -0.0, 1.1, -2.5, 1e-300, -1e300, 5e-324, 1.7976931348623157e308, 2.0**53, math.inf, math.nan)


def random_value(rng: random.Random, hive_type: HiveType, *, early_fractions: bool) -> Any:
    """A value, NULL at any level now and then; limits come often.

    Without ``early_fractions`` timestamps before 1970 are whole seconds.
    """
    if rng.random() < NULL_SHARE:
        return None
    return _present(rng, hive_type, early_fractions)


def _present(rng: random.Random, hive_type: HiveType, early: bool) -> Any:
    def child(place: int) -> Any:
        return random_value(rng, hive_type.children[place], early_fractions=early)

    count = rng.choice((0, 1, 1, 3))
    match hive_type.kind:
        case "array":
            return [child(0) for _ in range(count)]
        case "map":
            keys = [_present(rng, hive_type.children[0], early) for _ in range(count)]
            distinct = {_key(key, hive_type.children[0]): key for key in keys}
            return [(key, child(1)) for key in distinct.values()]
        case "struct":
            return {name: child(place) for place, name in enumerate(hive_type.field_names)}
        case "timestamp":
            return _timestamp(rng, early)
    return _MAKERS[hive_type.kind](rng, hive_type)


def _integer(rng: random.Random, hive_type: HiveType) -> int:
    limit = 2 ** (_INTEGER_BITS[hive_type.kind] - 1)
    return rng.choice((-limit, limit - 1, 0, -1, rng.randrange(-limit, limit), rng.randrange(-9, 9)))


def _float(rng: random.Random, _type: HiveType) -> float:
    return float(
        np.float32(rng.choice((0.0, -0.0, 1.1, 1e-45, 3.4e38, -math.inf, math.nan, rng.gauss(0, 9))))
    )


def _double(rng: random.Random, _type: HiveType) -> float:
    return rng.choice((*_FLOATS, rng.gauss(0, 1), rng.gauss(0, 1e12)))


def _decimal(rng: random.Random, hive_type: HiveType) -> Decimal:
    limit = 10**hive_type.precision - 1
    unscaled = rng.choice((limit, -limit, 0, 1, -10, rng.randint(-limit, limit), rng.randint(-999, 999)))
    if abs(unscaled) > limit:
        unscaled = limit
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -hive_type.scale))


def _text(rng: random.Random, _type: HiveType) -> str:
    return rng.choice((*_TEXTS, "".join(rng.choices("aé日😀 ", k=rng.randrange(9)))))


def _binary(rng: random.Random, _type: HiveType) -> bytes:
    return rng.choice((b"", b"\0", b"\xff\xfe", rng.randbytes(rng.randrange(20))))


def _date(rng: random.Random, _type: HiveType) -> datetime.date:
    return rng.choice((*_DATES, datetime.date.fromordinal(rng.randint(1, datetime.date.max.toordinal()))))


def _timestamp(rng: random.Random, early: bool) -> datetime.datetime:
    seconds = rng.randrange(-62135596800, 253402300800) if rng.random() < 0.7 else rng.randrange(-9, 9)
    fraction = rng.choice((0, 1, 500_000, 999_999, rng.randrange(10**6)))
    # ORC cannot say a fraction of the last second before 1970.
    if (seconds < 0 and not early) or seconds == -1:
        fraction = 0
    return EPOCH + datetime.timedelta(seconds=seconds, microseconds=fraction)


_MAKERS: dict[str, Callable[[random.Random, HiveType], Any]] = {
    "boolean": lambda rng, _: rng.random() < 0.5,
    **dict.fromkeys(_INTEGER_BITS, _integer),
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    **dict.fromkeys(("string", "varchar", "char"), _text),
    "binary": _binary,
    "date": _date,
}


def shown(value: Any, hive_type: HiveType) -> Any:
    """A written value as :func:`read_back` gives it when Hive has read it right."""
    if value is None:
        return None
    match hive_type.kind:
        case "array":
            return [shown(element, hive_type.children[0]) for element in value]
        case "map":
            key_type, value_type = hive_type.children
            pairs = value.items() if isinstance(value, dict) else value
            return _sorted([[shown(k, key_type), shown(v, value_type)] for k, v in pairs])
        case "struct":
            fields = zip(hive_type.field_names, hive_type.children, strict=True)
            return [shown(value[name], child) for name, child in fields]
        case "float":
            return _number(float(np.float32(value)))
        case "double":
            return _number(value)
        case "decimal":
            return str(value.normalize()) if value else "0"
        case "char":
            return value[: hive_type.length].rstrip(" ")
        case "varchar":
            return value[: hive_type.length]
        case "binary":
            return value.hex()
        case "date":
            return value.isoformat()
        case "timestamp":
            return value.isoformat(" ", "microseconds").rstrip("0").removesuffix(".")
    return value


def read_back(value: Any, hive_type: HiveType) -> Any:
    """A value of a HiveRow in the common form."""
    if value is None:
        return None
    match hive_type.kind:
        case "array":
            return [read_back(element, hive_type.children[0]) for element in value]
        case "map":
            key_type, value_type = hive_type.children
            return _sorted([[read_back(k, key_type), read_back(v, value_type)] for k, v in value])
        case "struct":
            return [read_back(*part) for part in zip(value, hive_type.children, strict=True)]
        case "float":
            return _number(float(np.float32(value)))
        case "double":
            return _number(float(value))
        case "decimal":
            number = Decimal(value)
            return str(number.normalize()) if number else "0"
        case "char":
            return value.rstrip(" ")  # Hive compares it so, and prints it padded
        case "timestamp":
            return value.removesuffix(".0")
    return value


def _number(value: float) -> Any:
    """Text, so that NaN equals itself and -0.0 does not equal 0.0."""
    return repr(value)


def _sorted(pairs: list[list[Any]]) -> list[list[Any]]:
    return sorted(pairs, key=lambda pair: json.dumps(pair[0]))


def _key(value: Any, hive_type: HiveType) -> str:
    return json.dumps(shown(value, hive_type))
