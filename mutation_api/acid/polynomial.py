"""Java's 31-polynomial over runs of values of differing length, without a loop over rows. Pure.

``h = 31*h + v`` over a run equals ``sum(v[i] * 31**(end-1-i))``. 31 is odd, hence has an inverse modulo
2**32; with weights ``31**-i`` one cumulative sum over all values serves every run: its difference over a
run, times ``31**(end-1)``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["polynomial"]

_CHUNK_VALUES = 1 << 15
"""Values per step: few enough to stay in the cache and in memory that is not given back between steps."""

_INVERSE_OF_31 = pow(31, -1, 1 << 32)


def polynomial(
    values: Callable[[int, int], np.ndarray], starts: np.ndarray, ends: np.ndarray, seed: int
) -> np.ndarray:
    """Hash runs of values.

    Args:
        values: gives the uint32 values from one position up to another.
        starts: int64, shape (n,), first position of each run, ascending.
        ends: int64, shape (n,), position behind each run; starts[i] <= ends[i] <= starts[i+1].
        seed: value of ``h`` before the first step.

    Returns:
        uint32, shape (n,).
    """
    hashes = np.zeros(len(starts), np.uint32)
    row = 0
    while row < len(starts):
        base = int(starts[row])
        # At least one run a step, however long.
        stop = max(row + 1, int(np.searchsorted(ends, base + _CHUNK_VALUES, "right")))
        first, last = starts[row:stop] - base, ends[row:stop] - base
        hashes[row:stop] = _step(values(base, base + int(last[-1])), first, last, seed)
        row = stop
    return hashes


def _step(values: np.ndarray, starts: np.ndarray, ends: np.ndarray, seed: int) -> np.ndarray:
    inverses, powers = _tables(len(values) + 1)
    sums = np.zeros(len(values) + 1, np.uint32)
    np.cumsum(values * inverses[: len(values)], dtype=np.uint32, out=sums[1:])
    hashes: np.ndarray = (sums[ends] - sums[starts]) * powers[np.maximum(ends - 1, 0)]
    return hashes + np.uint32(seed) * powers[ends - starts] if seed else hashes


def _tables(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers of 1/31 and of 31, at least ``size`` of each."""
    return _COMMON_TABLES if size <= len(_COMMON_TABLES[0]) else _new_tables(size)


def _new_tables(size: int) -> tuple[np.ndarray, np.ndarray]:
    return _powers(_INVERSE_OF_31, size), _powers(31, size)


def _powers(base: int, size: int) -> np.ndarray:
    factors = np.full(size, base, np.uint32)
    factors[0] = 1
    return np.multiply.accumulate(factors)


_COMMON_TABLES = _new_tables(_CHUNK_VALUES + 1)
