"""PendingRecords: collects single records, which are split into columns on arrival and handled as a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.event import Operation
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.errors import MutationError, RecordLayoutError, RecordValueError
from mutation_api.table.acid_table import AcidTable
from mutation_api.worker.change_rules import Changes, check_operations, check_row_ids
from mutation_api.worker.record_inspector import RecordInspector, RecordLayout, Records, RowIdParts
from mutation_api.worker.row_ids import RowIds

__all__ = ["PendingRecords"]

LONGEST_SHOWN_RECORD = 300
"""Characters of a record that a message quotes; the wrong column is named before it."""
_LAYOUTS_KEPT = 64


class PendingRecords:
    """Records in the order of their arrival.

    One flat list holds the values of all records: a tuple for each record would be an object that Python's
    garbage collector visits repeatedly while it waits. Most records have the same names, so layouts are
    cached by names.

    Attributes:
        partition_name: partition of all records.
    """

    def __init__(self, table: AcidTable, inspector: RecordInspector) -> None:
        self.partition_name = ""
        self._table = table
        self._inspector = inspector
        self._layouts: tuple[dict[tuple[str, ...], RecordLayout], ...] = tuple({} for _ in Operation)
        self._operations = bytearray()
        self._row_ids: list[Any] = []
        self._values: list[Any] = []

    def __len__(self) -> int:
        """Number of records."""
        return len(self._operations)

    def __iter__(self) -> Iterator[tuple[Operation, list[Any], list[Any]]]:
        """Operation, parts of ROW__ID and values in table order (nulls for a delete) of each record."""
        count = len(self) or 1
        parts, width = len(self._row_ids) // count, len(self._values) // count
        for number, code in enumerate(self._operations):
            row_id = self._row_ids[number * parts : (number + 1) * parts]
            yield Operation(code), row_id, self._values[number * width : (number + 1) * width]

    def append(self, operation: Operation, record: Mapping[str, Any]) -> None:
        """Append a record; one that is refused is not appended.

        Raises:
            RecordLayoutError: it is not a mapping; names are missing, extra or duplicate; or ROW__ID has
                another type.
            RecordValueError: an update or delete lacks its ROW__ID or a part of it.
        """
        if type(record) is not dict and not isinstance(record, Mapping):
            raise self._inspector.no_record(record)
        names = tuple(record)
        layout = self._layouts[operation].get(names) or self._new_layout(operation, names)
        row_id, values = layout.row_id(record), layout.values(record)
        # The last part, the partition, is optional.
        if operation is not Operation.INSERT and None in row_id[:-1]:
            self._refuse_row_id(operation, row_id)
        self._operations.append(operation)
        self._row_ids += row_id
        self._values += values

    def batch(self) -> tuple[NDArray[np.int8], Records]:
        """All records: codes of :class:`Operation`, ROW__IDs and columns; columns of deletes are nulls.

        Raises:
            RecordLayoutError, RecordValueError: see :func:`array_of`.
        """
        operations = np.frombuffer(bytes(self._operations), np.int8)
        return operations, self._inspector.of_parts(self._row_ids, self._values)

    def blamed(self, error: MutationError) -> MutationError:
        """The error with the record that causes it; row numbers of our batches mean nothing to the caller."""
        for operation, row_id, values in self:
            try:
                records = self._inspector.of_parts(row_id, values)
                if operation is not Operation.DELETE:
                    self._inspector.rows(records.columns or ())
            except (RecordLayoutError, RecordValueError) as found:
                return type(found)(f"{found}; {self._described(operation, row_id, values)}")
        return error

    def clear(self) -> None:
        """Forget all records."""
        self._operations = bytearray()
        self._row_ids = []
        self._values = []

    def _described(self, operation: Operation, row_id: list[Any], values: list[Any]) -> str:
        named = dict(zip(self._table.column_names, values, strict=True))
        shown = str(None if operation is Operation.DELETE else named)[:LONGEST_SHOWN_RECORD]
        identity = "" if row_id[0] is None else f" with {ROW_ID_COLUMN} {tuple(row_id[:-1])}"
        return f"{operation.name.lower()} of record {shown}{identity}"

    def _refuse_row_id(self, operation: Operation, row_id: RowIdParts) -> None:
        """Raise now, not with the batch, because the wrong record is the current one."""
        parts = (pa.array([part], pa.int64()) for part in row_id[:-1])
        row_ids = RowIds.of_columns(parts, pa.array(row_id[-1:], pa.string()))
        changes = Changes(self._table, np.array([operation]), row_ids, self.partition_name)
        check_operations(changes)
        check_row_ids(changes)

    def _new_layout(self, operation: Operation, names: tuple[str, ...]) -> RecordLayout:
        layouts = self._layouts[operation]
        if len(layouts) >= _LAYOUTS_KEPT:
            layouts.clear()
        layouts[names] = self._inspector.layout(
            names,
            with_columns=operation is not Operation.DELETE,
        )
        return layouts[names]
