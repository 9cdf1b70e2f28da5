"""``hive-mutate abort`` and ``sweep``: end transactions without a client, and remove their leftover files.

A driver that dies leaves hidden files and, on an object store, unfinished uploads. They are never read, but
they use storage. The metastore shows which transactions have ended; staged files of an open transaction are
never touched. The exit code is 1 if something could not be removed.
"""

from __future__ import annotations

import argparse
import json

from mutation_api.cli.parsers import add_flag, describe
from mutation_api.cli.table_arguments import add_metastore_arguments, metastore_from
from mutation_api.cli.terminal import say
from mutation_api.transaction.staging import Abandoned
from mutation_api.upkeep.kept_files import is_of_kept_files
from mutation_api.upkeep.sweep import SweptSize, SweptTable, abort_transactions, sweep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the subcommand that the parser is for."""
    if parser.prog.split()[-1] == "abort":
        parser.add_argument(
            "txn",
            metavar="TXN",
            type=int,
            nargs="+",
            help="id of a transaction to abort, as listed by hive-mutate show txns (repeatable)",
        )
        add_metastore_arguments(parser)
        return
    describe(parser, __doc__, fills_lines=True)
    parser.add_argument("name", metavar="DB[.TABLE]", help="database to sweep, or one of its tables")
    add_flag(parser, "--dry-run", "only print what would be removed")
    add_flag(parser, "--json", "print one JSON object per line")
    add_metastore_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. Return 1 if a file could not be removed, otherwise 0."""
    return _abort(arguments) if arguments.subcommand == "abort" else _sweep(arguments)


def _abort(arguments: argparse.Namespace) -> int:
    """Abort each transaction.

    Accept a transaction that is already aborted; refuse a committed or unknown one.
    """
    with metastore_from(arguments) as metastore:
        for txn_id in abort_transactions(metastore, arguments.txn):
            say(f"transaction {txn_id} is aborted")
    return 0


def _sweep(arguments: argparse.Namespace) -> int:
    count = left = files = size = 0
    with metastore_from(arguments) as metastore:
        for swept in sweep(metastore, arguments.name, dry_run=arguments.dry_run):
            count += len(swept.found)
            left += len(swept.found) - len(swept.removed)
            files, size = files + swept.size.file_count, size + swept.size.byte_count
            for line in _lines(swept, arguments):
                say(line, flush=True)
    if not arguments.json:
        say(_total(count, left, SweptSize(files, size), is_dry=arguments.dry_run))
    return int(left > 0 and not arguments.dry_run)


def _lines(swept: SweptTable, arguments: argparse.Namespace) -> list[str]:
    if arguments.json:
        return [json.dumps(swept.to_dict())]
    if swept.reason is not None:
        return [f"{swept.table}: not checked: {swept.reason}"]
    return [
        f"{swept.table}: {_line(each, size, swept, is_dry=arguments.dry_run)}"
        for each, size in zip(swept.found, swept.sizes, strict=True)
    ]


def _line(each: Abandoned, size: SweptSize, swept: SweptTable, *, is_dry: bool) -> str:
    done = "would remove" if is_dry else "removed" if each in swept.removed else "COULD NOT REMOVE"
    what = "a test file" if each.txn_id is None else f"staged files of transaction {each.txn_id}"
    if is_of_kept_files(each.location.name):
        what = f"old files that compaction {each.txn_id} kept"
    return f"{done} {what}: {each.location} ({_shown(size)})"


def _shown(size: SweptSize) -> str:
    return f"{size.file_count:,} files, {size.byte_count:,} bytes"


def _total(count: int, left: int, size: SweptSize, *, is_dry: bool) -> str:
    if not count:
        return "no files of dead transactions were found"
    return f"{count} found ({_shown(size)}), " + (
        "nothing removed (dry run)" if is_dry else f"{count - left} removed"
    )
