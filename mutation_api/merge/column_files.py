"""Read ORC and Parquet files as Arrow batches with the files' own types; the writer converts them."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.parquet
import pyorc

from mutation_api.errors import (
    ConfigurationError,
    CorruptFileError,
    RecordLayoutError,
    UnsupportedLocallyError,
)
from mutation_api.format.hive_type import UnfitTypeError
from mutation_api.format.plain_array import plain_array
from mutation_api.format.timestamps import FIRST_GREGORIAN_DAY, SECONDS_PER_DAY, UNITS_PER_SECOND
from mutation_api.orc.format.checked_file import FAULTS, open_orc
from mutation_api.orc.format.tail import read_tail
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

_BATCH_ROWS = 1 << 16
SPARK_TYPE, WALL_CLOCK = "spark.sql.catalyst.type", "timestamp_ntz"
"""The attribute that marks a timestamp without time zone in an ORC file that Spark wrote."""
_DURATION = "duration["
"""The start of the duration types' names in Arrow."""
_LEGACY_KEYS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""The metadata keys of a Parquet file in which early dates use the hybrid calendar."""


def read_column_file(file: Location, entries: Sequence[FileEntry], format_name: str) -> pa.RecordBatchReader:
    """Read the rows of a file, or of the files of a directory. Batches are read as they are consumed.

    Args:
        file: the file or directory, for messages.
        entries: the files.
        format_name: ``orc`` or ``parquet``.

    Raises:
        ConfigurationError: If a file cannot be read in this format (possibly raised while reading batches),
            or if the files of a directory have different columns.
        RecordLayoutError: If columns hold durations that would be read as numbers.
        UnsupportedLocallyError: If a file has values that only Spark can interpret (possibly raised while
            reading batches).
    """
    if not entries:
        return pa.table({}).to_reader()
    files = [(_OrcFile if format_name == "orc" else _ParquetFile)(entry.location) for entry in entries]
    schema = files[0].schema
    for each in files:
        if each.schema != schema:
            raise ConfigurationError(
                f"{file.shown} cannot be read as {format_name}: the columns or types of {each.file.shown} "
                f"differ from those of {files[0].file.shown}"
            )
    batches = (batch for each in files for batch in each.batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


class _OrcFile:
    """An ORC file. Spark stores local timestamps in it as numbers of microseconds with an attribute."""

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
        """Yield a batch per stripe."""
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
                f"{file.shown}: the columns {', '.join(lost)} hold durations that are stored as "
                "dictionaries; pyarrow reads these as integers. Convert the columns before writing the file"
            )
        if instants:
            raise UnsupportedLocallyError(
                f"{file.shown}: INT96 columns are ambiguous ({', '.join(instants)}): writers disagree "
                "whether they are UTC or local time. Read the file with Spark, or write the columns as "
                "TIMESTAMP"
            )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in order."""
        with _readable(self.file, "parquet"), storage_at(self.file).open_input(self.file) as stream:
            for batch in pyarrow.parquet.ParquetFile(stream).iter_batches(_BATCH_ROWS):
                if self._is_legacy:
                    _refuse_early(batch, self.file)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


def _durations_lost(found: pa.Schema, stored: bytes | None) -> list[str]:
    """Return the columns whose values were durations in dictionaries (pyarrow 26 reads them as numbers).

    ``stored``: the schema that pyarrow wrote into the file, in base64, or None.
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
    """Return the schema without column metadata, except for the names of extension types."""
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
            raise UnsupportedLocallyError(
                f"{file.shown}: column {name} has dates before 1582-10-15, and the file does not state their "
                "calendar. Read it with Spark, or write it as JSON or CSV"
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
    except UnfitTypeError:  # refused later, when it is converted
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
