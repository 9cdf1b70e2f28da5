"""Parsers of arguments: discreet error messages, subcommands by module, names of options in messages.

An error message quotes arguments, and after a typing error any of them may be a URL with a password.

Options that are switches, or may be repeated, are declared by functions of this module.

A command may have one module for each of several names, with a function ``add_arguments(parser)``. A module
is imported only when its name is given, so that packages that other modules need do not have to be installed.

Argument names in the library's error messages are replaced by the options of the command.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import NoReturn

from mutation_api.cli.terminal import EXIT_USAGE, say_aside
from mutation_api.errors import MutationError
from mutation_api.format.printable import without_secrets
from mutation_api.transaction.clock import WAIT_LOG

AnyParser = argparse.ArgumentParser | argparse._ArgumentGroup
"""A parser, or a group of its options, for which argparse has no public name."""


def describe(
    parser: argparse.ArgumentParser, documentation: str | None, *, fills_lines: bool = False
) -> None:
    """Describe a command by all paragraphs of its module's docstring except the first.

    Args:
        parser: the parser of the command.
        documentation: the docstring.
        fills_lines: True to wrap paragraphs, False to keep the lines of the docstring.
    """
    parser.description = (documentation or "").partition("\n\n")[2]
    if not fills_lines:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter


def add_flag(parser: AnyParser, option: str, what: str) -> None:
    """Declare an option without a value, which is False if it is not given."""
    parser.add_argument(option, action="store_true", help=what)


def add_repeatable(
    parser: AnyParser, option: str, metavar: str, what: str, type: Callable[[str], object] = str
) -> None:
    """Declare an option that may be given several times. Its value is the list of all values."""
    parser.add_argument(option, action="append", default=[], type=type, metavar=metavar, help=what)


class DiscreetParser(argparse.ArgumentParser):
    """An argument parser that removes secrets from its error messages."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message without possible secrets, and exit."""
        super().error(without_secrets(message))


def parser_of_modules(
    module_named: Callable[[str], ModuleType],
    extra: str,
    add_common_arguments: Callable[[argparse.ArgumentParser], None],
) -> type[argparse.ArgumentParser]:
    """Return a parser class that declares the arguments of a module just before it parses them.

    Args:
        module_named: a function that imports a module, given the last word of the parser's name.
        extra: the extra of this package that installs the requirements of a module. ``{name}`` stands for the
            module's name.
        add_common_arguments: a function that declares the arguments that all modules have.
    """

    class ModuleParser(DiscreetParser):
        """A parser that declares the arguments of its module when it parses them or prints the whole help."""

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
            describe(self, module.__doc__)
            self.set_defaults(refuse_usage=self.error)
            module.add_arguments(self)
            add_common_arguments(self)

    return ModuleParser


def option_names(*arguments: str) -> dict[str, str]:
    """Map argument names to options for :func:`in_option_names`: ``valid_txns`` to ``--valid-txns``."""
    return {name: f"--{name.replace('_', '-')}" for name in arguments}


@contextlib.contextmanager
def in_option_names(options: Mapping[str, str]) -> Iterator[None]:
    """Replace argument names by options in the library's errors that the block raises.

    Args:
        options: strings in the library's messages -> options, such as ``{"num_buckets": "--buckets"}``. Parts
            of paths and of longer names are not replaced.
    """
    if not options:
        yield
        return
    words = "|".join(re.escape(word) for word in sorted(options, key=len, reverse=True))
    try:
        yield
    except MutationError as error:
        text = re.sub(rf"(?<![\w./-])(?:{words})(?![\w/-])", lambda found: options[found[0]], str(error))
        if text == str(error):
            raise
        renamed = type(error)(text)
        for note in getattr(error, "__notes__", ()):
            renamed.add_note(note)
        raise renamed from error


@contextlib.contextmanager
def waits_are_told(arguments: argparse.Namespace) -> Iterator[None]:
    """Report long waits for a lock on standard error while the block runs, unless ``--quiet`` is given.

    Errors of the block name ``--lock-timeout`` if the command has this option.
    """
    log = logging.getLogger(WAIT_LOG)
    handler, level = _OnStandardError(arguments.subcommand), log.level
    if not getattr(arguments, "quiet", False):
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    has_option = hasattr(arguments, "lock_timeout")
    try:
        with in_option_names({"lock_timeout_seconds": "--lock-timeout"} if has_option else {}):
            yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _OnStandardError(logging.Handler):
    def __init__(self, name: str) -> None:
        super().__init__(logging.INFO)
        self._name = name

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message to standard error."""
        say_aside(f"hive-mutate {self._name}: {record.getMessage()}")


_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_from(text: str) -> float:
    """Parse a time such as 90s, 15m, 2h or 7d. For ``type=`` of an argument."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time such as 90s, 15m, 2h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def duration_from(text: str) -> timedelta:
    """Parse a time above 0. See :func:`seconds_from`."""
    found = timedelta(seconds=seconds_from(text))
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a time above 0")
    return found
