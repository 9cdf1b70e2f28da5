"""``hive-mutate update``: keep a table up to date with a table of a relational database.

"enable" makes what captures changes in the source, "extract" applies them, exactly once, "compact" has Hive
merge deltas, "status" shows all of it, and "disable" removes it again.

The password of the source is read from the environment variable HIVE_MUTATE_SOURCE_PASSWORD.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from types import ModuleType

from mutation_api.cli.arguments.metastore_arguments import add_metastore_arguments

__all__ = ["ACTIONS", "add_arguments", "run"]

ACTIONS = {
    "enable": "capture the changes of a table in the source",
    "extract": "apply what was captured, exactly once",
    "compact": "have Hive compact the partitions with enough changes",
    "status": "show positions, lag, deltas, compactions and objects",
    "disable": "stop capturing, and remove what was made for it",
}
"""Name and help of each action; its module has ``add_arguments(parser)`` and ``run(arguments)``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a sub-parser for each action."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (__doc__ or "").partition("\n\n")[2]
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=_ActionParser
    )
    for name, help_line in ACTIONS.items():
        actions.add_parser(name, help=help_line, description=help_line)


class _ActionParser(argparse.ArgumentParser):
    """Declares the arguments of its action when it parses them."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Declare the arguments, then parse them."""
        name = self.prog.split()[-1]
        try:
            module = _module(name)
        except ModuleNotFoundError as error:
            self.error(f"needs the Python module {error.name!r}: pip install 'hive-mutation-api[rdbms]'")
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        self.description = (module.__doc__ or "").partition("\n\n")[2]
        self.set_defaults(refuse_usage=self.error)
        module.add_arguments(self)
        add_metastore_arguments(self)
        return super().parse_known_args(args, namespace)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"mutation_api.cli.update.{name}")


def run(arguments: argparse.Namespace) -> int:
    """Run the action; returns its exit code."""
    return int(_module(arguments.action).run(arguments))
