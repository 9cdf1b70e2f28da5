"""Random histories: our writers, Hive's own SQL and Hive's compactor take turns on one table.

After every step four answers must be equal, ROW__IDs included: a plain model, our snapshot reader, Hive's row
reader and (values only, it hides ids) Hive's vectorised reader. A failing history prints its seed and its
steps; ``--history-seed N`` runs it alone (with ``--long`` for the seeds of the long run).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from judges.hive import Hive23
from metastore_client import connect
from metastore_client.client import MetastoreClient
from metastore_client.model import CompactionType, DataOperationType
from metastore_client.valid_ids import ValidTxnList
from mutation_api.acid.layout import (
    DeltaDirectory,
    delete_delta_directory_name,
    delta_directory_name,
    parse_directory_name,
)
from mutation_api.acid.version import AcidVersion
from mutation_api.client.builder import MutatorClientBuilder
from mutation_api.orc.snapshot_reader import plan_splits, read_split
from mutation_api.orc.storage import Storage
from mutation_api.table.acid_table import AcidTable
from mutation_api.worker.coordinator import MutatorCoordinator

pytestmark = pytest.mark.slow

DEFAULT_SEEDS = (*range(1, 13), 147)  # 147: Hive compacts one range twice
LONG_SEEDS = range(100, 320)
STEPS_PER_HISTORY = 7

RowId = tuple[int, int, int]
Row = tuple[int, str | None, float | None]


@dataclass
class Model:
    """What the table should hold: partition -> ROW__ID -> row."""

    partitions: dict[str, dict[RowId, Row]] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, RowId, Row]]:
        """Every row, sorted."""
        return sorted(
            ((name, row_id, row) for name, rows in self.partitions.items() for row_id, row in rows.items()),
            key=lambda r: (r[0], r[1]),
        )

    def values(self) -> list[tuple[str, Row]]:
        """Every row without its id, sorted."""
        return sorted(((name, row) for name, _, row in self.rows()), key=repr)

    def copy(self) -> Model:
        """A model that can be changed without changing this one."""
        return Model({name: dict(rows) for name, rows in self.partitions.items()})


@dataclass(frozen=True)
class Shape:
    """The table of one history."""

    properties: str
    is_partitioned: bool
    num_buckets: int


class History:
    """One history: applies steps to the table and to the model, and compares after each."""

    def __init__(self, hive: Hive23, database: str, seed: int, metastore: MetastoreClient) -> None:
        self.hive = hive
        self.metastore = metastore
        self.random = random.Random(seed)
        self.shape = Shape(
            properties=self.random.choice(["legacy", "default"]),
            is_partitioned=self.random.random() < 0.5,
            num_buckets=self.random.choice([1, 2, 3]),
        )
        self.database = database
        self.table = f"h{seed}"
        self.full_name = f"{database}.{self.table}"
        self.model = Model()
        self.next_id = 1
        self.log: list[str] = [f"seed {seed}: {self.shape}"]

    # -- the table
    def create(self) -> None:
        partitioned = "partitioned by (ds string)" if self.shape.is_partitioned else ""
        properties = "'transactional'='true'"
        if self.shape.properties == "default":
            properties += ", 'transactional_properties'='default'"
        self.hive.sql(
            f"create table {self.full_name} (id bigint, msg string, v double) {partitioned} "
            f"clustered by (id) into {self.shape.num_buckets} buckets stored as orc "
            f"tblproperties ({properties})"
        )

    def partition_names(self) -> list[str]:
        return ["ds=a", "ds=b", "ds=c d"] if self.shape.is_partitioned else [""]

    @staticmethod
    def values_of(partition_name: str) -> list[str]:
        return [partition_name.split("=", 1)[1]] if partition_name else []

    def new_row(self) -> Row:
        # Small ids make Hive's own inserts and ours collide in the same buckets.
        self.next_id += self.random.choice([1, 1, 1, 2, 5])
        return (self.next_id, self.random_text(), self.random.choice([None, 0.5, -1.25, 1e300, 3.0]))

    def random_text(self) -> str | None:
        return self.random.choice([None, "", "a", "é", "日本", "x" * 40, f"m{self.random.randrange(1000)}"])

    # -- steps
    def step(self) -> None:
        steps = [
            (self.mutate, 6),
            (self.mutate_and_abort, 1),
            (self.die_after_publishing, 1),
            (self.sql_insert, 1),
            (self.sql_update, 1),
            (self.sql_delete, 1),
            (self.compact, 2),
        ]
        action = self.random.choices([s for s, _ in steps], [w for _, w in steps])[0]
        self.log.append(action.__name__)
        action()

    def mutate(self) -> None:
        """A transaction of ours with any mix of inserts, updates and deletes."""
        after = self.model.copy()
        with self.client() as client:
            transaction = client.new_transaction()
            with transaction:
                table = transaction.table(self.full_name)
                with MutatorCoordinator(table) as coordinator:
                    self.write_changes(coordinator, table, after)
                    transaction.add_manifests(self.full_name, coordinator.writer_id, coordinator.close())
        self.model = after

    def mutate_and_abort(self) -> None:
        """The same, but aborted: nothing may show."""
        with self.client() as client:
            transaction = client.new_transaction()
            transaction.begin()
            table = transaction.table(self.full_name)
            coordinator = MutatorCoordinator(table)
            self.write_changes(coordinator, table, self.model.copy())
            transaction.add_manifests(self.full_name, coordinator.writer_id, coordinator.close())
            transaction.abort()

    def die_after_publishing(self) -> None:
        """Files lie under their final names, registered, and the transaction is aborted by the server."""
        with self.client() as client:
            transaction = client.new_transaction()
            transaction.begin()
            table = transaction.table(self.full_name)
            coordinator = MutatorCoordinator(table)
            self.write_changes(coordinator, table, self.model.copy())
            manifests = coordinator.close()
            if self.shape.is_partitioned:
                names = sorted({m.partition_name for m in manifests})
                self.metastore.add_partitions(
                    self.database, self.table, [list(m.partition_values) for m in manifests]
                )
                self.metastore.add_dynamic_partitions(
                    table.required_txn_id(), self.database, self.table, names, DataOperationType.UPDATE
                )
            for manifest in manifests:
                storage = Storage.for_location(manifest.final_path)
                final = storage.path(manifest.final_path)
                storage.create_directory(final.rsplit("/", 1)[0])
                storage.rename(storage.path(manifest.staged_path), final)
            self.metastore.abort_txn(table.required_txn_id())
            transaction.abort()

    def write_changes(self, coordinator: MutatorCoordinator, table: AcidTable, model: Model) -> None:
        """Group by (partition, bucket), updates and deletes in ROW__ID order, then inserts."""
        txn_id = table.required_txn_id()
        for name in self.partition_names():
            if self.random.random() < 0.3:
                continue
            rows = model.partitions.setdefault(name, {})
            for bucket in range(self.shape.num_buckets):
                self.write_group(coordinator, txn_id, name, bucket, rows)

    def write_group(
        self, coordinator: MutatorCoordinator, txn_id: int, name: str, bucket: int, rows: dict[RowId, Row]
    ) -> None:
        values = self.values_of(name)
        counter = 0
        for row_id in sorted(r for r in rows if r[1] == bucket):
            chance = self.random.random()
            if chance < 0.2:
                coordinator.delete(values, {"ROW__ID": row_id})
                del rows[row_id]
            elif chance < 0.5:
                row = (rows[row_id][0], self.random_text(), None)
                coordinator.update(values, self.record(row) | {"ROW__ID": row_id})
                if self.shape.properties == "default":
                    del rows[row_id]
                    rows[(txn_id, bucket, counter)] = row
                    counter += 1
                else:
                    rows[row_id] = row
        for _ in range(self.random.choice([0, 0, 1, 3])):
            row = self.new_row()
            while row[0] % self.shape.num_buckets != bucket:  # Hive's hash of a small bigint is its value
                row = self.new_row()
            coordinator.insert(values, self.record(row))
            rows[(txn_id, bucket, counter)] = row
            counter += 1

    @staticmethod
    def record(row: Row) -> dict[str, object]:
        return {"id": row[0], "msg": row[1], "v": row[2]}

    def sql_insert(self) -> None:
        name = self.random.choice(self.partition_names())
        rows = [(self.new_row()[0], f"sql{self.random.randrange(100)}", 2.5) for _ in range(3)]
        partition = f" partition (ds='{name.split('=', 1)[1]}')" if name else ""
        values = ", ".join(f"({r[0]}, '{r[1]}', {r[2]})" for r in rows)
        self.hive.sql(f"insert into table {self.full_name}{partition} values {values}")
        self.relearn([(name, row) for row in rows], [])

    def sql_update(self) -> None:
        chosen = [r for r in self.model.rows() if self.random.random() < 0.4]
        if not chosen:
            return
        ids = ", ".join(str(row[0]) for _, _, row in chosen)
        self.hive.sql(f"update {self.full_name} set msg = 'by sql' where id in ({ids})")
        self.relearn(
            [(name, (row[0], "by sql", row[2])) for name, _, row in chosen],
            [(name, row) for name, _, row in chosen],
        )

    def sql_delete(self) -> None:
        chosen = [r for r in self.model.rows() if self.random.random() < 0.3]
        if not chosen:
            return
        ids = ", ".join(str(row[0]) for _, _, row in chosen)
        self.hive.sql(f"delete from {self.full_name} where id in ({ids})")
        self.relearn([], [(name, row) for name, _, row in chosen])

    def compact(self) -> None:
        kind = self.random.choice([CompactionType.MINOR, CompactionType.MAJOR])
        # Two compactions of one directory before its first cleaning make Hive's cleaner fail.
        self.hive.cleaner()
        for name, location in self.locations():
            # Hive's compactor fails where it has nothing to compact.
            state = self.hive.acid_state(location.removeprefix("file:"), self.valid().to_text())
            if not state.deltas or (kind is CompactionType.MINOR and self.is_compacted(state.deltas)):
                continue
            if self.metastore.compact(self.database, self.table, name or None, kind):
                while any(c.state == "initiated" and c.table == self.table for c in self.hive.worker()):
                    continue
        if self.random.random() < 0.7:
            self.hive.cleaner()

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

    def relearn(self, added: list[tuple[str, Row]], removed: list[tuple[str, Row]]) -> None:
        """After Hive's own DML: the values are known, the ids are Hive's to choose."""
        expected = self.model.values()
        for value in removed:
            expected.remove(value)
        expected = sorted([*expected, *added], key=repr)
        found = self.hive_rows("row")
        assert sorted(((name, row) for name, _, row in found), key=repr) == expected, self.story()
        self.model = Model()
        for name, row_id, row in found:
            self.model.partitions.setdefault(name, {})[row_id] = row

    # -- comparing
    def check(self) -> None:
        expected = self.model.rows()
        assert self.our_rows() == expected, f"our snapshot\n{self.story()}"
        assert self.hive_rows("row") == expected, f"Hive's row reader\n{self.story()}"
        vector = sorted(((name, row) for name, _, row in self.hive_rows("vector")), key=repr)
        assert vector == self.model.values(), f"Hive's vectorised reader\n{self.story()}"

    def valid(self) -> ValidTxnList:
        return ValidTxnList.from_open_txns(self.metastore.get_open_txns(), None)

    def client(self) -> Any:
        builder = MutatorClientBuilder().metastore(self.hive.uri)
        builder.add_sink_table(self.database, self.table, create_partitions=True)
        builder.lock_failure_listener(_Listener())
        return builder.build()

    def locations(self) -> Iterator[tuple[str, str]]:
        if not self.shape.is_partitioned:
            yield "", self.metastore.get_table(self.database, self.table).location
            return
        names = self.metastore.get_partition_names(self.database, self.table)
        for partition in self.metastore.get_partitions_by_names(self.database, self.table, names):
            yield partition.name, partition.location

    def our_rows(self) -> list[tuple[str, RowId, Row]]:
        with self.client() as client:
            (table,) = client.tables
        valid = self.valid()
        found: list[tuple[str, RowId, Row]] = []
        for name, location in self.locations():
            for split in plan_splits(table, name, location, valid):
                for batch in read_split(table, split, valid):
                    for record in batch.to_pylist():
                        row_id = record["ROW__ID"]
                        found.append(
                            (
                                name,
                                (row_id["transactionid"], row_id["bucketid"], row_id["rowid"]),
                                (record["id"], record["msg"], record["v"]),
                            )
                        )
        return sorted(found, key=lambda r: (r[0], r[1]))

    def hive_rows(self, mode: str) -> list[tuple[str, RowId, Row]]:
        found: list[tuple[str, RowId, Row]] = []
        for name, location in self.locations():
            for line in self.hive.read(
                location.removeprefix("file:"),
                "id:bigint,msg:string,v:double",
                self.valid().to_text(),
                transactional_properties=self.shape.properties,
                mode=mode,
                buckets=self.shape.num_buckets,
            ):
                found.append((name, line.row_id or (0, 0, 0), line.values))
        return sorted(found, key=lambda r: (r[0], r[1]))

    def story(self) -> str:
        return "\n".join(self.log)


class _Listener:
    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Any, error: BaseException) -> None:
        raise AssertionError(f"lock {lock_id} of {txn_id} on {tables} failed: {error}")


def _run(hive: Hive23, database: str, seed: int) -> None:
    with connect(hive.uri) as metastore:
        history = History(hive, database, seed, metastore)
        history.create()
        history.check()
        for _ in range(STEPS_PER_HISTORY):
            history.step()
            history.check()


@pytest.mark.parametrize("seed", DEFAULT_SEEDS)
def test_random_histories_agree(hive: Hive23, hive_database: str, seed: int) -> None:
    """After every step model, our snapshot, Hive's row reader and Hive's vectorised reader agree."""
    _run(hive, hive_database, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_random_histories_agree_in_the_long_run(hive: Hive23, hive_database: str, seed: int) -> None:
    """The same over many more histories."""
    _run(hive, hive_database, seed)
