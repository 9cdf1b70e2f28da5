"""Bloom filters of row groups: whether a group may have one of some values. Pure.

A value without an entry in a filter is certainly not in its group. Integers and strings are looked up,
because all writers agree on their hashes. Days are not, because files count them in two calendars. Neither
are floats, decimals and timestamps, nor the values of a tinyint, some of which are missing in filters that
ORC's C++ library wrote. Filters of the kind that Hive 2.3 writes are not used, because strings in
them are hashed in the encoding of the writer's JVM.

Source: orc_proto.proto (BloomFilterIndex), the ORC v1 specification (Bloom filter index), ORC's BloomFilter
and Murmur3; compared with filters that Hive and pyarrow wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError
from mutation_api.format.hive_type import INTEGER_KINDS
from mutation_api.format.murmur3 import hashes_of_bytes
from mutation_api.orc.format.compression import DAMAGE, unpacked
from mutation_api.orc.format.protobuf import as_bytes, as_number, fields_of
from mutation_api.orc.format.tail import OrcTail

HASHED_KINDS = {**dict.fromkeys(INTEGER_KINDS, (2, 3, 4)), "string": (7,)}
"""The kinds of a file's column whose values are looked up, by the kind of the table's column."""
MOST_VALUES = 1000
"""The number of values above which nearly every filter has an entry for one of them."""

_FILTER, _HASH_COUNT, _WORDS, _BYTES = 1, 1, 2, 3


@dataclass(frozen=True)
class BloomFilter:
    """The filter of one row group: ``bits``, of which a value sets ``hash_count``."""

    hash_count: int
    bits: bytes

    def may_hold(self, sought: SoughtValues) -> bool:
        """Return True if the group may have one of the sought values."""
        return bool(self.has(sought).any())

    def has(self, sought: SoughtValues) -> NDArray[np.bool_]:
        """Return which of the sought values the group may have (shape (n,))."""
        if not self.bits or not self.hash_count:
            return np.ones(len(sought), np.bool_)
        places = sought.places(self.hash_count, len(self.bits) * 8)
        bits = np.frombuffer(self.bits, np.uint8)[places >> 3] >> (places & 7).astype(np.uint8) & 1
        found: NDArray[np.bool_] = bits.all(axis=0)
        return found


class SoughtValues:
    """Sought integers or strings (n values, no nulls), and their bits in filters.

    The filters of a column nearly always have the same number of bits, so their places are kept.
    """

    def __init__(self, values: pa.Array) -> None:
        self._hashes = hashes_of(values)
        self._places: dict[tuple[int, int], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def places(self, hash_count: int, bit_count: int) -> NDArray[np.int64]:
        """Return the bits that each value sets in a filter of so many bits (shape (hash_count, n))."""
        found = self._places.get((hash_count, bit_count))
        if found is None:
            low, high = self._hashes.astype(np.int32), (self._hashes >> 32).astype(np.int32)
            with np.errstate(over="ignore"):
                combined = low + np.arange(1, hash_count + 1, dtype=np.int32)[:, None] * high
            found = np.where(combined < 0, ~combined, combined).astype(np.int64) % bit_count
            self._places[hash_count, bit_count] = found
        return found


def parse_bloom_filters(section: bytes, tail: OrcTail) -> list[BloomFilter]:
    """Return the filters of a column's row groups in a stripe.

    Args:
        section: the stream of the filters, as in the file.
        tail: the file's tail.

    Raises:
        CorruptFileError: If the bytes are not filters.
    """
    try:
        index = unpacked(section, tail.compression, tail.block_bytes)
        return [_filter(as_bytes(each)) for field, each in fields_of(index) if field == _FILTER]
    except DAMAGE as error:
        raise CorruptFileError(f"the Bloom filters of an ORC stripe cannot be parsed: {error}") from error


def _filter(message: bytes) -> BloomFilter:
    hash_count, bits = 0, b""
    words: list[bytes] = []
    for field, value in fields_of(message):
        if field == _HASH_COUNT:
            hash_count = as_number(value)
        elif field == _WORDS:
            words.append(as_bytes(value))
        elif field == _BYTES:
            bits = as_bytes(value)
    return BloomFilter(hash_count, bits or b"".join(words))


def hashes_of(values: pa.Array) -> NDArray[np.int64]:
    """Return the hashes of integers or strings (int64, shape (n,)). There must be no nulls."""
    if pa.types.is_integer(values.type):
        return _of_integers(values.to_numpy(zero_copy_only=False).astype(np.int64))
    return hashes_of_bytes(values).view(np.int64)


def _of_integers(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Thomas Wang's hash of 64 bits, with shifts that keep the sign, as in Java."""
    with np.errstate(over="ignore"):
        keys = ~keys + (keys << 21)
        keys ^= keys >> 24
        keys = keys + (keys << 3) + (keys << 8)
        keys ^= keys >> 14
        keys = keys + (keys << 2) + (keys << 4)
        keys ^= keys >> 28
        return keys + (keys << 31)
