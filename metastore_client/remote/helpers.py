"""Threads that make calls beside their caller, and end when nothing has been asked of them for a while.

A thread has a connection of its own, for which a server keeps a thread, too. So a client that does nothing
keeps none but its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Helpers", "done"]

IDLE_SECONDS = 2.0
"""A thread that waits so long for work ends."""

_Work = tuple[Callable[[], Any], "Future[Any]"]


class Helpers:
    """Some threads, made when they are needed.

    Args:
        most: number of threads.
        at_end: called by each thread before it ends.
    """

    def __init__(self, most: int, at_end: Callable[[], None]) -> None:
        self._most = most
        self._at_end = at_end
        self._changed = threading.Condition()
        self._work: deque[_Work] = deque()
        self._waiting = 0
        self._is_closed = False
        self._threads: set[threading.Thread] = set()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Let a thread make a call, as soon as one is free; until then the future can be cancelled."""
        future: Future[Any] = Future()
        with self._changed:
            self._work.append((call, future))
            if self._waiting >= len(self._work):
                self._changed.notify()
            elif len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, name="metastore-call", daemon=True)
                self._threads.add(thread)
                thread.start()
        return future

    def close(self) -> None:
        """End the threads, and wait for them."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            call, future = work
            if future.set_running_or_notify_cancel():
                _settle(future, call)
        self._at_end()

    def _next(self) -> _Work | None:
        """What to do; None: nothing for a while, or no more."""
        with self._changed:
            while not self._work:
                self._waiting += 1
                is_told = not self._is_closed and self._changed.wait(IDLE_SECONDS)
                self._waiting -= 1
                if not self._work and (self._is_closed or not is_told):
                    self._threads.discard(threading.current_thread())
                    return None
            return self._work.popleft()


def done(call: Callable[[], Any]) -> Future[Any]:
    """A call that has been made, and its result or error."""
    future: Future[Any] = Future()
    _settle(future, call)
    return future


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    """Make a call, and give a future its result or error."""
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
