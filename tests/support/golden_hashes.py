"""The values of tests/golden/bucket_hash, in whose notation Hive's own classes read them, as JSON.

Numbers may be strings there, binary is hexadecimal, and maps and structs are lists.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import pyarrow as pa

from mutation_api.format.hive_type import HiveType
from mutation_api.table.bucket_rows import column_from_json

_WORDS = ("NaN", "Infinity", "-Infinity")
_TEXT_KINDS = ("string", "varchar", "char")


def golden_column(values: list[Any], hive_type: HiveType) -> pa.Array:
    """Golden values as a column that can be hashed."""
    return column_from_json([plain_json(value, hive_type) for value in values], hive_type)


def plain_json(value: Any, hive_type: HiveType) -> Any:
    """A golden value as the library writes it."""
    if value is None:
        return None
    children = hive_type.children
    match hive_type.kind:
        case "array":
            return [plain_json(each, children[0]) for each in value]
        case "map":
            pairs = [(plain_json(k, children[0]), plain_json(v, children[1])) for k, v in value]
            return dict(pairs) if children[0].kind in _TEXT_KINDS else [list(pair) for pair in pairs]
        case "struct":
            fields = zip(hive_type.field_names, value, children, strict=True)
            return {name: plain_json(each, child) for name, each, child in fields}
        case "uniontype":
            return [value[0], plain_json(value[1], children[value[0]])]
        case "binary":
            return base64.b64encode(bytes.fromhex(value)).decode()
        case "float" | "double" if isinstance(value, str) and value not in _WORDS:
            return Decimal(value)
        case "tinyint" | "smallint" | "int" | "bigint" if isinstance(value, str):
            return int(value)
    return value
