"""What is explained of transactions, against the server's own tables of locks and transactions."""

from __future__ import annotations

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.client import MetastoreClient
from metastore_client.hive_site import parse_duration_seconds
from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
)
from metastore_client.remote.thrift_client import open_client
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.explain import ABORTED, OPEN, OVER, explain_transaction
from tests.fixtures.fix_judge import LINES

pytestmark = pytest.mark.slow


def _locked(metastore: MetastoreClient, database: str, user: str) -> tuple[int, LockState]:
    """A transaction that asks for the table alone, and the answer."""
    txn = metastore.open_txn(user, "host", "etl")
    component = LockComponent(
        LockType.EXCLUSIVE, LockLevel.TABLE, database, "t", None, DataOperationType.UPDATE
    )
    answer = metastore.lock(LockRequest((component,), txn, user, "host", "etl"))
    return txn, answer.state


@pytest.mark.feature("explaining transactions")
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_who_waits_for_whom(hive_line: HiveJudge, line_database: str) -> None:
    """The lock that another one waits for, as in HIVE_LOCKS; then an abort and a commit."""
    with open_client(hive_line.uri) as metastore:
        create_acid_table(
            metastore, f"{line_database}.t", [ColumnInfo("id", "int")], clustered_by=["id"], num_buckets=2
        )
        holder, granted = _locked(metastore, line_database, "ann")
        waiting, waits = _locked(metastore, line_database, "bob")
        assert (granted, waits) == (LockState.ACQUIRED, LockState.WAITING)
        found = explain_transaction(metastore, waiting)
        (row,) = hive_line.metastore_rows(
            "SELECT HL_LOCK_EXT_ID, HL_BLOCKEDBY_EXT_ID, HL_USER FROM HIVE_LOCKS "
            f"WHERE HL_DB = '{line_database}' AND HL_LOCK_STATE = 'w'"
        )
        (held,) = found.held_up
        assert (str(held.lock.lock_id), held.lock.user) == (row[0], row[2])
        assert held.blocked_by is not None
        assert (str(held.blocked_by.lock_id), held.blocked_by.txn_id) == (row[1], holder)
        assert found.advice == (f"it waits for transaction {holder}: hive-mutate explain {holder}",)
        said = metastore.get_config_value("hive.txn.timeout", "300s")
        (beat,) = hive_line.metastore_rows(f"SELECT TXN_LAST_HEARTBEAT FROM TXNS WHERE TXN_ID = {holder}")
        silent = parse_duration_seconds(said) * 0.9
        late = explain_transaction(metastore, holder, now=lambda: int(beat[0]) / 1000 + silent)
        assert (
            f"its last heartbeat was {silent:.0f} s ago, and a client sends one at least every"
            in late.advice[0]
        )
        other = explain_transaction(metastore, holder)
        assert other.advice[0].startswith("its client is working")
        assert (other.state, [lock.txn_id for lock in other.holds_up]) == (OPEN, [waiting])
        assert [table.reason for table in other.tables] == [None]
        metastore.abort_txn(holder)
        aborted = explain_transaction(metastore, holder)
        if aborted.state == ABORTED:  # a server may forget one that wrote nothing at once
            assert aborted.causes[0].startswith("it did not time out")
        metastore.commit_txn(waiting)
        assert explain_transaction(metastore, waiting).state == OVER
