"""The charts of the status page: round scales, every run with its numbers, no number outside the chart."""

from __future__ import annotations

import re

import pytest

from mutation_api.cdc.update.progress_mark import Run
from mutation_api.cdc.update.status_html import lag_chart, rows_chart, stacked_bar, table


def _scale(svg: str) -> list[str]:
    return re.findall(r'text-anchor="end">([^<]*)<', svg)[:5]


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
    """With its numbers for whoever points at it; all within the chart."""
    runs = [Run(60.0 * n, n, 2 * n, 3, 1.0) for n in range(200)]
    svg = rows_chart(runs)
    assert svg.count("<g>") == 200
    assert "199 inserted, 398 updated, 3 deleted" in svg
    places = [tuple(map(float, found)) for found in re.findall(r'x="([\d.]+)" y="([\d.]+)" width', svg)]
    assert all(0 <= x <= 960 and 0 <= y <= 190 for x, y in places)
    assert lag_chart(runs).count("<circle") == 200


def test_bars_and_tables() -> None:
    """Parts follow one another; columns of numbers are marked."""
    assert 'x="25.00" width="50.00"' in stacked_bar([(0.25, "base"), (0.5, "upd")])
    assert '<td class="n">5</td>' in table(["name", "#rows"], [["a", "5"]])
