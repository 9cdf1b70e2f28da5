"""EventFile and EventChunk: a file of events that a snapshot reads, and the events of one of its stripes.

A merge of files relies on order, operations and buckets of the events, so these are checked. A file that
fails a check is rejected, because merging it would silently lose rows or bring deleted rows back. Some
columns of a chunk may be read later than the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.format.event import (
    MAX_BUCKETS,
    MAX_STATEMENT_ID,
    Operation,
    RecordIdentifier,
    bucket_ids,
    bucket_property,
    unreadable_properties,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.format.merge_events import EventKeys, find_disorder
from mutation_api.storage.location import Location


class EventFileKind(enum.Enum):
    """The kind of a file. ORIGINAL: rows without events in original, loaded or insert-only files."""

    BASE = "base"
    ORIGINAL = "original"
    DELTA = "delta"
    DELETE_DELTA = "delete_delta"


_NO_STATEMENT = -1


@dataclass(frozen=True)
class EventFile:
    """One file that a snapshot reads.

    ``bucket_id`` is -1 for an original file without a bucket in its name. ``first``..``last`` are the ids of
    its directory (0, 0 outside a directory with ids; 0, N for a base). ``length`` is the committed length in
    bytes from a side file; None if there is no such file. ``byte_count`` is its size in the listing.
    """

    location: Location
    kind: EventFileKind
    bucket_id: int
    first: int
    last: int
    statement_id: int | None = None
    length: int | None = None
    byte_count: int = field(default=0, compare=False)

    @property
    def is_of_delta(self) -> bool:
        """True if the file is in a delta, including plain rows that LOAD DATA puts into one."""
        if self.kind is EventFileKind.ORIGINAL:
            return self.first > 0
        return self.kind is not EventFileKind.BASE

    @property
    def precedence(self) -> int:
        """The precedence of its events, see :class:`EventKeys`."""
        return _NO_STATEMENT if self.statement_id is None else self.statement_id


def check_order(keys: EventKeys, previous: EventKeys | None, file: EventFile) -> None:
    """Check that keys ascend, and that the newest event of a key comes first.

    Args:
        keys: the keys of a stripe's events.
        previous: the key of the last event before them. None if there is no such event.
        file: the file, for messages.

    Raises:
        CorruptFileError: If the keys are out of order. The message shows both events.
    """
    at = find_disorder(keys)
    if at is not None:
        raise _disorder(file, keys.slice(at - 1, at), keys.slice(at, at + 1))
    if previous is None:
        return
    key, last = keys.key(0), previous.key(0)
    if key < last or (key == last and keys.current_txn[0] > previous.current_txn[0]):
        raise _disorder(file, previous, keys)


def _disorder(file: EventFile, before: EventKeys, after: EventKeys) -> CorruptFileError:
    def text(keys: EventKeys) -> str:
        return f"{tuple(keys.key(0))} of transaction {int(keys.current_txn[0])}"

    return CorruptFileError(
        f"{file.location} is not sorted: event {text(after)} comes after {text(before)}; Hive would show "
        "old or deleted rows of such a file. The program that wrote it has a bug; run the transaction "
        "again"
    )


def check_operations(keys: EventKeys, file: EventFile, version: AcidVersion) -> None:
    """Check that in a split layout a delta holds only inserts, and a delete delta only deletes.

    Raises:
        DirectoryStateError: If the file holds other events.
    """
    expected = {EventFileKind.DELTA: Operation.INSERT, EventFileKind.DELETE_DELTA: Operation.DELETE}
    operation = expected.get(file.kind)
    if operation is None or bool((keys.operation == operation).all()):
        return
    found = sorted({Operation(int(code)).name for code in np.unique(keys.operation)})
    advice = (
        "Hive 2 wrote it before the table was upgraded, and this server shows wrong rows. Let Hive 2 "
        "compact the table (major) before the upgrade, or restore it from there"
        if version.uses_write_ids
        else "it was written for a legacy table"
    )
    raise DirectoryStateError(
        f"{file.location} holds {' and '.join(found)} events, but in a table with "
        f"transactional_properties=default a {file.kind.value} holds only {operation.name} events: {advice}"
    )


def check_buckets(keys: EventKeys, file: EventFile) -> None:
    """Check that every ROW__ID has the bucket of its file, because Hive finds the deletes of a row by bucket.

    Raises:
        CorruptFileError: If there is a bucket property that Hive never wrote.
        DirectoryStateError: If there is an event of another bucket.
    """
    if file.bucket_id < MAX_BUCKETS:
        first = bucket_property(file.bucket_id, 0)
        if first <= int(keys.bucket.min()) and int(keys.bucket.max()) <= first + MAX_STATEMENT_ID:
            return
    unreadable = unreadable_properties(keys.bucket)
    if unreadable.any():
        at = int(unreadable.argmax())
        raise CorruptFileError(
            f"{file.location}: event {tuple(keys.key(at))} has a bucket property that Hive never wrote"
        )
    ids = bucket_ids(keys.bucket)
    misplaced = ids != file.bucket_id
    if misplaced.any():
        at = int(misplaced.argmax())
        raise DirectoryStateError(
            f"{file.location} holds event {tuple(keys.key(at))} of bucket {int(ids[at])}, but the file "
            f"belongs to bucket {file.bucket_id}: Hive silently ignores such deletes, and deletes of such "
            "rows. The program that wrote the file has a bug; run the transaction again"
        )


class LateColumns:
    """Columns of some rows of a stripe, read on first use.

    It holds the values of these rows only, not of the whole stripe.

    Args:
        read: returns the values by column, in the order of the rows.
    """

    def __init__(self, read: Callable[[], dict[str, pa.Array]]) -> None:
        self._read = read
        self._arrays: dict[str, pa.Array] | None = None

    @property
    def arrays(self) -> dict[str, pa.Array]:
        """The values by column."""
        # No cached_property: before Python 3.12 its lock lets only one thread at a time read any stripe.
        if self._arrays is None:
            self._arrays = self._read()
        return self._arrays


@dataclass(frozen=True)
class EventChunk:
    """Events of one stripe: n keys, and n values for each requested column (no columns in delete deltas).

    If only certain rows are requested, ``late_rows`` (shape (n,)) holds the index of each row in ``late``, or
    -1 for a row that is only needed for the merge. ``rows`` then lacks the columns of ``late``.
    """

    keys: EventKeys
    rows: dict[str, pa.Array]
    late: LateColumns | None = None
    late_rows: NDArray[np.int64] | None = None

    def slice(self, start: int, stop: int) -> EventChunk:
        """Return events start..stop-1, without a copy."""
        rows = {name: array.slice(start, stop - start) for name, array in self.rows.items()}
        late_rows = None if self.late_rows is None else self.late_rows[start:stop]
        return EventChunk(self.keys.slice(start, stop), rows, self.late, late_rows)

    def take(self, indices: NDArray[np.int64]) -> EventChunk:
        """Return the events at these positions, without a copy if they are consecutive."""
        if _are_consecutive(indices):
            return self.slice(int(indices[0]), int(indices[-1]) + 1)
        rows = take_rows(self.rows, indices)
        late_rows = None if self.late_rows is None else self.late_rows[indices]
        return EventChunk(self.keys.take(indices), rows, self.late, late_rows)

    def filter(self, mask: NDArray[np.bool_], *, with_keys: bool = True) -> EventChunk:
        """Return the events for which the mask (shape (n,)) is True, without a copy if all are.

        ``with_keys``: True if the result must have the keys of its events. Otherwise the result may be
        without keys.
        """
        if mask.all():
            return self
        wanted = pa.array(mask)
        rows = {name: array.filter(wanted) for name, array in self.rows.items()}
        keys = self.keys.filter(wanted) if with_keys else self.keys.slice(0, 0)
        return EventChunk(keys, rows, self.late, None if self.late_rows is None else self.late_rows[mask])

    def complete(self) -> EventChunk:
        """Return the same events with all columns. Each of the events must have been requested."""
        if self.late is None or self.late_rows is None:
            return self
        return EventChunk(self.keys, self.rows | take_rows(self.late.arrays, self.late_rows))


def take_rows(rows: Mapping[str, pa.Array], indices: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Return the rows at these positions, without a copy if they are consecutive."""
    if _are_consecutive(indices):
        return {name: array.slice(int(indices[0]), len(indices)) for name, array in rows.items()}
    taken = pa.array(indices)
    return {name: array.take(taken) for name, array in rows.items()}


def _are_consecutive(indices: NDArray[np.int64]) -> bool:
    count = len(indices)
    if not count or indices[-1] - indices[0] + 1 != count:
        return False
    return bool((indices[1:] > indices[:-1]).all())


@dataclass(frozen=True)
class StripeEvents:
    """One stripe of a file.

    Attributes:
        chunk: its events. Rows that were not requested may be missing.
        row_count: the number of rows of the whole stripe.
        first: the ROW__ID of its first event.
        complete_through: a ROW__ID; no later stripe has an event with this or a lower ROW__ID. None if
            unknown.
        is_last: True if this is the last stripe.
    """

    chunk: EventChunk
    row_count: int
    first: RecordIdentifier
    complete_through: RecordIdentifier | None
    is_last: bool
