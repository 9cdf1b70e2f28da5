"""The clock that a client uses, and the log of its waits.

The clock of waits and heartbeats; tests replace it by one that they advance themselves.

The logger that hears of long waits for a lock.

It has a name of its own so that the command, or a program, can show these lines and no others. They have
level INFO: Python prints what is above it even where nobody has asked for a log.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

__all__ = ["FRESH_SECONDS", "TELL_AFTER_SECONDS", "WAIT_LOG", "Clock", "SystemClock"]


FRESH_SECONDS = 1.0
"""What the metastore said of a table or a transaction less than so long ago need not be asked again."""


class Clock(Protocol):
    """Monotonic time in seconds, and the two ways of letting it pass."""

    def now(self) -> float:
        """Seconds since some moment in the past; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Return after ``seconds``, or as soon as ``event`` is set; whether it is set."""
        ...


class SystemClock:
    """The machine's clock. A wait longer than the machine can count ends after some 292 years."""

    def now(self) -> float:
        """See :meth:`Clock.now`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See :meth:`Clock.sleep`."""
        time.sleep(min(seconds, threading.TIMEOUT_MAX))

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """See :meth:`Clock.wait`."""
        return event.wait(min(seconds, threading.TIMEOUT_MAX))


WAIT_LOG = "mutation_api.transaction.lock.wait"

TELL_AFTER_SECONDS = 3.0
"""A wait of this length is told."""
