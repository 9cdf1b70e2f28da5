"""The Arrow type of a table's rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mutation_api.errors import TableNotMutableError
from mutation_api.table.acid_table import AcidColumn
from mutation_api.types.hive_type import HiveType, arrow_type, parse_hive_type

__all__ = ["row_type"]


def row_type(columns: Sequence[AcidColumn]) -> pa.StructType:
    """Arrow struct of the ``row`` field of an ACID file: the data columns in table order.

    Raises:
        TableNotMutableError: a column's type is not supported; the message names the column.
    """
    return pa.struct([pa.field(column.name, arrow_type(_type_of(column))) for column in columns])


def _type_of(column: AcidColumn) -> HiveType:
    try:
        return parse_hive_type(column.type)
    except TableNotMutableError as error:
        raise TableNotMutableError(f"column {column.name!r}: {error}") from error
