"""Values as a column stores them, for every engine; one that does not fit is refused, and its row named."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.partition import as_partition_stores
from mutation_api.types.conversion import convert_to_column
from mutation_api.types.hive_type import parse_hive_type
from mutation_api.types.misfit import MisfitError, UnfitTypeError
from mutation_api.types.scalar_conversion import CAST_FIRST
from mutation_api.types.timestamp_units import exact_unit

__all__ = ["check_type", "converted"]


def converted(
    table_name: str,
    column: AcidColumn,
    values: pa.Array,
    key_of: Callable[[int], str],
    *,
    null_text: str | None,
) -> pa.Array:
    """Convert n values to the column's type, timestamps in microseconds unless they have finer digits.

    Args:
        table_name: for messages.
        column: the column that gets the values.
        values: of any Arrow type that may fit.
        key_of: names a row, for messages.
        null_text: of a partition column, see :func:`~mutation_api.table.partition.null_text_of`.

    Raises:
        RecordValueError: a value does not fit.
    """
    hive_type = parse_hive_type(column.type)
    try:
        found = convert_to_column(values, hive_type, column=column.name, timestamp_unit=exact_unit(values))
        return found if null_text is None else as_partition_stores(found, hive_type, null_text)
    except (MisfitError, RecordValueError) as error:
        misfit = error if isinstance(error, MisfitError) else error.__cause__
        if not isinstance(misfit, MisfitError):
            raise
        raise RecordValueError(
            f"table {table_name}: row {key_of(misfit.row)}: column {column.name!r} "
            f"({column.type}){misfit.path}: value {misfit.value} {misfit.reason}"
        ) from error


def check_type(table_name: str, column: AcidColumn, found: pa.DataType, shown: str) -> None:
    """Raise RecordLayoutError if no value of a type can be stored in the column; ``shown`` names it."""
    try:
        convert_to_column(pa.nulls(0, found), parse_hive_type(column.type), column=column.name)
    except (RecordLayoutError, TypeError, ValueError) as error:
        unfit = error.__cause__
        reason = f"{unfit.path}: {unfit.reason}" if isinstance(unfit, UnfitTypeError) else f": {error}"
        told = reason.removeprefix(", ").removeprefix(": ")
        raise RecordLayoutError(
            f"table {table_name}: column {column.name!r} ({column.type}) cannot hold a {shown}; "
            f"cast it in the source{'' if told.endswith(CAST_FIRST) else f' ({told})'}"
        ) from error
