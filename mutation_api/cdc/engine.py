"""The part of a run that engines do: read the source, reduce each table's operations and merge them.

All other parts (locks, watermarks, the order of the steps, refusals) are the same for every engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from mutation_api.cdc.ingest_report import SAMPLES_SHOWN, LogCounts
from mutation_api.cdc.kept_changes import KeptChanges
from mutation_api.cdc.source import (
    OPERATION,
    POSITION,
    ChangeSource,
    LocalChangeSource,
    Position,
    SourceTable,
    Stop,
)
from mutation_api.errors import RecordLayoutError
from mutation_api.merge.clauses import Action, Clause, E, Match
from mutation_api.merge.history import HistoryReport, HistoryRules
from mutation_api.merge.merge_report import MergeReport
from mutation_api.transaction.transaction import Transaction

AnySource = ChangeSource | LocalChangeSource
"""A source that Spark or this process reads."""

TargetBytes = Callable[[SourceTable], int]
"""Returns the size of the files with a target's rows. It lists directories: call it only if needed."""


class _Merge(Protocol):
    """A merge of either engine."""

    def execute(self, *, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        """Write; ``before_writing`` is called with the counts, and may raise."""

    def dry_run(self, *, samples: int) -> MergeReport:
        """Report what :meth:`execute` would do."""


class ReducedTable(ABC):
    """The last operation of each key of a table, which can be merged into the target."""

    @property
    @abstractmethod
    def counts(self) -> LogCounts:
        """The counts of the log."""

    @abstractmethod
    def _merge(self, transaction: Transaction) -> _Merge:
        """Return the merge of the operations."""

    @abstractmethod
    def contradicting(self, transaction: Transaction) -> list[str]:
        """Return some keys whose first operation contradicts the target's rows, each with its position."""

    def merge(self, transaction: Transaction, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        """Merge the operations; ``before_writing`` is called with the counts, and may raise.

        Raises: See ``merge_into``.
        """
        return self._merge(transaction).execute(before_writing=before_writing)

    def dry_run(self, transaction: Transaction) -> MergeReport:
        """Report what :meth:`merge` would do. Raises: See ``merge_into``."""
        return self._merge(transaction).dry_run(samples=0)

    def changed(self, transaction: Transaction) -> list[str]:
        """Return some rows that have other values in the target, each with its key and these values."""
        samples = self._merge(transaction).dry_run(samples=SAMPLES_SHOWN).samples
        return [str(row) for row in samples if row.kind in ("updated", "moved")][:SAMPLES_SHOWN]


class TableLog(Protocol):
    """The operations on one table, as an engine has read them."""

    @property
    def table(self) -> SourceTable:
        """The table and its key."""

    @property
    def is_emptied(self) -> bool:
        """True if all rows were removed before the first operation."""

    @property
    def column_names(self) -> Sequence[str]:
        """The columns of the operations, in lower case. Valid within the block of :meth:`reduced`."""

    def reduced(
        self, *, what: str, strict: bool, is_kept: bool = False
    ) -> AbstractContextManager[ReducedTable]:
        """Reduce the operations to the last one of each key; the result is valid within the block.

        Args:
            what: name of the log in messages.
            strict: refuse a log that contradicts itself.
            is_kept: True if all operations will be added to histories or tables of changes within the block.

        Raises:
            ContradictionError: If the log contradicts itself and ``strict`` is set, or if two operations on
                one key have the same position.
            RecordLayoutError: If a column is missing, or if the values of a key column cannot be compared.
            RecordValueError: If a key, a position or an operation is not valid.
            Others: The errors of the source, raised when its operations are read.
        """

    def add_history(
        self, transaction: Transaction, kept: KeptChanges, rules: HistoryRules, *, dry_run: bool
    ) -> HistoryReport:
        """Add all operations to a history, within the block of :meth:`reduced`.

        Args:
            transaction: an open transaction; the target is one of its sinks.
            kept: how operations become changes of the history.
            rules: the options of the history.
            dry_run: True to report what would be done, without writing.

        Raises: See ``HiveTable.track``, and :meth:`KeptChanges.rows`.
        """

    def add_changes(self, transaction: Transaction, kept: KeptChanges, *, dry_run: bool) -> MergeReport:
        """Add all operations to a table of changes, unless it has them. See :meth:`add_history`."""


@dataclass(frozen=True)
class Reading:
    """Everything that a source has after its watermarks; ``engine`` names the engine that processes it.

    If the source has nothing new, ``position`` is None and ``tables`` is empty. ``stop``, ``set_back`` and
    ``warnings`` are those of :class:`~mutation_api.cdc.source.Batch`.
    """

    engine: str
    tables: tuple[TableLog, ...]
    position: Position | None
    stop: Stop | None = None
    set_back: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


class Engine(Protocol):
    """An engine that reads sources and returns their operations, ready to be reduced and merged."""

    def check(self, source: AnySource) -> None:
        """Raise ConfigurationError if the engine cannot read the source."""

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        target_bytes: TargetBytes,
    ) -> Reading:
        """Read the source. Raises: See :meth:`mutation_api.cdc.source.ChangeSource.read`."""


def operation_clauses(is_delete: E, is_other: E, *, is_emptied: bool) -> list[Clause[E]]:
    """Return the clauses of the merge that applies the last operation of each key.

    Args:
        is_delete: condition that the operation of a source row is a delete.
        is_other: condition that it is not a delete.
        is_emptied: delete rows of the target that are missing from the source.
    """
    clauses = [
        Clause(Match.MATCHED, is_delete, Action.DELETE),
        Clause(Match.MATCHED, None, Action.UPDATE),
        Clause(Match.NOT_MATCHED, is_other, Action.INSERT),
    ]
    return [*clauses, Clause(Match.NOT_MATCHED_BY_SOURCE, None, Action.DELETE)] if is_emptied else clauses


def check_operation_columns(table: SourceTable, columns: Sequence[str]) -> None:
    """Raise RecordLayoutError if the operations lack OPERATION or POSITION."""
    found = {name.lower() for name in columns}
    missing = sorted({OPERATION, POSITION} - found)
    if missing:
        raise RecordLayoutError(
            f"table {table.target.full_name}: its operations lack the columns {', '.join(missing)}; found "
            f"{', '.join(columns)}"
        )


def check_key_columns(key: Sequence[str], rows: pa.Schema) -> None:
    """Raise RecordLayoutError if rows lack a key column, or if this process cannot compare its values."""
    if unknown := [name for name in key if name not in rows.names]:
        raise RecordLayoutError(
            f"the operations lack columns {', '.join(unknown)}; they have {', '.join(rows.names)}"
        )
    for name in key:
        if pa.types.is_nested(rows.field(name).type):
            raise RecordLayoutError(
                f"key column {name!r} has the type {rows.field(name).type}, whose values cannot be compared "
                "without Spark"
            )
