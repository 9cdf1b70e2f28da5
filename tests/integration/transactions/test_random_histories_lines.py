"""Random histories on Hive 3.1 and 4.1: our writers, Hive's own SQL and Hive's compactor take turns.

After every step a plain model, our snapshot reader and Hive's row reader must agree, ROW__IDs included; after
every second one Hive's vectorised reader too. Tables are bucketed by either hash, or not at all; partitioned
or not. Half of the histories record column statistics, which must not differ from the rows at the end. A
failing history prints its seed and its steps; ``--history-seed N`` runs it alone (with ``--long``
for the seeds of the long run).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from judges.hive.hive_judges import Hive31, Hive41
from judges.hive.judge import HiveJudge
from metastore_client import open_client
from metastore_client.model import ColumnInfo, CompactionType
from metastore_client.valid_ids import ValidWriteIdList
from mutation_api.format.event import bucket_ids, bucket_property
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_hive_elsewhere import KINDS
from tests.fixtures.fix_judge import new_database, started
from tests.integration.storages.remote_table import text_for_judge
from tests.integration.transactions.history import Found, History, Model, Row, RowId, Step, in_order

pytestmark = pytest.mark.slow

SEEDS = {"3.1": range(3101, 3300), "4.1": range(4101, 4300)}
SEEDS_ELSEWHERE = {("hdfs", "3.1"): 3401, ("hdfs", "4.1"): 4401, ("s3", "4.1"): 4431}
STEPS_PER_HISTORY = 8
LARGEST_ID = 2000
"""Ids of rows stay far below it; Hive is asked for the hashes of all of them at once."""

COLUMNS = (ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"), ColumnInfo("v", "double"))


@dataclass(frozen=True)
class Shape:
    """The table of one history; ``num_buckets`` 0: not bucketed; then one writer, or several side by side."""

    is_partitioned: bool
    num_buckets: int
    bucketing_version: int
    is_made_by_sql: bool
    has_one_writer: bool


class HistoryWithWriteIds(History):
    """On Hive 3.1 or 4.1, where SQL reads the table."""

    def choose_shape(self) -> Shape:
        self.shape = Shape(
            is_partitioned=self.random.random() < 0.5,
            num_buckets=self.random.choice([0, 1, 2, 3]),
            bucketing_version=self.random.choice([1, 2]),
            is_made_by_sql=self.random.random() < 0.5,
            has_one_writer=self.random.random() < 0.5,
        )
        self.is_partitioned, self.num_buckets = self.shape.is_partitioned, self.shape.num_buckets
        if self.hive.line == "3.1" and self.is_partitioned and not self.num_buckets:
            # see test_hive_31_cannot_change_partitions_of_several_files
            self.shape = dataclasses.replace(self.shape, has_one_writer=True)
        return self.shape

    def create(self) -> None:
        if self.shape.is_made_by_sql or self.shape.bucketing_version == 1:
            self.create_by_sql()
        else:
            create_acid_table(
                self.metastore,
                self.full_name,
                COLUMNS,
                [ColumnInfo("ds", "string")] if self.is_partitioned else [],
                clustered_by=["id"] if self.num_buckets else [],
                num_buckets=self.num_buckets or None,
            )
        rows = [[n] for n in range(LARGEST_ID)] if self.num_buckets else []
        self.hashes = self.hive.hash(["bigint"], rows, version=self.shape.bucketing_version)

    def create_by_sql(self) -> None:
        partitioned = "partitioned by (ds string)" if self.is_partitioned else ""
        clustered = f"clustered by (id) into {self.num_buckets} buckets" if self.num_buckets else ""
        self.hive.sql(
            f"create table {self.full_name} (id bigint, msg string, v double) {partitioned} {clustered} "
            f"stored as orc tblproperties ('transactional'='true', "
            f"'bucketing_version'='{self.shape.bucketing_version}')"
        )

    def steps(self) -> list[tuple[Step, int]]:
        return [
            (self.mutate, 6),
            (self.mutate_and_abort, 1),
            (self.die_after_publishing, 1),
            (self.insert_side_by_side, 2),
            (self.sql_insert, 1),
            (self.sql_update, 1),
            (self.sql_delete, 1),
            (self.sql_merge, 1),
            (self.compact, 2),
        ]

    def updates_in_place(self) -> bool:
        return False

    def bucket_of(self, row_id: RowId) -> int:
        return int(bucket_ids(np.array([row_id[1]]))[0])

    def new_row_id(self, table: AcidTable, bucket: int, number: int) -> RowId:
        return (table.required_write_id(), bucket_property(bucket), number)

    def belongs(self, row: Row, bucket: int) -> bool:
        return (self.hashes[row[0]] & 0x7FFFFFFF) % self.num_buckets == bucket

    def buckets(self) -> range:
        """Hive 3.1 misplaces rows, but within the table's buckets; without buckets any file may have rows."""
        if self.num_buckets:
            return range(self.num_buckets)
        return range(max([3, *(self.bucket_of(row_id) for _, row_id, _ in self.model.rows())]) + 1)

    def new_rows(self, bucket: int) -> Iterator[Row]:
        """A writer of a table without buckets puts its new rows into one file."""
        if self.num_buckets:
            yield from super().new_rows(bucket)
        elif bucket == self.insert_bucket_id:
            yield from (self.new_row() for _ in range(self.random.choice([0, 1, 3])))

    # -- steps ---------------------------------------------------------------------------------------------
    def mutate(self) -> None:
        """Like its parent; who took a snapshot before still sees what was there then."""
        before, valid = self.model.rows(), self.valid()
        super().mutate()
        self.agree("our snapshot of the time before", self.our_rows(valid), before)

    def write_and_hand_in(self, transaction: Transaction, model: Model) -> None:
        """Let one writer, or one for each partition, write."""
        table = transaction.table(self.full_name)
        names = self.partition_names()
        for group in [names] if self.random.random() < 0.5 else [[name] for name in names]:
            with self.coordinator(table) as coordinator:
                self.write_changes(coordinator, table, model, group)
                transaction.add_manifests(self.full_name, coordinator.writer_id, coordinator.close())

    def coordinator(self, table: AcidTable) -> MutatorCoordinator:
        self.insert_bucket_id = 0 if self.shape.has_one_writer else self.random.randrange(4)
        return MutatorCoordinator(table, options=self.options, insert_bucket_id=self.insert_bucket_id)

    def insert_side_by_side(self) -> None:
        """Two transactions that only insert are open at once; one of them may end in an abort.

        Write ids then follow another order than the commits.
        """
        after = self.model.copy()
        with self.client(insert_only=True) as client:
            open_ones = [client.new_transaction(), client.new_transaction()]
            written = []
            for transaction in open_ones:
                transaction.begin()
                inserted = Model()
                self.write_and_hand_in(transaction, inserted)
                written.append((transaction, inserted))
            self.random.shuffle(written)
            is_aborted = self.random.random() < 0.3
            (first, first_rows), (second, second_rows) = written
            first.commit()
            self.merge_into(after, first_rows)
            self.agree("our snapshot between two commits", self.our_rows(), after.rows())
            if is_aborted:
                second.abort()
            else:
                second.commit()
                self.merge_into(after, second_rows)
        self.model = after

    @staticmethod
    def merge_into(model: Model, inserted: Model) -> None:
        for name, rows in inserted.partitions.items():
            model.partitions.setdefault(name, {}).update(rows)

    def sql_insert(self) -> None:
        """Like its parent, or by INSERT … SELECT, whose rows Hive 3.1 puts elsewhere."""
        if self.random.random() < 0.5:
            super().sql_insert()
            return
        rows = [(self.new_row()[0], f"sel{self.random.randrange(100)}", 1.5) for _ in range(3)]
        name = self.random.choice(self.partition_names())
        partition = f" partition (ds='{name.split('=', 1)[1]}')" if name else ""
        self.hive.sql(f"insert into {self.full_name}{partition} select id, msg, v from {_relation(rows)}")
        self.relearn([(name, row) for row in rows], [])

    def sql_merge(self) -> None:
        """MERGE that updates some rows, deletes some and adds one."""
        chosen = [r for r in self.model.rows() if self.random.random() < 0.4]
        new = (self.new_row()[0], "merged", 4.5)
        name = self.random.choice(self.partition_names())
        source = _relation([new, *((row[0], "merged", 4.5) for _, _, row in chosen)])
        value = f", '{name.split('=', 1)[1]}'" if name else ""
        self.hive.sql(
            f"merge into {self.full_name} t using {source} on t.id = s.id "
            "when matched and s.id % 3 = 0 then delete "
            "when matched then update set msg = s.msg "
            f"when not matched then insert values (s.id, s.msg, s.v{value})"
        )
        kept = [(place, (row[0], "merged", row[2])) for place, _, row in chosen if row[0] % 3]
        self.relearn([(name, new), *kept], [(place, row) for place, _, row in chosen])

    def compact(self) -> None:
        """Like its parent; the initiator has a look first, which makes the server forget empty aborts."""
        if self.random.random() < 0.5:
            self.hive.initiator()
        super().compact()

    # -- readers -------------------------------------------------------------------------------------------
    def valid(self) -> ValidWriteIdList:
        return self.metastore.get_valid_write_ids([self.full_name], self.valid_txns())[self.full_name]

    def hive_rows(self, mode: str) -> list[Found]:
        rows = self.hive.table_rows(self.full_name, reader=mode)
        return in_order((row.partition, row.row_id, row.values) for row in rows)

    def is_worth_compacting(self, location: Location, kind: CompactionType) -> bool:
        valid_txns = self.valid_txns().to_text()
        deltas = self.hive.acid_state(text_for_judge(location), self.valid().to_text(), valid_txns).deltas
        if kind is CompactionType.MINOR and self.breaks_by_minor_compaction():
            return not any(name.startswith("delete_") for name in deltas)
        return bool(deltas)

    def breaks_by_minor_compaction(self) -> bool:
        """Hive 3.1 then copies the deletes of each bucket into all, and cannot read them.

        See test_hive_31_ruins_tables_without_buckets.
        """
        return self.hive.line == "3.1" and not self.num_buckets and not self.shape.has_one_writer


def _relation(rows: list[tuple[int, str, float]]) -> str:
    """Literal rows (id, msg, v) as relation ``s``."""
    values = ", ".join(f"cast({id_} as bigint), '{msg}', cast({v} as double)" for id_, msg, v in rows)
    return f"(select stack({len(rows)}, {values}) as (id, msg, v)) s"


def _run(hive: HiveJudge, database: str, seed: int, steps: int = STEPS_PER_HISTORY) -> None:
    with open_client(hive.uri) as metastore:
        history = HistoryWithWriteIds(hive, database, seed, metastore)
        history.create()
        history.check()
        for number in range(1, steps + 1):
            history.step()
            history.check(vectors=number % 2 == 0)
        history.check_end()


@pytest.mark.long  # of 2.3 by default, in test_random_histories.py
@pytest.mark.feature(
    "bucketed tables",
    "tables without buckets",
    "partitions",
    "inserts, updates, deletes read by SQL, row by row and vectorised",
    "SQL's UPDATE, DELETE and MERGE over the library's rows, and the reverse",
    "minor and major compaction of written files",
    "snapshots with ROW__ID",
    "no leftovers after an abort or a crash",
)
@pytest.mark.parametrize(
    ("hive_line", "seed"),
    [(line, seed) for line, seeds in SEEDS.items() for seed in seeds],
    indirect=["hive_line"],
)
def test_random_histories_agree(hive_line: Hive31 | Hive41, line_database: str, seed: int) -> None:
    """Model, our snapshot, Hive's row reader and Hive's vectorised reader agree after the steps."""
    _run(hive_line, line_database, seed)


@pytest.mark.long  # a step there takes seconds
@pytest.mark.parametrize(
    ("storage", "line", "seed"),
    [(*place, seed) for place, first in SEEDS_ELSEWHERE.items() for seed in range(first, first + 30)],
)
def test_random_histories_agree_elsewhere(
    hive_elsewhere: HiveJudge, database_elsewhere: str, seed: int
) -> None:
    """The same with the warehouse on HDFS and on S3."""
    _run(hive_elsewhere, database_elsewhere, seed)


DEFAULTS = {
    "hive.acid.direct.insert.enabled": "true",
    "hive.compactor.crud.query.based": "true",
    "hive.vectorized.execution.enabled": "true",
}
"""Settings that a user's Hive 4.1 may have, and its judge has otherwise."""
ZONES = (
    ("3.1", "America/St_Johns", {}),
    ("4.1", "Asia/Kolkata", DEFAULTS),
    ("4.1", "Pacific/Apia", DEFAULTS),
)


@pytest.fixture(scope="module")
def judge_in_zone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HiveJudge]:
    """A judge of a line of ZONES."""
    line, zone, settings = request.param
    with started(KINDS[line], request, tmp_path_factory, settings, zone=zone) as judge:
        yield judge


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5001, 5009))
@pytest.mark.parametrize("judge_in_zone", ZONES, indirect=True, ids=lambda each: each[1])
def test_random_histories_agree_in_other_zones(judge_in_zone: HiveJudge, seed: int) -> None:
    """The same with Hive's processes in other zones, and with the settings that a user's Hive 4 has."""
    with new_database(judge_in_zone) as database:
        _run(judge_in_zone, database, seed)
