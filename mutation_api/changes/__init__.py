"""From what should be true of a table's rows to operations on ROW__IDs."""

from mutation_api.changes.duplicates import first_by
from mutation_api.changes.merge import MergeInto, merge_into
from mutation_api.changes.reduce import Contradictions, ReducedLog, reduce_operations, reduced_log
from mutation_api.changes.report import MergeCounts, MergeReport

__all__ = [
    "Contradictions",
    "MergeCounts",
    "MergeInto",
    "MergeReport",
    "ReducedLog",
    "first_by",
    "merge_into",
    "reduce_operations",
    "reduced_log",
]
