"""JSON lines, read as Arrow batches of a table's types.

Each line is an object. :mod:`mutation_api.format.json_values` describes the spelling of values. Where pyarrow
returns the same values as Python, it parses the lines with the table's types, ten times as fast. It refuses
more than Python's parser does: numbers in quotes, or an integer for a string. In such cases, and if its
result might differ, Python parses the lines, which takes a microsecond per field.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from mutation_api.errors import (
    ConfigurationError,
    RecordLayoutError,
    RecordValueError,
    UnsupportedLocallyError,
)
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.hive_type import (
    HiveType,
    MisfitError,
    TypeFamily,
    arrow_type,
    parse_hive_type,
    spark_type,
)
from mutation_api.format.json_values import JsonMisfitError, decode_json, from_json
from mutation_api.format.plain_array import repeated
from mutation_api.format.text_values import BinaryEncoding, values_of_texts
from mutation_api.merge.file_rules import SAMPLE_ROWS, RowColumns, opened_text, row_id_ddl
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry

_MAX_BYTES = 1 << 30
"""pyarrow parses one block at a time and counts its bytes with 31 bits."""

_AS_TEXTS = (TypeFamily.TEXT, TypeFamily.DATE, TypeFamily.TIMESTAMP, TypeFamily.BINARY)
READ_BY_ARROW = (*_AS_TEXTS, TypeFamily.BOOLEAN, TypeFamily.INTEGER, TypeFamily.FLOAT)
"""The families of Hive types that pyarrow parses.

Decimals are missing: pyarrow 25 reads a number with too many digits as another number, and crashes on the
string ``-1e-999999999``. Lists and objects are missing because they are rare.
"""


def names_by_arrow(lines: pa.Array) -> list[str] | None:
    """Return the names in objects. ``lines`` are strings, or bytes in UTF-8."""
    table = _parsed(lines, None)
    return None if table is None else table.column_names


def values_by_arrow(lines: pa.Array, kinds: Mapping[str, HiveType]) -> dict[str, pa.Array] | None:
    """Return the values of columns by name, in the types of ``arrow_type`` with microseconds.

    Args:
        lines: an object per line, as strings or UTF-8 bytes. Other columns are ignored.
        kinds: the columns' types by name. Their families must be in READ_BY_ARROW.
    """
    schema = pa.schema([(name, _read_as(kind)) for name, kind in kinds.items()])
    table = _parsed(lines, schema)
    if table is None:
        return None
    columns = {name: table.column(name).combine_chunks() for name in kinds}
    try:
        values = {name: _values(column, kinds[name]) for name, column in columns.items()}
    except MisfitError:
        return None
    return None if any(array is None for array in values.values()) else values


def _read_as(kind: HiveType) -> pa.DataType:
    return pa.string() if kind.family in _AS_TEXTS else arrow_type(kind, timestamp_unit="us")


def _values(column: pa.Array, kind: HiveType) -> pa.Array | None:
    if kind.family in _AS_TEXTS:
        return values_of_texts(column, kind, binary=BinaryEncoding.BASE64)
    # pyarrow also accepts other words for values that are not finite, such as Inf.
    is_uncertain = kind.family is TypeFamily.FLOAT and not np.isfinite(column.drop_null().to_numpy()).all()
    return None if is_uncertain else column


def _parsed(lines: pa.Array, schema: pa.Schema | None) -> pa.Table | None:
    """Return one row per line, or None if a line is not an object of such columns or pyarrow fails."""
    try:
        lines = pc.ascii_trim_whitespace(lines.cast(pa.string()))  # the cast refuses bytes that are not UTF-8
        are_objects = pc.and_(pc.starts_with(lines, "{"), pc.ends_with(lines, "}"))
        if not len(lines) or lines.nbytes > _MAX_BYTES or not pc.all(are_objects).as_py():
            return None
        offsets = pa.array([0, len(lines)], pa.int32())
        block = pc.binary_join(pa.ListArray.from_arrays(offsets, lines), "\n")[0].as_buffer()
        table = pj.read_json(
            pa.BufferReader(block),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
            ),
        )
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(lines) else None


_BATCH_LINES = 10_000
_SHOWN_LENGTH = 80

_Object = Mapping[str, Any]


def read_json_file(
    columns: RowColumns, file: Location, entries: Sequence[FileEntry], memory_bytes: int
) -> pa.RecordBatchReader:
    """Read the rows of a file, or of the files of a directory, into memory.

    The columns are known only when all rows have been read.

    Args:
        columns: the columns that the file may have.
        file: the file or directory, for messages.
        entries: the files.
        memory_bytes: limit for the rows.

    Raises:
        RecordLayoutError: If columns are unknown, or differ only in case.
        RecordValueError: If a value is not valid for its column's type. The message shows some.
        ConfigurationError: If a line is not a JSON object.
        UnsupportedLocallyError: If the rows do not fit into ``memory_bytes``.
    """
    known, types = columns.types(), _types_of(columns)
    if columns.has_row_ids:
        known[ROW_ID_COLUMN.lower()] = row_id_ddl(columns.table)
    batches: list[dict[str, pa.Array]] = []
    counts: list[int] = []
    byte_count = 0
    for entry in entries:
        for lines in _batches(entry.location):
            names = lines.names()
            columns.check(file, names, known)
            batch = lines.values(columns, {name: types.get(name.lower(), _TEXT) for name in names})
            batches.append(batch)
            counts.append(len(lines.texts))
            byte_count += sum(array.nbytes for array in batch.values())
            if byte_count > memory_bytes:
                raise UnsupportedLocallyError(
                    f"{file.shown}: JSON must be held in memory, and its rows need more than "
                    f"{memory_bytes:,} bytes. Use CSV or Parquet, allow more memory, or use the Spark engine"
                )
    names = sorted({name for batch in batches for name in batch})
    check_json_names(file, names)
    schema = pa.schema(
        [(name, arrow_type(types.get(name.lower(), _TEXT), timestamp_unit="us")) for name in names]
    )
    complete = (
        pa.RecordBatch.from_arrays(
            [batch[f.name] if f.name in batch else pa.nulls(count, f.type) for f in schema], schema=schema
        )
        for batch, count in zip(batches, counts, strict=True)
    )
    return pa.RecordBatchReader.from_batches(schema, list(complete))


_TEXT = HiveType("string")


def _types_of(columns: RowColumns) -> dict[str, HiveType]:
    types = columns.hive_types()
    if columns.has_row_ids:
        types[ROW_ID_COLUMN.lower()] = parse_hive_type(row_id_ddl(columns.table))
    return types


@dataclass(frozen=True)
class _Lines:
    """Some lines of a file, none of them blank.

    Attributes:
        file: the file, for messages.
        texts: the lines, as strings or bytes.
        numbers: the lines' numbers in the file, from 1. None if they are not known.
    """

    file: Location
    texts: pa.Array
    numbers: Sequence[int] | None = None

    @functools.cached_property
    def objects(self) -> list[_Object]:
        """The lines as parsed by Python.

        Raises:
            ConfigurationError: If a line is not a JSON object.
        """
        return [
            _object(self.file, line, functools.partial(self._place, row))
            for row, line in enumerate(self.texts.to_pylist())
        ]

    def _place(self, row: int) -> str:
        if self.numbers is None:
            return f"the line {_shown(self.texts[row].as_py())}"
        return f"line {self.numbers[row]:,}"

    def names(self) -> list[str]:
        """Return the names in the objects.

        Raises:
            ConfigurationError: If a line is not a JSON object.
        """
        found = names_by_arrow(self.texts)
        return list(dict.fromkeys(name for row in self.objects for name in row)) if found is None else found

    def values(self, columns: RowColumns, types: Mapping[str, HiveType]) -> dict[str, pa.Array]:
        """Return the values of all columns.

        Raises:
            ConfigurationError: If a line is not a JSON object.
            RecordValueError: If a value is not valid for its column's type.
        """
        quick = {name: kind for name, kind in types.items() if kind.family in READ_BY_ARROW}
        found = values_by_arrow(self.texts, quick) or {}
        others = {name: kind for name, kind in types.items() if name not in found}
        return found | (_arrays(columns, self.file, self.objects, others) if others else {})


def _batches(file: Location) -> Iterator[_Lines]:
    with opened_text(file) as text:
        numbered = ((number, line) for number, line in enumerate(text, 1) if not line.isspace())
        while some := list(itertools.islice(numbered, _BATCH_LINES)):
            yield _Lines(file, pa.array([line for _, line in some], pa.binary()), [n for n, _ in some])


def _object(file: Location, line: str | bytes, place: Callable[[], str]) -> _Object:
    try:
        text = line.decode() if isinstance(line, bytes) else line
        found = decode_json(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file.shown} cannot be read as json: {place()}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{file.shown} cannot be read as json: {place()} is not an object: {_shown(found)}"
        )
    return found


@dataclass(frozen=True)
class JsonNames:
    """The function that finds the column names in Spark's tasks. ``file`` is for messages."""

    file: Location

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn batches of lines into batches of names.

        Raises:
            ConfigurationError: If a line is not a JSON object.
        """
        for batch in batches:
            names = _of_spark(self.file, batch.column(0)).names()
            yield pa.record_batch([pa.array(names, pa.string())], ["name"])


@dataclass(frozen=True)
class JsonRows:
    """The function that parses lines in Spark's tasks.

    Attributes:
        columns: the columns that the file may have.
        file: the file or directory, for messages.
        schema: the columns of the result, in the types of Spark's values.
    """

    columns: RowColumns
    file: Location
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn batches of lines into batches of rows.

        Raises:
            RecordValueError, ConfigurationError: See :func:`read_json_file`.
        """
        types = _types_of(self.columns)
        wanted = {name: types.get(name.lower(), _TEXT) for name in self.schema.names}
        for batch in batches:
            arrays = _of_spark(self.file, batch.column(0)).values(self.columns, wanted)
            yield pa.RecordBatch.from_arrays(
                [arrays[field.name].cast(field.type) for field in self.schema], schema=self.schema
            )


def _of_spark(file: Location, texts: pa.Array) -> _Lines:
    """Return lines that Spark read, where a byte order mark is part of the first line of a file."""
    texts = pc.utf8_trim(texts, "\ufeff")
    return _Lines(file, texts.filter(pc.not_equal(pc.utf8_trim_whitespace(texts), "")))


def check_json_names(file: Location, names: Sequence[str]) -> None:
    """Raise RecordLayoutError if columns differ only in case."""
    doubled = repeated(names, any_case=True)
    if doubled:
        raise RecordLayoutError(f"{file.shown}: columns differ only in case: {', '.join(doubled)}")


def _arrays(
    columns: RowColumns, file: Location, rows: Sequence[_Object], types: Mapping[str, HiveType]
) -> dict[str, pa.Array]:
    arrays: dict[str, pa.Array] = {}
    misfits: list[tuple[int, str, str]] = []
    for name, kind in types.items():
        try:
            arrays[name] = from_json([row.get(name) for row in rows], kind)
        except JsonMisfitError as misfit:
            misfits.append((misfit.row, name, misfit.reason))
    if misfits:
        samples = [
            f"column {name} ({spark_type(types[name])}) has {_shown(rows[row][name])} in row "
            f"{_shown(rows[row])}{reason and f': {reason}'}"
            for row, name, reason in sorted(misfits)[:SAMPLE_ROWS]
        ]
        raise RecordValueError(
            f"{file.shown}, table {columns.table.full_name}: invalid values: {'; '.join(samples)}"
        )
    return arrays


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
