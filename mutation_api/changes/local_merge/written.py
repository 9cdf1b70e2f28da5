"""Writes the changes of a merge that was evaluated in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from mutation_api.change_set.apply_summary import ApplySummary
from mutation_api.changes.local_merge.local_plan import LocalMergePlan
from mutation_api.changes.merge_options import CHANGE_COLUMN
from mutation_api.changes.merge_report import MergeReport
from mutation_api.local.apply import apply_arrow
from mutation_api.table.writer_options import WriterOptions

__all__ = ["write_plan"]


def write_plan(
    plan: LocalMergePlan,
    insert_files: int | None,
    options: WriterOptions | None,
    before_writing: Callable[[MergeReport], None] | None,
    write: Callable[..., ApplySummary | None] = apply_arrow,
) -> MergeReport:
    """Evaluate the merge, and write what changes.

    Args:
        plan: the checked merge.
        insert_files: as of :func:`mutation_api.apply_changes`.
        options: as of :func:`mutation_api.apply_changes`.
        before_writing: called with the report before anything is written; an exception ends the merge.
        write: takes the change set as :func:`mutation_api.local.apply.apply_arrow` does.

    Raises: see :attr:`LocalMergePlan.acting` and :func:`mutation_api.local.apply.apply_arrow`.
    """
    report = plan.report(is_dry_run=False)
    if before_writing is not None:
        before_writing(report)
    if not report.total.changed:
        return report
    written = write(
        plan.transaction,
        plan.table.full_name,
        plan.changes(),
        operation_column=CHANGE_COLUMN,
        insert_files=insert_files,
        options=options,
        local=plan.local,
    )
    return dataclasses.replace(report, written=written)
