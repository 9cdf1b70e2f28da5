"""The clauses of a merge by Spark, applied to rows in Spark's tasks.

Spark pairs the rows, chooses each row's clause and evaluates expressions.
:func:`mutation_api.merge.acting.act` does the rest, as on the local engine. Changes leave the task as bytes
with an Arrow stream in each, so that Spark need not convert every row back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from mutation_api.errors import ConfigurationError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.merge.acting import (
    ROW_TEXT,
    rules_of,
)
from mutation_api.merge.clauses import SOURCE, TARGET, MergeOptions
from mutation_api.merge.evaluator import check_countable, target_types
from mutation_api.merge.key_columns import are_comparable
from mutation_api.merge.spark_columns import (
    check_spark_type,
    json_text,
    value_columns,
    with_altered_key,
)
from mutation_api.merge.spark_expressions import SparkMerge, column_of, column_type
from mutation_api.merge.task_clauses import ALTERED, CLAUSE, KEY, OUTCOME, ROW_ID, TaskClauses, TaskOptions
from mutation_api.spark.frame_table import arrow_type_of
from mutation_api.spark.plan import content_hash, in_wall_clock, wall_clock_type
from mutation_api.spark.tasks import CHANGES, WRITER
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.row_type import quoted


def acted(
    rows: DataFrame,
    table: AcidTable,
    resolved: SparkMerge,
    options: MergeOptions,
    *,
    samples: int,
    identifies_rows: bool,
) -> DataFrame:
    """Apply the clauses to rows.

    Args:
        rows: the columns ``source`` and ``target``, and CLAUSE, which is not null.
        table: the table to change.
        resolved: the checked merge.
        options: its options.
        samples: number of rows of each kind to keep as samples.
        identifies_rows: True to return a row with ROW_ID or KEY for each source row that acts, to find
            several that act on one row or insert one key.

    Returns:
        Rows that have one of these columns: CHANGES (a piece of the change set, see
        :func:`mutation_api.spark.plan.plan_pieces`), OUTCOME, ROW_ID, KEY.

    Raises:
        RecordLayoutError: If a column cannot store the values that are assigned to it. If a single value does
            not fit, the job raises RecordValueError.
    """
    check_types(table, resolved, _fields(rows, SOURCE), options.count_by)
    keys_of_spark = _keys_of_spark(table, resolved)
    if keys_of_spark:
        rows = with_altered_key(rows, table, resolved, keys_of_spark, ALTERED)
    inputs = _Inputs.of(rows, table, resolved, options.count_by, has_altered=bool(keys_of_spark))
    fields = [StructField(CHANGES, BinaryType()), StructField(OUTCOME, BinaryType())]
    if identifies_rows:
        fields += _identities(rows, table, resolved)
    task = TaskClauses(
        table,
        rules_of(resolved),
        inputs.of_source,
        inputs.of_target,
        inputs.of_clauses,
        tuple(key for key in resolved.keys or () if key not in keys_of_spark),
        TaskOptions(
            options.write_unchanged,
            options.null_safe,
            options.count_by,
            samples,
            tuple(f.name for f in fields),
        ),
    )
    given = [column.alias(name) for name, column in inputs.columns.items()]
    return rows.select(*given).mapInArrow(task.__call__, StructType(fields))


def check_types(table: AcidTable, resolved: SparkMerge, source: StructType, count_by: str | None) -> None:
    """Check that columns can store the values that are assigned to them, and that rows can be counted.

    Raises:
        RecordLayoutError, ConfigurationError: If they cannot.
    """
    for values in resolved.values:
        for column in table.all_columns:
            if column.name in values:
                check_spark_type(table.full_name, column, wall_clock_type(values[column.name][1]))
    if count_by:
        try:
            kind = arrow_type_of(source[count_by].dataType)
        except TypeError as error:
            raise ConfigurationError(f"table {table.full_name}: count_by={count_by!r}: {error}") from error
        check_countable(table, pa.schema([(count_by, kind)]), count_by)


def _fields(rows: DataFrame, side: str) -> StructType:
    found = rows.schema[side].dataType
    assert isinstance(found, StructType)
    return found


def _keys_of_spark(table: AcidTable, resolved: SparkMerge) -> frozenset[str]:
    """Return the keys to insert whose values only Spark can compare with the values that are stored."""
    wanted = target_types(table)
    return frozenset(
        key
        for key in resolved.keys or ()
        for _, _, kind in value_columns(resolved, key, inserts_only=True)
        if not are_comparable(arrow_type_of(wall_clock_type(kind)), wanted[key])
    )


def _identities(rows: DataFrame, table: AcidTable, resolved: SparkMerge) -> list[StructField]:
    columns = {column.name: column for column in table.all_columns}
    found = []
    if resolved.keys:
        parts = [StructField(f"k{n}", column_type(columns[key])) for n, key in enumerate(resolved.keys)]
        found.append(StructField(KEY, StructType(parts)))
    if table.version.has_row_ids:
        found.append(StructField(ROW_ID, _fields(rows, TARGET)[ROW_ID_COLUMN].dataType))
    return found


@dataclass(frozen=True)
class _Inputs:
    """The columns that tasks receive, under names that Spark can handle, and their contents.

    ``of_source`` and ``of_target`` map columns of a side to inputs, ``of_clauses`` the columns to which each
    clause assigns values.
    """

    columns: Mapping[str, Column]
    of_source: Mapping[str, str]
    of_target: Mapping[str, str]
    of_clauses: Sequence[Mapping[str, str]]

    @classmethod
    def of(
        cls,
        rows: DataFrame,
        table: AcidTable,
        resolved: SparkMerge,
        count_by: str | None,
        *,
        has_altered: bool,
    ) -> _Inputs:
        """Return the inputs for a merge."""
        columns = {CLAUSE: sf.col(CLAUSE)}

        def added(column: Column) -> str:
            name = f"c{len(columns)}"
            columns[name] = column
            return name

        kept = {*(resolved.keys or ()), *([count_by] if count_by else [])}
        of_source = {name: added(sf.col(quoted(SOURCE, name))) for name in sorted(kept)}
        if resolved.keys is None:
            of_source[ROW_TEXT] = added(json_text(sf.col(SOURCE), _fields(rows, SOURCE)))
        of_clauses: list[dict[str, str]] = [{} for _ in resolved.clauses]
        for column in table.all_columns:
            for numbers, value, kind in value_columns(resolved, column.name):
                found = in_wall_clock(column_of(value), kind)
                if not resolved.clauses[numbers[0]].takes_all:  # it may fail for other rows
                    name = added(sf.when(sf.col(CLAUSE).isin(*numbers), found))
                else:
                    name = of_source.get(column.name) or added(found)
                for number in numbers:
                    of_clauses[number][column.name] = name
        of_target = {name: added(sf.col(quoted(TARGET, name))) for name in resolved.target_columns}
        if table.version.has_row_ids:
            of_target[ROW_ID_COLUMN] = added(sf.col(quoted(TARGET, ROW_ID_COLUMN)))
        if not table.is_bucketed:
            sides = [(SOURCE, each) for each in _fields(rows, SOURCE)]
            sides += [(TARGET, each) for each in _fields(rows, TARGET) if each.name == ROW_ID_COLUMN]
            columns[WRITER] = content_hash(
                (sf.col(quoted(side, each.name)), each.dataType) for side, each in sides
            )
        if has_altered:
            columns[ALTERED] = sf.col(ALTERED)
        return cls(columns, of_source, of_target, of_clauses)
