"""Hive types, the Arrow and Spark types that hold their values, and errors of value conversions. Pure.

To add a type, add a row to :data:`PRIMITIVES`. A type of a new family also needs code for its values:
CONTRIBUTING lists the modules, and tests/unit/format/test_every_type.py finds a module that lacks it.

Keys that occur twice in a map are found for whole arrays. Conversion errors do not contain the location of a
value: their callers add the table, the column and the row.
"""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import TableNotMutableError


class TypeFamily(enum.Enum):
    """Types whose values are handled in the same way."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    TEXT = "text"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    NESTED = "nested"


@dataclass(frozen=True)
class TypeFacts:
    """The properties of a type, without its parameters.

    Attributes:
        family: the types whose values are handled in the same way.
        arrow: the Arrow type of its values. If None, it depends on the column: see :func:`arrow_type`.
        also_from: further Arrow types whose values a new column of this type holds.
        spark: Spark's name, if it differs.
        max_length: the largest length that a column can declare, 0 if it declares none.
        is_partition_key: True if partition names can hold its values.
        keeps_bucket: True if equal values are in one bucket, and are read as they were hashed.
        has_answers: True if Hive 4 answers queries for its least and greatest value from recorded statistics.

    Source of ``has_answers``: getType of Hive 4's StatsOptimizer; seen on 4.1.0 and 4.2.1.
    """

    family: TypeFamily
    arrow: pa.DataType | None = None
    also_from: tuple[pa.DataType, ...] = ()
    spark: str = ""
    max_length: int = 0
    is_partition_key: bool = True
    keeps_bucket: bool = True
    has_answers: bool = False


MAX_CHAR_LENGTH = 255
MAX_VARCHAR_LENGTH = 65535
MAX_DECIMAL_PRECISION = 38

PRIMITIVES = {
    "boolean": TypeFacts(TypeFamily.BOOLEAN, pa.bool_(), has_answers=True),
    "tinyint": TypeFacts(TypeFamily.INTEGER, pa.int8(), has_answers=True),
    "smallint": TypeFacts(TypeFamily.INTEGER, pa.int16(), (pa.uint8(),), has_answers=True),
    "int": TypeFacts(TypeFamily.INTEGER, pa.int32(), (pa.uint16(),), has_answers=True),
    "bigint": TypeFacts(TypeFamily.INTEGER, pa.int64(), (pa.uint32(),), has_answers=True),
    "float": TypeFacts(TypeFamily.FLOAT, pa.float32(), keeps_bucket=False, has_answers=True),
    "double": TypeFacts(TypeFamily.FLOAT, pa.float64(), keeps_bucket=False, has_answers=True),
    "decimal": TypeFacts(TypeFamily.DECIMAL),
    "string": TypeFacts(TypeFamily.TEXT, pa.string(), (pa.large_string(),), has_answers=True),
    "varchar": TypeFacts(TypeFamily.TEXT, pa.string(), spark="string", max_length=MAX_VARCHAR_LENGTH),
    "char": TypeFacts(TypeFamily.TEXT, pa.string(), spark="string", max_length=MAX_CHAR_LENGTH),
    "binary": TypeFacts(
        TypeFamily.BINARY, pa.binary(), (pa.large_binary(),), is_partition_key=False, has_answers=True
    ),
    "date": TypeFacts(TypeFamily.DATE, pa.date32(), (pa.date64(),), has_answers=True),
    "timestamp": TypeFacts(TypeFamily.TIMESTAMP, spark="timestamp_ntz", keeps_bucket=False),
}
"""Every Hive type whose values do not contain others, in the order of its family."""

NESTED_KINDS = ("array", "map", "struct", "uniontype")
_NESTED_FACTS = TypeFacts(TypeFamily.NESTED, is_partition_key=False)


def _kinds(family: TypeFamily) -> tuple[str, ...]:
    return tuple(kind for kind, facts in PRIMITIVES.items() if facts.family is family)


INTEGER_KINDS, FLOAT_KINDS, TEXT_KINDS = map(_kinds, (TypeFamily.INTEGER, TypeFamily.FLOAT, TypeFamily.TEXT))
INTEGER_BITS = {
    kind: int(arrow.bit_width) for kind in INTEGER_KINDS if (arrow := PRIMITIVES[kind].arrow) is not None
}
DECIMALS_OF_INTEGERS = {
    pa.int8(): pa.decimal128(3, 0),
    pa.int16(): pa.decimal128(5, 0),
    pa.int32(): pa.decimal128(10, 0),
    pa.int64(): pa.decimal128(19, 0),
}
"""The decimal type that holds every value of an integer type."""
_OF_ARROW = {
    arrow: kind
    for kind, facts in reversed(PRIMITIVES.items())
    for arrow in (facts.arrow, *facts.also_from)
    if arrow is not None
}
"""The Hive type of a new column by Arrow type: the first of several with the same Arrow type."""
_ALIASES = {"integer": "int", "double precision": "double", "dec": "decimal", "numeric": "decimal"}
_OF_SPARK = {facts.spark or kind: kind for kind, facts in reversed(PRIMITIVES.items())} | {
    "timestamp": "timestamp"
}
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
    def facts(self) -> TypeFacts:
        """The properties of this kind of type."""
        return PRIMITIVES.get(self.kind, _NESTED_FACTS)

    @property
    def family(self) -> TypeFamily:
        """The types whose values are handled like those of this type."""
        return self.facts.family

    @property
    def text(self) -> str:
        """The type as the metastore spells it, without blanks."""
        if self.length:
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

    This accepts the forms that the metastore returns and that users type: type names in any case, blanks, and
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
    if hive_type.facts.arrow is not None:
        return hive_type.facts.arrow
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


def primitive_of_arrow(arrow: pa.DataType) -> HiveType | None:
    """Return the type of a new column for values of an Arrow type, or None if there is none.

    It is the inverse of :func:`arrow_type` for types without nested values. An unsigned integer gets the next
    wider type.
    """
    if pa.types.is_timestamp(arrow) and arrow.tz is None:
        return HiveType("timestamp")
    if pa.types.is_decimal(arrow) and 0 <= arrow.scale <= arrow.precision <= MAX_DECIMAL_PRECISION:
        return HiveType("decimal", precision=arrow.precision, scale=arrow.scale)
    kind = "binary" if pa.types.is_fixed_size_binary(arrow) else _OF_ARROW.get(arrow)
    return None if kind is None else HiveType(kind)


def primitive_of_spark(name: str) -> str | None:
    """Return the kind of a new column for the name of a Spark type without parameters, or None."""
    return _OF_SPARK.get(name)


class _Parser:
    """A recursive-descent parser for one type."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def type(self) -> HiveType:
        kind = self.word()
        if kind == "decimal":
            return self.decimal()
        if kind in PRIMITIVES and PRIMITIVES[kind].max_length:
            return self.character(kind)
        if kind in ("array", "map", "uniontype"):
            children = self.children()
            self.check_count(kind, len(children))
            return HiveType(kind, children=children)
        if kind == "struct":
            return self.struct()
        if kind in PRIMITIVES:
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
        longest = PRIMITIVES[kind].max_length
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
            raise self.refusal("a struct has duplicate field names (case is ignored)")
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
    return hive_type.facts.spark or hive_type.text


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
