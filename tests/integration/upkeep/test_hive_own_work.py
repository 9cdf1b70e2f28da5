"""What Hive's own SQL and compactor leave is sound, and its past can be read as Hive read it then.

INSERT, UPDATE, DELETE and MERGE, then a minor and a major compaction, on every line and in every layout.
After each step nothing may be found damaged, as many rows counted as Hive reads, and every earlier state read
again must be what Hive read at that time, until the major compaction takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from judges.hive.judge import HiveJudge
from metastore_client.remote.thrift_client import ThriftMetastoreClient, open_client
from mutation_api.errors import DirectoryStateError
from mutation_api.hive.connect import connect as connect_hive
from mutation_api.upkeep.history import table_history
from mutation_api.upkeep.verify.finding import IdState
from tests.integration.merges.merge_by_sql import NO_MAP_JOIN
from tests.integration.upkeep.soundness import check_sound

pytestmark = pytest.mark.slow

SHAPES = {
    "legacy": ("2.3", "clustered by (id) into 2 buckets", "", False),
    "split": ("2.3", "clustered by (id) into 2 buckets", "default", True),
    "bucketed-3.1": ("3.1", "clustered by (id) into 2 buckets", "default", True),
    "unbucketed-3.1": ("3.1", "", "default", False),
    "bucketed-4.1": ("4.1", "clustered by (id) into 3 buckets", "default", False),
    "unbucketed-4.1": ("4.1", "", "default", True),
}
"""Line, buckets, transactional_properties, and whether it is partitioned."""

ALWAYS = ("split", "bucketed-3.1", "unbucketed-4.1")
Values = tuple[int, str]


def _cases() -> Iterator[object]:
    for name, (line, *_) in SHAPES.items():
        yield pytest.param(line, name, id=name, marks=() if name in ALWAYS else pytest.mark.long)


@dataclass
class Told:
    """A table of Hive's, and what Hive read of it after each transaction, by the highest id then."""

    hive: HiveJudge
    metastore: ThriftMetastoreClient
    name: str
    is_partitioned: bool
    past: dict[int, list[Values]] = field(default_factory=dict)
    readable_from: int = 0

    def sql(self, text: str) -> None:
        """Run a statement that changes the table, and remember what it left."""
        self.hive.sql(text, settings=NO_MAP_JOIN)
        self.past[self.newest_id()] = self.rows_by_hive()
        self.check()

    def rows_by_hive(self) -> list[Values]:
        """All rows, by SQL."""
        return sorted((row[0], row[1]) for row in self.hive.sql(f"select id, msg from {self.name}"))

    def newest_id(self) -> int:
        """The highest id that a snapshot sees."""
        with connect_hive(self.metastore) as hive, hive.snapshot(self.name) as view:
            return int(view._snapshot.valid_ids(self.name).high_watermark)  # type: ignore[union-attr]

    def rows_as_of(self, id: int) -> list[Values]:
        """All rows as they were."""
        with connect_hive(self.metastore) as hive, hive.snapshot(self.name, as_of=id) as view:
            rows = view.table(self.name).scan(["id", "msg"]).to_arrow()
        return sorted(zip(rows["id"].to_pylist(), rows["msg"].to_pylist(), strict=True))

    def check(self) -> None:
        """Sound, and every earlier state as Hive read it."""
        report = check_sound(self.metastore, self.name)
        assert report.row_count == len(self.rows_by_hive())
        for id, rows in self.past.items():
            if id >= self.readable_from:
                assert self.rows_as_of(id) == rows, f"as of id {id}"

    def check_history(self) -> None:
        """As many rows come and go as Hive reads, and the metastore's database has the same transactions."""
        history = table_history(self.metastore, self.name)
        assert history.problems == ()
        totals = [entry.total for entry in history.entries]
        assert sum(t.inserts - t.deletes for t in totals) == len(self.rows_by_hive())
        assert all(entry.state is IdState.COMMITTED for entry in history.entries if entry.partitions)
        if self.hive.line != "2.3":
            database, table = self.name.split(".")
            pairs = self.hive.metastore_rows(
                "SELECT T2W_WRITEID, T2W_TXNID FROM TXN_TO_WRITE_ID "
                f"WHERE T2W_DATABASE = '{database}' AND T2W_TABLE = '{table}'"
            )
            told = {e.id: e.txn_id for e in history.entries if e.txn_id is not None}
            assert told == {int(id or 0): int(txn or 0) for id, txn in pairs}
            assert told


@pytest.mark.feature("verify", "reading the past", "history of a table")
@pytest.mark.parametrize(("hive_line", "shape"), [*_cases()], indirect=["hive_line"])
def test_what_hive_leaves(hive_line: HiveJudge, line_database: str, shape: str) -> None:
    """See above."""
    _, buckets, properties, is_partitioned = SHAPES[shape]
    name = f"{line_database}.t"
    partitioned = "partitioned by (ds string)" if is_partitioned else ""
    parameters = "'transactional'='true', 'no_auto_compaction'='true'"
    if properties:
        parameters += f", 'transactional_properties'='{properties}'"
    hive_line.sql(
        f"create table {name} (id int, msg string) {partitioned} {buckets} stored as orc "
        f"tblproperties ({parameters})"
    )
    with open_client(hive_line.uri) as metastore:
        told = Told(hive_line, metastore, name, is_partitioned)
        into = f"{name} partition (ds='a')" if is_partitioned else name
        told.sql(f"insert into {into} values (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')")
        told.sql(f"update {name} set msg = 'TWO' where id = 2")
        told.sql(f"delete from {name} where id = 3")
        value = ", 'a'" if is_partitioned else ""
        # Hive 2.3 does not take both clauses where updates are split.
        clauses = "" if shape == "split" else "when matched then update set msg = s.msg "
        told.sql(
            f"merge into {name} t using (select stack(2, 4, 'FOUR', 5, 'five') as (id, msg)) s "
            f"on t.id = s.id {clauses}when not matched then insert values (s.id, s.msg{value})"
        )
        told.check_history()
        partition = "ds='a'" if is_partitioned else None
        hive_line.compact(name, "minor", partition=partition, clean=False)
        told.check()
        hive_line.clean(name)  # Hive 4 refuses the next compaction until then
        told.check()
        told.check_history()
        last = told.readable_from = told.newest_id()
        hive_line.compact(name, "major", partition=partition)
        told.past[last] = told.rows_by_hive()
        told.check()
        first = min(told.past)
        with pytest.raises(DirectoryStateError, match=r"base_\d+\S* holds rows .* can still be read is \d+"):
            told.rows_as_of(first)
        told.sql(f"insert into {into} values (6, 'six')")
