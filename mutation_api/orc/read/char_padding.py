"""Values of char columns without their padding.

A file holds them padded with blanks to the length of the type, and Hive drops the blanks whatever the table's
type is now: ``HiveChar`` compares, hashes and converts the stripped value. Arrow's type of such a column is a
string, so the types in the file's footer tell which columns these are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.orc.format.stripe_ranges import column_count
from mutation_api.types.plain_array import list_offsets, map_parts, rebased_list, text_arrays

__all__ = ["may_be_padded", "without_padding"]

_BLANK = " "
_FEW_BYTES = 4096
"""So many bytes are copied and searched more quickly than the ends of texts are looked up."""


def may_be_padded(array: pa.Array) -> bool:
    """Whether a column has texts that end with a blank, at any depth."""
    return any(map(_ends_with_blank, text_arrays(array)))


def _ends_with_blank(array: pa.StringArray) -> bool:
    """In a quarter of the time that Arrow's functions take for the few rows of a small file."""
    _, offsets, data = array.buffers()
    if data is None or not data.size or offsets is None:
        return False
    if data.size <= _FEW_BYTES and _BLANK.encode() not in data.to_pybytes():
        return False
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    ends = bounds[1:][bounds[1:] > bounds[:-1]] - 1
    return bool((np.frombuffer(data, np.uint8)[ends] == ord(_BLANK)).any())


def without_padding(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    """A column whose char values are stripped, at any depth.

    Args:
        array: n values; a struct may lack fields of the file's.
        in_file: the column's type in the file, with all fields.
        number: the column's number in the file.
        chars: numbers of the columns of type char.

    Returns:
        n values of the same type.
    """
    if chars.isdisjoint(range(number, number + column_count(in_file))):
        return array
    if pa.types.is_string(in_file):
        return pc.utf8_rtrim(array, _BLANK)
    return _NESTED[type(in_file)](array, in_file, number, chars)


def _list(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    offsets, values = rebased_list(array)
    stripped = without_padding(values, in_file.value_type, number + 1, chars)
    return pa.ListArray.from_arrays(list_offsets(offsets, array), stripped).cast(array.type)


def _map(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    offsets, keys, items = map_parts(array)
    behind_keys = number + 1 + column_count(in_file.key_type)
    stripped = [
        without_padding(keys, in_file.key_type, number + 1, chars),
        without_padding(items, in_file.item_type, behind_keys, chars),
    ]
    return pa.MapArray.from_arrays(list_offsets(offsets, array), *stripped)


def _struct(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    numbers, at = {}, number + 1
    for field in in_file:
        numbers[field.name] = (field.type, at)
        at += column_count(field.type)
    children = [
        without_padding(array.field(i), *numbers[field.name], chars) for i, field in enumerate(array.type)
    ]
    # No mask if it would be empty: pyarrow aborts the process when a struct above a union has a mask.
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)


def _union(array: pa.Array, in_file: pa.DataType, number: int, chars: frozenset[int]) -> pa.Array:
    children, at = [], number + 1
    for i in range(in_file.num_fields):
        children.append(without_padding(array.field(i), in_file.field(i).type, at, chars))
        at += column_count(in_file.field(i).type)
    names = [in_file.field(i).name for i in range(in_file.num_fields)]
    if isinstance(in_file, pa.SparseUnionType):
        return pa.UnionArray.from_sparse(array.type_codes, children, names)
    return pa.UnionArray.from_dense(array.type_codes, array.offsets, children, names)


_NESTED: dict[type, Callable[[pa.Array, pa.DataType, int, frozenset[int]], pa.Array]] = {
    pa.ListType: _list,
    pa.MapType: _map,
    pa.StructType: _struct,
    pa.DenseUnionType: _union,
    pa.SparseUnionType: _union,
}
