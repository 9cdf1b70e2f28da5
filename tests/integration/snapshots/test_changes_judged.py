"""The change feed of tables that Hive itself changes and compacts: state and feed equal the next state."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from judges.errors import HiveError
from judges.hive.judge import HiveJudge
from mutation_api import DirectoryStateError, Hive, connect
from tests.unit.hive.test_changes import counted, rows

pytestmark = pytest.mark.slow

State = dict[str, Counter[tuple[Any, ...]]]


def run_cleaner(judge: HiveJudge) -> None:
    """Let the cleaner run once."""
    _despite_later_bases(judge.cleaner)


def clean(judge: HiveJudge, name: str) -> None:
    """Let the cleaner run until it has done with a table."""
    while not _despite_later_bases(lambda: judge.clean(name)):
        pass


def _despite_later_bases(clean: Callable[[], object]) -> bool:
    """Return False if the cleaner gave up a compaction.

    Those of Hive 2.3 and 3.1 do so if they could not clean up after it before a major one of higher ids. Then
    they go on with the later one.
    """
    try:
        clean()
    except HiveError as error:
        text = str(error)
        if not (text.startswith("the cleaner failed") and "Not enough history available" in text):
            raise
        return False
    return True


class Shop:
    """Two tables, their rows as Hive reads them, and random changes by Hive and by this library."""

    def __init__(
        self, judge: HiveJudge, hive: Hive, database: str, rng: random.Random, *, is_legacy: bool = False
    ) -> None:
        self.judge, self.hive, self.rng = judge, hive, rng
        layout = "" if is_legacy else ", 'transactional_properties'='default'"
        properties = f"STORED AS ORC TBLPROPERTIES ('transactional'='true'{layout})"
        buckets = "CLUSTERED BY (id) INTO 2 BUCKETS"
        self.names = (f"{database}.orders", f"{database}.items")
        judge.sql(
            f"CREATE TABLE {self.names[0]} (id bigint, item string) PARTITIONED BY (day date) "
            f"{buckets} {properties}"
        )
        plain = buckets if judge.line == "2.3" else ""
        judge.sql(f"CREATE TABLE {self.names[1]} (id bigint, item string, day date) {plain} {properties}")
        self._number = 0

    def state(self) -> State:
        """All rows, read by Hive."""
        found = {
            name: self.judge.sql(f"SELECT id, item, cast(day AS string) FROM {name}") for name in self.names
        }
        return {name: Counter(map(tuple, each)) for name, each in found.items()}

    def position(self) -> str:
        """The position of now."""
        with self.hive.changes(*self.names, since="now") as feed:
            return feed.position

    def step(self) -> None:
        """A change of one table or of both."""
        name = self.rng.choice(self.names)
        self._number += 10
        match self.rng.randrange(5):
            case 0:
                values = ", ".join(f"({self._number + at}, 'h', '2024-05-0{at}')" for at in (1, 2))
                partition = "PARTITION (day)" if name == self.names[0] else ""
                self.judge.sql(
                    f"INSERT INTO {name} {partition} VALUES {values}",
                    settings={"hive.exec.dynamic.partition.mode": "nonstrict"},
                )
            case 1:
                self.judge.sql(
                    f"UPDATE {name} SET item = concat(item, 'u') WHERE id % 3 = {self.rng.randrange(3)}"
                )
            case 2:
                self.judge.sql(f"DELETE FROM {name} WHERE id % 7 = {self.rng.randrange(7)}")
            case 3:
                with self.hive.transaction(*self.names, create_partitions=True) as tx:
                    for each in self.names:
                        tx.table(each).append(rows((self._number, "o", 1), (self._number + 1, "o", 3)))
            case _:
                self.hive.table(name).update(
                    set={"item": "'m'"}, where=f"id < {self.rng.randrange(self._number)}"
                )

    def compact(self, kind: str) -> None:
        """Compact both tables; their old files stay until the cleaner runs."""
        for (day,) in self.judge.sql(f"SELECT DISTINCT cast(day AS string) FROM {self.names[0]}"):
            if self._can_compact(self.names[0], kind, f"day={day}"):
                self.judge.compact(self.names[0], kind, partition=f"day='{day}'", clean=False)
        if self._can_compact(self.names[1], kind):
            self.judge.compact(self.names[1], kind, clean=False)

    def _can_compact(self, name: str, kind: str, partition: str = "") -> bool:
        """Return False where Hive 2.3 fails: without files, or if it may join a joined delta with nothing.

        It moves the new delta into the old one, which has the same name, and then its SELECT fails.
        """
        if self.judge.line != "2.3" or kind != "minor":
            return True
        with self.hive.snapshot(name) as view:
            location = view.table(name).descriptor.location.local_path
        assert location is not None
        names = [each.name.removeprefix("delete_") for each in Path(location, partition).glob("*delta_*")]
        ranges = [name.split("_")[1:3] for name in names]
        return bool(ranges) and all(first == last for first, last in ranges)

    def check(self, seen: Sequence[tuple[str, State]]) -> State:
        """Return the state, to which the changes since all positions lead."""
        end = self.state()
        for position, before in seen:
            with self.hive.changes(*self.names, since=position) as feed:
                assert applied(before, list(feed)) == end
        return end


def applied(before: State, transactions: Sequence[Any]) -> State:
    """The state after transactions, none of which deletes what is not there."""
    found = {name: Counter(each) for name, each in before.items()}
    for transaction in transactions:
        for name, table in transaction.tables.items():
            changes = table.to_arrow()
            for kinds, sign in ((("delete", "update_before"), -1), (("insert", "update_after"), 1)):
                of_kind = changes.filter([each in kinds for each in changes["_change"].to_pylist()])
                for row, count in counted(of_kind).items():
                    found[name][(row[0], row[1], str(row[2]))] += sign * count
            assert min(found[name].values(), default=0) >= 0
    return {name: +each for name, each in found.items()}


@pytest.mark.parametrize(
    ("hive_line", "is_legacy"),
    [("2.3", False), ("2.3", True), ("3.1", False), ("4.1", False)],
    indirect=["hive_line"],
)
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 8))])
def test_state_and_feed_equal_state(
    hive_line: HiveJudge, line_database: str, seed: int, is_legacy: bool
) -> None:
    """Between all positions, with a minor compaction in between, before and after its files are cleaned."""
    rng = random.Random(seed)
    with connect(hive_line.uri) as hive:
        shop = Shop(hive_line, hive, line_database, rng, is_legacy=is_legacy)
        seen = [(shop.position(), shop.state())]
        for number in range(6):
            shop.step()
            shop.step()
            if number == 3:
                before_cleaning = shop.check(seen)
                shop.compact("minor")
                assert shop.check(seen) == before_cleaning
                hive_line.cleaner()
                assert shop.check(seen) == before_cleaning
            seen.append((shop.position(), shop.state()))
        assert shop.check(seen) == seen[-1][1]
        shop.compact("major")
        hive_line.cleaner()
        with (
            pytest.raises(DirectoryStateError, match="no longer complete"),
            hive.changes(*shop.names, since=seen[0][0]) as feed,
        ):
            list(feed)
        position, before = shop.position(), shop.state()
        assert before == seen[-1][1]
        shop.step()
        with hive.changes(*shop.names, since=position) as feed:
            assert applied(before, list(feed)) == shop.state()


@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_deletes_are_those_that_hive_reads_itself(hive_line: HiveJudge, line_database: str) -> None:
    """Hive 4 shows deleted rows with the write id of the delete."""
    name = f"{line_database}.t"
    hive_line.sql(
        f"CREATE TABLE {name} (id bigint, item string) STORED AS ORC TBLPROPERTIES ('transactional'='true')"
    )
    with connect(hive_line.uri) as hive:
        with hive.changes(name, since="now") as feed:
            start = feed.position
        hive_line.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        hive_line.sql(f"DELETE FROM {name} WHERE id = 2")
        hive_line.sql(f"UPDATE {name} SET item = 'z' WHERE id = 3")
        with hive.changes(name, since=start) as feed:
            found = [row for each in feed for row in each.tables[name].to_arrow().to_pylist()]
    deleted = sorted(
        (row["id"], row["item"], row["_write_id"]) for row in found if row["_change"] == "delete"
    )
    shown = hive_line.sql(
        f"SELECT id, item, ROW__ID.writeid FROM {name}('acid.fetch.deleted.rows'='true') "
        "WHERE ROW__IS__DELETED ORDER BY id"
    )
    assert [tuple(row) for row in shown] == deleted == [(2, "b", 2), (3, "c", 3)]
