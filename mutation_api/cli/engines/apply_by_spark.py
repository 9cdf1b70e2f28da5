"""``hive-mutate apply`` by Spark."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from mutation_api.change_set.apply_summary import ApplySummary
from mutation_api.changes.files.change_files import read_changes
from mutation_api.cli.arguments.engine_arguments import ApplyFile
from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.client.transaction import Transaction
from mutation_api.spark.write.job import apply_changes
from mutation_api.storage.location import Location

__all__ = ["opened"]


@contextmanager
def opened(app_name: str) -> Iterator[ApplyFile]:
    """The function that applies a file, while a session is open."""
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
