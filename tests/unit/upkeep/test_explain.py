"""What is said of transactions in every state."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from metastore_client.model import DataOperationType, LockComponent, LockLevel, LockRequest, LockType
from metastore_client.testing import HIVE_3_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError
from mutation_api.upkeep.explain import (
    ABORTED,
    OPEN,
    OVER,
    UNKNOWN,
    TransactionExplanation,
    explain_transaction,
)
from tests.support.client_support import table_info

NOW = float(round(time.time()))
"""Every heartbeat comes at this time."""


@pytest.fixture
def metastore(tmp_path: Path) -> InMemoryMetastore:
    """Hive 3.1 with a table."""
    metastore = InMemoryMetastore(warehouse=tmp_path, capabilities=HIVE_3_1, clock=lambda: NOW)
    metastore.create_table(table_info(partitioned=False, location=(tmp_path / "t").as_uri()))
    (tmp_path / "t").mkdir(exist_ok=True)
    return metastore


def explain(metastore: InMemoryMetastore, txn: int, tables: Sequence[str] = ()) -> TransactionExplanation:
    """What is said at the time of the heartbeats, however long the tests before this one took."""
    return explain_transaction(metastore, txn, tables, now=lambda: NOW)


def locked(metastore: InMemoryMetastore, user: str) -> int:
    """A transaction that asked for a write lock on the table."""
    txn = metastore.open_txn(user, "host", "etl")
    component = LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "default", "t", None, DataOperationType.UPDATE
    )
    metastore.lock(LockRequest((component,), txn, user, "host", "etl"))
    return txn


def test_an_open_transaction_and_the_one_that_waits_for_it(
    metastore: InMemoryMetastore, tmp_path: Path
) -> None:
    """Locks, who holds up whom, write id, staged and published files."""
    holder, waiting = locked(metastore, "ann"), locked(metastore, "bob")
    write_id = metastore.allocate_write_id(holder, "default", "t")
    staged = tmp_path / "t" / f"_mutation_{holder}" / "w" / "0"
    staged.mkdir(parents=True)
    (staged / "file").write_bytes(b"12345")
    published = tmp_path / "t" / f"delta_{write_id:07d}_{write_id:07d}_0000"
    published.mkdir()
    (published / "bucket_00000").write_bytes(b"123")
    found = explain(metastore, holder)
    assert (found.state, found.txn and found.txn.user, len(found.locks)) == (OPEN, "ann", 1)
    assert [lock.txn_id for lock in found.holds_up] == [waiting]
    (table,) = found.tables
    assert (table.table, table.own_id) == ("default.t", write_id)
    sizes = [(d.is_staged, d.file_count, d.byte_count) for d in table.directories]
    assert sizes == [(True, 1, 5), (False, 1, 3)]
    assert "its client is working" in found.advice[0]
    held = explain(metastore, waiting)
    assert held.held_up[0].blocked_by == found.locks[0]
    assert held.advice == (f"it waits for transaction {holder}: hive-mutate explain {holder}",)
    assert json.loads(json.dumps(held.to_dict()))["held_up"][0]["by"]["user"] == "ann"


def test_an_aborted_transaction(metastore: InMemoryMetastore, tmp_path: Path) -> None:
    """It cannot have timed out if its heartbeat is young; maybe if it is old. A sweep removes its files."""
    txn = locked(metastore, "ann")
    (tmp_path / "t" / f"_mutation_{txn}").mkdir()
    metastore.abort_txn(txn)
    found = explain(metastore, txn, ["default.T"])
    assert (found.state, found.locks) == (ABORTED, ())
    assert found.causes[0].startswith("it did not time out")
    assert found.advice == (
        "none of its changes are visible: run its work again",
        "its staged files are no longer needed: hive-mutate sweep default.t",
    )
    later = explain_transaction(metastore, txn, now=lambda: NOW + 1000)
    assert later.causes[0].startswith("maybe a timeout: no heartbeat for 1")


def test_a_client_that_has_missed_a_beat(metastore: InMemoryMetastore) -> None:
    """It is not called at work once it is silent for longer than any client pauses: half of the time-out."""
    txn = locked(metastore, "ann")

    def advice(silent: float) -> tuple[str, ...]:
        return explain_transaction(metastore, txn, now=lambda: NOW + silent).advice

    for fresh in (0, 140, 170):
        assert advice(fresh) == (
            "its client is working: wait, or ask its user; hive-mutate abort would end it",
        )
    (said,) = advice(257)
    assert "its client is probably gone, or cut off" in said
    assert "its last heartbeat was 257 s ago, and a client sends one at least every 150 s" in said
    assert "may abort it in 43 s (hive.txn.timeout is 300 s)" in said
    assert said.endswith(f"hive-mutate abort {txn}")
    (said,) = advice(310)
    assert "may abort it now" in said
    assert "is working" not in advice(742)[0]


def test_a_silent_client_that_waits_for_another(metastore: InMemoryMetastore) -> None:
    """Both are said."""
    holder, waiting = locked(metastore, "ann"), locked(metastore, "bob")
    silent, waits = explain_transaction(metastore, waiting, now=lambda: NOW + 200).advice
    assert "probably gone" in silent
    assert waits == f"it waits for transaction {holder}: hive-mutate explain {holder}"


def test_a_client_that_is_gone(metastore: InMemoryMetastore) -> None:
    """A server without a reaper leaves its locks."""
    txn = locked(metastore, "ann")
    found = explain_transaction(metastore, txn, now=lambda: NOW + 1000)
    assert found.state == OPEN
    assert f"hive-mutate abort {txn}" in found.advice[0]


def test_transactions_that_are_over_or_never_were(metastore: InMemoryMetastore) -> None:
    """The metastore lists neither."""
    txn = metastore.open_txn("u", "h", "")
    metastore.commit_txn(txn)
    assert explain(metastore, txn).state == OVER
    assert explain(metastore, txn + 100).state == UNKNOWN
    with pytest.raises(ConfigurationError, match="ids begin at 1"):
        explain(metastore, 0)


def test_a_table_that_is_gone(metastore: InMemoryMetastore) -> None:
    """It is said, and the rest is told nevertheless."""
    txn = locked(metastore, "ann")
    metastore.drop_table("default", "t", delete_data=False)
    found = explain(metastore, txn)
    assert "does not exist" in str(found.tables[0].reason)
    assert found.state == OPEN
