"""Hive types: their text, and the Arrow, ORC and Spark type of each.

A new type is a branch in :func:`mutation_api.acid.hive_type.parse_hive_type`, a row in each map here and
there, a conversion and a golden hash file.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mutation_api.acid.conversion import convert_to_column
from mutation_api.acid.hive_type import HiveType, arrow_type, parse_hive_type
from mutation_api.errors import TableNotMutableError
from mutation_api.table.acid_table import AcidColumn

__all__ = [
    "HiveType",
    "arrow_type",
    "convert_to_column",
    "parse_hive_type",
    "row_type",
    "spark_type",
]

_SPARK_NAMES = {"char": "string", "varchar": "string", "timestamp": "timestamp_ntz"}


def spark_type(hive_type: HiveType) -> str:
    """Type in Spark's DDL.

    A Hive timestamp is a wall clock, hence ``timestamp_ntz``; char and varchar are strings to Spark.

    Raises:
        TableNotMutableError: the type is or contains a union; Spark has none.
    """
    kind = hive_type.kind
    if kind == "uniontype":
        raise TableNotMutableError(f"type {hive_type.text}: Spark has no union type; leave the column out")
    children = [spark_type(child) for child in hive_type.children]
    if kind == "struct":
        # Without quotes a field called e.g. `order` or `a b` would not parse.
        fields = zip(hive_type.field_names, children, strict=True)
        return f"struct<{','.join(f'`{name}`:{child}' for name, child in fields)}>"
    if children:
        return f"{kind}<{','.join(children)}>"
    return _SPARK_NAMES.get(kind, hive_type.text)


def row_type(columns: Sequence[AcidColumn]) -> pa.StructType:
    """Arrow struct of the ``row`` field of an ACID file: the data columns in table order.

    Raises:
        TableNotMutableError: a column's type cannot be held; the message names the column.
    """
    return pa.struct([pa.field(column.name, arrow_type(_type_of(column))) for column in columns])


def _type_of(column: AcidColumn) -> HiveType:
    try:
        return parse_hive_type(column.type)
    except TableNotMutableError as error:
        raise TableNotMutableError(f"column {column.name!r}: {error}") from error
