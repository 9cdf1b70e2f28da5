"""disable_update: stop capturing changes, and remove everything that was made for it; the table stays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from mutation_api.client.builder import LOCK_TIMEOUT_SECONDS_DEFAULT
from mutation_api.client.failure import metastore_errors_as_ours
from mutation_api.client.tables.catalog import split_full_name
from mutation_api.errors import OutstandingChangesError
from mutation_api.inputs.engines.choice import engine_for
from mutation_api.inputs.engines.engine import Engine
from mutation_api.local.local_options import LocalOptions
from mutation_api.update.extract import ExtractOptions, ExtractReport, extract_by
from mutation_api.update.rdbms.connect import connect_database
from mutation_api.update.rdbms.database import SourceDatabase
from mutation_api.update.settings import UpdateSettings
from mutation_api.update.sources import AnyCapture
from mutation_api.update.tables import find_mark, require_settings, watermark_table_of, write_settings
from mutation_api.update.waiting import waiting_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["disable_by", "disable_update"]


def disable_update(
    metastore: MetastoreClient,
    table: str,
    *,
    discard: bool = False,
    spark: SparkSession | None = None,
    local: LocalOptions | None = None,
    password: str | None = None,
    user: str | None = None,
    lock_timeout_seconds: float = LOCK_TIMEOUT_SECONDS_DEFAULT,
    progress: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """:func:`disable_by`, with the arguments of ``extract_update``."""
    options = ExtractOptions(
        password=password, user=user, lock_timeout_seconds=lock_timeout_seconds, progress=progress
    )

    def engine(source: AnyCapture) -> Engine:
        return engine_for(source, spark, local)

    return disable_by(engine, metastore, table, options, discard=discard)


def disable_by(
    engine: Callable[[AnyCapture], Engine],
    metastore: MetastoreClient,
    table: str,
    options: ExtractOptions,
    *,
    discard: bool = False,
) -> list[str]:
    """Disable incremental update of a table. Repeated after a stop anywhere, it goes on.

    Triggers go first, then what they logged since the check is extracted, then all else goes. So no change
    that was made while they existed is lost.

    Args:
        engine: gives the engine of the last extraction.
        metastore: where ``table`` is; stays open.
        table: ``database.table``.
        options: as of an extraction.
        discard: drop outstanding changes instead of refusing.

    Returns:
        The names of the objects that were removed from the source.

    Raises:
        OutstandingChangesError: changes have not been extracted; nothing was changed.
        ConfigurationError: incremental update is not enabled.
        Others: as ``extract_update``.
    """
    table = ".".join(split_full_name(table))
    settings = require_settings(metastore, table, "enabling", "enabled", "disabling")
    database = connect_database(settings.source, options.password)
    try:
        if settings.state == "enabled" and not discard:
            _refuse_outstanding(engine, metastore, database, table, settings, options)
        settings = replace(settings, state="disabling")
        write_settings(metastore, table, settings)
        removed = _remove_objects(engine, metastore, database, table, settings, options, discard=discard)
    finally:
        database.close()
    marks = watermark_table_of(table)
    # There is none if nothing was extracted, or if it was dropped before.
    with metastore_errors_as_ours(f"could not drop table {marks}"), suppress(NoSuchObjectError):
        metastore.drop_table(*split_full_name(marks), delete_data=True)
    write_settings(metastore, table, None)
    return removed


def _refuse_outstanding(
    engine: Callable[[AnyCapture], Engine],
    metastore: MetastoreClient,
    database: SourceDatabase,
    table: str,
    settings: UpdateSettings,
    options: ExtractOptions,
) -> None:
    if settings.method.has_log:
        waiting = waiting_changes(metastore, database, table, settings)
        count, age = waiting.count, f" (the oldest is {waiting.age_seconds:.0f} s old)"
    else:
        count, age = _would_change(extract_by(engine, metastore, table, replace(options, dry_run=True))), ""
    if count:
        raise OutstandingChangesError(
            f"table {table}: {count:,} changes of {settings.source_table} have not been extracted{age}. "
            "Extract them "
            "first, or discard them. Nothing was changed"
        )


def _would_change(report: ExtractReport) -> int:
    """Rows that an extraction would write."""
    totals = [each.merge.total for each in report.ingested.tables]
    return sum(total.inserted + total.updated + total.deleted + total.moved for total in totals)


def _remove_objects(
    engine: Callable[[AnyCapture], Engine],
    metastore: MetastoreClient,
    database: SourceDatabase,
    table: str,
    settings: UpdateSettings,
    options: ExtractOptions,
    *,
    discard: bool,
) -> list[str]:
    """Triggers, then what they logged last, then the rest, in the reverse order of their making."""
    if not settings.method.has_log:
        return []
    captured = database.describe(settings.source_table)
    objects = database.objects(captured, settings.key, settings.names, settings.method)
    triggers = [each for each in objects if each.kind == "trigger"]
    database.run([statement for each in triggers for statement in each.drop])
    is_copied = find_mark(metastore, table) is not None
    if is_copied and not discard and database.has_table(captured.schema, settings.names.log):
        extract_by(engine, metastore, table, options)
    database.run([statement for each in reversed(objects) for statement in each.drop])
    return [f"{each.kind} {each.name}" for each in objects]
