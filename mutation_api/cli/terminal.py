"""What the commands print. Nothing else in this package prints."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

from mutation_api.types.printable import printable

__all__ = ["safe_warnings", "say", "say_aside"]


def say(*parts: object, sep: str = " ", flush: bool = False) -> None:
    """Print to standard output; see :func:`~mutation_api.types.printable.printable`."""
    print(printable(sep.join(map(str, parts))), flush=flush)


def say_aside(*parts: object, end: str = "\n") -> None:
    """Print to standard error: progress, warnings, errors."""
    print(printable(" ".join(map(str, parts))), end=end, file=sys.stderr, flush=True)


class _Safe(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


@contextlib.contextmanager
def safe_warnings() -> Iterator[None]:
    """Print warnings of the block as Python does without a handler, but as :func:`say_aside` prints."""
    before, handler = logging.lastResort, logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Safe("%(message)s"))
    logging.lastResort = handler
    try:
        yield
    finally:
        logging.lastResort = before
