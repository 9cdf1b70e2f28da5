"""export_rows: writes the rows of a scan to a file for people, which appears only when it is complete.

CSV and JSON are exact: values are formatted as in :mod:`mutation_api.types.json_values`; nested values in CSV
are JSON. Parquet and ORC use their own types, with timestamps in microseconds. ROW__ID has the form that
``hive-mutate apply`` reads: a struct, in CSV the columns ``ROW__ID.writeid`` and so on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.errors import ClientError, ConfigurationError, RecordLayoutError
from mutation_api.orc.format.type_attributes import with_type_attributes
from mutation_api.orc.read.column_reader import TimestampForm
from mutation_api.orc.write.tail_holding_sink import TailHoldingSink
from mutation_api.scan.file_format import file_format
from mutation_api.scan.row_objects import row_objects
from mutation_api.scan.table_scan import PartitionRows, TableScan
from mutation_api.storage.location import Location, LocationLike
from mutation_api.storage.replacing import replacing
from mutation_api.types.json_values import cell_text

__all__ = ["export_rows"]


def export_rows(scan: TableScan, file: LocationLike, format_name: str | None = None) -> None:
    """Write the rows of a scan to a file, which appears only when complete and replaces an existing one.

    Args:
        scan: what is read. Its ``timestamps`` are ignored: each format has its own form.
        file: a path, ``hdfs://…``, ``s3a://…``. Its directory must exist if the storage has directories.
        format_name: one of :data:`~mutation_api.scan.file_format.FORMATS`. None: the file's extension.

    Raises:
        ConfigurationError: the file's format or location is unknown.
        ClientError: the file cannot be written.
        RecordLayoutError: a column has a type that the format lacks.
        Others: see :meth:`TableScan.by_partition`. After an error an existing file is unchanged.
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
            f"table {scan.view.table.full_name}: {name} has no type for one of its columns: {error}"
        ) from error


@contextlib.contextmanager
def _replaced(file: Location) -> Iterator[pa.NativeFile]:
    try:
        with replacing(file) as stream:
            yield stream
    except OSError as error:
        raise ClientError(f"{file.shown}: the file cannot be written: {error}") from error


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
    """The header, in which each field of ROW__ID is a column."""
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
        writer.write(scan.schema.empty_table())  # so that a file without rows has columns too
        for _, rows in batches:
            writer.write(pa.Table.from_batches([rows]))
        sink.hold()
    file.write(with_type_attributes(sink.held(), {}))  # which says what calendar the days are of


@dataclass(frozen=True)
class _Form:
    """The form of a format's timestamps, and the function that writes it."""

    timestamps: TimestampForm
    write: Callable[[TableScan, Iterator[PartitionRows], pa.NativeFile], None]


_FORMS = {
    "csv": _Form(TimestampForm.TEXT, _write_csv),
    "json": _Form(TimestampForm.TEXT, _write_json),
    "orc": _Form(TimestampForm.MICROSECONDS, _write_orc),
    "parquet": _Form(TimestampForm.MICROSECONDS, _write_parquet),
}
