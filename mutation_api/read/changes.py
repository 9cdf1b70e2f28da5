"""The changes of one (partition, bucket) between two snapshots, id by id, from its event files.

A delta holds the rows that an id inserted, a delete delta the ROW__IDs that it deleted. The images of deleted
rows are read from the files of the older snapshot. An update is a delete and an insert: the files do not link
them. Rows that an id inserted and deleted itself are left out.

In the legacy layout of Hive 2, an update keeps the ROW__ID and lies in the delta with its whole new row. So
each update has its image before it, and its image after it.

Files all of whose ids are old are not opened, unless rows in them were deleted or updated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from mutation_api.format.merge_events import EventKeys, concatenate_keys, is_remaining, is_visible
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_file import EventChunk, EventFile, EventFileKind
from mutation_api.orc.read.event_reader import read_events
from mutation_api.orc.read.file_columns import Wanted
from mutation_api.read.file_merge import merge_files
from mutation_api.read.partition_plan import SnapshotSplit, takes_deletes_of_all_buckets
from mutation_api.read.snapshot_reader import full_row_id_type
from mutation_api.storage.connect import storage_at
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.partition import partition_scalars

__all__ = ["UPDATE_AFTER", "UPDATE_BEFORE", "RowChanges", "SplitChanges"]

UPDATE_BEFORE, UPDATE_AFTER = "update_before", "update_after"

Ids = NDArray[np.int64]

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
class SplitChanges:
    """A reader of the changes of one split.

    Attributes:
        table: the table.
        split: the split, planned for ``after``.
        before: the ids of the older snapshot.
        after: the ids of the newer one.
        columns: the data and partition columns of the rows, in order.
    """

    table: AcidTable
    split: SnapshotSplit
    before: ValidIdList
    after: ValidIdList
    columns: Sequence[AcidColumn]

    def counts(self) -> Counter[int]:
        """Return the number of events of each id that only the newer snapshot sees."""
        found: Counter[int] = Counter()
        for file in self._new_files():
            if not self.table.version.has_row_ids:
                found[file.last] += 1
                continue
            for keys in self._keys(file):
                new = keys.current_txn[self._is_new(keys.current_txn)]
                ids, counts = np.unique(new, return_counts=True)
                found.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
        return found

    def read(self, ids: Sequence[int]) -> Iterator[RowChanges]:
        """Yield the changes of some ids, which only the newer snapshot sees.

        Args:
            ids: the ids; ``before`` has all new ids that precede them, and none of these.

        Raises:
            Errors: See :func:`mutation_api.read.snapshot_reader.read_split`.
        """
        wanted = np.array(sorted(ids), np.int64)
        if not self.table.version.has_row_ids:
            yield from self._plain_inserts(wanted)
            return
        if not self.table.version.splits_updates:
            yield from self._changed_in_place(wanted)
            return
        inserted = self._inserted(wanted)
        deletes = self._deletes(wanted)
        if deletes is not None:
            own = np.isin(deletes.original_txn, wanted)
            yield from self._old_rows(deletes.filter(pa.array(~own)))
            deletes = deletes.filter(pa.array(own))
        if inserted is not None:
            yield from self._new_rows(inserted, deletes)

    # ---- events

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

    def _deletes(self, ids: Ids) -> EventKeys | None:
        """Return the delete events of some ids, each row once, ordered by ROW__ID."""
        found = [
            keys.filter(pa.array(np.isin(keys.current_txn, ids)))
            for file in self._new_files()
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

    def _wanted(self, sought: EventKeys | None) -> Wanted:
        keys = self.table.partition_key_names
        data = tuple(column for column in self.columns if column.name not in keys)
        table = self.table
        return Wanted(
            table.columns,
            data,
            ReadOptions(prints_shortest_numbers=table.prints_shortest_numbers),
            None,
            None,
            table.version.has_row_ids,
            table.full_name,
            table.matches_columns_by_position,
            sought,
        )

    def _merged(
        self, files: Sequence[EventFile], valid: ValidIdList, sought: EventKeys | None = None
    ) -> Iterator[EventChunk]:
        any_bucket = takes_deletes_of_all_buckets(self.table)
        storage = storage_at(self.split.location)
        return merge_files(
            storage, files, valid, self._wanted(sought), self.table.version, any_bucket=any_bucket
        )

    def _inserted(self, ids: Ids) -> EventChunk | None:
        """Return the rows that some ids inserted, whether deleted since or not, ordered by ROW__ID."""
        files = [file for file in self._new_files() if file.kind is not EventFileKind.DELETE_DELTA]
        chunks = []
        for chunk in self._merged(files, self.after) if files else ():
            mask = np.isin(chunk.keys.original_txn, ids)
            if mask.any():
                chunks.append(chunk.filter(mask).complete())
        return _joined(chunks) if chunks else None

    # ---- changes

    def _old_rows(self, deletes: EventKeys) -> Iterator[RowChanges]:
        """Yield the images of rows of the older snapshot, by the id that deleted them."""
        if not len(deletes):
            return
        for chunk in self._merged(self.split.files, self.before, deletes):
            is_sought, by = _deleted(chunk.keys, deletes)
            if len(by):
                yield from self._by_id(DELETE, chunk.filter(is_sought).complete(), by)

    def _new_rows(self, inserted: EventChunk, deletes: EventKeys | None) -> Iterator[RowChanges]:
        """Yield what ids inserted, and deletes of such rows by other ids; nothing if an id did both."""
        by = np.full(len(inserted.keys), -1, np.int64)
        if deletes is not None and len(deletes):
            is_deleted, found = _deleted(inserted.keys, deletes)
            by[is_deleted] = found
        lasting = by != inserted.keys.original_txn
        if not lasting.all():
            inserted, by = inserted.filter(lasting), by[lasting]
        if (gone := by >= 0).any():
            yield from self._by_id(DELETE, inserted.filter(gone), by[gone])
        yield from self._by_id(INSERT, inserted, inserted.keys.original_txn)

    def _changed_in_place(self, ids: Ids) -> Iterator[RowChanges]:
        """Yield the changes in the legacy layout: each event has its row, and follows on an older one."""
        events = self._legacy_events(ids)
        if events is None:
            return
        keys, packed = events.keys, _packed(events.keys)
        is_first = np.ones(len(packed), np.bool_)
        is_first[1:] = packed[1:] != packed[:-1]
        follows = keys.operation != Operation.INSERT
        old = self._images(events.filter(is_first & follows).keys)
        images = [*([old] if old is not None else []), events]
        at = np.arange(len(packed)) - 1 + (0 if old is None else len(old.keys))
        at[is_first & follows] = np.arange(np.count_nonzero(is_first & follows))
        before = _joined(images).take(at[follows]) if follows.any() else None
        is_update = keys.operation == Operation.UPDATE
        yield from self._by_id(INSERT, events.filter(~follows), keys.current_txn[~follows])
        if before is not None:
            gone = keys.operation[follows] == Operation.DELETE
            by = keys.current_txn[follows]
            yield from self._by_id(DELETE, before.filter(gone), by[gone])
            yield from self._by_id(UPDATE_BEFORE, before.filter(~gone), by[~gone])
            yield from self._by_id(UPDATE_AFTER, events.filter(is_update), keys.current_txn[is_update])

    def _legacy_events(self, ids: Ids) -> EventChunk | None:
        """Return the events of some ids with their rows, ordered by ROW__ID and id."""
        chunks = []
        for file in self._new_files():
            storage = storage_at(file.location)
            for stripe in read_events(storage, file, self._wanted(None), version=self.table.version):
                mask = np.isin(stripe.chunk.keys.current_txn, ids)
                if mask.any():
                    chunks.append(stripe.chunk.filter(mask).complete())
        if not chunks:
            return None
        joined = _joined(chunks)
        keys = joined.keys
        return joined.take(np.lexsort((keys.current_txn, keys.row_id, keys.bucket, keys.original_txn)))

    def _images(self, sought: EventKeys) -> EventChunk | None:
        """Return rows of the older snapshot by their ROW__IDs, in this order. None if none is sought."""
        if not len(sought):
            return None
        wanted = _packed(sought)
        found = []
        for chunk in self._merged(self.split.files, self.before):
            mask = np.isin(_packed(chunk.keys), wanted)
            if mask.any():
                found.append(chunk.filter(mask).complete())
        images = _joined(found) if found else None
        if images is None or not np.array_equal(_packed(images.keys), wanted):
            raise DirectoryStateError(
                f"table {self.table.full_name}, partition {self.split.partition_name or '(none)'}, bucket "
                f"{self.split.bucket_id}: {len(wanted)} rows were updated or deleted, but the older snapshot "
                f"has only {0 if images is None else len(images.keys)} of them. Let hive-mutate verify "
                "examine the table"
            )
        return images

    def _by_id(self, kind: str, chunk: EventChunk, ids: Ids) -> Iterator[RowChanges]:
        for id in np.unique(ids).tolist():
            part = chunk.filter(ids == id)
            if len(part.keys):
                yield RowChanges(id, kind, self._rows(part))

    def _plain_inserts(self, ids: Ids) -> Iterator[RowChanges]:
        """Yield the rows of an insert-only table, whose directories alone have ids."""
        for file in self._new_files():
            if file.last not in ids:
                continue
            storage = storage_at(file.location)
            for stripe in read_events(storage, file, self._wanted(None), version=self.table.version):
                if len(stripe.chunk.keys):
                    yield RowChanges(file.last, INSERT, self._rows(stripe.chunk.complete()))

    def _rows(self, chunk: EventChunk) -> pa.RecordBatch:
        """Return ROW__ID and the columns of events."""
        table, count = self.table, len(chunk.keys)
        values = partition_scalars(table, self.split.partition_name, self.columns)
        arrays = {
            c.name: pa.repeat(values[c.name], count) if c.name in values else chunk.rows[c.name]
            for c in self.columns
        }
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


def _deleted(rows: EventKeys, deletes: EventKeys) -> tuple[NDArray[np.bool_], Ids]:
    """Return a mask of the rows that are deleted, and the ids that deleted these. Both sides are sorted."""
    mask = ~is_remaining(rows, deletes, ValidTxnList.everything())
    at = np.searchsorted(_packed(deletes), _packed(rows.filter(pa.array(mask))))
    return mask, deletes.current_txn[at]


def _packed(keys: EventKeys) -> NDArray[np.void]:
    """Return ROW__IDs as values that can be compared and sorted."""
    packed = np.empty(len(keys), _ID_FIELDS)
    packed["id"], packed["bucket"], packed["row"] = keys.original_txn, keys.bucket, keys.row_id
    return packed
