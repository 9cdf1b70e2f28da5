"""Rows go to the tasks that they name, whichever version of Spark hashes."""

from __future__ import annotations

import numpy as np
import pyspark.sql.functions as sf
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from mutation_api.spark import tasks as tasks_module
from mutation_api.spark.tasks import _hashes, numbers_for, to_tasks

MOST_TRIED = 100_000
"""A million hashes take some hundredths of a second."""


@pytest.mark.parametrize("tasks", [1, 2, 3, 8, 200, 4096])
def test_every_task_has_a_number_of_its_own(tasks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many numbers as tasks, and few are tried for each."""
    tried = []

    def counted(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        tried.append(len(numbers))
        return _hashes(numbers)

    monkeypatch.setattr(tasks_module, "_hashes", counted)
    numbers_for.cache_clear()
    numbers = numbers_for(tasks)
    assert sum(tried) <= MOST_TRIED
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
