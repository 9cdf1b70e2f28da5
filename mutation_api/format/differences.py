"""Compare pairs of values. As with Spark's ``<=>``, NULL equals NULL, NaN equals NaN, -0.0 equals 0.0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.event import Mask
from mutation_api.format.plain_array import struct_fields


def differs(before: pa.Array, after: pa.Array) -> Mask:
    """Return a mask of the pairs of values, of the same Arrow type, that differ.

    One side may have timestamps in microseconds and the other in nanoseconds.
    """
    if pa.types.is_null(before.type):
        equal: Mask = np.zeros(len(before), np.bool_)
        return equal
    if pa.types.is_struct(before.type):
        found: Mask = _null_mask(before) != _null_mask(after)
        for one, other in zip(struct_fields(before), struct_fields(after), strict=True):
            found |= differs(one, other)
        return found
    if pa.types.is_list(before.type):
        return _lists_differ(before, after)
    if pa.types.is_nested(before.type):
        pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
        is_map = pa.types.is_map(before.type)
        return np.array([_plain(a, is_map=is_map) != _plain(b, is_map=is_map) for a, b in pairs], np.bool_)
    if before.type != after.type and pa.types.is_timestamp(before.type):
        return _clocks_differ(before, after)
    unequal = pc.not_equal(before, after)
    if pa.types.is_floating(before.type):
        unequal = pc.and_(unequal, pc.invert(pc.and_(pc.is_nan(before), pc.is_nan(after))))
    differing: Mask = pc.fill_null(unequal, False).to_numpy(zero_copy_only=False)
    differing |= _null_mask(before) != _null_mask(after)
    return differing


def _lists_differ(before: pa.ListArray, after: pa.ListArray) -> Mask:
    is_null, is_other_null = _null_mask(before), _null_mask(after)
    lengths = [np.asarray(pc.fill_null(pc.list_value_length(each), 0), np.int64) for each in (before, after)]
    differing: Mask = (is_null != is_other_null) | (lengths[0] != lengths[1])
    alike = np.flatnonzero(~differing & ~is_null & (lengths[0] > 0))
    if len(alike):
        indices = pa.array(alike)
        elements = differs(before.take(indices).flatten(), after.take(indices).flatten())
        starts = np.append(0, np.cumsum(lengths[0][alike])[:-1])
        differing[alike] = np.logical_or.reduceat(elements, starts)
    return differing


def _clocks_differ(before: pa.Array, after: pa.Array) -> Mask:
    """Return a mask of the timestamps of two units that differ. A cast to the finer unit could overflow."""
    differing: Mask = _null_mask(before) != _null_mask(after)
    parts = [_microseconds(each) for each in (before, after)]
    both = ~_null_mask(before) & ~_null_mask(after)
    for one, other in zip(*parts, strict=True):
        differing |= both & (one != other)
    return differing


def _microseconds(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return whole microseconds and the remaining nanoseconds."""
    values = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    whole, rest = np.divmod(values, 1000 if array.type.unit == "ns" else 1)
    return whole, rest


def _null_mask(array: pa.Array) -> Mask:
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _plain(value: Any, *, is_map: bool = False) -> Any:
    """Return a nested value for which Python's ``==`` gives the same result: NaN as a string, maps sorted."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        items = [_plain(each) for each in value]
        is_entries = is_map or (bool(value) and all(isinstance(each, tuple) for each in value))
        return sorted(items, key=repr) if is_entries else items
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    return value
