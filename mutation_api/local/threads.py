"""Work in several threads, of which the first failure, or the loss of the transaction, stops all."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from mutation_api.change_set.staged_writer import OpenTransaction
from mutation_api.errors import WorkerError

__all__ = ["Watch", "in_turn", "run_all"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_AHEAD = 2
"""Items for each thread that are taken before their results are wanted."""


class Watch:
    """Whether to go on: asked between batches, from any thread.

    Args:
        transaction: its loss stops all threads.
        what: what is being done, for messages.
    """

    def __init__(self, transaction: OpenTransaction, what: str) -> None:
        self._transaction = transaction
        self._what = what
        self._is_stopped = threading.Event()
        transaction.on_lost(lambda _: self.stop())

    def stop(self) -> None:
        """Make :meth:`check` raise."""
        self._is_stopped.set()

    def check(self) -> None:
        """Raise the loss of the transaction; WorkerError if another thread failed."""
        self._transaction.check()
        if self._is_stopped.is_set():
            raise WorkerError(f"{self._what}: stopped, since another part of it failed")


def in_turn(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int, watch: Watch
) -> Iterator[_Result]:
    """The results of ``work`` in the order of the items, which are taken a few ahead.

    Raises the error of the first item that failed; no work runs any more then.
    """
    if threads == 1:
        for item in items:
            watch.check()
            yield work(item)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[_Result]] = deque()
        try:
            source = iter(items)
            while True:
                for item in itertools.islice(source, max(0, _AHEAD * threads - len(waiting))):
                    waiting.append(pool.submit(work, item))
                if not waiting:
                    return
                watch.check()
                yield waiting.popleft().result()
        except BaseException:
            watch.stop()
            for each in waiting:
                each.cancel()
            raise


def run_all(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int, watch: Watch
) -> list[_Result]:
    """The results of ``work`` for all items, in their order.

    Raises the error that came first, when all work has ended.
    """
    if threads == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            pending = set(futures)
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
        except BaseException:
            watch.stop()
            for each in futures:
                each.cancel()
            raise
    return [each.result() for each in futures]
