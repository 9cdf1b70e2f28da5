"""Files that a compaction keeps, and a restore that lets readers read them again, judged by Hive."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.model import CompactionEnd, CompactionType
from metastore_client.remote.thrift_client import open_client
from mutation_api import CompactionError, ConfigurationError, LockNotAcquiredError, connect
from mutation_api.cli.main import main
from mutation_api.hive.erasure import erase
from mutation_api.storage.local import LocalStorage
from mutation_api.upkeep import kept_files, restore
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.kept_files import find_kept
from mutation_api.upkeep.restore import restore_table
from mutation_api.upkeep.sweep import sweep
from mutation_api.upkeep.verify.verify import verify_table
from tests.fixtures.fix_judge import new_database
from tests.fixtures.fix_newest import HIVE_4
from tests.integration.erasures.left_bytes import files_with
from tests.integration.erasures.people import cleaning
from tests.integration.upkeep.compacted_shop import Died, Shop, deaths

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WEEK = timedelta(days=7)
BUCKETS = "clustered by (id) into 2 buckets"
SHAPES = {
    "legacy": ("2.3", BUCKETS, ""),
    "split": ("2.3", f"partitioned by (day string) {BUCKETS}", "default"),
    "bucketed-3.1": ("3.1", f"partitioned by (day string) {BUCKETS}", "default"),
    "insert-only-3.1": ("3.1", "", "insert_only"),
    "unbucketed-4.1": ("4.1", "partitioned by (day string)", "default"),
    "bucketed-4.1": ("4.1", BUCKETS, "default"),
    "insert-only-4.1": ("4.1", "", "insert_only"),
}
CASES = pytest.mark.parametrize(
    ("hive_line", "shape"),
    [
        pytest.param(line, name, id=name, marks=() if name == "unbucketed-4.1" else pytest.mark.long)
        for name, (line, *_) in SHAPES.items()
    ],
    indirect=["hive_line"],
)
ONE_OF_EACH_LINE = pytest.mark.parametrize(
    ("hive_line", "shape"),
    [
        pytest.param(line, name, id=name)
        for name, (line, *_) in SHAPES.items()
        if name in ("split", "bucketed-3.1", "unbucketed-4.1")
    ],
    indirect=["hive_line"],
)
NEWEST = pytest.mark.parametrize(
    ("hive_line", "shape"), [pytest.param("4.1", "unbucketed-4.1", id="4.1")], indirect=["hive_line"]
)


def created(shop: Shop, shape: str) -> str:
    """Make the table with some history. Return its partition."""
    _, layout, properties = SHAPES[shape]
    return shop.fill(layout, properties)


def compact(shop: Shop, partition: str, *, clean: bool = True, kind: str = "major") -> str:
    """Compact and keep the old files. Let the cleaner remove them. Return the name of the new directory."""
    before = shop.rows()
    is_4 = shop.judge.line in HIVE_4
    done = compact_partition(
        shop.metastore, shop.name, partition, kind=kind, keep_old=WEEK, without_queue=not is_4
    )
    assert done.directory is not None
    assert done.kept_until
    assert shop.rows() == before
    if clean and is_4:
        shop.judge.clean(shop.name)
        assert shop.rows() == before
    return done.directory


@pytest.mark.feature("files from before a compaction come back")
@CASES
def test_old_files_come_back(shop: Shop, shape: str) -> None:
    """Hive reads the same rows and ROW__IDs, and changes and compacts the table further."""
    partition = created(shop, shape)
    before = shop.directories(partition)
    new = compact(shop, partition)
    assert new in shop.directories(partition)
    assert not set(shop.directories(partition)) - {new}
    shop.change(4)
    rows = shop.rows()
    (found,) = restore_table(shop.metastore, shop.name)
    assert found.hidden[0] == new
    assert shop.rows() == rows
    assert set(found.restored) <= set(before)
    assert set(found.restored) <= set(shop.directories(partition))
    assert new not in shop.directories(partition)
    assert verify_table(shop.metastore, shop.name).is_sound
    with pytest.raises(ConfigurationError, match="no files from before a compaction are kept"):
        restore_table(shop.metastore, shop.name)
    shop.change(1)
    rows = shop.rows()
    shop.judge.cleaner()
    assert shop.rows() == rows
    shop.judge.compact(shop.name, "major", partition="day='a'" if partition else None)
    assert shop.rows() == rows
    shop.change(100)


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_the_last_one_first(shop: Shop, shape: str) -> None:
    """Two compactions are undone one after the other, and not in another order."""
    partition = created(shop, shape)
    first = compact(shop, partition)
    shop.change(4)
    second = compact(shop, partition)
    rows = shop.rows()
    kept = find_kept(shop.location(partition))
    (found,) = restore_table(shop.metastore, shop.name, partitions=[partition])
    assert (found.hidden[0], shop.rows()) == (second, rows)
    assert first in found.restored
    (found,) = restore_table(shop.metastore, shop.name, partitions=[partition])
    assert (found.hidden[0], shop.rows()) == (first, rows)
    assert [each.names for each in kept] == [each.names for each in find_kept(shop.location(partition))]
    shop.change(1)
    compact(shop, partition)
    shop.change(100)
    rows, is_4 = shop.rows(), shop.judge.line in HIVE_4
    compact_partition(shop.metastore, shop.name, partition, without_queue=not is_4)
    if is_4:
        shop.judge.clean(shop.name)
    with pytest.raises(CompactionError, match="a later compaction or overwrite replaced it"):
        restore_table(shop.metastore, shop.name)
    assert shop.rows() == rows


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_killed_before_each_step(shop: Shop, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers read the same rows after each death, and the next restore does the work."""
    partition = created(shop, shape)
    compact(shop, partition)
    shop.change(4)
    rows = shop.rows()
    steps = [
        (restore, "copy_file"),
        (restore._Restore, "_check"),
        (LocalStorage, "publish_directory"),
        (restore._Restore, "_names_read"),
        (restore._Restore, "_settle"),
    ]

    for name in deaths(monkeypatch, steps[:-1], lambda: restore_table(shop.metastore, shop.name)):
        assert shop.rows() == rows, name
    published, calls = LocalStorage.publish_directory, []

    def die_at_last(self: LocalStorage, *arguments: object) -> None:
        calls.append(arguments)
        if "undone" in str(arguments[1]):
            raise Died
        published(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalStorage, "publish_directory", die_at_last)
    with pytest.raises(Died):
        restore_table(shop.metastore, shop.name)
    monkeypatch.undo()
    assert shop.rows() == rows
    for _ in deaths(monkeypatch, steps[-1:], lambda: restore_table(shop.metastore, shop.name)):
        assert shop.rows() == rows
    assert not [each for each in shop.directories(partition) if each.startswith("base_0000004")]
    assert verify_table(shop.metastore, shop.name).is_sound


@pytest.mark.long
@pytest.mark.parametrize("kind", ["major", "minor"])
@NEWEST
def test_a_compactor_that_dies_keeps_nothing_wrong(
    shop: Shop, shape: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a death or an error, nothing can be restored that did not happen; a minor one is undone, too."""
    partition = created(shop, shape)
    rows = shop.rows()
    steps = [
        (kept_files, "copy_file"),
        (type(shop.metastore), "commit_txn"),
    ]
    for name in deaths(monkeypatch, steps, lambda: compact(shop, partition, kind=kind)):
        assert shop.rows() == rows, name
        assert find_kept(shop.location(partition)) == []
        with pytest.raises(ConfigurationError, match="no files from before a compaction are kept"):
            restore_table(shop.metastore, shop.name)
        shop.judge.time_out_transactions(0)
        for each in shop.metastore.show_compactions():
            if each.state == "working":
                shop.metastore.compaction_ended(
                    shop.metastore.compaction_job(each),
                    CompactionEnd.FAILED,
                    "the worker of this test is dead",
                )
    before = shop.directories(partition)
    changes = shop.changes()
    compact(shop, partition, kind=kind)
    shop.change(4)
    rows = shop.rows()
    (found,) = restore_table(shop.metastore, shop.name)
    assert len(found.hidden) == (2 if kind == "minor" else 1)
    assert shop.rows() == rows
    assert set(found.restored) <= set(before)
    assert set(changes) <= set(shop.changes())


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_what_is_in_the_way(shop: Shop, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaning that has not ended, a reader, a damaged copy and an aborted id: nothing changes."""
    partition = created(shop, shape)
    rows, is_4 = shop.rows(), shop.judge.line in HIVE_4
    compact(shop, partition, clean=False)
    if is_4:
        with pytest.raises(CompactionError, match="a compaction is ready for cleaning"):
            restore_table(shop.metastore, shop.name)
        shop.judge.clean(shop.name)
    directories = shop.directories(partition)
    with shop.hive.snapshot(shop.name), pytest.raises(LockNotAcquiredError, match="held by SHARED_READ lock"):
        restore_table(shop.metastore, shop.name, wait_seconds=1)
    database, table = shop.name.split(".")
    (kept,) = find_kept(shop.location(partition))
    copy = next(path for path in kept.files if "bucket" in path)
    path = Path(kept.copies.path) / copy
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(CompactionError, match=f"bytes, expected {len(content)}"):
        restore_table(shop.metastore, shop.name)
    path.write_bytes(content)
    record = Path(kept.directory.path) / "kept.json"
    text = record.read_text()
    record.write_text(text.replace('"hidden_ids": []', '"hidden_ids": [1]'))
    with pytest.raises(CompactionError, match="id 1 was aborted, which the server has forgotten"):
        restore_table(shop.metastore, shop.name)
    record.write_text(text)
    assert shop.metastore.compact(database, table, partition or None, CompactionType.MAJOR)
    with pytest.raises(CompactionError, match="initiated"):
        restore_table(shop.metastore, shop.name)
    assert shop.directories(partition) == directories
    assert shop.rows() == rows


@pytest.mark.long
@NEWEST
def test_a_cleaner_that_takes_old_files(shop: Shop, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that listed the directories between two steps removes old files, which are copied again."""
    partition = created(shop, shape)
    compact(shop, partition)
    rows = shop.rows()
    settle = restore._Restore._settle
    taken = []

    def take(self: restore._Restore, *arguments: object) -> None:
        taken.append(self.kept.names[0])
        LocalStorage().delete_directory(self.location / self.kept.names[0])
        assert shop.judge is not None
        settle(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(restore._Restore, "_settle", take)
    restore_table(shop.metastore, shop.name)
    assert taken
    assert shop.rows() == rows


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_kept_files_expire(
    shop: Shop, shape: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After their time, a sweep or the next compaction removes them, and a restore is refused."""
    partition = created(shop, shape)
    rows = shop.rows()
    for sweeps in (True, False):
        compact(shop, partition)
        (kept,) = find_kept(shop.location(partition))
        assert next(iter(sweep(shop.metastore, shop.name))).found == ()
        monkeypatch.setattr(kept_files.time, "time", lambda kept=kept: kept.expires_at)
        with pytest.raises(CompactionError, match="were kept until"):
            restore_table(shop.metastore, shop.name)
        if sweeps:
            assert main(["sweep", "--metastore", shop.judge.uri, shop.name]) == 0
            assert "removed old files that compaction" in capsys.readouterr().out
        monkeypatch.undo()
        shop.change(4 if sweeps else 1)
        rows = shop.rows()
        if not sweeps:
            monkeypatch.setattr(kept_files.time, "time", lambda kept=kept: kept.expires_at)
            is_4 = shop.judge.line in HIVE_4
            compact_partition(shop.metastore, shop.name, partition, without_queue=not is_4)
            monkeypatch.undo()
        assert find_kept(shop.location(partition)) == []
        assert shop.rows() == rows


@pytest.mark.long
@ONE_OF_EACH_LINE
def test_an_erasure_removes_kept_files(shop: Shop, shape: str) -> None:
    """They hold rows of the people who are to be forgotten; what has no key of them stays."""
    partition = created(shop, shape)
    shop.hive.table(shop.name).update(set={"item": "'person00042@people.example'"}, where="id = 5")
    compact(shop, partition)
    key = "person00042@people.example"
    assert files_with(shop.root(), {key})
    lines: list[str] = []
    with cleaning(shop.judge, worker=True):
        report = erase(shop.metastore, [key], {shop.name: "item"}, wait_seconds=100, progress=lines.append)
    assert report.is_erased, str(report)
    assert [line for line in lines if "removed old files that a compaction kept" in line]
    assert files_with(shop.root(), {key}) == []
    assert find_kept(shop.location(partition)) == []


@pytest.mark.long
@pytest.mark.parametrize("hive_on_hdfs", ["4.1", "3.1"], indirect=True)
def test_old_files_on_hdfs(hive_on_hdfs: HiveJudge) -> None:
    """HDFS has no links, so bytes are copied; a renamed directory is hidden there as well."""
    with (
        new_database(hive_on_hdfs) as database,
        connect(hive_on_hdfs.uri, write_lock="optimistic") as hive,
        open_client(hive_on_hdfs.uri) as metastore,
    ):
        shop = Shop(hive_on_hdfs, hive, metastore, f"{database}.orders")
        shop.create(BUCKETS)
        is_4 = shop.judge.line in HIVE_4
        if not is_4:
            shop.judge.sql(f"alter table {shop.name} set tblproperties ('no_auto_compaction'='true')")
        shop.append(1, 2, 3)
        shop.append(4, 5)
        shop.hive.table(shop.name).delete(where="id = 2")
        rows = shop.rows()
        compact(shop, "")
        shop.judge.sql(f"update {shop.name} set item = 'x' where id = 3")
        rows = shop.rows()
        (found,) = restore_table(metastore, shop.name)
        assert len(found.restored) == 3
        assert shop.rows() == rows
        shop.judge.compact(shop.name, "major")
        assert shop.rows() == rows


@pytest.mark.long
@NEWEST
def test_the_command(shop: Shop, shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    """hive-mutate compact --keep-old, then restore."""
    created(shop, shape)
    rows = shop.rows()
    words = ["--metastore", shop.judge.uri, shop.name]
    assert main(["compact", *words, "--engine", "local", "--delta-files", "1", "--keep-old", "7d"]) == 0
    assert "hive-mutate restore can bring its old files back until" in capsys.readouterr().err
    shop.judge.clean(shop.name)
    assert main(["restore", *words, "--partition", "day=a"]) == 0
    assert "readers read" in capsys.readouterr().out
    assert shop.rows() == rows
    assert main(["restore", *words]) == 1
    assert main(["compact", *words, "--keep-old", "7d", "--delta-files", "1"]) == 1
    assert "require engine='local'" in capsys.readouterr().err
