"""Converts the client's values to Thrift structures and back.

Generated code has no types. Only this module turns a server's answers into the values of
:mod:`metastore_client.model`.
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
    OpenTxns,
    PartitionInfo,
    TableInfo,
    TxnInfo,
    TxnState,
    WriteNotification,
)
from metastore_client.partition_name import check_name, make_partition_name, parse_partition_name
from metastore_client.remote.thrift_answers import Answer
from metastore_client.valid_ids import ValidWriteIdList, marked

_MAX_NAME_LENGTH = 128
"""Width of the columns for user, host and agent in the server's database."""

CATALOG = "hive"
"""The catalog of all tables. Catalogs exist from 3.0 on."""

ttypes: Any = generated_types
"""The generated structures."""


def safe_text(text: str) -> str:
    """Adapt the name of a user, host or agent: a 2.3 server quotes it and stores at most 128 characters."""
    if not isinstance(text, str):
        raise InvalidRequestError(f"user, host and agent must be strings, got {text!r}")
    return re.sub(r"['\"\\\x00-\x1f]", "", text)[:_MAX_NAME_LENGTH]


def thrift_table(table: TableInfo, user: str) -> Any:
    """Return the structure of a table to create. ``user`` owns it unless the table names an owner."""
    return ttypes.Table(
        tableName=table.name.lower(),
        dbName=table.database.lower(),
        owner=table.owner or user,
        createTime=int(time.time()),
        lastAccessTime=0,
        retention=0,
        sd=ttypes.StorageDescriptor(
            cols=thrift_columns(table.columns),
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
        partitionKeys=thrift_columns(table.partition_keys),
        parameters=dict(table.parameters),
        tableType=table.table_type,
    )


def thrift_columns(columns: Sequence[ColumnInfo]) -> list[Any]:
    """Return the structures of columns. A column without a comment has none, as in Hive's own SQL."""
    return [ttypes.FieldSchema(name=c.name.lower(), type=c.type, comment=c.comment or None) for c in columns]


def _columns(fields: Sequence[Answer]) -> tuple[ColumnInfo, ...]:
    return tuple(
        ColumnInfo(f["name"].text().lower(), f["type"].text(), f["comment"].text_or_empty()) for f in fields
    )


def table_info(answer: Answer, database: str, table: str) -> TableInfo:
    """Return a table as the server reports it.

    Its name must be the requested one, in lower case. Although the interface description requires no field,
    every server reports columns, partition keys, buckets and properties. Without one of them, the table would
    look like another kind of table, so the answer is refused.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    storage = answer["sd"]
    skewed, serde = storage["skewedInfo"], storage["serdeInfo"]
    return TableInfo(
        database=answer["dbName"].one_of([database]),
        name=answer["tableName"].one_of([table]),
        columns=_columns(storage["cols"].elements()),
        partition_keys=_columns(answer["partitionKeys"].elements()),
        location=storage["location"].text_or_empty(),
        table_type=answer["tableType"].text_or_empty(),
        num_buckets=storage["numBuckets"].number(),
        bucket_columns=tuple(each.text().lower() for each in storage["bucketCols"].elements_or_none()),
        sort_columns=tuple(each["col"].text().lower() for each in storage["sortCols"].elements_or_none()),
        skewed_columns=()
        if skewed.is_absent
        else tuple(each.text() for each in skewed["skewedColNames"].elements_or_none()),
        input_format=storage["inputFormat"].text_or_empty(),
        output_format=storage["outputFormat"].text_or_empty(),
        serde="" if serde.is_absent else serde["serializationLib"].text_or_empty(),
        parameters=answer["parameters"].parameters(),
        owner=answer["owner"].text_or_empty(),
        created_seconds=answer["createTime"].optional(Answer.number) or 0,
        sent=answer.struct(),
    )


def new_partition_name(table: TableInfo, values: Sequence[str]) -> str:
    """Return the escaped name of a partition to create.

    Raises:
        InvalidRequestError: If the values do not match the keys, or if the server would refuse the name.
    """
    keys, where = [key.name for key in table.partition_keys], table.full_name
    if len(values) != len(keys) or not keys or not all(values):
        raise InvalidRequestError(
            f"{where}: a partition needs one non-empty string per key: "
            f"keys {list(keys)}, got values {list(values)}"
        )
    name = make_partition_name(keys, values)
    check_name(name, where)
    return name


def new_partition(table: TableInfo, values: Sequence[str]) -> Any:
    """Return a partition stored like its table, which a server has sent.

    The server sets location and statistics.
    """
    sent: Any = table.sent
    storage = sent.sd
    return ttypes.Partition(
        values=list(values),
        dbName=table.database,
        tableName=table.name,
        createTime=int(time.time()),
        lastAccessTime=0,
        sd=ttypes.StorageDescriptor(
            **{entry[2]: getattr(storage, entry[2]) for entry in filter(None, storage.thrift_spec)}
            | {"location": None}
        ),
        parameters={},
    )


def partition_info(answer: Answer, table: TableInfo) -> PartitionInfo:
    """Return a partition of a table as the server reports it.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    keys = [key.name for key in table.partition_keys]
    values = answer["values"]
    if len(values.elements()) != len(keys):
        values.refuse(f"one value for each partition key of {table.full_name}: {', '.join(keys)}")
    storage = answer["sd"]
    return PartitionInfo(
        database=answer["dbName"].one_of([table.database]),
        table=answer["tableName"].one_of([table.name]),
        values=tuple(values.texts()),
        name=make_partition_name(keys, values.texts()),
        location=storage["location"].text(),
        parameters=answer["parameters"].parameters(),
        num_buckets=storage["numBuckets"].number(),
        bucket_columns=tuple(each.text() for each in storage["bucketCols"].elements_or_none()),
    )


def partition_names(answer: Answer) -> list[str]:
    """Return the names of partitions.

    Raises:
        InvalidAnswerError: If one does not have the form of a partition name.
    """
    for each in answer.elements():
        try:
            parse_partition_name(each.text())
        except ValueError:
            each.refuse("a partition name, key=value/key=value")
    return answer.texts()


def txn_info(answer: Answer) -> TxnInfo:
    """Return a transaction as the server reports it. It does not report committed ones.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    return TxnInfo(
        id=answer["id"].id(),
        state=answer["state"].member(TxnState, (TxnState.ABORTED, TxnState.OPEN)),
        user=answer["user"].text(),
        hostname=answer["hostname"].text(),
        agent_info=answer["agentInfo"].text_or_empty(),
        started_time=answer["startedTime"].optional(Answer.number),
        last_heartbeat_time=answer["lastHeartbeatTime"].optional(Answer.number),
    )


def open_txns_without_users(answer: Answer) -> OpenTxns:
    """Return the transactions of an answer that contains only their ids and states.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    ids = [each.id() for each in answer["open_txns"].elements()]
    aborted = marked(ids, answer["abortedBits"].octets())
    return OpenTxns(
        answer["txn_high_water_mark"].number_from(0),
        tuple(TxnInfo(id, TxnState.ABORTED if id in aborted else TxnState.OPEN, "", "") for id in ids),
    )


def thrift_component(component: LockComponent) -> Any:
    """Return the structure of one resource of a lock request.

    Raises:
        InvalidRequestError: If Hive would not write the name of the partition.
    """
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


def lock_response(answer: Answer, lock_id: int | None) -> LockResponse:
    """Return the answer to ``lock`` or ``check_lock``.

    Args:
        answer: the server's answer.
        lock_id: the lock that was queried. If None, it is a new one.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    return LockResponse(
        answer["lockid"].number_from(lock_id or 1, lock_id),
        answer["state"].member(LockState),
        answer["errorMessage"].text_or_empty(),
    )


def lock_info(answer: Answer) -> LockInfo:
    """Return an entry of ``show_locks``.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    return LockInfo(
        lock_id=answer["lockid"].id(),
        database=answer["dbname"].text(),
        table=answer["tablename"].optional(Answer.text),
        partition=answer["partname"].optional(Answer.text),
        state=answer["state"].member(LockState),
        type=answer["type"].member(LockType),
        txn_id=answer["txnid"].optional(Answer.number) or None,
        user=answer["user"].text(),
        hostname=answer["hostname"].text(),
        agent_info=answer["agentInfo"].text_or_empty(),
        blocked_by=answer["blockedByExtId"].optional(Answer.number) or None,
    )


def compaction_info(answer: Answer) -> CompactionInfo:
    """Return an entry of ``show_compact``.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    return CompactionInfo(
        database=answer["dbname"].text(),
        table=answer["tablename"].text(),
        partition=answer["partitionname"].optional(Answer.text),
        type=answer["type"].member(CompactionType),
        state=answer["state"].text(),
        id=answer["id"].optional(Answer.number),
        worker_id=answer["workerid"].text_or_empty(),
        start_time=answer["start"].optional(Answer.number),
        run_as=answer["runAs"].text_or_empty(),
        highest_write_id=answer["hightestTxnId"].optional(Answer.number),
        end_time=answer["endTime"].optional(Answer.number),
        error=answer["errorMessage"].text_or_empty(),
        enqueue_time=answer["enqueueTime"].optional(Answer.number),
        pool=answer["poolName"].text_or_empty(),
        txn_id=answer["txnId"].optional(Answer.number),
    )


def valid_write_ids_of(answer: Answer, names: Sequence[str]) -> ValidWriteIdList:
    """Return the server's answer for one of the requested tables.

    Raises:
        InvalidAnswerError: If the answer lacks a field or contains an invalid value.
    """
    return ValidWriteIdList.from_bits(
        answer["fullTableName"].one_of(names),
        answer["writeIdHighWaterMark"].number_from(0),
        [each.id() for each in answer["invalidWriteIds"].elements()],
        answer["minOpenWriteId"].optional(Answer.id),
        answer["abortedBits"].octets(),
    )


def write_notification_request(notification: WriteNotification) -> Any:
    """Return the structure of a notification as Hive fills it, except that checksums stay empty.

    Replication then copies without comparing, and does not find a file that the change manager has moved.
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
