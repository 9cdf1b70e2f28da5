"""The comparison with Hive's own API and its tests name each other, so that neither can rot."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.transactions import test_mutation_api_behaviour as behaviour

PAGE = Path(__file__).parents[2] / "docs" / "mutation-api-behaviour.md"
CASE = re.compile(r"^\| .+ \| .+ \| .+ – `(test_\w+(?:\[[\w-]+\])?)` \|$")


def _case_lines() -> list[str]:
    """The lines of the page's tables, without their heads."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [line for line in lines if not line.startswith(("| case |", "|---"))]


def _tests() -> Iterator[str]:
    """Names of the module's tests, with the ids of their own parameters (not those of fixtures)."""
    for name, function in inspect.getmembers(behaviour, inspect.isfunction):
        if name.startswith("test_"):
            marks = [m for m in getattr(function, "pytestmark", ()) if m.name == "parametrize"]
            yield from (f"{name}[{case}]" for case in _ids(marks)) if marks else (name,)


def _ids(marks: list[pytest.Mark]) -> list[str]:
    (mark,) = marks
    ids = [case.id for case in mark.args[1]]
    assert all(ids), f"each case needs an id: {mark}"
    return ids


def test_each_case_of_the_page_names_its_test() -> None:
    """Every line of a table ends with the name of a test."""
    assert [line for line in _case_lines() if not CASE.match(line)] == []


def test_page_and_tests_name_each_other() -> None:
    """Each named test exists, and each test of the module is on the page."""
    named = {match[1] for line in _case_lines() if (match := CASE.match(line))}
    assert named == set(_tests())
