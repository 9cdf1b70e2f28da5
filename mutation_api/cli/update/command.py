"""``hive-mutate update``: keep a table up to date with a table of a relational database.

"enable" makes what captures changes in the source, "extract" applies them, exactly once, "compact" has Hive
merge deltas, "status" shows all of it, "repair" makes what captures changes again, and "disable" removes it.

The password of the source is read from the environment variable HIVE_MUTATE_SOURCE_PASSWORD. The variable
HIVE_MUTATE_SOURCE has the URL of the source that it may go to, as it was given to "enable"; several with
blanks between. The address in the properties of a table must be one of these, since others may alter it.
"""

from __future__ import annotations

import argparse
import importlib
from types import ModuleType

from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments
from mutation_api.cli.arguments.module_parser import parser_of_modules

__all__ = ["ACTIONS", "add_arguments", "run"]

ACTIONS = {
    "enable": "capture the changes of a table in the source",
    "extract": "apply what was captured, exactly once",
    "compact": "have Hive compact the partitions with enough changes",
    "status": "show positions, lag, deltas, compactions and objects",
    "repair": "make the log and the triggers in the source again",
    "disable": "stop capturing, and remove what was made for it",
}
"""Name and help of each action; its module has ``add_arguments(parser)`` and ``run(arguments)``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a sub-parser for each action."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    kind = parser_of_modules(_module, "rdbms", add_metastore_arguments)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=kind)
    for name, help_line in ACTIONS.items():
        actions.add_parser(name, help=help_line, description=help_line)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"mutation_api.cli.update.{name}")


def run(arguments: argparse.Namespace) -> int:
    """Run the action; returns its exit code."""
    return int(_module(arguments.action).run(arguments))
