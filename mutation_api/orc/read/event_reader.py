"""Events of one file: ACID files as they are, original (pre-ACID) files with the identities Hive gives them.

Files are read stripe by stripe, columns by name. Everything a merge relies on is checked on the way: the
event's fields, that no key is null, that keys ascend. A file that breaks it is refused; merged as it is, it
would lose or resurrect rows without a word.

If only rows with certain keys are wanted, the key columns and the event fields of a stripe are read first;
the other columns are read when a row of it is given (:class:`LateColumns`).

Source: Hive's OrcRawRecordMerger (2.3) and VectorizedOrcAcidRowBatchReader (3.1, 4.x).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mutation_api.acid.bucket_codec import (
    MAX_BUCKETS,
    MAX_STATEMENT_ID,
    bucket_ids,
    bucket_property,
    unreadable_properties,
)
from mutation_api.acid.event import (
    BUCKET,
    CURRENT_TRANSACTION,
    EVENT_FIELDS,
    OPERATION,
    ORIGINAL_TRANSACTION,
    ROW,
    ROW_ID,
    Operation,
    event_schema,
)
from mutation_api.acid.merge_events import EventKeys, count_below, find_disorder
from mutation_api.acid.row_id import RecordIdentifier
from mutation_api.acid.version import AcidVersion
from mutation_api.bucketing.placement import Placement
from mutation_api.errors import CorruptFileError, DirectoryStateError, RecordValueError
from mutation_api.orc.read.column_reader import ReadOptions, column_type, read_column
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import Storage
from mutation_api.table.acid_table import AcidColumn
from mutation_api.types.hive_type import parse_hive_type
from mutation_api.types.plain_array import struct_fields

__all__ = [
    "EventChunk",
    "EventFile",
    "EventFileKind",
    "LateColumns",
    "StripeEvents",
    "Wanted",
    "read_events",
]

_KEY_FIELDS = EVENT_FIELDS[:-1]
_NO_STATEMENT = -1
_NAMELESS_COLUMN = re.compile(r"_col([0-9]+)")


class EventFileKind(enum.Enum):
    """What a file is to its partition. ORIGINAL: rows without events; original, loaded or insert-only."""

    BASE = "base"
    ORIGINAL = "original"
    DELTA = "delta"
    DELETE_DELTA = "delete_delta"


@dataclass(frozen=True)
class EventFile:
    """One file that a snapshot reads.

    ``bucket_id`` is -1 for an original file whose name has none. ``first``..``last`` are the ids of its
    directory (0, 0 outside of one; 0, N for a base). ``length`` is the committed length in bytes if a side
    file says so, else None. ``byte_count`` is its size as it was listed.
    """

    location: Location
    kind: EventFileKind
    bucket_id: int
    first: int
    last: int
    statement_id: int | None = None
    length: int | None = None
    byte_count: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Wanted:
    """What to read of each file: ``columns`` out of ``table_columns`` (all data columns, in table order).

    ``only``: the keys of the rows that are wanted; their columns need not be among ``columns``.
    ``placement``: what to check of every row, wanted or not; only where ``only`` has the bucket columns.
    """

    table_columns: tuple[AcidColumn, ...]
    columns: tuple[AcidColumn, ...]
    options: ReadOptions = field(default_factory=ReadOptions)
    only: KeyFilter | None = None
    placement: Placement | None = None

    @functools.cached_property
    def key_columns(self) -> tuple[AcidColumn, ...]:
        """The columns of ``only``, in its order."""
        by_name = {c.name: c for c in self.table_columns}
        return () if self.only is None else tuple(by_name[name] for name in self.only.names)

    @functools.cached_property
    def late_columns(self) -> tuple[AcidColumn, ...]:
        """The columns that are read only of stripes that have a wanted row."""
        return () if self.only is None else tuple(c for c in self.columns if c not in self.key_columns)


class LateColumns:
    """Columns of some rows of a stripe, read when they are first asked for.

    Holds these rows' values only, not the stripe's.
    """

    def __init__(self, stripe: _Stripe, positions: np.ndarray) -> None:
        self._stripe = stripe
        self._positions = positions

    @functools.cached_property
    def arrays(self) -> dict[str, pa.Array]:
        """Values by column, in the order of the positions."""
        return self._stripe.columns.read_late(self._stripe.index, self._positions)


@dataclass(frozen=True)
class EventChunk:
    """Events of one stripe: n keys and, by column asked for, n values (none for delete deltas).

    If only certain rows are wanted, ``places`` (int64, shape (n,)) tells where in ``late`` each row is; -1 is
    a row that is not wanted, but has a say in the merge. ``rows`` then lacks the columns of ``late``.
    """

    keys: EventKeys
    rows: dict[str, pa.Array]
    late: LateColumns | None = None
    places: np.ndarray | None = None

    def slice(self, start: int, stop: int) -> EventChunk:
        """Events start..stop-1, without a copy."""
        rows = {name: array.slice(start, stop - start) for name, array in self.rows.items()}
        places = None if self.places is None else self.places[start:stop]
        return EventChunk(self.keys.slice(start, stop), rows, self.late, places)

    def take(self, indices: np.ndarray) -> EventChunk:
        """The events at these positions; without a copy if they are consecutive."""
        count = len(indices)
        if count and indices[-1] - indices[0] + 1 == count and bool((indices[1:] > indices[:-1]).all()):
            return self.slice(int(indices[0]), int(indices[-1]) + 1)
        taken = pa.array(indices)
        rows = {name: array.take(taken) for name, array in self.rows.items()}
        places = None if self.places is None else self.places[indices]
        return EventChunk(self.keys.take(indices), rows, self.late, places)

    def complete(self) -> EventChunk:
        """The same events with all columns; each of them must be wanted."""
        if self.late is None:
            return self
        taken = pa.array(self.places)
        late = {name: array.take(taken) for name, array in self.late.arrays.items()}
        return EventChunk(self.keys, self.rows | late)


@dataclass(frozen=True)
class StripeEvents:
    """One stripe of a file.

    Attributes:
        chunk: its events; rows that are not wanted may be missing.
        row_count: rows of the stripe, whatever the chunk holds.
        first: ROW__ID of its first event.
        complete_through: no later stripe has an event of a ROW__ID up to this one; None if there is no such.
        is_last: no later stripe follows.
    """

    chunk: EventChunk
    row_count: int
    first: RecordIdentifier
    complete_through: RecordIdentifier | None
    is_last: bool


def read_events(
    storage: Storage,
    file: EventFile,
    wanted: Wanted,
    *,
    version: AcidVersion,
    any_bucket: bool = False,
    first_row: int = 0,
) -> Iterator[StripeEvents]:
    """The file's events in order, stripe by stripe; empty stripes give none.

    If only certain rows are wanted, the others are left out where no merge needs them: everywhere but in
    deltas of legacy tables, where a row that is not wanted may be the newer version of one that is.

    Args:
        storage: where the file lies.
        file: what to read.
        wanted: the columns and their form; a column that the file does not have (added since) is null.
        version: what the file may hold, and how its columns are found and its days counted.
        any_bucket: events of other buckets than the file's own are no fault.
        first_row: the row id of the first row of a file of plain rows.

    Raises:
        CorruptFileError: damaged, not an ACID file, columns of a type that does not fit, or out of order.
        DirectoryStateError: gone, or events of a kind or bucket that its directory must not hold.
        RecordValueError: a timestamp that does not fit the form asked for.
    """
    options = dataclasses.replace(
        wanted.options,
        is_proleptic=version.counts_days_proleptic,
        widens_floats_by_text=version.widens_floats_by_text,
    )
    source = OrcInput(storage, file.location, file.length, options)
    if source.stripe_count == 0:
        return
    options = dataclasses.replace(options, is_proleptic=source.is_proleptic)
    wanted = dataclasses.replace(wanted, options=options)
    if file.kind is EventFileKind.DELETE_DELTA:
        wanted = dataclasses.replace(wanted, columns=(), only=None)
    if file.kind is EventFileKind.ORIGINAL:
        yield from _read_plain(source, file, wanted, version, first_row)
        return
    drops_rows = version.splits_updates or file.kind is EventFileKind.BASE
    previous: EventKeys | None = None
    for keys, stripe in _read_acid(source, file, wanted, version, drops_rows=drops_rows):
        _check_order(keys, previous, file)
        if version.splits_updates:
            _check_operations(keys, file, version)
        if version.encodes_buckets and not any_bucket:
            _check_buckets(keys, file)
        previous = keys.slice(len(keys) - 1, len(keys))
        is_last = stripe.index == source.stripe_count - 1
        yield _stripe_events(stripe.chunk(keys, drops_rows=drops_rows), keys, is_last=is_last)


def _stripe_events(chunk: EventChunk, keys: EventKeys, *, is_last: bool) -> StripeEvents:
    """What is known of a stripe, all of whose events are ``keys``."""
    count = len(keys)
    incomplete = count_below(keys, keys.key(count - 1))
    return StripeEvents(
        chunk=chunk,
        row_count=count,
        first=keys.key(0),
        complete_through=keys.key(incomplete - 1) if incomplete else None,
        is_last=is_last,
    )


def _read_acid(
    source: OrcInput, file: EventFile, wanted: Wanted, version: AcidVersion, *, drops_rows: bool
) -> Iterator[tuple[EventKeys, _Stripe]]:
    stored = _event_fields(source, version)
    in_file = _names_in_file([f.name for f in source.schema.field(ROW).type], wanted, version)
    columns = _FileColumns(source, file, wanted, in_file, stored[ROW])
    canonical = {name: field for field, name in stored.items()}
    names = [*(stored[name] for name in _KEY_FIELDS), *columns.early_names]
    without = columns.stripes_without_keys() if drops_rows else frozenset()
    for index in range(source.stripe_count):
        if index in without:
            continue
        batch = source.read_stripe(index, names)
        if batch.num_rows:
            fields = batch.rename_columns([canonical[name] for name in batch.schema.names])
            yield _event_keys(fields, file), _Stripe(columns, index, batch)


def _read_plain(
    source: OrcInput, file: EventFile, wanted: Wanted, version: AcidVersion, position: int
) -> Iterator[StripeEvents]:
    if _lower(source.schema.names) == _lower(EVENT_FIELDS):
        raise DirectoryStateError(
            f"{file.location} is an ACID file where plain rows belong; Hive would read its events as "
            "rows: move it away"
        )
    in_file = _names_in_file(source.schema.names, wanted, version)
    columns = _FileColumns(source, file, wanted, in_file, None)
    # The first column if there is no other: without any pyarrow does not tell how many rows there are.
    names = columns.early_names or source.schema.names[:1]
    bucket = _bucket_of_plain_rows(file, version)
    without = columns.stripes_without_keys()
    last = source.stripe_count - 1
    for index in range(source.stripe_count):
        count = source.stripe_rows(index)
        if not count:
            continue
        keys = _plain_keys(position, count, file, bucket)
        position += count
        if index in without:
            # Its rows count all the same: those of later files are numbered on.
            yield _stripe_events(EventChunk(keys.slice(0, 0), {}), keys, is_last=index == last)
        else:
            stripe = _Stripe(columns, index, source.read_stripe(index, names))
            yield _stripe_events(stripe.chunk(keys, drops_rows=True), keys, is_last=index == last)


@dataclass(frozen=True)
class _FileColumns:
    """The wanted columns of one file; ``struct`` is the file's name of the struct that they are fields of."""

    source: OrcInput
    file: EventFile
    wanted: Wanted
    in_file: dict[str, str]
    struct: str | None

    @functools.cached_property
    def early(self) -> tuple[AcidColumn, ...]:
        """Columns that are read of every stripe."""
        return self.wanted.columns if self.wanted.only is None else self.wanted.key_columns

    @property
    def early_names(self) -> list[str]:
        """What to ask :meth:`OrcInput.read_stripe` for, to have ``early``."""
        return self._names(self.early)

    def read(
        self, columns: Sequence[AcidColumn], batch: pa.RecordBatch, positions: np.ndarray | None = None
    ) -> dict[str, pa.Array]:
        """Columns of a stripe's rows (at some positions), in the wanted form."""
        stored = {f.name: array for f, array in self._stored(columns, batch)}
        arrays = {c.name: stored[self.in_file[c.name]] for c in columns if c.name in self.in_file}
        count = batch.num_rows
        if positions is not None:
            count, taken = len(positions), pa.array(positions)
            arrays = {name: array.take(taken) for name, array in arrays.items()}
        options, file = self.wanted.options, self.file.location
        return {c.name: _column(arrays.get(c.name), c, count, options, file) for c in columns}

    def read_late(self, index: int, positions: np.ndarray) -> dict[str, pa.Array]:
        """The late columns of a stripe's rows at these positions."""
        columns = self.wanted.late_columns
        names = self._names(columns)
        if not names:
            options, file = self.wanted.options, self.file.location
            return {c.name: _column(None, c, len(positions), options, file) for c in columns}
        return self.read(columns, self.source.read_stripe(index, names), positions)

    def stripes_without_keys(self) -> frozenset[int]:
        """Stripes that hold none of the wanted keys, by what the file's writer noted of them."""
        only = self.wanted.only
        if only is None:
            return frozenset()
        columns = [c for c in self.wanted.key_columns if c.name in self.in_file]
        stored = dict(zip(self._names(columns), columns, strict=True))
        types = {name: parse_hive_type(column.type) for name, column in stored.items()}
        return frozenset(
            index
            for index, ranges in enumerate(self.source.stripe_ranges(types))
            if not all(only.meets(stored[name].name, *ends) for name, ends in ranges.items())
        )

    def _names(self, columns: Sequence[AcidColumn]) -> list[str]:
        prefix = "" if self.struct is None else f"{self.struct}."
        return [f"{prefix}{self.in_file[c.name]}" for c in columns if c.name in self.in_file]

    def _stored(
        self, columns: Sequence[AcidColumn], batch: pa.RecordBatch
    ) -> Iterator[tuple[pa.Field, pa.Array]]:
        if self.struct is None:
            yield from zip(batch.schema, batch.columns, strict=True)
        elif any(c.name in self.in_file for c in columns):
            rows = batch.column(self.struct)
            yield from zip(rows.type, struct_fields(rows), strict=True)


@dataclass(frozen=True)
class _Stripe:
    """One stripe, of which the early columns are read."""

    columns: _FileColumns
    index: int
    batch: pa.RecordBatch

    def chunk(self, keys: EventKeys, *, drops_rows: bool) -> EventChunk:
        """Its events; without the rows that are not wanted, if these may be dropped."""
        wanted = self.columns.wanted
        early = self.columns.read(self.columns.early, self.batch)
        if wanted.only is None:
            return EventChunk(keys, early)
        if wanted.placement is not None:
            wanted.placement.check(early, str(self.columns.file.location))
        positions = wanted.only.find(list(early.values()))
        given = {c.name: early[c.name] for c in wanted.columns if c.name in early}
        late = LateColumns(self, positions)
        if drops_rows:
            chunk = EventChunk(keys, given).take(positions)
            return dataclasses.replace(chunk, late=late, places=np.arange(len(positions)))
        places = np.full(len(keys), -1, np.int64)
        places[positions] = np.arange(len(positions))
        return EventChunk(keys, given, late, places)


def _names_in_file(names: Sequence[str], wanted: Wanted, version: AcidVersion) -> dict[str, str]:
    """Column of the table -> column of the file, for the wanted columns that the file has.

    By position, or by name, case included, as the version has it. Hive's SQL often writes ``_col0``,
    ``_col1``, … instead of names; those always go by position.
    """
    nameless = all(_NAMELESS_COLUMN.fullmatch(name) for name in names)
    if version.matches_columns_by_position or nameless:
        by_name = dict(zip((c.name for c in wanted.table_columns), names, strict=False))
    else:
        by_name = {name: name for name in names}
    return {c.name: by_name[c.name] for c in (*wanted.columns, *wanted.key_columns) if c.name in by_name}


def _event_fields(source: OrcInput, version: AcidVersion) -> dict[str, str]:
    """Event field -> its name in the file."""
    expected = event_schema(pa.struct([]))
    found = source.schema
    fits = tuple(found.names) == EVENT_FIELDS
    if version.ignores_case_of_events:
        fits = _lower(found.names) == _lower(EVENT_FIELDS)
    types = dict(zip(EVENT_FIELDS, found.types, strict=False))
    if (
        not fits
        or not pa.types.is_struct(types[ROW])
        or any(types[name] != expected.field(name).type for name in _KEY_FIELDS)
    ):
        wanted = ", ".join(f"{f.name} {f.type}" for f in expected if f.name != ROW)
        actual = ", ".join(f"{f.name} {f.type}" for f in found)[:500]
        raise CorruptFileError(
            f"{source.location} is no ACID file: expected {wanted}, row struct; found {actual}"
        )
    return dict(zip(EVENT_FIELDS, found.names, strict=True))


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _event_keys(batch: pa.RecordBatch, file: EventFile) -> EventKeys:
    nulls = [name for name in _KEY_FIELDS if batch.column(name).null_count]
    if nulls:
        raise CorruptFileError(f"{file.location}: nulls in {', '.join(nulls)}; every event needs a value")
    operation = batch.column(OPERATION).to_numpy()
    if operation.min() < Operation.INSERT or operation.max() > Operation.DELETE:
        raise CorruptFileError(
            f"{file.location}: operation codes {operation.min()} to {operation.max()}; expected 0 to 2"
        )
    return EventKeys(
        original_txn=batch.column(ORIGINAL_TRANSACTION).to_numpy(),
        bucket=batch.column(BUCKET).to_numpy(),
        row_id=batch.column(ROW_ID).to_numpy(),
        current_txn=batch.column(CURRENT_TRANSACTION).to_numpy(),
        operation=operation.astype(np.int8),
        precedence=_precedence(file, len(operation)),
    )


def _bucket_of_plain_rows(file: EventFile, version: AcidVersion) -> int:
    """The bucket field of the ROW__IDs that Hive gives such rows."""
    if not version.encodes_buckets:
        return file.bucket_id
    try:
        return bucket_property(file.bucket_id, file.statement_id or 0)
    except ValueError as error:
        raise DirectoryStateError(f"{file.location}: Hive cannot name its rows: {error}") from error


def _plain_keys(position: int, count: int, file: EventFile, bucket: int) -> EventKeys:
    return EventKeys(
        original_txn=np.full(count, file.last, np.int64),
        bucket=np.full(count, bucket, np.int32),
        row_id=np.arange(position, position + count, dtype=np.int64),
        current_txn=np.full(count, file.last, np.int64),
        operation=np.full(count, Operation.INSERT, np.int8),
        precedence=_precedence(file, count),
    )


def _precedence(file: EventFile, count: int) -> np.ndarray:
    return np.full(count, _NO_STATEMENT if file.statement_id is None else file.statement_id, np.int32)


def _column(
    array: pa.Array | None, column: AcidColumn, count: int, options: ReadOptions, file: Location
) -> pa.Array:
    hive_type = parse_hive_type(column.type)
    if array is None:
        return pa.nulls(count, column_type(hive_type, options.timestamp_form))
    try:
        return read_column(array, hive_type, options)
    except (CorruptFileError, RecordValueError) as error:
        raise type(error)(f"{file}, column {column.name!r}: {error}") from error


def _check_order(keys: EventKeys, previous: EventKeys | None, file: EventFile) -> None:
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
        f"{file.location} is not sorted: event {text(after)} comes after {text(before)}; Hive would show old "
        "or deleted rows of such a file. Its writer is broken: write the transaction again"
    )


def _check_operations(keys: EventKeys, file: EventFile, version: AcidVersion) -> None:
    expected = {EventFileKind.DELTA: Operation.INSERT, EventFileKind.DELETE_DELTA: Operation.DELETE}
    operation = expected.get(file.kind)
    if operation is None or bool((keys.operation == operation).all()):
        return
    found = sorted({Operation(int(code)).name for code in np.unique(keys.operation)})
    advice = (
        "Hive 2 wrote it before the table was upgraded, and this server shows wrong rows: let Hive 2 compact "
        "the table (major) before the upgrade, or restore it from there"
        if version.uses_write_ids
        else "it was written for a legacy table"
    )
    raise DirectoryStateError(
        f"{file.location} holds {' and '.join(found)} events, but in a table with transactional_properties"
        f"=default a {file.kind.value} holds {operation.name} events only: {advice}"
    )


def _check_buckets(keys: EventKeys, file: EventFile) -> None:
    """Every ROW__ID must name the bucket of its file: by that Hive finds the deletes of a row."""
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
            f"belongs to bucket {file.bucket_id}: Hive overlooks such deletes, and deletes of such rows, in "
            "silence. Its writer is broken: write the transaction again"
        )
