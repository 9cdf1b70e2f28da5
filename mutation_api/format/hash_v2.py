"""Hashes of bucketing version 2 for values that are not nested: Hive's 32-bit Murmur3. Pure.

It is the published x86_32 variant with seed 104729 and one deviation: each byte of the tail (length modulo 4)
is sign extended before it is shifted. So if a byte of the tail is above 0x7f, no library's murmur3 returns
Hive's hash. Many keys are computed at once.

Source: org.apache.hive.common.util.Murmur3.hash32 and ObjectInspectorUtils.hashCodeMurmur; golden values in
    tests/golden/bucket_hash.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.format.hash_v1 import canonical_double_bits, canonical_float_bits
from mutation_api.format.hash_values import (
    Texts,
    negated,
    normalised_decimals,
    seconds_and_nanos,
    texts,
    texts_without_blanks,
    view,
)

_SEED = np.uint32(104729)
_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_CHUNK_ROWS = 1 << 14
"""The number of rows per step. The data of one step stays in the processor's cache."""


def murmur_big_endian_16(values: NDArray[np.int16]) -> NDArray[np.uint32]:
    """Hash 16-bit integers as two bytes, high byte first.

    Args:
        values: int16, shape (n,).

    Returns:
        uint32, shape (n,).
    """
    high = (values >> 8).astype(np.int32)
    low = values.astype(np.int8).astype(np.int32)
    tail = ((low << 8) ^ high).view(np.uint32)
    return _finish(_seeds(len(values)) ^ _scramble(tail), 2)


def murmur_big_endian_32(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hash 32-bit values as four bytes, high byte first. Input and output are uint32, shape (n,)."""
    return _finish(_mix(_seeds(len(values)), values.byteswap()), 4)


def murmur_big_endian_64(values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Hash 64-bit values as eight bytes, high byte first: uint64, shape (n,), in; uint32, shape (n,), out."""
    swapped = values.byteswap()
    hashes = _mix(_seeds(len(values)), swapped.astype(np.uint32))
    return _finish(_mix(hashes, (swapped >> np.uint64(32)).astype(np.uint32)), 8)


def murmur_bytes(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Hash byte strings.

    Args:
        data: uint8, the bytes of all strings. It may hold other bytes too.
        starts: int64, shape (n,), the position at which each string begins.
        lengths: int64, shape (n,), in bytes.

    Returns:
        uint32, shape (n,).
    """
    hashes = np.empty(len(starts), np.uint32)
    for first in range(0, len(starts), _CHUNK_ROWS):
        chunk = slice(first, first + _CHUNK_ROWS)
        hashes[chunk] = _murmur_chunk(data, starts[chunk], lengths[chunk])
    return hashes


def murmur_padded(data: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Hash short byte strings that are padded to one width. This is less work than `murmur_bytes`.

    Args:
        data: uint8, shape (n, room). ``room`` is a multiple of four, and the bytes after each string are
            zero.
        lengths: int64, shape (n,), in bytes, each less than ``room``.

    Returns:
        uint32, shape (n,).
    """
    words = data.view("<u4")
    hashes = _seeds(len(lengths))
    if not len(lengths):
        return hashes
    blocks = lengths >> 2
    for block in range(int(blocks.max())):
        mixed = _mix(hashes, words[:, block])
        hashes = np.where(blocks > block, mixed, hashes)
    rows = np.flatnonzero(lengths & 3)
    tails = words[rows, blocks[rows]].view(np.int8).reshape(-1, 4).astype(np.int32)
    hashes[rows] ^= _scramble((tails[:, 0] ^ tails[:, 1] << 8 ^ tails[:, 2] << 16).view(np.uint32))
    return _finish(hashes, lengths)


def _murmur_chunk(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    # Sort the longest first, so that the rows that still have a block are always a prefix.
    shorter_by = lengths.max() - lengths
    if shorter_by.max() < 1 << 16:
        shorter_by = shorter_by.astype(np.uint16)  # 16-bit keys are sorted in linear time
    order = np.argsort(shorter_by, kind="stable")
    starts, lengths = starts[order], lengths[order]
    hashes = _seeds(len(starts))
    blocks = lengths >> 2
    ascending = -blocks
    words = _words(data)
    for block in range(int(blocks[0])):
        rows = int(np.searchsorted(ascending, -block, "left"))
        hashes[:rows] = _mix(hashes[:rows], words[starts[:rows] + 4 * block])
    hashes = _finish(hashes ^ _scramble(_tails(data, starts + 4 * blocks, lengths & 3)), lengths)
    unsorted = np.empty_like(hashes)
    unsorted[order] = hashes
    return unsorted


def _words(data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the little-endian word at every byte position, as a view."""
    data = np.ascontiguousarray(data)
    return (
        np.ndarray((max(len(data) - 3, 0),), "<u4", buffer=data, strides=(1,))
        if len(data)
        else data.view("<u4")
    )


def _tails(
    data: NDArray[np.uint8], positions: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Return the tails of up to three bytes each, sign extended and combined as Hive does."""
    signed = data.view(np.int8)
    tails = np.zeros(len(positions), np.int32)
    for index in range(3):
        rows = np.flatnonzero(lengths > index)
        tails[rows] ^= signed[positions[rows] + index].astype(np.int32) << (8 * index)
    return tails.view(np.uint32)


def _seeds(count: int) -> NDArray[np.uint32]:
    return np.full(count, _SEED)


def _scramble(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    scrambled: NDArray[np.uint32] = _rotate(words * _C1, 15) * _C2
    return scrambled


def _mix(hashes: NDArray[np.uint32], words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed: NDArray[np.uint32] = _rotate(hashes ^ _scramble(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _finish(hashes: NDArray[np.uint32], lengths: NDArray[np.int64] | int) -> NDArray[np.uint32]:
    finished: NDArray[np.uint32] = hashes ^ np.asarray(lengths).astype(np.uint32)
    finished = (finished ^ (finished >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    finished = (finished ^ (finished >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    last: NDArray[np.uint32] = finished ^ (finished >> np.uint32(16))
    return last


def _rotate(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    rotated: NDArray[np.uint32] = (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
    return rotated


_TIMESTAMP = np.dtype([("low_seconds", ">u4"), ("head", "i1"), ("magnitude", ">u4"), ("room", "V15")])
"""The layout of the first two numbers. The third begins where the second ends and has at most nine bytes."""
_CHUNK_TIMESTAMPS = 1 << 13
"""The number of timestamps per step. The data of one step stays in the processor's cache."""
_REVERSED = np.array([int(f"{number:03}"[::-1]) for number in range(1000)], np.int64)
"""All numbers of three decimal digits, with the digits reversed."""
_BYTE_BOUNDS = np.array([1 << bits for bits in range(8, 64, 8)], np.int64)
"""The smallest number of two bytes, of three bytes and so on."""


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
    # Hive passes the bits, as a number, to a method that takes a float, so they are rounded once more.
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
    """Hash the shortest two's complement form of the digits, high byte first. The scale is not hashed."""
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
    """Return the eight bytes of each number, high byte first: uint8, shape (8 n,)."""
    return numbers.astype(">i8").view(np.uint8)


def _sign_bytes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the leading bytes (at most seven) of 64-bit numbers that only repeat the next byte's sign bit."""
    sign = numbers >> 63
    count = np.zeros(len(numbers), np.int64)
    for bits in range(7, 63, 8):
        count += numbers >> bits == sign
    return count


def _timestamp(array: pa.Array) -> NDArray[np.uint32]:
    """Hash Hive's binary form of local timestamps, taken as UTC.

    It holds the low seconds (31 bits), the nanoseconds and the high seconds.
    """
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
    """Return the bytes of each timestamp, padded with zeros to the longest form, and their lengths (int64).

    The numbers after the first four bytes have Hadoop's variable length: one byte for -112 to 127, otherwise
    a byte for sign and length, followed by the magnitude. The first of them has at most nine digits.
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
    """Reverse nine decimal digits: 5 becomes 500000000. Returns int64."""
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
"""For each kind: n values of the column's Arrow type -> uint32, shape (n,). Binary is rejected: see
bucket_hash."""
