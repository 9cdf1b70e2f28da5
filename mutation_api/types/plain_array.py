"""Arrow arrays in their plainest form: one chunk, no encoding, offsets that start at 0. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = [
    "dense_union",
    "has_timestamp",
    "has_union",
    "list_offsets",
    "map_parts",
    "plain_array",
    "rebased_list",
    "struct_fields",
    "union_parts",
]


def plain_array(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array without dictionary, run-end or extension encoding; the values are the same."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def rebased_list(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Offsets (int64, n + 1, from 0) and values of a list array of any layout; null lists hold no values.

    Values that no visible list refers to (sliced away, or under a null) are gone.
    """
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, array.flatten()


def map_parts(array: pa.Array) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    """Offsets (as of :func:`rebased_list`), keys and values of a map array."""
    entry = pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)])
    offsets, entries = rebased_list(array.cast(pa.list_(entry)))
    keys, items = struct_fields(entries)
    return offsets, keys, items


def has_union(arrow: pa.DataType) -> bool:
    """Whether a type is, or contains, a union."""
    return bool(pa.types.is_union(arrow)) or any(
        has_union(arrow.field(i).type) for i in range(arrow.num_fields)
    )


def has_timestamp(arrow: pa.DataType) -> bool:
    """Whether a type is, or contains, a timestamp."""
    return bool(pa.types.is_timestamp(arrow)) or any(
        has_timestamp(arrow.field(i).type) for i in range(arrow.num_fields)
    )


def struct_fields(array: pa.Array) -> list[pa.Array]:
    """Fields of a struct array; values under a null struct become null.

    Fields that are or hold unions keep such values: pyarrow 26 aborts the process when it should hide part of
    a union.
    """
    if not has_union(array.type):
        fields: list[pa.Array] = array.flatten()
        return fields
    return [
        array.field(i) if has_union(array.type.field(i).type) else pc.struct_field(array, [i])
        for i in range(array.type.num_fields)
    ]


def list_offsets(offsets: NDArray[np.int64], array: pa.Array) -> pa.Array:
    """Offsets as ``ListArray.from_arrays`` takes them: null where ``array`` is null.

    Raises:
        pa.ArrowInvalid: more than 2**31 - 1 values.
    """
    mask = np.append(array.is_null().to_numpy(zero_copy_only=False), False) if array.null_count else None
    return pa.array(offsets, mask=mask).cast(pa.int32())


def union_parts(array: pa.Array) -> tuple[NDArray[np.int8], list[pa.Array]]:
    """Tags (int8, position of the alternative) and, for each alternative, its values in row order."""
    start, stop = array.offset, array.offset + len(array)
    # pyarrow's type_codes and offsets ignore the slice, so the buffers are read.
    buffers = array.buffers()
    codes = np.frombuffer(buffers[1], np.int8)[start:stop] if len(array) else np.zeros(0, np.int8)
    tag_of_code = np.zeros(128, np.int8)
    for tag, code in enumerate(array.type.type_codes):
        tag_of_code[code] = tag
    tags = tag_of_code[codes]
    if array.type.mode == "dense":
        indices = np.frombuffer(buffers[2], np.int32)[start:stop] if len(array) else np.zeros(0, np.int32)
    else:
        indices = np.arange(len(array), dtype=np.int32)
    return tags, [
        array.field(tag).take(pa.array(indices[tags == tag])) for tag in range(array.type.num_fields)
    ]


def dense_union(tags: NDArray[np.int8], parts: list[pa.Array], names: list[str]) -> pa.UnionArray:
    """Inverse of :func:`union_parts`.

    Args:
        tags: int8, shape (n,), position of the alternative of each row.
        parts: for each alternative its values in row order.
        names: of the alternatives.
    """
    indices = np.zeros(len(tags), np.int32)
    for tag, part in enumerate(parts):
        indices[tags == tag] = np.arange(len(part))
    return pa.UnionArray.from_dense(pa.array(tags), pa.array(indices), parts, names)
