"""Evaluates the expressions of a merge over rows in this process: a protocol, and Arrow's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.changes.clauses import SOURCE, TARGET, text_of
from mutation_api.changes.converted import check_type
from mutation_api.changes.duplicates import FirstBy
from mutation_api.changes.keyed_rows.once import order_of_rows, sort_keys
from mutation_api.changes.local_merge.acting import Candidates
from mutation_api.changes.local_merge.expressions import ArrowMerge
from mutation_api.changes.merge_options import MergeOptions
from mutation_api.changes.resolve import Alternatives
from mutation_api.errors import ConfigurationError, RecordValueError
from mutation_api.expressions.evaluation import evaluate, evaluate_each
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition_columns import partition_scalars, partition_type

__all__ = ["ArrowEvaluator", "Evaluator", "check_countable", "with_expressions"]

Indices = NDArray[np.int64]


class Evaluator(Protocol):
    """Evaluates conditions and values of a checked merge."""

    def check_type(self, column: AcidColumn, found: Any) -> None:
        """Raise RecordLayoutError if no value of a type of the engine can be stored in the column."""
        ...

    def clauses(self, rows: Candidates) -> list[tuple[int, Indices]]:
        """The rows of each clause: of those for which it is the first that holds.

        A condition is not evaluated for rows of an earlier clause.

        Raises:
            RecordValueError: a condition has no value for a row.
        """
        ...

    def assigned(self, number: int, rows: Candidates) -> dict[str, pa.Array]:
        """The values that a clause assigns, by column, before they are converted.

        Raises:
            RecordValueError: an expression has no value for a row.
        """
        ...

    def order(self) -> Indices:
        """The rank of each source row by ``on_duplicate``."""
        ...

    def partitions(self, names: Sequence[str], alternatives: Alternatives[Any]) -> list[str]:
        """Names of the partitions whose rows may fulfil one of the alternatives."""
        ...


@dataclass(frozen=True)
class ArrowEvaluator:
    """An :class:`Evaluator` of Arrow expressions.

    Attributes:
        table: the table to change.
        plan: the checked merge.
        source: the source's rows.
        options: of the merge, as the user gave them.
    """

    table: AcidTable
    plan: ArrowMerge
    source: pa.RecordBatch
    options: MergeOptions

    def check_type(self, column: AcidColumn, found: pa.DataType) -> None:
        """See :class:`Evaluator`."""
        check_type(self.table.full_name, column, found, str(found))

    def clauses(self, rows: Candidates) -> list[tuple[int, Indices]]:
        """See :class:`Evaluator`."""
        left: Indices = np.arange(len(rows))
        found = []
        for number, clause in enumerate(self.plan.clauses):
            if clause.match is not rows.match or not len(left):
                continue
            held = left
            if clause.condition is not None:
                frame = (rows if len(left) == len(rows) else rows.take(left)).frame()
                holds = self._values(frame, clause.condition, f"the condition of {clause}")
                is_held = pc.fill_null(holds, False).to_numpy(zero_copy_only=False)
                held, left = left[is_held], left[~is_held]
            else:
                left = left[:0]
            if len(held):
                found.append((number, held))
        return found

    def assigned(self, number: int, rows: Candidates) -> dict[str, pa.Array]:
        """See :class:`Evaluator`."""
        clause, values = self.plan.clauses[number], self.plan.values[number]
        if clause.takes_all:
            return rows.taken(values, clause.defaults)
        frame = rows.frame()
        try:
            return evaluate_each({name: value for name, (value, _) in values.items()}, frame)
        except pa.ArrowInvalid:  # one by one, for the one that fails
            return {
                name: self._values(frame, value, f"the value of {name} in {clause}")
                for name, (value, _) in values.items()
            }

    def order(self) -> Indices:
        """See :class:`Evaluator`."""
        rule = self.options.on_duplicate
        assert rule is not None
        return order_of_rows(self.source, sort_keys(self.table.full_name, self.source.schema, rule.columns))

    def partitions(self, names: Sequence[str], alternatives: Alternatives[pc.Expression]) -> list[str]:
        """See :class:`Evaluator`."""
        if not names or not all(alternatives):
            return list(names)
        scalars = [partition_scalars(self.table, name) for name in names]
        columns = [
            pa.array([each[key.name].as_py() for each in scalars], partition_type(key))
            for key in self.table.partition_keys
        ]
        rows = pa.StructArray.from_arrays(columns, names=self.table.partition_key_names)
        values = pa.table({TARGET: rows})
        try:
            holds = [reduce(pc.and_kleene, (evaluate(e, values) for e in parts)) for parts in alternatives]
        except pa.ArrowInvalid:  # no value for some partition, which need not have such a row
            return list(names)
        chosen = pc.fill_null(reduce(pc.or_kleene, holds), False).to_pylist()
        return [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]

    def _values(self, frame: pa.Table, expression: pc.Expression, what: str) -> pa.Array:
        try:
            return evaluate(expression, frame)
        except pa.ArrowInvalid as error:
            raise RecordValueError(
                f"table {self.table.full_name}: {what}: {text_of(expression)} has no value for a row: {error}"
            ) from error


def check_countable(table: AcidTable, source: pa.Schema, name: str | None) -> None:
    """Raise ConfigurationError if rows cannot be counted by the values of ``count_by``."""
    if name is None or name not in source.names:
        return
    kind = source.field(name).type
    if pa.types.is_nested(kind):
        raise ConfigurationError(
            f"table {table.full_name}: count_by={name!r}: rows are not counted by a {kind}; name a column of "
            "single values"
        )


def with_expressions(table: AcidTable, source: pa.Schema, options: MergeOptions) -> MergeOptions:
    """The options with Arrow expressions in ``on_duplicate``, which are checked as all others are."""
    if options.on_duplicate is None:
        return options
    keys = sort_keys(table.full_name, source, options.on_duplicate.columns)
    return replace(options, on_duplicate=FirstBy(tuple(pc.field(SOURCE, name) for name, _ in keys)))
