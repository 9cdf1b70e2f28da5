"""Relational databases as sources: connecting, keys, and the protocol.

SourceDatabase: what a relational database must offer so that changes of its tables can be captured.

One more database is a subclass of :class:`~mutation_api.cdc.update.sql_database.SqlDatabase`, or any class
that fulfils this protocol, and a line in :mod:`mutation_api.cdc.update.database`.

From a URL to a database; drivers are imported here, by name, so that one of them is enough.

Key columns: no two keys of the source may become one key of Hive, where only one row would be left.
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

__all__ = [
    "PASSWORD_VARIABLE",
    "CapturedTable",
    "KeyKind",
    "SourceColumn",
    "SourceDatabase",
    "SourceObject",
    "SourceSnapshot",
    "check_key",
    "checked_url",
    "connect_database",
]


@dataclass(frozen=True)
class SourceColumn:
    """A column of the source.

    Attributes:
        name: its name.
        type_text: its type in the source's words.
        detail: the database's own.
        is_key: whether it is part of the key by which rows are followed.
        nulls_invalid: whether values that are not a date or a finite number of Hive become NULL.
    """

    name: str
    type_text: str
    detail: Any = None
    is_key: bool = False
    nulls_invalid: bool = False


@dataclass(frozen=True)
class CapturedTable:
    """A table of the source, as its catalog describes it.

    ``schema``: '' where there are none. ``primary_key``: column names, empty without one. ``unique_keys``:
    all keys that are unique and never null, the primary one first. ``detail`` is the database's own.
    """

    schema: str
    name: str
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[str, ...]
    unique_keys: tuple[tuple[str, ...], ...]
    detail: Any = None

    @property
    def full_name(self) -> str:
        """``schema.name``, or the name alone."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def column(self, name: str) -> SourceColumn:
        """Return a column by its name; in any case if no column is spelled so.

        Raises RecordLayoutError: there is none.
        """
        exact = {each.name: each for each in self.columns}
        found = exact.get(name) or {each.name.lower(): each for each in self.columns}.get(name.lower())
        if found is None:
            raise RecordLayoutError(
                f"source table {self.full_name} has no column {name}; it has {', '.join(exact)}"
            )
        return found


@dataclass(frozen=True)
class SourceObject:
    """An object that ``enable`` makes in the source: what it is, and the statements that make and remove it.

    Each statement may be repeated. ``create`` is empty for an object that was found in the catalog.
    """

    kind: str
    name: str
    create: tuple[str, ...]
    drop: tuple[str, ...]


class SourceSnapshot(Protocol):
    """One consistent view of the source, as long as its block."""

    def value(self, statement: str) -> Any:
        """The only value of a query; None without a row."""

    def chunks(self, statement: str) -> Iterator[list[Sequence[Any]]]:
        """The rows of a query, in chunks of limited size."""


class SourceDatabase(Protocol):
    """A database of the source, connected when it is first asked.

    Every method raises ConnectionFailedError if the database cannot be reached or refuses a statement.
    """

    @property
    def kind(self) -> str:
        """``postgresql``, ``mysql``, ``sqlite``, …"""

    @property
    def source_id(self) -> str:
        """Name of the database in watermarks, without user and password."""

    def describe(self, table: str) -> CapturedTable:
        """A table by its name. Raises RecordLayoutError: there is none, or it is no table."""

    def check_capture(self, table: CapturedTable, key: Sequence[str], method: CaptureMethod) -> None:
        """Refuse a table some of whose changes the method would not see, or some of whose rows are hidden.

        Raises RecordLayoutError.
        """

    def check_privileges(self, table: CapturedTable, method: CaptureMethod) -> None:
        """Refuse an account that may not make the objects of a method. Raises ConfigurationError."""

    def check_version(self, table: CapturedTable, column: str, overlap: Decimal | None) -> None:
        """Refuse a growing column of which the database cannot tell that nothing appears below its bound any
        more.

        Raises RecordLayoutError, ConfigurationError.
        """

    def version_bound(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, before: str
    ) -> tuple[str, bool]:
        """Return the value of the growing column below which the snapshot has all rows that will ever appear.

        It is text that :meth:`from_version` takes; empty if no row has a value. The second value is True if
        the bound ``before`` cannot be compared with it: it is greater, or numbers have run in a circle since.
        """

    def from_version(self, table: CapturedTable, settings: UpdateSettings, bound: str) -> str:
        """Return the condition that a row's version is not below a bound, or cannot be compared with it."""

    def is_verifiable(self, settings: UpdateSettings) -> bool:
        """Return whether the application gives the versions, so that they must be verified."""

    def counts_below(
        self, snapshot: SourceSnapshot, table: CapturedTable, settings: UpdateSettings, bounds: Sequence[str]
    ) -> list[tuple[int, ...]]:
        """Return the numbers of rows that :meth:`from_version` leaves out for each bound, in groups of rows.

        A number that rises between two snapshots shows a row that no extraction would read.
        """

    def check_column(self, table: CapturedTable, column: SourceColumn, target: HiveType) -> None:
        """Refuse a column of Hive that cannot hold the values. Raises RecordLayoutError."""

    def check_key(self, table: CapturedTable, column: SourceColumn, target: HiveType, time_zone: str) -> None:
        """Refuse a key column of Hive in which two keys of the source may be one.

        Raises RecordLayoutError.
        """

    def check_time_zone(self, table: CapturedTable, time_zone: str) -> None:
        """Refuse a zone that is another one, or none, to the database. Raises ConfigurationError."""

    def objects(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[SourceObject]:
        """The log table and what fills it, in the order in which they are made."""

    def run(self, statements: Sequence[str]) -> None:
        """Run statements that change objects; all or nothing where the database can."""

    def snapshot(self) -> AbstractContextManager[SourceSnapshot]:
        """Open a repeatable-read view."""

    def log_name(self, names: ObjectNames) -> str:
        """The name of the log in a statement, wherever it is; '' if there is none."""

    def fingerprint(self, table: CapturedTable, names: ObjectNames | None) -> Fingerprint:
        """What rows and their capture depend on; ``names``: of the objects that capture, None without."""

    def flaws(
        self, table: CapturedTable, key: Sequence[str], names: ObjectNames, method: CaptureMethod
    ) -> list[str]:
        """How the objects in the source differ from :meth:`objects`; empty if changes are captured."""

    def made(self, names: ObjectNames) -> list[SourceObject]:
        """The objects with these names, wherever they are, in the order in which they can be removed."""

    def partition_rows(self, table: CapturedTable, partition: str) -> str:
        """The name, in a statement, of a partition of the fingerprint; '' if all of its rows are logged."""

    def quoted(self, *names: str) -> str:
        """A name in a statement; an empty part, as a schema where there are none, is left out."""

    def selected(self, column: SourceColumn, time_zone: str, table: str = "") -> str:
        """The expression that reads a column; ``table``: its alias."""

    def selected_from_log(self, column: SourceColumn, time_zone: str, table: str) -> str:
        """The expression that reads a key column from the log, with the value that :meth:`selected` reads."""

    def same_key(self, column: SourceColumn, table: str, log: str) -> str:
        """The condition that a row of the table has exactly the key of one of the log; an index may help."""

    def seconds(self, expression: str) -> str:
        """The expression of a log row's time as seconds since 1970."""

    def now(self) -> str:
        """The expression of the current time as seconds since 1970."""

    def to_column(
        self, column: SourceColumn, target: HiveType, values: Sequence[Any], time_zone: str
    ) -> pa.Array:
        """Values that :meth:`selected` read, as the target's type. Raises RecordValueError."""

    def delete_from_log(
        self, schema: str, log: str, sequences: Sequence[tuple[int, int]], extraction: int
    ) -> int:
        """Delete log rows by ranges of their numbers, both ends included; returns how many were deleted.

        First the number of the extraction that applied them is noted in the log: a row with this number,
        negative. It replaces the one before it; a greater one stays, and counts.
        """

    def unknown_statements(self, schema: str, log: str, extraction: int) -> list[str]:
        """Statements that note in a log the last extraction's number, and that any row may have changed."""

    def only_grows(self, settings: UpdateSettings) -> bool:
        """Whether the bound of the growing column, a number, never falls but by a restored backup."""

    def close(self) -> None:
        """Disconnect. May be called twice."""


PASSWORD_VARIABLE = "HIVE_MUTATE_SOURCE_PASSWORD"
"""Environment variable with the password of the source."""

_KINDS = {
    "postgresql": ("postgresql", "PostgreSql", "postgresql+psycopg", "postgresql"),
    "mysql": ("mysql", "MySql", "mysql+pymysql", "mysql"),
    "mariadb": ("mysql", "MySql", "mysql+pymysql", "mysql"),
    "sqlite": ("sqlite", "Sqlite", "sqlite", "rdbms"),
}
"""Kind -> module, class, SQLAlchemy's name of dialect and driver, extra that brings it."""


def checked_url(text: str) -> SourceUrl:
    """A URL that a user gave.

    Raises ConfigurationError: it is none, or has a password, which would be stored and shown.
    """
    return SourceUrl.of(
        text,
        because="since it is stored and shown: give it in the environment variable "
        f"{PASSWORD_VARIABLE}, or as the database's own programs take it",
    )


def connect_database(source: str | SourceUrl, password: str | None = None) -> SourceDatabase:
    """The database of a URL; it is connected when it is first asked.

    The caller answers for the URL. One of a table's properties is connected to by
    :class:`~mutation_api.cdc.update.sources.SourceAccess`.

    Args:
        source: ``postgresql://user@host[:port]/database``, ``mysql://…``, ``mariadb://…``, or
            ``sqlite:////path/to/file``.
        password: None for the environment variable PASSWORD_VARIABLE.

    Raises ConfigurationError: the URL is not valid, or its driver is not installed.
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
            f"source {found}: needs the Python module {error.name!r}: pip install "
            f"'hive-mutation-api[{extra}]'"
        ) from error
    return database


_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = 12 * 80
_MONTH = timedelta(days=30)


@dataclass(frozen=True, kw_only=True)
class KeyKind:
    """What a source column distinguishes.

    Attributes:
        ignores_trailing_spaces: whether the source takes 'a' and 'a ' for one key.
        is_instant: whether a value is an instant, which becomes the wall clock of a zone.
        is_text: whether a value is a text, of which Hive may have a date or a number.
    """

    ignores_trailing_spaces: bool = False
    is_instant: bool = False
    is_text: bool = False


def check_key(
    table: CapturedTable, column: SourceColumn, target: HiveType, kind: KeyKind, time_zone: str
) -> None:
    """Refuse a key column of Hive that cannot tell all keys of the source apart.

    Args:
        table: the source's table.
        column: a column of its key.
        target: the type of the column in Hive.
        kind: what the source distinguishes.
        time_zone: the zone of an instant's wall clock.

    Raises:
        RecordLayoutError: several keys of the source may become one; names the way on.
    """
    reason = advice = ""
    if target.kind == "char" and not kind.ignores_trailing_spaces:
        reason = "'a' and 'a ' are two keys in the source, and one in a char of Hive"
        advice = "Let the column be a varchar or a string in Hive"
    elif kind.is_instant and not _is_steady(time_zone):
        reason = f"two instants have the same wall clock where {time_zone} sets its clocks back"
        advice = "Choose the time zone UTC (--time-zone UTC)"
    elif kind.is_text and target.kind in ("date", "timestamp", "decimal"):
        reason = (
            f"several texts are the same {target.kind}, such as '1.5' and '1.50', '2024-05-31' and '20240531'"
        )
        advice = "Let the column be a string in Hive"
    if reason:
        raise RecordLayoutError(
            f"source table {table.full_name}, key column {column.name!r} ({column.type_text}) cannot go into "
            f"a column of type {target.text}: {reason}. {advice}"
        )


def _is_steady(time_zone: str) -> bool:
    """Return whether the zone has had one offset since 1970."""
    zone = ZoneInfo(time_zone)
    moments = (_FIRST + number * _MONTH for number in range(_MONTHS))
    return len({moment.astimezone(zone).utcoffset() for moment in moments}) == 1
