"""Rows of a snapshot: the visible rows of each (partition, bucket) with their ROW__ID.

:mod:`.partition_plan` determines which files make up each bucket. :func:`read_split` merges them
(:mod:`.file_merge`), and returns the visible rows as batches of the table's columns. Insert-only tables have
neither events nor ROW__IDs, so their files are read one after the other.

Partition columns are added to the rows of a split, and the partition to their ROW__ID.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN, event_schema
from mutation_api.format.hive_type import HiveType, arrow_type, parse_hive_type
from mutation_api.format.layout import AcidVersion
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm, column_type
from mutation_api.orc.read.event_file import EventChunk, EventFileKind
from mutation_api.orc.read.event_reader import count_stripes, read_events
from mutation_api.orc.read.file_columns import RowChoice, Wanted
from mutation_api.orc.read.key_filter import KeyFilter
from mutation_api.read.file_merge import merge_events, merge_files
from mutation_api.read.key_groups import KeyGroups
from mutation_api.read.partition_plan import SnapshotSplit, takes_deletes_of_all_buckets
from mutation_api.read.row_filter import RowFilter
from mutation_api.storage.connect import storage_at
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.bucket_resolver import Placement
from mutation_api.table.partition import partition_scalars
from mutation_api.table.row_type import named_data_columns

EVENT_COLUMN = "EVENT"
"""The column of :func:`read_split_events` with the fields of the event; table columns are in lower case."""

_EVENT_TYPE = pa.struct(list(event_schema(pa.struct([])))[:-1])
_ROW_ID_TYPES = {
    version: pa.struct(
        [(version.transaction_field, pa.int64()), ("bucketid", pa.int32()), ("rowid", pa.int64())]
    )
    for version in AcidVersion
}


def row_id_type(version: AcidVersion) -> pa.StructType:
    """Return the Arrow type of ROW__ID, with Hive's field names in lower case."""
    return _ROW_ID_TYPES[version]


def snapshot_schema(
    version: AcidVersion,
    columns: Sequence[AcidColumn],
    *,
    row_ids: bool = True,
    options: ReadOptions | None = None,
) -> pa.Schema:
    """Return the schema of the batches of :func:`read_split`."""
    form = (options or ReadOptions()).timestamp_form
    return _snapshot_schema(version, tuple(columns), row_ids, form)


@functools.lru_cache
def _snapshot_schema(
    version: AcidVersion, columns: tuple[AcidColumn, ...], row_ids: bool, form: TimestampForm
) -> pa.Schema:
    # Cached: parsing types for each of many small groups took a seventh of the time of reading them.
    fields = [pa.field(c.name, column_type(parse_hive_type(c.type), form)) for c in columns]
    return pa.schema(([pa.field(ROW_ID_COLUMN, row_id_type(version))] if row_ids else []) + fields)


def read_split(
    table: AcidTable,
    split: SnapshotSplit,
    valid: ValidIdList,
    columns: Sequence[str] | None = None,
    row_ids: bool = True,
    options: ReadOptions | None = None,
    only: RowChoice | None = None,
    *,
    checks_placement: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows of a split, ordered by ROW__ID.

    Args:
        table: the table that the split was planned for.
        split: the split to read.
        valid: the list of ids with which the split was planned.
        columns: names of data columns, in any case. If None, all columns. () means none, and requires
            ``row_ids``.
        row_ids: True if the first column is ``ROW__ID``. Insert-only tables have none.
        options: the form of timestamps and the size of batches.
        only: return only rows that it chooses. Its columns are data columns, in lower case, and need not be
            among ``columns``. The other columns are read only from stripes with such a row.
        checks_placement: True to reject rows that do not lie in the bucket that their key hashes to,
            including rows that are read but not returned. Requires that ``only`` has the bucket columns.

    Yields:
        Batches of ``snapshot_schema(…)``, with at most ``options.batch_rows`` rows, none empty.

    Raises:
        RecordLayoutError: If the table does not have a column, nothing is to be read, ROW__IDs of an
            insert-only table are requested, or keys have another type than their column.
        CorruptFileError: If a file is damaged, not an ACID file, or unsorted.
        TableNotMutableError: If a column's type was changed after a file was written, and the file's type is
            not converted.
        DirectoryStateError: If a file is gone, or holds events that it must not hold, or misplaced rows.
        RecordValueError: If a timestamp does not fit the requested form.
    """
    version = table.version
    selected = named_data_columns(table, columns)
    if row_ids and not version.has_row_ids:
        raise RecordLayoutError(
            f"table {table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}; leave it out "
            "(row_ids=False)"
        )
    if not selected and not row_ids:
        raise RecordLayoutError(
            f"table {table.full_name}: nothing to read: neither columns nor ROW__ID are selected"
        )
    options = options or ReadOptions()
    if isinstance(only, KeyFilter):
        _check_keys(table, only, options)
    placement = Placement(table, split.partition_name, split.bucket_id) if checks_placement else None
    wanted = Wanted.of(table, selected, options, only=only, placement=placement, row_ids=row_ids)
    schema = snapshot_schema(version, selected, row_ids=row_ids, options=options)
    for rows in _rows(table, split, valid, wanted):
        yield from _batches(rows, schema, row_ids=row_ids, batch_rows=options.batch_rows)


def stripes_read(table: AcidTable, split: SnapshotSplit, where: RowFilter | None) -> tuple[int, int]:
    """Return the number of stripes in a split's files, and of those that a scan with a condition reads.

    Only the tails of the files are read.

    Raises:
        CorruptFileError: If a file is not an ORC file.
        DirectoryStateError: If a file is gone.
    """
    only = None if where is None else where.in_partition(split.partition_name)
    wanted = Wanted.of(table, (), ReadOptions(), only=only)
    storage = storage_at(split.location)
    counts = [count_stripes(storage, file, wanted, table.version) for file in split.files]
    return sum(count for count, _ in counts), sum(count for _, count in counts)


def read_split_events(
    table: AcidTable, split: SnapshotSplit, valid: ValidIdList, options: ReadOptions | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the visible events in a split's files, in the order in which a file of them must have them.

    Args:
        table: the table that the split was planned for.
        split: either delete deltas only, or files without delete deltas.
        valid: the list of ids with which the split was planned.
        options: the form of timestamps and the size of batches.

    Yields:
        Batches of :data:`EVENT_COLUMN` (operation, ROW__ID, ``currentTransaction``) and, unless the files are
        delete deltas, the data columns. They are NULL in the deletes of legacy tables.

    Errors of :func:`read_split` are passed on.
    """
    options = options or ReadOptions()
    is_delete = any(file.kind is EventFileKind.DELETE_DELTA for file in split.files)
    columns = () if is_delete else table.columns
    wanted = Wanted.of(table, columns, options)
    storage, version = storage_at(split.location), table.version
    any_bucket = takes_deletes_of_all_buckets(table)
    rows = snapshot_schema(version, columns, row_ids=False, options=options)
    schema = pa.schema([pa.field(EVENT_COLUMN, _EVENT_TYPE), *rows])
    for chunk in merge_events(storage, split.files, valid, wanted, version, any_bucket=any_bucket):
        keys = chunk.keys
        fields = (keys.operation, keys.original_txn, keys.bucket, keys.row_id, keys.current_txn)
        events = [pa.array(each, kind.type) for each, kind in zip(fields, _EVENT_TYPE, strict=True)]
        arrays = [pa.StructArray.from_arrays(events, fields=list(_EVENT_TYPE))]
        arrays += [chunk.rows[name] for name in rows.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for start in range(0, batch.num_rows, options.batch_rows):
            yield batch.slice(start, options.batch_rows)


def _check_keys(table: AcidTable, only: KeyFilter, options: ReadOptions) -> None:
    columns = named_data_columns(table, only.names)
    for column, given in zip(columns, only.keys.schema, strict=True):
        expected = column_type(parse_hive_type(column.type), options.timestamp_form)
        if given.name != column.name or given.type != expected:
            raise RecordLayoutError(
                f"table {table.full_name}: keys {given.name} {given.type} do not fit column {column.name} "
                f"{column.type}: pass them as {expected}"
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
    any_bucket = takes_deletes_of_all_buckets(table)
    yield from merge_files(storage, split.files, valid, wanted, version, any_bucket=any_bucket)


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


def full_row_id_type(table: AcidTable) -> pa.StructType:
    """Return the Arrow type of ROW__ID in the table's rows. Partitioned tables add ``partition``."""
    partition = [pa.field(PARTITION_FIELD, pa.string())] if table.partition_keys else []
    return pa.struct([*row_id_type(table.version), *partition])


def split_rows(
    table: AcidTable,
    split: SnapshotSplit,
    valid_ids: ValidIdList,
    columns: Sequence[AcidColumn],
    options: ReadOptions,
    groups: KeyGroups | None = None,
    *,
    where: RowFilter | None = None,
    is_exact: bool = True,
    row_ids: bool = True,
    checks_placement: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows of a split.

    Args:
        table: the table that the split was planned for.
        split: the split to read.
        valid_ids: the list of ids with which the split was planned.
        columns: the data and partition columns, in the requested order.
        options: the form of timestamps and the size of batches.
        groups: return only the rows that these keys select. The split's partition must pass
            ``has_partition``.
        where: return only rows that meet the condition. Its columns need not be among ``columns``. Parts of
            files without such a row are left out, unless ``groups`` select rows by keys.
        is_exact: False to return rows that do not meet ``where`` too, if leaving them out saves no reading. A
            row for which the condition has no value is returned then.
        row_ids: True if ROW__ID is returned. An insert-only table has none.
        checks_placement: True to reject misplaced rows. See
            :func:`~read_split`.

    Yields:
        Batches, none empty: ROW__ID if requested, followed by the columns. In a partitioned table, ROW__ID
        has the field ``partition``.

    Raises:
        RecordValueError: If a partition's string cannot be parsed as its column's type, or the condition has
            no value for a row.

    Errors of :func:`~read_split` are passed on.
    """
    needed = () if where is None else where.columns
    others = [c for c in table.all_columns if c.name in needed and c not in columns]
    columns = (*columns, *others)
    data = [c.name for c in columns if c.name not in table.partition_key_names]
    has_row_ids = table.version.has_row_ids and (row_ids or not data)
    # If neither ROW__ID nor columns are requested, one column is read to count the rows.
    read = data or ([] if has_row_ids else [table.column_names[0]])
    values = partition_scalars(table, split.partition_name, columns)
    only: RowChoice | None = None
    if groups is not None:
        only = groups.filter_for(split.partition_name)
    if only is None and where is not None:
        only = where.in_partition(split.partition_name)
    for batch in read_split(
        table,
        split,
        valid_ids,
        read,
        has_row_ids,
        options,
        only,
        checks_placement=checks_placement,
    ):
        arrays = {name: batch.column(name) for name in data}
        arrays |= {name: pa.repeat(value, batch.num_rows) for name, value in values.items()}
        found = {c.name: arrays[c.name] for c in columns}
        if has_row_ids and row_ids:
            found = {ROW_ID_COLUMN: _row_ids(table, split, batch), **found}
        rows = pa.RecordBatch.from_pydict(found)
        if where is not None and is_exact:
            rows = where.rows(rows)
            if not rows.num_rows:
                continue
        yield rows.select(range(rows.num_columns - len(others))) if others else rows


def _row_ids(table: AcidTable, split: SnapshotSplit, batch: pa.RecordBatch) -> pa.StructArray:
    row_ids = batch.column(ROW_ID_COLUMN)
    if not table.partition_keys:
        return row_ids
    partition = pa.repeat(pa.scalar(split.partition_name, pa.string()), len(row_ids))
    return pa.StructArray.from_arrays([*row_ids.flatten(), partition], fields=list(full_row_id_type(table)))


def exact_rows(
    read: Callable[[TimestampForm], Iterator[pa.RecordBatch]], table: AcidTable, keys_have_clocks: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part of the table. Timestamps have nanoseconds in batches that need them.

    Args:
        read: a function that reads the rows in a form, each time in the same order.
        table: the table.
        keys_have_clocks: True if a key column has timestamps. Keys are compared in microseconds.

    Raises:
        RecordValueError: If a column of a batch has digits below microseconds as well as years that
            nanoseconds cannot hold, or if a key column has timestamps that microseconds cannot hold.
    """
    count = 0
    try:
        for batch in read(TimestampForm.MICROSECONDS):
            yield batch
            count += batch.num_rows
    except RecordValueError as error:
        if keys_have_clocks:
            raise RecordValueError(
                f"table {table.full_name}: keys that are timestamps are compared in microseconds: {error}. "
                "Merge by other keys"
            ) from error
    else:
        return
    for batch in read(TimestampForm.TEXT):
        rest = batch.slice(min(count, batch.num_rows))
        count -= batch.num_rows - rest.num_rows
        if rest.num_rows:
            yield with_clocks(table, rest)


def with_clocks(table: AcidTable, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in the form TEXT with timestamps in place of their strings.

    Raises:
        RecordValueError: If a column has digits below microseconds as well as years that nanoseconds cannot
            hold.
    """
    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
    for column in table.columns:
        kind = parse_hive_type(column.type)
        if column.name in arrays and kind.contains("timestamp"):
            arrays[column.name] = _clocks(table, column.name, arrays[column.name], kind)
    return pa.RecordBatch.from_pydict(arrays)


def _clocks(table: AcidTable, name: str, texts: pa.Array, kind: HiveType) -> pa.Array:
    try:
        return texts.cast(arrow_type(kind, timestamp_unit="us"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    try:
        return texts.cast(arrow_type(kind, timestamp_unit="ns"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RecordValueError(
            f"table {table.full_name}: column {name!r} ({kind.text}): some rows have digits below "
            "microseconds and others have years outside 1678 to 2261, which nanoseconds cannot hold: "
            f"{error}. Merge them in separate transactions"
        ) from error
