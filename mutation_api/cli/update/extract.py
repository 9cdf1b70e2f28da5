"""``hive-mutate update extract``: apply what was captured since the last extraction, exactly once.

What is committed in the source after the extraction has begun to read waits for the next one. A run that is
repeated, or was killed anywhere, loses nothing and applies nothing twice. A second extraction of a table
waits for the first.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import ExitStack

from mutation_api.cli.arguments.metastore_arguments import metastore_from
from mutation_api.cli.update.common import add_run_arguments, engine_of, extract_options, tables_of
from mutation_api.update.extract import ExtractReport, extract_by

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--table", action="append", metavar="DB.TABLE", help="may be repeated")
    which.add_argument(
        "--all", dest="database", metavar="DB", help="all tables of a database that follow a source"
    )
    parser.add_argument(
        "--follow", type=float, metavar="SECONDS", help="do so every SECONDS, until interrupted"
    )
    parser.add_argument("--dry-run", action="store_true", help="report what would be done, write nothing")
    parser.add_argument("--json", action="store_true", help="print each report as one JSON object")
    add_run_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Extract; 0 when everything that was captured is committed."""
    if arguments.follow is not None and (arguments.dry_run or arguments.follow <= 0):
        arguments.refuse_usage("--follow takes seconds above 0, and does not go with --dry-run")
    options = extract_options(arguments, dry_run=arguments.dry_run)
    with ExitStack() as stack:
        metastore = stack.enter_context(metastore_from(arguments))
        engine = engine_of(arguments, stack)
        while True:
            began = time.monotonic()
            for table in tables_of(arguments, metastore):
                report = extract_by(engine, metastore, table, options)
                if arguments.follow is None or report.ingested.position is not None:
                    _print(report, as_json=arguments.json)
            if arguments.follow is None:
                return 0
            time.sleep(max(0.0, arguments.follow - (time.monotonic() - began)))


def _print(report: ExtractReport, *, as_json: bool) -> None:
    print(json.dumps(report.to_dict()) if as_json else report, flush=True)
