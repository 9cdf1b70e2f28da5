"""JSON lines as Arrow batches of a table's types.

Each line is an object. pyarrow parses them with the table's types (:mod:`.json_by_arrow`), and Python those
the rest, a microsecond a field: decimals, lists, objects, numbers in quotes, what is wrong.

===================  ===================================================================================
column               values
===================  ===================================================================================
boolean              ``true``, ``false``
tinyint … bigint     whole numbers in range
float, double        numbers; ``NaN`` and ``Infinity``, in quotes or not
decimal(p,s)         numbers, in quotes or not; digits that would be lost are refused
string types         texts; whole numbers, ``true`` and ``false`` become texts
date, timestamp      texts as of :mod:`mutation_api.types.text_values`
binary               base64
array, map, struct   lists, objects with keys for a string type, objects with the struct's own field names
===================  ===================================================================================
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
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
from mutation_api.types.hive_type import INTEGER_KINDS, HiveType, arrow_type, parse_hive_type, spark_type
from mutation_api.types.misfit import MisfitError
from mutation_api.types.repeated import repeated
from mutation_api.types.text_values import BinaryText, values_of_texts

__all__ = ["JsonNames", "JsonRows", "check_json_names", "read_json_file"]

_BATCH_LINES = 10_000
_STRINGS = ("string", "varchar", "char")
_FLOATS = {"NaN": "NaN", "Infinity": "Infinity", "+Infinity": "Infinity", "-Infinity": "-Infinity"}
_FLOATS |= {"INF": "Infinity", "+INF": "Infinity", "-INF": "-Infinity"}
"""Texts of numbers that JSON does not have."""
_SHOWN_LENGTH = 80

_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a character, which is a text only with its other half; Python takes it alone, too."""

_Object = Mapping[str, Any]


class _Wrong(Exception):
    """A value that is none of its column's type; ``row`` is its number among the values.

    ``reason`` says why a text is none, with it; for a value of another type it is empty.
    """

    def __init__(self, row: int, reason: str = "") -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


class _Words(str):
    """A number that JSON does not have: NaN, Infinity; not in quotes."""


class _MinusZero(int):
    """The number -0, which a double has and Python's int does not."""

    def __str__(self) -> str:
        return "-0"


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
    schema = pa.schema([(name, _arrow(types.get(name.lower(), _TEXT))) for name in names])
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
        found = _DECODER.decode(text.removeprefix("\ufeff"))
        if _HALF_CHARACTER.search(text):
            json.dumps(found, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file.shown} cannot be read as json: {place()}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(
            f"{file.shown} cannot be read as json: {place()} is no object: {_shown(found)}"
        )
    return found


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; Python would keep the last of several values of a name. Raises ValueError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"names occur twice in an object: {', '.join(repeated(name for name, _ in pairs))}")
    return found


def _whole_number(text: str) -> int:
    return _MinusZero() if text == "-0" else int(text)


_DECODER = json.JSONDecoder(
    parse_int=_whole_number,
    parse_float=Decimal,
    parse_constant=_Words,
    object_pairs_hook=_without_doubles,
)


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
            arrays[name] = _values([row.get(name) for row in rows], kind)
        except _Wrong as wrong:
            misfits.append((wrong.row, name, wrong.reason))
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


def _values(values: Sequence[Any], kind: HiveType) -> pa.Array:
    """Values of ``arrow_type`` of the type, with microseconds. Raises _Wrong."""
    nested = _NESTED.get(kind.kind)
    if nested is not None:
        return nested(values, kind)
    text_of = _TEXT_OF[kind.kind]
    texts: list[str | None] = []
    for row, value in enumerate(values):
        text = None if value is None else text_of(value)
        if text is None and value is not None:
            raise _Wrong(row)
        texts.append(text)
    try:
        return values_of_texts(pa.array(texts, pa.string()), kind, binary=BinaryText.BASE64)
    except MisfitError as misfit:
        raise _Wrong(misfit.row, f"{misfit.value} {misfit.reason}") from misfit


def _nested_values(values: Sequence[Any], parents: Sequence[int], kind: HiveType) -> pa.Array:
    """Values within others; ``parents`` are the rows of these."""
    try:
        return _values(values, kind)
    except _Wrong as wrong:
        raise _Wrong(parents[wrong.row], wrong.reason) from wrong


def _list(values: Sequence[Any], kind: HiveType) -> pa.Array:
    _check_instances(values, list)
    flat = [(row, element) for row, value in enumerate(values) for element in value or ()]
    elements = _nested_values([each for _, each in flat], [row for row, _ in flat], kind.children[0])
    return pa.ListArray.from_arrays(_offsets(values), elements)


def _map(values: Sequence[Any], kind: HiveType) -> pa.Array:
    _check_instances(values, dict)
    if kind.children[0].kind not in _STRINGS:
        _refuse_first(values, lambda value: bool(value))
    flat = [(row, key, item) for row, value in enumerate(values) for key, item in (value or {}).items()]
    parents = [row for row, _, _ in flat]
    keys = pa.array([key for _, key, _ in flat], pa.string())
    if kind.children[0].kind not in _STRINGS:
        keys = pa.nulls(0, arrow_type(kind.children[0], timestamp_unit="us"))
    items = _nested_values([item for _, _, item in flat], parents, kind.children[1])
    return pa.MapArray.from_arrays(_offsets(values), keys, items)


def _struct(values: Sequence[Any], kind: HiveType) -> pa.Array:
    _check_instances(values, dict)
    names = set(kind.field_names)
    _refuse_first(values, lambda value: not value.keys() <= names)
    rows = range(len(values))
    children = [
        _nested_values([None if value is None else value.get(name) for value in values], rows, child)
        for name, child in zip(kind.field_names, kind.children, strict=True)
    ]
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(_arrow(kind)), mask=mask)


def _check_instances(values: Sequence[Any], wanted: type) -> None:
    _refuse_first(values, lambda value: not isinstance(value, wanted))


def _refuse_first(values: Sequence[Any], is_wrong: Callable[[Any], bool]) -> None:
    for row, value in enumerate(values):
        if value is not None and is_wrong(value):
            raise _Wrong(row)


def _offsets(values: Sequence[Any]) -> pa.Array:
    ends = np.cumsum([0, *(len(value or ()) for value in values)])
    return pa.array(ends, pa.int32(), mask=np.array([*(value is None for value in values), False]))


def _arrow(kind: HiveType) -> pa.DataType:
    return arrow_type(kind, timestamp_unit="us")


_WHOLE = (int, _MinusZero)
_NUMBERS = (*_WHOLE, Decimal)


def _boolean(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None


def _integer(value: Any) -> str | None:
    return int.__repr__(value) if type(value) in _WHOLE else None


def _float(value: Any) -> str | None:
    if isinstance(value, str):
        return _FLOATS.get(value)
    return _number(value)


def _number(value: Any) -> str | None:
    return str(value) if type(value) in _NUMBERS else None


def _decimal(value: Any) -> str | None:
    return value if type(value) is str else _number(value)


def _string(value: Any) -> str | None:
    if type(value) is str:
        return value
    return _boolean(value) or _integer(value)


def _only_text(value: Any) -> str | None:
    return value if type(value) is str else None


_NESTED: dict[str, Callable[[Sequence[Any], HiveType], pa.Array]] = {
    "array": _list,
    "map": _map,
    "struct": _struct,
}

_TEXT_OF: dict[str, Callable[[Any], str | None]] = {
    "boolean": _boolean,
    **dict.fromkeys(INTEGER_KINDS, _integer),
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    **dict.fromkeys(_STRINGS, _string),
    "date": _only_text,
    "timestamp": _only_text,
    "binary": _only_text,
}
"""Texts of values as of :mod:`mutation_api.types.text_values`; None for what is none."""


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
