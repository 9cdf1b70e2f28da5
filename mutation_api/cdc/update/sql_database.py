"""SqlDatabase: code shared by all databases behind SQLAlchemy; a subclass adds the statements of one
database.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import sqlalchemy
from sqlalchemy.engine import URL, Engine

from mutation_api.cdc.update.database import (
    PASSWORD_VARIABLE,
    CapturedTable,
    KeyKind,
    SourceColumn,
    SourceObject,
    SourceSnapshot,
    TextColumns,
    check_key,
)
from mutation_api.cdc.update.progress_mark import CaptureMethod
from mutation_api.cdc.update.settings import ObjectNames, UpdateSettings
from mutation_api.cdc.update.values import BUCKETS, GrowingColumn, null_advice, to_hive_column
from mutation_api.errors import ConfigurationError, ConnectionFailedError, RecordValueError
from mutation_api.format.hive_type import HiveType

SEQUENCE_COLUMN, OPERATION_COLUMN, TIME_COLUMN = "hm_sequence", "hm_operation", "hm_at"
"""The columns of a log table, before those of the key."""
RECEIPT = "'E'"
"""The operation, as SQL, of the row with the number of the last extraction."""

UNKNOWN = "'X'"
"""The operation, as SQL, of a row that means that any row may have changed."""

_ABOUT_PASSWORD = re.compile("password|authentication failed", re.IGNORECASE)
_NOT_UTF8 = re.compile("could not decode to utf-8|invalid byte sequence for encoding", re.IGNORECASE)
"""The error messages of SQLite and PostgreSQL for invalid UTF-8."""

ROWS_PER_CHUNK = 10_000
RANGES_PER_STATEMENT = 200
"""The number of ranges of log rows that one statement deletes."""
NUMBERS_PER_STATEMENT = 100_000
"""The maximum number of log rows that one statement deletes, which keeps transactions short."""
DDL_WAIT_SECONDS = 20
"""The maximum wait for a lock on a table that applications use. They queue behind the request."""


class CursorSnapshot:
    """A :class:`~mutation_api.cdc.update.database.SourceSnapshot` on a DB-API connection."""

    def __init__(self, connection: Any, database: SqlDatabase) -> None:
        self._connection = connection
        self._database = database
        self._reading: list[Any] = []

    def value(self, statement: str) -> Any:
        """Return the only value of a query, or None if it returns no rows."""
        with self._database.errors(), closing(self._connection.cursor()) as cursor:
            cursor.execute(statement)
            row = cursor.fetchone()
        return None if row is None else row[0]

    def chunks(self, statement: str) -> Iterator[list[Sequence[Any]]]:
        """Yield the rows of a query in chunks of limited size."""
        with self._database.errors():
            cursor = self._database.streaming_cursor(self._connection)
            self._reading.append(cursor)
            cursor.execute(statement)
            while rows := cursor.fetchmany(ROWS_PER_CHUNK):
                yield list(rows)
            self._reading.remove(cursor)
            cursor.close()

    def texts(self, statement: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as strings."""
        assert self._database.text_columns is not None, "the caller converts the strings"
        batches = self._database.text_columns.read(self._connection, statement)
        self._reading.append(batches)
        with self._database.errors():
            yield from batches
        self._reading.remove(batches)

    def close(self) -> None:
        """Close the cursors of queries whose rows were not all read."""
        while self._reading:
            with suppress(self._database.driver_error):
                self._reading.pop().close()


class SqlDatabase(abc.ABC):
    """A :class:`~mutation_api.cdc.update.database.SourceDatabase` that uses SQLAlchemy."""

    kind: ClassVar[str]
    connection_options: ClassVar[Mapping[str, str]] = {}
    """The options of the driver's connections."""
    text_columns: TextColumns | None = None
    knows_bound: ClassVar[bool] = False
    """True if no version below the greatest one in a snapshot can still appear."""

    def __init__(self, url: URL) -> None:
        """Set the URL without connecting."""
        self.url = url
        self._engine: Engine = sqlalchemy.create_engine(
            url, poolclass=sqlalchemy.pool.NullPool, connect_args=dict(self.connection_options)
        )
        self._catalog: sqlalchemy.pool.PoolProxiedConnection | None = None

    @property
    def source_id(self) -> str:
        """The name of the database in watermarks, without user and password."""
        port = f":{self.url.port}" if self.url.port else ""
        return f"{self.kind}:{self.url.host or ''}{port}/{self.url.database}"

    def close(self) -> None:
        """Disconnect. May be called twice."""
        self._forget_catalog()
        self._engine.dispose()

    @property
    def driver_error(self) -> type[Exception]:
        """The base class of the driver's errors."""
        found: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        return found

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Convert errors of the driver to the library's errors."""
        try:
            yield
        except (self.driver_error, sqlalchemy.exc.SQLAlchemyError) as error:
            line = _first_line(error)
            if _NOT_UTF8.search(line):
                raise RecordValueError(
                    f"source {self.source_id}: a string is not valid UTF-8: {line}. Correct it in the "
                    "source, or leave the column out (hive-mutate update enable … --ignore-column)"
                ) from error
            raise ConnectionFailedError(
                f"source {self.source_id}: {self._about_password(line)}{line}"
            ) from error

    def _about_password(self, line: str) -> str:
        """Return the origin of the password, if a driver's error is about it; otherwise ''."""
        if not _ABOUT_PASSWORD.search(line):
            return ""
        what = (
            "the database refused the account or its password"
            if self.url.password
            else "no password was given"
        )
        return f"{what} (the environment variable {PASSWORD_VARIABLE}, in Python password=…): "

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """Yield a connection of the driver, which is rolled back and closed after the block."""
        with self.errors():
            pooled = self._connected()
        try:
            yield pooled.driver_connection
        finally:
            pooled.close()

    def _connected(self) -> sqlalchemy.pool.PoolProxiedConnection:
        """Open a connection.

        Raises ConnectionFailedError if a file named by an option is missing, or the driver lacks a module.
        """
        try:
            return self._engine.raw_connection()
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise ConnectionFailedError(f"source {self.source_id}: {_first_line(error)}") from error

    def rows(self, statement: str, *values: Any) -> list[Sequence[Any]]:
        """Return the rows of a catalog query, which runs in a separate transaction."""
        with self.errors():
            if self._catalog is None:
                self._catalog = self._connected()
                self.begin_catalog(self._catalog.driver_connection)
            connection: Any = self._catalog.driver_connection
            try:
                cursor = connection.cursor()
                cursor.execute(statement, *([values] if values else []))
                found = list(cursor.fetchall())
                cursor.close()
                connection.rollback()
            except BaseException:
                self._forget_catalog()
                raise
        return found

    def _forget_catalog(self) -> None:
        if self._catalog is not None:
            self._catalog.invalidate()
            self._catalog = None

    @contextmanager
    def snapshot(self) -> Iterator[SourceSnapshot]:
        """Open a repeatable-read view."""
        with self.connected() as connection:
            with self.errors():
                self.begin_snapshot(connection)
            view = CursorSnapshot(connection, self)
            try:
                yield view
            finally:
                view.close()

    def delete_from_log(
        self, schema: str, log: str, sequences: Sequence[tuple[int, int]], extraction: int
    ) -> int:
        """Record the extraction in the log, and delete log rows; return how many were deleted."""
        table = self.quoted(schema, log)
        deleted = 0
        with self.connected() as connection, self.errors():
            self.begin_deletion(connection)
            cursor = connection.cursor()
            cursor.execute(self.receipt_statement(table, -extraction))
            # By its number: a range would wait for a later log row of an open transaction (InnoDB).
            cursor.execute(f"DELETE FROM {table} WHERE {SEQUENCE_COLUMN} = {1 - extraction}")
            cursor.close()
            connection.commit()
            for some in _portions(sequences):
                ranges = " OR ".join(f"{SEQUENCE_COLUMN} BETWEEN {low} AND {high}" for low, high in some)
                cursor = connection.cursor()
                cursor.execute(f"DELETE FROM {table} WHERE {ranges}")
                deleted += int(cursor.rowcount)
                cursor.close()
                connection.commit()
        return deleted

    @abc.abstractmethod
    def log_schemas(self, names: ObjectNames) -> list[str]:
        """Return the schemas that contain the log with this name: one or none."""

    def log_name(self, names: ObjectNames) -> str:
        """Return the name of the log for a statement; '' if there is none."""
        return next((self.quoted(schema, names.log) for schema in self.log_schemas(names)), "")

    def made_logs(self, names: ObjectNames) -> list[SourceObject]:
        """Return the log as an object that can be removed."""
        return [self.log_object(schema, names) for schema in self.log_schemas(names)]

    def log_object(self, schema: str, names: ObjectNames, *create: str) -> SourceObject:
        """Return the log of a schema ('' if the database has none), with the statements that create it."""
        drop = f"DROP TABLE IF EXISTS {self.quoted(schema, names.log)}"
        return SourceObject("changelog table", f"{schema}.{names.log}".lstrip("."), create, (drop,))

    def unknown_statements(self, schema: str, log: str, extraction: int) -> list[str]:
        """Return statements that record an extraction, and a change of unknown rows."""
        table = self.quoted(schema, log)
        receipt = [self.receipt_statement(table, -extraction)] if extraction else []
        return [
            f"DELETE FROM {table} WHERE {SEQUENCE_COLUMN} < 0",
            *receipt,
            f"INSERT INTO {table} ({OPERATION_COLUMN}) VALUES ({UNKNOWN})",
        ]

    @abc.abstractmethod
    def receipt_statement(self, table: str, number: int) -> str:
        """Return the statement that adds a receipt with a number to a log unless it is already there."""

    def only_grows(self, settings: UpdateSettings) -> bool:
        """Return True if only a restored backup can lower the bound; False by default."""
        return False

    def run(self, statements: Sequence[str]) -> None:
        """Run statements that change objects, in one transaction if the database supports it."""
        with self.connected() as connection, self.errors():
            self.begin_ddl(connection)
            for statement in statements:
                cursor = connection.cursor()
                cursor.execute(statement)
                cursor.close()
            connection.commit()

    def quoted(self, *names: str) -> str:
        """Return a quoted name for a statement, without empty parts."""
        return ".".join('"' + without_nul(name).replace('"', '""') + '"' for name in names if name)

    def partition_rows(self, table: CapturedTable, partition: str) -> str:
        """Return a partition's name for a statement; '' if all of its rows are logged."""
        return ""

    def selected(self, column: SourceColumn, time_zone: str, table: str = "") -> str:
        """Return the expression that reads a column; ``table``: its alias."""
        return self.shown(column, self.name_of(column, table), time_zone)

    def selected_from_log(self, column: SourceColumn, time_zone: str, table: str) -> str:
        """Return the expression that reads a key column from the log."""
        return self.shown(column, self.of_log(column, table), time_zone)

    def shown(self, column: SourceColumn, value: str, time_zone: str) -> str:
        """Return the expression that reads a value of a column, in the form that :meth:`to_column` takes."""
        return value

    def of_log(self, column: SourceColumn, log: str) -> str:
        """Return the value of a key column in the log with the type of the column; ``log``: its alias."""
        return self.name_of(column, log)

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """Convert values to the target's type. Raises RecordValueError."""
        return to_hive_column(
            column.name, target, values, nulls_invalid=column.nulls_invalid, advice=null_advice(column)
        )

    def name_of(self, column: SourceColumn, table: str = "") -> str:
        """Return the quoted name of a column; ``table``: an alias, or a word such as NEW."""
        prefix = f"{table}." if table else ""
        return prefix + self.quoted(column.name)

    def streaming_cursor(self, connection: Any) -> Any:
        """Return a cursor that does not hold all rows of its query."""
        return connection.cursor()

    def begin_catalog(self, connection: Any) -> None:  # noqa: B027
        """Prepare the connection that reads the catalog; most databases need nothing."""

    def begin_deletion(self, connection: Any) -> None:  # noqa: B027
        """Prepare a connection that deletes log rows; most databases need nothing."""

    def check_key(self, table: CapturedTable, column: SourceColumn, target: HiveType, time_zone: str) -> None:
        """Raise RecordLayoutError if two keys of the source may be equal in the Hive column."""
        check_key(table, column, target, self.key_kind(column), time_zone)

    def check_time_zone(self, table: CapturedTable, time_zone: str) -> None:  # noqa: B027
        """Accept any zone, because most databases return UTC; see ``SourceDatabase``."""

    def key_kind(self, column: SourceColumn) -> KeyKind:
        """Return the distinctions that a key column makes."""
        return KeyKind()

    def check_privileges(self, table: CapturedTable, method: CaptureMethod) -> None:  # noqa: B027
        """Check nothing, because most servers refuse soon enough; see ``SourceDatabase``."""

    def check_version(self, table: CapturedTable, column: str, overlap: Decimal | None) -> None:
        """Check the column; a database that cannot determine a bound needs an overlap from the user."""
        growing = self._growing(table, column)
        if overlap is not None:
            growing.lowered(growing.name, overlap)  # raises if the overlap is too long
        if overlap is None and not self.knows_bound:
            raise ConfigurationError(
                f"{self.kind} cannot determine which values of {column} may still appear, because a value "
                "may be assigned long before its transaction commits. Use the method changelog, or pass an "
                "overlap, which states how far below the greatest value reading starts again. It must be "
                "longer than the longest transaction"
            )

    def version_bound(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, before: str
    ) -> tuple[str, bool]:
        """Return the greatest value in the snapshot; rows with the same value are read again."""
        statement = self._growing(table, settings.version_column).greatest(self._table_name(table), before)
        ((greatest, is_below),) = [row for rows in snapshot.chunks(statement) for row in rows]
        return "" if greatest is None else _text(greatest), bool(int(is_below))

    def from_version(self, table: CapturedTable, settings: UpdateSettings, bound: str) -> str:
        """Return the condition that a row's version is not below a bound."""
        if not bound:
            return ""
        return self._growing(table, settings.version_column).from_bound(bound, settings.overlap)

    def counts_below(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, bounds: Sequence[str]
    ) -> list[tuple[int, ...]]:
        """Return the numbers of rows below each bound, in groups of rows."""
        column = self._growing(table, settings.version_column)
        keys = [self.name_of(table.column(name)) for name in settings.key]
        statement = column.counts_below(self._table_name(table), keys, bounds, settings.overlap)
        counts = [[0] * BUCKETS for _ in bounds]
        for rows in snapshot.chunks(statement):
            for bucket, *numbers in rows:
                for count, number in zip(counts, numbers, strict=True):
                    count[int(bucket)] = int(number)
        return [tuple(count) for count in counts]

    def is_verifiable(self, settings: UpdateSettings) -> bool:
        """Return True if the application sets the versions, so that they must be verified."""
        return not self.only_grows(settings)

    def _growing(self, table: CapturedTable, column: str) -> GrowingColumn:
        names = {each.name.lower() for each in table.columns}
        if column.lower() not in names:
            raise ConfigurationError(
                f"source table {table.full_name} does not have the version column {column}. If it was "
                "renamed, disable incremental update (--discard) and enable it with the new name"
            )
        return self.growing_column(table, table.column(column))

    def _table_name(self, table: CapturedTable) -> str:
        return self.quoted(table.schema, table.name)

    @abc.abstractmethod
    def growing_column(self, table: CapturedTable, column: SourceColumn) -> GrowingColumn:
        """Return the SQL of a version column. Raises ConfigurationError if its type is unsuitable."""

    def refuse_growing(self, table: CapturedTable, column: SourceColumn, allowed: str) -> ConfigurationError:
        """Return the error for a column that cannot be a version column."""
        return ConfigurationError(
            f"source table {table.full_name}: column {column.name} ({column.type_text}) cannot be the "
            f"version column, only {allowed} can. Use another column, or the method changelog"
        )

    @abc.abstractmethod
    def begin_snapshot(self, connection: Any) -> None:
        """Begin a read-only transaction that sees one state of the database."""

    @abc.abstractmethod
    def begin_ddl(self, connection: Any) -> None:
        """Prepare a connection that changes objects by limiting its waits."""


def without_nul(text: str) -> str:
    """Return a string for a statement. Raises ConfigurationError if it contains NUL or a surrogate."""
    if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ConfigurationError(
            f"{text!r} cannot be a name or a string in the source: it contains NUL or a surrogate"
        )
    return text


def _portions(ranges: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the ranges, split so that each statement deletes a limited number of rows."""
    portion: list[tuple[int, int]] = []
    count = 0
    for first, last in ranges:
        for low in range(first, last + 1, NUMBERS_PER_STATEMENT):
            high = min(last, low + NUMBERS_PER_STATEMENT - 1)
            portion.append((low, high))
            count += high - low + 1
            if len(portion) == RANGES_PER_STATEMENT or count >= NUMBERS_PER_STATEMENT:
                yield portion
                portion, count = [], 0
    if portion:
        yield portion


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
