"""snapshot: the rows a transaction sees, with their ROW__ID, as a DataFrame.

The driver lists directories and decides which files make up each (partition, bucket); tasks merge them with
:mod:`mutation_api.orc.snapshot_reader`. Spark's own ORC reader is no help: it fails on ACID files unless all
six event columns are asked for, and it does not merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.core.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.errors import RecordLayoutError
from mutation_api.orc.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.snapshot_reader import SnapshotSplit, plan_splits, read_split
from mutation_api.spark.key_groups import KeyGroups, group_keys, partition_scalars
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.hive_types import parse_hive_type, spark_type
from mutation_api.table.serializer import AcidTableSerializer

__all__ = [
    "BATCH_ROWS_DEFAULT",
    "PARTITION_FIELD",
    "SnapshotClient",
    "SnapshotSource",
    "snapshot",
]

BATCH_ROWS_DEFAULT = 16_384
"""Rows of one Arrow batch on its way from a Python worker to Spark."""

PARTITION_FIELD = "partition"
"""Fourth field of ROW__ID in partitioned tables: the (escaped) name of the partition the row lies in."""

_LISTING_THREADS = 8
_TASKS_PER_CORE = 16


class SnapshotSource(Protocol):
    """What is needed of a transaction, or of a snapshot that a client opened."""

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The transactions it sees, compactions among them."""
        ...

    def valid_ids(self, full_name: str) -> ValidIdList:
        """What it sees of one of its tables."""
        ...

    def table(self, full_name: str) -> AcidTable:
        """Descriptor of one of its tables."""
        ...

    def partitions(self, full_name: str) -> Sequence[PartitionInfo]:
        """Partitions of one of its tables."""
        ...

    def check(self) -> None:
        """Raise if its lock is lost."""
        ...


class SnapshotClient(Protocol):
    """What is needed of :class:`mutation_api.client.mutator_client.MutatorClient`."""

    def open_snapshot(self, *full_names: str) -> SnapshotSource:
        """A snapshot whose read lock lives until the client is closed."""
        ...


def snapshot(
    spark: SparkSession,
    transaction_or_client: SnapshotSource | SnapshotClient,
    table_name: str,
    *,
    columns: Sequence[str] | None = None,
    partitions: Sequence[str] | None = None,
    keys: pa.Table | None = None,
    null_safe_keys: bool = False,
    without_keys: bool = False,
    truncate_nanoseconds: bool = False,
    batch_rows: int = BATCH_ROWS_DEFAULT,
) -> DataFrame:
    """The rows of a table that the transaction's snapshot holds, with their ROW__ID.

    Files are read when the DataFrame is evaluated, each time it is; so evaluate it while the transaction (or
    the client) is open, or the cleaner may have removed them. Directories are listed once, now.

    Args:
        spark: the session.
        transaction_or_client: a begun transaction that declared the table as source or sink; or a connected
            client, which then holds a read lock until it is closed.
        table_name: ``database.table``.
        columns: names of data and partition columns, any case, in the order wanted; None for all. ``[]``
            gives ROW__ID alone, and reads no other column; of an insert-only table it is refused.
        partitions: escaped names (``ds=2015-11-19``) of the partitions to read; None for all.
        keys: give only rows whose values equal those of some row here. Its columns are key columns of the
            table, any case, partition columns among them; of the types of ``arrow_type(…,
            timestamp_unit="us")``; they need not be among ``columns``. Partitions and stripes that can
            hold none of them are not read, and of the others the key columns first. NaN equals NaN, -0.0
            equals 0.0, NULL equals nothing.
        null_safe_keys: NULL equals NULL.
        without_keys: give all other rows, those that have none of the keys.
        truncate_nanoseconds: Spark's timestamps have six digits of a second, Hive's nine. True drops the last
            three; False makes a value that has them an error, for written back it would be another one.
        batch_rows: rows of one batch.

    Returns:
        ``ROW__ID`` struct<writeid:bigint, bucketid:int, rowid:bigint> (Hive 2: ``transactionid``) and the
        columns. In a partitioned table ROW__ID has a fourth field ``partition``, because an update or delete
        must know where its row lies. An insert-only table has no ROW__ID. timestamp columns are
        timestamp_ntz, char and varchar are strings.

    Raises:
        RecordLayoutError: a column or partition that the table does not have, or keys of another type.
        TableNotMutableError: a column Spark cannot hold (uniontype); name the others in ``columns``.
        DirectoryStateError: see :func:`mutation_api.orc.snapshot_reader.plan_splits`.
        ClientError: the source does not know the table, is not open, or has lost its lock.
        Evaluating it raises pyspark's exception, whose text ends with our CorruptFileError,
        DirectoryStateError or RecordValueError; within
        :func:`~mutation_api.spark.errors.translated_worker_errors` it raises these themselves.
    """
    source = _source(transaction_or_client, table_name)
    source.check()
    table = source.table(table_name)
    wanted = _select(table, columns)
    valid_ids = source.valid_ids(table.full_name)
    locations = _locations(table, source, partitions)
    groups = None
    if keys is not None:
        names = list(locations)
        groups = group_keys(table, keys, names, null_safe=null_safe_keys, excludes=without_keys)
        locations = {name: place for name, place in locations.items() if groups.has_partition(name)}
    splits = _plan(table, locations, valid_ids, source.valid_txn_list)
    reader = _SplitReader(
        table_text=AcidTableSerializer.encode(table),
        splits=tuple(split.to_json() for split in splits),
        valid_ids=valid_ids,
        columns=wanted,
        options=ReadOptions(TimestampForm.MICROSECONDS, truncate_nanoseconds, batch_rows),
        # A broadcast, for each of many tasks has a copy of the function. Nobody removes it but Spark itself,
        # when the DataFrame is forgotten: until then it may be evaluated again.
        keys=None if groups is None else spark.sparkContext.broadcast(groups),
    )
    return _numbers(spark, len(splits)).mapInArrow(reader, _schema(table, wanted))


@dataclass(frozen=True)
class _SplitReader:
    """The function that runs in tasks: batches of numbers of splits in, batches of rows out."""

    table_text: str
    splits: tuple[str, ...]
    valid_ids: ValidIdList
    columns: tuple[AcidColumn, ...]
    options: ReadOptions
    keys: Broadcast[KeyGroups] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._rows(table, SnapshotSplit.from_json(self.splits[number]))

    def _rows(self, table: AcidTable, split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
        data = [c.name for c in self.columns if c.name not in table.partition_key_names]
        has_row_ids = table.version.has_row_ids
        # Rows without ROW__ID are counted by a column, if none is asked for.
        read = data or ([] if has_row_ids else [table.column_names[0]])
        values = partition_scalars(table, split.partition_name)
        only = None if self.keys is None else self.keys.value.filter_for(split.partition_name)
        for batch in read_split(table, split, self.valid_ids, read, has_row_ids, self.options, only):
            arrays = {name: batch.column(name) for name in data}
            arrays |= {name: pa.repeat(value, batch.num_rows) for name, value in values.items()}
            columns = {c.name: arrays[c.name] for c in self.columns}
            if has_row_ids:
                columns = {ROW_ID_COLUMN: _row_ids(table, split, batch), **columns}
            yield pa.RecordBatch.from_pydict(columns)


def _source(source: SnapshotSource | SnapshotClient, table_name: str) -> SnapshotSource:
    open_snapshot: Callable[..., SnapshotSource] | None = getattr(source, "open_snapshot", None)
    return source if open_snapshot is None else open_snapshot(table_name)  # type: ignore[return-value]


def _select(table: AcidTable, columns: Sequence[str] | None) -> tuple[AcidColumn, ...]:
    available = {c.name: c for c in (*table.columns, *table.partition_keys)}
    names = list(available) if columns is None else [name.lower() for name in columns]
    unknown = [name for name in names if name not in available]
    if unknown or len(set(names)) < len(names):
        raise RecordLayoutError(
            f"table {table.full_name}: columns {unknown or names} cannot be read: each must exist and be "
            f"named once; there are {', '.join(available)}"
        )
    if not names and not table.version.has_row_ids:
        raise RecordLayoutError(
            f"table {table.full_name} is insert-only: its rows have no {ROW_ID_COLUMN}, so name a column; "
            f"there are {', '.join(available)}"
        )
    return tuple(available[name] for name in names)


def _locations(
    table: AcidTable, source: SnapshotSource, partitions: Sequence[str] | None
) -> Mapping[str, str]:
    """Locations by partition name."""
    if not table.partition_keys:
        if partitions is not None:
            raise RecordLayoutError(f"table {table.full_name} is not partitioned; leave partitions out")
        return {"": table.location}
    known = {p.name: p.location for p in source.partitions(table.full_name)}
    if partitions is None:
        return known
    unknown = sorted(set(partitions) - set(known))
    if unknown:
        raise RecordLayoutError(
            f"table {table.full_name}: no partition {', '.join(unknown[:5])} in this snapshot; it has "
            f"{len(known)}, such as {', '.join(sorted(known)[:3]) or 'none'}"
        )
    return {name: known[name] for name in dict.fromkeys(partitions)}


def _plan(
    table: AcidTable, locations: Mapping[str, str], valid: ValidIdList, valid_txns: ValidTxnList
) -> list[SnapshotSplit]:
    with ThreadPoolExecutor(_LISTING_THREADS) as threads:
        planned = threads.map(
            lambda partition: plan_splits(table, partition[0], partition[1], valid, valid_txns),
            locations.items(),
        )
        return [split for splits in planned for split in splits]


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    """One row a split, spread over tasks; they share tasks, since starting one costs time too.

    The JVM counts by itself; rows of ours would need a Python worker of their own in each task.
    """
    tasks = max(1, min(count, _TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    return spark.range(0, count, 1, tasks)


def _schema(table: AcidTable, columns: Sequence[AcidColumn]) -> str:
    fields = [f"`{c.name}` {spark_type(parse_hive_type(c.type))}" for c in columns]
    if table.version.has_row_ids:
        fields.insert(0, f"`{ROW_ID_COLUMN}` {_row_id_ddl(table)}")
    return ", ".join(fields)


def _row_id_ddl(table: AcidTable) -> str:
    """Spark's type of the table's ROW__ID."""
    partition = f",{PARTITION_FIELD}:string" if table.partition_keys else ""
    return f"struct<{table.version.transaction_field}:bigint,bucketid:int,rowid:bigint{partition}>"


def _row_ids(table: AcidTable, split: SnapshotSplit, batch: pa.RecordBatch) -> pa.StructArray:
    row_ids = batch.column(ROW_ID_COLUMN)
    if not table.partition_keys:
        return row_ids
    partition = pa.repeat(pa.scalar(split.partition_name, pa.string()), len(row_ids))
    fields = [*row_ids.type, pa.field(PARTITION_FIELD, pa.string())]
    return pa.StructArray.from_arrays([*row_ids.flatten(), partition], fields=fields)
