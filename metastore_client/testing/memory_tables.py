"""Databases, tables, partitions and statistics of the in-memory metastore."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metastore_client.capabilities import Capabilities
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NoSuchObjectError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    ColumnInfo,
    ColumnStatistics,
    ConstraintInfo,
    PartitionInfo,
    TableInfo,
)
from metastore_client.partition_name import check_name, make_partition_name
from metastore_client.statistics_records import merged_statistics, replaced_statistics
from metastore_client.testing.server_calls import ServerCalls, server_call
from metastore_client.valid_ids import (
    CountRows,
    ValidWriteIdList,
    accurate_columns,
    accurate_row_count,
    with_accurate_columns,
    with_row_count,
)


@dataclass
class _Table:
    info: TableInfo
    partitions: dict[str, PartitionInfo] = field(default_factory=dict)
    column_statistics: dict[str, tuple[ColumnStatistics, ...]] = field(default_factory=dict)
    statistics_writers: dict[str, int] = field(default_factory=dict)
    constraints: tuple[ConstraintInfo, ...] = ()
    primary_key: tuple[str, ...] = ()

    def parameters(self, partition: str) -> Mapping[str, str] | None:
        """Return the parameters of a partition, or of the table (''). If there is none, return None."""
        if not partition:
            return self.info.parameters
        found = self.partitions.get(partition)
        return None if found is None else found.parameters

    def set_parameters(self, partition: str, parameters: Mapping[str, str]) -> None:
        """Replace the parameters of an existing partition, or of the table ('')."""
        if partition:
            self.partitions[partition] = replace(self.partitions[partition], parameters=dict(parameters))
        else:
            self.info = replace(self.info, parameters=dict(parameters))


class MemoryTables(ServerCalls):
    """The calls about databases, tables and partitions. For ``warehouse`` see InMemoryMetastore."""

    def __init__(self, warehouse: str | Path | None, **server: Any) -> None:
        super().__init__(**server)
        self._warehouse = None if warehouse is None else Path(warehouse).absolute()
        self._databases: dict[str, str] = {"default": self._database_location("default")}
        self.database_parameters: dict[str, dict[str, str]] = {"default": {}}
        self._tables: dict[tuple[str, str], _Table] = {}

    @server_call
    def create_database(
        self, name: str, location: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        """Create a database. See :meth:`MetastoreClient.create_database`."""
        name = name.lower()
        if name in self._databases:
            raise AlreadyExistsError(f"Database {name} already exists")
        self._databases[name] = location or self._database_location(name)
        self.database_parameters[name] = dict(parameters or {})

    @server_call
    def get_database_parameters(self, database: str) -> Mapping[str, str]:
        """Return the properties of a database. See :meth:`MetastoreClient.get_database_parameters`."""
        if database.lower() not in self._databases:
            raise NoSuchObjectError(f"Database {database} does not exist")
        return dict(self.database_parameters[database.lower()])

    @server_call
    def get_all_tables(self, database: str) -> list[str]:
        """Return the names of all tables of a database, sorted.

        See :meth:`MetastoreClient.get_all_tables`.
        """
        return sorted(name for in_database, name in self._tables if in_database == database.lower())

    @server_call
    def create_table(self, table: TableInfo) -> None:
        """Create a table. See :meth:`MetastoreClient.create_table`."""
        database, name = table.database.lower(), table.name.lower()
        if database not in self._databases:
            raise InvalidRequestError(f"The database {database} does not exist")
        if (database, name) in self._tables:
            raise AlreadyExistsError(f"Table {name} already exists")
        location = table.location or f"{self._databases[database]}/{name}"
        stored = replace(
            table,
            database=database,
            name=name,
            location=location,
            columns=tuple(replace(c, name=c.name.lower()) for c in table.columns),
            partition_keys=tuple(replace(c, name=c.name.lower()) for c in table.partition_keys),
            parameters=_checked_parameters(table, self._capabilities),
            created_seconds=int(time.time()),
        )
        if self._capabilities.has_exclusive_write_lock:
            stored = _translated(stored)
        self._make_directory(location)
        self._tables[database, name] = _Table(stored)

    @server_call
    def drop_table(self, database: str, table: str, *, delete_data: bool) -> None:
        """Drop a table, with its files if ``delete_data`` is true. See :meth:`MetastoreClient.drop_table`."""
        location = self._table(database, table).info.location
        del self._tables[database.lower(), table.lower()]
        if delete_data and self._warehouse is not None:
            shutil.rmtree(_local_path(location), ignore_errors=True)

    @server_call
    def get_table(self, database: str, table: str) -> TableInfo:
        """Return the description of a table. See :meth:`MetastoreClient.get_table`."""
        return self._table(database, table).info

    @server_call
    def get_constraints(self, database: str, table: str) -> tuple[ConstraintInfo, ...]:
        """Return the constraints of a table. See :meth:`MetastoreClient.get_constraints`."""
        found = self._tables.get((database.lower(), table.lower()))
        return () if found is None else found.constraints

    @server_call
    def get_primary_key(self, database: str, table: str) -> tuple[str, ...]:
        """Return the columns of a table's primary key. See :meth:`MetastoreClient.get_primary_key`."""
        found = self._tables.get((database.lower(), table.lower()))
        return () if found is None else found.primary_key

    def set_constraints(
        self,
        database: str,
        table: str,
        constraints: Sequence[ConstraintInfo],
        primary_key: Sequence[str] = (),
    ) -> None:
        """Replace the constraints of a table, as CREATE TABLE and ALTER TABLE do.

        Raises:
            UnsupportedByServerError: If the simulated release has no constraints.
        """
        with self._mutex:
            if constraints and not self.capabilities().has_write_ids:
                raise UnsupportedByServerError("Hive 2.3 has no NOT NULL, CHECK and DEFAULT constraints")
            named = (replace(each, column=each.column.lower()) for each in constraints)
            found = self._table(database, table)
            found.constraints = tuple(sorted(named, key=ConstraintInfo.order))
            found.primary_key = tuple(name.lower() for name in primary_key)

    @server_call
    def get_partition_names(self, database: str, table: str) -> list[str]:
        """Return the escaped names of all partitions. See :meth:`MetastoreClient.get_partition_names`."""
        return sorted(self._table(database, table).partitions)

    @server_call
    def get_partitions_by_names(
        self, database: str, table: str, names: Sequence[str], *, described: TableInfo | None = None
    ) -> list[PartitionInfo]:
        """Return the partitions in ``names`` that exist; skip the others. They are fetched in batches.

        See :meth:`MetastoreClient.get_partitions_by_names`. ``described`` has no effect.
        """
        partitions = self._table(database, table).partitions
        return [partitions[name] for name in sorted(set(names)) if name in partitions]

    @server_call
    def add_partitions(
        self, database: str, table: str, values: Sequence[Sequence[str]]
    ) -> list[PartitionInfo]:
        """Create partitions at their default location and return them. Skip those that exist.

        See :meth:`MetastoreClient.add_partitions`.
        """
        stored = self._table(database, table)
        keys = [key.name for key in stored.info.partition_keys]
        wanted = {_checked_partition_name(stored.info, keys, each): tuple(each) for each in values}
        created = []
        for name, texts in wanted.items():
            if name in stored.partitions:
                continue
            location = f"{stored.info.location}/{name}"
            self._make_directory(location)
            partition = PartitionInfo(stored.info.database, stored.info.name, texts, name, location)
            stored.partitions[name] = partition
            created.append(partition)
        return created

    @server_call
    def set_table_parameters(self, database: str, table: str, changes: Mapping[str, str | None]) -> None:
        """Set parameters of a table and remove those that are None. All others stay unchanged.

        See :meth:`MetastoreClient.set_table_parameters`.
        """
        stored = self._table(database, table)
        kept = {name: value for name, value in stored.info.parameters.items() if name not in changes}
        given = {name: value for name, value in changes.items() if value is not None}
        stored.info = replace(stored.info, parameters=kept | given)

    @server_call
    def set_columns(
        self,
        database: str,
        table: str,
        columns: Sequence[ColumnInfo],
        *,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> None:
        """Replace the data columns of a table and of all its partitions.

        See :meth:`MetastoreClient.set_columns`. Any change of a type is accepted.
        """
        stored = self._table(database, table)
        if (write_id is None) != (valid_write_ids is None):
            raise InvalidRequestError(f"{database}.{table}: pass write_id and valid_write_ids together")
        new = tuple(replace(each, name=each.name.lower()) for each in columns)
        before = {each.name: each.type for each in stored.info.columns}
        same = {each.name for each in new if before.get(each.name) == each.type}
        stored.info = replace(stored.info, columns=new)
        stored.column_statistics = {
            name: tuple(each for each in statistics if each.column in same)
            for name, statistics in stored.column_statistics.items()
        }

    @server_call
    def record_row_counts(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        count: CountRows,
        *,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
        described: TableInfo | None = None,
        columns: Mapping[str, Collection[str]] | None = None,
    ) -> int:
        """Record accurate row counts, and mark column statistics as not accurate.

        See :meth:`MetastoreClient.record_row_counts`. ``described`` has no effect.
        """
        stored = self._table(database, table)
        if (write_id is None) != (valid_write_ids is None):
            raise InvalidRequestError(f"{database}.{table}: pass write_id and valid_write_ids together")
        found = {
            name: parameters
            for name in ([""] if partition_names is None else sorted(set(partition_names)))
            if (parameters := stored.parameters(name)) is not None
        }
        counts: Mapping[str, int | None] = dict.fromkeys(found)
        if valid_write_ids is not None and self._capabilities.answers_from_statistics:
            counts = count(
                {
                    name: accurate_row_count(parameters, stored.statistics_writers.get(name), valid_write_ids)
                    for name, parameters in found.items()
                }
            )
        changes = {
            name: with_row_count(parameters, counts[name], (columns or {}).get(name, ()))
            for name, parameters in found.items()
        }
        changed = [name for name, parameters in changes.items() if parameters != found[name]]
        for name in changed:
            stored.set_parameters(name, changes[name])
            if write_id is not None:
                stored.statistics_writers[name] = write_id
        return len(changed)

    @server_call
    def get_column_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        columns: Sequence[str],
        *,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> dict[str, tuple[ColumnStatistics, ...]]:
        """Return the recorded statistics of columns, accurate or not.

        See :meth:`MetastoreClient.get_column_statistics`. ``valid_write_ids`` has no effect.
        """
        recorded = self._table(database, table).column_statistics
        wanted = {name.lower() for name in columns}
        found = {
            name: tuple(each for each in recorded.get(name, ()) if each.column in wanted)
            for name in ([""] if partition_names is None else sorted(set(partition_names)))
        }
        return {name: statistics for name, statistics in found.items() if statistics}

    @server_call
    def merge_column_statistics(
        self,
        database: str,
        table: str,
        statistics: Mapping[str, Sequence[ColumnStatistics]],
        *,
        replaces: bool = False,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> None:
        """Add statistics of new rows. See :meth:`MetastoreClient.merge_column_statistics`."""
        stored = self._table(database, table)
        if not replaces and not self._capabilities.answers_from_statistics:
            raise UnsupportedByServerError("only Hive 4 adds statistics to those of an ACID table")
        record = replaced_statistics if replaces else merged_statistics
        for name, new in statistics.items():
            parameters = stored.parameters(name)
            if parameters is None:
                raise NoSuchObjectError(f"{stored.info.full_name} has no partition {name}")
            writer = stored.statistics_writers.get(name)
            is_seen = writer is None or valid_write_ids is None or valid_write_ids.is_valid(writer)
            claimed = {*accurate_columns(parameters)}
            old = {each.column: each for each in stored.column_statistics.get(name, ())}
            merged = {
                each.column: record(old.get(each.column), each)
                for each in new
                if replaces or (is_seen and each.column in claimed)
            }
            stored.column_statistics[name] = tuple(each for _, each in sorted((old | merged).items()))
            accurate = {*merged} if replaces else claimed
            stored.set_parameters(name, with_accurate_columns(parameters, accurate if is_seen else None))
            if write_id is not None:
                stored.statistics_writers[name] = write_id

    @server_call
    def delete_column_statistics(
        self, database: str, table: str, partition_names: Sequence[str] | None, column: str
    ) -> None:
        """Delete recorded statistics. See :meth:`MetastoreClient.delete_column_statistics`."""
        recorded = self._table(database, table).column_statistics
        if not self.capabilities().deletes_column_statistics:
            raise UnsupportedByServerError("statistics of ACID tables cannot be deleted")
        for name in [""] if partition_names is None else partition_names:
            recorded[name] = tuple(e for e in recorded.get(name, ()) if e.column != column.lower())

    @server_call
    def drop_partition(self, database: str, table: str, partition_name: str) -> None:
        """Drop a partition with its files. See :meth:`MetastoreClient.drop_partition`."""
        stored = self._table(database, table)
        if partition_name not in stored.partitions:
            raise NoSuchObjectError(f"{stored.info.full_name} has no partition {partition_name}")
        location = stored.partitions.pop(partition_name).location
        if self._warehouse is not None:
            shutil.rmtree(_local_path(location), ignore_errors=True)

    def set_column_statistics(
        self, database: str, table: str, partition: str | None, statistics: Sequence[ColumnStatistics]
    ) -> None:
        """Record column statistics for a table (``partition`` is None) or a partition, as ANALYZE does."""
        with self._mutex:
            ordered = tuple(sorted(statistics, key=lambda each: each.column))
            self._table(database, table).column_statistics[partition or ""] = ordered

    def set_parameters(
        self, database: str, table: str, partition: str | None, parameters: Mapping[str, str]
    ) -> None:
        """Replace the parameters of a table (``partition`` is None) or of a partition, as ALTER does."""
        with self._mutex:
            stored = self._table(database, table)
            if partition is not None and partition not in stored.partitions:
                raise NoSuchObjectError(f"{stored.info.full_name} has no partition {partition}")
            stored.set_parameters(partition or "", parameters)

    def _table(self, database: str, table: str) -> _Table:
        stored = self._tables.get((database.lower(), table.lower()))
        if stored is None:
            raise NoSuchObjectError(f"{database.lower()}.{table.lower()} table not found")
        return stored

    def _database_location(self, name: str) -> str:
        root = f"file:{self._warehouse or '/warehouse'}"
        return root if name == "default" else f"{root}/{name}.db"

    def _make_directory(self, location: str) -> None:
        if self._warehouse is not None:
            _local_path(location).mkdir(parents=True, exist_ok=True)


def _checked_parameters(table: TableInfo, capabilities: Capabilities) -> dict[str, str]:
    """Return the parameters as the server stores them.

    Raises:
        InvalidRequestError: If the table is transactional but does not meet the requirements.
    """
    parameters = dict(table.parameters)
    spelled = next((key for key in parameters if key.lower() == "transactional"), None)
    if spelled is None:
        return parameters
    is_transactional = parameters.pop(spelled).lower() == "true"
    must_be_bucketed = not capabilities.has_write_ids
    is_insert_only = parameters.get("transactional_properties") == "insert_only"
    if is_transactional and (
        (must_be_bucketed and not table.bucket_columns)
        or ("Orc" not in table.output_format and not is_insert_only)
    ):
        raise InvalidRequestError(
            f"{table.full_name}: The table must be {'bucketed and ' if must_be_bucketed else ''}"
            "stored using an ACID compliant format (such as ORC)"
        )
    if is_transactional and capabilities.has_write_ids:
        parameters.setdefault("transactional_properties", "default")
    parameters["transactional"] = "true" if is_transactional else "false"
    return parameters


def _translated(table: TableInfo) -> TableInfo:
    """Turn a managed table that is not transactional into an external one, as 4.x does."""
    if table.table_type != "MANAGED_TABLE" or table.parameters.get("transactional") == "true":
        return table
    marks = dict.fromkeys(("EXTERNAL", "TRANSLATED_TO_EXTERNAL", "external.table.purge"), "TRUE")
    return replace(table, table_type="EXTERNAL_TABLE", parameters={**table.parameters, **marks})


def _checked_partition_name(table: TableInfo, keys: Sequence[str], values: Sequence[str]) -> str:
    if len(values) != len(keys) or not keys or not all(values):
        raise InvalidRequestError(
            f"{table.full_name}: a partition needs one non-empty string per key: "
            f"keys {list(keys)}, got values {list(values)}"
        )
    name = make_partition_name(keys, values)
    check_name(name, table.full_name)
    return name


def _local_path(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))
