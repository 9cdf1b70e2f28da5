"""The status of incremental updates as one self-contained HTML page.

The page is the template :file:`status_page.html`, which escapes every value. This module computes the numbers
of its charts. The page has no scripts, fonts or images from elsewhere, and is light or dark as the reader's
system prefers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation_api.cdc.source_url import needs_extra
from mutation_api.cdc.update.progress_mark import Run
from mutation_api.cdc.update.status import UpdateStatus, shown_time
from mutation_api.upkeep.delta_sizes import DeltaSizes

PARTITIONS_SHOWN = 40
COMPACTIONS_SHOWN = 20
DAYS_SHOWN = 14

_WIDTH, _HEIGHT = 960, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 10, 26
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_BAR_WIDTH_MAX = 26.0
_TICKS = 4
_TIMES = 5
_KINDS = (("ins", "inserted"), ("upd", "updated"), ("del", "deleted"))
_NICE = (1, 2, 2.5, 5, 10)
_BAD = ("failed", "aborted", "refused")
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True)
class Chart:
    """A chart in units of the page's SVG.

    Attributes:
        grid: height and label of each horizontal line, from the bottom.
        labels: place, anchor and string of each label below the chart.
        bars: a title and its rectangles: CSS class, x, y, width, height.
        dots: x, y and title of each point of a line.
        line: the points of the line; empty for bars.
        area: the points of the area below the line.
    """

    grid: Sequence[tuple[float, str]]
    labels: Sequence[tuple[float, str, str]]
    bars: Sequence[tuple[str, Sequence[tuple[str, float, float, float, float]]]] = ()
    dots: Sequence[tuple[float, float, str]] = ()
    line: str = ""
    area: str = ""


def status_page(statuses: Sequence[UpdateStatus], at: float) -> str:
    """Return the page.

    Args:
        statuses: the status of each table.
        at: the time that the page shows, in seconds since 1970.

    Raises:
        ConfigurationError: If the package jinja2 is not installed.
    """
    page: str = _template().render(statuses=statuses, at=at)
    return page


def rows_chart(runs: Sequence[Run]) -> Chart:
    """Return the rows of each extraction by operation, as stacked bars."""
    top = _nice_top(max((run.rows for run in runs), default=0), whole=True)
    step = _PLOT_WIDTH / max(1, len(runs))
    width = min(_BAR_WIDTH_MAX, max(1.0, 0.78 * step))
    bars = []
    for number, run in enumerate(runs):
        left, below = _LEFT + number * step + (step - width) / 2, float(_TOP + _PLOT_HEIGHT)
        parts: list[tuple[str, float, float, float, float]] = []
        for color, name in _KINDS:
            height = getattr(run, name) / top * _PLOT_HEIGHT
            below -= height
            if height:
                parts.append((color, round(left, 1), round(below, 1), round(width, 1), round(height, 1)))
        counts = ", ".join(f"{getattr(run, name):,} {name}" for _, name in _KINDS)
        bars.append((f"{shown_time(run.at)}: {counts}", parts))
    centers = [_LEFT + (number + 0.5) * step for number in range(len(runs))]
    return Chart(_grid(top, ""), [*_times(runs, centers)], bars=bars)


def lag_chart(runs: Sequence[Run]) -> Chart:
    """Return the age of the oldest change at each extraction, as a line."""
    top = _nice_top(max((run.lag for run in runs), default=0.0), whole=False)
    step, bottom = _PLOT_WIDTH / max(1, len(runs)), _TOP + _PLOT_HEIGHT
    dots = [
        (
            round(_LEFT + (number + 0.5) * step, 1),
            round(_TOP + _PLOT_HEIGHT * (1 - run.lag / top), 1),
            f"{shown_time(run.at)}: {shown_seconds(run.lag)}",
        )
        for number, run in enumerate(runs)
    ]
    line = " ".join(f"{x},{y}" for x, y, _ in dots)
    area = f"{dots[0][0]},{bottom} {line} {dots[-1][0]},{bottom}" if dots else ""
    labels = [*_times(runs, [x for x, _, _ in dots])]
    return Chart(_grid(top, " s"), labels, dots=dots, line=line, area=area)


def shown_seconds(seconds: float) -> str:
    """Return a duration such as ``4.2 s``, ``3.5 min`` or ``2.0 h``."""
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.1f} s"


@functools.cache
def _template() -> Any:
    with needs_extra("the status page needs", "rdbms"):
        import jinja2  # only this page needs it

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"time": shown_time, "bytes": _bytes}
    environment.globals |= {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "right": _RIGHT,
        "kinds": _KINDS,
        "bad_states": _BAD,
        "days_shown": DAYS_SHOWN,
        "partitions_shown": PARTITIONS_SHOWN,
        "compactions_shown": COMPACTIONS_SHOWN,
        "cards": _cards,
        "runs": _runs,
        "rows_chart": rows_chart,
        "lag_chart": lag_chart,
        "partitions": _partitions,
    }
    return environment.get_template("status_page.html")


def _cards(status: UpdateStatus) -> list[tuple[str, str]]:
    """Return the name and value of each figure at the top of a table's section."""
    waiting, mark = status.waiting, status.mark
    deltas = sum(each.deltas.row_count or 0 for each in status.sizes)
    base = sum(each.base.row_count or 0 for each in status.sizes)
    return [
        ("lag", "?" if waiting is None else shown_seconds(waiting.age_seconds)),
        ("changes outstanding", "?" if waiting is None else f"{waiting.count:,}"),
        ("extractions", "0" if mark is None else f"{mark.extraction:,}"),
        ("last extraction (UTC)", "-" if mark is None else shown_time(mark.as_of)[11:]),
        ("rows in deltas", "?" if status.sizes_error else f"{deltas:,}"),
        ("rows in bases", "?" if status.sizes_error else f"{base:,}"),
    ]


def _runs(status: UpdateStatus) -> Sequence[Run]:
    """Return the last extractions without the first copy, which would dwarf all others."""
    if status.mark is None:
        return ()
    has_copy = status.mark.extraction == len(status.mark.recent) and not status.settings.is_loaded
    return status.mark.recent[1:] if has_copy else status.mark.recent


def _partitions(sizes: Sequence[DeltaSizes]) -> list[tuple[DeltaSizes, float, float]]:
    """Return the partitions with most bytes in deltas, and the percentages of their bars."""
    most = sorted(sizes, key=lambda each: each.deltas.byte_count, reverse=True)[:PARTITIONS_SHOWN]
    top = max((each.deltas.byte_count + each.base.byte_count for each in most), default=0) or 1
    return [
        (each, *(round(100 * part.byte_count / top, 2) for part in (each.base, each.deltas)))  # type: ignore[misc]
        for each in most
    ]


def _grid(top: float, unit: str) -> list[tuple[float, str]]:
    digits = _digits(top)
    return [
        (
            round(_TOP + _PLOT_HEIGHT * (1 - tick / _TICKS), 1),
            f"{top * tick / _TICKS:,.{digits}f}{unit}",
        )
        for tick in range(_TICKS + 1)
    ]


def _times(runs: Sequence[Run], centers: Sequence[float]) -> Iterator[tuple[float, str, str]]:
    """Yield the times of some of the extractions, as labels below them."""
    if not runs:
        return
    count = min(_TIMES, len(runs))
    chosen = sorted({round(i * (len(runs) - 1) / max(1, count - 1)) for i in range(count)})
    is_one_day = shown_time(runs[0].at)[:10] == shown_time(runs[-1].at)[:10]
    for place, number in enumerate(chosen):
        text = shown_time(runs[number].at)
        anchor = "start" if not place and len(chosen) > 1 else "middle"
        anchor = "end" if place and number == chosen[-1] else anchor
        yield round(centers[number], 1), anchor, text[11:19] if is_one_day else text[5:16]


def _nice_top(value: float, *, whole: bool) -> float:
    """Return the smallest round number that is not below a value, and whose quarter is round too."""
    if value <= 0:
        return float(_TICKS)
    least = max(value, _TICKS) if whole else value
    power = 10.0 ** math.floor(math.log10(least / _TICKS))
    step = next(power * nice for nice in _NICE if power * nice * _TICKS >= least * (1 - 1e-9))
    return (math.ceil(step) if whole else step) * _TICKS


def _digits(top: float) -> int:
    """Return the number of digits after the decimal point that a quarter of a number needs."""
    step = top / _TICKS
    return next((digits for digits in range(4) if abs(round(step, digits) - step) < step * 1e-6), 4)


def _bytes(count: int) -> str:
    """Return a size with a decimal unit."""
    for size, unit in _SIZES:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,} B"
