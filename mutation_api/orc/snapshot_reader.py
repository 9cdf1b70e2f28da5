"""Read a snapshot of a table: the visible rows of each (partition, bucket) with their ROW__ID.

:func:`plan_splits` lists a partition once and says which files make up each bucket; :func:`read_split` merges
them. The two may run in different processes, so a split is a small value with a text form.

The merge keeps one stripe of each file in memory at most. Files are sorted by ROW__ID, so all rows up to the
smallest key at which some file's stripe in memory ends are decided by what is in memory.

Where Hive 2.3 would lose or double rows in silence, this reader refuses: delta buckets beyond the table's
bucket count, files in a delta that are no bucket files, original files whose rows events would hit twice.

Source: Hive's OrcInputFormat (split generation) and OrcRawRecordMerger, 2.3.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.directory_state import DirectoryState, choose_directories
from mutation_api.acid.hive_type import parse_hive_type
from mutation_api.acid.layout import (
    FLUSH_LENGTH_SUFFIX,
    BaseDirectory,
    DeltaDirectory,
    is_hidden,
    parse_bucket_file_name,
    parse_original_file_name,
)
from mutation_api.acid.merge_events import (
    concatenate_keys,
    count_below,
    count_up_to,
    merge_legacy,
    merge_split,
)
from mutation_api.acid.row_id import ROW_ID_COLUMN, RecordIdentifier
from mutation_api.errors import CorruptFileError, DirectoryStateError, RecordLayoutError
from mutation_api.orc.column_reader import ReadOptions, column_type
from mutation_api.orc.event_reader import EventChunk, EventFile, EventFileKind, Wanted, read_events
from mutation_api.orc.storage import FileEntry, Storage
from mutation_api.table.acid_table import AcidColumn, AcidTable

__all__ = [
    "ROW_ID_TYPE",
    "SnapshotSplit",
    "plan_splits",
    "read_split",
    "select_columns",
    "snapshot_schema",
]

ROW_ID_TYPE = pa.struct([("transactionid", pa.int64()), ("bucketid", pa.int32()), ("rowid", pa.int64())])
"""Arrow type of ROW__ID in a v1 table; the names are Hive's, in lower case."""

_UNKNOWN_BUCKET = -1
_FLUSH_LENGTH_BYTES = 8
_LOWEST = RecordIdentifier(-(2**63), -(2**31), -(2**63))
_HIGHEST = RecordIdentifier(2**63 - 1, 2**31 - 1, 2**63 - 1)


@dataclass(frozen=True)
class SnapshotSplit:
    """The files of one (partition, bucket) that one reader merges.

    ``partition_name`` is the escaped name, '' for an unpartitioned table; ``bucket_id`` is -1 for original
    files whose name tells no bucket.
    """

    partition_name: str
    location: str
    bucket_id: int
    files: tuple[EventFile, ...]

    def to_json(self) -> str:
        """One line of JSON."""
        value = dataclasses.asdict(self)
        for each in value["files"]:
            each["kind"] = each["kind"].value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SnapshotSplit:
        """Inverse of :meth:`to_json`. Raises DirectoryStateError, naming the text."""
        try:
            value = json.loads(text)
            files = [EventFile(**{**f, "kind": EventFileKind(f["kind"])}) for f in value.pop("files")]
            return cls(**value, files=tuple(files))
        except (ValueError, TypeError, KeyError) as error:
            raise DirectoryStateError(f"not a snapshot split: {text[:200]!r} ({error})") from error


def plan_splits(
    table: AcidTable, partition_name: str, location: str, valid: ValidIdList
) -> list[SnapshotSplit]:
    """What a snapshot reads of one partition: one split per bucket that has anything, by bucket id.

    Lists directories only; no file is opened but the side files of unfinished streaming writes.

    Args:
        table: its version and bucket count decide.
        partition_name: escaped name, '' for an unpartitioned table.
        location: the partition's location; a missing directory is a partition without rows.
        valid: the transactions the snapshot sees.

    Raises:
        DirectoryStateError: the directory holds what Hive fails on, or would lose or double rows of.
    """
    storage = Storage.for_location(location)
    try:
        entries = storage.list(storage.path(location))
    except FileNotFoundError:
        return []
    state = choose_directories(
        [e.name for e in entries if e.is_directory],
        {e.name: e.size for e in entries if not e.is_directory},
        valid,
        location=location,
    )
    files = _list_files(storage, storage.path(location), state, splits_updates=table.version.splits_updates)
    buckets: dict[int, list[EventFile]] = defaultdict(list)
    for file in files:
        buckets[file.bucket_id].append(file)
    for bucket_id, found in buckets.items():
        _check_bucket(table, location, bucket_id, found)
    return [
        SnapshotSplit(partition_name, location, bucket_id, group)
        for bucket_id, found in sorted(buckets.items())
        for group in _groups(found)
    ]


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
    columns: Sequence[AcidColumn], *, row_ids: bool = True, options: ReadOptions | None = None
) -> pa.Schema:
    """Schema of the batches of :func:`read_split`."""
    form = (options or ReadOptions()).timestamp_form
    fields = [pa.field(c.name, column_type(parse_hive_type(c.type), form)) for c in columns]
    return pa.schema(([pa.field(ROW_ID_COLUMN, ROW_ID_TYPE)] if row_ids else []) + fields)


def read_split(
    table: AcidTable,
    split: SnapshotSplit,
    valid: ValidIdList,
    columns: Sequence[str] | None = None,
    row_ids: bool = True,
    options: ReadOptions | None = None,
) -> Iterator[pa.RecordBatch]:
    """The visible rows of a split, ordered by ROW__ID.

    Args:
        table: the table the split was planned for.
        split: what to read.
        valid: the same list that planned the split.
        columns: names of data columns, any case; None for all, () for none (then ``row_ids`` must be true).
        row_ids: whether the first column is ``ROW__ID``.
        options: form of timestamps and size of batches.

    Yields:
        Batches of ``snapshot_schema(…)``, of at most ``options.batch_rows`` rows, none empty.

    Raises:
        RecordLayoutError: a column the table does not have, or nothing to read.
        CorruptFileError: a file is damaged, not an ACID file, unsorted, or of types that do not fit.
        DirectoryStateError: a file is gone, or holds events it must not hold.
        RecordValueError: a timestamp does not fit the form asked for.
    """
    selected = select_columns(table, columns)
    if not selected and not row_ids:
        raise RecordLayoutError(f"table {table.full_name}: nothing to read: neither columns nor ROW__ID")
    options = options or ReadOptions()
    wanted = Wanted(table.columns, selected, options)
    schema = snapshot_schema(selected, row_ids=row_ids, options=options)
    splits_updates = table.version.splits_updates
    storage = Storage.for_location(split.location)
    sources = [
        _Source(file, read_events(storage, file, wanted, splits_updates=splits_updates), splits_updates)
        for file in split.files
    ]
    for pieces in _rounds(sources):
        for rows in _merge(pieces, valid, splits_updates=splits_updates):
            yield from _batches(rows, schema, row_ids=row_ids, batch_rows=options.batch_rows)


def _list_files(
    storage: Storage, path: str, state: DirectoryState, *, splits_updates: bool
) -> list[EventFile]:
    files: list[EventFile] = []
    if state.base:
        files += _acid_files(storage, path, state.base, splits_updates=splits_updates)
    for name in state.original_files:
        files.append(_original_file(f"{path}/{name}"))
    for name in state.original_directories:
        files += _original_files_below(storage, f"{path}/{name}")
    for delta in state.deltas:
        files += _acid_files(storage, path, delta, splits_updates=splits_updates)
    return files


def _acid_files(
    storage: Storage, location: str, directory: BaseDirectory | DeltaDirectory, *, splits_updates: bool
) -> list[EventFile]:
    path = f"{location}/{directory.name}"
    try:
        entries = [e for e in storage.list(path) if not is_hidden(e.name)]
    except FileNotFoundError as error:
        raise DirectoryStateError(
            f"{path} was removed while its partition was being listed; a reader needs a lock: "
            "take a new snapshot"
        ) from error
    if not splits_updates:
        # Hive's second minor compaction of one range moves its result into that of the first. In legacy
        # tables all its readers overlook that; in split tables all of them fail (measured), so it is refused.
        entries = [e for e in entries if not (e.is_directory and e.name == directory.name)]
    names = {e.name for e in entries}
    files = []
    for entry in entries:
        if entry.name.removesuffix(FLUSH_LENGTH_SUFFIX) in names - {entry.name}:
            continue
        files.append(_acid_file(storage, entry, directory, f"{entry.name}{FLUSH_LENGTH_SUFFIX}" in names))
    return [f for f in files if f.length != 0]


def _acid_file(
    storage: Storage, entry: FileEntry, directory: BaseDirectory | DeltaDirectory, has_side_file: bool
) -> EventFile:
    bucket_id = parse_bucket_file_name(entry.name)
    if bucket_id is None or entry.is_directory:
        raise DirectoryStateError(
            f"{entry.path} is no file of the form bucket_00000; Hive 2.3 overlooks it in some tables and "
            "fails in others: rename it so that it starts with an underscore, or remove it"
        )
    length = _flush_length(storage, f"{entry.path}{FLUSH_LENGTH_SUFFIX}") if has_side_file else None
    if isinstance(directory, BaseDirectory):
        return EventFile(entry.path, EventFileKind.BASE, bucket_id, 0, directory.last, None, length)
    kind = EventFileKind.DELETE_DELTA if directory.is_delete else EventFileKind.DELTA
    first, last, statement = directory.first, directory.last, directory.statement_id
    return EventFile(entry.path, kind, bucket_id, first, last, statement, length)


def _flush_length(storage: Storage, path: str) -> int:
    """Committed bytes of a file that is being written: the last whole number of its side file; 0 if none."""
    try:
        with storage.open_input(path) as stream:
            content: bytes = stream.read()
    except FileNotFoundError:
        raise DirectoryStateError(f"{path}: its writer finished just now; take a new snapshot") from None
    whole = len(content) // _FLUSH_LENGTH_BYTES * _FLUSH_LENGTH_BYTES
    if whole == 0:
        return 0
    length = int.from_bytes(content[whole - _FLUSH_LENGTH_BYTES : whole], "big", signed=True)
    if length < 0:
        raise CorruptFileError(f"{path} says that {length} bytes are committed")
    return length


def _original_file(path: str) -> EventFile:
    bucket_id = parse_original_file_name(path.rpartition("/")[2]).bucket_id
    return EventFile(path, EventFileKind.ORIGINAL, _UNKNOWN_BUCKET if bucket_id is None else bucket_id, 0, 0)


def _original_files_below(storage: Storage, path: str) -> list[EventFile]:
    files: list[EventFile] = []
    for entry in storage.list(path):
        if is_hidden(entry.name):
            continue
        if entry.is_directory:
            files += _original_files_below(storage, entry.path)
        elif entry.size > 0:
            files.append(_original_file(entry.path))
    return files


def _check_bucket(table: AcidTable, location: str, bucket_id: int, files: Sequence[EventFile]) -> None:
    originals = [f for f in files if f.kind is EventFileKind.ORIGINAL]
    has_base = bool(originals) or any(f.kind is EventFileKind.BASE for f in files)
    events = [f for f in files if f.kind in (EventFileKind.DELTA, EventFileKind.DELETE_DELTA)]
    if events and bucket_id >= table.num_buckets and not has_base and not table.version.splits_updates:
        raise DirectoryStateError(
            f"table {table.full_name}: {events[0].path} belongs to bucket {bucket_id}, but the table has "
            f"{table.num_buckets} buckets, so Hive 2.3 never reads it; its rows would be lost in silence"
        )
    merged = [f for f in events if f.kind is EventFileKind.DELETE_DELTA or not table.version.splits_updates]
    if not merged:
        return
    root = Storage.for_location(location).path(location)
    misplaced = [f for f in originals if f.path.rpartition("/")[0] != root]
    if misplaced or len(originals) > 1:
        raise DirectoryStateError(
            f"table {table.full_name}: {(misplaced or originals[1:])[0].path} is one of {len(originals)} "
            f"original file(s) of bucket {bucket_id}, and {merged[0].path} has events for that bucket; "
            "Hive 2.3 doubles or loses rows of several such files or of files in subdirectories: "
            "let Hive compact the table before it is changed"
        )


def _groups(files: Sequence[EventFile]) -> Iterator[tuple[EventFile, ...]]:
    """Files to merge with each other.

    Several original files of one bucket repeat each other's identities, so each is read alone;
    :func:`_check_bucket` saw that no event is for them.
    """
    originals = [f for f in files if f.kind is EventFileKind.ORIGINAL]
    alone = originals if len(originals) > 1 else []
    yield from ((f,) for f in alone)
    rest = tuple(f for f in files if f not in alone)
    if any(f.kind is not EventFileKind.DELETE_DELTA for f in rest):
        yield rest


class _Source:
    """One file in a merge: at most one stripe of its events, and how far they reach.

    ``known_through`` is a key at or below which no event will come that is not in ``chunks`` by now. The
    events of a stripe's last key are not known to be complete before the next stripe is read.
    """

    def __init__(self, file: EventFile, events: Iterator[EventChunk], splits_updates: bool) -> None:
        self._file = file
        self._events = events
        self.chunks: list[EventChunk] = []
        self.is_delete = file.kind is EventFileKind.DELETE_DELTA
        self.known_through = _LOWEST
        if splits_updates and file.kind is EventFileKind.DELTA:
            # Rows inserted by transactions first..last: the file need not be opened before the merge is
            # there.
            self.known_through = _HIGHEST._replace(original_txn=file.first - 1)

    def load(self) -> None:
        """Read on until ``known_through`` grows."""
        before = self.known_through
        while self.known_through == before:
            chunk = next(self._events, None)
            if chunk is None:
                self.known_through = _HIGHEST
                return
            self.chunks.append(chunk)
            keys = chunk.keys
            if keys.key(0) <= before:
                raise DirectoryStateError(
                    f"{self._file.path} holds a row with ROW__ID {tuple(keys.key(0))}, but its directory is "
                    f"for rows inserted by transactions {self._file.first} to {self._file.last}"
                )
            if chunk.is_last:
                self.known_through = _HIGHEST
                return
            incomplete = count_below(keys, keys.key(len(keys) - 1))
            if incomplete:
                self.known_through = keys.key(incomplete - 1)

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
    is_delete: bool


def _rounds(sources: Sequence[_Source]) -> Iterator[list[_Piece]]:
    """Slices of all sources; each round holds every event of the rows it mentions, and rounds ascend."""
    remaining = list(sources)
    while remaining:
        limit = min(source.known_through for source in remaining)
        pieces = [_Piece(chunk, s.is_delete) for s in remaining for chunk in s.take(limit)]
        if pieces:
            yield pieces
        if limit == _HIGHEST:
            return
        for source in remaining:
            if source.known_through == limit:
                source.load()
        remaining = [s for s in remaining if s.chunks or s.known_through != _HIGHEST]


def _merge(pieces: list[_Piece], valid: ValidIdList, *, splits_updates: bool) -> Iterator[EventChunk]:
    """The rows that remain of one round, by key."""
    # Deletes last: then indices of rows need no shift.
    pieces = sorted(pieces, key=lambda piece: piece.is_delete)
    keys = concatenate_keys([piece.chunk.keys for piece in pieces])
    if splits_updates:
        is_delete = np.repeat([p.is_delete for p in pieces], [len(p.chunk.keys) for p in pieces])
        indices = merge_split(keys, is_delete, valid)
    else:
        indices = merge_legacy(keys, valid)
    if len(indices):
        yield from _gather([piece.chunk for piece in pieces if not piece.is_delete], indices)


def _gather(chunks: list[EventChunk], indices: np.ndarray) -> Iterator[EventChunk]:
    """The events at these positions of the chunks laid one behind the other.

    Mostly they ascend (a base, few updates in this range); then no chunk need be joined to another.
    """
    ends = np.cumsum([len(chunk.keys) for chunk in chunks])
    if not bool((indices[1:] > indices[:-1]).all()):
        yield _joined(chunks[: int(np.searchsorted(ends, indices.max(), side="right")) + 1]).take(indices)
        return
    starts = ends - [len(chunk.keys) for chunk in chunks]
    for chunk, start, end in zip(chunks, starts, ends, strict=True):
        first, last = np.searchsorted(indices, (start, end))
        if first < last:
            yield chunk.take(indices[first:last] - start)


def _joined(chunks: Sequence[EventChunk]) -> EventChunk:
    keys = concatenate_keys([chunk.keys for chunk in chunks])
    columns = zip(*(chunk.rows for chunk in chunks), strict=True)
    return EventChunk(keys, tuple(pa.concat_arrays(column) for column in columns))


def _batches(
    chunk: EventChunk, schema: pa.Schema, *, row_ids: bool, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    arrays = list(chunk.rows)
    if row_ids:
        keys = chunk.keys
        fields = [pa.array(values) for values in (keys.original_txn, keys.bucket, keys.row_id)]
        arrays.insert(0, pa.StructArray.from_arrays(fields, fields=list(ROW_ID_TYPE)))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for start in range(0, batch.num_rows, batch_rows):
        yield batch.slice(start, batch_rows)
