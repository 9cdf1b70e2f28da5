"""Which of a test's settings and cases the default run has."""

from __future__ import annotations

from collections import Counter

from tests.fixtures.fix_default_cases import chosen, sampled


def test_a_test_always_has_the_same_one() -> None:
    """Whatever the order of its cases, and also if some come several times."""
    settings = [("4.1",), ("2.3",), ("3.1",), ("2.3",)]
    found = {
        chosen("tests/test_a.py::test_b", order) for order in (settings, settings[::-1], sorted(settings))
    }
    assert len(found) == 1
    assert found <= set(settings)


def test_tests_share_them_out() -> None:
    """Over many tests each setting is chosen about as often."""
    settings = [("2.3",), ("3.1",), ("4.1",)]
    counts = Counter(chosen(f"tests/test_a.py::test_{number}", settings) for number in range(300))
    assert min(counts[each] for each in settings) > 70


def test_one_setting_is_kept() -> None:
    """Also that of a test that says nothing of releases."""
    assert chosen("tests/test_a.py::test_b", [()]) == ()


def test_a_sample_has_different_cases_and_no_more_than_there_are() -> None:
    """They are spread over the test's cases, and always the same."""
    cases = list(range(7))
    found = sampled("tests/test_a.py::test_b", cases, 3)
    assert len(set(found)) == 3
    assert max(found) - min(found) > 2
    assert found == sampled("tests/test_a.py::test_b", cases, 3)
    assert set(sampled("tests/test_a.py::test_b", cases, 20)) == set(cases)


def test_each_case_is_in_some_sample() -> None:
    """Over many tests none is left out."""
    found = {sampled(f"tests/test_a.py::test_{number}", range(7), 1)[0] for number in range(100)}
    assert found == set(range(7))
