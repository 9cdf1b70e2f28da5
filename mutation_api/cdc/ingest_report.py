"""Results of a run of a change source: its counts, contradictions, kept rows, and watermarks.

An operation can contradict the operation before it in the log, or the rows of the table. Contradictions are
counted, and are errors in a strict run. :func:`list_watermarks` reads, between runs, the positions up to
which sources have been applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from metastore_client.client import MetastoreClient
from mutation_api.cdc.source import Position, Stop
from mutation_api.cdc.watermark import Watermark, Watermarks
from mutation_api.errors import ContradictionError, StoppedAtStatementError
from mutation_api.format.event import DELETE, INSERT, UPDATE
from mutation_api.merge.history import HistoryReport
from mutation_api.merge.merge_report import MergeReport
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.watermark_table import watermark_table_exists


def list_watermarks(
    metastore: MetastoreClient,
    watermark_table: str,
    *,
    target: str | None = None,
    source_id: str | None = None,
) -> list[Watermark]:
    """Read watermarks in a snapshot; its lock is released afterwards.

    Args:
        metastore: the metastore of the tables; stays open.
        watermark_table: ``database.table``. If it does not exist, the result is empty.
        target: a table, ``database.table`` in upper or lower case. If None, all tables.
        source_id: a source. If None, all sources.

    Returns:
        The watermarks, sorted by source, source table and target.

    Raises:
        ConfigurationError: If a name is not ``database.table``, or if ``watermark_table`` is not a watermark
            table.
        Others: See :meth:`Watermarks.read` and ``MutatorClient.open_snapshot``.
    """
    read = read_watermarks(metastore, watermark_table)
    return [] if read is None else read.of(target=target, source_id=source_id)


def read_watermarks(metastore: MetastoreClient, watermark_table: str) -> Watermarks | None:
    """Read all watermarks in a snapshot; return None if the table does not exist.

    The lock of the snapshot is released afterwards. Raises: See :func:`list_watermarks`.
    """
    if not watermark_table_exists(metastore, watermark_table):
        return None
    with (
        MutatorClientBuilder().metastore(metastore).build() as client,
        client.open_snapshot(watermark_table) as snapshot,
    ):
        return Watermarks.read(snapshot, watermark_table)


OPERATIONS = (INSERT, UPDATE, DELETE)

SAMPLES_SHOWN = 5
"""The number of keys that a message about contradictions lists."""

SINGULARS = {
    "__inserts_of_present": "insert of present",
    "__updates_of_absent": "update of absent",
    "__deletes_of_absent": "delete of absent",
}
"""The name of a single contradiction of each kind."""


@dataclass(frozen=True)
class Contradictions:
    """The number of operations that contradict the state before them, by kind."""

    inserts_of_present: int = 0
    updates_of_absent: int = 0
    deletes_of_absent: int = 0

    @property
    def total(self) -> int:
        """The number of contradictions of all kinds."""
        return self.inserts_of_present + self.updates_of_absent + self.deletes_of_absent

    def __add__(self, other: Contradictions) -> Contradictions:
        """Return the sum, kind by kind."""
        return Contradictions(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __str__(self) -> str:
        """Return the kinds that occur, in readable form."""
        found = [f"{count:,} {name.replace('_', ' ')} keys" for name, count in vars(self).items() if count]
        return ", ".join(found) or "no contradictions"


@dataclass(frozen=True)
class LogCounts:
    """The counts of a reduced log.

    ``outcomes`` counts the keys by their first and last operation. ``contradictions`` counts those within the
    log.
    """

    operation_count: int
    outcomes: Mapping[tuple[str, str], int]
    contradictions: Contradictions

    @property
    def key_count(self) -> int:
        """The number of keys."""
        return sum(self.outcomes.values())


def contradictions_with_table(
    log: LogCounts, report: MergeReport, *, is_emptied: bool, reads_again: bool = False
) -> Contradictions:
    """Count the first operations that contradict the rows of the table, from the counts of the merge.

    The report does not contain a key that is missing from the table and whose last operation is a delete. An
    emptied table has no rows, although the merge may have read some.

    Args:
        log: the log's counts.
        report: the report of merging its last operations, counted by the first operations.
        is_emptied: True if the source emptied its table before these operations.
        reads_again: True if the source may return a row that was applied before. An insert of a present key
            then contradicts the table only if the row has other values.
    """
    if is_emptied:
        first = Counter[str]()
        for (operation, _), keys in log.outcomes.items():
            first[operation] += keys
        return Contradictions(0, first[UPDATE], first[DELETE])

    def absent(first: str) -> int:
        counts = report.counts_by.get(first)
        inserted, deleted = (counts.inserted, counts.deleted) if counts else (0, 0)
        return inserted + max(0, log.outcomes.get((first, DELETE), 0) - deleted)

    inserts = report.counts_by.get(INSERT)
    present = 0
    if inserts is not None:
        present = inserts.updated + inserts.moved + inserts.deleted
        present += 0 if reads_again else inserts.unchanged
    return Contradictions(present, absent(UPDATE), absent(DELETE))


def log_contradicts_itself(
    what: str, contradictions: Contradictions, samples: Sequence[str]
) -> ContradictionError:
    """Return the error that lists some of the keys; ``what`` names the log."""
    return ContradictionError(
        f"{what} contradicts itself: {contradictions}: {_shown(contradictions, samples)}. Nothing was "
        "written. The log may have gaps, or it may contain some operations twice. If the log is right, run "
        "without strict"
    )


def log_contradicts_table(
    what: str, target: str, contradictions: Contradictions, samples: Sequence[str]
) -> ContradictionError:
    """Return the error that lists some of the keys; ``what`` names the log."""
    return ContradictionError(
        f"{what} contradicts the rows of {target}: {contradictions}: {_shown(contradictions, samples)}. "
        "Nothing was written. Was part of the log applied before, or did the table have rows before the log "
        "began? If the rows are right, run without strict"
    )


def changed_rows(
    what: str, target: str, count: int, samples: Sequence[str], advice: str
) -> ContradictionError:
    """Return the error for rows that changed although their source asserts that rows never change.

    Args:
        what: name of the log.
        target: name of the Hive table.
        count: number of changed rows.
        samples: some of these rows, each with its key and values.
        advice: what the user can do.
    """
    more = f"; and {count - len(samples):,} more" if count > len(samples) else ""
    return ContradictionError(
        f"{what} has {count:,} inserted rows whose keys exist in {target} with other values: "
        f"{'; '.join(samples)}{more}. Nothing was written. {advice}"
    )


def _shown(contradictions: Contradictions, samples: Sequence[str]) -> str:
    return "; ".join(samples) + (", …" if contradictions.total > len(samples) else "")


@dataclass(frozen=True)
class IngestedTable:
    """The result of applying one table's operations.

    ``operation_count``: number of operations read. ``key_count``: number of distinct keys among them; each
    was applied once. ``contradictions``: those within the log plus those with the rows of the table.
    ``is_emptied``: True if the source emptied its table before the first of the operations; then rows without
    an operation were deleted.
    """

    source_table: str
    operation_count: int
    key_count: int
    contradictions: Contradictions
    merge: MergeReport
    is_emptied: bool = False

    @property
    def target(self) -> str:
        """The target table, ``database.table``."""
        return self.merge.table

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serialisable dict."""
        return {
            "source_table": self.source_table,
            "operation_count": self.operation_count,
            "key_count": self.key_count,
            "contradictions": dict(vars(self.contradictions)),
            "emptied": self.is_emptied,
            **self.merge.to_dict(),
        }


@dataclass(frozen=True)
class IngestedHistory:
    """The result of adding one table's operations to a history; ``operation_count``: number of them."""

    source_table: str
    operation_count: int
    history: HistoryReport

    @property
    def target(self) -> str:
        """The history, ``database.table``."""
        return self.history.table

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serialisable dict."""
        counts = {"source_table": self.source_table, "operation_count": self.operation_count}
        return {**counts, **self.history.to_dict()}


@dataclass(frozen=True)
class IngestedChanges:
    """The result of adding one table's operations to a table of changes; ``operation_count``: number of them.

    Operations that the table has already are ``unchanged`` in the report of the merge.
    """

    source_table: str
    operation_count: int
    merge: MergeReport

    @property
    def target(self) -> str:
        """The table of changes, ``database.table``."""
        return self.merge.table

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serialisable dict."""
        counts = {"source_table": self.source_table, "operation_count": self.operation_count}
        return {**counts, **self.merge.to_dict()}


AppliedTable = IngestedTable | IngestedHistory | IngestedChanges
"""The result of applying one table's operations to one target."""


@dataclass(frozen=True)
class IngestReport:
    """The result of a run.

    ``before``: positions before the run, by the source's table names. ``position``: the position that the run
    reached; None if the source had nothing new. ``txn_id`` is None if nothing was committed. ``engine``: the
    engine that did the work, ``spark`` or ``local``. ``stop``: why the run did not reach the end of the log.
    ``warnings``: findings about the source that may be unintended, such as a table without any messages.
    ``histories`` and ``changes``: the results for histories and for tables of changes.
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
    histories: tuple[IngestedHistory, ...] = ()
    changes: tuple[IngestedChanges, ...] = ()

    @property
    def operation_count(self) -> int:
        """The number of operations read, for all tables of the source."""
        applied: tuple[AppliedTable, ...] = (*self.tables, *self.histories, *self.changes)
        counts = {each.source_table: each.operation_count for each in applied}
        return sum(counts.values())

    def check_stop(self) -> None:
        """Raise StoppedAtStatementError if the run did not reach the end of the log."""
        if self.stop is None:
            return
        if self.position is None:
            did = "everything before it had already been applied"
        elif self.is_dry_run:
            did = "everything before it would be applied"
        else:
            did = f"everything before it was applied, in transaction {self.txn_id}"
        error = StoppedAtStatementError(f"{self.stop.message}. Stopped at the statement: {did}")
        error.report = self
        raise error

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-serialisable dict."""
        return {
            "source": self.source_id,
            "dry_run": self.is_dry_run,
            "engine": self.engine,
            "txn_id": self.txn_id,
            "before": {name: position.shown for name, position in self.before.items()},
            "position": None if self.position is None else self.position.shown,
            "tables": [table.to_dict() for table in self.tables],
            "histories": [table.to_dict() for table in self.histories],
            "changes": [table.to_dict() for table in self.changes],
            "stopped": None if self.stop is None else self.stop.message,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        """Return one line for the run, then a table with a line for each target, then the contradictions."""
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
            rows = [*map(_cells, self.tables), *map(_history_cells, self.histories)]
            rows += map(_changes_cells, self.changes)
            lines += [f"  {line}" for line in _aligned([_HEADER, *rows])]
        found = [(table.target, table.contradictions) for table in self.tables]
        contradictions = [f"  {target}: {each}" for target, each in found if each.total]
        return "\n".join([*lines, *emptied, *contradictions, *self._warnings()])

    def _warnings(self) -> list[str]:
        return [f"  warning: {each}" for each in self.warnings]


_HEADER = ["TABLE", "OPERATIONS", "KEYS", "INSERTED", "UPDATED", "DELETED", "MOVED", "UNCHANGED"]


def _cells(table: IngestedTable) -> list[str]:
    counts = (table.operation_count, table.key_count, *vars(table.merge.total).values())
    return [table.target, *[f"{count:,}" for count in counts]]


def _history_cells(table: IngestedHistory) -> list[str]:
    found = table.history
    counts = (found.inserted, found.updated, found.deleted)
    return [table.target, f"{table.operation_count:,}", "", *[f"{count:,}" for count in counts], "", ""]


def _changes_cells(table: IngestedChanges) -> list[str]:
    total = table.merge.total
    known = f"{table.operation_count - total.inserted:,}"
    return [table.target, f"{table.operation_count:,}", "", f"{total.inserted:,}", "", "", "", known]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.rjust(width) if at else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
