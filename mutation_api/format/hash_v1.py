"""Hashes of bucketing version 1 for values that are not nested: Java's 31-polynomial. Pure.

Every Hive before 3.0 uses it. Later releases count the days of a date in the proleptic calendar, so they hash
early dates differently (``proleptic_date``). They hash timestamps as Hive 2.3 does, because they also use
``java.sql.Timestamp``.

The polynomials over runs of values of different lengths are computed without a loop over rows. ``h = 31*h +
v`` over a run equals ``sum(v[i] * 31**(end-1-i))``. 31 is odd, so it has an inverse modulo 2**32. With
weights ``31**-i``, one cumulative sum over all values serves every run: the hash of a run is the difference
of the sum over it, times ``31**(end-1)``.

Bytes are processed eight at a time, because the cumulative sum costs more than everything else. The
polynomial of a word takes three steps within the word, and the sum is over words. If a run begins or ends
within a word, the word's bytes before that position are added.

Source: Hive's ObjectInspectorUtils.hashCode and the hashCode of its writables; tests/golden/bucket_hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.format.hash_values import (
    Texts,
    normalised_decimals,
    seconds_and_nanos,
    texts,
    texts_without_blanks,
    view,
)
from mutation_api.format.timestamps import (
    hybrid_from_proleptic_days,
    hybrid_from_proleptic_timestamps,
    instants_of_wall_clocks,
)

_CHUNK_VALUES = 1 << 15
_CHUNK_BYTES = 1 << 16
"""Number of values and bytes per step: few enough to stay in the cache and to reuse memory between steps."""

_INVERSE_OF_31 = pow(31, -1, 1 << 32)
_WORD = 8
_EVEN_BYTES, _EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_SIGNS = np.uint64(0x8080808080808080)
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_WORD)], np.uint64)
"""Masks of the first n bytes of a word, by n."""


def polynomial(
    values: NDArray[np.uint32], starts: NDArray[np.int64], ends: NDArray[np.int64], seed: int
) -> NDArray[np.uint32]:
    """Hash runs of values.

    Args:
        values: uint32.
        starts: int64, shape (n,), the first position of each run, ascending.
        ends: int64, shape (n,), the position after each run; starts[i] <= ends[i] <= starts[i+1].
        seed: the value of ``h`` before the first step.

    Returns:
        uint32, shape (n,).
    """
    hashes = np.zeros(len(starts), np.uint32)
    row = 0
    while row < len(starts):
        base = int(starts[row])
        stop = _stop(ends, row, base + _CHUNK_VALUES)
        first, last = starts[row:stop] - base, ends[row:stop] - base
        hashes[row:stop] = _step(values[base : base + int(last[-1])], first, last, seed)
        row = stop
    return hashes


def polynomial_of_bytes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], seed: int
) -> NDArray[np.uint32]:
    """Hash runs of bytes, taken as signed numbers.

    Args:
        data: uint8, contiguous.
        starts: int64, shape (n,). See :func:`polynomial`.
        ends: int64, shape (n,). See :func:`polynomial`.
        seed: the value of ``h`` before the first step.

    Returns:
        uint32, shape (n,).
    """
    hashes = np.zeros(len(starts), np.uint32)
    row = 0
    while row < len(starts):
        base = int(starts[row]) // _WORD * _WORD
        stop = _stop(ends, row, base + _CHUNK_BYTES)
        first, last = starts[row:stop] - base, ends[row:stop] - base
        hashes[row:stop] = _step_of_bytes(_words(data, base, int(last[-1])), first, last, seed)
        row = stop
    return hashes


def _stop(ends: NDArray[np.int64], row: int, limit: int) -> int:
    """Return the index after the last run that ends at or before the limit; at least ``row + 1``."""
    return max(row + 1, int(np.searchsorted(ends, limit, "right")))


def _step(
    values: NDArray[np.uint32], starts: NDArray[np.int64], ends: NDArray[np.int64], seed: int
) -> NDArray[np.uint32]:
    tables = _tables(len(values) // _WORD + 1)
    sums = _sums(values * tables.inverses[: len(values)])
    hashes: NDArray[np.uint32] = (sums[ends] - sums[starts]) * tables.powers[np.maximum(ends - 1, 0)]
    return hashes + np.uint32(seed) * tables.powers[ends - starts] if seed else hashes


def _step_of_bytes(
    words: NDArray[np.uint64], starts: NDArray[np.int64], ends: NDArray[np.int64], seed: int
) -> NDArray[np.uint32]:
    """Hash runs of bytes. Each byte is made unsigned by adding 128, that is, by flipping its first bit."""
    tables = _tables(len(words))
    weights = tables.weights[: len(words)]
    words = words ^ _SIGNS
    sums = _sums(_of_words(words) * weights)

    def sum_before(positions: NDArray[np.int64]) -> NDArray[np.uint32]:
        at = positions >> 3
        within = _of_words(words[at] & _FIRST_BYTES[positions & 7])
        before: NDArray[np.uint32] = sums[at] + within * weights[at]
        return before

    if np.array_equal(starts[1:], ends[:-1]):
        differences = np.diff(sum_before(np.concatenate([starts[:1], ends])))
    else:
        differences = sum_before(ends) - sum_before(starts)
    lengths = ends - starts
    hashes: NDArray[np.uint32] = differences * tables.powers[np.maximum(ends - 1, 0)] - tables.of_128[lengths]
    return hashes + np.uint32(seed) * tables.powers[lengths] if seed else hashes


def _words(data: NDArray[np.uint8], start: int, size: int) -> NDArray[np.uint64]:
    """Return the words that hold ``size`` bytes from position ``start`` and at least one byte after them."""
    count = size // _WORD + 1
    if start + count * _WORD <= len(data):
        return np.ndarray((count,), "<u8", buffer=data, offset=start)
    padded = np.zeros(count * _WORD, np.uint8)
    padded[:size] = data[start : start + size]
    return padded.view("<u8")


def _of_words(words: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the polynomial of each word's eight bytes, lowest first.

    It is computed in three steps: of pairs, of two pairs, of both halves.
    """
    pairs = (words & _EVEN_BYTES) * np.uint64(31) + (words >> np.uint64(8) & _EVEN_BYTES)
    fours = (pairs & _EVEN_PAIRS) * np.uint64(31**2) + (pairs >> np.uint64(16) & _EVEN_PAIRS)
    low, high = fours.astype(np.uint32), (fours >> np.uint64(32)).astype(np.uint32)
    polynomials: NDArray[np.uint32] = low * np.uint32(31**4) + high
    return polynomials


def _sums(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the sum of the values before each index, and the sum of all values."""
    sums = np.zeros(len(values) + 1, np.uint32)
    np.cumsum(values, dtype=np.uint32, out=sums[1:])
    return sums


class _Tables(NamedTuple):
    """Numbers modulo 2**32.

    ``powers[n]`` is 31**n and ``inverses[n]`` is 31**-n. ``weights[j]`` is the inverse at the last byte of
    word j, 31**-(8*j+7). ``of_128[n]`` is the polynomial of n bytes of 128.
    """

    powers: NDArray[np.uint32]
    inverses: NDArray[np.uint32]
    weights: NDArray[np.uint32]
    of_128: NDArray[np.uint32]


def _tables(words: int) -> _Tables:
    """Return tables for at least this number of words."""
    return _COMMON_TABLES if words <= len(_COMMON_TABLES.weights) else _new_tables(words)


def _new_tables(words: int) -> _Tables:
    powers, inverses = (_powers(base, words * _WORD) for base in (31, _INVERSE_OF_31))
    return _Tables(powers, inverses, inverses[_WORD - 1 :: _WORD].copy(), _sums(np.uint32(128) * powers[:-1]))


def _powers(base: int, size: int) -> NDArray[np.uint32]:
    factors = np.full(size, base, np.uint32)
    factors[0] = 1
    # Without a type, numpy accumulates small integers in 64 bits.
    return np.multiply.accumulate(factors, dtype=np.uint32)


_COMMON_TABLES = _new_tables(_CHUNK_BYTES // _WORD + 1)


def canonical_float_bits(array: pa.Array) -> NDArray[np.uint32]:
    """Return the bits of float32 values as uint32. All NaNs get the same bits; 0.0 and -0.0 differ."""
    bits = view(array, np.uint32).copy()
    bits[np.isnan(view(array, np.float32))] = 0x7FC00000
    return bits


def canonical_double_bits(array: pa.Array) -> NDArray[np.uint64]:
    """Return the bits of float64 values as uint64. All NaNs get the same bits; 0.0 and -0.0 differ."""
    bits = view(array, np.uint64).copy()
    bits[np.isnan(view(array, np.float64))] = 0x7FF8000000000000
    return bits


def _boolean(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return view(array.cast(pa.int8()), np.int8).astype(np.uint32)


def _narrow_integer(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    signed = view(array, array.type.to_pandas_dtype()).astype(np.int32)
    return signed.view(np.uint32)


def _bigint(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _folded(view(array, np.uint64))


def _float(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return canonical_float_bits(array)


def _double(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _folded(canonical_double_bits(array))


def _string(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _of_texts(texts(array), 0)


def _varchar_or_binary(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _of_texts(texts(array), 1)


def _char(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    return _of_texts(texts_without_blanks(texts(array)), 1)


def _of_texts(found: Texts, seed: int) -> NDArray[np.uint32]:
    return polynomial_of_bytes(found.data, found.starts, found.ends, seed)


def _decimal(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    number = normalised_decimals(array)
    hashes = np.zeros(len(array), np.uint32)
    for half in (number.high, number.low):
        hashes = hashes * np.uint32(31) + (half >> np.uint64(32)).astype(np.uint32)
        hashes = hashes * np.uint32(31) + half.astype(np.uint32)
    hashes[number.negative] = ~hashes[number.negative] + np.uint32(1)
    combined: NDArray[np.uint32] = hashes * np.uint32(31) + number.scale.astype(np.uint32)
    return combined


def proleptic_date(array: pa.Array) -> NDArray[np.uint32]:
    """Hash dates as Hive 3.1 and 4.1 do: uint32, shape (n,)."""
    return view(array, np.int32).view(np.uint32)


def _date(array: pa.Array, _zone: str | None) -> NDArray[np.uint32]:
    # Hive 2.3 hashes the day number that it stores.
    return hybrid_from_proleptic_days(view(array, np.int32)).view(np.uint32)


def _timestamp(array: pa.Array, zone: str | None) -> NDArray[np.uint32]:
    assert zone is not None, "checked before any value is hashed"
    seconds, nanos = seconds_and_nanos(array)
    seconds = hybrid_from_proleptic_timestamps(seconds, "s")
    instants = instants_of_wall_clocks(seconds, zone, array.is_valid().to_numpy(zero_copy_only=False))
    return _folded(((instants << 30) | nanos).view(np.uint64))


def _folded(values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    folded: NDArray[np.uint32] = ((values >> np.uint64(32)) ^ values).astype(np.uint32)
    return folded


V1_HASHES: dict[str, Callable[[pa.Array, str | None], NDArray[np.uint32]]] = {
    "boolean": _boolean,
    "tinyint": _narrow_integer,
    "smallint": _narrow_integer,
    "int": _narrow_integer,
    "bigint": _bigint,
    "float": _float,
    "double": _double,
    "string": _string,
    "varchar": _varchar_or_binary,
    "char": _char,
    "binary": _varchar_or_binary,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
}
"""For each kind: n values of the column's Arrow type, time zone of Hive's processes -> uint32, shape (n,).
"""
