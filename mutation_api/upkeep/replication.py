"""Checks whether writes to a database reach its replicas through Hive's own REPL DUMP and REPL LOAD.

A metastore reports its settings, and the properties of the database and its tables. It does not report
HiveServer2's own settings, which may be given with each statement; they are in docs/replication.md. Nothing
is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from metastore_client.capabilities import Capabilities
from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError, NoSuchObjectError
from metastore_client.model import TableInfo
from metastore_client.valid_ids import RangeValidity, ValidTxnList, ValidWriteIdList
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.table.acid_table import TableRole
from mutation_api.transaction import preconditions
from mutation_api.transaction.catalog import database_and_table, table_not_found
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.preconditions import check_mutable

LISTENER = "DbNotificationListener"
LISTENERS = "hive.metastore.transactional.event.listeners"
DML_EVENTS = "hive.metastore.dml.events"
CHANGE_MANAGER = "hive.repl.cm.enabled"
INCOMPATIBLE = "repl.incompatible"
NOT_TOLD = "(not reported)"
INFORMATION = {
    "hive.repl.cmrootdir": "where removed files are kept for a later dump",
    "hive.repl.cm.retain": "how long they are kept; it must exceed the longest time between two dumps",
    "hive.metastore.event.db.listener.timetolive": "how long events are kept",
    "hive.repl.event.db.listener.timetolive": "how long events are kept while a database of the server is "
    "replicated",
    "hive.compactor.delayed.cleanup.enabled": "true keeps compacted files for a while; "
    "commits of this library record no checksums, without which a removed file cannot be found again",
    "hive.compactor.cleaner.retention.time.seconds": "how long they are kept; it must exceed the longest "
    "time from a commit to its load",
}
"""Settings that have no wrong value, and their meaning."""


class ReplicationRole(Enum):
    """The role of a database in a replication, by its properties."""

    SOURCE = "source"
    TARGET = "target"
    NONE = "not replicated"
    FAILING_OVER = "source that is failing over"
    BECOMING_TARGET = "source that is becoming a target"
    TAKEN_OVER = "target that has taken over"


@dataclass(frozen=True)
class ReplicationRule:
    """One condition on the server or the database.

    ``is_met`` is None if it is only shown for information; ``what_to_do`` explains it, or how to meet it.
    """

    name: str
    found: str
    is_met: bool | None
    what_to_do: str


@dataclass(frozen=True)
class ReplicatedTable:
    """A table of the database.

    ``reason`` states why this library cannot write it; if None, its writes to the table are replicated.
    ``warning`` is about rows that a first load hides at the target, or may have hidden.
    """

    table: str
    reason: str | None
    warning: str | None = None


@dataclass(frozen=True)
class ReplicationReport:
    """The result.

    ``tables`` are sorted by name; ``is_replicated`` is True if nothing is missing for any table.
    """

    database: str
    role: ReplicationRole
    rules: tuple[ReplicationRule, ...]
    tables: tuple[ReplicatedTable, ...]

    @property
    def is_replicated(self) -> bool:
        """True if all changes that this library writes to the tables will be dumped."""
        return all(rule.is_met is not False for rule in self.rules) and not any(
            table.reason for table in self.tables
        )

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serialisable dict."""
        return {
            "database": self.database,
            "role": self.role.name.lower(),
            "is_replicated": self.is_replicated,
            "rules": [
                {
                    "name": rule.name,
                    "found": rule.found,
                    "is_met": rule.is_met,
                    "what_to_do": None if rule.is_met else rule.what_to_do,
                }
                for rule in self.rules
            ],
            "tables": [
                {"table": each.table, "reason": each.reason, "warning": each.warning} for each in self.tables
            ],
        }


def replication_of(metastore: MetastoreClient, name: str) -> ReplicationReport:
    """Examine the server, a database, and one of its tables or all of them.

    Args:
        metastore: the server.
        name: a database, or ``database.table``.

    Raises:
        ConfigurationError: If ``name`` is neither, or the database does not exist.
        TableNotFoundError: If the table does not exist.
        ConnectionFailedError, TransactionError: If the server could not be queried.
    """
    database, table = database_and_table(name)
    with metastore_errors_as_ours(f"could not examine database {database}"):
        try:
            properties = metastore.get_database_parameters(database)
        except NoSuchObjectError as error:
            if table is not None:
                raise table_not_found(metastore, database, table) from error
            raise ConfigurationError(f"there is no database {database}") from error
        rules = (*_of_server(metastore), *_of_database(properties))
        names = metastore.get_all_tables(database) if table is None else [table]
        tables = tuple(
            found for each in names if (found := _of_table(metastore, database, each, properties)) is not None
        )
        role = _role_of(properties)
        tables = _warned(metastore, role, tables)
        if table is not None and not tables:
            raise table_not_found(metastore, database, table)
    return ReplicationReport(database, role, rules, tables)


def _role_of(properties: Mapping[str, str]) -> ReplicationRole:
    """Return the role of a database with these properties."""
    if (properties.get(preconditions.ENDPOINT) or "").upper() == "SOURCE":
        return ReplicationRole.FAILING_OVER
    if preconditions.is_target(properties):
        return (
            ReplicationRole.TAKEN_OVER if preconditions.has_taken_over(properties) else ReplicationRole.TARGET
        )
    if preconditions.is_becoming_target(properties):
        return ReplicationRole.BECOMING_TARGET
    return ReplicationRole.SOURCE if properties.get(preconditions.SOURCE_FOR) else ReplicationRole.NONE


def _of_server(metastore: MetastoreClient) -> Iterator[ReplicationRule]:
    capabilities = metastore.capabilities()
    yield _release(capabilities)

    def told(name: str) -> str:
        return metastore.get_config_value(name, NOT_TOLD).strip() or NOT_TOLD

    listeners = told(LISTENERS)
    yield ReplicationRule(
        LISTENERS,
        listeners,
        LISTENER in listeners,
        f"org.apache.hive.hcatalog.listener.{LISTENER} writes the log of events. In "
        "hive.metastore.event.listeners it would write after the change, and lose some events",
    )
    yield _must_be_true(DML_EVENTS, told(DML_EVENTS), "only then does a commit record its files in the log")
    yield _must_be_true(
        CHANGE_MANAGER,
        told(CHANGE_MANAGER),
        "without it, cleaning or DROP between commit and load removes files that the load needs",
    )
    for name, meaning in INFORMATION.items():
        yield ReplicationRule(name, told(name), None, meaning)


def _release(capabilities: Capabilities) -> ReplicationRule:
    return ReplicationRule(
        "release",
        f"{capabilities.line} (calls itself {capabilities.version})",
        capabilities.has_write_notifications,
        "Hive 4 is required: earlier releases have no call by which a commit records its files",
    )


def _must_be_true(name: str, found: str, why: str) -> ReplicationRule:
    return ReplicationRule(name, found, found.lower() == "true", f"must be true: {why}")


def _of_database(properties: Mapping[str, str]) -> Iterator[ReplicationRule]:
    of_database = properties.get(preconditions.SOURCE_FOR) or ""
    yield ReplicationRule(
        preconditions.SOURCE_FOR,
        of_database or "(absent)",
        bool(of_database),
        "a property of the database: ALTER DATABASE … SET DBPROPERTIES "
        f"('{preconditions.SOURCE_FOR}'='name of the policy'). The first REPL DUMP of Hive 4 sets it too, "
        "but until then removed files are not kept",
    )
    refusal = preconditions.why_not_writable(properties, {})
    yield ReplicationRule("writable", "yes" if refusal is None else "no", refusal is None, refusal or "")
    if properties.get(INCOMPATIBLE):
        yield ReplicationRule(
            INCOMPATIBLE,
            properties[INCOMPATIBLE],
            (properties[INCOMPATIBLE]).lower() != "true",
            "the replica has encountered an event that it cannot load; it must be created again",
        )


def _of_table(
    metastore: MetastoreClient, database: str, name: str, properties: Mapping[str, str]
) -> ReplicatedTable | None:
    """Return the table's entry; None if it was dropped after it was listed."""
    try:
        info = metastore.get_table(database, name)
    except NoSuchObjectError:
        return None
    except MetastoreError as error:
        return ReplicatedTable(f"{database}.{name}", f"the metastore could not describe it: {error}")
    return ReplicatedTable(info.full_name, _why_not_written(info, metastore.capabilities(), properties))


def _warned(
    metastore: MetastoreClient, role: ReplicationRole, tables: tuple[ReplicatedTable, ...]
) -> tuple[ReplicatedTable, ...]:
    """Return the tables with their warnings."""
    names = [each.table for each in tables if each.reason is None or role is ReplicationRole.TARGET]
    if not names or not metastore.capabilities().has_write_notifications:
        return tables
    seen = ValidTxnList.from_open_txns(metastore.get_open_txns(), None, has_write_ids=True)
    ids = metastore.get_valid_write_ids(names, seen)
    is_target = role is ReplicationRole.TARGET
    return tuple(
        replace(each, warning=hidden_rows(ids[each.table], is_target=is_target))
        if each.table in ids
        else each
        for each in tables
    )


def hidden_rows(ids: ValidWriteIdList, *, is_target: bool) -> str | None:
    """Return a warning about rows that a first load of a table hides because a write id is aborted. Pure.

    REPL LOAD reports to the target's metastore only the aborted write ids, and the next write id. If none of
    the known write ids is valid, a reader sees the write ids up to the first of them. So committed ones above
    it are hidden.

    Args:
        ids: the ids that a reader of the table sees now.
        is_target: True if the table was loaded; by default it is a source that may be dumped.

    Returns:
        The warning. If None, nothing is hidden.

    Source: class ReplTableWriteIdStateFunction of Hive 4.1.0, and the observed rows at its target.
    """
    if not ids.aborted:
        return None
    first = min(ids.aborted)
    if is_target:
        if ids.high_watermark not in ids.aborted:
            return None
        return (
            f"its last known write id {ids.high_watermark} is aborted: if the first load left this state, "
            "everything that was committed after it is hidden until another commit on the table is loaded. "
            "Compare count(*) with the source"
        )
    if ids.range_validity(first + 1, ids.high_watermark) is RangeValidity.NONE:
        return None
    return (
        f"its write id {first} is aborted, and later ones are committed: after the first dump and load, "
        f"Hive hides at the target everything that was committed after {first}until another commit on the "
        "table is loaded. So make one more commit then; a statement that changes no rows is enough"
    )


def _why_not_written(
    info: TableInfo, capabilities: Capabilities, properties: Mapping[str, str]
) -> str | None:
    try:
        check_mutable(info, capabilities, TableRole.SINK, properties)
    except TableNotMutableError as error:
        return str(error)
    return None
