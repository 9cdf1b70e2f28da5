"""Statistics of the columns of new rows, which a commit adds to those that the metastore has recorded. Pure.

They are those of ANALYZE TABLE: nulls, the range of numbers, days and seconds, the lengths of strings, the
number of true values, and a sketch of the distinct values. A column with a value that Hive's releases compare
or count in different ways (NaN, days before 1582-10-15) has no summary.

A sketch is a HyperLogLog of 1,024 registers over Murmur3 hashes. With few values it keeps 25 bits of each
hash instead, which counts them nearly exactly. Two sketches can be merged, so an insert need not read old
rows.

Source: ColumnStatsSemanticAnalyzer of Hive 3.1 and 4.1; org.apache.hadoop.hive.common.ndv.hll (HyperLogLog
    with setSizeOptimized, HyperLogLogUtils); Heule, Nunkesser, Hall: HyperLogLog in Practice. Compared with
    what ANALYZE TABLE of these releases records.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.hash_values import PAIR, is_ascii, seconds_and_nanos, view
from mutation_api.format.hive_type import TypeFamily, parse_hive_type
from mutation_api.format.murmur3 import BLOCK, Words, hashes_of_bytes, hashes_of_longs
from mutation_api.format.timestamps import FIRST_GREGORIAN_DAY, SECONDS_PER_DAY
from mutation_api.format.varint import varint, varint_at

_BITS = 10
_COUNT = 1 << _BITS
_SPARSE_BITS, _RANK_BITS = 25, 6
MOST_SPARSE = 153
"""The number of hashes above which registers take less space."""
_FIRST = 512
"""So many hashes show whether a column has more values than can be counted nearly exactly."""
_MAGIC, _DENSE_WIDTHS = b"HLL", range(1, _RANK_BITS + 1)
_HIGHEST_RANK = 65
_ALPHA = 0.7213 / (1 + 1.079 / _COUNT) * _COUNT * _COUNT
_LINEAR_BELOW = 900
"""The estimate below which the number of empty registers alone is more precise."""
_REGISTER, _KEY = np.uint64(_COUNT - 1), np.uint64((1 << _SPARSE_BITS) - 1)
_SHIFT, _ONE = np.uint64(_BITS), np.uint64(1)
_LIMITS = np.array([(1 << min(rank, 64)) - 1 for rank in range(_HIGHEST_RANK + 1)], np.uint64)
"""By rank: the bits of a hash, without those of its register, that are 0 if its rank is higher."""
_UNKNOWN = np.uint64(1 << 63)

_BIASED_BELOW = 5 * _COUNT
"""The estimate above which its expected error is 0."""
_BIASES = (
    (737.0, 737.0),
    (786.5, 686.5),
    (837.9, 637.9),
    (891.6, 591.6),
    (947.6, 547.6),
    (1005.7, 505.7),
    (1066.5, 466.5),
    (1128.7, 428.7),
    (1193.2, 393.2),
    (1260.5, 360.5),
    (1329.5, 329.5),
    (1473.1, 273.1),
    (1624.7, 224.7),
    (1783.6, 183.6),
    (1949.1, 149.1),
    (2119.5, 119.5),
    (2339.6, 89.6),
    (2566.7, 66.7),
    (2797.4, 47.4),
    (3033.9, 33.9),
    (3321.5, 21.5),
    (3615.3, 15.3),
    (4007.5, 7.5),
    (4507.1, 5.0),
    (5120.0, 0.0),
)
"""Estimates and their expected errors: means of 3,000 sketches of random hashes for each number of values."""


class DistinctSketch:
    """The sketch of the distinct values among those whose hashes were added."""

    def __init__(self) -> None:
        self._codes: NDArray[np.uint64] | None = np.empty(0, np.uint64)
        """While they are few: 25 bits of each hash and, in the lowest 6 bits, its rank; ascending."""
        self._seen = np.full(_COUNT, _UNKNOWN, np.uint64)
        """While they are few: the 25 bits of the last hash of each register, which need not be looked up."""
        self._ranks = np.zeros(_COUNT, np.uint8)
        self._limits = np.zeros(_COUNT, np.uint64)
        self._least_limit = np.uint64(0)
        """The bits of a hash, in their places, that are 0 if it can raise any register."""

    def add(self, hashes: Words) -> None:
        """Add values by their hashes (shape (n,)); see :mod:`.murmur3`."""
        first = _FIRST if self._codes is not None else 0
        for start, stop in itertools.pairwise((0, *range(first, len(hashes), BLOCK), len(hashes))):
            block = hashes[start:stop]
            if self._codes is not None:
                self._add_few(block)
            else:
                self._add_many(block)

    def merge(self, other: DistinctSketch) -> None:
        """Add the values of another sketch."""
        if other._codes is None:
            self._to_registers()
            self._raise(np.arange(_COUNT), other._ranks)
        elif self._codes is None:
            self._raise_by_codes(other._codes)
        else:
            self._add_codes(other._codes)

    def count(self) -> int:
        """Return the estimate, at least 1, as Hive records it."""
        if self._codes is not None:
            return max(1, len(self._codes))
        empty = int(np.count_nonzero(self._ranks == 0))
        raw = int(_ALPHA / float(np.sum(np.ldexp(1.0, -self._ranks.astype(np.int32)))))
        points, biases = zip(*_BIASES, strict=True)
        found = raw - int(np.interp(raw, points, biases) + 0.5) if raw <= _BIASED_BELOW else raw
        linear = round(_COUNT * math.log(_COUNT / empty)) if empty else found
        return max(1, linear if linear < _LINEAR_BELOW else found)

    def to_bytes(self) -> bytes:
        """Return the sketch as Hive stores it."""
        if self._codes is not None:
            gaps = np.diff(self._codes, prepend=np.uint64(0))
            numbers = [self.count(), len(self._codes), *(int(gap) for gap in gaps)]
            return _MAGIC + bytes([_BITS << 4]) + b"".join(map(varint, numbers))
        width = int(self._ranks.max()).bit_length()
        if width not in _DENSE_WIDTHS:
            return _MAGIC + bytes([_BITS << 4 | 7]) + varint(self.count()) + self._ranks.tobytes()
        places = np.arange(width - 1, -1, -1, dtype=np.uint8)
        bits = self._ranks[:, None] >> places & 1
        return _MAGIC + bytes([_BITS << 4 | width]) + varint(self.count()) + np.packbits(bits).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> DistinctSketch | None:
        """Parse a sketch. Return None if it is of another kind or size, which this class cannot merge."""
        if data[:3] != _MAGIC or len(data) < 5 or data[3] >> 4 != _BITS:
            return None
        width = data[3] & 7
        try:
            _, at = varint_at(data, 4)
            sketch = cls()
            if not width:
                length, at = varint_at(data, at)
                gaps = []
                for _ in range(length):
                    gap, at = varint_at(data, at)
                    gaps.append(gap)
                sketch._add_codes(np.cumsum(np.array(gaps, np.uint64), dtype=np.uint64))
                return sketch
            sketch._to_registers()
            sketch._raise(np.arange(_COUNT), _unpacked(data[at:], width))
        except (IndexError, ValueError, OverflowError):
            return None
        return sketch

    def _add_few(self, hashes: Words) -> None:
        registers = (hashes & _REGISTER).astype(np.int64)
        keys = hashes & _KEY
        # A hash whose other 15 bits are 0 can have any rank.
        is_new = (self._seen[registers] != keys) | (keys <= _REGISTER)
        if is_new.any():
            keys, hashes = keys[is_new], hashes[is_new]
            self._seen[registers[is_new]] = keys
            self._add_codes(keys << np.uint64(_RANK_BITS) | _ranks_of(hashes >> _SHIFT).astype(np.uint64))

    def _add_codes(self, codes: NDArray[np.uint64]) -> None:
        assert self._codes is not None
        both = np.sort(np.concatenate((self._codes, codes)))
        keys = both >> np.uint64(_RANK_BITS)
        self._codes = both[np.append(keys[1:] != keys[:-1], True)] if len(both) else both
        if len(self._codes) > MOST_SPARSE:
            self._to_registers()

    def _to_registers(self) -> None:
        codes, self._codes = self._codes, None
        if codes is not None:
            self._raise_by_codes(codes)

    def _raise_by_codes(self, codes: NDArray[np.uint64]) -> None:
        registers = (codes >> np.uint64(_RANK_BITS) & _REGISTER).astype(np.int64)
        self._raise(registers, (codes & np.uint64((1 << _RANK_BITS) - 1)).astype(np.uint8))

    def _add_many(self, hashes: Words) -> None:
        hashes = hashes[hashes & self._least_limit == 0]
        registers = (hashes & _REGISTER).astype(np.int64)
        others = hashes >> _SHIFT
        higher = np.flatnonzero((self._limits[registers] & others) == 0)
        if len(higher):
            self._raise(registers[higher], _ranks_of(others[higher]))

    def _raise(self, registers: NDArray[np.int64], ranks: NDArray[np.uint8]) -> None:
        np.maximum.at(self._ranks, registers, ranks)
        self._limits = _LIMITS[self._ranks]
        self._least_limit = self._limits.min() << _SHIFT


def _ranks_of(others: Words) -> NDArray[np.uint8]:
    """Return the number of zeros below the lowest bit of each hash, and 1; shape (n,)."""
    lowest = others & (~others + _ONE)
    ranks = np.frexp(lowest.astype(np.float64))[1]
    return np.where(others == 0, _HIGHEST_RANK, ranks).astype(np.uint8)


def _unpacked(data: bytes, width: int) -> NDArray[np.uint8]:
    if width not in _DENSE_WIDTHS:
        return np.frombuffer(data, np.uint8, _COUNT)
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _COUNT * width // 8)).reshape(_COUNT, width)
    return bits @ (1 << np.arange(width - 1, -1, -1)).astype(np.uint8)


_LEAST = {
    TypeFamily.DATE: FIRST_GREGORIAN_DAY,
    TypeFamily.TIMESTAMP: FIRST_GREGORIAN_DAY * SECONDS_PER_DAY,
}
_EXACT_POWER = 22
"""The highest power of ten that a double holds without rounding."""
LENGTHS: Final = (TypeFamily.TEXT, TypeFamily.BINARY)
"""The families whose lengths are recorded, and not their ranges."""


_REPEATED = 4
"""Values that are repeated so often are hashed once: finding the distinct ones is faster than hashing all."""
_SAMPLE = 1024


@dataclass
class ColumnSummary:
    """The values of one column among some rows.

    Attributes:
        row_count: the number of rows, including those with a null.
        null_count: the number of nulls.
        true_count: the number of true values of a boolean.
        low: the least value, a number; days or seconds since 1970 of dates and timestamps. None without one.
        high: the greatest value.
        length_sum: the sum of the lengths of strings (characters) or binary values (bytes).
        max_length: the greatest length.
        sketch: the distinct values. Booleans and binary values have none.
    """

    row_count: int = 0
    null_count: int = 0
    true_count: int = 0
    low: Any = None
    high: Any = None
    length_sum: int = 0
    max_length: int = 0
    sketch: DistinctSketch = field(default_factory=DistinctSketch)

    def merge(self, other: ColumnSummary) -> None:
        """Add the values of other rows."""
        for name in ("row_count", "null_count", "true_count", "length_sum"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.max_length = max(self.max_length, other.max_length)
        self._widen(other.low, other.high)
        self.sketch.merge(other.sketch)

    def add(self, family: TypeFamily, values: pa.Array) -> bool:
        """Add values of a column. Return False if there is no summary of such values."""
        self.row_count += len(values)
        self.null_count += values.null_count
        if values.null_count:
            values = values.drop_null()
        if not len(values):
            return True
        if family is TypeFamily.BOOLEAN:
            self.true_count += values.true_count
            return True
        if family in LENGTHS:
            self._add_lengths(family, values)
            return True
        if family is TypeFamily.TIMESTAMP:
            values = pa.array(seconds_and_nanos(values)[0])
        return self._add_numbers(family, values)

    def _add_lengths(self, family: TypeFamily, values: pa.Array) -> None:
        is_text = family is TypeFamily.TEXT
        lengths = pc.utf8_length(values) if is_text and not is_ascii(values) else pc.binary_length(values)
        self.length_sum += pc.sum(lengths).as_py()
        self.max_length = max(self.max_length, pc.max(lengths).as_py())
        if is_text:
            self.sketch.add(hashes_of_bytes(_without_repeated(values)))

    def _add_numbers(self, family: TypeFamily, values: pa.Array) -> bool:
        ends = pc.min_max(values)
        if family is TypeFamily.DATE:
            ends = {name: each.cast(pa.int32()) for name, each in ends.items()}
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if family in _LEAST and low < _LEAST[family]:
            return False
        if family is TypeFamily.FLOAT and pc.any(pc.is_nan(values)).as_py():
            return False
        self._widen(low, high)
        numbers = _longs(family, values)
        if isinstance(low, int) and (high - low) * _REPEATED < len(numbers):
            is_there = np.zeros(high - low + 1, np.bool_)
            is_there[numbers - low] = True
            numbers = np.flatnonzero(is_there) + low
        self.sketch.add(hashes_of_longs(numbers))
        return True

    def _widen(self, low: Any, high: Any) -> None:
        if low is not None:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    def to_list(self) -> list[Any]:
        """Return the summary as a list for JSON."""
        sketch = base64.b64encode(self.sketch.to_bytes()).decode()
        counts = [self.row_count, self.null_count, self.true_count, self.length_sum, self.max_length]
        return [*counts, _as_text(self.low), _as_text(self.high), sketch]

    @classmethod
    def from_list(cls, found: Sequence[Any], family: TypeFamily) -> ColumnSummary:
        """Return the summary in the result of :meth:`to_list`. Raises ValueError if there is none."""
        rows, nulls, trues, length_sum, max_length, low, high, data = found
        sketch = DistinctSketch.from_bytes(base64.b64decode(data, validate=True))
        if sketch is None:
            raise ValueError(f"{data!r} is not a sketch")
        low, high = (_as_number(end, family) for end in (low, high))
        return cls(rows, nulls, trues, low, high, length_sum, max_length, sketch)


def _without_repeated(values: pa.Array) -> pa.Array:
    """Return distinct strings if the first ones are repeated often, otherwise all."""
    first = values.slice(0, _SAMPLE)
    is_repeated = pc.count_distinct(first).as_py() * _REPEATED <= len(first)
    return pc.unique(values) if is_repeated else values


def _as_text(end: Any) -> str | None:
    return None if end is None else repr(end) if isinstance(end, float) else str(end)


def _as_number(text: str | None, family: TypeFamily) -> Any:
    if text is None:
        return None
    if family is TypeFamily.DECIMAL:
        return Decimal(text)
    return float(text) if family is TypeFamily.FLOAT else int(text)


def _doubles_of_decimals(values: pa.Array) -> NDArray[np.float64]:
    """Return the nearest doubles; a quotient of two numbers without rounding is rounded once.

    Arrow's cast multiplies by a rounded power of ten.
    """
    pairs, scale = view(values, PAIR), values.type.scale
    low, high = pairs["low"].astype(np.int64), pairs["high"].astype(np.int64)
    is_exact = (np.abs(low) < 1 << 53) & (high == low >> 63) & (scale <= _EXACT_POWER)
    found: NDArray[np.float64] = low / 10.0**scale
    if not is_exact.all():
        found[~is_exact] = [float(each) for each in values.filter(pa.array(~is_exact)).to_pylist()]
    return found


def _longs(family: TypeFamily, values: pa.Array) -> NDArray[np.int64]:
    """Return the numbers that Hive hashes."""
    if family is TypeFamily.DECIMAL:
        return _doubles_of_decimals(values).view(np.int64)
    if family is TypeFamily.FLOAT:
        doubles: NDArray[np.float64] = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        return doubles.view(np.int64)
    if family is TypeFamily.DATE:
        values = values.cast(pa.int32())
    numbers: NDArray[np.integer[Any]] = values.to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64, copy=False)


class RowSummary:
    """The summaries of the columns of some rows, by column.

    Args:
        families: the families of the columns that have statistics, by name.
        columns: their summaries, of those that have one.
    """

    def __init__(
        self, families: Mapping[str, TypeFamily], columns: Mapping[str, ColumnSummary] | None = None
    ) -> None:
        self.families = families
        self.columns = {name: ColumnSummary() for name in families} if columns is None else dict(columns)

    def add(self, rows: pa.StructArray) -> None:
        """Add rows of the table's types. The rows themselves are not null."""
        for index, column in enumerate(rows.type):
            summary = self.columns.get(column.name)
            if summary is not None and not summary.add(self.families[column.name], rows.field(index)):
                del self.columns[column.name]

    def merge(self, other: RowSummary) -> None:
        """Add other rows."""
        self.columns = {name: each for name, each in self.columns.items() if name in other.columns}
        for name, summary in self.columns.items():
            summary.merge(other.columns[name])

    def to_json(self) -> str:
        """Return the summaries as JSON on one line."""
        found = {name: summary.to_list() for name, summary in self.columns.items()}
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, families: Mapping[str, TypeFamily], text: str) -> RowSummary:
        """Parse the result of :meth:`to_json`. Raises ValueError if it is not one."""
        try:
            found = {name: each for name, each in json.loads(text).items() if name in families}
            columns = {name: ColumnSummary.from_list(each, families[name]) for name, each in found.items()}
        except (TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(f"not a summary of rows: {text[:200]!r} ({error})") from error
        return cls(families, columns)


class _Column(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...


def summarised_families(columns: Iterable[_Column]) -> dict[str, TypeFamily]:
    """Return the families of the columns (with Hive types) that have statistics; nested ones have none."""
    families = {column.name: parse_hive_type(column.type).facts.family for column in columns}
    return {name: family for name, family in families.items() if family is not TypeFamily.NESTED}
