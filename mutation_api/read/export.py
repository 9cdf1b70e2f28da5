"""Exports: write the rows of a scan to a file in a common format. The file appears only when complete.

The format follows from the file's name. CSV and JSON are exact: values are formatted as in
:mod:`mutation_api.format.json_values`, and nested values in CSV are JSON. Parquet and ORC use their own
types, with timestamps in microseconds. ROW__ID has the form that ``hive-mutate apply`` reads: a struct, or in
CSV the columns ``ROW__ID.writeid`` and so on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet

from mutation_api.errors import ClientError, ConfigurationError, RecordLayoutError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.json_values import cell_text, to_json
from mutation_api.orc.format.tail import with_type_attributes
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.orc.write.encoders import TailHoldingSink
from mutation_api.read.table_scan import PartitionRows, TableScan
from mutation_api.storage.connect import replacing
from mutation_api.storage.location import Location, LocationLike

FORMATS = ("csv", "json", "orc", "parquet")
"""CSV with a header, JSON with one object per line, ORC, Parquet. The file extensions are the same."""


def file_format(file: Location, given: str | None = None) -> str:
    """Return the given format; if None, the file's extension.

    Raises:
        ConfigurationError: If it is not one of FORMATS.
    """
    found = given or extension(file)
    if found not in FORMATS:
        raise ConfigurationError(
            f"{file.shown}: name the format with format_name, one of {', '.join(FORMATS)}"
        )
    return found


def extension(file: Location) -> str:
    """Return the part of the name after its last dot, in lower case; '' if there is no dot."""
    return PurePosixPath(file.name).suffix.lower().removeprefix(".")


def row_objects(scan: TableScan, rows: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield rows as objects for ``json.dumps``.

    Args:
        scan: the scan that returned the rows.
        rows: one of its batches. All rows belong to one partition, so partition values are converted once.

    Yields:
        ``{"ROW__ID": {"writeid": 7, "bucketid": 0, "rowid": 1}, "id": 1, "ds": "x"}``: ROW__ID if the scan
        has it, followed by the columns in the order of the scan.
    """
    columns: dict[str, list[Any]] = {}
    if scan.row_ids:
        columns[ROW_ID_COLUMN] = rows.column(ROW_ID_COLUMN).to_pylist()
    partition_keys = scan.view.table.partition_keys
    for column in scan.selected:
        array = rows.column(column.name)
        if column in partition_keys:
            columns[column.name] = to_json(array.slice(0, 1)) * rows.num_rows
        else:
            columns[column.name] = to_json(array)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def export_rows(scan: TableScan, file: LocationLike, format_name: str | None = None) -> None:
    """Write the rows of a scan to a file, which appears only when complete and replaces an existing one.

    Args:
        scan: the scan to read. Its ``timestamps`` are ignored, because each format has its own form.
        file: a path, ``hdfs://…``, ``s3a://…``. Its directory must exist if the storage has directories.
        format_name: one of :data:`~FORMATS`. If None, inferred from the file
            extension.

    Raises:
        ConfigurationError: If the file's format or location is unknown.
        ClientError: If the file cannot be written.
        RecordLayoutError: If the format does not support the type of a column.

    Errors of :meth:`TableScan.by_partition` are passed on. After an error, an existing file is unchanged.
    """
    try:
        location = Location.given(file)
    except OSError as error:
        raise ConfigurationError(f"file {file}: {error.strerror}") from error
    name = file_format(location, format_name)
    form = _FORMS[name]
    read = dataclasses.replace(scan, timestamps=form.timestamps)
    batches = read.by_partition()
    try:
        with _replaced(location) as stream:
            form.write(read, batches, stream)
    except pa.ArrowNotImplementedError as error:
        raise RecordLayoutError(
            f"table {scan.view.table.full_name}: {name} does not support the type of a column: {error}"
        ) from error


@contextlib.contextmanager
def _replaced(file: Location) -> Iterator[pa.NativeFile]:
    try:
        with replacing(file) as stream:
            yield stream
    except OSError as error:
        raise ClientError(f"{file.shown}: cannot write the file: {error}") from error


def _write_json(scan: TableScan, batches: Iterator[PartitionRows], file: pa.NativeFile) -> None:
    for _, rows in batches:
        for row in row_objects(scan, rows):
            file.write(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n".encode())


def _write_csv(scan: TableScan, batches: Iterator[PartitionRows], file: pa.NativeFile) -> None:
    schema = pa.schema([(name, pa.string()) for name in _csv_names(scan.schema)])
    with pa.csv.CSVWriter(file, schema) as writer:
        for _, rows in batches:
            cells = [[cell_text(value) for value in _csv_values(row)] for row in row_objects(scan, rows)]
            arrays = [pa.array(column, pa.string()) for column in zip(*cells, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _csv_names(schema: pa.Schema) -> list[str]:
    """Return the header, in which each field of ROW__ID is a column."""
    row_id = schema.field(ROW_ID_COLUMN).type if ROW_ID_COLUMN in schema.names else ()
    names = [name for name in schema.names if name != ROW_ID_COLUMN]
    return [*(f"{ROW_ID_COLUMN}.{field.name}" for field in row_id), *names]


def _csv_values(row: Mapping[str, Any]) -> list[Any]:
    values = dict(row)
    return [*values.pop(ROW_ID_COLUMN, {}).values(), *values.values()]


def _write_parquet(scan: TableScan, batches: Iterator[PartitionRows], file: pa.NativeFile) -> None:
    with pa.parquet.ParquetWriter(file, scan.schema) as writer:
        for _, rows in batches:
            writer.write_batch(rows)


def _write_orc(scan: TableScan, batches: Iterator[PartitionRows], file: pa.NativeFile) -> None:
    sink = TailHoldingSink(file)
    with pa.orc.ORCWriter(pa.PythonFile(sink, mode="w")) as writer:
        writer.write(scan.schema.empty_table())  # gives a file without rows its columns
        for _, rows in batches:
            writer.write(pa.Table.from_batches([rows]))
        sink.hold()
    file.write(with_type_attributes(sink.held(), {}))  # records which calendar the days belong to


@dataclass(frozen=True)
class _Form:
    """A format's form of timestamps, and the function that writes the format."""

    timestamps: TimestampForm
    write: Callable[[TableScan, Iterator[PartitionRows], pa.NativeFile], None]


_FORMS = {
    "csv": _Form(TimestampForm.TEXT, _write_csv),
    "json": _Form(TimestampForm.TEXT, _write_json),
    "orc": _Form(TimestampForm.MICROSECONDS, _write_orc),
    "parquet": _Form(TimestampForm.MICROSECONDS, _write_parquet),
}
