"""Whether partitions that a merge changes have so many delta directories that a compaction is due."""

from __future__ import annotations

import dataclasses

from mutation_api.acid.layout import DeltaDirectory, parse_directory_name
from mutation_api.changes.merge_report import MergeReport
from mutation_api.errors import DirectoryStateError
from mutation_api.storage.connect import storage_at
from mutation_api.storage.side_by_side import side_by_side
from mutation_api.table.acid_table import AcidTable

__all__ = ["DUE_DIRECTORIES", "with_compactions_due"]

DUE_DIRECTORIES = 50
"""Hive queues a compaction at ten deltas and needs a few minutes; a merge of one row takes twice its time at
about this number (two directories each)."""
LOOKED_AT = 20
"""Partitions whose directories are listed, those with the most changes."""


def with_compactions_due(report: MergeReport, table: AcidTable) -> MergeReport:
    """The report with the partitions that have too many delta directories, as they were before the merge.

    Raises OSError: a directory cannot be listed.
    """
    counts = report.partitions if table.partition_keys else {"": report.total}
    changed = [name for name, each in counts.items() if each.changed and name not in report.new_partitions]
    ranked = sorted(changed, key=lambda name: -counts[name].changed)[:LOOKED_AT]
    if not ranked:
        return report
    threads = storage_at(table.location).threads
    numbers = side_by_side(lambda name: _delta_directories(table, name), ranked, threads)
    due = {name: each for name, each in zip(ranked, numbers, strict=True) if each >= DUE_DIRECTORIES}
    return dataclasses.replace(report, compactions_due=due) if due else report


def _delta_directories(table: AcidTable, partition: str) -> int:
    location = table.partition_location(partition)
    try:
        names = [each.name for each in storage_at(location).list(location) if each.is_directory]
    except FileNotFoundError:
        return 0
    return sum(_is_delta(name, table) for name in names)


def _is_delta(name: str, table: AcidTable) -> bool:
    try:
        return isinstance(parse_directory_name(name, table.version), DeltaDirectory)
    except DirectoryStateError:
        return False
