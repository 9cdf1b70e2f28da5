"""Output on the terminal: messages, tables, progress, exit codes.

What the commands print. Nothing else in this package prints.

Rows in aligned columns under their names, as the commands print them.

Where a command reports its steps: on standard error, or nowhere with ``--quiet``.

Exit codes of ``hive-mutate``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from mutation_api.format.printable import one_line, printable

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "EXIT_USAGE",
    "progress",
    "safe_warnings",
    "say",
    "say_aside",
    "text_table",
]


def say(*parts: object, sep: str = " ", flush: bool = False) -> None:
    """Print to standard output; see :func:`~mutation_api.format.printable.printable`."""
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


def text_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, sample: int | None = None
) -> Iterator[str]:
    """Lines of a table, the header first.

    Args:
        header: names of the columns.
        rows: a text for each column; what would make lines or move the cursor is escaped.
        sample: number of rows that decide the column widths; they are held in memory. None: all rows.
    """
    remaining = ([one_line(cell) for cell in cells] for cells in rows)
    measured = [header, *itertools.islice(remaining, sample)]
    widths = [max(map(len, column)) for column in zip(*measured, strict=True)]
    for cells in itertools.chain(measured, remaining):
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def progress(arguments: argparse.Namespace) -> Callable[[str], None]:
    """What is called with each line; reads ``--quiet``."""
    return _ignored if arguments.quiet else say_aside


def _ignored(line: str) -> None:
    """With --quiet steps are not reported."""


EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
