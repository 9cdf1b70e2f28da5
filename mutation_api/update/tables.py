"""Settings of tables in the metastore: read, written, removed; names of what belongs to a table there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from metastore_client.model import TableInfo
from mutation_api.client.failure import metastore_errors_as_ours
from mutation_api.client.tables.catalog import split_full_name
from mutation_api.errors import ConfigurationError
from mutation_api.inputs.find_watermarks import read_watermarks
from mutation_api.inputs.watermark import WATERMARK_TABLE_NAME, Watermark, Watermarks
from mutation_api.update.progress_mark import ProgressMark
from mutation_api.update.settings import UpdateSettings

__all__ = [
    "enabled_tables",
    "find_mark",
    "find_settings",
    "find_watermarks_of",
    "get_table",
    "mark_of",
    "require_settings",
    "watermark_table_of",
    "write_settings",
]


def watermark_table_of(table: str) -> str:
    """The table with the watermark of ``table``; its own, so extractions do not wait for each other."""
    database, name = split_full_name(table)
    return f"{database}.{WATERMARK_TABLE_NAME}_{name}"


def get_table(metastore: MetastoreClient, table: str) -> TableInfo:
    """The table as the metastore describes it. Raises ConfigurationError: there is none."""
    with metastore_errors_as_ours(f"could not look for table {table}"):
        try:
            return metastore.get_table(*split_full_name(table))
        except NoSuchObjectError as error:
            raise ConfigurationError(f"there is no table {table}") from error


def find_settings(metastore: MetastoreClient, table: str) -> UpdateSettings | None:
    """The settings of a table, None if incremental update is not enabled. Raises ConfigurationError."""
    return UpdateSettings.of(table, get_table(metastore, table).parameters)


def require_settings(metastore: MetastoreClient, table: str, *states: str) -> UpdateSettings:
    """The settings of a table in one of these states, which it must have.

    Raises ConfigurationError: incremental update is not enabled, or it is in another state.
    """
    found = find_settings(metastore, table)
    if found is None:
        raise ConfigurationError(f"table {table}: incremental update is not enabled; enable it first")
    if found.state not in states:
        advice = {"enabling": "enable it once more", "disabling": "disable it once more"}.get(found.state, "")
        raise ConfigurationError(f"table {table}: incremental update is {found.state}: {advice}")
    return found


def write_settings(metastore: MetastoreClient, table: str, settings: UpdateSettings | None) -> None:
    """Store settings; None removes them. Raises ConnectionFailedError, TransactionError."""
    changes = UpdateSettings.removed() if settings is None else settings.to_properties()
    with metastore_errors_as_ours(f"could not change the properties of table {table}"):
        metastore.set_table_parameters(*split_full_name(table), changes)


def enabled_tables(
    metastore: MetastoreClient, databases: Sequence[str]
) -> Iterator[tuple[str, UpdateSettings]]:
    """The tables of databases for which incremental update is enabled, or half so."""
    for database in databases:
        with metastore_errors_as_ours(f"could not list database {database}"):
            names = metastore.get_all_tables(database)
        for name in names:
            found = find_settings(metastore, f"{database}.{name}")
            if found is not None:
                yield f"{database.lower()}.{name}", found


def find_watermarks_of(metastore: MetastoreClient, table: str) -> list[Watermark]:
    """The watermarks of a table, whatever their text says; none before its first extraction."""
    read = read_watermarks(metastore, watermark_table_of(table))
    return [] if read is None else read.of(target=table)


def find_mark(metastore: MetastoreClient, table: str) -> tuple[Watermark, ProgressMark | None] | None:
    """The watermark of a table and, unless another source defines its text, what it says."""
    return mark_of(read_watermarks(metastore, watermark_table_of(table)), table)


def mark_of(read: Watermarks | None, table: str) -> tuple[Watermark, ProgressMark | None] | None:
    """The same, of watermarks that were read."""
    marks = [] if read is None else read.of(target=table)
    if not marks:
        return None
    latest = max(marks, key=lambda mark: mark.applied_at)
    return latest, ProgressMark.of(latest.text) if '"extraction"' in latest.text else None
