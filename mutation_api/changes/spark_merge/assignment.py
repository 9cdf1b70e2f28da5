"""Assignment of values to columns: converted as Hive stores them, or refused with row key and column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from mutation_api.changes.converted import check_type, converted
from mutation_api.changes.spark_merge.sides import column_type
from mutation_api.errors import RecordLayoutError
from mutation_api.spark.arrow_types import arrow_type_of
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.versions import ArrowColumn
from mutation_api.spark.write.plan import wall_clock_type
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import null_text_of
from mutation_api.types.hive_type import parse_hive_type, spark_type

__all__ = [
    "ColumnConverter",
    "any_of",
    "check_spark_type",
    "comparable",
    "differs",
    "is_stored_unchanged",
    "stored",
]

_CUT = ("char", "varchar")
"""Spark uses strings for these types, so values may need a conversion although the Spark types are equal."""


@dataclass(frozen=True)
class ColumnConverter:
    """The function that converts values to the column's type in tasks.

    ``null_text`` is that of a partition column, see :func:`~mutation_api.table.partition.null_text_of`.
    """

    table_name: str
    column: AcidColumn
    null_text: str | None = None

    def __call__(self, values: pa.Array, keys: pa.Array) -> pa.Array:
        """Convert n values; ``keys`` names their n source rows.

        Raises RecordValueError: a value does not fit.
        """
        return converted(
            self.table_name,
            self.column,
            values,
            lambda row: str(keys[row].as_py()),
            null_text=self.null_text,
        )


def stored(
    table: AcidTable,
    column: AcidColumn,
    value: Column,
    found: DataType,
    *,
    where: Column,
    key: Column,
    keeps_empty: bool = False,
) -> Column | ArrowColumn:
    """``value`` as the column will store it, null where ``where`` is not true.

    Args:
        table: the column's.
        column: the column that gets the value.
        value: the assigned value.
        found: its type.
        where: the rows that need it. Values of other rows are ignored, so they cannot be refused.
        key: text that names a row in messages.
        keeps_empty: keep '' in a string partition column, which stores NULL for it.

    Raises:
        RecordLayoutError: values of this type can never be stored in the column. A value that does not fit
            raises RecordValueError in the job.
    """
    wall_clock = wall_clock_type(found)
    check_spark_type(table.full_name, column, wall_clock)
    masked = sf.when(where, value if wall_clock == found else value.cast(wall_clock))
    if is_stored_unchanged(column, found):
        is_text_of_partition = column.type == "string" and null_text_of(table, column.name) is not None
        return sf.when(masked != "", masked) if is_text_of_partition and not keeps_empty else masked
    wanted = spark_type(parse_hive_type(column.type))
    convert = ColumnConverter(table.full_name, column, null_text_of(table, column.name))
    return ArrowColumn(convert, wanted, (masked, key))


def is_stored_unchanged(column: AcidColumn, found: DataType) -> bool:
    """Whether the column stores every value of Spark's type ``found`` unchanged; '' of a partition apart."""
    return column_type(column) == wall_clock_type(found) and not any(kind in column.type for kind in _CUT)


def check_spark_type(table_name: str, column: AcidColumn, found: DataType) -> None:
    """Raise RecordLayoutError if no value of a type of Spark's can be stored in the column."""
    shown = found.simpleString()
    try:
        arrow = arrow_type_of(found)
    except TypeError as error:
        raise RecordLayoutError(
            f"table {table_name}: column {column.name!r} ({column.type}) cannot hold a {shown}; "
            f"cast it in the source ({error})"
        ) from error
    check_type(table_name, column, arrow, shown)


def differs(column: AcidColumn, old: str, new: str) -> Column:
    """Whether the structs named ``old`` and ``new`` differ in a column; NULL equals NULL."""
    kind = column_type(column)
    before, after = (comparable(sf.col(quoted(side, column.name)), kind) for side in (old, new))
    return ~after.eqNullSafe(before)


def any_of(conditions: Iterable[Column]) -> Column:
    """Whether at least one of the conditions is true; false without conditions."""
    return reduce(lambda a, b: a | b, conditions, sf.lit(False))


def comparable(value: Column, data_type: DataType) -> Column:
    """The value in a form that Spark can compare: maps, nested ones included, become sorted entries."""
    if "map<" not in data_type.simpleString():
        return value
    match data_type:
        case MapType():
            item_type = data_type.valueType
            entries = sf.transform(
                sf.map_entries(value),
                lambda e: sf.struct(e["key"].alias("key"), comparable(e["value"], item_type).alias("value")),
            )
            return sf.sort_array(entries)
        case ArrayType():
            element_type = data_type.elementType
            return sf.transform(value, lambda e: comparable(e, element_type))
        case StructType():
            fields = [comparable(value[f.name], f.dataType).alias(f.name) for f in data_type.fields]
            return sf.when(value.isNotNull(), sf.struct(*fields))
        case _:
            return value
