"""Watermarks: the position up to which each log has been applied to each table, in an ACID table.

The transaction that applies the operations also writes this table, so both become visible together or not at
all. Its write lock excludes a second run of the source: that run waits, and then reads the watermarks of the
first. The table has one row for each source, source table and target.

The driver reads and writes the few rows without Spark.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mutation_api.cdc.source import Position
from mutation_api.errors import SourcePositionError
from mutation_api.format.event import ROW_ID_COLUMN, RecordIdentifier
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import PlannedFiles, open_table
from mutation_api.table.acid_table import AcidTable, SnapshotView
from mutation_api.transaction.catalog import normal_full_name
from mutation_api.upkeep.watermark_table import (
    TABLE_NAME,
    WATERMARK_COLUMNS,
    check_watermark_columns,
)
from mutation_api.write.coordinator import MutatorCoordinator
from mutation_api.write.staged_writer import OpenTransaction

WATERMARK_TABLE_NAME = TABLE_NAME
"""The default name of the table, in the database of the targets."""


@dataclass(frozen=True)
class Watermark:
    """The position up to which a log has been applied to a table.

    ``order`` and ``text`` are those of :class:`~mutation_api.cdc.source.Position`. ``applied_at`` is in
    UTC, without time zone.
    """

    source_id: str
    source_table: str
    target: str
    order: tuple[int, ...]
    text: str
    txn_id: int
    applied_at: datetime

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the watermark: source, source table, target."""
        return (self.source_id, self.source_table, self.target)

    @property
    def shown(self) -> str:
        """The position in readable form, without the identity of the log."""
        return Position(self.order, self.text).shown

    def check_follows(self, before: Watermark) -> None:
        """Raise SourcePositionError if this one lies before ``before``, or cannot be compared with it."""
        if len(self.order) == len(before.order) and self.order >= before.order:
            return
        relation = "lies before" if len(self.order) == len(before.order) else "cannot be compared with"
        raise SourcePositionError(
            f"source {self.source_id}, table {self.source_table}: its position {self.shown} "
            f"{list(self.order)} {relation} {before.shown} {list(before.order)}, up to which transaction "
            f"{before.txn_id} has applied it to {self.target}. Nothing was written. Does another log "
            "have the same name, or was the source reset?"
        )


def watermark_now(
    source_id: str, source_table: str, target: str, position: Position, txn_id: int
) -> Watermark:
    """Return the watermark that a transaction writes now, which applies a log up to a position."""
    now = datetime.now(UTC).replace(tzinfo=None)
    return Watermark(source_id, source_table, target, position.order, position.text, txn_id, now)


@dataclass(frozen=True)
class Watermarks:
    """The watermarks as seen by a transaction or snapshot, by :attr:`Watermark.key`.

    ``files``: the files from which they were read.
    """

    table: AcidTable
    rows: Mapping[tuple[str, str, str], tuple[RecordIdentifier, Watermark]]
    files: PlannedFiles | None = None

    @classmethod
    def read(cls, view: SnapshotView, table: str, *, known: Watermarks | None = None) -> Watermarks:
        """Read the table, which seldom has more than a few rows, but one file for each of its last changes.

        Args:
            view: the transaction or snapshot.
            table: ``database.table``.
            known: watermarks from an earlier snapshot; reused if a scan would find the same rows.

        Raises:
            ConfigurationError: If it is not a watermark table.
            SourcePositionError: If a row is not a valid watermark, or if two rows have the same key.
            Others: See :meth:`mutation_api.read.table_scan.TableScan.by_partition`.
        """
        opened = open_table(view, table)
        acid_table = opened.table
        check_watermark_columns(acid_table)
        scan = TableScan(opened, row_ids=True, truncate_nanoseconds=True)
        files = scan.planned()
        if known is not None and known.files is not None and files.have_rows_of(known.files):
            return dataclasses.replace(known, table=acid_table)
        scan = dataclasses.replace(scan, files=files)
        rows: dict[tuple[str, str, str], tuple[RecordIdentifier, Watermark]] = {}
        for record in scan.to_arrow().to_pylist():
            mark = _parsed(acid_table, record)
            if mark.key in rows:
                raise SourcePositionError(
                    f"table {table} has two watermarks of source {mark.source_id}, table "
                    f"{mark.source_table}, target {mark.target}: delete the wrong one"
                )
            rows[mark.key] = (RecordIdentifier(*record[ROW_ID_COLUMN].values()), mark)
        return cls(acid_table, rows, files)

    def __iter__(self) -> Iterator[Watermark]:
        """Iterate over the watermarks in the order of their keys."""
        return iter([self.rows[key][1] for key in sorted(self.rows)])

    def of(self, *, target: str | None = None, source_id: str | None = None) -> list[Watermark]:
        """Return the watermarks of a target (``database.table`` in upper or lower case) and a source, sorted.

        If an argument is None, it selects all targets or sources.

        Raises:
            ConfigurationError: If ``target`` is not ``database.table``.
        """
        wanted = None if target is None else normal_full_name(target)
        return [m for m in self if wanted in (None, m.target) and source_id in (None, m.source_id)]

    def get(self, source_id: str, source_table: str, target: str) -> Watermark | None:
        """Return the watermark of one table, or None if nothing was applied to it."""
        found = self.rows.get((source_id, source_table, target))
        return None if found is None else found[1]

    def check_forward(self, marks: Iterable[Watermark]) -> None:
        """Raise SourcePositionError if one of ``marks`` lies before the table's watermark."""
        for mark in marks:
            before = self.get(*mark.key)
            if before is not None:
                mark.check_follows(before)

    def write(
        self, transaction: OpenTransaction, marks: Iterable[Watermark], *, set_back: Collection[str] = ()
    ) -> None:
        """Replace or add ``marks``; call it once, in the transaction that read the table.

        ``set_back``: tables of the source whose watermarks may move backwards.

        Raises:
            SourcePositionError: If a watermark would move backwards. Nothing was written then.
            Others: See :class:`~mutation_api.write.coordinator.MutatorCoordinator`.
        """
        new = list(marks)
        self.check_forward(mark for mark in new if mark.source_table not in set_back)
        known = sorted((self.rows[mark.key][0], _record(mark)) for mark in new if mark.key in self.rows)
        with MutatorCoordinator(self.table) as coordinator:
            for row_id, record in known:
                coordinator.update(None, {ROW_ID_COLUMN: row_id, **record})
            for mark in new:
                if mark.key not in self.rows:
                    coordinator.insert(None, _record(mark))
            manifests = coordinator.close()
        transaction.add_manifests(self.table.full_name, coordinator.writer_id, manifests)


def _parsed(table: AcidTable, record: Mapping[str, Any]) -> Watermark:
    order = _order(record["position_order"])
    if order is None or any(record[column.name] is None for column in WATERMARK_COLUMNS):
        shown = {column.name: str(record[column.name]) for column in WATERMARK_COLUMNS}
        raise SourcePositionError(
            f"table {table.full_name}: {shown} is not a watermark: no column may be null, and position_order "
            "must be a JSON list of whole numbers"
        )
    values = {**record, "position_order": order}
    return Watermark(*(values[column.name] for column in WATERMARK_COLUMNS))


def _order(text: str | None) -> tuple[int, ...] | None:
    try:
        numbers = json.loads(text or "")
    except ValueError:
        return None
    is_order = isinstance(numbers, list) and all(type(number) is int for number in numbers)
    return tuple(numbers) if is_order else None


def _record(mark: Watermark) -> dict[str, Any]:
    values = {**vars(mark), "order": json.dumps(mark.order)}.values()
    return {column.name: value for column, value in zip(WATERMARK_COLUMNS, values, strict=True)}
