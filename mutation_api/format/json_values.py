"""Values of Hive's types as JSON and as cells of CSV files, for all files that are written and read.

=================  ============================================  ==========================================
column             written as                                    also read
=================  ============================================  ==========================================
boolean            ``true``, ``false``
tinyint … bigint   numbers
float, double      numbers, the shortest that read back equal;   ``NaN`` and ``Infinity`` without quotes,
                   ``"NaN"``, ``"Infinity"``, ``"-Infinity"``    ``"INF"``
decimal(p,s)       string without trailing zeros, as Hive 2.3    numbers; a loss of digits is refused
                   prints it: ``"1.5"``
string types       string; char without its padding              integers, ``true`` and ``false``
date               ``"2015-11-19"``                              strings that :mod:`.text_values` accepts
timestamp          ``"2015-11-19T12:34:56.789"``, without        strings that :mod:`.text_values` accepts
                   trailing zeros of the fraction
binary             base64
array              array
map                object if the keys are strings, otherwise
                   an array of ``[key, value]``
struct             object with the struct's own field names      an object without some fields: they are
                                                                 NULL
uniontype          ``[tag, value]``, tag = position of the
                   alternative
=================  ============================================  ==========================================

A cell of a CSV file has the same content: a string without quotes, any other value as JSON. These forms are
used in files of changes, exports, samples and keys in messages, and in the input of
``hive-mutate bucket``.

Values that other programs wrote are also read. An invalid value never becomes NULL.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.format.hive_type import TEXT_KINDS, HiveType, MisfitError, TypeFamily
from mutation_api.format.number_text import texts_of_decimals
from mutation_api.format.plain_array import (
    Inner,
    array_of_lists,
    array_of_structs,
    array_of_unions,
    map_parts,
    offsets_of_lists,
    rebased_list,
    repeated,
    struct_fields,
    union_parts,
)
from mutation_api.format.text_values import BinaryEncoding, values_of_texts


def to_json(array: pa.Array) -> list[Any]:
    """Return the values of a column as ``json.dumps`` accepts them.

    Args:
        array: n values of a type of :func:`~.hive_type.arrow_type`. Timestamps may also be strings.

    Returns:
        n values. Null is None.
    """
    kind = array.type
    if pa.types.is_map(kind):
        return _map_to_json(array)
    if any(is_list(kind) for is_list in _LISTS):
        offsets, elements = rebased_list(array)
        return _lists(array, offsets, to_json(elements))
    if pa.types.is_struct(kind):
        return _struct_to_json(array)
    if pa.types.is_union(kind):
        return _union_to_json(array)
    values: list[Any]
    if (texts := _texts(array)) is not None:
        values = texts.to_pylist()
        return values
    values = array.to_pylist()
    if pa.types.is_float32(kind):  # a double would be printed with more digits
        return [None if v is None else _double(float(str(np.float32(v)))) for v in values]
    convert = next((each for is_kind, each in _CONVERTED if is_kind(kind)), None)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def json_texts(rows: pa.Array) -> list[str]:
    """Return n values as JSON strings, for files and messages. Values that Hive lacks are strings."""
    return list(map(_ENCODER.encode, to_json(rows)))


def cell_text(value: Any) -> str | None:
    """Return a value of :func:`to_json` as a cell of a CSV file. None stays None."""
    return value if value is None or isinstance(value, str) else _CELL_ENCODER.encode(value)


def to_cells(array: pa.Array) -> pa.Array:
    """Return the values of a column as cells of a CSV file. See :func:`cell_text`; null stays null."""
    kind = array.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind):
        return array.cast(pa.string())
    if (texts := _texts(array)) is not None:
        return texts
    return pa.array(list(map(cell_text, to_json(array))), pa.string())


_CELL_ENCODER = json.JSONEncoder(ensure_ascii=False)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)
_BINARIES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _texts(array: pa.Array) -> pa.Array | None:
    """Format decimals, dates and timestamps, including years and nanoseconds that Python lacks."""
    kind = array.type
    if pa.types.is_decimal128(kind):
        return texts_of_decimals(array)
    if not pa.types.is_date(kind) and not (pa.types.is_timestamp(kind) and kind.tz is None):
        return None
    texts = pc.replace_substring(array.cast(pa.string()), " ", "T")
    return pc.replace_substring_regex(pc.replace_substring_regex(texts, r"(\.\d*?)0+$", r"\1"), r"\.$", "")


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _binary(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


_CONVERTED: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_float64, _double),
    (pa.types.is_timestamp, datetime.datetime.isoformat),
    *((is_kind, _binary) for is_kind in _BINARIES),
)


def _map_to_json(array: pa.Array) -> list[Any]:
    offsets, *parts = map_parts(array)
    keys, items = map(to_json, parts)
    maps = _lists(array, offsets, [[key, item] for key, item in zip(keys, items, strict=True)])
    if not pa.types.is_string(array.type.key_type):
        return maps
    return [None if pairs is None else dict(pairs) for pairs in maps]


def _lists(array: pa.Array, offsets: NDArray[np.int64], values: list[Any]) -> list[Any]:
    bounds = zip(array.is_valid().to_pylist(), offsets[:-1], offsets[1:], strict=True)
    return [values[start:stop] if valid else None for valid, start, stop in bounds]


def _struct_to_json(array: pa.Array) -> list[Any]:
    names = [field.name for field in array.type]
    fields = [to_json(field) for field in struct_fields(array)]
    return [
        {name: values[row] for name, values in zip(names, fields, strict=True)} if is_valid else None
        for row, is_valid in enumerate(array.is_valid().to_pylist())
    ]


def _union_to_json(array: pa.Array) -> list[Any]:
    tags, parts = union_parts(array)
    values = [iter(to_json(part)) for part in parts]
    pairs = [[int(tag), next(values[tag])] for tag in tags]
    # Arrow's unions cannot be null; a null union arrives as a null of its first alternative.
    return [None if value is None else [tag, value] for tag, value in pairs]


TextReader = Callable[[pa.Array, HiveType], pa.Array]
"""A function that converts n strings to values of a scalar type. It raises MisfitError."""


class JsonMisfitError(Exception):
    """Raised when a value is not of its column's type. ``row`` is its number among the values.

    ``reason`` contains the string and the reason why it is invalid. For a value of another JSON type, it is
    empty.
    """

    def __init__(self, row: int, reason: str = "") -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


class _Words(str):
    """A number that JSON does not support: NaN or Infinity without quotes."""


class _MinusZero(int):
    """The number -0, which a double can represent but Python's int cannot."""

    def __str__(self) -> str:
        return "-0"


def decode_json(text: str) -> Any:
    """Parse JSON into values for :func:`from_json`, which keep all their digits.

    Raises:
        ValueError: If the string is not JSON, contains half of a surrogate pair, or has a name twice in an
            object.
        RecursionError: If it is nested very deeply.
    """
    found = _DECODER.decode(text)
    if _HALF_CHARACTER.search(text):
        json.dumps(found, ensure_ascii=False, default=str).encode()
    return found


_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair, which is valid only with its other half. Python also accepts it alone."""


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raise ValueError if a name occurs twice, since Python would keep the last value."""
    if len(found := dict(pairs)) < len(pairs):
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


def _of_texts(texts: pa.Array, hive_type: HiveType) -> pa.Array:
    return values_of_texts(texts, hive_type, binary=BinaryEncoding.BASE64)


def from_json(values: Sequence[Any], hive_type: HiveType, of_texts: TextReader = _of_texts) -> pa.Array:
    """Convert JSON values to values of a column.

    Args:
        values: n values of :func:`decode_json`. Null is None.
        hive_type: the column's type.
        of_texts: function that creates the values of scalar types. By default, they are those of
            ``arrow_type(hive_type, timestamp_unit="us")``.

    Returns:
        n values.

    Raises:
        JsonMisfitError: If a value is not of the type.
    """
    nested = _NESTED.get(hive_type.kind)
    if nested is not None:
        return nested(values, hive_type, of_texts)
    text_of = _TEXT_OF.get(hive_type.family, _only_text)
    texts: list[str | None] = []
    for row, value in enumerate(values):
        text = None if value is None else text_of(value)
        if text is None and value is not None:
            raise JsonMisfitError(row)
        texts.append(text)
    try:
        return of_texts(pa.array(texts, pa.string()), hive_type)
    except MisfitError as misfit:
        raise JsonMisfitError(misfit.row, f"{misfit.value} {misfit.reason}") from misfit


def from_cells(texts: pa.Array, hive_type: HiveType) -> pa.Array:
    """Convert cells of a CSV file to values of a column. This reverses :func:`cell_text`.

    Args:
        texts: n strings; null stays null.
        hive_type: the column's type.

    Returns:
        n values of ``arrow_type(hive_type, timestamp_unit="us")``.

    Raises:
        MisfitError: If a string is not a value of the type.
    """
    if hive_type.family is not TypeFamily.NESTED:
        return _of_texts(texts, hive_type)
    given = texts.to_pylist()
    values = [None if text is None else _cell(row, text) for row, text in enumerate(given)]
    try:
        return from_json(values, hive_type)
    except JsonMisfitError as misfit:
        reason = misfit.reason or f"is not JSON for type {hive_type.text}"
        raise MisfitError(misfit.row, repr(given[misfit.row]), reason) from misfit


def _cell(row: int, text: str) -> Any:
    try:
        return decode_json(text)
    except (ValueError, RecursionError) as error:
        raise MisfitError(row, repr(text), f"is not JSON: {error}") from error


def _inner(hive_type: HiveType, of_texts: TextReader) -> Inner:
    """Return the function that converts values inside others."""

    def convert(values: list[Any], parents: list[int]) -> pa.Array:
        try:
            return from_json(values, hive_type, of_texts)
        except JsonMisfitError as misfit:
            raise JsonMisfitError(parents[misfit.row], misfit.reason) from misfit

    return convert


def _list(values: Sequence[Any], hive_type: HiveType, of_texts: TextReader) -> pa.Array:
    _refuse_first(values, lambda value: not isinstance(value, list))
    return array_of_lists(values, _inner(hive_type.children[0], of_texts))


def _map(values: Sequence[Any], hive_type: HiveType, of_texts: TextReader) -> pa.Array:
    key_type = hive_type.children[0]
    key, item = (_inner(child, of_texts) for child in hive_type.children)
    maps = [None if value is None else _pairs(row, value, key_type) for row, value in enumerate(values)]

    def entries(pairs: list[Any], rows: list[int]) -> pa.Array:
        for row, (name, _) in zip(rows, pairs, strict=True):
            if name is None:
                raise JsonMisfitError(row, "a key is null")
        parts = [key([each for each, _ in pairs], rows), item([each for _, each in pairs], rows)]
        return pa.StructArray.from_arrays(parts, names=["key", "value"])

    lists = array_of_lists(maps, entries)
    return pa.MapArray.from_arrays(offsets_of_lists(maps), lists.values.field(0), lists.values.field(1))


def _pairs(row: int, value: Any, key_type: HiveType) -> list[tuple[Any, Any]]:
    if isinstance(value, dict) and (key_type.kind in TEXT_KINDS or not value):
        return list(value.items())
    is_list = isinstance(value, list) and key_type.kind not in TEXT_KINDS
    if not is_list or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise JsonMisfitError(row)
    return [(key, item) for key, item in value]


def _struct(values: Sequence[Any], hive_type: HiveType, of_texts: TextReader) -> pa.Array:
    names = hive_type.field_names
    _refuse_first(values, lambda value: not isinstance(value, dict) or not value.keys() <= set(names))
    if hive_type.contains("uniontype"):  # pyarrow ends the process at null structs
        for row, value in enumerate(values):
            if value is None:
                raise JsonMisfitError(row, "a struct that contains a union cannot be null")
    rows = [None if value is None else [value.get(name) for name in names] for value in values]
    return array_of_structs(rows, names, [_inner(child, of_texts) for child in hive_type.children])


def _union(values: Sequence[Any], hive_type: HiveType, of_texts: TextReader) -> pa.Array:
    """Convert unions. A null becomes a null of the first alternative, since Arrow's unions cannot be null."""
    count = len(hive_type.children)
    _refuse_first(values, lambda value: not _is_tagged(value, count))
    pairs = [(0, None) if value is None else (value[0], value[1]) for value in values]
    return array_of_unions(pairs, [_inner(child, of_texts) for child in hive_type.children])


def _is_tagged(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == 2 and type(value[0]) is int and 0 <= value[0] < count


def _refuse_first(values: Sequence[Any], is_wrong: Callable[[Any], bool]) -> None:
    for row, value in enumerate(values):
        if value is not None and is_wrong(value):
            raise JsonMisfitError(row)


_NESTED: dict[str, Callable[[Sequence[Any], HiveType, TextReader], pa.Array]] = {
    "array": _list,
    "map": _map,
    "struct": _struct,
    "uniontype": _union,
}

_WHOLE = (int, _MinusZero)
_NUMBERS = (*_WHOLE, Decimal)
_FLOATS = {"NaN": "NaN", "Infinity": "Infinity", "+Infinity": "Infinity", "-Infinity": "-Infinity"}
_FLOATS |= {"INF": "Infinity", "+INF": "Infinity", "-INF": "-Infinity"}
"""Names of numbers that JSON does not have -> the names that are parsed."""


def _boolean_text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None


def _integer_text(value: Any) -> str | None:
    return int.__repr__(value) if type(value) in _WHOLE else None


def _float_text(value: Any) -> str | None:
    return _FLOATS.get(value) if isinstance(value, str) else _number_text(value)


def _number_text(value: Any) -> str | None:
    return str(value) if type(value) in _NUMBERS else None


def _decimal_text(value: Any) -> str | None:
    return value if type(value) is str else _number_text(value)


def _string_text(value: Any) -> str | None:
    if type(value) is str:
        return value
    return _boolean_text(value) or _integer_text(value)


def _only_text(value: Any) -> str | None:
    return value if type(value) is str else None


_TEXT_OF: dict[TypeFamily, Callable[[Any], str | None]] = {
    TypeFamily.BOOLEAN: _boolean_text,
    TypeFamily.INTEGER: _integer_text,
    TypeFamily.FLOAT: _float_text,
    TypeFamily.DECIMAL: _decimal_text,
    TypeFamily.TEXT: _string_text,
}
"""Functions that return a value as :mod:`.text_values` accepts it, or None. Other families have strings."""
