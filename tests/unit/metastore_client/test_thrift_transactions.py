"""Requests of transactions and their repetition; tests with real servers are in contract and integration."""

from __future__ import annotations

from typing import Any

import pytest

from metastore_client._thrift.gen import ttypes
from metastore_client.errors import InvalidRequestError, MetastoreUnavailableError
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.remote.thrift_answers import Answer
from tests.unit.metastore_client.scripted_metastore import Scripted, break_line


def lock_request(**changes: object) -> LockRequest:
    component = LockComponent(
        LockType.SHARED_WRITE, LockLevel.TABLE, "d", "t", None, DataOperationType.UPDATE
    )
    values = {
        "components": (component,),
        "txn_id": 1,
        "user": "u",
        "hostname": "h",
        "agent_info": "a",
        **changes,
    }
    return LockRequest(**values)  # type: ignore[arg-type]


def test_what_a_server_reads_differently_when_it_is_left_out_is_sent(scripted: Scripted) -> None:
    """The conflict check of 4.x at commit, and that we know insert-only tables."""
    sent: list[Any] = []

    def keep(name: str, *arguments: Any, **_: object) -> Any:
        sent.append(arguments[0])
        storage = ttypes.StorageDescriptor(cols=[], numBuckets=-1)
        table = ttypes.Table("t", "d", sd=storage, partitionKeys=[], parameters={})
        return Answer(ttypes.GetTableResult(table=table), name)

    scripted.client._call = keep  # type: ignore[method-assign]
    scripted.client.commit_txn(7)
    scripted.client.get_table("D", "T")
    commit, get_table = sent
    assert (commit.txnid, commit.exclWriteEnabled) == (7, False)
    assert (get_table.dbName, get_table.tblName, get_table.capabilities.values) == ("d", "t", [1, 2])


def test_a_broken_line_is_tried_once_more_for_reads_and_never_for_locks_and_commits(
    scripted: Scripted,
) -> None:
    """As often as configured; the error says that the call may have worked."""
    scripted.answers += [break_line] * 4
    for call in (
        lambda: scripted.client.show_locks("d", "t"),
        lambda: scripted.client.lock(lock_request()),
        lambda: scripted.client.commit_txn(1),
    ):
        with pytest.raises(MetastoreUnavailableError) as caught:
            call()
        assert caught.value.outcome_unknown
    assert scripted.calls == ["show_locks", "show_locks", "lock", "commit_txn"]


@pytest.mark.parametrize(
    "request_",
    [
        lock_request(txn_id="1"),
        lock_request(txn_id=1 << 63),
        lock_request(user=None),
        lock_request(components=()),
    ],
)
def test_a_lock_request_of_wrong_types_is_not_sent(scripted: Scripted, request_: LockRequest) -> None:
    """Generated code would send half of it, and the server hang up."""
    with pytest.raises(InvalidRequestError):
        scripted.client.lock(request_)
    assert scripted.lines == []
