"""The columns of an exported table: the types of Delta and Iceberg for the types of Hive, in one table. Pure.

Rows are read with timestamps in microseconds, the finest unit that both formats hold without a time zone.
A column of another type is refused by its name, or becomes a string with the option ``as_text``: the value as
JSON, as ``hive-mutate read --json`` prints it.

Source: the schema serialization format of the Delta protocol, and the types of Iceberg's format version 2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.format.json_values import cell_text, to_json
from mutation_api.orc.read.column_reader import TimestampForm, column_type
from mutation_api.table.acid_table import AcidColumn, AcidTable

DELTA, ICEBERG = "delta", "iceberg"

FIELD_ID = b"PARQUET:field_id"
"""The metadata of an Arrow field with its identifier in Parquet and Iceberg."""
_FIRST_ID = 2_000_000_000
"""Identifiers that tables do not reach, below those that Iceberg reserves."""
ROW_ID_FIELDS = tuple(
    pa.field(name, kind, metadata={FIELD_ID: str(_FIRST_ID + at)})
    for at, (name, kind) in enumerate(
        [("_hive_writeid", pa.int64()), ("_hive_bucketid", pa.int32()), ("_hive_rowid", pa.int64())]
    )
)
"""The columns of data files with the parts of ROW__ID. The target's table does not have them, so readers skip
them. By them, a run finds deleted rows."""
ROW_ID_NAMES = tuple(field.name for field in ROW_ID_FIELDS)


@dataclass(frozen=True)
class ExportedType:
    """The types of the targets for one kind of Hive type, by the targets' names for them.

    ``arrow`` is the Arrow type that is written to Iceberg, if it is not the one that is read. A kind without
    types is refused, or becomes a string.
    """

    delta: str
    iceberg: str
    iceberg_arrow: pa.DataType | None = None


EXPORTED_TYPES = {
    "boolean": ExportedType("boolean", "boolean"),
    "tinyint": ExportedType("byte", "int", pa.int32()),
    "smallint": ExportedType("short", "int", pa.int32()),
    "int": ExportedType("integer", "int"),
    "bigint": ExportedType("long", "long"),
    "float": ExportedType("float", "float"),
    "double": ExportedType("double", "double"),
    "decimal": ExportedType("decimal", "decimal"),
    "string": ExportedType("string", "string"),
    "varchar": ExportedType("string", "string"),
    "char": ExportedType("string", "string"),
    "binary": ExportedType("binary", "binary"),
    "date": ExportedType("date", "date"),
    "timestamp": ExportedType("timestamp_ntz", "timestamp"),
    "array": ExportedType("array", "list"),
    "map": ExportedType("map", "map"),
    "struct": ExportedType("struct", "struct"),
    "uniontype": ExportedType("", ""),
}
"""The types of both targets by Hive's kind of type."""

_SPECIAL = re.compile(r"[ ,;{}()\n\t=.`]")
"""Characters that Delta does not allow in the names of columns, and those that separate or quote names."""


def exported_schema(table: AcidTable, kind: str, *, as_text: bool = False) -> pa.Schema:
    """Return the columns of the target: data columns, then partition columns.

    Args:
        table: the table of Hive.
        kind: DELTA or ICEBERG.
        as_text: True to turn columns that the target cannot hold into strings.

    Raises:
        RecordLayoutError: If the target cannot hold a column. The message names all such columns.
    """
    fields, refused = [], []
    for column in table.all_columns:
        parsed = parse_hive_type(column.type)
        if _SPECIAL.search("".join((column.name, *_field_names(parsed)))):
            refused.append(f"{column.name} (a name with one of the characters {_SPECIAL.pattern[1:-1]!r})")
        elif column.name in ROW_ID_NAMES:
            refused.append(f"{column.name} (a name that data files use for ROW__ID)")
        elif all(EXPORTED_TYPES[each].delta for each in _kinds(parsed)):
            fields.append(pa.field(column.name, _target_type(_read_type(column), kind)))
        elif as_text:
            fields.append(pa.field(column.name, pa.string()))
        else:
            refused.append(f"{column.name} {column.type}")
    if refused:
        raise RecordLayoutError(
            f"table {table.full_name} cannot be exported to {kind}: it has no type for {'; '.join(refused)}. "
            "Pass unsupported_as_text to export such types as JSON strings"
        )
    return pa.schema(fields)


def _read_type(column: AcidColumn) -> pa.DataType:
    return column_type(parse_hive_type(column.type), TimestampForm.MICROSECONDS)


def _kinds(hive_type: HiveType) -> set[str]:
    return {hive_type.kind}.union(*map(_kinds, hive_type.children))


def _field_names(hive_type: HiveType) -> list[str]:
    nested = [name for child in hive_type.children for name in _field_names(child)]
    return [*hive_type.field_names, *nested]


def _target_type(arrow: pa.DataType, kind: str) -> pa.DataType:
    """Return the Arrow type in which values are written, at any depth."""
    if pa.types.is_list(arrow):
        return pa.list_(_target_type(arrow.value_type, kind))
    if pa.types.is_map(arrow):
        return pa.map_(_target_type(arrow.key_type, kind), _target_type(arrow.item_type, kind))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_target_type(field.type, kind)) for field in arrow])
    return _WIDENED.get(arrow, arrow) if kind == ICEBERG else arrow


_WIDENED = {
    pa.int8(): EXPORTED_TYPES["tinyint"].iceberg_arrow,
    pa.int16(): EXPORTED_TYPES["smallint"].iceberg_arrow,
}


def exported_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns and types of a target.

    Args:
        batch: rows of a scan with the columns of ``schema``, and perhaps others.
        schema: some fields of :func:`exported_schema`.
    """
    arrays = [_converted(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _converted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_string(kind):
        return pa.array(list(map(cell_text, to_json(array))), pa.string())
    return array.cast(kind)


def check_columns(target: str, existing: pa.Schema, wanted: pa.Schema, table: str) -> list[pa.Field]:
    """Return the columns that the source has and the target lacks.

    Args:
        target: the target's name, for messages.
        existing: the columns of the target.
        wanted: the columns of the source, as :func:`exported_schema` returns them.
        table: the table of Hive, for messages.

    Raises:
        ConfigurationError: If a column of the target is missing in the source, or has another type there: it
            was renamed, dropped or changed. The message names the columns.
    """
    changed = [_change(field, wanted) for field in existing if field.name not in wanted.names]
    changed += [
        f"{field.name}: the target has {existing.field(field.name).type}, table {table} has {field.type}"
        for field in wanted
        if field.name in existing.names and not _equal(existing.field(field.name).type, field.type)
    ]
    if changed:
        raise ConfigurationError(
            f"target {target}: columns of table {table} were renamed, dropped or changed since the first "
            f"copy: {'; '.join(changed)}. An export only adds columns. Export the table to a new target"
        )
    return [field for field in wanted if field.name not in existing.names]


def _change(field: pa.Field, wanted: pa.Schema) -> str:
    return f"{field.name}: the table no longer has it (its columns are {', '.join(wanted.names)})"


def _equal(one: pa.DataType, other: pa.DataType) -> bool:
    """Compare types without names of elements and without the width of offsets."""
    return _plain(one) == _plain(other)


def _plain(kind: pa.DataType) -> object:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ("list", _plain(kind.value_type))
    if pa.types.is_map(kind):
        return ("map", _plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return ("struct", *((field.name, _plain(field.type)) for field in kind))
    return kind
