"""``hive-mutate diff``: what distinguishes a table from a file, from another table, or from its own past.

The differences are written as a change set that "hive-mutate apply" takes: operation, ROW__ID and the table's
columns. Applied, it makes the table equal to what it was compared with:

  hive-mutate diff --table travel.airports --key icao --against airports.csv --output changes.parquet
  hive-mutate apply travel.airports changes.parquet --verify-row-ids

Rows are told apart by --key; a key that occurs twice is refused. A row that would get another partition or
bucket is a delete and an insert. A file must have all columns of the table, partition columns included, in
any order and case; a ROW__ID in it is overlooked.

--since-write-id N compares the table as it was when N was its last write id (Hive 2: transaction id) with
what it is now; its ROW__IDs are those of then. With --undo it is the other way round: the changes that would
take the table back. The past can be read only until it is compacted, and partitions dropped or truncated
since are gone; after a compaction it is refused.

CSV and JSON are read with the table's types. A text that is no value of its column's type is refused, naming
the column and the row; it never becomes NULL. An empty CSV field is NULL, a quoted empty one ("") the empty
text.

Files lie on a local disk or where Spark reads and writes, such as hdfs://namenode/airports.csv.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from mutation_api.acid.row_id import ROW_ID_COLUMN
from mutation_api.changes.diff import diff
from mutation_api.cli.arguments.locations import extension, place, resolved
from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.cli.arguments.table_files import (
    FORMATS,
    TableFiles,
    check_scalar,
    existing_file,
    file_format,
)
from mutation_api.cli.merge import key_columns
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.client.catalog import split_full_name
from mutation_api.client.mutator_client import MutatorClient
from mutation_api.errors import ClientError, ConfigurationError
from mutation_api.spark.quoted_name import quoted
from mutation_api.spark.read.snapshot_frame import snapshot
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.spark.write.plan import OPERATION_COLUMN_DEFAULT
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.replacing import hidden_beside, move_to
from mutation_api.table.acid_table import AcidTable
from mutation_api.upkeep.past_snapshot import PastSnapshot

__all__ = ["add_arguments", "run", "save"]

APP_NAME = "hive-mutate diff"
OPERATIONS = ("insert", "update", "delete")
_WRITING: Mapping[str, Mapping[str, bool | str]] = {
    "csv": {
        "header": True,
        "escape": '"',
        "ignoreLeadingWhiteSpace": False,
        "ignoreTrailingWhiteSpace": False,
    },
    "json": {"ignoreNullFields": False, "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"},
    "orc": {},
    "parquet": {},
}
"""Options of Spark's writers, so that every value can be read again as it was."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate diff``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    parser.set_defaults(refuse_usage=parser.error)
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="the table to compare")
    parser.add_argument("--key", required=True, metavar="A,B", help="columns that tell rows apart")
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument(
        "--against",
        type=_file_or_table,
        metavar="FILE|DB.TABLE",
        help="a file or folder of rows, or another table of the metastore",
    )
    other.add_argument("--since-write-id", type=int, metavar="N", help="the table as it was at this id")
    parser.add_argument(
        "--undo", action="store_true", help="with --since-write-id: the changes that take the table back"
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="format of the file compared with (default: by its extension)"
    )
    parser.add_argument(
        "--output",
        type=place,
        metavar="FILE",
        help="a .csv, .json, .orc or .parquet file; replaces an older one",
    )
    parser.add_argument("--summary", action="store_true", help="only count the differences")
    parser.add_argument(
        "--operation-column",
        default=OPERATION_COLUMN_DEFAULT,
        metavar="NAME",
        help="column that says insert, update or delete (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, save the changes and print their counts; 0 whether there are differences or not."""
    _check_usage(arguments)
    split_full_name(arguments.table)
    keys = key_columns(arguments.key)
    output_format = None if arguments.output is None else _output_format(arguments.output)
    with (
        metastore_from(arguments) as metastore,
        MutatorClientBuilder().metastore(metastore).build() as client,
        spark_session(APP_NAME) as spark,
        translated_worker_errors(f"comparing table {arguments.table}"),
    ):
        table, old, new = _states(spark, client, arguments)
        _check_columns(table, output_format, arguments.operation_column)
        changes = diff(table, old, new, keys, operation_column=arguments.operation_column)
        try:
            counts = _counts(changes, arguments.operation_column)
            if output_format is not None:
                save(changes, arguments.output, output_format, [*keys, arguments.operation_column])
        finally:
            changes.unpersist()  # else Spark gives it to the next who reads files of these names
    _print(table, counts, as_json=arguments.json)
    return 0


def save(changes: DataFrame, file: Location, format_name: str, order: list[str]) -> None:
    """Write changes into one file, sorted; it is there when it is complete, and replaces an older one.

    Args:
        changes: operation, ROW__ID, columns.
        file: its folder exists, where storages have folders.
        format_name: one of FORMATS.
        order: names of the columns to sort by.

    Raises:
        ClientError: the file cannot be written.
    """
    # One task sorts and writes; the comparison before it keeps its own tasks, which coalesce would take.
    rows = changes.repartition(1).sortWithinPartitions(*[quoted(name) for name in order])
    if format_name == "csv":
        rows = _as_texts(rows)
    file = resolved(file)
    folder = hidden_beside(file)
    storage = storage_at(file)
    try:
        rows.write.format(format_name).options(**_WRITING[format_name]).save(str(folder))
        (part,) = (entry for entry in storage.list(folder) if entry.name.startswith("part-"))
        move_to(part.location, file)
    except OSError as error:
        raise ClientError(f"{file.shown}: the file cannot be written: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            storage.delete_directory(folder)


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
    """The table, and the two states, of which the first has the ROW__IDs that changes name."""
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
    source = existing_file(against)
    files = TableFiles(spark, table, has_row_ids=True)
    new = files.read(source, file_format(source, arguments.format))
    return table, snapshot(opened, name, spark=spark), new


def _file_or_table(text: str) -> str:
    """Type of an argument that names a file or a table."""
    place(text)
    return text


def _is_file_name(arguments: argparse.Namespace, against: Location) -> bool:
    """Whether --against means a file, of which there may be none."""
    text: str = arguments.against
    return (
        (against.local_path is not None and Path(against.local_path).exists())
        or os.sep in text
        or arguments.format is not None
        or text.count(".") != 1
        or extension(against) in FORMATS
    )


def _output_format(file: Location) -> str:
    found = extension(file)
    if found not in FORMATS:
        raise ConfigurationError(
            f"--output {file.shown}: the name must end in {', '.join(f'.{each}' for each in FORMATS)}"
        )
    path = resolved(file).local_path
    if path is not None and (Path(path).is_dir() or not Path(path).parent.is_dir()):
        raise ConfigurationError(f"--output {file.shown}: it is a folder, or its folder does not exist")
    return found


def _check_columns(table: AcidTable, output_format: str | None, operation_column: str) -> None:
    if output_format == "csv":
        check_scalar(table, [*table.column_names, *table.partition_key_names])
    if operation_column.lower() in (*table.column_names, *table.partition_key_names):
        raise ConfigurationError(
            f"table {table.full_name} has a column {operation_column!r} itself; give the operation another "
            "name with --operation-column"
        )


def _counts(changes: DataFrame, operation_column: str) -> dict[str, int]:
    found = {row[0]: row[1] for row in changes.groupBy(quoted(operation_column)).count().collect()}
    return {f"{operation}_count": found.get(operation, 0) for operation in OPERATIONS}


def _as_texts(changes: DataFrame) -> DataFrame:
    """Everything as Spark's text of it, which loses no digits, and ROW__ID as one column a field."""
    row_id = changes.schema[ROW_ID_COLUMN].dataType
    assert isinstance(row_id, StructType)
    fields = [
        sf.col(quoted(ROW_ID_COLUMN, f.name)).cast("string").alias(f"{ROW_ID_COLUMN}.{f.name}")
        for f in row_id.fields
    ]
    others = [sf.col(quoted(n)).cast("string").alias(n) for n in changes.columns if n != ROW_ID_COLUMN]
    return changes.select(others[0], *fields, *others[1:])


def _print(table: AcidTable, counts: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"table": table.full_name, **counts}))
        return
    told = ", ".join(f"{counts[f'{operation}_count']:,} {operation}s" for operation in OPERATIONS)
    print(f"{table.full_name}: {told}" if any(counts.values()) else f"{table.full_name}: no differences")
