"""The benchmark of empty transactions, on a metastore in memory, and its arithmetic."""

from __future__ import annotations

import pytest

from benchmarks.empty_transaction import bare_transactions, case_of, client_of, counts, our_transactions
from benchmarks.measuring.counted_metastore import Call, by_name
from benchmarks.measuring.measure import Result, Usage
from metastore_client.model import ColumnInfo, TableInfo
from metastore_client.testing import InMemoryMetastore


def metastore(folder) -> InMemoryMetastore:
    made = InMemoryMetastore(str(folder))
    made.create_table(
        TableInfo(
            database="default",
            name="empty",
            columns=(ColumnInfo("id", "bigint"),),
            num_buckets=4,
            bucket_columns=("id",),
            parameters={"transactional": "true"},
        )
    )
    return made


def test_transactions_leave_nothing_open(tmp_path) -> None:
    """Ours and the bare calls commit, and take as many ids as there were transactions."""
    server = metastore(tmp_path)
    first = server.get_open_txns().high_watermark
    bare_transactions(server, 3)
    assert server.get_open_txns().high_watermark == first + 3
    with client_of(server) as client:
        our_transactions(client, 2)
    after = server.get_open_txns()
    assert after.high_watermark == first + 5
    assert after.txns == ()
    assert server.show_locks() == []


def test_bare_calls_do_not_wait(tmp_path) -> None:
    """A lock that is not granted at once would make the figures those of waiting."""
    server = metastore(tmp_path)
    with client_of(server) as client, client.new_transaction(), pytest.raises(RuntimeError, match="WAITING"):
        bare_transactions(server, 1)


def test_difference_is_of_one_transaction() -> None:
    """Median over the rounds, each divided by its transactions."""
    ours = Result("ours", [Usage(wall, {"driver": 1.0}, {"driver": 1}, 0) for wall in (1.0, 1.4, 9.0)])
    bare = Result("bare", [Usage(0.4, {"driver": 1.0}, {"driver": 1}, 0) for _ in range(3)])
    calls = [[Call("lock", 0.1), Call("lock", 0.2), Call("open_txns", 0.5)], [Call("lock", 0.1)]]
    case = case_of("a table", [ours, bare], 10, calls)
    assert case["seconds_more"] == 0.1
    assert "100.0 ms more than the bare calls, aim 150 ms" in case["text"]
    assert case["calls"] == {"ours": {"lock": 2, "open_txns": 1}, "bare": {"lock": 1}}
    assert counts(calls[0]) == "3 (2 lock, open_txns)"
    assert by_name(calls[0]) == "open_txns 1 (0.500 s), lock 2 (0.300 s)"
