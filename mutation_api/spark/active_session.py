"""The session that work runs in where nobody names one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mutation_api.errors import ConfigurationError

__all__ = ["given_or_active"]


def given_or_active(spark: SparkSession | None) -> SparkSession:
    """The session that was given, else the active one of this thread.

    Raises:
        ConfigurationError: neither is there.
    """
    session = SparkSession.getActiveSession() if spark is None else spark
    if session is None:
        raise ConfigurationError(
            "there is no active Spark session: start one (SparkSession.builder.getOrCreate(), or "
            "mutation_api.local_session() on this machine), or name one with spark=…"
        )
    return session
