"""Rebalances by this library, judged by Hive: the same rows, even files, ROW__IDs as of Hive's rebalance."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from pyarrow import orc

from metastore_client.errors import MetastoreError
from metastore_client.model import (
    DataOperationType,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
)
from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api import CompactionError, ConfigurationError, connect
from mutation_api.cli.main import main
from mutation_api.errors import MutationError
from mutation_api.format.event import bucket_property
from mutation_api.storage.local import LocalStorage
from mutation_api.upkeep import partition_compaction
from mutation_api.upkeep.compactor import compact_next, compact_partition
from mutation_api.upkeep.restore import restore_table
from mutation_api.upkeep.verify.verify import verify_table
from tests.fixtures.fix_clock import wait_until
from tests.integration.upkeep.compacted_shop import Died, Shop, begin_as_dead_process, deaths, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LINES = pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)


def filled(shop: Shop, layout: str = "partitioned by (day string)") -> str:
    """Rows in files of different sizes, some of them changed and deleted. Return the partition."""
    shop.create(layout)
    day = "a" if layout else None
    into = f"{shop.name} partition (day='a')" if day else shop.name
    shop.judge.sql(
        f"insert into {into} values (1,'tea',1.5,'2024-01-01 00:00:00.123456789'),(2,null,-0.0,null)"
    )
    shop.append(*range(100, 130), day=day)
    shop.append(3, 4, 5, day=day)
    shop.judge.sql(
        f"insert into {into} select id + 1000, item, price, at from {shop.name} where id > 120 union all "
        f"select id + 2000, item, price, at from {shop.name} where id < 105"
    )
    with pytest.raises(Died), shop.hive.transaction(shop.name) as tx:
        tx.table(shop.name).append(rows_of(777, day=day))
        raise Died
    shop.judge.sql(f"update {shop.name} set item = 'by sql' where id in (3, 104)")
    shop.hive.table(shop.name).delete(where="id in (105, 4)")
    return "day=a" if day else ""


def values(shop: Shop) -> list[str]:
    """The rows that Hive reads, without ROW__IDs."""
    return sorted(repr(row[1:]) for row in shop.rows())


def row_ids(shop: Shop) -> list[tuple[int, int, int]]:
    """The ROW__IDs that Hive reads."""
    return sorted(row[0] for row in shop.rows())  # type: ignore[type-var, misc]


@pytest.mark.feature("compactions by this library")
@LINES
@pytest.mark.parametrize("layout", ["partitioned by (day string)", pytest.param("", marks=pytest.mark.long)])
def test_hive_goes_on_with_even_files(shop: Shop, layout: str) -> None:
    """Write ids stay, and row ids are counted through the files; Hive and the library change the rows."""
    partition = filled(shop, layout)
    before, old = values(shop), row_ids(shop)
    done = compact_partition(shop.metastore, shop.name, partition, kind="rebalance", num_buckets=3)
    assert done.row_count == len(before)
    assert values(shop) == before
    per_file = -(-len(before) // 3)
    expected = [
        (write_id, bucket_property(number // per_file), number) for number, (write_id, _, _) in enumerate(old)
    ]
    assert row_ids(shop) == expected
    shop.judge.clean(shop.name)
    assert shop.directories(partition) == [done.directory]
    files = sorted((shop.root() / partition / str(done.directory)).glob("bucket*"))
    assert [orc.ORCFile(each).nrows for each in files] == [per_file, per_file, len(before) - 2 * per_file]
    assert verify_table(shop.metastore, shop.name).is_sound
    assert compact_partition(shop.metastore, shop.name, partition, kind="rebalance").row_count == len(before)
    assert row_ids(shop) == expected
    shop.judge.clean(shop.name)
    shop.judge.sql(f"update {shop.name} set item = 'x' where id in (1, 110)")
    shop.hive.table(shop.name).delete(where="id in (2, 111)")
    shop.append(2000, day="a" if layout else None)
    assert len(values(shop)) == len(before) - 1
    before = values(shop)
    shop.judge.compact(shop.name, "minor", partition="day='a'" if partition else None)
    assert values(shop) == before
    assert shop.compact(partition) is not None
    shop.judge.sql(f"delete from {shop.name} where id = 112")
    shop.judge.compact(shop.name, "major", partition="day='a'" if partition else None)
    assert len(values(shop)) == len(before) - 1


@pytest.mark.long
@LINES
def test_sorted_rows(shop: Shop) -> None:
    """All rows get the highest write id, and each file has a range of the key; it is refused elsewhere."""
    partition = filled(shop)
    before, highest = values(shop), max(row_ids(shop))[0]
    words = ["--metastore", shop.judge.uri, shop.name, "--engine", "local", "--kind", "rebalance"]
    assert main(["compact", *words, "--buckets", "2", "--sort-by", "item desc", "--sort-by", "id"]) == 0
    assert values(shop) == before
    assert [each[0] for each in row_ids(shop)] == [highest] * len(before)
    rows = sorted(shop.rows(), key=lambda row: row[0])  # type: ignore[arg-type, return-value]
    keys = [(row[2], row[1]) for row in rows]
    assert keys == sorted(
        keys, key=lambda key: (key[0] is None, [-ord(c) for c in str(key[0])] + [0], key[1])
    )
    shop.judge.clean(shop.name)
    shop.judge.sql(f"update {shop.name} set item = 'x' where id = 110")
    assert len(values(shop)) == len(before)
    for kind in ("major", "minor"):
        with pytest.raises(ConfigurationError, match="Only kind='rebalance' gives new ones"):
            compact_partition(shop.metastore, shop.name, partition, kind=kind, sort_by=["id"])
    with pytest.raises(ConfigurationError, match="expected one of id, item, price, at"):
        compact_partition(shop.metastore, shop.name, partition, kind="rebalance", sort_by=["nothing"])
    assert main(["compact", "--metastore", shop.judge.uri, shop.name, "--sort-by", "id"]) == 1


@pytest.mark.long
@LINES
def test_who_writes_at_the_same_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance waits for writers; a change that began before it cannot be committed after it."""
    partition = filled(shop)
    database, table = shop.name.split(".")
    before = values(shop)
    done: list[object] = []
    work = threading.Thread(
        target=lambda: done.append(compact_partition(shop.metastore, shop.name, partition, kind="rebalance"))
    )
    with connect(shop.judge.uri) as other, other.transaction(shop.name) as tx:
        tx.table(shop.name).delete(where="id = 107")
        work.start()
        wait_until(
            lambda: any(
                each.type is LockType.EXCL_WRITE and each.state is LockState.WAITING
                for each in shop.metastore.show_locks(database, table)
            ),
            "the rebalance waits",
        )
        assert not done
    work.join()
    assert done
    assert values(shop) == [each for each in before if "'i107'" not in each]
    shop.judge.clean(shop.name)
    before = values(shop)
    # As Hive's UPDATE: its snapshot is from before the rebalance, its lock from after it.
    late = shop.metastore.open_txn("ann", "host", "agent")
    shop.append(3000, day="a")
    assert compact_partition(shop.metastore, shop.name, partition, kind="rebalance").directory is not None
    shop.metastore.allocate_write_id(late, database, table)
    component = LockComponent(
        LockType.SHARED_WRITE,
        LockLevel.PARTITION,
        database,
        table,
        partition,
        DataOperationType.UPDATE,
        is_transactional=True,
    )
    shop.metastore.lock(LockRequest((component,), late, "ann", "host", "agent"))
    with pytest.raises(MetastoreError, match=r"conflict|[Aa]bort"):
        shop.metastore.commit_txn(late)
    assert len(values(shop)) == len(before) + 1


@pytest.mark.long
@LINES
def test_what_is_refused(shop: Shop) -> None:
    """Tables with buckets, insert-only tables, and what was written above an open id."""
    shop.create("clustered by (id) into 2 buckets")
    shop.append(1, 2)
    shop.append(3)
    with pytest.raises(CompactionError, match="has buckets, and each row stays in the one of its key"):
        compact_partition(shop.metastore, shop.name, kind="rebalance")
    shop.judge.sql(f"drop table {shop.name}")
    shop.create("", "insert_only")
    shop.append(1, 2)
    with pytest.raises(CompactionError, match="is insert-only"):
        compact_partition(shop.metastore, shop.name, kind="rebalance")
    shop.judge.sql(f"drop table {shop.name}")
    shop.create("")
    shop.append(1, 2)
    database, table = shop.name.split(".")
    late = shop.metastore.open_txn("ann", "host", "agent")
    shop.metastore.allocate_write_id(late, database, table)
    shop.append(3)
    rows = shop.rows()
    with pytest.raises(CompactionError, match="may refer to old ones"):
        compact_partition(shop.metastore, shop.name, kind="rebalance")
    assert shop.rows() == rows
    shop.metastore.commit_txn(late)
    assert compact_partition(shop.metastore, shop.name, kind="rebalance").row_count == 3


@pytest.mark.long
@LINES
def test_killed_before_each_step(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows and their ROW__IDs stay, and the next rebalance does the work; a restore undoes it."""
    partition = filled(shop)
    rows, before = shop.rows(), values(shop)
    begin_as_dead_process(monkeypatch)
    steps = [
        (LocalStorage, "stage"),
        (LocalStorage, "publish"),
        (LocalStorage, "publish_directory"),
        (partition_compaction, "check_rebalanced"),
        (ThriftMetastoreClient, "commit_txn"),
    ]

    def work() -> object:
        return compact_partition(shop.metastore, shop.name, partition, kind="rebalance", sort_by=["id"])

    for name in deaths(monkeypatch, steps, work):
        assert shop.rows() == rows, name
        assert not [each for each in shop.directories(partition) if "_v0" in each], name
    shop.judge.time_out_transactions(0)  # that of the last one still has its lock
    monkeypatch.undo()
    compact_partition(shop.metastore, shop.name, partition, kind="rebalance", keep_old=timedelta(days=1))
    assert values(shop) == before
    shop.judge.clean(shop.name)
    restore_table(shop.metastore, shop.name)
    assert shop.rows() == rows
    compact_partition(shop.metastore, shop.name, partition, kind="rebalance", keep_old=timedelta(days=1))
    shop.judge.clean(shop.name)
    shop.append(5000, day="a")
    rows = shop.rows()
    with pytest.raises(CompactionError, match="only be undone while nothing was written since"):
        restore_table(shop.metastore, shop.name)
    assert shop.rows() == rows


@pytest.mark.long
@LINES
def test_requests_by_sql(shop: Shop) -> None:
    """ALTER TABLE … COMPACT 'rebalance' with buckets and an order, taken from the queue."""
    filled(shop)
    before = values(shop)
    shop.judge.sql(
        f"alter table {shop.name} partition (day='a') compact 'rebalance' clustered into 4 buckets "
        "order by id desc"
    )
    done = compact_next(shop.metastore)
    assert done is not None
    assert done.kind == "rebalance"
    assert values(shop) == before
    rows = sorted(shop.rows(), key=lambda row: row[0])  # type: ignore[arg-type, return-value]
    assert [row[1] for row in rows] == sorted((row[1] for row in rows), reverse=True)  # type: ignore[type-var]
    assert len({row[0][1] for row in rows}) == 4  # type: ignore[index]
    shop.judge.clean(shop.name)
    shop.judge.sql(f"alter table {shop.name} partition (day='a') compact 'rebalance' order by id + 1")
    with pytest.raises(MutationError, match="only names of columns"):
        compact_next(shop.metastore)
    assert values(shop) == before
