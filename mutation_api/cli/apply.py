"""``hive-mutate apply``: apply a file of changes to one table in one transaction.

The file has the table's columns, including partition columns, in any order and case, and an operation column.
An update or delete needs the ROW__ID of its row. In JSON, ORC and Parquet it is a struct of that name. In CSV
it is the columns ``ROW__ID.writeid`` (Hive 2: ``ROW__ID.transactionid``), ``ROW__ID.bucketid``,
``ROW__ID.rowid`` and, if known, ``ROW__ID.partition``.

CSV and JSON are read with the table's types. A value that cannot be parsed as its column's type is an
error that names the column and the row; it never becomes NULL. An empty CSV field is NULL, and a quoted empty
field ("") is the empty string.

With --attempts, each attempt after the first checks ROW__IDs as --verify-row-ids does, since the transaction
that won may have changed the same rows.

CHANGES is a local path, or a location such as hdfs://namenode/changes.csv or s3a://bucket/changes. The local
engine refuses CSV that readers interpret differently, such as quotes within a field.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from mutation_api.cli.cluster_arguments import add_cluster_arguments
from mutation_api.cli.engine_arguments import ApplyTask, add_engine_argument, by_engine, opened_commands
from mutation_api.cli.parsers import add_flag, describe
from mutation_api.cli.table_arguments import (
    add_format_argument,
    add_metastore_arguments,
    input_format,
    location_from,
    metastore_from,
)
from mutation_api.cli.terminal import say
from mutation_api.cli.write_arguments import (
    add_operation_column_argument,
    add_write_arguments,
    writing_client,
)
from mutation_api.merge.file_rules import existing_file
from mutation_api.transaction.attempts import Attempts
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.write.forecast import ApplySummary

APP_NAME = "hive-mutate apply"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate apply``."""
    describe(parser, __doc__)
    parser.add_argument("table", metavar="DB.TABLE", help="table to change")
    parser.add_argument("changes", metavar="CHANGES", type=location_from, help="file or directory of changes")
    add_format_argument(parser, "format of the changes (default: by the file's extension)")
    add_operation_column_argument(parser)
    add_flag(
        parser,
        "--verify-row-ids",
        "check that the rows of updates and deletes exist before anything is written",
    )
    add_write_arguments(parser)
    add_engine_argument(parser)
    add_cluster_arguments(parser)
    add_flag(parser, "--json", "print the summary as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Apply the changes and print a summary. Return 0 when the transaction is committed."""
    file = existing_file(arguments.changes)
    format_name = input_format(file, arguments.format)
    task = ApplyTask(arguments.table, file, format_name, arguments.operation_column)
    split_full_name(arguments.table)
    with (
        metastore_from(arguments) as metastore,
        writing_client(metastore, arguments) as client,
    ):
        engine, summary = by_engine(
            arguments.engine, [file], lambda engine: _applied(client, engine, task, arguments)
        )
    if arguments.json:
        say(json.dumps({**dataclasses.asdict(summary), "engine": engine}))
    else:
        say(f"{summary} ({engine})")
    return 0


def _applied(
    client: MutatorClient, engine: str, task: ApplyTask, arguments: argparse.Namespace
) -> ApplySummary:
    with opened_commands(engine, APP_NAME) as commands:

        def attempt(number: int) -> ApplySummary:
            with client.new_transaction() as transaction:
                # The transaction that won may have changed the rows of the file.
                verify_row_ids = arguments.verify_row_ids or number > 1
                return commands.apply_file(transaction, task, verify_row_ids=verify_row_ids)

        return Attempts(arguments.attempts).run(APP_NAME, attempt)
