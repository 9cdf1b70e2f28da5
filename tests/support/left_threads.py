"""Whether what a test did has left a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_thread_is_left(seconds: float = 120.0) -> Iterator[None]:
    """Threads that the block started end within some seconds; Spark's JVM may start others at any time.

    :raises AssertionError: with those that are left
    """
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and not _is_of_spark(thread)]
    for thread in left:
        thread.join(seconds)
    assert [thread for thread in left if thread.is_alive()] == []


def _is_of_spark(thread: threading.Thread) -> bool:
    """Py4J serves a connection by which the JVM calls Python; it does so, too, when it has collected a Python
    object that a streaming query of an earlier test gave it.
    """
    owner = getattr(getattr(thread, "_target", None), "__self__", None)
    return type(owner).__module__.startswith("py4j.")
