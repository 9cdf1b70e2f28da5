"""Sizes of the Arrow batches in which Spark passes rows to Python."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from pyspark.sql import SparkSession

__all__ = ["BATCH_ROWS_MAX", "counted_by_rows"]

BATCH_ROWS_MAX = 4096
"""Maximum rows of a batch whose bytes are not counted: 64 MiB if rows have 16 KiB."""

_MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MAX_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str(2**31 - 1)

_guard = threading.Lock()
_in_force: dict[SparkSession, tuple[int, str | None]] = {}
"""By session: the number of running blocks, and the user's own limit of rows, if one was set."""


@contextlib.contextmanager
def counted_by_rows(spark: SparkSession) -> Iterator[None]:
    """Let jobs that begin in the block limit batches by rows only, to at most BATCH_ROWS_MAX.

    Spark sums up the bytes of a batch again for each row, which takes longer than writing the row (measured:
    more than half of the time to Python). A user's own limit of bytes turns this off, and a user's lower
    limit of rows is kept. Other queries that the session begins meanwhile get the same batches.

    Args:
        spark: the session of the jobs.
    """
    with _guard:
        count, rows = _in_force.get(spark, (0, None))
        is_ours = count > 0 or spark.conf.get(_MAX_BYTES, None) is None
        if is_ours:
            _in_force[spark] = count + 1, rows if count else _limit(spark)
    try:
        yield
    finally:
        if is_ours:
            _end(spark)


def _limit(spark: SparkSession) -> str | None:
    """Set the limits. Returns the user's own limit of rows; None if it was not set."""
    before: str | None = spark.conf.get(_MAX_ROWS, None)
    rows = int(str(spark.conf.get(_MAX_ROWS)))
    spark.conf.set(_MAX_ROWS, str(min(rows, BATCH_ROWS_MAX) if rows > 0 else BATCH_ROWS_MAX))
    spark.conf.set(_MAX_BYTES, _NO_LIMIT)
    return before


def _end(spark: SparkSession) -> None:
    with _guard:
        count, rows = _in_force.pop(spark)
        if count > 1:
            _in_force[spark] = count - 1, rows
            return
        spark.conf.unset(_MAX_BYTES)
        if rows is None:
            spark.conf.unset(_MAX_ROWS)
        else:
            spark.conf.set(_MAX_ROWS, rows)
