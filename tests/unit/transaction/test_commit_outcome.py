"""The outcome of a commit, whatever happens to the connection; each rule of the module's table."""

from __future__ import annotations

import pytest

from metastore_client.errors import (
    MetastoreError,
    MetastoreUnavailableError,
    NoSuchTxnError,
    TxnAbortedError,
)
from metastore_client.model import DataOperationType, TxnState
from metastore_client.testing import InMemoryMetastore
from mutation_api.transaction.commit_outcome import COMMIT_RETRY_SECONDS, Outcome, commit_and_find_out
from tests.fixtures.fix_clock import FakeClock

CUT = MetastoreUnavailableError("connection cut", outcome_unknown=True)


@pytest.fixture
def metastore() -> InMemoryMetastore:
    return InMemoryMetastore()


@pytest.fixture
def txn_id(metastore: InMemoryMetastore) -> int:
    """An open transaction that has registered what it wrote."""
    txn_id = metastore.open_txn("us", "here", "")
    metastore.add_dynamic_partitions(txn_id, "default", "t", ["ds=a"], DataOperationType.UPDATE)
    return txn_id


def commit(
    metastore: InMemoryMetastore, clock: FakeClock, txn_id: int, *, has_records: bool = True
) -> tuple[Outcome, MetastoreError | None]:
    return commit_and_find_out(metastore, clock, txn_id, has_records=has_records)


def state(metastore: InMemoryMetastore, txn_id: int) -> TxnState | None:
    return next((t.state for t in metastore.get_open_txns().txns if t.id == txn_id), None)


def test_success_asks_once(metastore: InMemoryMetastore, clock: FakeClock, txn_id: int) -> None:
    """Nothing is looked up when the server answers."""
    assert commit(metastore, clock, txn_id) == (Outcome.COMMITTED, None)
    assert metastore.calls[-1] == "commit_txn" and clock.sleeps == []


def test_the_server_says_aborted(metastore: InMemoryMetastore, clock: FakeClock, txn_id: int) -> None:
    """It is believed at once, and its error is passed on."""
    metastore.abort_txn(txn_id)
    outcome, error = commit(metastore, clock, txn_id)
    assert outcome is Outcome.ABORTED and isinstance(error, (TxnAbortedError, NoSuchTxnError))
    assert clock.sleeps == []


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_answer_is_asked_for_again(
    metastore: InMemoryMetastore, clock: FakeClock, txn_id: int, after: bool
) -> None:
    """Whether the commit had arrived or not: in the end it is committed."""
    metastore.fail_next("commit_txn", CUT, after=after, times=1)
    assert commit(metastore, clock, txn_id)[0] is Outcome.COMMITTED
    assert state(metastore, txn_id) is None


def test_aborted_while_the_line_was_cut(metastore: InMemoryMetastore, clock: FakeClock, txn_id: int) -> None:
    """The second answer, or the list of transactions, decides."""
    metastore.abort_txn(txn_id)
    metastore.fail_next("commit_txn", CUT)
    assert commit(metastore, clock, txn_id)[0] is Outcome.ABORTED


@pytest.mark.parametrize(("has_records", "expected"), [(True, Outcome.UNKNOWN), (False, Outcome.ABORTED)])
def test_unknown_to_the_server_from_the_start(
    metastore: InMemoryMetastore, clock: FakeClock, txn_id: int, has_records: bool, expected: Outcome
) -> None:
    """Another client committed or aborted it; without records nothing was visible in either case."""
    metastore.commit_txn(txn_id)
    metastore.fail_next("commit_txn", NoSuchTxnError("gone, and its record cleaned away"))
    assert commit(metastore, clock, txn_id, has_records=has_records)[0] is expected


def test_a_server_that_cannot_commit_is_made_to_abort(
    metastore: InMemoryMetastore, clock: FakeClock, txn_id: int
) -> None:
    """After the bound nothing may be committed any more."""
    metastore.fail_next("commit_txn", MetastoreError("internal error"), times=1000)
    assert commit(metastore, clock, txn_id)[0] is Outcome.ABORTED
    assert state(metastore, txn_id) is TxnState.ABORTED
    assert sum(clock.sleeps) == pytest.approx(COMMIT_RETRY_SECONDS)
    assert max(clock.sleeps) <= 10


@pytest.mark.parametrize("call", ["get_open_txns", "abort_txn"])
def test_unknown_if_the_server_cannot_be_asked_or_told(
    metastore: InMemoryMetastore, clock: FakeClock, txn_id: int, call: str
) -> None:
    """The outcome is unknown; the transaction is as it was, and the first cause is passed on."""
    metastore.fail_next("commit_txn", CUT, times=1000)
    metastore.fail_next(call, CUT, times=1000)
    outcome, error = commit(metastore, clock, txn_id)
    assert (outcome, error) == (Outcome.UNKNOWN, CUT)
