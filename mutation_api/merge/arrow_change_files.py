"""Files of changes and rows, read and written as Arrow data, without Spark.

Change sets, for example those of ``local_diff``, are saved in the layout of :mod:`.row_files`: the operation,
ROW__ID (a struct; in CSV one column per field) and the table's columns. ``hive-mutate apply`` reads them.
Both engines read back every value exactly. If the format makes this impossible for a value,
UnsupportedLocallyError is raised. In ORC files, timestamps without time zone are written as Spark writes
them, as numbers with an attribute, since Spark reads ORC timestamps in the time zone of its JVM.

Rows are read with the types of a table, by the rules of :mod:`mutation_api.merge.row_files` for CSV, JSON,
ORC and Parquet. A value that is not valid for its column's type is refused and never becomes NULL; the
message names the column and the row. An empty CSV field is NULL, and a quoted empty field is the empty
string. Files may be on any storage that the library supports. CSV and JSON files that end in .gz, .bz2 or
.zst are decompressed.

CSV fields and JSON lines are parsed by the same code in Spark's tasks, so Spark reads the same values from
every file that is read here. Spark also reads some files that are refused here:

* CSV: quotes within a field that does not begin with one, characters after a closing quote, a single CR as
  the line ending (:mod:`.csv_files`), columns without a name or with the same name, and bytes that are not
  UTF-8, which Spark replaces.
* ORC and Parquet: dates and timestamps before 1582-10-15 if the file does not state that its calendar is
  proleptic, timestamps with time zone, which Spark shows in the session's time zone, and INT96.
* ORC: timestamps without time zone within structs, lists and maps if Spark wrote the file, and timestamps of
  years before 1678 and after 2261, which pyarrow can only read in nanoseconds.
* Nested directories, whose names Spark turns into columns, names with wildcards, and other compressions.

Parquet timestamps in nanoseconds are read here, but Spark refuses them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.parquet

from mutation_api.errors import ClientError, ConfigurationError, RecordLayoutError, UnsupportedLocallyError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.json_values import json_texts, to_cells
from mutation_api.format.plain_array import has_timestamp, plain_array, struct_fields
from mutation_api.merge.column_files import SPARK_TYPE, WALL_CLOCK, read_column_file
from mutation_api.merge.csv_files import CsvFile
from mutation_api.merge.file_rules import RowColumns, files_at
from mutation_api.merge.json_files import read_json_file
from mutation_api.orc.format.stored_values import column_count
from mutation_api.orc.format.tail import with_type_attributes
from mutation_api.read.export import file_format
from mutation_api.storage.connect import replacing
from mutation_api.storage.local import without_links
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

_BATCH_ROWS = 1 << 16
_QUOTED = r'[",\r\n]|^$|^\s|\s$'
"""Matches CSV strings that must be quoted."""
_NO_TEXT = r"[\x00\x01]"


def save_arrow_changes(changes: pa.Table, file: Location, format_name: str | None = None) -> None:
    """Write changes into one file. It appears only when it is complete, and replaces an existing file.

    Args:
        changes: operation, ROW__ID and the table's columns, in the types of the table.
        file: the file to write. Its directory must exist if the storage has directories.
        format_name: one of :data:`~mutation_api.read.export.FORMATS`. If None, taken from the file
            extension.

    Raises:
        ConfigurationError: If the format is unknown.
        UnsupportedLocallyError: If only Spark can write a value in this format.
        ClientError: If the file cannot be written.
    """
    write = _WRITERS[file_format(file, format_name)]
    try:
        with replacing(without_links(file)) as stream:
            write(changes, stream)
    except OSError as error:
        raise ClientError(f"{file.shown}: cannot write the file: {error}") from error


def _write_csv(changes: pa.Table, stream: pa.NativeFile) -> None:
    names = [name for name, _ in _flat(changes.schema.empty_table())]
    stream.write(f"{','.join(names)}\n".encode())
    for rows in _parts(changes):
        fields = [_csv_fields(name, column) for name, column in _flat(rows)]
        lines = pc.binary_join_element_wise(*fields, ",").to_pylist()
        stream.write("".join(f"{line}\n" for line in lines).encode())


def _flat(rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns by name. Each field of ROW__ID is a column."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        array = plain_array(column)
        if name == ROW_ID_COLUMN:
            for field, part in zip(array.type, struct_fields(array), strict=True):
                yield f"{ROW_ID_COLUMN}.{field.name}", part
        else:
            yield name, array


def _csv_fields(name: str, column: pa.Array) -> pa.Array:
    """Return the values as CSV fields: NULL is empty, and values are quoted where necessary."""
    cells = to_cells(column)
    if pc.any(pc.match_substring_regex(cells, _NO_TEXT)).as_py():
        raise UnsupportedLocallyError(
            f"column {name!r} has a string with a character 0 or 1, which some CSV readers do not accept. "
            "Write JSON, ORC or Parquet instead"
        )
    doubled = pc.replace_substring(cells, '"', '""')
    quoted = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.fill_null(pc.if_else(pc.match_substring_regex(cells, _QUOTED), quoted, cells), "")


def _write_json(changes: pa.Table, stream: pa.NativeFile) -> None:
    for rows in _parts(changes):
        names = rows.column_names
        plain = pa.StructArray.from_arrays([plain_array(each) for each in rows.columns], names=names)
        stream.write("".join(f"{line}\n" for line in json_texts(plain)).encode())


def _write_parquet(changes: pa.Table, stream: pa.NativeFile) -> None:
    pyarrow.parquet.write_table(changes, stream)


def _write_orc(changes: pa.Table, stream: pa.NativeFile) -> None:
    columns, attributes, number = [], {}, 1
    for field, column in zip(changes.schema, changes.columns, strict=True):
        is_clock = pa.types.is_timestamp(field.type)
        if not is_clock and has_timestamp(field.type):
            raise UnsupportedLocallyError(
                f"column {field.name!r}, {field.type}: ORC cannot hold nested timestamps in a form that both "
                "engines read. Write JSON or Parquet"
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


MEMORY_BYTES_DEFAULT = 1 << 29


@dataclass(frozen=True)
class ArrowFiles:
    """A reader of files that hold rows of a table.

    Attributes:
        columns: the columns that the files may have.
        memory_bytes: limit for the rows of JSON, ORC and Parquet files. Each ORC or Parquet file is read as a
            whole. All JSON rows are read together, because the columns are known only when all of them have
            been read.
    """

    columns: RowColumns
    memory_bytes: int = MEMORY_BYTES_DEFAULT

    def read_all(self, files: Sequence[Location], format_name: str | None = None) -> pa.RecordBatchReader:
        """Read the rows of several files.

        If ``format_name`` is None, it is taken from the file extension.

        Raises:
            RecordLayoutError: If the files differ in columns or types, or see :meth:`read`.
            RecordValueError, ConfigurationError: See :meth:`read`.
        """
        readers = [self.read(file, format_name) for file in files]
        wanted = _layout(readers[0].schema)
        for file, reader in zip(files, readers, strict=True):
            if _layout(reader.schema) != wanted:
                found = _described(_layout(reader.schema))
                raise RecordLayoutError(
                    f"{file.shown} has the columns {found}, but {files[0].shown} has {_described(wanted)}. "
                    "All files of a source must have the same columns"
                )
        schema = readers[0].schema
        batches = (_in_order(batch, schema) for reader in readers for batch in reader)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def read(self, file: Location, format_name: str | None = None) -> pa.RecordBatchReader:
        """Read the rows of a file, or of a directory of files with the same format.

        If ``format_name`` is None, it is taken from the file extension. The batches of CSV are read as they
        are consumed and may raise the same errors.

        Raises:
            RecordLayoutError: If columns are unknown or have a type that the format cannot hold.
            RecordValueError: If values are not valid for their column's type. The message shows some.
            ConfigurationError: If the file does not exist, cannot be read in this format, or has an
                extension that is not a known format.
        """
        format_name = file_format(file, format_name)
        entries = files_at(file)
        match format_name:
            case "csv":
                return self._read_csv(file, entries)
            case "json":
                return read_json_file(self.columns, file, entries, self.memory_bytes)
            case _:
                return read_column_file(file, entries, format_name)

    def _read_csv(self, file: Location, entries: Sequence[FileEntry]) -> pa.RecordBatchReader:
        if not entries:
            return pa.table({}).to_reader()
        parts = [CsvFile(self.columns, entry.location) for entry in entries]
        first = parts[0]
        for part in parts:
            if [name.lower() for name in part.names] != [name.lower() for name in first.names]:
                raise ConfigurationError(
                    f"{file.shown} cannot be read as csv: the header of {part.file.shown} is "
                    f"{', '.join(part.names)}, but that of {first.file.shown} is {', '.join(first.names)}. "
                    "All files of a directory must have the same header"
                )
        batches: Iterator[pa.RecordBatch] = itertools.chain.from_iterable(
            part.batches(first.names) for part in parts
        )
        return pa.RecordBatchReader.from_batches(first.schema, batches)


def _layout(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name.lower(): field.type for field in schema}


def _described(layout: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in layout.items())


def _in_order(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the columns of the schema, ignoring their order and case in the batch."""
    at = {name.lower(): number for number, name in enumerate(batch.schema.names)}
    columns = [batch.column(at[name.lower()]) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
