"""The status of tables as one HTML page that needs nothing else: no scripts, no fonts, no images from
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mutation_api.update.progress_mark import Run
from mutation_api.update.status import UpdateStatus
from mutation_api.update.status_text import shown_time
from mutation_api.upkeep.delta_sizes import DeltaSizes

__all__ = ["status_page"]

PARTITIONS_SHOWN = 40
COMPACTIONS_SHOWN = 20
_BAD = ("failed", "aborted", "refused")
_WIDTH, _HEIGHT = 720, 150
_LEFT, _BOTTOM = 56, 22

_STYLE = """
:root{--ink:#1d2433;--dim:#667085;--line:#e4e7ec;--paper:#fff;--back:#f6f7f9;--ins:#2a9d8f;--upd:#4f7cd1;--del:#d1495b;
--lag:#b7791f;--base:#cbd5e1;--ok:#12805c;--bad:#b42318}
@media (prefers-color-
scheme:dark){:root{--ink:#e6e9ef;--dim:#98a2b3;--line:#2c3444;--paper:#171c26;--back:#0f131b;
--base:#3b4658;--ok:#4cc38a;--bad:#f97066}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,
sans-serif}main{max-width:1080px;margin:0 auto;padding:32px 20px}h1{font-size:22px;margin:0 0 4px}
h2{font-size:19px;margin:0}h3{font-size:13px;text-transform:uppercase;letter-spacing:.06em;color:var(--dim);
margin:26px 0 8px;font-weight:600}
.sub{color:var(--dim)}section{background:var(--paper);border:1px solid var(--line);border-
radius:12px;padding:22px 24px; margin-top:22px}.cards{display:flex;flex-wrap:wrap;gap:12px;margin-
top:16px}.card{flex:1 1 150px;border:1px solid var(--line);border-radius:9px;padding:10px 14px}.card
b{display:block;font-size:22px;font-variant- numeric:tabular-nums} .card span{color:var(--dim);font-
size:13px}table{border- collapse:collapse;width:100%;font-size:14px}th{text- align:left;
color:var(--dim);font- weight:500}td,th{padding:5px 10px 5px 0;border-bottom:1px solid
var(--line)}td.n,th.n{text-align: right;font- variant-numeric:tabular-
nums}svg{width:100%;height:auto;display:block}svg text{fill:var(--dim);font- size:11px} .key i{display:inline-
block;width:10px;height:10px;border-radius:2px;margin:0 5px 0 14px}.bad{color:var(--bad)}
.ok{color:var(--ok)}code{font:13px ui-monospace,monospace;word-break:break- all}.scroll{overflow-x:auto}
"""


def status_page(statuses: Sequence[UpdateStatus], at: float) -> str:
    """The page.

    Args:
        statuses: of each table.
        at: seconds since 1970 that the page shows as its time.
    """
    body = (
        "".join(_table(each) for each in statuses)
        or "<section>No table has incremental update enabled.</section>"
    )
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width,initial-scale=1"><title>Incremental update</title>'
        f"<style>{_STYLE}</style></head>"
        f'<body><main><h1>Incremental update</h1><div class="sub">{shown_time(at)} UTC, {len(statuses)} '
        f"table{'s' if len(statuses) != 1 else ''}</div>{body}</main></body></html>\n"
    )


def _table(status: UpdateStatus) -> str:
    settings = status.settings
    state = "ok" if settings.state == "enabled" else "bad"
    parts = [
        f'<section><h2>{escape(status.table)} <small class="{state}">{settings.state}</small></h2>',
        f'<div class="sub">follows {escape(settings.source_table)} of '
        f"<code>{escape(settings.source)}</code> by "
        f"{escape(', '.join(settings.key))}, method {settings.method.value}</div>",
        _cards(status),
        _chart_rows(_runs(status)),
        _chart_lag(_runs(status)),
        _days(status),
        _partitions(status.sizes),
        _compactions(status),
        _troubles(status),
        _objects(status),
        "</section>",
    ]
    return "".join(parts)


def _cards(status: UpdateStatus) -> str:
    waiting, mark = status.waiting, status.mark
    deltas = sum(each.deltas.row_count or 0 for each in status.sizes)
    base = sum(each.base.row_count or 0 for each in status.sizes)
    cards = {
        "lag": "?" if waiting is None else _seconds(waiting.age_seconds),
        "changes outstanding": "?" if waiting is None else f"{waiting.count:,}",
        "extractions": "0" if mark is None else f"{mark.extraction:,}",
        "last extraction (UTC)": "-" if mark is None else shown_time(mark.as_of)[11:],
        "rows in deltas": f"{deltas:,}",
        "rows in bases": f"{base:,}",
    }
    shown = "".join(
        f'<div class="card"><b>{value}</b><span>{name}</span></div>' for name, value in cards.items()
    )
    error = f'<p class="bad">{escape(status.source_error)}</p>' if status.source_error else ""
    return f'<div class="cards">{shown}</div>{error}'


def _runs(status: UpdateStatus) -> Sequence[Run]:
    """The last extractions without the first copy, beside which nothing else could be seen."""
    if status.mark is None:
        return ()
    has_copy = status.mark.extraction == len(status.mark.recent) and not status.settings.is_loaded
    return status.mark.recent[1:] if has_copy else status.mark.recent


def _chart_rows(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    top = max(1, max(run.rows for run in runs))
    bars = []
    step = (_WIDTH - _LEFT) / len(runs)
    for number, run in enumerate(runs):
        below = float(_HEIGHT - _BOTTOM)
        for count, color in ((run.inserted, "ins"), (run.updated, "upd"), (run.deleted, "del")):
            height = count / top * (_HEIGHT - _BOTTOM - 8)
            below -= height
            bars.append(
                f'<rect x="{_LEFT + number * step:.1f}" y="{below:.1f}" width="{max(1.0, step - 1):.1f}" '
                f'height="{height:.1f}" fill="var(--{color})"/>'
            )
    title = f"{shown_time(runs[0].at)} to {shown_time(runs[-1].at)}"
    key = "".join(
        f'<i style="background:var(--{color})"></i>{name}'
        for color, name in (("ins", "inserted"), ("upd", "updated"), ("del", "deleted"))
    )
    return (
        f'<h3>Rows of the last {len(runs)} extractions <span class="key">{key}</span></h3>'
        f"{_svg(''.join(bars), f'{top:,}', title)}"
    )


def _chart_lag(runs: Sequence[Run]) -> str:
    if len(runs) < 2:
        return ""
    top = max(run.lag for run in runs) or 1.0
    step = (_WIDTH - _LEFT) / (len(runs) - 1)
    points = " ".join(
        f"{_LEFT + number * step:.1f},{_HEIGHT - _BOTTOM - run.lag / top * (_HEIGHT - _BOTTOM - 8):.1f}"
        for number, run in enumerate(runs)
    )
    line = f'<polyline points="{points}" fill="none" stroke="var(--lag)" stroke-width="1.8"/>'
    return "<h3>Age of the oldest change when it was read</h3>" + _svg(line, _seconds(top), "")


def _svg(inner: str, top: str, below: str) -> str:
    base = _HEIGHT - _BOTTOM
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{base}" y2="{base}" '
        f'stroke="var(--line)"/><text x="{_LEFT - 6}" y="14" text-anchor="end">{top}</text>'
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>{inner}'
        f'<text x="{_LEFT}" y="{_HEIGHT - 4}">{below}</text></svg>'
    )


def _days(status: UpdateStatus) -> str:
    if status.mark is None or not status.mark.days:
        return ""
    rows = [[day, *[f"{count:,}" for count in counts]] for day, *counts in reversed(status.mark.days)]
    return "<h3>By day (UTC)</h3>" + _rows(
        ["day", "#extractions", "#inserted", "#updated", "#deleted"], rows[:14]
    )


def _partitions(sizes: Sequence[DeltaSizes]) -> str:
    most = sorted(sizes, key=lambda each: each.deltas.byte_count, reverse=True)[:PARTITIONS_SHOWN]
    top = max((each.deltas.byte_count + each.base.byte_count for each in most), default=0) or 1
    rows = []
    for each in most:
        base, deltas = (100 * size.byte_count / top for size in (each.base, each.deltas))
        bar = (
            '<svg viewBox="0 0 100 6" preserveAspectRatio="none" style="height:10px;min-width:120px">'
            f'<rect width="{base:.2f}" height="6" fill="var(--base)"/>'
            f'<rect x="{base:.2f}" width="{deltas:.2f}" height="6" fill="var(--upd)"/></svg>'
        )
        rows.append(
            [
                escape(each.partition or "(whole table)"),
                f"{each.deltas.row_count or 0:,}",
                f"{each.deltas.file_count:,}",
                f"{each.deltas.byte_count:,}",
                f"{each.base.byte_count:,}",
                bar,
            ]
        )
    hidden = len(sizes) - len(most)
    more = f'<div class="sub">and {hidden:,} partitions with smaller deltas</div>' if hidden > 0 else ""
    header = ["partition", "#delta rows", "#delta files", "#delta bytes", "#base bytes", "base and deltas"]
    return "<h3>Deltas by partition</h3>" + _rows(header, rows) + more


def _compactions(status: UpdateStatus) -> str:
    if not status.compactions:
        return "<h3>Compactions</h3><div class='sub'>none so far</div>"
    rows = [
        [
            str(each.id or ""),
            escape(each.partition or "(whole table)"),
            each.type.name.lower(),
            f'<span class="{"bad" if each.state in _BAD else ""}">{escape(each.state)}</span>',
            shown_time(each.start_time / 1000 if each.start_time else None),
            escape(each.error[:200]),
        ]
        for each in status.compactions[:COMPACTIONS_SHOWN]
    ]
    return "<h3>Compactions</h3>" + _rows(["id", "partition", "kind", "state", "begun (UTC)", "why"], rows)


def _troubles(status: UpdateStatus) -> str:
    locks = [
        [
            "lock that waits",
            str(each.lock_id),
            f"{each.user}@{each.hostname}",
            f"behind {each.blocked_by or '?'}",
        ]
        for each in status.waiting_locks
    ]
    txns = [
        ["dead transaction", str(each.id), f"{each.user}@{each.hostname}", each.agent_info]
        for each in status.dead_txns
    ]
    if not (locks or txns):
        return "<h3>Locks and transactions</h3><div class='ok'>no lock waits, no transaction is dead</div>"
    rows = [[escape(cell) for cell in row] for row in (*locks, *txns)]
    return "<h3>Locks and transactions</h3>" + _rows(["what", "id", "who", ""], rows)


def _objects(status: UpdateStatus) -> str:
    rows = [[escape(kind), f"<code>{escape(name)}</code>"] for kind, name in status.objects]
    return "<h3>Objects</h3>" + _rows(["type", "name"], rows)


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; a column whose heading begins with # is of numbers."""
    kinds = [' class="n"' if name.startswith("#") else "" for name in header]
    heads = "".join(f"<th{kind}>{name.lstrip('#')}</th>" for kind, name in zip(kinds, header, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{heads}</tr>{body}</table></div>'


def _seconds(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.1f} s"
