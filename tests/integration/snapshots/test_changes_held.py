"""Looks of a feed with a hold between them: Hive compacts, cleans and overwrites, and nothing is lost."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from mutation_api import DirectoryStateError, Hive, connect
from mutation_api.storage.connect import storage_at
from tests.integration.snapshots.test_changes_judged import Shop, State, applied, clean, run_cleaner
from tests.unit.hive.test_changes import rows

pytestmark = pytest.mark.slow

LINES = [pytest.param(line, marks=pytest.mark.long) for line in ("2.3", "3.1")]


def shown(transactions: list[Any]) -> list[Any]:
    """The changes of each transaction, in order."""
    return [
        (
            each.txn_id,
            {name: sorted(map(str, table.to_arrow().to_pylist())) for name, table in each.tables.items()},
        )
        for each in transactions
    ]


def directories(hive: Hive, name: str) -> set[str]:
    """The bases and deltas of a table without partitions."""
    location = hive.table(name)._table.location
    return {each.name for each in storage_at(location).list(location)}


def compact(shop: Shop, kind: str) -> None:
    """Compact, unless there is nothing below the hold's transaction, and let the cleaner run."""
    try:
        shop.compact(kind)
    except HiveError as error:
        if not shop.judge.cannot_compact(error):
            raise
    run_cleaner(shop.judge)


def look(hive: Hive, shop: Shop, since: str, before: State) -> tuple[str, State, list[Any]]:
    """Read what is new, and leave a hold."""
    with hive.changes(*shop.names, since=since, hold=3600) as feed:
        found = list(feed)
        after = applied(before, found)
        return feed.position, after, shown(found)


@pytest.mark.parametrize("hive_line", ["4.1", *LINES], indirect=True)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 8))])
def test_a_hold_keeps_what_a_major_compaction_replaced(
    hive_line: HiveJudge, line_database: str, seed: int
) -> None:
    """Transaction by transaction as without the compaction; without the hold the files are gone."""
    rng = random.Random(seed)
    with connect(hive_line.uri) as hive:
        shop = Shop(hive_line, hive, line_database, rng)
        with hive.transaction(*shop.names, create_partitions=True) as tx:
            for name in shop.names:
                tx.table(name).append(rows(*[(-day, "p", day) for day in (1, 2, 3)]))
        for _ in range(2):
            shop.step()
        since, seen, _ = look(hive, shop, "beginning", {name: {} for name in shop.names})
        assert seen == shop.state()
        for number in range(3):
            for _ in range(3):
                shop.step()
            with connect(hive_line.uri) as other, other.changes(*shop.names, since=since) as feed:
                expected = shown(list(feed))
            compact(shop, "major")
            if number == 1:
                shop.step()
                compact(shop, "minor")
            since, seen, found = look(hive, shop, since, seen)
            assert found[: len(expected)] == expected
            assert seen == shop.state()
            run_cleaner(hive_line)
        kept = directories(hive, shop.names[1])
        last = shop.position()
        shop.step()
    for name in shop.names:
        clean(hive_line, name)  # before that Hive 4 refuses the next compaction
    shop.compact("major")
    for name in shop.names:
        clean(hive_line, name)
    with connect(hive_line.uri) as hive:
        assert not kept <= directories(hive, shop.names[1])
        with (
            pytest.raises(DirectoryStateError, match="no longer complete"),
            hive.changes(*shop.names, since=last),
        ):
            pass


@pytest.mark.parametrize("kind", ["major", "minor"])
@pytest.mark.parametrize(
    ("hive_line", "is_legacy"),
    [("2.3", False), ("2.3", True), ("3.1", False), ("4.1", False)],
    indirect=["hive_line"],
)
def test_hive_compacts_while_a_feed_is_open(
    hive_line: HiveJudge, line_database: str, is_legacy: bool, kind: str
) -> None:
    """Before Hive 4 the snapshot of the feed may use the new directories, but their bases lack deletes."""
    with connect(hive_line.uri) as hive:
        shop = Shop(hive_line, hive, line_database, random.Random(4), is_legacy=is_legacy)
        for _ in range(4):
            shop.step()
        since, before = shop.position(), shop.state()
        for _ in range(6):
            shop.step()
        with hive.changes(*shop.names, since=since) as feed:
            expected = shown(list(feed))
        with hive.changes(*shop.names, since=since) as feed:
            shop.compact(kind)
            run_cleaner(hive_line)
            found = list(feed)
        assert shown(found) == expected
        assert applied(before, found) == shop.state()


@pytest.mark.parametrize(
    ("hive_line", "kind"), [("3.1", "major"), ("4.1", "major"), ("4.1", "minor")], indirect=["hive_line"]
)
def test_hive_joins_deltas_of_an_insert_only_table_while_a_feed_is_open(
    hive_line: HiveJudge, line_database: str, kind: str
) -> None:
    """Its rows have no ids, so only the directories of single transactions tell when a row came."""
    name = f"{line_database}.t"
    hive_line.sql(
        f"CREATE TABLE {name} (id bigint) STORED AS ORC TBLPROPERTIES ('transactional'='true', "
        "'transactional_properties'='insert_only')"
    )
    with connect(hive_line.uri) as hive:
        for id in range(1, 6):
            hive.table(name).append(pa.table({"id": pa.array([id], pa.int64())}))
            if id == 2:
                with hive.changes(name, since="now") as feed:
                    since = feed.position
        old = directories(hive, name)
        with hive.changes(name, since=since) as feed:
            hive_line.compact(name, kind, clean=False)
            run_cleaner(hive_line)
            found = [each.tables[name].to_arrow()["id"].to_pylist() for each in feed]
        assert found == [[3], [4], [5]]
        assert directories(hive, name) - old


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_overwrites_and_truncates_of_hive(hive_line: HiveJudge, line_database: str) -> None:
    """On Hive 4 a hold blocks neither; the rows before are deletes, whatever is compacted afterwards."""
    with connect(hive_line.uri) as hive:
        shop = Shop(hive_line, hive, line_database, random.Random(3))
        orders, items = shop.names
        for _ in range(4):
            shop.step()
        since, seen, _ = look(hive, shop, "beginning", {name: {} for name in shop.names})
        hive_line.sql(f"INSERT OVERWRITE TABLE {items} SELECT id, 'w', day FROM {items} WHERE id % 2 = 0")
        hive_line.sql(f"UPDATE {items} SET item = 'v' WHERE id % 3 = 0")
        hive_line.sql(f"INSERT OVERWRITE TABLE {orders} PARTITION (day='2024-05-01') VALUES (7, 'w')")
        shop.step()
        compact(shop, "major")
        since, seen, _ = look(hive, shop, since, seen)
        assert seen == shop.state()
        run_cleaner(hive_line)
        hive_line.sql(f"INSERT INTO {items} VALUES (1, 'x', '2024-05-01')")
        hive_line.sql(f"TRUNCATE TABLE {items}")
        hive_line.sql(f"INSERT INTO {items} VALUES (2, 'y', '2024-05-01')")
        compact(shop, "major")
        since, seen, found = look(hive, shop, since, seen)
        assert seen == shop.state()
        assert len(found) == 3
