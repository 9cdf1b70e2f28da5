"""JSON lines as Arrow batches of a table's types.

Each line is an object; :mod:`mutation_api.types.json_values` says how values are written. pyarrow parses them
with the table's types (:mod:`.json_by_arrow`), and Python those the rest, a microsecond a field: decimals,
lists, objects, numbers in quotes, what is wrong.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.changes.files.file_rules import SAMPLE_ROWS, RowColumns, row_id_ddl
from mutation_api.changes.files.json_by_arrow import READ_BY_ARROW, names_by_arrow, values_by_arrow
from mutation_api.changes.files.text_stream import opened_text
from mutation_api.errors import (
    ConfigurationError,
    LocalEngineError,
    RecordLayoutError,
    RecordValueError,
)
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.types.hive_type import HiveType, arrow_type, parse_hive_type, spark_type
from mutation_api.types.json_input import JsonMisfitError, decode_json, from_json
from mutation_api.types.repeated import repeated

__all__ = ["JsonNames", "JsonRows", "check_json_names", "read_json_file"]

_BATCH_LINES = 10_000
_SHOWN_LENGTH = 80

_Object = Mapping[str, Any]


def read_json_file(
    columns: RowColumns, file: Location, entries: Sequence[FileEntry], memory_bytes: int
) -> pa.RecordBatchReader:
    """The rows of a file or of the files of a folder, in memory: only all rows tell the columns.

    Args:
        columns: the columns that it may have.
        file: the file or folder, for messages.
        entries: the files.
        memory_bytes: bound of the rows.

    Raises:
        RecordLayoutError: columns are unknown, or differ only in case.
        RecordValueError: a value is none of its column's type; the message names some.
        ConfigurationError: a line is no JSON object.
        LocalEngineError: the rows are too many.
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
                raise LocalEngineError(
                    f"{file.shown}: JSON must be held in memory, and its rows have more than "
                    f"{memory_bytes:,} bytes: use CSV or Parquet, more memory, or the engine Spark"
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
        file: for messages.
        texts: the lines, as texts or bytes.
        numbers: the lines' numbers in the file, from 1; None if they are not known.
    """

    file: Location
    texts: pa.Array
    numbers: Sequence[int] | None = None

    @functools.cached_property
    def objects(self) -> list[_Object]:
        """What Python makes of the lines. Raises ConfigurationError: a line is no JSON object."""
        return [
            _object(self.file, line, functools.partial(self._place, row))
            for row, line in enumerate(self.texts.to_pylist())
        ]

    def _place(self, row: int) -> str:
        if self.numbers is None:
            return f"the line {_shown(self.texts[row].as_py())}"
        return f"line {self.numbers[row]:,}"

    def names(self) -> list[str]:
        """The names in the objects. Raises ConfigurationError."""
        found = names_by_arrow(self.texts)
        return list(dict.fromkeys(name for row in self.objects for name in row)) if found is None else found

    def values(self, columns: RowColumns, types: Mapping[str, HiveType]) -> dict[str, pa.Array]:
        """The values of all columns. Raises ConfigurationError, RecordValueError."""
        quick = {name: kind for name, kind in types.items() if kind.kind in READ_BY_ARROW}
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
            f"{file.shown} cannot be read as json: {place()} is no object: {_shown(found)}"
        )
    return found


@dataclass(frozen=True)
class JsonNames:
    """The function that finds the names of columns in Spark's tasks; ``file`` is for messages."""

    file: Location

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of lines become batches of names. Raises ConfigurationError: a line is no JSON object."""
        for batch in batches:
            names = _of_spark(self.file, batch.column(0)).names()
            yield pa.record_batch([pa.array(names, pa.string())], ["name"])


@dataclass(frozen=True)
class JsonRows:
    """The function that parses lines in Spark's tasks.

    Attributes:
        columns: the columns that the file may have.
        file: the file or folder, for messages.
        schema: the columns of the result, whose types are those of Spark's values.
    """

    columns: RowColumns
    file: Location
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of lines become batches of rows.

        Raises RecordValueError, ConfigurationError: as :func:`read_json_file`.
        """
        types = _types_of(self.columns)
        wanted = {name: types.get(name.lower(), _TEXT) for name in self.schema.names}
        for batch in batches:
            arrays = _of_spark(self.file, batch.column(0)).values(self.columns, wanted)
            yield pa.RecordBatch.from_arrays(
                [arrays[field.name].cast(field.type) for field in self.schema], schema=self.schema
            )


def _of_spark(file: Location, texts: pa.Array) -> _Lines:
    """Lines as Spark reads them; a mark of the byte order is part of the first line of a file."""
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
            f"{file.shown}, table {columns.table.full_name}: values that do not fit: {'; '.join(samples)}"
        )
    return arrays


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
