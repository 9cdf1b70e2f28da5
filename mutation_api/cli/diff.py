"""``hive-mutate diff``: compare a table with a file, with another table, or with its own past.

The differences are written as a change set for "hive-mutate apply": operation, ROW__ID and the table's
columns. Applying it makes the table equal to the other side:

  hive-mutate diff --table travel.airports --key icao --against airports.csv --output changes.parquet
  hive-mutate apply travel.airports changes.parquet --verify-row-ids

Rows are matched by --key; a duplicate key is refused. A row whose partition or bucket changes becomes a
delete and an insert. A file must have all columns of the table, including partition columns, in any order and
case; a ROW__ID in it is ignored.

--since compares an earlier state of the table with the present one, or with the state at a later point given
with --as-of. The earlier state is given by its last write id (Hive 2: transaction id) or by a time. The
ROW__IDs are those of the earlier state. With --undo the changes are reversed: they restore the earlier state.
An earlier state can be read only until a major compaction; after one, the comparison is refused. Partitions
that have been dropped or truncated since are missing from it. A time needs a time zone. It stands for the
content of the table's files at that time, according to the files' modification times.

CSV and JSON are read with the table's types. A value that cannot be parsed as its column's type is an
error that names the column and the row; it never becomes NULL. An empty CSV field is NULL, and a quoted empty
field ("") is the empty string.

Files are local paths, or locations such as hdfs://namenode/airports.csv.

The choice of the engine depends on the size of the table's files and of the --against file together. The
local engine holds both states in memory.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from mutation_api.cli.cluster_arguments import add_cluster_arguments
from mutation_api.cli.engine_arguments import (
    AUTO,
    ENGINE_OPTIONS,
    DiffTask,
    FileState,
    TableState,
    add_engine_argument,
    add_memory_argument,
    by_engine,
    local_options,
    opened_commands,
)
from mutation_api.cli.parsers import add_flag, describe, in_option_names, option_names
from mutation_api.cli.table_arguments import (
    add_format_argument,
    add_key_argument,
    add_lock_timeout_argument,
    add_metastore_arguments,
    add_output_argument,
    input_format,
    key_columns,
    location_from,
    metastore_from,
    output_format,
    point_in_time,
    reading_client,
)
from mutation_api.cli.terminal import say
from mutation_api.cli.write_arguments import add_operation_column_argument
from mutation_api.merge.differences import OPERATIONS
from mutation_api.merge.file_rules import existing_file
from mutation_api.read.export import FORMATS, extension
from mutation_api.read.table_view import open_table, table_bytes
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.catalog import split_full_name
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.past_snapshot import PastSnapshot
from mutation_api.transaction.snapshot import Snapshot

APP_NAME = "hive-mutate diff"


_COUNTS = dict(zip(OPERATIONS, ("inserted", "updated", "deleted"), strict=True))
"""The name of each operation's count, as in every summary."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``hive-mutate diff``."""
    describe(parser, __doc__)
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="table to compare")
    add_key_argument(parser, "columns that identify a row")
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument(
        "--against",
        type=_file_or_table,
        metavar="FILE|DB.TABLE",
        help="file or directory of rows, or another table of the metastore, to compare with",
    )
    other.add_argument(
        "--since",
        "--since-write-id",
        type=point_in_time,
        metavar="ID|TIME",
        help="compare with the table as it was at a write id, or at a time such as 2026-03-01T12:00:00Z",
    )
    parser.add_argument(
        "--as-of",
        type=point_in_time,
        metavar="ID|TIME",
        help="compare the table as it was at this write id or time (default: as it is now)",
    )
    add_flag(parser, "--undo", "save the changes that restore the state given with --since")
    add_format_argument(parser, "format of the --against file (default: by its extension)")
    add_output_argument(
        parser, "file for the changes: .csv, .json, .orc or .parquet; an existing file is replaced"
    )
    add_flag(parser, "--summary", "only count the differences, save no changes")
    add_operation_column_argument(parser)
    add_engine_argument(parser)
    add_cluster_arguments(parser)
    add_memory_argument(parser)
    add_lock_timeout_argument(parser, "another client's exclusive lock on a table, such as that of DDL")
    add_flag(parser, "--json", "print the counts as one JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, save the changes and print their counts. Return 0, with or without differences."""
    _check_usage(arguments)
    split_full_name(arguments.table)
    key_columns(arguments.key)
    output_format_name = None if arguments.output is None else output_format(arguments.output)
    with (
        in_option_names({**option_names("operation_column", "as_of"), **ENGINE_OPTIONS}),
        metastore_from(arguments) as metastore,
        reading_client(metastore, arguments) as client,
    ):
        task = _task(client, arguments, output_format_name)
        engine, counts = by_engine(
            arguments.engine,
            [task.new.file] if isinstance(task.new, FileState) else [],
            lambda engine: _compared(engine, task),
            table_bytes=_table_bytes(task) if arguments.engine == AUTO else 0,
        )
    _print(task.table, counts, engine, as_json=arguments.json)
    return 0


def _check_usage(arguments: argparse.Namespace) -> None:
    refuse: Callable[[str], None] = arguments.refuse_usage
    if (arguments.output is None) != arguments.summary:
        refuse("use either --output FILE or --summary")
    if arguments.undo and arguments.since is None:
        refuse("--undo can only be used with --since")
    if arguments.undo and arguments.as_of is not None:
        refuse("--undo restores an earlier state of the present table: leave out --as-of")
    if arguments.format is not None and arguments.against is None:
        refuse("--format can only be used with --against FILE")


def _compared(engine: str, task: DiffTask) -> Mapping[str, int]:
    with opened_commands(engine, APP_NAME) as commands:
        return commands.compare(task)


def _task(client: MutatorClient, arguments: argparse.Namespace, output_format_name: str | None) -> DiffTask:
    old, new, past = _states(client, arguments)
    return DiffTask(
        table=old.view.table(arguments.table),
        old=old,
        new=new,
        past=past,
        keys=key_columns(arguments.key),
        operation_column=arguments.operation_column,
        output=arguments.output,
        output_format=output_format_name,
        local=local_options(arguments),
    )


def _states(
    client: MutatorClient, arguments: argparse.Namespace
) -> tuple[TableState, TableState | FileState, PastSnapshot | None]:
    """Return the two states, and the past one if there is one. Changes use ROW__IDs of the first state."""
    name = arguments.table
    if arguments.since is not None:
        opened = client.open_snapshot(name)
        past = PastSnapshot(opened, arguments.since)
        then, now = TableState(past, name), TableState(_at(opened, arguments), name)
        return (now, then, past) if arguments.undo else (then, now, past)
    against = Location.given(arguments.against)
    if not _is_file_name(arguments, against):
        opened = client.open_snapshot(name, arguments.against)
        return TableState(_at(opened, arguments), name), TableState(opened, arguments.against), None
    opened = client.open_snapshot(name)
    file = existing_file(against)
    new = FileState(file, input_format(file, arguments.format))
    return TableState(_at(opened, arguments), name), new, None


def _at(opened: Snapshot, arguments: argparse.Namespace) -> Snapshot | PastSnapshot:
    """Return the table as it is now, or as it was at --as-of."""
    if arguments.as_of is None:
        return opened
    past = PastSnapshot(opened, {arguments.table: arguments.as_of})
    past.check_history()
    return past


def _table_bytes(task: DiffTask) -> int:
    """Return the size of the tables' files in bytes."""
    tables = [each for each in (task.old, task.new) if isinstance(each, TableState)]
    return sum(table_bytes(open_table(each.view, each.table_name)) for each in tables)


def _file_or_table(text: str) -> str:
    """Parse an argument that names a file or a table."""
    location_from(text)
    return text


def _is_file_name(arguments: argparse.Namespace, against: Location) -> bool:
    """Return True if --against names a file, even one that does not exist."""
    text: str = arguments.against
    return (
        (against.local_path is not None and Path(against.local_path).exists())
        or os.sep in text
        or arguments.format is not None
        or text.count(".") != 1
        or extension(against) in FORMATS
    )


def _print(table: AcidTable, counts: Mapping[str, int], engine: str, *, as_json: bool) -> None:
    if as_json:
        named = {name: counts[operation] for operation, name in _COUNTS.items()}
        say(json.dumps({"table": table.full_name, **named, "engine": engine}))
        return
    shown = ", ".join(f"{counts[each]:,} {each}s" for each in OPERATIONS)
    say(f"{table.full_name}: {shown if any(counts.values()) else 'no differences'} ({engine})")
