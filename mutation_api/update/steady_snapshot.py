"""steady_snapshot: a snapshot of the source in which the table is known to be captured.

Catalogs are not part of a snapshot everywhere, and a statement such as TRUNCATE or ALTER reaches into
snapshots that are older than itself. So the catalog is read before the snapshot is opened, and again when the
snapshot holds the table, from where on statements that alter it wait. If both agree, nothing was altered at
the moment of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mutation_api.errors import CaptureError, InputError, RecordLayoutError
from mutation_api.update.fingerprint import Fingerprint
from mutation_api.update.rdbms.database import CapturedTable, SourceDatabase, SourceSnapshot
from mutation_api.update.settings import UpdateSettings

__all__ = [
    "SourceState",
    "SteadySnapshot",
    "check_objects",
    "repair_advice",
    "source_state",
    "steady_snapshot",
]

ATTEMPTS = 5
"""Snapshots that are opened until the table is not altered meanwhile."""


@dataclass(frozen=True)
class SourceState:
    """A table of the source as its catalog describes it, with its fingerprint."""

    table: CapturedTable
    fingerprint: Fingerprint


@dataclass(frozen=True)
class SteadySnapshot:
    """A snapshot, and the state of the table in it."""

    snapshot: SourceSnapshot
    state: SourceState


def repair_advice(target: str) -> str:
    """The way on if changes are not captured any more."""
    return (
        f"Nothing was written. To go on: hive-mutate update repair --table {target} (--dry-run shows the "
        "statements); the next extraction then compares the whole table"
    )


def source_state(database: SourceDatabase, settings: UpdateSettings, target: str) -> SourceState:
    """Describe the followed table.

    Args:
        database: the source.
        settings: those of the table.
        target: the table in Hive, for messages.

    Raises:
        CaptureError: the table is gone, or has no key any more.
        RecordLayoutError: the table has become one that the method cannot follow.
        ConnectionFailedError: the source cannot be reached.
    """
    try:
        table = database.describe(settings.source_table)
    except RecordLayoutError as error:
        raise CaptureError(
            f"{error}. Nothing was written. To go on: bring the table back, then run hive-mutate update "
            f"repair --table {target}; or stop following it: hive-mutate update disable --table {target} "
            "--discard"
        ) from error
    if settings.state != "disabling":
        database.check_capture(table, settings.key, settings.method)
    names = {column.name for column in table.columns}
    missing = [name for name in settings.key if name not in names]
    if missing:
        raise CaptureError(
            f"source {database.source_id}, table {settings.source_table}: the table has no key column "
            f"{', '.join(missing)} any more. Nothing was written. To go on: name the column as before; or "
            f"stop following the table, hive-mutate update disable --table {target} --discard, alter the "
            "table in Hive, and enable again"
        )
    made = settings.names if settings.method.has_log else None
    return SourceState(table, database.fingerprint(table, made))


def check_objects(
    database: SourceDatabase, settings: UpdateSettings, target: str, table: CapturedTable
) -> None:
    """Raise CaptureError if triggers or the log of an enabled table are missing, or not as they were made.

    While the update is disabled, its triggers are removed before the last extraction.
    """
    if settings.state != "enabled" or not settings.method.has_log:
        return
    flaws = database.flaws(table, settings.key, settings.names, settings.method)
    if flaws:
        raise CaptureError(
            f"source {database.source_id}, table {settings.source_table}: changes are not captured: "
            f"{'; '.join(flaws)}. {repair_advice(target)}"
        )


@contextmanager
def steady_snapshot(
    database: SourceDatabase, settings: UpdateSettings, target: str
) -> Iterator[SteadySnapshot]:
    """Open a snapshot of the source in which the state of the table is known.

    Raises:
        InputError: the table was altered at each attempt.
        Others: as :func:`source_state` and :func:`check_objects`.
    """
    for _ in range(ATTEMPTS):
        state = source_state(database, settings, target)
        with database.snapshot() as snapshot:
            # A query of no rows takes the lock that holds back ALTER, DROP and TRUNCATE.
            snapshot.value(
                f"SELECT 1 FROM {database.quoted(state.table.schema, state.table.name)} WHERE 1 = 0"
            )
            if source_state(database, settings, target) == state:
                check_objects(database, settings, target, state.table)
                yield SteadySnapshot(snapshot, state)
                return
    raise InputError(
        f"source {database.source_id}, table {settings.source_table}: the table was altered at each of "
        f"{ATTEMPTS} attempts to read it. Nothing was written. Run again"
    )
