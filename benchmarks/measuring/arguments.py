"""Arguments that several benchmarks have."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Rounds", "add_case_arguments", "integers", "settings_from"]

QUICK_ROUNDS = 1


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
