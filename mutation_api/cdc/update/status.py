"""The status of tables that follow a source, as data, as plain text with the documented sections, and as
JSON.

It contains all information from both sides, including the changes that the source has captured and that no
extraction has applied yet.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from metastore_client.client import MetastoreClient, compactions_of
from metastore_client.hive_site import parse_duration_seconds
from metastore_client.model import CompactionInfo, LockInfo, LockState, TxnInfo, TxnState
from mutation_api.cdc.update.database import SourceDatabase
from mutation_api.cdc.update.log_source import outstanding
from mutation_api.cdc.update.progress_mark import ProgressMark
from mutation_api.cdc.update.settings import (
    UpdateSettings,
    find_mark,
    get_table,
    require_settings,
    watermark_table_of,
)
from mutation_api.cdc.update.source_rows import check_objects, differences, source_state
from mutation_api.cdc.update.sources import SourceAccess, check_same_settings, check_same_source
from mutation_api.cdc.watermark import Watermark
from mutation_api.errors import ConfigurationError, LockNotAcquiredError, MutationError
from mutation_api.format.printable import one_line
from mutation_api.transaction.catalog import normal_full_name, split_full_name
from mutation_api.transaction.listener import metastore_errors_as_ours
from mutation_api.transaction.mutator_client import TXN_TIMEOUT, TXN_TIMEOUT_DEFAULT
from mutation_api.upkeep.compact import read_sizes
from mutation_api.upkeep.delta_sizes import DeltaSizes, FileSizes


@dataclass(frozen=True)
class Waiting:
    """The changes that wait in the source.

    ``count``: their number. ``age_seconds``: the age of the oldest one, which is the lag of the target.
    """

    count: int
    age_seconds: float


def waiting_changes(
    metastore: MetastoreClient, database: SourceDatabase, table: str, settings: UpdateSettings
) -> Waiting:
    """Count the changes waiting in the source.

    Log rows that an extraction applied before it was killed, and could not delete, are not counted.

    Raises:
        ConfigurationError: If the method has no log.
        ConnectionFailedError: If the source cannot be reached.
        SourcePositionError: If the source no longer has a log.
    """
    if not settings.method.has_log:
        raise ConfigurationError(
            f"method {settings.method.value} has no log to count; use a dry run of an extraction instead"
        )
    found = find_mark(metastore, table)
    applied = () if found is None or found[1] is None else found[1].pending
    return Waiting(*outstanding(database, settings, table, applied))


LOCK_SECONDS = 2.0
"""The maximum time that the status waits for an exclusive lock of another transaction to end."""


@dataclass(frozen=True)
class UpdateStatus:
    """The state of one table.

    Attributes:
        table: ``database.table``.
        location: its directory.
        settings: the decisions of ``enable``.
        watermark: the last commit of an extraction; None before the first.
        mark: the content of the watermark; None if the method is binlog.
        waiting: the changes waiting in the source; None if the source could not be queried.
        source_error: why the source could not be queried, or why it does not capture changes.
        differences: the events at the source that are not captured, and how the next extraction handles them.
        objects: (kind, name) of the objects created in the source, and of the watermark table.
        sizes: deltas and bases by partition; empty if they could not be read.
        sizes_error: why they could not be read: another transaction holds an exclusive lock on the table.
        compactions: the table's compactions that the server remembers, newest first.
        waiting_locks: locks on the table that wait for others.
        dead_txns: transactions without a heartbeat for longer than the server's limit.
        at: time of the status, in seconds since 1970.
    """

    table: str
    location: str
    settings: UpdateSettings
    watermark: Watermark | None
    mark: ProgressMark | None
    waiting: Waiting | None
    source_error: str
    differences: tuple[str, ...]
    objects: tuple[tuple[str, str], ...]
    sizes: tuple[DeltaSizes, ...]
    sizes_error: str
    compactions: tuple[CompactionInfo, ...]
    waiting_locks: tuple[LockInfo, ...]
    dead_txns: tuple[TxnInfo, ...]
    at: float

    @property
    def active_compactions(self) -> list[CompactionInfo]:
        """The compactions that are queued or running."""
        return [each for each in self.compactions if each.is_pending]

    @property
    def last_completed(self) -> CompactionInfo | None:
        """The last compaction that was completed."""
        return next((each for each in self.compactions if each.is_done), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as a JSON-serialisable dict; times are seconds since 1970."""
        settings, mark, watermark = self.settings, self.mark, self.watermark
        return {
            "table": self.table,
            "state": settings.state,
            "source": str(settings.source),
            "source_table": settings.source_table,
            "key": list(settings.key),
            "method": settings.method.value,
            "position": mark.position if mark is not None else None,
            "extraction": mark.extraction if mark is not None else None,
            "as_of": mark.as_of if mark is not None else None,
            "txn_id": watermark.txn_id if watermark is not None else None,
            "outstanding": None if self.waiting is None else self.waiting.count,
            "lag_seconds": None if self.waiting is None else round(self.waiting.age_seconds, 3),
            "source_error": self.source_error,
            "differences": list(self.differences),
            "objects": [{"kind": kind, "name": name} for kind, name in self.objects],
            "runs": [] if mark is None else [dict(vars(run)) for run in mark.recent],
            "partitions": [
                {
                    "partition": each.partition,
                    "deltas": dict(vars(each.deltas)),
                    "base": dict(vars(each.base)),
                }
                for each in self.sizes
            ],
            "sizes_error": self.sizes_error,
            "compactions": [
                {
                    "id": each.id,
                    "partition": each.partition,
                    "kind": each.type.name.lower(),
                    "state": each.state,
                    "error": each.error,
                }
                for each in self.compactions
            ],
            "waiting_locks": [each.lock_id for each in self.waiting_locks],
            "dead_transactions": [each.id for each in self.dead_txns],
        }


def update_status(
    metastore: MetastoreClient, table: str, *, password: str | None = None, source: str | None = None
) -> UpdateStatus:
    """Return the status of a table, from both sides.

    A source that does not answer is reported in the status and not raised. The same applies to a table on
    which another transaction holds an exclusive lock, because this is when a status is needed.

    Args:
        metastore: metastore of the table; stays open.
        table: ``database.table``.
        password: password of the source. Default: that of the environment.
        source: see ``extract_update``.

    Raises:
        ConfigurationError: If incremental update is not enabled.
        ConnectionFailedError: If the metastore cannot be reached.
        TransactionError: If the metastore cannot be queried.
    """
    table = normal_full_name(table)
    settings = require_settings(metastore, table, "enabling", "enabled", "disabling")
    found = find_mark(metastore, table)
    access = SourceAccess(password=password, source=source)
    answer = _ask_source(metastore, table, settings, found, access)
    objects = answer.objects
    if found is not None:
        objects = (*objects, ("watermark table", watermark_table_of(table)))
    with metastore_errors_as_ours(f"cannot query the state of table {table}"):
        compactions = _compactions(metastore, table)
        locks = metastore.show_locks(*split_full_name(table))
        dead = _dead(metastore, time.time())
    sizes, sizes_error = _sizes(metastore, table)  # last, because it requests a lock of its own
    return UpdateStatus(
        table,
        get_table(metastore, table).location,
        settings,
        None if found is None else found[0],
        None if found is None else found[1],
        answer.waiting,
        answer.error,
        answer.differences,
        objects,
        sizes,
        sizes_error,
        tuple(compactions),
        tuple(each for each in locks if each.state is LockState.WAITING),
        tuple(dead),
        time.time(),
    )


@dataclass
class _SourceAnswer:
    """The answer of the source, as far as it could be queried."""

    waiting: Waiting | None = None
    objects: tuple[tuple[str, str], ...] = ()
    differences: tuple[str, ...] = ()
    error: str = ""


def _ask_source(
    metastore: MetastoreClient,
    table: str,
    settings: UpdateSettings,
    found: tuple[Watermark, ProgressMark | None] | None,
    access: SourceAccess,
) -> _SourceAnswer:
    answer = _SourceAnswer()
    mark = None if found is None else found[1]
    try:
        database = access.connected(table, settings)
    except MutationError as error:
        return _SourceAnswer(error=str(error))
    try:
        check_same_settings(table, mark, settings)
        check_same_source(table, () if found is None else (found[0],), settings)
        if settings.method.has_log:
            answer.objects = tuple((each.kind, each.name) for each in database.made(settings.names))
        answer.waiting = waiting_changes(metastore, database, table, settings)
        state = source_state(database, settings, table)
        check_objects(database, settings, table, state.table)
        if mark is not None:
            answer.differences = tuple(map(str, differences(mark.fingerprint, state.fingerprint, settings)))
    except MutationError as error:
        answer.error = str(error)
    finally:
        database.close()
    return answer


def _sizes(metastore: MetastoreClient, table: str) -> tuple[tuple[DeltaSizes, ...], str]:
    """Return the sizes of the files, or why they cannot be read."""
    try:
        return tuple(read_sizes(metastore, table, lock_timeout_seconds=LOCK_SECONDS)), ""
    except LockNotAcquiredError as error:
        return (), str(error)


def _compactions(metastore: MetastoreClient, table: str) -> Sequence[CompactionInfo]:
    found = compactions_of(metastore, *split_full_name(table))
    return sorted(found, key=lambda each: (each.id or 0, each.start_time or 0), reverse=True)


def _dead(metastore: MetastoreClient, now: float) -> list[TxnInfo]:
    limit_seconds = parse_duration_seconds(metastore.get_config_value(TXN_TIMEOUT, TXN_TIMEOUT_DEFAULT))
    return [
        each
        for each in metastore.get_open_txns().txns
        if each.state is TxnState.OPEN
        and each.last_heartbeat_time is not None
        and now - each.last_heartbeat_time / 1000 > limit_seconds
    ]


_NONE_YET = "(none so far)"


def shown_time(seconds: float | None) -> str:
    """Return a time in UTC, or a dash for None."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def status_text(status: UpdateStatus) -> str:
    """Return all sections, with times in UTC."""
    return "\n\n".join(
        "\n".join([_heading(title), *_aligned(lines)]) for title, lines in _sections(status).items()
    )


def _sections(status: UpdateStatus) -> dict[str, list[tuple[str, str]]]:
    settings, mark, watermark = status.settings, status.mark, status.watermark
    position = mark.position if mark is not None else None if watermark is None else watermark.text
    applied = None if watermark is None else watermark.applied_at.replace(tzinfo=UTC).timestamp()
    waiting = status.waiting
    outstanding = f"(unknown: {status.source_error})" if waiting is None else f"{waiting.count:,}"
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
            *[("Waiting lock", _lock(each)) for each in status.waiting_locks],
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
            [("Deltas and base", f"(unknown: {status.sizes_error})")]
            if status.sizes_error
            else [("Deltas", _size(deltas)), ("Base", _size(base))]
        ),
    ]


def _size(sizes: FileSizes) -> str:
    return f"{sizes.row_count or 0:,} rows, {sizes.file_count:,} files, {sizes.byte_count:,} bytes"


def _lock(lock: Any) -> str:
    by = f", waits for lock {lock.blocked_by}" if lock.blocked_by else ""
    return f"{lock.lock_id} of {lock.user}@{lock.hostname}{by}"


def _heading(title: str) -> str:
    line = "=" * (len(title) + 4)
    return f"{line}\n| {title} |\n{line}"


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    width = max((len(name) for name, _ in lines), default=0)
    return [f"{name}:".ljust(width + 2) + one_line(value) for name, value in lines]
