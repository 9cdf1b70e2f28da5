"""Key columns of a merge's source in the types of the table's, equal exactly where Spark finds them equal.

==============================  ================================================================
source and table                equal if
==============================  ================================================================
same type                       equal values; NaN equals NaN, -0.0 equals 0.0
whole numbers and decimals      the numbers are equal, whatever width and scale
float and double                equal as doubles
texts                           the same characters; blanks at the end of a char's key are refused
timestamps                      the same instant on the wall clock, whatever unit
NULL                            to nothing, with ``null_safe`` to NULL
anything else                   refused: cast the source's column
==============================  ================================================================
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.change_set.layout import is_text
from mutation_api.errors import RecordLayoutError
from mutation_api.worker.row_ids import Mask

__all__ = ["are_comparable", "key_in_type"]

_DIGITS = 20
"""Digits of the largest integers of 64 bits."""


def key_in_type(table_name: str, name: str, values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    """Key values in the type of the table's column.

    Args:
        table_name: for messages.
        name: the key column.
        values: n values of the source.
        wanted: type of the table's column.

    Returns:
        n values, and which of them equal no value of the column, as 300 equals no tinyint; those are NULL.

    Raises:
        RecordLayoutError: the types cannot be compared.
    """
    nothing = np.zeros(len(values), np.bool_)
    if values.type == wanted:
        return values, nothing
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), wanted), nothing
    if not are_comparable(values.type, wanted):
        raise RecordLayoutError(
            f"table {table_name}: key column {name!r}: values of type {values.type} cannot be compared with "
            f"the table's {wanted}; cast the source's column"
        )
    if pa.types.is_floating(wanted):
        return _floats(values, wanted)
    try:
        return _exactly(values, wanted), nothing
    except pa.ArrowInvalid:
        return _one_by_one(values, wanted)


def _floats(values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    cast = values.cast(wanted, safe=False)
    as_doubles = pc.equal(cast.cast(pa.float64()), values.cast(pa.float64()))
    is_nan = pc.is_nan(values)
    same = pc.fill_null(pc.or_(as_doubles, is_nan), True).to_numpy(zero_copy_only=False)
    return _masked(cast, ~same), ~same


def _one_by_one(values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    """Some of the values do not fit: try each distinct one."""
    encoded = values.dictionary_encode()
    found = [_cast(value, wanted) for value in encoded.dictionary]
    distinct = pa.array(found, wanted)
    indices = encoded.indices
    lost_values = pa.array([value is None for value in found], pa.bool_())
    lost = pc.fill_null(lost_values.take(indices), False).to_numpy(zero_copy_only=False)
    return distinct.take(indices), lost


def _cast(value: pa.Scalar, wanted: pa.DataType) -> object:
    try:
        return _exactly(value, wanted).as_py()
    except pa.ArrowInvalid:
        return None


def _exactly(values: pa.Array | pa.Scalar, wanted: pa.DataType) -> pa.Array | pa.Scalar:
    """Cast without loss. Raises ArrowInvalid: a value does not fit."""
    if pa.types.is_integer(values.type) and pa.types.is_decimal(wanted):
        # Arrow refuses a decimal that could not hold all integers.
        values = values.cast(pa.decimal256(_DIGITS + wanted.scale, wanted.scale))
    return values.cast(wanted)


def _masked(array: pa.Array, mask: Mask) -> pa.Array:
    return pc.if_else(pa.array(mask), pa.scalar(None, array.type), array) if mask.any() else array


def _is_exact_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_decimal(data_type))


def _is_binary(data_type: pa.DataType) -> bool:
    kinds = (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_binary_view,
    )
    return any(is_kind(data_type) for is_kind in kinds)


def _is_wall_clock(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(data_type) and data_type.tz is None)


_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    _is_exact_number,
    pa.types.is_floating,
    is_text,
    _is_binary,
    _is_wall_clock,
    pa.types.is_date,
)


def are_comparable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether key values of these types are compared here as Spark compares them."""
    if pa.types.is_null(found) or (found == wanted and not pa.types.is_nested(wanted)):
        return True
    return any(is_member(found) and is_member(wanted) for is_member in _FAMILIES)
