"""Merges of few rows, whose expressions Spark evaluates.

SparkEvaluator: Spark's expressions over rows in the driver's memory, for merges of few rows.

A query over few rows costs some ten milliseconds, whatever it computes. So clauses, values and order of all
rows of a kind are one query each, and none is run where no expression is given.

Merges of few rows: the driver itself reads, joins and writes; Spark evaluates source and expressions.

Jobs over many tasks take two seconds, however few the rows. The result is the same: keys are compared by the
rules of Spark's join, and where they might not be, or rows may be many, there is no such plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql.types import ArrayType, DataType, IntegralType, LongType, MapType, StructField, StructType

from mutation_api.merge.acting import Candidates
from mutation_api.merge.clauses import SOURCE, TARGET, Clause, MergeOptions
from mutation_api.merge.local_plan import LocalMergePlan
from mutation_api.merge.resolve import Alternatives, resolve
from mutation_api.merge.source_rows import READ_BYTES_MAX, plain_batch
from mutation_api.merge.spark_diff import partitions_where
from mutation_api.merge.spark_expressions import Expression, ExpressionAnalyser, Sides, SparkMerge, column_of
from mutation_api.merge.spark_outcome import check_spark_type, first_holding, order_of
from mutation_api.spark.job import collected_if_few, is_few
from mutation_api.spark.plan import wall_clock_type
from mutation_api.spark.versions import collected, frame_of_arrow
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.write.local_plan import LocalOptions
from mutation_api.write.staged_writer import LookingTransaction

__all__ = ["SparkEvaluator", "few_rows_plan"]


Indices = NDArray[np.int64]

_ROW = "__row"


@dataclass(frozen=True)
class SparkEvaluator:
    """An :class:`~mutation_api.merge.evaluator.Evaluator` of Spark's expressions.

    Attributes:
        spark: the session.
        table: the table to change.
        plan: the checked merge.
        source: the source's rows, collected.
        source_schema: their types in Spark.
        target_schema: Spark's types of the table's columns.
        options: of the merge.
    """

    spark: SparkSession
    table: AcidTable
    plan: SparkMerge
    source: pa.RecordBatch
    source_schema: StructType
    target_schema: StructType
    options: MergeOptions

    def check_type(self, column: AcidColumn, found: DataType) -> None:
        """Raise RecordLayoutError if no value of a type of Spark's can be stored in the column."""
        check_spark_type(self.table.full_name, column, wall_clock_type(found))

    def clauses(self, rows: Candidates) -> list[tuple[int, Indices]]:
        """The rows of each clause: of those for which it is the first that holds."""
        everything: Indices = np.arange(len(rows))
        own = [(number, c) for number, c in enumerate(self.plan.clauses) if c.match is rows.match]
        if not own or not len(rows):
            return []
        if own[0][1].condition is None:
            return [(own[0][0], everything)]
        (numbers,) = self._evaluated(rows, [first_holding(self.plan.clauses)])
        found = pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False)
        return [(number, held) for number, _ in own if len(held := np.flatnonzero(found == number))]

    def assigned(self, number: int, rows: Candidates) -> dict[str, pa.Array]:
        """The values that a clause assigns, by column, before they are converted."""
        clause, values = self.plan.clauses[number], self.plan.values[number]
        if clause.takes_all:
            return rows.taken(values, clause.defaults)
        columns = [_wall_clock(column_of(value), kind) for value, kind in values.values()]
        return dict(zip(values, self._evaluated(rows, columns), strict=True))

    def order(self) -> Indices:
        """The rank of each source row by ``on_duplicate``; ties by a hash of the row's content."""
        rule = self.options.on_duplicate
        assert rule is not None
        everything = np.arange(self.source.num_rows)
        rows = Candidates(self.plan.clauses[0].match, self.source, everything, None)
        rank = sf.row_number().over(Window.orderBy(*order_of(rule)))
        (ranks,) = self._evaluated(rows, [rank])
        found: Indices = ranks.to_numpy().astype(np.int64)
        return found

    def partitions(self, names: Sequence[str], alternatives: Alternatives[Expression]) -> list[str]:
        """Names of the partitions whose rows may fulfil one of the alternatives."""
        chosen = partitions_where(self.spark, self.table, names, alternatives)
        return list(names) if chosen is None else chosen

    def _evaluated(self, rows: Candidates, columns: Sequence[Column]) -> list[pa.Array]:
        """The values of Columns over ``source`` and ``target``, in the order of the rows."""
        named = [column.alias(f"v{number}") for number, column in enumerate(columns)]
        found = collected(self._frame(rows).select(_ROW, *named))
        found = found.take(pc.sort_indices(found[_ROW])).combine_chunks()
        return [found.column(f"v{number}").combine_chunks() for number in range(len(columns))]

    def _frame(self, rows: Candidates) -> DataFrame:
        """The rows as DataFrame: a struct for each side, null without one."""
        frame = rows.frame()
        fields, columns = [StructField(_ROW, LongType())], [pa.array(np.arange(len(rows)))]
        schemas = {SOURCE: self.source_schema, TARGET: self.target_schema}
        for side, schema in schemas.items():
            if side in frame.column_names:
                names = [each.name for each in frame.schema.field(side).type]
                fields.append(StructField(side, StructType([schema[name] for name in names])))
                columns.append(frame.column(side).combine_chunks())
        given = pa.table(columns, names=[each.name for each in fields])
        made = frame_of_arrow(self.spark, given, StructType(fields))
        for side, schema in schemas.items():
            if side not in frame.column_names:
                made = made.withColumn(side, sf.lit(None).cast(schema))
        return made


def _wall_clock(value: Column, kind: DataType) -> Column:
    wanted = wall_clock_type(kind)
    return value if wanted == kind else value.cast(wanted)


def few_rows_plan(
    transaction: LookingTransaction,
    table_name: str,
    source: DataFrame,
    keys: tuple[str, ...] | None,
    clauses: tuple[Clause[Expression], ...],
    options: MergeOptions,
    *,
    shows_rows: bool,
) -> LocalMergePlan | None:
    """The plan of a merge of few rows.

    Args:
        transaction: begun; the table is one of its sinks.
        table_name: ``database.table``.
        source: the rows to merge.
        keys: key columns; None if the merge has another condition.
        clauses: in their order.
        options: of the merge.
        shows_rows: as of :class:`LocalMergePlan`.

    Returns:
        None if rows may be many, the condition is more than equal keys, or keys have types for which only
        Spark's own join is sure.

    Raises:
        RecordLayoutError, TableNotMutableError: see :func:`mutation_api.merge.resolve.resolve`.
    """
    if keys is None or not is_few(source):
        return None
    transaction.check()
    spark = source.sparkSession
    table = transaction.table(table_name)
    sides = Sides.of(table, source)
    analyser = ExpressionAnalyser(spark, table.full_name, sides.source_schema, sides.target_schema)
    plan = resolve(table, analyser, keys, None, clauses, options)
    if not all(_is_sure(analyser.source[key], analyser.target[key]) for key in keys):
        return None
    found = collected_if_few(sides.source)
    if found is None:
        return None
    rows = plain_batch(found)
    evaluator = SparkEvaluator(spark, table, plan, rows, sides.source_schema, sides.target_schema, options)
    local = LocalOptions()
    merge = LocalMergePlan(transaction, table, rows, keys, plan, evaluator, options, local, shows_rows)
    return merge if merge.bytes_to_read <= READ_BYTES_MAX else None


def _is_sure(found: DataType, wanted: DataType) -> bool:
    """Whether equal values are those that Spark's join finds equal; nested ones are left to it."""
    if isinstance(wanted, ArrayType | MapType | StructType):
        return False
    return found == wanted or (isinstance(found, IntegralType) and isinstance(wanted, IntegralType))
