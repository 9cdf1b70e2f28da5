"""The bucket property: what the bucket field of a ROW__ID holds in v2. Pure.

Bits, from the top: 3 version (1), 1 zero, 12 bucket id, 4 zero, 12 statement id. A value whose version bits
are 0 is a plain bucket id, from a table that Hive 2 wrote.

Source: Hive's BucketCodec (V0, V1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MAX_BUCKETS",
    "MAX_STATEMENT_ID",
    "bucket_ids",
    "bucket_property",
    "ranks_in_bucket",
    "statement_ids",
    "unreadable_properties",
]

MAX_BUCKETS = 4096
"""Bucket ids are below this. Others do not fit the field of Hive 3, and Hive 4 encodes them differently."""

MAX_STATEMENT_ID = 4095
"""Highest statement id; so the properties of one bucket are consecutive."""

_VERSION_SHIFT = 29
_BUCKET_SHIFT = 16
_MASK_12 = 0xFFF
_UNUSED_BITS = 0x1000F000


def bucket_property(bucket_id: int, statement_id: int = 0) -> int:
    """Bucket property of rows that a statement inserts into a bucket: 536870912 for bucket 0, statement 0.

    Raises ValueError if one of them has more than 12 bits.
    """
    if not (0 <= bucket_id < MAX_BUCKETS and 0 <= statement_id <= _MASK_12):
        raise ValueError(f"bucket {bucket_id} and statement {statement_id} must be within 0..{_MASK_12}")
    return 1 << _VERSION_SHIFT | bucket_id << _BUCKET_SHIFT | statement_id


def bucket_ids(properties: NDArray[np.integer]) -> NDArray[np.int32]:
    """Bucket ids in bucket properties (shape (n,), int32); plain ids (version 0) stay as they are.

    The result is meaningless for values that :func:`unreadable_properties` finds.
    """
    values = properties.astype(np.int64)
    decoded = np.where(values >> _VERSION_SHIFT == 1, values >> _BUCKET_SHIFT & _MASK_12, values)
    return decoded.astype(np.int32)


def statement_ids(properties: NDArray[np.integer]) -> NDArray[np.int32]:
    """Statement ids in bucket properties (shape (n,), int32); 0 for plain ids."""
    values = properties.astype(np.int64)
    return np.where(values >> _VERSION_SHIFT == 1, values & _MASK_12, 0).astype(np.int32)


def ranks_in_bucket(properties: NDArray[np.integer]) -> NDArray[np.int64]:
    """Rank of each property among those of its bucket (shape (n,), int64).

    The plain id has rank 0, statement n has rank n + 1: small numbers in the order of the properties. The
    result is meaningless for values that :func:`unreadable_properties` finds.
    """
    values = properties.astype(np.int64)
    ranks: NDArray[np.int64] = np.where(values >> _VERSION_SHIFT == 1, 1 + (values & _MASK_12), 0)
    return ranks


def unreadable_properties(properties: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which values cannot be bucket properties that Hive wrote (shape (n,))."""
    values = properties.astype(np.int64)
    version = values >> _VERSION_SHIFT
    is_plain = (version == 0) & (values < MAX_BUCKETS)
    is_encoded = (version == 1) & (values & _UNUSED_BITS == 0)
    unreadable: NDArray[np.bool_] = ~(is_plain | is_encoded)
    return unreadable
