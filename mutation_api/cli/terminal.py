"""The output of the commands: messages, aligned tables, progress, and exit codes.

No other module of this package prints. Progress goes to standard error, or nowhere with ``--quiet``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from mutation_api.format.printable import one_line, printable


def say(*parts: object, sep: str = " ", flush: bool = False) -> None:
    """Print to standard output, with control characters escaped.

    See :func:`~mutation_api.format.printable.printable`.
    """
    print(printable(sep.join(map(str, parts))), flush=flush)


def say_aside(*parts: object, end: str = "\n") -> None:
    """Print progress, warnings or errors to standard error, with control characters escaped."""
    print(printable(" ".join(map(str, parts))), end=end, file=sys.stderr, flush=True)


class Report(Protocol):
    """The report of a command."""

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON has it."""


def say_report(report: Report, *, as_json: bool, engine: str | None = None) -> None:
    """Print a report, as one JSON object or in readable form.

    Args:
        report: the report.
        as_json: True to print JSON.
        engine: the engine that did the work, to print with the report. If None, there is only one.
    """
    if as_json:
        by = {} if engine is None else {"engine": engine}
        say(json.dumps({**report.to_dict(), **by}), flush=True)
        return
    first, *others = str(report).splitlines() if engine is not None else [str(report)]
    say(first if engine is None else f"{first} ({engine})", *others, sep="\n", flush=True)


class _Safe(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


@contextlib.contextmanager
def safe_warnings() -> Iterator[None]:
    """Print log warnings of the block to standard error, with control characters escaped.

    Without this, Python's handler of last resort would print them unescaped.
    """
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
    """Yield the lines of a table, the header first.

    Args:
        header: the names of the columns.
        rows: for each row, one string per column. Line breaks and characters that move the cursor are
            escaped.
        sample: the number of rows that decide the column widths. They are held in memory. If None, all rows.
    """
    remaining = ([one_line(cell) for cell in cells] for cells in rows)
    measured = [header, *itertools.islice(remaining, sample)]
    widths = [max(map(len, column)) for column in zip(*measured, strict=True)]
    for cells in itertools.chain(measured, remaining):
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def progress(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Return the function that prints a progress line. With ``--quiet`` it ignores the line."""
    return _ignored if arguments.quiet else say_aside


def _ignored(line: str) -> None:
    """Ignore the line."""


EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
