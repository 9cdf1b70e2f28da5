"""Columns of merges and differences by Spark: values as Hive stores them, comparisons, JSON strings.

Errors of a conversion name the row's key and the column. Several rows of a group are reduced to one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import assert_never

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from mutation_api.errors import RecordLayoutError
from mutation_api.format.hive_type import PRIMITIVES, parse_hive_type, spark_type
from mutation_api.merge.clauses import (
    SOURCE,
    TARGET,
    Clause,
    FirstBy,
    Match,
    MergeOptions,
)
from mutation_api.merge.resolve import check_type, converted
from mutation_api.merge.spark_expressions import Expression, SparkMerge, column_of, column_type
from mutation_api.merge.task_clauses import CLAUSE
from mutation_api.spark.frame_table import arrow_type_of
from mutation_api.spark.plan import wall_clock_type
from mutation_api.spark.versions import ArrowColumn, computed
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import null_text_of
from mutation_api.table.row_type import quoted

_CUT = [kind for kind, facts in PRIMITIVES.items() if facts.max_length]
"""The types that are strings in Spark, so values may need a conversion although the Spark types are equal."""


@dataclass(frozen=True)
class ColumnConverter:
    """The function that runs in tasks and converts values to the column's type.

    ``null_text`` is the string that stands for NULL in a partition column, see
    :func:`~mutation_api.table.partition.null_text_of`.
    """

    table_name: str
    column: AcidColumn
    null_text: str | None = None

    def __call__(self, values: pa.Array, keys: pa.Array) -> pa.Array:
        """Convert n values. ``keys`` holds the keys of their source rows, for messages.

        Raises:
            RecordValueError: If a value does not fit.
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
) -> Column | ArrowColumn:
    """Return ``value`` as the column will store it, and null where ``where`` is not true.

    Args:
        table: the table of the column.
        column: the column that the value is for.
        value: the assigned value.
        found: type of the value.
        where: condition that selects the rows. Values of other rows are ignored, so they are never refused.
        key: string that names a row in messages.

    Raises:
        RecordLayoutError: If the column cannot store any value of this type. If a single value does not fit,
            the job raises RecordValueError.
    """
    wall_clock = wall_clock_type(found)
    check_spark_type(table.full_name, column, wall_clock)
    masked = sf.when(where, value if wall_clock == found else value.cast(wall_clock))
    if is_stored_unchanged(column, found):
        is_text_of_partition = column.type == "string" and null_text_of(table, column.name) is not None
        return sf.when(masked != "", masked) if is_text_of_partition else masked
    wanted = spark_type(parse_hive_type(column.type))
    convert = ColumnConverter(table.full_name, column, null_text_of(table, column.name))
    return ArrowColumn(convert, wanted, (masked, key))


def is_stored_unchanged(column: AcidColumn, found: DataType) -> bool:
    """Return True if the column stores every value of the Spark type unchanged, except '' in a partition."""
    return column_type(column) == wall_clock_type(found) and not any(kind in column.type for kind in _CUT)


def check_spark_type(table_name: str, column: AcidColumn, found: DataType) -> None:
    """Raise RecordLayoutError if the column cannot store any value of a Spark type."""
    shown = found.simpleString()
    try:
        arrow = arrow_type_of(found)
    except TypeError as error:
        raise RecordLayoutError(
            f"table {table_name}: column {column.name!r} ({column.type}) cannot hold {shown} values; "
            f"cast it in the source ({error})"
        ) from error
    check_type(table_name, column, arrow, shown)


def differs(column: AcidColumn, old: str, new: str) -> Column:
    """Return True if the structs ``old`` and ``new`` differ in a column. NULL equals NULL."""
    kind = column_type(column)
    before, after = (comparable(sf.col(quoted(side, column.name)), kind) for side in (old, new))
    return ~after.eqNullSafe(before)


def any_of(conditions: Iterable[Column]) -> Column:
    """Return True if at least one of the conditions is true. Without conditions it is false."""
    return reduce(lambda a, b: a | b, conditions, sf.lit(False))


def comparable(value: Column, data_type: DataType) -> Column:
    """Return the value in a form that Spark can compare: maps at any depth become sorted entries."""
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


def first_holding(clauses: Iterable[Clause[Expression]]) -> Column:
    """Return the number of the first clause that applies to the row, or null if none does."""
    chain = [
        sf.when(
            _is_match(c.match) if c.condition is None else _is_match(c.match) & column_of(c.condition),
            sf.lit(number),
        )
        for number, c in enumerate(clauses)
    ]
    # coalesce stops at the first value, so a condition is not evaluated for rows of an earlier clause.
    return sf.coalesce(*chain)


def _is_match(match: Match) -> Column:
    has_source, has_target = sf.col(SOURCE).isNotNull(), sf.col(TARGET).isNotNull()
    match match:
        case Match.MATCHED:
            return has_source & has_target
        case Match.NOT_MATCHED:
            return ~has_target
        case Match.NOT_MATCHED_BY_SOURCE:
            return ~has_source
        case _:
            assert_never(match)


def value_columns(
    resolved: SparkMerge, name: str, *, inserts_only: bool = False
) -> Iterator[tuple[list[int], Expression, DataType]]:
    """Yield the values that clauses assign to a column: the numbers of the clauses, the value and its type.

    Clauses that use the source's column unchanged share one value. Default values are not included.
    """
    shared: list[int] = []
    for number, (clause, values) in enumerate(zip(resolved.clauses, resolved.values, strict=True)):
        if name not in values or name in clause.defaults or (inserts_only and not clause.action.adds_row):
            continue
        if clause.takes_all:
            shared.append(number)
        else:
            yield [number], *values[name]
    if shared:
        yield shared, *resolved.values[shared[0]][name]


def with_inserted_key(
    rows: DataFrame, table: AcidTable, resolved: SparkMerge, options: MergeOptions, name: str
) -> DataFrame:
    """Add the key of each row to insert, as it will be stored: a struct of the key columns, in their order.

    It is null for other rows, and if a NULL makes the key unique.
    """
    columns = {each.name: each for each in table.all_columns}
    converted: dict[str, Column | ArrowColumn] = {}
    parts = []
    for number, key in enumerate(resolved.keys or ()):
        branches = _stored_values(rows, table, resolved, columns[key], converted)
        wanted = column_type(columns[key])
        values = [sf.col(branch).cast(wanted) for _, _, _, branch in branches]
        parts.append(sf.coalesce(*values, sf.lit(None).cast(wanted)).alias(f"k{number}"))
    inserts = [number for number, each in enumerate(resolved.clauses) if each.action.adds_row]
    with_parts = computed(rows, {**{each: sf.col(quoted(each)) for each in rows.columns}, **converted})
    counts = sf.col(CLAUSE).isin(*inserts)
    if not options.null_safe:
        counts = reduce(lambda all_of, part: all_of & part.isNotNull(), parts, counts)
    return with_parts.withColumn(name, sf.when(counts, sf.struct(*parts))).drop(*converted)


def with_altered_key(
    rows: DataFrame, table: AcidTable, resolved: SparkMerge, keys: Collection[str], name: str
) -> DataFrame:
    """Add the JSON string of a key to insert that is stored as a different key by Spark's comparison.

    It is that of :func:`mutation_api.merge.acting.altered_keys`, for key columns whose values and stored
    values only Spark can compare, such as strings and numbers.
    """
    converted: dict[str, Column | ArrowColumn] = {}
    found = []
    for column in table.all_columns:
        if column.name not in keys:
            continue
        for where, before, kind, branch in _stored_values(rows, table, resolved, column, converted):
            after = sf.col(branch)
            row = sf.struct(sf.lit(column.name).alias("column"), before.alias("key"), after.alias("stored"))
            types = {"column": StringType(), "key": kind, "stored": column_type(column)}
            found.append(sf.when(where & ~before.eqNullSafe(after), json_text(row, _struct_of(types))))
    with_parts = computed(rows, {**{each: sf.col(quoted(each)) for each in rows.columns}, **converted})
    return with_parts.withColumn(name, sf.coalesce(*found)).drop(*converted)


def _stored_values(
    rows: DataFrame,
    table: AcidTable,
    resolved: SparkMerge,
    column: AcidColumn,
    converted: dict[str, Column | ArrowColumn],
) -> list[tuple[Column, Column, DataType, str]]:
    """Return the rows, value, its type and the name of the stored value, for each value to insert.

    The columns that compute stored values are added to ``converted``.
    """
    types = (rows.schema[side].dataType for side in (SOURCE, TARGET))
    text = key_text(resolved.keys, sf.col(SOURCE), sf.col(TARGET), *types)
    found = []
    for numbers, value, kind in value_columns(resolved, column.name, inserts_only=True):
        name, where = f"__stored{len(converted)}", sf.col(CLAUSE).isin(*numbers)
        converted[name] = stored(table, column, column_of(value), kind, where=where, key=text)
        found.append((where, column_of(value), kind, name))
    return found


def key_text(
    keys: tuple[str, ...] | None, source: Column, target: Column, source_type: DataType, target_type: DataType
) -> Column:
    """Return the JSON string that names a row in messages: its key columns, or the whole row without keys."""
    of_target = json_text(target, target_type)
    if keys is None:
        return sf.coalesce(json_text(source, source_type), of_target)
    return sf.when(source.isNotNull(), key_json(keys, source_type, source)).otherwise(of_target)


def key_json(keys: Sequence[str], rows: DataType, side: Column | None = None) -> Column:
    """Return the JSON string of some columns of rows, or of a struct of rows."""
    assert isinstance(rows, StructType)
    fields = {field.name.lower(): field for field in rows.fields}
    found = {key: fields[key.lower()] for key in keys}
    columns = [
        (sf.col(quoted(field.name)) if side is None else side[field.name]).alias(key)
        for key, field in found.items()
    ]
    return json_text(sf.struct(*columns), _struct_of({key: f.dataType for key, f in found.items()}))


def _struct_of(types: Mapping[str, DataType]) -> StructType:
    return StructType([StructField(name, each) for name, each in types.items()])


def json_text(value: Column, kind: DataType) -> Column:
    """Return the JSON string of a struct of this type, including its nulls.

    It is that of :func:`mutation_api.format.json_values.json_texts`, except that Spark has its own digits for
    very large and small numbers, and strings for the keys of all maps.
    """
    return sf.to_json(_spelled(value, kind), {"ignoreNullFields": "false"})


def _spelled(value: Column, kind: DataType) -> Column:
    """Return decimals and timestamps as strings without trailing zeros, and other values unchanged."""
    match kind:
        case DecimalType():
            text = sf.regexp_replace(value.cast("string"), r"(\.\d*?)0+$", "$1")
            return sf.when(value == 0, "0").otherwise(sf.regexp_replace(text, r"\.$", ""))
        case TimestampType() | TimestampNTZType():
            return sf.translate(value.cast("string"), " ", "T")
        case StructType() if _is_spelled(kind):
            fields = [_spelled(value[f.name], f.dataType).alias(f.name) for f in kind.fields]
            return sf.when(value.isNotNull(), sf.struct(*fields))
        case ArrayType() if _is_spelled(kind):
            return sf.transform(value, lambda each: _spelled(each, kind.elementType))
        case MapType() if _is_spelled(kind.valueType):
            return sf.transform_values(value, lambda _, each: _spelled(each, kind.valueType))
    return value


def _is_spelled(kind: DataType) -> bool:
    text = kind.simpleString()
    return "decimal(" in text or "timestamp" in text


def keep_first(
    rows: DataFrame, group: Sequence[str | Column], order: Sequence[Column], where: Column
) -> DataFrame:
    """Keep the first row of each group among the rows for which ``where`` is true, and all other rows."""
    # The other rows are spread by their content. As a single group they would all go to one task.
    spread = sf.when(~where, sf.xxhash64(sf.to_json(SOURCE)))
    rank = sf.row_number().over(Window.partitionBy(where, spread, *group).orderBy(*order))
    return rows.withColumn("__rank", rank).where(~where | (sf.col("__rank") == 1)).drop("__rank")


def order_of(first: FirstBy) -> list[Column]:
    """Return the columns of the order and a hash of the source row's content, which breaks ties."""
    return [*map(column_of, first.columns), sf.xxhash64(sf.to_json(SOURCE))]
