"""The values that the metastore client takes and returns. They are frozen and independent of Thrift."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any


class LockType(enum.IntEnum):
    """The strength of a lock. EXCL_WRITE exists only in 4.x."""

    SHARED_READ = 1
    SHARED_WRITE = 2
    EXCLUSIVE = 3
    EXCL_WRITE = 4


class LockLevel(enum.IntEnum):
    """The kind of resource that a lock component names."""

    DB = 1
    TABLE = 2
    PARTITION = 3


class LockState(enum.IntEnum):
    """The state of a lock, as ``lock`` and ``check_lock`` report it."""

    ACQUIRED = 1
    WAITING = 2
    ABORT = 3
    NOT_ACQUIRED = 4


class DataOperationType(enum.IntEnum):
    """The operation of a transaction on a resource. The server's conflict check uses it."""

    SELECT = 1
    INSERT = 2
    UPDATE = 3
    DELETE = 4
    UNSET = 5
    NO_TXN = 6


class TxnState(enum.IntEnum):
    """The state of a transaction, as the server reports it."""

    COMMITTED = 1
    ABORTED = 2
    OPEN = 3


class CompactionType(enum.IntEnum):
    """The kind of a compaction.

    Kinds after MAJOR exist only in 4.x, where the server itself also queues them.
    """

    MINOR = 1
    MAJOR = 2
    REBALANCE = 3
    ABORT_TXN_CLEANUP = 4


class CompactionEnd(enum.Enum):
    """The end of a compaction by a worker. REFUSED means that there was nothing to compact."""

    DONE = "mark_compacted"
    FAILED = "mark_failed"
    REFUSED = "mark_refused"


class ConstraintKind(enum.Enum):
    """The kind of a constraint on the rows of a table."""

    NOT_NULL = "NOT NULL"
    CHECK = "CHECK"
    DEFAULT = "DEFAULT"


@dataclass(frozen=True)
class ColumnInfo:
    """A column: its name in lower case and its type as Hive writes it (``decimal(10,2)``, ``array<int>``)."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True)
class TableInfo:
    """A table as the metastore describes it.

    ``columns`` are the data columns in table order, and ``partition_keys`` are the partition columns.
    ``bucket_columns`` are in CLUSTERED BY order. ``num_buckets`` <= 0 means not bucketed. ``location`` is the
    string in the metastore, not decoded. ``created_seconds`` is the time since 1970 at which the table was
    created, or 0 if it is not known; a table that was dropped and created again has another one. ``sent`` is
    the structure that a server sent, if there is one: a client that alters the table sends it back with its
    changes.
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
    created_seconds: int = field(default=0, compare=False)
    sent: object = field(default=None, compare=False, repr=False)

    @property
    def full_name(self) -> str:
        """The table's name as ``database.table``."""
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class PartitionInfo:
    """A partition.

    ``values`` are the unescaped strings in the order of the partition keys. ``name`` is the escaped form that
    paths use. ``num_buckets`` and ``bucket_columns`` are the partition's own and may differ from its table's.
    They are None if they are not known. ``num_buckets`` <= 0 means not bucketed.
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
    """A constraint of a table. Hive enforces it on writes if ``is_enabled`` is true.

    ``column`` is in lower case, or '' for a CHECK of the whole table. ``expression`` is the SQL of the
    condition or of the default value, as Hive stores it. It is '' for NOT NULL.
    """

    kind: ConstraintKind
    name: str
    column: str = ""
    expression: str = ""
    is_enabled: bool = True

    def order(self) -> tuple[str, str, str]:
        """Return the key by which the constraints of a table are sorted."""
        return (self.kind.value, self.column, self.name)


@dataclass(frozen=True)
class ColumnStatistics:
    """Statistics that a metastore has recorded for one column of a table or of one partition.

    ``low`` and ``high`` exist for integers, floats, decimals, dates and timestamps (local time, in whole
    seconds). They are None if there are no values, if the value is outside Python's calendar, or if the type
    does not have a range (strings, binary, boolean). For timestamps, releases before 4.0 give seconds since
    1970. ``true_count`` and ``false_count`` exist for booleans, ``max_length`` and ``average_length`` for
    strings (characters) and binary values (bytes).

    ``distinct_count`` is an estimate. ``sketch`` is Hive's HyperLogLog from which it was made. A server
    reports it only with ``hive.stats.fetch.bitvector``.
    """

    column: str
    type: str
    null_count: int
    low: int | float | Decimal | date | datetime | None = None
    high: int | float | Decimal | date | datetime | None = None
    true_count: int | None = None
    false_count: int | None = None
    distinct_count: int | None = None
    sketch: bytes = b""
    max_length: int | None = None
    average_length: float | None = None


@dataclass(frozen=True)
class LockComponent:
    """One resource of a lock request.

    If ``is_dynamic_partition_write`` is true, the server does not record the component until
    ``add_dynamic_partitions`` names the partitions that were written.
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
    """A lock request. The server grants all of its components or none."""

    components: tuple[LockComponent, ...]
    txn_id: int
    user: str
    hostname: str
    agent_info: str


@dataclass(frozen=True)
class LockResponse:
    """The answer to ``lock`` or ``check_lock``."""

    lock_id: int
    state: LockState
    message: str = ""


@dataclass(frozen=True)
class LockInfo:
    """An entry of ``show_locks``."""

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

    Times are milliseconds since 1970, or None if unknown. ``user`` and ``hostname`` are empty if unknown.
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
    """The answer to ``get_open_txns_info``: each id <= ``high_watermark`` that is not listed is committed."""

    high_watermark: int
    txns: tuple[TxnInfo, ...]


@dataclass(frozen=True)
class HeartbeatResult:
    """The result of a heartbeat: ids of aborted transactions, and ids that the server does not know.

    An unknown transaction was committed, or aborted and then removed.
    """

    aborted: frozenset[int] = frozenset()
    nosuch: frozenset[int] = frozenset()


@dataclass(frozen=True)
class WriteNotification:
    """The files that a transaction wrote into a table, or into one partition of it.

    ``partition_values`` are unescaped strings, empty for an unpartitioned table. ``files`` are pairs of a
    full path and the ACID directory that contains the file (``delta_0000002_0000002_0000``).
    """

    txn_id: int
    write_id: int
    database: str
    table: str
    partition_values: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CompactionInfo:
    """An entry of ``show_compact``.

    Times are milliseconds since 1970. Only 4.x servers report ``error``, the reason for a failure, and
    ``enqueue_time``, the time of the request, ``pool``, the workers that may take it, and ``txn_id``, the
    transaction of the worker.
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
    enqueue_time: int | None = None
    pool: str = ""
    txn_id: int | None = None

    @property
    def is_pending(self) -> bool:
        """True if it waits for a worker or is being done."""
        return self.state in ("initiated", "working")

    @property
    def is_done(self) -> bool:
        """True if the new files are visible. The cleaner may not have removed the old ones yet."""
        return self.state in ("ready for cleaning", "succeeded")

    @property
    def has_failed(self) -> bool:
        """True if no worker did it, or a worker failed."""
        return self.state in ("failed", "did not initiate")

    @property
    def may_change_files(self) -> bool:
        """True if it may still write files, or the cleaner may still remove some."""
        return self.is_pending or self.state == "ready for cleaning"


@dataclass(frozen=True)
class CompactionJob:
    """A compaction that a worker took from the queue of Hive 4.

    ``run_as`` is the user that should write, '' for the owner of the files. ``entry`` is the server's own
    form of the job, which it expects back in each call about it. ``num_buckets`` and ``order_by`` are
    those of the statement that requested a rebalance, 0 and '' if it has none.
    """

    id: int
    database: str
    table: str
    partition: str | None
    type: CompactionType
    run_as: str
    entry: Any = field(repr=False, compare=False)
    num_buckets: int = 0
    order_by: str = ""
