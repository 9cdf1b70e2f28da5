"""``hive-mutate merge`` by Spark."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from mutation_api.changes.files.row_files import RowFiles
from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.spark_merge.merge_rules import merge_by_rules
from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.cli.engines.tasks import MergeFiles, MergeTask
from mutation_api.client.transaction import Transaction
from mutation_api.spark.worker_errors import translated_worker_errors

__all__ = ["opened"]


@contextmanager
def opened(app_name: str, task: MergeTask) -> Iterator[MergeFiles]:
    """The function that merges, while a session is open."""
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
            null_safe=task.null_safe,
            missing_columns=task.missing_columns,
            write_unchanged=task.write_unchanged,
            prune_buckets=task.prune_buckets,
        )
        return merge.dry_run() if task.is_dry_run else merge.merge()
