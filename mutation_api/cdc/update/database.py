"""The interface of relational databases whose table changes can be captured.

To support another database, write a subclass of :class:`~mutation_api.cdc.update.sql_database.SqlDatabase`,
or any class that fulfils this protocol, and add a line to ``_KINDS`` here.

The database of a URL is connected with only the driver that it needs. Key columns are checked, so that no two
keys of the source become one key in Hive, which would lose a row.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa
from sqlalchemy.engine import URL

from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.progress_mark import CaptureMethod, Fingerprint
from mutation_api.cdc.update.settings import ObjectNames, UpdateSettings
from mutation_api.errors import ConfigurationError, RecordLayoutError
from mutation_api.format.hive_type import HiveType


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        name: its name.
        type_text: its type as the source writes it.
        detail: an object of the database's module.
        is_key: True if it is part of the key by which rows are identified.
        nulls_invalid: True if values that are not a valid date or finite number in Hive become NULL.
    """

    name: str
    type_text: str
    detail: Any = None
    is_key: bool = False
    nulls_invalid: bool = False


@dataclass(frozen=True)
class CapturedTable:
    """A table of the source, as its catalog describes it.

    ``schema``: '' if the database has none. ``primary_key``: column names; empty if there is none.
    ``detail``: an object of the database's module.
    """

    schema: str
    name: str
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    detail: Any = None

    @property
    def full_name(self) -> str:
        """The name as ``schema.name``, or the name alone."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def column(self, name: str) -> SourceColumn:
        """Return a column by its name; ignore case if no column has exactly this spelling.

        Raises:
            RecordLayoutError: If there is no such column.
        """
        exact = {each.name: each for each in self.columns}
        found = exact.get(name) or {each.name.lower(): each for each in self.columns}.get(name.lower())
        if found is None:
            raise RecordLayoutError(
                f"source table {self.full_name} does not have the column {name}; it has {', '.join(exact)}"
            )
        return found


@dataclass(frozen=True)
class SourceObject:
    """An object that ``enable`` creates in the source, with the statements that create and remove it.

    Each statement can be repeated. ``create`` is empty for an object that was found in the catalog.
    """

    kind: str
    name: str
    create: tuple[str, ...]
    drop: tuple[str, ...]


class SourceSnapshot(Protocol):
    """One consistent view of the source, valid within its block."""

    def value(self, statement: str) -> Any:
        """Return the only value of a query, or None if it returns no rows."""

    def chunks(self, statement: str) -> Iterator[list[Sequence[Any]]]:
        """Yield the rows of a query in chunks of limited size."""

    def texts(self, statement: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as strings, if the database has :attr:`~SourceDatabase.text_columns`.

        No other query can run until all rows have been read.
        """


class TextColumns(Protocol):
    """Columns of strings that a database sends for a query: how they are read and converted."""

    def read(self, connection: Any, statement: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query as strings, many at once."""

    def to_column(self, column: SourceColumn, target: HiveType, texts: pa.StringArray) -> pa.Array | None:
        """Convert a column to the target's type. None if the values must be examined one by one."""

    def values(self, column: SourceColumn, texts: pa.StringArray) -> list[Any]:
        """Return the values of a column as :meth:`SourceSnapshot.chunks` returns them."""


class SourceDatabase(Protocol):
    """A database of the source, connected on first use.

    Every method raises ConnectionFailedError if the database cannot be reached or refuses a statement.
    """

    @property
    def kind(self) -> str:
        """The kind: ``postgresql``, ``mysql``, ``sqlite``, …"""

    @property
    def source_id(self) -> str:
        """The name of the database in watermarks, without user and password."""

    @property
    def text_columns(self) -> TextColumns | None:
        """Return what reads columns of strings; None if the database sends no such columns."""

    def describe(self, table: str) -> CapturedTable:
        """Return a table by its name. Raises RecordLayoutError if it does not exist, or is not a table."""

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Raise RecordLayoutError if the method would miss changes of the table, or some rows are hidden."""

    def check_privileges(self, table: CapturedTable, method: CaptureMethod) -> None:
        """Raise ConfigurationError if the account may not create the objects of a method."""

    def check_version(self, table: CapturedTable, column: str, overlap: Decimal | None) -> None:
        """Raise an error if rows may still appear below the bound of a monotonically increasing column.

        Raises:
            RecordLayoutError: If the database cannot determine the bound of such a column.
            ConfigurationError: If the overlap or the database's settings do not suit the column.
        """

    def version_bound(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, before: str
    ) -> tuple[str, bool]:
        """Return the value of the version column below which the snapshot has all rows that will ever appear.

        The value is a string for :meth:`from_version`, empty if no row has a value. The second result is True
        if the bound ``before`` cannot be compared with it, because ``before`` is greater or the numbers have
        wrapped around since.
        """

    def from_version(self, table: CapturedTable, settings: UpdateSettings, bound: str) -> str:
        """Return the condition that a row's version is not below a bound, or cannot be compared with it."""

    def is_verifiable(self, settings: UpdateSettings) -> bool:
        """Return True if the application sets the versions, so that they must be verified."""

    def counts_below(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, bounds: Sequence[str]
    ) -> list[tuple[int, ...]]:
        """Return the numbers of rows that :meth:`from_version` excludes for each bound, in groups of rows.

        If a number rises between two snapshots, there is a row that no extraction would read.
        """

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """Raise RecordLayoutError if a Hive column cannot hold the values."""

    def check_key(self, table: CapturedTable, column: SourceColumn, target: HiveType, time_zone: str) -> None:
        """Raise RecordLayoutError if two keys of the source may be equal in a Hive key column."""

    def check_time_zone(self, table: CapturedTable, time_zone: str) -> None:
        """Raise ConfigurationError if the database does not know the zone, or gives it other offsets."""

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """Return the log table and the objects that fill it, in order of creation."""

    def run(self, statements: Sequence[str]) -> None:
        """Run statements that change objects, in one transaction if the database supports it."""

    def snapshot(self) -> AbstractContextManager[SourceSnapshot]:
        """Open a repeatable-read view."""

    def log_name(self, names: ObjectNames) -> str:
        """Return the name of the log for a statement, in any schema; '' if there is none."""

    def fingerprint(self, table: CapturedTable, names: ObjectNames | None) -> Fingerprint:
        """Return the state that rows and their capture depend on.

        ``names``: the capturing objects' names, or None.
        """

    def flaws(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[str]:
        """Return the differences between the objects in the source and :meth:`objects`.

        Empty if changes are captured.
        """

    def made(self, names: ObjectNames) -> list[SourceObject]:
        """Return the objects with these names, in any schema, in the order in which they can be removed."""

    def partition_rows(self, table: CapturedTable, partition: str) -> str:
        """Return a fingerprint's partition as a name for a statement; '' if all of its rows are logged."""

    def quoted(self, *names: str) -> str:
        """Return a name for a statement; empty parts, such as a missing schema, are left out."""

    def selected(self, column: SourceColumn, time_zone: str, table: str = "") -> str:
        """Return the expression that reads a column; ``table``: its alias."""

    def selected_from_log(self, column: SourceColumn, time_zone: str, table: str) -> str:
        """Return the expression that reads a key column from the log, with the same value as `selected`."""

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """Return the condition that a table row has exactly the key of a log row; it can use an index."""

    def seconds(self, expression: str) -> str:
        """Return the expression of a log row's time as seconds since 1970."""

    def now(self) -> str:
        """Return the expression of the current time as seconds since 1970."""

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """Convert values read by :meth:`selected` to the target's type. Raises RecordValueError."""

    def delete_from_log(
        self, schema: str, log: str, sequences: Sequence[tuple[int, int]], extraction: int
    ) -> int:
        """Delete log rows by ranges of their numbers, both ends included; return how many were deleted.

        Before that, the number of the extraction that applied them is recorded in the log, as a row with the
        negated number. It replaces the previous one; a greater number is kept and counts.
        """

    def unknown_statements(self, schema: str, log: str, extraction: int) -> list[str]:
        """Return statements that record the last extraction's number, and a change of unknown rows."""

    def only_grows(self, settings: UpdateSettings) -> bool:
        """Return True if the bound of the version column is a number that only a restored backup lowers."""

    def close(self) -> None:
        """Disconnect. May be called twice."""


PASSWORD_VARIABLE = "HIVE_MUTATE_SOURCE_PASSWORD"
"""The environment variable with the password of the source."""

_KINDS = {
    "postgresql": ("postgresql", "PostgreSql", "postgresql+psycopg", "postgresql"),
    "mysql": ("mysql", "MySql", "mysql+pymysql", "mysql"),
    "mariadb": ("mysql", "MySql", "mysql+pymysql", "mysql"),
    "sqlite": ("sqlite", "Sqlite", "sqlite", "rdbms"),
}
"""Kind -> module, class, SQLAlchemy's name of dialect and driver, extra that installs it."""


def checked_url(text: str) -> SourceUrl:
    """Return the URL that a user gave.

    Raises:
        ConfigurationError: If it is not a valid URL, or contains a password, which would be stored and shown.
    """
    return SourceUrl.of(
        text,
        because="since it is stored and shown. Pass it in the environment variable "
        f"{PASSWORD_VARIABLE}, or in the way that the database's own programs read it",
    )


def connect_database(source: str | SourceUrl, password: str | None = None) -> SourceDatabase:
    """Return the database of a URL; it is connected on first use.

    The caller is responsible for the URL. A URL from a table's properties is only connected to by
    :class:`~mutation_api.cdc.update.sources.SourceAccess`.

    Args:
        source: ``postgresql://user@host[:port]/database``, ``mysql://…``, ``mariadb://…``, or
            ``sqlite:////path/to/file``.
        password: password of the account. If None, the environment variable PASSWORD_VARIABLE is used.

    Raises:
        ConfigurationError: If the URL is not valid, or its driver is not installed.
    """
    found = checked_url(source) if isinstance(source, str) else source
    module, name, driver, extra = _KINDS[found.kind]
    secret = os.environ.get(PASSWORD_VARIABLE) if password is None else password
    url = URL.create(
        driver,
        username=found.user or None,
        password=secret or None if found.kind != "sqlite" else None,
        host=found.host or None,
        port=found.port,
        database=found.database,
        query=dict(found.options),
    )
    try:
        database: SourceDatabase = getattr(
            importlib.import_module(f"mutation_api.cdc.update.{module}"), name
        )(url)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"source {found}: the Python module {error.name!r} is missing: pip install "
            f"'hive-mutation-api[{extra}]'"
        ) from error
    return database


_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = 12 * 80
_MONTH = timedelta(days=30)


@dataclass(frozen=True, kw_only=True)
class KeyKind:
    """The distinctions between values that a source column makes.

    Attributes:
        ignores_trailing_spaces: True if the source treats 'a' and 'a ' as one key.
        is_instant: True if a value is a timestamp with time zone, which becomes a local timestamp.
        is_text: True if a value is a string, which may be a date or a number in Hive.
    """

    ignores_trailing_spaces: bool = False
    is_instant: bool = False
    is_text: bool = False


def check_key(
    table: CapturedTable, column: SourceColumn, target: HiveType, kind: KeyKind, time_zone: str
) -> None:
    """Raise an error if a Hive key column cannot distinguish all keys of the source.

    Args:
        table: the source's table.
        column: a column of its key.
        target: the type of the column in Hive.
        kind: the distinctions that the source makes.
        time_zone: zone in which a timestamp with time zone becomes a local timestamp.

    Raises:
        RecordLayoutError: If several keys of the source may become one. The message says what to do.
    """
    reason = advice = ""
    if target.kind == "char" and not kind.ignores_trailing_spaces:
        reason = "'a' and 'a ' are two keys in the source, but one in a char of Hive"
        advice = "Make the column a varchar or a string in Hive"
    elif kind.is_instant and not _is_steady(time_zone):
        reason = f"two times are the same local timestamp when {time_zone} sets its clocks back"
        advice = "Choose the time zone UTC (--time-zone UTC)"
    elif kind.is_text and target.kind in ("date", "timestamp", "decimal"):
        reason = (
            f"several strings are the same {target.kind}, such as '1.5' and '1.50', '2024-05-31' and "
            "'20240531'"
        )
        advice = "Make the column a string in Hive"
    if reason:
        raise RecordLayoutError(
            f"source table {table.full_name}, key column {column.name!r} ({column.type_text}) cannot be "
            f"stored in a column of type {target.text}: {reason}. {advice}"
        )


def _is_steady(time_zone: str) -> bool:
    """Return True if the zone has had one offset since 1970."""
    zone = ZoneInfo(time_zone)
    moments = (_FIRST + number * _MONTH for number in range(_MONTHS))
    return len({moment.astimezone(zone).utcoffset() for moment in moments}) == 1
