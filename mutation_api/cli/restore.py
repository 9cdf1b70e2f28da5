"""``hive-mutate restore``: undo the last compaction of a table with the files from before it.

``hive-mutate compact --engine local --keep-old 7d`` keeps these files for seven days. A compaction changes no
row, so this command changes none either: readers read the old files again, and what was written since stays.
It takes the exclusive lock of each partition:

  hive-mutate restore sales.orders --partition day=2024-05-01

Run it again to undo the compaction before, if its files were kept as well.
"""

from __future__ import annotations

import argparse

from mutation_api.cli.parsers import add_flag, add_repeatable, describe, seconds_from
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say_report
from mutation_api.upkeep.restore import RESTORE_WAIT_SECONDS_DEFAULT, restore_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    describe(parser, __doc__)
    parser.add_argument("table", metavar="DB.TABLE", help="Hive table")
    add_repeatable(
        parser,
        "--partition",
        "day=…",
        "restore only this partition (repeatable; default: all with kept files)",
    )
    parser.add_argument(
        "--wait",
        type=seconds_from,
        default=RESTORE_WAIT_SECONDS_DEFAULT,
        metavar="60s",
        help="maximum time to wait for the exclusive lock of each partition (default: 60s)",
    )
    add_flag(parser, "--json", "print each result as a JSON object")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Restore, and print a line for each partition."""
    with metastore_from(arguments) as metastore:
        for each in restore_table(
            metastore, arguments.table, partitions=arguments.partition, wait_seconds=arguments.wait
        ):
            say_report(each, as_json=arguments.json)
    return 0
