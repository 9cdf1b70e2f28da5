"""SparkEvaluator: Spark's expressions over rows in the driver's memory, for merges of few rows.

A query over few rows costs some ten milliseconds, whatever it computes. So clauses, values and order of all
rows of a kind are one query each, and none is run where no expression is given.
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
from pyspark.sql.types import DataType, LongType, StructField, StructType

from mutation_api.changes.clauses import SOURCE, TARGET
from mutation_api.changes.local_merge.acting import Candidates
from mutation_api.changes.merge_options import MergeOptions
from mutation_api.changes.resolve import Alternatives
from mutation_api.changes.spark_merge.assignment import check_spark_type
from mutation_api.changes.spark_merge.expressions import Expression, SparkMerge, column_of
from mutation_api.changes.spark_merge.first_rows import order_of
from mutation_api.changes.spark_merge.prune import partitions_where
from mutation_api.changes.spark_merge.row_outcome import first_holding
from mutation_api.spark.versions import collected, frame_of_arrow
from mutation_api.spark.write.plan import wall_clock_type
from mutation_api.table.acid_table import AcidColumn, AcidTable

__all__ = ["SparkEvaluator"]

Indices = NDArray[np.int64]

_ROW = "__row"


@dataclass(frozen=True)
class SparkEvaluator:
    """An :class:`~mutation_api.changes.local_merge.evaluator.Evaluator` of Spark's expressions.

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
