"""Work that is mostly waiting for storage, done side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["BACKGROUND_BYTES", "Background", "side_by_side"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

BACKGROUND_BYTES = 64 * 1024 * 1024
"""Of files that are written and not yet closed. Their buffers are in memory, of large ones only a part."""
LARGEST_SHARE_BYTES = BACKGROUND_BYTES // 4
"""A larger file counts as this many: no storage holds more of one in memory."""


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """What ``work`` makes of each, in their order; ``threads`` at a time (:attr:`Storage.threads`).

    Raises what the first of them raises, when all have been tried.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


class Background:
    """What whoever writes need not wait for each time: mostly the closing of files.

    Bounded: whoever would exceed the number of threads, or BACKGROUND_BYTES of files that are not closed, has
    to wait. Starts no thread before it gets something to do.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._submitted_count = 0
        self._unfinished_count = 0
        self._byte_count = 0
        self._errors: dict[int, BaseException] = {}

    def submit(self, work: Callable[[], None], byte_count: int, threads: int) -> None:
        """Have work done on a file of this many bytes; the first call decides how many threads there are.

        Raises what an earlier one raised.
        """
        self._raise_first()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads)
        byte_count = min(byte_count, LARGEST_SHARE_BYTES)
        number = self._enter(byte_count, threads)
        self._pool.submit(self._run, work, number, byte_count)

    def finish(self) -> None:
        """Wait for all. Raises what the first of them raised."""
        self.stop()
        self._raise_first()

    def stop(self) -> None:
        """Wait for what runs; what it raises is dropped."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _run(self, work: Callable[[], None], number: int, byte_count: int) -> None:
        error = None
        try:
            work()
        except BaseException as caught:  # raised by the next call
            error = caught
        with self._changed:
            if error is not None:
                self._errors[number] = error
            self._unfinished_count -= 1
            self._byte_count -= byte_count
            self._changed.notify()

    def _enter(self, byte_count: int, threads: int) -> int:
        with self._changed:
            self._changed.wait_for(
                lambda: self._unfinished_count < threads and self._byte_count + byte_count <= BACKGROUND_BYTES
            )
            self._unfinished_count += 1
            self._byte_count += byte_count
            self._submitted_count += 1
            return self._submitted_count

    def _raise_first(self) -> None:
        with self._changed:
            if self._errors:
                raise self._errors[min(self._errors)]
