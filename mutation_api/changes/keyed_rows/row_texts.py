"""JSON texts that name rows in messages, as Spark's ``to_json`` writes them."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mutation_api.changes.preview import python_value
from mutation_api.types.plain_array import struct_fields

__all__ = ["json_texts"]


def json_texts(rows: pa.StructArray) -> list[str]:
    """N rows as JSON texts, nulls included."""
    if not rows.type.num_fields:
        return ["{}"] * len(rows)
    names = [json.dumps(field.name, ensure_ascii=False) for field in rows.type]
    columns = [_texts(field) for field in struct_fields(rows)]
    texts = [
        f"{{{','.join(map(':'.join, zip(names, values, strict=True)))}}}"
        for values in zip(*columns, strict=True)
    ]
    if not rows.null_count:
        return texts
    return [
        text if is_valid else "null"
        for text, is_valid in zip(texts, rows.is_valid().to_pylist(), strict=True)
    ]


def _texts(values: pa.Array) -> list[str]:
    """A column at a time: three times as fast as value by value."""
    if pa.types.is_struct(values.type):
        return json_texts(values)
    if pa.types.is_nested(values.type):
        return [_json(python_value(value)) for value in values]
    try:
        found = values.to_pylist()
    except (ValueError, OverflowError):
        found = [python_value(value) for value in values]
    return list(map(_json, found))


def _json(value: Any) -> str:
    match value:
        case float() if not math.isfinite(value):
            return '"NaN"' if math.isnan(value) else ('"Infinity"' if value > 0 else '"-Infinity"')
        case Decimal():
            return format(value, "f")
        case datetime():
            is_exact = value.microsecond % 1000 == 0
            return f'"{value.isoformat(timespec="milliseconds" if is_exact else "microseconds")}"'
        case date():
            return f'"{value.isoformat()}"'
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case dict():
            parts = (
                f"{json.dumps(str(name), ensure_ascii=False)}:{_json(each)}" for name, each in value.items()
            )
            return f"{{{','.join(parts)}}}"
        case list() | tuple():
            return f"[{','.join(map(_json, value))}]"
        case _:
            # No column holds a time of day or a duration, but a source may have more columns than the table.
            return json.dumps(value, ensure_ascii=False, default=str)
