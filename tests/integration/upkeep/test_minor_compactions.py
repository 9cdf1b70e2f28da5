"""Minor compactions by this library, judged by Hive; what a change feed reads stays as well."""

from __future__ import annotations

import importlib
import time

import pytest

from metastore_client.model import CompactionEnd
from mutation_api import DirectoryStateError, MutationError, connect
from mutation_api.cdc import AppendRows, hive_sink
from mutation_api.upkeep import partition_compaction
from mutation_api.upkeep.compact import CompactionThreshold, compact_table
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.watermark_table import ensure_watermark_table, read_by_consumers
from tests.integration.upkeep.compacted_shop import Died, Shop, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LINES = pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)


def compact(shop: Shop, partition: str = "") -> str | None:
    """A minor compaction, after which the change feed must be the same as before."""
    before = shop.changes()
    name = shop.compact(partition, kind="minor")
    assert shop.changes() == before
    return name


@pytest.mark.feature("compactions by this library")
@LINES
@pytest.mark.parametrize(
    "buckets", ["", pytest.param("clustered by (id) into 3 buckets", marks=pytest.mark.long)]
)
def test_hive_goes_on_with_joined_deltas(shop: Shop, buckets: str) -> None:
    """Hive reads the same rows of every past, changes them and compacts further, minor and major."""
    shop.create(f"partitioned by (day string) {buckets}")
    into = f"insert into {shop.name} partition (day='a') values"
    shop.judge.sql(f"{into} (1,'tea',1.5,'2024-01-01 00:00:00.123456789'),(2,null,-0.0,null)")
    for number in range(3, 30, 10):
        shop.append(*range(number, number + 10), day="a")
        shop.hive.table(shop.name).delete(where=f"id = {number + 1}")
    with pytest.raises(Died), shop.hive.transaction(shop.name) as tx:
        tx.table(shop.name).append(rows_of(777, day="a"))
        raise Died
    with shop.hive.transaction(
        shop.name
    ) as tx:  # several statements; rows are inserted and deleted in one id
        tx.table(shop.name).append(rows_of(100, 101, day="a"))
        tx.table(shop.name).update(set={"item": "'u'"}, where="id = 100")
        tx.table(shop.name).delete(where="id in (5, 101)")
    shop.judge.sql(f"update {shop.name} set item = 'x' where id in (1, 3)")
    joined = compact(shop, "day=a")
    assert joined is not None
    assert joined.startswith("delta_0000001_0000010_v")
    assert [each.partition("_v")[0] for each in shop.directories("day=a")] == [
        "delete_delta_0000001_0000010",
        "delta_0000001_0000010",
    ]
    assert compact(shop, "day=a") is None
    shop.judge.sql(f"update {shop.name} set item = 'y' where id in (1, 6)")
    shop.append(200, day="a")
    assert compact(shop, "day=a") is not None
    shop.append(201, day="a")
    before, changes = shop.rows(), shop.changes()
    shop.judge.compact(shop.name, "minor", partition="day='a'")
    assert (shop.rows(), shop.changes()) == (before, changes)
    shop.judge.sql(f"delete from {shop.name} where id in (7, 200)")
    assert shop.compact("day=a") is not None
    shop.append(202, day="a")
    shop.judge.sql(f"delete from {shop.name} where id in (8, 201)")
    name = compact(shop, "day=a")
    assert name is not None
    assert any(each.startswith("base") for each in shop.directories("day=a"))
    shop.judge.sql(f"delete from {shop.name} where id in (9, 202)")
    before = shop.rows()
    shop.judge.compact(shop.name, "major", partition="day='a'")
    assert shop.rows() == before


@pytest.mark.long
@LINES
def test_deletes_alone_and_open_transactions(shop: Shop) -> None:
    """Delete deltas are joined without a delta; nothing at or above the first open id is."""
    shop.create("")
    shop.append(*range(1, 10))
    shop.append(10)
    assert shop.compact() is not None
    shop.hive.table(shop.name).delete(where="id = 1")
    shop.hive.table(shop.name).delete(where="id = 2")
    name = compact(shop)
    assert name is not None
    assert name.startswith("delete_delta_0000003_0000004_v")
    shop.append(11)
    with pytest.raises(Died), shop.hive.transaction(shop.name) as tx:
        tx.table(shop.name).append(rows_of(99))
        shop.append(12)
        name = compact(shop)
        raise Died
    assert name is not None
    assert name.startswith("delta_0000003_0000005_v")
    threshold = CompactionThreshold(None, file_count=2)
    report = compact_table(shop.metastore, shop.name, kind="minor", threshold=threshold, engine="local")
    assert [each.state for each in report.partitions] == ["succeeded"]
    assert str(report).startswith(f"{shop.name}: minor compaction succeeded")
    shop.judge.clean(shop.name)
    assert shop.compact() is not None
    assert [row[1] for row in shop.rows()] == list(range(3, 13))


@pytest.mark.long
@LINES
def test_insert_only_tables(shop: Shop) -> None:
    """Plain files are joined to one for each bucket; Hive goes on."""
    shop.create("", "insert_only")
    shop.append(1, 2)
    shop.judge.sql(f"insert into {shop.name} values (3, 'x', 1.0, null)")
    with pytest.raises(Died), shop.hive.transaction(shop.name) as tx:
        tx.table(shop.name).append(rows_of(7))
        raise Died
    shop.append(4)
    name = shop.compact(kind="minor")
    assert name is not None
    assert name.startswith("delta_0000001_0000004_v")
    assert shop.compact(kind="minor") is None
    shop.append(5)
    before = shop.rows()
    shop.judge.compact(shop.name, "minor")
    assert shop.rows() == before
    shop.append(6)
    assert shop.compact() is not None
    shop.append(8)
    shop.append(9)
    assert shop.compact(kind="minor") is not None
    assert sorted(row[1] for row in shop.rows()) == [1, 2, 3, 4, 5, 6, 8, 9]


@pytest.mark.long
@LINES
def test_a_snapshot_from_before(shop: Shop) -> None:
    """Who reads meanwhile sees the same; the old files stay until then."""
    shop.create("")
    shop.append(1, 2, 3)
    shop.hive.table(shop.name).delete(where="id = 1")
    shop.append(4)
    with shop.hive.snapshot(shop.name) as view:
        compact_partition(shop.metastore, shop.name, kind="minor")
        shop.judge.cleaner()
        shop.hive.table(shop.name).delete(where="id = 2")
        assert sorted(view.table(shop.name).scan(["id"]).to_arrow()["id"].to_pylist()) == [2, 3, 4]
    shop.judge.clean(shop.name)
    assert [row[1] for row in shop.rows()] == [3, 4]


@pytest.mark.long
@LINES
@pytest.mark.parametrize("kind", ["minor", "major"])
def test_a_change_feed_with_a_hold(shop: Shop, kind: str) -> None:
    """It reads all changes after our compaction and the cleaner, which is named; then the files go."""
    shop.create("")
    shop.append(1, 2, 3)
    shop.append(4)
    with shop.hive.changes(shop.name, since="now", hold=3600) as feed:
        position = feed.position
    shop.hive.table(shop.name).delete(where="id = 1")
    shop.append(5)
    shop.judge.sql(f"update {shop.name} set item = 'x' where id = 5")
    with connect(shop.judge.uri) as other, other.changes(shop.name, since=position) as feed:
        expected = [(each.txn_id, each.tables[shop.name].to_arrow().to_pylist()) for each in feed]
    assert len(expected) == 3
    done = compact_partition(shop.metastore, shop.name, kind=kind)
    assert "a change feed on" in done.kept_for
    assert "has a hold" in str(done)
    shop.judge.cleaner()
    time.sleep(1.1)  # the cleaner leaves a compaction of the last second
    shop.judge.cleaner()
    kept = shop.directories()
    assert "delta_0000001_0000001_0000" in kept
    with shop.hive.changes(shop.name, since=position) as feed:
        found = [(each.txn_id, each.tables[shop.name].to_arrow().to_pylist()) for each in feed]
    assert repr(found) == repr(expected)
    shop.hive.close()
    shop.judge.clean(shop.name)
    assert len(shop.directories()) < len(kept)


@pytest.mark.long
@LINES
def test_a_stream_compacts_its_tables(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is asked to, and only partitions with many deltas."""
    shop.create("partitioned by (day string)")
    for number in range(4):
        with shop.hive.transaction(shop.name, create_partitions=True) as tx:
            tx.table(shop.name).append(rows_of(number, day="a"))
    shop.append(5, day="a")
    with shop.hive.transaction(shop.name, create_partitions=True) as tx:
        tx.table(shop.name).append(rows_of(6, day="b"))
    monkeypatch.setattr(importlib.import_module("mutation_api.cdc.hive_sink"), "HINT_DELTAS", 4)
    sink = hive_sink(shop.judge.uri, "q", AppendRows(shop.name), compactor="own")
    ensure_watermark_table(shop.metastore, sink.watermark_table)
    before = shop.rows()
    sink._tend(shop.metastore)
    shop.judge.clean(shop.name)
    assert len(shop.directories("day=a")) == len(shop.directories("day=b")) == 1
    assert shop.directories("day=a")[0].startswith("delta_0000001_0000005_v")
    assert shop.rows() == before


@pytest.mark.long
@LINES
@pytest.mark.parametrize(("kind", "other"), [("minor", "minor"), ("minor", "major"), ("major", "minor")])
def test_a_second_worker_of_one_partition(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, kind: str, other: str
) -> None:
    """The server takes the first one for dead. Only one commits; otherwise rows would be read twice."""
    shop.create("")
    shop.append(1, 2)
    shop.append(3)
    written = partition_compaction.write_compacted
    seconds: list[str | None] = []

    def second(*arguments: object) -> object:
        monkeypatch.undo()
        found = written(*arguments)  # type: ignore[arg-type]
        database, table = shop.name.split(".")
        (entry,) = [
            each
            for each in shop.metastore.show_compactions()
            if (each.database, each.table, each.state) == (database, table, "working")
        ]
        job = shop.metastore.compaction_job(entry)
        shop.metastore.compaction_ended(job, CompactionEnd.FAILED, "taken for dead")
        if kind != other:  # what it joins is not covered by a base of less
            shop.append(4)
            shop.append(5)
        seconds.append(compact_partition(shop.metastore, shop.name, kind=other).directory)
        return found

    monkeypatch.setattr(partition_compaction, "write_compacted", second)
    # Beside a base with all ids of the delta, only the queue shows it.
    why = (
        "the server no longer expects compaction"
        if (kind, other) == ("minor", "major")
        else "at the same time"
    )
    with pytest.raises(MutationError, match=why):
        compact_partition(shop.metastore, shop.name, kind=kind)
    ids = [1, 2, 3] if kind == other else [1, 2, 3, 4, 5]
    assert [row[1] for row in shop.rows()] == ids
    assert seconds[0] in shop.directories()
    shop.judge.clean(shop.name)
    shop.append(6)
    shop.append(7)
    assert shop.compact() is not None
    assert [row[1] for row in shop.rows()] == [*ids, 6, 7]


@pytest.mark.long
@LINES
def test_consumers_lose_no_changes(shop: Shop) -> None:
    """Only what all of them have read is compacted; without that, the slow one cannot go on."""
    shop.create("")
    shop.append(1, 2, 3)
    shop.append(4)
    with shop.hive.changes(shop.name, since="beginning", consumer="slow") as feed:
        assert len(list(feed)) == 1
        feed.commit()
    shop.append(5)
    shop.hive.table(shop.name).delete(where="id = 1")
    with shop.hive.changes(shop.name, since="now", consumer="quick") as feed:
        feed.commit()
    shop.judge.sql(f"update {shop.name} set item = 'x' where id = 5")

    def unread() -> str:
        with shop.hive.changes(shop.name, consumer="slow") as feed:
            return repr([(each.txn_id, each.tables[shop.name].to_arrow().to_pylist()) for each in feed])

    def compacted(**options: object) -> list[str]:
        lines: list[str] = []
        threshold = CompactionThreshold(None, file_count=1)
        compact_table(
            shop.metastore,
            shop.name,
            threshold=threshold,
            engine="local",
            progress=lines.append,
            **options,  # type: ignore[arg-type]
        )
        shop.judge.clean(shop.name)
        return lines

    expected, rows = unread(), shop.rows()
    assert read_by_consumers(shop.metastore, shop.name) == {"slow": 2, "quick": 4}
    lines = compacted(for_consumers=True)
    assert lines[0] == f"{shop.name}: consumer slow has read up to id 2, so no later one is compacted"
    assert [each for each in shop.directories() if each.startswith("base_0000002_v")]
    assert (unread(), shop.rows()) == (expected, rows)
    assert "nothing to compact" in compacted(for_consumers=True)[-1]
    assert (unread(), shop.rows()) == (expected, rows)
    compacted()
    with pytest.raises(DirectoryStateError, match="no longer complete"):
        unread()
    assert shop.rows() == rows
    shop.append(6)
    assert "nothing to compact" in compacted(for_consumers=True)[-1]
