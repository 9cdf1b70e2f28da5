"""Key columns of a merge, converted so that keys are equal exactly if they are equal in Spark.

==============================  ================================================================
source and table                equal if
==============================  ================================================================
same type                       the values are equal (NaN equals NaN, -0.0 equals 0.0)
integers and decimals           the numbers are equal, regardless of width and scale
float and double                the values are equal as doubles
strings                         the characters are equal (trailing blanks in a char are refused)
timestamps                      the local times are equal, regardless of the unit
NULL                            never, but NULL equals NULL if ``null_safe``
anything else                   refused: cast the source's column
==============================  ================================================================

Rows of the table are read with every digit of their timestamps. They are read in microseconds, which cover
all years that Hive has. A part of the table with finer values is read again as strings, which lose nothing. A
column is converted to nanoseconds where its values need them.

Messages show rows as JSON strings, see :func:`~mutation_api.format.json_values.json_texts`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import Mask
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.table.acid_table import AcidTable
from mutation_api.write.layout import is_text

_DIGITS = 20
"""The number of digits of the largest 64-bit integers."""


def key_in_type(table_name: str, name: str, values: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, Mask]:
    """Convert key values to the type of the table's column.

    Args:
        table_name: ``database.table``, for messages.
        name: the key column.
        values: n values of the source.
        wanted: type of the table's column.

    Returns:
        n values, and a mask of those that equal no value of the column, such as 300 for a tinyint. These
        become NULL.

    Raises:
        RecordLayoutError: If the types cannot be compared.
    """
    nothing = np.zeros(len(values), np.bool_)
    if values.type == wanted:
        return values, nothing
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), wanted), nothing
    if not are_comparable(values.type, wanted):
        raise RecordLayoutError(
            f"table {table_name}: key column {name!r}: {values.type} values of the source cannot be compared "
            f"with {wanted} values of the table. Cast the source's column"
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
    """Cast each distinct value, since some values do not fit."""
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
    """Cast without loss.

    Raises:
        ArrowInvalid: If a value does not fit.
    """
    if pa.types.is_integer(values.type) and pa.types.is_decimal(wanted):
        # Arrow refuses a cast to a decimal type that could not hold all integers.
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
    """Return True if key values of these types are compared here exactly as Spark compares them."""
    if pa.types.is_null(found) or (found == wanted and not pa.types.is_nested(wanted)):
        return True
    return any(is_member(found) and is_member(wanted) for is_member in _FAMILIES)


def in_one_unit(table: AcidTable, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the batches with a single type per column: nanoseconds if one of them has these.

    Raises:
        RecordValueError: See :func:`in_nanoseconds`.
    """
    if all(batch.schema == batches[0].schema for batch in batches):
        return list(batches)
    mixed = {
        name
        for number, name in enumerate(batches[0].schema.names)
        if len({batch.schema.types[number] for batch in batches}) > 1
    }
    return [
        pa.RecordBatch.from_pydict(
            {
                name: in_nanoseconds(table, name, array) if name in mixed else array
                for name, array in zip(batch.schema.names, batch.columns, strict=True)
            }
        )
        for batch in batches
    ]


def in_nanoseconds(table: AcidTable, name: str, array: pa.Array) -> pa.Array:
    """Return the values of a column with timestamps in nanoseconds.

    Raises:
        RecordValueError: If a timestamp is outside the years 1678 to 2261.
    """
    types = {column.name: column.type for column in table.all_columns}
    try:
        return convert_to_column(array, parse_hive_type(types[name]), column=name, timestamp_unit="ns")
    except (RecordLayoutError, RecordValueError) as error:
        raise type(error)(
            f"table {table.full_name}: {error}. Other rows of that column have digits below microseconds. "
            "Write these in a separate transaction"
        ) from error
