"""The change source that a table's settings describe."""

from __future__ import annotations

from typing import Protocol

from mutation_api.errors import ConfigurationError
from mutation_api.inputs.source import LocalChangeSource
from mutation_api.update.binlog_options import NO_OPTIONS, BinlogOptions
from mutation_api.update.differences import Difference
from mutation_api.update.log_source import LogSource
from mutation_api.update.method import CaptureMethod
from mutation_api.update.progress_mark import ProgressMark
from mutation_api.update.settings import UpdateSettings
from mutation_api.update.source_access import SourceAccess
from mutation_api.update.version_source import VersionSource

__all__ = ["AnyCapture", "capture_of"]


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
        from mutation_api.update.binlog_source import BinlogSource  # needs the packages of MySQL's log

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
