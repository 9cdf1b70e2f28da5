"""A hold lets a feed read what was replaced since its last look, and lasts no longer than it may."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import ConfigurationError, DirectoryStateError, LockLostError
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_transaction import ConnectionOptions
from mutation_api.transaction.hold import open_holds
from mutation_api.upkeep.doctor import doctor
from tests.fixtures.fix_clock import FakeClock
from tests.unit.hive.test_changes import ITEMS, ORDERS, TABLES, applied, position, rows, state, step

DAY_1 = [{"day": "2024-05-01"}]


@pytest.fixture
def hive(tmp_path: Path) -> Any:
    """A partitioned and bucketed table, and a plain one."""
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    with connect(metastore) as connected:
        columns = "id bigint, item string, day date"
        connected.create_table(ORDERS, columns, partitioned_by=["day"], clustered_by=["id"], num_buckets=2)
        connected.create_table(ITEMS, columns)
        yield connected


def overwritten(hive: Hive, rng: random.Random) -> None:
    """Rows are replaced by others, or by nothing."""
    new = rows(*[(rng.randrange(20), "o", 1) for _ in range(rng.randrange(3))])
    if rng.random() < 0.5:
        hive.table(ITEMS).overwrite(new)
    else:
        hive.table(ORDERS).overwrite(new, partitions=DAY_1)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 100))])
def test_overwrites_between_two_looks(hive: Hive, seed: int) -> None:
    """The rows before an overwrite are deletes of its transaction, and earlier changes are there."""
    rng = random.Random(seed)
    hive.table(ORDERS).append(rows(*[(n, "a", 1 + n % 3) for n in range(9)]), create_partitions=True)
    found, since = state(hive), position(hive)
    with hive.changes(*TABLES, since=since, hold=600) as feed:
        assert list(feed) == []
    is_refused = False
    for number in range(12):
        if rng.random() < 0.4:
            overwritten(hive, rng)
        else:
            with hive.transaction(*TABLES, create_partitions=True) as tx:
                step(tx.table(rng.choice(TABLES)), rng)
        if number % 4 == 3:
            before = found
            options: dict[str, Any] = rng.choice([{}, {"on": ["id"]}, {"net": True}])
            with hive.changes(*TABLES, since=since, hold=600, **options) as feed:
                found, _ = applied(before, feed)
            assert found == state(hive)
            with connect(hive._metastore) as other:
                try:
                    with other.changes(*TABLES, since=since) as feed:
                        assert applied(before, feed)[0] == found
                except DirectoryStateError:
                    is_refused = True
            since = position(hive) if rng.random() < 0.5 else feed.position
    assert is_refused or seed > 2


@pytest.mark.parametrize("images", ["all", "keys"])
def test_an_overwrite_is_one_transaction(hive: Hive, images: Any) -> None:
    """A row that came after the last look is inserted, and deleted by the overwrite; keys make updates."""
    hive.table(ITEMS).append(rows((1, "a", 1), (2, "b", 1)))
    with hive.changes(ITEMS, since="beginning", hold=600) as feed:
        (whole,) = feed
        assert whole.tables[ITEMS].to_arrow().num_rows == 2
        since = feed.position
    hive.table(ITEMS).append(rows((3, "c", 1)))
    hive.table(ITEMS).overwrite(rows((1, "x", 1)))
    with hive.changes(ITEMS, since=since, on=["id"], images=images, hold=600) as feed:
        first, second = (each.tables[ITEMS].to_arrow().to_pylist() for each in feed)
    assert [(row["_change"], row["id"]) for row in first] == [("insert", 3)]
    a, b, c = ("a", "b", "c") if images == "all" else (None, None, None)
    assert sorted((row["_change"], row["id"], row["item"]) for row in second) == [
        ("delete", 2, b),
        ("delete", 3, c),
        ("update_after", 1, "x"),
        ("update_before", 1, a),
    ]
    assert len({row["_write_id"] for row in second}) == 1


def test_a_look_that_ends_early_keeps_what_it_has_not_read(hive: Hive) -> None:
    """The next one goes on after the last transaction that was returned."""
    with hive.changes(ITEMS, since="now", hold=600) as feed:
        since = feed.position
    for number in range(3):
        hive.table(ITEMS).append(rows((number, "a", 1)))
    hive.table(ITEMS).overwrite(rows((9, "x", 1)))
    seen = []
    for _ in range(9):
        with hive.changes(ITEMS, since=since, hold=600) as feed:
            for each in feed:
                seen.append(sorted(each.tables[ITEMS].to_arrow()["id"].to_pylist()))
                since = each.position
                break
    assert seen == [[0], [1], [2], [0, 1, 2, 9]]


def test_a_hold_ends_in_time(hive: Hive, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is certain any more. The doctor warns as long as it lasts."""
    build = ConnectionOptions.builder
    monkeypatch.setattr(ConnectionOptions, "builder", lambda options: build(options).clock(clock))
    with hive.changes(ITEMS, since="now", hold=60) as feed:
        since = feed.position
    hive.table(ITEMS).append(rows((1, "a", 1)))
    hive.table(ITEMS).overwrite(rows((9, "x", 1)))
    assert ITEMS in doctor(hive.metastore, "default").warnings[0]
    with hive.changes(ITEMS, since=since) as feed:
        hold = hive._holds.of([ITEMS])
        assert hold is not None and hold.lost is None
        clock.advance(61)
        assert hold._ended.wait(120)
        with pytest.raises(LockLostError, match="lasted 60 s"):
            list(feed)
    assert not open_holds(hive.metastore.get_open_txns())
    assert doctor(hive.metastore, "default").warnings == ()
    with pytest.raises(DirectoryStateError, match="no longer complete"), hive.changes(ITEMS, since=since):
        pass
    with pytest.raises(ConfigurationError, match="above 0"):
        hive.changes(ITEMS, since=since, hold=0)


def test_keys_of_each_table(hive: Hive) -> None:
    """A mapping names the keys of some tables; the others have none."""
    since = position(hive)
    for name in TABLES:
        hive.table(name).append(rows((1, "a", 1)), create_partitions=True)
        hive.table(name).update(set={"item": "'b'"}, where="id = 1")
    with hive.changes(*TABLES, since=since, on={ITEMS.upper(): ["ID"]}) as feed:
        found = [
            (name, kind)
            for each in feed
            for name, table in each.tables.items()
            for kind in table.to_arrow()["_change"].to_pylist()
        ]
    assert (ITEMS, "update_before") in found and (ORDERS, "update_before") not in found
    with pytest.raises(ConfigurationError, match=r"names default\.else"):
        hive.changes(*TABLES, since=since, on={"default.else": ["id"]})
