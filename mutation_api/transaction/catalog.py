"""Catalog: the tables of a metastore that a transaction can use; unusable ones are refused.

After a table was not found, the database is looked up, to report which of the two is missing.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from metastore_client.client import MetastoreClient
from metastore_client.errors import NoSuchObjectError
from metastore_client.model import PartitionInfo, TableInfo
from metastore_client.partition_name import DEFAULT_PARTITION_NAME, DEFAULT_PARTITION_SETTING
from mutation_api.errors import ConfigurationError, TableNotFoundError, listed
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.transaction.clock import FRESH_SECONDS, Clock, SystemClock
from mutation_api.transaction.descriptors import (
    POSITIONAL_EVOLUTION,
    check_location,
    check_partition_directories,
    describe,
    with_constraints,
    with_partition_names,
    with_partitions,
)
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.lock import LockedTable, WriteLock
from mutation_api.transaction.preconditions import check_mutable, marks_of_replica

HOW_TO_FIND_DATABASES = "SHOW DATABASES in Hive lists them, CREATE DATABASE creates one"
HOW_TO_CREATE_TABLES = "hive.create_table(…) or hive-mutate create-table"
SIMILAR_NAMES = 5
"""The number of similar names that a message about a missing table lists."""


def database_and_table(name: str) -> tuple[str, str | None]:
    """Split ``database`` or ``database.table``, in lower case. The table is None if the name has none.

    Raises:
        ConfigurationError: If it is neither.
    """
    if isinstance(name, str) and "." not in name:
        return split_full_name(f"{name}.any")[0], None
    return split_full_name(name)


def has_database(metastore: MetastoreClient, database: str) -> bool:
    """Return True if the server has a database of this name. Raises MetastoreError if it fails."""
    try:
        metastore.get_database_parameters(database)
    except NoSuchObjectError:
        return False
    return True


def table_names(metastore: MetastoreClient, database: str, like: str) -> list[str]:
    """Return the names ``database.table`` of a database's tables and views, sorted.

    Args:
        metastore: the metastore.
        database: the database, in any case.
        like: a pattern for names of tables with ``*`` and ``?``, in any case.

    Raises:
        ConfigurationError: If the database does not exist.
        ConnectionFailedError, TransactionError: If the metastore failed.
    """
    if not isinstance(database, str) or not isinstance(like, str) or "." in database:
        raise ConfigurationError(f"not the name of a database and a pattern: {database!r} and {like!r}")
    database = split_full_name(f"{database}.any")[0]
    with metastore_errors_as_ours(f"could not list the tables of database {database}"):
        names = metastore.get_all_tables(database)
        if not names and not has_database(metastore, database):
            raise ConfigurationError(
                f"there is no database {database} at {metastore.address}: check the name; "
                f"{HOW_TO_FIND_DATABASES}"
            )
    return [f"{database}.{name}" for name in names if fnmatch.fnmatchcase(name, like.lower())]


def primary_key(metastore: MetastoreClient, name: str) -> tuple[str, ...]:
    """Return the columns of the primary key that a table (``database.table``) declares.

    Raises:
        ConfigurationError: If it declares none.
        ConnectionFailedError, TransactionError: If the metastore failed.
    """
    with metastore_errors_as_ours(f"could not look up the primary key of table {name}"):
        found = metastore.get_primary_key(*split_full_name(name))
    if not found:
        raise ConfigurationError(
            f"table {name} declares no primary key: name the key columns with on, or declare one in Hive: "
            f"ALTER TABLE {name} ADD CONSTRAINT … PRIMARY KEY (…) DISABLE NOVALIDATE"
        )
    return found


def table_not_found(metastore: MetastoreClient, database: str, name: str) -> TableNotFoundError:
    """Return the error for a table that the metastore does not have, to be raised ``from`` its answer.

    Raises MetastoreError if the server cannot be queried for its databases and tables.
    """
    about = f"table {database}.{name} does not exist at {metastore.address}"
    if not has_database(metastore, database):
        return TableNotFoundError(
            f"{about}: its database {database} does not exist. Check the name and the metastore's address; "
            f"{HOW_TO_FIND_DATABASES}"
        )
    similar = difflib.get_close_matches(name, metastore.get_all_tables(database), n=SIMILAR_NAMES)
    if similar:
        about += f"; similar names: {listed([f'{database}.{each}' for each in similar])}"
    return TableNotFoundError(f"{about}. Check the name, or create the table with {HOW_TO_CREATE_TABLES}")


MAX_LOCKED_SINK_PARTITIONS = 1000
"""The maximum number of partitions of a sink that are locked individually. If there are more, only the table
is locked. Each lock costs the server some milliseconds, for this client and for every other client that
requests a lock on the table at that time.
"""

MAX_PROBED_PARTITIONS = 1000
"""The maximum number of partitions of a sink whose directories are probed in advance."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableSpec:
    """A table with the user's options; its names are in lower case."""

    database: str
    name: str
    role: TableRole
    create_partitions: bool = False
    insert_only: bool = False

    @property
    def full_name(self) -> str:
        """The name ``database.table``."""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class OpenTable:
    """A table that passed the preconditions, with the part of its partition information that has been read.

    Their names are read first, which is cheap. ``partitions`` is None until the rest has been read.
    """

    spec: TableSpec
    description: TableInfo
    table: AcidTable
    partition_names: tuple[str, ...] = ()
    partitions: tuple[PartitionInfo, ...] | None = None

    @property
    def insert_only(self) -> bool:
        """True if rows are only inserted: by the user's choice, or because the table has no ROW__IDs."""
        return self.spec.insert_only or not self.table.version.has_row_ids


class Catalog:
    """Tables as one client sees them.

    Args:
        metastore: describes the tables.
        time_zone: the time zone of Hive's own processes; see AcidTable.
        write_lock: how sinks are locked.
        user: the user name that ``current_user()`` returns.
        clock: measures how old descriptions of tables are.
    """

    def __init__(
        self,
        metastore: MetastoreClient,
        time_zone: str | None = None,
        write_lock: WriteLock = WriteLock.EXCLUSIVE,
        user: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._metastore = metastore
        self._time_zone = time_zone
        self._write_lock = write_lock
        self._user = user
        self._clock = clock or SystemClock()
        self._known: dict[str, tuple[float, TableInfo]] = {}

    @property
    def is_optimistic(self) -> bool:
        """True if writers do not wait for each other and the first to commit wins."""
        return self._write_lock is WriteLock.OPTIMISTIC

    @property
    def excludes_writers(self) -> bool:
        """True if two transactions that may change a table wait for each other."""
        return not (self.is_optimistic and self._metastore.capabilities().has_exclusive_write_lock)

    def read(self, spec: TableSpec, *, under_lock: bool = False, may_know: bool = False) -> OpenTable:
        """Read a table without its partitions.

        Args:
            spec: the table and its use.
            under_lock: True to request a sink's database and constraints as well. Otherwise the database is
                requested only if the table has a mark of a replication, since the call takes about 2 % of a
                small transaction.
            may_know: True if a description that the server returned just now is enough; see FRESH_SECONDS.

        Raises:
            TableNotFoundError: If it or its database does not exist.
            TableNotMutableError: If it violates a rule.
            MetastoreError: If the server could not be queried.
        """
        info = self._described(spec, may_know=may_know)
        is_sink, metastore = spec.role is TableRole.SINK, self._metastore
        database, constraints = None, ()
        if is_sink and under_lock:
            database, constraints = metastore.together(
                lambda: metastore.get_database_parameters(spec.database),
                lambda: metastore.get_constraints(spec.database, spec.name),
            )
        elif is_sink and marks_of_replica(info.parameters):
            database = metastore.get_database_parameters(spec.database)
        version = check_mutable(info, self._metastore.capabilities(), spec.role, database)
        table = describe(
            info,
            version,
            spec.role,
            create_partitions=spec.create_partitions,
            time_zone=self._time_zone,
            null_partition_text=self._null_partition_text if info.partition_keys else DEFAULT_PARTITION_NAME,
            positional_evolution=self._positional_evolution,
            prints_shortest_numbers=self._metastore.capabilities().prints_shortest_numbers,
        )
        if is_sink and under_lock:
            table = with_constraints(table, constraints, self._user)
        return OpenTable(spec, info, table)

    def forget(self) -> None:
        """Forget all descriptions, so that they are requested again."""
        self._known.clear()

    def _described(self, spec: TableSpec, *, may_know: bool) -> TableInfo:
        now = self._clock.now()
        asked_at, info = self._known.get(spec.full_name, (-math.inf, None))
        if info is None or not may_know or now - asked_at >= FRESH_SECONDS:
            try:
                info = self._metastore.get_table(spec.database, spec.name)
            except NoSuchObjectError as error:
                raise table_not_found(self._metastore, spec.database, spec.name) from error
            self._known[spec.full_name] = now, info
        return info

    @functools.cached_property
    def _null_partition_text(self) -> str:
        return self._metastore.get_config_value(DEFAULT_PARTITION_SETTING, DEFAULT_PARTITION_NAME).strip()

    @functools.cached_property
    def _positional_evolution(self) -> str:
        return self._metastore.get_config_value(POSITIONAL_EVOLUTION, "")

    def to_lock(self, spec: TableSpec) -> LockedTable:
        """Return the locks that a transaction needs on a table. For the errors see :meth:`read`."""
        opened = self.read(spec, may_know=True)
        is_partitioned = bool(opened.table.partition_keys)
        capabilities = self._metastore.capabilities()
        return LockedTable(
            database=opened.table.database,
            name=opened.table.name,
            is_partitioned=is_partitioned,
            is_sink=spec.role is TableRole.SINK,
            insert_only=spec.insert_only,
            partition_names=self._partitions_to_lock(spec) if is_partitioned else (),
            write_lock=self._write_lock.lock_type(capabilities),
        )

    def _partitions_to_lock(self, spec: TableSpec) -> tuple[str, ...]:
        if self._metastore.capabilities().cleaner_waits_for_transactions:
            return ()
        names = self._metastore.get_partition_names(spec.database, spec.name)
        if spec.role is TableRole.SINK and len(names) > MAX_LOCKED_SINK_PARTITIONS:
            _log.warning(
                "sink %s has %d partitions, more than the %d that are locked individually, so Hive's cleaner "
                "may remove files of a partition that this transaction is reading; read the table through "
                "client.open_snapshot(), which locks all partitions",
                spec.full_name,
                len(names),
                MAX_LOCKED_SINK_PARTITIONS,
            )
            return ()
        return tuple(names)

    def read_and_probe(self, spec: TableSpec) -> OpenTable:
        """Read a table as :meth:`read` does, and check that a sink's directory can be written."""
        opened = self.read(spec)
        if spec.role is TableRole.SINK:
            check_location(opened.table)
        return opened

    def probe_partitions(self, opened: OpenTable) -> str | None:
        """Check a sink's partition directories; see :func:`check_partition_directories`."""
        if opened.spec.role is not TableRole.SINK:
            return None
        names = probed_partitions(self._metastore, opened.table)
        return check_partition_directories(opened.table, names)

    def read_with_partition_names(self, spec: TableSpec, *, may_know: bool = False) -> OpenTable:
        """Read a table as :meth:`read` does under the lock, with the names of all partitions.

        Raises:
            TableNotMutableError: If two names mean the same partition; see also :meth:`read`.
        """
        opened = self.read(spec, under_lock=True, may_know=may_know)
        if not opened.table.partition_keys:
            return replace(opened, partitions=())
        names = self._metastore.get_partition_names(spec.database, spec.name)
        return replace(opened, table=with_partition_names(opened.table, names), partition_names=tuple(names))

    def read_with_these_partitions(self, spec: TableSpec, names: Sequence[str]) -> OpenTable:
        """Read a table under the lock as if it had only some partitions, without those that do not exist."""
        opened = self.read(spec, under_lock=True)
        if not opened.table.partition_keys:
            return replace(opened, partitions=())
        table = with_partition_names(opened.table, names)
        named = replace(opened, table=table, partition_names=tuple(names))
        return self.with_partitions(named)

    def with_partitions(self, opened: OpenTable) -> OpenTable:
        """Return the table with its partitions read in full; about 0.3 s per 1,000 partitions."""
        if opened.partitions is not None:
            return opened
        spec, names = opened.spec, opened.partition_names
        described = opened.description
        infos = self._metastore.get_partitions_by_names(spec.database, spec.name, names, described=described)
        return replace(opened, table=with_partitions(opened.table, infos), partitions=tuple(infos))


def probed_partitions(metastore: MetastoreClient, table: AcidTable) -> Sequence[str]:
    """Return the names of the partitions whose directories are probed; none if there are very many.

    Raises MetastoreError.
    """
    names = metastore.get_partition_names(table.database, table.name) if table.partition_keys else ()
    return () if len(names) > MAX_PROBED_PARTITIONS else names


def split_full_name(table_name: str) -> tuple[str, str]:
    """Split ``database.table`` into database and table, in lower case. Raises ConfigurationError."""
    if not isinstance(table_name, str):
        raise ConfigurationError(f"not the full name of a table: {table_name!r} (expected 'database.table')")
    database, dot, name = table_name.strip().lower().partition(".")
    if not (database and dot and name) or "." in name:
        raise ConfigurationError(f"not the full name of a table: {table_name!r} (expected database.table)")
    return database, name


def normal_full_name(table_name: str) -> str:
    """Return ``database.table`` in lower case. Raises ConfigurationError for other names."""
    return ".".join(split_full_name(table_name))


def merge_specs(specs: Iterable[TableSpec]) -> tuple[TableSpec, ...]:
    """Return one entry per table. A table that is both source and sink becomes a sink.

    Raises ConfigurationError if a sink was added twice with different options.
    """
    merged: dict[str, TableSpec] = {}
    for spec in specs:
        other = merged.setdefault(spec.full_name, spec)
        if other.role is spec.role and other != spec:
            raise ConfigurationError(f"table {spec.full_name} was added twice with different options")
        if spec.role is TableRole.SINK:
            merged[spec.full_name] = spec
    return tuple(merged.values())
