"""Doctor: reports the release of a server, and the tables that this user can write to.

Its only change is a hidden empty file that it creates in each table's directory and removes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metastore_client.capabilities import Capabilities
from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError, NoSuchObjectError
from metastore_client.model import ConstraintInfo, ConstraintKind
from mutation_api.errors import ConfigurationError, TableNotMutableError
from mutation_api.format.layout import AcidVersion
from mutation_api.storage.tree import side_by_side
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.catalog import (
    HOW_TO_FIND_DATABASES,
    database_and_table,
    has_database,
    probed_partitions,
    table_not_found,
)
from mutation_api.transaction.descriptors import (
    check_location,
    check_partition_directories,
    describe,
    with_constraints,
)
from mutation_api.transaction.hold import open_holds
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.preconditions import check_mutable

__all__ = ["DoctorReport", "TableReport", "compactor_trouble", "constraint_text", "doctor"]

SETTINGS = (
    "hive.txn.manager",
    "hive.support.concurrency",
    "hive.txn.timeout",
    "hive.txn.xlock.write",
    "hive.compactor.initiator.on",
    "hive.compactor.worker.threads",
    "hive.metastore.dml.events",
)
"""The settings to report: locking, the timeout of clients, compaction, notification events."""

NOT_TOLD = "(not reported)"
THREADS = 16
"""Number of threads that probe the tables' directories. Each of them mostly waits for the storage."""


def compactor_trouble(parameters: Mapping[str, str], capabilities: Capabilities) -> str | None:
    """Return the reason why the compactor fails on a table with these properties, and a fix; or None.

    The compactor of Hive 2.3 passes the table's properties to its job as strings. An empty value comes back
    as null, and every compaction of the table fails (``java.io.IOException: Major``). Seen on 2.3.10.
    """
    empty = sorted(name for name, value in parameters.items() if not value)
    if capabilities.has_write_ids or not empty:
        return None
    names = ", ".join(f"'{name}'" for name in empty)
    return (
        f"the compactor of {capabilities.line} fails on tables with an empty property, and {names} is empty: "
        f"remove it with ALTER TABLE … UNSET TBLPROPERTIES ({names})"
    )


@dataclass(frozen=True)
class TableReport:
    """One table: the layout in which it can be written, or the reason why it cannot.

    If both are set, ``reason`` names the partitions that cannot be written. ``trouble`` is the reason why the
    server's compactor cannot compact a writable table, with a fix. ``constraints`` are those that Hive and
    this library enforce on its rows.
    """

    table: str
    version: AcidVersion | None
    reason: str | None
    trouble: str | None = None
    constraints: tuple[ConstraintInfo, ...] = ()


@dataclass(frozen=True)
class DoctorReport:
    """A server and its tables.

    ``server``: capabilities and settings with values; ``tables``: by name; ``warnings``: reasons why the
    server's cleaner cannot work.
    """

    server: tuple[tuple[str, str], ...]
    tables: tuple[TableReport, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serialisable dict."""
        tables = [
            {
                "table": each.table,
                "layout": None if each.version is None else each.version.value,
                "reason": each.reason,
                "trouble": each.trouble,
                "constraints": [constraint_text(rule) for rule in each.constraints],
            }
            for each in self.tables
        ]
        return {"server": dict(self.server), "tables": tables, "warnings": [*self.warnings]}


def constraint_text(constraint: ConstraintInfo) -> str:
    """Format a constraint as CREATE TABLE does.

    Examples: ``s NOT NULL``, ``v CHECK (v > 0)``, ``d DEFAULT 'x'``, ``CHECK (v > w)``.
    """
    shown = f"({constraint.expression})" if constraint.kind is ConstraintKind.CHECK else constraint.expression
    return " ".join(filter(None, (constraint.column, constraint.kind.value, shown)))


def doctor(metastore: MetastoreClient, name: str) -> DoctorReport:
    """Examine a server, and one table or every table of one of its databases.

    Args:
        metastore: the server.
        name: a database, or ``database.table``.

    Raises:
        ConnectionFailedError, TransactionError: If the server could not be queried. A single table that the
            server does not describe is reported with that reason.
        ConfigurationError: If ``name`` is neither, or the database does not exist.
        TableNotFoundError: If the table does not exist.
    """
    database, table = database_and_table(name)
    with metastore_errors_as_ours(f"could not examine database {database}"):
        server = tuple(_server(metastore))
        names = metastore.get_all_tables(database) if table is None else [table]
        tables = tuple(_tables(metastore, database, names))
        if not tables and table is not None:
            raise table_not_found(metastore, database, table)
        if not tables and not has_database(metastore, database):
            raise ConfigurationError(
                f"there is no database {database}: check the name; {HOW_TO_FIND_DATABASES}"
            )
        warnings = tuple(map(_hold_warning, open_holds(metastore.get_open_txns())))
    return DoctorReport(server, tables, warnings)


def _hold_warning(hold: tuple[str, str, int | None]) -> str:
    host, tables, began = hold
    since = "" if began is None else datetime.datetime.fromtimestamp(began / 1000, datetime.UTC).isoformat()
    return (
        f"a change feed on {host} keeps Hive's cleaner from removing files of "
        f"{tables}{since and f' since {since}'}: obsolete files take up space until the feed has read "
        "further or its --hold has ended"
    )


def _server(metastore: MetastoreClient) -> Iterator[tuple[str, str]]:
    capabilities = metastore.capabilities()
    yield "release", capabilities.line
    yield "calls itself", capabilities.version
    yield "write ids", _yes_or_no(capabilities.has_write_ids)
    yield "exclusive write lock", _yes_or_no(capabilities.has_exclusive_write_lock)
    yield "write notifications", _yes_or_no(capabilities.has_write_notifications)
    for name in SETTINGS:
        yield name, metastore.get_config_value(name, NOT_TOLD).strip() or NOT_TOLD


def _tables(metastore: MetastoreClient, database: str, names: Sequence[str]) -> list[TableReport]:
    described = []
    for name in names:
        try:
            described.append(_described(metastore, database, name))
        except NoSuchObjectError:
            continue  # dropped since it was listed
    return side_by_side(_looked_at, described, THREADS)


@dataclass(frozen=True)
class _Candidate:
    """A table that is writable according to the metastore, and the partitions to probe."""

    table: AcidTable
    partitions: Sequence[str]
    trouble: str | None
    constraints: tuple[ConstraintInfo, ...]


def _described(metastore: MetastoreClient, database: str, name: str) -> _Candidate | TableReport:
    table_name = f"{database}.{name}"
    try:
        info = metastore.get_table(database, name)
        capabilities = metastore.capabilities()
        properties = metastore.get_database_parameters(database)
        version = check_mutable(info, capabilities, TableRole.SINK, properties)
        table = describe(info, version, TableRole.SINK, create_partitions=True, time_zone=None)
        constraints = metastore.get_constraints(database, name)
        table = with_constraints(table, constraints)
        trouble = compactor_trouble(info.parameters, capabilities)
        enforced = tuple(each for each in constraints if each.is_enabled)
        return _Candidate(table, probed_partitions(metastore, table), trouble, enforced)
    except TableNotMutableError as error:
        return TableReport(table_name, None, str(error))
    except NoSuchObjectError:
        raise
    except MetastoreError as error:
        return TableReport(table_name, None, f"the metastore could not describe it: {error}")


def _looked_at(found: _Candidate | TableReport) -> TableReport:
    if isinstance(found, TableReport):
        return found
    table = found.table
    try:
        check_location(table)
        refused = check_partition_directories(table, found.partitions)
    except TableNotMutableError as error:
        return TableReport(table.full_name, None, str(error))
    return TableReport(table.full_name, table.version, refused, found.trouble, found.constraints)


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
