"""The status of tables as one HTML page that needs nothing else: no scripts, no fonts, no images from
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mutation_api.update.progress_mark import Run
from mutation_api.update.status import UpdateStatus
from mutation_api.update.status_charts import (
    Html,
    element,
    lag_chart,
    rows_chart,
    shown_seconds,
    stacked_bar,
    table,
)
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
    """The last extractions without the first copy, beside which nothing else could be seen."""
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
    if locks or txns:
        yield table(["what", "id", "who", ""], [*locks, *txns])
    else:
        yield element("div", "no lock waits, no transaction is dead", css="note ok")


def _objects(status: UpdateStatus) -> Iterator[Html]:
    yield element("h3", "Objects")
    yield table(["type", "name"], [[kind, element("code", name)] for kind, name in status.objects])


def _bytes(count: int) -> str:
    """A size with a decimal unit."""
    for size, unit in _SIZES:
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,} B"
