"""Compacted files: the rows or events of a bucket, written again to one file and compared with the old ones.

A major compaction writes the visible rows of a bucket with their ROW__IDs. A minor one writes the visible
events of its deltas, or of its delete deltas, as they are. Both are read and written in the order of ROW__IDs
in batches, so memory holds a stripe of each file.

A written file is not trusted. It is read again and compared with the files that it will replace, event by
event and with every column.

Source: Hive's CompactorMR, MajorQueryCompactor and MinorQueryCompactor (4.0 to 4.2): every event of a base is
    an insert whose ``currentTransaction`` is its ``originalTransaction``; a minor compaction keeps events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import CompactionError, RecordValueError
from mutation_api.format.differences import differs
from mutation_api.format.event import ROW_ID_COLUMN, Operation, RowIdArrays
from mutation_api.format.layout import DELETE_DELTA_PREFIX, bucket_file_name, plain_file_name
from mutation_api.format.plain_array import struct_fields
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.write.event_writer import EventFileFacts, OrcEventWriter
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.snapshot_reader import (
    EVENT_COLUMN,
    read_split,
    read_split_events,
    snapshot_schema,
    with_clocks,
)
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import OutputFile, Staged
from mutation_api.table.acid_table import NO_BLOOM_FILTERS, AcidTable, WriterOptions

BATCH_ROWS = 1 << 16
"""The largest number of rows that are read at once."""
FORMS = (TimestampForm.MICROSECONDS, TimestampForm.TEXT)
"""The forms in which timestamps are read, in the order in which they are tried."""
_ADVICE = "No row was changed, and the new files are removed. Let Hive compact the partition, and report this"


@dataclass(frozen=True)
class FilePlan:
    """The plan of one new file. ``splits`` are what it replaces, which may be nothing.

    If ``is_of_events`` is True, the file holds their events as they are, otherwise the rows that a snapshot
    reads.
    """

    directory: Location
    bucket_id: int
    splits: tuple[SnapshotSplit, ...]
    is_of_events: bool = False


@dataclass(frozen=True)
class CompactedFile:
    """A complete file of a bucket that is not published yet.

    ``form`` is the form in which timestamps were read.
    """

    plan: FilePlan
    form: TimestampForm
    staged: Staged
    target: Location
    row_count: int
    byte_count: int


def write_compacted(
    table: AcidTable, plan: FilePlan, valid: ValidIdList, hidden: Location, options: WriterOptions
) -> CompactedFile:
    """Write the visible rows or events of a bucket to one file.

    Args:
        table: the table.
        plan: the file.
        valid: the ids with which it was planned.
        hidden: an existing directory for the unpublished file.
        options: stripe size and compression of the file.

    Raises:
        CorruptFileError, DirectoryStateError: If a file cannot be read exactly.
        RecordValueError: If a timestamp with digits below microseconds has a year beyond nanoseconds.
        OSError: If the file cannot be written.
    """
    naming = bucket_file_name if table.version.has_row_ids else plain_file_name
    target = plan.directory / naming(plan.bucket_id)
    for form in FORMS:
        staged_name = f"{form.value}_{plan.directory.name}_{target.name}"
        file = storage_at(target).stage(hidden / staged_name, target)
        try:
            batches = _batches(table, plan.splits, valid, form, is_of_events=plan.is_of_events)
            is_of_deletes = plan.directory.name.startswith(DELETE_DELTA_PREFIX)
            facts = write_batches(table, batches, form, file, options, is_of_deletes=is_of_deletes)
            file.close()
        except BaseException as error:
            file.discard()
            if isinstance(error, RecordValueError) and form is not FORMS[-1]:
                continue
            raise
        return CompactedFile(plan, form, file.staged, target, facts.row_count, facts.byte_count)
    raise AssertionError("the last form returns or raises")


def write_batches(
    table: AcidTable,
    batches: Iterable[pa.RecordBatch],
    form: TimestampForm,
    file: OutputFile,
    options: WriterOptions,
    *,
    is_of_deletes: bool = False,
) -> EventFileFacts:
    """Write rows with ROW__IDs, or events, to a file, which stays open.

    Args:
        table: the table.
        batches: the rows or events, in the order of ROW__IDs.
        form: the form of their timestamps.
        file: the file.
        options: stripe size and compression of the file.
        is_of_deletes: True if all of them are deletes.

    Raises:
        RecordValueError: If a timestamp with digits below microseconds has a year beyond nanoseconds.
        OSError: If the file cannot be written.
    """
    options = replace(options, compression=options.compression or table.compression)
    units = snapshot_schema(
        table.version, table.columns, row_ids=False, options=ReadOptions(TimestampForm.MICROSECONDS)
    )
    row_type = pa.struct(list(units))
    bloom = NO_BLOOM_FILTERS if is_of_deletes else table.bloom_filters
    writer = OrcEventWriter(file, row_type, version=table.version, own_id=0, options=options, bloom=bloom)
    for batch in batches:
        for part in [batch] if form is not TimestampForm.TEXT else _with_clocks(table, batch):
            columns = [
                each
                for each, name in zip(part.columns, part.schema.names, strict=True)
                if name in units.names
            ]
            rows = pa.StructArray.from_arrays(columns, names=list(units.names)) if columns else None
            operations, row_ids, current_ids = _event_fields(part)
            writer.write(operations, row_ids, rows, current_ids)
    return writer.finish()


def _event_fields(
    batch: pa.RecordBatch,
) -> tuple[NDArray[np.integer], RowIdArrays, NDArray[np.int64]]:
    """Return operations, ROW__IDs and ``currentTransaction`` of the events to write for rows or events."""
    if EVENT_COLUMN in batch.schema.names:
        fields = (each.to_numpy() for each in struct_fields(batch.column(EVENT_COLUMN)))
        operations, *row_ids, current_ids = fields
        return operations, RowIdArrays(*row_ids), current_ids
    count = batch.num_rows
    inserts = np.full(count, Operation.INSERT, np.int8)
    if ROW_ID_COLUMN not in batch.schema.names:
        nothing = np.zeros(count, np.int64)
        return inserts, RowIdArrays(nothing, nothing, nothing), nothing
    ids = RowIdArrays(*(each.to_numpy() for each in struct_fields(batch.column(ROW_ID_COLUMN))))
    return inserts, ids, ids.original_txns.astype(np.int64)


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


def _batches(
    table: AcidTable,
    splits: Iterable[SnapshotSplit],
    valid: ValidIdList,
    form: TimestampForm,
    *,
    is_of_events: bool,
) -> Iterator[pa.RecordBatch]:
    options = ReadOptions(form, batch_rows=BATCH_ROWS)
    for split in splits:
        if is_of_events:
            yield from read_split_events(table, split, valid, options)
        else:
            yield from read_split(table, split, valid, None, table.version.has_row_ids, options)


def check_compacted(
    table: AcidTable, written: CompactedFile, splits: Sequence[SnapshotSplit], valid: ValidIdList
) -> None:
    """Compare a published file with what it replaces: number, order, ROW__IDs and all columns.

    Events are also compared by operation and ``currentTransaction``.

    Args:
        table: the table.
        written: the file.
        splits: what a snapshot reads in place of the old files that sees the compaction.
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
    plan = written.plan
    count = check_equal(
        _batches(table, plan.splits, valid, written.form, is_of_events=plan.is_of_events),
        _batches(table, splits, valid, written.form, is_of_events=plan.is_of_events),
        where,
    )
    if count != written.row_count:
        raise CompactionError(
            f"{where}: {written.row_count:,} rows were written, but {count:,} are read. {_ADVICE}"
        )


def check_row_ids(
    table: AcidTable, before: Sequence[SnapshotSplit], after: Sequence[SnapshotSplit], valid: ValidIdList
) -> None:
    """Compare the ROW__IDs of all rows that a snapshot reads of a bucket before and after a compaction.

    Raises:
        CompactionError: If they differ. The message names the split and the row.
    """

    def row_ids(splits: Sequence[SnapshotSplit]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            yield from read_split(table, split, valid, (), True, ReadOptions(batch_rows=BATCH_ROWS))

    where = f"table {table.full_name}, {before[0].location}, bucket {before[0].bucket_id}"
    check_equal(row_ids(before), row_ids(after), where)


def check_equal(old: Iterator[pa.RecordBatch], new: Iterator[pa.RecordBatch], where: str) -> int:
    """Return the number of rows on either side, which are equal. Raises CompactionError if they differ."""
    row_count = 0
    for before, after in _in_step(old, new):
        if (difference := _difference(before, after)) is not None:
            raise CompactionError(f"{where}: after {row_count:,} equal rows, {difference}. {_ADVICE}")
        row_count += before.num_rows
    return row_count


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
