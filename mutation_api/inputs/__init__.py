"""Change sources: logs of operations as tools for change data capture write them, one file per format."""

from mutation_api.inputs.ingest import Following, ingest
from mutation_api.inputs.ingest_report import IngestedTable, IngestReport
from mutation_api.inputs.reduce import Contradictions, ReducedLog, reduce_operations, reduced_log
from mutation_api.inputs.source import (
    OPERATION,
    POSITION,
    Batch,
    ChangeSource,
    Position,
    SourceTable,
    TableOperations,
)

__all__ = [
    "OPERATION",
    "POSITION",
    "Batch",
    "ChangeSource",
    "Contradictions",
    "Following",
    "IngestReport",
    "IngestedTable",
    "Position",
    "ReducedLog",
    "SourceTable",
    "TableOperations",
    "ingest",
    "reduce_operations",
    "reduced_log",
]
