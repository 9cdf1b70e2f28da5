"""Arithmetic of growth: seconds of a row, and peaks."""

from __future__ import annotations

from benchmarks.growth import Memory, Outcome, as_case
from benchmarks.measuring.measure import Result, Usage, as_figures
from benchmarks.measuring.report import case_text


def outcome(rows: int, *walls: float, worker_mib: int = 200) -> Outcome:
    peaks = {"driver": 100 * 2**20, "java": 1000 * 2**20, "python": worker_mib * 2**20}
    usages = [Usage(wall, {"java": wall, "python": 1.0}, peaks, 0, 0) for wall in walls]
    return Outcome(rows, as_figures(Result("split", usages)), True, frozenset({"Hive"}))


def test_seconds_of_a_row_are_compared() -> None:
    """Ten times the rows in twenty times the seconds is twice as slow; each round with its like."""
    sizes = [outcome(10, 1, 2), outcome(100, 20, 20), outcome(500, 50, 100, worker_mib=250)]
    case = as_case(sizes, Memory("little", "growth"), 3)
    assert case["case"] == "up to 500 changes, little"
    assert case["ratios"]["100 changes / 10 changes"]["wall"] == {"median": 1.5, "low": 1.0, "high": 2.0}
    assert case["ratios"]["500 changes / 10 changes"]["wall"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert case["peak_ratios"] == {"python": 1.25, "java": 1.0, "driver": 1.0}
    assert case["is_right"]
    assert "shares of the smallest's: worker 1.25, JVM 1.00, driver's Python 1.00" in case["text"]
    assert "1.500 × 10 changes (1.000 to 2.000), aim 1.1" in case_text(case)


def test_a_size_that_failed_is_told() -> None:
    """It is compared with nothing, and the case is not right."""
    failed = Outcome(500, as_figures(Result("split", [], "MemoryError: no")), False, frozenset())
    case = as_case([outcome(10, 1), outcome(100, 10), failed], Memory("little", "growth"), 3)
    assert list(case["ratios"]) == ["100 changes / 10 changes"]
    assert case["peak_ratios"] == {}
    assert not case["is_right"]
    assert "INCOMPLETE" in case["text"]
    assert "failed: MemoryError: no" in case_text(case)
