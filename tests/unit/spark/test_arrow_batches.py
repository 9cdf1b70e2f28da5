"""Limits of Arrow batches while our jobs run, and after."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from mutation_api.spark.frame_table import BATCH_ROWS_MAX, counted_by_rows

pytestmark = [pytest.mark.slow, pytest.mark.tasks]

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


def limits(spark: SparkSession) -> tuple[int, str]:
    return int(spark.conf.get(ROWS)), spark.conf.get(BYTES)


def batch_rows(spark: SparkSession) -> int:
    """The most rows that Spark puts into a batch."""

    def count(batches):
        import pyarrow as pa

        for batch in batches:
            yield pa.record_batch({"rows": pa.array([batch.num_rows])})

    return max(row[0] for row in spark.range(9000).repartition(1).mapInArrow(count, "rows long").collect())


@pytest.mark.parametrize(
    ("set_rows", "in_force"), [(None, BATCH_ROWS_MAX), ("100", 100), ("0", BATCH_ROWS_MAX)]
)
def test_limits_hold_in_the_block_and_are_as_before_afterwards(
    spark: SparkSession, set_rows: str | None, in_force: int
) -> None:
    """Blocks may overlap; an error in one of them changes nothing."""
    if set_rows:
        spark.conf.set(ROWS, set_rows)
    try:
        before = limits(spark)
        with counted_by_rows(spark):
            with pytest.raises(ZeroDivisionError), counted_by_rows(spark):
                1 / 0  # noqa: B018
            assert limits(spark) == (in_force, str(2**31 - 1))
            assert batch_rows(spark) == in_force
        assert limits(spark) == before
        assert spark.conf.get(ROWS, None) == set_rows
        assert spark.conf.get(BYTES, None) is None
    finally:
        spark.conf.unset(ROWS)


def test_who_counts_bytes_goes_on_counting(spark: SparkSession) -> None:
    """A user's limit of bytes stays, and the limit of rows with it."""
    spark.conf.set(BYTES, "1000")
    try:
        before = limits(spark)
        with counted_by_rows(spark):
            assert limits(spark) == before
            assert batch_rows(spark) < 1000
        assert limits(spark) == before
    finally:
        spark.conf.unset(BYTES)
