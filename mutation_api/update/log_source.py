"""LogSource: the keys in a log of ours, and the rows that the table has for them, in one snapshot of the
source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mutation_api.inputs.engines.choice import in_tasks
from mutation_api.inputs.source import Batch, LocalBatch, LocalOperations, Position, SourceTable
from mutation_api.update.captured_rows import RowSpool
from mutation_api.update.progress_mark import ProgressMark, Run, ranges_of
from mutation_api.update.rdbms.database import CapturedTable, SourceDatabase, SourceSnapshot
from mutation_api.update.rdbms.sql_database import (
    OPERATION_COLUMN,
    RANGES_PER_STATEMENT,
    SEQUENCE_COLUMN,
    TIME_COLUMN,
)
from mutation_api.update.settings import UpdateSettings
from mutation_api.update.source_rows import ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LogSource", "outstanding"]

_INSERTED, _TRUNCATED = 0, 3
_CODE = f"CASE {OPERATION_COLUMN} WHEN 'I' THEN 0 WHEN 'D' THEN 1 WHEN 'U' THEN 2 ELSE 3 END"
_CODES = 4


@dataclass(frozen=True)
class _Log:
    """What the log holds: ranges of its numbers, time of the oldest row, whether the table was emptied."""

    ranges: tuple[tuple[int, int], ...] = ()
    oldest: float | None = None
    is_truncated: bool = False


class LogSource:
    """The changes of one table since the last extraction.

    Args:
        database: the source.
        settings: those of the table.
        replaces: whether a first copy also deletes rows of the target that the source lacks.
    """

    def __init__(self, database: SourceDatabase, settings: UpdateSettings, *, replaces: bool = False) -> None:
        self._database = database
        self._settings = settings
        self._replaces = replaces
        self._spool: RowSpool | None = None
        self._pending: tuple[tuple[int, int], ...] = ()

    @property
    def source_id(self) -> str:
        """Name in the watermarks: the database, and the identifier of the update."""
        return f"{self._database.source_id}#{self._settings.identifier}"

    def close(self) -> None:
        """Remove the rows that were kept, and disconnect. May be called twice."""
        if self._spool is not None:
            self._spool.close()
        self._database.close()

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """See :class:`~mutation_api.inputs.source.ChangeSource`; tasks read the rows that were kept."""
        return in_tasks(spark, self.read_local(tables, after))

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """See :class:`~mutation_api.inputs.source.LocalChangeSource`; the table is the one of the settings.

        Raises:
            ConnectionFailedError: the source cannot be reached, or refuses a query.
            RecordLayoutError, RecordValueError: columns or values do not fit the target.
        """
        (table,) = tables
        position = after.get(table.name)
        mark = None if position is None else ProgressMark.of(position.text)
        captured = self._database.describe(self._settings.source_table)
        plan = ReadPlan.of(self._database, captured, table.target, self._settings)
        if mark is not None and mark.pending:
            self._delete(captured, mark.pending)
        token = self._database.table_token(captured)
        if self._spool is not None:
            self._spool.close()
        self._spool = RowSpool()
        with self._database.snapshot() as snapshot:
            now = float(snapshot.value(f"SELECT {self._database.now()}"))
            log = self._read_log(snapshot, captured)
            is_first = mark is None and not self._settings.is_loaded
            is_emptied = log.is_truncated or (mark is not None and mark.token != token)
            is_copy = is_first or is_emptied
            if is_copy:
                counts = self._copy(snapshot, plan)
            elif not log.ranges:
                return LocalBatch((), None)
            else:
                counts = self._read_changes(snapshot, plan)
        self._pending = log.ranges
        lag = 0.0 if log.oldest is None else max(0.0, now - log.oldest)
        run = Run(now, counts["insert"], counts["update"], counts["delete"], lag)
        highest = log.ranges[-1][1] if log.ranges else 0
        before = mark or ProgressMark(0, "0", now)
        new = before.followed_by(
            run, position=str(max(highest, int(before.position))), pending=log.ranges, token=token
        )
        replaces = is_emptied or (is_first and self._replaces)
        operations = LocalOperations(table, self._spool.written(), replaces, is_copy)
        return LocalBatch((operations,) if self._spool.row_count or replaces else (), new.to_position())

    def has_news(self, mark: ProgressMark) -> bool:
        """Whether there may be something to extract, asked without a transaction of Hive."""
        table = self._database.describe(self._settings.source_table)
        if self._database.table_token(table) != mark.token:
            return True
        with self._database.snapshot() as snapshot:
            return snapshot.value(f"SELECT MIN({SEQUENCE_COLUMN}) FROM {self._log_name(table)}") is not None

    def acknowledge(self) -> int:
        """Delete the log rows of the last read, which must be committed; returns how many were deleted."""
        return self._delete(self._database.describe(self._settings.source_table), self._pending)

    def _delete(self, table: CapturedTable, ranges: Sequence[tuple[int, int]]) -> int:
        return self._database.delete_from_log(table.schema, self._settings.names.log, ranges)

    def _log_name(self, table: CapturedTable) -> str:
        return self._database.quoted(*([table.schema] if table.schema else []), self._settings.names.log)

    def _read_log(self, snapshot: SourceSnapshot, table: CapturedTable) -> _Log:
        numbers: list[int] = []
        oldest, is_truncated = None, False
        seconds = self._database.seconds(TIME_COLUMN)
        selected = f"{SEQUENCE_COLUMN}, {_CODE}, {seconds}"
        statement = f"SELECT {selected} FROM {self._log_name(table)} ORDER BY {SEQUENCE_COLUMN}"
        for rows in snapshot.chunks(statement):
            numbers += [int(row[0]) for row in rows]
            is_truncated |= any(int(row[1]) == _TRUNCATED for row in rows)
            first = min(float(row[2]) for row in rows)
            oldest = first if oldest is None else min(oldest, first)
        return _Log(ranges_of(numbers), oldest, is_truncated)

    def _copy(self, snapshot: SourceSnapshot, plan: ReadPlan) -> Counter[str]:
        """Read the table whole."""
        assert self._spool is not None
        count = 0
        for rows in snapshot.chunks(plan.select_all()):
            self._spool.add(["insert"] * len(rows), range(count, count + len(rows)), plan.columns_of(rows))
            count += len(rows)
        return Counter(insert=count)

    def _read_changes(self, snapshot: SourceSnapshot, plan: ReadPlan) -> Counter[str]:
        """Read the keys of the log, and the rows that the table has for them."""
        assert self._spool is not None
        counts: Counter[str] = Counter()
        for rows, operations in self._changed(snapshot, plan):
            counts.update(operations)
            kept = [row[3:] for row in rows]
            self._spool.add(operations, [int(row[0]) for row in rows], plan.columns_of(kept))
        return counts

    def _changed(
        self, snapshot: SourceSnapshot, plan: ReadPlan
    ) -> Iterator[tuple[list[Sequence[Any]], list[str]]]:
        """Rows of the last number, the first operation, whether the key is present, and the values."""
        for rows in snapshot.chunks(self._select_changed(plan)):
            found = rows
            if self._settings.method.is_insert_only:
                found = [row for row in rows if int(row[2])]  # a row that came and went
            yield found, [_operation(int(row[1]) % _CODES, is_present=bool(int(row[2]))) for row in found]

    def _select_changed(self, plan: ReadPlan) -> str:
        database = self._database
        keys = ", ".join(database.quoted(column.name) for column in plan.key)
        same = " AND ".join(database.same_key(column, "t", "l") for column in plan.key)
        present = f"{database.quoted(plan.key[0].name)}"
        return (
            f"SELECT l.hm_last, l.hm_first, CASE WHEN t.{present} IS NULL THEN 0 ELSE 1 END, "
            f"{', '.join(plan.selected('t', 'l'))} FROM (SELECT {keys}, MAX({SEQUENCE_COLUMN}) AS hm_last, "
            f"MIN({SEQUENCE_COLUMN} * {_CODES} + {_CODE}) AS hm_first FROM {self._log_name(plan.table)} "
            f"GROUP BY {keys}) l LEFT JOIN {plan.table_name} t ON {same}"
        )


def _operation(first: int, *, is_present: bool) -> str:
    if not is_present:
        return "delete"
    return "insert" if first == _INSERTED else "update"


def outstanding(
    database: SourceDatabase, settings: UpdateSettings, applied: Sequence[tuple[int, int]]
) -> tuple[int, float]:
    """Log rows that wait, and the age of the oldest in seconds.

    Args:
        database: the source.
        settings: those of the table.
        applied: ranges of log rows that were applied, and may be there after a crash; of very many
            the first are left out.

    Raises:
        ConnectionFailedError: the source cannot be reached.
    """
    table = database.describe(settings.source_table)
    log = database.quoted(*([table.schema] if table.schema else []), settings.names.log)
    some = applied[-RANGES_PER_STATEMENT:]
    left_out = [f"NOT {SEQUENCE_COLUMN} BETWEEN {low} AND {high}" for low, high in some]
    waiting = f"{log} WHERE {' AND '.join(left_out)}" if left_out else log
    with database.snapshot() as snapshot:
        count = int(snapshot.value(f"SELECT COUNT(*) FROM {waiting}"))
        if not count:
            return 0, 0.0
        age = f"{database.now()} - {database.seconds(f'MIN({TIME_COLUMN})')}"
        return count, max(0.0, float(snapshot.value(f"SELECT {age} FROM {waiting}")))
