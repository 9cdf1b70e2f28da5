"""Attempts: run a whole transaction again after a lost race. This module defines the errors that allow this,
and the pauses.

A race is lost if another transaction committed first, if the lock was not granted, or if the transaction was
ended from outside, for example after its timeout. In each case no change of the attempt is visible, and a new
transaction reads a new snapshot. All other errors end the attempts: an unknown outcome may be a commit, and
wrong data stays wrong.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from mutation_api.errors import (
    ConfigurationError,
    LockLostError,
    LockNotAcquiredError,
    TransactionAbortedError,
)
from mutation_api.transaction.clock import Clock, SystemClock

LOST_RACES = (TransactionAbortedError, LockNotAcquiredError, LockLostError)
"""The errors after which the same work may run again. WriteConflictError is a TransactionAbortedError."""

_DOUBLINGS_MAX = 60
"""The maximum number of times that a pause doubles. More would exceed the range of a float."""

_T = TypeVar("_T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attempts:
    """The attempts at a transaction that may lose a race, and the pauses in between.

    A pause is a random part of the longest one, so that the losers of a race do not meet again.

    Attributes:
        count: the maximum number of attempts, at least 1.
        first_pause_seconds: the longest pause after the first attempt. It doubles with each further attempt.
        max_pause_seconds: the limit of all pauses.
        clock: the clock for the pauses; for tests.
        jitter: a function that returns the part of the longest pause, from 0 to 1.
    """

    count: int = 1
    first_pause_seconds: float = 0.5
    max_pause_seconds: float = 30.0
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    jitter: Callable[[], float] = field(default=random.random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise ConfigurationError(
                f"attempts: not a number of attempts: got {self.count!r}, expected an integer of at least 1. "
                "1 means that nothing is repeated"
            )
        if not 0 <= self.first_pause_seconds <= self.max_pause_seconds:
            raise ConfigurationError(
                f"attempts: the pauses do not fit: got first_pause_seconds={self.first_pause_seconds!r} and "
                f"max_pause_seconds={self.max_pause_seconds!r}, expected 0 or more, and the first one not "
                "above the other. Change one of them"
            )

    @classmethod
    def of(cls, given: int | Attempts) -> Attempts:
        """Return the attempts for an argument, which may also be just their number.

        Raises ConfigurationError if it is neither.
        """
        return given if isinstance(given, Attempts) else cls(given)

    def longest_pause(self, number: int) -> float:
        """Return the limit of the pause after attempt ``number``, in seconds."""
        doubled = self.first_pause_seconds * 2.0 ** min(number - 1, _DOUBLINGS_MAX)
        return min(doubled, self.max_pause_seconds)

    def run(self, what: str, attempt: Callable[[int], _T]) -> _T:
        """Call a function until it returns, and return its result.

        Each failed attempt that is followed by another one is logged as a warning.

        Args:
            what: the work, for messages.
            attempt: a function that does the work in a separate transaction, and ends it. Its argument is
                the number of the attempt, from 1.

        Raises:
            LOST_RACES: The error of the last attempt, if all attempts lost a race.
            Other errors: As ``attempt`` raises them. After the first attempt, a note of the error contains
                the number of attempts.
        """
        for number in itertools.count(1):
            try:
                return attempt(number)
            except Exception as error:
                if number == self.count or not isinstance(error, LOST_RACES):
                    if number > 1:
                        error.add_note(f"{what}: {number} of {self.count} attempts were made")
                    raise
                pause = self.jitter() * self.longest_pause(number)
                _log.warning(
                    "%s: attempt %d of %d failed, the next one begins in %.1f s: %s: %s",
                    what,
                    number,
                    self.count,
                    pause,
                    type(error).__name__,
                    error,
                )
            self.clock.sleep(pause)
        raise AssertionError("the loop has no end")


def check_function(function: object) -> None:
    """Refuse a function for :meth:`Attempts.run` that would return before its work is done.

    Raises ConfigurationError.
    """
    lazy = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if not callable(function) or any(is_lazy(function) for is_lazy in lazy):
        raise ConfigurationError(
            f"not a function that may run in a transaction: got {function!r}, expected a function without "
            "async and yield. Pass it first, then the tables"
        )
