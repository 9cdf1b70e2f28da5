"""VersionSource: rows whose growing column lies above the bound of the last extraction, in one snapshot of
the source.

A value of the column may be given long before its transaction commits, so "greater than the greatest value
seen" loses rows. The database tells a bound: what is not visible below it will never appear. Rows from there
on are read again by the next extraction; those that have not changed are not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mutation_api.inputs.engines.choice import in_tasks
from mutation_api.inputs.source import Batch, LocalBatch, LocalOperations, Position, SourceTable
from mutation_api.update.captured_rows import RowSpool
from mutation_api.update.fingerprint import Difference
from mutation_api.update.method import CaptureMethod
from mutation_api.update.progress_mark import ProgressMark, Run
from mutation_api.update.rdbms.database import SourceDatabase, SourceSnapshot
from mutation_api.update.receipt import check_bound
from mutation_api.update.settings import UpdateSettings
from mutation_api.update.source_rows import ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["VersionSource"]


class VersionSource:
    """The rows of one table that are new, or newer, since the last extraction.

    Deletes are not seen, unless the settings ask for a comparison of keys: then each extraction reads the
    whole table, and rows of the target that it lacks are deleted.

    Args:
        database: the source; it tells the bound of the version column.
        settings: those of the table. ``overlap``: how far below the bound the column is read again, for a
            database
            that knows no bound; the user answers for it.
        replaces: whether a first copy also deletes rows of the target that the source lacks.
    """

    def __init__(self, database: SourceDatabase, settings: UpdateSettings, *, replaces: bool = False) -> None:
        self._database = database
        self._settings = settings
        self._replaces = replaces
        self._spool: RowSpool | None = None

    differences: tuple[Difference, ...] = ()

    @property
    def source_id(self) -> str:
        """Name in the watermarks: the database, and the identifier of the update."""
        return f"{self._database.source_id}#{self._settings.identifier}"

    def close(self) -> None:
        """Remove the rows that were kept, and disconnect. May be called twice."""
        if self._spool is not None:
            self._spool.close()
        self._database.close()

    def has_news(self, mark: ProgressMark) -> bool:
        """Only an extraction tells."""
        return True

    def acknowledge(self) -> int:
        """There is no log."""
        return 0

    def read(
        self, spark: SparkSession, tables: Sequence[SourceTable], after: Mapping[str, Position]
    ) -> Batch:
        """See :class:`~mutation_api.inputs.source.ChangeSource`; tasks read the rows that were kept."""
        return in_tasks(spark, self.read_local(tables, after))

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """See :class:`~mutation_api.inputs.source.LocalChangeSource`; raises as ``LogSource.read_local``."""
        (table,) = tables
        position = after.get(table.name)
        mark = None if position is None else ProgressMark.of(position.text)
        captured = self._database.describe(self._settings.source_table)
        plan = ReadPlan.of(self._database, captured, table.target, self._settings)
        if self._spool is not None:
            self._spool.close()
        self._spool = RowSpool()
        with self._database.snapshot() as snapshot:
            now = float(snapshot.value(f"SELECT {self._database.now()}"))
            bound = self._database.version_bound(snapshot, captured, self._settings)
            is_first = mark is None
            if mark is not None and self._database.only_grows(self._settings):
                check_bound(mark, bound, f"{self._database.source_id}, table {captured.full_name}")
            is_copy = is_first or self._settings.compares_keys
            if is_copy:
                condition = ""
            else:
                condition = self._database.from_version(captured, self._settings, mark.bound if mark else "")
            count = self._read(snapshot, plan, condition)
        replaces = self._settings.compares_keys or (is_first and self._replaces)
        if not (is_copy or count):
            return LocalBatch((), None)
        inserts = self._settings.method is CaptureMethod.ROW_VERSION_INSERT or is_first
        run = Run(now, count if inserts else 0, 0 if inserts else count, 0, 0.0)
        before = mark or ProgressMark(0, bound, now)
        new = before.followed_by(run, position=bound, bound=bound)
        operations = LocalOperations(table, self._spool.written(), replaces, is_copy)
        return LocalBatch((operations,) if self._spool.row_count or replaces else (), new.to_position())

    def _read(self, snapshot: SourceSnapshot, plan: ReadPlan, condition: str) -> int:
        assert self._spool is not None
        operation = "insert" if self._settings.method is CaptureMethod.ROW_VERSION_INSERT else "update"
        count = 0
        for rows in snapshot.chunks(plan.select_all(condition)):
            self._spool.add([operation] * len(rows), range(count, count + len(rows)), plan.columns_of(rows))
            count += len(rows)
        return count
