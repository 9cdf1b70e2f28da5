"""``hive-mutate ingest`` by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mutation_api.cli.arguments.spark_session import spark_session
from mutation_api.inputs.engines.spark_engine import SparkEngine

__all__ = ["opened"]


@contextmanager
def opened(app_name: str) -> Iterator[SparkEngine]:
    """The engine, while a session is open."""
    with spark_session(app_name) as spark:
        yield SparkEngine(spark)
