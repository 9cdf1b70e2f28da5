"""MySqlSource: tables of a MySQL or MariaDB server, first with SELECT, then from its binary log.

The server has to log whole rows with the names of their columns, and each table needs a key. Both are checked
before anything is read. A table without a watermark is read with SELECT. The position in the log is noted
before the rows are read, so that no change is lost between the two. Changes made in the meantime are also in
the log, and are applied afterwards in the same transaction. Applying them twice is harmless because rows have
keys.

A read determines the end of the log once. It returns everything that was committed before that position, or
before a statement that changes a table without row events. It reads the rows of the log one by one and writes
them to Parquet files as Arrow batches. An engine reads only these files.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

from mutation_api.cdc.mysql.binary_log import BinaryLog
from mutation_api.cdc.mysql.column_types import (
    TIME_ZONE_DEFAULT,
    ZERO_DATES,
    ZERO_DATES_DEFAULT,
    ValueOptions,
)
from mutation_api.cdc.mysql.log_position import INGEST, START_OVER, Advice, LogPosition
from mutation_api.cdc.mysql.log_reading import RowImages, Undone
from mutation_api.cdc.mysql.logged_statements import Barrier, LoggedStatements
from mutation_api.cdc.mysql.new_columns import new_columns
from mutation_api.cdc.mysql.server import MySqlAddress, MySqlServer, begin_snapshot
from mutation_api.cdc.mysql.spill import Spill
from mutation_api.cdc.mysql.statements import Followed
from mutation_api.cdc.mysql.table_plan import TablePlan, why_not_plain
from mutation_api.cdc.source import Batch, LocalBatch, LocalOperations, Position, SourceTable, Stop
from mutation_api.cdc.source_url import OwnFolder, located
from mutation_api.errors import ConfigurationError, InputError, InputFormatError, RecordLayoutError
from mutation_api.storage.location import LocationLike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FETCH_ROWS = 100
SELECT_ROWS = 10_000
SELECT_BYTES = 64 << 20
"""The limits of SELECT rows that are in memory at a time."""

_log = logging.getLogger(__name__)


class MySqlSource:
    """A change source for one database of a server; its files last until the next read or :meth:`close`.

    ``advice``: the wording of messages, for commands whose options differ from those of ``ingest mysql``.
    """

    def __init__(
        self,
        address: MySqlAddress,
        database: str,
        *,
        time_zone: str = TIME_ZONE_DEFAULT,
        zero_dates: str = ZERO_DATES_DEFAULT,
        ignored_columns: Collection[str] = (),
        seen_to: Collection[str] = (),
        recopy: Collection[str] = (),
        spill_directory: LocationLike | None = None,
    ) -> None:
        """Create a source without connecting to the server.

        Args:
            address: address of the server.
            database: the database of all tables.
            time_zone: zone in which a TIMESTAMP becomes a local timestamp; a DATETIME stays unchanged.
            zero_dates: handling of dates with a zero month or day: ``error`` or ``null``.
            ignored_columns: columns (``table.column``) that only one side has. A column of the source is left
                out; a column of Hive becomes NULL in rows that change. Any other difference is an error.
            seen_to: positions in the log (``file:offset``) of statements that have been carried out in Hive
                by hand.
            recopy: tables of the source to copy again as a whole; their rows and watermarks replace those in
                Hive.
            spill_directory: directory for the files of rows, on any storage that Spark's executors can read.
                If None, the system's directory for temporary files, which is enough for Spark on one machine.

        Raises:
            ConfigurationError: If an option has an invalid value.
        """
        if zero_dates not in ZERO_DATES:
            raise ConfigurationError(f"zero_dates={zero_dates!r}: expected one of {', '.join(ZERO_DATES)}")
        try:
            pa.array([0], pa.timestamp("us", tz=time_zone)).cast(pa.string())
        except (pa.ArrowInvalid, TypeError, UnicodeError) as error:
            raise ConfigurationError(
                f"time_zone={time_zone!r}: {error}; expected the name of a time zone, such as Europe/Berlin"
            ) from error
        self._server = MySqlServer(address)
        self._database = database
        self._options = ValueOptions(time_zone, zero_dates)
        self._ignored_columns = frozenset(name.lower() for name in ignored_columns)
        self._seen_to = frozenset(seen_to)
        self._recopied = frozenset(recopy)
        self.advice: Advice = INGEST
        self._spill_directory = None if spill_directory is None else located(spill_directory)
        self._own_folder = OwnFolder(self._spill_directory)

    @property
    def source_id(self) -> str:
        """The name in watermarks: ``mysql:host:port/database``."""
        address = self._server.address
        return f"mysql:{address.host}:{address.port}/{self._database}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the files of the last read, and close the connection."""
        self._server.close()
        self._own_folder.remove()

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """Read everything committed up to now; see :class:`~mutation_api.cdc.source.ChangeSource`.

        Raises:
            ConfigurationError: If the server's log lacks changes (the message names the settings), or if
                Spark runs on other machines and no ``spill_directory`` was given.
            ConnectionFailedError: If the server does not answer, or the account lacks privileges.
            RecordLayoutError: If a table has no key, or its columns do not match Hive's.
            RecordValueError: If a value does not fit Hive's column.
            SourcePositionError: If the log no longer contains the changes that follow, or belongs to another
                server.
            InputError: If a table was changed while it was read whole, the log contains an unknown event, or
                the files for Spark cannot be written.
        """
        from mutation_api.cdc.spark_engine import check_machines, in_tasks  # needs pyspark

        if self._spill_directory is None:
            check_machines(spark, self.source_id)
        return in_tasks(spark, self.read_local(tables, after))

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read everything committed up to now, without Spark. Raises the errors of :meth:`read`.

        See :class:`~mutation_api.cdc.source.LocalChangeSource`.
        """
        self._server.check_settings()
        self._check_recopied(tables)
        starts = {
            table.name: LogPosition.of(after[table.name])
            for table in tables
            if table.name in after and table.name not in self._recopied
        }
        for position in {position.order: position for position in starts.values()}.values():
            self._server.check_position(position)
        must_stop: set[str] = set()
        while True:
            run = _Run(self, tables, starts, must_stop)
            batch = run.batch()
            refuted = run.refuted()
            if not refuted:
                return batch
            must_stop |= refuted

    def new_columns(
        self, tables: Sequence[SourceTable], _after: Mapping[str, Position]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return the columns that Hive lacks; see :class:`~mutation_api.cdc.source.DescribedSource`."""
        catalog = self._server.tables(self._database, [table.name for table in tables])
        plans = [TablePlan(each, self._database, self._ignored_columns, self.advice) for each in tables]
        found = [(plan, catalog.tables.get(plan.table.name)) for plan in plans]
        return {plan.table.name: new_columns(table, plan) for plan, table in found if table is not None}

    def adding(self) -> Self:
        """Return this source, whose log has what to do with rows from before a column was added."""
        return self

    def leaving_out(self, columns: Collection[str]) -> Self:
        """Return this source without some columns; see :class:`~mutation_api.cdc.source.DescribedSource`."""
        changed = copy(self)
        changed._ignored_columns = self._ignored_columns | {name.lower() for name in columns}
        return changed

    def _check_recopied(self, tables: Sequence[SourceTable]) -> None:
        unknown = sorted(self._recopied - {table.name for table in tables})
        if unknown:
            raise ConfigurationError(
                f"table {unknown[0]} cannot be read again, because it is not a table of this run: got "
                f"{', '.join(unknown)}, expected names among {', '.join(table.name for table in tables)}"
            )


class _Run:
    """One read: tables with a watermark from the log, then the others with SELECT and the log after it."""

    def __init__(
        self,
        source: MySqlSource,
        tables: Sequence[SourceTable],
        starts: Mapping[str, LogPosition],
        must_stop: Collection[str],
    ) -> None:
        self._source = source
        self._server = source._server
        self._database = source._database
        self._starts = dict(starts)
        self._plans = {
            table.name: TablePlan(table, self._database, source._ignored_columns, source.advice)
            for table in tables
        }
        self._spills = self._made_spills()
        self._new = [name for name in self._plans if name not in starts]
        left_out = {name: plan.left_out for name, plan in self._plans.items()}
        followed = Followed(self._database, [*self._plans], left_out, self._server.folds_case)
        self._statements = LoggedStatements(
            followed, functools.partial(why_not_plain, self._server), must_stop
        )
        self._log = BinaryLog(self._server, self._database, self._plans, self._statements, source._seen_to)

    def _made_spills(self) -> dict[str, Spill]:
        source = self._source
        folder = source._own_folder.renewed(f"{source.source_id}: rows")
        return {
            name: Spill(
                folder / str(number),
                plan.name,
                source._options,
                is_of_this_machine=source._spill_directory is None,
                has_times=plan.table.wants_times,
            )
            for number, (name, plan) in enumerate(self._plans.items())
        }

    def refuted(self) -> set[str]:
        """Return positions of statements that were skipped but must not be."""
        return self._log.refuted()

    def batch(self) -> LocalBatch:
        reached = dict(self._starts)
        barrier = None
        if self._starts:
            absent = self._note_catalog()
            now = self._server.position()
            barrier = self._replay(self._starts, now)
            if all(start.order >= now.order for start in self._starts.values()):
                for start in self._starts.values():
                    start.check_begun(self._log.begun_at(start.file))
            if barrier is None:
                self._check_tables(absent, self._starts)
                self._log.check_lacking()
            else:
                self._drop_transaction_of(barrier)
                now = self._server.at(*barrier.boundary, barrier.gtid)
            reached = {name: max(start, now, key=_order) for name, start in self._starts.items()}
        if self._new:
            reached |= self._read_new({} if barrier else reached)
        return self._made(reached, barrier)

    def _made(self, reached: Mapping[str, LogPosition], barrier: Barrier | None) -> LocalBatch:
        """Return the batch of the rows read, for the tables whose position has advanced."""
        gone = {
            name: replace(at, begun=self._log.begun_at(at.file))
            for name, at in reached.items()
            if name in self._new or at != self._starts[name]
        }
        stop = None
        if barrier is not None:
            positions = {name: position.to_position() for name, position in gone.items()}
            stop = Stop(self._described(barrier), positions)
        if not gone:
            return LocalBatch((), None, stop)
        least = min(gone.values(), key=_order)
        return LocalBatch(self._operations(), least.to_position(), stop, self._source._recopied)

    def _read_new(self, others: Mapping[str, LogPosition]) -> dict[str, LogPosition]:
        """Read whole tables, and the log from before to after the SELECT, including for the other tables.

        Returns:
            The end of the log for each table; all tables have reached it.
        """
        time = self._server.time()  # before the position, so that later changes are not earlier
        noted = self._server.position()
        self._check_tables(self._note_catalog(), self._new)
        self._select(noted, time)
        end = self._server.position()
        barrier = self._replay({**others, **dict.fromkeys(self._new, noted)}, end)
        if barrier is not None:
            table = min(barrier.effects)
            raise InputError(
                f"source table {self._database}.{table}: it {barrier.effects[table].value} while "
                f"{', '.join(self._new)} was being copied: the log contains {barrier.text[:200]!r} at "
                f"{barrier.at}. Nothing was applied; run again"
            )
        self._log.check_lacking()
        return dict.fromkeys((*others, *self._new), end)

    def _note_catalog(self) -> Mapping[str, str]:
        """Read the current catalog; return why tables are missing from it."""
        catalog = self._server.tables(self._database, [*self._plans])
        for name, plan in self._plans.items():
            plan.note(catalog.tables.get(name))
        return catalog.absent

    def _check_tables(self, absent: Mapping[str, str], names: Iterable[str]) -> None:
        """Raise RecordLayoutError if a table no longer exists, or its columns differ from Hive's."""
        for name in names:
            if name in absent:
                raise RecordLayoutError(
                    f"source {self._server.address}: table {self._database}.{name} {absent[name]}. Create it "
                    "again, or leave the table out of the run"
                )
            self._plans[name].columns_now()

    def _drop_transaction_of(self, barrier: Barrier) -> None:
        """Drop rows that the statement's own transaction logged before it."""
        if barrier.events is not None:
            for spill in self._spills.values():
                spill.undo(barrier.transaction, *barrier.events)

    def _described(self, barrier: Barrier) -> str:
        advice = self._source.advice
        names = sorted(barrier.effects)
        plural = "s" if len(names) > 1 else ""
        tables = ", ".join(f"{self._database}.{name}" for name in names)
        targets = ", ".join(self._plans[name].table.target.full_name for name in names)
        effect = max(barrier.effects.values(), key=lambda each: each.weight).value
        why = f" ({barrier.reason})" if barrier.reason else ""
        said = (
            f"source table{plural} {tables}: the log contains a statement at {barrier.at} that "
            f"{effect}{why}: {barrier.text[:300]!r}. "
        )
        again = f"ead the table{plural} whole again: run with {advice.recopy(names)}"
        if barrier.events is not None:
            return (
                f"{said}Rows of the same transaction come before it, so the statement cannot be carried out "
                f"in Hive between them. R{again}"
            )
        return (
            f"{said}Make the same change to the rows of {targets} in Hive (there may be none to make), then "
            f"continue after the statement: run with {advice.seen_to((*barrier.seen_before, barrier.at))}. "
            f"Or r{again}"
        )

    def _operations(self) -> tuple[LocalOperations, ...]:
        """Return the operations read; tables that are read whole again are emptied first."""
        for spill in self._spills.values():
            spill.close()
        recopied = self._source._recopied
        return tuple(
            LocalOperations(replace(plan.table, key=plan.key), spill.written(), is_emptied=name in recopied)
            for (name, plan), spill in zip(self._plans.items(), self._spills.values(), strict=True)
            if spill.row_count or name in recopied
        )

    def _select(self, noted: LogPosition, time: int) -> None:
        with self._snapshot() as cursor:
            for name in self._new:
                plan, spill = self._plans[name], self._spills[name]
                spill.use(plan.columns_now())
                cursor.execute(plan.select())
                for rows in _chunks(cursor):
                    spill.add_selected(rows, noted.order, time)
                    _log.info("%s: %d rows selected", plan.name, spill.row_count)

    @contextmanager
    def _snapshot(self) -> Iterator[Any]:
        """Yield a cursor on one snapshot of all tables; it returns values as bytes, row by row."""
        options = {"cursorclass": SSCursor, "use_unicode": False, "conv": encoders}
        with self._server.connected(**options) as connection, connection.cursor() as cursor:
            begin_snapshot(cursor, "")
            yield cursor

    def _replay(self, positions: Mapping[str, LogPosition], end: LogPosition) -> Barrier | None:
        """Add the log's rows up to ``end``, or up to a statement that stops the reading, and return that."""
        for found in self._log.between(positions, end):
            if isinstance(found, Barrier):
                return found
            if isinstance(found, Undone):
                self._undo(found)
                continue
            spill = self._spills[found.table]
            spill.use(found.shape.columns)
            _add(found, found.shape.key_indices, spill)
            spill.added_bytes(found.byte_count)
        return None

    def _undo(self, undone: Undone) -> None:
        for name, spill in self._spills.items():
            if spill.undo(undone.transaction, *undone.events) and not self._plans[name].is_transactional:
                raise InputFormatError(
                    f"source table {self._database}.{name}: the log at {undone.logged_at} rolls back rows of "
                    "this table, but its engine has no transactions and keeps them; this is not supported. "
                    f"{START_OVER}, and use InnoDB"
                )


def _order(position: LogPosition) -> tuple[int, int]:
    return position.order


def _chunks(cursor: SSCursor) -> Iterator[list[tuple[bytes | None, ...]]]:
    """Yield the rows of a result in chunks of limited size."""
    chunk: list[tuple[bytes | None, ...]] = []
    size = 0
    while rows := cursor.fetchmany(FETCH_ROWS):
        chunk += rows
        size += sum(len(value) for row in rows for value in row if value is not None)
        if len(chunk) >= SELECT_ROWS or size >= SELECT_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _add(images: RowImages, key_indices: Sequence[int], spill: Spill) -> None:
    """Add the operations of one event; an update that changes the key becomes a delete and an insert."""
    position, time = images.position, images.time
    if images.operation != "update":
        for number, row in enumerate(images.rows):
            spill.add(images.operation, (*position, number), row, time)
        return
    rows = images.rows
    for number, before in enumerate(rows):
        after = next(rows)
        if all(before[index] == after[index] for index in key_indices):
            spill.add("update", (*position, 2 * number), after, time)
        else:
            spill.add("delete", (*position, 2 * number), before, time)
            spill.add("insert", (*position, 2 * number + 1), after, time)
