"""The choice of the engine for a run. Modules that need pyspark are imported when they are first used.

Importing pyspark alone takes longer than a run with a small log, from reading to commit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mutation_api.cdc.engine import AnySource, Engine, Reading, TargetBytes
from mutation_api.cdc.local_engine import LocalEngine
from mutation_api.cdc.source import (
    LocalBatch,
    LocalChangeSource,
    OperationParts,
    Position,
    ReadWhole,
    SourceTable,
)
from mutation_api.errors import ConfigurationError, InputError
from mutation_api.storage.hadoop_settings import active_spark_context
from mutation_api.write.local_plan import LocalOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mutation_api.cdc.spark_engine import SparkEngine

T = TypeVar("T")


def engine_for(source: AnySource, spark: SparkSession | None, local: LocalOptions | None) -> Engine:
    """Return the engine that a caller requested.

    If neither is given, the active session of this thread is used. Without an active session, this process
    does the work if it can read the source.

    Raises:
        ConfigurationError: If both were requested, if the engine cannot read the source, or if the source
            needs Spark and there is no session.
    """
    if spark is not None and local is not None:
        raise ConfigurationError("spark=… and local=… select different engines: pass only one of them")
    session = _active_session() if spark is None and local is None else spark
    engine: Engine
    if session is None and (local is not None or isinstance(source, LocalChangeSource)):
        engine = LocalEngine(local or LocalOptions())
    else:
        from mutation_api.cdc.spark_engine import SparkEngine  # needs pyspark
        from mutation_api.spark.jvm import given_or_active  # needs pyspark

        engine = SparkEngine(given_or_active(session))
    engine.check(source)
    return engine


@dataclass(frozen=True)
class EngineBySize:
    """Reads sources with little new data in this process, and all others with Spark; chosen in each run.

    Attributes:
        here: the engine of this process.
        small_bytes: the largest size of new input that counts as little.
        start_spark: returns Spark's engine, which is then kept.
    """

    here: LocalEngine
    small_bytes: int
    start_spark: Callable[[], SparkEngine]

    def check(self, source: AnySource) -> None:
        """Do nothing: the engine is chosen when the source is read."""

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        target_bytes: TargetBytes,
    ) -> Reading:
        """Read a source with the engine that fits the size of its new input."""
        if not isinstance(source, LocalChangeSource):
            return self.start_spark().read(source, tables, after, target_bytes)
        if isinstance(source, ReadWhole) and self.reaching(source.byte_count) > self.small_bytes:
            return self.start_spark().read(source, tables, after, target_bytes)
        batch = self.reaching(functools.partial(source.read_local, tables, after))
        if self._is_small(batch, target_bytes):
            return self.here.reading(batch)
        return self.start_spark().reading_in_tasks(batch)

    def reaching(self, look: Callable[[], T]) -> T:
        """Return the result of ``look``; if it cannot reach files, repeat it with Spark's configuration."""
        try:
            return look()
        except InputError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self.start_spark()
            return look()

    def _is_small(self, batch: LocalBatch, target_bytes: TargetBytes) -> bool:
        """Return True if this process can hold the rows that have to be compared.

        A copy of a table is streamed, so its size does not count. If the source emptied the table, its rows
        are compared with all rows of the target, so the size of both counts.
        """
        compared = [each for each in batch.tables if each.is_emptied or not each.is_copy]
        parts = [each.operations for each in compared if isinstance(each.operations, OperationParts)]
        byte_count = sum(each.byte_count for each in parts)
        if byte_count > self.small_bytes:
            return False
        emptied = [each.table for each in batch.tables if each.is_emptied]
        return byte_count + sum(map(target_bytes, emptied)) <= self.small_bytes


def _active_session() -> SparkSession | None:
    """Return the session of the thread. If there is one, pyspark is already imported."""
    if active_spark_context() is None:
        return None
    from pyspark.sql import SparkSession  # already imported

    return SparkSession.getActiveSession()
