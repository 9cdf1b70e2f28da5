"""Conditions and assignments of a merge as Arrow expressions over the structs ``source`` and ``target``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mutation_api.changes.analysis import Analysis, Conjunct, Equality
from mutation_api.changes.clauses import SOURCE, TARGET
from mutation_api.changes.resolve import ResolvedMerge
from mutation_api.errors import RecordLayoutError
from mutation_api.expressions.evaluation import (
    Path,
    checked_expression,
    named_column,
    paths_read,
    result_type,
)
from mutation_api.expressions.padded_texts import check_no_padded_texts
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.hive_type import arrow_type, parse_hive_type

__all__ = ["ArrowAnalyser", "ArrowMerge", "as_expression", "as_value", "target_types"]

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
    """Resolves Arrow expressions; an :class:`~mutation_api.changes.analysis.Analyser`.

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
