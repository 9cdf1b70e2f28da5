"""Databases, tables, partitions and their compaction, in a real metastore.

When the connection breaks, reads and the creation of partitions are repeated, since doing them twice changes
nothing. A change of statistics is also repeated: it stores the values that were read, without one flag.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from metastore_client._thrift.gen import Metastore4
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidAnswerError,
    InvalidRequestError,
    MetastoreError,
    NoSuchObjectError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    ColumnInfo,
    ConstraintInfo,
    PartitionInfo,
    TableInfo,
)
from metastore_client.remote.thrift_answers import Answer
from metastore_client.remote.thrift_calls import ThriftCalls, batches
from metastore_client.remote.thrift_statistics import (
    CONSTRAINTS,
    constraint_infos,
    writer_ids,
)
from metastore_client.remote.thrift_values import (
    CATALOG,
    new_partition,
    new_partition_name,
    partition_info,
    partition_names,
    table_info,
    thrift_columns,
    thrift_table,
    ttypes,
)
from metastore_client.valid_ids import ValidWriteIdList

ADD_PARTITIONS_BATCH = 100
"""Number of partitions created per call. Larger batches are not faster and approach the time limit (14 ms
per partition)."""
FETCH_PARTITIONS_BATCH = 500
"""Number of partitions per ``get_partitions_by_names``."""
RACE_TRIES = 5
_CHANGED_AT = "transient_lastDdlTime"
"""Parameter with the time of the last change. If it is missing, the server sets it."""
_ALL_PARTITIONS = -1
_CLIENT_CAPABILITIES = ttypes.ClientCapabilities(
    values=[ttypes.ClientCapability.TEST_CAPABILITY, ttypes.ClientCapability.INSERT_ONLY_TABLES]
)
"""Without them, a 3.x server hides insert-only tables, and a server in test mode hides all tables."""
_PROCESSOR_CAPABILITIES = ("HIVEFULLACIDWRITE", "HIVEMANAGEDINSERTWRITE")
"""Capabilities that a 4.x server demands from the creator of a full ACID or an insert-only table."""


class TableCalls(ThriftCalls):
    """The part of a :class:`~metastore_client.client.MetastoreClient` with the calls about tables."""

    # -- databases, tables, partitions ---------------------------------------------------------------------
    def create_database(
        self, name: str, location: str | None = None, parameters: Mapping[str, str] | None = None
    ) -> None:
        """Create a database. See :meth:`MetastoreClient.create_database`."""
        database = ttypes.Database(name=name.lower(), locationUri=location, parameters=dict(parameters or {}))
        self._call("create_database", database)

    def get_database_parameters(self, database: str) -> Mapping[str, str]:
        """Return the properties of a database. See :meth:`MetastoreClient.get_database_parameters`."""
        answer = self._call("get_database", database.lower(), repeat=True)
        return answer["parameters"].optional(Answer.parameters) or {}

    def get_all_tables(self, database: str) -> list[str]:
        """Return the names of all tables of a database, sorted.

        See :meth:`MetastoreClient.get_all_tables`.
        """
        return sorted(self._call("get_all_tables", database.lower(), repeat=True).texts())

    def create_table(self, table: TableInfo) -> None:
        """Create a table. See :meth:`MetastoreClient.create_table`."""
        sent = thrift_table(table, self.config.user)
        if self.capabilities().has_exclusive_write_lock:
            request = ttypes.CreateTableRequest(
                table=sent, processorCapabilities=list(_PROCESSOR_CAPABILITIES)
            )
            self._call("create_table_req", request, service=Metastore4)
        else:
            self._call("create_table", sent)

    def drop_table(self, database: str, table: str, *, delete_data: bool) -> None:
        """Drop a table, with its files if ``delete_data`` is true. See :meth:`MetastoreClient.drop_table`."""
        self._call("drop_table", database.lower(), table.lower(), delete_data)

    def get_table(self, database: str, table: str) -> TableInfo:
        """Return the description of a table. See :meth:`MetastoreClient.get_table`."""
        database, table = database.lower(), table.lower()
        request = ttypes.GetTableRequest(dbName=database, tblName=table, capabilities=_CLIENT_CAPABILITIES)
        return table_info(self._call("get_table_req", request, repeat=True)["table"], database, table)

    def get_constraints(self, database: str, table: str) -> tuple[ConstraintInfo, ...]:
        """Return the NOT NULL, CHECK and DEFAULT constraints of a table, ordered by kind, column and name.

        See :meth:`MetastoreClient.get_constraints`. This takes one call to a 4.x server and three calls to a
        3.x server.
        """
        database, table = database.lower(), table.lower()
        capabilities = self.capabilities()
        if not capabilities.has_write_ids:
            return ()
        if capabilities.has_exclusive_write_lock:
            of_table = ttypes.AllTableConstraintsRequest(dbName=database, tblName=table, catName=CATALOG)
            every = self._answer_if_known("get_all_table_constraints", of_table)
            if every is not None:
                found = every["allTableConstraints"]
                return constraint_infos(*(found[kind].elements_or_none() for kind in CONSTRAINTS))
        request = ttypes.ConstraintsRequest(catName=CATALOG, db_name=database, tbl_name=table)
        names = ("get_not_null_constraints", "get_check_constraints", "get_default_constraints")
        ask = self._answer_if_known
        answers = self.together(*(functools.partial(ask, name, request) for name in names))
        pairs = zip(answers, CONSTRAINTS, strict=True)
        return constraint_infos(*(() if each is None else each[kind].elements() for each, kind in pairs))

    def get_primary_key(self, database: str, table: str) -> tuple[str, ...]:
        """Return the columns of a primary key. See :meth:`MetastoreClient.get_primary_key`."""
        of_table = ttypes.PrimaryKeysRequest(db_name=database.lower(), tbl_name=table.lower())
        if self.capabilities().has_write_ids:
            of_table.catName = CATALOG
        columns = self._call("get_primary_keys", of_table, repeat=True)["primaryKeys"].elements()
        columns.sort(key=lambda each: each["key_seq"].number())
        return tuple(each["column_name"].text().lower() for each in columns)

    def _answer_if_known(self, name: str, request: Any) -> Answer | None:
        """Return the answer, or None if the server does not have the call: 3.0 has no CHECK constraints."""
        try:
            return self._call(name, request, service=Metastore4, repeat=True)
        except UnsupportedByServerError:
            return None

    def get_partition_names(self, database: str, table: str) -> list[str]:
        """Return the escaped names (``ds=2024-01-01/hr=3``) of all partitions.

        See :meth:`MetastoreClient.get_partition_names`.
        """
        try:
            answer = self._call(
                "get_partition_names", database.lower(), table.lower(), _ALL_PARTITIONS, repeat=True
            )
        except InvalidAnswerError:
            raise
        except MetastoreError:
            self.get_table(database, table)  # Hive 2.3 fails without a message if the table is missing
            raise
        names = partition_names(answer)
        if not names:
            self.get_table(database, table)  # later releases answer with no partitions
        return sorted(names)

    def get_partitions_by_names(
        self, database: str, table: str, names: Sequence[str], *, described: TableInfo | None = None
    ) -> list[PartitionInfo]:
        """Return the partitions in ``names`` that exist; skip the others. They are fetched in batches.

        See :meth:`MetastoreClient.get_partitions_by_names`.
        """
        described = described or self.get_table(database, table)
        found = [
            partition_info(each, described)
            for batch in batches(sorted(set(names)), FETCH_PARTITIONS_BATCH)
            for each in self._get_partitions(described, batch)
        ]
        return sorted(found, key=lambda partition: partition.name)

    def add_partitions(
        self, database: str, table: str, values: Sequence[Sequence[str]]
    ) -> list[PartitionInfo]:
        """Create partitions at their default location and return them. Skip those that exist.

        See :meth:`MetastoreClient.add_partitions`.

        After a broken connection or a race with another client, the result may lack partitions that this call
        created.
        """
        described = self.get_table(database, table)
        wanted: dict[str, Any] = {}
        for each in values:
            wanted.setdefault(new_partition_name(described, each), new_partition(described, each))
        return [
            partition_info(each, described)
            for batch in batches(list(wanted.values()), ADD_PARTITIONS_BATCH)
            for each in self._add_partitions(described, batch)
        ]

    def drop_partition(self, database: str, table: str, partition_name: str) -> None:
        """Drop a partition with its files. See :meth:`MetastoreClient.drop_partition`."""
        self._call("drop_partition_by_name", database.lower(), table.lower(), partition_name, True)

    def set_table_parameters(self, database: str, table: str, changes: Mapping[str, str | None]) -> None:
        """Set parameters of a table and remove those that are None. All others stay unchanged.

        See :meth:`MetastoreClient.set_table_parameters`.
        """
        described = self.get_table(database, table)
        raw: Any = described.sent
        kept = {name: value for name, value in described.parameters.items() if name not in changes}
        raw.parameters = kept | {name: value for name, value in changes.items() if value is not None}
        self._alter_raw_table(raw, {})

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

        See :meth:`MetastoreClient.set_columns`.
        """
        if (write_id is None) != (valid_write_ids is None):
            raise InvalidRequestError(f"{database}.{table}: pass write_id and valid_write_ids together")
        raw: Any = self.get_table(database, table).sent
        fields = thrift_columns(columns)
        for field, before in zip(fields, raw.sd.cols, strict=False):
            # To a 4.x server '' is another comment than none, and a changed comment drops all constraints.
            field.comment = field.comment or (None if before.comment else before.comment)
        raw.sd.cols = fields
        raw.parameters.pop(_CHANGED_AT, None)
        self._alter_raw_table(raw, writer_ids(write_id, valid_write_ids), CASCADE="true")

    def _alter_raw_table(self, raw: Any, writer: Mapping[str, Any], **properties: str) -> None:
        """Store a table as given. ``writer`` holds the write id and the valid write ids, or nothing.

        ``properties`` are further properties of the request's environment.
        """
        if writer and self.capabilities().has_exclusive_write_lock:
            raw.writeId = writer["writeId"]  # the server compares this id, not the request's
            request = ttypes.AlterTableRequest(
                catName=CATALOG,
                dbName=raw.dbName,
                tableName=raw.tableName,
                table=raw,
                environmentContext=_stored_as_sent(**properties),
                **writer,
            )
            self._call("alter_table_req", request, service=Metastore4, repeat=True)
        else:
            self._call(
                "alter_table_with_environment_context",
                raw.dbName,
                raw.tableName,
                raw,
                _stored_as_sent(**properties),
                repeat=True,
            )

    def _alter_raw_partitions(
        self, database: str, table: str, changed: Sequence[Any], writer: Mapping[str, Any]
    ) -> None:
        """Store partitions as given. ``writer`` has the same content as for a table."""
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

    def _get_partitions(self, table: TableInfo, names: Sequence[str]) -> list[Answer]:
        if len(names) == 1:  # a fifth of the server's time in a table of 1,000 partitions
            return self._get_partition(table, names[0])
        answer = self._call("get_partitions_by_names", table.database, table.name, list(names), repeat=True)
        return answer.elements()

    def _get_partition(self, table: TableInfo, name: str) -> list[Answer]:
        try:
            return [self._call("get_partition_by_name", table.database, table.name, name, repeat=True)]
        except NoSuchObjectError:
            return []

    def _add_partitions(self, table: TableInfo, batch: Sequence[Any]) -> list[Answer]:
        request = ttypes.AddPartitionsRequest(
            dbName=table.database,
            tblName=table.name,
            parts=list(batch),
            ifNotExists=True,
            needResult=True,
        )
        for _ in range(RACE_TRIES - 1):
            try:
                return self._call("add_partitions_req", request, repeat=True)["partitions"].elements_or_none()
            except AlreadyExistsError:  # another client created one between the server's check and its insert
                continue
        return self._call("add_partitions_req", request, repeat=True)["partitions"].elements_or_none()


def _stored_as_sent(**properties: str) -> Any:
    """Return an environment without statistics. The server then stores exactly what the client sends."""
    return ttypes.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true", **properties})
