"""Change sources of incremental update, and access to the source database.

BinlogOptions: the options of one extraction by the binary log. Pure.

They stand apart from the source, so that no package of MySQL is needed to name them.

BinlogSource: the binary log of MySQL or MariaDB as a method of incremental update, by the source of
``ingest mysql``.

SourceAccess: which database the person who runs a command allows, and the password for it.

The address of the source is a property of the table in Hive, which others may alter. A password must not go
wherever a property says, in clear text if the other side asks for it. So what is given with the password, by
whoever runs the command, says where it may go: the source's URL, which must be that of the property.

The change source that a table's settings describe.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mutation_api.cdc.mysql.log_position import UPDATE
from mutation_api.cdc.mysql.mysql_source import MySqlSource
from mutation_api.cdc.mysql.server import PORT_DEFAULT, MySqlAddress, driver_options
from mutation_api.cdc.source import Batch, LocalBatch, LocalChangeSource, Position, SourceTable
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.database import PASSWORD_VARIABLE, SourceDatabase, connect_database
from mutation_api.cdc.update.log_source import LogSource
from mutation_api.cdc.update.progress_mark import CaptureMethod, ProgressMark
from mutation_api.cdc.update.settings import PREFIX, UpdateSettings
from mutation_api.cdc.update.source_rows import Difference
from mutation_api.cdc.update.version_source import VersionSource
from mutation_api.cdc.watermark import Watermark
from mutation_api.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "NO_OPTIONS",
    "SOURCE_VARIABLE",
    "AnyCapture",
    "BinlogOptions",
    "BinlogSource",
    "SourceAccess",
    "capture_of",
    "check_same_settings",
    "check_same_source",
]


@dataclass(frozen=True, kw_only=True)
class BinlogOptions:
    """What an extraction does about the log.

    Attributes:
        seen_to: positions of statements that were carried out in Hive by hand.
        recopy: whether the table is read whole again, and its rows in Hive are replaced.
        zero_dates: handling of dates with a zero month or day: ``error`` or ``null``.
        ignored_columns: columns that only one side has, besides those of the settings.
    """

    seen_to: tuple[str, ...] = ()
    recopy: bool = False
    zero_dates: str = "error"
    ignored_columns: tuple[str, ...] = ()


NO_OPTIONS = BinlogOptions()


class BinlogSource:
    """The changes that the log has since the last extraction; nothing is removed from it.

    Args:
        settings: those of the table.
        password: of the account; '' without one.
        options: of this extraction.
    """

    def __init__(self, settings: UpdateSettings, password: str, options: BinlogOptions = NO_OPTIONS) -> None:
        url = settings.source
        address = MySqlAddress(
            url.host or "localhost",
            url.user,
            password,
            url.port or PORT_DEFAULT,
            driver_options(url),
            password_variable=PASSWORD_VARIABLE,
        )
        name = settings.source_table.rpartition(".")[2]
        self._source = MySqlSource(
            address,
            url.database,
            time_zone=settings.time_zone,
            zero_dates=options.zero_dates,
            ignored_columns=[
                f"{name}.{column}" for column in (*settings.ignored_columns, *options.ignored_columns)
            ],
            seen_to=options.seen_to,
            recopy=[name] if options.recopy else (),
        )
        self._source.advice = UPDATE

    differences: tuple[Difference, ...] = ()

    @property
    def source_id(self) -> str:
        """See ``MySqlSource``."""
        return self._source.source_id

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """See ``MySqlSource``."""
        return self._source.read(spark, tables, after)

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """See ``MySqlSource``."""
        return self._source.read_local(tables, after)

    def has_news(self, mark: ProgressMark) -> bool:
        """Only an extraction tells."""
        return True

    def acknowledge(self) -> int:
        """The log is the server's."""
        return 0

    def close(self) -> None:
        """Remove what was kept, and disconnect."""
        self._source.close()


SOURCE_VARIABLE = "HIVE_MUTATE_SOURCE"
"""Environment variable with the URL of the source that commands may connect to; several with blanks between.
"""
_OF_LIBPQ = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")
"""Variables by which libpq finds a password, which it may send to any host."""
_PASSWORD_FILE = ".pgpass"
"""libpq's own, in the home folder; a line of it may hold for all hosts."""


@dataclass(frozen=True, kw_only=True)
class SourceAccess:
    """What the person who runs a command says of the source.

    Attributes:
        password: None: that of the environment variable PASSWORD_VARIABLE, if it is set.
        source: the URL of the database that may be connected to; None: those of SOURCE_VARIABLE.
    """

    password: str | None = field(default=None, repr=False)
    source: str | None = None

    def connected(self, table: str, settings: UpdateSettings) -> SourceDatabase:
        """The database of a table's settings, connected when it is first asked.

        Raises:
            ConfigurationError: it is not allowed; or its driver is not installed.
        """
        return connect_database(settings.source, self.password_for(table, settings.source))

    def password_for(self, table: str, source: SourceUrl) -> str:
        """The password for the source of a table; '' without one.

        Raises:
            ConfigurationError: there is a password, and nobody has said that it may go there; or the source
                is not the one that was named.
        """
        given = os.environ.get(PASSWORD_VARIABLE, "") if self.password is None else self.password
        named = os.environ.get(SOURCE_VARIABLE, "") if self.source is None else self.source
        others = _others(source)
        is_secret = source.kind != "sqlite" and bool(given or others)
        allowed = _urls(named.strip())
        if allowed:
            if not any(map(source.is_same, allowed)):
                names = " or ".join(map(str, allowed))
                raise ConfigurationError(_refusal(table, source, f"allowed is {names}"))
        elif is_secret:
            place = "password=…" if self.password else ", ".join([PASSWORD_VARIABLE] * bool(given) + others)
            raise ConfigurationError(
                _refusal(table, source, f"nobody has said that the password ({place}) may go there")
            )
        return given


def _others(source: SourceUrl) -> list[str]:
    """The places from which the driver itself may take a password."""
    if source.kind != "postgresql":
        return []
    found = [name for name in _OF_LIBPQ if os.environ.get(name)]
    with suppress(RuntimeError, OSError):  # an account without a home
        file = Path.home() / _PASSWORD_FILE
        found += [str(file)] if file.exists() else []
    return [*found, *(name for name in source.options if name == "passfile")]


def _refusal(table: str, source: SourceUrl, why: str) -> str:
    return (
        f"table {table}: its property {PREFIX}source is {source}, and {why}. Nothing was connected. If this "
        f"is the database that the table shall follow, set {SOURCE_VARIABLE}='{source}' (in Python "
        f"source=…; several with blanks between). If it is not, somebody altered the property: put it right "
        f"(ALTER TABLE {table} SET TBLPROPERTIES ('{PREFIX}source'='…'))"
    )


def _urls(text: str) -> list[SourceUrl]:
    """The URLs of a list. Raises ConfigurationError: one is none."""
    what = f"the URL of the source in {SOURCE_VARIABLE}, in Python source=…"
    if text.startswith("sqlite:") and text.count("://") == 1:  # the path of a file may have blanks
        return [SourceUrl.of(text, what=what)]
    return [SourceUrl.of(each, what=what) for each in text.split()]


def check_same_source(table: str, marks: Iterable[Watermark], settings: UpdateSettings) -> None:
    """Refuse a source that is not the one of the last extraction.

    Args:
        table: the table in Hive.
        marks: its watermarks; none before the first extraction.
        settings: those of the table.

    Raises:
        ConfigurationError: the properties were altered since the last extraction.
    """
    known = {(mark.source_id, mark.source_table) for mark in marks}
    if known and (settings.source_id, settings.source_table) not in known:
        (before, before_table) = min(known)
        raise ConfigurationError(
            f"table {table}: its properties {PREFIX}source, …source_table and …identifier mean table "
            f"{settings.source_table} of {settings.source_id}, and the last extraction was of table "
            f"{before_table} of {before}. Somebody altered them. Nothing was connected. Put them right "
            f"(ALTER TABLE {table} SET TBLPROPERTIES …). If the database has moved: put them right, then "
            f"hive-mutate update disable --table {table} --discard, which needs no answer of the old "
            "database, then enable with the new one"
        )


def check_same_settings(table: str, mark: ProgressMark | None, settings: UpdateSettings) -> None:
    """Refuse settings with which the last extraction was not made: rows would be missed, or come twice.

    Raises:
        ConfigurationError: a property was altered since the last extraction.
    """
    now = settings.of_position
    altered = {} if mark is None else {n: v for n, v in mark.settings.items() if now.get(n, v) != v}
    if altered:
        name, before = min(altered.items())
        raise ConfigurationError(
            f"table {table}: its property {PREFIX}{name} is {now[name]!r}, and the last extraction was made "
            f"with {before!r}. Somebody altered it. Nothing was connected. Put it right (ALTER TABLE {table} "
            f"SET TBLPROPERTIES ('{PREFIX}{name}'='{before}')). To follow the table otherwise: put it right, "
            f"then hive-mutate update disable --table {table}, then enable with other options"
        )


class AnyCapture(LocalChangeSource, Protocol):
    """A change source whose captured changes are removed when they are applied.

    ``differences``: what the last read found at the source that the method does not capture.
    """

    differences: tuple[Difference, ...]

    def has_news(self, mark: ProgressMark) -> bool:
        """Whether there may be something to extract after this position."""

    def acknowledge(self) -> int:
        """Remove what was applied from the source's log; returns how many rows."""

    def close(self) -> None:
        """Remove what was kept, and disconnect."""


def capture_of(
    settings: UpdateSettings,
    table: str,
    access: SourceAccess,
    *,
    replaces: bool,
    binlog: BinlogOptions = NO_OPTIONS,
) -> AnyCapture:
    """The source; nothing is connected yet.

    Raises ConfigurationError: the source is not allowed, its driver is missing, or options are of another
    method.

    Args:
        settings: those of the table.
        table: the table in Hive.
        access: which source may be connected to, and the password for it.
        replaces: whether a first copy also deletes rows of the target that the source lacks.
        binlog: options of method binlog.
    """
    if settings.method is CaptureMethod.BINLOG:
        # needs the packages of MySQL's log

        return BinlogSource(settings, access.password_for(table, settings.source), binlog)
    if binlog != NO_OPTIONS:
        raise ConfigurationError(
            f"source table {settings.source_table} is captured by {settings.method.value}: --seen-to, "
            "--recopy, "
            "--zero-dates and --ignore-column are options of method binlog. Leave them out"
        )
    database = access.connected(table, settings)
    if settings.method.has_version:
        return VersionSource(database, settings, table, replaces=replaces)
    return LogSource(database, settings, table, replaces=replaces)
