"""UnitWriter: writes the rows of changed units to Parquet files of a target.

A file has the parts of ROW__ID beside the columns of the target. So deleted rows are found in the files that
have them: these are copied without them, and Hive's own files are read only for new rows. If the deleted rows
are not exactly those that the files have, the unit is replaced by the rows of the snapshot.

Each thread writes one unit at a time. It keeps a stripe of each file that it reads, the rows of one row
group, and the ROW__IDs of one file, so memory does not depend on the size of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.cdc.export.exported_types import ROW_ID_FIELDS, ROW_ID_NAMES, exported_batch
from mutation_api.cdc.export.target import NewFile, Target, TargetFile
from mutation_api.cdc.export.units import Unit, UnitChange, UnitPlan
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.merge_events import EventKeys, find_disorder, is_remaining, is_visible
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.read.changes import SplitChanges
from mutation_api.read.snapshot_reader import split_rows
from mutation_api.read.table_view import TableView
from mutation_api.table.acid_table import AcidColumn
from mutation_api.table.partition import partition_scalars

ROWS_PER_GROUP = 1 << 20
BYTES_PER_GROUP = 64 * 1024 * 1024
"""Rows are collected until they have this size in memory, or this number."""
BYTES_PER_FILE = 128 * 1024 * 1024
_SAMPLE_ROWS = 1 << 11
_ROW_NUMBER = ROW_ID_NAMES[-1]

_Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class WrittenUnit:
    """The new files of a unit, and those that they replace."""

    added: Sequence[NewFile]
    removed: Sequence[TargetFile]


@dataclass(frozen=True)
class UnitWriter:
    """Writes units of one table. Several threads use it.

    Attributes:
        target: the target, which has been loaded.
        files: the files of its units.
        view: the table in a snapshot.
        before: the ids that the target has seen. If None, it has seen none.
        schema: the columns of the target, with those that the commit will add.
        file_schema: the columns of its files; see :meth:`of`.
        options: the form of the rows that are read.
    """

    target: Target
    files: Mapping[Unit, Sequence[TargetFile]]
    view: TableView
    before: ValidIdList | None
    schema: pa.Schema
    file_schema: pa.Schema
    options: ReadOptions

    @classmethod
    def of(
        cls,
        target: Target,
        files: Mapping[Unit, Sequence[TargetFile]],
        view: TableView,
        before: ValidIdList | None,
        schema: pa.Schema,
        options: ReadOptions,
    ) -> UnitWriter:
        """Return a writer of files with the columns of the target, and with ROW__ID if the table has it."""
        own = target.file_schema(schema)
        hidden = ROW_ID_FIELDS if view.table.version.has_row_ids else ()
        return cls(target, files, view, before, schema, pa.schema([*own, *hidden]), options)

    def write(self, plan: UnitPlan) -> WrittenUnit:
        """Write the rows that a plan needs to new files, none of which is empty. They are not visible yet.

        Errors of :func:`mutation_api.read.snapshot_reader.read_split` and of the target are passed on.
        """
        files = self.files.get(plan.unit, ())
        if plan.change is UnitChange.REMOVE:
            return WrittenUnit((), files)
        if plan.change is UnitChange.APPEND:
            inserted = (rows for each in self._changes(plan) for rows in each.inserted_rows(None))
            return WrittenUnit(self._written(plan, self._grouped(inserted)), ())
        rewritten = self._rewritten(plan, files) if plan.change is UnitChange.REWRITE else None
        if rewritten is not None:
            return rewritten
        return WrittenUnit(self._written(plan, self._grouped(self._snapshot_rows(plan))), files)

    def _snapshot_rows(self, plan: UnitPlan) -> Iterator[pa.RecordBatch]:
        view, row_ids = self.view, self.view.table.version.has_row_ids
        for split in plan.splits:
            view.check()
            yield from split_rows(
                view.table, split, view.valid_ids, self._columns, self.options, row_ids=row_ids
            )

    def _changes(self, plan: UnitPlan) -> Iterator[SplitChanges]:
        assert self.before is not None
        for split in plan.splits:
            self.view.check()
            yield SplitChanges(
                self.view.table, split, self.before, self.view.valid_ids, self._columns, self.options
            )

    @property
    def _columns(self) -> tuple[AcidColumn, ...]:
        names = self.file_schema.names
        return tuple(column for column in self.view.table.all_columns if column.name in names)

    # ---- files with deleted rows

    def _rewritten(self, plan: UnitPlan, files: Sequence[TargetFile]) -> WrittenUnit | None:
        """Leave deleted rows out of files, and add new rows.

        None if the files do not have exactly the rows that were deleted.
        """
        assert self.before is not None
        (changes,) = self._changes(plan)
        deletes = changes.deletes()
        masks: list[_Mask] = []
        old = deletes and deletes.filter(pa.array(is_visible(deletes.original_txn, self.before)))
        if old:  # other deletes are of rows that the target never had
            for file in files:
                mask = self._remaining(file, old)
                if mask is None:
                    return None
                masks.append(mask)
            if sum(int(np.count_nonzero(~mask)) for mask in masks) != len(old):
                return None
        added, removed = [], []
        for file, mask in zip(files, masks or [np.ones(1, np.bool_)] * len(files), strict=True):
            if not mask.all():
                removed.append(file)
                added += self._written(plan, self._kept_groups(file, mask))
        added += self._written(plan, self._grouped(changes.inserted_rows(deletes)))
        return WrittenUnit(added, removed)

    def _remaining(self, file: TargetFile, deletes: EventKeys) -> _Mask | None:
        """Return a mask of the rows of a file that were not deleted.

        None if the file has other columns than new files, or its rows are not in the order of ROW__IDs.
        """
        with self.target.open_file(file) as stream:
            parquet = pq.ParquetFile(stream)
            if parquet.schema_arrow.names != self.file_schema.names:
                return None
            columns = parquet.read(columns=list(ROW_ID_NAMES), use_threads=False)
        ids, buckets, rows = (columns[name].to_numpy() for name in ROW_ID_NAMES)
        nothing = np.zeros(len(ids), np.int8)
        keys = EventKeys(ids, buckets, rows, ids, nothing, nothing.astype(np.int32))
        if find_disorder(keys) is not None:
            return None
        return is_remaining(keys, deletes, ValidTxnList.everything())

    def _kept_groups(self, file: TargetFile, mask: _Mask) -> Iterator[pa.Table]:
        """Yield the rows of a file for which a mask is true, a row group at a time."""
        with self.target.open_file(file) as stream:
            parquet = pq.ParquetFile(stream)
            start = 0
            for number in range(parquet.num_row_groups):
                group = parquet.read_row_group(number, use_threads=False)
                kept = group.filter(pa.array(mask[start : start + len(group)]))
                start += len(group)
                if len(kept):
                    yield kept.cast(self.file_schema)

    # ---- new files

    def _grouped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield rows of Hive in tables of the size of a row group."""
        names = [name for name in self.file_schema.names if name not in ROW_ID_NAMES]
        own = pa.schema([self.schema.field(name) for name in names])
        waiting: list[pa.RecordBatch] = []
        row_count = byte_count = 0
        for batch in batches:
            rows = self._with_row_ids(exported_batch(batch, own), batch)
            waiting.append(rows)
            row_count, byte_count = row_count + rows.num_rows, byte_count + rows.nbytes
            if row_count >= ROWS_PER_GROUP or byte_count >= BYTES_PER_GROUP:
                yield pa.Table.from_batches(waiting).cast(self.file_schema)
                waiting, row_count, byte_count = [], 0, 0
        if waiting:
            yield pa.Table.from_batches(waiting).cast(self.file_schema)

    def _with_row_ids(self, rows: pa.RecordBatch, source: pa.RecordBatch) -> pa.RecordBatch:
        if ROW_ID_NAMES[0] not in self.file_schema.names:
            return rows
        row_ids = source.column(ROW_ID_COLUMN)
        parts = [row_ids.field(at) for at in range(len(ROW_ID_FIELDS))]
        fields = [*rows.schema, *ROW_ID_FIELDS]
        return pa.RecordBatch.from_arrays([*rows.columns, *parts], schema=pa.schema(fields))

    def _written(self, plan: UnitPlan, groups: Iterator[pa.Table]) -> list[NewFile]:
        """Write tables as row groups to as many files as their size needs."""
        assert plan.partition_name is not None
        values = partition_scalars(self.view.table, plan.partition_name)
        partition = {name: value.cast(self.schema.field(name).type) for name, value in values.items()}
        found: list[NewFile] = []
        first = next(groups, None)
        while first is not None:
            path = self.target.new_path(plan.unit)
            with self.target.create_file(path) as stream:
                with pq.ParquetWriter(stream, self.file_schema, **_settings(first)) as writer:
                    group: pa.Table | None = first
                    while group is not None and stream.tell() < BYTES_PER_FILE:
                        writer.write_table(group, row_group_size=ROWS_PER_GROUP)
                        group = next(groups, None)
                first = group
                size = stream.tell()
            metadata = writer.writer.metadata
            found.append(NewFile(plan.unit, path, metadata.num_rows, size, metadata, partition))
        return found


def _settings(rows: pa.Table) -> dict[str, Any]:
    """Return the settings of a Parquet file that begins with these rows.

    The row ids of ROW__ID ascend in steps, so their differences take hardly any space and time.
    """
    leaves = [leaf for field in rows.schema for leaf in _leaves(field.name, field.type)]
    delta = _ROW_NUMBER in rows.schema.names
    return {
        "use_dictionary": _repeated_columns(rows),
        "column_encoding": {_ROW_NUMBER: "DELTA_BINARY_PACKED"} if delta else None,
        "compression": {leaf: "NONE" if leaf in ROW_ID_NAMES else "SNAPPY" for leaf in leaves},
        "store_schema": False,
        "store_decimal_as_integer": True,
    }


def _repeated_columns(rows: pa.Table) -> list[str]:
    """Return the Parquet columns for which a dictionary is worth its time: whose values often repeat.

    Without this, a dictionary of distinct values is built for each file, and given up when it is full.
    """
    found = []
    sample = rows.slice(0, _SAMPLE_ROWS)
    for name, column in zip(sample.column_names, sample.columns, strict=True):
        if name == _ROW_NUMBER:
            continue
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
