"""Receipts: the number of the last extraction, kept in the log of the source. Pure.

It is written with the removal of log rows, after Hive's commit. So the source has the number of Hive's
position, or the one before it if the run was killed in between. Any other pair means that one side was
restored from a backup: numbers of log rows would be given twice, and what lies between would be missing
without a word.
"""

from __future__ import annotations

from mutation_api.errors import SourcePositionError
from mutation_api.update.progress_mark import ProgressMark
from mutation_api.update.steady_snapshot import repair_advice

__all__ = ["check_bound", "is_acknowledged", "log_is_gone"]


def is_acknowledged(receipt: int | None, mark: ProgressMark, what: str, target: str) -> bool:
    """Whether the source knows of Hive's last extraction; if not, that run was stopped after its commit.

    Args:
        receipt: the number in the log, None if it has none.
        mark: Hive's position.
        what: names source and table in messages.
        target: the table in Hive, for messages.

    Raises:
        SourcePositionError: neither is the case.
    """
    found = receipt or 0
    if found in (mark.extraction - 1, mark.extraction):
        return found == mark.extraction
    side = "The source" if found < mark.extraction else "The table in Hive"
    raise SourcePositionError(
        f"{what}: Hive has applied extraction {mark.extraction}, and the last one that the log of the source "
        f"knows is {receipt or '(none)'}. {side} seems to be restored from an older backup, so changes in "
        f"between are missing. {repair_advice(target)}"
    )


def log_is_gone(what: str, log: str, target: str) -> SourcePositionError:
    """The error for a source that has lost its log."""
    return SourcePositionError(
        f"{what}: the source has no table {log} any more. It seems to be restored from a backup that is "
        f"older than enable, or somebody dropped the log; changes since then are not known. "
        f"{repair_advice(target)}"
    )


def check_bound(mark: ProgressMark, bound: str, what: str) -> None:
    """Raise SourcePositionError if a bound that only grows lies below Hive's position."""
    is_number = mark.bound.isascii() and mark.bound.isdecimal()
    if not is_number or int(bound) < int(mark.bound):
        raise SourcePositionError(
            f"source {what}: Hive's position is transaction {mark.bound[:40]}, and the source is at {bound}. "
            f"The source seems to be restored from an older backup. Nothing was written. {_ADVICE}"
        )


_ADVICE = (
    "To go on, disable incremental update and discard (hive-mutate update disable --discard), then enable it "
    "anew: the first extraction compares the two tables, and makes Hive's equal to the source"
)
