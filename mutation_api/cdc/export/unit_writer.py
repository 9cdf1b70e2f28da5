"""UnitWriter: writes the rows of changed units to Parquet files of a target.

Each thread writes one unit at a time. It keeps a stripe of each file that it reads, and the rows of one row
group, so memory does not depend on the size of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from metastore_client.valid_ids import ValidIdList
from mutation_api.cdc.export.exported_types import exported_batch
from mutation_api.cdc.export.target import NewFile, Target
from mutation_api.cdc.export.units import UnitChange, UnitPlan
from mutation_api.errors import DirectoryStateError
from mutation_api.format.event import INSERT
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.read.changes import SplitChanges
from mutation_api.read.snapshot_reader import split_rows
from mutation_api.read.table_view import TableView
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.partition import partition_scalars

__all__ = ["UnitWriter"]

ROWS_PER_GROUP = 1 << 20
BYTES_PER_GROUP = 64 * 1024 * 1024
"""Rows are collected until they have this size in memory, or this number."""
_SAMPLE_ROWS = 1 << 13
BYTES_PER_FILE = 512 * 1024 * 1024


@dataclass(frozen=True)
class UnitWriter:
    """Writes units of one table. Several threads use it.

    Attributes:
        target: the target, which has been loaded.
        view: the table in a snapshot.
        before: the ids that the target has seen. If None, it has seen none.
        schema: the columns of the target, with those that the commit will add.
        file_schema: the columns of its files.
        options: the form of the rows that are read.
    """

    target: Target
    view: TableView
    before: ValidIdList | None
    schema: pa.Schema
    file_schema: pa.Schema
    options: ReadOptions

    def write(self, plan: UnitPlan) -> list[NewFile]:
        """Write the rows that a plan needs to new files, none of which is empty. They are not visible yet.

        Raises:
            DirectoryStateError: If a unit to which rows are added has other changes.
            Other errors: See :func:`mutation_api.read.snapshot_reader.read_split`, and those of the target.
        """
        if plan.change is UnitChange.REMOVE:
            return []
        assert plan.partition_name is not None
        values = partition_scalars(self.view.table, plan.partition_name)
        partition = {name: value.cast(self.schema.field(name).type) for name, value in values.items()}
        found: list[NewFile] = []
        groups = self._groups(plan)
        first = next(groups, None)
        while first is not None:
            path = self.target.new_path(plan.unit)
            with self.target.create_file(path) as stream:
                writer = pq.ParquetWriter(
                    stream,
                    self.file_schema,
                    use_dictionary=_repeated_columns(first),
                    store_schema=False,
                    store_decimal_as_integer=True,
                )
                with writer:
                    group: pa.Table | None = first
                    while group is not None and stream.tell() < BYTES_PER_FILE:
                        writer.write_table(group, row_group_size=ROWS_PER_GROUP)
                        group = next(groups, None)
                first = group
                size = stream.tell()
            metadata = writer.writer.metadata
            found.append(NewFile(plan.unit, path, metadata.num_rows, size, metadata, partition))
        return found

    def _groups(self, plan: UnitPlan) -> Iterator[pa.Table]:
        """Yield the rows in tables of the size of a row group."""
        own = pa.schema([self.schema.field(name) for name in self.file_schema.names])
        waiting: list[pa.RecordBatch] = []
        row_count = byte_count = 0
        for batch in self._batches(plan):
            rows = exported_batch(batch, own)
            waiting.append(rows)
            row_count, byte_count = row_count + rows.num_rows, byte_count + rows.nbytes
            if row_count >= ROWS_PER_GROUP or byte_count >= BYTES_PER_GROUP:
                yield pa.Table.from_batches(waiting).cast(self.file_schema)
                waiting, row_count, byte_count = [], 0, 0
        if waiting:
            yield pa.Table.from_batches(waiting).cast(self.file_schema)

    def _batches(self, plan: UnitPlan) -> Iterator[pa.RecordBatch]:
        for split in plan.splits:
            self.view.check()
            if plan.change is UnitChange.REPLACE:
                yield from split_rows(
                    self.view.table,
                    split,
                    self.view.valid_ids,
                    self._columns,
                    self.options,
                    row_ids=False,
                )
                continue
            assert self.before is not None
            changes = SplitChanges(
                self.view.table, split, self.before, self.view.valid_ids, self._columns, self.options
            )
            for rows in changes.read(net=True):
                if rows.kind != INSERT:
                    raise DirectoryStateError(
                        f"table {self.view.table.full_name}, partition {plan.partition_name or '(none)'}, "
                        f"bucket {split.bucket_id}: {len(rows.ids)} rows have changes of kind {rows.kind}, "
                        "but its files have only inserts. Check the table with hive-mutate verify"
                    )
                yield rows.rows

    @property
    def _columns(self) -> tuple[AcidColumn, ...]:
        names = self.file_schema.names
        return tuple(column for column in self.view.table.all_columns if column.name in names)


def _repeated_columns(rows: pa.Table) -> list[str]:
    """Return the Parquet columns for which a dictionary is worth its time: whose values often repeat.

    Without this, a dictionary of distinct values is built for each file, and given up when it is full.
    """
    found = []
    sample = rows.slice(0, _SAMPLE_ROWS)
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        if pa.types.is_nested(column.type) or 2 * len(column.unique()) <= len(sample):
            found += _leaves(name, column.type)
    return found


def _leaves(path: str, kind: pa.DataType) -> list[str]:
    """Return the Parquet columns of a column."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _leaves(f"{path}.list.element", kind.value_type)
    if pa.types.is_map(kind):
        return [
            *_leaves(f"{path}.key_value.key", kind.key_type),
            *_leaves(f"{path}.key_value.value", kind.item_type),
        ]
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(f"{path}.{field.name}", field.type)]
    return [path]
