"""What an engine is asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mutation_api.changes.merge_report import MergeReport
from mutation_api.changes.merge_rules import MergeRules
from mutation_api.client.past_snapshot import PastSnapshot
from mutation_api.client.transaction import Transaction
from mutation_api.local.local_options import LocalOptions
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.table.snapshot_view import SnapshotView

__all__ = ["CompareStates", "DiffTask", "FileState", "MergeFiles", "MergeTask", "TableState"]


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


@dataclass(frozen=True)
class TableState:
    """The rows of a table that an open snapshot sees."""

    view: SnapshotView
    table_name: str


@dataclass(frozen=True)
class FileState:
    """The rows in a file."""

    file: Location
    format_name: str


@dataclass(frozen=True)
class DiffTask:
    """The comparison of two states of a table.

    Attributes:
        table: the table.
        old: its rows; changes name their ROW__IDs.
        new: what it is compared with.
        past: one of the two states, if it is an earlier one: its history is checked when the files to read
            are chosen.
        keys: key columns.
        operation_column: name of the operation column.
        output: file for the changes; None: they are only counted.
        output_format: its format.
        local: settings of the local engine.
    """

    table: AcidTable
    old: TableState
    new: TableState | FileState
    past: PastSnapshot | None
    keys: Sequence[str]
    operation_column: str
    output: Location | None
    output_format: str | None
    local: LocalOptions


class CompareStates(Protocol):
    """Compares, saves the changes if that is wanted, and counts them by operation."""

    def __call__(self, task: DiffTask) -> Mapping[str, int]: ...
