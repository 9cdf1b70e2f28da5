"""A metastore of one table that gives sound answers to every call of the client, but for a chosen one.

It keeps nothing: transaction 7, write id 3 and lock 5 are what everybody gets.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer

from metastore_client._thrift.gen import Metastore2, Metastore3, Metastore4, ttypes
from metastore_client.hive_site import MetastoreConfig
from metastore_client.remote.thrift_client import ThriftMetastoreClient

RELEASES: Mapping[str, Any] = {"2.3": Metastore2, "3.1": Metastore3, "4.1": Metastore4}
"""The generated service of each line: it does not know the calls of later ones."""
TXN, WRITE_ID, LOCK = 7, 3, 5
Damage = Callable[[Any], Any]
"""From a sound answer, as a value of the generated code, to another."""


class SoundServer:
    """Answers over connections of this process.

    Args:
        release: a key of :data:`RELEASES`.
        folder: of the table's files; its existing partition is ds=a.
        is_partitioned: whether the table is.

    Attributes:
        calls: names of the calls so far.
        damaged: number of the call whose answer is damaged; None: of no call.
        damage_value: changes that answer before it is encoded.
        damage_bytes: changes its bytes.
    """

    def __init__(self, release: str, folder: Path, *, is_partitioned: bool) -> None:
        self.calls: list[str] = []
        self.damaged: int | None = None
        self.damage_value: Damage = lambda value: value
        self.damage_bytes: Callable[[bytes], bytes] = bytes
        self._folder = folder
        self._is_partitioned = is_partitioned
        self._processor = RELEASES[release].Processor(self)
        if release == "2.3":
            del self._processor._processMap["get_catalogs"]  # by which a client tells the two apart

    def client(self) -> ThriftMetastoreClient:
        """A client of it, which waits little before it gives up."""
        addresses = MetastoreConfig.load("thrift://sound:1").addresses
        config = MetastoreConfig(addresses, sets_user=False, connect_rounds=1, failure_retries=1)
        return ThriftMetastoreClient(config, open_socket=lambda *_: _Line(self))

    def answer(self, request: bytes) -> bytes:
        """The bytes of an answer to those of a request."""
        written = TMemoryBuffer()
        number = len(self.calls)
        self._processor.process(TBinaryProtocol(TMemoryBuffer(request)), TBinaryProtocol(written))
        found: bytes = written.getvalue()
        return self.damage_bytes(found) if number == self.damaged else found

    def __getattr__(self, call: str) -> Callable[..., Any]:
        """What the generated processor asks for each call."""
        if call.startswith("__"):
            raise AttributeError(call)

        def answer(*arguments: Any) -> Any:
            value = self._sound(call, *arguments)
            number = len(self.calls)
            self.calls.append(call)
            return self.damage_value(copy.deepcopy(value)) if number == self.damaged else value

        return answer

    def _sound(self, call: str, *arguments: Any) -> Any:
        made = getattr(self, f"_{call}", None)
        return made(*arguments) if call in _OF_REQUEST and made is not None else self._fixed(call)

    def _get_config_value(self, name: str, default: str) -> str:
        return default

    def _heartbeat_txn_range(self, request: Any) -> Any:
        return ttypes.HeartbeatTxnRangeResponse(aborted=set(), nosuch=set())

    def _get_valid_write_ids(self, request: Any) -> Any:
        ids = [
            ttypes.TableValidWriteIds(name, WRITE_ID, [1, WRITE_ID], WRITE_ID, b"\1")
            for name in request.fullTableNames
        ]
        return ttypes.GetValidWriteIdsResponse(ids)

    def _get_partitions_by_names(self, database: str, table: str, names: list[str]) -> Any:
        return [self._partition([name.partition("=")[2]]) for name in names]

    def _get_partition_by_name(self, database: str, table: str, name: str) -> Any:
        return self._partition([name.partition("=")[2]])

    def _add_partitions_req(self, request: Any) -> Any:
        return ttypes.AddPartitionsResult([self._partition(each.values) for each in request.parts])

    def _fixed(self, call: str) -> Any:
        """Answers that do not depend on the request; None to calls without a result."""
        state = ttypes.LockResponse(lockid=LOCK, state=1)
        answers: dict[str, Callable[[], Any]] = {
            "getVersion": lambda: "4.1.0",
            "get_catalogs": lambda: ttypes.GetCatalogsResponse(["hive"]),
            "get_latest_txnid_in_conflict": lambda: 0,
            "add_write_notification_log_in_batch": ttypes.WriteNotificationLogBatchResponse,
            "get_database": lambda: ttypes.Database("d", "", self._folder.as_uri(), {"x": "y"}),
            "get_all_tables": lambda: ["t"],
            "get_table_req": lambda: ttypes.GetTableResult(table=self._table()),
            "drop_partition_by_name": lambda: True,
            "set_aggr_stats_for": lambda: True,
            "delete_partition_column_statistics": lambda: True,
            "alter_table_req": ttypes.AlterTableResponse,
            "alter_partitions_req": ttypes.AlterPartitionsResponse,
            "get_partition_names": lambda: ["ds=a"] if self._is_partitioned else [],
            "get_table_statistics_req": lambda: ttypes.TableStatsResult(_statistics()),
            "get_partitions_statistics_req": lambda: ttypes.PartitionsStatsResult({"ds=a": _statistics()}),
            "get_all_table_constraints": lambda: ttypes.AllTableConstraintsResponse(
                ttypes.SQLAllTableConstraints(*_constraints())
            ),
            "get_not_null_constraints": lambda: ttypes.NotNullConstraintsResponse(_constraints()[0]),
            "get_default_constraints": lambda: ttypes.DefaultConstraintsResponse(_constraints()[1]),
            "get_check_constraints": lambda: ttypes.CheckConstraintsResponse(_constraints()[2]),
            "get_primary_keys": lambda: ttypes.PrimaryKeysResponse([ttypes.SQLPrimaryKey("id", 1)]),
            "open_txns": lambda: ttypes.OpenTxnsResponse([TXN]),
            "get_open_txns_info": _open_txns,
            "allocate_table_write_ids": lambda: ttypes.AllocateTableWriteIdsResponse(
                [ttypes.TxnToWriteId(TXN, WRITE_ID)]
            ),
            "lock": lambda: state,
            "check_lock": lambda: state,
            "show_locks": _locks,
            "compact2": lambda: ttypes.CompactionResponse(1, "initiated", True),
            "find_next_compact2": lambda: ttypes.OptionalCompactionInfoStruct(
                ttypes.CompactionInfoStruct(1, "d", "t", "ds=a", 2)
            ),
            "show_compact": lambda: ttypes.ShowCompactResponse(
                [ttypes.ShowCompactResponseElement("d", "t", "ds=a", 2, "succeeded", "w", 1, "hive", 2, 3, 1)]
            ),
        }
        return answers.get(call, lambda: None)()

    def _storage(self, folder: Path) -> Any:
        orc = "org.apache.hadoop.hive.ql.io.orc.Orc"
        return ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema("id", "int", ""), ttypes.FieldSchema("msg", "string", "")],
            location=folder.as_uri(),
            inputFormat=f"{orc}InputFormat",
            outputFormat=f"{orc}OutputFormat",
            numBuckets=2,
            serdeInfo=ttypes.SerDeInfo("s", f"{orc}Serde", {}),
            bucketCols=["id"],
            sortCols=[],
            parameters={},
            skewedInfo=ttypes.SkewedInfo([], [], {}),
        )

    def _table(self) -> Any:
        keys = [ttypes.FieldSchema("ds", "string", "")] if self._is_partitioned else []
        return ttypes.Table(
            *("t", "d", "owner", 1, 1, 0, self._storage(self._folder), keys, {"transactional": "true"}),
            tableType="MANAGED_TABLE",
            writeId=2,
        )

    def _partition(self, values: list[str]) -> Any:
        storage = self._storage(self._folder / f"ds={values[0]}")
        return ttypes.Partition(list(values), "d", "t", 1, 1, storage, {"numRows": "1"}, writeId=2)


class _Line:
    """A transport whose other end is the server, in this process."""

    def __init__(self, server: SoundServer) -> None:
        self._server = server
        self._sent = b""
        self._answer = TMemoryBuffer()

    def isOpen(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def write(self, data: bytes) -> None:
        self._sent += data

    def flush(self) -> None:
        self._answer = TMemoryBuffer(self._server.answer(self._sent))
        self._sent = b""

    def read(self, size: int) -> bytes:
        return bytes(self._answer.read(size))


_OF_REQUEST = (
    *("get_config_value", "heartbeat_txn_range", "get_valid_write_ids"),
    *("get_partitions_by_names", "get_partition_by_name", "add_partitions_req"),
)


def _open_txns() -> Any:
    infos = [ttypes.TxnInfo(2, 2, "u", "h"), ttypes.TxnInfo(TXN, 3, "u", "h", "a", startedTime=1)]
    return ttypes.GetOpenTxnsInfoResponse(txn_high_water_mark=TXN, open_txns=infos)


def _locks() -> Any:
    lock = ttypes.ShowLocksResponseElement(
        *(LOCK, "d", "t", None, 1, 2, TXN, 1, 1, "u", "h"), agentInfo="a", blockedByExtId=LOCK
    )
    return ttypes.ShowLocksResponse([lock])


def _constraints() -> tuple[list[Any], list[Any], list[Any]]:
    return (
        [ttypes.SQLNotNullConstraint("id", "nn", True)],
        [ttypes.SQLDefaultConstraint("msg", "'x'", "df", True)],
        [ttypes.SQLCheckConstraint("id", "id > 0", "ck", True)],
    )


def _statistics() -> list[Any]:
    kinds = {
        "longStats": ttypes.LongColumnStatsData(1, 2, 0),
        "stringStats": ttypes.StringColumnStatsData(numNulls=0),
        "decimalStats": ttypes.DecimalColumnStatsData(ttypes.Decimal(b"\1", 1), ttypes.Decimal(b"\2", 1), 0),
        "dateStats": ttypes.DateColumnStatsData(ttypes.Date(1), ttypes.Date(2), 0),
        "booleanStats": ttypes.BooleanColumnStatsData(1, 1, 0),
        "doubleStats": ttypes.DoubleColumnStatsData(1.0, 2.0, 0),
        "timestampStats": ttypes.TimestampColumnStatsData(ttypes.Timestamp(1), ttypes.Timestamp(2), 0),
    }
    return [
        ttypes.ColumnStatisticsObj("id", "int", ttypes.ColumnStatisticsData(**{kind: data}))
        for kind, data in kinds.items()
    ]
