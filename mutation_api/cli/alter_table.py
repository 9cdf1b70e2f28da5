"""``hive-mutate alter-table``: add, rename and widen columns of an ACID table and of all its partitions.

No file changes: in existing rows, new columns are NULL. A column can be widened to a type that holds all
values of its type: for an int a larger integer, a decimal with enough digits, double or string, and for a
varchar a longer varchar or string. On Hive 2.3 a decimal can only become another decimal, and a varchar a
longer varchar. A column can be renamed on Hive 4, which finds the columns of files by position:

  hive-mutate alter-table sales.orders --add "note string, weight double" --widen "price=decimal(12,2)"

The command waits until no other transaction uses the table. All changes are checked first and then made in
one step. Partition columns, bucket columns and columns with constraints cannot be renamed or widened.
"""

from __future__ import annotations

import argparse

from metastore_client.model import ColumnInfo
from mutation_api.cli.parsers import add_flag, add_repeatable, describe, in_option_names, option_names
from mutation_api.cli.table_arguments import (
    add_lock_timeout_argument,
    add_metastore_arguments,
    key_values,
    metastore_from,
)
from mutation_api.cli.terminal import say_report
from mutation_api.table.row_type import parse_columns
from mutation_api.upkeep.alter_acid_table import alter_acid_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__)
    parser.add_argument("table", metavar="DB.TABLE", help="table to alter")
    add_repeatable(parser, "--add", "TEXT", "new columns, such as 'note string, weight double' (repeatable)")
    add_repeatable(parser, "--rename", "OLD=NEW", "column to rename (repeatable)")
    add_repeatable(
        parser, "--widen", "COLUMN=TYPE", "column to give a wider type, such as pieces=bigint (repeatable)"
    )
    add_flag(parser, "--missing-only", "leave out columns of --add that the table already has")
    add_flag(parser, "--dry-run", "check the changes and report them, but change nothing")
    add_flag(parser, "--json", "print the report as one JSON object")
    add_lock_timeout_argument(parser, "a transaction or a reader that uses the table")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Alter the table and print what was changed."""
    columns = [ColumnInfo(each.name, each.type) for text in arguments.add for each in parse_columns(text)]
    with (
        in_option_names(option_names("add", "rename", "widen", "missing_only")),
        metastore_from(arguments) as metastore,
    ):
        report = alter_acid_table(
            metastore,
            arguments.table,
            add=columns,
            rename=dict(key_values("--rename", arguments.rename)),
            widen=dict(key_values("--widen", arguments.widen)),
            missing_only=arguments.missing_only,
            dry_run=arguments.dry_run,
            lock_timeout_seconds=arguments.lock_timeout,
        )
    say_report(report, as_json=arguments.json)
    return 0
