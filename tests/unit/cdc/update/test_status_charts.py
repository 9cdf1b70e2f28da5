"""The charts of the status page: round scales, every run with its numbers, no number outside the chart."""

from __future__ import annotations

import pytest

from mutation_api.cdc.update.progress_mark import Run
from mutation_api.cdc.update.status_html import Chart, lag_chart, rows_chart


def _scale(chart: Chart) -> list[str]:
    return [label for _, label in chart.grid]


@pytest.mark.parametrize(
    ("rows", "scale"),
    [(0, ["0", "1", "2", "3", "4"]), (3, ["0", "1", "2", "3", "4"]), (139, ["0", "50", "100", "150", "200"])],
)
def test_the_scale_of_rows_is_whole(rows: int, scale: list[str]) -> None:
    """Four steps, each a round number."""
    assert _scale(rows_chart([Run(0.0, rows, 0, 0, 0.0)])) == scale


def test_the_scale_of_lag_has_the_digits_it_needs() -> None:
    """From milliseconds to hours."""
    assert _scale(lag_chart([Run(0.0, 1, 0, 0, 0.9)])) == ["0.00 s", "0.25 s", "0.50 s", "0.75 s", "1.00 s"]
    assert _scale(lag_chart([Run(0.0, 1, 0, 0, 7000.0)])) == [f"{n:,} s" for n in range(0, 8001, 2000)]


def test_each_run_is_a_bar_of_its_kinds() -> None:
    """Each bar has its numbers as a title and lies within the chart."""
    runs = [Run(60.0 * n, n, 2 * n, 3, 1.0) for n in range(200)]
    chart = rows_chart(runs)
    assert len(chart.bars) == 200
    assert chart.bars[-1][0].endswith("199 inserted, 398 updated, 3 deleted")
    parts = [part for _, each in chart.bars for part in each]
    assert {color for color, *_ in parts} == {"ins", "upd", "del"}
    assert all(0 <= x <= x + w <= 960 and 0 <= y <= y + h <= 190 for _, x, y, w, h in parts)
    assert len(lag_chart(runs).dots) == 200
