"""The machine's clock waits as long as it is told, however long that is."""

from __future__ import annotations

import threading

from mutation_api.transaction.clock import SystemClock


def test_a_wait_that_no_machine_can_count() -> None:
    """A server may be set to a timeout of more seconds than a thread can wait; its heartbeat goes on."""
    event = threading.Event()
    timer = threading.Timer(0.05, event.set)
    timer.start()
    assert SystemClock().wait(event, 1e18)
