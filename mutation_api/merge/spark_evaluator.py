"""Merges of few rows: the driver reads, joins and writes; Spark evaluates the source and the expressions.

Jobs with many tasks take two seconds even for few rows. The result is the same as that of such jobs. Keys are
compared by the rules of Spark's join; if this is not certain, or if there may be many rows, this module
returns no plan. A query over few rows takes about ten milliseconds, regardless of its expressions. So the
clauses, the values and the order of all rows of a kind take one query each. No query runs where there are no
expressions.
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
from mutation_api.merge.clauses import SOURCE, TARGET, MergeOptions
from mutation_api.merge.local_plan import LocalMergePlan
from mutation_api.merge.resolve import Alternatives
from mutation_api.merge.source_rows import READ_BYTES_MAX, plain_batch
from mutation_api.merge.spark_columns import check_spark_type, first_holding, order_of
from mutation_api.merge.spark_diff import partitions_where
from mutation_api.merge.spark_expressions import CheckedMerge, Expression, SparkMerge, column_of
from mutation_api.read.table_view import open_table
from mutation_api.spark.job import collected_if_few, is_few
from mutation_api.spark.plan import in_wall_clock, wall_clock_type
from mutation_api.spark.versions import collected, frame_of_arrow
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.write.local_plan import LocalOptions

Indices = NDArray[np.int64]

_ROW = "__row"


@dataclass(frozen=True)
class SparkEvaluator:
    """An :class:`~mutation_api.merge.evaluator.Evaluator` for Spark expressions.

    Attributes:
        spark: the session.
        table: the table to change.
        resolved: the checked merge.
        source: the source's rows, collected.
        source_schema: Spark types of the source's columns.
        target_schema: Spark types of the table's columns.
        options: options of the merge.
    """

    spark: SparkSession
    table: AcidTable
    resolved: SparkMerge
    source: pa.RecordBatch
    source_schema: StructType
    target_schema: StructType
    options: MergeOptions

    def check_type(self, column: AcidColumn, found: DataType) -> None:
        """Raise RecordLayoutError if the column cannot store any value of a Spark type."""
        check_spark_type(self.table.full_name, column, wall_clock_type(found))

    def clauses(self, rows: Candidates) -> list[tuple[int, Indices]]:
        """Return the rows of each clause. A row belongs to the first clause whose condition holds."""
        everything: Indices = np.arange(len(rows))
        own = [(number, c) for number, c in enumerate(self.resolved.clauses) if c.match is rows.match]
        if not own or not len(rows):
            return []
        if own[0][1].condition is None:
            return [(own[0][0], everything)]
        (numbers,) = self._evaluated(rows, [first_holding(self.resolved.clauses)])
        found = pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False)
        return [(number, held) for number, _ in own if len(held := np.flatnonzero(found == number))]

    def assigned(self, number: int, rows: Candidates) -> dict[str, pa.Array]:
        """Return the values that a clause assigns, by column, before conversion."""
        clause, values = self.resolved.clauses[number], self.resolved.values[number]
        if clause.takes_all:
            return rows.taken(values, clause.defaults)
        columns = [in_wall_clock(column_of(value), kind) for value, kind in values.values()]
        return dict(zip(values, self._evaluated(rows, columns), strict=True))

    def order(self) -> Indices:
        """Return the rank of each source row by ``on_duplicate``. A hash of the row's content breaks ties."""
        rule = self.options.first_by
        assert rule is not None
        everything = np.arange(self.source.num_rows)
        rows = Candidates(self.resolved.clauses[0].match, self.source, everything, None)
        rank = sf.row_number().over(Window.orderBy(*order_of(rule)))
        (ranks,) = self._evaluated(rows, [rank])
        found: Indices = ranks.to_numpy().astype(np.int64)
        return found

    def partitions(self, names: Sequence[str], alternatives: Alternatives[Expression]) -> list[str]:
        """Return the names of the partitions whose rows may fulfil one of the alternatives."""
        chosen = partitions_where(self.spark, self.table, names, alternatives)
        return list(names) if chosen is None else chosen

    def _evaluated(self, rows: Candidates, columns: Sequence[Column]) -> list[pa.Array]:
        """Return the values of Columns over ``source`` and ``target``, in the order of the rows."""
        named = [column.alias(f"v{number}") for number, column in enumerate(columns)]
        found = collected(self._frame(rows).select(_ROW, *named))
        found = found.take(pc.sort_indices(found[_ROW])).combine_chunks()
        return [found.column(f"v{number}").combine_chunks() for number in range(len(columns))]

    def _frame(self, rows: Candidates) -> DataFrame:
        """Return the rows as a DataFrame with a struct per side, which is null if the side does not exist."""
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


def few_rows_plan(merge: CheckedMerge, *, samples: int) -> LocalMergePlan | None:
    """Return the plan for a merge of few rows.

    Args:
        merge: the merge.
        samples: see :class:`LocalMergePlan`.

    Returns:
        The plan. None if there may be many rows, if the condition is not just equal keys, or if only Spark's
        own join compares the keys' types correctly.
    """
    sides, keys = merge.sides, merge.keys
    if keys is None or not is_few(sides.source) or not compares_surely(merge):
        return None
    table, resolved, options = merge.table, merge.resolved, merge.options
    found = collected_if_few(sides.source)
    if found is None:
        return None
    rows = plain_batch(found)
    spark = sides.source.sparkSession
    evaluator = SparkEvaluator(
        spark, table, resolved, rows, sides.source_schema, sides.target_schema, options
    )
    local = LocalOptions()
    view = open_table(merge.transaction, table.full_name)
    plan = LocalMergePlan(view, table, rows, keys, resolved, evaluator, options, local, samples)
    return plan if plan.bytes_to_read <= READ_BYTES_MAX else None


def compares_surely(merge: CheckedMerge) -> bool:
    """Return True if Arrow certainly finds the same keys equal as Spark's join does."""
    source, target = merge.analyser.source, merge.analyser.target
    return all(_is_sure(source[key], target[key]) for key in merge.keys or ())


def _is_sure(found: DataType, wanted: DataType) -> bool:
    if isinstance(wanted, ArrayType | MapType | StructType):
        return False
    return found == wanted or (isinstance(found, IntegralType) and isinstance(wanted, IntegralType))
