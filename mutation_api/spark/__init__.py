"""The Spark job: a DataFrame of changes becomes staged files; a snapshot becomes a DataFrame."""

from mutation_api.spark.create_table import create_table
from mutation_api.spark.errors import translated_worker_errors
from mutation_api.spark.job import apply_changes
from mutation_api.spark.read import snapshot
from mutation_api.spark.session import local_session
from mutation_api.spark.summary import ApplySummary

__all__ = [
    "ApplySummary",
    "apply_changes",
    "create_table",
    "local_session",
    "snapshot",
    "translated_worker_errors",
]
