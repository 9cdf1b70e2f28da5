"""``hive-mutate update extract``: apply changes captured since the last extraction, exactly once.

Changes committed in the source after the extraction has begun to read are left for the next one. A run that
is repeated, or was killed at any point, loses nothing and applies nothing twice. A second extraction of a
table waits for the first.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from dataclasses import replace

from mutation_api.cdc.update.extract import extract_by
from mutation_api.cdc.update.sources import BinlogOptions
from mutation_api.cli.engine_arguments import engine_opener
from mutation_api.cli.parsers import add_flag, add_repeatable
from mutation_api.cli.table_arguments import metastore_from
from mutation_api.cli.terminal import say_report
from mutation_api.cli.update.command import APP_NAME, add_run_arguments, extract_options, tables_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--table", action="append", metavar="DB.TABLE", help="Hive table to update (repeatable)"
    )
    which.add_argument(
        "--all",
        dest="database",
        metavar="DB",
        help="update all tables of this Hive database that have incremental update enabled",
    )
    parser.add_argument(
        "--follow",
        type=float,
        metavar="SECONDS",
        help="repeat the extraction every SECONDS, until interrupted",
    )
    add_flag(parser, "--dry-run", "report what would be done without writing anything")
    add_flag(parser, "--json", "print each report as one JSON object")
    _add_binlog_arguments(parser)
    add_run_arguments(parser)


def _add_binlog_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("method binlog")
    add_repeatable(
        group,
        "--seen-to",
        "FILE:OFFSET",
        "position, as in the error message, of a statement that you have carried out in Hive by hand "
        "(repeatable)",
    )
    add_flag(group, "--recopy", "read the whole table again, and replace its rows in Hive")
    group.add_argument(
        "--zero-dates",
        choices=("error", "null"),
        default="error",
        help="handling of dates such as 0000-00-00: refuse them, or store NULL (default: %(default)s)",
    )
    add_repeatable(
        group,
        "--ignore-column",
        "NAME",
        "column that only one side has, in addition to those of enable: a column of the source is left "
        "out, and one of Hive becomes NULL in rows that change (repeatable)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Extract; return 0 if all captured changes are committed."""
    if arguments.follow is not None and (arguments.dry_run or arguments.follow <= 0):
        arguments.refuse_usage("--follow requires seconds above 0 and cannot be combined with --dry-run")
    if arguments.follow is not None and arguments.recopy:
        arguments.refuse_usage(
            "--recopy reads the whole table in each run, so it cannot be combined with --follow"
        )
    binlog = BinlogOptions(
        seen_to=tuple(arguments.seen_to),
        recopy=arguments.recopy,
        zero_dates=arguments.zero_dates,
        ignored_columns=tuple(arguments.ignore_column),
    )
    options = replace(extract_options(arguments, dry_run=arguments.dry_run), binlog=binlog)
    with ExitStack() as stack:
        metastore = stack.enter_context(metastore_from(arguments))
        engine = engine_opener(arguments.engine, APP_NAME, stack)
        while True:
            began = time.monotonic()
            for table in tables_of(arguments, metastore):
                report = extract_by(engine, metastore, table, options)
                if arguments.follow is None or report.ingested.position is not None:
                    say_report(report, as_json=arguments.json)
            if arguments.follow is None:
                return 0
            time.sleep(max(0.0, arguments.follow - (time.monotonic() - began)))
