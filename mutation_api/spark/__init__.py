"""The Spark job: a DataFrame of changes becomes staged files; a snapshot becomes a DataFrame."""

from mutation_api.spark.frame_table import create_table
from mutation_api.spark.local_session import local_session
from mutation_api.spark.read.snapshot_frame import snapshot
from mutation_api.spark.worker_errors import translated_worker_errors
from mutation_api.spark.write.apply_summary import ApplySummary
from mutation_api.spark.write.job import apply_changes

__all__ = [
    "ApplySummary",
    "apply_changes",
    "create_table",
    "local_session",
    "snapshot",
    "translated_worker_errors",
]
