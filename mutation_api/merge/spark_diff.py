"""The diff of two states of a table with Spark, as a change set for ``apply_changes``.

A key identifies rows. Both states are read once. A single shuffle brings the rows of each key together, which
also finds keys that occur twice.

Conditions on partition columns only show which partitions a merge has to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyspark.sql.functions as sf
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from mutation_api.errors import DuplicateKeyError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.merge.clauses import DUPLICATES_SHOWN_DEFAULT, TARGET
from mutation_api.merge.differences import (
    NEW_STATE,
    OLD_STATE,
    OPERATIONS,
    check_states,
    checked_key,
    not_unique,
)
from mutation_api.merge.resolve import Alternatives
from mutation_api.merge.spark_columns import any_of, differs, key_json, stored
from mutation_api.merge.spark_expressions import Expression, column_of, column_type
from mutation_api.spark.versions import computed
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.partition import parse_partition_name
from mutation_api.table.partition_value import stored_partition_value
from mutation_api.table.row_type import quoted
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT

_ROW, _IS_OLD = "__row", "__is_old"
_OLD, _NEW, _OLD_COUNT, _NEW_COUNT = "__old", "__new", "__old_count", "__new_count"
_DOUBLED = "doubled"
"""The value of the operation column if a key occurs twice in a state. Such rows never leave this module."""


def diff(
    table: AcidTable,
    old: DataFrame,
    new: DataFrame,
    key: Sequence[str],
    *,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
) -> DataFrame:
    """Return the changes that turn ``old`` into ``new``.

    Rows with equal keys are the same row. NULLs in keys are equal. Rows without a difference cause no change.
    A row whose partition or bucket columns change becomes a delete and an insert.

    This call evaluates both states once and caches the changes. Call ``unpersist()`` on the result when done.

    Args:
        table: the table of ``old``.
        old: a snapshot of the table, with all columns and ROW__ID.
        new: the table's columns, in any order and case. A ROW__ID is ignored. Values are compared as the
            table would store them.
        key: names of the columns that identify a row.
        operation_column: name of the operation column.

    Returns:
        ``operation`` ('insert', 'update', 'delete'), ``ROW__ID`` from ``old`` (null for inserts), and the
        table's columns. They hold the new values, or the old values for deletes.

    Raises:
        ConfigurationError: If there are no keys, a key occurs twice or is not a column of the table, or if
            the table has a column with the name of the operation column.
        RecordLayoutError: If ``new`` lacks columns or has extra ones, if types do not fit, or if ``old`` has
            no ROW__ID.
        RecordValueError: If a value of ``new`` does not fit its column.
        DuplicateKeyError: If a key occurs more than once in one of the states. The message shows keys.
    """
    wanted = checked_key(table, key, operation_column)
    check_states(table, old.columns, new.columns)
    converted = _as_stored(table, new, wanted)
    states = {OLD_STATE: old, NEW_STATE: converted}
    compared = _by_key(table, old, converted, wanted)
    changes = _changes(table, compared, operation_column).persist()
    try:
        with translated_worker_errors(f"comparing table {table.full_name}"):
            _check_doubled(table, states, wanted, changes.where(sf.col(quoted(operation_column)) == _DOUBLED))
    except BaseException:
        changes.unpersist()
        raise
    return changes


def count_operations(changes: DataFrame, operation_column: str = OPERATION_COLUMN_DEFAULT) -> dict[str, int]:
    """Return the number of changes in a change set for each of OPERATIONS."""
    found = {row[0]: row[1] for row in changes.groupBy(quoted(operation_column)).count().collect()}
    return {operation: found.get(operation, 0) for operation in OPERATIONS}


def _as_stored(table: AcidTable, new: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the table's columns, in the table's order and types."""
    names = [f.name for f in new.schema.fields if f.name.lower() != ROW_ID_COLUMN.lower()]
    found = {name.lower(): (sf.col(quoted(name)), new.schema[name].dataType) for name in names}
    key = key_json(keys, new.schema)
    columns = {
        c.name: stored(table, c, *found[c.name], where=sf.lit(True), key=key) for c in table.all_columns
    }
    return computed(new, columns)


def _by_key(table: AcidTable, old: DataFrame, new: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return a row per key: _OLD and _NEW (structs, null if the state lacks the key), and their counts."""
    row_id = old.schema[ROW_ID_COLUMN].dataType
    columns = [sf.col(quoted(c.name)).cast(column_type(c)).alias(c.name) for c in table.all_columns]
    tagged = [
        frame.select(
            *[sf.col(quoted(k)).alias(k) for k in keys],
            sf.lit(is_old).alias(_IS_OLD),
            sf.struct(identity.alias(ROW_ID_COLUMN), *columns).alias(_ROW),
        )
        for frame, is_old, identity in (
            (old, True, sf.col(quoted(ROW_ID_COLUMN))),
            (new, False, sf.lit(None).cast(row_id)),
        )
    ]
    is_old = sf.col(_IS_OLD)
    # Spark groups as required: NULL with NULL, NaN with NaN, -0.0 with 0.0.
    return (
        tagged[0]
        .union(tagged[1])
        .groupBy(*[quoted(k) for k in keys])
        .agg(
            sf.first(sf.when(is_old, sf.col(_ROW)), ignorenulls=True).alias(_OLD),
            sf.first(sf.when(~is_old, sf.col(_ROW)), ignorenulls=True).alias(_NEW),
            sf.count_if(is_old).alias(_OLD_COUNT),
            sf.count_if(~is_old).alias(_NEW_COUNT),
        )
        .select(_OLD, _NEW, _OLD_COUNT, _NEW_COUNT)
    )


def _changes(table: AcidTable, compared: DataFrame, operation_column: str) -> DataFrame:
    old, new = sf.col(_OLD), sf.col(_NEW)
    changed = {c.name: differs(c, _OLD, _NEW) for c in table.all_columns}
    operations = (
        sf.when((sf.col(_OLD_COUNT) > 1) | (sf.col(_NEW_COUNT) > 1), _operations(_DOUBLED))
        .when(new.isNull(), _operations("delete"))
        .when(old.isNull(), _operations("insert"))
        .when(any_of(changed[name] for name in table.placing_columns), _operations("delete", "insert"))
        .when(any_of(changed.values()), _operations("update"))
    )
    each = compared.select(sf.explode(operations).alias(operation_column), _OLD, _NEW)
    operation = sf.col(quoted(operation_column))
    row_id = sf.when(operation != "insert", old[ROW_ID_COLUMN])
    row = sf.when(operation == "delete", old).otherwise(new)
    return each.select(
        operation,
        row_id.alias(ROW_ID_COLUMN),
        *[row[c.name].alias(c.name) for c in table.all_columns],
    )


def _operations(*names: str) -> Column:
    return sf.array(*[sf.lit(name) for name in names])


def _check_doubled(
    table: AcidTable, states: Mapping[str, DataFrame], keys: Sequence[str], doubled: DataFrame
) -> None:
    """Raise DuplicateKeyError with keys that occur twice in the first state that has such keys."""
    if not doubled.limit(1).count():
        return
    for where, frame in states.items():
        counted = frame.groupBy(*[quoted(k) for k in keys]).count().where("count > 1")
        key = key_json(keys, frame.schema)
        shown = counted.select(key, "count").limit(DUPLICATES_SHOWN_DEFAULT + 1).collect()
        if shown:
            raise not_unique(table, keys, where, [(row[0], row[1]) for row in shown])
    raise DuplicateKeyError(
        f"table {table.full_name}: a key occurred twice, but only once when it was looked up again, so one "
        "of the states returns different rows each time it is evaluated. Materialise it first"
    )


_NAME = "__partition"


def partitions_where(
    spark: SparkSession, table: AcidTable, names: Sequence[str], alternatives: Alternatives[Expression]
) -> list[str] | None:
    """Return the names of the partitions whose rows may fulfil one of the alternatives. None means all.

    Args:
        spark: the session that evaluates the conditions.
        table: a partitioned table.
        names: names of the existing partitions.
        alternatives: conditions on partition columns only. An alternative without parts always holds.
    """
    if not alternatives:
        return []
    if not names or not all(alternatives):
        return None
    kinds = [parse_hive_type(key.type) for key in table.partition_keys]
    rows = [
        (
            name,
            *(
                stored_partition_value(text, kind, table.null_partition_text)
                for text, kind in zip(parse_partition_name(name), kinds, strict=True)
            ),
        )
        for name in names
    ]
    schema = StructType([StructField(_NAME, StringType())])
    for key in table.partition_keys:
        schema = schema.add(key.name, column_type(key))
    known = spark.createDataFrame(rows, schema).alias(TARGET)
    try:
        holds = [reduce(lambda a, b: a & b, map(column_of, parts)) for parts in alternatives]
        chosen = known.where(reduce(lambda a, b: a | b, holds)).select(_NAME)
    except (AnalysisException, ParseException):
        return None  # Spark cannot always parse the SQL that it generates
    return [row[0] for row in chosen.collect()]
