"""Compacted files: the rows of a bucket, written again to one file and compared with what they replace.

A major compaction writes the visible rows of a bucket with their ROW__IDs. They are read and written in the
order of their ROW__IDs, in batches, so memory holds a stripe of each file.

A written file is not trusted. It is read again and compared with the files that it will replace, row by row
and with every column.

Source: Hive's CompactorMR and MajorQueryCompactor (4.0 to 4.2): every event of a base is an insert whose
    ``currentTransaction`` is its ``originalTransaction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import CompactionError, RecordValueError
from mutation_api.format.differences import differs
from mutation_api.format.event import Operation, RowIdArrays
from mutation_api.format.layout import bucket_file_name, plain_file_name
from mutation_api.format.plain_array import struct_fields
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.write.event_writer import EventFileFacts, OrcEventWriter
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.snapshot_reader import read_split, snapshot_schema, with_clocks
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile, Staged
from mutation_api.table.acid_table import AcidTable, WriterOptions

__all__ = ["CompactedFile", "check_compacted", "write_compacted"]

_BATCH_ROWS = 1 << 16
_FORMS = (TimestampForm.MICROSECONDS, TimestampForm.TEXT)
_ADVICE = "No row was changed, and the new files are removed. Let Hive compact the partition, and report this"


@dataclass(frozen=True)
class CompactedFile:
    """A complete file of a bucket that is not published yet. ``splits`` are what it replaces.

    ``form`` is the form in which timestamps were read.
    """

    bucket_id: int
    splits: tuple[SnapshotSplit, ...]
    form: TimestampForm
    staged: Staged
    target: Location
    row_count: int
    byte_count: int


def write_compacted(
    table: AcidTable,
    bucket_id: int,
    splits: Sequence[SnapshotSplit],
    valid: ValidIdList,
    directory: Location,
    hidden: Location,
    options: WriterOptions,
) -> CompactedFile:
    """Write the visible rows of a bucket to one file.

    Args:
        table: the table.
        bucket_id: the bucket.
        splits: what a snapshot reads of the bucket; may be empty.
        valid: the ids of that snapshot.
        directory: the directory in which the file will be published.
        hidden: an existing directory for the unpublished file.
        options: stripe size and compression of the file.

    Raises:
        CorruptFileError, DirectoryStateError: If a file cannot be read exactly.
        RecordValueError: If a timestamp with digits below microseconds has a year beyond nanoseconds.
        OSError: If the file cannot be written.
    """
    name = bucket_file_name(bucket_id) if table.version.has_row_ids else plain_file_name(bucket_id)
    for form in _FORMS:
        file = storage_at(directory).stage(hidden / f"{form.value}_{name}", directory / name)
        try:
            facts = _written(table, splits, valid, form, file, options)
            file.close()
        except BaseException as error:
            file.discard()
            if isinstance(error, RecordValueError) and form is not _FORMS[-1]:
                continue
            raise
        return CompactedFile(
            bucket_id,
            tuple(splits),
            form,
            file.staged,
            directory / name,
            facts.row_count,
            facts.byte_count,
        )
    raise AssertionError("the last form returns or raises")


def _written(
    table: AcidTable,
    splits: Sequence[SnapshotSplit],
    valid: ValidIdList,
    form: TimestampForm,
    file: OutputFile,
    options: WriterOptions,
) -> EventFileFacts:
    has_row_ids = table.version.has_row_ids
    options = replace(options, compression=options.compression or table.compression)
    units = snapshot_schema(
        table.version, table.columns, row_ids=False, options=ReadOptions(TimestampForm.MICROSECONDS)
    )
    row_type = pa.struct(list(units))
    writer = OrcEventWriter(file, row_type, version=table.version, own_id=0, options=options)
    for batch in _rows(table, splits, valid, form):
        for part in [batch] if form is not TimestampForm.TEXT else _with_clocks(table, batch):
            columns = part.columns[1:] if has_row_ids else part.columns
            rows = pa.StructArray.from_arrays(columns, names=list(units.names))
            row_ids = _row_ids(part) if has_row_ids else _no_row_ids(len(rows))
            inserts = np.full(len(rows), Operation.INSERT, np.int8)
            writer.write(inserts, row_ids, rows, row_ids.original_txns.astype(np.int64))
    return writer.finish()


def _with_clocks(table: AcidTable, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows with timestamps, in parts whose columns need a single unit."""
    try:
        yield with_clocks(table, batch)
    except RecordValueError:
        half = batch.num_rows // 2
        if not half:
            raise
        yield from _with_clocks(table, batch.slice(0, half))
        yield from _with_clocks(table, batch.slice(half))


def _row_ids(batch: pa.RecordBatch) -> RowIdArrays:
    return RowIdArrays(*(part.to_numpy() for part in struct_fields(batch.column(0))))


def _no_row_ids(count: int) -> RowIdArrays:
    nothing = np.zeros(count, np.int64)
    return RowIdArrays(nothing, nothing, nothing)


def _rows(
    table: AcidTable, splits: Iterable[SnapshotSplit], valid: ValidIdList, form: TimestampForm
) -> Iterator[pa.RecordBatch]:
    options = ReadOptions(form, batch_rows=_BATCH_ROWS)
    for split in splits:
        yield from read_split(table, split, valid, None, table.version.has_row_ids, options)


def check_compacted(
    table: AcidTable, written: CompactedFile, splits: Sequence[SnapshotSplit], valid: ValidIdList
) -> None:
    """Compare a published file with what it replaces: number, order, ROW__IDs and all columns of the rows.

    Args:
        table: the table.
        written: the file.
        splits: what a snapshot reads of the bucket that sees the compaction.
        valid: the ids with which the file was written.

    Raises:
        CompactionError: If they differ. The message names bucket and row.
    """
    where = f"table {table.full_name}, {written.target}"
    found = [file.location for split in splits for file in split.files]
    if found != [written.target] and (found or written.row_count):
        raise CompactionError(
            f"{where}: a snapshot that sees the compaction would read "
            f"{', '.join(map(str, found)) or 'nothing'} instead. {_ADVICE}"
        )
    old = _rows(table, written.splits, valid, written.form)
    new = _rows(table, splits, valid, written.form)
    row_count = 0
    for before, after in _in_step(old, new):
        if (difference := _difference(before, after)) is not None:
            raise CompactionError(f"{where}: after {row_count:,} equal rows, {difference}. {_ADVICE}")
        row_count += before.num_rows
    if row_count != written.row_count:
        raise CompactionError(
            f"{where}: {written.row_count:,} rows were written, but {row_count:,} are read. {_ADVICE}"
        )


def _in_step(
    old: Iterator[pa.RecordBatch], new: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield slices of both sides with equally many rows. The rest of a longer side is paired with no rows."""
    before, after = next(old, None), next(new, None)
    while before is not None and after is not None:
        count = min(before.num_rows, after.num_rows)
        yield before.slice(0, count), after.slice(0, count)
        before = before.slice(count) if count < before.num_rows else next(old, None)
        after = after.slice(count) if count < after.num_rows else next(new, None)
    if before is not None:
        yield before, before.slice(0, 0)
    if after is not None:
        yield after.slice(0, 0), after


def _difference(before: pa.RecordBatch, after: pa.RecordBatch) -> str | None:
    """Return the first difference between equally many rows. None if there is none."""
    if before.num_rows != after.num_rows:
        return "the new file ends" if before.num_rows else "the new file has further rows"
    if before.schema != after.schema:
        return f"the new file has the columns {after.schema}"
    for name, old, new in zip(before.schema.names, before.columns, after.columns, strict=True):
        if old.equals(new):
            continue
        for at in np.flatnonzero(differs(old, new))[:1].tolist():  # NaN equals NaN
            row = {each: before.column(each)[at] for each in before.schema.names[:1]}
            return f"column {name} is {new[at]} instead of {old[at]} in the row with {row}"
    return None
