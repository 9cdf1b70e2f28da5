"""Aborts that the metastore could not be told, tried again in the background."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import TxnState
from metastore_client.testing import InMemoryMetastore
from mutation_api import connect
from mutation_api.transaction import commit_outcome
from mutation_api.transaction.clock import SystemClock
from tests.fixtures.fix_clock import wait_until
from tests.support.client_support import table_info


class StoppedError(Exception):
    """What the block of a transaction raises."""


@pytest.fixture
def metastore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InMemoryMetastore:
    """With one table; the pauses are short."""
    monkeypatch.setattr(commit_outcome, "FIRST_PAUSE_SECONDS", 0.01)
    metastore = InMemoryMetastore(warehouse=tmp_path)
    metastore.create_table(table_info("t", partitioned=False))
    return metastore


def _go_away(metastore: InMemoryMetastore, times: int) -> None:
    for _ in range(times):
        metastore.fail_next("abort_txn", MetastoreUnavailableError("away"))


@pytest.mark.thorough
@pytest.mark.parametrize("times", [1, 4])
def test_a_failed_transaction_is_aborted_when_the_metastore_is_back(
    metastore: InMemoryMetastore, times: int
) -> None:
    """Its lock is gone, so that the next writer need not wait, and the error of the block stays."""
    _go_away(metastore, times)
    with connect(metastore) as hive:
        with pytest.raises(StoppedError), hive.transaction("default.t") as tx:
            tx.table("default.t").append(pa.table({"id": pa.array([1], pa.int32()), "msg": ["a"]}))
            raise StoppedError
        wait_until(lambda: metastore.show_locks() == [], "the abort")
        (txn,) = metastore.get_open_txns().txns
        assert txn.state is TxnState.ABORTED
        with hive.transaction("default.t") as tx:
            tx.table("default.t").append(pa.table({"id": pa.array([2], pa.int32()), "msg": ["b"]}))
    wait_until(lambda: metastore not in commit_outcome._pending, "the end of the thread")


@pytest.mark.thorough
def test_a_client_is_closed_when_its_aborts_are_done(
    metastore: InMemoryMetastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then its thread needs it; afterwards it is closed at once."""
    closed: list[int] = []
    monkeypatch.setattr(metastore, "close", lambda: closed.append(len(metastore.show_locks())))
    _go_away(metastore, 3)
    hive = connect(metastore)
    with hive.transaction("default.t") as tx:
        tx.abort()
    commit_outcome.close_after_aborts(metastore)
    wait_until(lambda: closed == [0], "the close")
    commit_outcome.close_after_aborts(metastore)
    assert closed == [0, 0]


def test_it_ends_when_the_server_has_given_up(metastore: InMemoryMetastore) -> None:
    """After the time-out of transactions there is nothing left to do."""
    _go_away(metastore, 1000)
    commit_outcome.abort_later(metastore, 1, SystemClock(), 0.05)
    wait_until(lambda: metastore not in commit_outcome._pending, "the end of the thread")
