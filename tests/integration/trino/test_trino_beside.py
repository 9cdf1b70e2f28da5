"""A real Trino reads what this library writes, and this library works on what Trino writes.

Hive reads all of it as well: its two readers, Trino and the library must agree after each step.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from judges.errors import HiveError, ReadersDisagreeError, TrinoError
from metastore_client.partition_name import DEFAULT_PARTITION_NAME
from mutation_api import TimestampForm
from mutation_api.upkeep.verify.verify import verify_table
from tests.fixtures.fix_newest import HIVE_4
from tests.integration.trino.shared_table import Maker, SharedTable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

FEATURE = "Trino beside Hive: reads and writes"
PRIMITIVES = {
    "id": "bigint",
    "b": "boolean",
    "ti": "tinyint",
    "si": "smallint",
    "i": "int",
    "f": "float",
    "d": "double",
    "de": "decimal(18,6)",
    "s": "string",
    "v": "varchar(5)",
    "c": "char(5)",
    "bi": "binary",
    "dt": "date",
    "ts": "timestamp",
}
NAMES = {"id": "bigint", "s": "string"}
DAYS = {"day": "string"}
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bucketed": {"buckets": 4},
    "partitions": {"keys": DAYS},
    "bucketed-partitions": {"buckets": 3, "keys": DAYS},
}
EVERY_LAYOUT = pytest.mark.parametrize(
    ("hive_line", "layout"),
    [
        pytest.param(
            line,
            layout,
            id=f"{line}-{layout}",
            marks=() if (line, layout) == by_default else pytest.mark.long,
        )
        for by_default in [("4.1", "bucketed-partitions")]
        for line in ("3.1", "4.1")
        for layout in LAYOUTS
    ],
    indirect=["hive_line"],
)
LINES = pytest.mark.parametrize("hive_line", ["3.1", "4.1"], indirect=True)
STRIPES = {"orc_optimized_writer_max_stripe_rows": "1000", "orc_optimized_writer_min_stripe_size": "1kB"}
"""Session properties of Trino for several stripes in a small file."""
DIVIDED = {
    "hive.compute.query.using.stats": "false",
    "hive.exec.orc.split.strategy": "ETL",
    "hive.fetch.task.conversion": "none",
    "hive.input.format": "org.apache.hadoop.hive.ql.io.HiveInputFormat",
    "hive.tez.input.format": "org.apache.hadoop.hive.ql.io.HiveInputFormat",
    "hive.vectorized.execution.enabled": "false",
    "mapreduce.input.fileinputformat.split.maxsize": "1000",
    "mapreduce.input.fileinputformat.split.minsize": "1",
    "tez.grouping.max-size": "1000",
    "tez.grouping.min-size": "1",
}
"""Settings of Hive for its row reader, and a task for each stripe, as large files have several."""


def look_up(table: SharedTable, ids: Sequence[int]) -> None:
    """Each id is found by a condition that lets Trino skip buckets, exactly if the table has it."""
    expected = {row[0] for row in table.rows_of_library()}
    for n in ids:
        found = table.by_trino(f"SELECT id FROM $T WHERE id = {n}")
        assert found == ([(n,)] if n in expected else []), n


@pytest.mark.feature(FEATURE)
@EVERY_LAYOUT
def test_trino_reads_what_the_library_writes(maker: Maker, layout: str) -> None:
    """All primitive types, through merges, steps, an abort, compactions of both and an overwrite."""
    table, is_4 = maker.create(PRIMITIVES, **LAYOUTS[layout]), maker.judge.line in HIVE_4
    table.append(table.random_data(1, range(40)))
    table.check(40)
    table.merge(table.random_data(2, range(30, 50)))
    with table.begin() as tx:
        written = tx.table(table.name)
        written.append(table.random_data(3, range(50, 56)))
        written.update(set={"s": "'step'"}, where="id in (2, 51)")
        written.delete(where="id in (3, 4, 52)")
    table.abort(table.random_data(4, range(100, 110)))
    table.check(53)
    look_up(table, [2, 3, 30, 49, 51, 52, 100])
    table.by_hive("UPDATE $T SET s = 'hive' WHERE id IN (5, 31, 50)")
    table.by_hive("DELETE FROM $T WHERE id IN (6, 7)")
    table.check(51)
    if is_4:
        table.compact("minor")
        table.check(51)
    table.merge(table.random_data(5, [8, 60]))
    table.compact("major")
    table.check(52)
    table.merge(table.random_data(6, [9, 61]))
    table.merge(table.random_data(7, [9, 62, 63]))
    if is_4 or "bucketed" in layout:  # see test_hive_31_ruins_tables_without_buckets
        table.compact_by_hive("minor")
        table.check(55)
    table.merge(table.random_data(8, [9, 10]))
    table.compact_by_hive("major")
    table.check(55)
    look_up(table, [8, 9, 10, 60, 63, 64])
    with table.begin() as tx:
        assert tx.table(table.name).overwrite(table.random_data(9, range(8))).is_base is is_4
    table.check(8)
    table.merge(table.random_data(10, range(4, 12)))
    table.check(12)
    assert maker.judge.sql(f"SELECT count(*) FROM {table.name}") == [[12]], "perhaps from statistics"
    assert table.verify().findings == ()


@pytest.mark.feature(FEATURE)
@EVERY_LAYOUT
def test_the_library_works_on_what_trino_writes(maker: Maker, layout: str) -> None:
    """INSERT, UPDATE, DELETE and MERGE of Trino, then changes and compactions of all three."""
    table, is_4 = maker.create(NAMES, **LAYOUTS[layout]), maker.judge.line in HIVE_4
    day = f", {day_of('n')}" if table.keys else ""
    numbers = "UNNEST(sequence({}, {})) AS x(n)"
    table.append(table.random_data(1, range(20)))
    table.by_trino(f"INSERT INTO $T SELECT n, 'trino'{day} FROM {numbers.format(20, 39)}")
    table.check(40)
    table.by_trino("UPDATE $T SET s = 'changed' WHERE id IN (1, 2, 21, 22)")
    table.by_trino("DELETE FROM $T WHERE id IN (2, 3, 23)")
    table.by_trino(
        f"MERGE INTO $T t USING (SELECT n, 'merged' s{day and day + ' d'} FROM {numbers.format(36, 43)}) s "
        "ON t.id = s.n WHEN MATCHED AND s.n = 37 THEN DELETE WHEN MATCHED THEN UPDATE SET s = s.s "
        f"WHEN NOT MATCHED THEN INSERT VALUES (s.n, s.s{', s.d' if table.keys else ''})"
    )
    rows = table.check(40)
    assert {row[0] for row in rows if row[1] == "merged"} == {36, 38, 39, 40, 41, 42, 43}
    assert {row[0] for row in rows if row[1] == "changed"} == {1, 21, 22}
    report = table.verify()
    assert report.is_sound
    assert [each.rule_name for each in report.findings]  # the rule that it meets in Trino's deletes
    table.merge(table.random_data(2, [1, 21, 36, 50]))
    with table.begin() as tx:
        tx.table(table.name).delete(where="id in (4, 22, 38)")
    table.by_hive("UPDATE $T SET s = 'hive' WHERE id IN (5, 24, 39)")
    table.check(38)
    for n in (5, 6, 24, 36, 36):  # at once, Trino 483 may create the file of a bucket twice, and fails
        table.by_trino(f"UPDATE $T SET s = s || '!' WHERE id = {n}")
    table.check(38)
    look_up(table, [1, 2, 5, 22, 24, 36, 50])
    if is_4:
        table.compact("minor")
        table.check(38)
    for n in (7, 25):
        table.by_trino(f"DELETE FROM $T WHERE id = {n}")
    table.compact("major")
    table.check(36)
    assert table.verify().findings == ()
    table.by_trino("UPDATE $T SET s = 'again' WHERE id IN (8, 26, 50)")
    table.compact_by_hive("major")
    table.check(36)
    assert table.verify().findings == ()
    look_up(table, [7, 8, 25, 26, 50])


def day_of(number: str) -> str:
    """Trino's expression for the partition of ``SharedTable.random_data``."""
    return f"IF({number} % 2 = 0, 'a', 'b')"


@pytest.mark.long
@pytest.mark.feature(FEATURE)
@LINES
@pytest.mark.parametrize("buckets", [0, 2])
def test_odd_partition_values(maker: Maker, buckets: int) -> None:
    """Escaped values, NULL and rows that move between partitions; Trino changes no name outside ASCII."""
    table = maker.create(NAMES, {"p": "string"}, buckets=buckets)
    values = ["a b", "x/y=z", "100%", "a:b?*[x]{y}^", "'q'", '"', "#", "..", "A", "a", "1", "é", "日本", None]
    table.append(table.data([{"id": n, "s": "new", "p": value} for n, value in enumerate(values)]))
    table.check(len(values))
    moved = [{"id": n, "s": "moved", "p": values[n - 1]} for n in range(len(values))]
    table.merge(table.data(moved))
    with table.begin() as tx:
        merge = tx.table(table.name).merge(table.data(moved), on=["id"])
        merge.when_matched_update_all().execute()
    table.check()
    for value in values:
        text = "IS NULL" if value is None else "= '" + value.replace("'", "''") + "'"
        found = {row[0] for row in table.rows_of_library() if row[2] == value}
        assert {n for (n,) in table.by_trino(f"SELECT id FROM $T WHERE p {text}")} == found, value
    table.by_trino("UPDATE $T SET s = 'trino' WHERE p IN ('a b', 'x/y=z', '100%', 'A') OR p IS NULL")
    table.by_trino(
        "INSERT INTO $T VALUES (100, 'trino', 'a b'), (101, 'trino', NULL), (102, 'trino', 'n/e=w')"
    )
    rows = table.check()
    assert {100, 101, 102} < {row[0] for row in rows if row[1] == "trino"}
    with pytest.raises(TrinoError, match="INVALID_PARTITION_VALUE"):
        table.by_trino("INSERT INTO $T VALUES (200, 'trino', 'é')")
    assert table.check() == rows
    assert any(name.endswith(DEFAULT_PARTITION_NAME) for name in table.partitions())
    table.verify()


@pytest.mark.long
@pytest.mark.feature(FEATURE)
@LINES
def test_nested_values(maker: Maker) -> None:
    """Arrays, maps and structs in each other, written by each and read by all."""
    columns = {
        "id": "bigint",
        "l": "array<string>",
        "m": "map<string,array<int>>",
        "st": "struct<x:int,y:array<struct<z:string,d:double>>>",
    }
    table = maker.create(columns, buckets=2)
    table.append(table.random_data(1, range(30)))
    table.check(30)
    table.merge(table.random_data(2, range(20, 40)))
    table.check(40)
    table.by_trino(
        "INSERT INTO $T VALUES (50, ARRAY['a', NULL], MAP(ARRAY['k'], ARRAY[ARRAY[1, NULL]]), "
        "ROW(1, ARRAY[CAST(ROW('z', 0.5) AS ROW(z varchar, d double))])), (51, NULL, NULL, NULL)"
    )
    table.by_trino("UPDATE $T SET l = ARRAY['trino'] WHERE id < 5")
    table.by_trino("DELETE FROM $T WHERE id IN (6, 30)")
    table.check(40)
    table.merge(table.random_data(3, [0, 50, 60]))
    table.check(41)
    table.verify()


@pytest.mark.long
@pytest.mark.feature(FEATURE)
@LINES
def test_insert_only_tables(maker: Maker) -> None:
    """All read the files of all; Trino changes no rows of such tables."""
    table = maker.create(NAMES, insert_only=True)
    table.append(table.random_data(1, range(10)))
    table.by_trino("INSERT INTO $T VALUES (100, 'trino'), (101, NULL)")
    table.by_hive("INSERT INTO $T VALUES (200, 'hive')")
    table.abort(table.random_data(2, range(300, 310)))
    rows = table.check(13)
    with pytest.raises(TrinoError, match="NOT_SUPPORTED"):
        table.by_trino("DELETE FROM $T WHERE id = 1")
    assert table.check() == rows
    table.compact("major")
    assert table.check() == rows
    table.by_trino("INSERT INTO $T VALUES (102, 'trino')")
    table.append(table.random_data(3, [11]))
    table.check(15)
    table.compact_by_hive("major")
    table.check(15)
    assert table.verify().findings == ()


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["3.1"], indirect=True)
def test_a_table_that_trino_creates(maker: Maker) -> None:
    """Bucketed, by CREATE TABLE AS; the library merges over it. (Trino on Hive 4 needs a folder there.)"""
    table = maker.of(f"{maker.database}.made", NAMES, {})
    table.by_trino(
        "CREATE TABLE $T WITH (transactional = true, bucketed_by = ARRAY['id'], bucket_count = 3) AS "
        "SELECT n id, 'trino' s FROM UNNEST(sequence(BIGINT '0', 19)) AS x(n)"
    )
    table.check(20)
    table.merge(table.random_data(1, range(15, 30)))
    table.by_hive("UPDATE $T SET s = 'hive' WHERE id IN (1, 16, 29)")
    table.check(30)
    look_up(table, [1, 16, 29, 30])
    table.compact("major")
    table.check(30)
    table.verify()


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["3.1"], indirect=True)
def test_rows_in_buckets_of_the_old_hash(maker: Maker) -> None:
    """Hive 3.1 writes them; Trino refuses the table or misses rows, as the advice of verify says."""
    table = maker.create(NAMES, buckets=2)
    table.append(table.random_data(1, range(10)))
    table.by_hive("INSERT INTO $T SELECT id + 1000, s FROM $T")
    findings = verify_table(table.metastore, table.name).findings
    assert {each.rule_name for each in findings} == {"bucket-hash-old"}
    assert not any(each.is_damage for each in findings)
    assert all("Trino" in each.rule.advice for each in findings)
    with pytest.raises(TrinoError, match="HIVE_INVALID_BUCKET_FILES"):
        table.rows_of_trino()
    table.check(20, validate_bucketing="false")
    found = [
        table.by_trino(f"SELECT id FROM $T WHERE id = {n}", validate_bucketing="false")
        for n in range(1000, 1010)
    ]
    assert [] in found
    copy = maker.create(NAMES, buckets=2)
    with table.hive.snapshot(table.name) as snapshot:
        copy.append(snapshot.table(table.name).scan().to_arrow())
    copy.check(20)
    look_up(copy, range(1000, 1010))


@pytest.mark.long
@pytest.mark.feature(FEATURE)
@LINES
def test_all_digits_of_timestamps(maker: Maker) -> None:
    """Nanoseconds of each writer stay through changes of other columns, and compactions."""
    table = maker.create({"id": "bigint", "s": "string", "ts": "timestamp"}, buckets=2)
    digits = pa.array([1_700_000_000_123_456_789, 1, None, 10**18 + 7], pa.timestamp("ns"))
    table.append(pa.table({"id": pa.array(range(4), pa.int64()), "s": ["a"] * 4, "ts": digits}))
    table.by_trino("INSERT INTO $T VALUES (4, 'trino', TIMESTAMP '2024-05-01 00:00:00.000000001')")
    table.merge(pa.table({"id": pa.array([0, 4], pa.int64()), "s": ["merged"] * 2}))
    with table.begin() as tx:
        tx.table(table.name).update(set={"s": "'set'"}, where="id = 1")
    table.by_trino("UPDATE $T SET s = 'trino' WHERE id = 3")
    table.compact("major")
    with table.hive.snapshot(table.name) as snapshot:
        found = snapshot.table(table.name).scan(timestamps=TimestampForm.TEXT).to_arrow().to_pylist()
    ours = {row["id"]: row["ts"] and row["ts"].replace("T", " ") for row in found}
    expected = {
        0: "2023-11-14 22:13:20.123456789",
        1: "1970-01-01 00:00:00.000000001",
        2: None,
        3: "2001-09-09 01:46:40.000000007",
        4: "2024-05-01 00:00:00.000000001",
    }
    assert ours == dict(table.by_trino("SELECT id, ts FROM $T")) == expected
    assert {row.values[0]: row.values[2] for row in table.judge.table_rows(table.name)} == expected


@pytest.mark.long
@LINES
def test_files_of_several_stripes(maker: Maker) -> None:
    """Trino's footers count the last stripe, or nothing: verify says so, a major compaction repairs it.

    Hive's row reader fails if it divides such a file, and Hive 3.1 updates rows that Trino deleted.
    """
    table = maker.create(NAMES)
    count = f"SELECT count(*) FROM {table.name}"
    table.by_trino("INSERT INTO $T SELECT n, 'trino' FROM UNNEST(sequence(0, 9999)) AS x(n)", **STRIPES)
    with pytest.raises(HiveError):
        maker.judge.sql(count, settings=DIVIDED)
    table.by_trino("DELETE FROM $T WHERE id % 2 = 0", **STRIPES)
    if maker.judge.line in HIVE_4:
        of_deletes, rows = "acid-stats-of-deletes", table.check(5000)
    else:  # its vectorised reader ignores a file of deletes that counts none
        of_deletes, rows = "acid-stats", table.rows_of_library()
        assert sorted(row[1:] for row in table.rows_of_trino()) == sorted(rows)
        assert len(rows) == 5000
        with pytest.raises(ReadersDisagreeError):
            table.rows_of_hive()
    found = verify_table(table.metastore, table.name).findings
    assert {(each.rule_name, each.location.parent.name.partition("_0")[0]) for each in found} == {
        ("acid-stats", "delta"),
        ("key-index", "delta"),
        (of_deletes, "delete_delta"),
        ("key-index-of-deletes", "delete_delta"),
    }
    assert all("Do not remove the directory" in each.rule.advice for each in found)
    table.compact("major")
    assert table.check() == rows
    assert table.verify().findings == ()
    assert maker.judge.sql(count, settings=DIVIDED) == [[5000]]
    table.by_hive("UPDATE $T SET s = 'hive' WHERE id % 5 = 0")
    assert len([row for row in table.check(5000) if row[1] == "hive"]) == 1000


@pytest.mark.long
@pytest.mark.parametrize("hive_line", ["4.1"], indirect=True)
def test_days_before_the_gregorian_calendar(maker: Maker) -> None:
    """Hive's compactor counts them in the old calendar, and says so in the footer, which Trino ignores."""
    table = maker.create({"id": "bigint", "dt": "date"})
    days = [datetime.date(1500, 3, 1), datetime.date(1582, 10, 15)]
    for n, day in enumerate(days):
        table.append(table.data([{"id": n, "dt": day}]))
    rows = table.check(2)
    table.compact_by_hive("minor")
    assert table.rows_of_library() == rows
    assert [row[1:] for row in table.rows_of_hive()] == rows
    assert dict(table.by_trino("SELECT id, dt FROM $T")) == {0: datetime.date(1500, 3, 11), 1: days[1]}
