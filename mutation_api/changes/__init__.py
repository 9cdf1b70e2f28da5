"""From what should be true of a table's rows to operations on ROW__IDs."""

from mutation_api.changes.duplicates import first_by
from mutation_api.changes.merge import MergeInto, merge_into
from mutation_api.changes.merge_report import MergeCounts, MergeReport

__all__ = [
    "MergeCounts",
    "MergeInto",
    "MergeReport",
    "first_by",
    "merge_into",
]
