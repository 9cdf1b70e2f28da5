"""The change source that a table's settings describe, and access to its database.

The address of the source is a property of the table in Hive, which others may alter. A password must not be
sent to an arbitrary address in a property, possibly in clear text if the other side asks for it. The user
who supplies the password therefore also names the source's URL to which it may be sent, and this URL must
match the property.

The method ``binlog`` uses the source of ``ingest mysql``. Its options for one extraction are separate from
the source, so that importing them needs no MySQL package.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mutation_api.cdc.mysql.log_position import UPDATE
from mutation_api.cdc.mysql.mysql_source import MySqlSource
from mutation_api.cdc.mysql.server import PORT_DEFAULT, MySqlAddress, driver_options
from mutation_api.cdc.source import LocalChangeSource
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.database import PASSWORD_VARIABLE, SourceDatabase, connect_database
from mutation_api.cdc.update.log_source import LogSource
from mutation_api.cdc.update.progress_mark import CaptureMethod, ProgressMark
from mutation_api.cdc.update.settings import PREFIX, UpdateSettings
from mutation_api.cdc.update.source_rows import Difference
from mutation_api.cdc.update.version_source import VersionSource
from mutation_api.cdc.watermark import Watermark
from mutation_api.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class BinlogOptions:
    """The options for reading the log in an extraction.

    Attributes:
        seen_to: positions of statements that have been carried out in Hive by hand.
        recopy: True to read the whole table again and replace its rows in Hive.
        zero_dates: handling of dates with a zero month or day: ``error`` or ``null``.
        ignored_columns: columns that only one side has, in addition to those of the settings.
    """

    seen_to: tuple[str, ...] = ()
    recopy: bool = False
    zero_dates: str = "error"
    ignored_columns: tuple[str, ...] = ()


NO_OPTIONS = BinlogOptions()


class BinlogSource(MySqlSource):
    """The changes in the log since the last extraction; nothing is removed from the log.

    Args:
        settings: settings of the table.
        password: password of the account; '' if it has none.
        options: options of this extraction.
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
        super().__init__(
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
        self.advice = UPDATE

    differences: tuple[Difference, ...] = ()

    def has_news(self, mark: ProgressMark) -> bool:
        """Return True, since only an extraction can determine this."""
        return True

    def acknowledge(self) -> int:
        """Return 0: nothing is deleted, because the log belongs to the server."""
        return 0


SOURCE_VARIABLE = "HIVE_MUTATE_SOURCE"
"""The environment variable with the URLs of sources that commands may connect to, separated by blanks."""
_OF_LIBPQ = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")
"""The variables in which libpq finds a password, which it may send to any host."""
_PASSWORD_FILE = ".pgpass"
"""libpq's password file in the home directory; a line of it may apply to all hosts."""


@dataclass(frozen=True, kw_only=True)
class SourceAccess:
    """The source that the user of a command allows.

    Attributes:
        password: password of the account. If None, the environment variable PASSWORD_VARIABLE is used.
        source: URL of the database that may be connected to. If None, SOURCE_VARIABLE is used.
    """

    password: str | None = field(default=None, repr=False)
    source: str | None = None

    def connected(self, table: str, settings: UpdateSettings) -> SourceDatabase:
        """Return the database of a table's settings; it is connected on first use.

        Raises:
            ConfigurationError: If the database is not allowed, or its driver is not installed.
        """
        return connect_database(settings.source, self.password_for(table, settings.source))

    def password_for(self, table: str, source: SourceUrl) -> str:
        """Return the password for the source of a table; '' if there is none.

        Raises:
            ConfigurationError: If there is a password but no source was named to which it may be sent, or if
                the source is not the one that was named.
        """
        given = os.environ.get(PASSWORD_VARIABLE, "") if self.password is None else self.password
        named = os.environ.get(SOURCE_VARIABLE, "") if self.source is None else self.source
        others = _others(source)
        is_secret = source.kind != "sqlite" and bool(given or others)
        allowed = _urls(named.strip())
        if allowed:
            if not any(map(source.is_same, allowed)):
                names = " or ".join(map(str, allowed))
                raise ConfigurationError(_refusal(table, source, f"only {names} may be connected to"))
        elif is_secret:
            place = "password=…" if self.password else ", ".join([PASSWORD_VARIABLE] * bool(given) + others)
            raise ConfigurationError(
                _refusal(table, source, f"no source was named to which the password ({place}) may be sent")
            )
        return given


def _others(source: SourceUrl) -> list[str]:
    """Return the places from which the driver itself may read a password."""
    if source.kind != "postgresql":
        return []
    found = [name for name in _OF_LIBPQ if os.environ.get(name)]
    with suppress(RuntimeError, OSError):  # an account without a home
        file = Path.home() / _PASSWORD_FILE
        found += [str(file)] if file.exists() else []
    return [*found, *(name for name in source.options if name == "passfile")]


def _refusal(table: str, source: SourceUrl, why: str) -> str:
    return (
        f"table {table}: its property {PREFIX}source is {source}, but {why}. No connection was made. If the "
        f"table should follow this database, set {SOURCE_VARIABLE}='{source}' (in Python source=…; separate "
        f"several with blanks). If not, the property was altered: correct it (ALTER TABLE {table} SET "
        f"TBLPROPERTIES ('{PREFIX}source'='…'))"
    )


def _urls(text: str) -> list[SourceUrl]:
    """Return the URLs in a list. Raises ConfigurationError if one is invalid."""
    what = f"the URL of the source in {SOURCE_VARIABLE}, in Python source=…"
    if text.startswith("sqlite:") and text.count("://") == 1:  # the path of a file may contain blanks
        return [SourceUrl.of(text, what=what)]
    return [SourceUrl.of(each, what=what) for each in text.split()]


def check_same_source(table: str, marks: Iterable[Watermark], settings: UpdateSettings) -> None:
    """Raise an error if the source is not that of the last extraction.

    Args:
        table: the table in Hive.
        marks: its watermarks; none before the first extraction.
        settings: settings of the table.

    Raises:
        ConfigurationError: If the properties were altered since the last extraction.
    """
    known = {(mark.source_id, mark.source_table) for mark in marks}
    if known and (settings.source_id, settings.source_table) not in known:
        (before, before_table) = min(known)
        raise ConfigurationError(
            f"table {table}: its properties {PREFIX}source, …source_table and …identifier refer to table "
            f"{settings.source_table} of {settings.source_id}, but the last extraction was of table "
            f"{before_table} of {before}, so they have been altered. No connection was made. Correct them "
            f"(ALTER TABLE {table} SET TBLPROPERTIES …). If the database has moved: correct them, then run "
            f"hive-mutate update disable --table {table} --discard, which does not need the old database to "
            "answer, then enable with the new one"
        )


def check_same_settings(table: str, mark: ProgressMark | None, settings: UpdateSettings) -> None:
    """Raise an error if the settings differ from those of the last extraction.

    Otherwise rows would be missed or applied twice.

    Raises:
        ConfigurationError: If a property was altered since the last extraction.
    """
    now = settings.of_position
    altered = {} if mark is None else {n: v for n, v in mark.settings.items() if now.get(n, v) != v}
    if altered:
        name, before = min(altered.items())
        raise ConfigurationError(
            f"table {table}: its property {PREFIX}{name} is {now[name]!r}, but the last extraction was made "
            f"with {before!r}, so it has been altered. No connection was made. Correct it (ALTER TABLE "
            f"{table} SET TBLPROPERTIES ('{PREFIX}{name}'='{before}')). To follow the table differently: "
            f"correct it, then run hive-mutate update disable --table {table}, then enable with other "
            "options"
        )


class AnyCapture(LocalChangeSource, Protocol):
    """A change source that deletes captured changes once they are applied.

    ``differences``: the events at the source that the last read found and that the method does not capture.
    """

    differences: tuple[Difference, ...]

    def has_news(self, mark: ProgressMark) -> bool:
        """Return True if there may be something to extract after this position."""

    def acknowledge(self) -> int:
        """Delete the applied rows from the source's log; return their number."""

    def close(self) -> None:
        """Remove the buffered rows and disconnect."""


def capture_of(
    settings: UpdateSettings,
    table: str,
    access: SourceAccess,
    *,
    replaces: bool,
    binlog: BinlogOptions = NO_OPTIONS,
) -> AnyCapture:
    """Return the change source; it is not connected yet.

    Args:
        settings: settings of the table.
        table: the table in Hive.
        access: the source that may be connected to, and the password for it.
        replaces: True if a first copy also deletes rows of the target that the source lacks.
        binlog: options of method binlog.

    Raises:
        ConfigurationError: If the source is not allowed, its driver is missing, or there are options of
            another method.
    """
    if settings.method is CaptureMethod.BINLOG:
        # needs the packages for MySQL's log

        return BinlogSource(settings, access.password_for(table, settings.source), binlog)
    if binlog != NO_OPTIONS:
        raise ConfigurationError(
            f"source table {settings.source_table} is captured by method {settings.method.value}, but "
            "--seen-to, --recopy, --zero-dates and --ignore-column are options of method binlog. Leave them "
            "out"
        )
    database = access.connected(table, settings)
    if settings.method.has_version:
        return VersionSource(database, settings, table, replaces=replaces)
    return LogSource(database, settings, table, replaces=replaces)
