"""The logger that hears of long waits for a lock.

It has a name of its own so that the command, or a program, can show these lines and no others. They have
level INFO: Python prints what is above it even where nobody has asked for a log.
"""

from __future__ import annotations

__all__ = ["TELL_AFTER_SECONDS", "WAIT_LOG"]

WAIT_LOG = "mutation_api.client.lock.wait"

TELL_AFTER_SECONDS = 3.0
"""A wait of this length is told."""
