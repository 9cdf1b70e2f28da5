"""KeyFilter: finds the rows of a batch that have one of the given keys. Pure, vectorised.

A merge of few rows into a large table checks every row of the table, so a check must be cheap compared with
decoding the key. Numbers (and every type that fits 64 bits) are first checked against a sieve: a table of
bytes, indexed by a product of the value. 312,500 bigints against 100,000 keys take 3 ms. A hash set that
Arrow builds for each call takes 12 ms, a binary search of each value 45 ms. Values that pass are looked up
exactly.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import RecordLayoutError
from mutation_api.format.plain_array import plain_array
from mutation_api.orc.format.stored_values import Range

_SIEVE_BITS = range(12, 25)
_SIEVE_ENTRIES_PER_KEY = 32
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
_KEYS_PER_VALUE = 16
"""The number of keys of which Arrow builds a hash set in the time that Python needs to look up one value."""
_WORD_DIGITS = 18
"""The maximum number of digits of decimals that fit integers of 64 bits."""


@dataclass(frozen=True)
class KeyFilter:
    """A set of keys, which selects the rows with or without one of them.

    Values are compared as in Spark's joins: NaN equals NaN, -0.0 equals 0.0, and NULL equals nothing unless
    ``null_safe``. Strings are compared by their bytes, including the blanks of a char. Keys may repeat.

    Attributes:
        keys: one column per key column (in any order), one row per key, with names as in the table.
        null_safe: True if NULL equals NULL.
        excludes: True to select the rows without any of the keys.

    Raises:
        RecordLayoutError: If the key has no columns, or one of a type that cannot be compared (array, map,
            struct, uniontype). The message names it.
    """

    keys: pa.Table
    null_safe: bool = False
    excludes: bool = False

    def __post_init__(self) -> None:
        """Reject types for which Hive, Spark and this filter do not agree on order and equality."""
        for field in self.keys.schema:
            if pa.types.is_nested(field.type):
                raise RecordLayoutError(f"key column {field.name!r}: a {field.type} cannot be a key")
        if not self.keys.num_columns:
            raise RecordLayoutError("a key needs at least one column")

    @classmethod
    def from_bytes(cls, data: bytes, null_safe: bool, excludes: bool = False) -> KeyFilter:
        """Return the filter from the result of :meth:`to_bytes`."""
        with pa.ipc.open_stream(data) as reader:
            return cls(reader.read_all(), null_safe, excludes)

    def to_bytes(self) -> bytes:
        """Return the keys as an Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.keys.schema) as writer:
            writer.write_table(self.keys)
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def __reduce__(self) -> tuple[Callable[..., KeyFilter], tuple[bytes, bool, bool]]:
        """Pickle as IPC, because a pickled slice of a table would include the whole table."""
        return KeyFilter.from_bytes, (self.to_bytes(), self.null_safe, self.excludes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(self.keys.column_names)

    @property
    def is_read_first(self) -> bool:
        """False: the keys of a merge mostly lie in all stripes."""
        return False

    @property
    def distinct_count(self) -> int:
        """The number of distinct keys of the first column; NULL counts as a key if it equals NULL."""
        return self._columns[0].count

    def find(self, arrays: Sequence[pa.Array]) -> NDArray[np.int64]:
        """Return the indices of the selected rows: int64, ascending.

        Args:
            arrays: n values of each key column, in the order and of the types of ``keys``.

        Raises:
            RecordLayoutError: If an array has another type.
        """
        found = self.encode(arrays)[0]
        return np.delete(np.arange(len(arrays[0])), found) if self.excludes else found

    def encode(self, arrays: Sequence[pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of the rows that have a key (int64, ascending), and the number of each key.

        Equal keys have equal numbers, >= 0.
        """
        for field, array in zip(self.keys.schema, arrays, strict=True):
            if array.type != field.type:
                raise RecordLayoutError(
                    f"key column {field.name!r}: the keys have type {field.type}, but the table's values "
                    f"{array.type}"
                )
        columns = [_comparable(array) for array in arrays]
        positions, codes = self._columns[0].find(columns[0])
        for at in range(1, len(columns)):
            hits, more = self._columns[at].find(columns[at].take(pa.array(positions)))
            combined = codes[hits] * self._columns[at].count + more
            found, codes = _look_up(combined, self._combinations[at])
            positions = positions[hits[found]]
        return positions, codes

    def may_hold(self, ranges: Sequence[Mapping[str, Range]]) -> Sequence[bool]:
        """Return which parts of a file may hold selected rows; see ``RowChoice.may_hold``."""
        return [all(self.meets(name, *ends) for name, ends in each.items()) for each in ranges]

    def equal_values(self) -> Mapping[str, pa.Array]:
        """Return the values of the key columns that have no NULL; see ``RowChoice.equal_values``."""
        if self.excludes:
            return {}
        known = {name: self._ordered[name] for name in self.names}
        return {name: values for name, (values, has_null) in known.items() if not has_null}

    def meets(self, name: str, low: Any, high: Any) -> bool:
        """Return True if a part of a file may hold selected rows, by the range of a column's values there.

        Args:
            name: a key column.
            low: the lower bound (inclusive): int, Decimal, or bytes for strings; days for dates.
            high: the upper bound (inclusive).
        """
        if self.excludes:
            return True
        values, has_null = self._ordered[name]
        first = bisect.bisect_left(values, low, key=_as_python)
        return has_null or (first < len(values) and bool(_as_python(values[first]) <= high))

    @functools.cached_property
    def _columns(self) -> list[_KeyColumn]:
        arrays = (_comparable(plain_array(column)) for column in self.keys.columns)
        return [_KeyColumn(array if self.null_safe else array.drop_null()) for array in arrays]

    @functools.cached_property
    def _combinations(self) -> list[NDArray[np.int64]]:
        """The pairs that occur, ascending, for each column.

        A pair consists of the number of the combination in the columns before, and the value of this column.

        Renumbering the pairs at each column keeps all numbers below the square of the number of keys.
        """
        arrays = [_comparable(plain_array(column)) for column in self.keys.columns]
        positions, codes = self._columns[0].find(arrays[0])
        combinations = [np.zeros(0, np.int64)]
        for column, array in zip(self._columns[1:], arrays[1:], strict=True):
            hits, more = column.find(array.take(pa.array(positions)))
            known, codes = np.unique(codes[hits] * column.count + more, return_inverse=True)
            positions = positions[hits]
            combinations.append(known)
        return combinations

    @functools.cached_property
    def _ordered(self) -> dict[str, tuple[pa.Array, bool]]:
        """The sorted values of each column in the form of :meth:`meets`, and whether NULL is one of them."""
        return dict(self._sorted_columns())

    def _sorted_columns(self) -> Iterator[tuple[str, tuple[pa.Array, bool]]]:
        for name, column in zip(self.names, self.keys.columns, strict=True):
            values = plain_array(column).unique().drop_null()
            if pa.types.is_string(values.type):
                values = values.cast(pa.binary())
            elif pa.types.is_date32(values.type):
                values = values.view(pa.int32())
            yield name, (values.take(pc.sort_indices(values)), self.null_safe and column.null_count > 0)


class _KeyColumn:
    """The distinct values of one key column, numbered from 0. NULL is one of them if it is in ``values``.

    Attributes:
        count: the number of distinct values.
    """

    def __init__(self, values: pa.Array) -> None:
        self._has_null: bool = values.null_count > 0
        self._is_number = pa.types.is_integer(values.type)
        if self._is_number:
            self._numbers = _distinct(values.drop_null().to_numpy().astype(np.int64))
            self.count: int = len(self._numbers) + self._has_null
            self._shift = np.uint64(64 - _sieve_bits(self.count))
        else:
            self._values = values.unique()
            self.count = len(self._values)

    def find(self, array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of the values that are in this column, ascending, and their numbers."""
        if not self._is_number:
            index = self._index_of_few(array) if self._are_few(array) else self._index(array)
            found = np.flatnonzero(index >= 0)
            return found, index[found]
        nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
        numbers = (array if nulls is None else pc.fill_null(array, 0)).to_numpy().astype(np.int64, copy=False)
        passed = self._sieve[self._slots(numbers)]
        if nulls is not None:
            passed &= ~nulls
        found = np.flatnonzero(passed)
        exact, codes = _look_up(numbers[found], self._numbers)
        found = found[exact]
        if nulls is None or not self._has_null:
            return found, codes
        positions = np.append(found, np.flatnonzero(nulls))
        codes = np.append(codes, np.full(len(positions) - len(found), len(self._numbers), np.int64))
        order = np.argsort(positions, kind="stable")
        return positions[order], codes[order]

    def _are_few(self, array: pa.Array) -> bool:
        return len(array) * _KEYS_PER_VALUE < self.count

    def _index(self, array: pa.Array) -> NDArray[np.int64]:
        """Return the number of each value; -1 if it is not a key."""
        index = pc.index_in(array, value_set=self._values)
        return np.asarray(pc.fill_null(index, -1)).astype(np.int64)

    def _index_of_few(self, array: pa.Array) -> NDArray[np.int64]:
        """Like ``_index``, for few values, for which building Arrow's hash set would take too long."""
        return np.array([self._numbers_by_value.get(value, -1) for value in array.to_pylist()], np.int64)

    @functools.cached_property
    def _numbers_by_value(self) -> dict[object, int]:
        return {value: number for number, value in enumerate(self._values.to_pylist())}

    @functools.cached_property
    def _sieve(self) -> NDArray[np.bool_]:
        found = np.zeros(1 << (64 - int(self._shift)), np.bool_)
        found[self._slots(self._numbers)] = True
        return found

    def _slots(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        return (numbers.view(np.uint64) * _GOLDEN_RATIO) >> self._shift


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct numbers, ascending. Sorting takes less time than a hash table of Arrow or NumPy."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered if is_first.all() else ordered[is_first]


def _sieve_bits(count: int) -> int:
    wanted = (count * _SIEVE_ENTRIES_PER_KEY).bit_length()
    return min(max(wanted, _SIEVE_BITS[0]), _SIEVE_BITS[-1])


def _look_up(
    values: NDArray[np.int64], known: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the values that are known, and the index of each in the ascending ``known``."""
    if not len(known):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # A search for ascending values takes a sixth of the time, because the next place is already cached.
    order = np.argsort(values)
    indices = np.empty(len(values), np.int64)
    indices[order] = np.minimum(np.searchsorted(known, values[order]), len(known) - 1)
    found = np.flatnonzero(known[indices] == values)
    return found, indices[found]


def _comparable(array: pa.Array) -> pa.Array:
    """Return the values in a form in which equal values have equal bits: integers if 64 bits are enough."""
    data_type = array.type
    if pa.types.is_boolean(data_type):
        return array.cast(pa.int8())
    if pa.types.is_date32(data_type):
        return array.view(pa.int32())
    if pa.types.is_timestamp(data_type):
        return array.view(pa.int64())
    if pa.types.is_floating(data_type):
        return _float_bits(array)
    if pa.types.is_decimal128(data_type) and data_type.precision <= _WORD_DIGITS:
        return _decimal_words(array)
    return array


def _float_bits(array: pa.Array) -> pa.Array:
    numbers = pc.fill_null(array, 0).to_numpy() if array.null_count else array.to_numpy()
    numbers = numbers + numbers.dtype.type(0)  # -0.0 becomes 0.0
    numbers[np.isnan(numbers)] = np.nan
    bits = numbers.view(np.int64 if numbers.itemsize == 8 else np.int32)
    return pa.array(bits, mask=_null_mask(array))


def _decimal_words(array: pa.Array) -> pa.Array:
    """Return the unscaled values, which are the lower of a decimal's two words."""
    words = np.frombuffer(array.buffers()[1], np.int64)[::2] if len(array) else np.zeros(0, np.int64)
    return pa.array(words[array.offset : array.offset + len(array)], mask=_null_mask(array))


def _null_mask(array: pa.Array) -> NDArray[np.bool_] | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _as_python(scalar: pa.Scalar) -> Any:
    return scalar.as_py()
