"""Convert the rows of a JSON log from JSON values to values of columns, a batch at a time."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.cdc.messages.events import LogPart, Place, Problem, Unlogged
from mutation_api.cdc.messages.json_text import (
    Number,
    digits_of,
    is_rough,
    shortest_texts,
    text_of,
    written_texts,
)
from mutation_api.cdc.messages.json_values import Reader, is_quoted, values_of_json
from mutation_api.cdc.source import CHANGED_AT, OPERATION, POSITION
from mutation_api.errors import MutationError, RecordValueError
from mutation_api.format.hive_type import HiveType, MisfitError, arrow_type

_NUMBERS = "decimal-number"
"""The reader that uses all digits of a number."""

_INFINITE = ("Infinity", "-Infinity")
_NO_NUMBERS = ("NaN", *_INFINITE)


@dataclass(frozen=True)
class ColumnReader:
    """A column: name and type in the target, name in the source, and the reader for each schema.

    ``default``: the value in rows that lack the column, if it is not NULL.
    """

    name: str
    hive_type: HiveType
    source_name: str
    is_key: bool
    readers: tuple[Reader, ...]
    default: pa.Scalar | None = None


class Content(NamedTuple):
    """The values of a row: JSON values, one for each column of the target.

    ``defaulted``: indices of the columns that the row lacks, and that get their default. ``problem``: the
    problem of the row's columns, or None.
    """

    values: tuple[object, ...]
    defaulted: tuple[int, ...] = ()
    problem: Problem | None = None


@dataclass
class Rows:
    """Operations on rows of one table, which become a batch.

    ``positions``: the numbers of each operation. ``schema_indices``: the index of the columns' readers for
    each. ``values``: the JSON values of each, in the order of the columns. ``defaulted``: by the index of a
    column, the rows that get its default. ``times``: when the source made each change, in microseconds, if
    times are required. ``problem``: the first problem of columns, and its row. ``doubt``:
    the first problem of a key that a message does not show, and its row.
    """

    operations: list[str] = field(default_factory=list)
    positions: list[tuple[int, ...]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    schema_indices: list[int] = field(default_factory=list)
    values: list[tuple[object, ...]] = field(default_factory=list)
    defaulted: dict[int, list[int]] = field(default_factory=dict)
    times: list[int | None] = field(default_factory=list)
    problem: tuple[int, Problem] | None = None
    doubt: tuple[int, Problem] | None = None

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self.operations)

    def add(
        self,
        operation: str,
        position: tuple[int, ...],
        place: Place,
        schema: int,
        content: Content,
        doubt: Problem | None,
    ) -> None:
        """Add one operation."""
        if content.problem is not None and self.problem is None:
            self.problem = len(self), content.problem
        for number in content.defaulted:
            self.defaulted.setdefault(number, []).append(len(self))
        if doubt is not None and self.doubt is None:
            self.doubt = len(self), doubt
        self.operations.append(operation)
        self.positions.append(position)
        self.places.append(place)
        self.schema_indices.append(schema)
        self.values.append(content.values)

    @cached_property
    def schemas(self) -> NDArray[np.int64]:
        """The indices of the schemas."""
        return np.array(self.schema_indices, np.int64)

    @cached_property
    def columns(self) -> list[ValueColumn]:
        """The values, column by column."""
        return [ValueColumn(values) for values in zip(*self.values, strict=True)]


class ValueColumn:
    """The values of a column as strings."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values
        self.kinds = set(map(type, values)) - {type(None)}
        self.texts = self._texts()

    def _texts(self) -> pa.StringArray:
        if self.kinds <= {str}:
            return pa.array(self.values, pa.string())
        if self.kinds == {int}:
            with contextlib.suppress(OverflowError):  # more than 63 bits
                return pa.array(self.values, pa.int64()).cast(pa.string())
        if self.plain_floats is not None:
            return shortest_texts(self.plain_floats)
        return pa.array(list(map(text_of, self.values)), pa.string())

    @cached_property
    def plain_floats(self) -> pa.StringArray | None:
        """The values as they were written, if all are floats without an exponent."""
        if self.kinds != {float}:
            return None
        texts = written_texts(self.values)
        return None if pc.any(pc.match_substring(texts, "e")).as_py() else texts

    @cached_property
    def digits(self) -> pa.StringArray:
        """The values as strings in which numbers have all digits."""
        if self.plain_floats is not None:
            return self.plain_floats
        if not self.kinds & {Number, float}:  # for other values both are the same
            return self.texts
        return pa.array(list(map(digits_of, self.values)), pa.string())

    @cached_property
    def is_text(self) -> pa.BooleanArray:
        """True for each JSON string."""
        if self.kinds <= {str}:
            return self.texts.is_valid()
        return pa.array([value.__class__ is str for value in self.values], pa.bool_())

    def is_unlogged(self, unlogged: Unlogged) -> pa.Array:
        """Return True for each value that was not logged."""
        found = pc.is_in(self.texts, unlogged.texts)
        if not self.kinds & {list, dict}:
            return found
        is_within = [value.__class__ in (list, dict) and unlogged.is_within(value) for value in self.values]
        return pc.or_(found, pa.array(is_within))

    @cached_property
    def is_rough(self) -> pa.BooleanArray:
        """True for each value that was rounded."""
        if self.kinds <= {str, int, bool} or self.plain_floats is not None:
            return pa.array(np.zeros(len(self.values), bool))
        return pa.array(list(map(is_rough, self.values)), pa.bool_())


@dataclass(frozen=True)
class RowConverter:
    """Converts operations to batches; ``columns`` are those of the target in its order.

    ``table``: the target's name. ``position``: names of the numbers of a position. ``unlogged``: the
    placeholder in messages for a value that was not logged. ``has_times``: True if the times of changes are
    required.
    """

    table: str
    files: tuple[LogPart, ...]
    position: tuple[str, ...]
    columns: tuple[ColumnReader, ...]
    unlogged: Unlogged | None
    has_times: bool = False

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """Convert at least one operation to a batch.

        Raises:
            InputFormatError: If a row does not follow the format. Names file, line and field.
            RecordLayoutError: If the columns of a row and the target differ. Names file, line and field.
            RecordValueError: If a value does not fit its column. Names file, line and field.
        """
        self._refuse_first(rows)
        values = [self._converted(rows, number) for number in range(len(self.columns))]
        numbers = [pa.array(each, pa.int64()) for each in zip(*rows.positions, strict=True)]
        positions = pa.StructArray.from_arrays(numbers, names=self.position)
        times = {CHANGED_AT: pa.array(rows.times, pa.timestamp("us"))} if self.has_times else {}
        return pa.record_batch(
            [pa.array(rows.operations, pa.string()), positions, *times.values(), *values],
            names=[OPERATION, POSITION, *times, *(column.name for column in self.columns)],
        )

    def _refuse_first(self, rows: Rows) -> None:
        found = [] if rows.problem is None else [_Problem.of(*rows.problem, _OF_COLUMNS)]
        if rows.doubt is not None:
            found.append(_Problem.of(*rows.doubt, _OF_KEY))
        for number, column in enumerate(self.columns):
            found += _value_problems(column, rows, rows.columns[number], self.unlogged)
        if found:
            first = min(found, key=lambda each: (each.row, each.rank))
            raise first.error(f"{rows.places[first.row].shown(self.files, first.name)}: {first.text}")

    def _converted(self, rows: Rows, number: int) -> pa.Array:
        column = self.columns[number]
        try:
            values = _values(rows.columns[number], rows.schemas, column)
        except MisfitError as error:
            where = rows.places[error.row].shown(self.files, column.source_name)
            raise RecordValueError(
                f"{where}: {error.value} {error.reason}; column {column.name} of {self.table} is of type "
                f"{column.hive_type.text}"
            ) from None
        return _with_default(values, rows.defaulted.get(number, ()), column)


_OF_COLUMNS, _UNLOGGED, _OF_KEY, _OF_VALUE = range(4)
"""The ranks of the problems of one row: a problem that may explain others comes first."""


@dataclass(frozen=True)
class _Problem:
    """An error in a row."""

    row: int
    error: type[MutationError]
    name: str | None
    text: str
    rank: int = _OF_VALUE

    @classmethod
    def of(cls, row: int, problem: Problem, rank: int) -> _Problem:
        """Return the error of a problem."""
        return cls(row, problem.error, problem.field, problem.text, rank)


def _value_problems(
    column: ColumnReader, rows: Rows, found: ValueColumn, unlogged: Unlogged | None
) -> Iterator[_Problem]:
    """Find the first row of each kind of error in a column's values."""
    texts, name = found.texts, column.source_name
    row = _first(texts.is_null()) if column.is_key else None
    if row is not None:
        yield _Problem(row, RecordValueError, name, "a key column must not be NULL")
    row = None if unlogged is None else _first(found.is_unlogged(unlogged))
    if row is not None:
        text = (
            f"{texts[row].as_py()} means that the value was not logged. Have the source log whole rows "
            "(PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL), let the connector take a new snapshot, and "
            "read the messages from there on under another source name (--name) into an emptied table"
        )
        yield _Problem(row, RecordValueError, name, text, _UNLOGGED)
    for schema, reader in enumerate(column.readers):
        row = _first(_is_misquoted(found, rows.schemas == schema, reader))
        if row is not None:
            wanted = "a JSON string" if is_quoted(reader) else "a JSON number"
            value = texts[row].as_py()
            shown = json.dumps(value, ensure_ascii=False) if found.is_text[row].as_py() else value
            text = f"must be {wanted}, to be read as {reader.name}, got {shown}"
            yield _Problem(row, RecordValueError, name, text)
    row = _first(_is_lost(found, column))
    if row is not None:
        text = (
            "the value has a number with more digits than can be read exactly, or out of range; have the "
            "source write such numbers as strings"
        )
        yield _Problem(row, RecordValueError, name, text)


def _is_misquoted(found: ValueColumn, is_of_schema: NDArray[np.bool_], reader: Reader) -> pa.Array:
    """Return True for each value whose JSON kind the reader does not accept."""
    wanted = is_quoted(reader)
    if wanted is None:
        return pa.array(np.zeros(len(found.texts), bool))
    is_other = pc.not_equal(found.is_text, wanted)
    if not wanted:
        is_other = pc.and_(is_other, pc.invert(pc.is_in(found.texts, pa.array(_NO_NUMBERS))))
    return pc.and_(pc.and_(is_other, found.texts.is_valid()), pa.array(is_of_schema))


def _is_lost(found: ValueColumn, column: ColumnReader) -> pa.Array:
    """Return True for values that were rounded or made infinite; a column of doubles rounds in any case."""
    if {reader.of_numbers.name for reader in column.readers} == {_NUMBERS}:
        return pa.array(np.zeros(len(found.values), bool))
    if column.hive_type.kind in ("float", "double"):
        return pc.and_(pc.is_in(found.texts, pa.array(_INFINITE)), pc.invert(found.is_text))
    return found.is_rough


def _first(is_wrong: pa.Array) -> int | None:
    """Return the index of the first row for which this is true; null counts as false."""
    rows = np.flatnonzero(pc.fill_null(is_wrong, False))
    return int(rows[0]) if rows.size else None


def _values(found: ValueColumn, schemas: NDArray[np.int64], column: ColumnReader) -> pa.Array:
    """Convert values; the reader of each depends on its message's schema, and on its JSON kind."""
    readings = list(_readings(found, schemas, column))
    if len(readings) == 1:
        ((_, texts, reader),) = readings
        return values_of_json(texts, column.hive_type, reader)
    pieces = []
    for chosen, texts, reader in readings:
        try:
            pieces.append(values_of_json(texts.take(pa.array(chosen)), column.hive_type, reader))
        except MisfitError as error:
            raise MisfitError(int(chosen[error.row]), error.value, error.reason) from None
    back = np.argsort(np.concatenate([chosen for chosen, _, _ in readings]), kind="stable")
    wanted = arrow_type(column.hive_type, timestamp_unit="us")
    return pa.concat_arrays([piece.cast(wanted) for piece in pieces]).take(pa.array(back))


def _with_default(values: pa.Array, rows: Sequence[int], column: ColumnReader) -> pa.Array:
    """Return the values with the column's default in these rows."""
    if not rows or column.default is None:
        return values
    wanted = arrow_type(column.hive_type, timestamp_unit="us")
    is_defaulted = np.zeros(len(values), bool)
    is_defaulted[list(rows)] = True
    return pc.if_else(pa.array(is_defaulted), column.default.cast(wanted), values.cast(wanted))


def _readings(
    found: ValueColumn, schemas: NDArray[np.int64], column: ColumnReader
) -> Iterator[tuple[NDArray[np.int64], pa.Array, Reader]]:
    """Return groups of row indices, each with the strings of all rows and the reader for the group."""
    # The shortest form of -0.0 is 0.
    texts = found.digits if column.hive_type.kind in ("float", "double") else found.texts
    readers = column.readers
    every = np.arange(len(found.values))
    parts = [(every, readers[0])] if len(set(readers)) == 1 else []
    for rows, reader in parts or ((np.flatnonzero(schemas == i), each) for i, each in enumerate(readers)):
        of_numbers = reader.of_numbers
        if of_numbers == reader or found.kinds <= {str}:
            yield rows, found.digits if reader.name == of_numbers.name == _NUMBERS else texts, reader
            continue
        is_text = found.is_text.to_numpy(zero_copy_only=False)[rows]
        yield rows[is_text], texts, reader
        yield rows[~is_text], found.digits, of_numbers
