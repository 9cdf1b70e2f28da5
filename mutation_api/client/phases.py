"""Phases: how long each step of a transaction took."""

from __future__ import annotations

from mutation_api.client.clock import Clock

__all__ = ["Phases"]


class Phases:
    """Seconds by the name of a phase; each begins when the one before it ends."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._started = clock.now()

    def restart(self) -> None:
        """The first phase begins now."""
        self._started = self._clock.now()

    def end(self, name: str) -> None:
        """A phase ends."""
        now = self._clock.now()
        self.seconds[name] = now - self._started
        self._started = now
