"""Rows of a source table: their columns, the snapshot that is read, receipts, and altered tables.

In some databases, the catalog is not part of a snapshot, and a statement such as TRUNCATE or ALTER affects
snapshots that are older than itself. The catalog is therefore read before the snapshot is opened. It is read
again when the snapshot holds the table; from then on, statements that alter the table wait. If both agree,
nothing was altered at the moment of the snapshot.

A receipt is the number of the last extraction, kept in the log of the source. It is written together with the
deletion of log rows, after Hive's commit. The source therefore has the number of Hive's position, or the
previous one if the run was killed in between. Any other pair means that one side was restored from a backup.
Without this check, numbers of log rows would be reused, and changes in between would be lost silently.

If the fingerprint of a table differs from that of the last extraction, the difference decides how the
extraction continues.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from mutation_api.cdc.update.database import (
    CapturedTable,
    SourceColumn,
    SourceDatabase,
    SourceSnapshot,
    TextColumns,
)
from mutation_api.cdc.update.progress_mark import Fingerprint, ProgressMark
from mutation_api.cdc.update.settings import UpdateSettings
from mutation_api.errors import (
    CaptureError,
    InputError,
    RecordLayoutError,
    RecordValueError,
    SourcePositionError,
)
from mutation_api.format.hive_type import HiveType, parse_hive_type
from mutation_api.table.acid_table import AcidTable


@dataclass(frozen=True)
class ReadPlan:
    """A plan for reading the rows of one table.

    ``columns``: (name in Hive, its type, the source's column), data columns first, then partition columns.
    """

    database: SourceDatabase
    table: CapturedTable
    key: tuple[SourceColumn, ...]
    columns: tuple[tuple[str, HiveType, SourceColumn], ...]
    time_zone: str

    @classmethod
    def of(
        cls, database: SourceDatabase, table: CapturedTable, target: AcidTable, settings: UpdateSettings
    ) -> ReadPlan:
        """Match both sides. Raises RecordLayoutError if columns do not match, or cannot hold the values."""
        sources = _sources(table, settings, target.full_name)
        targets = (*target.columns, *target.partition_keys)
        wanted = {column.name.lower() for column in targets}
        missing = [column.name for column in targets if column.name.lower() not in sources]
        extra = [column.name for name, column in sources.items() if name not in wanted]
        no_key = [name for name in settings.key if name.lower() not in wanted or name.lower() not in sources]
        wrong = [f"the source lacks {', '.join(missing)}"] if missing else []
        if extra:
            options = " ".join(f"--ignore-column {name}" for name in extra)
            wrong.append(
                f"Hive lacks {', '.join(extra)}: add them to the Hive table, or ignore them (hive-mutate "
                f"update enable … {options}, in Python ignored_columns={extra})"
            )
        wrong += [f"both must have the key columns {', '.join(no_key)}"] if no_key and not wrong else []
        if wrong:
            raise RecordLayoutError(
                f"source table {table.full_name} and {target.full_name} differ: {'; '.join(wrong)}"
            )
        columns = tuple(
            (column.name, parse_hive_type(column.type), sources[column.name.lower()]) for column in targets
        )
        database.check_time_zone(table, settings.time_zone)
        for _, kind, column in columns:
            database.check_column(table, column, kind)
            if column.name.lower() in {name.lower() for name in settings.key}:
                database.check_key(table, column, kind, settings.time_zone)
        key = tuple(sources[name.lower()] for name in settings.key)
        columns = tuple((name, kind, _marked(name, column, settings)) for name, kind, column in columns)
        return cls(database, table, key, columns, settings.time_zone)

    @property
    def table_name(self) -> str:
        """The source's table as a name for a statement."""
        return self.database.quoted(self.table.schema, self.table.name)

    def selected(self, table: str, log: str) -> list[str]:
        """Return the expressions of all columns: the key from the log, the others from the table."""
        keys = {column.name for column in self.key}
        return [
            self.database.selected_from_log(column, self.time_zone, log)
            if column.name in keys
            else self.database.selected(column, self.time_zone, table)
            for _, _, column in self.columns
        ]

    def select_all(self, condition: str = "") -> str:
        """Return the statement that reads the table; ``condition`` selects the rows."""
        values = [self.database.selected(column, self.time_zone) for _, _, column in self.columns]
        where = f" WHERE {condition}" if condition else ""
        return f"SELECT {', '.join(values)} FROM {self.table_name}{where}"

    def select_unlogged(self, part: str, log: str) -> str:
        """Return the statement that reads the rows of a partition whose keys are not in the log."""
        values = [self.database.selected(column, self.time_zone, "t") for _, _, column in self.columns]
        same = " AND ".join(self.database.same_key(column, "t", "l") for column in self.key)
        return (
            f"SELECT {', '.join(values)} FROM {part} t WHERE NOT EXISTS (SELECT 1 FROM {log} l WHERE {same})"
        )

    def read(self, snapshot: SourceSnapshot, statement: str) -> Iterator[tuple[int, dict[str, pa.Array]]]:
        """Yield the rows of a statement that selects all columns: their number, and values by Hive column.

        Raises:
            RecordValueError: If a value does not fit.
        """
        conversions = self.database.text_columns
        if conversions is None:
            yield from ((len(rows), self.columns_of(rows)) for rows in snapshot.chunks(statement))
            return
        for batch in snapshot.texts(statement):
            yield batch.num_rows, self._of_texts(batch, conversions)

    def _of_texts(self, batch: pa.RecordBatch, conversions: TextColumns) -> dict[str, pa.Array]:
        found = {}
        for (name, kind, column), texts in zip(self.columns, batch.columns, strict=True):
            array = conversions.to_column(column, kind, texts)
            if array is None:
                values = conversions.values(column, texts)
                try:
                    array = self.database.to_column(column, kind, values, self.time_zone)
                except RecordValueError as error:
                    given = zip(self.columns, batch.columns, strict=True)
                    values = [conversions.values(source, texts) for (_, _, source), texts in given]
                    raise self._misfit(list(zip(*values, strict=True)), name, error) from error
            found[name] = array
        return found

    def columns_of(self, rows: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
        """Return the values of rows by Hive column. Raises RecordValueError if a value does not fit."""
        found = {}
        lists = zip(*rows, strict=True) if rows else [[] for _ in self.columns]
        for (name, kind, column), values in zip(self.columns, lists, strict=True):
            try:
                found[name] = self.database.to_column(column, kind, list(values), self.time_zone)
            except RecordValueError as error:
                raise self._misfit(rows, name, error) from error
        return found

    def _misfit(self, rows: Sequence[Sequence[Any]], name: str, error: RecordValueError) -> RecordValueError:
        """Return the error for the first row whose value does not fit, with table and key."""
        what = f"source table {self.table.full_name}"
        at = [column for column, _, _ in self.columns].index(name)
        _, kind, column = self.columns[at]
        for row in rows:
            try:
                self.database.to_column(column, kind, [row[at]], self.time_zone)
            except RecordValueError as found:
                return RecordValueError(f"{what}, row {self._key_text(row)}: {found}")
        return RecordValueError(f"{what}: {error}")

    def _key_text(self, row: Sequence[Any]) -> str:
        """Return the key of a row as the driver returned it."""
        keys = {column.name for column in self.key}
        pairs = zip(self.columns, row, strict=True)
        return ", ".join(
            f"{column.name}={_shown(value)}" for (_, _, column), value in pairs if column.name in keys
        )


def _shown(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _marked(name: str, column: SourceColumn, settings: UpdateSettings) -> SourceColumn:
    """Return the source's column for ``name`` in Hive, with what the settings specify for it."""
    is_key = column.name.lower() in {each.lower() for each in settings.key}
    is_nulled = name.lower() in {each.lower() for each in settings.null_for}
    return replace(column, is_key=is_key, nulls_invalid=is_nulled)


def _sources(table: CapturedTable, settings: UpdateSettings, target: str) -> dict[str, SourceColumn]:
    """Return the columns that are not ignored, by their names in lower case, as in Hive.

    Raises:
        RecordLayoutError: If the names of two columns differ only in case.
    """
    ignored = settings.ignored_among([column.name for column in table.columns])
    found: dict[str, SourceColumn] = {}
    for column in table.columns:
        if column.name in ignored:
            continue
        twin = found.setdefault(column.name.lower(), column)
        if twin is not column:
            raise RecordLayoutError(
                f"source table {table.full_name} has the columns {twin.name!r} and {column.name!r}, but "
                f"names in {target} cannot differ only in case. Ignore one of them (hive-mutate update "
                f"enable … --ignore-column {twin.name}, in Python ignored_columns=[{twin.name!r}])"
            )
    return found


ATTEMPTS = 5
"""The number of attempts to open a snapshot during which the table is not altered."""


@dataclass(frozen=True)
class SourceState:
    """A table of the source as described by its catalog, with its fingerprint."""

    table: CapturedTable
    fingerprint: Fingerprint


@dataclass(frozen=True)
class SteadySnapshot:
    """A snapshot, and the state of the table in it."""

    snapshot: SourceSnapshot
    state: SourceState


def repair_advice(target: str) -> str:
    """Return the advice for changes that are no longer captured."""
    return (
        f"Nothing was written. To continue, run hive-mutate update repair --table {target} (--dry-run shows "
        "the statements); the next extraction then compares the whole table"
    )


def source_state(database: SourceDatabase, settings: UpdateSettings, target: str) -> SourceState:
    """Describe the followed table.

    Args:
        database: the source.
        settings: settings of the table.
        target: the table in Hive, for messages.

    Raises:
        CaptureError: If the table no longer exists, or no longer has the key.
        RecordLayoutError: If the method can no longer follow the table.
        ConnectionFailedError: If the source cannot be reached.
    """
    try:
        table = database.describe(settings.source_table)
    except RecordLayoutError as error:
        raise CaptureError(
            f"{error}. Nothing was written. To continue, restore the table, then run hive-mutate update "
            f"repair --table {target}; or stop following it: hive-mutate update disable --table {target} "
            "--discard"
        ) from error
    if settings.state != "disabling":
        database.check_capture(table, settings.key, settings.method)
    names = {column.name for column in table.columns}
    missing = [name for name in settings.key if name not in names]
    if missing:
        raise CaptureError(
            f"source {database.source_id}, table {settings.source_table}: the table no longer has the key "
            f"column {', '.join(missing)}. Nothing was written. To continue, rename the column back; or stop "
            f"following the table, hive-mutate update disable --table {target} --discard, alter the table in "
            "Hive, and enable again"
        )
    made = settings.names if settings.method.has_log else None
    return SourceState(table, database.fingerprint(table, made))


def check_objects(
    database: SourceDatabase, settings: UpdateSettings, target: str, table: CapturedTable
) -> None:
    """Raise CaptureError if triggers or the log of an enabled table are missing, or were altered.

    When an update is being disabled, its triggers are removed before the last extraction.
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
        InputError: If the table was altered at each attempt.
        Others: See :func:`source_state` and :func:`check_objects`.
    """
    for _ in range(ATTEMPTS):
        state = source_state(database, settings, target)
        with database.snapshot() as snapshot:
            # A query without rows takes the lock that blocks ALTER, DROP and TRUNCATE.
            snapshot.value(
                f"SELECT 1 FROM {database.quoted(state.table.schema, state.table.name)} WHERE 1 = 0"
            )
            if source_state(database, settings, target) == state:
                check_objects(database, settings, target, state.table)
                yield SteadySnapshot(snapshot, state)
                return
    raise InputError(
        f"source {database.source_id}, table {settings.source_table}: the table was altered during each of "
        f"{ATTEMPTS} attempts to read it. Nothing was written; run again"
    )


def is_acknowledged(receipt: int | None, mark: ProgressMark, what: str, target: str) -> bool:
    """Return True if the source has recorded Hive's last extraction.

    If it has not, that run was stopped after its commit.

    Args:
        receipt: number in the log; None if it has none.
        mark: Hive's position.
        what: source and table, for messages.
        target: the table in Hive, for messages.

    Raises:
        SourcePositionError: If the numbers contradict each other.
    """
    found = receipt or 0
    if found in (mark.extraction - 1, mark.extraction):
        return found == mark.extraction
    side = "The source" if found < mark.extraction else "The table in Hive"
    raise SourcePositionError(
        f"{what}: Hive has applied extraction {mark.extraction}, but the last one recorded in the source's "
        f"log is {receipt or '(none)'}. {side} seems to have been restored from an older backup, so changes "
        f"in between are missing. {repair_advice(target)}"
    )


def log_is_gone(what: str, log: str, target: str) -> SourcePositionError:
    """Return the error for a source that has lost its log."""
    return SourcePositionError(
        f"{what}: the source no longer has the table {log}. It seems to have been restored from a backup "
        "that is older than enable, or the log was dropped; changes since then are unknown. "
        f"{repair_advice(target)}"
    )


def check_bound(mark: ProgressMark, bound: str, what: str) -> None:
    """Raise SourcePositionError if a bound that only grows is below Hive's position."""
    is_number = mark.bound.isascii() and mark.bound.isdecimal()
    if not is_number or int(bound) < int(mark.bound):
        raise SourcePositionError(
            f"source {what}: Hive's position is transaction {mark.bound[:40]}, but the source is at {bound}. "
            f"The source seems to have been restored from an older backup. Nothing was written. {_ADVICE}"
        )


_ADVICE = (
    "To continue, run hive-mutate update disable --discard, then enable incremental update again: the "
    "first extraction compares the two tables and makes the Hive table equal to the source"
)


class Effect(enum.Enum):
    """The way in which an extraction handles a difference."""

    NONE = "nothing changes in Hive"
    NEW_PARTITION = "the rows of the partition are read"
    COMPARE = "the whole table is compared"


@dataclass(frozen=True)
class Difference:
    """A difference between two fingerprints: what was found, and how it is handled."""

    text: str
    effect: Effect

    def __str__(self) -> str:
        """Return both on one line."""
        return f"{self.text}: {self.effect.value}"


def differences(before: Fingerprint, now: Fingerprint, settings: UpdateSettings) -> list[Difference]:
    """Compare two fingerprints of a table.

    Args:
        before: fingerprint of the last extraction.
        now: fingerprint of this extraction.
        settings: settings of the table, which determine the columns that matter.

    Returns:
        The differences; empty if nothing happened that triggers do not log.
    """
    return [*_of_table(before, now), *_of_columns(before, now, settings), *_of_partitions(before, now)]


def _of_table(before: Fingerprint, now: Fingerprint) -> Iterator[Difference]:
    if before.identity != now.identity:
        text = (
            f"the table was altered, rebuilt or replaced by another one ({before.identity} -> {now.identity})"
        )
        yield Difference(text, Effect.COMPARE)
    # A missing object has already been refused, or belonged to a removed partition.
    changed = [name for name, version in now.capture.items() if before.capture.get(name, version) != version]
    if changed:
        yield Difference(f"{_shown_names(changed)}: created again, or disabled for a time", Effect.COMPARE)


def _of_columns(before: Fingerprint, now: Fingerprint, settings: UpdateSettings) -> Iterator[Difference]:
    version = settings.version_column.lower()
    ignored = {name for name in settings.ignored_among(now.columns) if name.lower() != version}
    for name in dict.fromkeys([*before.columns, *now.columns]):
        was, found = before.columns.get(name), now.columns.get(name)
        if was == found:
            continue
        what = "was added" if was is None else "was dropped" if found is None else "was altered"
        is_followed = found is not None and name not in ignored
        yield Difference(f"column {name} {what}", Effect.COMPARE if is_followed else Effect.NONE)


def _of_partitions(before: Fingerprint, now: Fingerprint) -> Iterator[Difference]:
    gone = [name for name in before.partitions if name not in now.partitions]
    stored_anew = [
        name for name, storage in now.partitions.items() if before.partitions.get(name, storage) != storage
    ]
    added = [name for name in now.partitions if name not in before.partitions]
    if stored_anew:
        text = f"emptied, rewritten or attached again: {_shown_names(stored_anew)}"
        yield Difference(text, Effect.COMPARE)
    if gone:
        yield Difference(f"partitions were removed or replaced: {_shown_names(gone)}", Effect.COMPARE)
    elif added:
        yield Difference(f"partitions were added: {_shown_names(added)}", Effect.NEW_PARTITION)


def _shown_names(names: list[str]) -> str:
    """Return up to five of the names."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
