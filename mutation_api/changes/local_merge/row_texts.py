"""JSON texts that name rows in messages, as Spark's ``to_json`` writes them."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mutation_api.changes.preview import row_values

__all__ = ["json_texts"]


def json_texts(rows: pa.StructArray) -> list[str]:
    """N rows as JSON texts, nulls included."""
    return [_json(row_values(row)) for row in rows]


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
            return json.dumps(value, ensure_ascii=False)
