"""Who else is at work where a merge would write, as the metastores of three Hives tell it."""

from __future__ import annotations

import threading

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.model import (
    ColumnInfo,
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockType,
)
from metastore_client.remote.thrift_client import open_client
from mutation_api.merge.preview import ForeignLock, foreign_locks
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.upkeep.create_acid_table import create_acid_table
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_judge import LINES

pytestmark = pytest.mark.slow

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"))
WRITE = LockType.SHARED_WRITE


@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_locks_of_others_are_seen(hive_line: HiveJudge, line_database: str) -> None:
    """Another transaction of ours, and one that locks as Hive's UPDATE of a partition does: with whom they
    wait or whom they do not hinder is the server's affair; a reader is nobody to speak of.
    """
    name = f"{line_database}.t"
    with open_client(hive_line.uri) as metastore:
        is_4 = metastore.capabilities().has_exclusive_write_lock
        create_acid_table(
            metastore, name, COLUMNS, [ColumnInfo("ds", "string")], clustered_by=["id"], num_buckets=2
        )
        metastore.add_partitions(line_database, "t", [["a"], ["b"]])

        def lock(type: LockType, partition: str) -> int:
            txn_id = metastore.open_txn("etl", "elsewhere", "")
            operation = DataOperationType.SELECT if type is LockType.SHARED_READ else DataOperationType.UPDATE
            component = LockComponent(type, LockLevel.PARTITION, line_database, "t", partition, operation)
            metastore.lock(LockRequest((component,), txn_id, "etl", "elsewhere", ""))
            return txn_id

        # Optimistic, so that on Hive 4 others may hold what we hold; on the older ones it changes nothing.
        builder = MutatorClientBuilder().metastore(hive_line.uri).user("us").write_lock("optimistic")
        builder.add_sink_table(line_database, "t").lock_timeout_seconds(60)
        with builder.build() as client:
            first, second = client.new_transaction(), client.new_transaction()
            first.begin()
            assert first.other_locks(name) == ()
            reader, writer = lock(LockType.SHARED_READ, "ds=a"), lock(WRITE, "ds=a")
            begins = threading.Thread(target=second.begin, daemon=True)
            begins.start()
            state = "ACQUIRED" if is_4 else "WAITING"  # a lock waits for a moment before it is granted
            wait_until(
                lambda: [i.state.name for i in first.other_locks(name)] == [state] * 2,
                "the second transaction's lock",
            )
            in_a = foreign_locks(first.other_locks(name), {"ds=a"})
            (whole,) = foreign_locks(first.other_locks(name), {"ds=b"})
            assert ForeignLock(writer, "etl", "elsewhere", "SHARED_WRITE", state, "ds=a") in in_a
            assert (whole.user, whole.type, whole.state, whole.partition) == (
                "us",
                "SHARED_WRITE",
                state,
                None,
            )
            assert set(in_a) >= {whole}
            assert len(in_a) == 2
            for txn_id in (reader, writer):
                metastore.abort_txn(txn_id)
            first.abort()
            begins.join(60)
            assert whole.txn_id is not None
            assert not begins.is_alive()
            second.abort()
