"""Beats, what counts as lost, and that nothing is evaluated after stop."""

from __future__ import annotations

import threading

import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import HeartbeatResult
from metastore_client.testing import InMemoryMetastore
from mutation_api.errors import ClientError, LockLostError, TransactionAbortedError
from mutation_api.transaction.heartbeat import Heartbeat
from tests.fixtures.fix_clock import FakeClock, wait_until

TIMEOUT_SECONDS = 300.0


class _HungMetastore(InMemoryMetastore):
    """Answers beats only after it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def heartbeat_txn_range(self, first: int, last: int) -> HeartbeatResult:
        self.release.wait(60)
        return HeartbeatResult()


@pytest.fixture
def metastore() -> InMemoryMetastore:
    return InMemoryMetastore()


def _heartbeat(
    metastore: InMemoryMetastore, clock: FakeClock, lost: list[ClientError], jitter: float = 0.5
) -> Heartbeat:
    txn_id = metastore.open_txn("u", "h", "")
    return Heartbeat(metastore, txn_id, TIMEOUT_SECONDS, clock, lost.append, jitter=lambda: jitter)


def _beats(metastore: InMemoryMetastore) -> int:
    return metastore.calls.count("heartbeat_txn_range")


def test_three_beats_per_timeout_the_first_one_jittered(
    metastore: InMemoryMetastore, clock: FakeClock
) -> None:
    """The first beat comes after a part of the interval, the others a third of the server's timeout apart."""
    heartbeat = _heartbeat(metastore, clock, [])
    heartbeat.start()
    for expected, seconds in enumerate((50, 100, 100), start=1):
        clock.wait_for_waiters(2)
        clock.advance(seconds - 1)
        assert _beats(metastore) == expected - 1
        clock.advance(1)
        wait_until(lambda n=expected: _beats(metastore) == n, f"beat {expected}")
    heartbeat.stop()


@pytest.mark.parametrize(
    ("end", "error", "text"),
    [
        ("abort_txn", TransactionAbortedError, "was aborted"),
        ("commit_txn", LockLostError, "another client ended it"),
    ],
)
def test_an_ended_transaction_is_lost_once(
    metastore: InMemoryMetastore, clock: FakeClock, end: str, error: type[ClientError], text: str
) -> None:
    """Aborted or unknown: lost, reported once, and no beat follows."""
    lost: list[ClientError] = []
    heartbeat = _heartbeat(metastore, clock, lost)
    getattr(metastore, end)(1)
    assert not heartbeat.beat()
    heartbeat.beat()
    assert [type(e) for e in lost] == [error]
    assert text in str(heartbeat.lost)


def test_a_failed_beat_is_repeated_soon(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """A broken connection is not a loss; the next try comes after a tenth of the interval."""
    lost: list[ClientError] = []
    heartbeat = _heartbeat(metastore, clock, lost)
    metastore.fail_next("heartbeat_txn_range", MetastoreUnavailableError("connection cut"))
    heartbeat.start()
    clock.wait_for_waiters(2)
    clock.advance(50)
    wait_until(lambda: _beats(metastore) == 1, "the failing beat")
    clock.wait_for_waiters(2)
    clock.advance(10)
    wait_until(lambda: _beats(metastore) == 2, "the repetition")
    heartbeat.stop()
    assert lost == []


def test_silence_for_most_of_the_timeout_is_a_loss(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """After 0.8 of the timeout without success the job must stop, before the reaper can strike."""
    lost: list[ClientError] = []
    metastore.fail_next("heartbeat_txn_range", MetastoreUnavailableError("connection cut"), times=1000)
    heartbeat = _heartbeat(metastore, clock, lost)
    heartbeat.start()
    clock.wait_for_waiters(2)
    clock.advance(0.8 * TIMEOUT_SECONDS - 1)
    wait_until(lambda: _beats(metastore) >= 1, "a failing beat")
    clock.wait_for_waiters(2)
    assert lost == []
    clock.advance(1)
    wait_until(lambda: bool(lost), "the loss")
    assert isinstance(lost[0], LockLostError)
    assert "240 s" in str(lost[0])
    assert "connection cut" in str(lost[0])


def test_a_hung_connection_is_a_loss(clock: FakeClock) -> None:
    """A call that does not return raises nothing; the loss is still reported."""
    lost: list[ClientError] = []
    metastore = _HungMetastore()
    heartbeat = _heartbeat(metastore, clock, lost, jitter=0.0)
    heartbeat.start()
    clock.wait_for_waiters(1)
    clock.advance(0.8 * TIMEOUT_SECONDS)
    wait_until(lambda: bool(lost), "the loss")
    metastore.release.set()
    assert "could not reach the metastore" in str(lost[0])


def test_an_answer_after_stop_is_not_looked_at(metastore: InMemoryMetastore, clock: FakeClock) -> None:
    """A beat under way during the commit learns that the transaction is gone; that is not a loss."""
    lost: list[ClientError] = []
    heartbeat = _heartbeat(metastore, clock, lost)
    metastore.commit_txn(1)
    heartbeat.stop()
    heartbeat.beat()
    assert lost == []
    assert heartbeat.lost is None
