"""The queue of compactions as its workers see it, in memory and on real Hives."""

from __future__ import annotations

import time

import pytest

from metastore_client.client import MetastoreClient
from metastore_client.errors import UnsupportedByServerError
from metastore_client.model import CompactionEnd, CompactionInfo, CompactionType
from tests.contract.test_metastore_tables import MakeTable


def entry_of(metastore: MetastoreClient, database: str, partition: str | None) -> CompactionInfo:
    """The only entry of a partition."""
    (found,) = [
        each
        for each in metastore.show_compactions()
        if each.database == database and each.partition == partition
    ]
    return found


def test_only_hive_4_gives_compactions_to_other_programs(metastore: MetastoreClient, line: str) -> None:
    """Earlier servers lack the call."""
    if line in ("2.3", "3.1"):
        with pytest.raises(UnsupportedByServerError, match="only Hive 4"):
            metastore.next_compaction("host-1", "1", "nobody")
    else:
        assert metastore.next_compaction("host-1", "1", "nobody") is None


def test_a_worker_takes_what_was_requested_for_its_pool(
    metastore: MetastoreClient, line: str, database: str, make_table: MakeTable
) -> None:
    """Nobody else gets it; the queue shows the worker, its transaction's ids and how it ended."""
    if line in ("2.3", "3.1"):
        return
    make_table("t", "ds")
    metastore.add_partitions(database, "t", [("a",), ("b",), ("c",)])
    for name in ("a", "b", "c"):
        assert metastore.compact(database, "t", f"ds={name}", CompactionType.MAJOR, pool=database)
    ends = {"ds=a": CompactionEnd.DONE, "ds=b": CompactionEnd.FAILED, "ds=c": CompactionEnd.REFUSED}
    states = {"ds=a": "ready for cleaning", "ds=b": "failed", "ds=c": "refused"}
    for _ in range(3):
        assert metastore.next_compaction("host-1", "1", f"{database}x") is None
        job = metastore.next_compaction("host-1", "1", database)
        assert job is not None
        assert job.partition is not None
        assert (job.database, job.table, job.type) == (database, "t", CompactionType.MAJOR)
        taken = entry_of(metastore, database, job.partition)
        assert (taken.id, taken.state, taken.worker_id) == (job.id, "working", "host-1")
        assert taken.enqueue_time is not None
        assert abs(taken.enqueue_time / 1000 - time.time()) < 600
        assert not metastore.compact(database, "t", job.partition, CompactionType.MAJOR, pool=database)
        txn_id = metastore.open_txn("u", "host", "agent", compaction=CompactionType.MAJOR)
        job = metastore.compaction_began(job, txn_id, 0, "etl")
        metastore.compaction_ended(job, ends[job.partition], "because")
        metastore.commit_txn(txn_id)
        ended = entry_of(metastore, database, job.partition)
        assert (ended.state, ended.run_as, ended.txn_id) == (states[job.partition], "etl", txn_id)
        if job.partition != "ds=a":
            assert ended.error == "because"
    assert metastore.next_compaction("host-1", "1", database) is None


def test_a_compaction_of_a_dead_worker_can_be_failed(
    metastore: MetastoreClient, line: str, database: str, make_table: MakeTable
) -> None:
    """By what the queue shows of it; then the partition can be compacted again."""
    if line in ("2.3", "3.1"):
        return
    make_table("t")
    assert metastore.compact(database, "t", None, CompactionType.MAJOR, pool=database)
    assert metastore.next_compaction("host-1", "1", database) is not None
    taken = entry_of(metastore, database, None)
    metastore.compaction_ended(metastore.compaction_job(taken), CompactionEnd.FAILED, "its worker died")
    assert entry_of(metastore, database, None).state == "failed"
    assert metastore.compact(database, "t", None, CompactionType.MAJOR, pool=database)
    again = metastore.next_compaction("host-1", "1", database)
    assert again is not None
    metastore.compaction_ended(again, CompactionEnd.FAILED, "done")
