"""The error for updates and deletes of rows that the snapshot does not hold.

Hive silently writes an update of a row that does not exist as a new row, and ignores a delete of one. Engines
look up the rows before anything is written, if they are asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mutation_api.acid.event import Operation
from mutation_api.errors import RowIdNotFoundError
from mutation_api.table.acid_table import AcidTable

__all__ = ["UNKNOWN_ROWS_SHOWN", "UnknownRow", "unknown_rows_error"]

UNKNOWN_ROWS_SHOWN = 5


class UnknownRow(NamedTuple):
    """An update or delete whose row is not there: escaped partition name ('' if none), ROW__ID, operation."""

    partition: str
    txn: int
    bucket_property: int
    row_number: int
    operation: int

    def __str__(self) -> str:
        """For a message."""
        what = Operation(self.operation).name.lower()
        where = f" in partition {self.partition}" if self.partition else ""
        return f"{what} of ({self.txn}, {self.bucket_property}, {self.row_number}){where}"


def unknown_rows_error(table: AcidTable, some: Sequence[UnknownRow]) -> RowIdNotFoundError:
    """The error that names the first few of these rows, with partition and bucket."""
    return RowIdNotFoundError(
        f"table {table.full_name}: the change set updates or deletes rows that the snapshot of "
        f"transaction {table.required_txn_id()} does not hold, among them: "
        f"{'; '.join(map(str, some[:UNKNOWN_ROWS_SHOWN]))}. "
        "They never existed or were deleted meanwhile; read the table again in this transaction"
    )
