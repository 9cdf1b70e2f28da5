"""hive.changes returns what happened between two positions, transaction by transaction, nothing twice."""

from __future__ import annotations

import dataclasses
import datetime
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.testing import HIVE_2_3, HIVE_3_1, HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError, DirectoryStateError, MutationError, TransactionStateError
from mutation_api.hive import change_feed
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_table import HiveTable
from mutation_api.write.local_plan import LocalOptions

LINES = {"2.3": HIVE_2_3, "2.3 legacy": HIVE_2_3, "3.1": HIVE_3_1, "4.1": HIVE_4_1}
ORDERS, ITEMS = TABLES = ("default.orders", "default.items")

State = dict[str, Counter[tuple[Any, ...]]]


@pytest.fixture(params=LINES)
def hive(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A partitioned and bucketed table, and a plain one."""
    metastore = InMemoryMetastore(tmp_path, capabilities=LINES[request.param])
    with connect(metastore, local=LocalOptions(memory_bytes=1 << 20)) as connected:
        layout: dict[str, Any] = {"properties": {"transactional_properties": "default"}}
        buckets: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": 2}
        columns = "id bigint, item string, day date"
        connected.create_table(ORDERS, columns, partitioned_by=["day"], **layout, **buckets)
        connected.create_table(ITEMS, columns, **layout, **(buckets if "2.3" in request.param else {}))
        if "legacy" in request.param:
            make_legacy(metastore)
        yield connected


def make_legacy(metastore: InMemoryMetastore) -> None:
    """Give the empty tables the layout in which an update takes the place of its row."""
    for name in TABLES:
        table = metastore.get_table(*name.split("."))
        metastore.drop_table(table.database, table.name, delete_data=False)
        kept = {key: value for key, value in table.parameters.items() if key != "transactional_properties"}
        metastore.create_table(dataclasses.replace(table, parameters=kept))


def rows(*given: tuple[int, str, int]) -> pa.Table:
    """Rows: id, item, and the day of May."""
    names = ("id", "item", "day")
    typed = [(id_, item, datetime.date(2024, 5, day)) for id_, item, day in given]
    schema = pa.schema([("id", pa.int64()), ("item", pa.string()), ("day", pa.date32())])
    return pa.Table.from_pylist([dict(zip(names, each, strict=True)) for each in typed], schema)


def state(hive: Hive) -> State:
    """All rows of both tables."""
    with hive.snapshot(*TABLES) as view:
        return {name: counted(view.table(name).scan().to_arrow()) for name in TABLES}


def counted(found: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows and how often they occur."""
    return Counter(tuple(row[name] for name in ("id", "item", "day")) for row in found.to_pylist())


def position(hive: Hive) -> str:
    """The position of now."""
    with hive.changes(*TABLES, since="now") as feed:
        assert list(feed) == []
        return feed.position


def applied(before: State, feed: change_feed.ChangeFeed) -> tuple[State, list[Any]]:
    """The state after the changes of a feed, and its transactions."""
    found = {name: Counter(each) for name, each in before.items()}
    transactions = list(feed)
    for transaction in transactions:
        for name, table in transaction.tables.items():
            changes = table.to_arrow()
            kinds = changes["_change"]
            added = pc.is_in(kinds, pa.array(["insert", "update_after"]))
            found[name].subtract(counted(changes.filter(pc.invert(added))))
            found[name].update(counted(changes.filter(added)))
            assert min(found[name].values(), default=0) >= 0, "deleted before it was there"
    return {name: +each for name, each in found.items()}, transactions


@pytest.mark.thorough(1)
def test_the_changes_of_transactions(hive: Hive) -> None:
    """Inserts, updates and deletes in both tables, by transaction, with the position after each."""
    start = position(hive)
    with hive.transaction(*TABLES, create_partitions=True) as tx:
        tx.table(ORDERS).append(rows((1, "tea", 1), (2, "milk", 2)))
        tx.table(ITEMS).append(rows((7, "cup", 1)))
    hive.table(ORDERS).update(set={"item": "'coffee'"}, where="id = 1")
    hive.table(ORDERS).delete(where="id = 2")
    with hive.changes(*TABLES, since=start, on=["id"]) as feed:
        first, second, third = feed
        end = feed.position
    assert (first.txn_id is not None and [*first.tables] == [ITEMS, ORDERS]) or [*first.tables] == [*TABLES]
    assert first.tables[ORDERS].to_arrow().sort_by("id")["_change"].to_pylist() == ["insert", "insert"]
    changed = second.tables[ORDERS].to_arrow().to_pylist()
    shown = [(row["_change"], row["item"]) for row in changed]
    assert shown == [("update_before", "tea"), ("update_after", "coffee")]
    (gone,) = third.tables[ORDERS].to_arrow().to_pylist()
    assert (gone["_change"], gone["item"], gone["day"].day) == ("delete", "milk", 2)
    assert gone["ROW__ID"]["partition"] == "day=2024-05-02" and gone["_write_id"] > 0
    with hive.changes(*TABLES, since=first.position) as feed:
        assert [each.txn_id for each in feed] == [second.txn_id, third.txn_id]
    with hive.changes(*TABLES, since=end) as feed:
        assert list(feed) == []


@pytest.mark.thorough(1)
def test_the_beginning_and_net_changes(hive: Hive) -> None:
    """The tables as they are; and one change a row, without those that came and went."""
    hive.table(ORDERS).append(rows((1, "tea", 1), (2, "milk", 1)), create_partitions=True)
    with hive.changes(*TABLES, since="beginning", columns=["item"]) as feed:
        (whole,) = feed
        start = feed.position
        found = whole.tables[ORDERS].to_arrow()
    assert found.schema.names == ["_change", "_write_id", "ROW__ID", "item"]
    assert found["_change"].to_pylist() == ["insert"] * 2 and found["_write_id"].null_count == 0
    hive.table(ORDERS).append(rows((3, "wine", 1)))
    hive.table(ORDERS).update(set={"item": "'green tea'"}, where="id = 1")
    hive.table(ORDERS).update(set={"item": "'black tea'"}, where="id = 1")
    hive.table(ORDERS).delete(where="id = 3")
    with hive.changes(ORDERS, since=start, net=True, on=["id"]) as feed:
        (net,) = feed
        shown = [(row["_change"], row["item"]) for row in net.tables[ORDERS].to_arrow().to_pylist()]
    assert shown == [("update_before", "tea"), ("update_after", "black tea")]
    with hive.changes(ORDERS, since=net.position) as feed:
        assert list(feed) == []


@pytest.mark.thorough(1)
def test_open_and_aborted_transactions(hive: Hive) -> None:
    """A transaction with a lower id that commits later comes later; an aborted one never comes."""
    start = position(hive)
    slow = hive.transaction(ITEMS).begin()
    slow.table(ITEMS).append(rows((1, "cup", 1)))
    with pytest.raises(ZeroDivisionError), hive.transaction(ORDERS, create_partitions=True) as tx:
        tx.table(ORDERS).append(rows((8, "rum", 1)))
        raise ZeroDivisionError
    hive.table(ORDERS).append(rows((2, "milk", 2)), create_partitions=True)
    with hive.changes(*TABLES, since=start) as feed:
        (only,) = feed
        assert [*only.tables] == [ORDERS]
        middle = feed.position
    slow.commit()
    with hive.changes(*TABLES, since=middle) as feed:
        (late,) = feed
    assert [*late.tables] == [ITEMS]


@pytest.mark.parametrize(
    ("since", "message"),
    [
        ("17", "not a position of a change feed"),
        ('{"tables":{"default.orders":"x"}}', "not a position"),
        ('{"tables":{}}', "has no table default.items, default.orders"),
        (17, "not a position"),
    ],
)
def test_wrong_positions_are_refused(hive: Hive, since: Any, message: str) -> None:
    """The message says what to pass."""
    with pytest.raises(ConfigurationError, match=message), hive.changes(*TABLES, since=since):
        pass
    ahead = json.loads(position(hive))
    for name, text in ahead["tables"].items():
        parts = text.split(":")
        parts[-4 if name in text else 0] = "999"
        ahead["tables"][name] = ":".join(parts)
    text = json.dumps(ahead)
    with pytest.raises(ConfigurationError, match="is ahead of table"), hive.changes(*TABLES, since=text):
        pass


def test_a_feed_is_used_in_its_block(hive: Hive) -> None:
    """Before and after it, it says so."""
    feed = hive.changes(ORDERS, since="now")
    with pytest.raises(TransactionStateError, match="not open"):
        list(feed)
    feed.close()
    with pytest.raises(TransactionStateError, match="closed"):
        feed.open()
    with pytest.raises(ConfigurationError, match="at least one table"):
        hive.changes(since="now")
    with pytest.raises(MutationError, match="nothing"), hive.changes(ORDERS, since="now", on=["nothing"]):
        pass


def step(table: HiveTable, rng: random.Random) -> None:
    """A random change of a table."""
    match rng.randrange(5):
        case 0 | 1:
            new = [(rng.randrange(20), rng.choice("abc"), rng.randrange(1, 4)) for _ in range(3)]
            table.append(rows(*new))
        case 2:
            table.update(set={"item": f"'{rng.choice('xyz')}'"}, where=f"id < {rng.randrange(10)}")
        case 3:
            table.delete(where=f"id > {rng.randrange(20)}")
        case _:
            table.update(set={"day": "date '2024-05-05'"}, where=f"id = {rng.randrange(20)}")


def check_random_history(hive: Hive, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """State and feed equal state, for all pairs of positions, with large and small windows."""
    rng = random.Random(seed)
    seen = [(position(hive), state(hive))]
    several = hive.table(ORDERS)._table.version.uses_write_ids
    for _ in range(6):
        with hive.transaction(*TABLES, create_partitions=True) as tx:
            for _ in range(rng.randrange(1, 4) if several else 1):
                step(tx.table(rng.choice(TABLES)), rng)
            if rng.random() < 0.2:
                tx.abort()
        seen.append((position(hive), state(hive)))
    _, end = seen[-1]
    for number, (start, before) in enumerate(seen):
        for size in (change_feed.BYTES_PER_EVENT, 1 << 30):
            monkeypatch.setattr(change_feed, "BYTES_PER_EVENT", size)
            for options in ({}, {"on": ["id"]}, {"net": True}):
                with hive.changes(*TABLES, since=start, **options) as feed:
                    after, transactions = applied(before, feed)
                assert after == end, (seed, options)
                if not options:
                    check_steps(before, transactions, [each for _, each in seen[number:]])


def check_steps(before: State, transactions: list[Any], states: list[State]) -> None:
    """Each transaction leads to a later state of the tables; in between there is none."""
    at = 0
    for transaction in transactions:
        before, _ = applied(before, [transaction])  # type: ignore[arg-type]
        at = states.index(before, at)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_random_histories(hive: Hive, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """See :func:`check_random_history`."""
    check_random_history(hive, seed, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_random_histories(hive: Hive, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """See :func:`check_random_history`."""
    check_random_history(hive, seed, monkeypatch)


@pytest.mark.thorough(1)
def test_a_delete_without_its_row_is_refused(hive: Hive) -> None:
    """Somebody has removed the directory of the row."""
    hive.table(ITEMS).append(rows((1, "tea", 1), (2, "milk", 1)))
    hive.table(ITEMS).append(rows((3, "wine", 1), (4, "beer", 1)))
    with hive.changes(ITEMS, since="now") as feed:
        start = feed.position
    hive.table(ITEMS).delete(where="id = 2")
    folder = Path(hive.metastore.get_table(*ITEMS.split(".")).location.removeprefix("file:"))
    shutil.rmtree(next(each for each in sorted(folder.iterdir()) if each.name.startswith("delta_")))
    with (
        pytest.raises(DirectoryStateError, match=r"items.*1 rows were updated or deleted.* only 0 of them"),
        hive.changes(ITEMS, since=start) as feed,
    ):
        list(feed)


@pytest.mark.thorough
def test_images_of_keys_have_only_keys_and_partition(hive: Hive) -> None:
    """The same changes as with all images; the other columns of old rows are NULL."""
    hive.table(ORDERS).append(rows((1, "tea", 1), (2, "milk", 1), (3, "wine", 2)), create_partitions=True)
    with hive.changes(ORDERS, since="now") as feed:
        start = feed.position
    hive.table(ORDERS).update(set={"item": "'green tea'"}, where="id = 1")
    hive.table(ORDERS).append(rows((4, "cup", 1)))
    hive.table(ORDERS).update(set={"item": "'mug'"}, where="id in (1, 4)")
    hive.table(ORDERS).delete(where="id in (2, 4)")
    for net in (False, True):
        found = {}
        for images in ("keys", "all"):
            with hive.changes(ORDERS, since=start, on=["id"], net=net, images=images) as feed:
                found[images] = [t.tables[ORDERS].to_arrow() for t in feed]
        assert sum(each.num_rows for each in found["all"]) == (3 if net else 9)
        for keys, whole in zip(found["keys"], found["all"], strict=True):
            is_new = pc.is_in(whole["_change"], pa.array(["insert", "update_after"]))
            items = pc.if_else(is_new, whole["item"], pa.scalar(None, pa.string()))
            at = whole.schema.get_field_index("item")
            assert keys.equals(whole.set_column(at, "item", items))
    with pytest.raises(ConfigurationError, match=r"key columns of each table: name those of default\.items"):
        hive.changes(*TABLES, since=start, on={ORDERS: ["id"]}, images="keys")
    with pytest.raises(ConfigurationError, match="expected 'all' or 'keys'"):
        hive.changes(ORDERS, since=start, on=["id"], images="key")  # type: ignore[arg-type]
