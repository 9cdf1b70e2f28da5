"""Arguments that several benchmarks have."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

QUICK_ROUNDS = 1
QUICK_SHARE, QUICK_MINUTES = 10, 2.0


@dataclass(frozen=True)
class Rounds:
    """Measured rounds, and warm-up rounds before them; one of each in a quick run."""

    measured: int
    warm_up: int

    def add_argument(self, parser: argparse.ArgumentParser) -> None:
        """Declare ``--repeat``."""
        text = f"measured rounds (default: {self.measured}; quick: {QUICK_ROUNDS})"
        parser.add_argument("--repeat", type=int, help=text)

    def measured_of(self, arguments: argparse.Namespace) -> int:
        """The requested number of measured rounds."""
        return int(arguments.repeat or (QUICK_ROUNDS if arguments.quick else self.measured))

    def warm_up_of(self, arguments: argparse.Namespace, *, is_warm: bool = False) -> int:
        """Warm-up rounds; a quick run needs none if everything is warm already."""
        return (0 if is_warm else QUICK_ROUNDS) if arguments.quick else self.warm_up


@dataclass(frozen=True)
class SteadyLoad:
    """Changes of a table at a steady rate: rows of the table, changes a second, and how long.

    A quick run has a tenth of the rows, and takes two minutes.
    """

    rows: int
    changes: int = 5_000
    minutes: float = 30.0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare ``--rows``, ``--minutes``, ``--changes``, ``--quick`` and ``--save``."""
        parser.add_argument("--rows", type=int, help=f"rows of the table (default: {self.rows:,})")
        parser.add_argument("--minutes", type=float, help=f"how long (default: {self.minutes:g})")
        parser.add_argument(
            "--changes", type=int, default=self.changes, help="changes a second (default: %(default)s)"
        )
        quick = f"a {QUICK_SHARE}th of the rows, {QUICK_MINUTES:g} minutes"
        parser.add_argument("--quick", action="store_true", help=quick)
        parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")

    def requested(self, arguments: argparse.Namespace) -> SteadyLoad:
        """The load that the arguments ask for."""
        rows = arguments.rows or self.rows // (QUICK_SHARE if arguments.quick else 1)
        minutes = arguments.minutes or (QUICK_MINUTES if arguments.quick else self.minutes)
        return SteadyLoad(rows, arguments.changes, minutes)


def add_case_arguments(
    parser: argparse.ArgumentParser, rounds: Rounds, *, rows: int, quick: str, cases: Iterable[str] = ()
) -> None:
    """Declare ``--rows``, ``--quick``, ``--repeat``, ``--save``, and with several cases ``--only``."""
    parser.add_argument("--rows", type=int, help=f"rows of a table (default: {rows:,})")
    parser.add_argument("--quick", action="store_true", help=quick)
    if cases:
        parser.add_argument("--only", choices=cases, action="append", help="run only this case (repeatable)")
    rounds.add_argument(parser)
    parser.add_argument("--save", action="store_true", help="keep the figures in benchmarks/results")


def integers(text: str) -> tuple[int, ...]:
    """Numbers between commas."""
    return tuple(int(word) for word in text.split(","))


def settings_from(words: Iterable[str]) -> dict[str, str]:
    """Settings of Spark, each as NAME=VALUE."""
    return dict(word.partition("=")[::2] for word in words)
