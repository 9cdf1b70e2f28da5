"""Conditions and assignments of a merge, evaluated over matched rows in this process.

They are Arrow expressions over the structs ``source`` and ``target``. :class:`Evaluator` is the protocol that
evaluators of all engines fulfil.
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
    check_no_padded_texts,
    checked_expression,
    evaluate,
    evaluate_each,
    named_column,
    paths_read,
    result_type,
)
from mutation_api.table.expression_parts import Path
from mutation_api.table.partition import partition_scalars, partition_type

ArrowMerge = ResolvedMerge[pc.Expression, pa.DataType]

_SIDES = (SOURCE, TARGET)


def as_expression(
    given: pc.Expression | str, columns: Mapping[str, Sequence[str]], side: str, what: str
) -> pc.Expression:
    """Return the expression. A string names a column: ``"x"`` of ``side``, ``"source.x"`` or ``"target.x"``.

    ``columns`` are the column names of each side, in lower case. ``what`` names the expression in messages.

    Raises:
        RecordLayoutError: If the column does not exist.
    """
    if not isinstance(given, str):
        return checked_expression(given, what)
    first, _, rest = given.partition(".")
    at, name = (first, rest) if rest and first in _SIDES else (side, given)
    return pc.field(at, named_column(name, columns[at], f"{what} of the {at}"))


def as_value(given: Any, columns: Mapping[str, Sequence[str]], side: str, what: str) -> pc.Expression:
    """Return the expression for an assigned value: an expression, a column's name, or any other constant."""
    if isinstance(given, pc.Expression | str):
        return as_expression(given, columns, side, what)
    try:
        return pc.scalar(given)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:  # 2**70, NaT
        raise RecordLayoutError(
            f"{what}: {given!r} of type {type(given).__qualname__} cannot be converted to Arrow: {error}"
        ) from error


def target_types(table: AcidTable) -> dict[str, pa.DataType]:
    """Return the Arrow types of the table's rows as they are read: data columns, then partition columns."""
    return {c.name: arrow_type(parse_hive_type(c.type), timestamp_unit="us") for c in table.all_columns}


@dataclass(frozen=True)
class ArrowAnalyser:
    """An :class:`~mutation_api.merge.resolve.Analyser` of Arrow expressions.

    ``keys`` are the key columns of the merge, whose condition is that they are equal. No Arrow expression
    compares them as Spark does (NaN equals NaN).
    """

    table_name: str
    source: Mapping[str, pa.DataType]
    target: Mapping[str, pa.DataType]
    keys: Sequence[str]
    null_safe: bool
    chars: frozenset[Path] = frozenset()
    """The char columns and fields of the table, see :func:`char_paths`."""

    def source_column(self, name: str) -> pc.Expression:
        """Return the expression for a source column."""
        return pc.field(SOURCE, name)

    def literal(self, value: pa.Scalar) -> pc.Expression:
        """Return the expression for a constant."""
        return pc.scalar(value)

    def key_condition(self, keys: Sequence[str], *, null_safe: bool) -> pc.Expression:
        """Return an expression that reads the keys of both sides; :meth:`conjuncts` interprets it.

        If there are no keys, no rows match.
        """
        del null_safe
        parts = [pc.is_valid(pc.field(side, key)) for key in keys for side in _SIDES]
        return reduce(lambda a, b: a & b, parts) if parts else pc.scalar(False)

    def analyse(self, expression: pc.Expression, sides: Sequence[str], what: str) -> Analysis[pa.DataType]:
        """Resolve an expression.

        Raises:
            RecordLayoutError: If it cannot be resolved.
        """
        schema, what = self._schemas[frozenset(sides)], f"table {self.table_name}: {what}"
        data_type = result_type(expression, schema, what)
        read = paths_read(expression, schema, what)
        check_no_padded_texts(expression, self.chars, what)
        return Analysis(data_type, _of_side(read, SOURCE), _of_side(read, TARGET))

    def condition(self, expression: pc.Expression, sides: Sequence[str], what: str) -> Analysis[pa.DataType]:
        """Resolve a boolean expression. See :meth:`analyse`."""
        found = self.analyse(expression, sides, what)
        if not pa.types.is_boolean(found.data_type):
            raise RecordLayoutError(
                f"table {self.table_name}: {what} {str(expression)!r} must be boolean, got {found.data_type}"
            )
        return found

    def conjuncts(
        self, condition: pc.Expression, sides: Sequence[str], what: str
    ) -> list[Conjunct[pc.Expression]]:
        """Return an equality per key if this is the merge's condition, or the whole condition otherwise."""
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
        """The schemas of either side and of both, with a struct per side."""
        structs = {SOURCE: pa.struct(self.source.items()), TARGET: pa.struct(self.target.items())}
        schemas = [pa.schema([(side, structs[side]) for side in sides]) for sides in (*zip(_SIDES), _SIDES)]
        return {frozenset(schema.names): schema for schema in schemas}


def _of_side(paths: frozenset[Path], side: str) -> frozenset[str]:
    return frozenset(path[1] for path in paths if path[0] == side and len(path) > 1)


Indices = NDArray[np.int64]


class Evaluator(Protocol):
    """An engine's evaluator of the conditions and values of a checked merge."""

    def check_type(self, column: AcidColumn, found: Any) -> None:
        """Raise RecordLayoutError if the column cannot store any value of an engine's type."""
        ...

    def clauses(self, rows: Candidates) -> list[tuple[int, Indices]]:
        """Return the rows of each clause. A row belongs to the first clause whose condition holds.

        A condition is not evaluated for rows of an earlier clause.

        Raises:
            RecordValueError: If a condition cannot be evaluated for a row.
        """
        ...

    def assigned(self, number: int, rows: Candidates) -> dict[str, pa.Array]:
        """Return the values that a clause assigns, by column, before conversion.

        Raises:
            RecordValueError: If an expression cannot be evaluated for a row.
        """
        ...

    def order(self) -> Indices:
        """Return the rank of each source row by ``on_duplicate``."""
        ...

    def partitions(self, names: Sequence[str], alternatives: Alternatives[Any]) -> list[str]:
        """Return the names of the partitions whose rows may fulfil one of the alternatives."""
        ...


@dataclass(frozen=True)
class ArrowEvaluator:
    """An :class:`Evaluator` for Arrow expressions.

    Attributes:
        table: the table to change.
        resolved: the checked merge.
        source: the source's rows.
        options: options of the merge, as the user passed them.
    """

    table: AcidTable
    resolved: ArrowMerge
    source: pa.RecordBatch
    options: MergeOptions

    def check_type(self, column: AcidColumn, found: pa.DataType) -> None:
        """Check that the column can store values of a type. See :class:`Evaluator`."""
        check_type(self.table.full_name, column, found, str(found))

    def clauses(self, rows: Candidates) -> list[tuple[int, Indices]]:
        """Return the rows of each clause. See :class:`Evaluator`."""
        left: Indices = np.arange(len(rows))
        found = []
        for number, clause in enumerate(self.resolved.clauses):
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
        """Return the values that a clause assigns. See :class:`Evaluator`."""
        clause, values = self.resolved.clauses[number], self.resolved.values[number]
        if clause.takes_all:
            return rows.taken(values, clause.defaults)
        frame = rows.frame()
        try:
            return evaluate_each({name: value for name, (value, _) in values.items()}, frame)
        except pa.ArrowInvalid:  # evaluate one by one, so that the error names the one that fails
            return {
                name: self._values(frame, value, f"the value of {name} in {clause}")
                for name, (value, _) in values.items()
            }

    def order(self) -> Indices:
        """Return the rank of each source row. See :class:`Evaluator`."""
        rule = self.options.first_by
        assert rule is not None
        return order_of_rows(self.source, sort_keys(self.table.full_name, self.source.schema, rule.columns))

    def partitions(self, names: Sequence[str], alternatives: Alternatives[pc.Expression]) -> list[str]:
        """Return the partitions that may hold rows to read. See :class:`Evaluator`."""
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
        except pa.ArrowInvalid:  # fails for a partition that may hold no such row
            return list(names)
        chosen = pc.fill_null(reduce(pc.or_kleene, holds), False).to_pylist()
        return [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]

    def _values(self, frame: pa.Table, expression: pc.Expression, what: str) -> pa.Array:
        try:
            return evaluate(expression, frame)
        except pa.ArrowInvalid as error:
            raise RecordValueError(
                f"table {self.table.full_name}: {what}: {text_of(expression)} cannot be evaluated for a "
                f"row: {error}"
            ) from error


def check_countable(table: AcidTable, source: pa.Schema, name: str | None) -> None:
    """Raise ConfigurationError if the values of the column ``count_by`` cannot be used to count rows."""
    if name is None or name not in source.names:
        return
    kind = source.field(name).type
    if pa.types.is_nested(kind):
        raise ConfigurationError(
            f"table {table.full_name}: count_by={name!r}: rows cannot be counted by {kind} values. Name a "
            "column with scalar values"
        )


def with_expressions(table: AcidTable, source: pa.Schema, options: MergeOptions) -> MergeOptions:
    """Return the options with ``on_duplicate`` as Arrow expressions, which are checked like all others."""
    if options.first_by is None:
        return options
    keys = sort_keys(table.full_name, source, options.first_by.columns)
    return replace(options, on_duplicate=FirstBy(tuple(pc.field(SOURCE, name) for name, _ in keys)))
