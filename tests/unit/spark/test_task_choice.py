"""Rows go to the tasks that they name, whichever version of Spark hashes."""

from __future__ import annotations

import time

import pyspark.sql.functions as sf
import pytest
from pyspark.sql import SparkSession

from mutation_api.spark.tasks import numbers_for, to_tasks


@pytest.mark.parametrize("tasks", [1, 2, 3, 8, 200, 4096])
def test_every_task_has_a_number_of_its_own(tasks: int) -> None:
    """As many numbers as tasks, found quickly."""
    numbers_for.cache_clear()
    started = time.monotonic()
    numbers = numbers_for(tasks)
    assert time.monotonic() - started < 1
    assert len(set(numbers)) == tasks
    assert all(0 <= number < 2**31 for number in numbers)


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [1, 3, 40])
def test_spark_sends_rows_where_they_want(spark: SparkSession, tasks: int) -> None:
    """Spark's own hash decides, with adaptive execution as the session has it; no task is empty."""
    wanted = (sf.col("id") % tasks).cast("int")
    rows = spark.range(500).withColumn("wanted", wanted)
    found = to_tasks(rows, tasks, sf.col("wanted")).select("wanted", sf.spark_partition_id()).distinct()
    assert sorted(map(tuple, found.collect())) == [(task, task) for task in range(tasks)]
