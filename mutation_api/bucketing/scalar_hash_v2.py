"""Hashes of bucketing version 2 (murmur) for values that are not nested. Pure.

Source: Hive's ObjectInspectorUtils.hashCodeMurmur; tests/golden/bucket_hash.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.bucketing.hash_values import (
    Texts,
    negated,
    normalised_decimals,
    seconds_and_nanos,
    texts,
    texts_without_blanks,
    view,
)
from mutation_api.bucketing.murmur import (
    murmur_big_endian_16,
    murmur_big_endian_32,
    murmur_big_endian_64,
    murmur_bytes,
    murmur_padded,
)
from mutation_api.bucketing.scalar_hash_v1 import canonical_double_bits, canonical_float_bits

__all__ = ["V2_HASHES"]

_TIMESTAMP = np.dtype([("low_seconds", ">u4"), ("head", "i1"), ("magnitude", ">u4"), ("room", "V15")])
"""Layout of the first two numbers. The third begins where the second ends, and has at most nine bytes."""
_CHUNK_TIMESTAMPS = 1 << 13
"""Timestamps per step; the data of a step stays in the processor's cache."""
_REVERSED = np.array([int(f"{number:03}"[::-1]) for number in range(1000)], np.int64)
"""Every number of three decimal digits, with the digits reversed."""
_BYTE_BOUNDS = np.array([1 << bits for bits in range(8, 64, 8)], np.int64)
"""Smallest number of two bytes, of three bytes and so on."""


def _boolean(array: pa.Array) -> NDArray[np.uint32]:
    return view(array.cast(pa.int8()), np.int8).astype(np.uint32)


def _tinyint(array: pa.Array) -> NDArray[np.uint32]:
    return view(array, np.int8).astype(np.int32).view(np.uint32)


def _smallint(array: pa.Array) -> NDArray[np.uint32]:
    return murmur_big_endian_16(view(array, np.int16))


def _int_or_date(array: pa.Array) -> NDArray[np.uint32]:
    return murmur_big_endian_32(view(array, np.uint32))


def _bigint(array: pa.Array) -> NDArray[np.uint32]:
    return murmur_big_endian_64(view(array, np.uint64))


def _float(array: pa.Array) -> NDArray[np.uint32]:
    # Hive passes the bits, as a number, to a method that takes a float: they are rounded once more.
    bits = canonical_float_bits(array).view(np.int32)
    return murmur_big_endian_32(bits.astype(np.float32).view(np.uint32))


def _double(array: pa.Array) -> NDArray[np.uint32]:
    bits = canonical_double_bits(array).view(np.int64)
    return murmur_big_endian_64(bits.astype(np.float64).view(np.uint64))


def _string(array: pa.Array) -> NDArray[np.uint32]:
    return _bytes_hash(texts(array))


def _char(array: pa.Array) -> NDArray[np.uint32]:
    return _bytes_hash(texts_without_blanks(texts(array)))


def _bytes_hash(found: Texts) -> NDArray[np.uint32]:
    return murmur_bytes(found.data, found.starts, found.ends - found.starts)


def _decimal(array: pa.Array) -> NDArray[np.uint32]:
    """Hash the shortest two's complement form of the digits, high byte first; the scale is not hashed."""
    number = normalised_decimals(array)
    high, low, negative = number.high, number.low, number.negative
    high[negative], low[negative] = negated(high[negative], low[negative])
    signs, digits = high.view(np.int64), low.view(np.int64)
    is_narrow = digits >> 63 == signs
    if is_narrow.all():
        skipped = _sign_bytes(digits)
        return murmur_bytes(_bytes_of(digits), np.arange(len(array)) * 8 + skipped, 8 - skipped)
    data = np.hstack([_bytes_of(signs).reshape(-1, 8), _bytes_of(digits).reshape(-1, 8)])
    skipped = np.where(is_narrow, 8 + _sign_bytes(digits), _sign_bytes(signs))
    return murmur_bytes(data.reshape(-1), np.arange(len(array)) * 16 + skipped, 16 - skipped)


def _bytes_of(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Eight bytes each, high byte first; uint8, shape (8 n,)."""
    return numbers.astype(">i8").view(np.uint8)


def _sign_bytes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of leading bytes (at most seven) of 64-bit numbers that only repeat the next byte's sign bit."""
    sign = numbers >> 63
    count = np.zeros(len(numbers), np.int64)
    for bits in range(7, 63, 8):
        count += numbers >> bits == sign
    return count


def _timestamp(array: pa.Array) -> NDArray[np.uint32]:
    """Hash Hive's binary form of the wall clock as UTC: low seconds (31 bits), nanoseconds, high seconds."""
    hashes = np.empty(len(array), np.uint32)
    for first in range(0, len(array), _CHUNK_TIMESTAMPS):
        seconds, nanos = seconds_and_nanos(array.slice(first, _CHUNK_TIMESTAMPS))
        data, lengths = _timestamp_bytes(seconds, nanos)
        room = data.view(np.uint8).reshape(len(data), data.itemsize)
        hashes[first : first + _CHUNK_TIMESTAMPS] = murmur_padded(room, lengths)
    return hashes


def _timestamp_bytes(
    seconds: NDArray[np.int64], nanos: NDArray[np.int64]
) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """Bytes of each timestamp, padded with zeros to the longest form, and their numbers of bytes (int64).

    The numbers after the first four bytes have Hadoop's variable length: one byte for -112 to 127, otherwise
    a byte for sign and length, then the magnitude. The first of them has at most nine digits.
    """
    digits = _reversed_digits(nanos)
    wide = (seconds < 0) | (seconds > 2**31 - 1)
    more = wide | (digits != 0)
    data = np.zeros(len(seconds), _TIMESTAMP)
    data["low_seconds"] = (seconds & 0x7FFFFFFF) | more.astype(np.int64) << 31
    short = digits <= np.where(wide, 111, 127)
    size = np.where(short, 0, 1 + sum((digits >= bound).astype(np.int64) for bound in _BYTE_BOUNDS[:3]))
    data["head"] = np.where(short, np.where(wide, ~digits, digits), np.where(wide, -120, -112) - size)
    data["magnitude"] = digits << 8 * (4 - size)
    lengths = 4 + more * (1 + size)
    _append_number(data, lengths, np.flatnonzero(wide), seconds >> 31)
    return data, lengths


def _reversed_digits(nanos: NDArray[np.int64]) -> NDArray[np.int64]:
    """Reverse nine decimal digits: 5 becomes 500000000; int64."""
    numbers = nanos.astype(np.uint32)
    thousands = numbers // np.uint32(1000)
    millions = thousands // np.uint32(1000)
    low, middle = numbers - thousands * np.uint32(1000), thousands - millions * np.uint32(1000)
    reversed_nanos: NDArray[np.int64] = (
        _REVERSED[low] * 10**6 + _REVERSED[middle] * 1000 + _REVERSED[millions]
    )
    return reversed_nanos


def _append_number(
    data: NDArray[np.void], lengths: NDArray[np.int64], rows: NDArray[np.int64], numbers: NDArray[np.int64]
) -> None:
    """Append Hadoop's variable-length form of ``numbers[rows]`` to the bytes of these rows, in place.

    Up to eight bytes after it are overwritten with zeros.
    """
    if not len(rows):
        return
    numbers = numbers[rows]
    short = (numbers >= -112) & (numbers <= 127)
    magnitude = np.where(numbers < 0, ~numbers, numbers)
    size = np.where(short, 0, 1 + np.searchsorted(_BYTE_BOUNDS, magnitude, "right"))
    head = np.where(short, numbers, np.where(numbers < 0, -120, -112) - size)
    flat = data.view(np.uint8)
    at = rows * data.itemsize + lengths[rows]
    flat[at] = head.astype(np.int8).view(np.uint8)
    eight_from = np.ndarray((len(flat) - 7,), ">i8", buffer=flat, strides=(1,))
    eight_from[at + 1] = magnitude << 8 * (8 - size)
    lengths[rows] += 1 + size


V2_HASHES: dict[str, Callable[[pa.Array], NDArray[np.uint32]]] = {
    "boolean": _boolean,
    "tinyint": _tinyint,
    "smallint": _smallint,
    "int": _int_or_date,
    "bigint": _bigint,
    "float": _float,
    "double": _double,
    "string": _string,
    "varchar": _string,
    "char": _char,
    "decimal": _decimal,
    "date": _int_or_date,
    "timestamp": _timestamp,
}
"""By kind: n values of the column's Arrow type -> uint32, shape (n,). Binary is refused: see bucket_hash."""
