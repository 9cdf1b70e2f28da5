"""The end and the repair of an incremental update.

:func:`disable_update` stops capturing changes and removes everything created for it; the table stays.
:func:`repair_update` creates the objects in the source again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from mutation_api.cdc.choice import engine_for
from mutation_api.cdc.engine import Engine
from mutation_api.cdc.update.database import SourceDatabase, SourceObject
from mutation_api.cdc.update.enable import EnableReport
from mutation_api.cdc.update.extract import ExtractOptions, ExtractReport, extract_by
from mutation_api.cdc.update.settings import (
    UpdateSettings,
    find_mark,
    list_watermarks_of,
    require_settings,
    watermark_table_of,
    write_settings,
)
from mutation_api.cdc.update.sources import AnyCapture, SourceAccess, check_same_source
from mutation_api.cdc.update.status import Waiting, waiting_changes
from mutation_api.errors import (
    ConfigurationError,
    ConnectionFailedError,
    OutstandingChangesError,
    SourcePositionError,
)
from mutation_api.transaction.builder import LOCK_TIMEOUT_SECONDS_DEFAULT
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.write.local_plan import LocalOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DisableReport:
    """The result of ``disable``.

    Attributes:
        table: ``database.table``.
        removed: kind and name of the objects removed from the source.
        left: objects that could not be removed, each with the reason and the statement that removes it.
    """

    table: str
    removed: tuple[str, ...]
    left: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the report as a dict of JSON types only."""
        return {"table": self.table, "removed": list(self.removed), "left": list(self.left)}

    def __str__(self) -> str:
        """Return one line, and another for each object that was not removed."""
        line = f"{self.table}: disabled; removed {', '.join(self.removed) or 'nothing in the source'}"
        return "\n".join([line, *(f"{self.table}: not removed: {each}" for each in self.left)])


def disable_update(
    metastore: MetastoreClient,
    table: str,
    *,
    discard: bool = False,
    spark: SparkSession | None = None,
    local: LocalOptions | None = None,
    password: str | None = None,
    source: str | None = None,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    progress: Callable[[str], None] = lambda line: None,
) -> DisableReport:
    """Disable incremental update of a table; see :func:`disable_by`, and ``extract_update`` for arguments."""
    options = ExtractOptions(
        password=password,
        source=source,
        user=user,
        lock_timeout_seconds=lock_timeout_seconds,
        progress=progress,
    )

    engine = functools.partial(engine_for, spark=spark, local=local)
    return disable_by(engine, metastore, table, options, discard=discard)


def disable_by(
    engine: Callable[[AnyCapture], Engine],
    metastore: MetastoreClient,
    table: str,
    options: ExtractOptions,
    *,
    discard: bool = False,
) -> DisableReport:
    """Disable incremental update of a table. If it was stopped at any point, a repeated call continues.

    Triggers are removed first. Changes that they logged since the check are then extracted, and everything
    else is removed last. No change made while the triggers existed is therefore lost. Objects are found by
    their names, even if the table was renamed or dropped.

    Args:
        engine: function from a source to the engine of the last extraction.
        metastore: metastore of ``table``; stays open.
        table: ``database.table``.
        options: options of an extraction.
        discard: True to drop outstanding changes instead of refusing; objects that cannot be removed are
            reported.

    Returns:
        The objects removed from the source, and those left there.

    Raises:
        OutstandingChangesError: If changes have not been extracted, or may not have been; nothing was
            changed.
        ConfigurationError: If incremental update is not enabled, or the source is not the allowed one.
        Others: See ``extract_update``.
    """
    table = normal_full_name(table)
    settings = require_settings(metastore, table, "enabling", "enabled", "disabling")
    known = list_watermarks_of(metastore, table)
    database = options.access.connected(table, settings)
    try:
        check_same_source(table, known, settings)
        if settings.state == "enabled" and not discard:
            _Disabling(engine, metastore, database, table, settings, options).refuse_outstanding()
        settings = replace(settings, state="disabling")
        write_settings(metastore, table, settings)
        disabling = _Disabling(engine, metastore, database, table, settings, options)
        report = disabling.objects_removed(discard=discard)
    finally:
        database.close()
    marks = watermark_table_of(table)
    # It does not exist if nothing was extracted, or if it was already dropped.
    with metastore_errors_as_ours(f"cannot drop table {marks}"), suppress(NoSuchObjectError):
        metastore.drop_table(*split_full_name(marks), delete_data=True)
    write_settings(metastore, table, None)
    return report


@dataclass(frozen=True)
class _Disabling:
    """One table that is being disabled, in Hive and in its source."""

    engine: Callable[[AnyCapture], Engine]
    metastore: MetastoreClient
    database: SourceDatabase
    table: str
    settings: UpdateSettings
    options: ExtractOptions

    def refuse_outstanding(self) -> None:
        """Raise OutstandingChangesError if changes have not been extracted, or may not have been."""
        table, source_table = self.table, self.settings.source_table
        if self.settings.method.has_log:
            try:
                waiting = self._waiting()
            except SourcePositionError as error:
                raise OutstandingChangesError(
                    f"table {table}: cannot determine whether changes of {source_table} are outstanding: "
                    f"{error}. Correct this, or discard the changes (--discard). Nothing was changed"
                ) from error
            count, age = waiting.count, f" (the oldest is {waiting.age_seconds:.0f} s old)"
        else:
            count, age = _would_change(self._extracted(replace(self.options, dry_run=True))), ""
        if count:
            raise OutstandingChangesError(
                f"table {table}: {count:,} changes of {source_table} have not been extracted{age}. "
                "Extract them first, or discard them. Nothing was changed"
            )

    def objects_removed(self, *, discard: bool) -> DisableReport:
        """Remove the triggers, extract the changes that they logged last, then remove the rest."""
        names = self.settings.names
        if not self.settings.method.has_log:
            return DisableReport(self.table, ())
        try:
            objects = self.database.made(names)
        except ConnectionFailedError as error:
            if not discard:
                raise
            left = f"triggers and function {names.capture}…, table {names.log}: {error}"
            return DisableReport(self.table, (), (left,))
        triggers = [each for each in objects if each.kind == "trigger"]
        report = self._without(triggers, DisableReport(self.table, ()), is_forced=discard)
        is_copied = bool(list_watermarks_of(self.metastore, self.table))
        has_log = is_copied and not discard and bool(self.database.log_name(names))
        if has_log and self._waiting().count:
            self._extracted(self.options)
        others = [each for each in objects if each not in triggers]
        return self._without(others, report, is_forced=discard)

    def _waiting(self) -> Waiting:
        return waiting_changes(self.metastore, self.database, self.table, self.settings)

    def _extracted(self, options: ExtractOptions) -> ExtractReport:
        return extract_by(self.engine, self.metastore, self.table, options)

    def _without(
        self, objects: Sequence[SourceObject], report: DisableReport, *, is_forced: bool
    ) -> DisableReport:
        """Remove objects. Raises ConnectionFailedError if this fails and ``is_forced`` is False."""
        removed, left = list(report.removed), list(report.left)
        for made in objects:
            try:
                self.database.run(made.drop)
            except ConnectionFailedError as error:
                if not is_forced:
                    raise
                left.append(f"{made.kind} {made.name}: {error}. To remove it by hand: {'; '.join(made.drop)}")
            else:
                removed.append(f"{made.kind} {made.name}")
        return DisableReport(self.table, tuple(removed), tuple(left))


def _would_change(report: ExtractReport) -> int:
    """Return the number of rows that an extraction would write."""
    totals = [each.merge.total for each in report.ingested.tables]
    return sum(total.inserted + total.updated + total.deleted + total.moved for total in totals)


def repair_update(
    metastore: MetastoreClient,
    table: str,
    *,
    password: str | None = None,
    source: str | None = None,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> EnableReport:
    """Create the log and the triggers of a table again, even if they still exist.

    Use it after the source's table was replaced by another one, after triggers were dropped, disabled or
    altered, and after one side was restored from a backup. The next extraction compares the whole table, so
    changes that were not captured in the meantime are not lost. If it was stopped at any point, a repeated
    call continues.

    Args:
        metastore: metastore of ``table``; stays open.
        table: ``database.table``, for which incremental update is enabled.
        password: password of the source. Default: that of the environment.
        source: see ``extract_update``.
        dry_run: True to change nothing; the report contains the statements.
        progress: called with a message for each step.

    Raises:
        ConfigurationError: If incremental update is not enabled, its method has no objects in the source, or
            the source is not the allowed one.
        RecordLayoutError: If the method can no longer follow the source's table; the message states the
            reason.
        ConnectionFailedError: If the source or the metastore cannot be reached, or refuses a statement.
    """
    table = normal_full_name(table)
    settings = require_settings(metastore, table, "enabled")
    if not settings.method.has_log:
        raise ConfigurationError(
            f"table {table}: method {settings.method.value} has no objects in the source, so there is "
            f"nothing to repair. To compare both tables, run hive-mutate update disable --table {table} "
            "--discard, then enable again"
        )
    found = find_mark(metastore, table)
    extraction = 0 if found is None or found[1] is None else found[1].extraction
    database = SourceAccess(password=password, source=source).connected(table, settings)
    try:
        check_same_source(table, () if found is None else (found[0],), settings)
        captured = database.describe(settings.source_table)
        database.check_capture(captured, settings.key, settings.method)
        objects = database.objects(captured, settings.key, settings.names, settings.method)
        old = [statement for each in database.made(settings.names) for statement in each.drop]
        log = objects[0]
        unknown = tuple(database.unknown_statements(captured.schema, settings.names.log, extraction))
        objects[0] = SourceObject(log.kind, log.name, (*old, *log.create, *unknown), log.drop)
        if not dry_run:
            progress(f"{table}: creating {', '.join(f'{each.kind} {each.name}' for each in objects)} again")
            database.run([statement for each in objects for statement in each.create])
    finally:
        database.close()
    return EnableReport(table, settings, tuple(objects), dry_run)
