"""A driver with Spark's default settings, which compiles the code of its queries.

    python -m tests.integration.drivers.default_spark_driver METASTORE_URI APPLIED MERGED FEW_BYTES

Changes the table APPLIED by ``apply_changes`` and the table MERGED by ``merge_into``, and reads both by
``read_table``. FEW_BYTES is the library's setting of what the driver writes without tasks. Prints, as one
JSON object, the rows that the snapshots have, a query over them, and the settings of code generation.
"""

from __future__ import annotations

import json
import sys

import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession

from mutation_api import MutatorClientBuilder, apply_changes, local_spark_session, merge_into, read_table
from mutation_api.spark.job import FEW_BYTES

ROWS = 3000
COLUMNS = ("id", "msg", "price", "day", "tags", "ds")
CODE_GENERATION = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Spark's defaults."""


def rows(spark: SparkSession) -> DataFrame:
    """Rows of several types, with NULLs, in three partitions."""
    return spark.range(0, ROWS, 1, 4).selectExpr(
        "id",
        "if(id % 11 = 0, null, concat('m', id)) msg",
        "cast(id / 4 as decimal(10,2)) price",
        "date_add(date'2020-02-28', cast(id % 400 as int)) day",
        "if(id % 7 = 0, null, array(concat('t', id), 'x')) tags",
        "concat('d', id % 3) ds",
    )


def main(uri: str, applied: str, merged: str, few: str) -> int:
    builder = MutatorClientBuilder().metastore(uri)
    for table in (applied, merged):
        builder.add_sink_table(*table.split("."), create_partitions=True)
    settings = {FEW_BYTES: few, "spark.sql.session.timeZone": "UTC"}
    found = {}
    with (
        local_spark_session("default", master="local[2]", settings=settings) as spark,
        builder.build() as client,
    ):
        given = rows(spark)
        with client.new_transaction() as transaction:
            for table in (applied, merged):
                apply_changes(transaction, table, given.withColumn("operation", sf.lit("insert")))
        with client.new_transaction() as transaction:
            before = read_table(transaction, applied, spark=spark)
            changed = before.where("id % 3 = 1").withColumn("msg", sf.concat(sf.lit("new"), "id"))
            changes = changed.withColumn("operation", sf.lit("update")).unionByName(
                before.where("id % 3 = 2").withColumn("operation", sf.lit("delete"))
            )
            apply_changes(transaction, applied, changes, verify_row_ids=True)
        source = given.where("id % 2 = 0").withColumn("op", sf.expr("if(id % 4 = 0, 'D', 'U')"))
        source = source.withColumn("id", sf.expr("if(id >= 2000, id + 10000, id)"))
        with client.new_transaction() as transaction:
            merge = merge_into(transaction, merged, source=source, on=["id"])
            merge = merge.whenMatched("source.op = 'D'").delete()
            price = "cast(source.price * 2 as decimal(10,2))"
            merge = merge.whenMatched().update({"msg": "concat('new', source.id)", "price": price})
            merge.whenNotMatched("source.op = 'U'").insertAll().execute()
        with client.new_transaction() as transaction:
            for name, table in (("applied", applied), ("merged", merged)):
                frame = read_table(transaction, table, spark=spark)
                shown = frame.selectExpr("id", "msg", "string(price)", "string(day)", "tags[0]", "ds")
                found[name] = sorted(map(list, shown.collect()))
            both = read_table(transaction, applied, spark=spark).alias("a")
            both = both.join(read_table(transaction, merged, spark=spark).alias("m"), "id")
            sums = both.groupBy("a.ds").agg(sf.count("*"), sf.sum("m.price").cast("string"))
            found["joined"] = sorted(map(list, sums.collect()))
        found["settings"] = {name: spark.conf.get(name) for name in CODE_GENERATION}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
