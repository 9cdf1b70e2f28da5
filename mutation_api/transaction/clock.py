"""The clock for waits and heartbeats, which tests can advance, and the log of long waits for a lock.

The log has its own name so that the command, or a program, can show these lines and no others. They have
level INFO, since Python prints higher levels even if no log was requested.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

FRESH_SECONDS = 1.0
"""Time for which answers of the metastore about a table or transaction are reused."""


class Clock(Protocol):
    """Monotonic time in seconds, and two ways to let it pass."""

    def now(self) -> float:
        """Return the seconds since some moment in the past; they never decrease."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Return after ``seconds``, or as soon as ``event`` is set; return whether it is set."""
        ...


class SystemClock:
    """The machine's clock. A wait that is longer than the system supports ends after about 292 years."""

    def now(self) -> float:
        """Return the time; see :meth:`Clock.now`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep; see :meth:`Clock.sleep`."""
        time.sleep(min(seconds, threading.TIMEOUT_MAX))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for an event; see :meth:`Clock.wait`."""
        return event.wait(min(seconds, threading.TIMEOUT_MAX))


WAIT_LOG = "mutation_api.transaction.lock.wait"

TELL_AFTER_SECONDS = 3.0
"""Waits of at least this length are logged."""
