"""Databases, tables, partitions and their compaction, in a real metastore.

Reads and the creation of partitions are repeated when the connection breaks, since doing them twice changes
nothing. So is a change of statistics, which stores the read values without one flag.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from metastore_client._thrift.gen import Metastore4
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    MetastoreError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    ColumnStatistics,
    CompactionInfo,
    CompactionType,
    ConstraintInfo,
    PartitionInfo,
    TableInfo,
)
from metastore_client.partition_name import make_partition_name
from metastore_client.remote.thrift_calls import ThriftCalls, batches
from metastore_client.remote.thrift_constraints import constraint_infos
from metastore_client.remote.thrift_statistics import column_statistics
from metastore_client.remote.thrift_values import (
    CATALOG,
    compaction_info,
    new_partition,
    new_partition_name,
    partition_info,
    table_info,
    thrift_table,
    ttypes,
)
from metastore_client.row_counts import CountRows, accurate_row_count, with_row_count
from metastore_client.valid_ids import ValidWriteIdList

__all__ = ["TableCalls"]

ADD_PARTITIONS_BATCH = 100
"""Partitions created per call; larger batches are not faster and approach the time limit (14 ms each)."""
FETCH_PARTITIONS_BATCH = 500
"""Partitions per ``get_partitions_by_names``."""
RACE_TRIES = 5
_ENGINE = "hive"
"""Whose statistics: 4.x also keeps those of other engines."""

_ALL_PARTITIONS = -1
_CLIENT_CAPABILITIES = ttypes.ClientCapabilities(
    values=[ttypes.ClientCapability.TEST_CAPABILITY, ttypes.ClientCapability.INSERT_ONLY_TABLES]
)
"""Without them a 3.x server hides insert-only tables, and one in test mode hides all tables."""
_PROCESSOR_CAPABILITIES = ("HIVEFULLACIDWRITE", "HIVEMANAGEDINSERTWRITE")
"""Capabilities that a 4.x server demands from the creator of a full ACID table, and of an insert-only one."""


class TableCalls(ThriftCalls):
    """The calls of a :class:`~metastore_client.client.MetastoreClient` that are about tables."""

    # -- databases, tables, partitions ---------------------------------------------------------------------
    def create_database(
        self, name: str, location: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        """See :meth:`MetastoreClient.create_database`."""
        database = ttypes.Database(name=name.lower(), locationUri=location, parameters=dict(parameters or {}))
        self._call("create_database", database)

    def get_database_parameters(self, database: str) -> Mapping[str, str]:
        """See :meth:`MetastoreClient.get_database_parameters`."""
        return dict(self._call("get_database", database.lower(), repeat=True).parameters or {})

    def get_all_tables(self, database: str) -> list[str]:
        """See :meth:`MetastoreClient.get_all_tables`."""
        return sorted(self._call("get_all_tables", database.lower(), repeat=True))

    def create_table(self, table: TableInfo) -> None:
        """See :meth:`MetastoreClient.create_table`."""
        sent = thrift_table(table, self.config.user)
        if self.capabilities().has_exclusive_write_lock:
            request = ttypes.CreateTableRequest(
                table=sent, processorCapabilities=list(_PROCESSOR_CAPABILITIES)
            )
            self._call("create_table_req", request, service=Metastore4)
        else:
            self._call("create_table", sent)

    def drop_table(self, database: str, table: str, *, delete_data: bool) -> None:
        """See :meth:`MetastoreClient.drop_table`."""
        self._call("drop_table", database.lower(), table.lower(), delete_data)

    def get_table(self, database: str, table: str) -> TableInfo:
        """See :meth:`MetastoreClient.get_table`."""
        return table_info(self._get_raw_table(database, table))

    def get_constraints(self, database: str, table: str) -> tuple[ConstraintInfo, ...]:
        """See :meth:`MetastoreClient.get_constraints`. One call to 4.x, three to 3.x."""
        database, table = database.lower(), table.lower()
        capabilities = self.capabilities()
        if not capabilities.has_write_ids:
            return ()
        if capabilities.has_exclusive_write_lock:
            of_table = ttypes.AllTableConstraintsRequest(dbName=database, tblName=table, catName=CATALOG)
            every = self._answer_if_known("get_all_table_constraints", of_table)
            if every is not None:
                found = every.allTableConstraints
                return constraint_infos(
                    found.notNullConstraints or (),
                    found.checkConstraints or (),
                    found.defaultConstraints or (),
                )
        request = ttypes.ConstraintsRequest(catName=CATALOG, db_name=database, tbl_name=table)
        names = ("get_not_null_constraints", "get_check_constraints", "get_default_constraints")
        ask = self._answer_if_known
        not_null, checks, defaults = self.together(*(functools.partial(ask, name, request) for name in names))
        return constraint_infos(
            () if not_null is None else not_null.notNullConstraints,
            () if checks is None else checks.checkConstraints,
            () if defaults is None else defaults.defaultConstraints,
        )

    def _answer_if_known(self, name: str, request: Any) -> Any:
        """The answer; None from a server that does not know the call: 3.0 has no CHECK constraints."""
        try:
            return self._call(name, request, service=Metastore4, repeat=True)
        except UnsupportedByServerError:
            return None

    def get_partition_names(self, database: str, table: str) -> list[str]:
        """See :meth:`MetastoreClient.get_partition_names`."""
        try:
            names = self._call(
                "get_partition_names", database.lower(), table.lower(), _ALL_PARTITIONS, repeat=True
            )
        except MetastoreError:
            self.get_table(database, table)  # Hive 2.3 fails without a message if the table is missing
            raise
        if not names:
            self.get_table(database, table)  # later releases answer with no partitions
        return sorted(names)

    def get_partitions_by_names(self, database: str, table: str, names: Sequence[str]) -> list[PartitionInfo]:
        """See :meth:`MetastoreClient.get_partitions_by_names`."""
        keys = [key.name for key in self.get_table(database, table).partition_keys]
        found = [
            partition_info(raw, keys)
            for batch in batches(sorted(set(names)), FETCH_PARTITIONS_BATCH)
            for raw in self._get_raw_partitions(database, table, batch)
        ]
        return sorted(found, key=lambda partition: partition.name)

    def add_partitions(
        self, database: str, table: str, values: Sequence[Sequence[str]]
    ) -> list[PartitionInfo]:
        """See :meth:`MetastoreClient.add_partitions`.

        After a broken connection or a race with another client the result may lack partitions that we
        created.
        """
        raw_table = self._get_raw_table(database, table)
        keys = [key.name for key in raw_table.partitionKeys or ()]
        wanted: dict[str, Any] = {}
        for each in values:
            wanted.setdefault(new_partition_name(raw_table, keys, each), new_partition(raw_table, each))
        return [
            partition_info(raw, keys)
            for batch in batches(list(wanted.values()), ADD_PARTITIONS_BATCH)
            for raw in self._add_raw_partitions(database, table, batch)
        ]

    def set_table_parameters(self, database: str, table: str, changes: Mapping[str, str | None]) -> None:
        """See :meth:`MetastoreClient.set_table_parameters`."""
        raw = self._get_raw_table(database, table)
        kept = {name: value for name, value in raw.parameters.items() if name not in changes}
        raw.parameters = kept | {name: value for name, value in changes.items() if value is not None}
        self._alter_raw_table(raw, {})

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
    ) -> int:
        """See :meth:`MetastoreClient.record_row_counts`.

        The server has no call for this: objects are read, changed and written back at once.
        """
        if (write_id is None) != (valid_write_ids is None):
            raise InvalidRequestError(f"{database}.{table}: a write id and valid write ids go together")
        if not self.capabilities().answers_from_statistics:
            count = dict.fromkeys
        writer = _writer(write_id, valid_write_ids)

        just_read = [] if described is None else [copy.copy(described.sent)]

        def record_of_table() -> int:
            raw = just_read.pop() if just_read else self._get_raw_table(database, table)
            changed = _with_row_counts({"": raw}, count, valid_write_ids)
            for raw in changed:
                self._alter_raw_table(raw, writer)
            return len(changed)

        if partition_names is None:
            return _again_after_a_race(record_of_table)
        described = described or self.get_table(database, table)
        keys = [key.name for key in described.partition_keys]

        def record_of_partitions(names: Sequence[str]) -> int:
            partitions = self._get_raw_partitions(database, table, names)
            found = {make_partition_name(keys, raw.values): raw for raw in partitions}
            changed = _with_row_counts(found, count, valid_write_ids)
            if changed:
                self._alter_raw_partitions(database, table, changed, writer)
            return len(changed)

        return sum(
            _again_after_a_race(functools.partial(record_of_partitions, batch))
            for batch in batches(sorted(set(partition_names)), FETCH_PARTITIONS_BATCH)
        )

    def get_column_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        columns: Sequence[str],
        *,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> dict[str, tuple[ColumnStatistics, ...]]:
        """See :meth:`MetastoreClient.get_column_statistics`."""
        self.get_table(database, table)  # a server answers for a missing one as if it had no statistics
        asked: dict[str, Any] = {
            "dbName": database.lower(),
            "tblName": table.lower(),
            "colNames": [name.lower() for name in columns],
            "catName": CATALOG,
            "engine": _ENGINE,
            "validWriteIdList": None if valid_write_ids is None else valid_write_ids.to_text(),
        }
        if partition_names is None:
            answer = self._call("get_table_statistics_req", ttypes.TableStatsRequest(**asked), repeat=True)
            found = {"": column_statistics(answer.tableStats)}
        else:
            found = {}
            for batch in batches(sorted(set(partition_names)), FETCH_PARTITIONS_BATCH):
                request = ttypes.PartitionsStatsRequest(partNames=list(batch), **asked)
                parts = self._call("get_partitions_statistics_req", request, repeat=True).partStats
                found.update((name, column_statistics(parts[name])) for name in sorted(parts))
        return {name: columns for name, columns in found.items() if columns}

    def _alter_raw_table(self, raw: Any, writer: Mapping[str, Any]) -> None:
        """Store a table as it is given; ``writer`` holds the write id and the valid write ids, or nothing."""
        if writer and self.capabilities().has_exclusive_write_lock:
            raw.writeId = writer["writeId"]  # the server compares this one, not the request's
            request = ttypes.AlterTableRequest(
                catName=CATALOG,
                dbName=raw.dbName,
                tableName=raw.tableName,
                table=raw,
                environmentContext=_stored_as_sent(),
                **writer,
            )
            self._call("alter_table_req", request, service=Metastore4, repeat=True)
        else:
            self._call(
                "alter_table_with_environment_context",
                raw.dbName,
                raw.tableName,
                raw,
                _stored_as_sent(),
                repeat=True,
            )

    def _alter_raw_partitions(
        self, database: str, table: str, changed: Sequence[Any], writer: Mapping[str, Any]
    ) -> None:
        """Store partitions as they are given; ``writer`` as for a table."""
        database, table = database.lower(), table.lower()
        if writer and self.capabilities().has_exclusive_write_lock:
            for raw in changed:
                raw.writeId = writer["writeId"]
            request = ttypes.AlterPartitionsRequest(
                catName=CATALOG,
                dbName=database,
                tableName=table,
                partitions=list(changed),
                environmentContext=_stored_as_sent(),
                **writer,
            )
            self._call("alter_partitions_req", request, service=Metastore4, repeat=True)
        else:
            self._call(
                "alter_partitions_with_environment_context",
                database,
                table,
                list(changed),
                _stored_as_sent(),
                repeat=True,
            )

    def _get_raw_table(self, database: str, table: str) -> Any:
        request = ttypes.GetTableRequest(
            dbName=database.lower(), tblName=table.lower(), capabilities=_CLIENT_CAPABILITIES
        )
        return self._call("get_table_req", request, repeat=True).table

    def _get_raw_partitions(self, database: str, table: str, names: Sequence[str]) -> list[Any]:
        found: list[Any] = self._call(
            "get_partitions_by_names", database.lower(), table.lower(), list(names), repeat=True
        )
        return found

    def _add_raw_partitions(self, database: str, table: str, batch: Sequence[Any]) -> list[Any]:
        request = ttypes.AddPartitionsRequest(
            dbName=database.lower(),
            tblName=table.lower(),
            parts=list(batch),
            ifNotExists=True,
            needResult=True,
        )
        for _ in range(RACE_TRIES - 1):
            try:
                return self._call("add_partitions_req", request, repeat=True).partitions or []
            except AlreadyExistsError:  # another client created one between the server's check and its insert
                continue
        return self._call("add_partitions_req", request, repeat=True).partitions or []

    # -- compaction ----------------------------------------------------------------------------------------
    def compact(
        self,
        database: str,
        table: str,
        partition: str | None,
        type: CompactionType,
        properties: Mapping[str, str] | None = None,
    ) -> bool:
        """See :meth:`MetastoreClient.compact`."""
        request = ttypes.CompactionRequest(
            dbname=database.lower(),
            tablename=table.lower(),
            partitionname=partition,
            type=int(type),
            properties=None if properties is None else dict(properties),
        )
        return bool(self._call("compact2", request, repeat=True).accepted)

    def show_compactions(self) -> list[CompactionInfo]:
        """See :meth:`MetastoreClient.show_compactions`."""
        answer = self._call("show_compact", ttypes.ShowCompactRequest(), repeat=True)
        return [compaction_info(each) for each in answer.compacts]


def _again_after_a_race(change: Callable[[], int]) -> int:
    """Change parameters again, from what they are then, if another client changed the same at that moment.

    Two clients that add one parameter at once meet in the server's database: the second breaks a key of its
    table of parameters (``TABLE_PARAMS``, ``PARTITION_PARAMS``), and nothing of it is stored.
    """
    for _ in range(RACE_TRIES - 1):
        try:
            return change()
        except MetastoreError as error:
            if "_PARAMS" not in str(error):
                raise
    return change()


def _stored_as_sent() -> Any:
    """An environment without statistics: the server then stores exactly what we send."""
    return ttypes.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})


def _with_row_counts(
    found: Mapping[str, Any], count: CountRows, valid_write_ids: ValidWriteIdList | None
) -> list[Any]:
    """Those of some tables or partitions, by name, whose parameters change; they are changed in place."""
    counts: Mapping[str, int | None] = dict.fromkeys(found)
    if valid_write_ids is not None:
        counts = count(
            {
                name: accurate_row_count(raw.parameters or {}, raw.writeId, valid_write_ids)
                for name, raw in found.items()
            }
        )
    changed = []
    for name, raw in found.items():
        parameters = with_row_count(raw.parameters or {}, counts[name])
        if parameters != (raw.parameters or {}):
            raw.parameters = parameters
            changed.append(raw)
    return changed


def _writer(write_id: int | None, valid_write_ids: ValidWriteIdList | None) -> dict[str, Any]:
    """The writer's ids, as the server wants them with a change of statistics; empty without them."""
    if valid_write_ids is None:
        return {}
    return {"writeId": write_id, "validWriteIdList": valid_write_ids.to_text()}
