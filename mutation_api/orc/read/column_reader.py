"""Columns of an ORC file as the table's columns: the values that Hive shows if file and table differ.

A table's columns may have changed since a file was written (:mod:`.type_changes`), and a file may have
properties that Arrow's types do not express: day numbers of the hybrid calendar. Char and varchar are cut,
and char loses its trailing blanks, as in Hive's comparisons.

Source: ORC's SchemaEvolution; compared with Hive reading the same files.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.errors import RecordValueError, TableNotMutableError
from mutation_api.format.hive_type import HiveType, TypeFamily, arrow_type
from mutation_api.format.plain_array import (
    dense_union,
    list_offsets,
    map_parts,
    rebased_list,
    struct_fields,
    union_parts,
)
from mutation_api.format.timestamps import (
    proleptic_from_hybrid_days,
)
from mutation_api.orc.read.type_changes import converted, cut, texts_of_floats

BATCH_ROWS_DEFAULT = 65_536


FINE_TIMESTAMPS = (
    "microseconds cannot hold it, and neither can Spark. Pass truncate_nanoseconds=True to a read to drop "
    "the remaining digits, or timestamps=TimestampForm.NANOSECONDS to a scan to keep them, or leave the "
    "column out"
)
"""The advice for a timestamp with more than six digits of a second."""


class TimestampForm(enum.Enum):
    """The form of timestamps (without time zone) in a snapshot.

    NANOSECONDS: exact, years 1678 to 2261. MICROSECONDS: as in Spark, years 1 to 9999. TEXT:
    ``2015-11-19T12:34:56.789``, without trailing zeros of the fraction; exact, years 1 to 9999.
    """

    NANOSECONDS = "ns"
    MICROSECONDS = "us"
    TEXT = "text"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of a timestamp in this form."""
        return pa.string() if self is TimestampForm.TEXT else pa.timestamp(self.value)


@dataclass(frozen=True)
class ReadOptions:
    """The form of the rows that are returned.

    ``truncate_nanoseconds`` lets MICROSECONDS drop digits. Otherwise such a value is an error. ``batch_rows``
    is the maximum number of rows of one batch.

    The reader sets the other fields. ``is_proleptic`` is True if the file counts days in the proleptic
    calendar. ``release`` is the major version of the Hive whose conversions of values are used.
    ``prints_shortest_numbers`` is True if that Hive runs on Java 19 or later.
    """

    timestamp_form: TimestampForm = TimestampForm.NANOSECONDS
    truncate_nanoseconds: bool = False
    batch_rows: int = BATCH_ROWS_DEFAULT
    is_proleptic: bool = False
    release: int = 2
    prints_shortest_numbers: bool = False


def column_type(hive_type: HiveType, form: TimestampForm) -> pa.DataType:
    """Return the Arrow type of a column in a snapshot."""
    return replace_timestamps(arrow_type(hive_type), form.arrow)


def replace_timestamps(data_type: pa.DataType, replacement: pa.DataType) -> pa.DataType:
    """Return the type with every timestamp replaced, at any depth."""
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
    """Return the values of a file's column as those of the table's column.

    Args:
        array: n values as in the file, with timestamps in nanoseconds or already in the requested form.
        hive_type: the table column's type.
        options: the form of timestamps.

    Returns:
        n values of ``column_type(hive_type, options.timestamp_form)``.

    Raises:
        TableNotMutableError: If the file's type cannot be read as the table's. The message contains both
            types.
        RecordValueError: If a timestamp does not fit the requested form.
    """
    return _READERS.get(hive_type.kind, _read_primitive)(array, hive_type, options)


def _misfit(array: pa.Array, hive_type: HiveType) -> TableNotMutableError:
    return TableNotMutableError(
        f"the file has type {array.type}, but the table has type {hive_type.text}: the column's type was "
        "changed after the file was written, and values of one are not read as the other. Change the type "
        "back, or leave the column out"
    )


def _read_primitive(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    if array.type == arrow_type(hive_type) and not hive_type.length:
        return array
    if pa.types.is_string(array.type) and hive_type.family is TypeFamily.TEXT:
        return cut(array, hive_type)
    if pa.types.is_nested(array.type):
        raise _misfit(array, hive_type)
    if pa.types.is_date32(array.type):
        array = _dates(array, options)
    if (
        options.prints_shortest_numbers
        and pa.types.is_floating(array.type)
        and hive_type.family is TypeFamily.TEXT
    ):
        return cut(texts_of_floats(array, options.release, is_shortest=True), hive_type)
    return converted(array, hive_type, options.release)


def _read_date(array: pa.Array, hive_type: HiveType, options: ReadOptions) -> pa.Array:
    return (
        _dates(array, options)
        if pa.types.is_date32(array.type)
        else _read_primitive(array, hive_type, options)
    )


def _dates(array: pa.Array, options: ReadOptions) -> pa.Array:
    """Return day numbers of Arrow's calendar."""
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
        return _read_primitive(array, hive_type, options)
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
    # Set no mask if it would be empty: pyarrow aborts the process if a struct above a union has a mask.
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
    "date": _read_date,
    "timestamp": _read_timestamp,
    "array": _read_array,
    "map": _read_map,
    "struct": _read_struct,
    "uniontype": _read_union,
}
"""Readers by the kind of the table's column. Other kinds are read as they are, or converted."""
