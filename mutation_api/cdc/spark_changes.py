"""The changes of a table between two positions, as a DataFrame of Spark.

The driver lists directories, and leaves out the splits without new files. Tasks read the events of the
others with :mod:`mutation_api.read.changes`, and look up the images of deleted rows. Nothing is collected.

A key may move to another bucket or partition, so updates are found by a shuffle of the changes by write id
and key. Changes of insert-only tables are not shuffled.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession, Window

from metastore_client.valid_ids import ValidIdList
from mutation_api.format.event import DELETE, INSERT, ROW_ID_COLUMN
from mutation_api.hive.feed_rules import Images, check_images, keys_by_table
from mutation_api.merge.row_changes import CHANGE_COLUMN, WRITE_ID_COLUMN, labelled
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.change_plan import split_changes
from mutation_api.read.changes import UPDATE_AFTER, UPDATE_BEFORE, SplitChanges
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.read_ahead import read_in_turn
from mutation_api.read.snapshot_reader import split_rows
from mutation_api.read.table_view import TableView, open_table
from mutation_api.spark.credentials import worker_settings
from mutation_api.spark.jvm import given_or_active, spark_context
from mutation_api.spark.snapshot_frame import BATCH_ROWS_DEFAULT, check_view, selected_columns
from mutation_api.spark.tasks import snapshot_ddl, split_numbers
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.table.acid_table import AcidColumn, AcidTable, AcidTableSerializer, SnapshotView
from mutation_api.table.row_type import named_columns, quoted
from mutation_api.transaction.feed_position import Since, committed_ids, ids_between
from mutation_api.transaction.hold import Hold
from mutation_api.write.writing_order import joined_batches

_BATCH_BYTES = 8 << 20


def table_changes(
    view: SnapshotView,
    table: str,
    since: Since,
    until: Since | None = None,
    *,
    on: Sequence[str] | None = None,
    net: bool = False,
    columns: Sequence[str] | None = None,
    images: Images = "all",
    spark: SparkSession | None = None,
    truncate_nanoseconds: bool = False,
    batch_rows: int = BATCH_ROWS_DEFAULT,
) -> DataFrame:
    """Return what changed in a table between two positions.

    Each evaluation of the DataFrame reads the files, so evaluate it while the view is open. The position
    after these changes is ``changes_position(view, table)``.

    Args:
        view: an open snapshot, or a transaction, which does not see its own changes here.
        table: ``database.table``.
        since: a position, such as ``position`` of ``Hive.changes``, or a moment with a time zone.
            ``"beginning"`` returns the rows as they are, as inserts.
        until: the position or moment at which the changes end. If None, the view.
        on: key columns that make a delete and an insert ``update_before`` and ``update_after``, if the key
            has one of each in a transaction (with ``net``, in all changes) and has no NULL.
        net: True to leave out rows that were inserted and deleted since.
        columns: names of data and partition columns. If None, all.
        images: ``"keys"`` to read only the columns of ``on`` of rows as they were before a delete or an
            update. Their other data columns are NULL. This is much faster for scattered changes.
        spark: the session. If None, this thread's active session.
        truncate_nanoseconds: see :func:`~mutation_api.spark.snapshot_frame.read_table`.
        batch_rows: number of rows in a batch.

    Returns:
        ``_change`` (insert, delete, update_before or update_after), ``_write_id``, ROW__ID and the columns,
        with the types of :func:`~mutation_api.spark.snapshot_frame.read_table`. Insert-only tables have no
        ROW__ID. The rows have no order.

    Raises:
        ConfigurationError: If ``since`` or ``until`` is not a position of this table, ``until`` is not after
            ``since``, or there is no session.
        DirectoryStateError: If a compaction or an overwrite has removed changes since then.
        TableNotMutableError: If Spark cannot hold a column.
        RecordLayoutError: If the table lacks a column.
        ClientError: If the view does not have the table, is not open, or has lost its lock.
        CorruptFileError, DirectoryStateError, RecordValueError: When the frame is evaluated. See
            :func:`~mutation_api.spark.snapshot_frame.read_table`.
    """
    check_view(view, table)
    session = given_or_active(spark)
    seen = committed_view(view, table)
    acid_table = seen.table
    shown = selected_columns(acid_table, columns)
    on_table = keys_by_table(on, [table], "changes: on")
    check_images(images, on_table, [table], "table_changes: images")
    keys = [c.name for c in named_columns(acid_table, on_table.get(acid_table.full_name, ()))]
    extra = [c for c in named_columns(acid_table, keys) if c not in shown]
    plan = plan_changes(
        view,
        seen,
        since,
        until,
        columns=(*shown, *extra),
        net=net,
        image_columns=frozenset(keys) if images == "keys" else None,
        options=ReadOptions(TimestampForm.MICROSECONDS, truncate_nanoseconds, batch_rows),
        storage=worker_settings(spark_context(session), (acid_table.location, *seen.locations.values())),
    )
    changes = plan.frame(session)
    if keys and plan.reader.before is not None and acid_table.version.has_row_ids:
        changes = _paired(changes, keys, together=net)
    if not extra:
        return changes
    hidden = {c.name for c in extra}
    return changes.select(*[quoted(name) for name in changes.columns if name not in hidden])


def committed_view(view: SnapshotView, table: str) -> TableView:
    """Return a view's table without the changes of its own transaction."""
    name = view.table(table).full_name
    return dataclasses.replace(open_table(view, name), own_files={}, valid_ids=committed_ids(view, name))


@dataclass(frozen=True)
class Held:
    """A hold that protects all files since a position, and a function for the transactions of ids."""

    hold: Hold
    transactions: Callable[[], Mapping[int, int]]


@dataclass(frozen=True)
class ChangeReader:
    """A reader of splits in a worker.

    Attributes:
        table_text: the table, as :class:`~mutation_api.table.acid_table.AcidTableSerializer` writes it.
        before: the ids that were seen. If None, all rows are read, as inserts.
        after: the ids at the end.
        columns: the data and partition columns.
        net: see :func:`table_changes`.
        options: the form of timestamps, and the size of batches.
        storage: the driver's storage settings.
        image_columns: see :class:`~mutation_api.read.changes.SplitChanges`.
    """

    table_text: str
    before: ValidIdList | None
    after: ValidIdList
    columns: tuple[AcidColumn, ...]
    net: bool
    options: ReadOptions
    storage: HadoopSettings
    image_columns: frozenset[str] | None = None

    def batches(self, splits: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield the changes in splits of a plan."""
        configure_storage(self.storage)
        table = AcidTableSerializer.decode(self.table_text)
        wiped_by = dict(map(_parsed_split, splits))
        read = functools.partial(self._read, table, wiped_by)
        found = (batch for _, batch in read_in_turn(wiped_by, read))
        limit = self.options.batch_rows
        for batch in joined_batches(found, _BATCH_BYTES, limit):
            for start in range(0, batch.num_rows, limit):
                yield batch.slice(start, limit)

    def _read(
        self, table: AcidTable, wiped_by: Mapping[SnapshotSplit, int | None], split: SnapshotSplit
    ) -> Iterator[pa.RecordBatch]:
        if self.before is None:
            for rows in split_rows(table, split, self.after, self.columns, self.options):
                yield labelled(INSERT, None, rows)
            return
        by = wiped_by[split]
        after = self.after if by is None else self.after.up_to(by - 1)
        changes = SplitChanges(
            table,
            split,
            self.before,
            after,
            self.columns,
            self.options,
            wiped_by=by,
            image_columns=self.image_columns,
        )
        for found in changes.read(net=self.net):
            yield labelled(found.kind, found.ids, found.rows)


@dataclass(frozen=True)
class ChangePlan:
    """The splits of a table that have changes, and their reader.

    Attributes:
        reader: the reader.
        splits: the splits in which something may have changed, with the overwrites after them, as strings.
        ddl: the Spark types of the columns.
    """

    reader: ChangeReader
    splits: tuple[str, ...]
    ddl: str

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the changes, which tasks read."""
        if not self.splits:
            # With this condition, Spark knows without a job that there are no rows.
            return spark.createDataFrame([], self.ddl).where("false")
        return split_numbers(spark, len(self.splits)).mapInArrow(
            _Numbered(self.reader, self.splits), self.ddl
        )


@dataclass(frozen=True)
class _Numbered:
    """The function that runs in tasks: it takes batches of split numbers and yields batches of changes."""

    reader: ChangeReader
    splits: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        yield from self.reader.batches(self.splits[number] for number in numbers)


def plan_changes(
    view: SnapshotView,
    seen: TableView,
    since: Since,
    until: Since | None,
    *,
    columns: tuple[AcidColumn, ...],
    net: bool,
    options: ReadOptions,
    storage: HadoopSettings,
    image_columns: frozenset[str] | None = None,
    held: Held | None = None,
) -> ChangePlan:
    """Plan which splits are read, and how. This lists directories.

    Args:
        view: see :func:`table_changes`.
        seen: the view's table.
        since: see :func:`table_changes`.
        until: see :func:`table_changes`.
        columns: the data and partition columns.
        net: see :func:`table_changes`.
        options: the form of timestamps, and the size of batches.
        storage: storage settings for the workers.
        image_columns: see :class:`~mutation_api.read.changes.SplitChanges`.
        held: the hold that protects the files since then, if any.

    Raises:
        ConfigurationError, DirectoryStateError, TableNotMutableError: See :func:`table_changes`.
    """
    table = seen.table
    ddl = f"{CHANGE_COLUMN} string, {WRITE_ID_COLUMN} bigint, {snapshot_ddl(table, columns)}"
    is_kept = None if held is None else held.hold.keeps
    before, after, is_replaced = ids_between(view, table.full_name, since, until, is_kept)
    if before is None:
        splits = [_split_text(split, None) for split in dataclasses.replace(seen, valid_ids=after).plan()]
    else:
        known = held.transactions() if is_replaced and held is not None else None
        changes = split_changes(seen, before, columns, until=after, transactions=known)
        splits = [_split_text(each.split, each.wiped_by) for each in changes]
    if is_replaced and held is not None:
        held.hold.check()
    text = AcidTableSerializer.encode(table)
    reader = ChangeReader(text, before, after, columns, net, options, storage, image_columns)
    return ChangePlan(reader, tuple(splits), ddl)


def _split_text(split: SnapshotSplit, wiped_by: int | None) -> str:
    return f"{'' if wiped_by is None else wiped_by} {split.to_json()}"


def _parsed_split(text: str) -> tuple[SnapshotSplit, int | None]:
    wiped_by, _, split = text.partition(" ")
    return SnapshotSplit.from_json(split), int(wiped_by) if wiped_by else None


def _paired(changes: DataFrame, keys: Sequence[str], *, together: bool) -> DataFrame:
    """Combine a delete and an insert of one key into an update, if the key has one of each."""
    is_delete, is_insert = (sf.col(CHANGE_COLUMN) == kind for kind in (DELETE, INSERT))
    is_null = functools.reduce(lambda one, other: one | other, [sf.col(quoted(k)).isNull() for k in keys])
    # Rows without a key are not paired, so each goes to any task.
    spread = sf.when(is_null, sf.col(f"{ROW_ID_COLUMN}.rowid"))
    by = ([] if together else [WRITE_ID_COLUMN]) + [quoted(key) for key in keys]
    group = Window.partitionBy(*by, spread)
    counts = [sf.count_if(each).over(group) for each in (is_delete, is_insert)]
    is_pair = ~is_null & (is_delete | is_insert) & (counts[0] == 1) & (counts[1] == 1)
    label = sf.when(is_delete, UPDATE_BEFORE).otherwise(UPDATE_AFTER)
    return changes.withColumn(CHANGE_COLUMN, sf.when(is_pair, label).otherwise(sf.col(CHANGE_COLUMN)))
