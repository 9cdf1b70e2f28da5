"""Hive's bucketing hashes for all column types: version 1 (before Hive 3) and version 2 (murmur). Pure.

The hash of a row is ``h = 31*h + column_hash`` over the bucket columns, starting from 0 and wrapping at 32
bits. Null hashes to 0 in every type. The values must already have the table's column types, because int -1
and bigint -1 hash differently. :class:`~mutation_api.table.bucket_resolver.BucketIdResolver` converts
them.

Two mistakes of Hive became part of the format: the values of a map are hashed by version 1 even within
version 2, and version 2 does not hash a decimal's scale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, RecordLayoutError, TableNotMutableError
from mutation_api.format.event import MAX_BUCKETS
from mutation_api.format.hash_v1 import V1_HASHES, polynomial, proleptic_date
from mutation_api.format.hash_v2 import V2_HASHES
from mutation_api.format.hive_type import HiveType, TypeFamily, arrow_type
from mutation_api.format.plain_array import map_parts, plain_array, rebased_list, struct_fields, union_parts


def hash_columns(
    arrays: Sequence[pa.Array | pa.ChunkedArray],
    hive_types: Sequence[HiveType],
    version: int,
    time_zone: str | None = None,
    *,
    hybrid_dates: bool = True,
) -> NDArray[np.int32]:
    """Hash the bucket columns of n rows.

    Args:
        arrays: one array per bucket column, in CLUSTERED BY order, with n values of the column's Arrow type.
            Sliced, chunked, dictionary, large and view arrays and timestamps of any unit are accepted.
        hive_types: the columns' types, in the same order.
        version: the bucketing version, 1 or 2.
        time_zone: the time zone of Hive's own processes. Required if version 1 hashes a timestamp.
        hybrid_dates: True if version 1 hashes dates before 1582-10-15 as Hive 2.3 does, which counts days in
            the hybrid calendar. Hive 3.1 and 4.1 hash proleptic days; version 2 always does.

    Returns:
        int32, shape (n,).

    Raises:
        TableNotMutableError, ConfigurationError: See :func:`check_hashable`.
        RecordLayoutError: If an array does not have its column's type.
        RecordValueError: If version 1 hashes a timestamp whose instant in the time zone is unknown.

    Source: Hive's ObjectInspectorUtils.getBucketHashCode(Old); tests/golden/bucket_hash, and the same classes
    of Hive 3.1.3 and 4.1.0 for early dates and timestamps.
    """
    if not arrays or len(arrays) != len(hive_types):
        raise ConfigurationError(
            f"got {len(arrays)} arrays for {len(hive_types)} bucket columns; at least one is needed, and "
            "one per column"
        )
    check_hashable(hive_types, version, time_zone)
    rules = _Rules(version, time_zone, hybrid_dates and version == 1)
    hashes = np.zeros(len(arrays[0]), np.uint32)
    for array, hive_type in zip(arrays, hive_types, strict=True):
        hashes = hashes * np.uint32(31) + _hash(array, hive_type, rules)
    return hashes.view(np.int32)


def bucket_ids(hashes: NDArray[np.int32], num_buckets: int) -> NDArray[np.int32]:
    """Return the bucket of each hash.

    Args:
        hashes: int32, shape (n,).
        num_buckets: the table's bucket count, 1 to 4096.

    Returns:
        int32, shape (n,), each 0 <= id < num_buckets.

    Raises:
        TableNotMutableError: If the bucket count is out of range.

    Source: Hive's ObjectInspectorUtils.getBucketNumber: the sign bit is masked, not negated.
    """
    if not 1 <= num_buckets <= MAX_BUCKETS:
        raise TableNotMutableError(f"a table must have 1 to {MAX_BUCKETS} buckets, got {num_buckets}")
    return (hashes & 0x7FFFFFFF) % np.int32(num_buckets)


def check_hashable(hive_types: Sequence[HiveType], version: int, time_zone: str | None) -> None:
    """Check that these types can be hashed, before any value is read.

    Raises:
        TableNotMutableError: If version 2 would hash a binary value. Hive hashes stale bytes after such a
            value, so no writer can compute the same hash.
        ConfigurationError: If the version is unknown, or if version 1 hashes a timestamp and the time zone is
            missing.
    """
    if version not in (1, 2):
        raise ConfigurationError(f"bucketing version must be 1 or 2, got {version}")
    for hive_type in hive_types:
        if _binary_in_v2(hive_type, version):
            raise TableNotMutableError(
                f"bucket column type {hive_type.text}: "
                "Hive's hash of binary in bucketing version 2 is not well defined"
            )
        if time_zone is None and _timestamp_in_v1(hive_type, version):
            raise ConfigurationError(
                f"bucket column type {hive_type.text}: in bucketing version 1 a timestamp's hash depends "
                "on the time zone of Hive's processes; name the zone (time_zone, for example UTC)"
            )


def _binary_in_v2(hive_type: HiveType, version: int) -> bool:
    kinds = (kind for kind, used in _kinds(hive_type, version) if used == 2)
    return any(kind not in V2_HASHES and kind not in _NESTED for kind in kinds)


def _timestamp_in_v1(hive_type: HiveType, version: int) -> bool:
    return any(kind == "timestamp" and used == 1 for kind, used in _kinds(hive_type, version))


def _kinds(hive_type: HiveType, version: int) -> list[tuple[str, int]]:
    """Return every nested kind, with the version that hashes it."""
    found = [(hive_type.kind, version)]
    for index, child in enumerate(hive_type.children):
        in_map_value = hive_type.kind == "map" and index == 1
        found.extend(_kinds(child, 1 if in_map_value else version))
    return found


@dataclass(frozen=True)
class _Rules:
    version: int
    time_zone: str | None
    hybrid_dates: bool


def _hash(array: pa.Array | pa.ChunkedArray, hive_type: HiveType, rules: _Rules) -> NDArray[np.uint32]:
    """Return the hashes of an array: uint32, shape (n,); 0 for nulls."""
    array = plain_array(array)
    if pa.types.is_null(array.type):
        return np.zeros(len(array), np.uint32)
    array = _expected_layout(array, hive_type)
    nested = _NESTED.get(hive_type.kind)
    if nested:
        hashes = nested(array, hive_type, rules)
    elif rules.version == 1 and hive_type.kind == "date" and not rules.hybrid_dates:
        hashes = proleptic_date(array)
    elif rules.version == 1:
        hashes = V1_HASHES[hive_type.kind](array, rules.time_zone)
    else:
        hashes = V2_HASHES[hive_type.kind](array)
    if array.null_count:
        hashes = np.where(array.is_valid().to_numpy(zero_copy_only=False), hashes, np.uint32(0))
    return hashes


def _expected_layout(array: pa.Array, hive_type: HiveType) -> pa.Array:
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_string() if pa.types.is_string_view(array.type) else pa.large_binary())
    if not _is_layout(array.type, hive_type):
        raise RecordLayoutError(
            f"values of type {array.type} cannot be hashed as {hive_type.text}; convert them before hashing"
        )
    return array


def _is_layout(arrow: pa.DataType, hive_type: HiveType) -> bool:
    """Return True if the hashes read the buffers of this Arrow type."""
    if hive_type.family is TypeFamily.NESTED:
        return any(getattr(pa.types, f"is_{name}")(arrow) for name in _NESTED_LAYOUTS[hive_type.kind])
    expected = arrow_type(hive_type)
    wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(expected)
    is_split = hive_type.family is TypeFamily.TIMESTAMP and pa.types.is_struct(arrow)
    return arrow.id == expected.id or arrow == wide or is_split


def _hash_array(array: pa.Array, hive_type: HiveType, rules: _Rules) -> NDArray[np.uint32]:
    offsets, values = rebased_list(array)
    hashes = _hash(values, hive_type.children[0], rules)
    return polynomial(hashes, offsets[:-1], offsets[1:], 0)


def _hash_map(array: pa.Array, hive_type: HiveType, rules: _Rules) -> NDArray[np.uint32]:
    offsets, keys, items = map_parts(array)
    in_value = dataclasses.replace(rules, version=1)
    pairs = _hash(keys, hive_type.children[0], rules) ^ _hash(items, hive_type.children[1], in_value)
    sums = np.zeros(len(pairs) + 1, np.uint32)
    np.cumsum(pairs, dtype=np.uint32, out=sums[1:])
    hashes: NDArray[np.uint32] = sums[offsets[1:]] - sums[offsets[:-1]]
    return hashes


def _hash_struct(array: pa.Array, hive_type: HiveType, rules: _Rules) -> NDArray[np.uint32]:
    if array.type.num_fields != len(hive_type.children):
        raise RecordLayoutError(
            f"values of type {array.type} cannot be hashed as {hive_type.text}: the number of fields differs"
        )
    hashes = np.zeros(len(array), np.uint32)
    for field, child in zip(struct_fields(array), hive_type.children, strict=True):
        hashes = hashes * np.uint32(31) + _hash(field, child, rules)
    return hashes


def _hash_union(array: pa.Array, hive_type: HiveType, rules: _Rules) -> NDArray[np.uint32]:
    """Hash only the value that a union holds, not its tag."""
    if array.type.num_fields != len(hive_type.children):
        raise RecordLayoutError(
            f"values of type {array.type} cannot be hashed as {hive_type.text}: the number of "
            "alternatives differs"
        )
    tags, parts = union_parts(array)
    hashes = np.zeros(len(array), np.uint32)
    for tag, (part, child) in enumerate(zip(parts, hive_type.children, strict=True)):
        hashes[tags == tag] = _hash(part, child, rules)
    return hashes


_NESTED = {"array": _hash_array, "map": _hash_map, "struct": _hash_struct, "uniontype": _hash_union}

_NESTED_LAYOUTS = {
    "array": ("list", "large_list", "fixed_size_list", "list_view", "large_list_view"),
    "map": ("map",),
    "struct": ("struct",),
    "uniontype": ("union",),
}
"""For each kind, the Arrow types whose buffers the hashes read, named as in ``pyarrow.types.is_…``."""
