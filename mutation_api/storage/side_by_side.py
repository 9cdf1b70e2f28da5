"""Work that mostly waits for storage, done in parallel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["BACKGROUND_BYTES", "Background", "side_by_side"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

BACKGROUND_BYTES = 64 * 1024 * 1024
"""Bound for files that are written but not closed. Their buffers are in memory, of large ones only a part."""
LARGEST_SHARE_BYTES = BACKGROUND_BYTES // 4
"""A larger file counts as this many bytes: no storage holds more of a file in memory."""


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """The results of ``work`` for all items, in their order; ``threads`` at a time (:attr:`Storage.threads`).

    Raises the error of the first item that failed, after all have been tried.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


class Background:
    """Work for which a writer need not wait: mostly the closing of files.

    It is bounded: :meth:`submit` waits if the number of threads, or BACKGROUND_BYTES of files that are not
    closed, would be exceeded. No thread starts before the first work.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._changed = threading.Condition()
        self._submitted_count = 0
        self._unfinished_count = 0
        self._byte_count = 0
        self._errors: dict[int, BaseException] = {}

    def submit(self, work: Callable[[], None], byte_count: int, threads: int) -> None:
        """Do work on a file of this many bytes in the background; the first call sets the number of threads.

        Raises the error of an earlier work.
        """
        self._raise_first()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads)
        byte_count = min(byte_count, LARGEST_SHARE_BYTES)
        number = self._enter(byte_count, threads)
        self._pool.submit(self._run, work, number, byte_count)

    def finish(self) -> None:
        """Wait for all work. Raises the first error."""
        self.stop()
        self._raise_first()

    def stop(self) -> None:
        """Wait for work that runs; its errors are dropped."""
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
