"""What a command says while it waits for the lock on its tables."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Iterator

from mutation_api.cli.arguments.option_names import in_option_names
from mutation_api.cli.terminal import say_aside
from mutation_api.client.wait_log import WAIT_LOG

__all__ = ["waits_are_told"]


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
