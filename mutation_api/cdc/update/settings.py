"""Settings of an incremental update, and the tables that have them.

UpdateSettings: what ``enable`` decided about a table, as properties of the table. Pure.

The properties are the only place where this is kept, so any machine can go on. Whoever may ALTER the table
can alter them, so they are read in one place, :meth:`UpdateSettings.of`, where each becomes a typed value or
is refused. What they may lead to is decided elsewhere: :mod:`mutation_api.cdc.update.sources`.

Settings of tables in the metastore: read, written, removed; names of what belongs to a table there.
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
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours

__all__ = [
    "PREFIX",
    "STATES",
    "ObjectNames",
    "UpdateSettings",
    "as_method",
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


PREFIX = "hive.mutation.update."
STATES = ("enabling", "enabled", "disabling")
_NAME_CHARACTERS = 30
_OTHERS = re.compile(r"[^A-Za-z0-9_]")
_SHOWN_CHARACTERS = 200
_OF_POSITION = (
    *("key", "method", "version_column", "overlap", "time_zone"),
    *("compares_keys", "verifies_version", "verifies_key"),
)
_WHERE_PASSWORDS_ARE = (
    "since others can read it: remove it from the property (ALTER TABLE … SET TBLPROPERTIES), change the "
    "password in the source, and give it in the environment variable HIVE_MUTATE_SOURCE_PASSWORD"
)


@dataclass(frozen=True)
class ObjectNames:
    """Names of the objects in the source, made of the table's name and the identifier of the update."""

    log: str
    capture: str
    """Trigger function, and beginning of the names of triggers."""

    @classmethod
    def of(cls, source_table: str, identifier: str) -> ObjectNames:
        """Names that every database takes, at most 51 characters; ``identifier``: 8 hex digits."""
        table = _OTHERS.sub("_", source_table.rpartition(".")[2])[:_NAME_CHARACTERS]
        return cls(f"hm_{table}_{identifier}_log", f"hm_{table}_{identifier}")


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """The settings of one table.

    Attributes:
        identifier: 8 hex digits, of which the names of our objects in the source are made.
        state: one of STATES.
        source: the source's address.
        source_table: the source's name of the table, with its schema if it has one.
        key: columns that identify a row.
        method: how changes are captured.
        version_column: the growing column, for the methods that need one.
        overlap: how far below its greatest value the column is read again: a number, for a column of dates
            or times one of seconds; None: not at all.
        compares_keys: whether deletes are found by a comparison of all keys (row-version).
        verifies_version: row-version methods: whether each extraction looks for versions below the bound.
        verifies_key: insert-only methods: whether the key must be the source's primary key, and an insert of
            a key that the target has with other values is refused.
        create_partitions: whether rows may create partitions of the target.
        is_loaded: whether the target was loaded by other means, after ``enable``; no first copy then.
        ignored_columns: columns of the source that the target lacks.
        null_for: columns whose values become NULL if they are not a date or a finite number of Hive.
        time_zone: the zone whose wall clock an instant becomes.
        enabled_at: when, ISO 8601 in UTC.
        fingerprint: that of the source when the table was enabled; None unless ``is_loaded``.
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
        """Return why a method and its options do not go together; '' if they do."""
        method = self.method
        if method.has_version and not self.version_column:
            return "needs the name of a growing column (version_column)"
        if not method.has_version and self.version_column:
            return "reads no version column"
        if self.compares_keys and method is not CaptureMethod.ROW_VERSION:
            return "has no use for a comparison of keys, only row-version has"
        if not self.verifies_version and not method.has_version:
            return "has no version column that could be verified, only the row-version methods have"
        if not self.verifies_key and not method.is_insert_only:
            return "always needs its key; only the insert-only methods can go without its verification"
        if method is CaptureMethod.BINLOG and self.source.server_kind != "mysql":
            return "is MySQL's and MariaDB's alone"
        return ""

    @property
    def source_id(self) -> str:
        """Name of the source in watermarks: its address without user and options, and the identifier.

        The binary log is the server's, so it has no identifier of ours.
        """
        url = self.source
        if self.method is CaptureMethod.BINLOG:
            return f"mysql:{url.host or 'localhost'}:{url.port or 3306}/{url.database}"
        port = f":{url.port}" if url.port else ""
        return f"{url.server_kind}:{url.host}{port}/{url.database}#{self.identifier}"

    @property
    def names(self) -> ObjectNames:
        """Names of the objects in the source."""
        return ObjectNames.of(self.source_table, self.identifier)

    def ignored_among(self, names: Collection[str]) -> set[str]:
        """Return which columns of the source are left out.

        An ignored name means the column that is spelled so, or, if there is none, the name in any case.
        """
        others = {name.lower() for name in self.ignored_columns if name not in names}
        return {name for name in names if name in self.ignored_columns or name.lower() in others}

    @property
    def of_position(self) -> dict[str, str]:
        """The texts of the settings on which a position depends; with others the next rows would be wrong."""
        return {name: _text(getattr(self, name)) for name in _OF_POSITION}

    def to_properties(self) -> dict[str, str | None]:
        """The table's properties; None for those that are removed.

        No property is empty: Hive 2.3's compactor fails on a table with an empty one, which becomes null on
        its way to the job.
        """
        return {PREFIX + name: _text(value) or None for name, value in vars(self).items()}

    @classmethod
    def removed(cls) -> dict[str, str | None]:
        """The change of properties that removes all of them."""
        return {PREFIX + field.name: None for field in dataclasses.fields(cls)}

    @classmethod
    def of(cls, table: str, properties: Mapping[str, str]) -> UpdateSettings | None:
        """The settings that a table's properties hold; None if there are none.

        Raises ConfigurationError: one of the properties is missing, or has a value that is not allowed.
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
    """Read the name of a method. Raises StoredTextError."""
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
"""What reads the property of each setting; the source has its own."""


def _read(table: str, name: str, text: str) -> Any:
    """The value of a property. Raises ConfigurationError."""
    if name == "source":
        try:
            return SourceUrl.of(text, because=_WHERE_PASSWORDS_ARE)
        except ConfigurationError as error:
            raise _refused(table, name, f"cannot be used: {error}") from None
    try:
        return _READERS[name](text)
    except StoredTextError as error:
        shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        raise _refused(table, name, f"is {shown!r}; allowed is {error}") from error


def _refused(table: str, name: str, what: str) -> ConfigurationError:
    return ConfigurationError(
        f"table {table}: its property {PREFIX}{name} {what}. It is not what enable wrote: somebody altered "
        f"it. Nothing was read. Put it right (ALTER TABLE {table} SET TBLPROPERTIES ('{PREFIX}{name}'='…')); "
        f"or remove all properties {PREFIX}… (UNSET TBLPROPERTIES) and the objects in the source, which are "
        "named hm_…, and enable anew"
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
