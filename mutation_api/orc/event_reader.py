"""Events of one file: ACID files as they are, original (pre-ACID) files with the identities Hive gives them.

Files are read stripe by stripe, columns by name. Everything a merge relies on is checked on the way: the
event's fields, that no key is null, that keys ascend. A file that breaks it is refused; merged as it is, it
would lose or resurrect rows without a word.

Source: Hive's OrcRawRecordMerger (2.3) and VectorizedOrcAcidRowBatchReader (3.1, 4.x).
"""

from __future__ import annotations

import dataclasses
import enum
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
from mutation_api.acid.hive_type import parse_hive_type
from mutation_api.acid.merge_events import EventKeys, find_disorder
from mutation_api.acid.plain_array import struct_fields
from mutation_api.acid.version import AcidVersion
from mutation_api.errors import CorruptFileError, DirectoryStateError, RecordValueError
from mutation_api.orc.column_reader import ReadOptions, column_type, read_column
from mutation_api.orc.orc_input import OrcInput
from mutation_api.orc.storage import Storage
from mutation_api.table.acid_table import AcidColumn

__all__ = ["EventChunk", "EventFile", "EventFileKind", "Wanted", "read_events"]

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
    file says so, else None.
    """

    path: str
    kind: EventFileKind
    bucket_id: int
    first: int
    last: int
    statement_id: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class Wanted:
    """What to read of each file: ``columns`` out of ``table_columns`` (all data columns, in table order)."""

    table_columns: tuple[AcidColumn, ...]
    columns: tuple[AcidColumn, ...]
    options: ReadOptions = field(default_factory=ReadOptions)


@dataclass(frozen=True)
class EventChunk:
    """Events of one stripe: n keys and, for each column asked for, n values (none for delete deltas).

    ``is_last`` says that no later stripe follows.
    """

    keys: EventKeys
    rows: tuple[pa.Array, ...]
    is_last: bool = False

    def slice(self, start: int, stop: int) -> EventChunk:
        """Events start..stop-1, without a copy."""
        rows = tuple(array.slice(start, stop - start) for array in self.rows)
        return EventChunk(self.keys.slice(start, stop), rows)

    def take(self, indices: np.ndarray) -> EventChunk:
        """The events at these positions; without a copy if they are consecutive."""
        count = len(indices)
        if count and indices[-1] - indices[0] + 1 == count and bool((indices[1:] > indices[:-1]).all()):
            return self.slice(int(indices[0]), int(indices[-1]) + 1)
        taken = pa.array(indices)
        return EventChunk(self.keys.take(indices), tuple(array.take(taken) for array in self.rows))


def read_events(
    storage: Storage,
    file: EventFile,
    wanted: Wanted,
    *,
    version: AcidVersion,
    any_bucket: bool = False,
    first_row: int = 0,
) -> Iterator[EventChunk]:
    """The file's events in order, one chunk a stripe; empty stripes give none.

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
    source = OrcInput(storage, file.path, file.length, options)
    if source.stripe_count == 0:
        return
    options = dataclasses.replace(options, is_proleptic=source.is_proleptic)
    wanted = dataclasses.replace(wanted, options=options)
    if file.kind is EventFileKind.ORIGINAL:
        yield from _read_plain(source, file, wanted, version, first_row)
        return
    previous: EventKeys | None = None
    for chunk in _read_acid(source, file, wanted, version):
        _check_order(chunk.keys, previous, file)
        if version.splits_updates:
            _check_operations(chunk.keys, file, version)
        if version.encodes_buckets and not any_bucket:
            _check_buckets(chunk.keys, file)
        previous = chunk.keys.slice(len(chunk.keys) - 1, len(chunk.keys))
        yield chunk


def _read_acid(
    source: OrcInput, file: EventFile, wanted: Wanted, version: AcidVersion
) -> Iterator[EventChunk]:
    stored = _event_fields(source, version)
    if file.kind is EventFileKind.DELETE_DELTA:
        wanted = dataclasses.replace(wanted, columns=())
    in_file = _names_in_file([f.name for f in source.schema.field(ROW).type], wanted, version)
    canonical = {name: field for field, name in stored.items()}
    names = [*(stored[name] for name in _KEY_FIELDS), *(f"{ROW}.{name}" for name in in_file.values())]
    for index in range(source.stripe_count):
        batch = source.read_stripe(index, names)
        batch = batch.rename_columns([canonical[name] for name in batch.schema.names])
        if batch.num_rows:
            rows = _struct_fields(batch.column(ROW)) if in_file else {}
            arrays = {name: rows[stored] for name, stored in in_file.items()}
            columns = _columns(arrays, wanted, batch.num_rows, file)
            yield EventChunk(_event_keys(batch, file), columns, index == source.stripe_count - 1)


def _read_plain(
    source: OrcInput, file: EventFile, wanted: Wanted, version: AcidVersion, position: int
) -> Iterator[EventChunk]:
    if _lower(source.schema.names) == _lower(EVENT_FIELDS):
        raise DirectoryStateError(
            f"{file.path} is an ACID file where plain rows belong; Hive would read its events as "
            "rows: move it away"
        )
    in_file = _names_in_file(source.schema.names, wanted, version)
    # The first column is read along: without any column pyarrow does not tell how many rows there are.
    names = sorted({source.schema.names[0], *in_file.values()})
    bucket = _bucket_of_plain_rows(file, version)
    for index in range(source.stripe_count):
        batch = source.read_stripe(index, names)
        if batch.num_rows:
            arrays = {name: batch.column(stored) for name, stored in in_file.items()}
            rows = _columns(arrays, wanted, batch.num_rows, file)
            keys = _plain_keys(position, batch.num_rows, file, bucket)
            yield EventChunk(keys, rows, index == source.stripe_count - 1)
        position += batch.num_rows


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
    return {c.name: by_name[c.name] for c in wanted.columns if c.name in by_name}


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
            f"{source.path} is no ACID file: expected {wanted}, row struct; found {actual}"
        )
    return dict(zip(EVENT_FIELDS, found.names, strict=True))


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _event_keys(batch: pa.RecordBatch, file: EventFile) -> EventKeys:
    nulls = [name for name in _KEY_FIELDS if batch.column(name).null_count]
    if nulls:
        raise CorruptFileError(f"{file.path}: nulls in {', '.join(nulls)}; every event needs a value")
    operation = batch.column(OPERATION).to_numpy()
    if operation.min() < Operation.INSERT or operation.max() > Operation.DELETE:
        raise CorruptFileError(
            f"{file.path}: operation codes {operation.min()} to {operation.max()}; expected 0 to 2"
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
        raise DirectoryStateError(f"{file.path}: Hive cannot name its rows: {error}") from error


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


def _struct_fields(rows: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip((f.name for f in rows.type), struct_fields(rows), strict=True))


def _columns(
    arrays: dict[str, pa.Array], wanted: Wanted, count: int, file: EventFile
) -> tuple[pa.Array, ...]:
    return tuple(_column(arrays.get(c.name), c, count, wanted.options, file.path) for c in wanted.columns)


def _column(
    array: pa.Array | None, column: AcidColumn, count: int, options: ReadOptions, path: str
) -> pa.Array:
    hive_type = parse_hive_type(column.type)
    if array is None:
        return pa.nulls(count, column_type(hive_type, options.timestamp_form))
    try:
        return read_column(array, hive_type, options)
    except (CorruptFileError, RecordValueError) as error:
        raise type(error)(f"{path}, column {column.name!r}: {error}") from error


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
        f"{file.path} is not sorted: event {text(after)} comes after {text(before)}; Hive would show old or "
        "deleted rows of such a file. Its writer is broken: write the transaction again"
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
        f"{file.path} holds {' and '.join(found)} events, but in a table with transactional_properties"
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
            f"{file.path}: event {tuple(keys.key(at))} has a bucket property that Hive never wrote"
        )
    ids = bucket_ids(keys.bucket)
    misplaced = ids != file.bucket_id
    if misplaced.any():
        at = int(misplaced.argmax())
        raise DirectoryStateError(
            f"{file.path} holds event {tuple(keys.key(at))} of bucket {int(ids[at])}, but the file belongs "
            f"to bucket {file.bucket_id}: Hive overlooks such deletes, and deletes of such rows, in silence. "
            "Its writer is broken: write the transaction again"
        )
