"""Work that is mostly waiting for storage, done side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["CLOSING_BYTES", "Closing", "side_by_side"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

CLOSING_BYTES = 64 * 1024 * 1024
"""Of files that are written and not yet closed. Their buffers are in memory, of large ones only a part."""
LARGEST_SHARE_BYTES = CLOSING_BYTES // 4
"""A larger file counts as this many: no storage holds more of one in memory."""


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """What ``work`` makes of each, in their order; ``threads`` at a time (:attr:`Storage.threads`).

    Raises what the first of them raises, when all have been tried.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


class Closing:
    """Closes files in the background, so that whoever writes need not wait for each.

    Bounded: whoever would exceed the number of threads, or CLOSING_BYTES of files that are not closed, has to
    wait. Starts no thread before it gets its first file.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._room = threading.Condition()
        self._file_count = 0
        self._byte_count = 0
        self._futures: list[Future[None]] = []

    def submit(self, close: Callable[[], None], byte_count: int, threads: int) -> None:
        """Have a file of so many bytes closed; the first call decides how many threads there are.

        Raises what an earlier one raised.
        """
        self._raise_first()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads)
        byte_count = min(byte_count, LARGEST_SHARE_BYTES)
        self._enter(byte_count, threads)
        future = self._pool.submit(close)
        future.add_done_callback(lambda _: self._leave(byte_count))
        self._futures.append(future)

    def finish(self) -> None:
        """Wait for all. Raises what the first of them raised."""
        wait(self._futures)
        try:
            self._raise_first()
        finally:
            self.stop()

    def stop(self) -> None:
        """Wait for what runs; what it raises is not told."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _enter(self, byte_count: int, threads: int) -> None:
        with self._room:
            self._room.wait_for(
                lambda: self._file_count < threads and self._byte_count + byte_count <= CLOSING_BYTES
            )
            self._file_count += 1
            self._byte_count += byte_count

    def _leave(self, byte_count: int) -> None:
        with self._room:
            self._file_count -= 1
            self._byte_count -= byte_count
            self._room.notify()

    def _raise_first(self) -> None:
        for future in self._futures:
            if future.done() and (error := future.exception()) is not None:
                raise error
        self._futures = [future for future in self._futures if not future.done()]
