"""MySqlSource: tables of a MySQL or MariaDB server, first with SELECT, then from its binary log.

The server has to log whole rows with the names of their columns, and each table needs a key. Both are checked
before anything is read. A table without a watermark is read with SELECT. The position in the log is noted
before the rows are read, so that no change falls between the two. Changes made meanwhile are in the log as
well, and are applied on top in the same transaction; that is harmless because rows have keys.

Reading takes the end of the log once, and gives all that was committed up to there. It reads the log's rows
one by one and writes them as Arrow batches to Parquet files, which are all that an engine reads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

from mutation_api.errors import ConfigurationError, InputFormatError, RecordLayoutError
from mutation_api.inputs.engines.choice import check_machines, in_tasks
from mutation_api.inputs.mysql.binary_log import BinaryLog, RowImages, Undone
from mutation_api.inputs.mysql.column_types import (
    TIME_ZONE_DEFAULT,
    ZERO_DATES,
    ZERO_DATES_DEFAULT,
    SourceColumn,
    ValueOptions,
    check_target,
    family_of,
)
from mutation_api.inputs.mysql.server import (
    START_OVER,
    CatalogTable,
    LogPosition,
    MySqlAddress,
    MySqlServer,
)
from mutation_api.inputs.mysql.spill import Spill, TargetColumn
from mutation_api.inputs.own_folder import OwnFolder
from mutation_api.inputs.source import Batch, LocalBatch, LocalOperations, Position, SourceTable
from mutation_api.inputs.source_files import located
from mutation_api.spark.quoted_name import quoted
from mutation_api.storage.location import LocationLike
from mutation_api.types.hive_type import parse_hive_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MySqlSource"]

FETCH_ROWS = 100
SELECT_ROWS = 10_000
SELECT_BYTES = 64 << 20
"""Limits of the rows of a SELECT that are in memory at a time."""
NET_WRITE_TIMEOUT_SECONDS = 3600
"""Time that the server waits while we write rows; its default of a minute is short for a busy machine."""

_log = logging.getLogger(__name__)


class MySqlSource:
    """A change source over one database of a server; its files last until the next read, or :meth:`close`."""

    def __init__(
        self,
        address: MySqlAddress,
        database: str,
        *,
        time_zone: str = TIME_ZONE_DEFAULT,
        zero_dates: str = ZERO_DATES_DEFAULT,
        ignored_columns: Collection[str] = (),
        seen_to: Collection[str] = (),
        spill_directory: LocationLike | None = None,
    ) -> None:
        """Name the source; nothing is connected yet.

        Args:
            address: address of the server.
            database: the database of all tables.
            time_zone: a TIMESTAMP becomes the wall clock of this zone; a DATETIME stays as it is.
            zero_dates: handling of dates with a zero month or day: ``error`` or ``null``.
            ignored_columns: columns (``table.column``) of the source that are left out; any other column
                that Hive lacks is an error.
            seen_to: positions in the log (``file:offset``) of statements that were carried out in Hive by
                hand.
            spill_directory: folder for the files of rows, on any storage; Spark's executors must see it.
                Default: the system's folder for temporary files, which serves Spark on one machine.

        Raises:
            ConfigurationError: an option has a value that is not valid.
        """
        if zero_dates not in ZERO_DATES:
            raise ConfigurationError(f"zero_dates={zero_dates!r}: it must be one of {', '.join(ZERO_DATES)}")
        try:
            pa.array([0], pa.timestamp("us", tz=time_zone)).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise ConfigurationError(f"time_zone={time_zone!r}: {error}") from error
        self._server = MySqlServer(address)
        self._database = database
        self._options = ValueOptions(time_zone, zero_dates)
        self._ignored_columns = frozenset(name.lower() for name in ignored_columns)
        self._seen_to = frozenset(seen_to)
        self._spill_directory = None if spill_directory is None else located(spill_directory)
        self._own_folder = OwnFolder(self._spill_directory)

    @property
    def source_id(self) -> str:
        """``mysql:host:port/database``."""
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
        """All that was committed up to now; see :class:`~mutation_api.inputs.source.ChangeSource`.

        Raises:
            ConfigurationError: the server's log lacks changes, and the message names the settings; or Spark
                runs on other machines, and no ``spill_directory`` was given.
            ConnectionFailedError: the server does not answer, or the account lacks privileges.
            RecordLayoutError: a table has no key, or its columns and Hive's do not agree.
            RecordValueError: a value does not fit Hive's column.
            SourcePositionError: the log no longer has what follows, or is another server's.
            InputError: a statement changed a table without row events, the log has an unknown event, or the
                files for Spark cannot be written.
        """
        if self._spill_directory is None:
            check_machines(spark, self.source_id)
        return in_tasks(spark, self.read_local(tables, after))

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """See :class:`~mutation_api.inputs.source.LocalChangeSource`; raises as :meth:`read`."""
        self._server.check_settings()
        positions = {name: LogPosition.of(after[name]) for name in (t.name for t in tables) if name in after}
        for position in {position.order: position for position in positions.values()}.values():
            self._server.check_position(position)
        catalog = self._server.tables(self._database, [table.name for table in tables])
        plans = {
            table.name: _Plan.of(table, catalog[table.name], self._database, self._ignored_columns)
            for table in tables
        }
        spills = self._spills(plans)
        new = [plan for name, plan in plans.items() if name not in after]
        if new:
            positions |= dict.fromkeys((plan.table.name for plan in new), self._select(new, spills))
        now = self._server.position()
        if not new and all(position.order >= now.order for position in positions.values()):
            return LocalBatch((), None)
        self._replay(plans, spills, positions, now)
        for spill in spills.values():
            spill.close()
        used = [(plan.table, spills[name]) for name, plan in plans.items() if spills[name].row_count]
        operations = tuple(LocalOperations(table, spill.written()) for table, spill in used)
        return LocalBatch(operations, now.to_position())

    def _spills(self, plans: Mapping[str, _Plan]) -> dict[str, Spill]:
        folder = self._own_folder.renewed(f"{self.source_id}: rows")
        return {
            name: Spill(
                folder / str(number),
                f"{self._database}.{name}",
                plan.columns,
                self._options,
                is_of_this_machine=self._spill_directory is None,
            )
            for number, (name, plan) in enumerate(plans.items())
        }

    def _select(self, plans: Sequence[_Plan], spills: Mapping[str, Spill]) -> LogPosition:
        """Read whole tables; returns the position in the log from which to replay, noted beforehand."""
        noted = self._server.position()
        with self._snapshot() as cursor:
            for plan in plans:
                spill = spills[plan.table.name]
                cursor.execute(plan.select(self._database))
                for rows in _chunks(cursor):
                    spill.add_selected(rows, noted.order)
                    _log.info("%s.%s: %d rows selected", self._database, plan.table.name, spill.row_count)
        return noted

    @contextmanager
    def _snapshot(self) -> Iterator[Any]:
        """A cursor on one snapshot of all tables; it gives values as bytes, row by row."""
        options = {"cursorclass": SSCursor, "use_unicode": False, "conv": encoders}
        with self._server.connected(**options) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = ''")
            cursor.execute(f"SET SESSION net_write_timeout = {NET_WRITE_TIMEOUT_SECONDS}")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            yield cursor

    def _replay(
        self,
        plans: Mapping[str, _Plan],
        spills: Mapping[str, Spill],
        positions: Mapping[str, LogPosition],
        now: LogPosition,
    ) -> None:
        columns = {name: plan.sources for name, plan in plans.items()}
        log = BinaryLog(self._server, self._database, columns, self._seen_to)
        for found in log.between(positions, now):
            if isinstance(found, Undone):
                self._undo(found, plans, spills)
                continue
            _add(found, plans[found.table].key_indices, spills[found.table])
            spills[found.table].added_bytes(found.byte_count)

    def _undo(self, undone: Undone, plans: Mapping[str, _Plan], spills: Mapping[str, Spill]) -> None:
        for name, spill in spills.items():
            if spill.undo(undone.transaction, *undone.events) and not plans[name].is_transactional:
                raise InputFormatError(
                    f"source table {self._database}.{name}: the log at {undone.logged_at} rolls back its "
                    "rows, but its engine has no transactions and keeps them; that is not supported. "
                    f"{START_OVER}, and use InnoDB"
                )


def _chunks(cursor: SSCursor) -> Iterator[list[tuple[bytes | None, ...]]]:
    """The rows of a result, in parts of limited size."""
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
    """Add the operations of one event; an update that changes the key is a delete and an insert."""
    position = images.position
    if images.operation != "update":
        for number, row in enumerate(images.rows):
            spill.add(images.operation, (*position, number), row)
        return
    rows = images.rows
    for number, before in enumerate(rows):
        after = next(rows)
        if all(before[index] == after[index] for index in key_indices):
            spill.add("update", (*position, 2 * number), after)
        else:
            spill.add("delete", (*position, 2 * number), before)
            spill.add("insert", (*position, 2 * number + 1), after)


@dataclass(frozen=True)
class _Plan:
    """How one table is read: its key, and the column of the source for each column of Hive."""

    table: SourceTable
    columns: tuple[TargetColumn, ...]
    is_transactional: bool
    key_indices: tuple[int, ...] = field(default=())

    @property
    def sources(self) -> dict[str, SourceColumn]:
        return {column.source.name.lower(): column.source for column in self.columns}

    def select(self, database: str) -> str:
        """The statement that reads the whole table."""
        name = f"{database}.{self.table.name}"
        # MySQL quotes a name as Spark does.
        wanted = [family_of(c.source, name).select.format(quoted(c.source.name)) for c in self.columns]
        return f"SELECT {', '.join(wanted)} FROM {quoted(database, self.table.name)}"

    @classmethod
    def of(cls, table: SourceTable, found: CatalogTable, database: str, ignored: Collection[str]) -> _Plan:
        """Match the columns of both sides. Raises RecordLayoutError if they do not agree."""
        name = f"{database}.{found.name}"
        sources = {column.name.lower(): column for column in found.columns}
        targets = (*table.target.columns, *table.target.partition_keys)
        missing = [target.name for target in targets if target.name.lower() not in sources]
        wanted = {target.name.lower() for target in targets}
        extra = [n for n in sources if n not in wanted and f"{found.name}.{n}".lower() not in ignored]
        if missing or extra:
            lacks = [f"the source lacks {', '.join(missing)}"] if missing else []
            if extra:
                names = [f"{found.name}.{column}" for column in extra]
                options = " ".join(f"--ignore-column {each}" for each in names)
                described = ", ".join(f"{each} ({sources[each].type_text} at the source)" for each in extra)
                them = "them" if len(extra) > 1 else "it"
                lacks.append(
                    f"Hive lacks {described}: add {them} by ALTER TABLE {table.target.full_name} ADD COLUMNS "
                    f"(…), or leave {them} out: {options}, in Python ignored_columns={names}"
                )
            raise RecordLayoutError(
                f"source table {name} and {table.target.full_name} differ: {'; '.join(lacks)}"
            )
        columns = [
            TargetColumn(target.name, parse_hive_type(target.type), sources[target.name.lower()])
            for target in targets
        ]
        for column in columns:
            check_target(column.source, column.type, name)
        key = _key(table, found, name, wanted)
        indices = {column.name.lower(): index for index, column in enumerate(columns)}
        key_indices = tuple(indices[column] for column in key)
        return cls(replace(table, key=key), tuple(columns), found.is_transactional, key_indices)


def _key(table: SourceTable, found: CatalogTable, name: str, wanted: Collection[str]) -> tuple[str, ...]:
    """The given key, if it is unique; without one the first key whose columns Hive has."""
    keys = [tuple(column.lower() for column in key) for key in found.keys]
    if table.key:
        given = tuple(column.lower() for column in table.key)
        if not any(set(key) <= set(given) for key in keys):
            raise RecordLayoutError(
                f"source table {name}: rows may be equal in {', '.join(given)}, so these columns are no key; "
                f"unique and never NULL are {' or '.join('(' + ', '.join(key) + ')' for key in keys)}"
            )
        return given
    usable = [key for key in keys if set(key) <= set(wanted)]
    if not usable:
        raise RecordLayoutError(
            f"source table {name}: {table.target.full_name} lacks columns of each of its keys "
            f"({' or '.join('(' + ', '.join(key) + ')' for key in keys)})"
        )
    return usable[0]
