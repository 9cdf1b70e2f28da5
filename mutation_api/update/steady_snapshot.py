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

__all__ = ["SourceState", "SteadySnapshot", "repair_advice", "source_state", "steady_snapshot"]

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


def source_state(
    database: SourceDatabase, settings: UpdateSettings, target: str, *, is_checked: bool = True
) -> SourceState:
    """Describe the followed table.

    Args:
        database: the source.
        settings: those of the table.
        target: the table in Hive, for messages.
        is_checked: False if triggers may be missing, as while they are removed.

    Raises:
        CaptureError: the table is gone, or its changes are not captured.
        RecordLayoutError: the table has become one that the method cannot follow.
        ConnectionFailedError: the source cannot be reached.
    """
    what = f"source {database.source_id}, table {settings.source_table}"
    try:
        table = database.describe(settings.source_table)
    except RecordLayoutError as error:
        raise CaptureError(
            f"{error}. Nothing was written. To go on: bring the table back, then run hive-mutate update "
            "repair "
            f"--table {target}; or stop following it: hive-mutate update disable --table {target} --discard"
        ) from error
    names = settings.names if settings.method.has_log else None
    if is_checked:
        database.check_capture(table, settings.key, settings.method)
    missing = _missing_key(table, settings)
    if missing:
        raise CaptureError(
            f"{what}: the table has no key column {', '.join(missing)} any more. Nothing was written. To go "
            "on: "
            f"name the column as before; or stop following the table, hive-mutate update disable --table "
            f"{target} --discard, alter the table in Hive, and enable again"
        )
    if names is not None and is_checked:
        flaws = database.flaws(table, settings.key, names, settings.method)
        if flaws:
            raise CaptureError(
                f"{what}: changes are not captured: {'; '.join(flaws)}. {repair_advice(target)}"
            )
    return SourceState(table, database.fingerprint(table, names if is_checked else None))


def _missing_key(table: CapturedTable, settings: UpdateSettings) -> list[str]:
    names = {column.name for column in table.columns}
    return [name for name in settings.key if name not in names]


@contextmanager
def steady_snapshot(
    database: SourceDatabase, settings: UpdateSettings, target: str, *, is_checked: bool = True
) -> Iterator[SteadySnapshot]:
    """Open a snapshot of the source in which the state of the table is known.

    Raises:
        InputError: the table was altered at each attempt.
        Others: as :func:`source_state`.
    """
    for _ in range(ATTEMPTS):
        state = source_state(database, settings, target, is_checked=is_checked)
        with database.snapshot() as snapshot:
            # A query of no rows takes the lock that holds back ALTER, DROP and TRUNCATE.
            snapshot.value(
                f"SELECT 1 FROM {database.quoted(state.table.schema, state.table.name)} WHERE 1 = 0"
            )
            if source_state(database, settings, target, is_checked=is_checked) == state:
                yield SteadySnapshot(snapshot, state)
                return
    raise InputError(
        f"source {database.source_id}, table {settings.source_table}: the table was altered at each of "
        f"{ATTEMPTS} "
        "attempts to read it. Nothing was written. Run again"
    )
