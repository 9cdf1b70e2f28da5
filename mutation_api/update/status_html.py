"""The status of tables as one HTML page that needs nothing else: no scripts, no fonts, no images from
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mutation_api.update.progress_mark import Run
from mutation_api.update.status import UpdateStatus
from mutation_api.update.status_charts import lag_chart, rows_chart, shown_seconds, stacked_bar, table
from mutation_api.update.status_style import STYLE
from mutation_api.update.status_text import shown_time
from mutation_api.upkeep.delta_sizes import DeltaSizes

__all__ = ["status_page"]

PARTITIONS_SHOWN = 40
COMPACTIONS_SHOWN = 20
_BAD = ("failed", "aborted", "refused")
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


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
        f"<style>{STYLE}</style></head>"
        f'<body><main><h1>Incremental update</h1><div class="sub">{shown_time(at)} UTC, {len(statuses)} '
        f"table{'s' if len(statuses) != 1 else ''}</div>{body}</main></body></html>\n"
    )


def _table(status: UpdateStatus) -> str:
    settings = status.settings
    state = "ok" if settings.state == "enabled" else "bad"
    parts = [
        f'<section><h2>{escape(status.table)} <span class="pill {state}">{settings.state}</span></h2>',
        f'<div class="sub">follows {escape(settings.source_table)} of '
        f"<code>{escape(settings.source)}</code> by "
        f"{escape(', '.join(settings.key))}, method {settings.method.value}</div>",
        _cards(status),
        _charts(_runs(status)),
        _days(status),
        _partitions(status.sizes, status.sizes_error),
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
        "lag": "?" if waiting is None else shown_seconds(waiting.age_seconds),
        "changes outstanding": "?" if waiting is None else f"{waiting.count:,}",
        "extractions": "0" if mark is None else f"{mark.extraction:,}",
        "last extraction (UTC)": "-" if mark is None else shown_time(mark.as_of)[11:],
        "rows in deltas": "?" if status.sizes_error else f"{deltas:,}",
        "rows in bases": "?" if status.sizes_error else f"{base:,}",
    }
    shown = "".join(
        f'<div class="card"><b>{value}</b><span>{name}</span></div>' for name, value in cards.items()
    )
    error = f'<p class="note bad">{escape(status.source_error)}</p>' if status.source_error else ""
    differences = "".join(f'<p class="note">{escape(each)}</p>' for each in status.differences)
    return f'<div class="cards">{shown}</div>{error}{differences}'


def _runs(status: UpdateStatus) -> Sequence[Run]:
    """The last extractions without the first copy, beside which nothing else could be seen."""
    if status.mark is None:
        return ()
    has_copy = status.mark.extraction == len(status.mark.recent) and not status.settings.is_loaded
    return status.mark.recent[1:] if has_copy else status.mark.recent


def _charts(runs: Sequence[Run]) -> str:
    if not runs:
        return ""
    what = "last extraction" if len(runs) == 1 else f"last {len(runs)} extractions"
    rows = f"<h3>Rows of the {what}</h3>{rows_chart(runs)}"
    if len(runs) == 1:
        return rows
    return f"{rows}<h3>Age of the oldest change when it was read</h3>{lag_chart(runs)}"


def _days(status: UpdateStatus) -> str:
    if status.mark is None or not status.mark.days:
        return ""
    rows = [[day, *[f"{count:,}" for count in counts]] for day, *counts in reversed(status.mark.days)]
    return "<h3>By day (UTC)</h3>" + table(
        ["day", "#extractions", "#inserted", "#updated", "#deleted"], rows[:14]
    )


def _partitions(sizes: Sequence[DeltaSizes], error: str) -> str:
    if error:
        return f'<h3>Deltas by partition</h3><p class="note bad">{escape(error)}</p>'
    most = sorted(sizes, key=lambda each: each.deltas.byte_count, reverse=True)[:PARTITIONS_SHOWN]
    top = max((each.deltas.byte_count + each.base.byte_count for each in most), default=0) or 1
    rows = [
        [
            escape(each.partition or "(whole table)"),
            f"{each.deltas.row_count or 0:,}",
            f"{each.deltas.file_count:,}",
            _bytes(each.deltas.byte_count),
            _bytes(each.base.byte_count),
            stacked_bar([(each.base.byte_count / top, "base"), (each.deltas.byte_count / top, "upd")]),
        ]
        for each in most
    ]
    hidden = len(sizes) - len(most)
    more = f'<div class="sub">and {hidden:,} partitions with smaller deltas</div>' if hidden > 0 else ""
    key = '<div class="key"><span><i class="base"></i>base</span><span><i class="upd"></i>deltas</span></div>'
    header = ["partition", "#rows in deltas", "#files", "#deltas", "#base", ""]
    return f"<h3>Deltas by partition</h3>{key}{table(header, rows)}{more}"


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
    return "<h3>Compactions</h3>" + table(["id", "partition", "kind", "state", "begun (UTC)", "why"], rows)


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
        return (
            "<h3>Locks and transactions</h3><div class='note ok'>no lock waits, no transaction is dead</div>"
        )
    rows = [[escape(cell) for cell in row] for row in (*locks, *txns)]
    return "<h3>Locks and transactions</h3>" + table(["what", "id", "who", ""], rows)


def _objects(status: UpdateStatus) -> str:
    rows = [[escape(kind), f"<code>{escape(name)}</code>"] for kind, name in status.objects]
    return "<h3>Objects</h3>" + table(["type", "name"], rows)


def _bytes(count: int) -> str:
    """A size with a decimal unit."""
    for size, unit in _SIZES:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,} B"
