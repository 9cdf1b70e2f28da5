"""The work of ``hive-mutate apply``, ``diff``, ``ingest`` and ``merge`` by Spark, and its session."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from mutation_api.cdc.spark_engine import SparkEngine
from mutation_api.cli.cluster_arguments import spark_is_given
from mutation_api.cli.engine_arguments import (
    ApplyFile,
    CompareStates,
    DiffTask,
    FileState,
    MergeFiles,
    MergeTask,
    TableState,
)
from mutation_api.merge.merge_report import MergeReport
from mutation_api.merge.row_files import RowFiles, read_changes, save_changes
from mutation_api.merge.spark_diff import count_operations, diff
from mutation_api.merge.spark_rules import merge_by_rules
from mutation_api.spark.job import apply_changes
from mutation_api.spark.local_spark_session import local_spark_session
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.location import Location
from mutation_api.transaction.transaction import Transaction
from mutation_api.write.forecast import ApplySummary

__all__ = ["open_apply", "open_diff", "open_ingest", "open_merge", "spark_session"]


def spark_session(app_name: str) -> SparkSession:
    """Return a session of the user's Spark (--master, spark-submit, spark-defaults.conf), or a local one."""
    if spark_is_given():
        return SparkSession.builder.appName(app_name).getOrCreate()
    return local_spark_session(app_name)


@contextmanager
def open_apply(app_name: str) -> Iterator[ApplyFile]:
    """Yield the function that applies a file. A Spark session is open meanwhile."""
    with spark_session(app_name) as spark:
        yield functools.partial(_apply_file, spark)


def _apply_file(
    spark: SparkSession,
    transaction: Transaction,
    table_name: str,
    file: Location,
    format_name: str,
    *,
    operation_column: str,
    verify_row_ids: bool,
) -> ApplySummary:
    table = transaction.table(table_name)
    return apply_changes(
        transaction,
        table_name,
        read_changes(spark, table, file, format_name, operation_column),
        operation_column=operation_column,
        verify_row_ids=verify_row_ids,
    )


@contextmanager
def open_diff(app_name: str) -> Iterator[CompareStates]:
    """Yield the function that compares two states. A Spark session is open meanwhile."""
    with spark_session(app_name) as spark:
        yield functools.partial(_compare, spark)


def _compare(spark: SparkSession, task: DiffTask) -> Mapping[str, int]:
    with translated_worker_errors(f"comparing table {task.table.full_name}"):
        old, new = _read_table(spark, task.old), _read(spark, task)
        if task.past is not None:
            task.past.check_history()
        changes = diff(task.table, old, new, task.keys, operation_column=task.operation_column)
        try:
            counts = count_operations(changes, task.operation_column)
            if task.output is not None:
                order = [*task.keys, task.operation_column]
                save_changes(changes, task.output, task.output_format, order=order)
        finally:
            changes.unpersist()  # otherwise the next reader of files with these names gets the cache
    return counts


def _read(spark: SparkSession, task: DiffTask) -> DataFrame:
    if isinstance(task.new, FileState):
        rows = RowFiles(spark, task.table, has_row_ids=True)
        return rows.read(task.new.file, task.new.format_name)
    return _read_table(spark, task.new)


def _read_table(spark: SparkSession, state: TableState) -> DataFrame:
    return read_table(state.view, state.table_name, spark=spark)


@contextmanager
def open_ingest(app_name: str) -> Iterator[SparkEngine]:
    """Yield the engine. A Spark session is open meanwhile."""
    with spark_session(app_name) as spark:
        yield SparkEngine(spark)


@contextmanager
def open_merge(app_name: str, task: MergeTask) -> Iterator[MergeFiles]:
    """Yield the function that merges. A Spark session is open meanwhile."""
    with spark_session(app_name) as spark:
        yield functools.partial(_merge, spark, task)


def _merge(spark: SparkSession, task: MergeTask, transaction: Transaction) -> MergeReport:
    table = transaction.table(task.table_name)
    with translated_worker_errors(f"merging into {table.full_name}"):
        merge = merge_by_rules(
            transaction,
            table.full_name,
            source=RowFiles(spark, table, keeps_unknown=True).read_all(task.files, task.format_name),
            on=task.keys,
            rules=task.rules,
            **task.options,
        )
        return merge.dry_run() if task.is_dry_run else merge.execute()
