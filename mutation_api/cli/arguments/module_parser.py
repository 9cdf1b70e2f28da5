"""Sub-parsers of commands that have a module for each of several names.

A module has ``add_arguments(parser)``. It is imported only when its name is given, so that the packages of
the others are not needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from types import ModuleType

from mutation_api.cli.arguments.discreet_parser import DiscreetParser
from mutation_api.cli.exit_codes import EXIT_USAGE

__all__ = ["parser_of_modules"]


def parser_of_modules(
    module_named: Callable[[str], ModuleType],
    extra: str,
    add_common_arguments: Callable[[argparse.ArgumentParser], None],
) -> type[argparse.ArgumentParser]:
    """A class of parsers that declare the arguments of their module when they parse them.

    Args:
        module_named: imports a module; its name is the last word of the parser's.
        extra: the extra of this package that brings what a module needs; ``{name}`` stands for the name.
        add_common_arguments: declares what all of them have.
    """

    class ModuleParser(DiscreetParser):
        """Declares the arguments of its module when it parses them, or is asked for all of its help."""

        _is_declared = False

        def parse_known_args(  # type: ignore[override]
            self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
        ) -> tuple[argparse.Namespace, list[str]]:
            """Declare the arguments, then parse them."""
            self.declare()
            return super().parse_known_args(args, namespace)

        def declare(self) -> None:
            """Import the module and declare its arguments, once."""
            if self._is_declared:
                return
            name = self.prog.split()[-1]
            try:
                module = module_named(name)
            except ModuleNotFoundError as error:
                needed = f"hive-mutation-api[{extra.format(name=name)}]"
                message = f"needs the Python module {error.name!r}: pip install '{needed}'"
                # Without the usage, which is not known yet.
                self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n")
            self._is_declared = True
            self.formatter_class = argparse.RawDescriptionHelpFormatter
            self.description = (module.__doc__ or "").partition("\n\n")[2]
            self.set_defaults(refuse_usage=self.error)
            module.add_arguments(self)
            add_common_arguments(self)

    return ModuleParser
