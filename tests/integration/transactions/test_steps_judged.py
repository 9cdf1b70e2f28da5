"""Several steps on a table in one transaction, on real Hive: its readers, its SQL and its compactors."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_table import HiveTable
from tests.integration.transactions.test_lines import KEYS, Line, Table, on_both
from tests.integration.transactions.test_lines import line as line

pytestmark = pytest.mark.slow

LAYOUTS = [
    pytest.param(3, KEYS, id="bucketed partitions"),
    pytest.param(0, KEYS, id="partitions"),
    pytest.param(0, (), id="plain"),
]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])


class Program:
    """Random steps on two tables, and the rows that they should hold in the end."""

    def __init__(self, tables: Sequence[Table], rng: random.Random) -> None:
        self.tables = tables
        self.rng = rng

    @property
    def _steps(self) -> Sequence[Callable[[HiveTable, Table], None]]:
        return (
            *(self._append, self._update, self._delete, self._merge) * 2,
            self._delete_where,
            self._update_where,
            self._overwrite,
        )

    def run(self, hive: Hive, steps: int) -> None:
        """Run a transaction; a scan inside it must find what the model has."""
        names = [table.name for table in self.tables]
        with hive.transaction(*names, create_partitions=True) as tx:
            for _ in range(steps):
                table = self.rng.choice(self.tables)
                self.rng.choice(self._steps)(tx.table(table.name), table)
                if self.rng.random() < 0.5:
                    self._check(tx.table(table.name), table)

    def _check(self, written: HiveTable, table: Table) -> None:
        found = written.scan(["id", "name", "n"]).to_arrow().to_pylist()
        assert sorted(tuple(each.values()) for each in found) == sorted(
            row for _, row in table.expected.values()
        )

    def _rows(self, table: Table, rows: Sequence[tuple[int, str, int]]) -> pa.Table:
        data = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
        if table.is_partitioned:
            days = [table.partition_of(row)[3:] for row in rows]
            data = data.append_column("ds", pa.array(days, pa.string()))
        return data

    def _some(self, table: Table) -> list[int]:
        return [id_ for id_ in table.expected if self.rng.random() < 0.3]

    def _new(self, table: Table, count: int) -> list[tuple[int, str, int]]:
        first = max(table.expected, default=0) + 1
        return [(first + n, f"s{self.rng.randrange(100)}", self.rng.randrange(1000)) for n in range(count)]

    def _append(self, written: HiveTable, table: Table) -> None:
        new = self._new(table, self.rng.randrange(5))
        written.append(self._rows(table, new))
        table.expected |= {row[0]: (table.partition_of(row), row) for row in new}

    def _update(self, written: HiveTable, table: Table) -> None:
        ids, n = self._some(table), self.rng.randrange(1000)
        found = written.scan(row_ids=True, where=pc.field("id").isin(ids)).to_arrow()
        at = found.schema.get_field_index("n")
        written.update(found.set_column(at, "n", pa.array([n] * len(found), pa.int32())))
        table.expected |= {id_: (table.expected[id_][0], (*table.expected[id_][1][:2], n)) for id_ in ids}

    def _delete(self, written: HiveTable, table: Table) -> None:
        ids = self._some(table)
        written.delete(written.scan([], row_ids=True, where=pc.field("id").isin(ids)))
        for id_ in ids:
            del table.expected[id_]

    def _merge(self, written: HiveTable, table: Table) -> None:
        new = [(id_, "merged", self.rng.randrange(1000)) for id_ in self._some(table)] + self._new(table, 2)
        merge = written.merge(self._rows(table, new), on=["id"])
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        table.expected |= {row[0]: (table.partition_of(row), row) for row in new}

    def _delete_where(self, written: HiveTable, table: Table) -> None:
        written.delete(where="id % 7 = 2 OR name LIKE 's1%'")
        for id_, (_, row) in [*table.expected.items()]:
            if id_ % 7 == 2 or str(row[1]).startswith("s1"):
                del table.expected[id_]

    def _update_where(self, written: HiveTable, table: Table) -> None:
        written.update(set={"n": "n + 1", "name": "'set'"}, where="n >= 500 AND name <> 'merged'")
        for id_, (place, row) in table.expected.items():
            if row[2] is not None and row[2] >= 500 and row[1] != "merged":
                table.expected[id_] = (place, (id_, "set", row[2] + 1))

    def _overwrite(self, written: HiveTable, table: Table) -> None:
        new = self._new(table, self.rng.randrange(3))
        places = {table.partition_of(row) for row in new}
        if table.is_partitioned:
            written.overwrite(self._rows(table, new), partitions="dynamic")
            gone = [id_ for id_, (place, _) in table.expected.items() if place in places]
        else:
            written.overwrite(self._rows(table, new), where="id % 4 = 1 OR name LIKE 's%'")
            rows = [row for _, row in table.expected.values()]
            gone = [row[0] for row in rows if row[0] % 4 == 1 or str(row[1]).startswith("s")]
        for id_ in gone:
            del table.expected[id_]
        table.expected |= {row[0]: (table.partition_of(row), row) for row in new}


@on_both
@pytest.mark.parametrize(("buckets", "keys"), LAYOUTS)
def test_hive_reads_changes_and_compacts_what_steps_wrote(
    line: Line, buckets: int, keys: Sequence[ColumnInfo]
) -> None:
    """Random programs; then UPDATE and DELETE by Hive, a minor and a major compaction, and another program.

    Rows are inserted, updated and deleted under one write id, by several statements.
    """
    rng = random.Random(11)
    tables = [line.table(buckets, keys=keys) for _ in range(2)]
    program = Program(tables, rng)
    with connect(line.metastore) as hive:
        for _ in range(3):
            program.run(hive, 8)
            for table in tables:
                table.check()
        for kind in ("minor", "major"):
            for table in tables:
                table.sql("UPDATE TABLE SET name = 'by Hive' WHERE id % 3 = 0")
                table.sql("DELETE FROM TABLE WHERE id % 5 = 1")
                for id_, (place, row) in [*table.expected.items()]:
                    if id_ % 3 == 0:
                        table.expected[id_] = (place, (id_, "by Hive", row[2]))
                    if id_ % 5 == 1:
                        del table.expected[id_]
                table.check()
                table.compact(kind)
                table.check()
            program.run(hive, 8)
            for table in tables:
                table.check()
                table.check_queries()


@on_both
@pytest.mark.long
@pytest.mark.parametrize(("buckets", "keys"), LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_random_programs(line: Line, buckets: int, keys: Sequence[ColumnInfo], seed: int) -> None:
    """Many programs in a row on the same tables, without a compaction."""
    tables = [line.table(buckets, keys=keys) for _ in range(2)]
    program = Program(tables, random.Random(seed))
    with connect(line.metastore) as hive:
        for _ in range(20):
            program.run(hive, 8)
        for table in tables:
            table.check()
