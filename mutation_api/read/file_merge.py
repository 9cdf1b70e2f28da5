"""The merged rows of the files of a split, stripe by stripe.

At most one stripe of each file is in memory. Usually, only one of the files with inserts, or some small ones,
have a stripe in memory. Files are sorted by ROW__ID. So the stripes in memory decide all rows up to the
smallest key at which one of them ends. The rules on keys are in :mod:`mutation_api.format.merge_events`.

A file on which Hive's two readers would disagree is rejected: one with deletes older than their rows.

Source: Hive's OrcRawRecordMerger and VectorizedOrcAcidRowBatchReader (2.3, 3.1, 4.x).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import DirectoryStateError
from mutation_api.format.event import RecordIdentifier
from mutation_api.format.layout import AcidVersion
from mutation_api.format.merge_events import (
    EventKeys,
    concatenate_keys,
    count_up_to,
    events_in_order,
    find_early_delete,
    in_order,
    is_remaining,
    merge_legacy,
    order_of,
    visible_deletes,
)
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_file import EventChunk, EventFile, EventFileKind, StripeEvents
from mutation_api.orc.read.event_reader import read_events
from mutation_api.orc.read.file_columns import Wanted
from mutation_api.storage.connect import reading_threads
from mutation_api.storage.protocol import Storage
from mutation_api.storage.tree import side_by_side

_SMALL_BYTES = 64 * 1024
_SMALL_TOGETHER = 64
"""The number and size of small files that are read at once. Each round also takes time for every other
file."""

_LOWEST = RecordIdentifier(-(2**63), -(2**31), -(2**63))
_HIGHEST = RecordIdentifier(2**63 - 1, 2**31 - 1, 2**63 - 1)


def merge_files(
    storage: Storage,
    files: Sequence[EventFile],
    valid: ValidIdList,
    wanted: Wanted,
    version: AcidVersion,
    *,
    any_bucket: bool,
) -> Iterator[EventChunk]:
    """Return the rows that remain after all events in some files, by ROW__ID, with all requested columns.

    Their keys are complete only if ROW__IDs are requested.

    Args:
        storage: the storage of the files.
        files: all files with events of the rows.
        valid: the ids that the snapshot sees.
        wanted: the columns and rows to read.
        version: the layout of the files, which must have ROW__IDs.
        any_bucket: True if delete deltas may hold events of buckets other than their own.

    Raises:
        DirectoryStateError: If a file holds rows outside its directory's range of ids, or a delete that only
            one of Hive's readers applies.

    Errors of :func:`~mutation_api.orc.read.event_reader.read_events` are passed on.
    """
    sources = _sources(storage, files, wanted, version, any_bucket)
    for pieces in _rounds(sources, reading_threads(storage)):
        yield from _merge(pieces, valid, wanted, version)


def merge_events(
    storage: Storage,
    files: Sequence[EventFile],
    valid: ValidIdList,
    wanted: Wanted,
    version: AcidVersion,
    *,
    any_bucket: bool,
) -> Iterator[EventChunk]:
    """Return all visible events in some files, in the order of ACID files, with all requested columns.

    The files are either delete deltas, whose events have no columns, or none of them is. Arguments and errors
    are those of :func:`merge_files`.
    """
    sources = _sources(storage, files, wanted, version, any_bucket)
    for pieces in _rounds(sources, reading_threads(storage)):
        chunks = [piece.chunk for piece in pieces]
        indices = events_in_order(concatenate_keys([chunk.keys for chunk in chunks]), valid)
        if len(indices):
            yield from _gather(chunks, indices)


def key_rounds(
    storage: Storage, files: Sequence[EventFile], version: AcidVersion, *, any_bucket: bool
) -> Iterator[list[tuple[EventFile, EventKeys]]]:
    """Return the keys of all events in some files, in rounds.

    Each round holds every event of its rows, and rounds ascend. If rows are numbered across files, the keys
    of these files are returned with the first of them. Arguments and errors are those of :func:`merge_files`.
    """
    wanted = Wanted((), (), ReadOptions(), None, None, True)
    sources = _sources(storage, files, wanted, version, any_bucket)
    for pieces in _rounds(sources, 1):
        yield [(piece.file, piece.chunk.keys) for piece in pieces]


def _sources(
    storage: Storage, files: Sequence[EventFile], wanted: Wanted, version: AcidVersion, any_bucket: bool
) -> list[_Source]:
    return [
        _Source(each, _read_in_turn(storage, each, wanted, version, any_bucket), version)
        for each in _sequences(files, version)
    ]


def _sequences(files: Sequence[EventFile], version: AcidVersion) -> list[list[EventFile]]:
    """Group the files: files whose rows are numbered across them, in that order; every other file alone."""
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


class _Source:
    """One file, or several in turn, in a merge: at most one stripe of its events, and the key up to which
    they are complete.

    All events up to the key ``known_through`` have been read into ``chunks``. The events of a stripe's last
    key may be incomplete until the next stripe is read.
    """

    def __init__(
        self, files: Sequence[EventFile], stripes: Iterator[StripeEvents], version: AcidVersion
    ) -> None:
        self.file = files[0]
        self.is_small = len(files) == 1 and files[0].byte_count <= _SMALL_BYTES
        self._stripes = stripes
        self.chunks: list[EventChunk] = []
        self.known_through = _LOWEST
        if version.splits_updates and self.file.kind is EventFileKind.DELTA:
            # Rows inserted under the ids first..last: the file stays closed until the merge reaches them.
            self.known_through = _HIGHEST._replace(original_txn=self.file.first - 1)

    def load(self) -> None:
        """Read stripes until ``known_through`` grows."""
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
                self._stripes = iter(())  # a generator that has not ended keeps its last stripe in memory
            elif stripe.complete_through is not None:
                self.known_through = stripe.complete_through

    def take(self, limit: RecordIdentifier) -> Iterator[EventChunk]:
        """Remove and return the events with a key <= limit."""
        chunks, self.chunks = self.chunks, []
        for chunk in chunks:
            count = len(chunk.keys) if limit == _HIGHEST else count_up_to(chunk.keys, limit)
            if count == len(chunk.keys):
                yield chunk
            elif count == 0:
                self.chunks.append(chunk)
            else:
                yield chunk.slice(0, count)
                self.chunks.append(chunk.slice(count, len(chunk.keys)))


@dataclass(frozen=True)
class _Piece:
    chunk: EventChunk
    file: EventFile

    @property
    def is_delete(self) -> bool:
        return self.file.kind is EventFileKind.DELETE_DELTA


def _load(sources: Sequence[_Source], threads: int) -> None:
    """Read one or more stripes of each source."""
    if threads == 1 or len(sources) == 1:
        for source in sources:
            source.load()
    else:
        side_by_side(_Source.load, sources, threads)


def _rounds(sources: Sequence[_Source], threads: int) -> Iterator[list[_Piece]]:
    """Yield slices of all sources in rounds. Each round holds every event of its rows, and rounds ascend."""
    remaining = list(sources)
    while remaining:
        limit = min(source.known_through for source in remaining)
        pieces = [_Piece(chunk, s.file) for s in remaining for chunk in s.take(limit)]
        if pieces:
            yield pieces
        if limit == _HIGHEST:
            return
        _load(_next(remaining, limit), threads)
        remaining = [s for s in remaining if s.chunks or s.known_through != _HIGHEST]


def _next(sources: Sequence[_Source], limit: RecordIdentifier) -> list[_Source]:
    """Return the sources that delay the merge. If these are small, add the next small ones after them."""
    found = [source for source in sources if source.known_through == limit]
    if limit == _LOWEST or not all(source.is_small for source in found):
        return found
    behind = [each for each in sources if each.is_small and limit < each.known_through < _HIGHEST]
    behind.sort(key=lambda source: source.known_through)
    return found + behind[: max(0, _SMALL_TOGETHER - len(found))]


def _merge(
    pieces: Sequence[_Piece], valid: ValidIdList, wanted: Wanted, version: AcidVersion
) -> Iterator[EventChunk]:
    """Return the rows that remain of one round, by key."""
    if version.encodes_buckets:
        _check_deletes(pieces, valid, version)
    if version.splits_updates:
        yield from _merge_split(pieces, valid, row_ids=wanted.row_ids)
        return
    chunks = [piece.chunk for piece in pieces]
    indices = merge_legacy(concatenate_keys([chunk.keys for chunk in chunks]), valid)
    late_rows = [chunk.late_rows for chunk in chunks if chunk.late_rows is not None]
    if late_rows:
        # Filter only now: a row that was not requested may have replaced an older one that was.
        indices = indices[np.concatenate(late_rows)[indices] >= 0]
    if len(indices):
        yield from _gather(chunks, indices)


def _merge_split(pieces: Sequence[_Piece], valid: ValidIdList, *, row_ids: bool) -> Iterator[EventChunk]:
    """Return the rows that remain of one round, if rows and deletes lie in different files.

    Each file can then be decided on its own.
    """
    deletes = visible_deletes([piece.chunk.keys for piece in pieces if piece.is_delete], valid)
    found = []
    for piece in pieces:
        if not piece.is_delete:
            chunk = piece.chunk
            remains = is_remaining(chunk.keys, deletes, valid)
            if chunk.late_rows is not None:
                remains &= chunk.late_rows >= 0
            if remains.any():
                found.append((chunk, remains))
    order = in_order([chunk.keys for chunk, _ in found])
    if order is not None:
        yield from (found[n][0].filter(found[n][1], with_keys=row_ids).complete() for n in order)
        return
    joined = _joined([chunk.filter(remains).complete() for chunk, remains in found])
    yield joined.take(order_of(joined.keys))


def _check_deletes(pieces: Sequence[_Piece], valid: ValidIdList, version: AcidVersion) -> None:
    """Reject deletes that one of Hive's readers applies and the other does not.

    The write id of such a delete is lower than that of its row. With Hive 4 it may also be the same, unless
    the row's statement comes before the statement of the delete's directory.
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
                f"{int(keys.current_txn[at])}, which does not come after the one that inserted it; one of "
                "Hive's readers shows the row and the other does not. Let Hive compact the table (major), "
                "and check whether it kept the row"
            )


def _gather(chunks: list[EventChunk], indices: NDArray[np.int64]) -> Iterator[EventChunk]:
    """Return the events at these indices of the concatenated chunks, with all their columns.

    Indices usually ascend (a base and few updates in this range). In this case the chunks are not joined.
    """
    if bool((indices[1:] > indices[:-1]).all()):
        yield from _gather_ascending(chunks, indices)
        return
    ascending = np.sort(indices)
    joined = _joined(list(_gather_ascending(chunks, ascending)))
    yield joined.take(np.searchsorted(ascending, indices))


def _gather_ascending(chunks: list[EventChunk], indices: NDArray[np.int64]) -> Iterator[EventChunk]:
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
