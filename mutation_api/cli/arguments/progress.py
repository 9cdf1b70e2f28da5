"""Where a command reports its steps: on standard error, or nowhere with ``--quiet``."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mutation_api.cli.terminal import say_aside

__all__ = ["progress"]


def progress(arguments: argparse.Namespace) -> Callable[[str], None]:
    """What is called with each line; reads ``--quiet``."""
    return _ignored if arguments.quiet else say_aside


def _ignored(line: str) -> None:
    """With --quiet steps are not reported."""
