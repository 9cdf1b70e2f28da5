"""Charts of the status page as SVG, and tables as HTML. Pure; a text that is not :class:`Html` is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from mutation_api.update.progress_mark import Run
from mutation_api.update.status_text import shown_time

__all__ = ["Html", "element", "lag_chart", "rows_chart", "shown_seconds", "stacked_bar", "table"]

_WIDTH, _HEIGHT = 960, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 10, 26
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_BAR_WIDTH_MAX = 26.0
_TICKS = 4
_TIMES = 5
_KINDS = (("inserted", "ins"), ("updated", "upd"), ("deleted", "del"))
_NICE = (1, 2, 2.5, 5, 10)


class Html(str):
    """HTML that was made here; any other text comes from outside."""

    __slots__ = ()


def element(tag: str, *content: str, css: str = "") -> Html:
    """An element of the page, with a class for its style."""
    inner = "".join(each if isinstance(each, Html) else escape(each) for each in content)
    style = f' class="{escape(css)}"' if css else ""
    return Html(f"<{tag}{style}>{inner}</{tag}>")


def rows_chart(runs: Sequence[Run]) -> Html:
    """Rows of each extraction by kind, as stacked bars."""
    top = _nice_top(max((run.rows for run in runs), default=0), whole=True)
    step = _PLOT_WIDTH / max(1, len(runs))
    width = min(_BAR_WIDTH_MAX, max(1.0, 0.78 * step))
    bars = []
    for number, run in enumerate(runs):
        left = _LEFT + number * step + (step - width) / 2
        below = float(_TOP + _PLOT_HEIGHT)
        parts = []
        for name, color in _KINDS:
            height = getattr(run, name) / top * _PLOT_HEIGHT
            below -= height
            if height:
                parts.append(
                    f'<rect class="{color}" x="{left:.1f}" y="{below:.1f}" width="{width:.1f}" '
                    f'height="{height:.1f}"/>'
                )
        counts = ", ".join(f"{getattr(run, name):,} {name}" for name, _ in _KINDS)
        bars.append(f"<g><title>{shown_time(run.at)}: {counts}</title>{''.join(parts)}</g>")
    centers = [_LEFT + (number + 0.5) * step for number in range(len(runs))]
    key = "".join(f'<span><i class="{color}"></i>{name}</span>' for name, color in _KINDS)
    grid = _grid(top, f"{{:,.{_digits(top)}f}}")
    return Html(f'<div class="key">{key}</div>' + _svg(grid, *bars, *_times(runs, centers)))


def lag_chart(runs: Sequence[Run]) -> Html:
    """How old the oldest change was when each extraction read it."""
    top = _nice_top(max((run.lag for run in runs), default=0.0), whole=False)
    step = _PLOT_WIDTH / max(1, len(runs))
    points = [
        (_LEFT + (number + 0.5) * step, _TOP + _PLOT_HEIGHT * (1 - run.lag / top))
        for number, run in enumerate(runs)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    bottom = _TOP + _PLOT_HEIGHT
    area = f"{points[0][0]:.1f},{bottom} {line} {points[-1][0]:.1f},{bottom}" if points else ""
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{shown_time(run.at)}: '
        f"{shown_seconds(run.lag)}</title></circle>"
        for (x, y), run in zip(points, runs, strict=True)
    ]
    return _svg(
        _grid(top, f"{{:,.{_digits(top)}f}} s"),
        f'<polygon class="lag-area" points="{area}"/>',
        f'<polyline class="lag" points="{line}"/>',
        f'<g class="lag-dots">{"".join(dots)}</g>',
        *_times(runs, [x for x, _ in points]),
    )


def stacked_bar(parts: Sequence[tuple[float, str]]) -> Html:
    """A small bar of parts, each a share of 0 to 1 and a class that colours it."""
    shown, left = [], 0.0
    for share, color in parts:
        shown.append(f'<rect class="{color}" x="{left:.2f}" width="{100 * share:.2f}" height="6"/>')
        left += 100 * share
    return Html(f'<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none">{"".join(shown)}</svg>')


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """A table; a column whose heading begins with # is of numbers."""
    kinds = ["n" if name.startswith("#") else "" for name in header]
    heads = [element("th", name.lstrip("#"), css=kind) for kind, name in zip(kinds, header, strict=True)]
    body = [
        element("tr", *(element("td", cell, css=kind) for kind, cell in zip(kinds, row, strict=True)))
        for row in rows
    ]
    parts = element("thead", element("tr", *heads)), element("tbody", *body)
    return element("div", element("table", *parts), css="scroll")


def shown_seconds(seconds: float) -> str:
    """``4.2 s``, ``3.5 min``, ``2.0 h``."""
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.1f} s"


def _svg(*parts: str) -> Html:
    return Html(f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>')


def _grid(top: float, form: str) -> str:
    """Horizontal lines with their values."""
    lines = []
    for tick in range(_TICKS + 1):
        y = _TOP + _PLOT_HEIGHT * (1 - tick / _TICKS)
        text = form.format(top * tick / _TICKS)
        lines.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
        )
    return "".join(lines)


def _times(runs: Sequence[Run], centers: Sequence[float]) -> Iterator[str]:
    """Times of some of the extractions, below them."""
    if not runs:
        return
    count = min(_TIMES, len(runs))
    chosen = sorted({round(i * (len(runs) - 1) / max(1, count - 1)) for i in range(count)})
    is_one_day = shown_time(runs[0].at)[:10] == shown_time(runs[-1].at)[:10]
    for place, number in enumerate(chosen):
        text = shown_time(runs[number].at)
        anchor = "start" if not place and len(chosen) > 1 else "middle"
        anchor = "end" if place and number == chosen[-1] else anchor
        yield (
            f'<text x="{centers[number]:.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">'
            f"{text[11:19] if is_one_day else text[5:16]}</text>"
        )


def _nice_top(value: float, *, whole: bool) -> float:
    """The least round number that is not below a value; four steps of it are round, too."""
    if value <= 0:
        return float(_TICKS)
    least = max(value, _TICKS) if whole else value
    power = 10.0 ** math.floor(math.log10(least / _TICKS))
    step = next(power * nice for nice in _NICE if power * nice * _TICKS >= least * (1 - 1e-9))
    return (math.ceil(step) if whole else step) * _TICKS


def _digits(top: float) -> int:
    """Digits after the point that a quarter of a number needs."""
    step = top / _TICKS
    return next((digits for digits in range(4) if abs(round(step, digits) - step) < step * 1e-6), 4)
