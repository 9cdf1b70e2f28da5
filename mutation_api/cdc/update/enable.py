"""enable_update: start capturing the changes of a table in a relational database for a Hive table."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from metastore_client.client import MetastoreClient
from mutation_api.cdc.update.database import (
    CapturedTable,
    SourceDatabase,
    SourceObject,
    checked_url,
    connect_database,
)
from mutation_api.cdc.update.progress_mark import (
    CaptureMethod,
    StoredTextError,
    as_name,
    as_optional_name,
    as_overlap,
    as_table_name,
    as_time_zone,
)
from mutation_api.cdc.update.settings import (
    UpdateSettings,
    as_method,
    find_settings,
    get_table,
    write_settings,
)
from mutation_api.cdc.update.source_rows import ReadPlan, source_state
from mutation_api.errors import ConfigurationError
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.descriptors import describe
from mutation_api.transaction.preconditions import check_mutable

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class EnableReport:
    """The result of ``enable``, or of its dry run.

    ``objects``: objects in the source, with the statements that create them.
    """

    table: str
    settings: UpdateSettings
    objects: tuple[SourceObject, ...]
    is_dry_run: bool

    def to_dict(self) -> dict[str, object]:
        """Return the report as a dict of JSON types only."""
        settings = self.settings
        return {
            "table": self.table,
            "dry_run": self.is_dry_run,
            "source": str(settings.source),
            "source_table": settings.source_table,
            "key": list(settings.key),
            "method": settings.method.value,
            "objects": [
                {"kind": each.kind, "name": each.name, "create": list(each.create)} for each in self.objects
            ],
        }

    def __str__(self) -> str:
        """Return the statements of a dry run, or a line that describes the result."""
        found = self.settings
        if self.is_dry_run:
            statements = [f"{each};" for made in self.objects for each in made.create]
            return "\n".join(
                statements or [f"-- method {found.method.value} creates no objects in the source"]
            )
        made = ", ".join(f"{each.kind} {each.name}" for each in self.objects) or "no objects in the source"
        return (
            f"{self.table}: follows {found.source_table} of {found.source} by {', '.join(found.key)} "
            f"({found.method.value}): {made}"
        )


def enable_update(
    metastore: MetastoreClient,
    table: str,
    source: str,
    *,
    source_table: str | None = None,
    key: Sequence[str] = (),
    method: CaptureMethod | str = CaptureMethod.CHANGELOG,
    version_column: str = "",
    overlap: str = "",
    compare_keys: bool = False,
    verify_version: bool = True,
    verify_key: bool = True,
    create_partitions: bool = True,
    is_loaded: bool = False,
    ignored_columns: Sequence[str] = (),
    null_for: Sequence[str] = (),
    time_zone: str = "UTC",
    password: str | None = None,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> EnableReport:
    """Enable incremental update of a table. If it was stopped at any point, a repeated call continues.

    Every change of the source's table is captured from the end of this call on. The first extraction copies
    the table; rows that the target already has are compared with the source and updated or deleted to match
    it.

    Args:
        metastore: metastore of ``table``; stays open.
        table: ``database.table``, an ACID table that supports updates and deletes.
        source: URL of the database without password; see :func:`connect_database`.
        source_table: the source's name, with its schema if necessary. Default: the name of ``table``.
        key: columns that identify a row. Default: the primary key of the source.
        method: method of capturing changes.
        version_column: monotonically increasing column of the row-version methods.
        overlap: see :class:`~mutation_api.cdc.update.version_source.VersionSource`.
        compare_keys: row-version: True to find deletes by comparing the keys of both sides in each
            extraction.
        verify_version: row-version methods: True to check in each extraction for versions below the bound,
            which reads the column for all rows in the source. If False, such rows are missed.
        verify_key: insert-only methods: see UpdateSettings.
        create_partitions: False to make the extraction refuse rows of partitions that do not exist yet.
        is_loaded: True if the target is loaded by other means after this call; the first extraction then
            copies nothing.
        ignored_columns: columns of the source that ``table`` lacks.
        null_for: columns of ``table`` in which invalid values become NULL: dates outside the years 1 to 9999
            (BC, zero dates), infinity and NaN. In other columns such values are an error. Columns may be
            added after the table was enabled.
        time_zone: zone in which a timestamp with time zone (timestamptz, MySQL's TIMESTAMP) becomes a local
            timestamp.
        password: password of the source. Default: that of the environment.
        dry_run: True to change nothing; the report contains the statements.
        progress: called with a message for each step.

    Raises:
        ConfigurationError: If no key exists, the table follows another source, or options contradict each
            other.
        RecordLayoutError: If the tables do not match, or the method would miss changes.
        TableNotMutableError: If ``table`` breaks a rule of ACID tables.
        ConnectionFailedError: If the source or the metastore cannot be reached, or refuses a statement.
    """
    table = normal_full_name(table)
    address = checked_url(source)
    database = connect_database(address, password)
    try:
        wanted = UpdateSettings(
            identifier=secrets.token_hex(4),
            state="enabling",
            source=address,
            source_table=_checked_option(
                "source_table", source_table or split_full_name(table)[1], as_table_name
            ),
            key=_checked_names("key", key),
            method=_checked_option("method", getattr(method, "value", method), as_method),
            version_column=_checked_option("version_column", version_column, as_optional_name),
            overlap=_checked_option("overlap", overlap, as_overlap),
            compares_keys=_checked_flag("compare_keys", compare_keys),
            verifies_version=_checked_flag("verify_version", verify_version),
            verifies_key=_checked_flag("verify_key", verify_key),
            create_partitions=_checked_flag("create_partitions", create_partitions),
            is_loaded=_checked_flag("is_loaded", is_loaded),
            ignored_columns=_checked_names("ignored_columns", ignored_columns),
            null_for=tuple(sorted({name.lower() for name in _checked_names("null_for", null_for)})),
            time_zone=_checked_option("time_zone", time_zone, as_time_zone),
            enabled_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        captured, settings = _checked(metastore, table, database, wanted)
        settings = _continued(metastore, table, settings)
        objects = tuple(_objects(database, captured, settings))
        if not dry_run:
            _carry_out(metastore, table, database, settings, objects, progress)
    finally:
        database.close()
    return EnableReport(table, replace(settings, state="enabled"), objects, dry_run)


def _checked_option(name: str, value: object, read: Callable[[str], _Value]) -> _Value:
    """Return the typed value of an option. Raises ConfigurationError if it is invalid."""
    try:
        return read(value if isinstance(value, str) else str(value))
    except StoredTextError as error:
        raise ConfigurationError(f"{name}={value!r}: expected {error}") from error


def _checked_flag(option: str, value: object) -> bool:
    """Return the flag. Raises ConfigurationError if it is not True or False."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{option}={value!r}: expected True or False")
    return value


def _checked_names(option: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns. Raises ConfigurationError if one is invalid."""
    if isinstance(names, str):
        raise ConfigurationError(f"{option}={names!r}: expected a list of names, such as [{names!r}]")
    return tuple(_checked_option(option, name, as_name) for name in names)


def _checked(
    metastore: MetastoreClient, table: str, database: SourceDatabase, wanted: UpdateSettings
) -> tuple[CapturedTable, UpdateSettings]:
    """Run all checks that can fail, before anything is created."""
    if wrong := wanted.contradiction():
        raise ConfigurationError(f"method {wanted.method.value} {wrong}")
    captured = database.describe(wanted.source_table)
    settings = replace(wanted, key=_key(captured, wanted))
    database.check_capture(captured, settings.key, settings.method)
    database.check_privileges(captured, settings.method)
    _check_null_for(ReadPlan.of(database, captured, _target(metastore, table), settings), settings)
    if settings.method.has_version:
        database.check_version(captured, settings.version_column, settings.overlap)
    return captured, settings


def _check_null_for(plan: ReadPlan, settings: UpdateSettings) -> None:
    """Raise ConfigurationError if a named column cannot have NULL in place of a value."""
    names = {name.lower() for name, _, _ in plan.columns}
    keys = {name.lower() for name in settings.key}
    for name in settings.null_for:
        wrong = "is not a column of the table in Hive" if name not in names else ""
        wrong = "is a key column, whose values cannot be NULL" if name in keys else wrong
        if settings.method is CaptureMethod.BINLOG:
            wrong = "method binlog reads values from the log, and refuses dates that are invalid in Hive"
        if wrong:
            raise ConfigurationError(f"null_for={list(settings.null_for)}: {name}: {wrong}")


def _key(captured: CapturedTable, wanted: UpdateSettings) -> tuple[str, ...]:
    """Return the given key in the source's spelling, or the primary key. Raises ConfigurationError."""
    must_be_primary = wanted.method.is_insert_only and wanted.verifies_key
    if not captured.primary_key and (must_be_primary or not wanted.key):
        advice = (
            "or disable its verification" if must_be_primary else "or name columns that identify a row (key)"
        )
        raise ConfigurationError(
            f"source table {captured.full_name} has no primary key. Add one, {advice}. Nothing was changed"
        )
    key = wanted.key or captured.primary_key
    names = {column.name.lower() for column in captured.columns}
    missing = [name for name in key if name.lower() not in names]
    if missing:
        raise ConfigurationError(
            f"source table {captured.full_name} does not have the column {', '.join(missing)}"
        )
    found = tuple(captured.column(name).name for name in key)
    if len(set(found)) < len(found):
        raise ConfigurationError(f"key={list(key)}: name each column of {captured.full_name} only once")
    if must_be_primary and set(found) != set(captured.primary_key):
        raise ConfigurationError(
            f"source table {captured.full_name}: {', '.join(found)} is not its primary key "
            f"{', '.join(captured.primary_key)}, which method {wanted.method.value} requires. Do not name a "
            "key, or disable its verification"
        )
    return found


def _target(metastore: MetastoreClient, table: str) -> AcidTable:
    info = get_table(metastore, table)
    properties = metastore.get_database_parameters(info.database)
    version = check_mutable(info, metastore.capabilities(), TableRole.SINK, properties)
    return describe(info, version, TableRole.SINK, create_partitions=True, time_zone=None)


def _continued(metastore: MetastoreClient, table: str, wanted: UpdateSettings) -> UpdateSettings:
    """Return the settings, with the identifier of an ``enable`` that was stopped earlier.

    Only columns of ``null_for`` can be added later, because their values were refused until then.

    Raises:
        ConfigurationError: If the table is already enabled with other settings, or is being disabled.
    """
    found = find_settings(metastore, table)
    if found is None:
        return wanted
    same = replace(
        wanted,
        identifier=found.identifier,
        state=found.state,
        enabled_at=found.enabled_at,
        fingerprint=found.fingerprint,
        null_for=found.null_for,
    )
    adds_nulls = set(wanted.null_for) >= set(found.null_for)
    if found.state == "disabling" or same != found or not adds_nulls:
        raise ConfigurationError(
            f"table {table}: incremental update is already {found.state}, from {found.source_table} of "
            f"{found.source} by {', '.join(found.key)} ({found.method.value}); disable it first"
        )
    return replace(found, null_for=wanted.null_for)


def _objects(
    database: SourceDatabase, captured: CapturedTable, settings: UpdateSettings
) -> list[SourceObject]:
    if not settings.method.has_log:
        return []
    return database.objects(captured, settings.key, settings.names, settings.method)


def _carry_out(
    metastore: MetastoreClient,
    table: str,
    database: SourceDatabase,
    settings: UpdateSettings,
    objects: Sequence[SourceObject],
    progress: Callable[[str], None],
) -> None:
    if settings.state == "enabled":
        if find_settings(metastore, table) != settings:  # columns were added to null_for
            write_settings(metastore, table, settings)
        return
    write_settings(metastore, table, settings)
    if objects:
        progress(f"{table}: creating {', '.join(f'{each.kind} {each.name}' for each in objects)}")
        database.run([statement for each in objects for statement in each.create])
    if settings.is_loaded:
        # No copy will record it.
        found = source_state(database, settings, table).fingerprint
        settings = replace(settings, fingerprint=found)
    write_settings(metastore, table, replace(settings, state="enabled"))
