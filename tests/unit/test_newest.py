"""The copies of cases by which Hive 4.2 does what 4.1 does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.fix_newest import NEWEST, with_newest


def shown(cases: list[Any]) -> list[tuple[Any, ...]]:
    """Values, id and marks of those that are ``pytest.param``; others as they are."""
    return [
        (*case.values, case.id, *(mark.name for mark in case.marks)) if hasattr(case, "marks") else case
        for case in cases
    ]


def test_every_case_of_4_1_has_a_long_copy() -> None:
    """Other releases have none; the cases themselves stay."""
    assert shown(with_newest(["2.3", "4.1"], 1, 0, by_default=False)) == [
        "2.3",
        "4.1",
        (NEWEST, None, "long"),
    ]
    assert with_newest(["2.3", "3.1"], 1, 0, by_default=False) == ["2.3", "3.1"]


def test_a_test_that_names_the_newest_gets_no_copies() -> None:
    """Otherwise its cases would run twice."""
    assert with_newest(["4.1", "4.2"], 1, 0, by_default=False) == ["4.1", "4.2"]


def test_of_the_newest_tests_the_first_copy_runs_by_default() -> None:
    """Whatever stands where in a case; marks and names stay with the copy."""
    cases = [("x", "4.1"), pytest.param("y", "4.1", id="4.1-y", marks=pytest.mark.slow), ("z", "3.1")]
    assert shown(with_newest(cases, 2, 1, by_default=True))[3:] == [
        ("x", NEWEST, None),
        ("y", NEWEST, f"{NEWEST}-y", "slow", "long"),
    ]


@pytest.mark.parametrize("hive_line", ["4.1"])
def test_pytest_makes_the_copies(hive_line: str, request: pytest.FixtureRequest) -> None:
    """Of the parameters that choose a judge; here the copy is long."""
    assert (hive_line == NEWEST) == (request.node.get_closest_marker("long") is not None)
