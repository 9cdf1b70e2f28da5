"""Our snapshot reader on tables that the SQL of Hive 3.1 and 4.1 wrote and their compactors compacted.

Each table is read by us, by Hive's row reader and by its vectorised reader, all with ROW__IDs, after a few
statements that leave one more kind of directory or file. Our reader is given what a client's snapshot knows.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from judges.hive.hive_judges import Hive31, Hive41
from judges.hive.model import HiveRow
from metastore_client.remote.thrift_client import open_client
from mutation_api.format.hive_type import parse_hive_type
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.orc.read.event_file import EventFile
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.transaction.builder import MutatorClientBuilder
from tests.fixtures.fix_judge import new_database, started
from tests.integration.files.hive_values import read_back, shown
from tests.support.acid_files import write_orc
from tests.support.keyed_rows import check_keyed_rows

pytestmark = pytest.mark.slow
LINES = pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)

GOLDEN = Path(__file__).parents[2] / "golden" / "acid"
ACID = "STORED AS ORC TBLPROPERTIES ('transactional'='true')"
MM = "STORED AS ORC TBLPROPERTIES ('transactional'='true', 'transactional_properties'='insert_only')"
DYNAMIC = {"hive.exec.dynamic.partition.mode": "nonstrict"}
THREE_FILES = {"mapreduce.job.reduces": "3", "hive.tez.auto.reducer.parallelism": "false"}

Row = tuple[str, Any, tuple[Any, ...]]


class SqlTable:
    """A table of the judge's SQL."""

    def __init__(self, judge: Hive31 | Hive41, database: str, columns: str, clauses: str):
        self.judge = judge
        self.name = f"{database}.t{next(_numbers)}"
        self.sql(f"CREATE TABLE $T ({columns}) {clauses}")

    def sql(self, text: str, settings: dict[str, str] | None = None) -> None:
        """Run a statement in which ``$T`` stands for the table."""
        self.judge.sql(text.replace("$T", self.name), settings=settings)

    def compact(self, kind: str, partition: str | None = None, *, clean: bool = False) -> None:
        self.judge.compact(self.name, kind, partition=partition, clean=clean)

    def check(self, count: int) -> list[EventFile]:
        """All three readers agree on so many rows. Returns the files that we read."""
        ours, files = self.ours()
        theirs = [
            self.as_shown(row) for row in self.judge.table_rows(self.name, row_ids=ours[0][1] is not None)
        ]
        assert sorted(ours, key=repr) == sorted(theirs, key=repr), sorted(f.location for f in files)
        assert len(ours) == count, ours
        return files

    def ours(self) -> tuple[list[Row], list[EventFile]]:
        rows: list[Row] = []
        files: list[EventFile] = []
        with MutatorClientBuilder().metastore(self.judge.uri).build() as client:
            snapshot = client.open_snapshot(self.name)
            table, valid = snapshot.table(self.name), snapshot.valid_ids(self.name)
            self.types = [parse_hive_type(c.type) for c in table.columns]
            partitions = [p.name for p in snapshot.partitions(self.name)] or [""]
            has_ids = table.version.has_row_ids
            for name in partitions:
                place = table.partition_location(name)
                for split in plan_splits(table, name, place, valid, snapshot.valid_txn_list):
                    files += split.files
                    options = ReadOptions(TimestampForm.MICROSECONDS)
                    check_keyed_rows(table, split, valid, options)
                    for batch in read_split(table, split, valid, row_ids=has_ids, options=options):
                        rows += [self._row(name, row, has_ids) for row in batch.to_pylist()]
        return rows, files

    def _row(self, partition: str, row: dict[str, Any], has_ids: bool) -> Row:
        row_id = tuple(row.pop("ROW__ID").values()) if has_ids else None
        return partition, row_id, tuple(map(shown, row.values(), self.types))

    def as_shown(self, row: HiveRow) -> Row:
        return row.partition, row.row_id, tuple(map(read_back, row.values, self.types))


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def database(hive_line: Hive31 | Hive41) -> Iterator[str]:
    with new_database(hive_line) as name:
        yield name


def directories(files: list[EventFile]) -> set[str]:
    """Directories of the files, without the numbers."""
    return {f.location.parent.name.partition("_0")[0].partition("_1")[0] for f in files}


@pytest.mark.newest
@LINES
def test_statements_and_compactions(hive_line: Hive31 | Hive41, database: str) -> None:
    """INSERT, UPDATE, DELETE, MERGE; minor and major, before and after cleaning; bucketed."""
    table = SqlTable(hive_line, database, "id bigint, msg string", f"CLUSTERED BY (id) INTO 3 BUCKETS {ACID}")
    table.sql("INSERT INTO $T VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d'),(5,'e'),(6,'f'),(7,NULL)")
    table.sql("UPDATE $T SET msg = concat(msg, '!') WHERE id < 4")
    table.sql("DELETE FROM $T WHERE id IN (1, 5)")
    table.sql(
        "MERGE INTO $T t USING (SELECT stack(3, 2L, 'two', 6L, 'gone', 9L, 'nine') AS (id, msg)) s "
        "ON t.id = s.id WHEN MATCHED AND s.msg = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET msg = s.msg WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.msg)"
    )
    assert directories(table.check(5)) == {"delta", "delete_delta"}
    table.compact("minor")
    table.sql("UPDATE $T SET msg = 'after minor' WHERE id IN (3, 9)")
    table.check(5)
    hive_line.cleaner()
    table.compact("major")
    table.sql("DELETE FROM $T WHERE id = 4")
    assert directories(table.check(4)) == {"base", "delete_delta"}
    hive_line.cleaner()
    table.check(4)


@pytest.mark.long
@LINES
def test_unbucketed_tables_of_several_writers(hive_line: Hive31 | Hive41, database: str) -> None:
    """Rows of several writers, changed together (in partitions Hive 3.1.3 fails on that itself)."""
    table = SqlTable(hive_line, database, "id bigint, msg string", ACID)
    table.sql(
        "INSERT INTO $T SELECT id, 'm' FROM (SELECT explode(array(1,2,3,4,5,6,7,8,9,10,11,12)) AS id) x "
        "DISTRIBUTE BY id",
        THREE_FILES,
    )
    table.sql("DELETE FROM $T WHERE id IN (2, 3, 4, 9, 10)")
    table.sql("UPDATE $T SET msg = 'U' WHERE id IN (1, 11, 12)", THREE_FILES)
    table.sql("INSERT INTO $T SELECT 20L, 'x' UNION ALL SELECT 21L, 'y'")
    assert len({f.bucket_id for f in table.check(9)}) > 1
    table.compact("major", clean=True)
    table.check(9)


@pytest.mark.long
@pytest.mark.feature("columns added later")
@LINES
def test_partitions_and_added_columns(hive_line: Hive31 | Hive41, database: str) -> None:
    """Keys of a date before 1582, files with fewer columns than the table, compaction of one partition."""
    table = SqlTable(hive_line, database, "id bigint, msg string", f"PARTITIONED BY (ds date) {ACID}")
    table.sql(
        "INSERT INTO $T PARTITION (ds) SELECT id, 'm', IF(id < 3, date'1500-03-01', date'2020-02-29') "
        "FROM (SELECT explode(array(1,2,3,4,5)) AS id) x",
        DYNAMIC,
    )
    table.sql("ALTER TABLE $T ADD COLUMNS (extra int) CASCADE")
    table.sql("INSERT INTO $T PARTITION (ds='2020-02-29') VALUES (20, 'new', 7)")
    table.sql("UPDATE $T SET extra = 1 WHERE id IN (1, 4)")
    table.sql("DELETE FROM $T WHERE id IN (2, 3)")
    table.check(4)
    table.compact("minor", "ds='2020-02-29'")
    table.check(4)


@pytest.mark.long
@pytest.mark.feature("rows from before the table was transactional, LOAD DATA")
@LINES
def test_plain_files(hive_line: Hive31 | Hive41, database: str, tmp_path: Path) -> None:
    """Original files and copies; LOAD DATA, also OVERWRITE; INSERT OVERWRITE; TRUNCATE; events on all."""
    columns = "id bigint, msg string"
    original = SqlTable(
        hive_line,
        database,
        columns,
        "CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC TBLPROPERTIES ('transactional'='false')",
    )
    original.sql("INSERT INTO $T VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d')")
    original.sql("INSERT INTO $T VALUES (5,'e'),(6,'f'),(7,'g'),(8,'h')")
    original.sql("ALTER TABLE $T SET TBLPROPERTIES ('transactional'='true', 'EXTERNAL'='FALSE')")
    original.sql("DELETE FROM $T WHERE id IN (1, 8)")
    original.sql("UPDATE $T SET msg = 'U' WHERE id IN (2, 5)")
    assert len([f for f in original.check(6) if f.location.name.endswith("_copy_1")]) > 0
    original.compact("major")
    original.check(6)

    loaded = SqlTable(hive_line, database, columns, ACID)
    for folder, names in (("first", ("000000_0", "000001_0")), ("second", ("000000_0",))):
        for number, name in enumerate(names):
            ids = pa.array(range(number * 10, number * 10 + 3), pa.int64())
            write_orc(tmp_path / folder / name, pa.table({"id": ids, "msg": ["x", "y", None]}))
    for _ in range(2):
        copy = shutil.copytree(tmp_path / "first", tmp_path / "copy")
        loaded.sql(f"LOAD DATA LOCAL INPATH '{copy}' INTO TABLE $T")
        shutil.rmtree(copy)
    loaded.sql("DELETE FROM $T WHERE id IN (1, 12)")
    assert directories(loaded.check(8)) == {"delta", "delete_delta"}
    loaded.sql(f"LOAD DATA LOCAL INPATH '{tmp_path / 'second'}' OVERWRITE INTO TABLE $T")
    loaded.sql("UPDATE $T SET msg = 'U' WHERE id = 2")
    assert directories(loaded.check(3)) == {"base", "delta", "delete_delta"}
    loaded.sql("INSERT OVERWRITE TABLE $T SELECT id + 100, msg FROM $T")
    loaded.sql("DELETE FROM $T WHERE id = 100")
    loaded.check(2)
    loaded.sql("TRUNCATE TABLE $T")
    loaded.sql("INSERT INTO $T VALUES (1, 'again')")
    loaded.check(1)


@pytest.mark.long
@LINES
def test_insert_only_tables(hive_line: Hive31 | Hive41, database: str) -> None:
    """Plain files by directory, UNION ALL below them, INSERT OVERWRITE, compaction; no ROW__IDs."""
    table = SqlTable(hive_line, database, "id bigint, msg string", f"PARTITIONED BY (ds string) {MM}")
    table.sql("INSERT INTO $T PARTITION (ds='a') VALUES (1,'a'),(2,'b')")
    table.sql("INSERT INTO $T PARTITION (ds='a') SELECT 3L, 'c' UNION ALL SELECT 4L, 'd'")
    table.check(4)
    table.sql("INSERT OVERWRITE TABLE $T PARTITION (ds='a') SELECT id, msg FROM $T WHERE id > 1")
    table.sql("ALTER TABLE $T ADD COLUMNS (extra int) CASCADE")
    table.sql("INSERT INTO $T PARTITION (ds='a') VALUES (5,'e',5)")
    table.check(4)
    table.compact("major", "ds='a'")
    assert directories(table.check(4)) == {"base"}


@pytest.mark.long
@LINES
def test_values_and_changed_types(hive_line: Hive31 | Hive41, database: str) -> None:
    """Days of all calendars as Hive shows them; columns whose type was changed after files were written."""
    table = SqlTable(
        hive_line,
        database,
        "id int, dt date, ts timestamp, c char(5), v varchar(5), de decimal(10,2), f float, s smallint",
        ACID,
    )
    days = ("0001-01-01", "1500-03-01", "1582-10-04", "1582-10-15", "1969-12-31", "9999-12-31")
    rows = [
        f"({n}, date'{day}', timestamp'{day} 01:02:03', 'ab', 'é日本', {n}.25, {n}.1, {n})"
        for n, day in enumerate(days)
    ]
    table.sql(f"INSERT INTO $T VALUES {', '.join(rows)}, (9, NULL, NULL, NULL, NULL, NULL, NULL, NULL)")
    table.check(7)
    for change in ("id id bigint", "de de decimal(12,1)", "f f double", "s s int", "v v varchar(2)"):
        table.sql(f"ALTER TABLE $T CHANGE COLUMN {change}")
    table.sql("UPDATE $T SET v = 'x' WHERE id = 1")
    table.check(7)


@LINES
def test_a_base_that_hive_2_compacted(hive_line: Hive31 | Hive41, database: str) -> None:
    """Plain bucket ids of an upgraded table, updated and deleted by the new server."""
    table = SqlTable(hive_line, database, "id bigint, msg string", f"CLUSTERED BY (id) INTO 1 BUCKETS {ACID}")
    with open_client(hive_line.uri) as metastore:
        location = Path(metastore.get_table(*table.name.split(".")).location.removeprefix("file:"))
        for _ in range(5):
            txn_id = metastore.open_txn("upgrade", "localhost", "test")
            metastore.allocate_write_id(txn_id, *table.name.split("."))
            metastore.commit_txn(txn_id)
    shutil.copytree(GOLDEN / "base_and_deltas" / "data" / "base_0000005", location / "base_0000005")
    before, _ = table.ours()
    table.check(len(before))
    assert {row_id[1] for _, row_id, _ in before} == {0}
    table.sql("UPDATE $T SET msg = 'U' WHERE id = 2")
    table.sql("DELETE FROM $T WHERE id = 3")
    table.check(len(before) - 1)


@pytest.mark.long
def test_query_based_compaction(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Hive 4 can also compact by queries over the event files."""
    settings = {"hive.compactor.crud.query.based": "true"}
    with started(Hive41, request, tmp_path_factory, settings) as judge, new_database(judge) as database:
        table = SqlTable(judge, database, "id bigint, msg string", ACID)
        table.sql("INSERT INTO $T VALUES (1,'a'),(2,'b'),(3,'c')")
        table.sql("UPDATE $T SET msg = 'U' WHERE id = 2")
        table.sql("DELETE FROM $T WHERE id = 3")
        table.compact("minor")
        assert all("_v0" in f.location.path for f in table.check(2))
        table.sql("INSERT INTO $T VALUES (4,'d')")
        table.compact("major")
        assert directories(table.check(3)) == {"base"}
