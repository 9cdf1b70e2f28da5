"""A case of the benchmarks of writing: turns, comparison, and what makes it wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.measuring import report
from benchmarks.measuring.measure import Contestant, Usage, Watch
from benchmarks.write import aims
from benchmarks.writing.write_case import layouts_of, run_case
from benchmarks.writing.write_stage import LAYOUTS


class SteadyWatch(Watch):
    """Finds the same whoever writes."""

    def measured(self, contestant: Contestant, number: int) -> Usage:
        contestant.run(number)
        return Usage(1.0, {"driver": 0.5}, {"driver": 2**20}, 10)


STAGE: Any = SimpleNamespace(watch=lambda: SteadyWatch({}), settings={"spark.x": "1"})


class Writer:
    def __init__(self, name: str, folder: Path, *, fails: bool = False, is_complete: bool = True) -> None:
        self.contestant = Contestant(name, self.write, ("driver",), folder)
        self.fails = fails
        self.complete = is_complete
        self.is_closed = False

    def write(self, number: int) -> None:
        if self.fails:
            raise OSError("disk full")

    def is_complete(self) -> bool:
        assert not self.fails, "who failed is not asked"
        return self.complete

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _nothing_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_shown", [])


def run(*writers: Any) -> dict[str, Any]:
    pairs = {("ours", "spark"): {"wall": 0.5}, ("late", "spark"): {}}
    return run_case(STAGE, "label", "text", writers, pairs=pairs, rounds=2, warm_up=1)


def test_writers_are_compared(tmp_path: Path) -> None:
    """Pairs that took part have ratios and aims; the case is shown, and everything closed."""
    writers = Writer("ours", tmp_path), Writer("spark", tmp_path)
    case = run(*writers)
    assert case["is_right"]
    assert list(case["ratios"]) == ["ours / spark"]
    assert case["aims"] == {"ours / spark": {"wall": 0.5}}
    assert case["text"] == "text; rounds: 2 measured after 1 others; all wrote everything; spark.x=1."
    assert [len(figures["rounds"]) for figures in case["contestants"].values()] == [2, 2]
    assert report.shown_cases() == (case,)
    assert all(writer.is_closed for writer in writers)


@pytest.mark.parametrize("how", [{"fails": True}, {"is_complete": False}])
def test_who_leaves_something_out_makes_it_wrong(tmp_path: Path, how: dict[str, bool]) -> None:
    """Whether it failed or did not write everything."""
    case = run(Writer("ours", tmp_path, **how), Writer("spark", tmp_path))
    assert not case["is_right"]
    assert "INCOMPLETE: ours" in case["text"]


def test_layouts_by_name() -> None:
    """In the order given."""
    assert layouts_of("legacy, split") == (LAYOUTS["legacy"], LAYOUTS["split"])


def test_aims_go_by_layout_and_partitions() -> None:
    """CPU is not to be more than the wall's share; where nothing was set, nothing is aimed at."""
    assert aims(LAYOUTS["legacy"], 30) == {"wall": 0.6, "cpu": 0.6}
    assert aims(LAYOUTS["v2"], 1_000) == {"wall": 0.2, "cpu": 0.2}
    assert aims(LAYOUTS["v2"], 1) == {}
