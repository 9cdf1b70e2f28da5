"""Which engine goes on with a run. What needs pyspark is imported here, when it is first needed.

pyspark alone takes longer than a small log needs from its reading to the commit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mutation_api.cdc.engine import AnySource, Engine, Reading, TargetBytes
from mutation_api.cdc.local_engine import LocalEngine
from mutation_api.cdc.source import (
    Batch,
    LocalBatch,
    LocalChangeSource,
    OperationParts,
    Position,
    ReadWhole,
    SourceTable,
)
from mutation_api.errors import ConfigurationError, InputError
from mutation_api.storage.hadoop_settings import active_spark_context
from mutation_api.storage.location import Location
from mutation_api.write.local_plan import LocalOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mutation_api.cdc.spark_engine import SparkEngine

__all__ = ["EngineBySize", "check_machines", "each_in_tasks", "engine_for", "in_tasks", "spark_engine"]

T = TypeVar("T")


def engine_for(source: AnySource, spark: SparkSession | None, local: LocalOptions | None) -> Engine:
    """The engine that a caller asked for.

    Without either, it is the active session of this thread; without one, this process if it can read the
    source.

    Raises:
        ConfigurationError: both were asked for; the engine cannot read the source; or the source needs Spark,
            and there is no session.
    """
    if spark is not None and local is not None:
        raise ConfigurationError("spark=… and local=… name different engines: give one of them")
    session = _active_session() if spark is None and local is None else spark
    engine: Engine
    if session is None and (local is not None or isinstance(source, LocalChangeSource)):
        engine = LocalEngine(local or LocalOptions())
    else:
        engine = spark_engine(session)
    engine.check(source)
    return engine


def spark_engine(spark: SparkSession | None) -> SparkEngine:
    """Spark's engine with this session. Raises ConfigurationError: there is none."""
    from mutation_api.cdc.spark_engine import SparkEngine  # needs pyspark
    from mutation_api.spark.jvm import given_or_active  # needs pyspark

    return SparkEngine(given_or_active(spark))


def in_tasks(spark: SparkSession, batch: LocalBatch) -> Batch:
    """The same batch, read by Spark's tasks; its operations are OperationParts.

    Raises:
        ConfigurationError: Spark's machines do not see what is to be read.
    """
    from mutation_api.cdc import spark_engine  # needs pyspark

    return spark_engine.in_tasks(spark, batch)


def each_in_tasks(
    spark: SparkSession, look: Callable[[int], T], count: int, locations: Sequence[Location], what: str
) -> list[T]:
    """What a function finds at the numbers 0 to ``count``, found by Spark's tasks; it is pickled.

    Args:
        spark: the session.
        look: the function.
        count: how many numbers.
        locations: what it reads.
        what: names the work in messages.

    Raises: what the function raises.
    """
    from mutation_api.cdc import spark_engine  # needs pyspark

    return spark_engine.each_in_tasks(spark, look, count, locations, what)


def check_machines(spark: SparkSession, what: str) -> None:
    """Check that all of Spark's machines see this one's folder for temporary files; ``what`` lies there.

    Raises ConfigurationError: they may not.
    """
    from mutation_api.cdc import spark_engine  # needs pyspark

    spark_engine.check_machines(spark, what)


@dataclass(frozen=True)
class EngineBySize:
    """Sources with little new are read in this process, all others by Spark; the choice is made in each run.

    Attributes:
        here: the engine of this process.
        small_bytes: new input up to this size is little.
        start_spark: gives Spark's engine, which stays.
    """

    here: LocalEngine
    small_bytes: int
    start_spark: Callable[[], SparkEngine]

    def check(self, source: AnySource) -> None:
        """See :class:`~mutation_api.cdc.engine.Engine`."""

    def read(
        self,
        source: AnySource,
        tables: Sequence[SourceTable],
        after: Mapping[str, Position],
        target_bytes: TargetBytes,
    ) -> Reading:
        """See :class:`~mutation_api.cdc.engine.Engine`."""
        if not isinstance(source, LocalChangeSource):
            return self.start_spark().read(source, tables, after, target_bytes)
        if isinstance(source, ReadWhole) and self.reaching(source.byte_count) > self.small_bytes:
            spark = self.start_spark()
            return spark.reading(source.read(spark.spark, tables, after))
        batch = self.reaching(functools.partial(source.read_local, tables, after))
        if self._is_small(batch, target_bytes):
            return self.here.reading(batch)
        spark = self.start_spark()
        return spark.reading(in_tasks(spark.spark, batch))

    def reaching(self, look: Callable[[], T]) -> T:
        """What ``look`` finds. If it reaches no files, it looks again with the configuration of Spark."""
        try:
            return look()
        except InputError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            self.start_spark()
            return look()

    def _is_small(self, batch: LocalBatch, target_bytes: TargetBytes) -> bool:
        """Return whether this process can hold what has to be compared.

        A copy of a table is streamed, whatever its size. If the source emptied the table, its rows are
        compared with all rows of the target, so the size of both counts.
        """
        compared = [each for each in batch.tables if each.is_emptied or not each.is_copy]
        parts = [each.operations for each in compared if isinstance(each.operations, OperationParts)]
        byte_count = sum(each.byte_count for each in parts)
        if byte_count > self.small_bytes:
            return False
        emptied = [each.table for each in batch.tables if each.is_emptied]
        return byte_count + sum(map(target_bytes, emptied)) <= self.small_bytes


def _active_session() -> SparkSession | None:
    """The session of the thread. If there is one, pyspark is imported already."""
    if active_spark_context() is None:
        return None
    from pyspark.sql import SparkSession  # which is imported already

    return SparkSession.getActiveSession()
