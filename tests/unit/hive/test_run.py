"""``hive.run``: a transaction that loses a race is run again, in a new snapshot; no other one is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import ColumnInfo, TxnState
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import (
    CommitOutcomeUnknownError,
    ConfigurationError,
    DuplicateKeyError,
    LockLostError,
    LockNotAcquiredError,
    MutationError,
    TransactionAbortedError,
    TransactionStateError,
    WriteConflictError,
)
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_transaction import HiveTransaction
from mutation_api.transaction import transaction as transaction_module
from mutation_api.transaction.attempts import Attempts
from mutation_api.transaction.commit_outcome import Outcome
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import FakeClock
from tests.support.left_threads import no_thread_is_left

NAME = "default.counters"
TIMEOUT_SECONDS = 300.0


@pytest.fixture
def server_clock() -> FakeClock:
    """The clock of the metastore; that of :func:`clock` is the one of the pauses."""
    return FakeClock()


@pytest.fixture
def metastore(tmp_path: Path, server_clock: FakeClock) -> InMemoryMetastore:
    """A metastore with a table of one row."""
    metastore = InMemoryMetastore(
        tmp_path, capabilities=HIVE_4_1, clock=server_clock.now, txn_timeout_seconds=TIMEOUT_SECONDS
    )
    columns = (ColumnInfo("k", "int"), ColumnInfo("n", "bigint"))
    create_acid_table(metastore, NAME, columns, clustered_by=["k"], num_buckets=2)
    with connect(metastore) as hive, hive.transaction(NAME) as tx:
        tx.table(NAME).append(one(0))
    return metastore


@pytest.fixture
def attempts(clock: FakeClock) -> Callable[[int], Attempts]:
    """Make attempts without real pauses."""
    return lambda count: Attempts(count, clock=clock)


def one(n: int) -> pa.Table:
    """Return a row of the table."""
    return pa.table({"k": pa.array([1], pa.int32()), "n": pa.array([n], pa.int64())})


def add(tx: HiveTransaction, n: int = 1) -> int:
    """Add to the counter by a merge; return what was there."""
    table = tx.table(NAME)
    (found,) = table.scan(["n"]).to_arrow()["n"].to_pylist()
    merge = table.merge(one(n), on=["k"])
    merge.when_matched_update({"n": pc.field("target", "n") + pc.field("source", "n")}).execute()
    return int(found)


def value(hive: Hive) -> list[int]:
    """Return the counter."""
    with hive.snapshot(NAME) as view:
        return [int(n) for n in view.table(NAME).scan(["n"]).to_arrow()["n"].to_pylist()]


Make = Callable[[int], Attempts]


def test_a_function_runs_once_if_nobody_is_first(metastore: InMemoryMetastore, attempts: Make) -> None:
    """Its result is returned after the commit."""
    with connect(metastore) as hive:
        assert hive.run(add, NAME, attempts=attempts(5)) == 0
        assert hive.run(lambda tx: tx.txn_id, NAME.upper(), insert_only=True) > 0
        assert hive.run(lambda tx: tx.table(NAME).scan().count(), read=[NAME]) == 1
        assert value(hive) == [1]


def test_the_second_to_commit_runs_again(
    metastore: InMemoryMetastore, attempts: Make, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It then sees what the first one wrote; nothing of the lost transaction stays."""
    found: list[int] = []

    def slow(tx: HiveTransaction) -> int:
        found.append(add(tx))
        if len(found) <= 2:
            other.run(lambda first: add(first, 10), NAME)
        return tx.txn_id

    with (
        connect(metastore, write_lock="optimistic") as hive,
        connect(metastore, write_lock="optimistic") as other,
    ):
        with no_thread_is_left():
            winner = hive.run(slow, NAME, attempts=attempts(3))
        assert found == [0, 10, 20]
        assert value(hive) == [21]
    assert len(clock.sleeps) == 2
    assert 0 <= clock.sleeps[0] <= 0.5
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "transaction on default.counters: attempt 1 of 3 failed" in warnings[0].getMessage()
    assert "WriteConflictError: " in warnings[0].getMessage()
    assert "changed default/counters and committed first" in warnings[0].getMessage()
    states = {txn.id: txn.state for txn in metastore.get_open_txns().txns}
    assert winner not in states
    assert set(states.values()) == {TxnState.ABORTED}


@pytest.mark.thorough
def test_the_last_conflict_is_raised(metastore: InMemoryMetastore, attempts: Make) -> None:
    """With the number of attempts; what others wrote stays, and nothing of the loser."""
    calls: list[int] = []

    def slow(tx: HiveTransaction) -> None:
        calls.append(add(tx, 100))
        other.run(add, NAME)

    with (
        connect(metastore, write_lock="optimistic") as hive,
        connect(metastore, write_lock="optimistic") as other,
    ):
        with pytest.raises(WriteConflictError) as caught:
            hive.run(slow, NAME, attempts=attempts(4))
        assert caught.value.__notes__ == ["transaction on default.counters: 4 of 4 attempts were made"]
        assert calls == [0, 1, 2, 3]
        assert value(hive) == [4]


def test_a_lock_that_others_hold_is_asked_for_again(
    metastore: InMemoryMetastore, attempts: Make, clock: FakeClock
) -> None:
    """The function is not called before the lock is granted."""
    with connect(metastore) as holding, connect(metastore, lock_timeout_seconds=0.05) as hive:
        held = holding.transaction(NAME).begin()

        def jitter() -> float:
            if len(clock.sleeps) == 2:
                held.abort()
            return 1.0

        with pytest.raises(LockNotAcquiredError) as caught:
            hive.run(add, NAME, attempts=attempts(2))
        assert caught.value.__notes__ == ["transaction on default.counters: 2 of 2 attempts were made"]
        clock.sleeps.clear()
        assert hive.run(add, NAME, attempts=Attempts(9, clock=clock, jitter=jitter)) == 0
        assert clock.sleeps == [0.5, 1.0, 2.0]
        assert value(hive) == [1]


@pytest.mark.thorough(1)
@pytest.mark.parametrize(
    ("end", "expected"), [("reap", TransactionAbortedError), ("commit_txn", LockLostError)]
)
def test_a_transaction_that_was_ended_from_outside_runs_again(
    metastore: InMemoryMetastore,
    attempts: Make,
    clock: FakeClock,
    server_clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    end: str,
    expected: type[MutationError],
) -> None:
    """By the server's reaper, after its timeout, or by another client; its rows are not visible."""
    calls: list[int] = []

    def paused(tx: HiveTransaction) -> int:
        calls.append(add(tx))
        if len(calls) == 1:
            server_clock.advance(TIMEOUT_SECONDS + 1)
            if end == "reap":
                assert tx.txn_id in metastore.reap()
            else:
                metastore.commit_txn(tx.txn_id)
        return calls[-1]

    with connect(metastore) as hive:
        assert hive.run(paused, NAME, attempts=attempts(2)) == 0
        assert value(hive) == [1]
    assert (calls, len(clock.sleeps)) == ([0, 0], 1)
    assert f"s: {expected.__name__}: " in caplog.text


def test_an_unknown_outcome_is_not_run_again(
    metastore: InMemoryMetastore, attempts: Make, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit may have been made, as here."""
    calls: list[int] = []

    def commit_and_lose_track(server: InMemoryMetastore, _: Any, txn_id: int, **options: Any) -> Any:
        server.commit_txn(txn_id)
        return Outcome.UNKNOWN, MetastoreUnavailableError("gone", outcome_unknown=True)

    monkeypatch.setattr(transaction_module, "commit_and_find_out", commit_and_lose_track)
    with connect(metastore) as hive:
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            hive.run(lambda tx: calls.append(add(tx)), NAME, attempts=attempts(5))
        assert (calls, clock.sleeps, getattr(caught.value, "__notes__", [])) == ([0], [], [])
        assert value(hive) == [1]


@pytest.mark.parametrize("error", [KeyError("mine"), DuplicateKeyError("two rows"), KeyboardInterrupt()])
def test_an_error_of_the_function_is_not_followed_by_another_attempt(
    metastore: InMemoryMetastore, attempts: Make, clock: FakeClock, error: BaseException
) -> None:
    """The transaction is aborted."""

    def wrong(tx: HiveTransaction) -> None:
        add(tx)
        raise error

    with connect(metastore) as hive:
        with pytest.raises(type(error)):
            hive.run(wrong, NAME, attempts=attempts(5))
        assert (value(hive), clock.sleeps) == ([0], [])
        assert metastore.show_locks() == []


def test_what_the_function_committed_itself_is_not_done_twice(
    metastore: InMemoryMetastore, attempts: Make, clock: FakeClock
) -> None:
    """A race that is lost after the commit is a mistake of the program; after an abort it is run again."""

    def commits(tx: HiveTransaction) -> None:
        add(tx)
        tx.commit()
        raise LockNotAcquiredError("of another transaction")

    calls: list[int] = []

    def aborts(tx: HiveTransaction) -> int:
        calls.append(add(tx, 10))
        tx.abort()
        if len(calls) < 3:
            raise TransactionAbortedError("of another transaction")
        return len(calls)

    with connect(metastore) as hive:
        with pytest.raises(TransactionStateError, match="Let run\\(\\) commit") as caught:
            hive.run(commits, NAME, attempts=attempts(5))
        assert isinstance(caught.value.__cause__, LockNotAcquiredError)
        assert (value(hive), clock.sleeps) == ([1], [])
        assert hive.run(aborts, NAME, attempts=attempts(5)) == 3
        assert (value(hive), calls) == ([1], [1, 1, 1])


def test_arguments_are_checked_first(metastore: InMemoryMetastore) -> None:
    """No transaction is begun."""
    with connect(metastore) as hive:
        before = len(metastore.calls)
        with pytest.raises(ConfigurationError, match="Pass it first, then the tables"):
            hive.run(NAME, add)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="got 0, expected an integer"):
            hive.run(add, NAME, attempts=0)
        with pytest.raises(ConfigurationError, match="at least one table"):
            hive.run(add)
        assert len(metastore.calls) == before
    with pytest.raises(TransactionStateError, match="closed"):
        hive.run(add, NAME)
