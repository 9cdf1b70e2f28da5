"""Sends each row of a DataFrame to a task of a given number.

Every version of Spark shuffles by the hash of a column, which is the same for equal values, but leaves some
of eight tasks without rows and gives others three times as many. So a task's number is replaced by a number
whose hash leads to that task.

Source: Spark's HashPartitioning (Murmur3 of the value with seed 42, modulo the number of tasks) and
Murmur3_x86_32.hashInt.
"""

from __future__ import annotations

import functools

import numpy as np
import pyspark.sql.functions as sf
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame

__all__ = ["numbers_for", "to_tasks"]

_SEED = 42
_TRIED_AT_ONCE = 1 << 12


def to_tasks(frame: DataFrame, tasks: int, task: Column) -> DataFrame:
    """Shuffle rows, each to the task whose number it names.

    Args:
        frame: the rows.
        tasks: number of tasks; adaptive execution keeps it.
        task: int from 0 to ``tasks - 1``.
    """
    numbers = sf.array(*[sf.lit(number) for number in numbers_for(tasks)])
    return frame.repartition(tasks, sf.element_at(numbers, task + 1))


@functools.cache
def numbers_for(tasks: int) -> tuple[int, ...]:
    """For each of ``tasks`` tasks the least number that Spark's shuffle sends there."""
    found = np.full(tasks, -1, np.int64)
    start = 0
    while (found < 0).any():
        tried = np.arange(start, start + max(_TRIED_AT_ONCE, tasks), dtype=np.int64)
        task, first = np.unique(_hashes(tried) % tasks, return_index=True)
        is_new = found[task] < 0
        found[task[is_new]] = tried[first[is_new]]
        start += len(tried)
    return tuple(found.tolist())


def _hashes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Spark's Murmur3 of ints, signed."""
    mixed = _rotated(numbers.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    hashed = _rotated(mixed ^ np.uint32(_SEED), 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed ^= np.uint32(4)
    hashed = (hashed ^ (hashed >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashed = (hashed ^ (hashed >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashed ^ (hashed >> np.uint32(16))).view(np.int32).astype(np.int64)


def _rotated(words: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
