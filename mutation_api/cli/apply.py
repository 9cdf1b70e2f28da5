"""``hive-mutate apply``: a file of changes, applied to one table in one transaction.

The file has the table's columns, partition columns included, in any order and case, and the operation. The
row of an update or delete is named by its ROW__ID: in JSON, ORC and Parquet a struct of that name, in CSV the
columns ``ROW__ID.writeid`` (Hive 2: ``ROW__ID.transactionid``), ``ROW__ID.bucketid``, ``ROW__ID.rowid`` and,
if known, ``ROW__ID.partition``.

CSV and JSON are read with the table's types. A text that is no value of its column's type is refused, naming
the column and the row; it never becomes NULL. An empty CSV field is NULL, a quoted empty one ("") the empty
text.

CHANGES lie on a local disk or where Spark reads, such as hdfs://namenode/changes.csv or s3a://bucket/changes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from pyspark.sql import DataFrame, SparkSession

from mutation_api.cli.arguments.locations import place
from mutation_api.cli.arguments.metastore_arguments import (
    ReportLoss,
    add_metastore_arguments,
    add_write_lock_argument,
    metastore_from,
)
from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.cli.arguments.table_files import FORMATS, TableFiles, existing_file, file_format
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.catalog import split_full_name
from mutation_api.spark.write.apply_summary import ApplySummary
from mutation_api.spark.write.job import apply_changes
from mutation_api.spark.write.plan import OPERATION_COLUMN_DEFAULT
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable

__all__ = ["add_arguments", "read_changes", "run"]

APP_NAME = "hive-mutate apply"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate apply``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.add_argument("table", metavar="DB.TABLE", help="the table to change")
    parser.add_argument("changes", metavar="CHANGES", type=place, help="file or folder of changes")
    parser.add_argument(
        "--format", choices=FORMATS, help="format of the changes (default: by the file's extension)"
    )
    parser.add_argument(
        "--operation-column",
        default=OPERATION_COLUMN_DEFAULT,
        metavar="NAME",
        help="column that says insert, update or delete (default: %(default)s)",
    )
    parser.add_argument(
        "--create-partitions",
        action="store_true",
        help="create partitions that do not exist (default: refuse)",
    )
    parser.add_argument(
        "--verify-row-ids",
        action="store_true",
        help="look up the rows of updates and deletes before anything is written",
    )
    add_write_lock_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Apply the changes and print what was done; 0 when the transaction is committed."""
    file = existing_file(arguments.changes)
    format_name = file_format(file, arguments.format)
    names = split_full_name(arguments.table)
    builder = MutatorClientBuilder().lock_failure_listener(ReportLoss()).write_lock(arguments.write_lock)
    builder.add_sink_table(*names, create_partitions=arguments.create_partitions)
    with (
        metastore_from(arguments) as metastore,
        builder.metastore(metastore).build() as client,
        spark_session(APP_NAME) as spark,
    ):
        with client.new_transaction() as transaction:
            table = transaction.table(arguments.table)
            changes = read_changes(spark, table, file, format_name, arguments.operation_column)
            summary = apply_changes(
                transaction,
                arguments.table,
                changes,
                operation_column=arguments.operation_column,
                verify_row_ids=arguments.verify_row_ids,
            )
        _print(summary, as_json=arguments.json)
    return 0


def read_changes(
    spark: SparkSession, table: AcidTable, file: Location, format_name: str, operation_column: str
) -> DataFrame:
    """Read a file of changes with the table's types.

    Args:
        spark: the session.
        table: whose changes they are.
        file: a file, or a folder of files of one format.
        format_name: one of FORMATS.
        operation_column: name of the operation's column.

    Returns:
        A DataFrame as ``apply_changes`` takes it.

    Raises:
        RecordLayoutError, RecordValueError, ConfigurationError: see :meth:`TableFiles.read`.
    """
    return TableFiles(spark, table, {operation_column: "string"}, has_row_ids=True).read(file, format_name)


def _print(summary: ApplySummary, *, as_json: bool) -> None:
    print(json.dumps(dataclasses.asdict(summary)) if as_json else summary)
