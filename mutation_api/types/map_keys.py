"""Keys that occur twice in one map; whole arrays at a time. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["second_of_equal_keys"]


def second_of_equal_keys(offsets: NDArray[np.int64], keys: pa.Array) -> int | None:
    """Position of the first key that its map has before; None if there is none.

    Hive's readers keep one entry of each key, Arrow's keep both. -0.0 equals 0.0, and NaN equals NaN.

    Args:
        offsets: int64, n + 1; map i has the keys from ``offsets[i]`` to ``offsets[i + 1]``.
        keys: the keys of all maps, without nulls, as they are stored.
    """
    lengths = np.diff(offsets)
    if lengths.max(initial=0) < 2:
        return None
    codes = _codes(keys)
    numbers = np.repeat(np.arange(len(lengths)), lengths) * (int(codes.max(initial=0)) + 1) + codes
    order = np.argsort(numbers, kind="stable")
    is_second = numbers[order][1:] == numbers[order][:-1]
    return int(order[1:][is_second].min()) if is_second.any() else None


def _codes(keys: pa.Array) -> NDArray[np.int64]:
    """A number for each distinct key."""
    if pa.types.is_nested(keys.type):
        distinct: dict[str, int] = {}
        # Hive's SQL has no such keys, so this is rare.
        return np.array([distinct.setdefault(repr(key), len(distinct)) for key in keys.to_pylist()], np.int64)
    if pa.types.is_floating(keys.type):
        keys = pa.array(keys.to_numpy(zero_copy_only=False) + 0.0)  # -0.0 becomes 0.0
    codes: NDArray[np.int64] = (
        keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return codes
