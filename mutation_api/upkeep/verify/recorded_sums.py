"""Sums that an ORC file records of its columns: of numbers, of lengths of texts, of truths.

No reader looks at them. But ORC has no checksums, and a byte that turned in the values of a column shows in
the sum more often than in the range. Numbers of children are left out: ORC's C++ writer records others.

Source: orc_proto.proto (IntegerStatistics and its like) and ORC's ColumnStatisticsImpl.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import CorruptFileError
from mutation_api.orc.format.compression import DAMAGE
from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of, numbers_in, signed

__all__ = ["differing_sum"]

_INTEGERS, _DOUBLES, _TEXTS, _TRUTHS, _DECIMALS, _BINARIES = 2, 3, 4, 5, 6, 8
"""Fields of ColumnStatistics."""
_SUM, _SUM_OF_BINARIES, _COUNTS = 3, 1, 1
_ROUNDING = 1e-9
"""Sums of doubles depend on the order, by less than so many times the sum of their sizes."""

_Message = Mapping[int, int | bytes]


def differing_sum(fields: _Message, values: pa.Array) -> tuple[str, str] | None:
    """Sum of the values, and the recorded one; None if they agree, or none is recorded.

    Args:
        fields: of a ColumnStatistics.
        values: all values of the column there.

    Raises:
        CorruptFileError: the bytes are not statistics.
    """
    found = next(((field, summed) for is_type, field, summed in _SUMS if is_type(values.type)), None)
    if found is None or found[0] not in fields:
        return None
    try:
        pair = found[1](dict(fields_of(as_bytes(fields[found[0]]))), values)
    except (*DAMAGE, ArithmeticError, struct.error) as error:
        raise CorruptFileError(f"the statistics of an ORC column cannot be parsed: {error}") from error
    return None if pair is None else (f"{pair[0]} as sum", f"{pair[1]}")


_Pair = tuple[Any, Any] | None


def _integers(recorded: _Message, values: pa.Array) -> _Pair:
    if _SUM not in recorded:
        return None
    ends = pc.min_max(values)
    if max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0)) * len(values) < 2**63:
        total = pc.sum(values.cast(pa.int64())).as_py() or 0
    else:
        total = sum(values.drop_null().to_pylist())
        if abs(total) >= 2**63:
            return None
    return _unequal(total, signed(as_number(recorded[_SUM])))


def _doubles(recorded: _Message, values: pa.Array) -> _Pair:
    if _SUM not in recorded:
        return None
    values = values.cast(pa.float64())
    total = pc.sum(values).as_py() or 0.0
    size = pc.sum(pc.abs(values)).as_py() or 0.0
    found = struct.unpack("<d", as_bytes(recorded[_SUM]))[0]
    if pc.all(pc.is_finite(values)).as_py() is False:  # the sum of NaN or infinity is one of them
        return (total, found) if math.isfinite(found) else None
    if not math.isfinite(size):  # numbers so large that the order decides whether they have a sum
        return None
    return None if abs(total - found) <= _ROUNDING * size else (total, found)


def _lengths(recorded: _Message, values: pa.Array) -> _Pair:
    field = _SUM if pa.types.is_string(values.type) else _SUM_OF_BINARIES
    if field not in recorded:
        return None
    total = pc.sum(pc.binary_length(values).cast(pa.int64())).as_py() or 0
    return _unequal(total, signed(as_number(recorded[field])))


def _truths(recorded: _Message, values: pa.Array) -> _Pair:
    packed = recorded.get(_COUNTS)
    if packed is None:
        return None
    counts = numbers_in(packed) if isinstance(packed, bytes) else [packed]
    # ORC's C++ writer records 0 whatever the values are.
    return _unequal(pc.sum(values).as_py() or 0, counts[0]) if counts and counts[0] else None


def _decimals(recorded: _Message, values: pa.Array) -> _Pair:
    if _SUM not in recorded:
        return None
    total = pc.sum(values.cast(pa.decimal256(76, values.type.scale))).as_py() or Decimal(0)
    return _unequal(total, Decimal(as_bytes(recorded[_SUM]).decode()))


def _unequal(total: Any, recorded: Any) -> _Pair:
    return None if total == recorded else (total, recorded)


_SUMS: tuple[tuple[Callable[[pa.DataType], bool], int, Callable[[_Message, pa.Array], _Pair]], ...] = (
    (pa.types.is_integer, _INTEGERS, _integers),
    (pa.types.is_floating, _DOUBLES, _doubles),
    (pa.types.is_string, _TEXTS, _lengths),
    (pa.types.is_boolean, _TRUTHS, _truths),
    (pa.types.is_decimal128, _DECIMALS, _decimals),
    (pa.types.is_binary, _BINARIES, _lengths),
)
