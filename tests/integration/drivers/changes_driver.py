"""A streaming query that writes what changed in a table into files, until it is killed or has read all of it.

    python -m tests.integration.drivers.changes_driver METASTORE_URI TABLE FOLDER

Prints a line before its query starts.
"""

from __future__ import annotations

import sys

from mutation_api import HiveChangesSource, local_spark_session


def main(uri: str, table: str, folder: str) -> int:
    with local_spark_session("changes", settings={"spark.sql.session.timeZone": "UTC"}) as spark:
        print("starting", flush=True)
        spark.dataSource.register(HiveChangesSource)
        options = {"table": table, "metastore": uri, "since": "beginning", "maxTransactionsPerTrigger": "1"}
        changes = spark.readStream.format("hive_changes").options(**options).load()
        writer = changes.writeStream.format("parquet").option("path", f"{folder}/out")
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
