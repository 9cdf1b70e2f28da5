"""Values of Hive's types as JSON, in all files that are written and read; :mod:`.json_input` reads them.

=================  ============================================  ==========================================
column             written as                                    also read
=================  ============================================  ==========================================
boolean            ``true``, ``false``
tinyint … bigint   numbers
float, double      numbers, the shortest that read back equal;   ``NaN`` and ``Infinity`` without quotes,
                   ``"NaN"``, ``"Infinity"``, ``"-Infinity"``    ``"INF"``
decimal(p,s)       text without trailing zeros, as Hive 2.3      numbers; digits that would be lost are
                   prints it: ``"1.5"``                          refused
string types       text; char without its padding                whole numbers, ``true`` and ``false``
date               ``"2015-11-19"``                              texts of :mod:`.text_values`
timestamp          ``"2015-11-19T12:34:56.789"``, without        texts of :mod:`.text_values`
                   trailing zeros of the fraction
binary             base64
array              array
map                object if the keys are text, else an array
                   of ``[key, value]``
struct             object with the struct's own field names      an object that lacks fields: they are NULL
uniontype          ``[tag, value]``, tag = position of the
                   alternative
=================  ============================================  ==========================================

A cell of a CSV file holds the same: a text without quotes, anything else as JSON.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.types.plain_array import map_parts, rebased_list, struct_fields, union_parts

__all__ = ["cell_text", "to_json"]


def to_json(array: pa.Array) -> list[Any]:
    """Values of a column as ``json.dumps`` takes them.

    Args:
        array: n values of a type of :func:`~.hive_type.arrow_type`; timestamps also as text.

    Returns:
        n values; None is null.
    """
    kind = array.type
    if pa.types.is_map(kind):
        return _map_to_json(array)
    if pa.types.is_list(kind):
        offsets, elements = rebased_list(array)
        return _lists(array, offsets, to_json(elements))
    if pa.types.is_struct(kind):
        return _struct_to_json(array)
    if pa.types.is_union(kind):
        return _union_to_json(array)
    values: list[Any] = array.to_pylist()
    if pa.types.is_float32(kind):  # the text of a double would have more digits
        return [None if v is None else _double(float(str(np.float32(v)))) for v in values]
    convert = next((each for is_kind, each in _CONVERTED if is_kind(kind)), None)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def cell_text(value: Any) -> str | None:
    """A value of :func:`to_json` as a cell of a CSV file; None stays None."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _decimal(value: Decimal) -> str:
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) if value else "0"


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _timestamp(value: datetime.datetime) -> str:
    text = value.isoformat()
    return text.rstrip("0") if "." in text else text


def _binary(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


_CONVERTED: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_float64, _double),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date, datetime.date.isoformat),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_binary, _binary),
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
