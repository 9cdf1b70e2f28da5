"""What an engine is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.merge_rules import MergeRules
from mutation_api.client.transaction import Transaction
from mutation_api.local.local_options import LocalOptions
from mutation_api.storage.location import Location

__all__ = ["MergeFiles", "MergeTask"]


@dataclass(frozen=True)
class MergeTask:
    """A merge of files into a table.

    Attributes:
        table_name: ``database.table``.
        files: the source; all have the same columns.
        format_name: format of the files; None: what the name of each tells.
        keys: key columns.
        rules: what happens to rows.
        null_safe: see :func:`mutation_api.merge_into`.
        missing_columns: likewise.
        write_unchanged: likewise.
        prune_buckets: likewise.
        is_dry_run: only report.
        read_bytes_max: size of the table's files that the local engine reads; None: any.
        local: settings of the local engine.
    """

    table_name: str
    files: Sequence[Location]
    format_name: str | None
    keys: Sequence[str]
    rules: MergeRules
    null_safe: bool
    missing_columns: str
    write_unchanged: bool
    prune_buckets: bool
    is_dry_run: bool
    read_bytes_max: int | None
    local: LocalOptions


class MergeFiles(Protocol):
    """Merges in an open transaction, or reports what that would do."""

    def __call__(self, transaction: Transaction) -> MergeReport: ...
