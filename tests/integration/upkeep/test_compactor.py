"""The library's own compactor, judged by Hive: the same rows and ROW__IDs before and after, at all times."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import orc

from judges.hive.judge import HiveJudge
from metastore_client.errors import MetastoreUnavailableError
from metastore_client.model import CompactionEnd, CompactionType, TxnState
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from metastore_client.valid_ids import ValidIdList
from mutation_api import CompactionError, CorruptFileError, MutatorClientBuilder, connect
from mutation_api.errors import ClientError
from mutation_api.format.layout import is_hidden
from mutation_api.storage.local import LocalStorage
from mutation_api.transaction.snapshot import Snapshot
from mutation_api.upkeep import compactor, partition_compaction
from mutation_api.upkeep.compact import CompactionThreshold, compact_table
from mutation_api.upkeep.compactor import compact_next, compact_partition
from mutation_api.upkeep.verify.verify import verify_table
from tests.integration.upkeep.compacted_shop import Died, Shop, begin_as_dead_process, deaths, rows_of
from tests.support.doc_blocks import DOCS, run_blocks
from tests.support.hive_site import write_hive_site

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LINES = pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
ANY = CompactionThreshold(None, file_count=1)


@pytest.mark.long
@pytest.mark.feature("compactions by this library")
@LINES
@pytest.mark.parametrize("buckets", ["clustered by (id) into 3 buckets", ""])
def test_hive_goes_on_with_what_it_wrote(shop: Shop, buckets: str) -> None:
    """Hive reads the same rows, changes them, and compacts them again."""
    shop.create(f"partitioned by (day string) {buckets}")
    for day in ("a", "b"):
        shop.judge.sql(
            f"insert into {shop.name} partition (day='{day}') "
            "values (1,'tea',1.5,'2024-01-01 00:00:00.123456789'),(2,null,-0.0,'0001-01-03 00:00:00')"
        )
        for number in range(3, 40, 10):
            shop.append(*range(number, number + 10), day=day)
            shop.hive.table(shop.name).delete(where=f"id = {number + 1}")
    assert shop.compact("day=a") is not None
    assert shop.compact("day=b") is not None
    assert shop.compact("day=b") is None
    assert shop.states() == ["refused", "succeeded", "succeeded"]
    shop.judge.sql(f"update {shop.name} set item = 'x' where id in (1, 5)")
    shop.judge.sql(f"delete from {shop.name} where id = 6")
    shop.append(99, day="a")
    before = shop.rows()
    shop.judge.compact(shop.name, "minor", partition="day='a'")
    assert shop.rows() == before
    assert shop.compact("day=a") is not None
    shop.append(100, day="a")
    before = shop.rows()
    shop.judge.compact(shop.name, "major", partition="day='a'")
    assert shop.rows() == before


@pytest.mark.long
@pytest.mark.feature("compactions by this library")
@LINES
@pytest.mark.parametrize("buckets", ["clustered by (id) into 2 buckets", ""])
def test_hive_goes_on_with_insert_only_tables(shop: Shop, tmp_path: Path, buckets: str) -> None:
    """Their files are plain rows; files of UNION ALL and LOAD DATA are among them."""
    shop.create(buckets, "insert_only")
    values = "(1,'tea',1.5,'2024-01-01 00:00:00.123456789'),(2,null,-0.0,'0001-01-03 00:00:00')"
    shop.judge.sql(f"insert into {shop.name} values {values}")
    shop.append(3, 4)
    shop.judge.sql(
        f"insert into {shop.name} select * from {shop.name} where id = 1 union all "
        f"select * from {shop.name} where id = 2"
    )
    if not buckets:
        orc.write_table(rows_of(20, 21), tmp_path / "odd.orc")
        shop.judge.sql(f"load data local inpath '{tmp_path}/odd.orc' into table {shop.name}")
    with pytest.raises(Died), shop.hive.transaction(shop.name) as tx:
        tx.table(shop.name).append(rows_of(7))
        raise Died
    shop.append(5)
    assert len(shop.rows()) == (9 if not buckets else 7)
    assert shop.compact() is not None
    assert shop.compact() is None
    shop.judge.sql(f"insert into {shop.name} values (10, 'x', 1.0, null)")
    shop.append(11)
    before = shop.rows()
    shop.judge.compact(shop.name, "major")
    assert shop.rows() == before
    shop.append(12)
    assert shop.compact() is not None
    shop.judge.sql(f"insert overwrite table {shop.name} values (1, 'over', 1.0, null)")
    shop.append(13)
    assert shop.compact() is not None
    assert [row[1] for row in shop.rows()] == [1, 13]


@LINES
def test_open_and_aborted_transactions(shop: Shop) -> None:
    """Rows of aborted ones are left out; nothing at or above the first open one is compacted."""
    shop.create("")
    shop.append(1, 2)
    with pytest.raises(Died), shop.hive.transaction(shop.name) as tx:
        tx.table(shop.name).append(rows_of(7))
        raise Died
    shop.append(3)
    with pytest.raises(Died), shop.hive.transaction(shop.name) as tx:
        tx.table(shop.name).append(rows_of(9))
        shop.append(4)
        shop.append(5)
        compacted = shop.compact()
        raise Died
    assert compacted is not None
    assert compacted.startswith("base_0000003_v")
    assert [row[1] for row in shop.rows()] == [1, 2, 3, 4, 5]
    assert shop.compact() is not None
    shop.hive.table(shop.name).delete(where="id > 0")
    assert shop.compact() is not None
    assert shop.rows() == []
    shop.append(8)
    assert [row[1] for row in shop.rows()] == [8]


@pytest.mark.long
@LINES
@pytest.mark.parametrize("kind", ["major", "minor"])
@pytest.mark.parametrize("properties", ["default", "insert_only"])
def test_a_compactor_that_dies_changes_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, kind: str, properties: str
) -> None:
    """Before and after each step with an effect: the rows stay, and the next compactor does the work."""
    shop.create("clustered by (id) into 2 buckets", properties)
    shop.append(1, 2, 3)
    shop.append(4, 5)
    if not shop.is_insert_only:
        shop.hive.table(shop.name).delete(where="id = 2")
    before = shop.rows()
    begin_as_dead_process(monkeypatch)
    steps = [
        (LocalStorage, "stage"),
        (LocalStorage, "create_directory"),
        (LocalStorage, "publish"),
        (partition_compaction, "check_compacted"),
        (ThriftMetastoreClient, "compaction_began"),
        (ThriftMetastoreClient, "commit_txn"),
    ]
    for name in deaths(monkeypatch, steps, lambda: compact_partition(shop.metastore, shop.name, kind=kind)):
        assert shop.rows() == before, name
        assert not [each for each in shop.directories() if "_v0" in each], name
    assert shop.compact(kind=kind) is not None


@LINES
def test_a_compactor_that_dies_before_its_report(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the commit and the report to the queue: it is compacted, and the next compactor lets clean."""
    shop.create("")
    shop.append(1, 2)
    shop.append(3)
    shop.hive.table(shop.name).delete(where="id = 2")
    before = shop.rows()
    begin_as_dead_process(monkeypatch)

    def lose(*_: object) -> None:
        raise MetastoreUnavailableError("the connection was lost")

    with monkeypatch.context() as patched:
        patched.setattr(ThriftMetastoreClient, "compaction_ended", lose)
        assert compact_partition(shop.metastore, shop.name).directory is not None
    assert shop.states() == ["working"]
    shop.judge.cleaner()
    assert shop.rows() == before
    assert len(shop.directories()) == 4
    monkeypatch.undo()
    assert compact_partition(shop.metastore, shop.name).directory is None
    assert sorted(shop.states()) == ["failed", "ready for cleaning"]
    shop.judge.clean(shop.name)
    assert [each.partition("_v")[0] for each in shop.directories()] == ["base_0000003"]
    assert shop.rows() == before


@LINES
def test_a_reported_compaction_that_was_not_committed(shop: Shop) -> None:
    """A worker of Hive that dies between the two: the next compactor ends its entry in the queue."""
    shop.create("")
    shop.append(1, 2)
    shop.append(3)
    shop.hive.table(shop.name).delete(where="id = 2")
    before, (database, table) = shop.rows(), shop.name.split(".")
    assert shop.metastore.compact(database, table, None, CompactionType.MAJOR, pool="died")
    job = shop.metastore.next_compaction("worker", "4.2", "died")
    assert job is not None
    with MutatorClientBuilder().metastore(shop.metastore).build() as client:
        snapshot = client.open_compaction(shop.name, CompactionType.MAJOR, [""])
        began = shop.metastore.compaction_began(job, snapshot.txn_id, 3, "etl")
        shop.metastore.compaction_ended(began, CompactionEnd.DONE)
        snapshot.abort()
    assert shop.states() == ["ready for cleaning"]
    assert compact_partition(shop.metastore, shop.name).directory is not None
    assert sorted(shop.states()) == ["failed", "ready for cleaning"]
    shop.judge.clean(shop.name)
    assert [each.partition("_v")[0] for each in shop.directories()] == ["base_0000003"]
    assert shop.rows() == before


@pytest.mark.parametrize("kind", ["major", pytest.param("minor", marks=pytest.mark.long)])
@LINES
def test_two_compactors_and_a_difference(shop: Shop, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """One compacts a partition at a time; a file with other rows than the old ones is never committed."""
    shop.create("")
    shop.append(1, 2)
    shop.append(3)
    database, table = shop.name.split(".")
    assert shop.metastore.compact(database, table, None, CompactionType[kind.upper()], pool="elsewhere")
    with pytest.raises(CompactionError, match="a compaction is queued, running or not cleaned yet"):
        compact_partition(shop.metastore, shop.name, kind=kind)
    assert compact_next(shop.metastore, pool="nobody") is None
    before = shop.rows()
    written = partition_compaction.write_compacted

    def wrong(table: object, plan: object, valid: ValidIdList, *rest: object) -> object:
        return written(table, plan, valid.without([1]), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_compaction, "write_compacted", wrong)
    with pytest.raises(CompactionError, match=r"the new file has further rows|the new file ends|instead of"):
        compact_next(shop.metastore, pool="elsewhere")
    assert shop.states() == ["failed"]
    assert shop.rows() == before
    assert not [each for each in shop.directories() if "_v0" in each]
    monkeypatch.undo()
    assert shop.compact(kind=kind) is not None


@pytest.mark.long
@LINES
@pytest.mark.parametrize("kind", ["major", "minor"])
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_a_worker_whose_transaction_is_lost(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, kind: str, when: str
) -> None:
    """Its transaction was aborted while it slept, and another worker compacted: it publishes nothing.

    If it slept between its last question and the rename, its directories appear, and it removes them at once.
    """
    shop.create("clustered by (id) into 2 buckets")
    shop.append(1, 2, 3)
    shop.append(4, 5)
    shop.hive.table(shop.name).delete(where="id = 2")
    rows = shop.rows()
    asked: list[int] = []
    seen: list[object] = []

    def lose() -> None:
        (lost,) = (each.id for each in shop.metastore.get_open_txns().txns if each.state is TxnState.OPEN)
        shop.metastore.abort_txn(lost)
        (entry,) = (each for each in shop.metastore.show_compactions() if each.state == "working")
        shop.metastore.compaction_ended(
            shop.metastore.compaction_job(entry), CompactionEnd.FAILED, "taken for dead"
        )
        shop.judge.compact(shop.name, kind)

        for _ in range(3):  # rounds in which the server forgets what it need not know
            shop.judge.initiator()
            shop.judge.cleaner()

    confirm, publish = Snapshot.confirm, LocalStorage.publish_directory

    def confirm_late(self: Snapshot) -> None:
        asked.append(len(asked))
        if asked == ([0] if when == "before" else [0, 1]) and when != "between":
            lose()
        confirm(self)

    def publish_late(self: LocalStorage, *arguments: object) -> None:
        if when == "between" and not seen:
            lose()
        publish(self, *arguments)  # type: ignore[arg-type]
        seen.append(shop.rows())

    monkeypatch.setattr(Snapshot, "confirm", confirm_late)
    monkeypatch.setattr(LocalStorage, "publish_directory", publish_late)
    with pytest.raises(ClientError, match=r"was aborted|is no longer known"):
        compact_partition(shop.metastore, shop.name, kind=kind)
    monkeypatch.undo()
    assert all(each == rows for each in seen)
    assert bool(seen) is (when != "before")
    assert shop.rows() == rows
    found = [each.partition("_v")[0] for each in shop.directories()]
    assert found == (
        ["base_0000003"] if kind == "major" else ["delete_delta_0000001_0000003", "delta_0000001_0000003"]
    )
    shop.append(6)
    assert shop.compact(kind=kind) is not None


@LINES
def test_small_partitions_share_a_transaction(shop: Shop) -> None:
    """If one of them cannot be compacted, the others are, and it shows nothing of the attempt."""
    shop.create("partitioned by (day string)")
    table = shop.hive.table(shop.name)
    for first in (1, 4):
        for id, day in enumerate("abc", start=first):
            table.append(rows_of(id, id + 100, day=day), create_partitions=True)
    table.delete(where="id = 4")
    before = shop.rows()
    file = next(each for each in shop.root().rglob("day=b/delta_*/bucket*"))
    content = file.read_bytes()
    file.write_bytes(content[:-3])
    deltas = shop.directories("day=b")
    with pytest.raises(CorruptFileError):
        compact_table(shop.metastore, shop.name, threshold=ANY, engine="local")
    assert shop.directories("day=b") == deltas
    file.write_bytes(content)
    assert shop.rows() == before
    assert sorted(shop.states()) == ["failed", "ready for cleaning", "ready for cleaning"]
    bases = {next(n for n in shop.directories(f"day={day}") if n.startswith("base")) for day in "ac"}
    assert len({name.partition("_v")[2] for name in bases}) == 1
    shop.judge.clean(shop.name)
    assert shop.rows() == before
    report = compact_table(shop.metastore, shop.name, threshold=ANY, engine="local")
    assert [(each.partition, each.state) for each in report.partitions] == [("day=b", "succeeded")]
    shop.judge.clean(shop.name)
    assert shop.rows() == before
    assert verify_table(shop.metastore, shop.name).is_sound


@pytest.mark.long
@LINES
def test_a_listener_hears_of_each_partition(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with a listener of events sends one for a transaction, so partitions do not share one."""
    monkeypatch.setattr(compactor, "_LISTENERS", "hive.support.concurrency")  # which is not empty
    shop.create("partitioned by (day string)")
    for _ in range(2):
        for day in "ab":
            shop.hive.table(shop.name).append(rows_of(1, day=day), create_partitions=True)
    compact_table(shop.metastore, shop.name, threshold=ANY, engine="local")
    names = [each for day in "ab" for each in shop.directories(f"day={day}") if each.startswith("base")]
    assert len({name.partition("_v")[2] for name in names}) == len(names) == 2


@pytest.mark.long
@LINES
def test_the_commands_of_the_page(hive_line: HiveJudge, tmp_path: Path) -> None:
    """docs/compaction.md: one table now, then the queue."""
    hive_line.sql("create database sales")
    try:
        with connect(hive_line.uri) as hive, open_client(hive_line.uri) as metastore:
            shop = Shop(hive_line, hive, metastore, "sales.orders")
            shop.create("")
            shop.append(1, 2)
            shop.append(3)
            before = shop.rows()
            write_hive_site(tmp_path, hive_line.uri)
            page = DOCS / "compaction.md"
            others = ["past the queue", "keep old files", "undo", "rebalance", "sorted rebalance"]
            assert run_blocks(page, tmp_path, without=others, HIVE_CONF_DIR=str(tmp_path))
            assert [each.partition("_")[0] for each in shop.directories() if "_v" in each] == ["base"]
            assert shop.rows() == before
            shop.judge.clean(shop.name)
            shop.append(4)
            hive_line.sql(
                "create table sales.visits (day string, customer_id bigint, page string) stored as orc "
                "tblproperties ('transactional'='true')"
            )
            hive_line.sql("insert into sales.visits values ('b', 1, 'x'), ('a', 2, 'y'), ('a', 3, 'z')")
            before = shop.rows()
            for name in others[1:]:
                assert run_blocks(page, tmp_path, only=[name], HIVE_CONF_DIR=str(tmp_path))
                shop.judge.clean(shop.name)
                shop.judge.clean("sales.visits")
            assert shop.rows() == before
            found = hive_line.sql("select ROW__ID.rowid, customer_id from sales.visits")
            assert sorted(found) == [[0, 3], [1, 2], [2, 1]]
    finally:
        hive_line.sql("drop database sales cascade")


@pytest.mark.long
@LINES
@pytest.mark.parametrize("kind", ["major", "minor"])
@pytest.mark.parametrize("properties", ["default", "insert_only"])
def test_damaged_files_are_refused(shop: Shop, kind: str, properties: str) -> None:
    """Neither a file with changed bytes nor one that is cut off is compacted; the files stay as they are."""
    shop.create("", properties)
    shop.append(*range(1, 2000))
    shop.append(2000)
    file = next(each for each in shop.root().rglob("delta_0000001*/[b0]*") if not is_hidden(each.name))
    content = file.read_bytes()
    directories = shop.directories()
    middle = len(content) // 3
    for damaged in (content[:-3], content[:middle] + bytes(64) + content[middle + 64 :]):
        file.write_bytes(damaged)
        with pytest.raises(CorruptFileError):
            compact_partition(shop.metastore, shop.name, kind=kind)
        assert shop.directories() == directories
        assert shop.states()[0] == "failed"
    file.write_bytes(content)
    assert shop.compact(kind=kind) is not None


@pytest.mark.long
@LINES
@pytest.mark.parametrize("kind", ["major", "minor"])
def test_hive_compacts_at_the_same_time(shop: Shop, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """While Hive's worker has a partition, we do not get it; while we have it, Hive does not."""
    shop.create("")
    shop.append(1, 2)
    shop.append(3)
    before = shop.rows()
    written = partition_compaction.write_compacted

    def hive_tries(*arguments: object) -> object:
        database, table = shop.name.split(".")
        assert not shop.metastore.compact(database, table, None, CompactionType.MAJOR)
        assert not [each for each in shop.judge.worker() if each.state == "initiated"]
        return written(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(partition_compaction, "write_compacted", hive_tries)
    assert compact_partition(shop.metastore, shop.name, kind=kind).directory is not None
    monkeypatch.undo()
    assert shop.rows() == before
    shop.judge.clean(shop.name)
    assert len({each.partition("_")[0] for each in shop.directories()}) == 1
    assert shop.rows() == before
    shop.append(4)
    shop.judge.sql(f"alter table {shop.name} compact '{kind}'")
    with pytest.raises(CompactionError, match="queued, running or not cleaned yet"):
        compact_partition(shop.metastore, shop.name, kind=kind)
    done = compact_next(shop.metastore)
    assert done is not None
    assert done.kind == kind
    shop.judge.clean(shop.name)
    assert [row[1] for row in shop.rows()] == [1, 2, 3, 4]
