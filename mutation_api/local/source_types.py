"""Types of Polars and DuckDB whose values Arrow receives as something else.

Polars gives addresses in memory for its type Object; DuckDB gives the bytes of a BIT, and wraps a UHUGEINT of
2**127 or more around to a negative number. In Arrow's type nothing shows it. So the types of their own are
compared with lists of those that arrive as they are; a type that is not listed is refused.

Source: what Polars 1.3 to 2.1 and DuckDB 1.1 to 2.0 export, compared type by type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["unknown_types"]

_POLARS = frozenset[str]().union(
    ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    ("Float16", "Float32", "Float64", "Decimal", "Boolean", "String", "Binary", "Categorical", "Enum"),
    ("Date", "Time", "Datetime", "Duration", "Null", "List", "Array", "Struct", "Map", "Extension"),
)
"""Names of the classes; an Extension has its name in Arrow, too."""
_DUCKDB = frozenset[str]().union(
    ("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint"),
    ("boolean", "float", "double", "decimal", "varchar", "blob", "date", "time", "interval", "uuid", "enum"),
    ("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"),
    ("list", "array", "struct", "map", "union", "null", "sqlnull"),
)
"""Their ids."""
_NESTED_DUCKDB = frozenset({"list", "array", "struct", "map", "union"})


def unknown_types(data: object) -> Mapping[str, str]:
    """The columns of a DataFrame of Polars or a relation of DuckDB whose types are not known to arrive.

    Args:
        data: any object.

    Returns:
        By the name of the column, why it is refused.
    """
    package = type(data).__module__.partition(".")[0]
    if not hasattr(data, "__arrow_c_stream__") or package not in ("polars", "duckdb", "_duckdb"):
        return MappingProxyType({})
    given: Any = data
    if package == "polars":
        # A Series of structs is rows, too.
        fields = getattr(given, "schema", None) or _polars_fields(given.dtype)
        return _refusals({name: [*_of_polars(each)] for name, each in fields.items()}, "Polars")
    types = zip(given.columns, given.types, strict=True) if hasattr(given, "types") else ()
    return _refusals({name: [*_of_duckdb(each)] for name, each in types}, "DuckDB")


def _polars_fields(found: Any) -> dict[str, Any]:
    return {field.name: field.dtype for field in getattr(found, "fields", ())}


def _refusals(types: Mapping[str, list[str]], package: str) -> Mapping[str, str]:
    reason = "do not reach Arrow as what they are: cast them in"
    found = {name: unknown[0] for name, unknown in types.items() if unknown}
    return {name: f"values of {package}'s type {each} {reason} {package}" for name, each in found.items()}


def _of_polars(found: Any) -> Iterator[str]:
    """The types of a type that are not listed, itself included."""
    if type(found).__name__ not in _POLARS and getattr(found, "__name__", "") not in _POLARS:
        yield str(found)
    for part in ("inner", "key", "value"):
        inner = getattr(found, part, None)
        if inner is not None and not callable(inner):
            yield from _of_polars(inner)
    for field in getattr(found, "fields", None) or ():
        yield from _of_polars(field.dtype)


def _of_duckdb(found: Any) -> Iterator[str]:
    if found.id not in _DUCKDB:
        yield str(found)
    if found.id in _NESTED_DUCKDB:
        for name, child in found.children:
            # A union's first child is its tag, without a name; an array's second is a number.
            if name and not isinstance(child, int):
                yield from _of_duckdb(child)
