"""The status of a table as text, with the sections of the document, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mutation_api.types.printable import one_line
from mutation_api.update.status import UpdateStatus
from mutation_api.upkeep.delta_sizes import FileSizes

__all__ = ["shown_time", "status_dict", "status_text"]

_NONE_YET = "(none so far)"


def shown_time(seconds: float | None) -> str:
    """A time in UTC; a dash for None."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def status_text(status: UpdateStatus) -> str:
    """All sections, times in UTC."""
    return "\n\n".join(
        "\n".join([_heading(title), *_aligned(lines)]) for title, lines in _sections(status).items()
    )


def _sections(status: UpdateStatus) -> dict[str, list[tuple[str, str]]]:
    settings, mark, watermark = status.settings, status.mark, status.watermark
    position = mark.position if mark is not None else None if watermark is None else watermark.text
    applied = None if watermark is None else watermark.applied_at.replace(tzinfo=UTC).timestamp()
    waiting = status.waiting
    outstanding = f"(not known: {status.source_error})" if waiting is None else f"{waiting.count:,}"
    capture = [("Capture", status.source_error)] if waiting is not None and status.source_error else []
    return {
        f"{status.table} ({settings.state})": [],
        "CHANGE EXTRACTION STATUS": [
            ("Max change position extracted", position or _NONE_YET),
            ("Most recent extraction time", shown_time(applied) if applied else _NONE_YET),
            ("Extraction method", settings.method.value),
            ("Changes outstanding", outstanding),
            ("Lag", "-" if waiting is None else f"{waiting.age_seconds:.1f} s"),
            *capture,
            *[("Not captured", each) for each in status.differences],
            *_last_run(status),
        ],
        "CHANGE INGESTION STATUS": [
            ("Change ingestion location", status.location),
            ("As of", shown_time(None if mark is None else mark.as_of)),
            ("Committed by transaction", "-" if watermark is None else str(watermark.txn_id)),
        ],
        "COMPACTION STATUS": _compaction(status),
        "MISC INFORMATION": [
            ("Id columns", ", ".join(settings.key)),
            ("Sees", ", ".join(settings.method.sees)),
            ("Enabled", settings.enabled_at),
            *[(kind.capitalize(), name) for kind, name in status.objects],
            *[("Lock that waits", _lock(each)) for each in status.waiting_locks],
            *[("Dead transaction", f"{each.id} of {each.user}@{each.hostname}") for each in status.dead_txns],
        ],
        "OFFLOAD INFORMATION": [
            ("Source", str(settings.source)),
            ("Source table", settings.source_table),
            ("Target", status.table),
        ],
    }


def _last_run(status: UpdateStatus) -> list[tuple[str, str]]:
    if status.mark is None or not status.mark.recent:
        return []
    run = status.mark.recent[-1]
    rows = f"{run.inserted:,} inserted, {run.updated:,} updated, {run.deleted:,} deleted; {run.lag:.1f} s old"
    return [("Last extraction", f"number {status.mark.extraction}: {rows}")]


def _compaction(status: UpdateStatus) -> list[tuple[str, str]]:
    active = [
        f"{each.type.name.lower()} {each.partition or ''} {each.state}" for each in status.active_compactions
    ]
    last = status.last_completed
    ended = None if last is None else last.end_time or last.start_time
    deltas = sum((each.deltas for each in status.sizes), FileSizes())
    base = sum((each.base for each in status.sizes), FileSizes())
    completed = _NONE_YET if last is None else f"{last.type.name.lower()} {last.partition or ''} ".strip()
    return [
        ("Ongoing", "; ".join(active) or "(there is currently no ongoing compaction)"),
        ("Last completed", completed + (f", {shown_time(ended / 1000)}" if ended else "")),
        *(
            [("Deltas and base", f"(not known: {status.sizes_error})")]
            if status.sizes_error
            else [("Deltas", _size(deltas)), ("Base", _size(base))]
        ),
    ]


def _size(sizes: FileSizes) -> str:
    return f"{sizes.row_count or 0:,} rows, {sizes.file_count:,} files, {sizes.byte_count:,} bytes"


def _lock(lock: Any) -> str:
    by = f", held up by lock {lock.blocked_by}" if lock.blocked_by else ""
    return f"{lock.lock_id} of {lock.user}@{lock.hostname}{by}"


def _heading(title: str) -> str:
    line = "=" * (len(title) + 4)
    return f"{line}\n| {title} |\n{line}"


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in lines), default=0)
    return [f"{name}:".ljust(width + 2) + one_line(value) for name, value in lines]


def status_dict(status: UpdateStatus) -> dict[str, Any]:
    """The same for programs, in JSON's types; times are seconds since 1970."""
    settings, mark, watermark = status.settings, status.mark, status.watermark
    return {
        "table": status.table,
        "state": settings.state,
        "source": str(settings.source),
        "source_table": settings.source_table,
        "key": list(settings.key),
        "method": settings.method.value,
        "position": mark.position if mark is not None else None,
        "extraction": mark.extraction if mark is not None else None,
        "as_of": mark.as_of if mark is not None else None,
        "txn_id": watermark.txn_id if watermark is not None else None,
        "outstanding": None if status.waiting is None else status.waiting.count,
        "lag_seconds": None if status.waiting is None else round(status.waiting.age_seconds, 3),
        "source_error": status.source_error,
        "differences": list(status.differences),
        "objects": [{"kind": kind, "name": name} for kind, name in status.objects],
        "runs": [] if mark is None else [dict(vars(run)) for run in mark.recent],
        "partitions": [
            {"partition": each.partition, "deltas": dict(vars(each.deltas)), "base": dict(vars(each.base))}
            for each in status.sizes
        ],
        "sizes_error": status.sizes_error,
        "compactions": [
            {
                "id": each.id,
                "partition": each.partition,
                "kind": each.type.name.lower(),
                "state": each.state,
                "error": each.error,
            }
            for each in status.compactions
        ],
        "waiting_locks": [each.lock_id for each in status.waiting_locks],
        "dead_transactions": [each.id for each in status.dead_txns],
    }
