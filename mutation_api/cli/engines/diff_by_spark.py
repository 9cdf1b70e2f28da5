"""``hive-mutate diff`` by Spark."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from mutation_api.changes.files.change_files import save_changes
from mutation_api.changes.files.row_files import RowFiles
from mutation_api.changes.spark_merge.diff import count_operations, diff
from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.cli.engines.tasks import CompareStates, DiffTask, FileState, TableState
from mutation_api.spark.read.snapshot_frame import snapshot
from mutation_api.spark.worker_errors import translated_worker_errors

__all__ = ["opened"]


@contextmanager
def opened(app_name: str) -> Iterator[CompareStates]:
    """The function that compares, while a session is open."""
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
            changes.unpersist()  # else Spark serves the cache to the next reader of files with these names
    return counts


def _read(spark: SparkSession, task: DiffTask) -> DataFrame:
    if isinstance(task.new, FileState):
        rows = RowFiles(spark, task.table, has_row_ids=True)
        return rows.read(task.new.file, task.new.format_name)
    return _read_table(spark, task.new)


def _read_table(spark: SparkSession, state: TableState) -> DataFrame:
    return snapshot(state.view, state.table_name, spark=spark)
