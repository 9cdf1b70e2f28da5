"""Structs of pandas, which are dicts. What one of them lacks pyarrow fills with NULL, so it is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from mutation_api.errors import RecordValueError

__all__ = ["check_dicts"]


def check_dicts(data: object, schema: pa.Schema, what: str) -> None:
    """Check that the dicts of a column have the same keys, if the object is a DataFrame of pandas.

    Args:
        data: any object.
        schema: what Arrow made of its columns.
        what: its role, for messages.

    Raises:
        RecordValueError: a dict lacks a key that others have; the message has column, row and keys.
    """
    given: Any = data
    if type(data).__module__.partition(".")[0] != "pandas" or not hasattr(data, "columns"):
        return
    for name in given.columns:
        at = schema.get_field_index(name) if isinstance(name, str) else -1
        if at < 0 or given[name].dtype != object or not _holds_struct(schema.field(at).type):
            continue
        kind = schema.field(at).type
        for row, value in enumerate(given[name]):
            missing = _missing(value, kind)
            if missing:
                raise RecordValueError(
                    f"{what}: column {name!r}: row {row} has a dict without {', '.join(map(repr, missing))}, "
                    "which others have: give all dicts the same keys, with None where NULL is meant"
                )


def _holds_struct(kind: pa.DataType) -> bool:
    return bool(pa.types.is_struct(kind)) or any(
        _holds_struct(kind.field(number).type) for number in range(kind.num_fields)
    )


def _missing(value: Any, kind: pa.DataType) -> list[str]:
    """The fields that a dict in a value lacks."""
    if pa.types.is_struct(kind) and isinstance(value, dict):
        missing = [field.name for field in kind if field.name not in value]
        inner = (_missing(value.get(field.name), field.type) for field in kind)
        return missing or next(filter(None, inner), [])
    if pa.types.is_list(kind) and isinstance(value, Iterable) and not isinstance(value, str | bytes | dict):
        return next(filter(None, (_missing(each, kind.value_type) for each in value)), [])
    return []
