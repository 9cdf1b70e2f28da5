"""Operations on one table, written to Parquet files for Spark as they come; memory holds one batch."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from mutation_api.acid.hive_type import HiveType
from mutation_api.errors import RecordValueError
from mutation_api.inputs.mysql_types import SourceColumn, ValueOptions, family_of, to_column
from mutation_api.inputs.source import OPERATION, POSITION
from mutation_api.spark.quoted_name import quoted
from mutation_api.table.hive_types import spark_type

__all__ = ["Spill", "TargetColumn"]

ROWS_PER_BATCH = 20_000
BYTES_PER_BATCH = 64 << 20
"""A batch is written when it has so many rows, or about so many bytes."""
POSITION_FIELDS = ("file", "offset", "event", "row")
"""Of a position: log file, offset at which the transaction begins, its event, and the row in that."""


@dataclass(frozen=True)
class TargetColumn:
    """A column of the table in Hive, and the source's column that fills it."""

    name: str
    type: HiveType
    source: SourceColumn


class Spill:
    """The files of one table."""

    def __init__(
        self, folder: Path, table: str, columns: Sequence[TargetColumn], options: ValueOptions
    ) -> None:
        """Begin without files.

        Args:
            folder: for the files; on a file system that Spark's executors see.
            table: the source's name for it, for messages.
            columns: in the order of the values that are added.
            options: how values are converted.
        """
        self.row_count = 0
        self.folder = folder
        self._table = table
        self._columns = columns
        self._families = [family_of(column.source, table) for column in columns]
        self._options = options
        self._operations: list[str] = []
        self._positions: list[tuple[int, int, int, int]] = []
        self._rows: list[Sequence[Any]] = []
        self._byte_count = 0
        self._written_to = (-1, -1, -1, -1)
        self._undone: list[tuple[int, int, int, int]] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, operation: str, position: tuple[int, int, int, int], row: Sequence[Any]) -> None:
        """Add one operation with a row as the log has it."""
        self._operations.append(operation)
        self._positions.append(position)
        self._rows.append(row)
        if len(self._rows) >= ROWS_PER_BATCH:
            self._flush()

    def undo(self, transaction: tuple[int, int], first: int, last: int) -> bool:
        """Forget the operations of some events, the newest ones.

        Args:
            transaction: the first two numbers of their positions.
            first: third number of the first event's.
            last: third number of the last event's.

        Returns:
            Whether there were any.
        """
        since = (*transaction, first, 0)
        kept = bisect.bisect_left(self._positions, since)
        found = kept < len(self._positions)
        for values in (self._operations, self._positions, self._rows):
            del values[kept:]
        if self._written_to >= since:
            self._undone.append((*transaction, first, last))
            found = True
        return found

    def added_bytes(self, count: int) -> None:
        """Say about how many bytes the rows had that were added since the last call."""
        self._byte_count += count
        if self._byte_count >= BYTES_PER_BATCH:
            self._flush()

    def add_selected(self, rows: Sequence[Sequence[bytes | None]], at: tuple[int, int]) -> None:
        """Add rows that SELECT gave, as inserts at a place in the log."""
        texts = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
        with self._names_table():
            arrays = [
                family.of_text(column.source, values, self._options)
                for column, family, values in zip(self._columns, self._families, texts, strict=True)
            ]
            numbers = range(self.row_count, self.row_count + len(rows))
            self._write(["insert"] * len(rows), [(*at, 0, number) for number in numbers], arrays)

    def close(self) -> None:
        """Write what is left."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """All operations that were added and not undone, in the target's types; after :meth:`close`.

        At least one must have been written.
        """
        position = ",".join(f"{name}:bigint" for name in POSITION_FIELDS)
        columns = [f"{quoted(column.name)} {spark_type(column.type)}" for column in self._columns]
        schema = f"{OPERATION} string, {POSITION} struct<{position}>, {', '.join(columns)}"
        rows = spark.read.schema(schema).parquet(str(self.folder))
        file, offset, event, _ = (quoted(POSITION, name) for name in POSITION_FIELDS)
        for *transaction, first, last in self._undone:
            condition = f"{file} = {transaction[0]} AND {offset} = {transaction[1]}"
            rows = rows.where(f"NOT ({condition} AND {event} BETWEEN {first} AND {last})")
        return rows

    def _flush(self) -> None:
        self._byte_count = 0
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        operations, positions = self._operations, self._positions
        self._operations, self._positions, self._rows = [], [], []
        with self._names_table():
            arrays = [
                family.of_log(column.source, list(values), self._options)
                for column, family, values in zip(self._columns, self._families, columns, strict=True)
            ]
            self._write(operations, positions, arrays)

    def _write(
        self, operations: list[str], positions: list[tuple[int, int, int, int]], arrays: list[pa.Array]
    ) -> None:
        places = [pa.array(numbers, pa.int64()) for numbers in zip(*positions, strict=True)]
        values = {
            column.name: to_column(column.source, column.type, found)
            for column, found in zip(self._columns, arrays, strict=True)
        }
        position = pa.StructArray.from_arrays(places, POSITION_FIELDS)
        batch = pa.table({OPERATION: pa.array(operations, pa.string()), POSITION: position, **values})
        if self._writer is None:
            self.folder.mkdir(parents=True)
            self._writer = pq.ParquetWriter(self.folder / "operations.parquet", batch.schema)
        self._writer.write_table(batch)
        self._written_to = positions[-1]
        self.row_count += len(operations)

    @contextmanager
    def _names_table(self) -> Iterator[None]:
        try:
            yield
        except RecordValueError as error:
            raise RecordValueError(f"source table {self._table}: {error}") from error
