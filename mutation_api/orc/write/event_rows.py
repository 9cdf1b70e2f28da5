"""EventRows: the rows of events in the form in which a file stores them.

Rows of deletes become NULL. Days and wall clocks are converted to the file's calendar, timestamps to its
unit. Arrays that pyarrow 26 would encode wrongly or crash on (slices under NULL structs, validity above
unions) are rebuilt. Values: :mod:`mutation_api.orc.format.stored_values`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.acid.event import Operation
from mutation_api.errors import RecordValueError
from mutation_api.orc.format.stored_values import Storable, holds_dates, hollow, nulled, storable, union_safe
from mutation_api.storage.location import Location
from mutation_api.types.plain_array import has_union, struct_fields

__all__ = ["EventRows"]


class EventRows:
    """Converts the rows of one file to their stored form.

    Args:
        row_type: struct of the data columns.
        is_hybrid: the file's days before 1582-10-15 are hybrid.
        location: the file's location, for messages.
    """

    def __init__(self, row_type: pa.StructType, *, is_hybrid: bool, location: Location) -> None:
        self._row_type = row_type
        self._is_hybrid = is_hybrid
        self._location = location
        self._date_columns = [i for i, field in enumerate(row_type) if holds_dates(field.type)]
        self._union_columns = [i for i, field in enumerate(row_type) if has_union(field.type)]

    def storable(self, operations: NDArray[np.integer], rows: pa.StructArray | None) -> Storable:
        """Convert n rows for encoding. The type differs from the file's only if pyorc is needed.

        Args:
            operations: shape (n,).
            rows: n rows; None if all events are deletes.

        Raises:
            RecordValueError: ORC cannot hold a timestamp, or the row of an insert or update is NULL.
        """
        stored = self._stored(operations, rows)
        if stored.values.type != self._row_type and not stored.needs_pyorc:
            stored = self._in_unit_of_file(stored.values)
        # A copy without offsets: if a struct with nulls, or a child of it, is a slice, pyarrow 26 encodes the
        # wrong rows.
        return Storable(pa.concat_arrays([stored.values]), stored.needs_pyorc)

    def _stored(self, operations: NDArray[np.integer], rows: pa.StructArray | None) -> Storable:
        """Rows with deletes as NULL and dates as Hive stores them."""
        deletes = operations == Operation.DELETE
        if rows is None or deletes.all():
            # With unions, rows cannot be NULL; Hive ignores the rows of deletes (measured on 2.3.10).
            return Storable(hollow(self._row_type, len(operations)), False)
        if rows.null_count and (~deletes & rows.is_null().to_numpy(zero_copy_only=False)).any():
            raise RecordValueError(
                f"{self._location}: the row of an insert or update is NULL; Hive fails on it"
            )
        any_deletes = bool(deletes.any())
        if not self._date_columns and not self._union_columns and not any_deletes:
            return Storable(rows, False)
        children = struct_fields(rows)
        needs_pyorc = False
        for index in self._date_columns:
            column = nulled(children[index], deletes) if any_deletes else children[index]
            stored = storable(column, rows.type.field(index).name, hybrid=self._is_hybrid)
            children[index] = stored.values
            needs_pyorc |= stored.needs_pyorc
        for index in self._union_columns:
            children[index] = union_safe(children[index], rows.type.field(index).name)
        mask = pa.array(deletes) if any_deletes and not self._union_columns else None
        return Storable(pa.StructArray.from_arrays(children, fields=list(rows.type), mask=mask), needs_pyorc)

    def _in_unit_of_file(self, rows: pa.StructArray) -> Storable:
        """Convert timestamps of another unit than the file's: by a cast if it is exact, else for pyorc."""
        try:
            return Storable(rows.cast(self._row_type), False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return Storable(rows, True)
