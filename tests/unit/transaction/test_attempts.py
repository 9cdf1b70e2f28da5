"""Which errors are followed by another attempt, after which pauses, and what is said about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mutation_api.errors import (
    CommitOutcomeUnknownError,
    ConfigurationError,
    ConnectionFailedError,
    DuplicateKeyError,
    LockLostError,
    LockNotAcquiredError,
    TransactionAbortedError,
    TransactionError,
    TransactionStateError,
    WriteConflictError,
)
from mutation_api.transaction.attempts import Attempts, check_function
from tests.fixtures.fix_clock import FakeClock


def failing(*errors: BaseException) -> Callable[[int], int]:
    """Raise one error after the other, then return the number of the attempt."""
    remaining = list(errors)

    def attempt(number: int) -> int:
        if remaining:
            raise remaining.pop(0)
        return number

    return attempt


def attempts(count: int, clock: FakeClock, **options: Any) -> Attempts:
    """Attempts whose pauses are half of the longest ones."""
    return Attempts(count, clock=clock, jitter=lambda: 0.5, **options)


def test_a_lost_race_is_run_again_after_a_pause_that_doubles(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure is a warning with number, cause and pause."""
    errors = (
        WriteConflictError("first"),
        LockNotAcquiredError("held"),
        LockLostError("silence"),
        TransactionAbortedError("reaped"),
    )
    assert attempts(5, clock).run("work", failing(*errors)) == 5
    assert clock.sleeps == [0.25, 0.5, 1.0, 2.0]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4
    assert caplog.messages[0] == (
        "work: attempt 1 of 5 failed, the next one begins in 0.2 s: WriteConflictError: first"
    )
    assert caplog.messages[3].endswith("attempt 4 of 5 failed, the next one begins in 2.0 s: "
                                       "TransactionAbortedError: reaped")  # fmt: skip


def test_pauses_have_a_limit(clock: FakeClock) -> None:
    """The limit is 30 s or the given one, no matter how many attempts there are; a pause is a random part."""
    found = [Attempts().longest_pause(number) for number in (1, 2, 6, 7, 8, 5000)]
    assert found == [0.5, 1.0, 16.0, 30.0, 30.0, 30.0]
    own = attempts(5000, clock, first_pause_seconds=0.0, max_pause_seconds=0.0)
    assert own.run("work", failing(*[LockLostError("x")] * 4999)) == 5000
    parts = [Attempts().jitter() for _ in range(100)]
    assert len(set(parts)) > 1
    assert all(0 <= each <= 1 for each in parts)


def test_the_last_error_says_how_many_attempts_there_were(clock: FakeClock) -> None:
    """It is the last one of them, and there is no pause after it."""
    errors = [WriteConflictError(str(number)) for number in range(4)]
    with pytest.raises(WriteConflictError, match="2") as caught:
        attempts(3, clock).run("work", failing(*errors))
    assert caught.value is errors[2]
    assert caught.value.__notes__ == ["work: 3 of 3 attempts were made"]
    assert len(clock.sleeps) == 2


@pytest.mark.parametrize(
    "error",
    [
        CommitOutcomeUnknownError("lost answer"),
        ConnectionFailedError("gone"),
        TransactionError("refused"),
        TransactionStateError("wrong order"),
        DuplicateKeyError("twice"),
        ConfigurationError("wrong"),
        KeyError("of the function"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_all_other_errors_end_the_attempts(error: BaseException, clock: FakeClock) -> None:
    """At once; if an attempt was before, a note says so."""
    with pytest.raises(type(error)) as first:
        attempts(5, clock).run("work", failing(error))
    assert first.value is error
    assert not hasattr(error, "__notes__")
    assert clock.sleeps == []
    with pytest.raises(type(error)):
        attempts(5, clock).run("work", failing(LockLostError("x"), error))
    assert getattr(error, "__notes__", []) == (
        [] if isinstance(error, KeyboardInterrupt) else ["work: 2 of 5 attempts were made"]
    )
    assert len(clock.sleeps) == 1


def test_one_attempt_repeats_nothing(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    """The error is that of the attempt, and nothing is said about it."""
    error = LockNotAcquiredError("held")
    with pytest.raises(LockNotAcquiredError):
        attempts(1, clock).run("work", failing(error))
    assert (clock.sleeps, caplog.messages, getattr(error, "__notes__", [])) == ([], [], [])


def test_arguments_that_make_no_sense_are_refused() -> None:
    """With the value and what is expected."""
    for count in (0, -1, 1.5, "3", True, None):
        with pytest.raises(ConfigurationError, match=f"got {count!r}, expected an integer"):
            Attempts.of(count)  # type: ignore[arg-type]
    for first, longest in ((-1.0, 5.0), (5.0, 1.0), (float("nan"), 5.0)):
        with pytest.raises(ConfigurationError, match=f"first_pause_seconds={first}"):
            Attempts(first_pause_seconds=first, max_pause_seconds=longest)
    assert Attempts.of(3) == Attempts(3)
    own = Attempts(2, max_pause_seconds=1)
    assert Attempts.of(own) is own


def test_a_function_that_returns_before_its_work_is_done_is_refused() -> None:
    """Its transaction would be committed empty."""

    async def later(tx: object) -> None:
        """Do nothing."""

    def yielding(tx: object) -> Iterator[object]:
        yield tx

    for function in (later, yielding, "sales.orders", None):
        with pytest.raises(ConfigurationError, match="expected a function without async and yield"):
            check_function(function)
    check_function(print)
