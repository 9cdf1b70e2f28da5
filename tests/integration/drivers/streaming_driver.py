"""A streaming query that goes on until it is killed, or has read all files.

    python -m tests.integration.drivers.streaming_driver METASTORE_URI DATABASE FILES CHECKPOINT

Prints a line before its query starts and one for each batch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mutation_api import local_spark_session
from tests.integration.streams.stream_shop import sink_of, started


def main(uri: str, database: str, files: str, checkpoint: str) -> int:
    with local_spark_session("stream", settings={"spark.sql.session.timeZone": "UTC"}) as spark:
        print("starting", flush=True)
        sink = sink_of(uri, database, lambda report: print(report.number, flush=True), "shop")
        query = started(spark, sink, Path(files), Path(checkpoint))
        sink.await_termination(query)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
