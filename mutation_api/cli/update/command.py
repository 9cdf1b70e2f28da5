"""``hive-mutate update``: keep a Hive table up to date with a table in a relational database.

"enable" starts capturing changes in the source, and "extract" applies them exactly once. "status" shows the
state of both, "repair" creates the objects in the source again, and "disable" removes them. Many extractions
leave many deltas; "hive-mutate compact" makes Hive merge them.

The password of the source is read from the environment variable HIVE_MUTATE_SOURCE_PASSWORD. The variable
HIVE_MUTATE_SOURCE contains the URL of the source to which the password may be sent, as it was passed to
"enable"; separate several URLs with blanks. The address in the properties of a table must be one of these,
since others may alter it.
"""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

from metastore_client.client import MetastoreClient
from mutation_api.cdc.update.extract import ExtractOptions
from mutation_api.cdc.update.settings import enabled_tables
from mutation_api.cli import engine_arguments
from mutation_api.cli.parsers import add_flag, describe, parser_of_modules
from mutation_api.cli.table_arguments import ReportLoss, add_lock_timeout_argument, add_metastore_arguments
from mutation_api.cli.terminal import progress
from mutation_api.errors import ConfigurationError

ACTIONS = {
    "enable": "capture the changes of a table in the source",
    "extract": "apply captured changes, exactly once",
    "status": "show positions, lag, deltas, compactions and objects",
    "repair": "create the log and the triggers in the source again",
    "disable": "stop capturing changes, and remove everything created for it",
}
"""The name and help of each action; its module has ``add_arguments(parser)`` and ``run(arguments)``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a sub-parser for each action."""
    describe(parser, __doc__)
    kind = parser_of_modules(_module, "rdbms", add_metastore_arguments)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=kind)
    for name, help_line in ACTIONS.items():
        actions.add_parser(name, help=help_line, description=help_line)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"mutation_api.cli.update.{name}")


def run(arguments: argparse.Namespace) -> int:
    """Run the action and return its exit code."""
    return int(_module(arguments.action).run(arguments))


APP_NAME = "hive-mutate update"


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --engine, --lock-timeout and --quiet."""
    add_lock_timeout_argument(parser, "another extraction or another writer of the table")
    engine_arguments.add_engine_argument(parser, "if at most {} MiB of rows are new")
    add_flag(parser, "--quiet", "do not report each step on standard error")


def extract_options(arguments: argparse.Namespace, *, dry_run: bool = False) -> ExtractOptions:
    """Return the options of an extraction."""
    return ExtractOptions(
        dry_run=dry_run,
        user=arguments.user,
        lock_timeout_seconds=arguments.lock_timeout,
        lock_failure_listener=ReportLoss(),
        progress=progress(arguments),
    )


def tables_of(arguments: argparse.Namespace, metastore: MetastoreClient) -> list[str]:
    """Return the tables of --table or --database. Raises ConfigurationError if there are none."""
    if arguments.table:
        return list(arguments.table)
    found = [name for name, _ in enabled_tables(metastore, [arguments.database])]
    if not found:
        raise ConfigurationError(f"no table in database {arguments.database} has incremental update enabled")
    return found
