"""The rows that a transaction can read, with their ROW__ID, as a DataFrame: all rows, or rows by key.

The driver lists directories and decides which files make up each (partition, bucket). Tasks merge them with
:mod:`mutation_api.read.snapshot_reader`. Rejected alternative: Spark's own ORC reader, which fails on ACID
files unless all six event columns are read, and does not merge.

For rows by key, each bucket of a table is searched, in one task, for the keys that hash to it. A merge uses
this if its source has more keys than the driver collects. The keys are shuffled to their buckets. Rows of the
table are not shuffled. Only rows that have a key leave their task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession

from mutation_api.errors import ConfigurationError, RecordLayoutError, listed
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.format.plain_array import struct_fields
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.key_groups import group_keys, in_key_types
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.row_filter import RowFilter
from mutation_api.read.table_scan import arrow_schema
from mutation_api.read.table_view import TableView, open_table
from mutation_api.spark.credentials import worker_settings
from mutation_api.spark.jvm import given_or_active, spark_context
from mutation_api.spark.tasks import TASKS_PER_CORE, SplitReader, read_splits, snapshot_ddl, to_tasks
from mutation_api.spark.versions import ArrowColumn, computed
from mutation_api.table.acid_table import AcidColumn, AcidTable, AcidTableSerializer, SnapshotView
from mutation_api.table.bucket_resolver import BucketIdResolver
from mutation_api.table.row_type import named_columns, quoted

KEYS_PER_PASS = 1_000_000
"""The number of keys that a task holds at a time. A task with more keys reads its buckets several times."""

_BUCKET = "__bucket"


def search_buckets(
    table: AcidTable,
    splits: Sequence[SnapshotSplit],
    reader: SplitReader,
    keys: DataFrame,
    *,
    null_safe: bool,
    keys_per_pass: int = KEYS_PER_PASS,
) -> DataFrame:
    """Return the rows of the splits that have one of the keys, each once, with the columns of a snapshot.

    Args:
        table: the table, whose bucket columns are among the keys.
        splits: splits of the table's buckets, without plain files.
        reader: the reader of the splits.
        keys: key columns under the table's names (lower case) and in its Spark types. Not distinct.
        null_safe: True if NULL is a key like any other. If False, keys with a NULL are left out.
        keys_per_pass: limit for the memory of a task, except for keys with equal values in the bucket
            columns.
    """
    names = keys.columns
    given = keys if null_safe else keys.na.drop()
    text = AcidTableSerializer.encode(table)
    bucket = ArrowColumn(_BucketOf(text, tuple(names)), "int", (sf.struct(*map(_field, names)),))
    placed = computed(given, {_BUCKET: bucket, **{name: _field(name) for name in names}})
    by_bucket: dict[int, list[str]] = {}
    for split in splits:
        by_bucket.setdefault(split.bucket_id, []).append(split.to_json())
    search = _BucketSearch(text, by_bucket, reader, null_safe, keys_per_pass)
    tasks = min(table.num_buckets, TASKS_PER_CORE * spark_context(keys.sparkSession).defaultParallelism)
    order = [_BUCKET, *(quoted(name.lower()) for name in table.bucket_columns)]
    in_order = to_tasks(placed, tasks, sf.col(_BUCKET) % tasks).sortWithinPartitions(*order)
    return in_order.mapInArrow(search, snapshot_ddl(table, reader.columns))


def _field(name: str) -> Column:
    return sf.col(quoted(name))


@dataclass(frozen=True)
class _BucketOf:
    """The function that runs in tasks and returns the buckets to which the key columns ``names`` hash."""

    table_text: str
    names: tuple[str, ...]

    def __call__(self, keys: pa.Array) -> pa.Array:
        columns = pa.record_batch(struct_fields(keys), names=list(self.names))
        return BucketIdResolver(AcidTableSerializer.decode(self.table_text)).resolve(columns)


@dataclass(frozen=True)
class _BucketSearch:
    """The function that runs in tasks: it takes keys ordered by bucket and yields batches of rows."""

    table_text: str
    splits: Mapping[int, Sequence[str]]
    reader: SplitReader
    null_safe: bool
    keys_per_pass: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        bucket_columns = [name.lower() for name in table.bucket_columns]
        for bucket_id, found in key_passes(batches, bucket_columns, self.keys_per_pass):
            keys = in_key_types(table, found)
            here = [SnapshotSplit.from_json(text) for text in self.splits.get(bucket_id, ())]
            names = list(dict.fromkeys(split.partition_name for split in here))
            groups = group_keys(table, keys, names, null_safe=self.null_safe, prunes_buckets=False)
            wanted = [split for split in here if groups.has_partition(split.partition_name)]
            yield from self.reader.in_turn(table, wanted, groups, checks_placement=lambda _: True)


def key_passes(
    batches: Iterator[pa.RecordBatch], bucket_columns: Sequence[str], limit: int
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the keys of one bucket at a time, at most about ``limit`` of them.

    Rows with equal values in the bucket columns stay together, and so do equal keys.

    Args:
        batches: the bucket id, then the key columns, ordered by bucket id and the bucket columns.
        bucket_columns: names of the bucket columns.
        limit: a pass ends at the first new value of the bucket columns after this number of rows.

    Yields:
        The bucket id, and the key columns of a pass, which is never empty.
    """
    held: list[pa.RecordBatch] = []
    for part in _parts_of_one_bucket(batches):
        rest = part
        if held and _bucket_id(held[0]) != _bucket_id(part):
            yield _pass(held)
            held = []
        elif held and sum(batch.num_rows for batch in held) >= limit:
            cut = _first_other(held[-1].slice(held[-1].num_rows - 1), part, bucket_columns)
            held.append(part.slice(0, cut))
            rest = part.slice(cut)
            if rest.num_rows:
                yield _pass(held)
                held = []
        if rest.num_rows:
            held.append(rest)
    if held:
        yield _pass(held)


def _pass(held: list[pa.RecordBatch]) -> tuple[int, pa.Table]:
    keys = pa.Table.from_batches(held).combine_chunks()
    return _bucket_id(held[0]), keys.drop_columns(_BUCKET)


def _bucket_id(batch: pa.RecordBatch) -> int:
    return int(batch.column(_BUCKET)[0].as_py())


def _parts_of_one_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ids = batch.column(_BUCKET).to_numpy()
        borders = [0, *(np.flatnonzero(np.diff(ids)) + 1).tolist(), batch.num_rows]
        for start, stop in itertools.pairwise(borders):
            if start < stop:
                yield batch.slice(start, stop - start)


def _first_other(last: pa.RecordBatch, part: pa.RecordBatch, names: Sequence[str]) -> int:
    """Return the index of the first row of ``part`` that differs from ``last`` in a column, or its length."""
    differs = np.zeros(part.num_rows, bool)
    for name in names:
        value, column = last.column(name)[0], part.column(name)
        if value.is_valid:
            differs |= pc.fill_null(pc.not_equal(column, value), True).to_numpy(zero_copy_only=False)
        else:
            differs |= column.is_valid().to_numpy(zero_copy_only=False)
    return int(np.argmax(differs)) if differs.any() else part.num_rows


BATCH_ROWS_DEFAULT = 16_384
"""The number of rows in an Arrow batch that a Python worker passes to Spark."""


def read_table(
    view: SnapshotView,
    table: str,
    *,
    spark: SparkSession | None = None,
    columns: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    where: pc.Expression | str | None = None,
    keys: pa.Table | None = None,
    null_safe_keys: bool = False,
    without_keys: bool = False,
    prune_buckets: bool = True,
    truncate_nanoseconds: bool = False,
    batch_rows: int = BATCH_ROWS_DEFAULT,
) -> DataFrame:
    """Return the rows of a table that a transaction or an open snapshot can read, with their ROW__ID.

    Each evaluation of the DataFrame reads the files, so evaluate it while the view is open. Afterwards Hive's
    cleaner may remove them. This call lists the directories, only once.

    Args:
        view: an open transaction with the table as source or sink, or the result of
            ``client.open_snapshot("db.table")``. Use the latter in a ``with`` block, whose end releases its
            lock.
        table: ``database.table``.
        spark: the session. If None, this thread's active session.
        columns: names of data and partition columns, in any case, in the order of the result. If None, all
            columns. ``[]`` returns only ROW__ID and reads no other column; it is refused for an insert-only
            table.
        partitions: escaped names (``ds=2015-11-19``) of the partitions to read. If None, all partitions.
        where: only rows that meet this condition are returned: an Arrow expression over data and partition
            columns, such as ``pc.field("id") == 5``, or the name of a boolean column. Partitions and stripes
            that cannot hold such a row are not read. In the others, the columns of the condition are read
            first. A row for which it is null does not meet it. ``DataFrame.where`` drops the
            other rows only after they have been read.
        keys: if given, only rows whose values equal those of a row of this table are returned. Its columns
            are key columns of the table, in any case and including partition columns, in the types of
            ``arrow_type(…, timestamp_unit="us")``. They need not be among ``columns``. Partitions, buckets
            and stripes that cannot hold any of the keys are not read. In the others, the key columns are read
            first. NaN equals NaN, -0.0 equals 0.0, and NULL does not equal any value.
        null_safe_keys: True if NULL equals NULL.
        without_keys: True to return the other rows instead, those that have none of the keys.
        prune_buckets: True to skip buckets to which no key hashes, if the keys include the bucket columns.
            The rows of the other buckets are then checked: if a row lies in a different bucket than its hash,
            DirectoryStateError is raised. If False, all buckets are read, as are those of a table that was
            altered.
        truncate_nanoseconds: True to drop the last three digits of timestamps. Spark's timestamps have six
            fractional digits, Hive's nine. If False, a value that has these digits is refused, since it would
            be a different value when written back.
        batch_rows: number of rows in a batch.

    Returns:
        ``ROW__ID`` struct<writeid:bigint, bucketid:int, rowid:bigint> (Hive 2: ``transactionid``) and the
        columns. In a partitioned table, ROW__ID has a fourth field ``partition``, because an update or delete
        requires the partition of its row. An insert-only table has no ROW__ID. timestamp columns are
        timestamp_ntz, char and varchar are strings.

    Raises:
        ConfigurationError: If the view is a client, or if there is no session.
        RecordLayoutError: If the table lacks a column or partition, if keys have another type, or if the
            condition does not fit the columns.
        TableNotMutableError: If Spark cannot hold a column (uniontype). List the other columns in
            ``columns``.
        DirectoryStateError: See :func:`mutation_api.read.partition_plan.plan_splits`.
        ClientError: If the view does not have the table, is not open, or has lost its lock.
        CorruptFileError, DirectoryStateError, RecordValueError: When the frame is evaluated. This is then a
            pyspark exception whose message ends with the library error. Within
            :func:`~mutation_api.spark.worker_errors.translated_worker_errors` it is the library error itself.
    """
    check_view(view, table)
    session = given_or_active(spark)
    seen = open_table(view, table)
    acid_table = seen.table
    wanted = selected_columns(acid_table, columns)
    names = _names(seen, partitions)
    condition = None if where is None else RowFilter.of(where, acid_table, arrow_schema(acid_table))
    if condition is not None:
        names = condition.partitions(names)
    groups = None
    if keys is not None:
        groups = group_keys(
            acid_table,
            keys,
            names,
            null_safe=null_safe_keys,
            excludes=without_keys,
            prunes_buckets=prune_buckets,
        )
        names = [name for name in names if groups.has_partition(name)]
    splits = seen.plan(names)
    if groups is not None:
        splits = [split for split in splits if groups.has_split(split)]
    locations = (acid_table.location, *(seen.locations[name] for name in names))
    reader = SplitReader(
        seen.valid_ids,
        wanted,
        ReadOptions(TimestampForm.MICROSECONDS, truncate_nanoseconds, batch_rows),
        worker_settings(spark_context(session), locations),
        condition,
    )
    return read_splits(session, acid_table, splits, reader, groups)


def read_table_by_bucket(
    transaction: SnapshotView,
    table: str,
    keys: DataFrame,
    *,
    columns: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    null_safe_keys: bool = False,
) -> DataFrame:
    """Return the rows of a table that have one of very many keys, and possibly others.

    Only the keys are shuffled, each to the task that searches its bucket. Table rows are not shuffled. Every
    row that is read is checked to lie in the bucket of its hash. Plain files (loaded, or written before the
    table was transactional) are read as a whole.

    Args:
        transaction: see the view of :func:`read_table`.
        table: a table whose buckets the keys determine
            (:func:`mutation_api.table.bucket_resolver.tells_bucket`).
        keys: key columns of the table under its names and in its Spark types. Not distinct.
        columns: see :func:`read_table`.
        partitions: see :func:`read_table`.
        null_safe_keys: see :func:`read_table`.

    Returns:
        See :func:`read_table`.

    Raises:
        Errors: See :func:`read_table`. When the frame is evaluated, RecordValueError too if a column cannot
            hold one of its keys.
    """
    transaction.check()
    seen = open_table(transaction, table)
    acid_table, names = seen.table, _names(seen, partitions)
    splits = seen.plan(names)
    placed = [split for split in splits if split.is_of_bucket(acid_table.num_buckets)]
    others = [split for split in splits if not split.is_of_bucket(acid_table.num_buckets)]
    options = ReadOptions(TimestampForm.MICROSECONDS)
    locations = (acid_table.location, *(seen.locations[name] for name in names))
    storage = worker_settings(spark_context(keys.sparkSession), locations)
    reader = SplitReader(seen.valid_ids, selected_columns(acid_table, columns), options, storage)
    found = search_buckets(acid_table, placed, reader, keys, null_safe=null_safe_keys)
    return found.unionAll(read_splits(keys.sparkSession, acid_table, others, reader)) if others else found


def check_view(view: SnapshotView, table_name: str) -> None:
    """Raise an error if a client is passed instead of a snapshot, or if the snapshot is not open."""
    if hasattr(view, "open_snapshot"):
        raise ConfigurationError(
            f"a client is not a snapshot. Use with client.open_snapshot({table_name!r}) as view: "
            f"read_table(view, {table_name!r})"
        )
    view.check()


def selected_columns(table: AcidTable, names: Sequence[str] | None) -> tuple[AcidColumn, ...]:
    """Return the data and partition columns with these names. If ``names`` is None, all columns.

    Raises:
        RecordLayoutError: If the table lacks a column, or if nothing is selected of an insert-only table.
    """
    columns = named_columns(table, names)
    if not columns and not table.version.has_row_ids:
        raise RecordLayoutError(
            f"table {table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}, so name at least one "
            f"column of {', '.join(c.name for c in named_columns(table, None))}"
        )
    return columns


def _names(seen: TableView, partitions: Sequence[str] | None) -> list[str]:
    """Return the names of the partitions to read; '' if the table is not partitioned."""
    table = seen.table
    if partitions is None:
        return [*seen.locations]
    if not table.partition_keys:
        raise RecordLayoutError(f"table {table.full_name} is not partitioned. Omit partitions")
    unknown = sorted(set(partitions) - seen.locations.keys())
    if unknown:
        raise RecordLayoutError(
            f"table {table.full_name}: this snapshot does not have the partition {listed(unknown)}. It has "
            f"{len(seen.locations)} partitions, such as {', '.join(sorted(seen.locations)[:3]) or 'none'}"
        )
    return [*dict.fromkeys(partitions)]
