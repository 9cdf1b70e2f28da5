"""Hive's REPL DUMP and REPL LOAD over tables that we write: what the target then has, statement by statement.

The numbers in the names are those of docs/replication.md.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.remote.thrift_client import ThriftMetastoreClient
from mutation_api.errors import TableNotMutableError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_transaction import HiveTransaction
from mutation_api.transaction.committer import Committer
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.sweep import sweep
from tests.integration.replication.replicated import Replicated, Side, rows

pytestmark = pytest.mark.slow
hive_4 = pytest.mark.parametrize("hive_notifying", ["4.1"], indirect=True)


class Killed(BaseException):
    """Ends the driver where it stands."""


@pytest.mark.feature("replication by REPL DUMP and REPL LOAD")
@hive_4
def test_r1_r2_r11_a_cycle_brings_what_was_committed(on_one_metastore: Replicated) -> None:
    """Bootstrap, then one transaction over two tables with a new partition, and one that is aborted."""
    source, pair = on_one_metastore.source, on_one_metastore
    source.create("flat")
    source.create("days", by_day=True)
    source.append("flat", 1, 2)
    source.append("days", 1, 2, ds="a")
    pair.cycle()
    pair.check()
    with source.hive.transaction(source.name("flat"), source.name("days"), create_partitions=True) as both:
        flat, days = both.table(source.name("flat")), both.table(source.name("days"))
        flat.delete(flat.scan(where=pc.field("id") == 1, row_ids=True))
        days.append(rows(3, ds="b"))
    aborted = source.hive.transaction(source.name("flat")).begin()
    aborted.table(source.name("flat")).append(rows(9))
    aborted.abort()
    pair.cycle()
    pair.check()


@pytest.mark.feature("replication by REPL DUMP and REPL LOAD")
@pytest.mark.long
@hive_4
def test_r1_every_layout_with_merges_and_moves(pair: Replicated) -> None:
    """Rows, ROW__IDs and the bytes of the files are those of the source; ids of transactions are not."""
    source, target = pair.source, pair.target
    for _ in range(5):
        target.metastore.abort_txn(target.metastore.open_txn("somebody", "there", ""))
    shapes = {
        "flat": {},
        "days": {"by_day": True},
        "buckets": {"clustered_by": ["id"], "num_buckets": 3},
        "by_text": {"clustered_by": ["msg"], "num_buckets": 3},
        "day_buckets": {"by_day": True, "clustered_by": ["id"], "num_buckets": 2},
        "plain": {"insert_only": True},
        "plain_days": {"by_day": True, "insert_only": True},
    }
    for name, how in shapes.items():
        source.create(name, **how)
    all_at_once(source, {name: bool(how.get("by_day")) for name, how in shapes.items()}, range(1, 7))
    pair.cycle()
    pair.check()
    names = [source.name(n) for n in ("flat", "days", "buckets", "by_text", "day_buckets")]
    with source.hive.transaction(*names, create_partitions=True) as tx:
        flat = tx.table(source.name("flat"))
        flat.update(renamed(flat.scan(where=pc.field("id") < 3, row_ids=True).to_arrow()))
        flat.delete(flat.scan(where=pc.field("id") == 4, row_ids=True))
        for name in ("days", "day_buckets"):
            merge = tx.table(source.name(name)).merge(rows(1, 2, 8, ds="z"), on=["id"])
            moved = merge.when_matched_update_all().when_not_matched_insert_all().execute()
            assert (moved.total.moved, moved.total.inserted) == (2, 1)
        for name in ("buckets", "by_text"):
            merge = tx.table(source.name(name)).merge(rows(1, 2, 3, 9, msg="other"), on=["id"])
            changed = merge.when_matched_update_all().when_not_matched_insert_all().execute()
            assert changed.total.inserted == 1
    all_at_once(source, {"plain": False, "plain_days": True}, range(20, 23))
    pair.cycle()
    pair.check()
    for name in shapes:
        assert target.files(name) == source.files(name)
        assert contents(target, name) == contents(source, name)


@pytest.mark.long
@hive_4
def test_r2_aborted_and_open_transactions_are_not_shipped(
    pair: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if their files lay under their final names, and the server had been told of them."""
    source, target = pair.source, pair.target
    source.create("flat")
    source.create("days", by_day=True)
    pair.cycle()
    with connect(source.judge.uri) as driver, monkeypatch.context() as patch:
        patch.setattr(ThriftMetastoreClient, "commit_txn", killed)
        dead = [published(driver, source, number) for number in (1, 2)]
    source.metastore.abort_txn(dead[0])
    source.append("flat", 3)
    source.append("days", 3, ds="a")
    assert len(source.files("flat")) == len(source.files("days")) == 3
    pair.cycle()
    assert [row.values[0] for row in target.rows("flat")] == [3]
    assert target.files("flat") == ["delta_0000003_0000003_0000/bucket_00000"]
    assert target.files("days") == ["ds=a/delta_0000003_0000003_0000/bucket_00000"]
    source.metastore.commit_txn(dead[1])  # its driver was only slow
    pair.cycle()
    assert [row.values[0] for row in target.rows("flat")] == [2, 3]
    pair.check()


@pytest.mark.long
@hive_4
def test_r3_a_reader_at_the_target_sees_whole_transactions(pair: Replicated) -> None:
    """While a load of many goes on: two tables that always have as many rows."""
    source = pair.source
    source.create("one")
    source.create("two", by_day=True)
    pair.cycle()
    names = ("one", "two")
    for number in range(10):
        with source.hive.transaction(*map(source.name, names), create_partitions=True) as both:
            both.table(source.name("one")).append(rows(number))
            both.table(source.name("two")).append(rows(number, ds=f"d{number}"))
    pair.dump()
    seen: list[tuple[int, int]] = []
    is_over = threading.Event()

    def look() -> None:
        with connect(pair.target.judge.uri) as hive:
            while not is_over.is_set():
                with hive.snapshot(*map(pair.target.name, names)) as view:
                    one, two = (view.table(pair.target.name(name)).scan().count() for name in names)
                    seen.append((one, two))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        pair.load()
    finally:
        is_over.set()
        reader.join()
    assert [one for one, _ in seen] == sorted(two for _, two in seen)
    assert len(seen) > 2
    pair.check()


@pytest.mark.long
@hive_4
def test_r6_a_dump_begins_where_the_last_one_ended(pair: Replicated) -> None:
    """REPL STATUS is the last dump's event; nothing new is no mistake; a repeated load changes nothing."""
    source = pair.source
    source.create("flat")
    source.append("flat", 1)
    events = [pair.cycle()]
    for number in (2, 3):
        source.append("flat", number)
        events.append(pair.cycle())
        assert pair.status() == events[-1]
        pair.check()
    assert events == sorted(set(events))
    source.append("flat", 4)
    assert pair.dump() is not None
    assert pair.dump() is None  # not before that one is loaded
    pair.load()
    pair.load()
    pair.check()
    pair.cycle()
    pair.check()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["minor", "major"])
@hive_4
def test_r7_a_compaction_at_the_source_is_not_replicated(pair: Replicated, kind: str) -> None:
    """The target gets the deltas as long as the cleaner has not been there, and compacts by itself."""
    source, target = pair.source, pair.target
    source.create("flat")
    source.create("plain", insert_only=True)
    source.append("flat", 1)
    source.append("plain", 1)
    pair.cycle()
    for number in (2, 3):
        source.append("flat", number)
        source.append("plain", number)
    with source.hive.transaction(source.name("flat")) as tx:
        flat = tx.table(source.name("flat"))
        flat.delete(flat.scan(where=pc.field("id") == 2, row_ids=True))
    deltas = source.files("flat")
    for name in ("flat", "plain"):
        source.judge.compact(source.name(name), kind, clean=False)
    assert {*source.files("flat")} > {*deltas}
    pair.cycle()
    pair.check()
    assert target.files("flat") == deltas
    target.set_property("repl.background.enable", "true")  # else Hive does not compact what it loads into
    target.judge.compact(target.name("flat"), "major")
    (compacted,) = target.files("flat")
    assert compacted.startswith("base_0000004_v")
    assert (
        int(compacted.partition("_v")[2].partition("/")[0]) <= target.metastore.get_open_txns().high_watermark
    )
    source.append("flat", 5)
    pair.cycle()
    pair.check()


@pytest.mark.long
@hive_4
def test_our_aborts_and_sweeps_remove_nothing_that_a_dump_needs(
    on_one_metastore: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come between commit and dump, and nothing of theirs passes the change manager."""
    pair, source = on_one_metastore, on_one_metastore.source
    source.create("flat")
    pair.cycle()
    source.append("flat", 1)
    committed = source.files("flat")
    kept = kept_files(source)
    aborted = source.hive.transaction(source.name("flat")).begin()
    aborted.table(source.name("flat")).append(rows(2))
    aborted.abort()
    with connect(source.judge.uri) as driver, monkeypatch.context() as patch:
        patch.setattr(Committer, "publish", killed)
        patch.setattr(Transaction, "_roll_back", killed)
        patch.setattr(HiveTransaction, "close", killed)
        transaction = driver.transaction(source.name("flat")).begin()
        transaction.table(source.name("flat")).append(rows(3))
        with pytest.raises(Killed):
            transaction.commit()
        source.metastore.abort_txn(transaction.txn_id)
        (swept,) = sweep(source.metastore, source.database)
    assert [each.txn_id for each in swept.removed] == [transaction.txn_id]
    assert {*committed} <= {*source.files("flat")}
    assert kept_files(source) == kept
    pair.cycle()
    pair.check()


@pytest.mark.long
@hive_4
def test_r8_r9_external_tables_are_refused(pair: Replicated) -> None:
    """Their data is copied whole in each cycle, below another folder; we write none of them."""
    source = pair.source
    source.judge.sql(f"CREATE EXTERNAL TABLE {source.name('outside')} (id bigint, msg string) STORED AS ORC")
    with pytest.raises(TableNotMutableError, match="must be a managed table"):
        source.append("outside", 1)


@pytest.mark.long
@hive_4
def test_r11_statistics_are_true_on_both_sides(pair: Replicated) -> None:
    """Those of ANALYZE travel; after our commit nobody answers from old ones, at either side."""
    source, target = pair.source, pair.target
    source.create("flat")
    source.create("days", by_day=True)
    source.append("flat", 1, 2)
    source.append("days", 1, 2, ds="a")
    analyze(source)
    pair.cycle()
    pair.check()
    assert "COLUMN_STATS_ACCURATE" in target.metastore.get_table(target.database, "flat").parameters
    source.append("flat", 30)
    source.append("days", 30, ds="a")
    pair.cycle()
    pair.check()
    analyze(source)
    pair.cycle()
    pair.check()
    for name in ("flat", "days"):
        for side in (source, target):
            found = side.judge.sql(f"SELECT count(*), min(id), max(id) FROM {side.name(name)}")
            assert found == [[3, 1, 30]]


def all_at_once(source: Side, tables: dict[str, bool], ids: range) -> None:
    """One transaction with rows for tables, those by day in two partitions."""
    with source.hive.transaction(*map(source.name, tables), create_partitions=True) as tx:
        for name, by_day in tables.items():
            of_days = [rows(*ids[::2], ds="a"), rows(*ids[1::2], ds="b c")]
            tx.table(source.name(name)).append(pa.concat_tables(of_days) if by_day else rows(*ids))


def renamed(found: pa.Table) -> pa.Table:
    return found.set_column(found.schema.get_field_index("msg"), "msg", pa.array(["renamed"] * len(found)))


def published(driver: Hive, source: Side, number: int) -> int:
    """A driver that dies when all is done but its commit; returns its transaction."""
    names = (source.name("flat"), source.name("days"))
    transaction = driver.transaction(*names, create_partitions=True, insert_only=True).begin()
    transaction.table(names[0]).append(rows(number))
    transaction.table(names[1]).append(rows(number, ds="a"))
    with pytest.raises(Killed):
        transaction.commit()
    return transaction.txn_id


def killed(*_: object, **__: object) -> None:
    raise Killed


def contents(side: Side, name: str) -> Sequence[bytes]:
    folder = Path(side.metastore.get_table(side.database, name).location.removeprefix("file:"))
    return [(folder / file).read_bytes() for file in side.files(name)]


def kept_files(side: Side) -> list[str]:
    """What the change manager has."""
    folder = side.metastore.get_config_value("hive.repl.cmrootdir", "").removeprefix("file:")
    return sorted(path.name for path in Path(folder).rglob("*") if path.is_file())


def analyze(side: Side) -> None:
    side.judge.sql(f"ANALYZE TABLE {side.name('flat')} COMPUTE STATISTICS FOR COLUMNS")
    side.judge.sql(f"ANALYZE TABLE {side.name('days')} PARTITION (ds) COMPUTE STATISTICS FOR COLUMNS")
