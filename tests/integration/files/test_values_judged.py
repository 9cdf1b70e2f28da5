"""Every type, every way a value can come to Hive and back: written by us, read by Hive's readers and SQL, and
the reverse.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mutation_api.format.hive_type import HiveType, arrow_type, parse_hive_type
from mutation_api.orc.read.column_reader import ReadOptions, TimestampForm
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.spark.job import apply_changes
from mutation_api.table.acid_table import AcidTable, WriterOptions
from mutation_api.write.coordinator import MutatorCoordinator
from tests.integration.conftest import MakeTable
from tests.integration.files.hive_values import random_value, read_back, shown
from tests.integration.transactions.live_table import LiveTable, RowId

pytestmark = pytest.mark.slow

PLAIN = (
    "id bigint, b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f float, g double, s string, "
    "v varchar(5), c char(5), y binary, n1 decimal(38,0), n2 decimal(38,38), n3 decimal(20,3), "
    "n4 decimal(5,0), d date, t timestamp"
)
NESTED = (
    "id bigint, a1 array<int>, a2 array<string>, a3 array<decimal(10,2)>, a4 array<date>, "
    "a5 array<timestamp>, a6 array<binary>, a7 array<boolean>, a8 array<array<int>>, "
    "a9 array<map<string,int>>, m1 map<int,string>, m2 map<string,double>, m3 map<date,timestamp>, "
    "m4 map<string,array<bigint>>, m5 map<string,struct<k:float,l:char(3)>>, "
    "s1 struct<a:int,b:string,c:date>, "
    "s2 struct<x:struct<y:array<struct<z:timestamp,w:varchar(3),n:decimal(38,10)>>>,o:tinyint>"
)
ROWS = 300
MANY_STRIPES = WriterOptions(stripe_bytes=1)
SMALL_SPLITS = {"mapred.max.split.size": "3000", "hive.exec.orc.split.strategy": "ETL"}

Row = dict[str, Any]


def types_of(table: LiveTable) -> dict[str, HiveType]:
    return {c.name: parse_hive_type(c.type) for c in table.info.columns}


def random_rows(
    table: LiveTable, rng: random.Random, ids: Iterable[int], *, early_fractions: bool
) -> list[Row]:
    types = types_of(table)
    return [
        {
            name: random_value(rng, hive_type, early_fractions=early_fractions) if name != "id" else id_
            for name, hive_type in types.items()
        }
        for id_ in ids
    ]


def batch_of(table: LiveTable, rows: Sequence[Row], row_ids: Sequence[RowId] | None = None) -> pa.Table:
    """The rows as Arrow, timestamps in microseconds; with ROW__IDs if given."""
    arrays = {
        name: pa.array([row[name] for row in rows], arrow_type(hive_type, timestamp_unit="us"))
        for name, hive_type in types_of(table).items()
    }
    if row_ids is not None:
        fields = ("transactionid", "bucketid", "rowid")
        parts = [dict(zip(fields, row_id, strict=True)) for row_id in row_ids]
        arrays["ROW__ID"] = pa.array(
            parts, pa.struct([(fields[0], pa.int64()), (fields[1], pa.int32()), (fields[2], pa.int64())])
        )
    return pa.table(arrays)


def row_ids(table: LiveTable) -> dict[int, RowId]:
    """ROW__ID by id; of the row reader, which reads nested types in every table."""
    columns = [(c.name, c.type) for c in table.info.columns]
    found = table.hive.read(
        table.directory,
        columns,
        table.valid().to_text(),
        transactional_properties=table.layout,
        mode="row",
        buckets=table.info.num_buckets,
    )
    return {row.values[0]: row.row_id for row in found if row.row_id is not None}


def commit_by_coordinator(
    table: LiveTable, inserts: Sequence[Row], updates: Sequence[Row] = (), deletes: Sequence[int] = ()
) -> None:
    """Commit the changes of a one-bucket table, in the order that the coordinator wants."""
    known = row_ids(table) if updates or deletes else {}
    changed = [(known[row["id"]], row) for row in updates]
    changed += [(known[id_], None) for id_ in deletes]
    with table.transaction() as transaction:
        bound = transaction.table(table.full_name)
        with MutatorCoordinator(bound, writer_id="w", options=MANY_STRIPES) as coordinator:
            for row_id, row in sorted(changed, key=lambda change: change[0]):
                if row is None:
                    coordinator.delete([], {"ROW__ID": row_id})
                else:
                    coordinator.update([], {**row, "ROW__ID": row_id})
            if inserts:
                coordinator.insert([], batch_of(table, inserts))
            manifests = coordinator.close()
        transaction.add_manifests(table.full_name, "w", manifests)


def commit_by_spark(
    table: LiveTable,
    spark: SparkSession,
    inserts: Sequence[Row],
    updates: Sequence[Row] = (),
    deletes: Sequence[int] = (),
) -> None:
    """Commit the changes in one DataFrame."""
    known = row_ids(table) if updates or deletes else {}
    hollow = dict.fromkeys(types_of(table))
    rows = [*inserts, *updates, *({**hollow, "id": id_} for id_ in deletes)]
    identifiers: list[Any] = [(None, None, None)] * len(inserts)
    identifiers += [known[id_] for id_ in [*(row["id"] for row in updates), *deletes]]
    operations = ["insert"] * len(inserts) + ["update"] * len(updates) + ["delete"] * len(deletes)
    changes = batch_of(table, rows, identifiers).append_column("operation", pa.array(operations))
    with table.transaction() as transaction:
        apply_changes(transaction, table.full_name, spark.createDataFrame(changes), options=MANY_STRIPES)


def expected(table: LiveTable, rows: Iterable[Row]) -> dict[int, list[Any]]:
    """By id: what :func:`shown` makes of the other columns."""
    types = types_of(table)
    return {row["id"]: [shown(row[name], types[name]) for name in types if name != "id"] for row in rows}


def read_by_hive(table: LiveTable, mode: str = "both", **settings: Any) -> dict[int, list[Any]]:
    types = list(types_of(table).values())
    columns = [(c.name, c.type) for c in table.info.columns]
    found = table.hive.read(
        table.directory,
        columns,
        table.valid().to_text(),
        transactional_properties=table.layout,
        mode=mode,
        buckets=table.info.num_buckets,
        **settings,
    )
    rows = [[read_back(*each) for each in zip(row.values, types, strict=True)] for row in found]
    assert len({row[0] for row in rows}) == len(rows), "a row is doubled"
    return {row[0]: row[1:] for row in rows}


def descriptor(table: LiveTable) -> AcidTable:
    """The table as our reader wants it."""
    with table.client() as client:
        return client.tables[0]


def read_by_us(table: LiveTable) -> dict[int, list[Any]]:
    valid, types = table.valid(), types_of(table)
    acid_table = descriptor(table)
    options = ReadOptions(TimestampForm.MICROSECONDS)
    found: list[Row] = []
    for split in plan_splits(acid_table, "", acid_table.location, valid):
        for batch in read_split(acid_table, split, valid, row_ids=False, options=options):
            found += batch.to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a row is doubled"
    return {row["id"]: [shown(row[name], types[name]) for name in types if name != "id"] for row in found}


def copied_by_hive(table: LiveTable) -> LiveTable:
    """Another table, filled by Hive: SQL reads ours, Hive's own writer writes the copy."""
    copy = LiveTable.create(
        table.hive,
        table.metastore,
        table.info.database,
        columns=", ".join(f"{c.name} {c.type}" for c in table.info.columns),
        keys="",
        buckets=1,
        layout=table.layout,
    )
    table.hive.sql(f"INSERT INTO {copy.full_name} SELECT * FROM {table.full_name}")
    return copy


@pytest.mark.sampled(1)
@pytest.mark.feature("all primitive and nested types", "char, varchar, decimal bounds")
@pytest.mark.parametrize("writer", ["coordinator", "pyorc", "spark"])
@pytest.mark.parametrize("columns", [PLAIN, NESTED], ids=["plain", "nested"])
def test_random_values_of_every_type(
    make_table: MakeTable, spark: SparkSession, layout: str, columns: str, writer: str
) -> None:
    """Insert, update and delete random rows: both readers of Hive, Hive's SQL and our reader see each value.

    ``pyorc`` means values for which the slow encoder is needed. SQL's answer is written by Hive into a copy,
    so what Hive's own writer makes of the values is read by us and by Hive too.
    """
    rng = random.Random(f"{layout} {columns} {writer}")
    table = make_table(columns=columns, keys="", buckets=1, layout=layout)
    early = writer == "pyorc"
    rows = {r["id"]: r for r in random_rows(table, rng, range(ROWS), early_fractions=early)}
    updates = random_rows(table, rng, range(0, ROWS, 3), early_fractions=early)
    deletes = list(range(1, ROWS, 5))
    updates = [row for row in updates if row["id"] not in deletes]
    inserts = random_rows(table, rng, range(ROWS, ROWS + 50), early_fractions=early)
    if writer == "spark":
        commit_by_spark(table, spark, list(rows.values()))
        commit_by_spark(table, spark, inserts, updates, deletes)
    else:
        commit_by_coordinator(table, list(rows.values()))
        commit_by_coordinator(table, inserts, updates, deletes)
    rows |= {row["id"]: row for row in (*updates, *inserts)}
    wanted = expected(table, (row for id_, row in rows.items() if id_ not in deletes))
    # Hive's vectorised reader of legacy tables knows no nested types, in its own files neither.
    mode = "row" if columns == NESTED and layout == "legacy" else "both"
    assert read_by_hive(table, mode) == wanted
    assert read_by_us(table) == wanted
    copy = copied_by_hive(table)
    assert read_by_us(copy) == wanted
    assert read_by_hive(copy, mode) == wanted


def insert_batches(table: LiveTable, ids: Sequence[int], texts: Sequence[str]) -> None:
    """Commit ``(id, v, msg)`` rows, ``v`` as ``id``, in files of many stripes."""
    with table.transaction() as transaction:
        bound = transaction.table(table.full_name)
        with MutatorCoordinator(bound, writer_id="w", options=MANY_STRIPES) as coordinator:
            coordinator.insert([], pa.table({"id": ids, "v": ids, "msg": texts}))
            (manifest,) = coordinator.close()
        assert manifest.stripe_count >= 5
        transaction.add_manifests(table.full_name, "w", [manifest])


@pytest.mark.long
def test_small_splits_with_a_predicate(make_table: MakeTable, layout: str) -> None:
    """Byte-range splits of a base of Hive's, of a delta and of a base with our updates: by the key index each
    row is read once, and a predicate pushed down neither loses a row nor brings an old version back.
    """
    table = make_table(columns="id bigint, v bigint, msg string", keys="", buckets=1, layout=layout)
    rng = random.Random(layout)
    count = 10_000
    insert_batches(table, range(count), [f"{rng.getrandbits(160):x}" for _ in range(count)])
    wanted = {n: n for n in range(count)}
    assert_read_in_pieces(table, wanted)
    changed = sorted(rng.sample(range(count), 1000))
    moved = {n: (n + count if n < count // 2 else n - count // 2) for n in changed[::2]}
    commit_values(table, moved, changed[1::2])
    wanted = {n: moved.get(n, n) for n in range(count) if n not in set(changed[1::2])}
    assert_read_in_pieces(table, wanted)
    table.hive.compact(table.full_name, "major")
    assert_read_in_pieces(table, wanted)
    again = {n: -n for n in list(wanted)[::50]}
    commit_values(table, again)
    assert_read_in_pieces(table, wanted | again)


def commit_values(table: LiveTable, updates: dict[int, int], deletes: Iterable[int] = ()) -> None:
    """Give rows other values of ``v``, and delete some."""
    known = row_ids(table)
    changes = sorted((known[n], n) for n in (*updates, *deletes))
    with table.transaction() as transaction:
        bound = transaction.table(table.full_name)
        with MutatorCoordinator(bound, writer_id="w", options=MANY_STRIPES) as coordinator:
            for row_id, n in changes:
                if n in updates:
                    coordinator.update([], {"ROW__ID": row_id, "id": n, "v": updates[n], "msg": "new"})
                else:
                    coordinator.delete([], {"ROW__ID": row_id})
            manifests = coordinator.close()
        transaction.add_manifests(table.full_name, "w", manifests)


def assert_read_in_pieces(table: LiveTable, wanted: dict[int, int]) -> None:
    """Both readers, over splits of a few kilobytes, with and without predicates; and our reader."""
    whole = read_by_hive(table, settings=SMALL_SPLITS)
    assert {id_: row[0] for id_, row in whole.items()} == wanted
    limit = 1000
    # A reader may give more than what matches, but only rows as they are now.
    for mode in ("row", "vector"):
        found = read_by_hive(table, mode, where=("v", "<", limit), settings=SMALL_SPLITS)
        assert {id_ for id_, v in wanted.items() if v < limit} <= found.keys()
        assert all(whole[id_] == row for id_, row in found.items())
    assert read_by_us(table) == whole


@pytest.mark.long
@pytest.mark.feature("columns added later")
def test_columns_added_after_files_were_written(make_table: MakeTable, layout: str) -> None:
    """Old files lack the new columns: NULL in old rows, values in new and updated ones, for SQL's update and
    its compaction as well.
    """
    table = make_table(columns="id bigint, Msg string", keys="", buckets=1, layout=layout)
    commit_by_coordinator(table, [{"id": n, "msg": f"old {n}"} for n in range(6)])
    columns = "n INT, Added STRUCT<InnerText: STRING, Days: ARRAY<DATE>>"
    table.hive.sql(f"ALTER TABLE {table.full_name} ADD COLUMNS ({columns})")
    table = LiveTable(
        table.hive, table.metastore, table.metastore.get_table(table.info.database, table.info.name)
    )
    nested = types_of(table)["added"].field_names
    value = dict(zip(nested, ("x", []), strict=True))
    changed = {"id": 1, "msg": "new", "n": 7, "added": value}
    commit_by_coordinator(table, [{**changed, "id": 9}], updates=[changed], deletes=[2])
    rows = [{"id": n, "msg": f"old {n}", "n": None, "added": None} for n in (0, 3, 4, 5)]
    wanted = expected(table, [*rows, changed, {**changed, "id": 9}])
    check_everywhere(table, wanted)
    table.hive.sql(f"UPDATE {table.full_name} SET n = 3 WHERE id = 3")
    wanted[3][1] = 3
    check_everywhere(table, wanted)
    table.hive.compact(table.full_name, "major")
    check_everywhere(table, wanted)
    commit_by_coordinator(table, [], updates=[{**changed, "id": 4}])
    wanted[4] = wanted[1]
    check_everywhere(table, wanted)


def check_everywhere(table: LiveTable, wanted: dict[int, list[Any]]) -> None:
    """The row reader (the vectorised one of legacy tables reads no nested types), SQL, and we."""
    assert read_by_hive(table, "row" if table.layout == "legacy" else "both") == wanted
    assert read_by_us(table) == wanted
    counted = table.hive.sql(f"SELECT id, msg, n FROM {table.full_name}")
    assert {row[0]: row[1:] for row in counted} == {id_: row[:2] for id_, row in wanted.items()}


@pytest.mark.long
@pytest.mark.feature("rows from before the table was transactional, LOAD DATA")
def test_rows_from_before_the_table_was_transactional(
    make_table: MakeTable, live_database: str, layout: str
) -> None:
    """Original files get our updates and deletes over them; then Hive compacts, and we change them again."""
    like = make_table(columns="id bigint, d date, m map<string,int>", keys="", buckets=2, layout=layout)
    name = f"{live_database}.original_{layout}"
    hive = like.hive
    hive.sql(
        f"CREATE TABLE {name} (id bigint, d date, m map<string,int>) CLUSTERED BY (id) INTO 2 BUCKETS "
        "STORED AS ORC TBLPROPERTIES ('transactional'='false')"
    )
    selects = [f"SELECT {n}, DATE '1500-03-0{n + 1}', map('k', {n})" for n in range(8)]
    hive.sql(f"INSERT INTO {name} {' UNION ALL '.join(selects)}")
    properties = f"'transactional'='true', 'transactional_properties'='{layout}'"
    hive.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({properties})")
    table = LiveTable(hive, like.metastore, like.metastore.get_table(*name.split(".")))
    assert all(not f.startswith(("delta", "base")) for f in table.files())
    wanted = {n: [f"1500-03-0{n + 1}", [["k", n]]] for n in range(8)}
    assert read_by_us(table) == read_by_hive(table, "row") == wanted
    for round_ in range(2):
        changed = [{"id": n, "d": None, "m": [("new", round_)]} for n in (round_, round_ + 2)]
        commit_to_buckets(table, changed, [round_ + 5])
        wanted |= {row["id"]: [None, [["new", round_]]] for row in changed}
        del wanted[round_ + 5]
        assert read_by_us(table) == read_by_hive(table, "row") == wanted
        assert hive.sql(f"SELECT count(*), sum(id) FROM {name}") == [[len(wanted), sum(wanted)]]
        hive.compact(name, "major")
        assert read_by_us(table) == read_by_hive(table, "row") == wanted


def commit_to_buckets(table: LiveTable, updates: Sequence[Row], deletes: Sequence[int]) -> None:
    """Commit changes of a table of several buckets, bucket by bucket."""
    known = row_ids(table)
    changes: list[tuple[RowId, Row | None]] = [(known[row["id"]], row) for row in updates]
    changes += [(known[id_], None) for id_ in deletes]
    with table.transaction() as transaction:
        bound = transaction.table(table.full_name)
        with MutatorCoordinator(bound, writer_id="w") as coordinator:
            for row_id, row in sorted(changes, key=lambda change: (change[0][1], change[0])):
                if row is None:
                    coordinator.delete([], {"ROW__ID": row_id})
                else:
                    coordinator.update([], {**row, "ROW__ID": row_id})
            manifests = coordinator.close()
        transaction.add_manifests(table.full_name, "w", manifests)
