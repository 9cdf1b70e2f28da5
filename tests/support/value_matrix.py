"""Random cells of the matrix of values: an Arrow type in some encoding, a Hive type, and what is promised.

:func:`promised` is written from docs/guides/append.md and docs/limits.md alone, value by value in Python, so
that it cannot repeat a mistake of the conversion.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import random
import struct
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api.format.hive_type import HiveType, parse_hive_type

ROWS = 3
HIVE_TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "binary", "date", "timestamp"),
    *("decimal(10,2)", "decimal(38,0)", "decimal(38,38)", "string", "varchar(3)", "char(3)"),
)
WHOLE = ("tinyint", "smallint", "int", "bigint")
NUMBERS = (*WHOLE, "float", "double", "decimal")
TEXTS = ("string", "varchar", "char")
_DIGITS = Context(prec=120)
_DATE_TYPES = (pa.date32(), pa.date64())
_CLOCKS = tuple(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


class RefusedError(Exception):
    """The value is not stored."""


@dataclass(frozen=True)
class Family:
    """Arrow types whose values are made alike.

    Attributes:
        types: the types.
        kinds: kinds of Hive types that take them.
        make: a value of one of them.
    """

    types: tuple[pa.DataType, ...]
    kinds: tuple[str, ...]
    make: Callable[[random.Random, pa.DataType], Any]


def _whole(rng: random.Random, kind: pa.DataType) -> int:
    is_signed = pa.types.is_signed_integer(kind)
    low = -(2 ** (kind.bit_width - 1)) if is_signed else 0
    high = 2 ** (kind.bit_width - is_signed) - 1
    return rng.choice([low, high, 0, 1, min(high, 100), rng.randint(low, high)])


def _float(rng: random.Random, kind: pa.DataType) -> float:
    small = [0.0, -0.0, 1.5, -3.0, 0.25, math.nan, math.inf, 2.0 ** rng.randint(-8, 10)]
    wide = [2.0**24, 2.0**24 - 1, 0.1] if kind != pa.float16() else []
    widest = [2.0**53, 2.0**53 - 1, 1e300, 1.1, -(2.0**31)] if kind == pa.float64() else []
    return rng.choice(small + wide + widest)


def _decimal(rng: random.Random, kind: pa.DataType) -> Decimal:
    limit = 10**kind.precision
    number = rng.choice([0, 1, -1, 5, limit - 1, 1 - limit, rng.randint(1 - limit, limit - 1)])
    digits = tuple(map(int, str(abs(number))))
    return Decimal((int(number < 0), digits, -kind.scale))


def _clock(rng: random.Random, kind: pa.DataType) -> Any:
    if kind.unit == "ns":
        return rng.choice([0, 1_700_000_000_123_456_789, 1_700_000_000_000_001_000, 86_400 * 10**9])
    late = datetime.datetime(9999, 12, 31, 23, 59, 59)
    return rng.choice([datetime.datetime(2024, 5, 1), datetime.datetime(1, 1, 1), late])


def _of(*values: Any) -> Callable[[random.Random, pa.DataType], Any]:
    return lambda rng, _kind: rng.choice(values)


_WORDS = (
    *(
        "",
        "",
        "a",
        "A",
        "ab ",
        " ",
        "abcd",
        "12",
        "é",
        "e\u0301",
        "é😀xy",
        "NULL",
        "\\N",
        "a\nb",
        "\t'\"",
        "a\0b",
    ),
    *(".", "..", "a/b=c", "%2F", "100%", "a:b?*[x]{y}^", "\x7f", "__HIVE_DEFAULT_PARTITION__", "x" * 300),
)
FAMILIES = (
    Family((pa.bool_(), pa.bool8()), ("boolean",), _of(True, False)),
    Family(
        (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        (*NUMBERS, *TEXTS),
        _whole,
    ),
    Family((pa.float16(), pa.float32(), pa.float64()), NUMBERS, _float),
    Family(
        (pa.decimal32(5, 2), pa.decimal64(12, 3), pa.decimal128(38, 10), pa.decimal256(60, 5)),
        NUMBERS,
        _decimal,
    ),
    Family((pa.string(), pa.large_string(), pa.string_view()), TEXTS, _of(*_WORDS)),
    Family((pa.json_(),), TEXTS, _of('{"a":1}', "3")),
    Family((pa.uuid(),), TEXTS, lambda rng, _kind: uuid.UUID(int=rng.getrandbits(128)).bytes),
    Family(
        (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)),
        ("binary",),
        _of(b"ab", b"\xff\0"),
    ),
    Family(
        _DATE_TYPES,
        ("date", "timestamp", *TEXTS),
        _of(datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(2024, 2, 29)),
    ),
    Family(_CLOCKS, ("date", "timestamp"), _clock),
    Family((pa.timestamp("us", "UTC"),), (), _of(datetime.datetime(2024, 5, 1))),
    Family((pa.time32("s"), pa.time64("us")), (), _of(0, 5)),
    Family((pa.duration("s"), pa.duration("ns")), (), _of(0, 5)),
    Family((pa.month_day_nano_interval(),), (), _of((1, 2, 3))),
    Family((pa.opaque(pa.int64(), "money", "test"),), (), _of(5)),
    Family((pa.null(),), (*NUMBERS, *TEXTS, "boolean", "binary", "date", "timestamp"), _of(None)),
)


@dataclass(frozen=True)
class Cell:
    """Values of one Arrow type for a column of one Hive type.

    Attributes:
        hive_type: the column's.
        values: ROWS values.
        is_possible: whether the column takes values of this type at all.
        leaf: the Arrow type of the innermost values.
    """

    hive_type: str
    values: pa.Array | pa.ChunkedArray
    is_possible: bool
    leaf: pa.DataType

    def promised(self) -> list[Any] | None:
        """What is stored, as a scan with timestamps as texts reads it; None if the values are refused."""
        return (
            promised_values(self.values.to_pylist(), self.hive_type, self.leaf) if self.is_possible else None
        )

    def __str__(self) -> str:
        """For messages."""
        return f"{self.values.type} into {self.hive_type}: {self.values.to_pylist()}"


def random_cell(rng: random.Random, *, nests: bool = True) -> Cell:
    """A cell; half of them take the values' type."""
    family = rng.choice(FAMILIES)
    hive_type = rng.choice(HIVE_TYPES)
    if rng.random() < 0.6 and family.kinds:
        hive_type = rng.choice([each for each in HIVE_TYPES if each.partition("(")[0] in family.kinds])
    leaf = rng.choice(family.types)
    array = _array(rng, family, leaf)
    possible = hive_type.partition("(")[0] in family.kinds
    if rng.random() < 0.4:
        array = _encoded(rng, array)
    if nests and rng.random() < 0.4:
        array, hive_type = _nested(rng, array, hive_type)
    if rng.random() < 0.2 and not pa.types.is_dictionary(array.type):
        with contextlib.suppress(pa.ArrowInvalid):  # it cannot unify all dictionaries within others
            array = pa.concat_arrays([array.slice(0, 1), array]).slice(1)
    return Cell(hive_type, array, possible, leaf)


def _array(rng: random.Random, family: Family, kind: pa.DataType) -> pa.Array:
    values = [None if rng.random() < 0.2 else family.make(rng, kind) for _ in range(ROWS)]
    if isinstance(kind, pa.BaseExtensionType):
        held = [int(each) if isinstance(each, bool) else each for each in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(held, kind.storage_type))
    if pa.types.is_date64(kind):
        return pa.array(values, pa.date32()).cast(kind)
    return pa.array(values, pa.float32()).cast(kind) if kind == pa.float16() else pa.array(values, kind)


def _encoded(rng: random.Random, array: pa.Array) -> pa.Array:
    if rng.random() < 0.5 or isinstance(array.type, pa.BaseExtensionType):
        places = [rng.choice([None, *range(ROWS)]) for _ in range(ROWS)]
        index = rng.choice([pa.int8(), pa.uint32(), pa.int64()])
        return pa.DictionaryArray.from_arrays(pa.array(places, index), array)
    ends = pa.array(range(1, ROWS + 1), rng.choice([pa.int16(), pa.int32(), pa.int64()]))
    return pa.RunEndEncodedArray.from_arrays(ends, array)


def _nested(rng: random.Random, array: pa.Array, hive_type: str) -> tuple[pa.Array, str]:
    offsets, numbers = pa.array(range(ROWS + 1), pa.int32()), pa.array(range(ROWS))
    pairs = pa.StructArray.from_arrays([array, numbers], names=["value", "KEY"])
    lists = f"array<{hive_type}>"
    return rng.choice(
        [
            lambda: (pa.ListArray.from_arrays(offsets, array), lists),
            lambda: (pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), array), lists),
            lambda: (pa.ListViewArray.from_arrays(offsets[:-1], pa.array(ROWS * [1], "int32"), array), lists),
            lambda: (pa.FixedSizeListArray.from_arrays(array, 1), lists),
            lambda: (
                pa.StructArray.from_arrays([numbers, array], names=["z", "Y"]),
                f"struct<y:{hive_type},z:bigint>",
            ),
            lambda: (pa.MapArray.from_arrays(offsets, numbers, array), f"map<bigint,{hive_type}>"),
            lambda: (pa.ListArray.from_arrays(offsets, pairs), f"map<bigint,{hive_type}>"),
        ]
    )()


def promised_values(values: Iterable[Any], hive_type: str, leaf: pa.DataType) -> list[Any] | None:
    """What values of a column are stored as, see :func:`promised`; None if one of them is refused."""
    kind = parse_hive_type(hive_type)
    try:
        return [promised(value, kind, leaf) for value in values]
    except RefusedError:
        return None


def promised(value: Any, kind: HiveType, leaf: pa.DataType) -> Any:
    """What a value is stored as.

    Args:
        value: as Arrow gives it to Python.
        kind: type of the column.
        leaf: the Arrow type of the innermost values.

    Raises:
        RefusedError: it does not fit.
    """
    if value is None:
        return None
    match kind.kind:
        case "array":
            return [promised(each, kind.children[0], leaf) for each in value]
        case "map":
            pairs = [(each["KEY"], each["value"]) if isinstance(each, dict) else each for each in value]
            return [(key, promised(item, kind.children[1], leaf)) for key, item in pairs]
        case "struct":
            return {"y": promised(value["Y"], kind.children[0], leaf), "z": value["z"]}
        case "boolean" | "binary":
            return value
        case "date":
            return _date(value)
        case "timestamp":
            return _timestamp(value)
        case "float" | "double":
            return _floating(value, kind.kind)
        case "decimal":
            return _fixed(value, kind, leaf)
        case "string" | "varchar" | "char":
            return _text(value, kind)
    return _integer(value, kind, leaf)


def _integer(value: Any, kind: HiveType, leaf: pa.DataType) -> int:
    limit = 2 ** (_BITS[kind.kind] - 1)
    if isinstance(value, float):
        _refuse_unless(math.isfinite(value) and abs(value) < _float_limit(leaf))
    _refuse_unless(value == int(value) and -limit <= value < limit)
    return int(value)


def _float_limit(leaf: pa.DataType) -> int:
    return 2**53 if leaf == pa.float64() else 2**24


def _floating(value: Any, kind: str) -> float:
    if kind == "double":
        found = float(value)
        _refuse_unless(isinstance(value, float | Decimal) or int(found) == value)
        return found
    _refuse_unless(not isinstance(value, int) or _single(float(value)) == value)
    wide = float(value)
    narrow = _single(wide)
    _refuse_unless(math.isinf(narrow) == math.isinf(wide))
    return narrow


def _single(value: float) -> float:
    """The nearest float of 32 bits."""
    try:
        found: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def _fixed(value: Any, kind: HiveType, leaf: pa.DataType) -> Decimal:
    number = value
    unit = Decimal(1).scaleb(-kind.scale)
    if isinstance(value, float):
        _refuse_unless(math.isfinite(value) and abs(value) < _float_limit(leaf))
        shortest = repr(value) if leaf == pa.float64() else str(np.float32(value))
        number = Decimal(shortest)
        _refuse_unless(number == number.quantize(unit, context=_DIGITS))
    found = Decimal(number).quantize(unit, ROUND_HALF_UP, context=_DIGITS)
    found = found if found else found.copy_abs()  # not -0
    _refuse_unless(abs(found) < Decimal(10) ** (kind.precision - kind.scale))
    return found


def _text(value: Any, kind: HiveType) -> str:
    text = str(value)
    text = text[: kind.length] if kind.length else text
    return text.rstrip(" ") if kind.kind == "char" else text


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        _refuse_unless(value.time() == datetime.time() and not getattr(value, "nanosecond", 0))
        return value.date()
    day: datetime.date = value
    return day


def _timestamp(value: Any) -> str:
    """As TimestampForm.TEXT."""
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    text: str = value.isoformat()
    return text.rstrip("0") if "." in text else text


class ClockText(str):
    """A promised timestamp, of any year and with nine digits, which answers as a datetime does."""

    def isoformat(self, _separator: str, _timespec: str) -> str:
        """With all digits, so that those at the end can be dropped."""
        text = self.replace("T", " ")
        return text if "." in text else f"{text}.0"


def partition_promise(values: list[Any], hive_type: str) -> list[Any] | None:
    """What partitions of stored values are read as; None if they are refused.

    Args:
        values: as :meth:`Cell.promised` gives them.
        hive_type: type of the partition column.
    """
    kind = hive_type.partition("(")[0]
    if kind == "timestamp" and any(len((each or "").partition(".")[2]) > 6 for each in values):
        return None  # a directory has no digits below microseconds
    if kind == "string" and any(len(each or "") > 256 or each == DEFAULT_PARTITION_NAME for each in values):
        return None
    return [None if each == "" and kind in ("string", "varchar") else each for each in values]


def _refuse_unless(condition: bool) -> None:
    if not condition:
        raise RefusedError


def text_form(values: list[Any]) -> str:
    """Values as one text, in which NaN equals NaN and -0.0 does not equal 0.0."""
    return repr(values)
