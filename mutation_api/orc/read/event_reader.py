"""Events of one file: ACID files as they are, original (pre-ACID) files with the identities Hive assigns.

Files are read stripe by stripe, and columns by name. The reader checks everything that a merge relies on: the
event's fields, that no key is null, that keys ascend. A file that fails a check is rejected, because merging
it would silently lose rows or bring deleted rows back.

If only rows with certain keys are requested, the key columns and the event fields of a stripe are read first.
The other columns are read when one of its rows is returned (:class:`LateColumns`).

Source: Hive's OrcRawRecordMerger (2.3) and VectorizedOrcAcidRowBatchReader (3.1, 4.x).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import CorruptFileError, DirectoryStateError
from mutation_api.format.event import EVENT_FIELDS, ROW, Operation, bucket_property, event_schema
from mutation_api.format.layout import AcidVersion
from mutation_api.format.merge_events import EventKeys, count_below, is_remaining
from mutation_api.orc.format.checked_file import faults_of
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.event_file import (
    EventChunk,
    EventFile,
    EventFileKind,
    LateColumns,
    StripeEvents,
    check_buckets,
    check_operations,
    check_order,
    take_rows,
)
from mutation_api.orc.read.file_columns import (
    FileColumns,
    NumberedRows,
    StripeNumbers,
    Wanted,
    names_in_file,
)
from mutation_api.orc.read.orc_input import OrcInput
from mutation_api.storage.connect import reading_threads
from mutation_api.storage.protocol import Storage

_KEY_FIELDS = EVENT_FIELDS[:-1]
_MANY_ROWS = 50_000
"""From so many rows on, decoding all event fields of a stripe takes longer than reading it in two steps."""
_EXPECTED = event_schema(pa.struct([]))
_KEY_TYPES = [_EXPECTED.field(name).type for name in _KEY_FIELDS]


def read_events(
    storage: Storage,
    file: EventFile,
    wanted: Wanted,
    *,
    version: AcidVersion,
    any_bucket: bool = False,
    first_row: int = 0,
) -> Iterator[StripeEvents]:
    """Yield the file's events in order, stripe by stripe. Empty stripes are skipped. Errors name the file.

    If only certain rows are requested, the others are left out, except in deltas of legacy tables: there,
    another row may be the newer version of a requested one, so the merge needs it.

    Args:
        storage: the file's storage.
        file: the file to read.
        wanted: the columns and their form. A column that the file does not have (added later) is null.
        version: determines what the file may hold, how its columns are found, and how its days are counted.
        any_bucket: True if events of buckets other than the file's own are allowed.
        first_row: the row id of the first row of a file of plain rows.

    Raises:
        CorruptFileError: If the file is damaged, is not an ACID file, has columns of an unsuitable type, or
            is out of order.
        DirectoryStateError: If the file is gone, or its directory must not hold events of this kind or
            bucket.
        RecordValueError: If a timestamp does not fit the requested form.
    """
    with faults_of(file.location):
        yield from _events(storage, file, wanted, version, any_bucket=any_bucket, first_row=first_row)


def _events(
    storage: Storage,
    file: EventFile,
    wanted: Wanted,
    version: AcidVersion,
    *,
    any_bucket: bool,
    first_row: int,
) -> Iterator[StripeEvents]:
    source, wanted = _opened(storage, file, wanted, version)
    if source.stripe_count == 0:
        return
    if file.kind is EventFileKind.ORIGINAL:
        yield from _read_plain(source, file, wanted, version, first_row)
        return
    drops_rows = _drops_rows(file, version)
    previous: EventKeys | None = None
    is_local = reading_threads(storage) == 1
    for keys, stripe in _read_acid(
        source, file, wanted, version, drops_rows=drops_rows, has_cheap_requests=is_local
    ):
        check_order(keys, previous, file)
        if version.splits_updates:
            check_operations(keys, file, version)
        if version.encodes_buckets and not any_bucket:
            check_buckets(keys, file)
        previous = keys.slice(len(keys) - 1, len(keys))
        is_last = stripe.index == source.stripe_count - 1
        yield stripe.events(keys, drops_rows=drops_rows, is_last=is_last)


def count_stripes(storage: Storage, file: EventFile, wanted: Wanted, version: AcidVersion) -> tuple[int, int]:
    """Return the number of a file's stripes, and of those that :func:`read_events` reads.

    Arguments and errors are those of :func:`read_events`. Only the file's tail is read.
    """
    with faults_of(file.location):
        source, wanted = _opened(storage, file, wanted, version)
        if source.stripe_count == 0 or not _drops_rows(file, version):
            return source.stripe_count, source.stripe_count
        is_plain = file.kind is EventFileKind.ORIGINAL
        struct = None if is_plain else event_fields(source, version)[ROW]
        names = source.schema.names if struct is None else [f.name for f in source.schema.field(struct).type]
        columns = FileColumns(source, file, wanted, names_in_file(names, wanted), struct)
        return source.stripe_count, source.stripe_count - len(columns.stripes_without_keys())


def _opened(
    storage: Storage, file: EventFile, wanted: Wanted, version: AcidVersion
) -> tuple[OrcInput, Wanted]:
    """Open a file, and return it with the columns and rows to read."""
    options = _options(wanted.options, version.hive_release, is_proleptic=version.counts_days_proleptic)
    source = OrcInput(storage, file.location, file.length, options)
    options = _options(options, version.hive_release, is_proleptic=source.is_proleptic)
    wanted = dataclasses.replace(wanted, options=options)
    if file.kind is EventFileKind.DELETE_DELTA:
        wanted = dataclasses.replace(wanted, columns=(), only=None, sought=None)
    return source, wanted


def _drops_rows(file: EventFile, version: AcidVersion) -> bool:
    """Return True if rows that were not requested can be left out before the merge."""
    return version.splits_updates or file.kind in (EventFileKind.BASE, EventFileKind.ORIGINAL)


@functools.lru_cache(maxsize=64)
def _options(given: ReadOptions, release: int, *, is_proleptic: bool) -> ReadOptions:
    """Return the options for one file. Cached, because most files of a table have the same."""
    return dataclasses.replace(given, is_proleptic=is_proleptic, release=release)


def _stripe_events(chunk: EventChunk, keys: EventKeys, row_count: int, *, is_last: bool) -> StripeEvents:
    """Describe a stripe. ``keys`` are the keys of the events that were read."""
    incomplete = count_below(keys, keys.key(len(keys) - 1))
    return StripeEvents(
        chunk=chunk,
        row_count=row_count,
        first=keys.key(0),
        complete_through=keys.key(incomplete - 1) if incomplete else None,
        is_last=is_last,
    )


def _read_acid(
    source: OrcInput,
    file: EventFile,
    wanted: Wanted,
    version: AcidVersion,
    *,
    drops_rows: bool,
    has_cheap_requests: bool,
) -> Iterator[tuple[EventKeys, _Stripe | _NumberedStripe]]:
    """Yield the stripes that may hold requested rows, with the keys of all events or of the outer ones.

    If requests are cheap, rows that have been chosen by their values get their ROW__IDs by their positions in
    a stripe, if its rows are numbered without a gap.
    """
    stored = event_fields(source, version)
    in_file = names_in_file([f.name for f in source.schema.field(ROW).type], wanted)
    columns = FileColumns(source, file, wanted, in_file, stored[ROW])
    canonical = {name: field for field, name in stored.items()}
    names, early = [stored[name] for name in _KEY_FIELDS], columns.early_names
    choice = wanted.only if drops_rows and early else None
    is_read_first = choice is not None and choice.is_read_first

    def numbers_of(index: int) -> StripeNumbers | None:
        is_worth_it = choice is not None and has_cheap_requests and source.stripe_rows(index) >= _MANY_ROWS
        ranges = columns.event_ranges if is_worth_it else None
        return None if ranges is None else ranges.numbers(index)

    sought = columns.sought_rows() if drops_rows else None
    if sought is not None:
        without = sought.stripes_without_ids()
    else:
        without = columns.stripes_without_keys() if drops_rows else frozenset()
    for index in range(source.stripe_count):
        if index in without:
            continue
        numbered = None if sought is None else sought.numbered(index)
        if numbered is not None:
            yield numbered.ends, _NumberedStripe(columns, index, numbered, {})
            continue
        groups = columns.groups_with_keys(index) if drops_rows else None
        if groups is not None and not len(groups):
            continue
        numbers = None if is_read_first else numbers_of(index)
        stripe = None
        if is_read_first or numbers is not None:
            stripe = _Stripe(columns, index, source.read_stripe(index, early, groups), groups)
            if not len(stripe.chosen):
                continue
            numbers = numbers or numbers_of(index)
            numbered = None if numbers is None else numbers.rows_at(stripe.chosen)
            if numbered is not None:
                yield numbered.ends, _NumberedStripe(columns, index, numbered, stripe.chosen_early())
                continue
            groups = stripe.choose_key_groups()
        batch = source.read_stripe(index, [*names, *early] if stripe is None else names, groups)
        if batch.num_rows:
            fields = batch.rename_columns([canonical[name] for name in batch.schema.names])
            yield _event_keys(fields, file), stripe or _Stripe(columns, index, batch, groups, groups)


def _read_plain(
    source: OrcInput, file: EventFile, wanted: Wanted, version: AcidVersion, position: int
) -> Iterator[StripeEvents]:
    if _lower(source.schema.names) == _lower(EVENT_FIELDS):
        raise DirectoryStateError(
            f"{file.location} is an ACID file among files of plain rows. Hive would read its events as "
            "rows; move it away"
        )
    in_file = names_in_file(source.schema.names, wanted)
    columns = FileColumns(source, file, wanted, in_file, None)
    # If no column is read, read the first one: without columns, pyarrow does not report the number of rows.
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
        groups = np.zeros(0, np.int64) if index in without else columns.groups_with_keys(index)
        if groups is not None and not len(groups):
            # Its rows still count, because numbering continues in later files.
            yield _stripe_events(EventChunk(keys.slice(0, 0), {}), keys, count, is_last=index == last)
        else:
            stripe = _Stripe(columns, index, source.read_stripe(index, names, groups), groups)
            yield stripe.events(keys, drops_rows=True, is_last=index == last)


class _Stripe:
    """One stripe whose early columns have been read.

    Args:
        columns: the requested columns of the file.
        index: the number of the stripe.
        batch: the early columns.
        groups: the row groups of ``batch``. If None, all.
        key_groups: the row groups of the keys that :meth:`events` gets. If None, all.

    Attributes:
        chosen: the positions of the chosen rows in the stripe.
    """

    def __init__(
        self,
        columns: FileColumns,
        index: int,
        batch: pa.RecordBatch,
        groups: NDArray[np.int64] | None,
        key_groups: NDArray[np.int64] | None = None,
    ) -> None:
        self.columns = columns
        self.index = index
        self._early = columns.read(columns.early, batch)
        self._groups = columns.source.row_groups(index)
        self._key_groups = key_groups
        self.chosen = self._chosen_early = np.zeros(0, np.int64)
        wanted = columns.wanted
        if wanted.only is not None:
            if wanted.placement is not None:
                wanted.placement.check(self._early, str(columns.file.location))
            self.chosen = self._chosen_early = wanted.only.find(list(self._early.values()))
            if groups is not None:
                self.chosen = self._groups.positions(groups)[self._chosen_early]

    def choose_key_groups(self) -> NDArray[np.int64] | None:
        """Return the row groups whose keys :meth:`events` is to get: those of the chosen rows."""
        found = self._groups.holding(self.chosen)
        self._key_groups = found if self._groups.are_few(found) else None
        return self._key_groups

    def events(self, keys: EventKeys, *, drops_rows: bool, is_last: bool) -> StripeEvents:
        """Return the stripe's events, given their keys."""
        chunk = self._chunk(keys, drops_rows=drops_rows)
        return _stripe_events(chunk, keys, self._groups.row_count, is_last=is_last)

    def _chunk(self, keys: EventKeys, *, drops_rows: bool) -> EventChunk:
        """Return the stripe's events, without rows that were not requested if these may be dropped."""
        wanted, early = self.columns.wanted, self._early
        positions = of_keys = self.chosen
        if wanted.sought is not None and drops_rows:
            positions = of_keys = np.flatnonzero(
                ~is_remaining(keys, wanted.sought, ValidTxnList.everything())
            )
        elif wanted.only is None:
            self.columns.check_texts(early)
            return EventChunk(keys, early)
        elif self._key_groups is not None:
            of_keys = self._groups.places(self._key_groups, positions)
        rows = self._groups.row_count
        late = LateColumns(functools.partial(self.columns.read_late, self.index, positions, rows))
        if drops_rows:
            chosen = EventChunk(keys, {}).take(of_keys).keys
            return EventChunk(chosen, self.chosen_early(), late, np.arange(len(positions)))
        late_rows = np.full(len(keys), -1, np.int64)
        late_rows[positions] = np.arange(len(positions))
        return EventChunk(keys, self._requested_early, late, late_rows)

    def chosen_early(self) -> dict[str, pa.Array]:
        """Return the requested early columns of the chosen rows."""
        return take_rows(self._requested_early, self._chosen_early)

    @property
    def _requested_early(self) -> dict[str, pa.Array]:
        return {c.name: self._early[c.name] for c in self.columns.wanted.columns if c.name in self._early}


@dataclass(frozen=True)
class _NumberedStripe:
    """One stripe whose rows are numbered by their positions. ``early`` are columns that have been read."""

    columns: FileColumns
    index: int
    rows: NumberedRows
    early: Mapping[str, pa.Array]

    def events(self, ends: EventKeys, *, drops_rows: bool, is_last: bool) -> StripeEvents:
        """Return the requested events; ``ends`` are the keys of the stripe's first and last event."""
        assert drops_rows, "the other rows are left out"
        rows, first, last = self.rows, ends.key(0), ends.key(len(ends) - 1)
        late = LateColumns(functools.partial(self.columns.read_late, self.index, rows.positions, rows.count))
        return StripeEvents(
            chunk=EventChunk(rows.keys, dict(self.early), late, np.arange(len(rows.keys))),
            row_count=rows.count,
            first=first,
            complete_through=last._replace(row_id=last.row_id - 1) if rows.count > 1 else None,
            is_last=is_last,
        )


def event_fields(source: OrcInput, version: AcidVersion) -> dict[str, str]:
    """Return the name in the file of each event field.

    Raises CorruptFileError if the file does not have the fields of an event.
    """
    found = source.schema
    fits = tuple(found.names) == EVENT_FIELDS
    if version.ignores_case_of_events:
        fits = _lower(found.names) == _lower(EVENT_FIELDS)
    *key_types, row_type = found.types if fits else (None,)
    if key_types != _KEY_TYPES or not pa.types.is_struct(row_type):
        wanted = ", ".join(f"{f.name} {f.type}" for f in _EXPECTED if f.name != ROW)
        actual = ", ".join(f"{f.name} {f.type}" for f in found)[:500]
        raise CorruptFileError(
            f"{source.location} is not an ACID file: expected {wanted}, row struct; got {actual}"
        )
    return dict(zip(EVENT_FIELDS, found.names, strict=True))


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _event_keys(batch: pa.RecordBatch, file: EventFile) -> EventKeys:
    arrays = [batch.column(name) for name in _KEY_FIELDS]
    if any(array.null_count for array in arrays):
        nulls = [name for name, array in zip(_KEY_FIELDS, arrays, strict=True) if array.null_count]
        raise CorruptFileError(f"{file.location}: nulls in {', '.join(nulls)}; every event needs a value")
    operation, original_txn, bucket, row_id, current_txn = [array.to_numpy() for array in arrays]
    if operation.min() < Operation.INSERT or operation.max() > Operation.DELETE:
        raise CorruptFileError(
            f"{file.location}: got operation codes {operation.min()} to {operation.max()}, expected 0 to 2"
        )
    return EventKeys(
        original_txn=original_txn,
        bucket=bucket,
        row_id=row_id,
        current_txn=current_txn,
        operation=operation.astype(np.int8),
        precedence=np.full(len(operation), file.precedence, np.int32),
    )


def _bucket_of_plain_rows(file: EventFile, version: AcidVersion) -> int:
    """Return the bucket field in the ROW__IDs that Hive assigns to plain rows."""
    if not version.encodes_buckets:
        return file.bucket_id
    try:
        return bucket_property(file.bucket_id, file.statement_id or 0)
    except ValueError as error:
        raise DirectoryStateError(f"{file.location}: its rows cannot have ROW__IDs: {error}") from error


def _plain_keys(position: int, count: int, file: EventFile, bucket: int) -> EventKeys:
    row_ids = np.arange(position, position + count, dtype=np.int64)
    return EventKeys.inserted(row_ids, file.last, bucket, file.last, file.precedence)
