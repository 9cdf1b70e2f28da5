"""The values of columns that a change set lacks: Hive stores those of DEFAULT constraints in new rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.expressions.default_value import default_value
from mutation_api.table.acid_table import AcidTable
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["DefaultColumns", "default_columns"]


@dataclass(frozen=True)
class DefaultColumns:
    """The columns that are not given and have a default, in table order; made by :meth:`of`.

    ``values`` holds by column name a scalar of the column's type; times are those of the call, in local time.
    ``unknown`` holds by column name why only Hive can evaluate the default; then no rows may be inserted.
    """

    values: Mapping[str, pa.Scalar]
    unknown: Mapping[str, str]

    @classmethod
    def of(cls, table: AcidTable, given: Iterable[str]) -> DefaultColumns:
        """Those of data columns; ``given`` are names of columns in lower case."""
        there = set(given)
        now = datetime.now()
        values, unknown = {}, {}
        for column in table.columns:
            if column.default and column.name not in there:
                what = f"DEFAULT {column.default} of column {column.name}"
                try:
                    values[column.name] = default_value(
                        column.default, parse_hive_type(column.type), what, now, table.user
                    )
                except ConfigurationError as error:
                    unknown[column.name] = str(error)
        return cls(values, unknown)


def default_columns(table: AcidTable, given: Iterable[str]) -> Mapping[str, pa.Scalar]:
    """The values that new rows get; see :class:`DefaultColumns`.

    Raises:
        RecordLayoutError: only Hive can evaluate a default.
    """
    found = DefaultColumns.of(table, given)
    for reason in found.unknown.values():
        raise RecordLayoutError(f"table {table.full_name}: {reason}")
    return found.values
