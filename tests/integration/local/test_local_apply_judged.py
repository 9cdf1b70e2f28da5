"""apply_arrow on real Hive 2.3, 3.1 and 4.1: what it wrote is read by both of Hive's readers and by our own.

Every table is filled by several threads and changed by one, as small change sets are, or the other way round.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from judges.hive.hive_judges import Hive23
from judges.hive.judge import HiveJudge
from metastore_client.model import ColumnInfo
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import RowIdNotFoundError
from mutation_api.format.event import ROW_ID_COLUMN
from mutation_api.read.table_scan import TableScan
from mutation_api.read.table_view import open_table
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.upkeep.create_acid_table import create_acid_table
from mutation_api.upkeep.sweep import sweep
from mutation_api.write import apply as apply_module
from mutation_api.write.apply import apply_arrow
from mutation_api.write.change_set import SMALL_ROWS
from mutation_api.write.local_plan import LocalOptions
from tests.fixtures.fix_judge import LINES, new_database
from tests.integration.conftest import MakeTable

pytestmark = pytest.mark.slow

COLUMNS = [ColumnInfo("id", "bigint"), ColumnInfo("msg", "string"), ColumnInfo("at", "timestamp")]
DS = [ColumnInfo("ds", "string")]
BUCKETED: dict[str, Any] = {"clustered_by": ["id"], "num_buckets": 3}
PARTITIONED: dict[str, Any] = {"partitioned_by": DS}
OF_HIVE_2 = {
    "legacy": BUCKETED,
    "legacy_parts": BUCKETED | PARTITIONED,
    "split": BUCKETED,
    "split_parts": BUCKETED | PARTITIONED,
}
LATER: dict[str, dict[str, Any]] = {
    "bucketed": BUCKETED,
    "bucketed_parts": BUCKETED | PARTITIONED,
    "plain": {},
    "plain_parts": PARTITIONED,
    "mm": {"insert_only": True},
    "mm_parts": {"insert_only": True, **PARTITIONED},
}
PARTITION_COUNT = 12
"""With three buckets: 36 groups for three threads."""

Rows = list[dict[str, Any]]


@dataclasses.dataclass
class Tables:
    """The tables of one Hive, and a client that writes them all."""

    hive: HiveJudge
    client: MutatorClient
    database: str
    how: dict[str, dict[str, Any]]

    def seen_by_hive(self, table: str) -> list[tuple[Any, ...]]:
        """Partition, ROW__ID (None in insert-only tables), id and msg as both of Hive's readers find them."""
        rows = self.hive.table_rows(f"{self.database}.{table}", row_ids=not table.startswith("mm"))
        return sorted((row.partition, row.row_id, *row.values[:2]) for row in rows)

    def seen_by_us(self, table: str) -> list[tuple[Any, ...]]:
        """The same by our own reader."""
        found = []
        for row in self.rows(table):
            row_id = row.get(ROW_ID_COLUMN)
            numbers = row_id and tuple(row_id[name] for name in list(row_id)[:3])
            partition = f"ds={row['ds']}" if "partitioned_by" in self.how[table] else ""
            found.append((partition, numbers, row["id"], row["msg"]))
        return sorted(found)

    def rows(self, table: str) -> Rows:
        """All visible rows with their ROW__IDs."""
        name = f"{self.database}.{table}"
        with self.client.open_snapshot(name) as view:
            scan = TableScan(open_table(view, name), row_ids=not table.startswith("mm"))
            found: Rows = scan.to_arrow().to_pylist()
        return found

    def inserts(self, table: str, ids: range) -> Rows:
        """New rows of many partitions."""
        rows: Rows = [
            {
                "operation": "insert",
                "id": n,
                "msg": None if n % 7 == 3 else "new",
                "ds": f"d{n % PARTITION_COUNT}",
            }
            for n in ids
        ]
        if "partitioned_by" not in self.how[table]:
            for row in rows:
                del row["ds"]
        return rows

    def changes(self, table: str) -> Rows:
        """Update every fifth row, delete the next, insert some."""
        inserts = self.inserts(table, range(1000, 1030))
        if table.startswith("mm"):
            return inserts
        known = self.rows(table)
        updates = [{**row, "operation": "UPDATE", "msg": "changed"} for row in known if row["id"] % 5 == 0]
        deletes = [
            {"operation": "Delete", **{name: row[name] for name in (ROW_ID_COLUMN, "ds") if name in row}}
            for row in known
            if row["id"] % 5 == 1
        ]
        return [*deletes, *inserts, *updates]


@pytest.fixture
def tables(hive_line: HiveJudge) -> Iterator[Tables]:
    """All kinds of tables that this Hive has."""
    is_hive_2 = isinstance(hive_line, Hive23)
    how = OF_HIVE_2 if is_hive_2 else LATER
    with new_database(hive_line) as database:
        builder = MutatorClientBuilder().metastore(hive_line.uri)
        with open_client(hive_line.uri) as metastore:
            for name, options in how.items():
                made = create_acid_table(metastore, f"{database}.{name}", COLUMNS, **options)
                if name.startswith("legacy"):
                    metastore.drop_table(database, name, delete_data=True)
                    metastore.create_table(dataclasses.replace(made, parameters={"transactional": "true"}))
                builder.add_sink_table(database, name, create_partitions=True)
        with builder.build() as client:
            yield Tables(hive_line, client, database, how)


def arrow(rows: Rows) -> pa.Table:
    """The rows, each with all columns."""
    names = list(dict.fromkeys([*(name for row in rows for name in row), "at"]))
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])


@pytest.mark.long
@pytest.mark.newest
@pytest.mark.parametrize("hive_line", LINES, indirect=True)
def test_hive_reads_what_was_written(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables in one transaction, twice; a third one is refused and leaves no trace."""
    expected: dict[str, dict[int, tuple[str, str | None]]] = {}

    def by_threads(several: bool) -> None:
        monkeypatch.setattr(apply_module, "SMALL_ROWS", 1 if several else SMALL_ROWS)

    local = LocalOptions(threads=3)
    with tables.client.new_transaction() as transaction:
        for number, table in enumerate(tables.how):
            by_threads(number % 2 == 0)
            rows = tables.inserts(table, range(300))
            summary = apply_arrow(transaction, f"{tables.database}.{table}", arrow(rows), local=local)
            assert summary.inserted == 300
            expected[table] = {row["id"]: (row.get("ds", ""), row["msg"]) for row in rows}
    changes = {table: tables.changes(table) for table in tables.how}
    with tables.client.new_transaction() as transaction:
        for number, (table, rows) in enumerate(changes.items()):
            by_threads(number % 2 == 1)
            name = f"{tables.database}.{table}"
            summary = apply_arrow(transaction, name, arrow(rows), local=local, verify_row_ids=True)
            counts = [summary.inserted, summary.updated, summary.deleted]
            assert counts == ([30, 0, 0] if table.startswith("mm") else [30, 60, 60])
    for table, rows in expected.items():
        if not table.startswith("mm"):
            for number in list(rows):
                if number % 5 < 2:
                    where, _ = rows.pop(number)
                    if number % 5 == 0:
                        rows[number] = (where, "changed")
        rows |= {
            row["id"]: (row.get("ds", ""), row["msg"]) for row in tables.inserts(table, range(1000, 1030))
        }
        seen = tables.seen_by_hive(table)
        assert seen == tables.seen_by_us(table), table
        wanted = {(f"ds={ds}" if ds else "", number, msg) for number, (ds, msg) in rows.items()}
        assert {(partition, number, msg) for partition, _, number, msg in seen} == wanted, table
        assert len(seen) == len(wanted)
    table = next(iter(changes))
    with tables.client.new_transaction() as transaction:
        name = f"{tables.database}.{table}"
        with pytest.raises(RowIdNotFoundError, match="does not contain, among them: delete of"):
            apply_arrow(transaction, name, arrow(changes[table][:3]), local=local, verify_row_ids=True)
        transaction.abort()
    assert tables.seen_by_hive(table) == tables.seen_by_us(table)


def test_what_a_killed_process_has_staged_is_never_seen(make_table: MakeTable) -> None:
    """Hive reads nothing of it, and a sweep removes it once the transaction has timed out."""
    table = make_table()
    table.commit()
    words = [sys.executable, "-m", "tests.integration.drivers.local_driver", table.hive.uri, table.full_name]
    died = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300)
    assert died.returncode == -9, died.stderr
    assert table.staged()
    assert table.values() == []
    table.hive.time_out_transactions(0)
    with open_client(table.hive.uri) as metastore:
        list(sweep(metastore, table.full_name))
    assert not table.staged()
    assert table.values() == []
