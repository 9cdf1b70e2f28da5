"""Compactors killed before each of their steps: Hive reads the same rows, and nothing is left over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from judges.hive.judge import HiveJudge
from metastore_client.client import MetastoreClient
from metastore_client.model import LockState, LockType
from metastore_client.remote.thrift_client import open_client
from mutation_api import Hive, connect
from mutation_api.format.layout import ACID_VERSION_FILE
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.storage.protocol import FileEntry
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.upkeep.kept_files import find_kept
from mutation_api.upkeep.sweep import sweep
from tests.fixtures.fix_newest import HIVE_4
from tests.integration.drivers.dying_compactor import (
    ACTIONS,
    KEEP,
    KEEP_PAST_QUEUE,
    MAJOR,
    MINOR,
    PAST_QUEUE,
    REBALANCE,
    RESTORE,
    TOGETHER,
)
from tests.integration.drivers.steps import run_program
from tests.integration.upkeep.compacted_shop import rows_of
from tests.integration.upkeep.soundness import check_sound

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

BUCKETS = "clustered by (id) into 2 buckets"
IDS = range(1, 8)
DAYS = "partitioned by (day string)"
QUEUED = {MAJOR: BUCKETS, MINOR: BUCKETS, REBALANCE: "", KEEP: "", RESTORE: BUCKETS, TOGETHER: DAYS}
WAITING = {PAST_QUEUE, KEEP_PAST_QUEUE}
LOCKING = {*WAITING, RESTORE}
"""The actions that wait for all transactions, and those that take an exclusive lock."""
PAST = {PAST_QUEUE: BUCKETS, KEEP_PAST_QUEUE: BUCKETS, RESTORE: BUCKETS}
QUEUED_ONES = "compactions by this library"
WITHOUT_QUEUE = "compactions by this library without the queue"
FEATURES = {RESTORE: "files from before a compaction come back"}


class Killed:
    """Tables of one content, each of which a killed compactor has worked on."""

    def __init__(self, judge: HiveJudge, hive: Hive, metastore: MetastoreClient, database: str) -> None:
        self.judge, self.hive, self.metastore, self.database = judge, hive, metastore, database
        self.is_queued = judge.line in HIVE_4

    def create(self, name: str, action: str, layout: str) -> str:
        """Make a table of three inserts, of which one is aborted, and a delete."""
        full_name = f"{self.database}.{name}"
        self.judge.sql(
            f"create table {full_name} (id int, item string, price double, at timestamp) {layout} "
            "stored as orc tblproperties ('transactional'='true', 'transactional_properties'='default', "
            "'no_auto_compaction'='true')"
        )
        for ids, ends in ((IDS[:4], True), ([777], False), (IDS[4:], True)):
            with self.hive.transaction(full_name, create_partitions=True) as tx:
                tx.table(full_name).append(self.rows_to_write(ids, layout))
                if not ends:
                    tx.abort()
        table = self.hive.table(full_name)
        if action == RESTORE:
            ACTIONS[KEEP if self.is_queued else KEEP_PAST_QUEUE](self.metastore, full_name)
            self.judge.clean(full_name)
        table.delete(where="id = 2 OR id = 6")
        return full_name

    def rows_to_write(self, ids: Sequence[int], layout: str) -> pa.Table:
        """Rows with these ids, on two days if the table has days."""
        rows = rows_of(*ids)
        if layout != DAYS:
            return rows
        return rows.append_column("day", pa.array(["even" if id % 2 == 0 else "odd" for id in ids]))

    def rows(self, full_name: str) -> list[list[object]]:
        """What both readers of Hive agree on: ROW__ID and values."""
        found = self.judge.table_rows(full_name)
        return sorted(([each.row_id, *each.values] for each in found), key=repr)

    def ids(self, full_name: str) -> list[object]:
        """The ids of the rows."""
        return sorted(row[1] for row in self.rows(full_name))  # type: ignore[type-var]

    def let_act(self, action: str, compactors: dict[str, int]) -> list[str]:
        """Run a compactor for each table up to its step. Return the steps that are printed."""
        return run_program("dying_compactor", self.judge.uri, action, compactors).split()

    def finish(self, full_name: str) -> None:
        """Compact in a process that lives, and let the cleaner come."""
        for partition in self.partitions(full_name):
            compact_partition(self.metastore, full_name, partition, without_queue=not self.is_queued)
        self.judge.clean(full_name)
        for _ in sweep(self.metastore, full_name):
            pass

    def partitions(self, full_name: str) -> list[str]:
        """The names of the table's partitions."""
        return self.metastore.get_partition_names(*full_name.split(".")) or [""]

    def is_locked(self, full_name: str) -> bool:
        """Whether a dead process holds an exclusive lock on the table or a part of it."""
        locks = self.metastore.show_locks(*full_name.split("."))
        return any(each.type is LockType.EXCLUSIVE and each.state is LockState.ACQUIRED for each in locks)

    def location(self, full_name: str, partition: str) -> Location:
        """The directory of a partition."""
        root = Location.parse(self.metastore.get_table(*full_name.split(".")).location)
        return root / partition if partition else root

    def check_nothing_is_left(self, full_name: str, step: str) -> None:
        """One base is there, and what the records of kept files tell."""
        for partition in self.partitions(full_name):
            location = self.location(full_name, partition)
            names = {each.location.name for each in _entries(location)}
            kept = {each.directory.name for each in find_kept(location)}
            found = names - kept - {ACID_VERSION_FILE}
            assert [name.partition("_")[0] for name in found] == ["base"], (step, names)


def _entries(location: Location) -> list[FileEntry]:
    return storage_at(location).list(location)


@pytest.fixture
def killed(hive_line: HiveJudge, line_database: str) -> Iterator[Killed]:
    with connect(hive_line.uri) as hive, open_client(hive_line.uri) as metastore:
        yield Killed(hive_line, hive, metastore, line_database)


def check_killed_at_every_step(killed: Killed, action: str, layout: str) -> int:
    """Kill a process for each step of the action, each on a table of its own. Return their number.

    The rows stay the same, with their ROW__IDs unless the action was a rebalance: at once if no exclusive
    lock is held, after the server has timed out the transactions, and after the next compaction, which leaves
    one base.
    """
    complete = killed.create("complete", action, layout)
    before = killed.rows(complete)
    steps = killed.let_act(action, {complete: 0})
    after = killed.rows(complete)
    assert killed.ids(complete) == [1, 3, 4, 5, 7]
    assert (before == after) is (action != REBALANCE)

    tables = {killed.create(f"k{n}", action, layout): n for n in range(1, len(steps) + 1)}
    allowed = {table: [killed.rows(table)] for table in tables}  # with ids of transactions on Hive 2.3
    if action == REBALANCE:
        allowed = {table: [*rows, after] for table, rows in allowed.items()}
    # What waits for all transactions also waits for those of the dead.
    groups = [{name: number} for name, number in tables.items()] if action in WAITING else [tables]
    for group in groups:
        killed.let_act(action, group)
        for table, number in group.items():
            if killed.is_locked(table):  # then Hive's readers wait until the server ends the transaction
                assert action in LOCKING, steps[number - 1]
            else:
                assert killed.rows(table) in allowed[table], steps[number - 1]
        killed.judge.time_out_transactions(0)
        killed.judge.initiator()
        for table, number in group.items():
            assert killed.rows(table) in allowed[table], steps[number - 1]
    for table, number in tables.items():
        killed.finish(table)
        assert killed.rows(table) in allowed[table], steps[number - 1]
        killed.check_nothing_is_left(table, steps[number - 1])
        assert check_sound(killed.metastore, table).row_count == len(before)
    return len(steps)


@pytest.mark.parametrize(
    ("hive_line", "action"),
    [
        *(
            pytest.param(line, action, marks=pytest.mark.feature(FEATURES.get(action, WITHOUT_QUEUE)))
            for line in ("2.3", "3.1")
            for action in PAST
        ),
        *(
            pytest.param("4.1", action, marks=pytest.mark.feature(FEATURES.get(action, QUEUED_ONES)))
            for action in QUEUED
        ),
    ],
    indirect=["hive_line"],
)
def test_killed_before_every_step(killed: Killed, action: str) -> None:
    """Kill -9 before each call to the metastore and each change of the storage."""
    layout = (QUEUED if killed.is_queued else PAST)[action]
    assert check_killed_at_every_step(killed, action, layout) > 10
