"""Memory that was freed, back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable

import pyarrow as pa

__all__ = ["give_back"]


def give_back() -> None:
    """Have Arrow's allocator and the C library's keep nothing that is free.

    Else each keeps what a file or a task needed at its peak, and pieces of it that no later request fits
    into: a process grows from file to file, and one of Spark's, which lives on, from task to task.
    """
    pa.default_memory_pool().release_unused()
    _trim()(0)


@functools.cache
def _trim() -> Callable[[int], object]:
    """``malloc_trim`` of glibc; nothing where there is none, as on macOS and Windows."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
        return trim
    return lambda _: None
