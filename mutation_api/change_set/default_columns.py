"""The values of columns that a change set lacks: Hive stores those of DEFAULT constraints in new rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.expressions.default_value import default_value
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["default_columns"]


def default_columns(table: AcidTable, given: Iterable[str]) -> dict[str, pa.Scalar]:
    """The values of data columns that are not given and have a default, in table order.

    Args:
        table: its columns have their defaults as SQL.
        given: names of columns in lower case.

    Returns:
        By column name a scalar of the column's type. Times are those of this call, in local time.

    Raises:
        RecordLayoutError: only Hive can evaluate a default.
    """
    there = set(given)
    now = datetime.now()
    found = {}
    for column in table.columns:
        if column.default and column.name not in there:
            what = f"DEFAULT {column.default} of column {column.name}"
            try:
                found[column.name] = default_value(column.default, parse_hive_type(column.type), what, now)
            except ConfigurationError as error:
                raise RecordLayoutError(f"table {table.full_name}: {error}") from error
    return found
