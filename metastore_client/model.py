"""Values that the metastore client takes and returns: frozen, independent of Thrift."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal

__all__ = [
    "ColumnInfo",
    "ColumnStatistics",
    "CompactionInfo",
    "CompactionType",
    "ConstraintInfo",
    "ConstraintKind",
    "DataOperationType",
    "HeartbeatResult",
    "LockComponent",
    "LockInfo",
    "LockLevel",
    "LockRequest",
    "LockResponse",
    "LockState",
    "LockType",
    "OpenTxns",
    "PartitionInfo",
    "TableInfo",
    "TxnInfo",
    "TxnState",
    "WriteNotification",
]


class LockType(enum.IntEnum):
    """Strength of a lock; EXCL_WRITE exists in 4.x only."""

    SHARED_READ = 1
    SHARED_WRITE = 2
    EXCLUSIVE = 3
    EXCL_WRITE = 4


class LockLevel(enum.IntEnum):
    """What a lock component names."""

    DB = 1
    TABLE = 2
    PARTITION = 3


class LockState(enum.IntEnum):
    """Answer to ``lock`` and ``check_lock``."""

    ACQUIRED = 1
    WAITING = 2
    ABORT = 3
    NOT_ACQUIRED = 4


class DataOperationType(enum.IntEnum):
    """What a transaction does to a resource; the server's conflict check uses it."""

    SELECT = 1
    INSERT = 2
    UPDATE = 3
    DELETE = 4
    UNSET = 5
    NO_TXN = 6


class TxnState(enum.IntEnum):
    """State of a transaction as the server reports it."""

    COMMITTED = 1
    ABORTED = 2
    OPEN = 3


class CompactionType(enum.IntEnum):
    """Kind of compaction; those after MAJOR exist in 4.x only, where the server queues them too."""

    MINOR = 1
    MAJOR = 2
    REBALANCE = 3
    ABORT_TXN_CLEANUP = 4


class ConstraintKind(enum.Enum):
    """What a constraint says about the rows that a table takes."""

    NOT_NULL = "NOT NULL"
    CHECK = "CHECK"
    DEFAULT = "DEFAULT"


@dataclass(frozen=True)
class ColumnInfo:
    """A column: name in lower case, type as Hive writes it (``decimal(10,2)``, ``array<int>``)."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True)
class TableInfo:
    """A table as the metastore describes it.

    ``columns`` are the data columns in table order, ``partition_keys`` the partition columns;
    ``bucket_columns`` are in CLUSTERED BY order. ``num_buckets`` <= 0 means not bucketed. ``location`` is the
    text the metastore holds, undecoded. ``sent`` is what a server sent, if one did: a client that alters the
    table sends it back with its changes.
    """

    database: str
    name: str
    columns: tuple[ColumnInfo, ...]
    partition_keys: tuple[ColumnInfo, ...] = ()
    location: str = ""
    table_type: str = "MANAGED_TABLE"
    num_buckets: int = -1
    bucket_columns: tuple[str, ...] = ()
    sort_columns: tuple[str, ...] = ()
    skewed_columns: tuple[str, ...] = ()
    input_format: str = "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"
    output_format: str = "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat"
    serde: str = "org.apache.hadoop.hive.ql.io.orc.OrcSerde"
    parameters: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""
    sent: object = field(default=None, compare=False, repr=False)

    @property
    def full_name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class PartitionInfo:
    """A partition; ``values`` are unescaped texts in partition-key order, ``name`` the escaped path form.

    ``num_buckets`` and ``bucket_columns`` are the partition's own, which may differ from its table's; None if
    they are not known. ``num_buckets`` <= 0 means not bucketed.
    """

    database: str
    table: str
    values: tuple[str, ...]
    name: str
    location: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    num_buckets: int | None = None
    bucket_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConstraintInfo:
    """A constraint of a table that Hive enforces on writes, if ``is_enabled``.

    ``column`` is in lower case, and '' for a CHECK of the whole table. ``expression`` is the SQL text of the
    condition or of the default value, as Hive keeps it; '' for NOT NULL.
    """

    kind: ConstraintKind
    name: str
    column: str = ""
    expression: str = ""
    is_enabled: bool = True

    def order(self) -> tuple[str, str, str]:
        """What a table's constraints are ordered by."""
        return (self.kind.value, self.column, self.name)


@dataclass(frozen=True)
class ColumnStatistics:
    """What a metastore has recorded of the values of one column, in a table or in one partition.

    ``low`` and ``high`` are those of integers, floats, decimals, dates and (in whole seconds, the wall clock)
    timestamps; None where there is no value, or none that Python's calendar has, and for types without a
    range: texts, binary, boolean. Releases before 4.0 give seconds since 1970 for timestamps. ``true_count``
    and ``false_count`` are those of booleans.
    """

    column: str
    type: str
    null_count: int
    low: int | float | Decimal | date | datetime | None = None
    high: int | float | Decimal | date | datetime | None = None
    true_count: int | None = None
    false_count: int | None = None


@dataclass(frozen=True)
class LockComponent:
    """One resource of a lock request.

    ``is_dynamic_partition_write`` true leaves the component unrecorded until ``add_dynamic_partitions`` names
    the partitions that were written.
    """

    type: LockType
    level: LockLevel
    database: str
    table: str | None
    partition: str | None
    operation: DataOperationType
    is_transactional: bool = True
    is_dynamic_partition_write: bool = False


@dataclass(frozen=True)
class LockRequest:
    """One lock request; all components are granted or none."""

    components: tuple[LockComponent, ...]
    txn_id: int
    user: str
    hostname: str
    agent_info: str


@dataclass(frozen=True)
class LockResponse:
    """Answer to ``lock`` or ``check_lock``."""

    lock_id: int
    state: LockState
    message: str = ""


@dataclass(frozen=True)
class LockInfo:
    """One entry of ``show_locks``."""

    lock_id: int
    database: str
    table: str | None
    partition: str | None
    state: LockState
    type: LockType
    txn_id: int | None
    user: str
    hostname: str
    agent_info: str = ""
    blocked_by: int | None = None


@dataclass(frozen=True)
class TxnInfo:
    """A transaction that is open, or aborted and not yet cleaned.

    Times are milliseconds since 1970, None if unknown.
    """

    id: int
    state: TxnState
    user: str
    hostname: str
    agent_info: str = ""
    started_time: int | None = None
    last_heartbeat_time: int | None = None


@dataclass(frozen=True)
class OpenTxns:
    """Answer to ``get_open_txns_info``: every id <= ``high_watermark`` that is not listed is committed."""

    high_watermark: int
    txns: tuple[TxnInfo, ...]


@dataclass(frozen=True)
class HeartbeatResult:
    """Ids of aborted transactions, and ids unknown to the server (committed, or aborted and removed)."""

    aborted: frozenset[int] = frozenset()
    nosuch: frozenset[int] = frozenset()


@dataclass(frozen=True)
class WriteNotification:
    """The files that a transaction wrote into a table, or into one partition of it.

    ``partition_values`` are unescaped texts, empty for an unpartitioned table. ``files`` are pairs of a full
    path and the ACID directory in which it lies (``delta_0000002_0000002_0000``).
    """

    txn_id: int
    write_id: int
    database: str
    table: str
    partition_values: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CompactionInfo:
    """One entry of ``show_compact``.

    Times are milliseconds since 1970. ``error``: why it failed; a 4.x server tells.
    """

    database: str
    table: str
    partition: str | None
    type: CompactionType
    state: str
    id: int | None = None
    worker_id: str = ""
    start_time: int | None = None
    run_as: str = ""
    highest_write_id: int | None = None
    end_time: int | None = None
    error: str = ""
