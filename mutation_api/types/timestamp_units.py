"""Whether timestamps need nanoseconds, which hold 1678 to 2261, or microseconds do, which hold all years."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.types.plain_array import (
    has_timestamp,
    map_parts,
    plain_array,
    rebased_list,
    struct_fields,
    union_parts,
)

__all__ = ["exact_unit"]

_PER_MICROSECOND = 1000


def exact_unit(array: pa.Array | pa.ChunkedArray) -> str:
    """``ns`` if a timestamp, at any depth, has digits below microseconds; otherwise ``us``.

    Raises:
        UnfitTypeError: see :func:`~mutation_api.types.plain_array.plain_array`.
    """
    if "[ns" not in str(array.type):
        return "us"
    return "ns" if any(map(_has_fine_digits, _timestamps(plain_array(array)))) else "us"


def _has_fine_digits(array: pa.Array) -> bool:
    values = pc.fill_null(array.view(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return bool(np.any(values % _PER_MICROSECOND))


def _timestamps(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        if kind.unit == "ns":
            yield array
    elif has_timestamp(kind):
        for child in _children(array):
            yield from _timestamps(child)


def _children(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(array.type):
        return struct_fields(array)
    if pa.types.is_map(array.type):
        return [*map_parts(array)[1:]]
    if pa.types.is_union(array.type):
        return union_parts(array)[1]
    return [rebased_list(array)[1]]
