"""``hive-mutate diff``: compare a table with a file, with another table, or with its own past.

The differences are written as a change set for "hive-mutate apply": operation, ROW__ID and the table's
columns. Applying it makes the table equal to the other side:

  hive-mutate diff --table travel.airports --key icao --against airports.csv --output changes.parquet
  hive-mutate apply travel.airports changes.parquet --verify-row-ids

Rows are matched by --key; a duplicate key is refused. A row whose partition or bucket changes becomes a
delete and an insert. A file must have all columns of the table, partition columns included, in any order and
case; a ROW__ID in it is ignored.

--since-write-id N compares the table as it was when N was its last write id (Hive 2: transaction id) with the
table as it is now; the ROW__IDs are those of the earlier state. With --undo the changes are reversed: they
restore the earlier state. It can be read only until a compaction; after one the comparison is refused.
Partitions dropped or truncated since are missing from it.

CSV and JSON are read with the table's types. A text that cannot be parsed as its column's type is an error
that names the column and the row; it never becomes NULL. An empty CSV field is NULL, a quoted empty field
("") is the empty text.

Files are local paths, or locations that Spark can read and write, such as hdfs://namenode/airports.csv.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from mutation_api.changes.files.change_files import save_changes
from mutation_api.changes.files.file_rules import check_scalar, existing_file
from mutation_api.changes.files.row_files import RowFiles
from mutation_api.changes.spark_merge.diff import OPERATIONS, count_operations, diff
from mutation_api.cli.arguments.files import (
    add_format_argument,
    add_output_argument,
    input_format,
    location_from,
    output_format,
)
from mutation_api.cli.arguments.list_arguments import add_key_argument, key_columns
from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.arguments.option_names import in_option_names, option_names
from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.cli.arguments.write_arguments import add_operation_column_argument
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.mutator_client import MutatorClient
from mutation_api.client.tables.catalog import split_full_name
from mutation_api.scan.file_format import FORMATS, extension
from mutation_api.spark.read.snapshot_frame import snapshot
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.upkeep.past_snapshot import PastSnapshot

__all__ = ["add_arguments", "run"]

APP_NAME = "hive-mutate diff"


_COUNTS = dict(zip(OPERATIONS, ("inserted", "updated", "deleted"), strict=True))
"""What the counts of operations are called, as in every summary."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate diff``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.set_defaults(refuse_usage=parser.error)
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="the table to compare")
    add_key_argument(parser, "columns that identify a row")
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument(
        "--against",
        type=_file_or_table,
        metavar="FILE|DB.TABLE",
        help="a file or folder of rows, or another table of the metastore",
    )
    other.add_argument("--since-write-id", type=int, metavar="N", help="the table as it was at this id")
    parser.add_argument(
        "--undo", action="store_true", help="with --since-write-id: the changes that restore that state"
    )
    add_format_argument(parser, "format of the --against file (default: by its extension)")
    add_output_argument(parser, "a .csv, .json, .orc or .parquet file; an existing one is replaced")
    parser.add_argument("--summary", action="store_true", help="only count the differences")
    add_operation_column_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, save the changes and print their counts; 0 with or without differences."""
    _check_usage(arguments)
    split_full_name(arguments.table)
    keys, column = key_columns(arguments.key), arguments.operation_column
    file_format = None if arguments.output is None else output_format(arguments.output)
    with (
        in_option_names(option_names("operation_column")),
        metastore_from(arguments) as metastore,
        MutatorClientBuilder().metastore(metastore).build() as client,
        spark_session(APP_NAME) as spark,
        translated_worker_errors(f"comparing table {arguments.table}"),
    ):
        table, old, new = _states(spark, client, arguments)
        if file_format == "csv":
            check_scalar(table)
        changes = diff(table, old, new, keys, operation_column=column)
        try:
            counts = count_operations(changes, column)
            if file_format is not None:
                save_changes(changes, arguments.output, file_format, order=[*keys, column])
        finally:
            changes.unpersist()  # else Spark serves the cache to the next reader of files with these names
    _print(table, counts, as_json=arguments.json)
    return 0


def _check_usage(arguments: argparse.Namespace) -> None:
    refuse: Callable[[str], None] = arguments.refuse_usage
    if (arguments.output is None) != arguments.summary:
        refuse("give either --output FILE or --summary")
    if arguments.undo and arguments.since_write_id is None:
        refuse("--undo goes with --since-write-id")
    if arguments.format is not None and arguments.against is None:
        refuse("--format goes with --against FILE")


def _states(
    spark: SparkSession, client: MutatorClient, arguments: argparse.Namespace
) -> tuple[AcidTable, DataFrame, DataFrame]:
    """The table, and the two states. Changes name ROW__IDs of the first state."""
    name = arguments.table
    if arguments.since_write_id is not None:
        opened = client.open_snapshot(name)
        past = PastSnapshot(opened, name, arguments.since_write_id)
        then, now = snapshot(past, name, spark=spark), snapshot(opened, name, spark=spark)
        past.check_history(name)
        return (opened.table(name), *((now, then) if arguments.undo else (then, now)))
    against = Location.given(arguments.against)
    if not _is_file_name(arguments, against):
        opened = client.open_snapshot(name, arguments.against)
        return (
            opened.table(name),
            snapshot(opened, name, spark=spark),
            snapshot(opened, arguments.against, spark=spark),
        )
    opened = client.open_snapshot(name)
    table = opened.table(name)
    file = existing_file(against)
    rows = RowFiles(spark, table, has_row_ids=True).read(file, input_format(file, arguments.format))
    return table, snapshot(opened, name, spark=spark), rows


def _file_or_table(text: str) -> str:
    """Type of an argument that names a file or a table."""
    location_from(text)
    return text


def _is_file_name(arguments: argparse.Namespace, against: Location) -> bool:
    """Whether --against names a file, which may be missing."""
    text: str = arguments.against
    return (
        (against.local_path is not None and Path(against.local_path).exists())
        or os.sep in text
        or arguments.format is not None
        or text.count(".") != 1
        or extension(against) in FORMATS
    )


def _print(table: AcidTable, counts: Mapping[str, int], *, as_json: bool) -> None:
    if as_json:
        named = {name: counts[operation] for operation, name in _COUNTS.items()}
        print(json.dumps({"table": table.full_name, **named}))
        return
    shown = ", ".join(f"{counts[each]:,} {each}s" for each in OPERATIONS)
    print(f"{table.full_name}: {shown}" if any(counts.values()) else f"{table.full_name}: no differences")
