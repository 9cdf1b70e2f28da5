"""``hive-mutate update status``: positions, lag, deltas, compactions, locks and objects.

Without --table, all tables of a database that follow a source. --html writes one page that needs nothing
else.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from mutation_api.cdc.update.status import status_dict, status_text, update_status
from mutation_api.cdc.update.status_html import status_page
from mutation_api.cli.table_arguments import metastore_from
from mutation_api.cli.terminal import say
from mutation_api.cli.update.command import tables_of

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--table", action="append", metavar="DB.TABLE", help="may be repeated")
    which.add_argument(
        "--database", default="default", metavar="DB", help="all its tables (default: %(default)s)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="one JSON object a table")
    how.add_argument("--html", type=Path, metavar="FILE", help="write a page")


def run(arguments: argparse.Namespace) -> int:
    """Show; 0 if the tables could be looked at."""
    with metastore_from(arguments) as metastore:
        found = [update_status(metastore, table) for table in tables_of(arguments, metastore)]
    if arguments.html is not None:
        arguments.html.write_text(status_page(found, time.time()), encoding="utf-8")
        say(f"{arguments.html.absolute()}: {len(found)} tables")
    elif arguments.json:
        for each in found:
            say(json.dumps(status_dict(each), ensure_ascii=False))
    else:
        say("\n\n".join(status_text(each) for each in found))
    return 0
