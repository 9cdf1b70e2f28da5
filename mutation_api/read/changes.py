"""The changes of one (partition, bucket) between two snapshots, id by id, from its event files.

A delta holds the rows that an id inserted, a delete delta the ROW__IDs that it deleted. The images of deleted
rows are read from the files of the older snapshot. An update is a delete and an insert: the files do not link
them. Rows that an id inserted and deleted itself are left out.

In the legacy layout of Hive 2, an update keeps the ROW__ID and lies in the delta with its whole new row. So
each update has an image before it and an image after it.

Files that contain only old ids are not opened, unless rows in them were deleted or updated.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore_client.valid_ids import RangeValidity, ValidIdList, ValidTxnList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.event import (
    DELETE,
    INSERT,
    PARTITION_FIELD,
    ROW_ID_COLUMN,
    Operation,
    bucket_ids,
)
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.format.merge_events import EventKeys, concatenate_keys, is_remaining, is_visible
from mutation_api.orc.read.column_reader import ReadOptions, column_type
from mutation_api.orc.read.event_file import EventChunk, EventFile, EventFileKind
from mutation_api.orc.read.event_reader import read_events
from mutation_api.orc.read.file_columns import Wanted
from mutation_api.read.file_merge import merge_files
from mutation_api.read.key_groups import count_events
from mutation_api.read.partition_plan import SnapshotSplit, takes_deletes_of_all_buckets
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.storage.connect import storage_at
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import partition_scalars

UPDATE_BEFORE, UPDATE_AFTER = "update_before", "update_after"

Ids = NDArray[np.int64]
Choice = Callable[[Ids], NDArray[np.bool_]]

_ID_FIELDS = np.dtype([("id", np.int64), ("bucket", np.int64), ("row", np.int64)])


@dataclass(frozen=True)
class RowChanges:
    """Rows that one id inserted, deleted or updated in a split.

    Attributes:
        id: the write id (on Hive 2 the transaction id).
        kind: INSERT or DELETE; in the legacy layout also UPDATE_BEFORE or UPDATE_AFTER.
        rows: ROW__ID, if the table has one, and the requested columns.
    """

    id: int
    kind: str
    rows: pa.RecordBatch


@dataclass(frozen=True)
class ChangedRows:
    """Rows that some ids inserted, deleted or updated in a split.

    Attributes:
        kind: see :class:`RowChanges`.
        ids: the id of each row.
        rows: see :class:`RowChanges`.
    """

    kind: str
    ids: Ids
    rows: pa.RecordBatch

    def by_id(self) -> Iterator[RowChanges]:
        """Yield the rows of each id."""
        found = np.unique(self.ids).tolist()
        for id in found:
            rows = self.rows if len(found) == 1 else self.rows.filter(pa.array(self.ids == id))
            yield RowChanges(id, self.kind, rows)


@dataclass(frozen=True)
class SplitChanges:
    """A reader of the changes of one split.

    Attributes:
        table: the table.
        split: the split, planned for ``after``.
        before: the ids of the older snapshot.
        after: the ids of the newer one.
        columns: the data and partition columns of the rows, in order.
        options: the form of timestamps.
        wiped_by: the id of an overwrite that deleted all rows of ``after``. If None, the rows still exist.
        image_columns: the data columns to read of rows as they were before a change. If None, all.
    """

    table: AcidTable
    split: SnapshotSplit
    before: ValidIdList
    after: ValidIdList
    columns: Sequence[AcidColumn]
    options: ReadOptions = field(default_factory=ReadOptions)
    wiped_by: int | None = None
    image_columns: frozenset[str] | None = None

    @property
    def may_have_changes(self) -> bool:
        """True if the split has files that may hold events which only the newer snapshot sees."""
        return self.wiped_by is not None or any(True for _ in self._new_files())

    def plain_ranges(self) -> list[range]:
        """Return the ids of each file of an insert-only table, whose rows have no ids of their own."""
        if self.table.version.has_row_ids:
            return []
        return [range(file.first, file.last + 1) for file in self._new_files()]

    def counts(self) -> Counter[int]:
        """Return the number of events of each id that only the newer snapshot sees."""
        found: Counter[int] = Counter()
        if self.wiped_by is not None:
            found[self.wiped_by] += count_events(self.split.files)
        scatters_deletes = takes_deletes_of_all_buckets(self.table)
        for file in self._new_files():
            if not self.table.version.has_row_ids or (file.first == file.last and not scatters_deletes):
                found[file.last] += count_events([file])
            else:
                for keys in self._keys(file):
                    new = keys.current_txn[self._is_new(keys.current_txn)]
                    ids, counts = np.unique(new, return_counts=True)
                    found.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
        return +found

    def read(self, ids: Sequence[int] | None = None, *, net: bool = False) -> Iterator[ChangedRows]:
        """Yield the changes of some ids, which only the newer snapshot sees.

        Args:
            ids: the ids; ``before`` has all new ids that precede them, and none of these. If None, all ids
                that only the newer snapshot sees.
            net: True to leave out rows that some of the ids inserted and some deleted. A row that was updated
                in place several times has its first image before, and its last image after.

        Raises:
            Errors: See :func:`mutation_api.read.snapshot_reader.read_split`.
        """
        wiping = (
            () if self.wiped_by is None or not (ids is None or self.wiped_by in ids) else (self.wiped_by,)
        )
        if wiping and net:
            yield from self._wiped(self.before, *wiping)
            return
        yield from self._changed(ids, net=net)
        for by in wiping:
            yield from self._wiped(self.after, by)

    def _changed(self, ids: Sequence[int] | None, *, net: bool) -> Iterator[ChangedRows]:
        """Yield the changes of some ids; see :meth:`read`."""
        if not self.table.version.has_row_ids:
            yield from self._plain_inserts(ids)
            return
        chosen: Choice = self._is_new
        if ids is not None:
            chosen = functools.partial(np.isin, test_elements=np.array(sorted(ids), np.int64))
        if not self.table.version.splits_updates:
            yield from self._changed_in_place(chosen, net=net)
            return
        deletes = self.deletes(chosen)
        if deletes is not None:
            own = chosen(deletes.original_txn)
            yield from self._old_rows(deletes.filter(pa.array(~own)))
            deletes = deletes.filter(pa.array(own))
        for inserted in self._inserted(chosen):
            yield from self._new_rows(inserted, deletes, net=net)

    def inserted_rows(self, deletes: EventKeys | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that only the newer snapshot sees; ``deletes`` is the result of :meth:`deletes`."""
        if not self.table.version.has_row_ids:
            yield from (each.rows for each in self._plain_inserts(None))
            return
        for inserted in self._inserted(self._is_new):
            yield from (each.rows for each in self._new_rows(inserted, deletes, net=True))

    def _new_files(self) -> Iterator[EventFile]:
        """Yield the files that may hold events which only the newer snapshot sees."""
        for file in self.split.files:
            is_event = file.kind in (EventFileKind.DELTA, EventFileKind.DELETE_DELTA)
            is_loaded = file.kind is EventFileKind.ORIGINAL and file.first > 0
            if (is_event or is_loaded) and self._has_new(file.first, file.last):
                yield file

    def _has_new(self, first: int, last: int) -> bool:
        return (
            self.before.range_validity(first, last) is not RangeValidity.ALL
            and self.after.range_validity(first, last) is not RangeValidity.NONE
        )

    def _is_new(self, ids: Ids) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = is_visible(ids, self.after) & ~is_visible(ids, self.before)
        return found

    def _keys(self, file: EventFile) -> Iterator[EventKeys]:
        """Yield the keys of a file's events; of deletes, those of the split's bucket."""
        any_bucket = takes_deletes_of_all_buckets(self.table) and file.kind is EventFileKind.DELETE_DELTA
        wanted = Wanted((), (), ReadOptions(), None, None, True)
        version = self.table.version
        storage = storage_at(file.location)
        for stripe in read_events(storage, file, wanted, version=version, any_bucket=any_bucket):
            keys = stripe.chunk.keys
            if any_bucket and len(keys):
                keys = keys.filter(pa.array(bucket_ids(keys.bucket) == self.split.bucket_id))
            if len(keys):
                yield keys

    def deletes(
        self, chosen: Choice | None = None, files: Iterable[EventFile] | None = None
    ) -> EventKeys | None:
        """Return the delete events of some ids in some files (if None, new ones), ordered and unique."""
        chosen = chosen or self._is_new
        found = [
            keys.filter(pa.array(chosen(keys.current_txn)))
            for file in (self._new_files() if files is None else files)
            if file.kind is EventFileKind.DELETE_DELTA
            for keys in self._keys(file)
        ]
        found = [keys for keys in found if len(keys)]
        if not found:
            return None
        joined = concatenate_keys(found)
        order = np.lexsort((joined.current_txn, joined.row_id, joined.bucket, joined.original_txn))
        joined = joined.take(order)
        packed = _packed(joined)
        is_first = np.ones(len(packed), np.bool_)
        is_first[1:] = packed[1:] != packed[:-1]
        return joined.filter(pa.array(is_first))

    def _wanted(self, sought: EventKeys | None = None, *, images: bool = False) -> Wanted:
        table = self.table
        data = tuple(
            column
            for column in self.columns
            if column.name not in table.partition_key_names and not (images and self._is_left_out(column))
        )
        return Wanted.of(table, data, self.options, row_ids=table.version.has_row_ids, sought=sought)

    def _is_left_out(self, column: AcidColumn) -> bool:
        return self.image_columns is not None and column.name not in self.image_columns

    def _merged(self, files: Sequence[EventFile], valid: ValidIdList, wanted: Wanted) -> Iterator[EventChunk]:
        any_bucket = takes_deletes_of_all_buckets(self.table)
        storage = storage_at(self.split.location)
        return merge_files(storage, files, valid, wanted, self.table.version, any_bucket=any_bucket)

    def _inserted(self, chosen: Choice) -> Iterator[EventChunk]:
        """Yield the rows that some ids inserted, including deleted ones, ordered by ROW__ID."""
        files = [file for file in self._new_files() if file.kind is not EventFileKind.DELETE_DELTA]
        for chunk in self._merged(files, self.after, self._wanted()) if files else ():
            mask = chosen(chunk.keys.original_txn)
            if mask.any():
                yield chunk.filter(mask).complete()

    def _old_rows(self, deletes: EventKeys) -> Iterator[ChangedRows]:
        """Yield the images of rows of the older snapshot. DirectoryStateError if it lacks some of them."""
        if not len(deletes):
            return
        is_missing = np.ones(len(deletes), np.bool_)
        for chunk in self._merged(self.split.files, self.before, self._wanted(deletes, images=True)):
            is_sought, at = _deleted(chunk.keys, deletes)
            if len(at):
                is_missing[at] = False
                rows = self._rows(chunk.filter(is_sought).complete(), images=True)
                yield ChangedRows(DELETE, deletes.current_txn[at], rows)
        if is_missing.any():
            missing = deletes.filter(pa.array(is_missing))
            earlier = self.deletes(lambda ids: is_visible(ids, self.before), self.split.files)
            if lost := int(np.sum(is_remaining(missing, earlier, ValidTxnList.everything()))):
                raise self._missing_images(len(deletes), len(deletes) - lost)

    def _new_rows(
        self, inserted: EventChunk, deletes: EventKeys | None, *, net: bool
    ) -> Iterator[ChangedRows]:
        """Yield rows that ids inserted, and deletes of them by other ids; nothing if one id did both.

        If ``net``, rows that were deleted are left out.
        """
        by = np.full(len(inserted.keys), -1, np.int64)
        if deletes is not None and len(deletes):
            is_deleted, at = _deleted(inserted.keys, deletes)
            by[is_deleted] = deletes.current_txn[at]
        lasting = by < 0 if net else by != inserted.keys.original_txn
        if not lasting.all():
            inserted, by = inserted.filter(lasting), by[lasting]
        if (gone := by >= 0).any():
            yield ChangedRows(DELETE, by[gone], self._rows(inserted.filter(gone), images=True))
        if len(by):
            yield ChangedRows(INSERT, inserted.keys.original_txn, self._rows(inserted))

    def _changed_in_place(self, chosen: Choice, *, net: bool) -> Iterator[ChangedRows]:
        """Yield the changes in the legacy layout: each event has the whole row, and follows an older one.

        If ``net``, yield for each row only the image before its first event, and the row after its last one.
        """
        events = self._legacy_events(chosen)
        if events is None:
            return
        packed = _packed(events.keys)
        is_first, is_last = np.ones(len(packed), np.bool_), np.ones(len(packed), np.bool_)
        is_first[1:] = is_last[:-1] = packed[1:] != packed[:-1]
        had = events.keys.operation != Operation.INSERT
        images = self._images(events.filter(is_first & had).keys)
        if net:
            had, events = had[is_first], events.filter(is_last)
        elif images is not None or had.any():
            # The image before an event is the event before it, or a row of the older snapshot.
            count = 0 if images is None else len(images.keys)
            at = count + np.arange(len(packed)) - 1
            at[is_first & had] = np.arange(count)
            images = _joined([each for each in (images, events) if each is not None]).take(at[had])
        keys = events.keys
        has = keys.operation != Operation.DELETE
        for kind, mask in ((INSERT, ~had & has), (UPDATE_AFTER, had & has)):
            if mask.any():
                yield ChangedRows(kind, keys.current_txn[mask], self._rows(events.filter(mask)))
        if images is not None:
            by, stays = keys.current_txn[had], has[had]
            for kind, mask in ((DELETE, ~stays), (UPDATE_BEFORE, stays)):
                if mask.any():
                    yield ChangedRows(kind, by[mask], self._rows(images.filter(mask), images=True))

    def _legacy_events(self, chosen: Choice) -> EventChunk | None:
        """Return the events of some ids with their rows, ordered by ROW__ID and id."""
        chunks = []
        for file in self._new_files():
            storage = storage_at(file.location)
            for stripe in read_events(storage, file, self._wanted(), version=self.table.version):
                mask = chosen(stripe.chunk.keys.current_txn)
                if mask.any():
                    chunks.append(stripe.chunk.filter(mask).complete())
        if not chunks:
            return None
        joined = _joined(chunks)
        keys = joined.keys
        return joined.take(np.lexsort((keys.current_txn, keys.row_id, keys.bucket, keys.original_txn)))

    def _images(self, sought: EventKeys) -> EventChunk | None:
        """Return rows of the older snapshot by their ROW__IDs, in this order.

        None if there are no ROW__IDs.
        """
        if not len(sought):
            return None
        wanted = _packed(sought)
        found = []
        for chunk in self._merged(self.split.files, self.before, self._wanted(images=True)):
            mask = np.isin(_packed(chunk.keys), wanted)
            if mask.any():
                found.append(chunk.filter(mask).complete())
        images = _joined(found) if found else None
        if images is None or not np.array_equal(_packed(images.keys), wanted):
            raise self._missing_images(len(wanted), 0 if images is None else len(images.keys))
        return images

    def _missing_images(self, count: int, found: int) -> DirectoryStateError:
        return DirectoryStateError(
            f"table {self.table.full_name}, partition {self.split.partition_name or '(none)'}, bucket "
            f"{self.split.bucket_id}: {count} rows were updated or deleted, but the older snapshot has only "
            f"{found} of them. Check the table with hive-mutate verify"
        )

    def _plain_inserts(self, ids: Sequence[int] | None) -> Iterator[ChangedRows]:
        """Yield the rows of an insert-only table, in which only directories have ids."""
        for file in self._new_files():
            if ids is not None and file.last not in ids:
                continue
            for chunk in self._plain_rows([file]):
                if count := len(chunk.keys):
                    by = np.full(count, file.last, np.int64)
                    yield ChangedRows(INSERT, by, self._rows(chunk.complete()))

    def _plain_rows(self, files: Iterable[EventFile], *, images: bool = False) -> Iterator[EventChunk]:
        wanted = self._wanted(images=images)
        for file in files:
            storage = storage_at(file.location)
            for stripe in read_events(storage, file, wanted, version=self.table.version):
                yield stripe.chunk

    def _wiped(self, valid: ValidIdList, by: int) -> Iterator[ChangedRows]:
        """Yield the rows that an overwrite deleted."""
        chunks: Iterable[EventChunk]
        if self.table.version.has_row_ids:
            chunks = self._merged(self.split.files, valid, self._wanted(images=True))
        else:
            chunks = self._plain_rows((f for f in self.split.files if valid.is_valid(f.last)), images=True)
        for chunk in chunks:
            if count := len(chunk.keys):
                rows = self._rows(chunk.complete(), images=True)
                yield ChangedRows(DELETE, np.full(count, by, np.int64), rows)

    def _rows(self, chunk: EventChunk, *, images: bool = False) -> pa.RecordBatch:
        """Return ROW__ID and the columns of events, or of images."""
        table, count = self.table, len(chunk.keys)
        values = partition_scalars(table, self.split.partition_name, self.columns)
        arrays = {}
        for column in self.columns:
            if column.name in values:
                arrays[column.name] = pa.repeat(values[column.name], count)
            elif images and self._is_left_out(column):
                kind = column_type(parse_hive_type(column.type), self.options.timestamp_form)
                arrays[column.name] = pa.nulls(count, kind)
            else:
                arrays[column.name] = chunk.rows[column.name]
        if table.version.has_row_ids:
            keys = chunk.keys
            parts = [pa.array(each) for each in (keys.original_txn, keys.bucket, keys.row_id)]
            kind = full_row_id_type(table)
            if PARTITION_FIELD in [field.name for field in kind]:
                parts.append(pa.repeat(pa.scalar(self.split.partition_name, pa.string()), count))
            arrays = {ROW_ID_COLUMN: pa.StructArray.from_arrays(parts, fields=list(kind)), **arrays}
        return pa.record_batch(arrays)


def _joined(chunks: Sequence[EventChunk]) -> EventChunk:
    """Return complete chunks one after the other."""
    rows = {name: pa.concat_arrays([chunk.rows[name] for chunk in chunks]) for name in chunks[0].rows}
    return EventChunk(concatenate_keys([chunk.keys for chunk in chunks]), rows)


def _deleted(rows: EventKeys, deletes: EventKeys) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return a mask of the rows that are deleted, and the positions of their deletes. Both are sorted."""
    mask = ~is_remaining(rows, deletes, ValidTxnList.everything())
    return mask, np.searchsorted(_packed(deletes), _packed(rows.filter(pa.array(mask))))


def _packed(keys: EventKeys) -> NDArray[np.void]:
    """Return ROW__IDs as values that can be compared and sorted."""
    packed = np.empty(len(keys), _ID_FIELDS)
    packed["id"], packed["bucket"], packed["row"] = keys.original_txn, keys.bucket, keys.row_id
    return packed
