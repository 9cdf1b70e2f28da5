"""Hive types, the Arrow and Spark types that hold their values, and errors of value conversions. Pure.

To add a type, add a branch in :func:`parse_hive_type`, a row in the maps here, a conversion
(:mod:`mutation_api.format.conversion`), a hash (:mod:`mutation_api.format.bucket_hash`) and a golden file.

Keys that occur twice in a map are found for whole arrays. Errors of conversions do not name the place of a
value: their callers add the table, the column and the row.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import TableNotMutableError

__all__ = [
    "DECIMALS_OF_INTEGERS",
    "INTEGER_BITS",
    "INTEGER_KINDS",
    "MAX_CHAR_LENGTH",
    "MAX_DECIMAL_PRECISION",
    "MAX_VARCHAR_LENGTH",
    "NESTED_KINDS",
    "HiveType",
    "MisfitError",
    "UnfitTypeError",
    "arrow_type",
    "parse_hive_type",
    "second_of_equal_keys",
    "spark_type",
]


INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
INTEGER_KINDS = tuple(INTEGER_BITS)
NESTED_KINDS = ("array", "map", "struct", "uniontype")
DECIMALS_OF_INTEGERS = {
    pa.int8(): pa.decimal128(3, 0),
    pa.int16(): pa.decimal128(5, 0),
    pa.int32(): pa.decimal128(10, 0),
    pa.int64(): pa.decimal128(19, 0),
}
"""The decimal type that holds every value of an integer type."""
MAX_CHAR_LENGTH = 255
MAX_VARCHAR_LENGTH = 65535
MAX_DECIMAL_PRECISION = 38

_PLAIN_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "char": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
}
_ALIASES = {"integer": "int", "double precision": "double", "dec": "decimal", "numeric": "decimal"}
_SPARK_NAMES = {"char": "string", "varchar": "string", "timestamp": "timestamp_ntz"}
_UNSUPPORTED = {
    "timestamp with local time zone": "no Hive release can read it back from ORC",
    "timestamplocaltz": "no Hive release can read it back from ORC",
    "void": "a table column cannot have it",
    "interval_year_month": "a table column cannot have it",
    "interval_day_time": "a table column cannot have it",
}
_WORD = re.compile(r"\s*([a-z_][a-z0-9_ ]*)", re.IGNORECASE)
_NUMBERS = re.compile(r"\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_FIELD_NAME = re.compile(r"\s*(?:`([^`]+)`|([^`<>,:()]+?))\s*:")


@dataclass(frozen=True)
class HiveType:
    """A Hive type.

    ``kind`` is the bare name in lower case: ``int``, ``decimal``, ``array``, ``uniontype`` …
    ``length`` belongs to char and varchar (code points), ``precision`` and ``scale`` to decimal.
    ``children`` are an array's element, a map's key and value, a struct's fields (in the order of
    ``field_names``) or a union's alternatives (tag = position).
    """

    kind: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    children: tuple[HiveType, ...] = ()
    field_names: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The type as the metastore spells it, without blanks."""
        if self.kind in ("char", "varchar"):
            return f"{self.kind}({self.length})"
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            fields = zip(self.field_names, self.children, strict=True)
            return f"struct<{','.join(f'{name}:{child.text}' for name, child in fields)}>"
        if self.children:
            return f"{self.kind}<{','.join(child.text for child in self.children)}>"
        return self.kind

    def contains(self, kind: str) -> bool:
        """Return True if this type, or a type nested in it, is of the given kind."""
        return self.kind == kind or any(child.contains(kind) for child in self.children)


@functools.lru_cache(maxsize=4096)
def parse_hive_type(text: str) -> HiveType:
    """Parse a Hive type.

    This accepts what the metastore returns and what users type: type names in any case, blanks, and
    ``decimal`` without numbers (then 10,0). Field names keep their case.

    Raises:
        TableNotMutableError: If the string is not a Hive type, or is one that ORC ACID tables cannot hold.

    Source: Hive's TypeInfoUtils; limits from HiveDecimal, HiveChar and HiveVarchar.
    """
    parser = _Parser(text)
    parsed = parser.type()
    parser.end()
    return parsed


def arrow_type(hive_type: HiveType, *, timestamp_unit: str = "ns") -> pa.DataType:
    """Return the Arrow type that holds the values of a Hive type.

    A Hive timestamp has no time zone. Nanoseconds cover only the years 1678 to 2261, so pass ``us`` if the
    range matters more than the last three digits.
    """
    kind = hive_type.kind
    if kind in _PLAIN_ARROW:
        return _PLAIN_ARROW[kind]
    if kind == "timestamp":
        return pa.timestamp(timestamp_unit)
    if kind == "decimal":
        return pa.decimal128(hive_type.precision, hive_type.scale)
    children = [arrow_type(child, timestamp_unit=timestamp_unit) for child in hive_type.children]
    if kind == "array":
        return pa.list_(children[0])
    if kind == "map":
        return pa.map_(children[0], children[1])
    if kind == "struct":
        return pa.struct(list(zip(hive_type.field_names, children, strict=True)))
    # pyarrow's own ORC reader gives these names to the alternatives.
    return pa.dense_union([pa.field(f"_union_{tag}", child) for tag, child in enumerate(children)])


class _Parser:
    """A recursive-descent parser for one type."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def type(self) -> HiveType:
        kind = self.word()
        if kind == "decimal":
            return self.decimal()
        if kind in ("char", "varchar"):
            return self.character(kind)
        if kind in ("array", "map", "uniontype"):
            children = self.children()
            self.check_count(kind, len(children))
            return HiveType(kind, children=children)
        if kind == "struct":
            return self.struct()
        if kind in _PLAIN_ARROW or kind == "timestamp":
            return HiveType(kind)
        raise self.refusal(f"{kind!r} is not a Hive type")

    def word(self) -> str:
        found = _WORD.match(self.text, self.position)
        if not found:
            raise self.refusal("a type name is missing")
        self.position = found.end()
        word = " ".join(found.group(1).lower().split())
        if word in _UNSUPPORTED:
            raise self.refusal(f"type {word!r} is not supported: {_UNSUPPORTED[word]}")
        return _ALIASES.get(word, word)

    def decimal(self) -> HiveType:
        precision, scale = self.numbers() or (10, 0)
        scale = scale or 0
        if not 1 <= precision <= MAX_DECIMAL_PRECISION or scale > precision:
            raise self.refusal(
                f"decimal requires a precision from 1 to {MAX_DECIMAL_PRECISION} and no larger scale"
            )
        return HiveType("decimal", precision=precision, scale=scale)

    def character(self, kind: str) -> HiveType:
        longest = MAX_CHAR_LENGTH if kind == "char" else MAX_VARCHAR_LENGTH
        length, second = self.numbers() or (0, None)
        if second is not None or not 1 <= length <= longest:
            raise self.refusal(f"{kind} requires a length from 1 to {longest}")
        return HiveType(kind, length=length)

    def numbers(self) -> tuple[int, int | None] | None:
        found = _NUMBERS.match(self.text, self.position)
        if not found:
            return None
        self.position = found.end()
        return int(found.group(1)), None if found.group(2) is None else int(found.group(2))

    def children(self) -> tuple[HiveType, ...]:
        self.take("<")
        children = [self.type()]
        while self.sees(","):
            self.take(",")
            children.append(self.type())
        self.take(">")
        return tuple(children)

    def struct(self) -> HiveType:
        names, children = [], []
        self.take("<")
        while True:
            names.append(self.field_name())
            children.append(self.type())
            if not self.sees(","):
                break
            self.take(",")
        self.take(">")
        if len({name.lower() for name in names}) < len(names):
            raise self.refusal("a struct has duplicate field names (case does not count)")
        return HiveType("struct", children=tuple(children), field_names=tuple(names))

    def field_name(self) -> str:
        found = _FIELD_NAME.match(self.text, self.position)
        if not found:
            raise self.refusal("a field name and ':' are missing")
        self.position = found.end()
        return str(found.group(1) or found.group(2))

    def check_count(self, kind: str, count: int) -> None:
        expected = {"array": 1, "map": 2}.get(kind, count)
        if count != expected:
            raise self.refusal(f"{kind} requires {expected} type(s) between < and >, got {count}")

    def sees(self, character: str) -> bool:
        return self.text[self.position :].lstrip().startswith(character)

    def take(self, character: str) -> None:
        if not self.sees(character):
            raise self.refusal(f"{character!r} is missing")
        self.position = self.text.index(character, self.position) + 1

    def end(self) -> None:
        if self.text[self.position :].strip():
            raise self.refusal("unexpected characters after the type")

    def refusal(self, reason: str) -> TableNotMutableError:
        return TableNotMutableError(f"type {self.text!r}: {reason} (at character {self.position})")


def spark_type(hive_type: HiveType) -> str:
    """Return the type in Spark's DDL.

    A Hive timestamp has no time zone, so it becomes ``timestamp_ntz``. char and varchar become strings.

    Raises:
        TableNotMutableError: If the type is or contains a union, which Spark does not have.
    """
    kind = hive_type.kind
    if kind == "uniontype":
        raise TableNotMutableError(f"type {hive_type.text}: Spark has no union type; leave the column out")
    children = [spark_type(child) for child in hive_type.children]
    if kind == "struct":
        # Without quotes, a field named e.g. `order` or `a b` would not parse.
        fields = zip(hive_type.field_names, children, strict=True)
        return f"struct<{','.join(f'`{name}`:{child}' for name, child in fields)}>"
    if children:
        return f"{kind}<{','.join(children)}>"
    return _SPARK_NAMES.get(kind, hive_type.text)


def second_of_equal_keys(offsets: NDArray[np.int64], keys: pa.Array) -> int | None:
    """Return the position of the first key that repeats an earlier key of its map, or None if there is none.

    Hive's readers keep one entry per key; Arrow's keep both. -0.0 equals 0.0, and NaN equals NaN.

    Args:
        offsets: int64, n + 1. Map i has the keys from ``offsets[i]`` up to, but not including,
            ``offsets[i + 1]``.
        keys: the keys of all maps, without nulls, as they are stored.
    """
    lengths = np.diff(offsets)
    if lengths.max(initial=0) < 2:
        return None
    codes = _codes(keys)
    numbers = np.repeat(np.arange(len(lengths)), lengths) * (int(codes.max(initial=0)) + 1) + codes
    order = np.argsort(numbers, kind="stable")
    is_second = numbers[order][1:] == numbers[order][:-1]
    return int(order[1:][is_second].min()) if is_second.any() else None


def _codes(keys: pa.Array) -> NDArray[np.int64]:
    """Return a number for each distinct key."""
    if pa.types.is_nested(keys.type):
        distinct: dict[str, int] = {}
        # Hive's SQL has no such keys, so this is rare.
        return np.array([distinct.setdefault(repr(key), len(distinct)) for key in keys.to_pylist()], np.int64)
    if pa.types.is_floating(keys.type):
        keys = pa.array(keys.to_numpy(zero_copy_only=False) + 0.0)  # -0.0 becomes 0.0
    codes: NDArray[np.int64] = (
        keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return codes


class MisfitError(Exception):
    """Raised when a value does not fit; becomes a RecordValueError.

    ``path`` leads to the value inside a nested value.
    """

    def __init__(self, row: int, value: str, reason: str, path: str = "") -> None:
        super().__init__(row, value, reason, path)
        self.row = row
        self.value = value
        self.reason = reason
        self.path = path


class UnfitTypeError(Exception):
    """Raised when values of a type can never be stored in the column; becomes a RecordLayoutError."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason, path)
        self.reason = reason
        self.path = path
