"""RecordInspector: find ROW__ID and columns in the user's records, in any layout.

Columns become Arrow arrays. Scalars get the type that Arrow infers, not the column's. If pyarrow received the
column's type, it would silently cut a datetime to its date and drop a time zone; :func:`convert_to_column`
rejects both. Nested values are split by the Hive type, because a dict may be a map or a struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.conversion import convert_to_column
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN, Mask, RowIds
from mutation_api.format.hive_type import HiveType, UnfitTypeError, arrow_type, parse_hive_type
from mutation_api.format.plain_array import (
    Inner,
    array_of_lists,
    array_of_structs,
    array_of_unions,
    has_union,
    plain_array,
    repeated,
    struct_fields,
)
from mutation_api.orc.format.stored_values import nulled
from mutation_api.table.acid_table import AcidTable


def array_of(values: Sequence[Any], hive_type: HiveType, *, column: str) -> pa.Array:
    """Return an array of n Python values, which is to be converted to the column's type afterwards.

    Args:
        values: None or scalars. Arrays are lists, maps are dicts or lists of pairs, structs are dicts or
            sequences, and unions are (alternative, value).
        hive_type: the column's type.
        column: its name, for messages.

    Raises:
        RecordLayoutError: If values have several types, or do not fit a nested type.
        RecordValueError: If a number is out of the range of every column type.
    """
    try:
        return _array(values, hive_type)
    except OverflowError as error:
        raise RecordValueError(f"column {column!r} ({hive_type.text}): {error}") from error
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise RecordLayoutError(f"column {column!r} ({hive_type.text}): {error}") from error


def _array(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    build = _NESTED.get(hive_type.kind)
    return build(values, hive_type) if build else pa.array(values)


def _inner(hive_type: HiveType) -> Inner:
    return lambda values, _: _array(values, hive_type)


def _list(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    lists = [None if value is None else _sequence(value) for value in values]
    return array_of_lists(lists, _inner(hive_type.children[0]))


def _map(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    """Return lists of entries, since an Arrow map cannot have the null key that is to be reported."""
    entry = [_inner(child) for child in hive_type.children]
    maps = [None if value is None else _pairs(value) for value in values]
    return array_of_lists(maps, lambda pairs, _: array_of_structs(pairs, ["key", "value"], entry))


def _struct(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    names = [name.lower() for name in hive_type.field_names]
    rows = [None if value is None else _fields(value, names) for value in values]
    return array_of_structs(rows, hive_type.field_names, list(map(_inner, hive_type.children)))


def _union(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    # A union array has no validity bitmap. A missing value becomes a null of the first alternative.
    tagged = [(0, None) if value is None else (int(value[0]), value[1]) for value in values]
    count = len(hive_type.children)
    for tag, _ in tagged:
        if not 0 <= tag < count:
            raise ValueError(f"alternative {tag} does not exist in a union with {count} alternatives")
    return array_of_unions(tagged, list(map(_inner, hive_type.children)))


def _sequence(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError(f"{type(value).__name__} {value!r} is not an array")
    return list(value)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    items = value.items() if isinstance(value, Mapping) else _sequence(value)
    return [(key, item) for key, item in items]


def _fields(value: Any, names: list[str]) -> list[Any]:
    """Return the field values in the type's order.

    All fields are required, because it is not known whether a missing one means NULL.
    """
    if isinstance(value, Mapping):
        given = {str(name).lower(): item for name, item in value.items()}
        if set(given) != set(names) or len(given) != len(value):
            raise ValueError(f"got a struct with the fields {list(value)}, expected {names}")
        return [given[name] for name in names]
    fields = _sequence(value)
    if len(fields) != len(names):
        raise ValueError(f"got a struct of {len(fields)} values, expected {names}")
    return fields


_NESTED = {"array": _list, "map": _map, "struct": _struct, "uniontype": _union}


_FIELD_COUNT = 3
_WHOLE_NUMBERS = (int, np.integer)
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

RowIdParts = tuple[Any, Any, Any, str | None]
"""The ROW__ID of a single record: original txn, bucket, row id, partition or None. All None if missing."""
_NO_ROW_ID: RowIdParts = (None, None, None, None)


@dataclass(frozen=True)
class Records:
    """ROW__IDs of n records, and their data columns in table order (None if they were not requested)."""

    row_ids: RowIds
    columns: tuple[pa.Array, ...] | None


@dataclass(frozen=True)
class RecordLayout:
    """The functions that read single records with the same names. Both may raise errors.

    Attributes:
        row_id: returns the ROW__ID of a record.
        values: returns the data columns in table order; nulls if they were not requested.
    """

    row_id: Callable[[Mapping[str, Any]], RowIdParts]
    values: Callable[[Mapping[str, Any]], Sequence[Any]]


class RecordInspector:
    """Finds ROW__ID and the table's columns in records.

    Names match in any case. Columns that the table does not have are rejected, because ignoring them would
    silently lose data.

    Args:
        table: the table of the columns.
        row_id_column: the name of ROW__ID in the records.
        column_names: the names in the records by name in the table, where they differ.

    Raises:
        RecordLayoutError: If ``column_names`` contains a column that the table does not have.
    """

    def __init__(
        self,
        table: AcidTable,
        *,
        row_id_column: str = ROW_ID_COLUMN,
        column_names: Mapping[str, str] | None = None,
    ) -> None:
        self._table = table
        self._types = tuple(parse_hive_type(column.type) for column in table.columns)
        self._row_id_column = row_id_column.lower()
        self._row_id_fields = (table.version.transaction_field, "bucketid", "rowid")
        given = {name.lower(): text.lower() for name, text in (column_names or {}).items()}
        unknown = sorted(set(given) - set(table.column_names))
        if unknown:
            raise RecordLayoutError(
                f"table {table.full_name} does not have the columns {unknown}; it has {table.column_names}"
            )
        self._names = tuple(given.get(name, name) for name in table.column_names)

    def of_batch(self, batch: pa.RecordBatch | pa.Table, *, with_columns: bool) -> Records:
        """Return the n records of an Arrow batch. ROW__ID may be missing.

        Args:
            batch: a batch with columns in any order.
            with_columns: True if the data columns are required. Otherwise they are optional and ignored.

        Raises:
            RecordLayoutError: If columns are missing, extra or duplicate, or if ROW__ID has another type.
        """
        positions = self._positions(batch.schema.names)
        row_id = positions.pop(self._row_id_column, None)
        row_ids = RowIds.none(batch.num_rows) if row_id is None else self._row_ids_of(batch.column(row_id))
        if not with_columns:
            return Records(row_ids, None)
        self._check_columns(positions, batch.schema.names)
        return Records(row_ids, tuple(self._plain(batch, positions[name]) for name in self._names))

    def layout(self, names: Sequence[str], *, with_columns: bool) -> RecordLayout:
        """Return the layout of single records with these names. See :meth:`of_batch`.

        Raises:
            RecordLayoutError: See :meth:`of_batch`. The layout's functions also raise it for a ROW__ID that
                is not a struct of integers.
        """
        if not all(isinstance(name, str) for name in names):
            raise RecordLayoutError(
                f"table {self._table.full_name}: column names of a record must be strings, got {list(names)}"
            )
        positions = self._positions(names)
        at = positions.pop(self._row_id_column, None)
        if with_columns:
            self._check_columns(positions, names)
        return RecordLayout(
            (lambda _: _NO_ROW_ID) if at is None else self._row_id_getter(names[at]),
            _values_getter([names[positions[name]] for name in self._names]) if with_columns else self._nulls,
        )

    def no_record(self, found: object) -> RecordLayoutError:
        """Return the error for an object that is neither a record nor a batch."""
        return RecordLayoutError(
            f"table {self._table.full_name}: a record must be a mapping from column names to values (for a "
            f"Row: row.asDict()), or an Arrow batch; got {type(found).__name__}"
        )

    def of_parts(self, row_ids: Sequence[Any], values: Sequence[Any]) -> Records:
        """Return n records from the parts that layouts returned, n > 0.

        Args:
            row_ids: ROW__ID parts of the first record, followed by those of the second, and so on.
            values: values of the first record, followed by those of the second, and so on.
        """
        width = len(self._names)
        arrays = tuple(
            array_of(values[position::width], hive_type, column=f"{self._table.full_name}.{name}")
            for position, (hive_type, name) in enumerate(
                zip(self._types, self._table.column_names, strict=True)
            )
        )
        return Records(_row_ids_of_parts(row_ids), arrays)

    def rows(self, columns: Sequence[pa.Array], is_deleted: Mask | None = None) -> pa.StructArray:
        """Return rows whose columns have the table's types.

        Args:
            columns: n values each, in table order.
            is_deleted: shape (n,), not all true. Values of deleted records are ignored.

        Raises:
            RecordLayoutError: If a type can never fit its column.
            RecordValueError: If a value does not fit its column.
        """
        hidden = is_deleted if is_deleted is not None and is_deleted.any() else None
        converted = []
        for array, column, hive_type in zip(columns, self._table.columns, self._types, strict=True):
            visible = array if hidden is None else nulled(array, hidden)
            try:
                converted.append(
                    convert_to_column(
                        visible, hive_type, column=column.name, timestamp_unit=_timestamp_unit(array.type)
                    )
                )
            except (RecordLayoutError, RecordValueError) as error:
                raise type(error)(f"table {self._table.full_name}: {error}") from error
        fields = [
            pa.field(name, array.type)
            for name, array in zip(self._table.column_names, converted, strict=True)
        ]
        return pa.StructArray.from_arrays(converted, fields=fields)

    def struct_columns(self, rows: pa.StructArray) -> tuple[pa.Array, ...]:
        """Return the columns of a struct array, in table order.

        Raises RecordLayoutError like :meth:`of_batch`.
        """
        names = [field.name for field in rows.type]
        positions = self._positions(names)
        self._check_columns(positions, names)
        if rows.null_count and has_union(rows.type):
            raise RecordLayoutError(
                f"table {self._table.full_name}: {rows.null_count} row(s) are NULL; with union columns, "
                "pass rows of NULLs instead"
            )
        # A NULL row is a row of NULLs.
        children = struct_fields(rows)
        return tuple(children[positions[name]] for name in self._names)

    def row_type(self) -> pa.StructType:
        """Return the row type of a file that begins with deletes only.

        Timestamps have microseconds, the unit of most rows that follow. Other units are converted, which may
        be slow.
        """
        return pa.struct(
            [
                pa.field(name, arrow_type(hive_type, timestamp_unit="us"))
                for name, hive_type in zip(self._table.column_names, self._types, strict=True)
            ]
        )

    def _plain(self, batch: pa.RecordBatch | pa.Table, position: int) -> pa.Array:
        try:
            return plain_array(batch.column(position), batch.schema.field(position).metadata)
        except (UnfitTypeError, pa.ArrowException) as error:
            reason = f"{error.path}: {error.reason}" if isinstance(error, UnfitTypeError) else f": {error}"
            raise RecordLayoutError(
                f"table {self._table.full_name}: column {batch.schema.names[position]!r}{reason}"
            ) from error

    def _positions(self, names: Sequence[str]) -> dict[str, int]:
        positions = {name.lower(): position for position, name in enumerate(names)}
        if len(positions) < len(names):
            doubled = repeated(names, any_case=True)
            raise RecordLayoutError(
                f"table {self._table.full_name}: columns {doubled} of the record have the same name (names "
                "match in any case)"
            )
        return positions

    def _check_columns(self, positions: Mapping[str, int], given: Sequence[str]) -> None:
        missing = [name for name in self._names if name not in positions]
        if missing:
            raise self._missing(missing, given)
        if len(positions) - (self._row_id_column in positions) == len(self._names):
            return
        extra = sorted(set(positions) - set(self._names) - {self._row_id_column})
        keys = [name for name in extra if name in self._table.partition_key_names]
        advice = f"; pass the partition columns ({keys}) as partition values" if keys else ""
        raise RecordLayoutError(
            f"table {self._table.full_name}: the record has column(s) {extra} that are not data columns of "
            f"the table ({list(self._table.column_names)}){advice}: drop them"
        )

    def _missing(self, missing: Sequence[str], given: Sequence[str]) -> RecordLayoutError:
        return RecordLayoutError(
            f"table {self._table.full_name}: the record lacks {list(missing)}; it has {list(given)}"
        )

    def _row_ids_of(self, column: pa.Array | pa.ChunkedArray) -> RowIds:
        array = plain_array(column)
        if pa.types.is_null(array.type):
            return RowIds.none(len(array))
        if not pa.types.is_struct(array.type) or array.type.num_fields < _FIELD_COUNT:
            raise self._bad_row_id(array.type)
        names = [field.name.lower() for field in array.type]
        fields = dict(zip(names, array.flatten(), strict=True))
        try:
            parts = [fields[name] for name in self._row_id_fields]
            return RowIds.of_columns(parts, fields.get(PARTITION_FIELD))
        except (KeyError, pa.ArrowException) as error:
            raise self._bad_row_id(array.type) from error

    def _nulls(self, record: Mapping[str, Any]) -> Sequence[Any]:
        del record
        return (None,) * len(self._names)

    def _row_id_getter(self, name: str) -> Callable[[Mapping[str, Any]], RowIdParts]:
        return lambda record: self._row_id_parts(record[name])

    def _row_id_parts(self, value: Any) -> RowIdParts:
        if value is None:
            return _NO_ROW_ID
        if isinstance(value, Mapping):
            given = {str(name).lower(): part for name, part in value.items()}
            parts = [given.get(name) for name in (*self._row_id_fields, PARTITION_FIELD)]
        else:
            parts = list(value) if isinstance(value, Sequence) else []
        if len(parts) == _FIELD_COUNT:
            parts.append(None)
        if len(parts) != len(_NO_ROW_ID) or not _are_row_id_parts(*parts):
            raise self._bad_row_id(value)
        return parts[0], parts[1], parts[2], parts[3]

    def _bad_row_id(self, found: object) -> RecordLayoutError:
        return RecordLayoutError(
            f"table {self._table.full_name}: {self._row_id_column.upper()} must be a struct "
            f"<{', '.join(self._row_id_fields)}[, {PARTITION_FIELD}]> of whole numbers, got {found}"
        )


def _values_getter(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda record: [record[name] for name in names]


def _are_row_id_parts(txn: Any, bucket: Any, row_id: Any, partition: Any) -> bool:
    return (
        _is_whole(txn)
        and _is_whole(bucket)
        and _is_whole(row_id)
        and (partition is None or isinstance(partition, str))
    )


def _is_whole(part: Any) -> bool:
    """Return True if a part of a ROW__ID is missing, or is a number that ORC can hold."""
    if part is None:
        return True
    is_number = isinstance(part, _WHOLE_NUMBERS) and not isinstance(part, bool)
    return is_number and _INT64_MIN <= int(part) <= _INT64_MAX


def _timestamp_unit(arrow: pa.DataType) -> str:
    """Return the timestamp unit of a stored column: nanoseconds only if the input has them.

    Microseconds hold years 1 to 9999.
    """
    if pa.types.is_timestamp(arrow):
        return "ns" if arrow.unit == "ns" else "us"
    units = (_timestamp_unit(arrow.field(i).type) for i in range(arrow.num_fields))
    return "ns" if "ns" in units else "us"


def _row_ids_of_parts(parts: Sequence[Any]) -> RowIds:
    txns, buckets, row_ids, partitions = (
        parts[position :: len(_NO_ROW_ID)] for position in range(len(_NO_ROW_ID))
    )
    if buckets.count(None) == len(buckets):
        return RowIds.none(len(buckets))
    columns = (pa.array(column, pa.int64()) for column in (txns, buckets, row_ids))
    return RowIds.of_columns(columns, pa.array(partitions, pa.string()))
