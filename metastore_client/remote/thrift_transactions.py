"""Transactions, their locks and their write ids, in a real metastore.

The main decision is which calls are repeated when the connection breaks. Heartbeats, ``check_lock``,
``unlock``, registrations and aborts are repeated, since doing them twice changes nothing. ``open_txn`` is
repeated, since an unused transaction is reaped. ``lock`` is never repeated: if a transaction sends it twice,
a 2.3 server grants the second request ahead of the queue. ``commit_txn`` is left to the caller, which can
find out its outcome.

In some calls (write ids), a 3.1 server hangs up if the transaction is not open. The client then requests the
transaction's state on a new connection. 4.1 and 4.2 servers hang up when they list transactions while an id
is missing. The client then asks for the ids alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from metastore_client._thrift.gen import Metastore2, Metastore3, Metastore4
from metastore_client.errors import (
    InvalidRequestError,
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchTxnError,
    TxnAbortedError,
    UnsupportedByServerError,
)
from metastore_client.model import (
    CompactionType,
    DataOperationType,
    HeartbeatResult,
    LockInfo,
    LockRequest,
    LockResponse,
    LockType,
    OpenTxns,
    WriteNotification,
)
from metastore_client.partition_name import check_name
from metastore_client.remote.thrift_calls import ThriftCalls, batches
from metastore_client.remote.thrift_values import (
    CATALOG,
    lock_info,
    lock_response,
    open_txns_without_users,
    safe_text,
    thrift_component,
    ttypes,
    txn_info,
    valid_write_ids_of,
    write_notification_request,
)
from metastore_client.valid_ids import ValidTxnList, ValidWriteIdList

REGISTER_PARTITIONS_BATCH = 1_000
"""Number of partitions per ``add_dynamic_partitions``."""
NOTIFICATIONS_BATCH = 100
"""Number of partitions per ``add_write_notification_log_in_batch``. Each may name many files."""


class TransactionCalls(ThriftCalls):
    """The part of a :class:`~metastore_client.client.MetastoreClient` with the calls about transactions."""

    # -- transactions --------------------------------------------------------------------------------------
    def open_txn(
        self, user: str, hostname: str, agent_info: str, *, compaction: CompactionType | None = None
    ) -> int:
        """Open one transaction and return its id. See :meth:`MetastoreClient.open_txn`."""
        request = ttypes.OpenTxnRequest(
            num_txns=1,
            user=safe_text(user),
            hostname=safe_text(hostname),
            agentInfo=safe_text(agent_info),
            txn_type=_txn_type(compaction),
        )
        ids = self._call("open_txns", request, repeat=True)["txn_ids"]
        if len(ids.elements()) != 1:
            ids.refuse("the id of one transaction")
        return ids.elements()[0].id()

    def get_open_txns(self) -> OpenTxns:
        """Return all transactions that are open, or aborted and not yet cleaned.

        See :meth:`MetastoreClient.get_open_txns`.
        """
        try:
            answer = self._call("get_open_txns_info", repeat=True)
        except MetastoreUnavailableError as error:
            if not error.outcome_unknown or not self.capabilities().has_write_ids:
                raise
            # If an id below one of the last second is missing, 4.1 and 4.2 take it for open. They have no
            # user for it, and hang up, as an answer without a user is invalid. The list of ids has no users.
            return open_txns_without_users(self._call("get_open_txns", service=Metastore3, repeat=True))
        return OpenTxns(
            answer["txn_high_water_mark"].number_from(0), tuple(map(txn_info, answer["open_txns"].elements()))
        )

    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        """Send a heartbeat for the transactions first..last, both included.

        See :meth:`MetastoreClient.heartbeat_txn_range`.
        """
        request = ttypes.HeartbeatTxnRangeRequest(min=first, max=last)
        answer = self._call("heartbeat_txn_range", request, repeat=True)
        aborted, no_such = (
            frozenset(id.number_from(first, last) for id in answer[field].elements())
            for field in ("aborted", "nosuch")
        )
        return HeartbeatResult(aborted, no_such)

    def commit_txn(self, txn_id: int) -> None:
        """Commit a transaction. The client never repeats this call.

        See :meth:`MetastoreClient.commit_txn`.
        """
        # Hive 4 checks for write conflicts only if this field is set; 2.x and 3.x skip unknown fields.
        self._call("commit_txn", ttypes.CommitTxnRequest(txnid=txn_id, exclWriteEnabled=False))

    def abort_txn(self, txn_id: int) -> None:
        """Abort a transaction. Aborting an aborted transaction succeeds.

        See :meth:`MetastoreClient.abort_txn`.
        """
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
        """Register partitions (escaped names) as written by the transaction. They are sent in batches.

        See :meth:`MetastoreClient.add_dynamic_partitions`.
        """
        for name in partition_names:
            check_name(name, f"{database}.{table}")
        for batch in batches(list(partition_names), REGISTER_PARTITIONS_BATCH):
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
        """Return the transaction's write id for a table. Repeated calls return the same id.

        See :meth:`MetastoreClient.allocate_write_id`.

        The server declares no error for a transaction that is not open: it hangs up (3.1) or fails (4.x).
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
        pairs = answer["txnToWriteIds"]
        if [pair["txnId"].id() for pair in pairs.elements()] != [txn_id]:
            pairs.refuse(f"one write id, of transaction {txn_id}")
        return pairs.elements()[0]["writeId"].id()

    def get_valid_write_ids(
        self, full_names: Sequence[str], valid_txn_list: ValidTxnList
    ) -> dict[str, ValidWriteIdList]:
        """Return the write ids of tables (``database.table``) that belong to the transactions of a snapshot.

        See :meth:`MetastoreClient.get_valid_write_ids`.
        """
        self._require_write_ids("get_valid_write_ids")
        names = sorted({name.lower() for name in full_names})
        for name in names:
            if not all(name.partition(".")):
                raise InvalidRequestError(f"get_valid_write_ids: expected database.table, got {name!r}")
        if not names:
            return {}
        request = ttypes.GetValidWriteIdsRequest(
            fullTableNames=names, validTxnList=valid_txn_list.to_write_id_text()
        )
        answer = self._call("get_valid_write_ids", request, service=Metastore3, repeat=True)
        tables = answer["tblValidWriteIds"]
        found = {ids.table: ids for ids in (valid_write_ids_of(each, names) for each in tables.elements())}
        if len(found) != len(names):
            tables.refuse(f"the valid write ids of {', '.join(names)}")
        return found

    def keep_files(self, txn_id: int, full_names: Sequence[str]) -> None:
        """Prevent the cleaner from removing any file of the tables until the transaction ends.

        See :meth:`MetastoreClient.keep_files`.
        """
        if not self.capabilities().has_min_history:
            raise UnsupportedByServerError(
                "the server does not accept the list of tables that a transaction reads"
            )
        # The cleaner of 4.2.1 handles only compactions below the lowest of these ids. Hive's own client sends
        # the first id beyond its snapshot, which does not hold back compactions within the snapshot itself; 1
        # does.
        lowest = {name.lower(): 1 for name in full_names}
        self._call("add_write_ids_to_min_history", txn_id, lowest, service=Metastore4, repeat=True)

    def add_write_notifications(self, notifications: Sequence[WriteNotification]) -> None:
        """Report to the server which files a transaction wrote, before it commits.

        See :meth:`MetastoreClient.add_write_notifications`.
        """
        if not self.capabilities().has_write_notifications:
            raise UnsupportedByServerError("the server does not accept notifications of written files")
        by_table: dict[tuple[str, str], list[WriteNotification]] = {}
        for notification in notifications:
            where = (notification.database.lower(), notification.table.lower())
            by_table.setdefault(where, []).append(notification)
        for (database, table), of_table in by_table.items():
            for batch in batches(of_table, NOTIFICATIONS_BATCH):
                request = ttypes.WriteNotificationLogBatchRequest(
                    catalog=CATALOG,
                    db=database,
                    table=table,
                    requestList=[write_notification_request(notification) for notification in batch],
                )
                # Not repeated: the server may record the files a second time.
                self._call("add_write_notification_log_in_batch", request, service=Metastore4)

    def _require_write_ids(self, call: str) -> None:
        if not self.capabilities().has_write_ids:
            raise UnsupportedByServerError(f"the server has no write ids, which {call} needs")

    def _require_open(self, txn_id: int, failure: MetastoreError) -> None:
        """Raise a typed error instead of a call's failure if the transaction is not (or no longer) open."""
        state = self.heartbeat_txn_range(txn_id, txn_id)
        if txn_id in state.aborted:
            raise TxnAbortedError(f"transaction {txn_id} is aborted: {failure}") from failure
        if txn_id in state.nosuch:
            raise NoSuchTxnError(
                f"transaction {txn_id} never existed, is committed, or was aborted and removed: {failure}"
            ) from failure

    # -- locks ---------------------------------------------------------------------------------------------
    def lock(self, request: LockRequest) -> LockResponse:
        """Request a lock once. The client never repeats this call, not even after a broken connection.

        See :meth:`MetastoreClient.lock`.
        """
        if not request.components:
            raise InvalidRequestError("a lock request must have components, got none")
        if (
            any(component.type is LockType.EXCL_WRITE for component in request.components)
            and not self.capabilities().has_exclusive_write_lock
        ):
            raise UnsupportedByServerError("the server does not have the lock type EXCL_WRITE")
        sent = ttypes.LockRequest(
            component=[thrift_component(component) for component in request.components],
            txnid=request.txn_id,
            user=safe_text(request.user),
            hostname=safe_text(request.hostname),
            agentInfo=safe_text(request.agent_info),
        )
        return lock_response(self._call("lock", sent), None)

    def check_lock(self, lock_id: int, txn_id: int) -> LockResponse:
        """Check the state of a waiting lock. The call also counts as a heartbeat.

        See :meth:`MetastoreClient.check_lock`.
        """
        request = ttypes.CheckLockRequest(lockid=lock_id, txnid=txn_id)
        return lock_response(self._call("check_lock", request, repeat=True), lock_id)

    def unlock(self, lock_id: int) -> None:
        """Release a waiting lock. See :meth:`MetastoreClient.unlock`."""
        self._call("unlock", ttypes.UnlockRequest(lockid=lock_id), repeat=True)

    def show_locks(self, database: str | None = None, table: str | None = None) -> list[LockInfo]:
        """Return all locks, or those of a database or table. See :meth:`MetastoreClient.show_locks`."""
        request = ttypes.ShowLocksRequest(
            dbname=None if database is None else database.lower(),
            tablename=None if table is None else table.lower(),
        )
        locks = self._call("show_locks", request, repeat=True)["locks"]
        return [lock_info(lock) for lock in locks.elements_or_none()]


def _txn_type(compaction: CompactionType | None) -> int | None:
    """Return the type of a transaction; None is that of a query."""
    if compaction is None:
        return None
    types = ttypes.TxnType
    return int(types.REBALANCE_COMPACTION if compaction is CompactionType.REBALANCE else types.COMPACTION)
