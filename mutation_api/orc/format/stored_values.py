"""Values as ORC stores them, and the ranges of values that stripes record.

Hive's ORC readers expect dates and timestamps in a form that may differ from Arrow's values in two ways:

* Hive 2.3 counts days in the hybrid calendar (Julian before 1582-10-15), Arrow in the proleptic Gregorian
  one. For Hive 2.3 the day number is changed so that Hive shows the same ``yyyy-mm-dd``. Later releases read
  proleptic days (see FileCalendar).
* ORC stores a timestamp as whole seconds and nanoseconds, with the seconds cut towards zero. pyarrow's writer
  passes a negative nanosecond part to ORC for fractions before 1970, and Java readers throw on it (``nanos >
  999999999 or < 0``). pyorc encodes them correctly. From -0.999 s to 0 (exclusive) there is *no* encoding:
  readers recognise a cut second by its sign, and the second there is 0. Java's own writer shifts such values
  by a second.

Ranges show which stripes cannot contain a key. Ranges that cannot be trusted or compared are left out: floats
(NaN is not in any range), timestamps (recorded in milliseconds, by some writers in their time zone), char and
varchar (stored in another form than they are read), and days before 1582-10-15 (hybrid or not).

Source: ORC's TimestampTreeReader/Writer; both limits were measured on Hive 2.3.10's readers, the first also
on those of 3.1.3 and 4.1.0. For ranges: orc_proto.proto (ColumnStatistics) and the ORC v1 specification;
compared with files of Hive 2.3, 3.1 and 4.1, and with files that this library wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError, RecordValueError
from mutation_api.format.hive_type import INTEGER_KINDS, HiveType
from mutation_api.format.plain_array import (
    dense_union,
    has_union,
    list_offsets,
    map_parts,
    rebased_list,
    struct_fields,
    union_parts,
)
from mutation_api.format.timestamps import (
    FIRST_GREGORIAN_DAY,
    SECONDS_PER_DAY,
    UNITS_PER_SECOND,
    hybrid_from_proleptic_days,
    hybrid_from_proleptic_timestamps,
)
from mutation_api.orc.format.protobuf import as_bytes, as_number, cached_if_small, fields_of, signed


@dataclass(frozen=True)
class Storable:
    """Values that are ready for encoding. ``needs_pyorc`` is True if pyarrow would encode one incorrectly."""

    values: pa.Array
    needs_pyorc: bool


def holds_dates(arrow: pa.DataType) -> bool:
    """Return True if a type is or contains a date or timestamp. :func:`storable` changes only such types."""
    if pa.types.is_date(arrow) or pa.types.is_timestamp(arrow):
        return True
    return any(holds_dates(arrow.field(i).type) for i in range(arrow.num_fields))


def union_safe(array: pa.Array, column: str) -> pa.Array:
    """Return the same values without validity bits on structs that have a union field.

    pyarrow 26 aborts the process if it finds such bits (filter and take add them even if nothing is null).

    Raises:
        RecordValueError: If such a struct is NULL. The message names the column.
    """
    if not has_union(array.type):
        return array
    if pa.types.is_union(array.type):
        return _union_safe_union(array, column)
    if pa.types.is_struct(array.type):
        return _union_safe_struct(array, column)
    if pa.types.is_map(array.type):
        offsets, keys, items = map_parts(array)
        safe = union_safe(keys, column), union_safe(items, column)
        return pa.MapArray.from_arrays(list_offsets(offsets, array), *safe)
    offsets, values = rebased_list(array)
    return pa.ListArray.from_arrays(list_offsets(offsets, array), union_safe(values, column))


def _union_safe_union(array: pa.Array, column: str) -> pa.Array:
    fields = [array.type.field(i) for i in range(array.type.num_fields)]
    if not any(has_union(field.type) for field in fields):
        return array
    tags, parts = union_parts(array)
    return dense_union(tags, [union_safe(part, column) for part in parts], [f.name for f in fields])


def _union_safe_struct(array: pa.Array, column: str) -> pa.Array:
    if array.null_count:
        raise RecordValueError(
            f"column {column!r}: a NULL struct that has a union field cannot be written; write a struct "
            "whose fields are NULL"
        )
    children = [union_safe(array.field(i), column) for i in range(array.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(array.type))


def hollow(arrow: pa.DataType, count: int) -> pa.Array:
    """Return values without content: nulls.

    Only structs that contain a union stay structs, whose fields have no content.

    For a NULL struct that contains a union, pyarrow 26 writes more union values than readers expect, so later
    rows show the values of other rows.
    """
    if not has_union(arrow) or not (pa.types.is_struct(arrow) or pa.types.is_union(arrow)):
        return pa.nulls(count, arrow)
    fields = [arrow.field(i) for i in range(arrow.num_fields)]
    if pa.types.is_struct(arrow):
        return pa.StructArray.from_arrays([hollow(field.type, count) for field in fields], fields=fields)
    parts = [hollow(field.type, 0 if at else count) for at, field in enumerate(fields)]
    return dense_union(np.zeros(count, np.int8), parts, [field.name for field in fields])


def nulled(array: pa.Array, mask: NDArray[np.bool_]) -> pa.Array:
    """Hide values that must not be read.

    Args:
        array: n values.
        mask: bool, shape (n,), not all True. Where it is True, the value becomes null. A union cannot be
            null, and pyarrow 26 aborts the process if it creates such nulls below a struct. So values of
            unions become copies of a visible one.
    """
    if has_union(array.type):
        visible = np.flatnonzero(~mask)
        return array.take(pa.array(np.where(mask, visible[0], np.arange(len(array)))))
    return pa.StructArray.from_arrays([array], names=[""], mask=pa.array(mask)).flatten()[0]


def storable(array: pa.Array, column: str, *, hybrid: bool) -> Storable:
    """Convert the values of one column to their stored form.

    Args:
        array: n values, of ``arrow_type`` of the column.
        column: its name, for messages.
        hybrid: True to store days before 1582-10-15 in the hybrid calendar.

    Raises:
        RecordValueError: If ORC cannot hold a timestamp. The message names the column and the value.
    """
    arrow = array.type
    if pa.types.is_date32(arrow):
        return Storable(_dates(array) if hybrid else array, False)
    if pa.types.is_timestamp(arrow):
        return _timestamps(array, column, hybrid)
    if not holds_dates(arrow) or not len(array):
        return Storable(array, False)
    if pa.types.is_map(arrow):
        return _map(array, column, hybrid)
    if pa.types.is_list(arrow):
        return _list(array, column, hybrid)
    if pa.types.is_union(arrow):
        return _union(array, column, hybrid)
    return _struct(array, column, hybrid)


def _list(array: pa.Array, column: str, hybrid: bool) -> Storable:
    offsets, values = rebased_list(array)
    child = storable(values, column, hybrid=hybrid)
    if child.values is values:
        return Storable(array, child.needs_pyorc)
    rebuilt = pa.ListArray.from_arrays(list_offsets(offsets, array), child.values)
    return Storable(rebuilt, child.needs_pyorc)


def _map(array: pa.Array, column: str, hybrid: bool) -> Storable:
    offsets, keys, items = map_parts(array)
    key, item = storable(keys, column, hybrid=hybrid), storable(items, column, hybrid=hybrid)
    needs_pyorc = key.needs_pyorc or item.needs_pyorc
    if key.values is keys and item.values is items:
        return Storable(array, needs_pyorc)
    rebuilt = pa.MapArray.from_arrays(list_offsets(offsets, array), key.values, item.values)
    return Storable(rebuilt, needs_pyorc)


def _struct(array: pa.Array, column: str, hybrid: bool) -> Storable:
    # They have nulls where the struct is null, because values under a null must not be checked.
    given = struct_fields(array)
    children = [storable(child, column, hybrid=hybrid) for child in given]
    needs_pyorc = any(child.needs_pyorc for child in children)
    if all(child.values is old for child, old in zip(children, given, strict=True)):
        return Storable(array, needs_pyorc)
    rebuilt = pa.StructArray.from_arrays(
        [child.values for child in children],
        fields=list(array.type),
        mask=array.is_null() if array.null_count else None,
    )
    return Storable(rebuilt, needs_pyorc)


def _union(array: pa.Array, column: str, hybrid: bool) -> Storable:
    tags, parts = union_parts(array)
    children = [storable(part, column, hybrid=hybrid) for part in parts]
    needs_pyorc = any(child.needs_pyorc for child in children)
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    return Storable(dense_union(tags, [child.values for child in children], names), needs_pyorc)


def _dates(array: pa.Array) -> pa.Array:
    days = array.cast(pa.int32())
    first = pc.min(days).as_py()
    if first is None or first >= FIRST_GREGORIAN_DAY:
        return array
    hybrid = hybrid_from_proleptic_days(_numbers(days)).astype(np.int32)
    return pa.array(hybrid, pa.int32(), mask=_nulls(array)).cast(pa.date32())


def _timestamps(array: pa.Array, column: str, hybrid: bool) -> Storable:
    """Convert timestamps. Most columns need only a check of their smallest value."""
    ticks = array.cast(pa.int64())
    first = pc.min(ticks).as_py()
    if first is None or first >= 0:
        return Storable(array, False)
    unit = array.type.unit
    numbers = _numbers(ticks)
    needs_pyorc = _has_early_fraction(numbers, unit, column)
    if not hybrid or first >= FIRST_GREGORIAN_DAY * SECONDS_PER_DAY * UNITS_PER_SECOND[unit]:
        return Storable(array, needs_pyorc)
    shifted = hybrid_from_proleptic_timestamps(numbers, unit)
    return Storable(pa.array(shifted, pa.int64(), mask=_nulls(array)).cast(array.type), needs_pyorc)


def _has_early_fraction(ticks: NDArray[np.int64], unit: str, column: str) -> bool:
    per_second = UNITS_PER_SECOND[unit]
    lost: NDArray[np.int64] | list[int] = (
        np.flatnonzero((ticks < 0) & (ticks >= -999 * per_second // 1000)) if per_second > 1 else []
    )
    if len(lost):
        value = pa.scalar(int(ticks[lost[0]]), pa.timestamp(unit)).cast(pa.string())
        raise RecordValueError(
            f"column {column!r}: timestamp {value} lies within the last second before 1970-01-01 00:00:00; "
            "ORC cannot encode it so that Hive reads it back (it would appear one second later). Round "
            "the value to a whole second, or store it as a string"
        )
    return bool(((ticks < 0) & (ticks % per_second != 0)).any())


def _numbers(array: pa.Array) -> NDArray[Any]:
    """Return days (int32) or ticks (int64) in numpy. A null becomes 0, which is never changed here."""
    plain = pc.fill_null(array, 0) if array.null_count else array
    return np.asarray(plain)


def _nulls(array: pa.Array) -> NDArray[np.bool_] | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


Range = tuple[Any, Any]
"""Smallest and largest value: int, Decimal, bytes for strings, days for dates."""

_REPLACEMENT = "\ufffd".encode()
_INTEGERS, _TEXTS, _DECIMALS, _DATES = 2, 4, 6, 7
"""Fields of ColumnStatistics."""
_MINIMUM, _MAXIMUM = 1, 2
_SMALL_BYTES = 256
_LOWER_BOUND, _UPPER_BOUND = 4, 5
"""Fields for the bounds of strings that are too long to be recorded in full."""


def column_id(schema: pa.Schema, name: str) -> int:
    """Return the number of a column of a file. ``row.x`` is field ``x`` of struct ``row``.

    Raises:
        KeyError: If the file does not have this column.
    """
    outer, _, inner = name.partition(".")
    number, data_type = _child(list(schema), outer)
    if not inner:
        return 1 + number
    return 2 + number + _child(list(data_type), inner)[0]


def column_type_in(schema: pa.Schema, name: str) -> pa.DataType:
    """Return the type of a column of a file. ``row.x`` is field ``x`` of struct ``row``."""
    outer, _, inner = name.partition(".")
    data_type = schema.field(outer).type
    return data_type.field(inner).type if inner else data_type


def comparable_range(statistics: bytes, file_type: pa.DataType, hive_type: HiveType) -> Range | None:
    """Return the range of a column's values in a stripe, except NULL; None if the range is unknown.

    Args:
        statistics: serialised ColumnStatistics of the column in the stripe.
        file_type: the column's type in the file.
        hive_type: the type of the table's column, which the values are read as.

    Raises:
        CorruptFileError: If the bytes are not statistics.
    """
    if hive_type.kind not in _RANGES or not _is_read_unchanged(file_type, hive_type):
        return None
    try:
        return _recorded_range(statistics, hive_type.kind)
    except (ValueError, IndexError, InvalidOperation) as error:
        raise CorruptFileError(f"the statistics of an ORC column cannot be parsed: {error}") from error


@cached_if_small(_SMALL_BYTES, 16_384)
def _recorded_range(statistics: bytes, kind: str) -> Range | None:
    field, read = _RANGES[kind]
    found = dict(fields_of(statistics)).get(field)
    ends = None if found is None else read(dict(fields_of(as_bytes(found))))
    return ends if ends is not None and ends[0] <= ends[1] else None


def _child(fields: list[pa.Field], name: str) -> tuple[int, pa.DataType]:
    """Return the number of columns before a field, including nested ones, and the field's type."""
    before = 0
    for field in fields:
        if field.name == name:
            return before, field.type
        before += column_count(field.type)
    raise KeyError(name)


def column_count(data_type: pa.DataType) -> int:
    """Return the number of a file's columns for a column of this type, including nested ones."""
    if pa.types.is_map(data_type):
        return 1 + column_count(data_type.key_type) + column_count(data_type.item_type)
    return 1 + sum(column_count(data_type.field(i).type) for i in range(data_type.num_fields))


def _is_read_unchanged(file_type: pa.DataType, hive_type: HiveType) -> bool:
    """Return True if reading preserves each value or turns it into NULL."""
    if hive_type.kind in INTEGER_KINDS:
        return bool(pa.types.is_signed_integer(file_type))
    if hive_type.kind == "decimal":
        return bool(file_type == pa.decimal128(hive_type.precision, hive_type.scale))
    return bool(file_type == (pa.date32() if hive_type.kind == "date" else pa.string()))


def _integers(fields: Mapping[int, int | bytes]) -> Range | None:
    if _MINIMUM not in fields or _MAXIMUM not in fields:
        return None
    return signed(as_number(fields[_MINIMUM])), signed(as_number(fields[_MAXIMUM]))


def _date_range(fields: Mapping[int, int | bytes]) -> Range | None:
    days = _integers(fields)
    return days if days is not None and days[0] >= FIRST_GREGORIAN_DAY else None


def _texts(fields: Mapping[int, int | bytes]) -> Range | None:
    low = fields.get(_MINIMUM, fields.get(_LOWER_BOUND))
    high = fields.get(_MAXIMUM, fields.get(_UPPER_BOUND))
    if low is None or high is None:
        return None
    ends = as_bytes(low), as_bytes(high)
    # Java records this for bytes that are not UTF-8, and the bytes of valid strings may lie beyond it.
    return None if any(_REPLACEMENT in end for end in ends) else ends


def _decimals(fields: Mapping[int, int | bytes]) -> Range | None:
    texts = _texts(fields)
    return None if texts is None else (Decimal(texts[0].decode()), Decimal(texts[1].decode()))


_RANGES: dict[str, tuple[int, Callable[[Mapping[int, int | bytes]], Range | None]]] = {
    **dict.fromkeys(INTEGER_KINDS, (_INTEGERS, _integers)),
    "string": (_TEXTS, _texts),
    "decimal": (_DECIMALS, _decimals),
    "date": (_DATES, _date_range),
}
