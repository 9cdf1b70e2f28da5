"""A Spark job that keeps a Hive table of products: insert, update and delete in one transaction.

    python -m examples.spark_job [METASTORE_URI]

Without an address, a metastore is started for the run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyspark.sql.functions as sf

from examples.local import PrintLoss, create_table, metastore_address
from mutation_api import MutatorClientBuilder, apply_changes, local_spark_session, read_table

TABLE = "default.products"


def main(arguments: Sequence[str]) -> int:
    """Load three products, then change them."""
    with metastore_address(arguments) as uri, local_spark_session() as spark:
        create_table(uri, TABLE, "id bigint, name string, price decimal(10,2)", "shelf string", "id", 2)
        builder = MutatorClientBuilder().metastore(uri).lock_failure_listener(PrintLoss())
        builder.add_sink_table("default.products", create_partitions=True)
        with builder.build() as client:
            with client.new_transaction() as transaction:
                first = spark.createDataFrame(
                    [
                        (1, "saw", "12.50", "tools"),
                        (2, "rake", "9.90", "garden"),
                        (3, "hoe", "7.00", "garden"),
                    ],
                    "id bigint, name string, price string, shelf string",
                )
                inserts = first.withColumn("price", sf.col("price").cast("decimal(10,2)"))
                print(apply_changes(transaction, TABLE, inserts.withColumn("operation", sf.lit("insert"))))

            with client.new_transaction() as transaction:
                rows = read_table(transaction, TABLE, spark=spark)
                # Garden tools become dearer, the saw is deleted, a spade is added: all in one DataFrame.
                dearer = rows.where("shelf = 'garden'").withColumn(
                    "price", (sf.col("price") * sf.lit("1.1").cast("decimal(2,1)")).cast("decimal(10,2)")
                )
                gone = rows.where("name = 'saw'")
                spade = spark.sql("SELECT 4L id, 'spade' name, 19.90 price, 'garden' shelf")
                changes = (
                    dearer.withColumn("operation", sf.lit("update"))
                    .unionByName(gone.withColumn("operation", sf.lit("delete")))
                    .unionByName(spade.withColumn("operation", sf.lit("insert")), allowMissingColumns=True)
                )
                print(apply_changes(transaction, TABLE, changes, verify_row_ids=True))

            with client.new_transaction() as transaction:
                read_table(transaction, TABLE, spark=spark).drop("ROW__ID").orderBy("id").show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
