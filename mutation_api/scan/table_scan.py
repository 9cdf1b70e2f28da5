"""TableScan: which rows and columns of a table are read, and in which form; reads them as Arrow batches.

It reads in this process, without Spark or JVM. Small splits on remote storages are read ahead in parallel
(:mod:`mutation_api.orc.read.read_ahead`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import pyarrow as pa

from mutation_api.acid.row_id import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm, column_type
from mutation_api.orc.read.partition_plan import plan_partitions
from mutation_api.orc.read.read_ahead import read_in_turn
from mutation_api.orc.read.snapshot_reader import read_split, row_id_type
from mutation_api.orc.read.snapshot_split import SnapshotSplit
from mutation_api.scan.partition_values import (
    PartitionCondition,
    matching_partitions,
)
from mutation_api.scan.table_view import TableView
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.named_columns import named_columns
from mutation_api.table.partition_columns import partition_scalars, partition_type
from mutation_api.types.hive_type import parse_hive_type

__all__ = ["PartitionRows", "TableScan"]


PartitionRows = tuple[str | None, pa.RecordBatch]
"""The (escaped) name of a partition, None in an unpartitioned table, and some of its rows."""


@dataclass(frozen=True)
class TableScan:
    """The description of a read of a table; it can be read any number of times.

    Attributes:
        view: the table and its snapshot.
        columns: names of data and partition columns, in any case, in the order wanted. None: all, data
            columns first.
        where_partition: (partition column, value) pairs that must all hold; see
            :func:`~mutation_api.scan.partition_values.matching_partitions`.
        row_ids: put ROW__ID before the columns: struct<writeid:bigint, bucketid:int, rowid:bigint> (version
            1: ``transactionid``). In partitioned tables it has a fourth field ``partition``, because an
            update or delete needs the partition of its row.
        limit: number of rows after which reading ends.
        timestamps: form of timestamps in data columns. Those of partition columns have microseconds.
        truncate_nanoseconds: cut digits below microseconds; otherwise a value that has them is an error.
    """

    view: TableView
    _: KW_ONLY
    columns: Sequence[str] | None = None
    where_partition: Sequence[PartitionCondition] = ()
    row_ids: bool = False
    limit: int | None = None
    timestamps: TimestampForm = TimestampForm.MICROSECONDS
    truncate_nanoseconds: bool = False

    @property
    def selected(self) -> tuple[AcidColumn, ...]:
        """The columns, in the order wanted.

        Raises:
            RecordLayoutError: a column does not exist or is named twice, or neither columns nor ROW__ID are
                wanted.
        """
        table = self.view.table
        columns = named_columns(table, self.columns)
        if not columns and not self.row_ids:
            raise RecordLayoutError(f"table {table.full_name}: nothing to read: neither columns nor ROW__ID")
        return columns

    @property
    def schema(self) -> pa.Schema:
        """Schema of all batches: ROW__ID if wanted, then the columns. Raises as :attr:`selected`."""
        keys = self.view.table.partition_keys
        fields = [
            pa.field(
                c.name,
                partition_type(c) if c in keys else column_type(parse_hive_type(c.type), self.timestamps),
            )
            for c in self.selected
        ]
        return pa.schema([*self._row_id_fields(), *fields])

    def by_partition(self) -> Iterator[PartitionRows]:
        """The rows, ordered by partition name, bucket and ROW__ID.

        This call lists the directories once. Files are read as the batches are consumed.

        Returns:
            Non-empty batches of :attr:`schema`, each with the name of its partition.

        Raises:
            RecordLayoutError: see :attr:`selected`; or ROW__IDs of an insert-only table.
            ConfigurationError: ``limit`` is negative, or see ``where_partition``.
            RecordValueError: a partition's text cannot be parsed as its column's type, or a timestamp does
                not fit.
            DirectoryStateError, CorruptFileError: see :mod:`mutation_api.orc.read`.
            OSError: the storage cannot be read.
        """
        if self.limit is not None and self.limit < 0:
            raise ConfigurationError(f"limit {self.limit}: it cannot be below 0")
        schema, splits = self.schema, self._planned()
        return _first_rows(self._read(splits, schema), self.limit)

    def to_arrow_batch_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of batches of :attr:`schema`. Raises as :meth:`by_partition`."""
        return pa.RecordBatchReader.from_batches(self.schema, (rows for _, rows in self.by_partition()))

    def to_arrow(self) -> pa.Table:
        """All rows, in memory. Raises as :meth:`by_partition`."""
        return self.to_arrow_batch_reader().read_all()

    def _row_id_fields(self) -> list[pa.Field]:
        if not self.row_ids:
            return []
        table = self.view.table
        partition = [pa.field(PARTITION_FIELD, pa.string())] if table.partition_keys else []
        return [pa.field(ROW_ID_COLUMN, pa.struct([*row_id_type(table.version), *partition]))]

    def _planned(self) -> list[SnapshotSplit]:
        view = self.view
        names = matching_partitions(view.table, sorted(view.locations), self.where_partition)
        return plan_partitions(
            view.table,
            {name: view.locations[name] for name in names},
            view.valid_ids,
            view.valid_txns,
            is_whole_table=len(names) == len(view.locations),
        )

    def _read(self, splits: Sequence[SnapshotSplit], schema: pa.Schema) -> Iterator[PartitionRows]:
        table, valid_ids = self.view.table, self.view.valid_ids
        options = ReadOptions(self.timestamps, truncate_nanoseconds=self.truncate_nanoseconds)
        selected = self.selected
        data = [c.name for c in selected if c not in table.partition_keys]
        # If only partition columns are wanted, ROW__IDs or the first column give the number of rows.
        row_ids = self.row_ids or (not data and table.version.has_row_ids)
        columns = data if data or row_ids else [table.column_names[0]]

        def read(split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
            return read_split(table, split, valid_ids, columns, row_ids, options)

        for split, rows in read_in_turn(splits, read):
            name = split.partition_name if table.partition_keys else None
            values = {} if name is None else partition_scalars(table, name, selected)
            yield name, _with_partition(rows, name, values, schema)


def _with_partition(
    rows: pa.RecordBatch, name: str | None, values: dict[str, pa.Scalar], schema: pa.Schema
) -> pa.RecordBatch:
    """The columns of the schema, from the rows and from the values of their partition."""
    arrays = {column: pa.repeat(value, rows.num_rows) for column, value in values.items()}
    arrays |= dict(zip(rows.schema.names, rows.columns, strict=True))
    if ROW_ID_COLUMN in schema.names and name is not None:
        parts = [*arrays[ROW_ID_COLUMN].flatten(), pa.repeat(pa.scalar(name, pa.string()), rows.num_rows)]
        fields = list(schema.field(ROW_ID_COLUMN).type)
        arrays[ROW_ID_COLUMN] = pa.StructArray.from_arrays(parts, fields=fields)
    return pa.RecordBatch.from_arrays([arrays[column] for column in schema.names], schema=schema)


def _first_rows(batches: Iterator[PartitionRows], limit: int | None) -> Iterator[PartitionRows]:
    if limit is None:
        yield from batches
        return
    left = limit
    while left > 0:
        found = next(batches, None)
        if found is None:
            return
        name, rows = found
        rows = rows.slice(0, left)
        left -= rows.num_rows
        yield name, rows
