"""ArrowFiles: files of rows, read with the types of a table, without Spark.

What :mod:`mutation_api.changes.files.row_files` says of CSV, JSON, ORC and Parquet holds here, too: the types
are the table's; a text or value that is none of its column's type is refused, naming the column and the row,
and never becomes NULL; an empty CSV field is NULL, a quoted empty one the empty text. Files may lie on any
storage of ours; those with the endings .gz, .bz2 and .zst of CSV and JSON are unpacked.

Texts of CSV and the lines of JSON become values by the same code in Spark's tasks, so what is read here is
read with the same values by Spark. But Spark reads some things that are refused here:

* CSV: quotes within a field that does not begin with one, text behind a closing quote, a lone CR as the end
  of a line (:mod:`.strict_csv`); columns without a name, or with the same name; bytes that are not UTF-8,
  which Spark replaces.
* ORC and Parquet: dates and timestamps before 1582-10-15, if the file does not say that their calendar is
  proleptic; wall clocks within structs, lists and maps of an ORC file that Spark wrote; instants, which Spark
  shows in the zone of its session; INT96.
* ORC: timestamps of years before 1678 and after 2261, which pyarrow reads in nanoseconds only.
* Folders in folders, from whose names Spark makes columns; names with wildcards; other compressions.

Parquet's timestamps of nanoseconds are read here; Spark refuses them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mutation_api.changes.files.column_files import read_column_file
from mutation_api.changes.files.csv_files import CsvFile
from mutation_api.changes.files.file_rules import RowColumns
from mutation_api.changes.files.file_sizes import files_at
from mutation_api.changes.files.json_files import read_json_file
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.scan.file_format import file_format
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

__all__ = ["MEMORY_BYTES_DEFAULT", "ArrowFiles"]

MEMORY_BYTES_DEFAULT = 1 << 29


@dataclass(frozen=True)
class ArrowFiles:
    """Reads files that hold rows of a table.

    Attributes:
        columns: the columns that they may have.
        memory_bytes: bound for the rows of JSON, ORC and Parquet files, which are read whole, each file at a
            time; JSON all at once, since only all rows tell its columns.
    """

    columns: RowColumns
    memory_bytes: int = MEMORY_BYTES_DEFAULT

    def read_all(self, files: Sequence[Location], format_name: str | None = None) -> pa.RecordBatchReader:
        """The rows of several files; the format as of :func:`~mutation_api.scan.file_format.file_format`.

        Raises:
            RecordLayoutError: see :meth:`read`; or the files differ in columns or types.
            RecordValueError, ConfigurationError: see :meth:`read`.
        """
        readers = [self.read(file, format_name) for file in files]
        wanted = _layout(readers[0].schema)
        for file, reader in zip(files, readers, strict=True):
            if _layout(reader.schema) != wanted:
                found = _described(_layout(reader.schema))
                raise RecordLayoutError(
                    f"{file.shown} has the columns {found}, {files[0].shown} has {_described(wanted)}; files "
                    "of one source must have the same"
                )
        schema = readers[0].schema
        batches = (_in_order(batch, schema) for reader in readers for batch in reader)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def read(self, file: Location, format_name: str | None = None) -> pa.RecordBatchReader:
        """The rows of a file, or of a folder of files of one format; None for the one that its name tells.

        The batches of CSV are read as they are consumed, and may raise the same errors.

        Raises:
            RecordLayoutError: columns are unknown, or of a type the format cannot hold.
            RecordValueError: values that are no values of their column's type; the message names some.
            ConfigurationError: there is no file, it cannot be read as this format, or its name tells none.
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
                    f"{', '.join(part.names)}, that of {first.file.shown} is {', '.join(first.names)}; the "
                    "files of a folder must have the same"
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
    """The columns of the schema, which the batch may have in another order and spelling."""
    at = {name.lower(): number for number, name in enumerate(batch.schema.names)}
    columns = [batch.column(at[name.lower()]) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
