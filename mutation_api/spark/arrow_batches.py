"""Sizes of the Arrow batches in which Spark passes rows to Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

from mutation_api.spark.session_settings import in_force, users_own

__all__ = ["BATCH_ROWS_MAX", "counted_by_rows"]

BATCH_ROWS_MAX = 4096
"""Maximum rows of a batch whose bytes are not counted: 64 MiB if rows have 16 KiB."""

_MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str(2**31 - 1)


@contextlib.contextmanager
def counted_by_rows(spark: SparkSession) -> Iterator[None]:
    """Let jobs that begin in the block limit batches by rows only, to at most BATCH_ROWS_MAX.

    Spark sums up the bytes of a batch again for each row, which takes longer than writing the row (measured:
    more than half of the time to Python). A user's own limit of bytes turns this off, and a user's lower
    limit of rows is kept. Other queries that the session begins meanwhile get the same batches. Versions of
    Spark that do not count bytes ignore that setting.

    Args:
        spark: the session of the jobs.
    """
    if users_own(spark, _MAX_BYTES) is not None:
        yield
        return
    rows = int(str(spark.conf.get(_MAX_ROWS)))
    limit = min(rows, BATCH_ROWS_MAX) if rows > 0 else BATCH_ROWS_MAX
    with in_force(spark, {_MAX_ROWS: str(limit), _MAX_BYTES: _NO_LIMIT}):
        yield
