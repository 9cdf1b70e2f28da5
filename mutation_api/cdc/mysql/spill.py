"""Operations on one table, written to a Parquet file as they arrive; only one batch is in memory.

This process writes the file; it or Spark's tasks read it. All of them use the library's own storage clients,
so the tasks can reach every location that the driver can reach.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mutation_api.cdc.mysql.column_types import Family, SourceColumn, ValueOptions, family_of, to_column
from mutation_api.cdc.source import CHANGED_AT, OPERATION, POSITION, KeptRows
from mutation_api.cdc.source_url import input_errors
from mutation_api.errors import RecordValueError
from mutation_api.format.hive_type import HiveType, arrow_type
from mutation_api.storage.connect import storage_at, stream_into
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile

ROWS_PER_BATCH = 20_000
BYTES_PER_BATCH = 64 << 20
"""A batch is written when it has this many rows, or about this many bytes."""
POSITION_FIELDS = ("file", "offset", "event", "row")
"""The fields of a position: log file, offset at which the transaction begins, event in it, row in the event.
"""


@dataclass(frozen=True)
class TargetColumn:
    """A Hive column, and the source's column that fills it; if None, the Hive column is NULL."""

    name: str
    type: HiveType
    source: SourceColumn | None


class Spill:
    """The file of one table's operations; it is created with the first rows."""

    def __init__(
        self,
        folder: Location,
        table: str,
        options: ValueOptions,
        *,
        is_of_this_machine: bool = True,
        has_times: bool = False,
    ) -> None:
        """Start without a file.

        Args:
            folder: directory for the file.
            table: the source's name for the table, for messages.
            options: how to convert values.
            is_of_this_machine: True if other machines cannot see the directory.
            has_times: True to write the times of the changes.
        """
        self.row_count = 0
        self._is_of_this_machine = is_of_this_machine
        self._has_times = has_times
        self.location = folder / "operations.parquet"
        self._table = table
        self._columns: Sequence[TargetColumn] = ()
        self._families: list[Family | None] = []
        self._options = options
        self._operations: list[str] = []
        self._positions: list[tuple[int, int, int, int]] = []
        self._times: list[int] = []
        self._rows: list[Sequence[Any]] = []
        self._byte_count = 0
        self._written_to = (-1, -1, -1, -1)
        self._undone: list[tuple[int, int, int, int]] = []
        self._file: OutputFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._batch_bytes: list[int] = []

    def use(self, columns: Sequence[TargetColumn]) -> None:
        """Set the columns of the values added from now on, in order.

        The source's columns may change; Hive's columns are the same each time.
        """
        if columns is self._columns:
            return
        self._flush()
        self._columns = columns
        self._families = [
            None if column.source is None else family_of(column.source, self._table) for column in columns
        ]

    def add(self, operation: str, position: tuple[int, int, int, int], row: Sequence[Any], time: int) -> None:
        """Add one operation with a row from the log; ``time`` is in seconds since 1970."""
        self._operations.append(operation)
        self._positions.append(position)
        self._times.append(time)
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_BATCH:
            self._flush()

    def undo(self, transaction: tuple[int, int], first: int, last: int) -> bool:
        """Drop the operations of the newest events.

        Args:
            transaction: the first two numbers of their positions.
            first: third number of the first event's position.
            last: third number of the last event's position.

        Returns:
            True if there were such operations.
        """
        since = (*transaction, first, 0)
        kept = bisect.bisect_left(self._positions, since)
        found = kept < len(self._positions)
        for values in (self._operations, self._positions, self._times, self._rows):
            del values[kept:]
        if self._written_to >= since:
            self._undone.append((*transaction, first, last))
            found = True
        return found

    def added_bytes(self, count: int) -> None:
        """Add the approximate size in bytes of the rows added since the last call."""
        self._byte_count += count
        if self._byte_count >= BYTES_PER_BATCH:
            self._flush()

    def add_selected(self, rows: Sequence[Sequence[bytes | None]], at: tuple[int, int], time: int) -> None:
        """Add rows of a SELECT as inserts at a position in the log and a time in seconds since 1970."""
        texts = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
        with self._names_table():
            arrays = self._arrays(texts, lambda family: family.of_text)
            numbers = range(self.row_count, self.row_count + len(rows))
            positions = [(*at, 0, number) for number in numbers]
            self._write(["insert"] * len(rows), positions, [time] * len(rows), arrays)

    def close(self) -> None:
        """Write the last batch. Raises InputError, as do all methods that write."""
        self._flush()
        if self._writer is None or self._file is None:
            return
        with self._names_location():
            self._writer.close()
            self._file.close()
        self._writer = None

    def written(self) -> SpilledOperations:
        """Return all operations that were added and not undone; call this after :meth:`close`."""
        return SpilledOperations(
            self.location,
            tuple(self._batch_bytes),
            POSITION_FIELDS,
            self._is_of_this_machine,
            self._has_times,
            undone=tuple(self._undone),
        )

    def _flush(self) -> None:
        self._byte_count = 0
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        operations, positions, times = self._operations, self._positions, self._times
        self._operations, self._positions, self._times, self._rows = [], [], [], []
        with self._names_table():
            arrays = self._arrays(map(list, columns), lambda family: family.of_log)
            self._write(operations, positions, times, arrays)

    def _arrays(
        self, columns: Iterable[Any], convert: Callable[[Family], Callable[..., pa.Array]]
    ) -> list[pa.Array]:
        """Convert the values of each column by its family; a column that the source lacks is NULL."""
        return [
            pa.nulls(len(values), arrow_type(column.type, timestamp_unit="us"))
            if column.source is None or family is None
            else convert(family)(column.source, values, self._options)
            for column, family, values in zip(self._columns, self._families, columns, strict=True)
        ]

    def _write(
        self,
        operations: list[str],
        positions: list[tuple[int, int, int, int]],
        times: list[int],
        arrays: list[pa.Array],
    ) -> None:
        parts = [pa.array(numbers, pa.int64()) for numbers in zip(*positions, strict=True)]
        values = {
            column.name: found if column.source is None else to_column(column.source, column.type, found)
            for column, found in zip(self._columns, arrays, strict=True)
        }
        position = pa.StructArray.from_arrays(parts, POSITION_FIELDS)
        found = {OPERATION: pa.array(operations, pa.string()), POSITION: position}
        if self._has_times:
            found[CHANGED_AT] = pa.array(times, pa.timestamp("s")).cast(pa.timestamp("us"))
        batch = pa.table({**found, **values})
        with self._names_location():
            if self._writer is None:
                self._writer = self._opened(batch.schema)
            self._writer.write_table(batch)  # one row group
        self._batch_bytes.append(batch.nbytes)
        self._written_to = positions[-1]
        self.row_count += len(operations)

    def _opened(self, schema: pa.Schema) -> pq.ParquetWriter:
        storage = storage_at(self.location)
        storage.create_directory(self.location.parent)
        self._file = storage.create(self.location)
        return pq.ParquetWriter(stream_into(self._file), schema)

    @contextmanager
    def _names_table(self) -> Iterator[None]:
        try:
            yield
        except RecordValueError as error:
            raise RecordValueError(f"source table {self._table}: {error}") from error

    def _names_location(self) -> AbstractContextManager[None]:
        return input_errors(
            f"source table {self._table}: cannot write buffered rows to {self.location.shown}"
        )


@dataclass(frozen=True, kw_only=True)
class SpilledOperations(KeptRows):
    """The operations of a :class:`Spill`; each batch is a part.

    ``undone``: events that the log rolled back, as the first two numbers of their positions, then the third
    numbers of the first and the last event.
    """

    undone: tuple[tuple[int, int, int, int], ...]

    def _read(self, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        return map(self._kept, super()._read(numbers))

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        file, offset, event, _ = batch.column(POSITION).flatten()
        for first_number, second_number, first, last in self.undone:
            is_transaction = pc.and_(pc.equal(file, first_number), pc.equal(offset, second_number))
            is_event = pc.and_(pc.greater_equal(event, first), pc.less_equal(event, last))
            is_undone = pc.and_(is_transaction, is_event)
            batch = batch.filter(pc.invert(is_undone))
            file, offset, event, _ = batch.column(POSITION).flatten()
        return batch
