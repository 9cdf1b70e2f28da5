"""``hive-mutate update repair``: create the log and the triggers in the source again.

Use it after "extract" has reported that changes are not captured: triggers were dropped, disabled or altered,
another table has replaced the source table, or one side was restored from a backup. The next "extract"
compares the whole table, so changes made in the meantime are not lost.
"""

from __future__ import annotations

import argparse

from mutation_api.cdc.update.disable import repair_update
from mutation_api.cli.parsers import add_flag
from mutation_api.cli.table_arguments import metastore_from
from mutation_api.cli.terminal import say, say_aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--table", required=True, metavar="DB.TABLE", help="Hive table with incremental update"
    )
    add_flag(parser, "--dry-run", "show the statements for the source without running them")


def run(arguments: argparse.Namespace) -> int:
    """Repair; return 0 if changes are captured again."""
    with metastore_from(arguments) as metastore:
        report = repair_update(
            metastore,
            arguments.table,
            dry_run=arguments.dry_run,
            progress=say_aside,
        )
    say(report)
    return 0
