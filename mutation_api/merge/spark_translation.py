"""Conditions and values of a merge by Spark as Arrow expressions, for merges whose rows Spark does not pair.

An expression that certainly means the same (:mod:`.sql_conditions`) is translated. Spark computes others as
additional columns of the source, for all of its rows, if they read source columns alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import Column
from pyspark.sql.types import StringType

from mutation_api.errors import RecordLayoutError, UnsupportedLocallyError
from mutation_api.merge.bucket_tasks import OrderColumn
from mutation_api.merge.clauses import SOURCE, TARGET, Clause, FirstBy
from mutation_api.merge.evaluator import ArrowAnalyser, target_types
from mutation_api.merge.source_rows import dense_ranks
from mutation_api.merge.spark_expressions import CheckedMerge, Expression, column_of
from mutation_api.merge.sql_conditions import resolved_condition
from mutation_api.spark.frame_table import arrow_type_of
from mutation_api.spark.plan import in_wall_clock, wall_clock_type
from mutation_api.table.evaluation import char_paths

_COMPUTED = "__computed"


class OnlySparkError(Exception):
    """Raised with the reason why Spark has to pair the rows of a merge."""


class ArrowTranslation:
    """Translates the conditions and values of a merge to Arrow expressions.

    ``computed`` are the columns that Spark computes for each source row, by name, with their Arrow types.
    """

    def __init__(self, merge: CheckedMerge, source: pa.Schema) -> None:
        self._merge = merge
        self._source = {each.name: each.type for each in source}
        self._target = target_types(merge.table)
        self._analyser = ArrowAnalyser(
            merge.table.full_name,
            self._source,
            self._target,
            merge.keys or (),
            merge.options.null_safe,
            char_paths({column.name: column.type for column in merge.table.all_columns}, TARGET),
        )
        self.computed: dict[str, tuple[Column, pa.DataType]] = {}

    def clause(
        self, clause: Clause[Expression], values: Mapping[str, tuple[Expression, Any]]
    ) -> tuple[Clause[pc.Expression], dict[str, tuple[pc.Expression, pa.DataType]]]:
        """Return a clause and its values as Arrow expressions."""
        sides = clause.match.sides
        condition = None
        if clause.condition is not None:
            condition = self._expression(clause.condition, sides, f"the condition of {clause}")[0]
        found: dict[str, tuple[pc.Expression, pa.DataType]] = {}
        for name, (value, kind) in values.items():
            if name in clause.defaults:
                found[name] = (pc.scalar(clause.defaults[name]), clause.defaults[name].type)
            elif clause.takes_all:
                found[name] = (pc.field(SOURCE, name), arrow_type_of(wall_clock_type(kind)))
            else:
                what = f"the value of {name} in {clause}"
                found[name] = self._expression(value, sides, what, is_condition=False)
        assignments = (
            None if clause.assignments is None else {name: value for name, (value, _) in found.items()}
        )
        return Clause(clause.match, condition, clause.action, assignments, clause.defaults), found

    def order(self, rule: FirstBy) -> tuple[OrderColumn, ...]:
        """Return the columns by which source rows are ordered; Spark computes them.

        Raises:
            OnlySparkError: If only Spark can order their values.
        """
        found = self._merge.analyser.sort_orders(rule.columns)
        if found is None:
            raise OnlySparkError("only Spark can order the source's rows")
        columns = []
        for text, is_descending, nulls_first in found:
            kind = self._merge.analyser.analyse(text, (SOURCE,), "first_by").data_type
            if isinstance(kind, StringType) and kind != StringType():
                raise OnlySparkError(f"first_by: only Spark can order {kind.simpleString()} values")
            try:
                arrow = arrow_type_of(kind)
                dense_ranks(pa.nulls(0, arrow), is_descending=False)
            except (TypeError, pa.ArrowNotImplementedError) as error:
                raise OnlySparkError(f"first_by: only Spark can order the values: {error}") from error
            name = self._added(column_of(text), arrow)
            columns.append(OrderColumn(name, is_descending, nulls_first))
        ties = self._added(sf.xxhash64(sf.to_json(SOURCE)), pa.int64())
        return (*columns, OrderColumn(ties, is_descending=False, nulls_first=True))

    def _added(self, column: Column, kind: pa.DataType) -> str:
        name = f"{_COMPUTED}{len(self.computed)}"
        self.computed[name] = (column, kind)
        return name

    def sql_of(self, expression: Expression, sides: Sequence[str]) -> str:
        """Return the expression as SQL."""
        return self._merge.analyser.sql_of(expression, sides, "an expression")

    def _expression(
        self, expression: Expression, sides: Sequence[str], what: str, *, is_condition: bool = True
    ) -> tuple[pc.Expression, pa.DataType]:
        """Return the Arrow expression and its type. Spark computes what only Spark can interpret."""
        try:
            text = self.sql_of(expression, sides)
            found, _ = resolved_condition(
                text, self._source, self._target, sides, what, is_condition=is_condition
            )
            return found, self._analyser.analyse(found, sides, what).data_type
        except (UnsupportedLocallyError, RecordLayoutError) as error:
            return self._of_spark(expression, sides, what, error, is_condition=is_condition)

    def _of_spark(
        self,
        expression: Expression,
        sides: Sequence[str],
        what: str,
        reason: Exception,
        *,
        is_condition: bool,
    ) -> tuple[pc.Expression, pa.DataType]:
        """Let Spark compute the expression, or parts of a condition that AND joins, for all source rows."""
        analyser = self._merge.analyser
        if is_condition:
            parts = [str(part.expression) for part in analyser.conjuncts(expression, sides, what)]
            if len(parts) > 1:
                return reduce(
                    pc.and_kleene, (self._expression(part, sides, what)[0] for part in parts)
                ), pa.bool_()
        analysis = analyser.analyse(expression, sides, what)
        if analysis.target_columns or SOURCE not in sides:
            raise OnlySparkError(f"{what} reads the table: {reason}") from reason
        try:
            kind = arrow_type_of(wall_clock_type(analysis.data_type))
        except TypeError as error:
            raise OnlySparkError(f"{what} cannot be passed to Python: {error}") from error
        name = self._added(in_wall_clock(column_of(expression), analysis.data_type), kind)
        return pc.field(SOURCE, name), kind
