"""Parsers of arguments: names of options, secrets kept out of errors, modules by name.

DiscreetParser: a parser of arguments whose complaints do not show secrets.

A complaint quotes arguments, and by a typing error any of them may be a URL with a password.

Sub-parsers of commands that have a module for each of several names.

A module has ``add_arguments(parser)``. It is imported only when its name is given, so that the packages of
the others are not needed.

Replaces argument names in errors of the library by the options of the command.

What a command says while it waits for the lock on its tables.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NoReturn

from mutation_api.cdc.url_secrets import without_secrets
from mutation_api.cli.terminal import EXIT_USAGE, say_aside
from mutation_api.errors import MutationError
from mutation_api.transaction.clock import WAIT_LOG

__all__ = ["DiscreetParser", "in_option_names", "option_names", "parser_of_modules", "waits_are_told"]


class DiscreetParser(argparse.ArgumentParser):
    """Parses as its base does."""

    def error(self, message: str) -> NoReturn:
        """End with the usage and the message, without what may be a secret in it."""
        super().error(without_secrets(message))


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


def option_names(*arguments: str) -> dict[str, str]:
    """For :func:`in_option_names`: ``valid_txns`` becomes ``--valid-txns``, and so on."""
    return {name: f"--{name.replace('_', '-')}" for name in arguments}


@contextlib.contextmanager
def in_option_names(options: Mapping[str, str]) -> Iterator[None]:
    """Within the block, errors of the library name options instead of arguments.

    Args:
        options: text in the library's message -> option: ``{"num_buckets": "--buckets"}``. Parts of paths and
            of longer names are not replaced.
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
        raise type(error)(text) from error


@contextlib.contextmanager
def waits_are_told(arguments: argparse.Namespace) -> Iterator[None]:
    """Within the block, a long wait for a lock is told on standard error, unless ``--quiet`` is given.

    Errors name ``--lock-timeout`` where the command has it.
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
        """Print the message."""
        say_aside(f"hive-mutate {self._name}: {record.getMessage()}")
