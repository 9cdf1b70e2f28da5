"""ORC and Parquet files as Arrow batches of their own types, which the writer converts."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.parquet
import pyorc

from mutation_api.errors import ConfigurationError, CorruptFileError, LocalEngineError, RecordLayoutError
from mutation_api.format.hive_type import UnfitTypeError
from mutation_api.format.plain_array import plain_array
from mutation_api.format.timestamps import FIRST_GREGORIAN_DAY, SECONDS_PER_DAY, UNITS_PER_SECOND
from mutation_api.orc.format.checked_file import FAULTS, open_orc
from mutation_api.orc.format.tail import read_tail
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

__all__ = ["SPARK_TYPE", "WALL_CLOCK", "read_column_file"]

_BATCH_ROWS = 1 << 16
SPARK_TYPE, WALL_CLOCK = "spark.sql.catalyst.type", "timestamp_ntz"
"""The mark of a wall clock in an ORC file that Spark wrote."""
_DURATION = "duration["
"""In Arrow's names of types."""
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Metadata of a Parquet file whose early dates are those of the hybrid calendar."""


def read_column_file(file: Location, entries: Sequence[FileEntry], format_name: str) -> pa.RecordBatchReader:
    """The rows of a file or of the files of a folder; batches are read as they are consumed.

    Args:
        file: the file or folder, for messages.
        entries: the files.
        format_name: ``orc`` or ``parquet``.

    Raises:
        ConfigurationError: a file cannot be read as this format (also from the batches), or files of a folder
            have different columns.
        RecordLayoutError: columns hold durations that are read as numbers.
        LocalEngineError: a file has values that only Spark can tell (also from the batches).
    """
    if not entries:
        return pa.table({}).to_reader()
    files = [(_OrcFile if format_name == "orc" else _ParquetFile)(entry.location) for entry in entries]
    schema = files[0].schema
    for each in files:
        if each.schema != schema:
            raise ConfigurationError(
                f"{file.shown} cannot be read as {format_name}: {each.file.shown} has other columns or types "
                f"than {files[0].file.shown}"
            )
    batches = (batch for each in files for batch in each.batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


class _OrcFile:
    """An ORC file. Spark keeps wall clocks in it as numbers of microseconds, with a mark."""

    def __init__(self, file: Location) -> None:
        self.file = file
        with _readable(file, "orc"):
            storage = storage_at(file)
            self._is_proleptic = read_tail(storage, file).is_proleptic
            with storage.open_input(file) as stream:
                found = open_orc(stream).schema
            with storage.open_input(file) as stream:
                kinds = pyorc.Reader(stream).schema
                assert isinstance(kinds, pyorc.Struct)
        self._clocks = [kinds[name].attributes.get(SPARK_TYPE) == WALL_CLOCK for name in found.names]
        self.schema = pa.schema(
            [
                pa.field(field.name, pa.timestamp("us") if is_clock else field.type)
                for field, is_clock in zip(found, self._clocks, strict=True)
            ]
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """One of each stripe."""
        with _readable(self.file, "orc"), storage_at(self.file).open_input(self.file) as stream:
            source = pyarrow.orc.ORCFile(stream)  # its stripes were checked when it was opened
            for stripe in range(source.nstripes):
                columns = [
                    column.view(pa.timestamp("us")) if is_clock else column
                    for column, is_clock in zip(source.read_stripe(stripe).columns, self._clocks, strict=True)
                ]
                batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
                if not self._is_proleptic:
                    _refuse_early(batch, self.file)
                yield batch


class _ParquetFile:
    """A Parquet file."""

    def __init__(self, file: Location) -> None:
        self.file = file
        with _readable(file, "parquet"), storage_at(file).open_input(file) as stream:
            source = pyarrow.parquet.ParquetFile(stream)
            self.schema = _bare(source.schema_arrow)
            columns = (source.schema.column(number) for number in range(len(source.schema)))
            instants = [column.path for column in columns if column.physical_type == "INT96"]
            metadata = source.metadata.metadata or {}
            lost = _durations_lost(self.schema, metadata.get(b"ARROW:schema"))
        self._is_legacy = any(key in metadata for key in _LEGACY_KEYS)
        if lost:
            raise RecordLayoutError(
                f"{file.shown}: the columns {', '.join(lost)} hold durations, which pyarrow reads as whole "
                "numbers, since they are stored as dictionaries: convert them before they are written"
            )
        if instants:
            raise LocalEngineError(
                f"{file.shown}: INT96 ({', '.join(instants)}) is an instant to some and a wall clock to "
                "others: read it with Spark, or write it as TIMESTAMP"
            )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In order."""
        with _readable(self.file, "parquet"), storage_at(self.file).open_input(self.file) as stream:
            for batch in pyarrow.parquet.ParquetFile(stream).iter_batches(_BATCH_ROWS):
                if self._is_legacy:
                    _refuse_early(batch, self.file)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def _durations_lost(found: pa.Schema, stored: bytes | None) -> list[str]:
    """Columns whose values were durations in dictionaries (pyarrow 26 reads them as numbers).

    ``stored``: the schema that pyarrow wrote into the file, in base64; None without one.
    """
    if stored is None:
        return []
    given = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored)))
    return [
        field.name
        for field in found
        if str(given.field(field.name).type).count(_DURATION) > str(field.type).count(_DURATION)
    ]


def _bare(schema: pa.Schema) -> pa.Schema:
    """The schema with no other metadata of columns than the names of extension types."""
    fields = []
    for field in schema:
        kept = {
            key: text for key, text in (field.metadata or {}).items() if key.startswith(b"ARROW:extension")
        }
        fields.append(pa.field(field.name, field.type, metadata=kept))
    return pa.schema(fields)


@contextlib.contextmanager
def _readable(file: Location, format_name: str) -> Iterator[None]:
    try:
        yield
    except (*FAULTS, CorruptFileError) as error:
        raise ConfigurationError(f"{file.shown} cannot be read as {format_name}: {error}") from error


def _refuse_early(batch: pa.RecordBatch, file: Location) -> None:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if any(map(_is_early, _leaves(column))):
            raise LocalEngineError(
                f"{file.shown}: column {name} has dates before 1582-10-15, and the file does not tell their "
                "calendar: read it with Spark, or write it as JSON or CSV"
            )


def _is_early(array: pa.Array) -> bool:
    if pa.types.is_date32(array.type):
        first, limit = pc.min(array.view(pa.int32())).as_py(), FIRST_GREGORIAN_DAY
    elif pa.types.is_timestamp(array.type):
        first = pc.min(array.view(pa.int64())).as_py()
        limit = FIRST_GREGORIAN_DAY * SECONDS_PER_DAY * UNITS_PER_SECOND[array.type.unit]
    else:
        return False
    return first is not None and first < limit


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    try:
        array = plain_array(column)
    except UnfitTypeError:  # whoever converts it refuses it
        return
    if pa.types.is_struct(array.type):
        for field in array.flatten():
            yield from _leaves(field)
    elif pa.types.is_map(array.type):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        yield from _leaves(array.flatten())
    elif not pa.types.is_union(array.type):
        yield array
