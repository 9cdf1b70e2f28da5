"""Random columns of DataFrames: a Spark type, a Hive type, and what is promised.

The promise is that of :mod:`tests.support.value_matrix`; a timestamp of Spark is the wall clock of
its session.
"""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.value_matrix import HIVE_TYPES, NUMBERS, ROWS, TEXTS, promised_values


@dataclass(frozen=True)
class _Family:
    """Spark's types whose values are made alike, as DDL; the leaf is that of the Arrow matrix."""

    types: tuple[str, ...]
    kinds: tuple[str, ...]
    leaf: pa.DataType
    make: Callable[[random.Random, str], Any]


def _whole(bits: int) -> Callable[[random.Random, str], int]:
    limit = 2 ** (bits - 1)
    return lambda rng, _type: rng.choice([-limit, limit - 1, 0, 1, 100, rng.randint(-limit, limit - 1)])


def _decimal(rng: random.Random, kind: str) -> Decimal:
    precision, scale = map(int, kind[8:-1].split(","))
    limit = 10**precision - 1
    number = rng.choice([0, 1, -1, 5, limit, -limit, rng.randint(-limit, limit)])
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _of(*values: Any) -> Callable[[random.Random, str], Any]:
    return lambda rng, _type: rng.choice(values)


_DAYS = (datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(2024, 2, 29))
_CLOCKS = (
    *(datetime.datetime(2024, 5, 1), datetime.datetime(2024, 5, 1, 1, 2, 3, 456789)),
    *(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
)
_WORDS = ("", "a", "ab ", "abcd", "12", "é😀xy", "a\0b", "a\nb", "\\N", "x" * 300)
_FLOATS = (0.0, -0.0, 1.5, -3.0, 0.25, math.nan, math.inf, 2.0**24, 2.0**24 - 1)
_FAMILIES = (
    _Family(("boolean",), ("boolean",), pa.bool_(), _of(True, False)),
    _Family(("tinyint",), (*NUMBERS, *TEXTS), pa.int8(), _whole(8)),
    _Family(("smallint",), (*NUMBERS, *TEXTS), pa.int16(), _whole(16)),
    _Family(("int",), (*NUMBERS, *TEXTS), pa.int32(), _whole(32)),
    _Family(("bigint",), (*NUMBERS, *TEXTS), pa.int64(), _whole(64)),
    _Family(("float",), NUMBERS, pa.float32(), _of(*_FLOATS)),
    _Family(("double",), NUMBERS, pa.float64(), _of(*_FLOATS, 0.1, 1e300, 2.0**53, 2.0**53 - 1)),
    _Family(
        ("decimal(5,2)", "decimal(12,3)", "decimal(38,10)", "decimal(38,0)", "decimal(38,38)"),
        NUMBERS,
        pa.decimal128(38, 0),
        _decimal,
    ),
    _Family(("string",), TEXTS, pa.string(), _of(*_WORDS)),
    _Family(("binary",), ("binary",), pa.binary(), _of(b"ab", b"\xff\0", b"")),
    _Family(("date",), ("date", "timestamp", *TEXTS), pa.date32(), _of(*_DAYS)),
    _Family(("timestamp_ntz",), ("date", "timestamp"), pa.timestamp("us"), _of(*_CLOCKS)),
    _Family(("timestamp",), ("date", "timestamp"), pa.timestamp("us"), _of(*_CLOCKS[:2])),
    _Family(("void",), (*NUMBERS, *TEXTS, "boolean", "binary", "date", "timestamp"), pa.null(), _of(None)),
    _Family(("interval day to second",), (), pa.duration("us"), _of(datetime.timedelta(1, 2, 3))),
)


@dataclass(frozen=True)
class SparkCell:
    """Values of one Spark type for a column of one Hive type.

    Attributes:
        spark_type: as DDL.
        hive_type: the column's.
        values: ROWS values, as ``createDataFrame`` takes them.
        is_possible: whether the column takes values of this type at all.
        leaf: the Arrow type of the innermost values.
    """

    spark_type: str
    hive_type: str
    values: list[Any]
    is_possible: bool
    leaf: pa.DataType

    def promised(self) -> list[Any] | None:
        """As :meth:`tests.support.value_matrix.Cell.promised`."""
        given = map(self._for_promise, self.values)
        return promised_values(given, self.hive_type, self.leaf) if self.is_possible else None

    def _for_promise(self, value: Any) -> Any:
        """A struct by the names that the promise reads, a map as pairs."""
        if self.spark_type.startswith("struct") and value is not None:
            return dict(zip(("z", "Y"), value, strict=True))
        if self.spark_type.startswith("array<struct") and value is not None:
            return [(pair[1], pair[0]) for pair in value]
        if isinstance(value, dict):
            return list(value.items())
        return value

    def __str__(self) -> str:
        """For messages."""
        return f"{self.spark_type} into {self.hive_type}: {self.values}"


def random_spark_cell(rng: random.Random) -> SparkCell:
    """A cell; most of them take the values' type."""
    family = rng.choice(_FAMILIES)
    hive_type = rng.choice(HIVE_TYPES)
    if rng.random() < 0.7 and family.kinds:
        hive_type = rng.choice([each for each in HIVE_TYPES if each.partition("(")[0] in family.kinds])
    possible = hive_type.partition("(")[0] in family.kinds
    kind = rng.choice(family.types)
    values = [None if rng.random() < 0.2 else family.make(rng, kind) for _ in range(ROWS)]
    if rng.random() < 0.3 and kind != "void":
        kind, hive_type, values = _nested(rng, kind, hive_type, values)
    return SparkCell(kind, hive_type, values, possible, family.leaf)


def _nested(rng: random.Random, kind: str, hive_type: str, values: list[Any]) -> tuple[str, str, list[Any]]:
    pairs = f"map<bigint,{hive_type}>"
    return rng.choice(
        [
            (f"array<{kind}>", f"array<{hive_type}>", [[value] for value in values]),
            (f"map<bigint,{kind}>", pairs, [{at: value} for at, value in enumerate(values)]),
            (f"array<struct<value:{kind},KEY:bigint>>", pairs, [[(v, at)] for at, v in enumerate(values)]),
            (f"struct<z:bigint,Y:{kind}>", f"struct<y:{hive_type},z:bigint>", list(enumerate(values))),
        ]
    )
