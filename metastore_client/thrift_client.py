"""The metastore over Thrift: :class:`ThriftMetastoreClient`. The only module that sees generated types.

Which calls are repeated when the line breaks is the heart of it. Reads, heartbeats, ``check_lock``,
``unlock``, registrations, creation of partitions and aborts may be, since doing them twice changes nothing;
``open_txn`` may be, since a transaction that nobody uses is reaped. ``lock`` never: asked twice in one
transaction, a 2.3 server grants the second one past the queue. ``commit_txn`` is left to the caller, who
knows how to find out what became of it.

Source: Hive's hive_metastore.thrift; what servers answer was tried on 2.3.10 (tests/contract,
    tests/integration).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from thrift.Thrift import TApplicationException, TException, TType
from thrift.transport.TTransport import TTransportException

from metastore_client._thrift.gen import Metastore, Metastore2, Metastore3
from metastore_client._thrift.gen import ttypes as generated_types
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
    ColumnInfo,
    CompactionInfo,
    CompactionType,
    DataOperationType,
    HeartbeatResult,
    LockComponent,
    LockInfo,
    LockRequest,
    LockResponse,
    LockState,
    LockType,
    OpenTxns,
    PartitionInfo,
    TableInfo,
    TxnInfo,
    TxnState,
)
from metastore_client.partition_name import check_partition_name, make_partition_name
from metastore_client.transport import Connection, ConnectionPool, OpenSocket, open_plain_socket

__all__ = [
    "ADD_PARTITIONS_BATCH",
    "FETCH_PARTITIONS_BATCH",
    "MAX_NAME_LENGTH",
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
MAX_NAME_LENGTH = 128
"""Width of the columns for user, host and agent in the server's database."""
RACE_TRIES = 5

ttypes: Any = generated_types
"""Generated code has no types; what it gives is turned into our own values in this module."""

_COLUMN_STATS_ACCURATE = "COLUMN_STATS_ACCURATE"
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
_REQUESTS_WITH_CONTENTS = ("create_database", "create_table", "add_partitions_req")
"""Calls in which a MetaException, the server's word for anything, is about what we sent."""
_INTEGER_BITS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}

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

    def __init__(self, config: MetastoreConfig, *, open_socket: OpenSocket = open_plain_socket) -> None:
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
                version = self._call("getVersion", repeat=True)
                self._capabilities = Capabilities(version=version, has_write_ids=self._has_catalogs())
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

    def _has_catalogs(self) -> bool:
        """Whether this is Hive 3.0 or newer: 2.3 and 3.1 name the same version, but 2.x has no catalogs."""
        try:
            self._call("get_catalogs", repeat=True)
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
        self._call("create_table", _thrift_table(table, self.config.user))

    def drop_table(self, database: str, table: str, *, delete_data: bool) -> None:
        """See :meth:`MetastoreClient.drop_table`."""
        self._call("drop_table", database.lower(), table.lower(), delete_data)

    def get_table(self, database: str, table: str) -> TableInfo:
        """See :meth:`MetastoreClient.get_table`."""
        return _table_info(self._get_raw_table(database, table))

    def get_partition_names(self, database: str, table: str) -> list[str]:
        """See :meth:`MetastoreClient.get_partition_names`."""
        if not self.get_table(database, table).partition_keys:
            return []
        names = self._call(
            "get_partition_names", database.lower(), table.lower(), _ALL_PARTITIONS, repeat=True
        )
        return sorted(names)

    def get_partitions_by_names(self, database: str, table: str, names: Sequence[str]) -> list[PartitionInfo]:
        """See :meth:`MetastoreClient.get_partitions_by_names`."""
        keys = [key.name for key in self.get_table(database, table).partition_keys]
        found = [
            _partition_info(raw, keys)
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
            wanted.setdefault(_new_partition_name(raw_table, keys, each), _new_partition(raw_table, each))
        return [
            _partition_info(raw, keys)
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
        valid_write_ids: str | None = None,
    ) -> int:
        """See :meth:`MetastoreClient.clear_accurate_statistics`.

        The server has no call for this: what carries the flag is read, changed and written at once. Asking it
        not to compute statistics makes it store exactly what we send.
        """
        context = ttypes.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
        where = (database.lower(), table.lower())
        if partition_names is None:
            raw = self._get_raw_table(database, table)
            if not _pop_accuracy(raw):
                return 0
            self._call("alter_table_with_environment_context", *where, raw, context, repeat=True)
            return 1
        cleared = 0
        for batch in _batches(sorted(set(partition_names)), FETCH_PARTITIONS_BATCH):
            changed = [raw for raw in self._get_raw_partitions(database, table, batch) if _pop_accuracy(raw)]
            if changed:
                self._call("alter_partitions_with_environment_context", *where, changed, context, repeat=True)
            cleared += len(changed)
        return cleared

    def _get_raw_table(self, database: str, table: str) -> Any:
        request = ttypes.GetTableRequest(dbName=database.lower(), tblName=table.lower())
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
            num_txns=1, user=_safe(user), hostname=_safe(hostname), agentInfo=_safe(agent_info)
        )
        ids = self._call("open_txns", request, repeat=True).txn_ids
        if len(ids) != 1:
            raise MetastoreError(f"asked for one transaction, the server opened {len(ids)}: {ids}")
        return int(ids[0])

    def get_open_txns(self) -> OpenTxns:
        """See :meth:`MetastoreClient.get_open_txns`."""
        answer = self._call("get_open_txns_info", repeat=True)
        return OpenTxns(answer.txn_high_water_mark, tuple(_txn_info(txn) for txn in answer.open_txns))

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
            _check_name(name, f"{database}.{table}")
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

    # -- locks ---------------------------------------------------------------------------------------------
    def lock(self, request: LockRequest) -> LockResponse:
        """See :meth:`MetastoreClient.lock`."""
        if not request.components:
            raise InvalidRequestError("a lock request without components")
        sent = ttypes.LockRequest(
            component=[_thrift_component(component) for component in request.components],
            txnid=request.txn_id,
            user=_safe(request.user),
            hostname=_safe(request.hostname),
            agentInfo=_safe(request.agent_info),
        )
        return _lock_response(self._call("lock", sent))

    def check_lock(self, lock_id: int, txn_id: int) -> LockResponse:
        """See :meth:`MetastoreClient.check_lock`."""
        request = ttypes.CheckLockRequest(lockid=lock_id, txnid=txn_id)
        return _lock_response(self._call("check_lock", request, repeat=True))

    def unlock(self, lock_id: int) -> None:
        """See :meth:`MetastoreClient.unlock`."""
        self._call("unlock", ttypes.UnlockRequest(lockid=lock_id), repeat=True)

    def show_locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """See :meth:`MetastoreClient.show_locks`."""
        request = ttypes.ShowLocksRequest(
            dbname=None if database is None else database.lower(),
            tablename=None if table is None else table.lower(),
        )
        return [_lock_info(lock) for lock in self._call("show_locks", request, repeat=True).locks or ()]

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
        return [_compaction_info(each) for each in answer.compacts]

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
            _check_argument(argument, name)
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


# -- checks before anything is sent --------------------------------------------------------------------------


def _check_argument(value: Any, where: str) -> None:
    """Refuse a request with a missing required field or a value of a wrong type.

    Generated code sends such a request half, and the server hangs up on it.
    """
    spec = getattr(value, "thrift_spec", None)
    if spec is None:
        if value is None:
            raise InvalidRequestError(f"{where}: an argument is missing")
        return
    try:
        value.validate()
    except TException as error:
        raise InvalidRequestError(f"{where}: {type(value).__name__}: {error}") from error
    for entry in filter(None, spec):
        field = getattr(value, entry[2])
        if field is not None:
            _check_field(field, entry[1], entry[3], f"{where}: {type(value).__name__}.{entry[2]}")


def _check_field(value: Any, kind: int, details: Any, where: str) -> None:
    """Check one value against its Thrift type; ``details`` is what the generated specification says of it."""
    if kind == TType.STRUCT:
        _check_argument(value, where)
    elif kind == TType.LIST:
        for item in value:
            _check_field(item, details[0], details[1], where)
    elif kind == TType.MAP:
        for key, item in value.items():
            _check_field(key, details[0], details[1], where)
            _check_field(item, details[2], details[3], where)
    elif kind == TType.STRING and not isinstance(value, str):
        raise InvalidRequestError(f"{where} must be a text, not {value!r}")
    elif kind in _INTEGER_BITS:
        limit = 1 << (_INTEGER_BITS[kind] - 1)
        if not isinstance(value, int) or not -limit <= value < limit:
            raise InvalidRequestError(
                f"{where} must be an integer of {_INTEGER_BITS[kind]} bits, not {value!r}"
            )


def _check_name(name: str, where: str) -> None:
    try:
        check_partition_name(name)
    except ValueError as error:
        raise InvalidRequestError(f"{where}: {error}") from error


def _safe(text: str) -> str:
    """Make a user, host or agent text fit: a 2.3 server puts it between quotes, 128 characters at most."""
    if not isinstance(text, str):
        raise InvalidRequestError(f"user, host and agent must be texts, not {text!r}")
    return re.sub(r"['\"\\\x00-\x1f]", "", text)[:MAX_NAME_LENGTH]


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


# -- our values to Thrift and back ---------------------------------------------------------------------------


def _thrift_table(table: TableInfo, user: str) -> Any:
    return ttypes.Table(
        tableName=table.name.lower(),
        dbName=table.database.lower(),
        owner=table.owner or user,
        createTime=int(time.time()),
        lastAccessTime=0,
        retention=0,
        sd=ttypes.StorageDescriptor(
            cols=_fields(table.columns),
            location=table.location or None,
            inputFormat=table.input_format,
            outputFormat=table.output_format,
            compressed=False,
            numBuckets=table.num_buckets,
            serdeInfo=ttypes.SerDeInfo(
                serializationLib=table.serde, parameters={"serialization.format": "1"}
            ),
            bucketCols=[name.lower() for name in table.bucket_columns],
            sortCols=[ttypes.Order(col=name.lower(), order=1) for name in table.sort_columns],
            parameters={},
            skewedInfo=ttypes.SkewedInfo(
                skewedColNames=list(table.skewed_columns),
                skewedColValues=[],
                skewedColValueLocationMaps={},
            ),
            storedAsSubDirectories=False,
        ),
        partitionKeys=_fields(table.partition_keys),
        parameters=dict(table.parameters),
        tableType=table.table_type,
    )


def _fields(columns: Sequence[ColumnInfo]) -> list[Any]:
    return [ttypes.FieldSchema(name=c.name.lower(), type=c.type, comment=c.comment) for c in columns]


def _columns(fields: Sequence[Any] | None) -> tuple[ColumnInfo, ...]:
    return tuple(ColumnInfo(f.name.lower(), f.type, f.comment or "") for f in fields or ())


def _table_info(raw: Any) -> TableInfo:
    storage = raw.sd
    return TableInfo(
        database=raw.dbName,
        name=raw.tableName,
        columns=_columns(storage.cols),
        partition_keys=_columns(raw.partitionKeys),
        location=storage.location or "",
        table_type=raw.tableType or "",
        num_buckets=-1 if storage.numBuckets is None else storage.numBuckets,
        bucket_columns=tuple(name.lower() for name in storage.bucketCols or ()),
        sort_columns=tuple(order.col.lower() for order in storage.sortCols or ()),
        skewed_columns=() if storage.skewedInfo is None else tuple(storage.skewedInfo.skewedColNames or ()),
        input_format=storage.inputFormat or "",
        output_format=storage.outputFormat or "",
        serde="" if storage.serdeInfo is None else storage.serdeInfo.serializationLib or "",
        parameters=dict(raw.parameters or {}),
        owner=raw.owner or "",
    )


def _new_partition_name(raw_table: Any, keys: Sequence[str], values: Sequence[str]) -> str:
    where = f"{raw_table.dbName}.{raw_table.tableName}"
    if len(values) != len(keys) or not keys or not all(values):
        raise InvalidRequestError(
            f"{where}: a partition needs one text per key, not empty: "
            f"keys {list(keys)}, values {list(values)}"
        )
    name = make_partition_name(keys, values)
    _check_name(name, where)
    return name


def _new_partition(raw_table: Any, values: Sequence[str]) -> Any:
    """A partition stored like its table; location and statistics are for the server to set."""
    storage = raw_table.sd
    return ttypes.Partition(
        values=list(values),
        dbName=raw_table.dbName,
        tableName=raw_table.tableName,
        createTime=int(time.time()),
        lastAccessTime=0,
        sd=ttypes.StorageDescriptor(
            **{entry[2]: getattr(storage, entry[2]) for entry in filter(None, storage.thrift_spec)}
            | {"location": None}
        ),
        parameters={},
    )


def _pop_accuracy(raw: Any) -> bool:
    """Take the flag that statistics are right off a table or partition; whether it was there."""
    return (raw.parameters or {}).pop(_COLUMN_STATS_ACCURATE, None) is not None


def _partition_info(raw: Any, keys: Sequence[str]) -> PartitionInfo:
    return PartitionInfo(
        database=raw.dbName,
        table=raw.tableName,
        values=tuple(raw.values),
        name=make_partition_name(keys, raw.values),
        location=raw.sd.location or "",
        parameters=dict(raw.parameters or {}),
    )


def _txn_info(raw: Any) -> TxnInfo:
    return TxnInfo(
        id=raw.id,
        state=TxnState(raw.state),
        user=raw.user,
        hostname=raw.hostname,
        agent_info=raw.agentInfo or "",
        started_time=raw.startedTime,
        last_heartbeat_time=raw.lastHeartbeatTime,
    )


def _thrift_component(component: LockComponent) -> Any:
    if component.partition is not None:
        _check_name(component.partition, f"{component.database}.{component.table}")
    return ttypes.LockComponent(
        type=int(component.type),
        level=int(component.level),
        dbname=component.database.lower(),
        tablename=None if component.table is None else component.table.lower(),
        partitionname=component.partition,
        operationType=int(component.operation),
        isTransactional=component.is_transactional,
        isDynamicPartitionWrite=component.is_dynamic_partition_write,
    )


def _lock_response(raw: Any) -> LockResponse:
    return LockResponse(raw.lockid, LockState(raw.state), raw.errorMessage or "")


def _lock_info(raw: Any) -> LockInfo:
    return LockInfo(
        lock_id=raw.lockid,
        database=raw.dbname,
        table=raw.tablename,
        partition=raw.partname,
        state=LockState(raw.state),
        type=LockType(raw.type),
        txn_id=raw.txnid or None,
        user=raw.user,
        hostname=raw.hostname,
        agent_info=raw.agentInfo or "",
        blocked_by=raw.blockedByExtId or None,
    )


def _compaction_info(raw: Any) -> CompactionInfo:
    return CompactionInfo(
        database=raw.dbname,
        table=raw.tablename,
        partition=raw.partitionname,
        type=CompactionType(raw.type),
        state=raw.state,
        id=raw.id,
        worker_id=raw.workerid or "",
        start_time=raw.start,
        run_as=raw.runAs or "",
        highest_write_id=raw.hightestTxnId,
    )
