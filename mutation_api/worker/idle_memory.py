"""Returns freed memory to the system."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable

import pyarrow as pa

__all__ = ["give_back"]


def give_back() -> None:
    """Make Arrow's allocator and the C library's return their free memory to the system.

    Otherwise each keeps the peak memory of a file or a task, in pieces into which later requests may not fit.
    A process then grows from file to file, and a long-lived Python process of Spark from task to task.
    """
    pa.default_memory_pool().release_unused()
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], object]:
    """``malloc_trim`` of glibc; a function without effect where it is missing, as on macOS and Windows."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return trim
    return lambda _: None
