"""Work that is mostly waiting for storage, done side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["Closing", "side_by_side"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_WAITING_FOR_EACH_THREAD = 2


def side_by_side(work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int) -> list[_Result]:
    """What ``work`` makes of each, in their order; ``threads`` at a time (:attr:`Storage.threads`).

    Raises what the first of them raises, when all have been tried.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
    return [future.result() for future in futures]


class Closing:
    """Closes files in the background, so that whoever writes need not wait for each.

    Bounded: where more than a few wait for each thread, the next one has to wait, too. Starts no thread
    before it gets its first file.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._room = threading.Semaphore()
        self._futures: list[Future[None]] = []

    def submit(self, close: Callable[[], None], threads: int) -> None:
        """Have ``close`` called; the first call decides how many threads there are.

        Raises what an earlier one raised.
        """
        self._raise_first()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(threads)
            self._room = threading.Semaphore(threads * _WAITING_FOR_EACH_THREAD)
        self._room.acquire()
        future = self._pool.submit(close)
        future.add_done_callback(lambda _: self._room.release())
        self._futures.append(future)

    def finish(self) -> None:
        """Wait for all. Raises what the first of them raised."""
        wait(self._futures)
        try:
            self._raise_first()
        finally:
            self.stop()

    def stop(self) -> None:
        """Start nothing more and wait for what runs."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def _raise_first(self) -> None:
        for future in self._futures:
            if future.done() and not future.cancelled() and (error := future.exception()) is not None:
                raise error
        self._futures = [future for future in self._futures if not future.done()]
