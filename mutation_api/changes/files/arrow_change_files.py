"""Change sets of Arrow in files: ``local_diff`` makes one to save, ``hive-mutate apply`` reads it.

The form is that of :mod:`.change_files`: the operation, ROW__ID (a struct, in CSV a column for each field)
and the table's columns. Values are written such that both engines read each as it was; what a format cannot
hold so raises LocalEngineError. ORC files hold wall clocks as Spark writes them, as marked numbers, since
Spark reads ORC's own timestamps in the zone of its JVM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.parquet

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.changes.files.column_files import SPARK_TYPE, WALL_CLOCK
from mutation_api.changes.keyed_rows.row_texts import json_texts
from mutation_api.errors import ClientError, LocalEngineError
from mutation_api.orc.format.stripe_ranges import column_count
from mutation_api.orc.format.type_attributes import with_type_attributes
from mutation_api.scan.file_format import file_format
from mutation_api.storage.links import without_links
from mutation_api.storage.location import Location
from mutation_api.storage.replacing import replacing
from mutation_api.types.plain_array import has_timestamp, plain_array, struct_fields

__all__ = ["save_arrow_changes"]

_BATCH_ROWS = 1 << 16
_QUOTED = r'[",\r\n]|^$|^\s|\s$'
"""Texts in CSV that need quotes."""
_NO_TEXT = r"[\x00\x01]"


def save_arrow_changes(changes: pa.Table, file: Location, format_name: str | None = None) -> None:
    """Write changes into one file; it is there when it is complete, and replaces an older one.

    Args:
        changes: operation, ROW__ID and the table's columns, in the types of the table.
        file: its folder exists, where storages have folders.
        format_name: one of :data:`~mutation_api.scan.file_format.FORMATS`; None for what the name ends in.

    Raises:
        ConfigurationError: the format is not known.
        LocalEngineError: the format holds a value only as Spark writes it.
        ClientError: the file cannot be written.
    """
    write = _WRITERS[file_format(file, format_name)]
    try:
        with replacing(without_links(file)) as stream:
            write(changes, stream)
    except OSError as error:
        raise ClientError(f"{file.shown}: the file cannot be written: {error}") from error


def _write_csv(changes: pa.Table, stream: pa.NativeFile) -> None:
    names = [name for name, _ in _flat(changes.schema.empty_table())]
    stream.write(f"{','.join(names)}\n".encode())
    for rows in _parts(changes):
        fields = [_csv_fields(name, column) for name, column in _flat(rows)]
        lines = pc.binary_join_element_wise(*fields, ",").to_pylist()
        stream.write("".join(f"{line}\n" for line in lines).encode())


def _flat(rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """The columns by name; of ROW__ID each field is one."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        array = plain_array(column)
        if name == ROW_ID_COLUMN:
            for field, part in zip(array.type, struct_fields(array), strict=True):
                yield f"{ROW_ID_COLUMN}.{field.name}", part
        else:
            yield name, array


def _csv_fields(name: str, column: pa.Array) -> pa.Array:
    """The values as fields of CSV: nothing for NULL, in quotes where they are needed."""
    if not pa.types.is_string(column.type):
        return pc.fill_null(_plain_texts(column), "")
    if pc.any(pc.match_substring_regex(column, _NO_TEXT)).as_py():
        raise LocalEngineError(
            f"column {name!r} has a text with a character 0 or 1, which not every reader of CSV takes: write "
            "JSON, ORC or Parquet"
        )
    doubled = pc.replace_substring(column, '"', '""')
    quoted = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.fill_null(pc.if_else(pc.match_substring_regex(column, _QUOTED), quoted, column), "")


def _plain_texts(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    if pa.types.is_floating(column.type):
        texts = pc.replace_substring(pc.replace_substring(texts, "inf", "Infinity"), "nan", "NaN")
    return texts


def _write_json(changes: pa.Table, stream: pa.NativeFile) -> None:
    for field in changes.schema:
        if _has_map_without_texts(field.type):
            raise LocalEngineError(
                f"column {field.name!r}, {field.type}: keys of maps are texts in JSON; write ORC or Parquet"
            )
    for rows in _parts(changes):
        names = rows.column_names
        plain = pa.StructArray.from_arrays([plain_array(each) for each in rows.columns], names=names)
        stream.write("".join(f"{line}\n" for line in json_texts(plain)).encode())


def _has_map_without_texts(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        return True
    return any(_has_map_without_texts(kind.field(number).type) for number in range(kind.num_fields))


def _write_parquet(changes: pa.Table, stream: pa.NativeFile) -> None:
    pyarrow.parquet.write_table(changes, stream)


def _write_orc(changes: pa.Table, stream: pa.NativeFile) -> None:
    columns, attributes, number = [], {}, 1
    for field, column in zip(changes.schema, changes.columns, strict=True):
        is_clock = pa.types.is_timestamp(field.type)
        if not is_clock and has_timestamp(field.type):
            raise LocalEngineError(
                f"column {field.name!r}, {field.type}: timestamps within others have no form in ORC that "
                "both engines read; write JSON or Parquet"
            )
        columns.append(plain_array(column).view(pa.int64()) if is_clock else column)
        if is_clock:
            attributes[number] = {SPARK_TYPE: WALL_CLOCK}
        number += column_count(field.type)
    with contextlib.closing(pa.BufferOutputStream()) as buffer:
        with pyarrow.orc.ORCWriter(buffer) as writer:
            writer.write(pa.table(columns, names=changes.column_names))
        stream.write(with_type_attributes(buffer.getvalue().to_pybytes(), attributes))


def _parts(changes: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, changes.num_rows, _BATCH_ROWS):
        yield changes.slice(start, _BATCH_ROWS)


_WRITERS: dict[str, Callable[[pa.Table, pa.NativeFile], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "orc": _write_orc,
    "parquet": _write_parquet,
}
