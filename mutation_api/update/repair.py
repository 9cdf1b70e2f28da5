"""repair_update: make the objects of an incremental update in the source again."""

from __future__ import annotations

from collections.abc import Callable

from metastore_client.client import MetastoreClient
from mutation_api.client.tables.catalog import split_full_name
from mutation_api.errors import ConfigurationError
from mutation_api.update.enable import EnableReport
from mutation_api.update.rdbms.database import SourceObject
from mutation_api.update.source_access import SourceAccess, check_same_source
from mutation_api.update.tables import find_mark, require_settings

__all__ = ["repair_update"]


def repair_update(
    metastore: MetastoreClient,
    table: str,
    *,
    password: str | None = None,
    source: str | None = None,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> EnableReport:
    """Make the log and the triggers of a table again, whatever became of them.

    It is the way on after the source's table was replaced by another one, after triggers were dropped,
    switched off or altered, and after one side was restored from a backup. The next extraction compares the
    whole table, so changes that were not captured meanwhile are not lost. Repeated after a stop anywhere, it
    goes on.

    Args:
        metastore: where ``table`` is; stays open.
        table: ``database.table``, for which incremental update is enabled.
        password: of the source; by default that of the environment.
        source: see ``extract_update``.
        dry_run: change nothing; the report has the statements.
        progress: is called with a line of text for each step.

    Raises:
        ConfigurationError: incremental update is not enabled, or its method has no objects in the source; or
            the source is not the one that is allowed.
        RecordLayoutError: the method cannot follow the source's table any more; the message says why.
        ConnectionFailedError: the source or the metastore cannot be reached, or refuses a statement.
    """
    table = ".".join(split_full_name(table))
    settings = require_settings(metastore, table, "enabled")
    if not settings.method.has_log:
        raise ConfigurationError(
            f"table {table}: method {settings.method.value} has no objects in the source, so there is "
            "nothing to "
            "repair. To compare both tables, disable and discard (hive-mutate update disable --table "
            f"{table} "
            "--discard), then enable again"
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
            progress(f"{table}: making {', '.join(f'{each.kind} {each.name}' for each in objects)} again")
            database.run([statement for each in objects for statement in each.create])
    finally:
        database.close()
    return EnableReport(table, settings, tuple(objects), dry_run)
