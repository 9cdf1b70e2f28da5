"""Operations that contradict what was there before them: their counts, and the errors of a strict run. Pure.

An operation may contradict the one before it in the log, or the rows of the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from mutation_api.changes.merge_report import MergeReport
from mutation_api.errors import ContradictionError
from mutation_api.inputs.log_walk import DELETE, INSERT, UPDATE

__all__ = [
    "OPERATIONS",
    "SAMPLES_SHOWN",
    "SINGULARS",
    "Contradictions",
    "LogCounts",
    "changed_rows",
    "contradictions_with_table",
    "log_contradicts_itself",
    "log_contradicts_table",
]

OPERATIONS = (INSERT, UPDATE, DELETE)

SAMPLES_SHOWN = 5
"""Number of keys that a message about contradictions names."""

SINGULARS = {
    "__inserts_of_present": "insert of the present",
    "__updates_of_absent": "update of the absent",
    "__deletes_of_absent": "delete of the absent",
}
"""Name of a single contradiction of each kind."""


@dataclass(frozen=True)
class Contradictions:
    """Number of operations that contradict what was there before them, by kind."""

    inserts_of_present: int = 0
    updates_of_absent: int = 0
    deletes_of_absent: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.inserts_of_present + self.updates_of_absent + self.deletes_of_absent

    def __add__(self, other: Contradictions) -> Contradictions:
        """Sum, kind by kind."""
        return Contradictions(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __str__(self) -> str:
        """The kinds that occur, for people."""
        found = [f"{count:,} {name.replace('_', ' ')} keys" for name, count in vars(self).items() if count]
        return ", ".join(found) or "no contradictions"


@dataclass(frozen=True)
class LogCounts:
    """Numbers of a reduced log.

    ``outcomes`` counts the keys by their first and last operation. ``contradictions`` are those within the
    log.
    """

    operation_count: int
    outcomes: Mapping[tuple[str, str], int]
    contradictions: Contradictions

    @property
    def key_count(self) -> int:
        """Number of keys."""
        return sum(self.outcomes.values())


def contradictions_with_table(
    log: LogCounts, report: MergeReport, *, is_emptied: bool, reads_again: bool = False
) -> Contradictions:
    """First operations that contradict the rows of the table, derived from the counts of the merge.

    A key whose last operation is a delete, and which the table does not have, is not in the report. A table
    that was emptied has no rows, whatever rows the merge read.

    Args:
        log: the log's counts.
        report: the merge of its last operations, counted by the first ones.
        is_emptied: whether the source emptied its table before them.
        reads_again: whether the source may give a row again that was applied. An insert of a present key then
            contradicts the table only if the row has other values.
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
    """The error that names some of the keys; ``what`` names the log."""
    return ContradictionError(
        f"{what} contradicts itself: {contradictions}: {_shown(contradictions, samples)}. Nothing was "
        "written. The log may have gaps, or parts of it may be there twice; if that is right, run without "
        "strict"
    )


def log_contradicts_table(
    what: str, target: str, contradictions: Contradictions, samples: Sequence[str]
) -> ContradictionError:
    """The error that names some of the keys; ``what`` names the log."""
    return ContradictionError(
        f"{what} contradicts the rows of {target}: {contradictions}: {_shown(contradictions, samples)}. "
        "Nothing was written. Was part of the log applied before, or does the log not begin with this table? "
        "If the rows are right, run without strict"
    )


def changed_rows(
    what: str, target: str, count: int, samples: Sequence[str], advice: str
) -> ContradictionError:
    """Return the error for rows that changed although their source asserts that rows never change.

    Args:
        what: names the log.
        target: the table in Hive.
        count: number of changed rows.
        samples: some of them, each with its key and values.
        advice: the way on.
    """
    more = f"; and {count - len(samples):,} more" if count > len(samples) else ""
    return ContradictionError(
        f"{what} has {count:,} inserted rows whose keys {target} has with other values: "
        f"{'; '.join(samples)}{more}. Nothing was written. {advice}"
    )


def _shown(contradictions: Contradictions, samples: Sequence[str]) -> str:
    return "; ".join(samples) + (", …" if contradictions.total > len(samples) else "")
