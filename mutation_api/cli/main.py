"""The command ``hive-mutate``: find the subcommand's module, run it and turn errors into exit codes.

A subcommand is a module with ``add_arguments(parser)`` and ``run(arguments) -> int``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from types import ModuleType

from metastore_client.errors import HiveError
from mutation_api._version import __version__
from mutation_api.cli.cluster_arguments import sent_to_cluster, tell_yarn
from mutation_api.cli.parsers import DiscreetParser, waits_are_told
from mutation_api.cli.terminal import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    safe_warnings,
    say_aside,
)

SUBCOMMANDS = {
    "abort": "abort transactions",
    "alter-table": "add, rename and widen columns of a table",
    "apply": "apply a file of changes to a table in one transaction",
    "bucket": "compute Hive's bucket hash of values",
    "changes": "print what changed in tables since a position",
    "compact": "make Hive compact the partitions of a table that have enough changes",
    "compactor": "compact tables of Hive 4 in place of a HiveServer2",
    "create-table": "create an ACID table",
    "delete": "delete the rows that meet a condition",
    "doctor": "show the server's release, and which tables can be changed",
    "diff": "compare a table with a file, another table or its own past, and save the changes",
    "erase": "erase the rows of keys from tables, and prove that no file holds the keys any more",
    "explain": "explain the state of a transaction, its locks and files, and what to do next",
    "export": "keep copies of tables in Delta Lake or Apache Iceberg in step with them",
    "history": "show the history of a table, one write id per line",
    "ingest": "apply the operations of a change source to tables, exactly once",
    "merge": "merge rows from files into a table by key, in one transaction",
    "metastore": "run the embedded metastore",
    "overwrite": "replace a table, partitions, or the rows that meet a condition with rows from files",
    "pack": "pack this Python and the library for the machines of a cluster",
    "read": "print or save the rows of a table, optionally with ROW__ID",
    "restore": "undo the last compaction of a table with the files that it kept",
    "show": "show transactions, locks or compactions",
    "sweep": "remove staged files that dead transactions left in tables",
    "track": "keep the history of keys in a table, one row per version",
    "truncate": "delete all rows of a table",
    "update": "keep tables up to date with tables of relational databases",
    "update-rows": "update the rows that meet a condition",
    "upsert": "update the rows whose key is in a table, and insert the others",
    "verify": "check that a table's files are readable, sorted, in the right buckets and match their footers",
    "watermarks": "show up to which position change sources have been applied to tables",
}
"""The name and the help text of each subcommand."""

MODULES = {
    "abort": "sweep",
    **dict.fromkeys(("delete", "overwrite", "track", "truncate", "update-rows", "upsert"), "verbs"),
}
"""Subcommands that share a module. Every other module is named like its subcommand, with ``_`` for ``-``.

A module is imported only when its subcommand runs.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``hive-mutate`` and return the exit code.

    The code is 0 if the work is done, 1 if it was refused or failed (the message is on standard error), 2 for
    wrong usage, and 130 after an interrupt. Ctrl-C is the normal way to end ``metastore``, so its code is
    then 0. ``doctor`` returns 1 if a table cannot be changed.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = next((w for w in words if not w.startswith("-")), None)
    module = _module(name) if name in SUBCOMMANDS else None
    parser = _parser(name, module)
    parsed = parser.parse_args(words)
    if module is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        with safe_warnings(), waits_are_told(parsed):
            code = sent_to_cluster(parsed, words)
            return int(module.run(parsed)) if code is None else code
    except HiveError as error:
        notes = getattr(error, "__notes__", ())
        text = "\n".join((f"hive-mutate {name}: {type(error).__name__}: {error}", *notes))
        say_aside(text)
        tell_yarn(text, EXIT_FAILED)
        return EXIT_FAILED
    except KeyboardInterrupt:
        say_aside(f"hive-mutate {name}: interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_OK


def _module(name: str) -> ModuleType:
    if name == "metastore":
        from metastore_client.embedded import server  # only this subcommand needs it

        return server
    return importlib.import_module(f"mutation_api.cli.{MODULES.get(name, name).replace('-', '_')}")


def _parser(name: str | None, module: ModuleType | None) -> argparse.ArgumentParser:
    parser = DiscreetParser(
        prog="hive-mutate",
        description="Atomic change sets over Hive ACID tables.",
        epilog="exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted (0 for metastore, "
        "which runs until it is interrupted)",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    subparsers = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND")
    for each, help_line in SUBCOMMANDS.items():
        subparser = subparsers.add_parser(each, help=help_line, description=help_line)
        if each == name and module is not None:
            subparser.set_defaults(refuse_usage=subparser.error)
            module.add_arguments(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
