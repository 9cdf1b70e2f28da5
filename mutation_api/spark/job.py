"""apply_changes: a DataFrame of changes becomes staged files of one table, under an open transaction.

Tasks may be tried again or run twice at once: each attempt writes to a hidden directory of its own and
answers with manifests. Spark hands the answers of the winning attempts to the driver, which removes what the
others left.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame

from metastore_client.model import PartitionInfo
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.acid.row_id import RowIdArrays
from mutation_api.commit.manifest import DeltaManifest, staging_directory
from mutation_api.errors import MutationError, RowIdNotFoundError, TransactionStateError
from mutation_api.orc.storage import Storage
from mutation_api.spark.errors import translated_worker_errors
from mutation_api.spark.plan import (
    ADDRESS_COLUMNS,
    BUCKET,
    BUCKET_PROPERTY,
    OPERATION,
    OPERATION_COLUMN_DEFAULT,
    PARTITION,
    ROW_NUMBER,
    TXN,
    plan_changes,
)
from mutation_api.spark.read import snapshot
from mutation_api.spark.summary import ApplySummary
from mutation_api.spark.verify import touched_partitions
from mutation_api.spark.verify import verify_row_ids as verify_planned_row_ids
from mutation_api.table.acid_table import AcidTable, TableRole
from mutation_api.table.serializer import AcidTableSerializer
from mutation_api.worker.coordinator import MutatorCoordinator, WriterOptions

__all__ = ["ChangeWriter", "OpenTransaction", "apply_changes", "write_batch"]

logger = logging.getLogger(__name__)

MANIFEST_DDL = "manifest string"
"""What a task yields: one line of JSON for each file it wrote."""


class OpenTransaction(Protocol):
    """What this module needs of :class:`mutation_api.client.transaction.Transaction`."""

    @property
    def valid_txn_list(self) -> ValidTxnList:
        """The transactions that it sees."""
        ...

    def valid_ids(self, full_name: str) -> ValidIdList:
        """The snapshot of one of its tables."""
        ...

    def table(self, full_name: str) -> AcidTable:
        """Descriptor of one of its tables, bound to it."""
        ...

    def partitions(self, full_name: str) -> Sequence[PartitionInfo]:
        """Partitions that exist."""
        ...

    def check(self) -> None:
        """Raise if the lock or the transaction is lost."""
        ...

    def on_lost(self, callback: Callable[[Exception], None]) -> None:
        """Have ``callback`` called when the lock or the transaction is lost."""
        ...

    def add_manifests(self, full_name: str, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
        """Hand over what a writer staged, to be published by the commit."""
        ...


def apply_changes(
    transaction: OpenTransaction,
    table_name: str,
    changes: DataFrame,
    *,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
    num_partitions: int | None = None,
    insert_files: int | None = None,
    verify_row_ids: bool = False,
    options: WriterOptions | None = None,
) -> ApplySummary:
    """Write a set of inserts, updates and deletes for one table; they become visible when the transaction
    commits.

    ``changes`` has, in any order and case,

    * the operation: 'insert', 'update' or 'delete', in any case;
    * ``ROW__ID``: struct<writeid:bigint, bucketid:int, rowid:bigint> (Hive 2: ``transactionid``), as
      ``snapshot`` reads it, with its field ``partition`` or without; null for inserts, where it is ignored;
      the column may be missing if all are inserts;
    * the table's columns, partition columns included. An update brings the whole new row. Of a delete only
      ROW__ID counts, and the partition columns unless ROW__ID knows the partition; a change set of deletes
      may leave the other columns out.

    An update stays in its partition and bucket; moving a row is a delete and an insert. A row may be changed
    once. Insert-only tables take inserts alone.

    If a task fails, Spark evaluates its share of ``changes`` again: a DataFrame that gives other rows each
    time (rand(), a source that moves on) has to be written down first (cache, checkpoint, a table). So it has
    with ``verify_row_ids``, which evaluates the changes once more.

    If this raises, nothing was kept for the table, and the transaction is still open: abort it, or apply
    again.

    Args:
        transaction: begun; :meth:`Transaction.table` must know the table as a sink.
        table_name: ``database.table``; once in a transaction, other tables may have their own changes in it.
        changes: any DataFrame; it is evaluated by this call.
        operation_column: name of the operation's column.
        num_partitions: writing tasks; by default the session's shuffle partitions, at most four for each
            core.
        insert_files: for tables that are not bucketed, how many files the inserts of a partition are spread
            over, by a hash of their content; by default one for each writing task, in a partitioned table at
            most INSERT_FILES_PER_PARTITION, and one only where ``wants_one_writer_if_unbucketed`` says so.
        verify_row_ids: look every ROW__ID of updates and deletes up in the snapshot, before anything is
            written.
        options: stripe size, batch size and compression of the writers.

    Returns:
        What was written.

    Raises:
        TransactionStateError: not begun, a source table, or the table got its changes in this transaction
            already.
        RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, RecordSequenceError: the
            change set is wrong; the message names rows.
        TableNotMutableError: an update or delete in an insert-only table.
        ConfigurationError: ``insert_files`` makes no sense.
        LockLostError, TransactionAbortedError: the transaction was lost; the Spark job has been cancelled.
        WorkerError: anything else that stopped the Spark job.
    """
    table = transaction.table(table_name)
    _check_sink(table)
    with _only_apply(transaction, table.full_name):
        transaction.check()
        planned = plan_changes(
            table,
            changes,
            transaction.valid_ids(table.full_name),
            num_partitions=num_partitions,
            insert_files=insert_files,
            operation_column=operation_column,
        )
        writer_id = uuid.uuid4().hex
        writer = ChangeWriter(
            AcidTableSerializer.encode(table),
            writer_id,
            options or WriterOptions(),
            tuple(planned.columns[len(ADDRESS_COLUMNS) :]),
        )
        started = time.monotonic()
        try:
            with _cancelled_when_lost(transaction, planned.sparkSession.sparkContext, writer_id):
                if verify_row_ids:
                    _verify(transaction, table, planned)
                verified = time.monotonic()
                manifests = _run(table, planned, writer)
            _remove_losing_attempts(table, writer_id, manifests)
            _check_partitions_exist(transaction, table, manifests)
            transaction.add_manifests(table.full_name, writer_id, manifests)
        except BaseException:
            _remove_writer_directories(table, writer_id)
            raise
    return ApplySummary.from_manifests(
        table.full_name,
        table.required_txn_id(),
        manifests,
        verify_seconds=verified - started if verify_row_ids else 0.0,
        write_seconds=time.monotonic() - verified,
    )


@dataclass(frozen=True)
class ChangeWriter:
    """The work of one task: feed planned changes to a coordinator, yield the manifests as JSON.

    Travels to the workers, hence the table in its text form. ``columns`` are the names of the data columns in
    the planned changes, whatever they are called on their way.
    """

    table_text: str
    writer_id: str
    options: WriterOptions
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all batches of one task. The last thing that may fail happens before the first yield."""
        coordinator = MutatorCoordinator(
            AcidTableSerializer.decode(self.table_text),
            writer_id=self.writer_id,
            attempt_id=_attempt_id(),
            options=self.options,
        )
        try:
            for batch in batches:
                write_batch(coordinator, batch.rename_columns([*ADDRESS_COLUMNS, *self.columns]))
            manifests = coordinator.close()
        except BaseException:
            _abort_quietly(coordinator)
            raise
        yield pa.record_batch({"manifest": pa.array([m.to_json() for m in manifests], pa.string())})


def write_batch(coordinator: MutatorCoordinator, batch: pa.RecordBatch) -> None:
    """Cut a planned batch at the borders of its groups and write each piece.

    Args:
        coordinator: of the task.
        batch: columns as :func:`mutation_api.spark.plan.plan_changes` describes them, in its order.
    """
    if not batch.num_rows:
        return
    address = {name: batch.column(name) for name in ADDRESS_COLUMNS}
    partitions, buckets, codes = address[PARTITION], address[BUCKET], address[OPERATION].to_numpy()
    row_ids = RowIdArrays(*(address[name].to_numpy() for name in (TXN, BUCKET_PROPERTY, ROW_NUMBER)))
    rows = _rows(batch)
    bounds = _group_bounds(partitions, buckets)
    for start, end in itertools.pairwise(bounds):
        coordinator.write_events(
            partitions[start].as_py(),
            buckets[start].as_py(),
            codes[start:end],
            row_ids.take(slice(start, end)),
            None if rows is None else rows.slice(start, end - start),
        )


def _rows(batch: pa.RecordBatch) -> pa.StructArray | None:
    names = batch.schema.names[len(ADDRESS_COLUMNS) :]
    if not names:
        return None
    return pa.StructArray.from_arrays([batch.column(n) for n in names], names=names)


def _group_bounds(partitions: pa.Array, buckets: pa.Array) -> list[int]:
    """Where groups begin, and the number of rows."""
    changes: npt.NDArray[np.bool_] = np.zeros(len(buckets), np.bool_)
    changes[0] = True
    changes[1:] = np.diff(buckets.to_numpy()) != 0
    changes[1:] |= pc.not_equal(partitions[1:], partitions[:-1]).to_numpy(zero_copy_only=False)
    return [*np.flatnonzero(changes).tolist(), len(buckets)]


def _attempt_id() -> str:
    context = TaskContext.get()
    if context is None:
        return "0"
    # The attempt id alone is unique in the job; the partition's number is for people who look into the
    # directory.
    return f"{context.partitionId()}-{context.taskAttemptId()}"


def _abort_quietly(coordinator: MutatorCoordinator) -> None:
    try:
        coordinator.abort()
    except (MutationError, OSError):
        logger.exception("aborting the coordinator failed; the driver removes its files")


def _check_sink(table: AcidTable) -> None:
    if table.role is not TableRole.SINK:
        raise TransactionStateError(
            f"table {table.full_name} is a source of this transaction and cannot be written; "
            "declare it with add_sink_table"
        )


_applied: weakref.WeakKeyDictionary[OpenTransaction, set[str]] = weakref.WeakKeyDictionary()
_applied_guard = threading.Lock()


@contextlib.contextmanager
def _only_apply(transaction: OpenTransaction, table_name: str) -> Iterator[None]:
    """Let a table get its changes once in a transaction; a failed attempt does not count."""
    with _applied_guard:
        tables = _applied.setdefault(transaction, set())
        if table_name in tables:
            raise TransactionStateError(
                f"table {table_name} has got its changes in this transaction already; "
                "bring them into one DataFrame (unionByName) and apply it once"
            )
        tables.add(table_name)
    try:
        yield
    except BaseException:
        with _applied_guard:
            tables.discard(table_name)
        raise


@contextlib.contextmanager
def _cancelled_when_lost(transaction: OpenTransaction, context: SparkContext, tag: str) -> Iterator[None]:
    """Tag the jobs of the block; cancel them when the transaction is lost or the user interrupts.

    If the block fails and the transaction is lost, the loss is what is raised: the failure followed from it.
    """

    def cancel(_: Exception) -> None:
        context.cancelJobsWithTag(tag)

    transaction.on_lost(cancel)
    context.addJobTag(tag)
    try:
        yield
    except KeyboardInterrupt:
        context.cancelJobsWithTag(tag)
        raise
    except MutationError as error:
        _raise_loss(transaction, error)
        raise
    finally:
        context.removeJobTag(tag)


def _raise_loss(transaction: OpenTransaction, error: MutationError) -> None:
    try:
        transaction.check()
    except MutationError as loss:
        raise loss from error


def _verify(transaction: OpenTransaction, table: AcidTable, planned: DataFrame) -> None:
    with translated_worker_errors(f"table {table.full_name}: looking up the ROW__IDs of the changes"):
        names = touched_partitions(planned)
        if not names:
            return
        _check_known_partitions(transaction, table, names)
        known = snapshot(
            planned.sparkSession,
            transaction,
            table.full_name,
            columns=[],
            partitions=names if table.partition_keys else None,
        )
        verify_planned_row_ids(table, planned, known)


def _run(table: AcidTable, planned: DataFrame, writer: ChangeWriter) -> tuple[DeltaManifest, ...]:
    with translated_worker_errors(
        f"table {table.full_name}, transaction {table.txn_id}: writing the changes"
    ):
        # pyspark takes a dot in a column's name for a field of a struct, so they travel under plain ones.
        numbered = planned.toDF(*ADDRESS_COLUMNS, *(f"c{number}" for number in range(len(writer.columns))))
        rows = numbered.mapInArrow(writer.__call__, MANIFEST_DDL).collect()
    return tuple(DeltaManifest.from_json(row[0]) for row in rows)


def _check_partitions_exist(
    transaction: OpenTransaction, table: AcidTable, manifests: Sequence[DeltaManifest]
) -> None:
    """Refuse updates and deletes in partitions that do not exist: no such row can exist either."""
    if table.partition_keys:
        names = {m.partition_name for m in manifests if m.update_count or m.delete_count}
        _check_known_partitions(transaction, table, sorted(names))


def _check_known_partitions(transaction: OpenTransaction, table: AcidTable, names: Sequence[str]) -> None:
    if not table.partition_keys:
        return
    existing = {p.name for p in transaction.partitions(table.full_name)}
    unknown = [name for name in names if name not in existing]
    if unknown:
        raise RowIdNotFoundError(
            f"table {table.full_name}: the change set updates or deletes rows in partitions that do not "
            "exist: "
            f"{', '.join(unknown[:5])}{', …' if len(unknown) > 5 else ''}; check the partition columns of "
            "the changes"
        )


def _writer_directories(table: AcidTable, writer_id: str) -> Iterator[tuple[Storage, str]]:
    """The writer's directory in the table and in each partition that lies elsewhere."""
    for location in (table.location, *table.partition_locations.values()):
        storage = Storage.for_location(location)
        staging = storage.path(staging_directory(location, table.required_txn_id()))
        yield storage, f"{staging}/{writer_id}"


def _remove_losing_attempts(table: AcidTable, writer_id: str, manifests: Sequence[DeltaManifest]) -> None:
    winners = {m.attempt_id for m in manifests}
    for storage, directory in _writer_directories(table, writer_id):
        with contextlib.suppress(FileNotFoundError):
            for entry in storage.list(directory):
                if entry.name not in winners:
                    logger.info("removing what a lost task attempt left: %s", entry.path)
                    storage.delete_directory(entry.path)


def _remove_writer_directories(table: AcidTable, writer_id: str) -> None:
    for storage, directory in _writer_directories(table, writer_id):
        try:
            storage.delete_directory(directory)
        except OSError:
            logger.exception("removing %s failed; it is hidden, and the abort tries again", directory)
