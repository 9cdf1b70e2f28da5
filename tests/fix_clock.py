"""A clock that tests move; nobody sleeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

__all__ = ["FakeClock", "wait_until"]

WAIT_BOUND_SECONDS = 30.0


class FakeClock:
    """Time passes only by :meth:`advance` and by :meth:`sleep`; waiters wake when their moment comes.

    ``sleeps`` lists what was slept.
    """

    def __init__(self) -> None:
        self.sleeps: list[float] = []
        self._now = 1000.0
        self._changed = threading.Condition()
        self._waiting: dict[int, float] = {}

    def now(self) -> float:
        with self._changed:
            return self._now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        with self._changed:
            self._now += seconds
            self._changed.notify_all()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        with self._changed:
            end = self._now + seconds
            me = threading.get_ident()
            self._waiting[me] = end
            self._changed.notify_all()
            # The event is set without our condition, so look at it now and then; this is real time, not the
            # clock's.
            while not event.is_set() and self._now < end:
                self._changed.wait(0.005)
            del self._waiting[me]
            return event.is_set()

    def wait_for_waiters(self, count: int) -> None:
        """Return when ``count`` threads wait for a moment that is still to come."""
        wait_until(lambda: self._sleeping() >= count, f"{count} threads waiting on the clock")

    def _sleeping(self) -> int:
        with self._changed:
            return sum(end > self._now for end in self._waiting.values())


def wait_until(condition: Callable[[], bool], what: str, bound_seconds: float = WAIT_BOUND_SECONDS) -> None:
    """Return when ``condition()`` is true; fail after the bound."""
    end = time.monotonic() + bound_seconds
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {bound_seconds} s in vain for: {what}")
        pause.wait(0.005)


@pytest.fixture
def clock() -> Iterator[FakeClock]:
    """A clock of the test's own."""
    yield FakeClock()
