"""Arguments that several benchmarks have."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.measuring.arguments import Rounds, integers, settings_from


def parsed(rounds: Rounds, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    rounds.add_argument(parser)
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "measured", "warm_up"),
    [((), 5, 3), (("--quick",), 1, 1), (("--quick", "--repeat", "7"), 7, 1), (("--repeat", "1"), 1, 3)],
)
def test_rounds(words: tuple[str, ...], measured: int, warm_up: int) -> None:
    rounds = Rounds(5, warm_up=3)
    arguments = parsed(rounds, *words)
    assert (rounds.measured_of(arguments), rounds.warm_up_of(arguments)) == (measured, warm_up)


def test_lists() -> None:
    assert integers("1,30,1000") == (1, 30, 1000)
    assert settings_from(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
