"""Compactions on Hive 2.3 and 3.1 without the server's queue: nobody sees other rows, at any time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.model import CompactionType
from metastore_client.remote.thrift_client import open_client
from mutation_api import CompactionError, ConfigurationError, LockNotAcquiredError, connect
from mutation_api.storage.local import LocalStorage
from mutation_api.storage.location import Location
from mutation_api.upkeep import compaction_view, partition_compaction, unqueued_compaction
from mutation_api.upkeep.compact import CompactionThreshold, compact_table
from mutation_api.upkeep.compaction_terms import CompactedDirectory
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.partition_compaction import PartitionCompaction
from mutation_api.upkeep.verify.verify import verify_table
from tests.integration.upkeep.compacted_shop import Shop, deaths
from tests.support.doc_blocks import DOCS, run_blocks
from tests.support.hive_site import write_hive_site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BUCKETS = "clustered by (id) into 2 buckets"
LAYOUTS = {
    "legacy": ("2.3", BUCKETS, ""),
    "split": ("2.3", f"partitioned by (day string) {BUCKETS}", "default"),
    "bucketed-3.1": ("3.1", f"partitioned by (day string) {BUCKETS}", "default"),
    "unbucketed-3.1": ("3.1", "", "default"),
    "insert-only-3.1": ("3.1", "", "insert_only"),
}
CASES = pytest.mark.parametrize(
    ("hive_line", "layout"),
    [
        pytest.param(line, name, id=name, marks=() if name == "bucketed-3.1" else pytest.mark.long)
        for name, (line, *_) in LAYOUTS.items()
    ],
    indirect=["hive_line"],
)
ONE_OF_EACH_LINE = pytest.mark.parametrize(
    ("hive_line", "layout"),
    [pytest.param("2.3", "legacy", id="2.3"), pytest.param("3.1", "bucketed-3.1", id="3.1")],
    indirect=["hive_line"],
)


def created(shop: Shop, layout: str) -> str:
    """Make the table with some history. Return its partition."""
    _, shape, properties = LAYOUTS[layout]
    return shop.fill(shape, properties)


def at_the_rename(
    monkeypatch: pytest.MonkeyPatch,
    location: Location,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> None:
    """Call functions around the rename that makes a base visible; hidden directories are renamed too."""
    publish = LocalStorage.publish_directory

    def renamed(self: LocalStorage, hidden: Location, target: Location) -> None:
        is_visible = target.parent == location
        if is_visible:
            before()
        publish(self, hidden, target)
        if is_visible:
            after()

    monkeypatch.setattr(LocalStorage, "publish_directory", renamed)


def compact(shop: Shop, partition: str, wait_seconds: float = 60.0) -> CompactedDirectory:
    """Compact without the queue; both readers of Hive must read the same as before."""
    before = shop.rows()
    found = compact_partition(
        shop.metastore, shop.name, partition, without_queue=True, wait_seconds=wait_seconds
    )
    assert shop.rows() == before
    assert verify_table(shop.metastore, shop.name).is_sound
    return found


@pytest.mark.feature("compactions by this library without the queue")
@CASES
def test_hive_goes_on(shop: Shop, layout: str) -> None:
    """The base is as Hive makes it, the old files are gone, and Hive changes and compacts further."""
    partition = created(shop, layout)
    found = compact(shop, partition)
    assert found.kept_for == ""
    assert found.directory is not None
    assert shop.directories(partition) == [found.directory]
    assert compact(shop, partition).directory is None
    shop.change(4)
    shop.change(1)
    second = compact(shop, partition)
    assert shop.directories(partition) == [second.directory]
    shop.change(2)
    before = shop.rows()
    kind = "minor" if "3.1" in layout else "major"
    shop.judge.compact(shop.name, kind, partition="day='a'" if partition else None)
    assert shop.rows() == before
    if not shop.is_insert_only:
        shop.hive.table(shop.name).delete(where="id > 0")
    shop.change(7)
    threshold = CompactionThreshold(None, file_count=1)
    report = compact_table(shop.metastore, shop.name, threshold=threshold, engine="local", without_queue=True)
    assert [each.state for each in report.partitions] == ["succeeded"]
    assert (107 in [row[1] for row in shop.rows()]) and verify_table(shop.metastore, shop.name).is_sound


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_who_may_still_read(shop: Shop, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction from before stops the base, one from before the rename keeps the old files."""
    partition = created(shop, layout)
    before, directories = shop.rows(), shop.directories(partition)
    txn_id = shop.metastore.open_txn("ann", "host", "agent")
    with pytest.raises(CompactionError, match=f"transaction {txn_id} of ann@host may hold a snapshot"):
        compact(shop, partition, 1.0)
    assert shop.directories(partition) == directories
    shop.metastore.commit_txn(txn_id)
    with shop.hive.snapshot(shop.name), pytest.raises(CompactionError, match="may hold a snapshot"):
        compact(shop, partition, 1.0)
    found = []

    def meanwhile() -> None:
        found.append(shop.metastore.open_txn("bob", "host", "agent"))

    at_the_rename(monkeypatch, shop.location(partition), before=meanwhile)
    kept = compact(shop, partition, 1.0)
    assert f"transaction {found[0]} of bob@host may still read them" in kept.kept_for
    assert set(directories) < set(shop.directories(partition))
    shop.metastore.commit_txn(found[0])
    monkeypatch.undo()
    assert compact(shop, partition).kept_for == ""
    assert shop.directories(partition) == [kept.directory]
    assert shop.rows() == before


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_a_reader_that_waits_reads_the_base(shop: Shop, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who begins before the rename and reads after it, and who reads old files while it happens."""
    partition = created(shop, layout)
    before = [row[1] for row in shop.rows()]
    found: list[list[object]] = []

    def meanwhile() -> None:
        found.append(sorted(row[0] for row in shop.judge.sql(f"select id from {shop.name}")))

    # Hive's reader takes no lock here, so it reads beside the exclusive lock.
    at_the_rename(monkeypatch, shop.location(partition), after=meanwhile)
    monkeypatch.setattr(unqueued_compaction._Unqueued, "_locked", lambda _: contextlib.nullcontext(0))
    compact(shop, partition)
    assert found == [sorted(before, key=int)]  # type: ignore[call-overload]


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_a_lock_of_others(shop: Shop, layout: str, hive_line: HiveJudge) -> None:
    """Whoever holds a lock on the partition without an older transaction is waited for, and named."""
    partition = created(shop, layout)
    directories = shop.directories(partition)
    opened = unqueued_compaction._Unqueued._open_txns
    snapshot = shop.hive.snapshot(shop.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unqueued_compaction._Unqueued, "_open_txns", lambda *_: {})
        with snapshot, pytest.raises(LockNotAcquiredError, match="held by SHARED_READ lock"):
            compact(shop, partition, 1.0)
    assert opened is unqueued_compaction._Unqueued._open_txns
    assert shop.directories(partition) == directories
    assert compact(shop, partition).directory is not None


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_hive_compacts_at_the_same_time(shop: Shop, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused while the queue names the partition, or may at any time, and if the files changed."""
    partition = created(shop, layout)
    before = shop.rows()
    database, table = shop.name.split(".")
    waited = unqueued_compaction._Unqueued._wait_for

    def hive_is_faster(self: object, *arguments: object) -> object:
        shop.judge.compact(shop.name, "major", partition="day='a'" if partition else None)
        return waited(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(unqueued_compaction._Unqueued, "_wait_for", hive_is_faster)
    with pytest.raises(CompactionError, match="its files or its location changed"):
        compact(shop, partition)
    monkeypatch.undo()
    assert shop.rows() == before
    shop.change(4)
    before, directories = shop.rows(), shop.directories(partition)

    def request() -> None:
        shop.metastore.compact(database, table, partition or None, CompactionType.MAJOR)

    at_the_rename(monkeypatch, shop.location(partition), after=request)
    with pytest.raises(CompactionError, match="The new base is withdrawn"):
        compact(shop, partition)
    monkeypatch.undo()
    assert shop.directories(partition) == directories
    with pytest.raises(CompactionError, match="a compaction by Hive is initiated"):
        compact(shop, partition)
    monkeypatch.setattr(compaction_view, "_INITIATOR", "hive.support.concurrency")  # which is true
    shop.judge.sql(f"alter table {shop.name} set tblproperties ('no_auto_compaction'='false')")
    with pytest.raises(ConfigurationError, match="initiator may have Hive compact it"):
        compact(shop, partition)
    assert shop.rows() == before


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_a_compactor_that_dies_changes_nothing(
    shop: Shop, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each step with an effect: the rows stay, and the next compaction does the work."""
    partition = created(shop, layout)
    before = shop.rows()
    steps = [
        (LocalStorage, "stage"),
        (LocalStorage, "create_directory"),
        (LocalStorage, "publish"),
        (partition_compaction, "check_compacted"),
        (LocalStorage, "publish_directory"),
        (PartitionCompaction, "is_published"),
        (unqueued_compaction, "_obsolete"),
        (LocalStorage, "delete_directory"),
    ]
    for name in deaths(monkeypatch, steps, lambda: compact(shop, partition)):
        assert shop.rows() == before, name
    assert compact(shop, partition).kept_for == ""
    assert len(shop.directories(partition)) == 1


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
@pytest.mark.long
def test_hive_4_has_a_queue(shop: Shop) -> None:
    """There it is refused."""
    shop.create("")
    shop.append(1)
    shop.append(2)
    with pytest.raises(ConfigurationError, match="Leave out without_queue"):
        compact_partition(shop.metastore, shop.name, without_queue=True)


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["2.3", "3.1"], indirect=True)
def test_the_command_of_the_page(hive_line: HiveJudge, tmp_path: Path) -> None:
    """docs/compaction.md: one table, without the server's queue."""
    hive_line.time_out_transactions(0)
    hive_line.sql("create database sales")
    try:
        with connect(hive_line.uri) as hive, open_client(hive_line.uri) as metastore:
            shop = Shop(hive_line, hive, metastore, "sales.orders")
            shop.create(BUCKETS)
            shop.judge.sql(f"alter table {shop.name} set tblproperties ('no_auto_compaction'='true')")
            shop.append(1, 2)
            shop.append(3)
            before = shop.rows()
            write_hive_site(tmp_path, hive_line.uri)
            page = DOCS / "compaction.md"
            assert run_blocks(page, tmp_path, only=["past the queue"], HIVE_CONF_DIR=str(tmp_path))
            assert [each.partition("_")[0] for each in shop.directories()] == ["base"]
            assert shop.rows() == before
    finally:
        hive_line.sql("drop database sales cascade")
