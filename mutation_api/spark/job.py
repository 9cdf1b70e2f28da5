"""apply_changes: write a DataFrame of changes as staged files of one table, in an open transaction.

Spark may repeat a task or run it twice at the same time. So each attempt writes to its own hidden directory
and returns manifests. Spark passes the results of the winning attempts to the driver, which removes the files
of the other attempts.

On request, the ROW__IDs of updates and deletes are looked up in the transaction's snapshot before anything is
written. Hive silently writes an update of a missing row as a new row, and ignores a delete of one. This check
finds both. It costs another evaluation of the changes and a scan of the touched partitions' ROW__IDs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyspark.sql.functions as sf
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from mutation_api.errors import ConfigurationError, MutationError
from mutation_api.format.event import ADDED_OPERATION, ROW_ID_COLUMN, Operation
from mutation_api.spark.credentials import worker_settings
from mutation_api.spark.frame_table import counted_by_rows
from mutation_api.spark.jvm import estimated_bytes, plan_kinds, spark_context
from mutation_api.spark.plan import ChangePlan, plan_changes
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.spark.tasks import ChangeWriter
from mutation_api.spark.versions import collected
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.table.acid_table import AcidTable, AcidTableSerializer, WriterOptions
from mutation_api.transaction.manifest import DeltaManifest
from mutation_api.write.address import (
    BUCKET_PROPERTY,
    PARTITION,
    ROW_NUMBER,
    TXN,
    UNKNOWN_ROWS_SHOWN,
    UnknownRow,
    unknown_rows_error,
)
from mutation_api.write.forecast import ApplySummary
from mutation_api.write.layout import OPERATION_COLUMN_DEFAULT
from mutation_api.write.staged_writer import (
    OpenTransaction,
    check_known_partitions,
    check_partitions_exist,
    check_sink,
    raise_if_lost,
    remove_losing_attempts,
    remove_writer,
    table_roots,
)

IDENTITY = (PARTITION, TXN, BUCKET_PROPERTY, ROW_NUMBER)
"""The columns that identify a row of a table."""


def touched_partitions(addresses: DataFrame) -> list[str]:
    """Return the names of the partitions in which the changes update or delete rows, sorted."""
    names = _existing_rows(addresses).select(PARTITION).distinct().collect()
    return sorted(row[0] for row in names)


def verify_changed_row_ids(table: AcidTable, addresses: DataFrame, snapshot: DataFrame) -> None:
    """Check that every update and delete refers to a row of the snapshot.

    Args:
        table: the table, for messages.
        addresses: ADDRESS_COLUMNS of the changes.
        snapshot: at least the column ROW__ID of the touched partitions.

    Raises:
        RowIdNotFoundError: If some of them do not. The message shows the first few, with partition and
            bucket.
    """
    partition = sf.col(f"{ROW_ID_COLUMN}.partition") if table.partition_keys else sf.lit("")
    known = snapshot.select(
        partition.alias(PARTITION),
        sf.col(f"{ROW_ID_COLUMN}.{table.version.transaction_field}").alias(TXN),
        sf.col(f"{ROW_ID_COLUMN}.bucketid").alias(BUCKET_PROPERTY),
        sf.col(f"{ROW_ID_COLUMN}.rowid").alias(ROW_NUMBER),
    )
    missing = (
        _existing_rows(addresses)
        .select(*IDENTITY, ADDED_OPERATION)
        .join(known, list(IDENTITY), "left_anti")
        .take(UNKNOWN_ROWS_SHOWN)
    )
    if missing:
        raise unknown_rows_error(table, [UnknownRow(*row) for row in missing])


def _existing_rows(addresses: DataFrame) -> DataFrame:
    return addresses.where(sf.col(ADDED_OPERATION) != int(Operation.INSERT))


FEW_BYTES = "spark.hive.mutation.fewBytes"
"""A session setting: the driver handles changes of at most this estimated size. 0 turns this off."""
FEW_BYTES_DEFAULT = 16 << 20

BOUNDED = frozenset(
    (
        "Aggregate",
        "Filter",
        "GlobalLimit",
        "InMemoryRelation",
        "LocalLimit",
        "LocalRelation",
        "LogicalRelation",
        "Project",
        "Range",
        "Repartition",
        "RepartitionByExpression",
        "Sort",
        "SubqueryAlias",
        "Union",
        "Window",
    )
)
"""The plan nodes that return no more rows than their input, or for which Spark knows the size of the rows."""


def few_bytes(spark: SparkSession) -> int:
    """Return the session's limit.

    Raises:
        ConfigurationError: If it is not a number of bytes.
    """
    text = str(spark.conf.get(FEW_BYTES, str(FEW_BYTES_DEFAULT)))
    if not text.isdecimal():
        raise ConfigurationError(f"{FEW_BYTES}={text!r}: expected a number of bytes; 0 turns it off")
    return int(text)


def is_few(frame: DataFrame) -> bool:
    """Return True if the rows are certainly within the session's limit. Evaluates nothing.

    Spark estimates the size of a DataFrame from the files or values at its beginning. It does not know how
    many rows a join, ``explode`` or Python returns, so these may be many.
    """
    limit = few_bytes(frame.sparkSession)
    return limit > 0 and plan_kinds(frame) <= BOUNDED and estimated_bytes(frame) <= limit


def collected_if_few(frame: DataFrame) -> pa.Table | None:
    """Return the rows of a DataFrame for which :func:`is_few` is true. None if they exceed the estimate."""
    rows = collected(frame)
    return rows if rows.nbytes <= few_bytes(frame.sparkSession) else None


logger = logging.getLogger(__name__)


def apply_changes(
    transaction: OpenTransaction,
    table: str,
    changes: DataFrame,
    *,
    operation_column: str = OPERATION_COLUMN_DEFAULT,
    num_partitions: int | None = None,
    insert_files: int | None = None,
    verify_row_ids: bool = False,
    read_now: bool = False,
    options: WriterOptions | None = None,
) -> ApplySummary:
    """Write inserts, updates and deletes of one table. They become visible when the transaction commits.

    ``changes`` has these columns, in any order and case:

    * the operation: 'insert', 'update' or 'delete', in any case;
    * ``ROW__ID``: struct<writeid:bigint, bucketid:int, rowid:bigint> (Hive 2: ``transactionid``), as
      ``read_table`` reads it, with or without its field ``partition``. It is ignored for inserts, where it
      may be null. A change set of inserts may lack the column;
    * the table's columns, including partition columns. An update has the whole new row. A delete requires
      only ROW__ID, and the partition columns if ROW__ID does not have the partition. A change set of deletes
      may lack the other columns.

    An update stays in its partition and bucket. To move a row, delete and insert it. A row may be changed
    only once. Insert-only tables accept only inserts.

    If a task fails, Spark evaluates its share of ``changes`` again. So materialise a non-deterministic
    DataFrame (rand(), a source that changes) first, with cache, checkpoint or a table. The same applies to
    ``verify_row_ids``, which evaluates the changes a second time.

    If this raises an error, nothing is kept for the table, and the transaction is still open. Abort it, or
    apply the changes again.

    Args:
        transaction: an open transaction. The table must be one of its sinks.
        table: ``database.table``. A transaction accepts any number of change sets of a table, each of which
            sees the rows that earlier ones have written. On Hive 2 it accepts only one.
        changes: any DataFrame, which this call evaluates.
        operation_column: name of the operation column.
        num_partitions: number of writing tasks. By default the session's shuffle partitions, but at most four
            per core, or two if closing files waits (HDFS). Changes that are certainly few
            (``spark.hive.mutation.fewBytes``) are written by the driver.
        insert_files: for unbucketed tables, the number of files over which the inserts of a partition are
            spread, by a hash of their content. By default one per writing task, and in a partitioned table at
            most INSERT_FILES_PER_PARTITION; only one if ``wants_one_writer_if_unbucketed``.
        verify_row_ids: True to look up every ROW__ID of updates and deletes in the snapshot before anything
            is written. In later change sets of a table this is always done, unless ``read_now``.
        read_now: True if the ROW__IDs were read after the transaction's last change of the table.
        options: stripe size and compression of the files, and memory for sorting.

    Returns:
        A summary of the written changes.

    Raises:
        TransactionStateError: If the transaction is not open, if the table is a source, or if it already has
            its change set on Hive 2.
        RecordLayoutError, RecordValueError, BucketIdError, RowIdNotFoundError, RecordSequenceError: If the
            change set is invalid. The message shows rows.
        TableNotMutableError: If an insert-only table is updated or rows are deleted from it.
        ConfigurationError: If ``insert_files`` is invalid.
        LockLostError, TransactionAbortedError: If the transaction was lost. The Spark job has been cancelled.
        WorkerError: If the Spark job failed for another reason.
    """
    transaction.settle(table)
    acid_table = transaction.table(table)

    def plan_for(tasks: int | None) -> ChangePlan:
        return plan_changes(
            acid_table,
            changes,
            transaction.valid_ids(acid_table.full_name),
            num_partitions=tasks,
            insert_files=insert_files,
            operation_column=operation_column,
        )

    by_driver = num_partitions is None and is_few(changes)
    return _applied(
        transaction,
        acid_table,
        lambda: plan_for(1 if by_driver else num_partitions),
        options,
        verify_row_ids=verify_row_ids or (acid_table.statement_id > 0 and not read_now),
        by_tasks=(lambda: plan_for(None)) if by_driver else None,
    )


def apply_plan(
    transaction: OpenTransaction,
    table: str,
    plan_for: Callable[[], ChangePlan],
    options: WriterOptions | None = None,
) -> ApplySummary:
    """Write a planned change set whose ROW__IDs were read after the transaction's last change of the table.

    Args:
        transaction: see :func:`apply_changes`.
        table: see :func:`apply_changes`.
        plan_for: creates the plan, after it has been checked that the table may be changed.
        options: see :func:`apply_changes`.

    Raises:
        Errors: See :func:`apply_changes`.
    """
    transaction.settle(table)
    return _applied(transaction, transaction.table(table), plan_for, options, verify_row_ids=False)


def _applied(
    transaction: OpenTransaction,
    table: AcidTable,
    plan_for: Callable[[], ChangePlan],
    options: WriterOptions | None,
    *,
    verify_row_ids: bool,
    by_tasks: Callable[[], ChangePlan] | None = None,
) -> ApplySummary:
    """Write a planned change set.

    With ``by_tasks``, the driver writes it. If it has more rows than the driver accepts, this function plans
    it for tasks.
    """
    check_sink(table)
    with transaction.changing(table.full_name):
        transaction.check()
        plan = plan_for()
        context = spark_context(plan.changes.sparkSession)
        verify_seconds = 0.0

        def write(writer: ChangeWriter) -> tuple[DeltaManifest, ...]:
            nonlocal verify_seconds
            if verify_row_ids:
                started = time.monotonic()
                _verify(transaction, table, plan.addresses())
                verify_seconds = time.monotonic() - started
            manifests = None if by_tasks is None else _written_by_driver(table, plan, writer)
            if manifests is None:
                manifests = _run(table, plan if by_tasks is None else by_tasks(), writer)
            return manifests

        summary = stage(transaction, table, context, options, write)
    return dataclasses.replace(
        summary, verify_seconds=verify_seconds, write_seconds=summary.write_seconds - verify_seconds
    )


def new_writer(table: AcidTable, context: SparkContext, options: WriterOptions | None) -> ChangeWriter:
    """Return a writer with a new id, for tasks."""
    text, storage = AcidTableSerializer.encode(table), worker_settings(context, table_roots(table))
    return ChangeWriter(text, uuid.uuid4().hex, options or WriterOptions(), storage)


def stage(
    transaction: OpenTransaction,
    table: AcidTable,
    context: SparkContext,
    options: WriterOptions | None,
    write: Callable[[ChangeWriter], tuple[DeltaManifest, ...]],
) -> ApplySummary:
    """Write a change set by jobs, and add the manifests to the transaction.

    Call it within the block of :meth:`OpenTransaction.changing`. The jobs are cancelled if the transaction is
    lost. If this raises an error, no file is kept.

    Args:
        transaction: an open transaction.
        table: the table's descriptor, which is bound to the transaction.
        context: the context of the jobs.
        options: see :func:`apply_changes`.
        write: runs the jobs with a writer, and returns the manifests of the winning attempts.
    """
    writer = new_writer(table, context, options)
    started = time.monotonic()
    try:
        with _cancelled_when_lost(transaction, context, writer.writer_id):
            manifests = write(writer)
        remove_losing_attempts(table, writer.writer_id, manifests)
        check_partitions_exist(transaction, table, manifests)
        transaction.add_manifests(table.full_name, writer.writer_id, manifests)
    except BaseException:
        remove_writer(table, writer.writer_id)
        raise
    return ApplySummary.from_manifests(
        table.full_name,
        table.required_txn_id(),
        manifests,
        verify_seconds=0.0,
        write_seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def _cancelled_when_lost(transaction: OpenTransaction, context: SparkContext, tag: str) -> Iterator[None]:
    """Tag the jobs of the block. Cancel them when the transaction is lost or the user interrupts.

    If the block fails and the transaction is lost, the error about the loss is raised, since it caused the
    failure.
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
        raise_if_lost(transaction, error)
        raise
    finally:
        context.removeJobTag(tag)


def _verify(transaction: OpenTransaction, table: AcidTable, addresses: DataFrame) -> None:
    with translated_worker_errors(f"table {table.full_name}: looking up the ROW__IDs of the changes"):
        names = touched_partitions(addresses)
        if not names:
            return
        check_known_partitions(transaction, table, names)
        known = read_table(
            transaction,
            table.full_name,
            columns=[],
            partitions=names if table.partition_keys else None,
            spark=addresses.sparkSession,
        )
        verify_changed_row_ids(table, addresses, known)


def _written_by_driver(
    table: AcidTable, plan: ChangePlan, writer: ChangeWriter
) -> tuple[DeltaManifest, ...] | None:
    """Write few rows in the driver, which is faster. Return None if they have more bytes than estimated."""
    with translated_worker_errors(_what(table)):
        rows = collected_if_few(plan.changes)
    if rows is None:
        return None
    return writer.write(plan.pieces_of(rows, writer.options.sort_memory_bytes))


def _run(table: AcidTable, plan: ChangePlan, writer: ChangeWriter) -> tuple[DeltaManifest, ...]:
    with translated_worker_errors(_what(table)), counted_by_rows(plan.changes.sparkSession):
        lines = plan.split(writer.options.sort_memory_bytes).mapPartitions(writer.__call__).collect()
    return tuple(DeltaManifest.from_json(line) for line in lines)


def _what(table: AcidTable) -> str:
    return f"table {table.full_name}, transaction {table.txn_id}: writing the changes"
