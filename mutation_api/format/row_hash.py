"""A hash of rows that does not depend on their order. Pure.

It shows that two programs read the same rows: 64 bits for each row, summed up. It depends on the values and
the order of columns, but not on their names, the width of integers, floats and offsets, the unit of
timestamps that is read, or the order of entries in maps. All NaN are equal, and 0.0 differs from -0.0. It is
not a cryptographic hash: it finds faults, not forgeries.

Source of the mixing function: Sebastiano Vigna, splitmix64.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.format.hash_values import texts, words_of
from mutation_api.format.plain_array import map_parts, rebased_list, struct_fields

_Hashes = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0xD6E8FEB86659FD93)
_WORD = 8


def row_hashes(batch: pa.RecordBatch) -> _Hashes:
    """Return the hash of each row.

    Args:
        batch: n rows.

    Returns:
        n hashes.

    Raises:
        NotImplementedError: If a column has a type without a hash, such as a union.
    """
    return _mixed(_combined([_hashes(column) for column in batch.columns], batch.num_rows))


def sum_of_hashes(hashes: _Hashes) -> int:
    """Return the hash of rows with these hashes, in any order."""
    return int(hashes.sum(dtype=np.uint64))


def _mixed(values: _Hashes) -> _Hashes:
    mixed = values + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def _combined(parts: list[_Hashes], count: int) -> _Hashes:
    """Return one hash for several in order."""
    total = np.zeros(count, np.uint64)
    for at, part in enumerate(parts):
        total += _mixed(part ^ _mixed(np.full(1, at, np.uint64)))
    return total


def _hashes(array: pa.Array) -> _Hashes:
    found = _of_values(array)
    if array.null_count:
        found = np.where(array.is_valid().to_numpy(zero_copy_only=False), found, _NULL)
    return found


def _of_values(array: pa.Array) -> _Hashes:
    """Return the hashes of values. Those of nulls are arbitrary."""
    kind = array.type
    types = pa.types
    if types.is_null(kind):
        return np.full(len(array), _NULL, np.uint64)
    if types.is_dictionary(kind):
        return _hashes(array.dictionary_decode())
    if types.is_boolean(kind) or types.is_integer(kind):
        return _of_integers(array.cast(pa.int64()))
    if types.is_date32(kind):
        return _of_integers(array.cast(pa.int32()).cast(pa.int64()))
    if types.is_timestamp(kind):
        return _of_integers(array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()))
    if types.is_floating(kind):
        return _of_doubles(array.cast(pa.float64()))
    if types.is_decimal128(kind):
        return _of_decimals(array)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _of_bytes(array.cast(pa.large_string()))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return _of_bytes(array.cast(pa.large_binary()))
    if types.is_list(kind) or types.is_large_list(kind):
        offsets, elements = rebased_list(array)
        places = np.arange(len(elements), dtype=np.int64) - np.repeat(offsets[:-1], np.diff(offsets))
        return _of_parts(_mixed(_hashes(elements) ^ _mixed(places.astype(np.uint64))), offsets)
    if types.is_map(kind):
        offsets, *parts = map_parts(array)
        entries = _combined([_hashes(part) for part in parts], len(parts[0]))
        return _of_parts(_mixed(entries), offsets)
    if types.is_struct(kind):
        return _combined([_hashes(field) for field in struct_fields(array)], len(array))
    raise NotImplementedError(f"values of type {kind} have no hash")


def _of_integers(array: pa.Array) -> _Hashes:
    found: _Hashes = array.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    return found


def _of_doubles(array: pa.Array) -> _Hashes:
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False).copy()
    values[np.isnan(values)] = np.nan
    found: _Hashes = values.view(np.uint64)
    return found


def _of_decimals(array: pa.Array) -> _Hashes:
    words = np.frombuffer(array.buffers()[1], np.uint64, 2 * len(array), 16 * array.offset)
    return _combined([words[::2].copy(), words[1::2].copy()], len(array))


def _of_bytes(array: pa.Array) -> _Hashes:
    """Return the hashes of strings from their words of eight bytes. The last word is filled with zeros."""
    found = texts(array)
    all_words, first = words_of(found)
    lengths = found.ends - found.starts
    counts = -(-lengths // _WORD)
    ends = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(ends[-1], dtype=np.int64) - np.repeat(ends[:-1], counts)
    words = all_words[np.repeat(first, counts) + _WORD * places]
    unused = np.maximum(_WORD * (places + 1) - np.repeat(lengths, counts), 0).astype(np.uint64)
    words = words & (np.uint64(0xFFFFFFFFFFFFFFFF) >> (unused * np.uint64(8)))
    return _of_parts(_mixed(words ^ _mixed(places.astype(np.uint64))), ends) ^ lengths.astype(np.uint64)


def _of_parts(parts: _Hashes, offsets: NDArray[np.int64]) -> _Hashes:
    """Return one hash for each list of parts, whose own hashes are summed up."""
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(parts, dtype=np.uint64)])
    counts = np.diff(offsets).astype(np.uint64)
    return _mixed(sums[offsets[1:]] - sums[offsets[:-1]] + counts)
