"""The written choice of cases that the default run has."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.fixtures.fix_default_cases import DEFAULT_CASES, spread

ROOT = Path(__file__).parents[2]


def _entries() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(DEFAULT_CASES.read_text(encoding="utf-8"))
    return found


def test_each_entry_names_a_test_that_exists() -> None:
    """A renamed or removed test takes its entry along."""
    functions = {
        file: {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
        }
        for file in {test.partition("::")[0] for test in _entries()}
    }
    gone = [test for test in _entries() if test.rpartition("::")[2] not in functions[test.partition("::")[0]]]
    assert gone == []


def test_each_entry_names_cases_once() -> None:
    """A test without a case in the default run would be marked long instead."""
    assert [test for test, ids in _entries().items() if not ids or len({*ids}) < len(ids)] == []


@pytest.mark.parametrize("line", ["2.3", "3.1", "4.1"])
def test_each_release_judges_a_part_of_the_default_run(line: str) -> None:
    """The releases share the tests about evenly."""
    lines = Counter(part for ids in _entries().values() for each in ids for part in each.split("-"))
    assert lines[line] >= 0.15 * (lines["2.3"] + lines["3.1"] + lines["4.1"])


def test_a_sample_is_spread_over_all_cases() -> None:
    """The first case is in it, and each is taken once, also if there are fewer."""
    assert spread([*range(7)], 3) == [0, 2, 4]
    assert spread([1, 2, 3], 20) == [1, 2, 3]
    assert spread([()], 1) == [()]
