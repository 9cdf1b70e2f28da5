"""``hive-mutate update disable``: stop capturing changes, and remove everything created for it.

This is refused while changes are outstanding: extract them first, or --discard them. The table in Hive stays.
Changes that are logged between the check and the removal of the triggers are extracted too. With --discard
the command also finishes if the source cannot be reached or an object cannot be removed. It then reports what
is left there (exit code 1).
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from mutation_api.cdc.update.disable import disable_by
from mutation_api.cli.engine_arguments import engine_opener
from mutation_api.cli.parsers import add_flag
from mutation_api.cli.table_arguments import metastore_from
from mutation_api.cli.terminal import say
from mutation_api.cli.update.command import APP_NAME, add_run_arguments, extract_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--table", required=True, metavar="DB.TABLE", help="Hive table with incremental update"
    )
    add_flag(parser, "--discard", "drop outstanding changes instead of refusing")
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Disable; return 0 if everything is removed, 1 if something is left in the source."""
    with ExitStack() as stack:
        metastore = stack.enter_context(metastore_from(arguments))
        engine = engine_opener(arguments.engine, APP_NAME, stack)
        report = disable_by(
            engine, metastore, arguments.table, extract_options(arguments), discard=arguments.discard
        )
    say(report)
    return 1 if report.left else 0
