"""The settings of an incremental update: the decisions of ``enable``, as properties of the table.

They are kept only in these properties, so any machine can continue. Anyone who may ALTER the table can alter
them. They are therefore read only in :meth:`UpdateSettings.of`, where each becomes a typed value or is
refused. :mod:`mutation_api.cdc.update.sources` decides which source they may point to.

The objects in the source are named after the table and the identifier of the update.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from metastore_client.model import TableInfo
from mutation_api.cdc.ingest_report import read_watermarks
from mutation_api.cdc.source_url import SourceUrl
from mutation_api.cdc.update.progress_mark import (
    CaptureMethod,
    Fingerprint,
    ProgressMark,
    StoredTextError,
    as_fingerprint,
    as_flag,
    as_identifier,
    as_key,
    as_names,
    as_optional_name,
    as_overlap,
    as_table_name,
    as_time,
    as_time_zone,
    one_of,
)
from mutation_api.cdc.watermark import WATERMARK_TABLE_NAME, Watermark, Watermarks
from mutation_api.errors import ConfigurationError
from mutation_api.transaction.catalog import split_full_name, table_not_found
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.upkeep.create_acid_table import UPDATE_PROPERTIES

PREFIX = UPDATE_PROPERTIES
STATES = ("enabling", "enabled", "disabling")
_NAME_CHARACTERS = 30
_OTHERS = re.compile(r"[^A-Za-z0-9_]")
_SHOWN_CHARACTERS = 200
_OF_POSITION = (
    *("key", "method", "version_column", "overlap", "time_zone"),
    *("compares_keys", "verifies_version", "verifies_key"),
)
_WHERE_PASSWORDS_ARE = (
    "since others can read it. Remove it from the property (ALTER TABLE … SET TBLPROPERTIES), change the "
    "password in the source, and pass it in the environment variable HIVE_MUTATE_SOURCE_PASSWORD"
)


@dataclass(frozen=True)
class ObjectNames:
    """The names of the objects in the source, built from the table's name and the update's identifier."""

    log: str
    capture: str
    """The trigger function's name, and the prefix of trigger names."""

    @classmethod
    def of(cls, source_table: str, identifier: str) -> ObjectNames:
        """Return names that every database accepts, up to 51 characters; ``identifier``: 8 hex digits."""
        table = _OTHERS.sub("_", source_table.rpartition(".")[2])[:_NAME_CHARACTERS]
        return cls(f"hm_{table}_{identifier}_log", f"hm_{table}_{identifier}")


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """The settings of one table.

    Attributes:
        identifier: 8 hex digits; part of the name of every object created in the source.
        state: one of STATES.
        source: the source's address.
        source_table: the source's name of the table, with its schema if it has one.
        key: columns that identify a row.
        method: method of capturing changes.
        version_column: monotonically increasing column, for the methods that need one.
        overlap: how far below its greatest value the column is read again: a number, or seconds for a column
            of dates or times. If None, nothing is read again.
        compares_keys: row-version: True to find deletes by comparing all keys.
        verifies_version: row-version methods: True to check in each extraction for versions below the bound.
        verifies_key: insert-only methods: True if the key must be the source's primary key, and an insert of
            a key that the target has with other values is refused.
        create_partitions: True if rows may create partitions of the target.
        is_loaded: True if the target was loaded by other means after ``enable``, so that there is no first
            copy.
        ignored_columns: columns of the source that the target lacks.
        null_for: columns whose values become NULL if they are not a valid date or finite number in Hive.
        time_zone: zone in which a timestamp with time zone becomes a local timestamp.
        enabled_at: time of enabling, ISO 8601 in UTC.
        fingerprint: fingerprint of the source when the table was enabled; None unless ``is_loaded``.
    """

    identifier: str
    state: str
    source: SourceUrl
    source_table: str
    key: tuple[str, ...]
    method: CaptureMethod
    version_column: str = ""
    overlap: Decimal | None = None
    compares_keys: bool = False
    verifies_version: bool = True
    verifies_key: bool = True
    create_partitions: bool = True
    is_loaded: bool = False
    ignored_columns: tuple[str, ...] = ()
    null_for: tuple[str, ...] = ()
    time_zone: str = "UTC"
    enabled_at: str = ""
    fingerprint: Fingerprint | None = None

    def contradiction(self) -> str:
        """Return why a method and its options contradict each other; '' if they do not."""
        method = self.method
        if method.has_version and not self.version_column:
            return "needs the name of a monotonically increasing column (version_column)"
        if not method.has_version and self.version_column:
            return "does not use a version column"
        if self.compares_keys and method is not CaptureMethod.ROW_VERSION:
            return "cannot compare keys; only row-version can"
        if not self.verifies_version and not method.has_version:
            return "has no version column to verify; only the row-version methods have one"
        if not self.verifies_key and not method.is_insert_only:
            return "always verifies its key; only the insert-only methods can skip this"
        if method is CaptureMethod.BINLOG and self.source.server_kind != "mysql":
            return "is only available for MySQL and MariaDB"
        return ""

    @property
    def source_id(self) -> str:
        """The name of the source in watermarks: its address without user and options, and the identifier.

        For the binary log there is no identifier, because the log belongs to the server.
        """
        url = self.source
        if self.method is CaptureMethod.BINLOG:
            return f"mysql:{url.host or 'localhost'}:{url.port or 3306}/{url.database}"
        port = f":{url.port}" if url.port else ""
        return f"{url.server_kind}:{url.host}{port}/{url.database}#{self.identifier}"

    @property
    def names(self) -> ObjectNames:
        """The names of the objects in the source."""
        return ObjectNames.of(self.source_table, self.identifier)

    def ignored_among(self, names: Collection[str]) -> set[str]:
        """Return the columns of the source that are left out.

        An ignored name refers to the column with exactly this spelling or, if there is none, to columns with
        this name in any case.
        """
        others = {name.lower() for name in self.ignored_columns if name not in names}
        return {name for name in names if name in self.ignored_columns or name.lower() in others}

    @property
    def of_position(self) -> dict[str, str]:
        """The settings, as strings, that the position depends on.

        With other values, the next rows would be wrong.
        """
        return {name: _text(getattr(self, name)) for name in _OF_POSITION}

    def to_properties(self) -> dict[str, str | None]:
        """Return the table's properties; the value None removes one.

        No property is empty: Hive 2.3's compactor fails on a table with an empty property, because it becomes
        null when it is passed to the job.
        """
        return {PREFIX + name: _text(value) or None for name, value in vars(self).items()}

    @classmethod
    def removed(cls) -> dict[str, str | None]:
        """Return the change that removes all properties."""
        return {PREFIX + field.name: None for field in dataclasses.fields(cls)}

    @classmethod
    def of(cls, table: str, properties: Mapping[str, str]) -> UpdateSettings | None:
        """Return the settings in a table's properties, or None if there are none.

        Raises:
            ConfigurationError: If a property is missing, or has a value that is not allowed.
        """
        found = {n.removeprefix(PREFIX): v for n, v in properties.items() if n.startswith(PREFIX)}
        if not found:
            return None
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            if field.name in found:
                values[field.name] = _read(table, field.name, found[field.name])
            elif field.default is dataclasses.MISSING:
                raise _refused(table, field.name, "is missing")
        settings = cls(**values)
        if wrong := settings.contradiction():
            raise _refused(table, "method", f"is {settings.method.value!r}, and this method {wrong}")
        return settings


def as_method(text: str) -> CaptureMethod:
    """Read the name of a method. Raises StoredTextError if it is unknown."""
    return CaptureMethod(one_of([each.value for each in CaptureMethod])(text))


_READERS: dict[str, Callable[[str], Any]] = {
    "identifier": as_identifier,
    "state": one_of(STATES),
    "source_table": as_table_name,
    "key": as_key,
    "method": as_method,
    "version_column": as_optional_name,
    "overlap": as_overlap,
    "compares_keys": as_flag,
    "verifies_version": as_flag,
    "verifies_key": as_flag,
    "create_partitions": as_flag,
    "is_loaded": as_flag,
    "ignored_columns": as_names,
    "null_for": as_names,
    "time_zone": as_time_zone,
    "enabled_at": as_time,
    "fingerprint": as_fingerprint,
}
"""The readers of the properties; the source has its own."""


def _read(table: str, name: str, text: str) -> Any:
    """Return the typed value of a property. Raises ConfigurationError if it is invalid."""
    if name == "source":
        try:
            return SourceUrl.of(text, because=_WHERE_PASSWORDS_ARE)
        except ConfigurationError as error:
            raise _refused(table, name, f"cannot be used: {error}") from None
    try:
        return _READERS[name](text)
    except StoredTextError as error:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        raise _refused(table, name, f"is {shown!r}, expected {error}") from error


def _refused(table: str, name: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"table {table}: its property {PREFIX}{name} {what}. It differs from the value that enable wrote, "
        f"so it has been altered. Nothing was read. Correct it (ALTER TABLE {table} SET TBLPROPERTIES "
        f"('{PREFIX}{name}'='…')); or remove all properties {PREFIX}… (UNSET TBLPROPERTIES) and the objects "
        "in the source, which are named hm_…, and enable again"
    )


def _text(value: object) -> str:
    if isinstance(value, CaptureMethod):
        return value.value
    if isinstance(value, Fingerprint):
        return json.dumps(value.to_dict(), ensure_ascii=False)
    if isinstance(value, tuple | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Decimal):
        return format(value, "f")
    return "" if value is None else str(value)


def watermark_table_of(table: str) -> str:
    """Return the watermark table of ``table``; it has its own so that extractions do not block each other."""
    database, name = split_full_name(table)
    return f"{database}.{WATERMARK_TABLE_NAME}_{name}"


def get_table(metastore: MetastoreClient, table: str) -> TableInfo:
    """Return the table as the metastore describes it. Raises TableNotFoundError if it does not exist."""
    with metastore_errors_as_ours(f"cannot look up table {table}"):
        try:
            return metastore.get_table(*split_full_name(table))
        except NoSuchObjectError as error:
            raise table_not_found(metastore, *split_full_name(table)) from error


def find_settings(metastore: MetastoreClient, table: str) -> UpdateSettings | None:
    """Return the settings of a table, or None if incremental update is not enabled.

    Raises:
        ConfigurationError: If a property was altered.
    """
    return UpdateSettings.of(table, get_table(metastore, table).parameters)


def require_settings(metastore: MetastoreClient, table: str, *states: str) -> UpdateSettings:
    """Return the settings of a table, which must be in one of these states.

    Raises:
        ConfigurationError: If incremental update is not enabled, or is in another state.
    """
    found = find_settings(metastore, table)
    if found is None:
        raise ConfigurationError(f"table {table}: incremental update is not enabled; enable it first")
    if found.state not in states:
        advice = {"enabling": "enable it again", "disabling": "disable it again"}.get(found.state, "")
        raise ConfigurationError(f"table {table}: incremental update is {found.state}: {advice}")
    return found


def write_settings(metastore: MetastoreClient, table: str, settings: UpdateSettings | None) -> None:
    """Store the settings of a table. If None, remove them.

    Raises:
        ConnectionFailedError: If the metastore cannot be reached.
        TransactionError: If the metastore refuses the change.
    """
    changes = UpdateSettings.removed() if settings is None else settings.to_properties()
    with metastore_errors_as_ours(f"cannot change the properties of table {table}"):
        metastore.set_table_parameters(*split_full_name(table), changes)


def enabled_tables(
    metastore: MetastoreClient, databases: Sequence[str]
) -> Iterator[tuple[str, UpdateSettings]]:
    """Yield the tables for which incremental update is enabled, including partly enabled ones."""
    for database in databases:
        with metastore_errors_as_ours(f"cannot list the tables of database {database}"):
            names = metastore.get_all_tables(database)
        for name in names:
            found = find_settings(metastore, f"{database}.{name}")
            if found is not None:
                yield f"{database.lower()}.{name}", found


def list_watermarks_of(metastore: MetastoreClient, table: str) -> list[Watermark]:
    """Return the watermarks of a table without reading their content; none before its first extraction."""
    read = read_watermarks(metastore, watermark_table_of(table))
    return [] if read is None else read.of(target=table)


def find_mark(metastore: MetastoreClient, table: str) -> tuple[Watermark, ProgressMark | None] | None:
    """Return a table's watermark, and its content unless another kind of source defines it."""
    return mark_of(read_watermarks(metastore, watermark_table_of(table)), table)


def mark_of(read: Watermarks | None, table: str) -> tuple[Watermark, ProgressMark | None] | None:
    """Return the watermark and its content, from watermarks already read. See :func:`find_mark`."""
    marks = [] if read is None else read.of(target=table)
    if not marks:
        return None
    latest = max(marks, key=lambda mark: mark.applied_at)
    return latest, ProgressMark.of(latest.text) if '"extraction"' in latest.text else None
