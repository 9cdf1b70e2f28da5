"""Reads splits of a snapshot in Spark's tasks: the rows that leave a worker, and the splits of each task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from metastore_client.valid_ids import ValidIdList
from mutation_api.acid.row_id import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.reader.key_groups import KeyGroups
from mutation_api.reader.read_ahead import read_in_turn
from mutation_api.reader.snapshot_split import SnapshotSplit
from mutation_api.reader.split_rows import split_rows
from mutation_api.spark.jvm import spark_context
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.table.serializer import AcidTableSerializer
from mutation_api.types.hive_type import parse_hive_type, spark_type

__all__ = ["TASKS_PER_CORE", "SplitReader", "read_splits", "snapshot_ddl"]


TASKS_PER_CORE = 16
"""Maximum number of reading tasks. They share the splits, because starting a task costs time, too."""


def read_splits(
    spark: SparkSession,
    table: AcidTable,
    splits: Sequence[SnapshotSplit],
    reader: SplitReader,
    groups: KeyGroups | None = None,
) -> DataFrame:
    """The rows of the splits that the keys select, in the form of :func:`~.snapshot_frame.snapshot`."""
    ddl = snapshot_ddl(table, reader.columns)
    if not splits:
        # The condition lets Spark know, without a job, that there are no rows.
        return spark.createDataFrame([], ddl).where("false")
    rows = _NumberedSplits(
        table_text=AcidTableSerializer.encode(table),
        splits=tuple(split.to_json() for split in splits),
        reader=reader,
        # A broadcast, because each of many tasks has a copy of the function. Only Spark removes it, when the
        # DataFrame is gone: until then it may be evaluated again.
        keys=None if groups is None else spark_context(spark).broadcast(groups),
    )
    return _numbers(spark, len(splits)).mapInArrow(rows, ddl)


@dataclass(frozen=True)
class _NumberedSplits:
    """The function that runs in tasks: it takes batches of splits' numbers and yields batches of rows."""

    table_text: str
    splits: tuple[str, ...]
    reader: SplitReader
    keys: Broadcast[KeyGroups] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = AcidTableSerializer.decode(self.table_text)
        groups = None if self.keys is None else self.keys.value
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        splits = (SnapshotSplit.from_json(self.splits[number]) for number in numbers)
        is_checked = functools.partial(_is_checked, groups)
        yield from self.reader.in_turn(table, splits, groups, checks_placement=is_checked)


def _is_checked(groups: KeyGroups | None, split: SnapshotSplit) -> bool:
    return groups is not None and groups.checks_placement(split)


@dataclass(frozen=True)
class SplitReader:
    """Reads splits in a worker, with the driver's storage settings."""

    valid_ids: ValidIdList
    columns: tuple[AcidColumn, ...]
    options: ReadOptions
    storage: HadoopSettings

    def in_turn(
        self,
        table: AcidTable,
        splits: Iterable[SnapshotSplit],
        groups: KeyGroups | None,
        *,
        checks_placement: Callable[[SnapshotSplit], bool],
    ) -> Iterator[pa.RecordBatch]:
        """Batches of splits, in their order, in the form of :func:`~.snapshot_frame.snapshot`."""
        configure_storage(self.storage)

        def read(split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
            return split_rows(
                table,
                split,
                self.valid_ids,
                self.columns,
                self.options,
                groups,
                checks_placement=checks_placement(split),
            )

        yield from (batch for _, batch in read_in_turn(splits, read))


def _numbers(spark: SparkSession, count: int) -> DataFrame:
    """One row a split, spread over tasks.

    The JVM generates these numbers; rows from Python would need another Python worker in each task.
    """
    tasks = max(1, min(count, TASKS_PER_CORE * spark_context(spark).defaultParallelism))
    return spark.range(0, count, 1, tasks)


def snapshot_ddl(table: AcidTable, columns: Sequence[AcidColumn]) -> str:
    """The DDL of the columns of :func:`~.snapshot_frame.snapshot`."""
    fields = [f"`{c.name}` {spark_type(parse_hive_type(c.type))}" for c in columns]
    if table.version.has_row_ids:
        fields.insert(0, f"`{ROW_ID_COLUMN}` {_row_id_ddl(table)}")
    return ", ".join(fields)


def _row_id_ddl(table: AcidTable) -> str:
    """Spark's type of the table's ROW__ID."""
    partition = f",{PARTITION_FIELD}:string" if table.partition_keys else ""
    return f"struct<{table.version.transaction_field}:bigint,bucketid:int,rowid:bigint{partition}>"
