"""What an engine does of a run: it reads the source, reduces each table's operations and merges them.

All else (locks, watermarks, the order of the steps, what is refused) is the same for every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from mutation_api.cdc.ingest_report import SAMPLES_SHOWN, LogCounts
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
from mutation_api.merge.merge_report import MergeReport
from mutation_api.transaction.transaction import Transaction

__all__ = [
    "AnySource",
    "Engine",
    "Reading",
    "ReducedTable",
    "TableLog",
    "TargetBytes",
    "changed_samples",
    "check_operation_columns",
    "operation_clauses",
]

AnySource = ChangeSource | LocalChangeSource

TargetBytes = Callable[[SourceTable], int]
"""Returns the size of the files that hold a target's rows. It lists directories: call it only if needed."""


class ReducedTable(Protocol):
    """The last operation of each key of a table, which can be merged into the target."""

    @property
    def counts(self) -> LogCounts:
        """Numbers of the log."""

    def merge(self, transaction: Transaction, before_writing: Callable[[MergeReport], None]) -> MergeReport:
        """Merge; ``before_writing`` is called with the counts, and may raise.

        Raises: as ``merge_into``.
        """

    def dry_run(self, transaction: Transaction) -> MergeReport:
        """What :meth:`merge` would do. Raises: as ``merge_into``."""

    def contradicting(self, transaction: Transaction) -> list[str]:
        """Some keys whose first operation contradicts the rows of the target, each with its position."""

    def changed(self, transaction: Transaction) -> list[str]:
        """Return some rows that the target has with other values, each with its key and these values."""


class TableLog(Protocol):
    """The operations on one table, as an engine has read them."""

    @property
    def table(self) -> SourceTable:
        """The table and its key."""

    @property
    def is_emptied(self) -> bool:
        """Whether all rows were removed before the first operation."""

    def reduced(self, *, what: str, strict: bool) -> AbstractContextManager[ReducedTable]:
        """The operations, reduced to the last of each key, within a block.

        Args:
            what: names the log in messages.
            strict: refuse a log that contradicts itself.

        Raises:
            ContradictionError: it does, and is refused; or two operations on one key have the same position.
            RecordLayoutError: a column is missing, or the values of a key column cannot be compared.
            RecordValueError: a key, a position or an operation is not valid.
            Others: what the source raises when its operations are read.
        """


@dataclass(frozen=True)
class Reading:
    """All that a source has after its watermarks; ``engine`` is the name of the engine that goes on with it.

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
    """Reads sources."""

    def check(self, source: AnySource) -> None:
        """Raise ConfigurationError if the engine cannot read the source."""

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        target_bytes: TargetBytes,
    ) -> Reading:
        """Read the source. Raises: as :meth:`mutation_api.cdc.source.ChangeSource.read`."""


def changed_samples(report: MergeReport) -> list[str]:
    """Return the rows among the samples of a dry run that the target has with other values."""
    found = [str(row) for row in report.samples if row.kind in ("updated", "moved")]
    return found[:SAMPLES_SHOWN]


def operation_clauses(is_delete: E, is_other: E, *, is_emptied: bool) -> list[Clause[E]]:
    """The clauses of the merge that applies the last operations of keys.

    Args:
        is_delete: whether the operation of a source row is a delete.
        is_other: whether it is not.
        is_emptied: whether rows of the target that the source lacks are deleted.
    """
    clauses = [
        Clause(Match.MATCHED, is_delete, Action.DELETE),
        Clause(Match.MATCHED, None, Action.UPDATE),
        Clause(Match.NOT_MATCHED, is_other, Action.INSERT),
    ]
    return [*clauses, Clause(Match.NOT_MATCHED_BY_SOURCE, None, Action.DELETE)] if is_emptied else clauses


def check_operation_columns(table: SourceTable, columns: Sequence[str]) -> None:
    """Raise RecordLayoutError if operations lack OPERATION or POSITION."""
    found = {name.lower() for name in columns}
    missing = sorted({OPERATION, POSITION} - found)
    if missing:
        raise RecordLayoutError(
            f"table {table.target.full_name}: its operations lack the columns {', '.join(missing)}; found "
            f"{', '.join(columns)}"
        )
