"""The functions that run in Spark's tasks: read splits, and split, sort and write change sets.

The changes of a task are cut into pieces, each for one writing task. Pieces pass through Spark's shuffle as
bytes, with an Arrow stream in each. So Spark moves a few large values and does not convert every row from
Arrow to its own format and back.

A writing task sorts its addressed changes, which arrive in any order, and writes them. Python sorts, because
sorting rows by four columns in Spark took half of the job: see DESIGN.md.

Every version of Spark shuffles by the hash of a column. The hash is the same for equal values, but among
eight tasks, some get no rows and others three times as many. So a task's number is replaced by a number whose
hash leads to that task.

Source: Spark's HashPartitioning (Murmur3 of the value with seed 42, modulo the number of tasks) and
Murmur3_x86_32.hashInt.
"""

from __future__ import annotations

import functools
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyspark.sql.functions as sf
from numpy.typing import NDArray
from pyspark import Broadcast, TaskContext
from pyspark.sql import Column, DataFrame, SparkSession

from metastore_client.valid_ids import ValidIdList
from mutation_api.errors import MutationError
from mutation_api.format.event import PARTITION_FIELD, ROW_ID_COLUMN
from mutation_api.format.hive_type import parse_hive_type, spark_type
from mutation_api.orc.read.column_reader import ReadOptions
from mutation_api.orc.read.open_files import SMALL_FILES
from mutation_api.orc.write.encoders import give_back
from mutation_api.read.key_groups import KeyGroups
from mutation_api.read.partition_plan import SnapshotSplit
from mutation_api.read.read_ahead import read_in_turn
from mutation_api.read.row_filter import RowFilter
from mutation_api.read.snapshot_reader import split_rows
from mutation_api.spark.jvm import spark_context
from mutation_api.storage.connect import configure_storage
from mutation_api.storage.hadoop_settings import HadoopSettings
from mutation_api.table.acid_table import AcidColumn, AcidTable, AcidTableSerializer, WriterOptions
from mutation_api.transaction.manifest import DeltaManifest
from mutation_api.write.address import ChangeAddresser, with_names_once
from mutation_api.write.batch_sorter import BatchSorter
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.writing_order import (
    ADDRESSED_ROWS_MAX,
    WritingOrder,
    joined_batches,
    split_by_writer,
    write_batch,
)

Manifests: TypeAlias = tuple[DeltaManifest, ...]
"""The manifests of the files that tasks wrote."""

TASK = "task"
CHANGES = "changes"
WRITER = "__writer"
"""A column of pieces for an unbucketed table: a hash of the content of each row."""
SPLIT_DDL = f"{TASK} int, {CHANGES} binary"


@dataclass(frozen=True)
class PieceAddresser:
    """A function that addresses changes in pieces: batches with a column of Arrow streams.

    Args:
        addresser: computes the address of each change.
        writers: see :class:`~mutation_api.spark.plan.PieceChangePlan`.
    """

    addresser: ChangeAddresser
    writers: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the addressed changes. See :meth:`ChangeAddresser.__call__`."""
        for batch in batches:
            for piece in batch.column(CHANGES):
                yield from map(self.addressed, batches_in(piece.as_buffer()))

    def addressed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return addressed changes, given the changes of a piece."""
        return self.addresser.addressed(self._arranged(rows))

    def _arranged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns in the order of :class:`~mutation_api.write.address.ChangeFields`."""
        fields = self.addresser.fields
        columns = [rows.column(0)]
        if fields.row_id:
            columns += rows.column(ROW_ID_COLUMN).flatten()
        columns += (rows.column(name) for name in fields.partition_columns)
        if self.writers:
            hashes = rows.column(rows.num_columns - 1).to_numpy()
            columns.append(pa.array(hashes % self.writers, pa.int32()))
        columns += (rows.column(name) for name in fields.columns)
        return pa.RecordBatch.from_arrays(columns, names=[str(number) for number in range(len(columns))])


@dataclass(frozen=True)
class ChangeSplitter:
    """A function that addresses changes and splits them by the task that writes their (partition, bucket).

    Args:
        addresser: computes the address of each change.
        tasks: number of writing tasks.
        memory_bytes: size of the changes that are split at once, during which copies of them exist. Many
            tasks and little memory make small pieces.
    """

    addresser: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    tasks: int
    memory_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield pairs of a task's number and a piece for it.

        Raises:
            Errors: See :meth:`mutation_api.write.classify.ChangeClassifier.classify`.
        """
        addressed = self.addresser(joined_batches(batches, self.memory_bytes, ADDRESSED_ROWS_MAX))
        try:
            for rows in joined_batches(addressed, self.memory_bytes):
                yield from self._split(rows)
        finally:
            leave_task()

    def _split(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for task, piece in split_by_writer(with_names_once(rows), self.tasks):
            yield pa.record_batch(
                [pa.array([task], pa.int32()), pa.array([stream_of(with_names_once(piece))])],
                [TASK, CHANGES],
            )


def batches_in(piece: bytes | pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the changes in a piece."""
    with pa.ipc.open_stream(pa.py_buffer(piece)) as stream:
        yield from stream


def stream_of(batch: pa.RecordBatch) -> bytes:
    """Return the piece that holds a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangeWriter:
    """A function that sorts addressed changes, passes them to a coordinator, and yields manifests as JSON.

    It is sent to the workers, so it holds the table as a string, and the driver's storage settings.
    """

    table_text: str
    writer_id: str
    options: WriterOptions
    storage: HadoopSettings

    def __call__(self, pieces: Iterable[bytes]) -> Iterator[str]:
        """Write all changes of one task. Yield a line of JSON per file.

        Everything that may fail happens before the first yield.
        """
        configure_storage(self.storage)
        return (manifest.to_json() for manifest in self.write(pieces))

    def write(self, pieces: Iterable[bytes]) -> tuple[DeltaManifest, ...]:
        """Write all changes of one task, which are in pieces. See :meth:`write_batches`."""
        return self.write_batches(batch for piece in pieces for batch in batches_in(piece))

    def write_batches(self, batches: Iterable[pa.RecordBatch]) -> tuple[DeltaManifest, ...]:
        """Write all changes of one task. Return a description of the written files.

        Args:
            batches: addressed changes, in any order.

        Raises:
            Errors: See :meth:`mutation_api.write.coordinator.MutatorCoordinator.insert` and its other
                methods.
        """
        table = AcidTableSerializer.decode(self.table_text)
        coordinator = MutatorCoordinator(
            table, writer_id=self.writer_id, attempt_id=_attempt_id(), options=self.options
        )
        try:
            for batch in self.in_order(table.full_name, batches):
                write_batch(coordinator, batch)
            return coordinator.close()
        except BaseException:
            _abort_quietly(coordinator)
            raise
        finally:
            leave_task()

    def in_order(self, table_name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all changes of a task, in the order in which they are written."""
        memory_bytes, folder = self.options.sort_memory_bytes, local_folder()
        with BatchSorter(table_name, WritingOrder(), memory_bytes, folder) as sorter:
            for batch in batches:
                sorter.add(batch)
            yield from sorter.in_order()


def _attempt_id() -> str:
    context = TaskContext.get()
    if context is None:
        return "0"
    # The attempt id alone is unique in the job. The partition number is for people who read the directory.
    return f"{context.partitionId()}-{context.taskAttemptId()}"


def leave_task() -> None:
    """Give back memory at the end of a task, and hide imported modules from Python's garbage collector.

    Spark collects garbage after each task. This visits all objects of all modules, which takes 50 ms. Small
    files are not kept: the next task of this process probably reads others.
    """
    is_task = TaskContext.get() is not None
    if is_task:
        SMALL_FILES.clear()
    give_back()
    if is_task:
        _freeze(len(sys.modules))


@functools.cache
def _freeze(_module_count: int) -> None:
    """Freeze all objects, once for each number of modules."""
    gc.collect()
    gc.freeze()


def task_number() -> int:
    """Return the number of the task in its stage, which :func:`to_tasks` chose for its rows."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def local_folder() -> str | None:
    """Return one of the directories that Spark gives its workers, by partition. None outside of Spark."""
    folders = [folder for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    context = TaskContext.get()
    return folders[context.partitionId() % len(folders)] if folders and context is not None else None


def _abort_quietly(coordinator: MutatorCoordinator) -> None:
    try:
        coordinator.abort()
    except (MutationError, OSError):
        logger.exception("could not abort the coordinator; the driver removes its files")


_SEED = 42
_TRIED_AT_ONCE = 1 << 12


def to_tasks(frame: DataFrame, tasks: int, task: Column) -> DataFrame:
    """Shuffle rows, each to the task with its number.

    Args:
        frame: the rows.
        tasks: number of tasks, which adaptive execution keeps.
        task: int from 0 to ``tasks - 1``.
    """
    numbers = sf.array(*[sf.lit(number) for number in numbers_for(tasks)])
    return frame.repartition(tasks, sf.element_at(numbers, task + 1))


@functools.cache
def numbers_for(tasks: int) -> tuple[int, ...]:
    """Return, for each of ``tasks`` tasks, the smallest number that Spark's shuffle sends to it."""
    found = np.full(tasks, -1, np.int64)
    start = 0
    while (found < 0).any():
        tried = np.arange(start, start + max(_TRIED_AT_ONCE, tasks), dtype=np.int64)
        task, first = np.unique(_hashes(tried) % tasks, return_index=True)
        is_new = found[task] < 0
        found[task[is_new]] = tried[first[is_new]]
        start += len(tried)
    return tuple(found.tolist())


def _hashes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return Spark's Murmur3 hashes of ints, signed."""
    mixed = _rotated(numbers.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    hashed = _rotated(mixed ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(4)
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashed ^ (hashed >> np.uint32(16))).view(np.int32).astype(np.int64)


def _rotated(words: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))


TASKS_PER_CORE = 16
"""The maximum number of reading tasks per core. Tasks share splits, because starting a task costs time."""


def read_splits(
    spark: SparkSession,
    table: AcidTable,
    splits: Sequence[SnapshotSplit],
    reader: SplitReader,
    groups: KeyGroups | None = None,
) -> DataFrame:
    """Return the rows of the splits that the keys select. See :func:`~.snapshot_frame.read_table`."""
    ddl = snapshot_ddl(table, reader.columns)
    if not splits:
        # With this condition, Spark knows without a job that there are no rows.
        return spark.createDataFrame([], ddl).where("false")
    rows = _NumberedSplits(
        table_text=AcidTableSerializer.encode(table),
        splits=tuple(split.to_json() for split in splits),
        reader=reader,
        # A broadcast, because each of many tasks has a copy of the function. Only Spark removes it, when the
        # DataFrame no longer exists. Until then the DataFrame may be evaluated again.
        keys=None if groups is None else spark_context(spark).broadcast(groups),
    )
    return split_numbers(spark, len(splits)).mapInArrow(rows, ddl)


@dataclass(frozen=True)
class _NumberedSplits:
    """The function that runs in tasks: it takes batches of split numbers and yields batches of rows."""

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
    """A reader of splits in a worker, with the driver's storage settings.

    Attributes:
        valid_ids: the list of ids with which the splits were planned.
        columns: the data and partition columns of the rows, in order.
        options: the form of timestamps and the size of batches.
        where: the condition of the rows. If None, all rows.
    """

    valid_ids: ValidIdList
    columns: tuple[AcidColumn, ...]
    options: ReadOptions
    storage: HadoopSettings
    where: RowFilter | None = None

    def in_turn(
        self,
        table: AcidTable,
        splits: Iterable[SnapshotSplit],
        groups: KeyGroups | None,
        *,
        checks_placement: Callable[[SnapshotSplit], bool],
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of splits in order. See :func:`~.snapshot_frame.read_table` for their columns."""
        configure_storage(self.storage)

        def read(split: SnapshotSplit) -> Iterator[pa.RecordBatch]:
            return split_rows(
                table,
                split,
                self.valid_ids,
                self.columns,
                self.options,
                groups,
                where=self.where,
                checks_placement=checks_placement(split),
            )

        yield from (batch for _, batch in read_in_turn(splits, read))


def split_numbers(spark: SparkSession, count: int) -> DataFrame:
    """Return a row per split, spread over tasks.

    The JVM generates these numbers. Rows from Python would need another Python worker in each task.
    """
    tasks = max(1, min(count, TASKS_PER_CORE * spark_context(spark).defaultParallelism))
    return spark.range(0, count, 1, tasks)


def snapshot_ddl(table: AcidTable, columns: Sequence[AcidColumn]) -> str:
    """Return the DDL of the columns of :func:`~.snapshot_frame.read_table`."""
    fields = [f"`{c.name}` {spark_type(parse_hive_type(c.type))}" for c in columns]
    if table.version.has_row_ids:
        fields.insert(0, f"`{ROW_ID_COLUMN}` {_row_id_ddl(table)}")
    return ", ".join(fields)


def _row_id_ddl(table: AcidTable) -> str:
    """Return the Spark type of the table's ROW__ID."""
    partition = f",{PARTITION_FIELD}:string" if table.partition_keys else ""
    return f"struct<{table.version.transaction_field}:bigint,bucketid:int,rowid:bigint{partition}>"
