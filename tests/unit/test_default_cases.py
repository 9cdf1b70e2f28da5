"""Which of a test's settings and cases the default run has."""

from __future__ import annotations

from collections import Counter

from tests.fixtures.fix_default_cases import sampled


def test_a_test_always_has_the_same_ones() -> None:
    """They are spread over the test's cases."""
    cases = list(range(7))
    found = sampled("tests/test_a.py::test_b", cases, 3)
    assert len(set(found)) == 3
    assert max(found) - min(found) > 2
    assert found == sampled("tests/test_a.py::test_b", cases, 3)


def test_tests_share_them_out() -> None:
    """Over many tests each is chosen about as often."""
    releases = ["2.3", "3.1", "4.1"]
    counts = Counter(sampled(f"tests/test_a.py::test_{number}", releases, 1)[0] for number in range(300))
    assert min(counts[each] for each in releases) > 70


def test_there_may_be_fewer() -> None:
    """Then all are taken, once."""
    assert sampled("tests/test_a.py::test_b", [()], 1) == [()]
    assert sorted(sampled("tests/test_a.py::test_b", [1, 2, 3], 20)) == [1, 2, 3]
