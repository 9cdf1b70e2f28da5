"""Read a snapshot of a table: the visible rows of each (partition, bucket) with their ROW__ID.

:func:`plan_splits` lists a partition once and says which files make up each bucket; :func:`read_split` merges
them. The two may run in different processes, so a split is a small value with a text form. Insert-only tables
have neither events nor ROW__IDs: each of their files is a split.

The merge keeps one stripe of each file in memory at most. Files are sorted by ROW__ID, so all rows up to the
smallest key at which some file's stripe in memory ends are decided by what is in memory.

Where Hive would lose or double rows in silence, or its two readers disagree, this reader refuses: delta
buckets beyond the table's bucket count, original files whose rows events would hit twice, deletes older than
their rows.

Source: Hive's OrcInputFormat (split generation), OrcRawRecordMerger and VectorizedOrcAcidRowBatchReader (2.3,
3.1, 4.x).
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.acid.merge_events import (
    concatenate_keys,
    count_up_to,
    find_early_delete,
    merge_legacy,
    merge_split,
)
from mutation_api.acid.row_id import ROW_ID_COLUMN, RecordIdentifier
from mutation_api.acid.version import AcidVersion
from mutation_api.bucketing.placement import Placement
from mutation_api.errors import DirectoryStateError, RecordLayoutError
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm, column_type
from mutation_api.orc.read.event_reader import (
    EventChunk,
    EventFile,
    EventFileKind,
    StripeEvents,
    Wanted,
    read_events,
)
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.orc.read.partition_files import list_partition_files
from mutation_api.storage.connect import reading_threads, storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.storage.tree import Directories
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.types.hive_type import parse_hive_type

__all__ = [
    "SnapshotSplit",
    "plan_splits",
    "read_split",
    "row_id_type",
    "select_columns",
    "snapshot_schema",
]

_ROW_ID_TYPES = {
    version: pa.struct(
        [(version.transaction_field, pa.int64()), ("bucketid", pa.int32()), ("rowid", pa.int64())]
    )
    for version in AcidVersion
}
_LOWEST = RecordIdentifier(-(2**63), -(2**31), -(2**63))
_HIGHEST = RecordIdentifier(2**63 - 1, 2**31 - 1, 2**63 - 1)


@dataclass(frozen=True)
class SnapshotSplit:
    """The files of one (partition, bucket) that one reader merges.

    ``partition_name`` is the escaped name, '' for an unpartitioned table; ``bucket_id`` is -1 for plain files
    whose name tells no bucket.
    """

    partition_name: str
    location: Location
    bucket_id: int
    files: tuple[EventFile, ...]

    @property
    def byte_count(self) -> int:
        """Of its files."""
        return sum(file.byte_count for file in self.files)

    def is_of_bucket(self, num_buckets: int) -> bool:
        """Whether the split should hold rows of one of the table's buckets, and no others.

        Plain files may hold anything: they were loaded, or written before the table was transactional. So may
        a bucket that the table does not have any more.
        """
        has_plain_files = any(file.kind is EventFileKind.ORIGINAL for file in self.files)
        return 0 <= self.bucket_id < num_buckets and not has_plain_files

    def to_json(self) -> str:
        """One line of JSON."""
        value = {
            "partition_name": self.partition_name,
            "location": str(self.location),
            "bucket_id": self.bucket_id,
            "files": [_file_to_json(file, self.location) for file in self.files],
        }
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SnapshotSplit:
        """Inverse of :meth:`to_json`. Raises DirectoryStateError, naming the text."""
        try:
            value = json.loads(text)
            location = Location.parse(value.pop("location"))
            files = tuple(_file_from_json(each, location) for each in value.pop("files"))
            return cls(**value, location=location, files=files)
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            raise DirectoryStateError(f"not a snapshot split: {text[:200]!r} ({error})") from error


def _file_to_json(file: EventFile, root: Location) -> dict[str, object]:
    """Named within its partition: many files of a long location would be a long text."""
    name = file.location.relative_to(root)
    ids = [file.first, file.last, file.statement_id]
    return {
        "name": name,
        "kind": file.kind.value,
        "bucket_id": file.bucket_id,
        "ids": ids,
        "length": file.length,
        "bytes": file.byte_count,
    }


def _file_from_json(value: Mapping[str, Any], root: Location) -> EventFile:
    first, last, statement_id = value["ids"]
    kind = EventFileKind(value["kind"])
    return EventFile(
        root / value["name"],
        kind,
        value["bucket_id"],
        first,
        last,
        statement_id,
        value["length"],
        value["bytes"],
    )


def plan_splits(
    table: AcidTable,
    partition_name: str,
    location: Location,
    valid: ValidIdList,
    valid_txns: ValidTxnList | None = None,
    directories: Directories | None = None,
) -> list[SnapshotSplit]:
    """What a snapshot reads of one partition: one split per bucket that has anything, by bucket id.

    Lists directories only; no file is opened but side files.

    Args:
        table: its version and bucket count decide.
        partition_name: escaped name, '' for an unpartitioned table.
        location: the partition's location; a missing directory is a partition without rows.
        valid: the ids the snapshot sees: the table's write ids, in v1 transactions.
        valid_txns: the transactions it sees; needed with Hive 4, whose compactions name theirs.
        directories: what lists them; None for the storage itself.

    Raises:
        DirectoryStateError: the directory holds what Hive fails on, or would lose or double rows of.
    """
    directories = directories or storage_at(location)
    files = list_partition_files(directories, table, location, valid, valid_txns)
    if not table.version.has_row_ids:
        return [SnapshotSplit(partition_name, location, f.bucket_id, (f,)) for f in files]
    buckets: dict[int, list[EventFile]] = defaultdict(list)
    for file in files:
        buckets[file.bucket_id].append(file)
    if _may_find_deletes_anywhere(table):
        deletes = [f for f in files if f.kind is EventFileKind.DELETE_DELTA]
        for bucket_id, found in buckets.items():
            found += [f for f in deletes if f.bucket_id != bucket_id]
    for bucket_id, found in buckets.items():
        _check_bucket(table, location, bucket_id, found)
    return [
        SnapshotSplit(partition_name, location, bucket_id, group)
        for bucket_id, found in sorted(buckets.items())
        for group in _groups(found, table.version)
    ]


def row_id_type(version: AcidVersion) -> pa.StructType:
    """Arrow type of ROW__ID; the names are Hive's, in lower case."""
    return _ROW_ID_TYPES[version]


def select_columns(table: AcidTable, columns: Sequence[str] | None) -> tuple[AcidColumn, ...]:
    """The data columns of these names (any case), in the order asked for; all of them for None.

    Raises:
        RecordLayoutError: the table has no such column, or it is asked for twice.
    """
    if columns is None:
        return table.columns
    by_name = {c.name: c for c in table.columns}
    names = [name.lower() for name in columns]
    unknown = [name for name in names if name not in by_name]
    if unknown or len(set(names)) < len(names):
        raise RecordLayoutError(
            f"table {table.full_name}: columns {unknown or names} cannot be read: each must exist and be "
            f"named once; data columns: {', '.join(table.column_names)}"
        )
    return tuple(by_name[name] for name in names)


def snapshot_schema(
    version: AcidVersion,
    columns: Sequence[AcidColumn],
    *,
    row_ids: bool = True,
    options: ReadOptions | None = None,
) -> pa.Schema:
    """Schema of the batches of :func:`read_split`."""
    form = (options or ReadOptions()).timestamp_form
    return _snapshot_schema(version, tuple(columns), row_ids, form)


@functools.lru_cache
def _snapshot_schema(
    version: AcidVersion, columns: tuple[AcidColumn, ...], row_ids: bool, form: TimestampForm
) -> pa.Schema:
    # Kept: parsing types for each of many small groups took a seventh of the time of reading them.
    fields = [pa.field(c.name, column_type(parse_hive_type(c.type), form)) for c in columns]
    return pa.schema(([pa.field(ROW_ID_COLUMN, row_id_type(version))] if row_ids else []) + fields)


def read_split(
    table: AcidTable,
    split: SnapshotSplit,
    valid: ValidIdList,
    columns: Sequence[str] | None = None,
    row_ids: bool = True,
    options: ReadOptions | None = None,
    only: KeyFilter | None = None,
    *,
    checks_placement: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The visible rows of a split, ordered by ROW__ID.

    Args:
        table: the table the split was planned for.
        split: what to read.
        valid: the same list that planned the split.
        columns: names of data columns, any case; None for all, () for none (then ``row_ids`` must be true).
        row_ids: whether the first column is ``ROW__ID``; insert-only tables have none.
        options: form of timestamps and size of batches.
        only: give only rows with these keys. Its columns are data columns, in lower case; they need not be
            among ``columns``. The other columns are read of those stripes only that hold such a row.
        checks_placement: refuse rows that do not lie in the bucket which their key hashes to, also among
            those that are read and not given; only if ``only`` has the bucket columns.

    Yields:
        Batches of ``snapshot_schema(…)``, of at most ``options.batch_rows`` rows, none empty.

    Raises:
        RecordLayoutError: a column the table does not have, nothing to read, ROW__IDs of an insert-only
            table, or keys of another type than the column's.
        CorruptFileError: a file is damaged, not an ACID file, unsorted, or of types that do not fit.
        DirectoryStateError: a file is gone, or holds events it must not hold, or misplaced rows.
        RecordValueError: a timestamp does not fit the form asked for.
    """
    version = table.version
    selected = select_columns(table, columns)
    if row_ids and not version.has_row_ids:
        raise RecordLayoutError(
            f"table {table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}: leave it "
            "out (row_ids=False)"
        )
    if not selected and not row_ids:
        raise RecordLayoutError(f"table {table.full_name}: nothing to read: neither columns nor ROW__ID")
    options = options or ReadOptions()
    if only is not None:
        _check_keys(table, only, options)
    placement = Placement(table, split.partition_name, split.bucket_id) if checks_placement else None
    wanted = Wanted(table.columns, selected, options, only, placement)
    schema = snapshot_schema(version, selected, row_ids=row_ids, options=options)
    for rows in _rows(table, split, valid, wanted):
        yield from _batches(rows, schema, row_ids=row_ids, batch_rows=options.batch_rows)


def _check_keys(table: AcidTable, only: KeyFilter, options: ReadOptions) -> None:
    columns = select_columns(table, only.names)
    for column, given in zip(columns, only.keys.schema, strict=True):
        expected = column_type(parse_hive_type(column.type), options.timestamp_form)
        if given.name != column.name or given.type != expected:
            raise RecordLayoutError(
                f"table {table.full_name}: keys {given.name} {given.type} do not fit column {column.name} "
                f"{column.type}: give them as {expected}"
            )


def _rows(table: AcidTable, split: SnapshotSplit, valid: ValidIdList, wanted: Wanted) -> Iterator[EventChunk]:
    storage = storage_at(split.location)
    version = table.version
    if not version.has_row_ids:
        for file in split.files:
            for stripe in read_events(storage, file, wanted, version=version):
                if len(stripe.chunk.keys):
                    yield stripe.chunk.complete()
        return
    any_bucket = _may_find_deletes_anywhere(table)
    sources = [
        _Source(files, _read_in_turn(storage, files, wanted, version, any_bucket), version)
        for files in _sequences(split.files, version)
    ]
    for pieces in _rounds(sources, reading_threads(storage)):
        yield from _merge(pieces, valid, version)


def _may_find_deletes_anywhere(table: AcidTable) -> bool:
    return table.version.scatters_deletes and not table.is_bucketed


def _sequences(files: Sequence[EventFile], version: AcidVersion) -> list[list[EventFile]]:
    """Files whose rows are numbered one after the other, in that order; others are each alone."""
    sequences: list[list[EventFile]] = []
    for file in files:
        last = sequences[-1][-1] if sequences else None
        if version.numbers_files_through and last is not None and _continues(last, file):
            sequences[-1].append(file)
        else:
            sequences.append([file])
    return sequences


def _continues(last: EventFile, file: EventFile) -> bool:
    is_plain = last.kind is file.kind is EventFileKind.ORIGINAL
    return is_plain and (last.last, last.statement_id) == (file.last, file.statement_id)


def _read_in_turn(
    storage: Storage, files: Sequence[EventFile], wanted: Wanted, version: AcidVersion, any_bucket: bool
) -> Iterator[StripeEvents]:
    first_row = 0
    for file in files:
        scattered = any_bucket and file.kind is EventFileKind.DELETE_DELTA
        for stripe in read_events(
            storage, file, wanted, version=version, any_bucket=scattered, first_row=first_row
        ):
            first_row += stripe.row_count
            yield stripe if file is files[-1] else dataclasses.replace(stripe, is_last=False)


def _check_bucket(table: AcidTable, location: Location, bucket_id: int, files: Sequence[EventFile]) -> None:
    originals = [f for f in files if f.kind is EventFileKind.ORIGINAL]
    has_base = bool(originals) or any(f.kind is EventFileKind.BASE for f in files)
    events = [f for f in files if f.kind in (EventFileKind.DELTA, EventFileKind.DELETE_DELTA)]
    if events and bucket_id >= table.num_buckets and not has_base and not table.version.splits_updates:
        raise DirectoryStateError(
            f"table {table.full_name}: {events[0].location} belongs to bucket {bucket_id}, but the table has "
            f"{table.num_buckets} buckets, so Hive 2.3 never reads it; its rows would be lost in silence"
        )
    merged = [f for f in events if f.kind is EventFileKind.DELETE_DELTA or not table.version.splits_updates]
    if not merged or table.version.numbers_files_through:
        return
    misplaced = [f for f in originals if f.location.parent != location]
    if misplaced or len(originals) > 1:
        raise DirectoryStateError(
            f"table {table.full_name}: {(misplaced or originals[1:])[0].location} is one of {len(originals)} "
            f"original file(s) of bucket {bucket_id}, and {merged[0].location} has events for that bucket; "
            "Hive 2.3 doubles or loses rows of several such files or of files in subdirectories: "
            "let Hive compact the table before it is changed"
        )


def _groups(files: Sequence[EventFile], version: AcidVersion) -> Iterator[tuple[EventFile, ...]]:
    """Files to merge with each other.

    If several original files of one bucket repeat each other's identities, each is read alone;
    :func:`_check_bucket` saw that no event is for them.
    """
    originals = [f for f in files if f.kind is EventFileKind.ORIGINAL]
    alone = originals if len(originals) > 1 and not version.numbers_files_through else []
    yield from ((f,) for f in alone)
    rest = tuple(f for f in files if f not in alone)
    if any(f.kind is not EventFileKind.DELETE_DELTA for f in rest):
        yield rest


class _Source:
    """One file (or several in turn) in a merge: at most one stripe of its events, and how far they reach.

    ``known_through`` is a key at or below which no event will come that is not in ``chunks`` by now. The
    events of a stripe's last key are not known to be complete before the next stripe is read.
    """

    def __init__(
        self, files: Sequence[EventFile], stripes: Iterator[StripeEvents], version: AcidVersion
    ) -> None:
        self.file = files[0]
        self._stripes = stripes
        self.chunks: list[EventChunk] = []
        self.known_through = _LOWEST
        if version.splits_updates and self.file.kind is EventFileKind.DELTA:
            # Rows inserted under the ids first..last: the file need not be opened before the merge is there.
            self.known_through = _HIGHEST._replace(original_txn=self.file.first - 1)

    def load(self) -> None:
        """Read on until ``known_through`` grows."""
        before = self.known_through
        while self.known_through == before:
            stripe = next(self._stripes, None)
            if stripe is None:
                self.known_through = _HIGHEST
                return
            if len(stripe.chunk.keys):
                self.chunks.append(stripe.chunk)
            if stripe.first <= before:
                raise DirectoryStateError(
                    f"{self.file.location} holds a row with ROW__ID {tuple(stripe.first)}, but its "
                    f"directory is for rows inserted by transactions {self.file.first} to {self.file.last}"
                )
            if stripe.is_last:
                self.known_through = _HIGHEST
            elif stripe.complete_through is not None:
                self.known_through = stripe.complete_through

    def take(self, limit: RecordIdentifier) -> Iterator[EventChunk]:
        """Remove and return the events with a key <= limit."""
        chunks, self.chunks = self.chunks, []
        for chunk in chunks:
            count = len(chunk.keys) if limit == _HIGHEST else count_up_to(chunk.keys, limit)
            if count:
                yield chunk.slice(0, count)
            if count < len(chunk.keys):
                self.chunks.append(chunk.slice(count, len(chunk.keys)))


@dataclass(frozen=True)
class _Piece:
    chunk: EventChunk
    file: EventFile

    @property
    def is_delete(self) -> bool:
        return self.file.kind is EventFileKind.DELETE_DELTA


def _load(sources: Sequence[_Source], threads: int) -> None:
    """Have sources read on, each a stripe or more."""
    if threads == 1 or len(sources) == 1:
        for source in sources:
            source.load()
    else:
        side_by_side(_Source.load, sources, threads)


def _rounds(sources: Sequence[_Source], threads: int) -> Iterator[list[_Piece]]:
    """Slices of all sources; each round holds every event of the rows it mentions, and rounds ascend."""
    remaining = list(sources)
    while remaining:
        limit = min(source.known_through for source in remaining)
        pieces = [_Piece(chunk, s.file) for s in remaining for chunk in s.take(limit)]
        if pieces:
            yield pieces
        if limit == _HIGHEST:
            return
        _load([source for source in remaining if source.known_through == limit], threads)
        remaining = [s for s in remaining if s.chunks or s.known_through != _HIGHEST]


def _merge(pieces: list[_Piece], valid: ValidIdList, version: AcidVersion) -> Iterator[EventChunk]:
    """The rows that remain of one round, by key."""
    # Deletes last: then indices of rows need no shift.
    pieces = sorted(pieces, key=lambda piece: piece.is_delete)
    keys = concatenate_keys([piece.chunk.keys for piece in pieces])
    if version.splits_updates:
        is_delete = np.repeat([p.is_delete for p in pieces], [len(p.chunk.keys) for p in pieces])
        indices = merge_split(keys, is_delete, valid)
    else:
        indices = merge_legacy(keys, valid)
    if version.encodes_buckets:
        _check_deletes(pieces, valid, version)
    chunks = [piece.chunk for piece in pieces if not piece.is_delete]
    places = [chunk.places for chunk in chunks if chunk.places is not None]
    if places:
        # Only now: a row that is not wanted may have taken the place of an older one that is.
        indices = indices[np.concatenate(places)[indices] >= 0]
    if len(indices):
        yield from _gather(chunks, indices)


def _check_deletes(pieces: list[_Piece], valid: ValidIdList, version: AcidVersion) -> None:
    """Refuse deletes that one of Hive's readers obeys and the other does not.

    That is a delete whose write id is lower than its row's; with Hive 4 also one with the same write id,
    unless the row's statement comes before that of the delete's directory.
    """
    for piece in pieces:
        if not piece.is_delete:
            continue
        file, keys = piece.file, piece.chunk.keys
        is_single = version.is_hive_4 and file.first == file.last
        at = find_early_delete(keys, valid, (file.statement_id or 0) if is_single else None)
        if at is not None:
            raise DirectoryStateError(
                f"{file.location} deletes row {tuple(keys.key(at))} under write id "
                f"{int(keys.current_txn[at])}, which does not come after the one that inserted it; "
                "one of Hive's readers shows the row and the other does not: let Hive compact the table "
                "(major), and look which of the two it kept"
            )


def _gather(chunks: list[EventChunk], indices: np.ndarray) -> Iterator[EventChunk]:
    """The events at these positions of the chunks laid one behind the other, with all their columns.

    Mostly they ascend (a base, few updates in this range); then no chunk need be joined to another.
    """
    if bool((indices[1:] > indices[:-1]).all()):
        yield from _gather_ascending(chunks, indices)
        return
    ascending = np.sort(indices)
    joined = _joined(list(_gather_ascending(chunks, ascending)))
    yield joined.take(np.searchsorted(ascending, indices))


def _gather_ascending(chunks: list[EventChunk], indices: np.ndarray) -> Iterator[EventChunk]:
    ends = np.cumsum([len(chunk.keys) for chunk in chunks])
    starts = ends - [len(chunk.keys) for chunk in chunks]
    for chunk, start, end in zip(chunks, starts, ends, strict=True):
        first, last = np.searchsorted(indices, (start, end))
        if first < last:
            yield chunk.take(indices[first:last] - start).complete()


def _joined(chunks: Sequence[EventChunk]) -> EventChunk:
    keys = concatenate_keys([chunk.keys for chunk in chunks])
    names = chunks[0].rows
    return EventChunk(keys, {name: pa.concat_arrays([c.rows[name] for c in chunks]) for name in names})


def _batches(
    chunk: EventChunk, schema: pa.Schema, *, row_ids: bool, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    arrays = [chunk.rows[name] for name in schema.names[1 if row_ids else 0 :]]
    if row_ids:
        keys = chunk.keys
        fields = [pa.array(values) for values in (keys.original_txn, keys.bucket, keys.row_id)]
        arrays.insert(0, pa.StructArray.from_arrays(fields, fields=list(schema.field(0).type)))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for start in range(0, batch.num_rows, batch_rows):
        yield batch.slice(start, batch_rows)
