"""The status as an HTML page.

Charts of the status page as SVG, and tables as HTML. Pure; all strings but :class:`Html` are escaped.

The style of the status page: light or dark as the reader's system prefers, with no external fonts.

The status of tables as one self-contained HTML page, without scripts, fonts or images from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from mutation_api.cdc.update.progress_mark import Run
from mutation_api.cdc.update.status import UpdateStatus, shown_time
from mutation_api.upkeep.compaction_rules import DeltaSizes

__all__ = [
    "STYLE",
    "Html",
    "element",
    "lag_chart",
    "rows_chart",
    "shown_seconds",
    "stacked_bar",
    "status_page",
    "table",
]


_WIDTH, _HEIGHT = 960, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 8, 10, 26
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_BAR_WIDTH_MAX = 26.0
_TICKS = 4
_TIMES = 5
_KINDS = (("inserted", "ins"), ("updated", "upd"), ("deleted", "del"))
_NICE = (1, 2, 2.5, 5, 10)


class Html(str):
    """HTML created by this module; any other string comes from outside."""

    __slots__ = ()


def element(tag: str, *content: str, css: str = "") -> Html:
    """Return an element of the page, with a CSS class for its style."""
    inner = "".join(each if isinstance(each, Html) else escape(each) for each in content)
    style = f' class="{escape(css)}"' if css else ""
    return Html(f"<{tag}{style}>{inner}</{tag}>")


def rows_chart(runs: Sequence[Run]) -> Html:
    """Return a chart of the rows of each extraction by operation, as stacked bars."""
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
    """Return a chart of the age of the oldest change at each extraction."""
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
    """Return a small bar of parts, each with a share from 0 to 1 and a class that colours it."""
    shown, left = [], 0.0
    for share, color in parts:
        shown.append(f'<rect class="{color}" x="{left:.2f}" width="{100 * share:.2f}" height="6"/>')
        left += 100 * share
    return Html(f'<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none">{"".join(shown)}</svg>')


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """Return a table; a column whose heading begins with # contains numbers."""
    kinds = ["n" if name.startswith("#") else "" for name in header]
    heads = [element("th", name.lstrip("#"), css=kind) for kind, name in zip(kinds, header, strict=True)]
    body = [
        element("tr", *(element("td", cell, css=kind) for kind, cell in zip(kinds, row, strict=True)))
        for row in rows
    ]
    parts = element("thead", element("tr", *heads)), element("tbody", *body)
    return element("div", element("table", *parts), css="scroll")


def shown_seconds(seconds: float) -> str:
    """Return a duration such as ``4.2 s``, ``3.5 min`` or ``2.0 h``."""
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.1f} s"


def _svg(*parts: str) -> Html:
    return Html(f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>')


def _grid(top: float, form: str) -> str:
    """Return horizontal lines with their values."""
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
        yield (
            f'<text x="{centers[number]:.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">'
            f"{text[11:19] if is_one_day else text[5:16]}</text>"
        )


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


STYLE = """
:root {
  --ink: #1b2333; --dim: #667085; --line: #e6e9ef; --paper: #ffffff; --back: #f3f5f8; --soft: #f8f9fb;
  --ins: #17936f; --upd: #3f74d8; --del: #d9485f; --lag: #c77d0a; --base: #c3cad6;
  --ok: #0e7a52; --ok-back: #e3f5ec; --bad: #b42318; --bad-back: #fdeceb;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e7eaf0; --dim: #97a1b3; --line: #2a3241; --paper: #161b25; --back: #0e121a; --soft: #1b212d;
    --ins: #35b58b; --upd: #6b9bf2; --del: #ef6f83; --lag: #e0a03a; --base: #475266;
    --ok: #5ad1a0; --ok-back: #12301f; --bad: #ff8a80; --bad-back: #3a1917;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 20px 60px; }
h1 { font-size: 24px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 20px; margin: 0; display: flex; align-items: center; gap: 10px; flex-wrap: wrap; }
h3 { font-size: 14px; margin: 30px 0 10px; font-weight: 650; }
.sub { color: var(--dim); }
section {
  background: var(--paper); border: 1px solid var(--line); border-radius: 14px; padding: 24px 28px;
  margin-top: 22px; box-shadow: 0 1px 3px rgba(16, 24, 40, .05);
}
.pill { font-size: 12px; font-weight: 600; padding: 2px 10px; border-radius: 99px; }
.pill.ok { color: var(--ok); background: var(--ok-back); }
.pill.bad { color: var(--bad); background: var(--bad-back); }
.cards { display: grid; gap: 12px; margin-top: 18px; }
.cards { grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); }
.card { background: var(--soft); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; }
.card b { display: block; font-size: 23px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--dim); font-size: 13px; }
.note { border-radius: 8px; padding: 8px 12px; margin: 14px 0 0; }
.note.bad { color: var(--bad); background: var(--bad-back); }
.note.ok { color: var(--ok); background: var(--ok-back); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--dim); font-weight: 500; font-size: 13px; }
td, th { padding: 7px 14px 7px 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
tbody tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.scroll { overflow-x: auto; }
svg.chart { width: 100%; height: auto; display: block; }
svg.chart text { fill: var(--dim); font-size: 12px; font-variant-numeric: tabular-nums; }
svg.bar { width: 100%; min-width: 120px; height: 10px; display: block; border-radius: 3px; }
.grid { stroke: var(--line); }
rect.ins, i.ins { fill: var(--ins); background: var(--ins); }
rect.upd, i.upd { fill: var(--upd); background: var(--upd); }
rect.del, i.del { fill: var(--del); background: var(--del); }
rect.base, i.base { fill: var(--base); background: var(--base); }
.lag { fill: none; stroke: var(--lag); stroke-width: 2; stroke-linejoin: round; }
.lag-area { fill: var(--lag); opacity: .12; }
.lag-dots { fill: var(--lag); }
.key { display: flex; gap: 16px; font-size: 13px; color: var(--dim); margin-bottom: 4px; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
.bad { color: var(--bad); }
.ok { color: var(--ok); }
code { font: 13px ui-monospace, monospace; word-break: break-all; }
"""


PARTITIONS_SHOWN = 40
COMPACTIONS_SHOWN = 20
_BAD = ("failed", "aborted", "refused")
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def status_page(statuses: Sequence[UpdateStatus], at: float) -> str:
    """Return the page.

    Args:
        statuses: status of each table.
        at: time shown on the page, in seconds since 1970.
    """
    body = (
        "".join(_table(each) for each in statuses)
        or "<section>No table has incremental update enabled.</section>"
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1"><title>Incremental update</title>'
        f"<style>{STYLE}</style></head>"
        f'<body><main><h1>Incremental update</h1><div class="sub">{shown_time(at)} UTC, {len(statuses)} '
        f"table{'s' if len(statuses) != 1 else ''}</div>{body}</main></body></html>\n"
    )


def _table(status: UpdateStatus) -> Html:
    settings = status.settings
    state = "ok" if settings.state == "enabled" else "bad"
    follows = f" by {', '.join(settings.key)}, method {settings.method.value}"
    return element(
        "section",
        element("h2", status.table, " ", element("span", settings.state, css=f"pill {state}")),
        element(
            "div",
            f"follows {settings.source_table} of ",
            element("code", str(settings.source)),
            follows,
            css="sub",
        ),
        _cards(status),
        *_charts(_runs(status)),
        *_days(status),
        *_partitions(status.sizes, status.sizes_error),
        *_compactions(status),
        *_troubles(status),
        *_objects(status),
    )


def _cards(status: UpdateStatus) -> Html:
    waiting, mark = status.waiting, status.mark
    deltas = sum(each.deltas.row_count or 0 for each in status.sizes)
    base = sum(each.base.row_count or 0 for each in status.sizes)
    cards = {
        "lag": "?" if waiting is None else shown_seconds(waiting.age_seconds),
        "changes outstanding": "?" if waiting is None else f"{waiting.count:,}",
        "extractions": "0" if mark is None else f"{mark.extraction:,}",
        "last extraction (UTC)": "-" if mark is None else shown_time(mark.as_of)[11:],
        "rows in deltas": "?" if status.sizes_error else f"{deltas:,}",
        "rows in bases": "?" if status.sizes_error else f"{base:,}",
    }
    shown = [
        element("div", element("b", value), element("span", name), css="card")
        for name, value in cards.items()
    ]
    notes = [element("p", status.source_error, css="note bad")] if status.source_error else []
    notes += [element("p", each, css="note") for each in status.differences]
    return Html("".join([element("div", *shown, css="cards"), *notes]))


def _runs(status: UpdateStatus) -> Sequence[Run]:
    """Return the last extractions without the first copy, which would dwarf all others."""
    if status.mark is None:
        return ()
    has_copy = status.mark.extraction == len(status.mark.recent) and not status.settings.is_loaded
    return status.mark.recent[1:] if has_copy else status.mark.recent


def _charts(runs: Sequence[Run]) -> Iterator[Html]:
    if not runs:
        return
    what = "last extraction" if len(runs) == 1 else f"last {len(runs)} extractions"
    yield element("h3", f"Rows of the {what}")
    yield rows_chart(runs)
    if len(runs) > 1:
        yield element("h3", "Age of the oldest change when it was read")
        yield lag_chart(runs)


def _days(status: UpdateStatus) -> Iterator[Html]:
    if status.mark is None or not status.mark.days:
        return
    rows = [[day, *[f"{count:,}" for count in counts]] for day, *counts in reversed(status.mark.days)]
    yield element("h3", "By day (UTC)")
    yield table(["day", "#extractions", "#inserted", "#updated", "#deleted"], rows[:14])


def _partitions(sizes: Sequence[DeltaSizes], error: str) -> Iterator[Html]:
    yield element("h3", "Deltas by partition")
    if error:
        yield element("p", error, css="note bad")
        return
    most = sorted(sizes, key=lambda each: each.deltas.byte_count, reverse=True)[:PARTITIONS_SHOWN]
    top = max((each.deltas.byte_count + each.base.byte_count for each in most), default=0) or 1
    rows = [
        [
            each.partition or "(whole table)",
            f"{each.deltas.row_count or 0:,}",
            f"{each.deltas.file_count:,}",
            _bytes(each.deltas.byte_count),
            _bytes(each.base.byte_count),
            stacked_bar([(each.base.byte_count / top, "base"), (each.deltas.byte_count / top, "upd")]),
        ]
        for each in most
    ]
    key = [("base", "base"), ("upd", "deltas")]
    yield element("div", *(element("span", element("i", css=css), name) for css, name in key), css="key")
    yield table(["partition", "#rows in deltas", "#files", "#deltas", "#base", ""], rows)
    hidden = len(sizes) - len(most)
    if hidden > 0:
        yield element("div", f"and {hidden:,} partitions with smaller deltas", css="sub")


def _compactions(status: UpdateStatus) -> Iterator[Html]:
    yield element("h3", "Compactions")
    if not status.compactions:
        yield element("div", "none so far", css="sub")
        return
    rows = [
        [
            str(each.id or ""),
            each.partition or "(whole table)",
            each.type.name.lower(),
            element("span", each.state, css="bad" if each.state in _BAD else ""),
            shown_time(each.start_time / 1000 if each.start_time else None),
            each.error[:200],
        ]
        for each in status.compactions[:COMPACTIONS_SHOWN]
    ]
    yield table(["id", "partition", "kind", "state", "begun (UTC)", "why"], rows)


def _troubles(status: UpdateStatus) -> Iterator[Html]:
    yield element("h3", "Locks and transactions")
    locks = [
        [
            "waiting lock",
            str(each.lock_id),
            f"{each.user}@{each.hostname}",
            f"waits for lock {each.blocked_by or '?'}",
        ]
        for each in status.waiting_locks
    ]
    txns = [
        ["dead transaction", str(each.id), f"{each.user}@{each.hostname}", each.agent_info]
        for each in status.dead_txns
    ]
    if locks or txns:
        yield table(["what", "id", "who", ""], [*locks, *txns])
    else:
        yield element("div", "no waiting locks, no dead transactions", css="note ok")


def _objects(status: UpdateStatus) -> Iterator[Html]:
    yield element("h3", "Objects")
    yield table(["type", "name"], [[kind, element("code", name)] for kind, name in status.objects])


def _bytes(count: int) -> str:
    """Return a size with a decimal unit."""
    for size, unit in _SIZES:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,} B"
