"""HiveChangesSource: the changes of a table as a stream of Spark, a data source in Python.

Offsets are positions of a change feed. Spark keeps them in its checkpoint. After a restart, it requests the
changes between two of them again. The result is the same as long as the files contain all of these changes;
otherwise the query fails with DirectoryStateError.

Spark keeps one process with the reader for each query, next to its driver. The reader lists directories
there, and a read lock protects the files from the time when a batch is planned until Spark asks for the next
one. Tasks read splits.

Limits of batches require Spark 4.2 or later, which passes the start of a batch to the reader. A batch
consists of whole transactions.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from metastore_client.valid_ids import ValidIdList
from mutation_api.cdc.spark_changes import ChangeReader, Held, committed_view, plan_changes
from mutation_api.errors import ClientError, ConfigurationError, listed
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.merge.row_changes import CHANGE_COLUMN, WRITE_ID_COLUMN
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.change_plan import count_changes, split_changes
from mutation_api.read.changes import SplitChanges
from mutation_api.spark.snapshot_frame import selected_columns
from mutation_api.spark.tasks import snapshot_ddl
from mutation_api.spark.versions import class_of, has_read_limits
from mutation_api.storage.connect import configure_storage, settings
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.table.row_type import named_columns
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.feed_position import (
    BEGINNING,
    NOW,
    Since,
    check_complete,
    ids_seen,
    position_text,
)
from mutation_api.transaction.hold import Hold
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.snapshot import Snapshot
from mutation_api.upkeep.transaction_files import known_transactions

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    _OF_SOURCES, _OF_LIMITS = "pyspark.sql.datasource", "pyspark.sql.streaming.datasource"
    DataSource = class_of(_OF_SOURCES, "DataSource")
    DataSourceStreamReader = class_of(_OF_SOURCES, "DataSourceStreamReader")
    InputPartition = class_of(_OF_SOURCES, "InputPartition")
    ReadAllAvailable = class_of(_OF_LIMITS, "ReadAllAvailable")
    ReadMaxRows = class_of(_OF_LIMITS, "ReadMaxRows")
    SupportsTriggerAvailableNow = class_of(_OF_LIMITS, "SupportsTriggerAvailableNow")

_log = logging.getLogger(__name__)

_STORAGE_KEYS = ("fs.", "dfs.", "hadoop.", "ipc.", "google.cloud.")
_TABLE, _METASTORE, _USER, _SINCE, _COLUMNS = "table", "metastore", "user", "since", "columns"
_TRANSACTIONS, _ROWS, _HOLD = "maxTransactionsPerTrigger", "maxRowsPerTrigger", "hold"
_NAMES = (_TABLE, _METASTORE, _USER, _SINCE, _COLUMNS, _TRANSACTIONS, _ROWS, _HOLD)
_TASKS_MAX = 64
"""The maximum number of tasks that read a batch."""

Offset = dict[str, Any]
"""A position as JSON, or ``{"beginning": true}``."""


class HiveChangesSource(DataSource):
    """The changes of a table as a stream: a data source for Spark 4, named ``hive_changes``::

        spark.dataSource.register(HiveChangesSource)
        changes = spark.readStream.format("hive_changes").option("table", "sales.orders").load(…)

    Columns are those of :func:`~mutation_api.cdc.spark_changes.table_changes`. Options, in any case:

    * ``table``: ``database.table``.
    * ``since``: where a new query begins: a position, ``beginning``, ``now``, or a time such as
      ``2026-03-01T12:00:00Z``. With ``beginning``, the first batch has all rows, as inserts, regardless of
      limits.
    * ``metastore``: its address. Without it, the hive-site.xml of the driver's environment is read.
    * ``user``: user name for the metastore.
    * ``columns``: names of data and partition columns, separated by commas. Without it, all.
    * ``maxTransactionsPerTrigger``, ``maxRowsPerTrigger``: limits of a batch, from Spark 4.2 on. A batch
      consists of whole transactions, at least one.
    * ``hold``: maximum time in seconds for which Hive's cleaner keeps files that no batch has read. The next
      batch then finds all changes even after a major compaction. Without it, the query fails after such a
      compaction.
    * ``fs.…``, ``dfs.…``, ``hadoop.…``: storage settings that the driver's environment does not have.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "hive_changes"

    def schema(self) -> str:
        """Return the current columns of the table. See :meth:`streamReader` for errors."""
        options = _Options.parse(self.options)
        with options.client() as client:
            (table,) = client.tables
            columns = selected_columns(table, options.columns)
            return f"{CHANGE_COLUMN} string, {WRITE_ID_COLUMN} bigint, {snapshot_ddl(table, columns)}"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of a query.

        Raises:
            ConfigurationError: If an option is missing, unknown or invalid, or if this Spark has no limits.
        """
        return _ChangesReader(_Options.parse(self.options), schema)


@dataclass(frozen=True)
class _Options:
    """The options of :class:`HiveChangesSource`."""

    table: str
    since: Since
    metastore: str | None
    user: str | None
    columns: tuple[str, ...] | None
    transactions: int | None
    rows: int | None
    hold: int | None
    storage: Mapping[str, str]

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> _Options:
        """Return the options. Raises ConfigurationError for an unknown or invalid one."""
        found = {name.lower(): text for name, text in given.items()}
        storage = {name: found.pop(name) for name in list(found) if name.startswith(_STORAGE_KEYS)}
        known = {name.lower(): name for name in _NAMES}
        if unknown := sorted(found.keys() - known.keys()):
            raise ConfigurationError(f"hive_changes has no option {listed(unknown)}: it has {listed(_NAMES)}")
        for name in (_TABLE, _SINCE):
            if not found.get(name):
                raise ConfigurationError(
                    f'hive_changes: the option {name} is missing. Pass .option("table", "database.table"), '
                    'and .option("since", …) with beginning, now, a position or a time'
                )
        options = cls(
            found[_TABLE],
            _since(found[_SINCE]),
            found.get(_METASTORE),
            found.get(_USER),
            tuple(each.strip() for each in found[_COLUMNS].split(",")) if _COLUMNS in found else None,
            _limit(found, _TRANSACTIONS),
            _limit(found, _ROWS),
            _limit(found, _HOLD),
            storage,
        )
        if (options.transactions or options.rows) and not has_read_limits():
            raise ConfigurationError(
                f"hive_changes: {_TRANSACTIONS} and {_ROWS} require Spark 4.2 or later: earlier releases do "
                "not pass the start of a batch to a Python source. Leave them out"
            )
        return options

    def client(self) -> MutatorClient:
        """Return a client of the table, which connects when it is entered."""
        if self.storage:
            configure_storage(HadoopSettings.from_environment().with_properties(self.storage))
        builder = MutatorClientBuilder().metastore(self.metastore).add_source_table(self.table)
        return (builder if self.user is None else builder.user(self.user)).build()


def _since(text: str) -> Since:
    if text in (BEGINNING, NOW) or text.lstrip().startswith("{"):
        return text
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"hive_changes: since={text!r} is not a position, beginning, now, or a time such as "
            "2026-03-01T12:00:00Z"
        ) from error


def _limit(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigurationError(f"hive_changes: {name} must be a number above 0, got {text!r}")
    return int(text)


@dataclass(frozen=True)
class _Task:
    """The splits that a task reads."""

    reader: ChangeReader
    splits: tuple[str, ...]


class _ChangesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a query. Its copy in each task contains only the options and the schema."""

    def __init__(self, options: _Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._client: MutatorClient | None = None
        self._view: Snapshot | None = None
        self._target: ValidIdList | None = None
        self._last: Offset | None = None
        self._hold: Hold | None = None
        self._next_hold: Hold | None = None
        self._is_replaced = False

    def initialOffset(self) -> Offset:  # noqa: N802  (Spark's name)
        """Return where a new query begins."""
        if self._options.since == BEGINNING:
            return {BEGINNING: True}
        view = self._opened()
        try:
            return _offset(ids_seen(view, view.table_names, self._options.since))
        finally:
            self._release()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """Return the limits in the options, if any.

        Spark passes them on, or an object that means no limit.
        """
        options = self._options
        if options.transactions or options.rows:
            return ReadMaxRows(options.rows or sys.maxsize)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Record the present end of the changes, at which this query stops."""
        view = self._opened()
        self._target = view.valid_ids(*view.table_names)
        self._release()

    def latestOffset(  # noqa: N802  (Spark's name)
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        """Return the end of the next batch, or ``start`` if nothing changed.

        Before Spark 4.2, no arguments are passed.
        """
        self._release()  # the last batch has been read
        start = self._last if start is None else start
        try:
            if self._options.hold is not None:
                self._drop_next_hold()
                self._next_hold = self._connected().open_hold(self._options.table, seconds=self._options.hold)
            end = self._end(self._opened(), start, limit)
        except BaseException:
            self._release()
            raise
        if end == start:
            self._swap_holds(end)
            self._release()
        self._last = end
        return end

    def _end(self, view: Snapshot, start: Offset | None, limit: ReadLimit | None) -> Offset:
        (name,) = view.table_names
        seen = committed_view(view, name)
        now = seen.valid_ids if self._target is None else self._target
        if start is None or BEGINNING in start:
            return _offset({name: now})
        before = ids_seen(view, (name,), json.dumps(start))
        if _offset(before) == _offset({name: now}):
            return start
        held = self._held(view, before)
        is_kept = None if held is None else held.hold.keeps
        self._is_replaced = bool(check_complete(view, before, is_kept=is_kept))
        known = held.transactions() if self._is_replaced and held is not None else None
        readers = split_changes(seen, before[name], (), until=now, transactions=known)
        counts = count_changes(readers)
        if not counts:
            return start
        later = counts.keys() - self._taken(counts, limit)
        return _offset({name: now.without(_with_all_of_files(readers, later))})

    def _taken(self, counts: Mapping[int, int], limit: ReadLimit | None) -> set[int]:
        """Return the ids of the next batch."""
        if limit is None or isinstance(limit, ReadAllAvailable):
            return set(counts)
        transactions, rows = self._options.transactions or sys.maxsize, self._options.rows or sys.maxsize
        taken: set[int] = set()
        for id in sorted(counts):
            rows -= counts[id]
            if taken and (len(taken) >= transactions or rows < 0):
                break
            taken.add(id)
        return taken

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch."""
        if start == end:
            return []
        view = self._opened()
        (name,) = view.table_names
        seen = committed_view(view, name)
        own = (CHANGE_COLUMN, WRITE_ID_COLUMN, ROW_ID_COLUMN)
        held = None if BEGINNING in start else self._held(view, ids_seen(view, (name,), json.dumps(start)))
        plan = plan_changes(
            view,
            seen,
            BEGINNING if BEGINNING in start else json.dumps(start),
            json.dumps(end),
            columns=named_columns(seen.table, [each for each in self._schema.names if each not in own]),
            net=False,
            options=ReadOptions(TimestampForm.MICROSECONDS),
            storage=settings(),
            held=held,
        )
        count = min(len(plan.splits), _TASKS_MAX)
        return [InputPartition(_Task(plan.reader, plan.splits[at::count])) for at in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task."""
        task: _Task = partition.value
        schema = to_arrow_schema(self._schema)
        for batch in task.reader.batches(task.splits):
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

    def commit(self, end: Offset) -> None:
        """Release the lock: a batch has been written."""
        self._swap_holds(end)
        self._release()

    def stop(self) -> None:
        """Close the connection."""
        self._release()
        self._drop_next_hold()
        if self._hold is not None:
            self._hold.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> Snapshot:
        """Return the open snapshot, or a new one if there is none or its lock is lost."""
        if self._view is not None:
            try:
                self._view.check()
            except ClientError as error:
                _log.warning("reopening the snapshot of %s: %s", self._options.table, error)
                self._release()
        if self._view is None:
            self._view = self._connected().open_snapshot(self._options.table)
        return self._view

    def _connected(self) -> MutatorClient:
        if self._client is None:
            self._client = self._options.client().connect()
        return self._client

    def _held(self, view: Snapshot, seen: Mapping[str, ValidIdList]) -> Held | None:
        """Return the hold if it protects all changes after a position."""
        if self._hold is None or not self._hold.covers(seen):
            return None
        (table,) = (view.table(name) for name in view.table_names)
        return Held(self._hold, functools.partial(known_transactions, self._connected().metastore, table))

    def _swap_holds(self, end: Offset) -> None:
        """Switch to the new hold, unless some of the changes that the old one protects have not been read."""
        new = self._next_hold
        if new is None:
            return
        seen = ids_seen(view := self._opened(), view.table_names, json.dumps(end))
        (name,) = seen
        now = committed_view(view, name).valid_ids
        if self._is_replaced and _offset(seen) != _offset({name: now}):
            self._drop_next_hold()
            return
        new.protect(seen)
        self._next_hold = None
        if self._hold is not None:
            self._hold.close()
        self._hold = new

    def _drop_next_hold(self) -> None:
        new, self._next_hold = self._next_hold, None
        if new is not None:
            new.close()

    def _release(self) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close()


def _offset(ids: Mapping[str, ValidIdList]) -> Offset:
    found: Offset = json.loads(position_text(ids))
    return found


def _with_all_of_files(readers: list[SplitChanges], ids: set[int]) -> set[int]:
    """Return ids, and for insert-only tables all other ids of their files, which are read together."""
    return ids.union(*(each for reader in readers for each in reader.plain_ranges() if each[-1] in ids))
