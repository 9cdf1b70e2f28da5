"""A driver with a real session of Spark Connect: what our own functions say to it, a line each.

python -m tests.integration.drivers.connect_driver
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from metastore_client.valid_ids import ValidTxnList
from mutation_api.errors import ConfigurationError
from mutation_api.format.layout import AcidVersion
from mutation_api.spark import jvm
from mutation_api.spark.plan import plan_changes
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable

TABLE = AcidTable(
    database="default",
    name="t",
    location=Location.parse("file:/t"),
    columns=(AcidColumn("id", "bigint"),),
    partition_keys=(),
    num_buckets=1,
    bucket_columns=("id",),
    version=AcidVersion.V1_SPLIT,
    txn_id=7,
)


def main() -> None:
    """Ask each."""
    spark = SparkSession.builder.remote("local[1]").getOrCreate()
    inserts = spark.sql("SELECT 'insert' AS operation, 1L AS id")
    assert inserts.count() == 1, "the session works"
    calls: dict[str, Callable[[], object]] = {
        "spark_context": lambda: jvm.spark_context(spark),
        "sql_parser": lambda: jvm.sql_parser(spark),
        "analyzed_plan": lambda: jvm.analyzed_plan(inserts),
        "estimated_bytes": lambda: jvm.estimated_bytes(inserts),
        "raw_bytes": lambda: jvm.raw_bytes(inserts),
        "plan_changes": lambda: plan_changes(TABLE, inserts, ValidTxnList.parse("6:9223372036854775807::")),
    }
    for name, call in calls.items():
        try:
            call()
            print(f"{name} worked")
        except ConfigurationError as error:
            print(f"{name} refused: {error}")
    spark.stop()


if __name__ == "__main__":
    main()
