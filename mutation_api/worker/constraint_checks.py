"""ConstraintChecks: holds new rows to the constraints of their table, as Hive's INSERT, UPDATE and MERGE do.

NOT NULL wants a value; a CHECK must not be false, so that NULL passes. A row whose other columns are updated
is checked, too. Source: Hive 3.1.3 and 4.1.0, tried with each statement.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mutation_api.errors import ConstraintViolationError, RecordValueError
from mutation_api.expressions.evaluation import columns_read, evaluate
from mutation_api.expressions.hive_sql import HiveCondition, hive_condition
from mutation_api.table.acid_table import AcidTable, CheckConstraint
from mutation_api.types.hive_type import parse_hive_type
from mutation_api.types.scalar_conversion import shown_value

__all__ = ["ConstraintChecks"]

_SHOWN_COLUMNS = 10
"""Columns of a row that a message shows."""
_SHOWN_LENGTH = 200
"""Characters of a value that a message shows."""


class ConstraintChecks:
    """Checks rows that have the types of ``table``."""

    def __init__(self, table: AcidTable) -> None:
        self._table = table
        self._not_null = tuple(column.name for column in table.columns if column.not_null)
        self._found: dict[frozenset[str], list[tuple[CheckConstraint, HiveCondition, tuple[str, ...]]]] = {}

    def __bool__(self) -> bool:
        """Whether the table has any."""
        return bool(self._not_null or self._table.checks)

    def check(self, is_new: NDArray[np.bool_], rows: pa.StructArray, where: str) -> None:
        """Check the new rows among n.

        Args:
            is_new: shape (n,), false for deletes, whose values are ignored.
            rows: n structs with the data columns.
            where: names the group in messages.

        Raises:
            ConstraintViolationError: a row breaks a constraint.
            RecordValueError: a condition has no value for a row, as after an overflow.
        """
        new, positions = pa.array(is_new), np.flatnonzero(is_new)
        fine = frozenset(field.name for field in rows.type if "timestamp[ns]" in str(field.type))
        for name in self._not_null:
            # Only the mask is filtered: Arrow cannot filter unions.
            breaks = pc.is_null(rows.field(name)).filter(new)
            self._refuse(breaks, f"NOT NULL of column {name}", (name,), rows, positions, where)
        for check, condition, columns in self._conditions(fine):
            what = f"CHECK {check.name} ({check.condition})"
            values = pa.table({name: rows.field(name).filter(new) for name in columns})
            try:
                holds = evaluate(condition.holds, values)
                unclear = None if condition.unclear is None else evaluate(condition.unclear, values)
            except pa.ArrowInvalid as error:
                raise RecordValueError(f"{where}: {what} cannot be evaluated: {error}") from error
            if unclear is not None and (count := pc.sum(unclear).as_py()):
                shown = self._shown(unclear, columns, rows, positions)
                raise RecordValueError(
                    f"{where}: {what} has no certain value for {count} rows, the first is {shown}: Hive's "
                    "answers for NaN, line breaks in LIKE and parts of dates before 1582-10-15 depend "
                    "on its release and settings: write another value, or drop the constraint in Hive"
                )
            self._refuse(pc.invert(holds), what, columns, rows, positions, where)

    def _conditions(
        self, fine: frozenset[str]
    ) -> list[tuple[CheckConstraint, HiveCondition, tuple[str, ...]]]:
        """Each CHECK with its condition and the columns that it names, of which there is at least one.

        ``fine``: the columns whose timestamps are in nanoseconds.
        """
        if fine not in self._found:
            self._found[fine] = [self._condition(check, fine) for check in self._table.checks]
        return self._found[fine]

    def _condition(
        self, check: CheckConstraint, fine: frozenset[str]
    ) -> tuple[CheckConstraint, HiveCondition, tuple[str, ...]]:
        types = {column.name: parse_hive_type(column.type) for column in self._table.columns}
        condition = hive_condition(check.condition, types, f"CHECK {check.name}", fine)
        schema = pa.schema([(name, pa.null()) for name in types])
        named = columns_read(condition.holds, schema, f"CHECK {check.name}") or {next(iter(types))}
        return check, condition, tuple(name for name in types if name in named)

    def _refuse(
        self,
        breaks: pa.BooleanArray,
        what: str,
        columns: tuple[str, ...],
        rows: pa.StructArray,
        positions: NDArray[np.intp],
        where: str,
    ) -> None:
        """Raise if ``breaks`` is true for one of the new rows, which are at these positions."""
        count = pc.sum(breaks).as_py()
        if not count:
            return
        shown = self._shown(breaks, columns, rows, positions)
        raise ConstraintViolationError(
            f"{where}: {count} rows break {what}, the first is {shown}: correct them, or drop the "
            "constraint in Hive"
        )

    def _shown(
        self,
        chosen: pa.BooleanArray,
        columns: tuple[str, ...],
        rows: pa.StructArray,
        positions: NDArray[np.intp],
    ) -> str:
        """The first chosen row among the new ones; its ``columns`` come first."""
        at = int(positions[pc.index(chosen, True).as_py()])
        others = [name for name in self._table.column_names if name not in columns]
        shown = (*columns, *others)[: max(len(columns), _SHOWN_COLUMNS)]
        return ", ".join(f"{name}={_cut(shown_value(rows.field(name), at))}" for name in shown)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
