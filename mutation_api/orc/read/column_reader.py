"""Columns of an ORC file as the table's columns: what Hive 2.3 shows when file and table differ.

A table's columns may have changed since a file was written, and a file may hold properties that Arrow's types
do not express: day numbers of the hybrid calendar. Reading follows Hive: integers widen, a value that no
longer fits the column's type is NULL, decimals are rounded half up, char and varchar are cut, and char has no
blanks at its end, as Hive compares it. Other conversions (Hive has some, e.g. text to numbers) are refused,
because a wrong value would go unnoticed.

Source: ORC's SchemaEvolution and ConvertTreeReaderFactory; compared with Hive 2.3.10 reading the same files.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import CorruptFileError, RecordValueError
from mutation_api.types.calendar import proleptic_from_hybrid_days
from mutation_api.types.hive_type import INTEGER_KINDS, HiveType, arrow_type
from mutation_api.types.plain_array import (
    dense_union,
    list_offsets,
    map_parts,
    rebased_list,
    struct_fields,
    union_parts,
)

__all__ = [
    "BATCH_ROWS_DEFAULT",
    "FINE_TIMESTAMPS",
    "ReadOptions",
    "TimestampForm",
    "column_type",
    "read_column",
    "replace_timestamps",
]

BATCH_ROWS_DEFAULT = 65_536

FINE_TIMESTAMPS = (
    "microseconds cannot hold it, nor can Spark; truncate_nanoseconds=True of a read drops the rest, "
    "timestamps=TimestampForm.NANOSECONDS of a scan keeps it, or leave the column out"
)
"""What to do about such a timestamp."""

_INT_DIGITS = {"int8": 3, "int16": 5, "int32": 10, "int64": 19}


class TimestampForm(enum.Enum):
    """Form of timestamps (wall clocks without zone) in a snapshot.

    NANOSECONDS: exact, years 1678 to 2261; MICROSECONDS: as in Spark, years 1 to 9999; TEXT:
    ``2015-11-19T12:34:56.789``, trailing zeros of the fraction dropped: exact, years 1 to 9999.
    """

    NANOSECONDS = "ns"
    MICROSECONDS = "us"
    TEXT = "text"

    @property
    def arrow(self) -> pa.DataType:
        """Arrow type of a timestamp in this form."""
        return pa.string() if self is TimestampForm.TEXT else pa.timestamp(self.value)


@dataclass(frozen=True)
class ReadOptions:
    """Form of the rows that are returned.

    ``truncate_nanoseconds`` lets MICROSECONDS drop digits; without it such a value is an error.
    ``batch_rows`` bounds the rows of one batch. The reader sets ``is_proleptic``, the calendar of the file's
    days, and ``widens_floats_by_text``, how Hive turns floats into doubles.
    """

    timestamp_form: TimestampForm = TimestampForm.NANOSECONDS
    truncate_nanoseconds: bool = False
    batch_rows: int = BATCH_ROWS_DEFAULT
    is_proleptic: bool = False
    widens_floats_by_text: bool = False


def column_type(hive_type: HiveType, form: TimestampForm) -> pa.DataType:
    """Arrow type of a column in a snapshot."""
    return replace_timestamps(arrow_type(hive_type), form.arrow)


def replace_timestamps(data_type: pa.DataType, replacement: pa.DataType) -> pa.DataType:
    """The type, with every timestamp at any depth replaced."""
    if pa.types.is_timestamp(data_type):
        return replacement
    if pa.types.is_list(data_type):
        return pa.list_(replace_timestamps(data_type.value_type, replacement))
    if pa.types.is_map(data_type):
        key, item = (replace_timestamps(t, replacement) for t in (data_type.key_type, data_type.item_type))
        return pa.map_(key, item)
    fields = [data_type.field(i) for i in range(data_type.num_fields)]
    changed = [f.with_type(replace_timestamps(f.type, replacement)) for f in fields]
    if pa.types.is_struct(data_type):
        return pa.struct(changed)
    if pa.types.is_union(data_type):
        return pa.dense_union(changed)
    return data_type


def read_column(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    """Values of a file's column as the table's column.

    Args:
        array: n values as in the file; timestamps as nanoseconds, or already in the wanted form.
        hive_type: the table column's type.
        options: the form of timestamps.

    Returns:
        n values of ``column_type(hive_type, options.timestamp_form)``.

    Raises:
        CorruptFileError: the file's type cannot be read as the table's; the message has both.
        RecordValueError: a timestamp does not fit the wanted form.
    """
    return _READERS[hive_type.kind](array, hive_type, options)


def _misfit(array: pa.Array, hive_type: HiveType) -> CorruptFileError:
    return CorruptFileError(f"the file holds {array.type}, which cannot be read as {hive_type.text}")


def _read_same(array: pa.Array, hive_type: HiveType, _options: ReadOptions) -> pa.Array:
    if array.type != arrow_type(hive_type):
        raise _misfit(array, hive_type)
    return array


def _read_integer(array: pa.Array, hive_type: HiveType, _options: ReadOptions) -> pa.Array:
    target = arrow_type(hive_type)
    if array.type == target:
        return array
    if not pa.types.is_signed_integer(array.type):
        raise _misfit(array, hive_type)
    if array.type.bit_width > target.bit_width:
        low, high = np.iinfo(target.to_pandas_dtype()).min, np.iinfo(target.to_pandas_dtype()).max
        fits = pc.and_(pc.greater_equal(array, int(low)), pc.less_equal(array, int(high)))
        array = pc.if_else(fits, array, pa.scalar(None, array.type))
    return array.cast(target)


def _read_float(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    target = arrow_type(hive_type)
    if array.type == target:
        return array
    if not (pa.types.is_signed_integer(array.type) or pa.types.is_floating(array.type)):
        raise _misfit(array, hive_type)
    if options.widens_floats_by_text and pa.types.is_float32(array.type):
        array = array.cast(pa.string())
    return array.cast(target, safe=False)


def _read_decimal(array: pa.Array, hive_type: HiveType, _options: ReadOptions) -> pa.Array:
    target = arrow_type(hive_type)
    if array.type == target:
        return array
    if pa.types.is_signed_integer(array.type):
        array = array.cast(pa.decimal128(_INT_DIGITS[str(array.type)], 0))
    if not pa.types.is_decimal(array.type):
        raise _misfit(array, hive_type)
    wide = array.cast(pa.decimal256(76, max(array.type.scale, hive_type.scale)))
    rounded = pc.round(wide, hive_type.scale, "half_towards_infinity")
    whole_digits = hive_type.precision - hive_type.scale
    limit = pa.scalar(10**whole_digits, pa.decimal256(40, 0))
    fits = pc.less(pc.abs(rounded), limit.cast(pa.decimal256(76, wide.type.scale)))
    return pc.if_else(fits, rounded, pa.scalar(None, rounded.type)).cast(target)


def _read_text(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    if pa.types.is_signed_integer(array.type) or pa.types.is_date32(array.type):
        dates = pa.types.is_date32(array.type)
        array = (_read_date(array, HiveType("date"), options) if dates else array).cast(pa.string())
    if not pa.types.is_string(array.type):
        raise _misfit(array, hive_type)
    if hive_type.kind == "string":
        return array
    cut = _cut(array, hive_type.length)
    return pc.utf8_rtrim(cut, " ") if hive_type.kind == "char" else cut


def _cut(array: pa.Array, length: int) -> pa.Array:
    longest = pc.max(pc.binary_length(array)).as_py() or 0  # bytes: at least as many as code points
    return pc.utf8_slice_codeunits(array, 0, length) if longest > length else array


def _read_date(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    if not pa.types.is_date32(array.type):
        raise _misfit(array, hive_type)
    if options.is_proleptic:
        return array
    stored = pc.fill_null(array.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
    days = proleptic_from_hybrid_days(stored)
    if days is stored:
        return array
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(days, type=pa.int32(), mask=mask).cast(pa.date32())


def _read_timestamp(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    form = options.timestamp_form
    if array.type == form.arrow:
        return array
    if array.type != pa.timestamp("ns"):
        raise _misfit(array, hive_type)
    return _timestamp_text(array) if form is TimestampForm.TEXT else _microseconds(array, options)


def _microseconds(array: pa.Array, options: ReadOptions) -> pa.Array:
    if options.truncate_nanoseconds:
        return pc.floor_temporal(array, unit="microsecond").cast(pa.timestamp("us"))
    try:
        return array.cast(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise RecordValueError(
            f"a timestamp has more than six digits of a second ({error}): {FINE_TIMESTAMPS}"
        ) from error


def _timestamp_text(array: pa.Array) -> pa.Array:
    texts = pc.strftime(array, format="%Y-%m-%dT%H:%M:%S")
    return pc.replace_substring_regex(texts, r"\.0+$|(\.\d*?[1-9])0+$", r"\1") if len(texts) else texts


def _read_array(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    if not pa.types.is_list(array.type):
        raise _misfit(array, hive_type)
    offsets, values = rebased_list(array)
    element = read_column(values, hive_type.children[0], options)
    result = pa.ListArray.from_arrays(list_offsets(offsets, array), element)
    return result.cast(column_type(hive_type, options.timestamp_form))


def _read_map(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    if not pa.types.is_map(array.type):
        raise _misfit(array, hive_type)
    offsets, *parts = map_parts(array)
    keys, items = (
        read_column(part, child, options) for part, child in zip(parts, hive_type.children, strict=True)
    )
    return pa.MapArray.from_arrays(list_offsets(offsets, array), keys, items)


def _read_struct(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise _misfit(array, hive_type)
    parts = dict(zip((f.name.lower() for f in array.type), struct_fields(array), strict=True))
    children = [
        read_column(parts[name.lower()], child, options)
        if name.lower() in parts
        else pa.nulls(len(array), column_type(child, options.timestamp_form))
        for name, child in zip(hive_type.field_names, hive_type.children, strict=True)
    ]
    fields = list(column_type(hive_type, options.timestamp_form))
    # No mask if it would be empty: pyarrow aborts the process when a struct above a union has a mask.
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _read_union(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    if not pa.types.is_union(array.type) or array.type.num_fields != len(hive_type.children):
        raise _misfit(array, hive_type)
    tags, parts = union_parts(array)
    children = [read_column(p, c, options) for p, c in zip(parts, hive_type.children, strict=True)]
    names = [f.name for f in arrow_type(hive_type)]
    return dense_union(tags, children, names)


_READERS: dict[str, Callable[[pa.Array, HiveType, ReadOptions], pa.Array]] = {
    "boolean": _read_same,
    "binary": _read_same,
    **dict.fromkeys(INTEGER_KINDS, _read_integer),
    "float": _read_float,
    "double": _read_float,
    "decimal": _read_decimal,
    "string": _read_text,
    "varchar": _read_text,
    "char": _read_text,
    "date": _read_date,
    "timestamp": _read_timestamp,
    "array": _read_array,
    "map": _read_map,
    "struct": _read_struct,
    "uniontype": _read_union,
}
