"""Doctor: reports the release of a server, and the tables that this user can write to.

Its only change is a hidden empty file that it creates in each table's directory and removes.
"""

from __future__ import annotations

import datetime
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from metastore_client.capabilities import Capabilities
from metastore_client.client import MetastoreClient
from metastore_client.errors import MetastoreError, NoSuchObjectError
from metastore_client.model import CompactionInfo, ConstraintInfo, ConstraintKind, TableInfo
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
from mutation_api.upkeep.compaction_view import NO_AUTO_COMPACTION, has_no_auto_compaction

SETTINGS = (
    "hive.txn.manager",
    "hive.support.concurrency",
    "hive.txn.timeout",
    "hive.txn.xlock.write",
    "hive.compactor.initiator.on",
    "hive.compactor.worker.threads",
    "hive.compactor.cleaner.on",
    "hive.compactor.crud.query.based",
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


LATE_SECONDS = 3600
"""The time after which a compaction that waits for a worker or for the cleaner is reported."""

_BY_QUERY = "hive.compactor.crud.query.based"


def compaction_notes(
    info: TableInfo, entries: Sequence[CompactionInfo], now: float, settings: Mapping[str, str]
) -> tuple[str, ...]:
    """Return what is remarkable about the compactions of a table: who does them, what waits, what failed.

    Args:
        info: the table.
        entries: the table's entries of the server's queue and its history.
        now: the time in seconds since 1970.
        settings: values of the server's settings by name, as far as it reports them.
    """
    return tuple(_compaction_notes(info, entries, now, settings))


def _compaction_notes(
    info: TableInfo, entries: Sequence[CompactionInfo], now: float, settings: Mapping[str, str]
) -> Iterator[str]:
    if has_no_auto_compaction(info.parameters):
        yield f"{NO_AUTO_COMPACTION} is true, so only requested compactions are done: hive-mutate compact"
    scheme = info.location.partition(":")[0]
    is_split = info.parameters.get("transactional_properties", "default").lower() == "default"
    if is_split and scheme == "hdfs" and settings.get(_BY_QUERY, "").lower() == "true":
        yield (
            f"on HDFS, major compactions of Hive 4.1 and 4.2 lose all rows while {_BY_QUERY} is true "
            "(HIVE-29567): set it to false, or compact with hive-mutate compactor"
        )
    for each in entries:
        since = {
            "initiated": each.enqueue_time,
            "ready for cleaning": each.end_time or each.start_time or each.enqueue_time,
        }.get(each.state)
        if since is not None and now - since / 1000 > LATE_SECONDS:
            waits_for = (
                "a worker: hive-mutate compactor, or hive.compactor.worker.threads"
                if each.state == "initiated"
                else "the cleaner: see open transactions, holds and hive.compactor.cleaner.on"
            )
            yield f"{_of(each)} waits since {_moment(since)} for {waits_for}"
    newest = sorted(entries, key=lambda each: each.id or 0, reverse=True)
    ended = [each for each in newest if each.has_failed or each.is_done]
    failed = list(itertools.takewhile(lambda each: each.has_failed, ended))
    if failed:
        reason = f": {failed[0].error.strip()}" if failed[0].error.strip() else ""
        shown = "compaction" if len(failed) == 1 else f"{len(failed)} compactions"
        yield f"the last {shown} failed{reason}"
    done = next((each for each in ended if each.is_done and each.worker_id), None)
    if done is not None:
        at = "" if done.end_time is None else f" at {_moment(done.end_time)}"
        yield f"last compacted by {done.worker_id}{at}"


def _of(entry: CompactionInfo) -> str:
    return f"a {entry.type.name.lower()} compaction" + (f" of {entry.partition}" if entry.partition else "")


def _moment(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class TableReport:
    """One table: the layout in which it can be written, or the reason why it cannot.

    If both are set, ``reason`` names the partitions that cannot be written. ``trouble`` is the reason why the
    server's compactor cannot compact a writable table, with a fix. ``constraints`` are those that Hive and
    this library enforce on its rows. ``compactions`` are remarks about its compactions.
    """

    table: str
    version: AcidVersion | None
    reason: str | None
    trouble: str | None = None
    constraints: tuple[ConstraintInfo, ...] = ()
    compactions: tuple[str, ...] = ()


@dataclass(frozen=True)
class DoctorReport:
    """A server and its tables.

    ``server``: capabilities and settings with values; ``tables``: by name; ``warnings``: reasons why the
    server's compactor or cleaner cannot work.
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
                "compactions": [*each.compactions],
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
        tables = tuple(_tables(metastore, database, names, dict(server)))
        if not tables and table is not None:
            raise table_not_found(metastore, database, table)
        if not tables and not has_database(metastore, database):
            raise ConfigurationError(
                f"there is no database {database}: check the name; {HOW_TO_FIND_DATABASES}"
            )
        warnings = (
            *_compactor_warnings(metastore.capabilities(), dict(server)),
            *map(_hold_warning, open_holds(metastore.get_open_txns())),
        )
    return DoctorReport(server, tables, warnings)


def _compactor_warnings(capabilities: Capabilities, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield which threads of the compactor this metastore does not have."""
    if settings["hive.compactor.initiator.on"].lower() == "false":
        yield (
            "hive.compactor.initiator.on is false: no compaction is requested automatically, unless another "
            "metastore has it on"
        )
    if settings["hive.compactor.worker.threads"] == "0":
        instead = (
            "a HiveServer2 or hive-mutate compactor does them"
            if capabilities.has_compaction_workers
            else "another metastore does them"
        )
        yield f"hive.compactor.worker.threads is 0: requested compactions wait, unless {instead}"
    if capabilities.has_compaction_workers and settings["hive.compactor.cleaner.on"].lower() == "false":
        yield "hive.compactor.cleaner.on is false: obsolete files stay, unless another metastore has it on"


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


def _tables(
    metastore: MetastoreClient, database: str, names: Sequence[str], settings: Mapping[str, str]
) -> list[TableReport]:
    described = []
    queue = metastore.show_compactions() if names else []
    for name in names:
        entries = [each for each in queue if (each.database, each.table) == (database, name.lower())]
        try:
            described.append(_described(metastore, database, name, entries, settings))
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
    compactions: tuple[str, ...]


def _described(
    metastore: MetastoreClient,
    database: str,
    name: str,
    entries: Sequence[CompactionInfo],
    settings: Mapping[str, str],
) -> _Candidate | TableReport:
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
        notes = compaction_notes(info, entries, time.time(), settings)
        return _Candidate(table, probed_partitions(metastore, table), trouble, enforced, notes)
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
    return TableReport(
        table.full_name, table.version, refused, found.trouble, found.constraints, found.compactions
    )


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"
