"""LogSource: the keys in the log, and the table's rows with these keys, in one snapshot of the source.

Changes that triggers do not log are detected with the fingerprint of the table; the whole table is then
compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mutation_api.cdc.source import LocalBatch, Position, SourceTable
from mutation_api.cdc.update.database import CapturedTable, SourceDatabase, SourceSnapshot
from mutation_api.cdc.update.progress_mark import Fingerprint, ProgressMark, Run, ranges_of
from mutation_api.cdc.update.settings import UpdateSettings
from mutation_api.cdc.update.source_rows import (
    Difference,
    Effect,
    ReadPlan,
    SteadySnapshot,
    check_objects,
    differences,
    is_acknowledged,
    log_is_gone,
    source_state,
)
from mutation_api.cdc.update.sql_database import (
    OPERATION_COLUMN,
    RANGES_PER_STATEMENT,
    SEQUENCE_COLUMN,
    TIME_COLUMN,
)
from mutation_api.cdc.update.version_source import QuerySource, RowSpool, mark_after
from mutation_api.errors import ConnectionFailedError

_INSERTED, _UNKNOWN = 0, 3
"""Codes of operations. Unknown: the table was emptied, or the key of a row could not be logged."""
_CODES = 4
SAME_TIME_SECONDS = 1e-4
"""Two times of log rows count as equal if they differ by less, since they are floating-point numbers."""


@dataclass(frozen=True)
class _Log:
    """The contents of the log: ranges of its numbers, times of its rows, and whether rows are unknown."""

    ranges: tuple[tuple[int, int], ...] = ()
    oldest: float | None = None
    newest: float = 0.0
    has_unknown: bool = False


@dataclass(frozen=True)
class _Past:
    """The last extraction as both sides recorded it.

    Attributes:
        mark: Hive's position; None before the first extraction.
        receipt: number of the last extraction; 0 if there was none.
        pending: log rows that it applied and that still have to be deleted.
        is_settled: True if the source has recorded it.
        is_torn: True if the log lacks the newest row of ``pending``, or if ``pending`` is empty. The source
            may have been restored to a moment shortly before, and may have reused their numbers. The whole
            table is therefore compared.
    """

    mark: ProgressMark | None
    receipt: int
    pending: tuple[tuple[int, int], ...] = ()
    is_settled: bool = True
    is_torn: bool = False


class LogSource(QuerySource):
    """The changes of one table since the last extraction, by the log that its triggers fill."""

    _pending: tuple[tuple[int, int], ...] = ()
    _extraction = 0
    _schema = ""

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read the changes of the table in the settings. See :class:`QuerySource`."""
        (table,) = tables
        mark = mark_after(table, after)
        with self._snapshot() as view:
            self._schema = view.state.table.schema
            past = self._past(view.snapshot, view.state.table, mark)
            if past.is_settled:
                return self._read(view, table, past)
        # After the snapshot, which may block a deletion. Torn rows are read with all others.
        self._delete(() if past.is_torn else past.pending, past.receipt)
        with self._snapshot() as view:
            return self._read(view, table, past)

    def _past(self, snapshot: SourceSnapshot, captured: CapturedTable, mark: ProgressMark | None) -> _Past:
        """Compare both sides' records of the last extraction. Raises SourcePositionError if they differ."""
        receipt, _ = self._ends(snapshot, captured)
        if mark is None:
            return _Past(None, receipt or 0)
        if is_acknowledged(receipt, mark, self._what, self._target):
            return _Past(mark, mark.extraction)
        is_torn = not self._has_newest(snapshot, captured, mark)
        return _Past(mark, mark.extraction, mark.pending, is_settled=False, is_torn=is_torn)

    def _has_newest(self, snapshot: SourceSnapshot, captured: CapturedTable, mark: ProgressMark) -> bool:
        """Return True if the log still has the newest row of the last extraction; older ones may be deleted.

        Without such a row, a run that was stopped cannot be distinguished from a source that was restored.
        """
        newest = 0.0
        time = f"MAX({self._database.seconds(TIME_COLUMN)})"
        for start in range(0, len(mark.pending), RANGES_PER_STATEMENT):
            some = mark.pending[start : start + RANGES_PER_STATEMENT]
            among = " OR ".join(f"{SEQUENCE_COLUMN} BETWEEN {low} AND {high}" for low, high in some)
            found = snapshot.value(f"SELECT {time} FROM {self._log_name(captured)} WHERE {among}")
            newest = max(newest, float(found or 0.0))
        return bool(mark.pending) and abs(newest - mark.newest) < SAME_TIME_SECONDS

    def _read(self, view: SteadySnapshot, table: SourceTable, past: _Past) -> LocalBatch:
        """Read the log and the rows that it names, or all rows."""
        spool = self._new_spool()
        snapshot, mark, now = view.snapshot, past.mark, view.state.fingerprint
        plan = ReadPlan.of(self._database, view.state.table, table.target, self._settings)
        seconds = float(snapshot.value(f"SELECT {self._database.now()}"))
        log = self._read_log(snapshot, plan)
        self.differences = self._differences(mark, now, log)
        is_first = mark is None and not (self._settings.is_loaded and not past.receipt)
        is_compared = past.is_torn or any(each.effect is Effect.COMPARE for each in self.differences)
        is_copy = is_first or is_compared
        if is_copy:
            counts = Counter(insert=_add_inserts(spool, snapshot, plan, plan.select_all()))
        else:
            counts = self._read_changes(spool, snapshot, plan) if log.ranges else Counter()
            counts["insert"] += self._read_new_partitions(spool, snapshot, plan, self._partitions(mark, now))
            if not (log.ranges or self.differences):
                return LocalBatch((), None)
        self._pending = log.ranges
        lag = 0.0 if log.oldest is None else max(0.0, seconds - log.oldest)
        run = Run(seconds, counts["insert"], counts["update"], counts["delete"], lag)
        highest = log.ranges[-1][1] if log.ranges else 0
        before = mark or ProgressMark(past.receipt, "0", seconds)
        new = before.followed_by(
            run,
            settings=self._settings.of_position,
            position=str(max(highest, before.number)),
            pending=log.ranges,
            newest=log.newest,
            fingerprint=now,
        )
        self._extraction = new.extraction
        replaces = is_compared or (is_first and self._replaces)
        return self._batch(table, spool, new, replaces=replaces, is_copy=is_copy)

    def _differences(self, mark: ProgressMark | None, now: Fingerprint, log: _Log) -> tuple[Difference, ...]:
        """Return the events since the last extraction, or since enabling, that are not in the log."""
        before = self._fingerprint_before(mark)
        found = [] if before is None else differences(before, now, self._settings)
        if log.has_unknown and before is not None:
            found.append(Difference("TRUNCATE, a repair, or rows whose key was not logged", Effect.COMPARE))
        return tuple(found)

    def _fingerprint_before(self, mark: ProgressMark | None) -> Fingerprint | None:
        if mark is not None:
            return mark.fingerprint
        return self._settings.fingerprint

    def has_news(self, mark: ProgressMark) -> bool:
        """Return True if there may be something to extract; this needs no Hive transaction.

        Raises:
            SourcePositionError: If the source lacks extractions that Hive has.
        """
        state = source_state(self._database, self._settings, self._target)
        check_objects(self._database, self._settings, self._target, state.table)
        if state.fingerprint != mark.fingerprint:
            return True
        with self._database.snapshot() as snapshot:
            receipt, highest = self._ends(snapshot, state.table)
        if (receipt or 0) > mark.extraction:
            return True  # the receipt is of a later extraction, or of none
        is_acknowledged(receipt, mark, self._what, self._target)
        return highest is not None

    def acknowledge(self) -> int:
        """Delete the log rows of the last read, which must be committed; return how many were deleted."""
        return self._delete(self._pending, self._extraction)

    def _delete(self, ranges: Sequence[tuple[int, int]], extraction: int) -> int:
        return self._database.delete_from_log(self._schema, self._settings.names.log, ranges, extraction)

    def _ends(self, snapshot: SourceSnapshot, table: CapturedTable) -> tuple[int | None, int | None]:
        """Return the receipt of the last extraction and the highest number of a log row; None if missing.

        Raises:
            SourcePositionError: If there is no log.
        """
        name = self._settings.names.log
        statement = f"SELECT MIN({SEQUENCE_COLUMN}), MAX({SEQUENCE_COLUMN}) FROM {self._log_name(table)}"
        try:
            ((low, high),) = [row for rows in snapshot.chunks(statement) for row in rows]
        except ConnectionFailedError as error:
            if self._database.log_name(self._settings.names):
                raise
            raise log_is_gone(self._what, name, self._target) from error
        receipt = None if low is None or int(low) >= 0 else -int(low)
        return receipt, None if high is None or int(high) < 0 else int(high)

    @property
    def _what(self) -> str:
        return f"source {self._database.source_id}, table {self._settings.source_table}"

    def _log_name(self, table: CapturedTable) -> str:
        return self._database.quoted(table.schema, self._settings.names.log)

    def _read_log(self, snapshot: SourceSnapshot, plan: ReadPlan) -> _Log:
        numbers: list[int] = []
        times: list[float] = []
        has_unknown = False
        selected = f"{SEQUENCE_COLUMN}, {self._code(plan)}, {self._database.seconds(TIME_COLUMN)}"
        among = f"{self._log_name(plan.table)} WHERE {SEQUENCE_COLUMN} > 0"
        statement = f"SELECT {selected} FROM {among} ORDER BY {SEQUENCE_COLUMN}"
        for rows in snapshot.chunks(statement):
            numbers += [int(row[0]) for row in rows]
            has_unknown |= any(int(row[1]) == _UNKNOWN for row in rows)
            found = [float(row[2]) for row in rows]
            times = [min(*times, *found), max(*times, *found)] if len(found) + len(times) > 1 else found
        return _Log(ranges_of(numbers), times[0], times[-1], has_unknown) if times else _Log()

    def _code(self, plan: ReadPlan) -> str:
        """Return the expression for an operation's code; a partially logged key is unknown."""
        known = " AND ".join(f"{self._database.quoted(c.name)} IS NOT NULL" for c in plan.key)
        by_letter = f"CASE {OPERATION_COLUMN} WHEN 'I' THEN {_INSERTED} WHEN 'D' THEN 1 WHEN 'U' THEN 2 END"
        return f"CASE WHEN {known} THEN COALESCE({by_letter}, {_UNKNOWN}) ELSE {_UNKNOWN} END"

    def _read_changes(self, spool: RowSpool, snapshot: SourceSnapshot, plan: ReadPlan) -> Counter[str]:
        """Read the keys in the log, and the table's rows with these keys."""
        counts: Counter[str] = Counter()
        for rows, operations in self._changed(snapshot, plan):
            counts.update(operations)
            kept = [row[3:] for row in rows]
            spool.add(operations, [int(row[0]) for row in rows], plan.columns_of(kept))
        return counts

    def _partitions(self, mark: ProgressMark | None, now: Fingerprint) -> list[str]:
        """Return the partitions that were attached since the last extraction, or since enabling."""
        before = self._fingerprint_before(mark)
        return [] if before is None else list(now.partitions.keys() - before.partitions.keys())

    def _read_new_partitions(
        self, spool: RowSpool, snapshot: SourceSnapshot, plan: ReadPlan, partitions: Iterable[str]
    ) -> int:
        """Read the rows of attached partitions, which no trigger logged."""
        count = 0
        for partition in partitions:
            if name := self._database.partition_rows(plan.table, partition):
                statement = plan.select_unlogged(name, self._log_name(plan.table))
                count += _add_inserts(spool, snapshot, plan, statement, first=count)
        return count

    def _changed(
        self, snapshot: SourceSnapshot, plan: ReadPlan
    ) -> Iterator[tuple[list[Sequence[Any]], list[str]]]:
        """Yield rows of the last number, the first operation, whether the key is present, and the values."""
        for rows in snapshot.chunks(self._select_changed(plan)):
            found = rows
            if self._settings.method.is_insert_only:
                found = [row for row in rows if int(row[2])]  # without inserted rows that are gone
            yield found, [_operation(int(row[1]) % _CODES, is_present=bool(int(row[2]))) for row in found]

    def _select_changed(self, plan: ReadPlan) -> str:
        database = self._database
        keys = ", ".join(database.quoted(column.name) for column in plan.key)
        same = " AND ".join(database.same_key(column, "t", "l") for column in plan.key)
        present = f"{database.quoted(plan.key[0].name)}"
        return (
            f"SELECT l.hm_last, l.hm_first, CASE WHEN t.{present} IS NULL THEN 0 ELSE 1 END, "
            f"{', '.join(plan.selected('t', 'l'))} FROM (SELECT {keys}, MAX({SEQUENCE_COLUMN}) AS hm_last, "
            f"MIN({SEQUENCE_COLUMN} * {_CODES} + {self._code(plan)}) AS hm_first FROM "
            f"{self._log_name(plan.table)} "
            f"WHERE {SEQUENCE_COLUMN} > 0 GROUP BY {keys}) l LEFT JOIN {plan.table_name} t ON {same}"
        )


def _add_inserts(
    spool: RowSpool, snapshot: SourceSnapshot, plan: ReadPlan, statement: str, first: int = 0
) -> int:
    """Read the rows of a statement as inserts; ``first``: the position of the first. Return their number."""
    count = 0
    for rows, columns in plan.read(snapshot, statement):
        spool.add(pa.repeat("insert", rows), np.arange(first + count, first + count + rows), columns)
        count += rows
    return count


def _operation(first: int, *, is_present: bool) -> str:
    if not is_present:
        return "delete"
    return "insert" if first == _INSERTED else "update"


def outstanding(
    database: SourceDatabase, settings: UpdateSettings, target: str, applied: Sequence[tuple[int, int]]
) -> tuple[int, float]:
    """Count the changes waiting in the log; return their number, and the age of the oldest in seconds.

    Args:
        database: the source.
        settings: settings of the table.
        target: the table in Hive, for messages.
        applied: ranges of log rows that were applied but may still be there after a crash. If there are very
            many, the first ones are not considered.

    Raises:
        ConnectionFailedError: If the source cannot be reached.
        SourcePositionError: If there is no log.
    """
    log = database.log_name(settings.names)
    if not log:
        what = f"source {database.source_id}, table {settings.source_table}"
        raise log_is_gone(what, settings.names.log, target)
    some = applied[-RANGES_PER_STATEMENT:]
    left_out = [f"NOT {SEQUENCE_COLUMN} BETWEEN {low} AND {high}" for low, high in some]
    waiting = f"{log} WHERE {' AND '.join([f'{SEQUENCE_COLUMN} > 0', *left_out])}"
    with database.snapshot() as snapshot:
        count = int(snapshot.value(f"SELECT COUNT(*) FROM {waiting}"))
        if not count:
            return 0, 0.0
        age = f"{database.now()} - {database.seconds(f'MIN({TIME_COLUMN})')}"
        return count, max(0.0, float(snapshot.value(f"SELECT {age} FROM {waiting}")))
