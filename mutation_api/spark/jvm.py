"""Access to objects of Spark's JVM that PySpark keeps private. No other module accesses them.

Spark's public API does not show which columns an expression reads, whether it is deterministic, or how large
a cached DataFrame is, and it converts bytes to strings on the way to Python. A Spark Connect session has no
local JVM: functions that take a session or a DataFrame then raise ConfigurationError.

The session to use is found here if the caller does not pass one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.types import StructType

from mutation_api.errors import ConfigurationError


def spark_context(spark: SparkSession) -> SparkContext:
    """Return the session's context."""
    _refuse_connect(spark)
    return spark.sparkContext


def jvm_of(context: SparkContext) -> Any:
    """Return the root of Java's packages in py4j."""
    return context._jvm


def jvm_of_process() -> Any | None:
    """Return the JVM of this process, even if its context was stopped, or None if there was none."""
    return SparkContext._jvm


def hadoop_configuration(context: SparkContext) -> Any:
    """Return Hadoop's Configuration with the session's ``spark.hadoop.*``."""
    return context._jsc.hadoopConfiguration()


def sql_parser(spark: SparkSession) -> Any:
    """Return Spark's SQL parser."""
    _refuse_connect(spark)
    return spark._jsparkSession.sessionState().sqlParser()


def sql_state(condition: str) -> str | None:
    """Return the SQLSTATE of a condition such as ``DIVIDE_BY_ZERO``. None if Spark has no such condition."""
    jvm = jvm_of_process()
    try:
        found = None if jvm is None else jvm.org.apache.spark.SparkThrowableHelper.getSqlState(condition)
    except Py4JError:  # the JVM has ended
        return None
    return found if found is None else str(found)


def analyzed_plan(frame: DataFrame) -> Any:
    """Return the resolved logical plan."""
    _refuse_connect(frame.sparkSession)
    return frame._jdf.queryExecution().analyzed()


def estimated_bytes(frame: DataFrame) -> int:
    """Return Spark's estimate of the DataFrame's size, which is exact for cached rows."""
    _refuse_connect(frame.sparkSession)
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def is_surely_empty(frame: DataFrame) -> bool:
    """Return True if Spark knows without a job that the DataFrame has no rows."""
    _refuse_connect(frame.sparkSession)
    most = frame._jdf.queryExecution().optimizedPlan().maxRows()
    return bool(most.isDefined()) and int(str(most.get())) == 0


def plan_kinds(frame: DataFrame) -> set[str]:
    """Return the kinds of the nodes of the optimised logical plan, such as ``Project``."""
    _refuse_connect(frame.sparkSession)
    return set(_kinds(frame._jdf.queryExecution().optimizedPlan()))


def _kinds(plan: Any) -> Iterator[str]:
    yield str(plan.nodeName())
    children = plan.children()
    for i in range(children.size()):
        yield from _kinds(children.apply(i))


def raw_bytes(frame: DataFrame) -> RDD[bytes]:
    """Return the values of a DataFrame's only column, which is binary, for tasks in Python.

    Rejected alternatives: ``frame.rdd``, which converts bytes to strings on the way (measured: 2.5 s of CPU
    per 100 MB), and mapInArrow, which would pass as many values at once as a batch of short rows has.
    """
    context = spark_context(frame.sparkSession)
    binary = jvm_of(context).org.apache.spark.sql.Encoders.BINARY()
    return RDD(getattr(frame._jdf, "as")(binary).toJavaRDD(), context, NoOpSerializer())


def frame_of_batches(spark: SparkSession, batches: Sequence[pa.RecordBatch], schema: StructType) -> DataFrame:
    """Return a DataFrame of Arrow batches, for Spark versions without such a ``createDataFrame``."""
    context = spark_context(spark)
    jvm = jvm_of(context)
    stream = context._serialize_to_jvm(
        batches,
        ArrowStreamSerializer(),
        lambda path: jvm.PythonSQLUtils.readArrowStreamFromFile(path),
        lambda: jvm.ArrowIteratorServer(),
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(stream, schema.json(), spark._jsparkSession), spark)


def running_batch(frame: DataFrame, number: int) -> tuple[str, str] | None:
    """Return the query whose batch this DataFrame is, within ``foreachBatch``. None elsewhere.

    Returns:
        The query's identifier, which its checkpoint contains, and the input of the batch, as the checkpoint's
        offset log stores it. The string is the same if the batch runs again after a crash.
    """
    context = spark_context(frame.sparkSession)
    query_id = context.getLocalProperty("sql.streaming.queryId")
    if query_id is None:
        return None
    jvm = jvm_of(context)
    running = frame.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    log = running.get(jvm.java.util.UUID.fromString(query_id)).offsetLog()
    offsets = log.get(number)
    if offsets.isEmpty():
        return None
    written = jvm.java.io.ByteArrayOutputStream()
    log.serialize(offsets.get(), written)
    return query_id, str(written.toString())


def _refuse_connect(spark: SparkSession) -> None:
    if getattr(spark, "_jsparkSession", None) is None:
        raise ConfigurationError(
            "a Spark Connect session cannot be used: change sets and snapshots are jobs over RDDs, which it "
            "does not support. Start a classic session (without SparkSession.builder.remote() and "
            "SPARK_REMOTE)"
        )


def given_or_active(spark: SparkSession | None) -> SparkSession:
    """Return the given session, or this thread's active session if it is None.

    Raises:
        ConfigurationError: If there is no session.
    """
    session = SparkSession.getActiveSession() if spark is None else spark
    if session is None:
        raise ConfigurationError(
            "there is no active Spark session. Start one (SparkSession.builder.getOrCreate(), or "
            "mutation_api.local_spark_session() on this machine), or pass one with spark=…"
        )
    return session
