"""Memory that a task has freed, back to the system: its Python process lives on, for the next task."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable

import pyarrow as pa

__all__ = ["give_back"]


def give_back() -> None:
    """Have Arrow's allocator and the C library's keep nothing that is free.

    Else each keeps what a task needed at its peak, and pieces of it that no later task's requests fit into:
    processes grow from task to task.
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
