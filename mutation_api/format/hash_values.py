"""Raw values of Arrow arrays, in the form that the bucket hashes need. Pure.

Slots under nulls hold arbitrary bytes. The hash of such a row is set to 0 at the end, in one place for all
types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.format.timestamps import UNITS_PER_SECOND

_LIMB = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
PAIR = np.dtype([("low", "<u8"), ("high", "<u8")])

_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True)
class Texts:
    """n byte strings: the bytes of ``data`` (uint8) from ``starts`` up to ``ends`` (int64)."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


@dataclass(frozen=True)
class Decimals:
    """Decimals without trailing zeros in the fraction: magnitude ``(high * 2**64 + low) * 10**-scale``.

    ``high`` and ``low`` are uint64, ``negative`` is bool, ``scale`` is int64 and never negative. Each has
    shape (n,).
    """

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    negative: NDArray[np.bool_]
    scale: NDArray[np.int64]


def view(array: pa.Array, dtype: type[_Scalar] | np.dtype[_Scalar]) -> NDArray[_Scalar]:
    """Return the value buffer of a fixed-width array, limited to the array's slice."""
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), dtype)
    width = np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * width)


def texts(array: pa.Array) -> Texts:
    """Return the bytes of a string or binary array (with 32 or 64 bit offsets)."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offset_buffer, data_buffer = array.buffers()
    if offset_buffer is None or not len(array):
        return Texts(np.zeros(0, np.uint8), np.zeros(len(array), np.int64), np.zeros(len(array), np.int64))
    dtype = np.dtype(np.int64 if wide else np.int32)
    skipped = array.offset * dtype.itemsize
    offsets = np.frombuffer(offset_buffer, dtype, len(array) + 1, skipped).astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return Texts(data, offsets[:-1], offsets[1:])


def is_ascii(array: pa.Array) -> bool:
    """Return True if no string or binary value has a byte above 127."""
    found = texts(array)
    begin, end = (found.starts[0], found.ends[-1]) if len(array) else (0, 0)
    return bool(found.data[begin:end].max(initial=0) < 128)


def words_of(found: Texts) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the eight bytes at each byte of n strings as little-endian numbers, which share one copy.

    Returns:
        The numbers, and the positions in them at which the strings start (shape (n,)). Behind the last string
        are zeros.
    """
    begin, end = (int(found.starts[0]), int(found.ends[-1])) if len(found.starts) else (0, 0)
    data = np.zeros(end - begin + 8, np.uint8)
    data[: end - begin] = found.data[begin:end]
    return np.ndarray((len(data) - 7,), "<u8", data.data, strides=(1,)), found.starts - begin


def texts_without_blanks(found: Texts) -> Texts:
    """Return the strings without trailing 0x20. Other white space stays, as in Hive's char."""
    ends = found.ends.copy()
    rows = np.flatnonzero(ends > found.starts)
    while len(rows):
        rows = rows[found.data[ends[rows] - 1] == 0x20]
        ends[rows] -= 1
        rows = rows[ends[rows] > found.starts[rows]]
    return Texts(found.data, found.starts, ends)


def seconds_and_nanos(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split local timestamps into whole seconds (floor) and nanoseconds (0 to 999999999), int64.

    A struct of the two represents timestamps that no Arrow unit can hold, such as the last nanosecond of year
    9999.
    """
    if pa.types.is_struct(array.type):
        seconds, nanos = array.flatten()
        return view(seconds, np.int64), view(nanos, np.int64)
    units = UNITS_PER_SECOND[array.type.unit]
    whole, rest = np.divmod(view(array, np.int64), units)
    return whole, rest * (10**9 // units)


def normalised_decimals(array: pa.Array) -> Decimals:
    """Split a decimal128 array into parts, without trailing zeros in the fractions (0.00 gets scale 0)."""
    pairs = view(array, PAIR)
    high, low = pairs["high"].copy(), pairs["low"].copy()
    negative = high >> np.uint64(63) != 0
    high[negative], low[negative] = negated(high[negative], low[negative])
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        high, low = high * valid, low * valid
    scale = np.full(len(array), array.type.scale, np.int64)
    if high.any():
        _strip_wide(high, low, scale)
    else:
        _strip_narrow(low, scale)
    scale[(high == 0) & (low == 0)] = 0
    return Decimals(high, low, negative, scale)


def negated(
    high: NDArray[np.uint64], low: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the two's complement of 128-bit numbers, which are passed and returned as two uint64 halves."""
    return ~high + (low == 0), ~low + np.uint64(1)


def _strip_narrow(low: NDArray[np.uint64], scale: NDArray[np.int64]) -> None:
    """Strip trailing zeros of numbers below 2**64, in place.

    They end in at most 19 zeros, and these powers add up to every count up to 31.
    """
    for power in (16, 8, 4, 2, 1):
        rows = np.flatnonzero(scale >= power)
        if not len(rows):
            continue
        quotient, rest = np.divmod(low[rows], np.uint64(10**power))
        divisible = rest == 0
        low[rows[divisible]] = quotient[divisible]
        scale[rows[divisible]] -= power


def _strip_wide(high: NDArray[np.uint64], low: NDArray[np.uint64], scale: NDArray[np.int64]) -> None:
    """Strip trailing zeros of 128-bit numbers, in place, by long division with limbs of 32 bits.

    Powers up to 10**9 keep each step within 64 bits.
    """
    for power in (9, 9, 9, 9, 4, 2, 1, 1):
        rows = np.flatnonzero(scale >= power)
        if not len(rows):
            continue
        new_high, new_low, rest = _divided(high[rows], low[rows], np.uint64(10**power))
        divisible = rest == 0
        high[rows[divisible]], low[rows[divisible]] = new_high[divisible], new_low[divisible]
        scale[rows[divisible]] -= power


def _divided(
    high: NDArray[np.uint64], low: NDArray[np.uint64], divisor: np.uint64
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]:
    rest = np.zeros(len(high), np.uint64)
    quotients = []
    for limb in (high >> _HALF, high & _LIMB, low >> _HALF, low & _LIMB):
        quotient, rest = np.divmod(rest << _HALF | limb, divisor)
        quotients.append(quotient)
    return quotients[0] << _HALF | quotients[1], quotients[2] << _HALF | quotients[3], rest
