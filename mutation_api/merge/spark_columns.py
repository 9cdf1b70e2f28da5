"""The outcome of each row in a merge by Spark, as columns: its clause, new values, kind and partition.

Values are converted as Hive stores them; errors name the row's key and the column. Several source rows that
act on one row are reduced to a single one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import assert_never

import pyarrow as pa
import pyarrow.compute as pc
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
    Action,
    Clause,
    FirstBy,
    Match,
    MergeOptions,
    altered_keys_error,
)
from mutation_api.merge.resolve import check_type, converted
from mutation_api.merge.spark_expressions import Expression, SparkMerge, column_of, column_type
from mutation_api.spark.frame_table import arrow_type_of
from mutation_api.spark.plan import wall_clock_type
from mutation_api.spark.versions import ArrowColumn, computed
from mutation_api.spark.versions import data_type as data_type_of
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import null_text_of, partition_names
from mutation_api.table.row_type import quoted

__all__ = [
    "CLAUSE",
    "DELETED",
    "INSERTED",
    "MOVED",
    "NEW",
    "UNCHANGED",
    "UPDATED",
    "ColumnConverter",
    "altered_key",
    "any_of",
    "check_spark_type",
    "comparable",
    "differs",
    "first_holding",
    "inserted_key",
    "is_stored_unchanged",
    "json_text",
    "keep_first",
    "key_json",
    "key_text",
    "kind_of",
    "order_of",
    "partition_of",
    "stored",
    "with_new_row",
]


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
    keeps_empty: bool = False,
) -> Column | ArrowColumn:
    """Return ``value`` as the column will store it, and null where ``where`` is not true.

    Args:
        table: the table of the column.
        column: the column that the value is for.
        value: the assigned value.
        found: type of the value.
        where: condition that selects the rows. Values of other rows are ignored, so they are never refused.
        key: string that names a row in messages.
        keeps_empty: True to keep '' in a string partition column, which stores NULL for it.

    Raises:
        RecordLayoutError: If the column cannot store any value of this type. If a single value does not fit,
            the job raises RecordValueError.
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


CLAUSE, NEW = "__clause", "__new"
"""Columns that these functions read: the number of the row's clause and the struct of its new values."""

INSERTED, UPDATED, DELETED, MOVED, UNCHANGED = "inserted", "updated", "deleted", "moved", "unchanged"
"""The outcomes of a row, which are fields of MergeCounts."""


def first_holding(clauses: Iterable[Clause[Expression]]) -> Column:
    """Return the number of the first clause that holds for the row, or null if none does."""
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


def with_new_row(rows: DataFrame, table: AcidTable, resolved: SparkMerge) -> DataFrame:
    """Add NEW, a struct of the row as it will be stored. All columns of a delete are null."""
    types = (rows.schema[side].dataType for side in (SOURCE, TARGET))
    key = key_text(resolved.keys, sf.col(SOURCE), sf.col(TARGET), *types)
    converted: dict[str, ArrowColumn] = {}
    columns = []
    for column in table.all_columns:
        branches = []
        for branch in _branches(table, column, resolved, key):
            if isinstance(branch, ArrowColumn):
                name = f"__converted{len(converted)}"
                converted[name] = branch
                branches.append(sf.col(name))
            else:
                branches.append(branch)
        columns.append(_first_of(column, branches).alias(column.name))
    if converted:
        rows = computed(rows, {**{name: sf.col(quoted(name)) for name in rows.columns}, **converted})
    return rows.withColumn(NEW, sf.struct(*columns)).drop(*converted)


def _first_of(column: AcidColumn, branches: Sequence[Column]) -> Column:
    wanted = column_type(column)
    return sf.coalesce(*[branch.cast(wanted) for branch in branches], sf.lit(None).cast(wanted))


def _branches(
    table: AcidTable, column: AcidColumn, resolved: SparkMerge, key: Column
) -> Iterator[Column | ArrowColumn]:
    """Yield the new values of a column by clause. Each is null where another clause decides."""
    # An empty string as a key is refused where partitions get their names: see partition_of.
    keeps_empty = column.name in (resolved.keys or ())
    shared: list[int] = []  # clauses that use the source column unchanged share one conversion
    for number, (clause, values) in enumerate(zip(resolved.clauses, resolved.values, strict=True)):
        here = sf.col(CLAUSE) == number
        if clause.action.replaces_row and column.name not in values:
            yield sf.when(here, sf.col(quoted(TARGET, column.name)))
        elif column.name in values and clause.takes_all:
            shared.append(number)
        elif column.name in values:
            value, found = values[column.name]
            yield stored(table, column, column_of(value), found, where=here, key=key, keeps_empty=keeps_empty)
    if shared:
        value, found = resolved.values[shared[0]][column.name]
        where = sf.col(CLAUSE).isin(*shared)
        yield stored(table, column, column_of(value), found, where=where, key=key, keeps_empty=keeps_empty)


def kind_of(table: AcidTable, resolved: SparkMerge, options: MergeOptions) -> Column:
    """Return the outcome of the row: a field of MergeCounts."""
    numbers: dict[Action, list[int]] = {action: [] for action in Action}
    for number, clause in enumerate(resolved.clauses):
        numbers[clause.action].append(number)
    clause_number = sf.col(CLAUSE)
    certain = [
        (clause_number.isin(*numbers[action]), action.outcome) for action in Action if not action.replaces_row
    ]
    kind = reduce(lambda chain, each: chain.when(*each), certain[1:], sf.when(*certain[0]))
    if not any(clause.action.replaces_row for clause in resolved.clauses):
        return kind
    assigned = {name for values in resolved.values for name in values}
    compared = assigned & table.placing_columns if options.write_unchanged else assigned
    changes = {c.name: differs(c, TARGET, NEW) for c in table.all_columns if c.name in compared}
    moved = [changed for name, changed in changes.items() if name in table.placing_columns]
    kind = kind.when(any_of(moved), MOVED)
    if not options.write_unchanged:
        kind = kind.when(~any_of(list(changes.values())), UNCHANGED)
    return kind.otherwise(UPDATED)


def inserted_key(rows: DataFrame, resolved: SparkMerge, options: MergeOptions) -> Column:
    """Return the JSON string of an inserted key as it will be stored, or null if a NULL makes it unique."""
    nothing = sf.lit(None).cast("string")
    if resolved.keys is None:
        return nothing
    parts = [sf.col(quoted(NEW, key)) for key in resolved.keys]
    inserts = [i for i, c in enumerate(resolved.clauses) if c.action.adds_row]
    counts = sf.col(CLAUSE).isin(*inserts)
    if not options.null_safe:
        counts = reduce(lambda a, p: a & p.isNotNull(), parts, counts)
    return sf.when(counts, key_json(resolved.keys, rows.schema[NEW].dataType, sf.col(NEW)))


def altered_key(table: AcidTable, resolved: SparkMerge) -> Column | None:
    """Return the JSON string of an inserted key that is stored as a different key (rounded, cut).

    It holds the key before and after. Such a key was matched unconverted, and its stored form may be the key
    of an existing row. If None, no key of the merge can change.
    """
    types = {c.name: c for c in table.all_columns}
    keys = set(resolved.keys or ())
    found = []
    for number, (clause, values) in enumerate(zip(resolved.clauses, resolved.values, strict=True)):
        for name in sorted(keys & values.keys()) if clause.action.adds_row else ():
            value, data_type = values[name]
            if is_stored_unchanged(types[name], data_type):
                continue
            before, after = column_of(value), sf.col(quoted(NEW, name))
            is_other = (sf.col(CLAUSE) == number) & ~before.eqNullSafe(after)
            as_stored = data_type_of(spark_type(parse_hive_type(types[name].type)))
            row = sf.struct(sf.lit(name).alias("column"), before.alias("key"), after.alias("stored"))
            text = json_text(row, _struct_of({"column": StringType(), "key": data_type, "stored": as_stored}))
            found.append(sf.when(is_other, text))
    return sf.coalesce(*found) if found else None


def partition_of(table: AcidTable, where: Column, keys: Collection[str]) -> Column | ArrowColumn:
    """Return the partition name of a new row, null for other rows. '' as a key is refused."""
    if not table.partition_keys:
        return sf.when(where, sf.lit(""))
    values = sf.struct(*[sf.col(quoted(NEW, k)).alias(k) for k in table.partition_key_names])
    texts = tuple(key.name for key in table.partition_keys if key.type == "string" and key.name in keys)
    return ArrowColumn(_PartitionNames(table, texts), "string", (sf.when(where, values),))


@dataclass(frozen=True)
class _PartitionNames:
    """The function that runs in tasks and turns structs of partition values into partition names."""

    table: AcidTable
    text_keys: tuple[str, ...]

    def __call__(self, rows: pa.Array) -> pa.Array:
        wanted = rows.is_valid()
        present = rows.filter(wanted)
        columns = {f.name: present.field(i) for i, f in enumerate(rows.type)}
        for name in self.text_keys:
            if "" in pc.unique(columns[name]).to_pylist():
                altered = json.dumps({"column": name, "key": "", "stored": None})
                raise altered_keys_error(self.table.full_name, [altered])
        found = partition_names(self.table, columns).cast(pa.string())
        return pc.replace_with_mask(pa.nulls(len(rows), pa.string()), wanted, found)


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
