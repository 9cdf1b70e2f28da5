"""The Spark session of the subcommands that need one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from mutation_api.cli.arguments.cluster_arguments import spark_is_given
from mutation_api.spark.local_session import local_session

__all__ = ["spark_session"]


def spark_session(app_name: str) -> SparkSession:
    """The session of the user's Spark (--master, spark-submit, spark-defaults.conf), else a local one."""
    if spark_is_given():
        return SparkSession.builder.appName(app_name).getOrCreate()
    return local_session(app_name)
