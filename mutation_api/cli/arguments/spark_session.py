"""The Spark session of the subcommands that need one."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from mutation_api.spark.local_session import local_session

__all__ = ["spark_session"]


def spark_session(app_name: str) -> SparkSession:
    """The session of the user's configured Spark (spark-submit, spark-defaults.conf), else a local one."""
    if "SPARK_CONF_DIR" in os.environ or "MASTER" in os.environ:
        return SparkSession.builder.appName(app_name).getOrCreate()
    return local_session(app_name)
