"""The session to use if the caller names none."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mutation_api.errors import ConfigurationError

__all__ = ["given_or_active"]


def given_or_active(spark: SparkSession | None) -> SparkSession:
    """The given session, else this thread's active one.

    Raises:
        ConfigurationError: there is neither.
    """
    session = SparkSession.getActiveSession() if spark is None else spark
    if session is None:
        raise ConfigurationError(
            "there is no active Spark session: start one (SparkSession.builder.getOrCreate(), or "
            "mutation_api.local_session() on this machine), or name one with spark=…"
        )
    return session
