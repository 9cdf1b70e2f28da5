"""Conditions and assignments of a merge, analysed before anything runs: what they read, their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyspark.sql.functions as sf
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import BooleanType, DataType, StructType

from mutation_api.changes.clauses import SOURCE, TARGET, Expression, text_of
from mutation_api.errors import RecordLayoutError

__all__ = ["Analysis", "ExpressionAnalyser", "column_of", "quoted"]


@dataclass(frozen=True)
class Analysis:
    """An expression's type, and the columns of either side that it reads, in lower case."""

    data_type: DataType
    source_columns: frozenset[str]
    target_columns: frozenset[str]


@dataclass(frozen=True)
class ExpressionAnalyser:
    """Resolves expressions over empty frames of the two sides' schemas; runs no job.

    ``full_name`` is the table's, for messages.
    """

    spark: SparkSession
    full_name: str
    source: StructType
    target: StructType

    def analyse(self, expression: Expression, sides: Sequence[str], what: str) -> Analysis:
        """Resolve ``expression`` over the columns of ``sides``; ``what`` names it in messages.

        Raises:
            RecordLayoutError: it cannot be resolved, or gives another value each time (a job that is tried
                again would then write other rows).
        """
        try:
            resolved = self._frame(sides).select(column_of(expression))
            data_type = resolved.schema.fields[0].dataType
        except (AnalysisException, ParseException) as error:
            raise RecordLayoutError(
                f"table {self.full_name}: {what} {text_of(expression)!r} cannot be resolved over "
                f"{' and '.join(map(self._described, sides))}: {str(error).splitlines()[0]}"
            ) from error
        # Spark's public interface tells neither what an expression reads nor whether it is deterministic.
        plan = resolved._jdf.queryExecution().analyzed()
        if not plan.deterministic():
            raise RecordLayoutError(
                f"table {self.full_name}: {what} {text_of(expression)!r} gives another value each time it "
                "is evaluated; a task that is tried again would write other rows. Put it into the source"
            )
        read = _attributes(plan.references())
        return Analysis(data_type, *(frozenset(n for s, n in read if s == side) for side in (SOURCE, TARGET)))

    def condition(self, expression: Expression, sides: Sequence[str], what: str) -> Analysis:
        """Like :meth:`analyse`; the expression must be boolean."""
        found = self.analyse(expression, sides, what)
        if not isinstance(found.data_type, BooleanType):
            raise RecordLayoutError(
                f"table {self.full_name}: {what} {text_of(expression)!r} must be boolean, found "
                f"{found.data_type.simpleString()}"
            )
        return found

    def _frame(self, sides: Sequence[str]) -> DataFrame:
        schemas = {SOURCE: self.source, TARGET: self.target}
        frames = [self.spark.createDataFrame([], schemas[side]).alias(side) for side in sides]
        return frames[0] if len(frames) == 1 else frames[0].crossJoin(frames[1])

    def _described(self, side: str) -> str:
        names = (self.source if side == SOURCE else self.target).fieldNames()
        return f"{side} ({', '.join(names)})"


def column_of(expression: Expression) -> Column:
    """The expression as a Column."""
    return sf.expr(expression) if isinstance(expression, str) else expression


def quoted(*parts: str) -> str:
    """A column's name, part by part, such that dots and blanks in it mean nothing."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def _attributes(references: Any) -> list[tuple[str, str]]:
    """(side, column) of Spark's AttributeSet."""
    found = []
    attributes = references.toSeq()
    for i in range(attributes.size()):
        attribute = attributes.apply(i)
        found.append((str(attribute.qualifier().last()), str(attribute.name()).lower()))
    return found
