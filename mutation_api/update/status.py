"""update_status: everything that is known about a table that follows a source, asked of both sides."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from metastore_client.client import MetastoreClient
from metastore_client.hive_site import parse_duration_seconds
from metastore_client.model import CompactionInfo, LockInfo, LockState, TxnInfo, TxnState
from mutation_api.client.failure import metastore_errors_as_ours
from mutation_api.client.mutator_client import TXN_TIMEOUT, TXN_TIMEOUT_DEFAULT
from mutation_api.client.tables.catalog import split_full_name
from mutation_api.errors import LockNotAcquiredError, MutationError
from mutation_api.inputs.watermark import Watermark
from mutation_api.update.compact import read_sizes
from mutation_api.update.differences import differences
from mutation_api.update.progress_mark import ProgressMark
from mutation_api.update.settings import UpdateSettings
from mutation_api.update.source_access import SourceAccess, check_same_settings, check_same_source
from mutation_api.update.steady_snapshot import check_objects, source_state
from mutation_api.update.tables import find_mark, get_table, require_settings, watermark_table_of
from mutation_api.update.waiting import Waiting, waiting_changes
from mutation_api.upkeep.delta_sizes import DeltaSizes

__all__ = ["UpdateStatus", "update_status"]

LOCK_SECONDS = 2.0
"""How long the status waits for who has the table for himself."""


@dataclass(frozen=True)
class UpdateStatus:
    """The state of one table.

    Attributes:
        table: ``database.table``.
        location: its directory.
        settings: what ``enable`` decided.
        watermark: the last commit of an extraction, None before the first.
        mark: what it says, None for the binary log.
        waiting: what waits in the source; None if the source could not be asked.
        source_error: why it could not, or why it does not capture changes.
        differences: what happened at the source that is not captured, and what the next extraction does.
        objects: (kind, name) of what was made in the source, and of the watermark table.
        sizes: deltas and bases by partition; empty if they could not be read.
        sizes_error: why not: somebody has the table for himself.
        compactions: those of the table that the server remembers, newest first.
        waiting_locks: locks on the table that others hold up.
        dead_txns: transactions without a sign of life for longer than the server's limit.
        at: seconds since 1970.
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
        """Those that are queued or run."""
        return [each for each in self.compactions if each.state in ("initiated", "working")]

    @property
    def last_completed(self) -> CompactionInfo | None:
        """The last compaction that was completed."""
        done = ("succeeded", "ready for cleaning")
        return next((each for each in self.compactions if each.state in done), None)


def update_status(
    metastore: MetastoreClient, table: str, *, password: str | None = None, source: str | None = None
) -> UpdateStatus:
    """Look at both sides; a source that does not answer is reported, not raised, and so is a table that
    somebody has locked for himself: its status is asked for just then.

    Args:
        metastore: where the table is; stays open.
        table: ``database.table``.
        password: of the source; by default that of the environment.
        source: see ``extract_update``.

    Raises:
        ConfigurationError: incremental update is not enabled.
        ConnectionFailedError, TransactionError: the metastore could not be asked.
    """
    table = ".".join(split_full_name(table))
    settings = require_settings(metastore, table, "enabling", "enabled", "disabling")
    found = find_mark(metastore, table)
    access = SourceAccess(password=password, source=source)
    answer = _ask_source(metastore, table, settings, found, access)
    objects = answer.objects
    if found is not None:
        objects = (*objects, ("watermark table", watermark_table_of(table)))
    with metastore_errors_as_ours(f"could not ask for the state of table {table}"):
        compactions = _compactions(metastore, table)
        locks = metastore.show_locks(*split_full_name(table))
        dead = _dead(metastore, time.time())
    sizes, sizes_error = _sizes(metastore, table)  # last, since it asks for a lock of its own
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
    """What the source says, as far as it could be asked."""

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
    """What the files tell, and why they do not."""
    try:
        return tuple(read_sizes(metastore, table, lock_timeout_seconds=LOCK_SECONDS)), ""
    except LockNotAcquiredError as error:
        return (), str(error)


def _compactions(metastore: MetastoreClient, table: str) -> Sequence[CompactionInfo]:
    database, name = split_full_name(table)
    found = [each for each in metastore.show_compactions() if (each.database, each.table) == (database, name)]
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
