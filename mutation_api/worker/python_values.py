"""Arrow arrays from the Python objects of single records; the Hive type guides nested values only.

Scalars get the type that Arrow infers, not the column's. Given a type, pyarrow would cut a datetime to its
date and drop a time zone silently; :func:`convert_to_column` refuses both. Nested values are split by the
Hive type, because a dict may be a map or a struct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.types.hive_type import HiveType
from mutation_api.types.plain_array import offsets_of_lists

__all__ = ["array_of"]


def array_of(values: Sequence[Any], hive_type: HiveType, *, column: str) -> pa.Array:
    """An array of n Python values, to be converted to the column's type afterwards.

    Args:
        values: None, scalars; lists for arrays; dicts or lists of pairs for maps; dicts or sequences for
            structs; (alternative, value) for unions.
        hive_type: the column's type.
        column: its name, for messages.

    Raises:
        RecordLayoutError: values have several types, or do not fit a nested type.
        RecordValueError: a number is out of the range of every column type.
    """
    try:
        return _array(values, hive_type)
    except OverflowError as error:
        raise RecordValueError(f"column {column!r} ({hive_type.text}): {error}") from error
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise RecordLayoutError(f"column {column!r} ({hive_type.text}): {error}") from error


def _array(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    build = _NESTED.get(hive_type.kind)
    return build(values, hive_type) if build else pa.array(values)


def _list(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    lists = [None if value is None else _sequence(value) for value in values]
    elements = _array([element for value in lists if value for element in value], hive_type.children[0])
    return pa.ListArray.from_arrays(offsets_of_lists(lists), elements)


def _map(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    maps = [None if value is None else _pairs(value) for value in values]
    flat = [pair for value in maps if value for pair in value]
    keys = _array([key for key, _ in flat], hive_type.children[0])
    items = _array([item for _, item in flat], hive_type.children[1])
    entries = pa.StructArray.from_arrays([keys, items], names=["key", "value"])
    return pa.ListArray.from_arrays(offsets_of_lists(maps), entries)


def _struct(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    names = [name.lower() for name in hive_type.field_names]
    rows = [None if value is None else _fields(value, names) for value in values]
    children = [
        _array([None if row is None else row[i] for row in rows], child)
        for i, child in enumerate(hive_type.children)
    ]
    mask = np.array([row is None for row in rows], np.bool_)
    return pa.StructArray.from_arrays(children, names=list(hive_type.field_names), mask=pa.array(mask))


def _union(values: Sequence[Any], hive_type: HiveType) -> pa.Array:
    # A union array has no validity bitmap: a missing value is a null of the first alternative.
    tagged = [(0, None) if value is None else (int(value[0]), value[1]) for value in values]
    groups: list[list[Any]] = [[] for _ in hive_type.children]
    positions = []
    for tag, value in tagged:
        if not 0 <= tag < len(groups):
            raise ValueError(f"alternative {tag} of a union with {len(groups)} alternatives")
        positions.append(len(groups[tag]))
        groups[tag].append(value)
    children = [_array(group, child) for group, child in zip(groups, hive_type.children, strict=True)]
    tags = pa.array([tag for tag, _ in tagged], pa.int8())
    return pa.UnionArray.from_dense(tags, pa.array(positions, pa.int32()), children)


def _sequence(value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping)):
        raise TypeError(f"{type(value).__name__} {value!r} is not an array")
    return list(value)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    items = value.items() if isinstance(value, Mapping) else _sequence(value)
    return [(key, item) for key, item in items]


def _fields(value: Any, names: list[str]) -> list[Any]:
    """Field values in the type's order, all of them: whether a missing one means NULL is not known."""
    if isinstance(value, Mapping):
        given = {str(name).lower(): item for name, item in value.items()}
        if set(given) != set(names) or len(given) != len(value):
            raise ValueError(f"a struct with fields {list(value)}; expected {names}")
        return [given[name] for name in names]
    fields = _sequence(value)
    if len(fields) != len(names):
        raise ValueError(f"a struct of {len(fields)} values; expected {names}")
    return fields


_NESTED = {"array": _list, "map": _map, "struct": _struct, "uniontype": _union}
