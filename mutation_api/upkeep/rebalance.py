"""The rows of a rebalanced partition: evenly filled files, with new ROW__IDs, and sorted if asked for.

A table without buckets has as many files as the writers of its largest insert, and they may differ in size. A
rebalance spreads the rows evenly. Row ids are counted through all files. The write id of a row stays, so rows
are in the order of their old ROW__IDs. Sorted rows all get the highest write id among them, since a file must
be in the order of its ROW__IDs.

Rows are read twice: once to count them (or to sort their keys), once to write them. Without a sort, memory
holds a stripe of each old file. With one, the keys of all rows and the rows of one new file are in memory,
and the rows of all files are on the local disk in between.

Source: Hive's RebalanceQueryCompactor and CompactionQueryBuilderForRebalance (4.0 to 4.2).
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import CompactionError, ConfigurationError, RecordValueError
from mutation_api.format.event import ROW_ID_COLUMN, bucket_ids, bucket_property
from mutation_api.format.layout import bucket_file_name
from mutation_api.format.plain_array import struct_fields
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.snapshot_reader import read_split, row_id_type
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.upkeep.compacted_files import (
    BATCH_ROWS,
    FORMS,
    CompactedFile,
    FilePlan,
    check_equal,
    write_batches,
)

_RANK = "rank"
_KEY = re.compile(r"`?(\w+)`?(?:\s+(asc|desc))?(?:\s+nulls\s+(?:first|last))?", re.IGNORECASE)


@dataclass(frozen=True)
class SortKey:
    """A column by which rows are sorted. Rows without a value come last."""

    column: str
    descending: bool = False


def parse_sort_by(table: AcidTable, texts: Sequence[str]) -> tuple[SortKey, ...]:
    """Parse names of columns, each with ``desc`` if it is sorted in descending order.

    Raises:
        ConfigurationError: If the table does not have a column, or its values have no order.
    """
    columns = {each.name.lower(): each.type for each in table.columns}
    keys = []
    for text in texts:
        found = _KEY.fullmatch(text.strip())
        if found is None or found[1].lower() not in columns:
            raise ConfigurationError(
                f"table {table.full_name}: sort_by {text!r}: expected one of {', '.join(columns)}, and desc "
                "for a descending order"
            )
        name = found[1].lower()
        if re.match(r"(array|map|struct|uniontype|binary)\b", columns[name], re.IGNORECASE):
            raise ConfigurationError(
                f"table {table.full_name}: sort_by {name}: rows cannot be sorted by {columns[name]}"
            )
        keys.append(SortKey(name, (found[2] or "").lower() == "desc"))
    return tuple(keys)


def parse_order_by(clause: str) -> tuple[str, ...]:
    """Return the keys of the ORDER BY of ``ALTER TABLE … COMPACT 'rebalance'``, for :func:`parse_sort_by`.

    Raises:
        CompactionError: If it contains more than names of columns.
    """
    keys = re.sub(r"^\s*order\s+by\s+", "", clause, flags=re.IGNORECASE).split(",")
    if not all(_KEY.fullmatch(each.strip()) for each in keys):
        raise CompactionError(f"rebalance {clause.strip()!r}: only names of columns are supported there")
    return tuple(each.strip() for each in keys)


@dataclass
class RebalancedRows:
    """The rows of a partition in their new order, with their new ROW__IDs. Use it in a ``with`` block.

    Args:
        table: a table without buckets.
        splits: what a snapshot reads of the partition.
        valid: the ids with which the splits were planned.
        file_count: the number of files to fill.
        sort_by: the keys of the order. If empty, the order of the old ROW__IDs.
    """

    table: AcidTable
    splits: Sequence[SnapshotSplit]
    valid: ValidIdList
    file_count: int
    sort_by: tuple[SortKey, ...] = ()
    _stack: ExitStack = field(default_factory=ExitStack)
    _spilled: dict[TimestampForm, list[Path]] = field(default_factory=dict)

    def __enter__(self) -> RebalancedRows:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the files on the local disk."""
        self._stack.close()

    @cached_property
    def _counts(self) -> tuple[int, int]:
        """The number of rows, and their highest write id."""
        count = highest = 0
        for batch in self._old((), ReadOptions(batch_rows=BATCH_ROWS)):
            count += batch.num_rows
            highest = max(highest, int(_write_ids(batch).max()))
        return count, highest

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self._counts[0]

    @property
    def rows_per_file(self) -> int:
        """The number of rows of each file but the last one."""
        return max(1, -(-self.row_count // self.file_count))

    def batches(self, form: TimestampForm) -> Iterator[pa.RecordBatch]:
        """Yield all rows with timestamps in one form. No batch has rows of two files."""
        rows = self._sorted(form) if self.sort_by else _in_order([self._of(s, form) for s in self.splits])
        start = 0
        for batch in rows:
            while batch.num_rows:
                bucket = start // self.rows_per_file
                part = batch.slice(0, (bucket + 1) * self.rows_per_file - start)
                yield self._with_new_ids(part, start, bucket)
                start += part.num_rows
                batch = batch.slice(part.num_rows)

    def _with_new_ids(self, batch: pa.RecordBatch, start: int, bucket: int) -> pa.RecordBatch:
        count = batch.num_rows
        write_ids = np.full(count, self._counts[1], np.int64) if self.sort_by else _write_ids(batch)
        type_ = row_id_type(self.table.version)
        fields = [
            pa.array(write_ids, type_[0].type),
            pa.array(np.full(count, bucket_property(bucket), np.int32), type_[1].type),
            pa.array(np.arange(start, start + count, dtype=np.int64), type_[2].type),
        ]
        ids = pa.StructArray.from_arrays(fields, fields=list(type_))
        return pa.RecordBatch.from_arrays([ids, *batch.columns[1:]], schema=batch.schema)

    def _of(self, split: SnapshotSplit, form: TimestampForm) -> Iterator[pa.RecordBatch]:
        return read_split(self.table, split, self.valid, None, True, ReadOptions(form, batch_rows=BATCH_ROWS))

    def _old(self, columns: Sequence[str], options: ReadOptions) -> Iterator[pa.RecordBatch]:
        for split in self.splits:
            yield from read_split(self.table, split, self.valid, columns, True, options)

    # ---- sorted rows

    @cached_property
    def _ranks(self) -> NDArray[np.int64]:
        """The place of each row in the new order, in the order in which the splits are read."""
        names = list(dict.fromkeys(each.column for each in self.sort_by))
        options = ReadOptions(TimestampForm.TEXT, batch_rows=BATCH_ROWS)
        keys = pa.Table.from_batches(
            (batch.select(names) for batch in self._old(names, options)),
            schema=None,
        )
        order = pc.sort_indices(
            keys,
            sort_keys=[(k.column, "descending" if k.descending else "ascending") for k in self.sort_by],
        ).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    def _sorted(self, form: TimestampForm) -> Iterator[pa.RecordBatch]:
        if not self.row_count:
            return
        if form not in self._spilled:
            self._spilled[form] = self._spill(form)
        for path in self._spilled[form]:
            with pa.OSFile(str(path), "rb") as stream, pa.ipc.open_stream(stream) as reader:
                rows = reader.read_all().combine_chunks()
            order = np.argsort(rows.column(_RANK).to_numpy())
            rows = rows.drop_columns([_RANK])
            for start in range(0, len(order), BATCH_ROWS):
                part = rows.take(pa.array(order[start : start + BATCH_ROWS])).combine_chunks()
                yield from part.to_batches()

    def _spill(self, form: TimestampForm) -> list[Path]:
        """Write the rows of each new file to a file on the local disk, with their places."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="rebalance-")))
        count = -(-self.row_count // self.rows_per_file)
        paths = [folder / f"{number}.arrow" for number in range(count)]
        writers: dict[int, pa.RecordBatchStreamWriter] = {}
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        start = 0
        with ExitStack() as opened:
            for batch in itertools.chain.from_iterable(self._of(split, form) for split in self.splits):
                ranks = self._ranks[start : start + batch.num_rows]
                start += batch.num_rows
                ranked = batch.append_column(_RANK, pa.array(ranks))
                files = ranks // self.rows_per_file
                for number in np.unique(files).tolist():
                    if number not in writers:
                        sink = opened.enter_context(pa.OSFile(str(paths[number]), "wb"))
                        writer = pa.ipc.new_stream(sink, ranked.schema, options=options)
                        writers[number] = opened.enter_context(writer)
                    writers[number].write_batch(ranked.filter(pa.array(files == number)))
        if start != len(self._ranks):
            raise CompactionError(
                f"table {self.table.full_name}: {len(self._ranks):,} rows were sorted, but {start:,} are "
                "read. No row was changed"
            )
        return paths


def _write_ids(batch: pa.RecordBatch) -> NDArray[np.int64]:
    ids: NDArray[np.int64] = struct_fields(batch.column(ROW_ID_COLUMN))[0].to_numpy()
    return ids


def _in_order(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge splits, each of which is in the order of its ROW__IDs: by write id, then by bucket."""
    heads = [next(stream, None) for stream in streams]
    pending: list[pa.RecordBatch] = []
    while True:
        firsts = [int(_write_ids(head)[0]) for head in heads if head is not None]
        if not firsts:
            break
        lowest = min(firsts)
        for number, stream in enumerate(streams):
            head = heads[number]
            while head is not None and int(_write_ids(head)[0]) == lowest:
                end = int(np.searchsorted(_write_ids(head), lowest, "right"))
                pending.append(head.slice(0, end))
                head = head.slice(end) if end < head.num_rows else next(stream, None)
                if sum(each.num_rows for each in pending) >= BATCH_ROWS:
                    yield from _joined(pending)
                    pending = []
            heads[number] = head
    yield from _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _bucket_of(batch: pa.RecordBatch) -> int:
    properties = struct_fields(batch.column(ROW_ID_COLUMN))[1].to_numpy()
    return int(bucket_ids(properties[:1])[0])


def write_rebalanced(
    rows: RebalancedRows, directory: Location, hidden: Location, options: WriterOptions
) -> list[CompactedFile]:
    """Write all rows to the files of a new base.

    Args:
        rows: the rows.
        directory: the directory in which the files will be published.
        hidden: an existing directory for the unpublished files.
        options: stripe size and compression of the files.

    Raises:
        Errors: See :func:`mutation_api.upkeep.compacted_files.write_compacted`.
    """
    for form in FORMS:
        written: list[CompactedFile] = []
        try:
            groups = itertools.groupby(rows.batches(form), _bucket_of) if rows.row_count else [(0, iter(()))]
            for bucket, batches in groups:
                target = directory / bucket_file_name(bucket)
                file = storage_at(target).stage(hidden / f"{form.value}_{target.name}", target)
                try:
                    facts = write_batches(rows.table, batches, form, file, options)
                    file.close()
                except BaseException:
                    file.discard()
                    raise
                plan = FilePlan(directory, bucket, ())
                written.append(
                    CompactedFile(plan, form, file.staged, target, facts.row_count, facts.byte_count)
                )
        except RecordValueError:
            if form is FORMS[-1]:
                raise
            storage_at(hidden).abandon([each.staged for each in written])
            continue
        return written
    raise AssertionError("the last form returns or raises")


def check_rebalanced(
    rows: RebalancedRows, files: Sequence[CompactedFile], splits: Sequence[SnapshotSplit]
) -> None:
    """Compare published files with the old rows in their new order: number, all columns and ROW__IDs.

    Args:
        rows: the old rows.
        files: the new files.
        splits: what a snapshot reads that sees the rebalance.

    Raises:
        CompactionError: If they differ. The message names the row.
    """
    where = f"table {rows.table.full_name}, {files[0].plan.directory}"
    form = files[0].form
    options = ReadOptions(form, batch_rows=BATCH_ROWS)
    new = (
        batch
        for split in sorted(splits, key=lambda each: each.bucket_id)
        for batch in read_split(rows.table, split, rows.valid, None, True, options)
    )
    count = check_equal(rows.batches(form), new, where)
    if not count == rows.row_count == sum(each.row_count for each in files):
        raise CompactionError(
            f"{where}: {count:,} rows are read instead of {rows.row_count:,}. No row was changed, and the "
            "new files are removed. Let Hive compact the partition, and report this"
        )
