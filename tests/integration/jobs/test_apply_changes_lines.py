"""apply_changes on real Hive 3.1 and 4.1: all kinds of tables, changed together in one transaction.

Hive's own INSERTs lie among our rows, so the changes meet ROW__IDs of both makers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, MapType, StringType, StructField, StructType

from judges.hive.hive_judges import Hive31, Hive41
from metastore_client.remote.thrift_client import open_client
from mutation_api.errors import BucketIdError, RowIdNotFoundError, TableNotMutableError
from mutation_api.spark.frame_table import create_table
from mutation_api.spark.job import apply_changes
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.transaction.builder import MutatorClientBuilder
from mutation_api.transaction.mutator_client import MutatorClient
from mutation_api.transaction.transaction import Transaction
from tests.fixtures.fix_judge import new_database

pytestmark = [
    pytest.mark.slow,
    pytest.mark.tasks,
    pytest.mark.parametrize("hive_line", [pytest.param("3.1", marks=pytest.mark.long), "4.1"], indirect=True),
]

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("msg", StringType()),
        StructField("tags", MapType(StringType(), IntegerType())),
        StructField("ds", StringType()),
    ]
)
TABLES: dict[str, dict[str, Any]] = {
    "bucketed": {"clustered_by": ("id",), "num_buckets": 3},
    "bucketed_parts": {"clustered_by": ("id",), "num_buckets": 3, "partitioned_by": ("ds",)},
    "plain": {},
    "plain_parts": {"partitioned_by": ("ds",)},
    "mm": {"insert_only": True},
    "mm_parts": {"insert_only": True, "partitioned_by": ("ds",)},
}
"""How each table is made; those that are not bucketed have no CLUSTERED BY."""

ACID = ("bucketed", "bucketed_parts", "plain", "plain_parts")
FILLED_BY_HIVE_TOO = ("bucketed", "plain_parts")

Row = tuple[int, str | None, str]
"""id, msg, ds; tags are always {"k": id}."""

Found = tuple[str, tuple[int, int, int] | None, Row]
"""Partition ('' if there are none), ROW__ID (None in insert-only tables) and the row."""


@dataclass
class Lines:
    """Six tables of one Hive, a client that has all of them as sinks, and what they should hold by id."""

    hive: Hive31 | Hive41
    spark: SparkSession
    client: MutatorClient
    database: str
    expected: dict[str, dict[int, Row]] = field(default_factory=lambda: {name: {} for name in TABLES})

    def name(self, table: str) -> str:
        """``database.table``."""
        return f"{self.database}.{table}"

    def inserts(self, ids: range) -> DataFrame:
        """Inserts of rows with these ids."""
        return self.spark.range(ids.start, ids.stop).selectExpr(
            "'insert' operation",
            "id",
            "IF(id % 7 = 3, NULL, 'ours') msg",
            "map('k', cast(id AS int)) tags",
            "concat('d', id % 3) ds",
        )

    def expect_inserts(self, table: str, ids: range) -> None:
        """Note what :meth:`inserts` makes."""
        self.expected[table] |= {n: (n, None if n % 7 == 3 else "ours", f"d{n % 3}") for n in ids}

    def insert_by_hive(self, table: str, ids: range) -> None:
        """Let Hive's SQL insert."""
        values = ", ".join(f"{n}, 'd{n % 3}'" for n in ids)
        self.hive.sql(
            f"INSERT INTO {self.name(table)} {'PARTITION (ds)' if is_partitioned(table) else ''} "
            "SELECT cast(id AS bigint), 'hive', map('k', cast(id AS int)), ds "
            f"FROM (SELECT stack({len(ids)}, {values}) AS (id, ds)) s",
            settings={"hive.exec.dynamic.partition.mode": "nonstrict"},
        )
        self.expected[table] |= {n: (n, "hive", f"d{n % 3}") for n in ids}

    def seen_by_hive(self, table: str) -> list[Found]:
        """What both of Hive's readers find, by id."""
        found: list[Found] = []
        for row in self.hive.table_rows(self.name(table), row_ids=table in ACID):
            id, msg, tags, *ds = row.values
            assert json.loads(tags) == {"k": id}, row
            ds = ds or [row.partition.removeprefix("ds=")]
            found.append((row.partition, row.row_id, (id, msg, ds[0])))
        return sorted(found, key=lambda each: each[2][0])

    def seen_by_us(self, table: str) -> list[Found]:
        """What our own snapshot finds, by id."""
        found: list[Found] = []
        name = self.name(table)
        for row in (
            read_table(self.client.open_snapshot(name), name, spark=self.spark).orderBy("id").collect()
        ):
            assert row["tags"] == {"k": row["id"]}, row
            partition = f"ds={row['ds']}" if is_partitioned(table) else ""
            txn, bucket, number, *where = row["ROW__ID"] if table in ACID else (None, None, None)
            assert where == ([partition] if is_partitioned(table) and table in ACID else [])
            row_id = None if txn is None else (txn, bucket, number)
            found.append((partition, row_id, (row["id"], row["msg"], row["ds"])))
        return found

    def check(self) -> None:
        """Hive's readers, Hive's count(*) and our snapshot agree with what is expected of every table."""
        for table, rows in self.expected.items():
            seen = self.seen_by_hive(table)
            assert [row for _, _, row in seen] == sorted(rows.values()), table
            assert seen == self.seen_by_us(table), table
        self.check_counts(*TABLES)

    def check_counts(self, *tables: str) -> None:
        """``SELECT count(*)``, from statistics or not, is right."""
        for table in tables:
            ((found,),) = self.hive.sql(f"SELECT count(*) FROM {self.name(table)}")
            assert found == len(self.expected[table]), table

    def staged(self) -> list[Path]:
        """Files hidden below the tables."""
        locations = [Path(table.location.path) for table in self.client.tables]
        hidden = (path for location in locations for path in location.rglob("_mutation_*/**/*"))
        return [path for path in hidden if path.is_file()]


def is_partitioned(table: str) -> bool:
    return "partitioned_by" in TABLES[table]


@pytest.fixture(scope="module")
def lines(hive_line: Hive31 | Hive41, spark: SparkSession) -> Iterator[Lines]:
    """The tables, made from a Spark schema; 60 rows of ours in each, ten of Hive's in some."""
    with new_database(hive_line) as database:
        builder = MutatorClientBuilder().metastore(hive_line.uri)
        with open_client(hive_line.uri) as metastore:
            for name, how in TABLES.items():
                create_table(metastore, f"{database}.{name}", SCHEMA, **how)
                builder.add_sink_table(database, name, create_partitions=True)
        with builder.build() as client:
            made = Lines(hive_line, spark, client, database)
            for name in FILLED_BY_HIVE_TOO:
                made.insert_by_hive(name, range(100, 110))
            with client.new_transaction() as transaction:
                for name in TABLES:
                    apply_changes(transaction, made.name(name), made.inserts(range(60)))
                    made.expect_inserts(name, range(60))
            yield made


def changes_of(lines: Lines, transaction: Transaction, table: str) -> DataFrame:
    """Update every fifth row, delete the next, insert ten; insert-only tables get the inserts alone."""
    inserts = lines.inserts(range(200, 210))
    if table not in ACID:
        return inserts
    rows = read_table(transaction, lines.name(table), spark=lines.spark)
    updates = rows.where("id % 5 = 0").withColumns({"msg": sf.lit("new"), "operation": sf.lit("update")})
    deletes = rows.where("id % 5 = 1").withColumn("operation", sf.lit("delete"))
    return updates.unionByName(deletes).unionByName(inserts, allowMissingColumns=True)


def expect_changes(lines: Lines, table: str) -> None:
    """Note what :func:`changes_of` makes."""
    rows = lines.expected[table]
    if table in ACID:
        for n in [n for n in rows if n % 5 < 2]:
            old = rows.pop(n)
            if n % 5 == 0:
                rows[n] = (n, "new", old[2])
    lines.expect_inserts(table, range(200, 210))


@pytest.mark.long
def test_all_kinds_of_tables_change_in_one_transaction(lines: Lines) -> None:
    """Over rows of ours and of Hive's: both of Hive's readers, its count(*) and our snapshot with ROW__IDs
    agree with what each table should hold; the next transaction aborts and leaves no trace.
    """
    lines.check_counts(*FILLED_BY_HIVE_TOO)
    with lines.client.new_transaction() as transaction:
        for table in TABLES:
            changes = changes_of(lines, transaction, table)
            summary = apply_changes(
                transaction, lines.name(table), changes, verify_row_ids=table == "plain_parts"
            )
            changed = [n for n in lines.expected[table] if n % 5 == 0] if table in ACID else []
            assert (summary.inserted, summary.updated) == (10, len(changed))
    for table in TABLES:
        expect_changes(lines, table)
    with pytest.raises(ZeroDivisionError), lines.client.new_transaction() as transaction:
        for table in ("bucketed_parts", "plain", "mm"):
            apply_changes(transaction, lines.name(table), _ruin(lines, transaction, table))
        raise ZeroDivisionError
    assert lines.staged() == []
    lines.check()


def _ruin(lines: Lines, transaction: Transaction, table: str) -> DataFrame:
    """Delete everything there is; of an insert-only table, insert what must never be seen."""
    if table not in ACID:
        return lines.inserts(range(900, 905))
    rows = read_table(transaction, lines.name(table), columns=[], spark=lines.spark)
    return rows.withColumn("operation", sf.lit("delete"))


def test_what_cannot_be_right_is_refused(lines: Lines) -> None:
    """Nothing is written, and the transaction goes on: a delete in an insert-only table, ROW__IDs that no
    snapshot can hold, rows that do not exist.
    """
    with lines.client.new_transaction() as transaction:
        rows = read_table(transaction, lines.name("plain"), spark=lines.spark).where("id = 7")
        txn, bucket, number = rows.select("ROW__ID.*").collect()[0]
        write_id = transaction.table(lines.name("plain")).required_write_id()
        wrong: Iterable[tuple[str, tuple[int, int, int], type[Exception], str]] = [
            ("mm", (txn, bucket, number), TableNotMutableError, "it is insert-only"),
            ("plain", (txn, bucket | 1 << 12, number), BucketIdError, "Hive never writes"),
            ("plain", (txn, bucket & 0xFFF, number + 4000), RowIdNotFoundError, "does not contain"),
            ("plain", (txn, bucket, number + 4000), RowIdNotFoundError, "does not contain"),
            ("plain", (write_id, bucket, number), RowIdNotFoundError, "cannot contain"),
            ("bucketed", (txn, 3, number), BucketIdError, "expected 0 <= bucket < 3"),
        ]
        for table, (a, b, c), error, message in wrong:
            row_id = f"named_struct('writeid', {a}L, 'bucketid', {b}, 'rowid', {c}L) ROW__ID"
            changes = lines.inserts(range(7, 8)).selectExpr("*", row_id)
            changes = changes.withColumn("operation", sf.lit("delete"))
            verify = message == "does not contain"
            with pytest.raises(error, match=message):
                apply_changes(transaction, lines.name(table), changes, verify_row_ids=verify)
            assert lines.staged() == []
    lines.check_counts("plain", "mm")
