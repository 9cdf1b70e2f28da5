"""IngestReport: numbers of what a run of a change source did, or would do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mutation_api.changes.merge_report import MergeReport
from mutation_api.errors import StoppedAtStatementError
from mutation_api.inputs.contradictions import Contradictions
from mutation_api.inputs.source import Position, Stop

__all__ = ["IngestReport", "IngestedTable"]


@dataclass(frozen=True)
class IngestedTable:
    """How one table's operations were applied.

    ``operations``: number of operations read. ``keys``: number of different keys among them; each was applied
    once. ``contradictions``: those within the log plus those with the rows of the table. ``is_emptied``: the
    source had emptied its table before the first of the operations, so rows without one were deleted.
    """

    source_table: str
    operations: int
    keys: int
    contradictions: Contradictions
    merge: MergeReport
    is_emptied: bool = False

    @property
    def target(self) -> str:
        """The table that follows, ``database.table``."""
        return self.merge.table

    def to_dict(self) -> dict[str, object]:
        """The same for programs, in JSON's types."""
        return {
            "source_table": self.source_table,
            "operations": self.operations,
            "keys": self.keys,
            "contradictions": dict(vars(self.contradictions)),
            "emptied": self.is_emptied,
            **self.merge.to_dict(),
        }


@dataclass(frozen=True)
class IngestReport:
    """A run.

    ``before``: positions before it, by the source's names of tables. ``position``: the position that it
    reached, None if the source had nothing new. ``txn_id`` is None if nothing was committed. ``engine`` did
    the work: ``spark`` or ``local``. ``stop``: why it did not reach the end of the log. ``warnings``: what
    the source has that may not be meant, such as no message about a table.
    """

    source_id: str
    is_dry_run: bool
    txn_id: int | None
    before: Mapping[str, Position]
    position: Position | None
    tables: tuple[IngestedTable, ...]
    engine: str
    stop: Stop | None = None
    warnings: tuple[str, ...] = ()

    @property
    def operation_count(self) -> int:
        """Operations read, of all tables."""
        return sum(table.operations for table in self.tables)

    def check_stop(self) -> None:
        """Raise StoppedAtStatementError if the run did not reach the end of the log."""
        if self.stop is None:
            return
        if self.position is None:
            did = "nothing lies before it that was not applied"
        elif self.is_dry_run:
            did = "everything before it would be applied"
        else:
            did = f"everything before it was applied, in transaction {self.txn_id}"
        error = StoppedAtStatementError(f"{self.stop.message}. Stopped at the statement: {did}")
        error.report = self
        raise error

    def to_dict(self) -> dict[str, object]:
        """The same for programs, in JSON's types."""
        return {
            "source": self.source_id,
            "dry_run": self.is_dry_run,
            "engine": self.engine,
            "txn_id": self.txn_id,
            "before": {name: position.shown for name, position in self.before.items()},
            "position": None if self.position is None else self.position.shown,
            "tables": [table.to_dict() for table in self.tables],
            "stopped": None if self.stop is None else self.stop.message,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        """A line for the run, then a table with a line for each target, then the contradictions."""
        if self.position is None:
            reached = sorted({position.shown for position in self.before.values()})
            nothing = f"{self.source_id}: nothing new" + (f" after {', '.join(reached)}" if reached else "")
            return "\n".join([nothing, *self._warnings()])
        did = "would be applied" if self.is_dry_run else f"applied in transaction {self.txn_id}"
        lines = [f"{self.source_id}: {did} up to {self.position.shown} ({self.engine})"]
        emptied = [f"  {table.target}: emptied first" for table in self.tables if table.is_emptied]
        if not (self.operation_count or emptied):
            lines.append("  no operations on these tables")
        else:
            lines += [f"  {line}" for line in _aligned([_HEADER, *map(_cells, self.tables)])]
        found = [(table.target, table.contradictions) for table in self.tables]
        contradictions = [f"  {target}: {each}" for target, each in found if each.total]
        return "\n".join([*lines, *emptied, *contradictions, *self._warnings()])

    def _warnings(self) -> list[str]:
        return [f"  warning: {each}" for each in self.warnings]


_HEADER = ["TABLE", "OPERATIONS", "KEYS", "INSERTED", "UPDATED", "DELETED", "MOVED", "UNCHANGED"]


def _cells(table: IngestedTable) -> list[str]:
    counts = (table.operations, table.keys, *vars(table.merge.total).values())
    return [table.target, *[f"{count:,}" for count in counts]]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if at else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
