"""Converts our values to Thrift structures and back.

Generated code has no types; its structures become the values of :mod:`metastore_client.model` here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from metastore_client._thrift.gen import ttypes as generated_types
from metastore_client.errors import InvalidRequestError
from metastore_client.model import (
    ColumnInfo,
    CompactionInfo,
    CompactionType,
    LockComponent,
    LockInfo,
    LockResponse,
    LockState,
    LockType,
    PartitionInfo,
    TableInfo,
    TxnInfo,
    TxnState,
    WriteNotification,
)
from metastore_client.partition_name import check_name, make_partition_name
from metastore_client.valid_ids import ValidWriteIdList

__all__ = [
    "CATALOG",
    "compaction_info",
    "lock_info",
    "lock_response",
    "new_partition",
    "new_partition_name",
    "partition_info",
    "safe_text",
    "table_info",
    "thrift_component",
    "thrift_table",
    "ttypes",
    "txn_info",
    "valid_write_ids_of",
    "write_notification_request",
]

_MAX_NAME_LENGTH = 128
"""Width of the columns for user, host and agent in the server's database."""

CATALOG = "hive"
"""The catalog of all tables; catalogs exist from 3.0 on."""

ttypes: Any = generated_types
"""The generated structures."""


def safe_text(text: str) -> str:
    """Adapt a user, host or agent text: a 2.3 server puts it between quotes, 128 characters at most."""
    if not isinstance(text, str):
        raise InvalidRequestError(f"user, host and agent must be texts, not {text!r}")
    return re.sub(r"['\"\\\x00-\x1f]", "", text)[:_MAX_NAME_LENGTH]


def thrift_table(table: TableInfo, user: str) -> Any:
    """A table to create; ``user`` owns it unless it names an owner."""
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


def table_info(raw: Any) -> TableInfo:
    """A table as the server reports it."""
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
        sent=raw,
    )


def new_partition_name(raw_table: Any, keys: Sequence[str], values: Sequence[str]) -> str:
    """The escaped name of a partition to create. Raises InvalidRequestError."""
    where = f"{raw_table.dbName}.{raw_table.tableName}"
    if len(values) != len(keys) or not keys or not all(values):
        raise InvalidRequestError(
            f"{where}: a partition needs one text per key, not empty: "
            f"keys {list(keys)}, values {list(values)}"
        )
    name = make_partition_name(keys, values)
    check_name(name, where)
    return name


def new_partition(raw_table: Any, values: Sequence[str]) -> Any:
    """A partition stored like its table; the server sets location and statistics."""
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


def partition_info(raw: Any, keys: Sequence[str]) -> PartitionInfo:
    """A partition as the server reports it; ``keys`` are the names of its table's partition columns."""
    return PartitionInfo(
        database=raw.dbName,
        table=raw.tableName,
        values=tuple(raw.values),
        name=make_partition_name(keys, raw.values),
        location=raw.sd.location or "",
        parameters=dict(raw.parameters or {}),
        num_buckets=raw.sd.numBuckets,
        bucket_columns=tuple(raw.sd.bucketCols or ()),
    )


def txn_info(raw: Any) -> TxnInfo:
    """A transaction as the server reports it."""
    return TxnInfo(
        id=raw.id,
        state=TxnState(raw.state),
        user=raw.user,
        hostname=raw.hostname,
        agent_info=raw.agentInfo or "",
        started_time=raw.startedTime,
        last_heartbeat_time=raw.lastHeartbeatTime,
    )


def thrift_component(component: LockComponent) -> Any:
    """One resource of a lock request. Raises InvalidRequestError."""
    if component.partition is not None:
        check_name(component.partition, f"{component.database}.{component.table}")
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


def lock_response(raw: Any) -> LockResponse:
    """The answer to ``lock`` and ``check_lock``."""
    return LockResponse(raw.lockid, LockState(raw.state), raw.errorMessage or "")


def lock_info(raw: Any) -> LockInfo:
    """One entry of ``show_locks``."""
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


def compaction_info(raw: Any) -> CompactionInfo:
    """One entry of ``show_compact``."""
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
        end_time=raw.endTime,
        error=raw.errorMessage or "",
    )


def valid_write_ids_of(raw: Any) -> ValidWriteIdList:
    """The server's answer for one table."""
    return ValidWriteIdList.from_bits(
        raw.fullTableName,
        raw.writeIdHighWaterMark,
        raw.invalidWriteIds,
        raw.minOpenWriteId,
        raw.abortedBits,
    )


def write_notification_request(notification: WriteNotification) -> Any:
    """A notification as Hive fills it, but for checksums, which stay empty.

    Replication then copies without comparing, and does not find a file that the change manager has taken.
    """
    return ttypes.WriteNotificationLogRequest(
        txnId=notification.txn_id,
        writeId=notification.write_id,
        db=notification.database.lower(),
        table=notification.table.lower(),
        fileInfo=ttypes.InsertEventRequestData(
            replace=True,
            filesAdded=[path for path, _ in notification.files],
            filesAddedChecksum=["" for _ in notification.files],
            subDirectoryList=[directory for _, directory in notification.files],
        ),
        partitionVals=list(notification.partition_values),
    )
