"""Objects of Spark's JVM that PySpark keeps to itself; all private access to it is here.

Spark's public interface tells neither what an expression reads, nor whether it is deterministic, nor how
large a cached DataFrame is, and it turns bytes into text on their way to Python. A session of Spark Connect
has no JVM at hand: whatever here takes a session or a DataFrame refuses one with ConfigurationError.
"""

from __future__ import annotations

from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from mutation_api.errors import ConfigurationError

__all__ = [
    "analyzed_plan",
    "estimated_bytes",
    "hadoop_configuration",
    "jvm_of",
    "raw_bytes",
    "spark_context",
    "sql_parser",
]


def spark_context(spark: SparkSession) -> SparkContext:
    """The session's context."""
    _refuse_connect(spark)
    return spark.sparkContext


def jvm_of(context: SparkContext) -> Any:
    """The root of Java's packages, as py4j shows them."""
    return context._jvm


def hadoop_configuration(context: SparkContext) -> Any:
    """Hadoop's Configuration, with the session's ``spark.hadoop.*``."""
    return context._jsc.hadoopConfiguration()


def sql_parser(spark: SparkSession) -> Any:
    """Spark's own parser of SQL."""
    _refuse_connect(spark)
    return spark._jsparkSession.sessionState().sqlParser()


def analyzed_plan(frame: DataFrame) -> Any:
    """The resolved logical plan."""
    _refuse_connect(frame.sparkSession)
    return frame._jdf.queryExecution().analyzed()


def estimated_bytes(frame: DataFrame) -> int:
    """Spark's own estimate of the DataFrame's size; exact for rows that are cached."""
    _refuse_connect(frame.sparkSession)
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def raw_bytes(frame: DataFrame) -> RDD[bytes]:
    """The values of a DataFrame's one binary column, as a task in Python takes them.

    Not ``frame.rdd``, which makes texts of bytes on the way (measured: 2.5 s of CPU for each 100 MB); nor
    mapInArrow, which would hand over as many values at once as a batch of short rows may have.
    """
    context = spark_context(frame.sparkSession)
    binary = jvm_of(context).org.apache.spark.sql.Encoders.BINARY()
    return RDD(getattr(frame._jdf, "as")(binary).toJavaRDD(), context, NoOpSerializer())


def _refuse_connect(spark: SparkSession) -> None:
    if getattr(spark, "_jsparkSession", None) is None:
        raise ConfigurationError(
            "a Spark Connect session cannot be used: change sets and snapshots are jobs over RDDs, which it "
            "does not have; start a classic session (no SparkSession.builder.remote(), no SPARK_REMOTE)"
        )
