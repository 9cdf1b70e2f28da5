"""Tables that are read by a monotonically increasing column: rows above the bound of the last extraction.

A value of the monotonically increasing column may be assigned long before its transaction commits, so reading
only values "greater than the greatest value seen" loses rows. The database reports a bound: a row that is not
visible below it will never appear. The next extraction reads the rows from the bound on again. Those that
have not changed are not written.

A column that the application fills is verified, because nothing prevents a program from writing NULL or a
smaller value; see :mod:`mutation_api.cdc.update.values`. If a row appeared below the bound, the
whole table is compared.

The rows of one snapshot are kept in a Parquet file until they are applied; only some chunks are in memory.
The source's transaction ends when all rows are in the file, so it is shorter than the merge.
"""

from __future__ import annotations

import abc
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mutation_api.cdc.source import (
    OPERATION,
    POSITION,
    KeptRows,
    LocalBatch,
    LocalOperations,
    Position,
    SourceTable,
)
from mutation_api.cdc.source_url import input_errors
from mutation_api.cdc.update.database import SourceDatabase, SourceSnapshot
from mutation_api.cdc.update.progress_mark import CaptureMethod, ProgressMark, Run
from mutation_api.cdc.update.settings import UpdateSettings
from mutation_api.cdc.update.source_rows import (
    Difference,
    Effect,
    ReadPlan,
    SteadySnapshot,
    check_bound,
    differences,
    steady_snapshot,
)
from mutation_api.cdc.update.values import appeared_below
from mutation_api.storage.location import Location

PART_ROWS, PART_BYTES = 100_000, 16 << 20
"""Chunks are joined into a part (a row group of the file) until it reaches one of these sizes."""

POSITION_FIELDS = ("sequence",)
"""The fields of a position: the last number of an operation's key in the log, or a row's number in a copy."""


class RowSpool:
    """The file of one extraction, in this machine's temporary directory; :meth:`close` removes it."""

    def __init__(self) -> None:
        """Create the directory. Raises InputError if this fails."""
        with input_errors("cannot buffer rows on disk"):
            self._folder = Path(tempfile.mkdtemp(prefix="hive-mutate-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._sizes: list[int] = []
        self.row_count = 0

    def __enter__(self) -> Self:
        """Return the spool itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Close the spool."""
        self.close()

    def add(
        self,
        operations: Sequence[str] | pa.StringArray,
        sequences: Sequence[int] | NDArray[np.int64],
        columns: Mapping[str, pa.Array],
    ) -> None:
        """Add operations, one per row of the columns. Raises InputError if the file cannot be written."""
        if not len(operations):
            return
        position = pa.StructArray.from_arrays([pa.array(sequences, pa.int64())], POSITION_FIELDS)
        batch = pa.table({OPERATION: pa.array(operations, pa.string()), POSITION: position, **columns})
        self._waiting.append(batch)
        self.row_count += batch.num_rows
        if (
            sum(each.num_rows for each in self._waiting) >= PART_ROWS
            or sum(each.nbytes for each in self._waiting) >= PART_BYTES
        ):
            self._write_waiting()

    def written(self) -> KeptRows:
        """Return all operations; no more can be added. Raises InputError if the file cannot be written."""
        self._write_waiting()
        if self._writer is not None:
            with self._named_errors():
                self._writer.close()
        return KeptRows(Location.given(str(self._path)), tuple(self._sizes), POSITION_FIELDS)

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        part = pa.concat_tables(self._waiting)
        self._waiting = []
        with self._named_errors():
            if self._writer is None:
                # It is read twice, soon, on this machine: speed counts more than size.
                self._writer = pq.ParquetWriter(
                    self._path,
                    part.schema,
                    compression="lz4",
                    use_dictionary=[OPERATION],
                    write_statistics=False,
                )
            self._writer.write_table(part)
        self._sizes.append(part.nbytes)

    def _named_errors(self) -> AbstractContextManager[None]:
        return input_errors(f"{self._path}: cannot buffer rows on disk")

    def close(self) -> None:
        """Remove the file. May be called twice."""
        self._remove()

    @property
    def _path(self) -> Path:
        return self._folder / "rows.parquet"


@dataclass(frozen=True)
class _Versions:
    """The versions in a snapshot.

    Attributes:
        bound: the new bound.
        below: numbers of rows below it, by groups.
        is_far: True if the previous bound cannot be compared with it.
        differences: the events since the last extraction other than rows with greater versions.
    """

    bound: str
    below: tuple[int, ...]
    is_far: bool
    differences: tuple[Difference, ...]

    @property
    def are_missed(self) -> bool:
        """True if reading from the old bound on may miss rows."""
        return any(map(_misses_rows, self.differences))


class QuerySource(abc.ABC):
    """A source that reads one table by queries in a snapshot, and buffers its rows in a file.

    Args:
        database: the source.
        settings: settings of the table.
        target: the table in Hive, for messages.
        replaces: True if a first copy also deletes rows of the target that the source lacks.
    """

    def __init__(
        self, database: SourceDatabase, settings: UpdateSettings, target: str, *, replaces: bool = False
    ) -> None:
        self._database = database
        self._settings = settings
        self._target = target
        self._replaces = replaces
        self._spool: RowSpool | None = None
        self.differences: tuple[Difference, ...] = ()
        """The differences found by the last read that rows of changes do not show."""

    @property
    def source_id(self) -> str:
        """The name in watermarks: the database, and the identifier of the update."""
        return self._settings.source_id

    def close(self) -> None:
        """Remove the buffered rows and disconnect. May be called twice."""
        if self._spool is not None:
            self._spool.close()
        self._database.close()

    def has_news(self, mark: ProgressMark) -> bool:
        """Return True, unless it is known without an extraction that there is nothing new."""
        return True

    def acknowledge(self) -> int:
        """Delete what was applied from the source's log, if it has one; return how many rows."""
        return 0

    @abc.abstractmethod
    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read the table without Spark. See :class:`~mutation_api.cdc.source.LocalChangeSource`.

        Raises:
            ConnectionFailedError: If the source cannot be reached, or refuses a query.
            SourcePositionError: If source and position do not match, because one of them was restored.
            RecordLayoutError: If columns do not fit the target.
            RecordValueError: If values do not fit the target.
        """

    def _snapshot(self) -> AbstractContextManager[SteadySnapshot]:
        return steady_snapshot(self._database, self._settings, self._target)

    def _new_spool(self) -> RowSpool:
        """Remove the rows of the read before, and return the buffer of a new one."""
        if self._spool is not None:
            self._spool.close()
        self._spool = RowSpool()
        return self._spool

    def _batch(
        self, table: SourceTable, spool: RowSpool, mark: ProgressMark, *, replaces: bool, is_copy: bool
    ) -> LocalBatch:
        """Return what was read, up to a position, which may be no rows."""
        operations = LocalOperations(table, spool.written(), replaces, is_copy)
        return LocalBatch((operations,) if spool.row_count or replaces else (), mark.to_position())


def mark_after(table: SourceTable, after: Mapping[str, Position]) -> ProgressMark | None:
    """Return the mark of a table's last extraction, or None before the first."""
    position = after.get(table.name)
    return None if position is None else ProgressMark.of(position.text)


class VersionSource(QuerySource):
    """The rows of one table that are new or changed since the last extraction.

    Deletes are not detected unless the settings request a comparison of keys. In that case each extraction
    reads the whole table, and rows of the target that it lacks are deleted.

    The database reports the bound of the version column. The setting ``overlap`` is how far below the bound
    the column is read again, for a database that cannot determine a bound; the user is responsible for it.
    """

    def read_local(self, tables: Sequence[SourceTable], after: Mapping[str, Position]) -> LocalBatch:
        """Read new and changed rows. See :class:`QuerySource`."""
        (table,) = tables
        mark, spool = mark_after(table, after), self._new_spool()
        with self._snapshot() as view:
            captured, snapshot = view.state.table, view.snapshot
            plan = ReadPlan.of(self._database, captured, table.target, self._settings)
            now = float(snapshot.value(f"SELECT {self._database.now()}"))
            versions = self._versions(view, mark)
            self.differences = versions.differences
            is_copy = mark is None or self._settings.compares_keys or versions.are_missed
            condition = ""
            if not is_copy and mark is not None:
                condition = self._database.from_version(captured, self._settings, mark.bound)
            count = self._read(snapshot, plan, condition, spool)
        is_first = mark is None
        if not (is_copy or count or versions.is_far or self.differences):
            return LocalBatch((), None)
        inserts = self._settings.method is CaptureMethod.ROW_VERSION_INSERT or is_first
        run = Run(now, count if inserts else 0, 0 if inserts else count, 0, 0.0)
        before = mark or ProgressMark(0, versions.bound, now)
        new = before.followed_by(
            run,
            settings=self._settings.of_position,
            position=versions.bound,
            bound=versions.bound,
            below=versions.below,
            fingerprint=view.state.fingerprint,
        )
        replaces = self._settings.compares_keys or (is_first and self._replaces)
        return self._batch(table, spool, new, replaces=replaces, is_copy=is_copy)

    def _versions(self, view: SteadySnapshot, mark: ProgressMark | None) -> _Versions:
        """Return the versions, and whether rows may have got versions below the previous bound.

        Raises:
            SourcePositionError: If a bound that only grows has fallen.
        """
        database, settings, captured = self._database, self._settings, view.state.table
        database.check_version(captured, settings.version_column, settings.overlap)
        found = self._altered(view, mark)
        before = "" if mark is None or any(map(_misses_rows, found)) else mark.bound
        bound, is_far = database.version_bound(view.snapshot, captured, settings, before)
        if mark is not None and database.only_grows(settings):
            check_bound(mark, bound, f"{database.source_id}, table {captured.full_name}")
        below: tuple[int, ...] = ()
        text = ""
        if settings.verifies_version and not settings.compares_keys and database.is_verifiable(settings):
            was, below = database.counts_below(view.snapshot, captured, settings, (before, bound))
            appeared = appeared_below(mark.below, was) if mark is not None and mark.below else 0
            if appeared:
                text = f"{appeared:,} rows got a {settings.version_column} below {before}"
        elif is_far and not settings.compares_keys:
            text = f"{settings.version_column} is at {bound}, but was at {before}"
        found += [Difference(text, Effect.COMPARE)] if text else []
        return _Versions(bound, below, is_far, tuple(found))

    def _altered(self, view: SteadySnapshot, mark: ProgressMark | None) -> list[Difference]:
        """Return the events since the last extraction that affect the table itself."""
        if mark is None:
            return []
        return differences(mark.fingerprint, view.state.fingerprint, self._settings)

    def _read(self, snapshot: SourceSnapshot, plan: ReadPlan, condition: str, spool: RowSpool) -> int:
        operation = "insert" if self._settings.method is CaptureMethod.ROW_VERSION_INSERT else "update"
        count = 0
        for rows, columns in plan.read(snapshot, plan.select_all(condition)):
            # All have the same position: two rows with one key have no order, and are refused.
            spool.add(pa.repeat(operation, rows), np.zeros(rows, np.int64), columns)
            count += rows
        return count


def _misses_rows(difference: Difference) -> bool:
    """Return True if rows may have appeared below the bound; those of an attached partition may be old."""
    return difference.effect in (Effect.COMPARE, Effect.NEW_PARTITION)
