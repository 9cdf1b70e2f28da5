"""Values of expressions over matched rows.

Conditions and assignments of a merge as Arrow expressions over the structs ``source`` and ``target``.

Evaluates the expressions of a merge over rows in this process: a protocol, and Arrow's way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import ConfigurationError, RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.merge.acting import Candidates
from mutation_api.merge.clauses import SOURCE, TARGET, FirstBy, MergeOptions, text_of
from mutation_api.merge.resolve import Alternatives, Analysis, Conjunct, Equality, ResolvedMerge, check_type
from mutation_api.merge.source_rows import order_of_rows, sort_keys
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.evaluation import (
    Path,
    checked_expression,
    evaluate,
    evaluate_each,
    named_column,
    paths_read,
    result_type,
)
from mutation_api.table.expression_parts import check_no_padded_texts
from mutation_api.table.partition import partition_scalars, partition_type

__all__ = [
    "ArrowAnalyser",
    "ArrowEvaluator",
    "ArrowMerge",
    "Evaluator",
    "as_expression",
    "as_value",
    "check_countable",
    "target_types",
    "with_expressions",
]


ArrowMerge = ResolvedMerge[pc.Expression, pa.DataType]

_SIDES = (SOURCE, TARGET)


def as_expression(
    given: pc.Expression | str, columns: Mapping[str, Sequence[str]], side: str, what: str
) -> pc.Expression:
    """An expression; a text names a column: ``"x"`` of ``side``, ``"source.x"`` or ``"target.x"``.

    ``columns`` are the names of each side's columns, in lower case.

    Raises:
        RecordLayoutError: there is none of that name; ``what`` says whose text it is.
    """
    if not isinstance(given, str):
        return checked_expression(given, what)
    first, _, rest = given.partition(".")
    at, name = (first, rest) if rest and first in _SIDES else (side, given)
    return pc.field(at, named_column(name, columns[at], f"{what} of the {at}"))


def as_value(given: Any, columns: Mapping[str, Sequence[str]], side: str, what: str) -> pc.Expression:
    """The expression of an assigned value: an expression, the name of a column, or any other value itself."""
    if isinstance(given, pc.Expression | str):
        return as_expression(given, columns, side, what)
    try:
        return pc.scalar(given)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:  # 2**70, NaT
        raise RecordLayoutError(
            f"{what}: {given!r} of type {type(given).__qualname__} is no value of Arrow: {error}"
        ) from error


def target_types(table: AcidTable) -> dict[str, pa.DataType]:
    """Arrow types of the table's rows as they are read: data columns, then partition columns."""
    return {c.name: arrow_type(parse_hive_type(c.type), timestamp_unit="us") for c in table.all_columns}


@dataclass(frozen=True)
class ArrowAnalyser:
    """Resolves Arrow expressions; an :class:`~mutation_api.merge.resolve.Analyser`.

    ``keys`` are those of the merge: its condition is that they are equal, which no Arrow expression says as
    Spark does (NaN equals NaN).
    """

    table_name: str
    source: Mapping[str, pa.DataType]
    target: Mapping[str, pa.DataType]
    keys: Sequence[str]
    null_safe: bool
    chars: frozenset[Path] = frozenset()
    """Of the target, see :func:`char_paths`."""

    def source_column(self, name: str) -> pc.Expression:
        """The column of the source."""
        return pc.field(SOURCE, name)

    def literal(self, value: pa.Scalar) -> pc.Expression:
        """The expression of a value."""
        return pc.scalar(value)

    def key_condition(self, keys: Sequence[str], *, null_safe: bool) -> pc.Expression:
        """An expression that reads the keys of both sides; :meth:`conjuncts` gives its meaning."""
        del null_safe
        parts = [pc.is_valid(pc.field(side, key)) for key in keys for side in _SIDES]
        return reduce(lambda a, b: a & b, parts)

    def analyse(self, expression: pc.Expression, sides: Sequence[str], what: str) -> Analysis[pa.DataType]:
        """Resolve an expression. Raises RecordLayoutError: it cannot be resolved."""
        schema, what = self._schemas[frozenset(sides)], f"table {self.table_name}: {what}"
        data_type = result_type(expression, schema, what)
        read = paths_read(expression, schema, what)
        check_no_padded_texts(expression, self.chars, what)
        return Analysis(data_type, _of_side(read, SOURCE), _of_side(read, TARGET))

    def condition(self, expression: pc.Expression, sides: Sequence[str], what: str) -> Analysis[pa.DataType]:
        """Like :meth:`analyse`; the expression must be boolean."""
        found = self.analyse(expression, sides, what)
        if not pa.types.is_boolean(found.data_type):
            raise RecordLayoutError(
                f"table {self.table_name}: {what} {str(expression)!r} must be boolean, found "
                f"{found.data_type}"
            )
        return found

    def conjuncts(
        self, condition: pc.Expression, sides: Sequence[str], what: str
    ) -> list[Conjunct[pc.Expression]]:
        """The equality of each key for the condition of the merge; of others the whole."""
        if set(sides) == set(_SIDES) and condition.equals(
            self.key_condition(self.keys, null_safe=self.null_safe)
        ):
            return [
                Conjunct(condition, frozenset((key,)), frozenset((key,)), Equality(key, key, self.null_safe))
                for key in self.keys
            ]
        found = self.analyse(condition, sides, what)
        return [Conjunct(condition, found.source_columns, found.target_columns)]

    @cached_property
    def _schemas(self) -> dict[frozenset[str], pa.Schema]:
        """The structs of one side, or of both."""
        structs = {SOURCE: pa.struct(self.source.items()), TARGET: pa.struct(self.target.items())}
        schemas = [pa.schema([(side, structs[side]) for side in sides]) for sides in (*zip(_SIDES), _SIDES)]
        return {frozenset(schema.names): schema for schema in schemas}


def _of_side(paths: frozenset[Path], side: str) -> frozenset[str]:
    return frozenset(path[1] for path in paths if path[0] == side and len(path) > 1)


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
