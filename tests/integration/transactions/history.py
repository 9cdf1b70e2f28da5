"""Random histories of one table, on any line of Hive; see the test_random_histories modules.

A history applies steps to the table and to a model of it. The model holds ROW__IDs, since a table that loses
or repeats one looks right until the next update. A line says how its tables are made and who reads them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from judges.hive.judge import HiveJudge
from metastore_client.client import MetastoreClient
from metastore_client.model import CompactionType, DataOperationType
from metastore_client.valid_ids import ValidIdList, ValidTxnList
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.transaction import Transaction
from mutation_api.upkeep.compactor import compact_partition
from mutation_api.write.coordinator import MutatorCoordinator
from tests.integration.storages.remote_table import check_nothing_is_left
from tests.integration.upkeep.soundness import check_sound

RowId = tuple[int, int, int]
Row = tuple[int, str | None, float | None]
Found = tuple[str, RowId, Row]
Step = Callable[[], None]


@dataclass
class Model:
    """What the table should hold: partition -> ROW__ID -> row."""

    partitions: dict[str, dict[RowId, Row]] = field(default_factory=dict)

    def rows(self) -> list[Found]:
        """Every row, sorted."""
        return in_order(
            (name, row_id, row) for name, rows in self.partitions.items() for row_id, row in rows.items()
        )

    def values(self) -> list[tuple[str, Row]]:
        """Every row without its id, sorted."""
        return values_of(self.rows())

    def copy(self) -> Model:
        """A model that can be changed without changing this one."""
        return Model({name: dict(rows) for name, rows in self.partitions.items()})


def in_order(rows: Any) -> list[Found]:
    """By partition and ROW__ID."""
    return sorted(rows, key=lambda found: (found[0], found[1]))


def values_of(rows: list[Found]) -> list[tuple[str, Row]]:
    """The rows without their ids, sorted."""
    return sorted(((name, row) for name, _, row in rows), key=repr)


class History:
    """One history: applies steps to the table and to the model, and compares after each.

    Lines override what they do their own way.
    """

    is_partitioned: bool
    num_buckets: int
    share_compacted_here = 0.5
    """The share of compactions that the library does, where it can."""
    has_old_ranges = False
    """Whether Hive's compactor has analysed a column without values, whose old range it keeps as accurate."""

    def __init__(self, hive: HiveJudge, database: str, seed: int, metastore: MetastoreClient) -> None:
        self.hive: Any = hive
        self.metastore = metastore
        self.random = random.Random(seed)
        self.database = database
        self.table = f"h{seed}"
        self.full_name = f"{database}.{self.table}"
        self.model = Model()
        self.next_id = 1
        self.options = WriterOptions(column_statistics=seed % 2 == 1)
        self.log: list[str] = [f"Hive {hive.line}, seed {seed}: {self.choose_shape()}"]

    # -- what a line says ----------------------------------------------------------------------------------
    def choose_shape(self) -> object:
        """Choose the kind of table; the answer describes it in a failure."""
        raise NotImplementedError

    def create(self) -> None:
        """Make the table."""
        raise NotImplementedError

    def steps(self) -> list[tuple[Step, int]]:
        """The steps and how often each comes."""
        raise NotImplementedError

    def updates_in_place(self) -> bool:
        """Whether an updated row keeps its ROW__ID."""
        raise NotImplementedError

    def bucket_of(self, row_id: RowId) -> int:
        """The file that a row lies in."""
        raise NotImplementedError

    def new_row_id(self, table: AcidTable, bucket: int, number: int) -> RowId:
        """What the ``number``-th new row of a transaction in a bucket gets."""
        raise NotImplementedError

    def belongs(self, row: Row, bucket: int) -> bool:
        """Whether a new row is to go into the bucket."""
        raise NotImplementedError

    def valid(self) -> ValidIdList:
        """What a reader who comes now sees of the table's files."""
        raise NotImplementedError

    def hive_rows(self, mode: str) -> list[Found]:
        """All rows by Hive's reader ``row`` or ``vector``; the latter may hide ids."""
        raise NotImplementedError

    def is_worth_compacting(self, location: Location, kind: CompactionType) -> bool:
        """Whether Hive can do it there, and has something to do."""
        raise NotImplementedError

    # -- the table -----------------------------------------------------------------------------------------
    def partition_names(self) -> list[str]:
        return ["ds=a", "ds=b", "ds=c d"] if self.is_partitioned else [""]

    def buckets(self) -> range:
        """The files that our writers may fill."""
        return range(self.num_buckets)

    @staticmethod
    def values_of(partition_name: str) -> list[str]:
        return [partition_name.split("=", 1)[1]] if partition_name else []

    def new_row(self) -> Row:
        # Small ids make Hive's own inserts and ours collide in the same buckets.
        self.next_id += self.random.choice([1, 1, 1, 2, 5])
        return (self.next_id, self.random_text(), self.random.choice([None, 0.5, -1.25, 1e300, 3.0]))

    def random_text(self) -> str | None:
        return self.random.choice([None, "", "a", "é", "日本", "x" * 40, f"m{self.random.randrange(1000)}"])

    # -- steps ---------------------------------------------------------------------------------------------
    def step(self) -> None:
        steps = self.steps()
        action = self.random.choices([s for s, _ in steps], [w for _, w in steps])[0]
        self.log.append(action.__name__)
        action()

    def mutate(self) -> None:
        """A transaction of ours with any mix of inserts, updates and deletes."""
        after = self.model.copy()
        with self.client() as client:
            transaction = client.new_transaction()
            with transaction:
                self.write_and_hand_in(transaction, after)
        self.model = after

    def mutate_and_abort(self) -> None:
        """The same, but aborted: nothing may show."""
        with self.client() as client:
            transaction = client.new_transaction()
            transaction.begin()
            self.write_and_hand_in(transaction, self.model.copy())
            transaction.abort()

    def die_after_publishing(self) -> None:
        """Files lie under their final names, registered, and the transaction is aborted by the server."""
        with self.client() as client:
            transaction = client.new_transaction()
            transaction.begin()
            table = transaction.table(self.full_name)
            coordinator = self.coordinator(table)
            self.write_changes(coordinator, table, self.model.copy(), self.partition_names())
            manifests = coordinator.close()
            if self.is_partitioned and manifests:
                names = sorted({m.partition_name for m in manifests})
                self.metastore.add_partitions(
                    self.database, self.table, [list(m.partition_values) for m in manifests]
                )
                self.metastore.add_dynamic_partitions(
                    table.required_txn_id(),
                    self.database,
                    self.table,
                    names,
                    DataOperationType.UPDATE,
                    write_id=table.write_id,
                )
            for manifest in manifests:
                storage = storage_at(manifest.target)
                storage.create_directory(manifest.target.parent)
                storage.publish(manifest.staged, manifest.target)
            self.metastore.abort_txn(table.required_txn_id())
            transaction.abort()

    def write_and_hand_in(self, transaction: Transaction, model: Model) -> None:
        """Change the table and the model with one coordinator."""
        table = transaction.table(self.full_name)
        with self.coordinator(table) as coordinator:
            self.write_changes(coordinator, table, model, self.partition_names())
            transaction.add_manifests(self.full_name, coordinator.writer_id, coordinator.close())

    def coordinator(self, table: AcidTable) -> MutatorCoordinator:
        return MutatorCoordinator(table, options=self.options)

    def write_changes(
        self, coordinator: MutatorCoordinator, table: AcidTable, model: Model, names: list[str]
    ) -> None:
        """Group by (partition, bucket), updates and deletes in ROW__ID order, then inserts."""
        for name in names:
            if self.random.random() < 0.3:
                continue
            rows = model.partitions.setdefault(name, {})
            for bucket in self.buckets():
                self.write_group(coordinator, table, name, bucket, rows)

    def write_group(
        self,
        coordinator: MutatorCoordinator,
        table: AcidTable,
        name: str,
        bucket: int,
        rows: dict[RowId, Row],
    ) -> None:
        values = self.values_of(name)
        counter = 0
        for row_id in sorted(r for r in rows if self.bucket_of(r) == bucket):
            chance = self.random.random()
            if chance < 0.2:
                coordinator.delete(values, {"ROW__ID": row_id})
                del rows[row_id]
            elif chance < 0.5:
                row = (rows[row_id][0], self.random_text(), None)
                coordinator.update(values, self.record(row) | {"ROW__ID": row_id})
                if self.updates_in_place():
                    rows[row_id] = row
                else:
                    del rows[row_id]
                    rows[self.new_row_id(table, bucket, counter)] = row
                    counter += 1
        for row in self.new_rows(bucket):
            coordinator.insert(values, self.record(row))
            rows[self.new_row_id(table, bucket, counter)] = row
            counter += 1

    def new_rows(self, bucket: int) -> Iterator[Row]:
        """Some new rows for one bucket."""
        for _ in range(self.random.choice([0, 0, 1, 3])):
            row = self.new_row()
            while not self.belongs(row, bucket):
                row = self.new_row()
            yield row

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
            if storage_at(location).stat(location) is None:
                continue  # a partition without files, in an object store
            if not self.is_worth_compacting(location, kind):
                continue
            if self.compacts_itself(name, location, kind):
                self.log.append(f"our {kind.name} compaction of {name!r}")
                self.compact_here(name, kind)
            elif self.metastore.compact(self.database, self.table, name or None, kind):
                while any(c.state == "initiated" and c.table == self.table for c in self.hive.worker()):
                    continue
                rows = [*self.model.partitions.get(name, {}).values()]
                self.has_old_ranges |= any(all(row[at] is None for row in rows) for at in range(3))
        if self.random.random() < 0.7:
            self.hive.cleaner()

    def compacts_itself(self, name: str, location: Location, kind: CompactionType) -> bool:
        """Whether our own compactor does it.

        Not if the initiator has requested a compaction, or the cleaner has not come to the partition: it
        leaves what was compacted a moment ago. Before Hive 4 only major ones, after Hive's cleaner.
        """
        if self.random.random() >= self.share_compacted_here:
            return False
        found = [
            each
            for each in self.metastore.show_compactions()
            if (each.database, each.table) == (self.database, self.table)
        ]
        states = {each.state for each in found}
        if self.metastore.capabilities().has_compaction_workers:
            of_partition = {each.state for each in found if (each.partition or "") == name}
            return not states & {"initiated", "working"} and "ready for cleaning" not in of_partition
        active = states & {"initiated", "working", "ready for cleaning"}
        return kind is CompactionType.MAJOR and not active and storage_at(location).has_directories

    def compact_here(self, name: str, kind: CompactionType) -> None:
        has_queue = self.metastore.capabilities().has_compaction_workers
        done = compact_partition(
            self.metastore, self.full_name, name, kind=kind.name.lower(), without_queue=not has_queue
        )
        assert done.kept_for == "", self.story()

    def relearn(self, added: list[tuple[str, Row]], removed: list[tuple[str, Row]]) -> None:
        """After Hive's own DML: the values are known, the ids are Hive's to choose."""
        expected = self.model.values()
        for value in removed:
            expected.remove(value)
        expected = sorted([*expected, *added], key=repr)
        found = self.hive_rows("row")
        assert values_of(found) == expected, self.story()
        self.model = Model()
        for name, row_id, row in found:
            assert row_id not in self.model.partitions.setdefault(name, {}), self.story()
            self.model.partitions[name][row_id] = row

    # -- comparing -----------------------------------------------------------------------------------------
    def check(self, *, vectors: bool = True) -> None:
        """Compare everyone with the model; ``vectors``: the vectorised reader too."""
        expected = self.model.rows()
        self.agree("our snapshot", self.our_rows(), expected)
        self.agree("Hive's row reader", self.hive_rows("row"), expected)
        if vectors:
            found = self.hive_rows("vector")
            assert values_of(found) == self.model.values(), f"Hive's vectorised reader\n{self.story()}"

    def check_end(self) -> None:
        """Compare the table with the metastore's records, and look for leftovers."""
        known = {"column-statistics"} if self.has_old_ranges else set()
        found = check_sound(self.metastore, self.full_name, known)
        assert found.row_count == len(self.model.rows())
        check_nothing_is_left(self.metastore, self.database)

    def agree(self, who: str, found: list[Found], expected: list[Found]) -> None:
        """Compare, and say what is missing and what is too much."""
        missing, extra = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
        assert found == expected, (
            f"{who}\nmissing {sorted(missing)[:5]}\nextra {sorted(extra)[:5]}\n{self.story()}"
        )

    def valid_txns(self) -> ValidTxnList:
        return ValidTxnList.from_open_txns(self.metastore.get_open_txns(), None)

    def client(self, **sink: Any) -> Any:
        builder = MutatorClientBuilder().metastore(self.hive.uri)
        builder.add_sink_table(self.database, self.table, create_partitions=True, **sink)
        builder.lock_failure_listener(_Listener())
        return builder.build()

    def locations(self) -> Iterator[tuple[str, Location]]:
        if not self.is_partitioned:
            yield "", Location.parse(self.metastore.get_table(self.database, self.table).location)
            return
        names = self.metastore.get_partition_names(self.database, self.table)
        for partition in self.metastore.get_partitions_by_names(self.database, self.table, names):
            yield partition.name, Location.parse(partition.location)

    def our_rows(self, valid: ValidIdList | None = None) -> list[Found]:
        with self.client() as client:
            (table,) = client.tables
        valid = valid or self.valid()
        found: list[Found] = []
        for name, location in self.locations():
            for split in plan_splits(table, name, location, valid, self.valid_txns()):
                for batch in read_split(table, split, valid):
                    for record in batch.to_pylist():
                        row_id = tuple(record["ROW__ID"].values())
                        found.append((name, row_id, (record["id"], record["msg"], record["v"])))
        return in_order(found)

    def story(self) -> str:
        return "\n".join(self.log)


class _Listener:
    def lock_failed(self, lock_id: int | None, txn_id: int, tables: Any, error: BaseException) -> None:
        raise AssertionError(f"lock {lock_id} of {txn_id} on {tables} failed: {error}")
