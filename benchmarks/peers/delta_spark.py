"""delta-spark: MERGE of Delta's jars in a separate Spark session, if there are any for the installed Spark.

The jars are named as Delta's own Python package names them. That package is not installed: it would put an
older pyspark instead of ours.
"""

from __future__ import annotations

import functools

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mutation_api import local_spark_session

DELTA_VERSION = "4.4.1"
NEWEST_SPARK = "4.2.0"
"""Newest pyspark that this version of the Python package delta-spark allows."""
PACKAGE = f"io.delta:delta-spark_{'.'.join(pyspark.__version__.split('.')[:2])}_2.13:{DELTA_VERSION}"

MERGE = """MERGE INTO delta.`{folder}` AS target USING parquet.`{changes}` AS source ON source.id = target.id
WHEN MATCHED AND source.op = 'D' THEN DELETE
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *"""


def version() -> str:
    """The package, and the Spark under it."""
    return f"{PACKAGE} on pyspark {pyspark.__version__}"


def load(folder: str, base: str) -> None:
    """Write a table of the rows in Parquet files. Raises RuntimeError if the jars do not fit this Spark."""
    try:
        _session()
    except PySparkException as error:
        raise RuntimeError(
            f"{PACKAGE} does not start; delta-spark {DELTA_VERSION} is for pyspark <= {NEWEST_SPARK}, and "
            f"{pyspark.__version__} is installed ({type(error).__name__})"
        ) from None
    _session().read.parquet(base).write.format("delta").save(folder)


def merge(folder: str, changes: str) -> None:
    """Merge a Parquet file of changes by id."""
    _session().sql(MERGE.format(folder=folder, changes=changes)).collect()


def files(folder: str) -> list[str]:
    """Parquet files of the newest version."""
    return list(_session().read.format("delta").load(folder).inputFiles())


@functools.cache
def _session() -> SparkSession:
    settings = {
        "spark.driver.memory": "4g",
        "spark.jars.packages": PACKAGE,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    return local_spark_session("delta-spark", master="local[2]", settings=settings)
