"""JSON in which decimals are numbers with all their digits, as Java's libraries write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from tests.cdc_writers.history import Digits


def json_text(value: Any) -> str:
    """One line of JSON; texts are not escaped beyond what they must be."""
    match value:
        case Digits() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case Mapping():
            return "{" + ",".join(f"{json.dumps(k)}:{json_text(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(json_text, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def base64_text(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()
