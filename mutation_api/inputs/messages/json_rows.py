"""Rows of a JSON log in the tasks: texts of JSON values become values of columns, a batch at a time.

Errors in values are found here and not by Spark's expressions: each column would need a dozen of them,
planned and compiled for each job.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import MutationError, RecordValueError
from mutation_api.inputs.messages.events import error_called
from mutation_api.inputs.messages.json_lines import line_location
from mutation_api.inputs.messages.json_values import Reader, is_quoted, values_of_json
from mutation_api.inputs.source import OPERATION, POSITION
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.storage.location import Location
from mutation_api.types.hive_type import HiveType, arrow_type
from mutation_api.types.scalar_conversion import MisfitError

__all__ = ["ColumnReader", "RowConverter"]

_EXACT_KINDS = pa.array(["STRING", "BIGINT", "BOOLEAN", "VOID", "DECIMAL"])
"""Kinds that are never rounded."""

_INFINITE = pa.array(["Infinity", "-Infinity"])
_NO_NUMBERS = pa.array(["NaN", "Infinity", "-Infinity"])


@dataclass(frozen=True)
class ColumnReader:
    """A column: name and type in the target, name in the source, and the reader for each schema."""

    name: str
    hive_type: HiveType
    source_name: str
    is_key: bool
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class RowConverter:
    """The function that runs in tasks: batches of texts in, batches of operations out.

    Batches have ``file`` (an index of ``files``), ``offset``, ``schema`` (an index of a column's readers),
    ``is_rough`` (a number on the line may have been rounded), OPERATION, POSITION, ``problem`` (struct of
    error, field and text, or null), and ``values``: for each of ``columns`` a struct of text and kind.
    ``table``: the target's name. ``placeholder``: text that replaces a value that was not logged.
    ``storage``: settings to reach the files, since an error needs the number of its line.
    """

    table: str
    files: tuple[Location, ...]
    columns: tuple[ColumnReader, ...]
    placeholder: str | None
    storage: HadoopSettings

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Convert.

        Raises:
            InputFormatError, RecordLayoutError, RecordValueError: names file, line and field.
        """
        configure_storage(self.storage)
        for batch in batches:
            rows = _Rows(batch, len(self.columns))
            self._refuse_first(rows)
            values = [self._converted(rows, number) for number in range(len(self.columns))]
            yield pa.record_batch(
                [batch.column(OPERATION), batch.column(POSITION), *values],
                names=[OPERATION, POSITION, *(column.name for column in self.columns)],
            )

    def _refuse_first(self, rows: _Rows) -> None:
        found = [*_layout_problems(rows.batch)]
        for number, column in enumerate(self.columns):
            found += _value_problems(column, rows, number, self.placeholder)
        if found:
            first = min(found, key=lambda each: each.row)
            raise first.error(f"{self._location(rows, first.row, first.name)}: {first.text}")

    def _converted(self, rows: _Rows, number: int) -> pa.Array:
        column = self.columns[number]
        try:
            return _values(rows.texts(number), rows.schemas, column.hive_type, column.readers)
        except MisfitError as error:
            raise RecordValueError(
                f"{self._location(rows, error.row, column.source_name)}: {error.value} {error.reason}; "
                f"column {column.name} of {self.table} is of type {column.hive_type.text}"
            ) from None

    def _location(self, rows: _Rows, row: int, name: str) -> str:
        file = self.files[rows.batch["file"][row].as_py()]
        return line_location(file, rows.batch["offset"][row].as_py(), name)


class _Rows:
    """A batch, and the values of its columns."""

    def __init__(self, batch: pa.RecordBatch, column_count: int) -> None:
        self.batch = batch
        self.schemas = batch.column("schema").to_numpy()
        self._flat = batch.column("values").flatten()
        self._count = column_count

    def texts(self, number: int) -> pa.Array:
        """The texts of a column."""
        return self._field("text", number)

    def kinds(self, number: int) -> pa.Array:
        """The kinds of its JSON values; null where there is none."""
        return self._field("kind", number)

    def _field(self, name: str, number: int) -> pa.Array:
        indices = np.arange(number, len(self._flat), self._count)
        return pc.struct_field(self._flat, name).take(pa.array(indices))


@dataclass(frozen=True)
class _Problem:
    """An error in a row."""

    row: int
    error: type[MutationError]
    name: str
    text: str


def _layout_problems(batch: pa.RecordBatch) -> Iterator[_Problem]:
    """The first row whose columns are not those of the target."""
    row = _first(batch.column("problem").is_valid())
    if row is not None:
        found = batch.column("problem")[row].as_py()
        yield _Problem(row, error_called(found["error"]), found["field"], found["text"])


def _value_problems(
    column: ColumnReader, rows: _Rows, number: int, placeholder: str | None
) -> Iterator[_Problem]:
    """The first row of each kind of error in a column's values."""
    texts, kinds = rows.texts(number), rows.kinds(number)
    is_delete = pc.equal(rows.batch.column(OPERATION), "delete")
    name = column.source_name
    row = _first(texts.is_null()) if column.is_key else None
    if row is not None:
        yield _Problem(row, RecordValueError, name, "a key is never NULL")
    if placeholder is not None:
        encoded = base64.b64encode(placeholder.encode()).decode()
        is_missing = pc.is_in(texts, pa.array([placeholder, encoded]))
        row = _first(pc.and_(is_missing, pc.invert(is_delete)))
        if row is not None:
            text = (
                f"{placeholder!r} means that the value was not logged; set REPLICA IDENTITY FULL "
                "for the table in PostgreSQL, and start over"
            )
            yield _Problem(row, RecordValueError, name, text)
    for schema, reader in enumerate(column.readers):
        row = _first(_is_misquoted(texts, kinds, rows.schemas == schema, reader))
        if row is not None:
            wanted = "a JSON string" if is_quoted(reader) else "a JSON number"
            found = texts[row].as_py()
            shown = json.dumps(found, ensure_ascii=False) if kinds[row].as_py() == "STRING" else found
            text = f"must be {wanted}, to be read as {reader.name}, and is {shown}"
            yield _Problem(row, RecordValueError, name, text)
    row = _first(pc.and_(rows.batch.column("is_rough"), _may_be_rounded(texts, kinds, column.hive_type)))
    if row is not None:
        text = (
            "the line has a number of more digits than can be read exactly, or out of range; have the source "
            "write such numbers as strings"
        )
        yield _Problem(row, RecordValueError, name, text)


def _is_misquoted(
    texts: pa.Array, kinds: pa.Array, is_of_schema: NDArray[np.bool_], reader: Reader
) -> pa.Array:
    """Whether the JSON kinds of values are not those that the reader needs."""
    wanted = is_quoted(reader)
    if wanted is None:
        return pa.array(np.zeros(len(texts), bool))
    is_other = pc.not_equal(pc.equal(kinds, "STRING"), wanted)
    if not wanted:
        is_other = pc.and_(is_other, pc.invert(pc.is_in(texts, _NO_NUMBERS)))
    return pc.and_(pc.and_(is_other, texts.is_valid()), pa.array(is_of_schema))


def _may_be_rounded(texts: pa.Array, kinds: pa.Array, hive_type: HiveType) -> pa.Array:
    """Whether Spark may have rounded values, or made them infinite, on a rough line."""
    if hive_type.kind in ("float", "double"):
        return pc.and_(pc.is_in(texts, _INFINITE), pc.not_equal(kinds, "STRING"))
    return pc.and_(kinds.is_valid(), pc.invert(pc.is_in(kinds, _EXACT_KINDS)))


def _first(is_wrong: pa.Array) -> int | None:
    """Index of the first row for which this is true; null counts as false."""
    rows = np.flatnonzero(pc.fill_null(is_wrong, False))
    return int(rows[0]) if rows.size else None


def _values(
    texts: pa.Array, schemas: NDArray[np.int32], hive_type: HiveType, readers: Sequence[Reader]
) -> pa.Array:
    """Values of texts; the reader of each depends on its message's schema."""
    if len(set(readers)) == 1:
        return values_of_json(texts, hive_type, readers[0])
    rows, pieces = [], []
    for index, reader in enumerate(readers):
        chosen = np.flatnonzero(schemas == index)
        rows.append(chosen)
        try:
            pieces.append(values_of_json(texts.take(pa.array(chosen)), hive_type, reader))
        except MisfitError as error:
            raise MisfitError(int(chosen[error.row]), error.value, error.reason) from None
    back = np.argsort(np.concatenate(rows), kind="stable")
    wanted = arrow_type(hive_type, timestamp_unit="us")
    return pa.concat_arrays([piece.cast(wanted) for piece in pieces]).take(pa.array(back))
