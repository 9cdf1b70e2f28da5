"""Random histories on Hive 2.3: our writers, Hive's own SQL and Hive's compactor take turns on one table.

After every step four answers must be equal, ROW__IDs included: a plain model, our snapshot reader, Hive's row
reader and (values only, it hides ids) Hive's vectorised reader. A failing history prints its seed and its
steps; ``--history-seed N`` runs it alone (with ``--long`` for the seeds of the long run).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from judges.hive.hive_judges import Hive23
from judges.hive.judge import HiveJudge
from metastore_client import open_client
from metastore_client.model import CompactionType
from metastore_client.valid_ids import ValidTxnList
from mutation_api.format.layout import (
    AcidVersion,
    DeltaDirectory,
    delete_delta_directory_name,
    delta_directory_name,
    parse_directory_name,
)
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable
from tests.integration.storages.remote_table import text_for_judge
from tests.integration.transactions.history import Found, History, Row, RowId, Step, in_order

pytestmark = pytest.mark.slow

DEFAULT_SEEDS = (1, 7, 147)  # 147: Hive compacts one range twice
LONG_SEEDS = (*range(2, 7), *range(8, 13), *range(100, 320))
STEPS_PER_HISTORY = 7


@dataclass(frozen=True)
class Shape:
    """The table of one history."""

    properties: str
    is_partitioned: bool
    num_buckets: int


class HistoryOfHive2(History):
    """On Hive 2.3, in either layout; Hive's readers work on the directory, which is cheap."""

    def choose_shape(self) -> Shape:
        self.shape = Shape(
            properties=self.random.choice(["legacy", "default"]),
            is_partitioned=self.random.random() < 0.5,
            num_buckets=self.random.choice([1, 2, 3]),
        )
        self.is_partitioned, self.num_buckets = self.shape.is_partitioned, self.shape.num_buckets
        return self.shape

    def create(self) -> None:
        partitioned = "partitioned by (ds string)" if self.is_partitioned else ""
        # The judge's initiator is on, and only started by hand.
        properties = "'transactional'='true', 'no_auto_compaction'='true'"
        if self.shape.properties == "default":
            properties += ", 'transactional_properties'='default'"
        self.hive.sql(
            f"create table {self.full_name} (id bigint, msg string, v double) {partitioned} "
            f"clustered by (id) into {self.num_buckets} buckets stored as orc "
            f"tblproperties ({properties})"
        )

    def steps(self) -> list[tuple[Step, int]]:
        return [
            (self.mutate, 6),
            (self.mutate_and_abort, 1),
            (self.die_after_publishing, 1),
            (self.sql_insert, 1),
            (self.sql_update, 1),
            (self.sql_delete, 1),
            (self.compact, 2),
        ]

    def updates_in_place(self) -> bool:
        return self.shape.properties == "legacy"

    def bucket_of(self, row_id: RowId) -> int:
        return row_id[1]

    def new_row_id(self, table: AcidTable, bucket: int, number: int) -> RowId:
        return (table.required_txn_id(), bucket, number)

    def belongs(self, row: Row, bucket: int) -> bool:
        return row[0] % self.num_buckets == bucket  # Hive's old hash of a small bigint is its value

    def valid(self) -> ValidTxnList:
        return self.valid_txns()

    def hive_rows(self, mode: str) -> list[Found]:
        found: list[Found] = []
        for name, location in self.locations():
            for line in self.hive.read(
                text_for_judge(location),
                "id:bigint,msg:string,v:double",
                self.valid().to_text(),
                transactional_properties=self.shape.properties,
                mode=mode,
                buckets=self.num_buckets,
            ):
                found.append((name, line.row_id or (0, 0, 0), line.values))
        return in_order(found)

    def is_worth_compacting(self, location: Location, kind: CompactionType) -> bool:
        # Hive's compactor fails where it has nothing to compact.
        deltas = self.hive.acid_state(text_for_judge(location), self.valid().to_text()).deltas
        return bool(deltas) and not (kind is CompactionType.MINOR and self.is_compacted(deltas))

    def is_compacted(self, deltas: Sequence[str]) -> bool:
        """Whether another minor compaction would make a split table unreadable for Hive itself.

        Hive moves the result to the name that the deltas have already, hence into that directory.
        """
        if self.shape.properties == "legacy":
            return False
        ranges = [
            d
            for d in (parse_directory_name(d, AcidVersion.V1_LEGACY) for d in deltas)
            if isinstance(d, DeltaDirectory)
        ]
        first, last = min(d.first for d in ranges), max(d.last for d in ranges)
        return delta_directory_name(first, last, None) in deltas or (
            delete_delta_directory_name(first, last, None) in deltas
        )


def _run(hive: HiveJudge, database: str, seed: int, steps: int = STEPS_PER_HISTORY) -> None:
    with open_client(hive.uri) as metastore:
        history = HistoryOfHive2(hive, database, seed, metastore)
        history.create()
        history.check()
        for _ in range(steps):
            history.step()
            history.check()
        history.check_end()


@pytest.mark.sampled(1)
@pytest.mark.feature(
    "bucketed tables",
    "partitions",
    "tables with `transactional_properties=legacy`",
    "inserts, updates, deletes read by SQL, row by row and vectorised",
    "SQL's UPDATE, DELETE and MERGE over the library's rows, and the reverse",
    "minor and major compaction of written files",
    "snapshots with ROW__ID",
    "no leftovers after an abort or a crash",
)
@pytest.mark.parametrize("seed", DEFAULT_SEEDS)
def test_random_histories_agree(hive: Hive23, hive_database: str, seed: int) -> None:
    """After every step model, our snapshot, Hive's row reader and Hive's vectorised reader agree."""
    _run(hive, hive_database, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_random_histories_agree_in_the_long_run(hive: Hive23, hive_database: str, seed: int) -> None:
    """The same over many more histories."""
    _run(hive, hive_database, seed)


@pytest.mark.parametrize(
    ("storage", "line", "seed"),
    [
        *(pytest.param("hdfs", "2.3", seed, marks=pytest.mark.long) for seed in range(401, 431)),
        *(pytest.param("s3", "2.3", seed, marks=pytest.mark.long) for seed in range(431, 461)),
    ],
)
def test_random_histories_agree_elsewhere(
    hive_elsewhere: HiveJudge, database_elsewhere: str, seed: int
) -> None:
    """The same with the warehouse on HDFS and on S3."""
    _run(hive_elsewhere, database_elsewhere, seed)
