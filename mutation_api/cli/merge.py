"""``hive-mutate merge``: merge rows of files into a table by key, in one transaction.

Rows of the files whose key is in the table update the table's row; the other rows are inserted. Options
restrict this, or delete rows. Conditions are SQL. A column without the prefix "source." or "target." is a
column of the files; in --delete-missing-when it is a column of the table:

  hive-mutate merge --table travel.airports --key icao --source changes.csv --delete-when "op = 'D'"

A row for which --delete-when is true is never inserted. The files have the table's columns, including
partition columns, in any order and case. A column that a file lacks becomes NULL on insert and is unchanged
on update. Other columns are allowed only if a condition uses them; in CSV and JSON they are read as strings.

CSV and JSON are read with the table's types. A value that cannot be parsed as its column's type is an
error that names the column and the row; it never becomes NULL. An empty CSV field is NULL, and a quoted empty
field ("") is the empty string.

Files are local paths, or locations such as hdfs://namenode/changes.csv or s3a://bucket/changes.

The local engine supports conditions of AND, OR, NOT, =, <>, <, <=, >, >=, <=>, IN, BETWEEN, LIKE,
IS [NOT] NULL, +, -, *, /, %, CASE, COALESCE and CAST over columns of either side and literals ('text', 12,
1.5, TRUE, NULL, DATE '2024-02-29'), if their result is certainly the same as Spark's: for example not for
strings compared with numbers, or decimals with doubles. An order is a single column.

All other SQL needs Spark: with --engine auto, Spark does these merges, and those that read more than 256 MiB
of the table's files. With --engine local, an error names the part of the condition that needs Spark.
"""

from __future__ import annotations

import argparse

from mutation_api.cli.cluster_arguments import add_cluster_arguments
from mutation_api.cli.engine_arguments import (
    ENGINE_OPTIONS,
    MergeTask,
    add_engine_argument,
    add_memory_argument,
    by_engine,
    local_options,
    opened_commands,
    read_bytes_max,
)
from mutation_api.cli.parsers import add_flag, describe, in_option_names
from mutation_api.cli.table_arguments import (
    add_format_argument,
    add_key_argument,
    add_metastore_arguments,
    input_format,
    key_columns,
    location_from,
    metastore_from,
)
from mutation_api.cli.terminal import say_report
from mutation_api.cli.write_arguments import (
    RULE_OPTIONS,
    add_columns_of,
    add_rule_arguments,
    add_schema_argument,
    add_write_arguments,
    check_rule_usage,
    rules_from,
    writing_client,
)
from mutation_api.merge.file_rules import existing_file
from mutation_api.merge.merge_report import MergeReport
from mutation_api.storage.location import Location
from mutation_api.transaction.attempts import Attempts
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.mutator_client import MutatorClient

APP_NAME = "hive-mutate merge"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate merge``."""
    describe(parser, __doc__)
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="table to change")
    add_key_argument(parser, "columns that identify a row")
    parser.add_argument(
        "--source",
        required=True,
        action="append",
        type=location_from,
        metavar="FILE",
        help="file or directory of rows; all files have the same columns (repeatable)",
    )
    add_format_argument(parser, "format of the files (default: by each file's extension)")
    add_rule_arguments(parser)
    add_flag(
        parser,
        "--all-buckets",
        "read all buckets, not only those to which the keys hash; for tables with rows outside the "
        "bucket of their hash",
    )
    add_write_arguments(parser)
    add_schema_argument(parser)
    add_engine_argument(parser)
    add_cluster_arguments(parser)
    add_memory_argument(parser)
    add_flag(parser, "--dry-run", "report what would be done, but write nothing")
    add_flag(parser, "--json", "print the report as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Merge and print the report. Return 0 if the transaction is committed, or aborted after a dry run."""
    check_rule_usage(arguments)
    files = [existing_file(file) for file in arguments.source]
    for file in files:
        input_format(file, arguments.format)
    split_full_name(arguments.table)
    task = _task(arguments, files)
    with (
        in_option_names({**RULE_OPTIONS, **ENGINE_OPTIONS}),
        metastore_from(arguments) as metastore,
        writing_client(metastore, arguments) as client,
    ):
        add_columns_of(metastore, arguments, files)
        attempts = Attempts(arguments.attempts)
        engine, report = by_engine(
            arguments.engine, files, lambda engine: _merged(client, engine, task, attempts)
        )
    say_report(report, as_json=arguments.json, engine=engine)
    return 0


def _task(arguments: argparse.Namespace, files: list[Location]) -> MergeTask:
    return MergeTask(
        table_name=arguments.table,
        files=files,
        format_name=arguments.format,
        keys=key_columns(arguments.key),
        rules=rules_from(arguments),
        options={
            "null_safe": arguments.null_safe,
            "missing_columns": arguments.missing_columns,
            "write_unchanged": arguments.write_unchanged,
            "prune_buckets": not arguments.all_buckets,
        },
        is_dry_run=arguments.dry_run,
        read_bytes_max=read_bytes_max(arguments.engine),
        local=local_options(arguments),
    )


def _merged(client: MutatorClient, engine: str, task: MergeTask, attempts: Attempts) -> MergeReport:
    with opened_commands(engine, APP_NAME) as commands:
        commands.check_merge(task)

        def attempt(_: int) -> MergeReport:
            with client.new_transaction() as transaction:
                report = commands.merge(task, transaction)
                if task.is_dry_run:
                    transaction.abort()
            return report

        return attempts.run(APP_NAME, attempt)
