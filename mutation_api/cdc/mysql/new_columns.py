"""Columns of a source table that the Hive table lacks, with Hive's types for them."""

from __future__ import annotations

from mutation_api.cdc.mysql.column_types import SourceColumn, family_of
from mutation_api.cdc.mysql.server import CatalogTable
from mutation_api.cdc.mysql.table_plan import TablePlan
from mutation_api.errors import RecordLayoutError

DECIMAL_DIGITS = 38
"""The maximum number of digits of a Hive decimal."""
UNSIGNED_BIGINT = "decimal(20,0)"
INTEGERS = {
    "tinyint": ("tinyint", "smallint"),
    "smallint": ("smallint", "int"),
    "mediumint": ("int", "int"),
    "int": ("int", "bigint"),
    "bigint": ("bigint", UNSIGNED_BIGINT),
    "year": ("smallint", "smallint"),
}
"""The Hive types of signed and of unsigned columns."""


def new_columns(table: CatalogTable, plan: TablePlan) -> dict[str, str]:
    """Return the columns that Hive lacks and that are not left out, by lower-case name, with Hive's types.

    There are none if the source lacks a column of Hive, since another column may be its new name.

    Raises RecordLayoutError if Hive has no type for a column.
    """
    found = {column.name.lower(): column for column in table.columns}
    if {*plan.wanted} - found.keys() - plan.ignored:
        return {}
    return {
        name: hive_type_of(column, plan.name)
        for name, column in found.items()
        if name not in plan.wanted and name not in plan.ignored
    }


def hive_type_of(column: SourceColumn, table: str) -> str:
    """Return the Hive type that holds all values of a source's column.

    Raises RecordLayoutError if there is none. ``table`` is for the message.
    """
    kinds = family_of(column, table).hive
    if column.kind in INTEGERS:
        return INTEGERS[column.kind][column.is_unsigned]
    if column.kind == "bit":
        return {1: "boolean", 64: UNSIGNED_BIGINT}.get(column.length, "bigint")
    if column.kind == "decimal" and column.precision > DECIMAL_DIGITS:
        raise RecordLayoutError(
            f"source table {table}, column {column.name!r} ({column.type_text}): a decimal of Hive has at "
            f"most {DECIMAL_DIGITS} digits. Add the column by hand, with the digits that its values need, or "
            "leave it out"
        )
    if column.kind == "decimal":
        return f"decimal({column.precision},{column.scale})"
    if column.kind == "float":
        return "float"
    return "string" if "string" in kinds else kinds[0]
