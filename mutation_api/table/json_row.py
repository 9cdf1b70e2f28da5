"""Column values as JSON.

======================  =========================================================================
boolean, integers       as they are
float, double           numbers, the shortest that reads back equal; ``"NaN"``, ``"Infinity"``,
                        ``"-Infinity"``
decimal                 text without trailing zeros, as Hive 2.3 prints it: ``"1.5"``
string, varchar, char   text; char with its padding
date                    ``"2015-11-19"``
timestamp               ``"2015-11-19T12:34:56.789"``, trailing zeros of the fraction dropped
binary                  base64, as files of changes have it
array                   array
map                     object if the keys are text, else an array of ``[key, value]``
struct                  object
uniontype               ``[tag, value]``, tag = position of the alternative
======================  =========================================================================
"""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.types.hive_type import HiveType
from mutation_api.types.plain_array import map_parts, rebased_list, struct_fields, union_parts

__all__ = ["json_values"]

_TEXT_KINDS = ("string", "varchar", "char")


def json_values(array: pa.Array, hive_type: HiveType) -> list[Any]:
    """Values of a column as ``json.dumps`` takes them.

    Args:
        array: n values of a column of this type; timestamps as text or in any unit down to microseconds.
        hive_type: the column's type.

    Returns:
        n values; None is null.
    """
    nested = _NESTED.get(hive_type.kind)
    if nested is not None:
        return nested(array, hive_type)
    convert = _SCALARS.get(hive_type.kind)
    values: list[Any] = array.to_pylist()
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _decimal(value: Decimal) -> str:
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) if value else "0"


def _double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _float(value: float) -> float | str:
    return _double(float(str(np.float32(value))))


def _timestamp(value: str | datetime.datetime) -> str:
    if isinstance(value, str):
        return value
    text = value.isoformat()
    return text.rstrip("0") if "." in text else text


def _binary(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _array(array: pa.Array, hive_type: HiveType) -> list[Any]:
    offsets, values = rebased_list(array)
    return _lists(array, offsets, json_values(values, hive_type.children[0]))


def _map(array: pa.Array, hive_type: HiveType) -> list[Any]:
    offsets, *parts = map_parts(array)
    keys, items = (json_values(a, t) for a, t in zip(parts, hive_type.children, strict=True))
    maps = _lists(array, offsets, [[key, item] for key, item in zip(keys, items, strict=True)])
    if hive_type.children[0].kind not in _TEXT_KINDS:
        return maps
    return [None if pairs is None else dict(pairs) for pairs in maps]


def _lists(array: pa.Array, offsets: NDArray[np.int64], values: list[Any]) -> list[Any]:
    bounds = zip(array.is_valid().to_pylist(), offsets[:-1], offsets[1:], strict=True)
    return [values[start:stop] if valid else None for valid, start, stop in bounds]


def _struct(array: pa.Array, hive_type: HiveType) -> list[Any]:
    fields = [json_values(a, t) for a, t in zip(struct_fields(array), hive_type.children, strict=True)]
    valid = array.is_valid().to_pylist()
    return [
        {name: values[row] for name, values in zip(hive_type.field_names, fields, strict=True)}
        if valid[row]
        else None
        for row in range(len(array))
    ]


def _union(array: pa.Array, hive_type: HiveType) -> list[Any]:
    tags, parts = union_parts(array)
    values = [iter(json_values(a, t)) for a, t in zip(parts, hive_type.children, strict=True)]
    pairs = [[int(tag), next(values[tag])] for tag in tags]
    # Arrow's unions cannot be null; a null union arrives as a null of its first alternative.
    return [None if value is None else [tag, value] for tag, value in pairs]


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "date": datetime.date.isoformat,
    "timestamp": _timestamp,
    "binary": _binary,
}
_NESTED: dict[str, Callable[[pa.Array, HiveType], list[Any]]] = {
    "array": _array,
    "map": _map,
    "struct": _struct,
    "uniontype": _union,
}
