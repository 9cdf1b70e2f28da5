"""Converts users' values to the table's column type as Hive would store them.

If a value does not fit its type, Hive's ORC reader silently turns it into NULL or cuts it. So every value is
checked before it is written. If one does not fit, an error names its row and value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import (
    HiveType,
    MisfitError,
    UnfitTypeError,
    arrow_type,
    primitive_of_arrow,
    second_of_equal_keys,
)
from mutation_api.format.plain_array import (
    dense_union,
    has_union,
    list_offsets,
    map_parts,
    plain_array,
    rebased_list,
    struct_fields,
    union_parts,
)
from mutation_api.format.scalar_conversion import convert_scalars, shown_value


def convert_to_column(
    array: pa.Array | pa.ChunkedArray, hive_type: HiveType, *, column: str, timestamp_unit: str = "ns"
) -> pa.Array:
    """Convert values to a table column's type.

    =================  ==================================================================================
    column             accepted
    =================  ==================================================================================
    boolean            boolean
    tinyint … bigint   integers in range, and floats and decimals that are integers in range. Doubles of 2**53
                       or more and floats of 2**24 or more are refused: they may be another number, rounded
    float, double      floats (rounded to the nearest, as Hive casts, with overflow refused), decimals, and
                       integers that are represented exactly
    decimal(p,s)       decimals (rounded half up to s digits), integers, and floats below 2**53 (2**24) whose
                       shortest decimal form has at most s digits after the point. p - s digits before the
                       point must be enough
    string             strings, integers, dates
    varchar(n)         the same as for string, cut to n code points
    char(n)            the same as for varchar, then without trailing blanks
    binary             binary of any width
    date               dates, and timestamps without time zone at midnight, from 0001-01-01 to 9999-12-31
    timestamp          timestamps without time zone that the unit represents exactly, and dates, from the
                       years 1 to 9999
    array              lists, element by element
    map                maps, and lists of structs with the fields key and value. Duplicate keys (after
                       conversion) and NULL keys are refused
    struct             structs with exactly the same fields, by name in any case and order
    uniontype          unions with the same number of alternatives, by position
    =================  ==================================================================================

    Also accepted are chunked arrays, large types, the null type, and everything that
    :func:`~mutation_api.format.plain_array.plain_array` converts to such values. It refuses extension types
    whose storage does not represent their value.

    Args:
        array: n values.
        hive_type: the column's type.
        column: the column's name, for messages.
        timestamp_unit: unit of timestamps in the result.

    Returns:
        n values of exactly ``arrow_type(hive_type, timestamp_unit=…)``. Nulls stay nulls.

    Raises:
        RecordLayoutError: If values of this type can never be stored in the column.
        RecordValueError: If a value does not fit. The message contains the row (counted from 0) and the
            value.

    Source: casts as in Hive's PrimitiveObjectInspectorUtils and HiveDecimal.enforcePrecisionScale, if they
        lose
    nothing.
    """
    try:
        return _convert(array, hive_type, timestamp_unit)
    except MisfitError as misfit:
        found = f"row {misfit.row}{misfit.path}: value {misfit.value} {misfit.reason}"
        raise RecordValueError(
            f"column {column!r} ({hive_type.text}): {found}; rows of the batch are counted from 0"
        ) from misfit
    except UnfitTypeError as unfit:
        message = f"column {column!r} ({hive_type.text}){unfit.path}: {unfit.reason}"
        raise RecordLayoutError(message) from unfit


def _convert(array: pa.Array | pa.ChunkedArray, hive_type: HiveType, unit: str) -> pa.Array:
    array = plain_array(array)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), arrow_type(hive_type, timestamp_unit=unit))
    convert = _NESTED.get(hive_type.kind)
    if convert:
        return convert(array, hive_type, unit)
    return convert_scalars(array, hive_type, unit)


def _convert_child(
    array: pa.Array,
    hive_type: HiveType,
    unit: str,
    step: str,
    parents: Callable[[], NDArray[np.int64]] | None = None,
) -> pa.Array:
    """Convert nested values. ``parents()`` returns the outer row of each; it is called only for an error."""
    try:
        return _convert(array, hive_type, unit)
    except MisfitError as misfit:
        row = misfit.row if parents is None else int(parents()[misfit.row])
        raise MisfitError(row, misfit.value, misfit.reason, step + misfit.path) from misfit
    except UnfitTypeError as unfit:
        raise UnfitTypeError(unfit.reason, step + unfit.path) from unfit


def _convert_array(array: pa.Array, hive_type: HiveType, unit: str) -> pa.Array:
    if not _is_list(array.type):
        raise UnfitTypeError(f"values of type {array.type} cannot become an array")
    offsets, values = rebased_list(array)
    element = _convert_child(values, hive_type.children[0], unit, ", element", lambda: _parents(offsets))
    return pa.ListArray.from_arrays(list_offsets(offsets, array), element)


def _convert_map(array: pa.Array, hive_type: HiveType, unit: str) -> pa.Array:
    keys, items, offsets = _map_parts(array)
    key = _convert_child(keys, hive_type.children[0], unit, ", key", lambda: _parents(offsets))
    if key.null_count:
        row = int(_parents(offsets)[pc.index(key.is_null(), True).as_py()])
        raise MisfitError(row, "null", "cannot be the key of a map")
    second = second_of_equal_keys(offsets, key)
    if second is not None:
        row = int(_parents(offsets)[second])
        given, stored = shown_value(keys, second), shown_value(key, second)
        becomes = "" if given == stored else f"is stored as {stored}, which "
        raise MisfitError(row, given, f"{becomes}is a duplicate key in the map", ", key")
    item = _convert_child(items, hive_type.children[1], unit, ", value", lambda: _parents(offsets))
    return pa.MapArray.from_arrays(list_offsets(offsets, array), key, item)


def _map_parts(array: pa.Array) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
    """Return the keys, the values and n + 1 offsets of a map, or of a list of structs with key and value.

    Polars and other libraries represent maps as such lists. The order of the fields does not matter.
    """
    if pa.types.is_map(array.type):
        offsets, keys, items = map_parts(array)
        return keys, items, offsets
    if not _is_list(array.type):
        raise UnfitTypeError(f"values of type {array.type} cannot become a map")
    offsets, entries = rebased_list(array)
    entries = plain_array(entries)
    if pa.types.is_null(entries.type):
        return entries, entries, offsets
    names = [field.name.lower() for field in entries.type] if pa.types.is_struct(entries.type) else []
    if sorted(names) != ["key", "value"]:
        raise UnfitTypeError(
            f"values of type {array.type} cannot become a map: its elements are not pairs (structs with the "
            "fields key and value, in any order)"
        )
    if entries.null_count:
        row = int(_parents(offsets)[pc.index(entries.is_null(), True).as_py()])
        raise MisfitError(row, "null", "is an entry without a key", ", entry")
    fields = dict(zip(names, struct_fields(entries), strict=True))
    return fields["key"], fields["value"], offsets


def _convert_struct(array: pa.Array, hive_type: HiveType, unit: str) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise UnfitTypeError(f"values of type {array.type} cannot become a struct")
    if array.null_count and has_union(array.type):
        row = int(pc.index(array.is_null(), True).as_py())
        raise MisfitError(
            row, "null", "cannot be written: the struct has a union field; make its fields null"
        )
    given = _fields_by_lower_name(array, hive_type)
    children = [
        _convert_child(given[name.lower()], child, unit, f", field {name!r}")
        for name, child in zip(hive_type.field_names, hive_type.children, strict=True)
    ]
    fields = list(arrow_type(hive_type, timestamp_unit=unit))
    # No mask if it would be empty: pyarrow aborts the process if a struct above a union has a mask.
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _fields_by_lower_name(array: pa.Array, hive_type: HiveType) -> dict[str, pa.Array]:
    names = [array.type.field(i).name.lower() for i in range(array.type.num_fields)]
    if len(set(names)) < len(names):
        raise UnfitTypeError(f"duplicate field names (case is ignored): {names}")
    known = {name.lower() for name in hive_type.field_names}
    extra = [name for name in names if name not in known]
    if extra:
        raise UnfitTypeError(f"the struct has no field {extra}; it has {list(hive_type.field_names)}")
    missing = sorted(known.difference(names))
    if missing:
        raise UnfitTypeError(
            f"the values lack fields of the struct: {missing}; they have {names}. Add the fields, as NULL if "
            "that is intended"
        )
    # Null where the struct is null: values under a null are garbage and must not be checked.
    return dict(zip(names, struct_fields(array), strict=True))


def _convert_union(array: pa.Array, hive_type: HiveType, unit: str) -> pa.Array:
    if not pa.types.is_union(array.type):
        raise UnfitTypeError(f"values of type {array.type} cannot become a union")
    if array.type.num_fields != len(hive_type.children):
        raise UnfitTypeError(
            f"the union has {array.type.num_fields} alternatives, the column's has {len(hive_type.children)}"
        )
    tags, parts = union_parts(array)
    children = []
    for tag, (part, child) in enumerate(zip(parts, hive_type.children, strict=True)):
        rows = np.flatnonzero(tags == tag)
        children.append(
            _convert_child(part, child, unit, f", alternative {tag}", functools.partial(_same, rows))
        )
    names = [field.name for field in arrow_type(hive_type, timestamp_unit=unit)]
    return dense_union(tags, children, names)


def _same(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows


def _parents(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _is_list(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
        or pa.types.is_list_view(arrow)
        or pa.types.is_large_list_view(arrow)
    )


_NESTED = {
    "array": _convert_array,
    "map": _convert_map,
    "struct": _convert_struct,
    "uniontype": _convert_union,
}


_ADVICE = {
    pa.null(): "the column has no type yet: give it one, such as pyarrow.string()",
    pa.uint64(): "Hive has no unsigned type: use pyarrow.int64(), or pyarrow.decimal128(20) for large values",
}


def hive_type_of(arrow: pa.DataType, metadata: Mapping[bytes, bytes] | None = None) -> HiveType:
    """Return the Hive type of a new column for values of an Arrow type; the inverse of ``arrow_type``.

    An unsigned integer gets the next wider type, so that all its values fit. Encodings (dictionaries, views)
    do not matter.

    Args:
        arrow: the type.
        metadata: metadata of its field.

    Raises:
        UnfitTypeError: If Hive has no type for the values; ``path`` leads to a nested type.
    """
    return _hive_type_of(plain_array(pa.nulls(0, arrow), metadata).type)


def _hive_type_of(arrow: pa.DataType) -> HiveType:
    primitive = primitive_of_arrow(arrow)
    if primitive is not None:
        return primitive
    if _is_list(arrow):
        return HiveType("array", children=(_of_child(arrow.value_type, ".element"),))
    if pa.types.is_map(arrow):
        key, value = _of_child(arrow.key_type, ".key"), _of_child(arrow.item_type, ".value")
        return HiveType("map", children=(key, value))
    fields = [arrow.field(number) for number in range(arrow.num_fields)]
    children = tuple(_of_child(field.type, f".{field.name}") for field in fields)
    if pa.types.is_struct(arrow) and fields:
        return HiveType("struct", children=children, field_names=tuple(f.name.lower() for f in fields))
    if pa.types.is_union(arrow) and fields:
        return HiveType("uniontype", children=children)
    raise UnfitTypeError(f"Arrow type {arrow} has no Hive type{_advice(arrow)}")


def _of_child(arrow: pa.DataType, step: str) -> HiveType:
    try:
        return _hive_type_of(arrow)
    except UnfitTypeError as unfit:
        raise UnfitTypeError(unfit.reason, step + unfit.path) from unfit


def _advice(arrow: pa.DataType) -> str:
    if pa.types.is_timestamp(arrow):
        return f". Hive's timestamp has no time zone: use pyarrow.timestamp({arrow.unit!r})"
    return f"; {_ADVICE[arrow]}" if arrow in _ADVICE else ""
