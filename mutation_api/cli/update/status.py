"""``hive-mutate update status``: positions, lag, deltas, compactions, locks and objects.

Without --table, it shows all tables of a database with incremental update. --html writes one self-contained
page.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from mutation_api.cdc.update.status import status_text, update_status
from mutation_api.cdc.update.status_html import status_page
from mutation_api.cli.parsers import add_flag
from mutation_api.cli.table_arguments import metastore_from
from mutation_api.cli.terminal import say
from mutation_api.cli.update.command import tables_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--table", action="append", metavar="DB.TABLE", help="Hive table to show (repeatable)")
    which.add_argument(
        "--database",
        default="default",
        metavar="DB",
        help="show all tables of this database that have incremental update enabled (default: %(default)s)",
    )
    how = parser.add_mutually_exclusive_group()
    add_flag(how, "--json", "print one JSON object per table")
    how.add_argument("--html", type=Path, metavar="FILE", help="write an HTML status page to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Show the status; return 0 if it could be read for all tables."""
    with metastore_from(arguments) as metastore:
        found = [update_status(metastore, table) for table in tables_of(arguments, metastore)]
    if arguments.html is not None:
        arguments.html.write_text(status_page(found, time.time()), encoding="utf-8")
        say(f"{arguments.html.absolute()}: {len(found)} tables")
    elif arguments.json:
        for each in found:
            say(json.dumps(each.to_dict(), ensure_ascii=False))
    else:
        say("\n\n".join(status_text(each) for each in found))
    return 0
