"""The metastore over Thrift: :class:`ThriftMetastoreClient`.

Which calls are repeated when the line breaks is the heart of it. Reads, heartbeats, ``check_lock``,
``unlock``, registrations, creation of partitions and aborts may be, since doing them twice changes nothing;
``open_txn`` may be, since a transaction that nobody uses is reaped. ``lock`` never: asked twice in one
transaction, a 2.3 server grants the second one past the queue. ``commit_txn`` is left to the caller, who
knows how to find out what became of it.

A server of 3.1 also hangs up when it fails inside, so a line that ends is no proof that a node is down. Where
that is known to happen (write ids for a transaction that is not open), the transaction's state is asked for
on a new line.

Source: Hive's hive_metastore.thrift; what servers answer was tried on 2.3.10, 3.1.3 and 4.1.0
    (tests/contract, tests/integration).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from thrift.Thrift import TApplicationException, TException
from thrift.transport.TTransport import TTransportException

from metastore_client._thrift.gen import Metastore, Metastore2, Metastore3, Metastore4
from metastore_client.capabilities import Capabilities
from metastore_client.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchLockError,
    NoSuchObjectError,
    NoSuchTxnError,
    TxnAbortedError,
    TxnOpenError,
    UnsupportedByServerError,
)
from metastore_client.hive_site import MetastoreConfig
from metastore_client.model import (
    CompactionInfo,
    CompactionType,
    DataOperationType,
    HeartbeatResult,
    LockInfo,
    LockRequest,
    LockResponse,
    LockType,
    OpenTxns,
    PartitionInfo,
    TableInfo,
    WriteNotification,
)
from metastore_client.thrift_checks import check_argument
from metastore_client.thrift_values import (
    check_name,
    compaction_info,
    lock_info,
    lock_response,
    new_partition,
    new_partition_name,
    partition_info,
    pop_accuracy,
    safe_text,
    table_info,
    thrift_component,
    thrift_table,
    ttypes,
    txn_info,
    valid_write_ids_of,
    write_notification_request,
)
from metastore_client.transport.connection import Connection, ConnectionPool, OpenSocket, open_socket
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList

__all__ = [
    "ADD_PARTITIONS_BATCH",
    "FETCH_PARTITIONS_BATCH",
    "NOTIFICATIONS_BATCH",
    "REGISTER_PARTITIONS_BATCH",
    "ThriftMetastoreClient",
    "connect",
]

ADD_PARTITIONS_BATCH = 100
"""Partitions created per call; larger batches are not faster and come near the time limit (14 ms each)."""
REGISTER_PARTITIONS_BATCH = 1_000
"""Partitions per ``add_dynamic_partitions``."""
FETCH_PARTITIONS_BATCH = 500
"""Partitions per ``get_partitions_by_names``."""
NOTIFICATIONS_BATCH = 100
"""Partitions per ``add_write_notification_log_in_batch``; each may name many files."""
RACE_TRIES = 5

_ALL_PARTITIONS = -1
_ERRORS: dict[type[TException], type[MetastoreError]] = {
    ttypes.AlreadyExistsException: AlreadyExistsError,
    ttypes.ConfigValSecurityException: InvalidRequestError,
    ttypes.InvalidObjectException: InvalidRequestError,
    ttypes.InvalidOperationException: InvalidRequestError,
    ttypes.MetaException: MetastoreError,
    ttypes.NoSuchLockException: NoSuchLockError,
    ttypes.NoSuchObjectException: NoSuchObjectError,
    ttypes.NoSuchTxnException: NoSuchTxnError,
    ttypes.TxnAbortedException: TxnAbortedError,
    ttypes.TxnOpenException: TxnOpenError,
}
_REQUESTS_WITH_CONTENTS = ("create_database", "create_table", "create_table_req", "add_partitions_req")
"""Calls in which a MetaException, the server's word for anything, is about what we sent."""
_CLIENT_CAPABILITIES = ttypes.ClientCapabilities(
    values=[ttypes.ClientCapability.TEST_CAPABILITY, ttypes.ClientCapability.INSERT_ONLY_TABLES]
)
"""Without them a 3.x server does not show insert-only tables, and one in test mode shows none at all."""
_PROCESSOR_CAPABILITIES = ("HIVEFULLACIDWRITE", "HIVEMANAGEDINSERTWRITE")
"""What a 4.x server wants of the creator of a full ACID table, and of an insert-only one."""
_CATALOG = "hive"

T = TypeVar("T")


def connect(
    target: MetastoreConfig | str | Mapping[str, str] | Path | None = None, *, user: str | None = None
) -> ThriftMetastoreClient:
    """Connect to a metastore and find out what it can do.

    Args:
        target: ``thrift://host:port`` (several with commas), a :class:`MetastoreConfig`, the keys of a
            hive-site.xml, the path of one, or None for the one in HIVE_CONF_DIR or HADOOP_CONF_DIR.
        user: who we are to the server; default: HADOOP_USER_NAME, else the user of this process.

    Raises:
        InvalidConfigurationError: the target makes no sense.
        MetastoreUnavailableError: no server answered.
    """
    client = ThriftMetastoreClient(MetastoreConfig.load(target, user=user))
    try:
        client.capabilities()
    except BaseException:
        client.close()
        raise
    return client


class ThriftMetastoreClient:
    """A :class:`~metastore_client.client.MetastoreClient` on a real server.

    May be used by several threads; each has its own connection, made at its first call. A context manager.
    """

    def __init__(self, config: MetastoreConfig, *, open_socket: OpenSocket = open_socket) -> None:
        self.config = config
        self._pool = ConnectionPool(config, self._introduce, open_socket=open_socket)
        self._mutex = threading.Lock()
        self._capabilities: Capabilities | None = None

    def __enter__(self) -> ThriftMetastoreClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ThriftMetastoreClient({','.join(map(str, self.config.addresses))})"

    # -- the server ----------------------------------------------------------------------------------------
    def capabilities(self) -> Capabilities:
        """See :meth:`MetastoreClient.capabilities`."""
        with self._mutex:
            if self._capabilities is None:
                self._capabilities = self._probe()
            return self._capabilities

    def get_config_value(self, name: str, default: str) -> str:
        """See :meth:`MetastoreClient.get_config_value`."""
        try:
            return str(self._call("get_config_value", name, default, repeat=True))
        except InvalidRequestError:  # this key is not for clients
            return default

    def close(self) -> None:
        """See :meth:`MetastoreClient.close`."""
        self._pool.close()

    def _probe(self) -> Capabilities:
        """Ask for calls without effect; 2.3 and 3.1 name the same version, and vendors mix the lines."""
        no_notifications = ttypes.WriteNotificationLogBatchRequest(
            catalog=_CATALOG, db="default", table="", requestList=[]
        )
        has_write_ids = self._knows("get_catalogs")
        return Capabilities(
            version=self._call("getVersion", repeat=True),
            has_write_ids=has_write_ids,
            has_exclusive_write_lock=has_write_ids and self._knows("get_latest_txnid_in_conflict", 0),
            has_write_notifications=has_write_ids
            and self._knows("add_write_notification_log_in_batch", no_notifications),
        )

    def _knows(self, name: str, *arguments: Any) -> bool:
        try:
            self._call(name, *arguments, service=Metastore4, repeat=True)
        except UnsupportedByServerError:
            return False
        return True

    # -- databases, tables, partitions ---------------------------------------------------------------------
    def create_database(self, name: str, location: str | None = None) -> None:
        """See :meth:`MetastoreClient.create_database`."""
        self._call("create_database", ttypes.Database(name=name.lower(), locationUri=location, parameters={}))

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

    def get_partition_names(self, database: str, table: str) -> list[str]:
        """See :meth:`MetastoreClient.get_partition_names`."""
        try:
            names = self._call(
                "get_partition_names", database.lower(), table.lower(), _ALL_PARTITIONS, repeat=True
            )
        except MetastoreError:
            self.get_table(database, table)  # Hive 2.3 fails, without a word, if there is no such table
            raise
        if not names:
            self.get_table(database, table)  # later ones know no partitions of it
        return sorted(names)

    def get_partitions_by_names(self, database: str, table: str, names: Sequence[str]) -> list[PartitionInfo]:
        """See :meth:`MetastoreClient.get_partitions_by_names`."""
        keys = [key.name for key in self.get_table(database, table).partition_keys]
        found = [
            partition_info(raw, keys)
            for batch in _batches(sorted(set(names)), FETCH_PARTITIONS_BATCH)
            for raw in self._get_raw_partitions(database, table, batch)
        ]
        return sorted(found, key=lambda partition: partition.name)

    def add_partitions(
        self, database: str, table: str, values: Sequence[Sequence[str]]
    ) -> list[PartitionInfo]:
        """See :meth:`MetastoreClient.add_partitions`.

        After a broken line or a race with another client the answer may lack partitions that we did create.
        """
        raw_table = self._get_raw_table(database, table)
        keys = [key.name for key in raw_table.partitionKeys or ()]
        wanted: dict[str, Any] = {}
        for each in values:
            wanted.setdefault(new_partition_name(raw_table, keys, each), new_partition(raw_table, each))
        return [
            partition_info(raw, keys)
            for batch in _batches(list(wanted.values()), ADD_PARTITIONS_BATCH)
            for raw in self._add_raw_partitions(database, table, batch)
        ]

    def clear_accurate_statistics(
        self,
        database: str,
        table: str,
        partition_names: Sequence[str] | None,
        *,
        write_id: int | None = None,
        valid_write_ids: ValidWriteIdList | None = None,
    ) -> int:
        """See :meth:`MetastoreClient.clear_accurate_statistics`.

        The server has no call for this: what carries the flag is read, changed and written at once.
        """
        if (write_id is None) != (valid_write_ids is None):
            raise InvalidRequestError(f"{database}.{table}: a write id and valid write ids go together")
        writer: dict[str, Any] = {}
        if valid_write_ids is not None:
            writer = {"writeId": write_id, "validWriteIdList": valid_write_ids.to_text()}
        if partition_names is None:
            raw = self._get_raw_table(database, table)
            if not pop_accuracy(raw):
                return 0
            self._alter_raw_table(raw, writer)
            return 1
        cleared = 0
        for batch in _batches(sorted(set(partition_names)), FETCH_PARTITIONS_BATCH):
            changed = [raw for raw in self._get_raw_partitions(database, table, batch) if pop_accuracy(raw)]
            if changed:
                self._alter_raw_partitions(database, table, changed, writer)
            cleared += len(changed)
        return cleared

    def _alter_raw_table(self, raw: Any, writer: Mapping[str, Any]) -> None:
        """Store a table as it is given; ``writer`` holds the write id and the valid write ids, or nothing."""
        if writer and self.capabilities().has_exclusive_write_lock:
            raw.writeId = writer["writeId"]  # the server compares this one, not the request's
            request = ttypes.AlterTableRequest(
                catName=_CATALOG,
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
            request = ttypes.AlterPartitionsRequest(
                catName=_CATALOG,
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
            except AlreadyExistsError:  # another client was faster between the server's look and its insert
                continue
        return self._call("add_partitions_req", request, repeat=True).partitions or []

    # -- transactions --------------------------------------------------------------------------------------
    def open_txn(self, user: str, hostname: str, agent_info: str) -> int:
        """See :meth:`MetastoreClient.open_txn`."""
        request = ttypes.OpenTxnRequest(
            num_txns=1, user=safe_text(user), hostname=safe_text(hostname), agentInfo=safe_text(agent_info)
        )
        ids = self._call("open_txns", request, repeat=True).txn_ids
        if len(ids) != 1:
            raise MetastoreError(f"asked for one transaction, the server opened {len(ids)}: {ids}")
        return int(ids[0])

    def get_open_txns(self) -> OpenTxns:
        """See :meth:`MetastoreClient.get_open_txns`."""
        answer = self._call("get_open_txns_info", repeat=True)
        return OpenTxns(answer.txn_high_water_mark, tuple(txn_info(txn) for txn in answer.open_txns))

    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        """See :meth:`MetastoreClient.heartbeat_txn_range`."""
        request = ttypes.HeartbeatTxnRangeRequest(min=first, max=last)
        answer = self._call("heartbeat_txn_range", request, repeat=True)
        return HeartbeatResult(frozenset(answer.aborted), frozenset(answer.nosuch))

    def commit_txn(self, txn_id: int) -> None:
        """See :meth:`MetastoreClient.commit_txn`."""
        # Hive 4 checks for write conflicts only if told so; 2.x and 3.x skip a field they do not know.
        self._call("commit_txn", ttypes.CommitTxnRequest(txnid=txn_id, exclWriteEnabled=False))

    def abort_txn(self, txn_id: int) -> None:
        """See :meth:`MetastoreClient.abort_txn`."""
        self._call("abort_txn", ttypes.AbortTxnRequest(txnid=txn_id), repeat=True)

    def add_dynamic_partitions(
        self,
        txn_id: int,
        database: str,
        table: str,
        partition_names: Sequence[str],
        operation: DataOperationType,
        *,
        write_id: int | None = None,
    ) -> None:
        """See :meth:`MetastoreClient.add_dynamic_partitions`."""
        for name in partition_names:
            check_name(name, f"{database}.{table}")
        for batch in _batches(list(partition_names), REGISTER_PARTITIONS_BATCH):
            fields = {
                "txnid": txn_id,
                "dbname": database.lower(),
                "tablename": table.lower(),
                "partitionnames": list(batch),
                "operationType": int(operation),
            }
            if self.capabilities().has_write_ids:
                request = ttypes.AddDynamicPartitions3(writeid=write_id, **fields)
                self._call("add_dynamic_partitions", request, service=Metastore3, repeat=True)
            else:
                request = ttypes.AddDynamicPartitions2(**fields)
                self._call("add_dynamic_partitions", request, service=Metastore2, repeat=True)

    # -- write ids -----------------------------------------------------------------------------------------
    def allocate_write_id(self, txn_id: int, database: str, table: str) -> int:
        """See :meth:`MetastoreClient.allocate_write_id`.

        For a transaction that is not open the server has no declared error: it hangs up (3.1) or fails (4.x).
        """
        self._require_write_ids("allocate_table_write_ids")
        request = ttypes.AllocateTableWriteIdsRequest(
            dbName=database.lower(), tableName=table.lower(), txnIds=[txn_id]
        )
        try:
            answer = self._call("allocate_table_write_ids", request, service=Metastore3)
        except (NoSuchTxnError, TxnAbortedError):
            raise
        except MetastoreError as error:
            self._require_open(txn_id, error)
            answer = self._call("allocate_table_write_ids", request, service=Metastore3, repeat=True)
        ids = {pair.txnId: pair.writeId for pair in answer.txnToWriteIds}
        if set(ids) != {txn_id}:
            raise MetastoreError(f"asked for a write id of transaction {txn_id}, the server answered {ids}")
        return int(ids[txn_id])

    def get_valid_write_ids(
        self, full_names: Sequence[str], valid_txn_list: ValidTxnList
    ) -> dict[str, ValidWriteIdList]:
        """See :meth:`MetastoreClient.get_valid_write_ids`."""
        self._require_write_ids("get_valid_write_ids")
        names = sorted({name.lower() for name in full_names})
        for name in names:
            if not all(name.partition(".")):
                raise InvalidRequestError(f"get_valid_write_ids: expected database.table, found {name!r}")
        if not names:
            return {}
        request = ttypes.GetValidWriteIdsRequest(
            fullTableNames=names, validTxnList=valid_txn_list.to_write_id_text()
        )
        answer = self._call("get_valid_write_ids", request, service=Metastore3, repeat=True)
        found = {raw.fullTableName: valid_write_ids_of(raw) for raw in answer.tblValidWriteIds}
        if set(found) != set(names):
            raise MetastoreError(f"asked for the valid write ids of {names}, the server told {sorted(found)}")
        return found

    def add_write_notifications(self, notifications: Sequence[WriteNotification]) -> None:
        """See :meth:`MetastoreClient.add_write_notifications`."""
        if not self.capabilities().has_write_notifications:
            raise UnsupportedByServerError("the server does not take the names of written files")
        by_table: dict[tuple[str, str], list[WriteNotification]] = {}
        for notification in notifications:
            where = (notification.database.lower(), notification.table.lower())
            by_table.setdefault(where, []).append(notification)
        for (database, table), of_table in by_table.items():
            for batch in _batches(of_table, NOTIFICATIONS_BATCH):
                request = ttypes.WriteNotificationLogBatchRequest(
                    catalog=_CATALOG,
                    db=database,
                    table=table,
                    requestList=[write_notification_request(notification) for notification in batch],
                )
                # Not repeated: a server may note the files a second time.
                self._call("add_write_notification_log_in_batch", request, service=Metastore4)

    def _require_write_ids(self, call: str) -> None:
        if not self.capabilities().has_write_ids:
            raise UnsupportedByServerError(f"the server has no write ids: {call}")

    def _require_open(self, txn_id: int, failure: MetastoreError) -> None:
        """Raise what a failure of a call means if the transaction is not open (any more)."""
        state = self.heartbeat_txn_range(txn_id, txn_id)
        if txn_id in state.aborted:
            raise TxnAbortedError(f"transaction {txn_id} is aborted: {failure}") from failure
        if txn_id in state.nosuch:
            raise NoSuchTxnError(
                f"transaction {txn_id} never existed, is committed, or was aborted and removed: {failure}"
            ) from failure

    # -- locks ---------------------------------------------------------------------------------------------
    def lock(self, request: LockRequest) -> LockResponse:
        """See :meth:`MetastoreClient.lock`."""
        if not request.components:
            raise InvalidRequestError("a lock request without components")
        if (
            any(component.type is LockType.EXCL_WRITE for component in request.components)
            and not self.capabilities().has_exclusive_write_lock
        ):
            raise UnsupportedByServerError("the server has no exclusive write lock")
        sent = ttypes.LockRequest(
            component=[thrift_component(component) for component in request.components],
            txnid=request.txn_id,
            user=safe_text(request.user),
            hostname=safe_text(request.hostname),
            agentInfo=safe_text(request.agent_info),
        )
        return lock_response(self._call("lock", sent))

    def check_lock(self, lock_id: int, txn_id: int) -> LockResponse:
        """See :meth:`MetastoreClient.check_lock`."""
        request = ttypes.CheckLockRequest(lockid=lock_id, txnid=txn_id)
        return lock_response(self._call("check_lock", request, repeat=True))

    def unlock(self, lock_id: int) -> None:
        """See :meth:`MetastoreClient.unlock`."""
        self._call("unlock", ttypes.UnlockRequest(lockid=lock_id), repeat=True)

    def show_locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """See :meth:`MetastoreClient.show_locks`."""
        request = ttypes.ShowLocksRequest(
            dbname=None if database is None else database.lower(),
            tablename=None if table is None else table.lower(),
        )
        return [lock_info(lock) for lock in self._call("show_locks", request, repeat=True).locks or ()]

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

    # -- one call ------------------------------------------------------------------------------------------
    def _introduce(self, connection: Connection) -> None:
        """Tell a server who we are; a second time on one connection makes it hang up."""
        if not self.config.sets_user:
            return
        try:
            _exchange(connection, Metastore, "set_ugi", (self.config.user, []))
        except _UnusableConnection as unusable:
            raise unusable.error from unusable.__cause__

    def _call(self, name: str, *arguments: Any, service: Any = Metastore, repeat: bool = False) -> Any:
        """Make one call.

        Args:
            name: the call in the interface description.
            arguments: as there.
            service: the generated module that holds the call.
            repeat: whether doing it twice does no harm, so that it is repeated after the line broke.
        """
        for argument in arguments:
            check_argument(argument, name)
        tries_left = self.config.failure_retries if repeat else 0
        broken: MetastoreUnavailableError | None = None
        while True:
            try:
                connection = self._pool.get()
            except MetastoreUnavailableError as error:
                raise broken or error from error  # what was sent before may have taken effect
            try:
                return _exchange(connection, service, name, arguments)
            except MetastoreUnavailableError as error:
                self._pool.discard(connection)
                if tries_left == 0:
                    raise
                tries_left -= 1
                broken = error
            except _UnusableConnection as unusable:
                self._pool.discard(connection)
                raise unusable.error from unusable.__cause__
            except MetastoreError:
                raise
            except BaseException:  # such as an interrupt: the answer is still on its way
                self._pool.discard(connection)
                raise


class _UnusableConnection(Exception):
    """Carries an error after which the connection cannot be used any more."""

    def __init__(self, error: MetastoreError) -> None:
        super().__init__(str(error))
        self.error = error


def _exchange(connection: Connection, service: Any, name: str, arguments: Sequence[Any]) -> Any:
    """Send a request, read the answer and translate errors."""
    call = getattr(service.Client(connection.protocol), name)
    try:
        return call(*arguments)
    except MetastoreUnavailableError:  # from the transport: what was said does not count
        raise
    except (TTransportException, OSError, EOFError) as error:
        raise MetastoreUnavailableError(
            f"{name}: the connection to {connection.address} broke before the answer came "
            f"({error}); the call may have taken effect",
            outcome_unknown=True,
        ) from error
    except TApplicationException as error:
        raise _application_error(error, name, connection) from error
    except tuple(_ERRORS) as error:
        translated = _ERRORS[type(error)]
        if translated is MetastoreError and name in _REQUESTS_WITH_CONTENTS:
            translated = InvalidRequestError
        raise translated(f"{name}: {error.message}") from error
    except Exception as error:
        raise _UnusableConnection(
            MetastoreError(f"{name}: request or answer could not be encoded: {error}")
        ) from error


def _application_error(error: TApplicationException, name: str, connection: Connection) -> Exception:
    """What a server says when it has no declared exception for it."""
    if error.type == TApplicationException.UNKNOWN_METHOD:
        return UnsupportedByServerError(f"the server {connection.address} does not know the call {name}")
    failure = MetastoreError(f"{name}: the server {connection.address} failed: {error.message}")
    # An internal error leaves the line in order; after any other, such as a request that it could not read,
    # the
    # server hangs up.
    return failure if error.type == TApplicationException.INTERNAL_ERROR else _UnusableConnection(failure)


def _stored_as_sent() -> Any:
    """Asking the server not to compute statistics makes it store exactly what we send."""
    return ttypes.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
