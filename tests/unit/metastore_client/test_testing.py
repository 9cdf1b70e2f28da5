"""What the in-memory metastore offers beyond the contract."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from metastore_client.errors import MetastoreUnavailableError, NoSuchTxnError
from metastore_client.model import DataOperationType
from metastore_client.testing import InMemoryMetastore
from tests.fixtures.fix_metastore import acid_table_info


@pytest.mark.parametrize("after", [False, True])
def test_a_call_fails_on_demand_before_or_after_its_effect(after: bool) -> None:
    """As when the request or the answer is lost; the next call works."""
    metastore = InMemoryMetastore()
    txn_id = metastore.open_txn("u", "h", "a")
    metastore.fail_next("abort_txn", MetastoreUnavailableError("cut"), after=after)
    with pytest.raises(MetastoreUnavailableError):
        metastore.abort_txn(txn_id)
    assert len(metastore.get_open_txns().txns) == 1
    if after:
        assert metastore.forget_empty_aborted() == (txn_id,)
    else:
        metastore.commit_txn(txn_id)
    assert metastore.get_open_txns().txns == ()


def test_only_calls_can_fail() -> None:
    """A misspelt name would let a test pass for nothing."""
    with pytest.raises(ValueError, match="no such call"):
        InMemoryMetastore().fail_next("comit_txn", MetastoreUnavailableError("cut"))


def test_calls_are_remembered_in_order() -> None:
    """So that a test can say what was asked and how often."""
    metastore = InMemoryMetastore()
    metastore.commit_txn(metastore.open_txn("u", "h", "a"))
    with pytest.raises(NoSuchTxnError):
        metastore.commit_txn(7)
    assert metastore.calls == ["open_txn", "commit_txn", "commit_txn"]


def test_directories_are_made_in_a_warehouse(tmp_path: Path) -> None:
    """As a server does it; dropping with the data removes them."""
    metastore = InMemoryMetastore(tmp_path)
    metastore.create_table(acid_table_info("default", "t", "ds"))
    metastore.add_partitions("default", "t", [("a b",)])
    assert (tmp_path / "t" / "ds=a b").is_dir()
    metastore.drop_table("default", "t", delete_data=True)
    assert not (tmp_path / "t").exists()


def test_threads_get_different_transactions() -> None:
    """Calls are served one at a time."""
    metastore = InMemoryMetastore()
    ids: list[int] = []

    def work() -> None:
        for _ in range(200):
            txn_id = metastore.open_txn("u", "h", "a")
            metastore.add_dynamic_partitions(txn_id, "d", "t", ["ds=a"], DataOperationType.INSERT)
            metastore.commit_txn(txn_id)
            ids.append(txn_id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ids) == list(range(1, 801))
