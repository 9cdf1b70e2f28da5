"""Everything that can be wrong with a change set: refused by our own error, and nothing changes.

A refusal is judged as a user meets it: its class, what the message names, that it is short, that no file and
no staging is left, that Hive reads the same rows, and that the transaction after it works.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from mutation_api.errors import (
    BucketIdError,
    ClientError,
    CorruptFileError,
    MutationError,
    RecordLayoutError,
    RecordSequenceError,
    RecordValueError,
    RowIdNotFoundError,
    TableNotMutableError,
)
from mutation_api.format.event import MAX_BUCKETS
from mutation_api.read.partition_plan import plan_splits
from mutation_api.read.snapshot_reader import read_split
from mutation_api.spark.job import FEW_BYTES_DEFAULT, apply_changes
from mutation_api.spark.snapshot_frame import read_table
from mutation_api.storage.connect import storage_at
from mutation_api.storage.location import Location
from mutation_api.upkeep.sweep import sweep
from mutation_api.write.apply import apply_arrow
from mutation_api.write.coordinator import MutatorCoordinator
from tests.fixtures.fix_clock import wait_until
from tests.fixtures.fix_spark import few_rows_to_the_driver
from tests.integration.conftest import MakeTable
from tests.integration.storages.remote_table import hidden
from tests.integration.transactions.live_table import LiveTable, RowId, insert

pytestmark = [pytest.mark.slow, pytest.mark.tasks]

LONGEST_MESSAGE = 1500
STACKS = ("Traceback", "\tat ", 'File "', "Py4J", "SparkException")

WIDE = {
    "id": "bigint",
    "msg": "string",
    "i": "tinyint",
    "n": "decimal(5,2)",
    "d": "date",
    "ts": "timestamp",
    "v": "varchar(3)",
    "c": "char(2)",
    "x": "double",
    "r": "float",
    "y": "binary",
    "a": "array<int>",
    "m": "map<string,date>",
    "st": "struct<k:int,w:string>",
}
GOOD = {
    "id": "id",
    "msg": "'good'",
    "i": "CAST(1 AS TINYINT)",
    "n": "1.50",
    "d": "DATE'2020-02-29'",
    "ts": "TIMESTAMP_NTZ'2020-02-29 12:00:00.5'",
    "v": "'abc'",
    "c": "'de'",
    "x": "1.5D",
    "r": "1.5F",
    "y": "X'00FF'",
    "a": "array(1, NULL)",
    "m": "map('k', DATE'2020-02-29')",
    "st": "named_struct('k', 1, 'w', 'x')",
    "ds": "'a'",
}
"""SQL of a good value of each column of the wide table, for the rows 10 to 15."""

BAD_ID = 13


@contextlib.contextmanager
def refused(
    table: LiveTable, error: type[MutationError], *words: str, by_tasks: bool = False
) -> Iterator[None]:
    """The block must raise exactly ``error``, name ``words`` in a short message, and change nothing.

    Whatever the block opened must be over by then. Afterwards a good transaction must work.
    """
    before = table.state()
    with pytest.raises(error) as caught:
        yield
    check_message(table, caught.value, error, words)
    if by_tasks:
        wait_until(lambda: swept(table), "the end of the other tasks of the failed job")
    assert table.state() == before
    assert hidden(table.location) == [], "staging is left"
    assert_works(table, before.rows)


def swept(table: LiveTable) -> bool:
    """True if no task runs and nothing is staged any more.

    Spark kills the other tasks of a failed job, but one of them may stage files for a moment after the abort.
    """
    context = SparkContext._active_spark_context  # a session counts as active only in threads that used it
    assert context is not None
    executors = context._jsc.sc().statusTracker().getExecutorInfos()
    if any(each.numRunningTasks() for each in executors):
        return False
    list(sweep(table.metastore, table.info.full_name))
    return not table.staged()


def check_message(
    table: LiveTable, found: MutationError, error: type[MutationError], words: Sequence[str]
) -> None:
    """It is short, of exactly this class, and names what is wrong."""
    message = str(found)
    assert type(found) is error, message
    missing = [word for word in (table.info.name, *words) if word not in message]
    assert not missing, f"{missing} not in: {message}"
    assert len(message) < LONGEST_MESSAGE, message
    assert not [stack for stack in STACKS if stack in message], message


def assert_works(table: LiveTable, rows: tuple[Any, ...]) -> None:
    """A further insert is the only thing that a reader finds new."""
    hollow = {c.name: None for c in table.info.columns}
    added = {**hollow, "id": 777, "msg": "after"}
    with table.transaction() as transaction, MutatorCoordinator(transaction.table(table.full_name)) as target:
        target.insert(["a"] if table.info.partition_keys else [], added)
        transaction.add_manifests(table.full_name, target.writer_id, target.close())
    found = table.rows()
    assert set(map(repr, rows)) < set(map(repr, found))
    assert len(found) == len(rows) + 1


def refused_apply(
    table: LiveTable, changes: DataFrame, error: type[MutationError], *words: str, **options: Any
) -> None:
    """The change set must be refused so, in one transaction: without Spark, by the driver, and by tasks."""
    with refused(table, error, *words, by_tasks=True), table.transaction() as transaction:
        how = {name: value for name, value in options.items() if name != "num_partitions"}
        with pytest.raises(error) as caught:
            apply_arrow(transaction, table.full_name, changes.toArrow(), **how)
        check_message(table, caught.value, error, words)
        few_rows = few_rows_to_the_driver(changes.sparkSession, FEW_BYTES_DEFAULT)
        with few_rows, pytest.raises(error) as caught:
            apply_changes(transaction, table.full_name, changes, **how)
        check_message(table, caught.value, error, words)
        apply_changes(transaction, table.full_name, changes, **options)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In the long run, everything here also on HDFS and on S3."""
    if "make_table" in metafunc.fixturenames:
        elsewhere = [pytest.param(storage, marks=pytest.mark.long) for storage in ("hdfs", "s3")]
        metafunc.parametrize("make_table", ["local", *elsewhere], indirect=True)


# ---- values and types


@pytest.fixture
def wide(make_table: MakeTable) -> LiveTable:
    """A table of many types with one row."""
    return make_wide(make_table)


def make_wide(make_table: MakeTable) -> LiveTable:
    table = make_table(columns=", ".join(f"{name} {type_}" for name, type_ in WIDE.items()), layout="default")
    table.commit(insert("a", 1, **{name: None for name in WIDE if name not in ("id", "msg")}))
    return table


def inserts(spark: SparkSession, **columns: str | None) -> DataFrame:
    """Inserts 10 to 15 into the wide table; ``columns`` replaces expressions, None leaves a column out."""
    expressions = {name: sql for name, sql in {**GOOD, **columns}.items() if sql is not None}
    texts = [f"{sql} AS `{name}`" for name, sql in {"operation": "'insert'", **expressions}.items()]
    return spark.range(10, 16).selectExpr(*texts)


def bad_at(bad: str, good: str) -> str:
    """SQL of a column that is bad in row 13."""
    return f"IF(id = {BAD_ID}, {bad}, {good})"


BAD_VALUES = [
    ("i", bad_at("300", "1"), "300"),
    ("i", bad_at("1.5D", "1D"), "1.5"),
    ("i", bad_at("DOUBLE('NaN')", "1D"), "nan"),
    ("i", bad_at("-129.0", "1.0"), "-129"),
    ("id", bad_at("99999999999999999999", "CAST(id AS DECIMAL(20,0))"), "99999999999999999999"),
    ("n", bad_at("1000.00", "1.00"), "1000.00"),
    ("n", bad_at("999.995", "1.000"), "999.995"),
    ("n", bad_at("DOUBLE('Infinity')", "1D"), "inf"),
    ("n", bad_at("0.125D", "1D"), "0.125"),
    ("n", bad_at("1000", "1"), "1000"),
    ("r", bad_at("1e300D", "1D"), "1e+300"),
    ("r", bad_at("16777217", "1"), "16777217"),
    ("d", bad_at("date_from_unix_date(-719163)", "DATE'0001-01-01'"), "-719163"),
    ("d", bad_at("date_from_unix_date(2932897)", "DATE'9999-12-31'"), "2932897"),
    ("d", bad_at("TIMESTAMP_NTZ'2020-01-01 00:00:01'", "TIMESTAMP_NTZ'2020-01-01'"), "2020, 1, 1, 0, 0, 1"),
    ("ts", bad_at("TIMESTAMP_NTZ'+10000-01-01 00:00:00'", "TIMESTAMP_NTZ'2020-01-01'"), "253402300800000000"),
    (
        "ts",
        bad_at("TIMESTAMP_NTZ'1969-12-31 23:59:59.5'", "TIMESTAMP_NTZ'2020-01-01'"),
        "1969-12-31 23:59:59.5",
    ),
    ("a", bad_at("array(1L, 9999999999L)", "array(1L)"), "9999999999"),
    ("m", bad_at("map('k', date_from_unix_date(2932897))", "map()"), "2932897"),
    (
        "st",
        bad_at("named_struct('k', 5000000000, 'w', 'x')", "named_struct('k', 5L, 'w', 'x')"),
        "5000000000",
    ),
    ("msg", bad_at("CAST(X'C328' AS STRING)", "'good'"), "UTF-8"),
    ("v", bad_at("CAST(X'C328' AS STRING)", "'good'"), "UTF-8"),
    ("ds", bad_at("repeat('p', 257)", "'a'"), "257"),
]


@pytest.mark.long
@pytest.mark.parametrize(("column", "sql", "value"), BAD_VALUES, ids=lambda each: str(each)[:60])
def test_a_value_that_does_not_fit(
    wide: LiveTable, spark: SparkSession, column: str, sql: str, value: str
) -> None:
    """The message names the column and the value. Spark makes the values, a coordinator gets them."""
    batch = inserts(spark, **{column: sql}).toArrow()
    with (
        refused(wide, RecordValueError, column, value),
        wide.transaction() as transaction,
        MutatorCoordinator(transaction.table(wide.full_name)) as target,
    ):
        for row in (1, 3):  # of one bucket
            target.insert([batch["ds"][row].as_py()], batch.drop_columns(["operation", "ds"]).slice(row, 1))


IN_TASKS = [
    *(case for case in BAD_VALUES if case[2] in ("300", "1969-12-31 23:59:59.5", "9999999999", "257")),
    ("ds", bad_at("CAST(X'C328' AS STRING)", "'good'"), "UTF-8"),
]


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("column", "sql", "value"), IN_TASKS, ids=lambda each: str(each)[:60])
def test_a_value_that_does_not_fit_in_a_task(
    wide: LiveTable, spark: SparkSession, column: str, sql: str, value: str
) -> None:
    """The worker's error reaches the driver as it was raised, without the stacks around it."""
    refused_apply(wide, inserts(spark, **{column: sql}), RecordValueError, column, value)


BAD_LAYOUTS: list[tuple[dict[str, str | None], tuple[str, ...]]] = [
    ({"i": "'1'"}, ("i tinyint", "string")),
    ({"id": "'1'"}, ("id bigint", "string")),
    ({"msg": "X'00'"}, ("msg string", "binary")),
    ({"msg": "1.5D"}, ("msg string", "double")),
    ({"y": "'text'"}, ("y binary", "string")),
    ({"d": "'2020-01-01'"}, ("d date", "string")),
    ({"ts": "1600000000L"}, ("ts timestamp", "bigint")),
    ({"a": "1"}, ("a array<int>", "int")),
    ({"a": "array('1')"}, ("a array<int>", "array<string>")),
    ({"a": "array()"}, ("a array<int>", "array<void>")),
    ({"m": "map(1.5D, DATE'2020-01-01')"}, ("m map<string,date>", "double")),
    ({"st": "named_struct('k', 1, 'z', 'x')"}, ("st struct<k:int,w:string>", "'z'")),
    ({"st": "'{}'"}, ("st struct<k:int,w:string>", "string")),
    ({"st": "named_struct('k', 1)"}, ("st struct<k:int,w:string>", "lack fields of the struct: ['w']")),
    ({"m": "array(named_struct('k', 'a', 'v', DATE'2020-01-01'))"}, ("m map<string,date>", "not pairs")),
    ({"st": "INTERVAL 1 DAY"}, ("st struct<k:int,w:string>", "interval day", "cast it first")),
    ({"x": "true"}, ("x double", "boolean")),
    ({"i": "'1'", "d": "1", "msg": "true"}, ("i tinyint", "d date", "msg string")),
    ({"msg": None}, ("lacks", "msg")),
    ({"msg": None, "x": None}, ("lacks", "msg", "x")),
    ({"ds": None}, ("lacks", "ds")),
    ({"extra": "1"}, ("does not have", "extra")),
    ({"operation": None}, ("operation",)),
    ({"operation": "1"}, ("operation", "int")),
    ({"MSG": "'b'"}, ("duplicate columns", "MSG")),
    ({"ROW__ID": "'x'"}, ("ROW__ID", "string")),
    ({"ROW__ID": "named_struct('transactionid', 1L, 'rowid', 0L)"}, ("ROW__ID", "lacks fields")),
    (
        {"ROW__ID": "named_struct('transactionid', 1L, 'bucketid', '0', 'rowid', 0L)"},
        ("ROW__ID", "bucketid", "string"),
    ),
    (
        {"ROW__ID": "named_struct('transactionid', 1L, 'bucketid', 0, 'rowid', 0L, 'more', 1)"},
        ("ROW__ID", "more"),
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("columns", "words"), BAD_LAYOUTS, ids=lambda each: str(each)[:60])
def test_columns_that_do_not_fit(
    wide: LiveTable, spark: SparkSession, columns: dict[str, str | None], words: tuple[str, ...]
) -> None:
    """Wrong types, missing, extra and doubled columns: refused before any job runs; each is named."""
    tracker = spark.sparkContext.statusTracker()
    expressions = dict(columns)
    if "operation" in columns:
        changes = inserts(spark).drop("operation")
        if columns["operation"] is not None:
            changes = changes.selectExpr("*", f"{expressions['operation']} AS operation")
    elif "MSG" in columns:
        changes = inserts(spark).selectExpr("*", "'b' AS MSG")
    else:
        changes = inserts(spark, **expressions)
    jobs = set(tracker.getJobIdsForGroup())
    # By Spark alone: the other engine names types in Arrow's words.
    with refused(wide, RecordLayoutError, *words), wide.transaction() as transaction:
        apply_changes(transaction, wide.full_name, changes)
    assert set(tracker.getJobIdsForGroup()) == jobs


# ---- operations and ROW__IDs

ROW_ID_DDL = "struct<transactionid:bigint,bucketid:int,rowid:bigint>"
FIRST, SECOND, MISSING = 2, 4, 4444


@pytest.fixture
def small(make_table: MakeTable, layout: str) -> LiveTable:
    """``(id, msg)`` in two buckets, rows 0 to 7 in ds=a and 8 to 9 in ds=b; in each layout.

    Row ``n`` of ds=a lies in bucket ``n % 2`` with row id ``n // 2``.
    """
    table = make_table(layout=layout)
    in_a = sorted(range(8), key=lambda n: (n % 2, n))
    table.commit(*(insert("a", n, "old") for n in in_a), insert("b", 8, "old"), insert("b", 9, "old"))
    return table


Record = tuple[Any, Any, int | None, str | None, str | None]


def changes_of(spark: SparkSession, *records: Record, partitions: int | None = None) -> DataFrame:
    """A change set of (operation, ROW__ID, id, msg, ds), spread over so many input partitions."""
    rows = [tuple(record) for record in records]
    ddl = f"operation string, ROW__ID {ROW_ID_DDL}, id bigint, msg string, ds string"
    if partitions is None:
        return spark.createDataFrame(rows, ddl)
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), ddl)


def id_of(table: LiveTable, number: int) -> RowId:
    return table.row_ids()[number]


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("operation", [None, "insert "])
def test_an_unknown_operation(make_table: MakeTable, spark: SparkSession, operation: str | None) -> None:
    """NULL, or a blank too many, among good changes."""
    table = make_table()
    changes = changes_of(spark, ("insert", None, 20, "m", "a"), (operation, None, 21, "m", "a"))
    refused_apply(table, changes, RecordValueError, repr(operation), "'insert', 'update', 'delete'", "id=21")


BAD_ROW_IDS: list[tuple[str, Callable[[RowId], Any], type[MutationError], tuple[str, ...]]] = [
    ("update", lambda _: None, RecordValueError, ("needs the complete ROW__ID", "None")),
    ("delete", lambda r: (r[0], r[1], None), RecordValueError, ("needs the complete ROW__ID",)),
    ("delete", lambda r: (r[0], 2, r[2]), BucketIdError, ("0 <= bucket < 2", ", 2, ")),
    ("update", lambda r: (r[0], 536870912, r[2]), BucketIdError, ("536870912",)),
    ("delete", lambda r: (10**15, *r[1:]), RowIdNotFoundError, (str(10**15),)),
]


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("operation", "make", "error", "words"),
    BAD_ROW_IDS,
    ids=["null", "half", "no such bucket", "bucket of Hive 3", "future"],
)
def test_a_row_id_that_cannot_be(
    make_table: MakeTable,
    spark: SparkSession,
    operation: str,
    make: Callable[[RowId], Any],
    error: type[MutationError],
    words: tuple[str, ...],
) -> None:
    """Found without a look at the table's rows."""
    table = make_table()
    table.commit(insert("a", FIRST))
    changes = changes_of(spark, (operation, make(id_of(table, FIRST)), FIRST, "m", "a"))
    refused_apply(table, changes, error, *words)


@pytest.mark.long
def test_an_update_that_belongs_to_another_bucket(make_table: MakeTable, spark: SparkSession) -> None:
    """ROW__ID of bucket 0, values of bucket 1: the message has both and says what to do instead."""
    table = make_table()
    table.commit(insert("a", FIRST))
    row_id = id_of(table, FIRST)
    changes = changes_of(spark, ("update", row_id, FIRST + 1, "m", "a"))
    advice = "delete the old row and insert"
    refused_apply(table, changes, BucketIdError, str(tuple(row_id)), "computed bucket=1", advice)


@pytest.mark.long
def test_a_row_that_never_was_or_is_gone(small: LiveTable, spark: SparkSession) -> None:
    """``verify_row_ids`` finds a made-up row, a deleted one, and one of another partition."""
    gone = id_of(small, SECOND)
    with small.transaction() as transaction:
        apply_changes(transaction, small.full_name, changes_of(spark, ("delete", gone, None, None, "a")))
    txn, bucket, _ = id_of(small, FIRST)
    good = ("update", id_of(small, 0), 0, "good", "a")
    for wrong, number, ds, operation in [
        ((txn, bucket, MISSING), FIRST, "a", "update"),
        (gone, SECOND, "a", "delete"),
        (gone, 8, "b", "update"),
    ]:
        changes = changes_of(spark, good, (operation, wrong, number, "m", ds))
        words = (f"{operation} of {wrong}", f"ds={ds}")
        refused_apply(small, changes, RowIdNotFoundError, *words, verify_row_ids=True)


@pytest.mark.long
def test_a_row_sent_to_another_partition(small: LiveTable, spark: SparkSession) -> None:
    """ROW__ID as the snapshot gives it knows its partition: an update cannot take it elsewhere."""
    words = ("ds=a", "ds=b", "delete the old row and insert")
    with refused(small, RecordValueError, *words), small.transaction() as transaction:
        old = read_table(transaction, small.full_name, spark=spark).where(f"id = {FIRST}")
        moved = old.withColumns({"ds": sf.lit("b"), "operation": sf.lit("update")})
        apply_changes(transaction, small.full_name, moved)


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("pair", [("update", "delete"), ("delete", "delete")])
def test_one_row_twice(small: LiveTable, spark: SparkSession, pair: tuple[str, str]) -> None:
    """Two changes of a row, at the two ends of a change set of eight input partitions."""
    first, last = pair
    row_id = id_of(small, FIRST)
    others = [("update", id_of(small, n), n, "m", "a") for n in range(8) if n != FIRST]
    changes = changes_of(
        spark, (first, row_id, FIRST, "x", "a"), *others, (last, row_id, FIRST, "y", "a"), partitions=8
    )
    refused_apply(small, changes, RecordSequenceError, "ds=a", "bucket 0", str(row_id[0]), "1")


@pytest.mark.long
def test_adjacent_duplicates(make_table: MakeTable, spark: SparkSession) -> None:
    """The same update twice in a row is not taken as one."""
    table = make_table()
    table.commit(insert("a", FIRST))
    change = ("update", id_of(table, FIRST), FIRST, "x", "a")
    refused_apply(table, changes_of(spark, change, change), RecordSequenceError, "ds=a", "bucket 0")


@pytest.mark.long
def test_one_row_id_in_two_partitions_is_two_rows(small: LiveTable, spark: SparkSession) -> None:
    """ROW__IDs are unique within a partition only: the same one in ds=a and ds=b is no duplicate."""
    in_a, in_b = id_of(small, 0), id_of(small, 8)
    assert in_a == in_b
    with small.transaction() as transaction:
        changes = changes_of(spark, ("update", in_a, 0, "new", "a"), ("update", in_b, 8, "new", "b"))
        apply_changes(transaction, small.full_name, changes, verify_row_ids=True)
    assert [row for row in small.values() if row[2] == "new"] == [("ds=a", 0, "new"), ("ds=b", 8, "new")]


# ---- what must work

SPECIAL_VALUES = (
    *(chr(code) for code in range(1, 128) if not chr(code).isalnum()), *"0z",
    "é", "日本語", "😀", "%20", "%2f", "..", ".", "a/b", "k=v/l=w", " lead", "trail ", "A", "_hidden",
    ".hidden", "__mutation__", "x" * 200, "\\", "--", "null", "NULL", "{a}", "a\tb\nc\rd", "\u0301", "\u00a0",
)  # fmt: skip


@pytest.mark.long  # whether Hive escapes all of them alike: test_metastore_tables.py
def test_every_special_character_in_a_partition(make_table: MakeTable, spark: SparkSession) -> None:
    """Every ASCII character but most letters and digits, and more: Hive's SQL shows the value and finds it by
    predicate; so do we.
    """
    table = make_table(buckets=1)
    values = list(dict.fromkeys(SPECIAL_VALUES))
    changes = changes_of(spark, *[("insert", None, n, "m", ds) for n, ds in enumerate(values)])
    with table.transaction() as transaction:
        apply_changes(transaction, table.full_name, changes)
    found = table.hive.sql(f"SELECT id, ds FROM {table.full_name}")
    assert dict(map(tuple, found)) == dict(enumerate(values))
    for text in ("a/b", "%20", "'", "é"):
        escaped = text.replace("'", "\\'")
        rows = table.hive.sql(f"SELECT id FROM {table.full_name} WHERE ds = '{escaped}'")
        assert rows == [[values.index(text)]]
    with table.transaction() as transaction:
        old = read_table(transaction, table.full_name, spark=spark)
        ours = {row["id"]: row["ds"] for row in old.select("id", "ds").collect()}
        assert ours == dict(enumerate(values))
        apply_changes(
            transaction, table.full_name, old.select("ROW__ID").selectExpr("*", "'delete' operation")
        )
    # Through SQL: the reader alone trims the blank off the directory of ds=' '.
    assert table.hive.sql(f"SELECT count(*) FROM {table.full_name}") == [[0]]


@pytest.mark.long
def test_null_and_empty_partition_are_one(make_table: MakeTable, spark: SparkSession) -> None:
    """Both go to the default partition; updates and deletes find their rows there."""
    table = make_table(buckets=1)
    with table.transaction() as transaction:
        changes = [("insert", None, n, "m", ds) for n, ds in enumerate((None, "", None))]
        apply_changes(transaction, table.full_name, changes_of(spark, *changes))
    assert table.partitions() == ("ds=__HIVE_DEFAULT_PARTITION__",)
    where = f"FROM {table.full_name} WHERE ds IS NULL OR ds = '__HIVE_DEFAULT_PARTITION__'"
    assert table.hive.sql(f"SELECT count(*) {where}") == [[3]]
    ids = table.row_ids()
    with table.transaction() as transaction:
        changes = changes_of(spark, ("update", ids[0], 0, "new", ""), ("delete", ids[1], None, None, None))
        apply_changes(transaction, table.full_name, changes, verify_row_ids=True)
    assert [row[1:] for row in table.values()] == [(0, "new"), (2, "m")]


def test_values_that_look_bad_and_are_not(wide: LiveTable, spark: SparkSession) -> None:
    """Dates before 1582, every kind of timestamp, NaN, infinity, NUL, cut strings, rounded decimals, widened
    numbers, struct fields in another order: Hive's SQL shows what was meant.
    """
    changes = inserts(
        spark,
        d="IF(id = 10, make_date(1500, 2, 28) + 1, make_date(1, 1, 1))",
        ts="CASE id WHEN 10 THEN TIMESTAMP_NTZ'1500-03-01 01:02:03.5' WHEN 11 THEN "
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999' WHEN 12 THEN TIMESTAMP_NTZ'1969-12-31 23:59:59' "
        "ELSE TIMESTAMP_NTZ'1600-01-01 00:00:00.25' END",
        x="CASE id WHEN 10 THEN DOUBLE('NaN') WHEN 11 THEN DOUBLE('-Infinity') ELSE 16777217 END",
        msg="IF(id = 10, concat('a', chr(0), 'b'), CAST(id AS STRING))",
        v="'abc\U0001f600def'",
        c="'x    '",
        n="IF(id = 10, 999.994, -0.005)",
        i="CAST(-128 AS DECIMAL(30,5))",
        st="named_struct('W', CAST(NULL AS STRING), 'K', 7L)",
        a="IF(id = 10, CAST(array() AS ARRAY<INT>), NULL)",
    ).where("id < 14")
    shuffled = changes.select(*(sf.col(name).alias(name.upper()) for name in reversed(changes.columns)))
    with wide.transaction() as transaction:
        apply_changes(transaction, wide.full_name, shuffled)
    columns = "id, d, ts, x, msg, v, c, n, i, st.k, st.w, size(a)"
    found = wide.hive.sql(f"SELECT {columns} FROM {wide.full_name} WHERE id >= 10")
    casts = "CAST('abc\U0001f600def' AS VARCHAR(3)), CAST('x    ' AS CHAR(2)), CAST(-0.005 AS DECIMAL(5,2))"
    cut = wide.hive.sql(f"SELECT {casts}")
    common = [*cut[0], -128, 7, None]
    rest = ["0001-01-01", "1969-12-31 23:59:59.0"]
    assert sorted(found) == [
        [10, "1500-03-01", "1500-03-01 01:02:03.5", "NaN", "a\0b", *common[:2], "999.99", *common[3:], 0],
        [11, rest[0], "9999-12-31 23:59:59.999999", "-Infinity", "11", *common, -1],
        [12, *rest, 16777217.0, "12", *common, -1],
        [13, rest[0], "1600-01-01 00:00:00.25", 16777217.0, "13", *common, -1],
    ]


@pytest.mark.long
def test_an_empty_change_set(small: LiveTable, spark: SparkSession) -> None:
    """No row at all commits, in each of its forms; nothing is written."""
    before = small.state()
    for changes in (changes_of(spark), changes_of(spark).drop("ROW__ID"), changes_of(spark).drop("msg")):
        with small.transaction() as transaction:
            summary = apply_changes(transaction, small.full_name, changes, verify_row_ids=True)
        assert (summary.row_count, summary.file_count) == (0, 0)
    assert small.state() == before


@pytest.mark.long
def test_the_operation_may_have_another_name(small: LiveTable, spark: SparkSession) -> None:
    """Under its own name it must be told; a data column cannot be it."""
    changes = changes_of(spark, ("Insert", None, 20, "m", "a")).withColumnRenamed("operation", "Op")
    refused_apply(small, changes, RecordLayoutError, "'operation'", "Op")
    refused_apply(small, changes, RecordLayoutError, "'msg'", "operation_column", operation_column="msg")
    with small.transaction() as transaction:
        apply_changes(transaction, small.full_name, changes, operation_column="oP")
    assert ("ds=a", 20, "m") in small.values()


def test_a_timestamp_with_zone(make_table: MakeTable, spark: SparkSession) -> None:
    """Spark's becomes the wall clock of the session's zone; Arrow's, which has no session, is refused."""
    table = make_table(columns="id bigint, msg string, ts timestamp", keys="")
    changes = spark.range(1).selectExpr(
        "'insert' operation", "id", "'m' msg", "TIMESTAMP'2020-01-01 01:00:00+01:00' ts"
    )
    with table.transaction() as transaction:
        apply_changes(transaction, table.full_name, changes)
    assert [row[2] for row in table.values()] == ["2020-01-01 00:00:00.0"]
    with (
        refused(table, RecordLayoutError, "'ts'", "timestamp[us, tz=UTC]", "without time zone"),
        table.transaction() as transaction,
        MutatorCoordinator(transaction.table(table.full_name)) as target,
    ):
        times = pa.array([0], pa.timestamp("us", "UTC"))
        target.insert([], pa.table({"id": [1], "msg": ["m"], "ts": times}))


# ---- through the coordinator

NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xc3\x28")]
)
COORDINATOR_VALUES: list[tuple[str, Any, type[MutationError], str]] = [
    ("i", 300, RecordValueError, "300"),
    ("i", "1", RecordLayoutError, "string"),
    ("n", Decimal("1000"), RecordValueError, "1000"),
    ("n", float("nan"), RecordValueError, "nan"),
    ("d", 5, RecordLayoutError, "int64"),
    ("r", 16777217, RecordValueError, "16777217"),
    ("a", [1, "x"], RecordLayoutError, "array<int>"),
    ("a", {"x": 1}, RecordLayoutError, "array<int>"),
    ("m", {None: None}, RecordValueError, "null"),
    ("st", {"z": 1}, RecordLayoutError, "z"),
    ("y", "text", RecordLayoutError, "string"),
    ("id", 2**63, RecordValueError, "bigint"),
    ("id", 2**64, RecordValueError, "bigint"),
    ("ts", pa.array([2**62], pa.timestamp("us")), RecordValueError, "years 1 to 9999"),
    ("ts", pa.array([-1], pa.timestamp("ns")), RecordValueError, "1969-12-31 23:59:59.999999999"),
    ("ts", pa.array([2**62], pa.timestamp("s")), RecordValueError, "years 1 to 9999"),
    ("ts", pa.array([0], pa.timestamp("us", "UTC")), RecordLayoutError, "without time zone"),
    ("d", pa.array([2932897], pa.date32()), RecordValueError, "2932897"),
    ("msg", NOT_UTF8, RecordValueError, "UTF-8"),
    ("v", NOT_UTF8, RecordValueError, "UTF-8"),
    ("c", NOT_UTF8, RecordValueError, "UTF-8"),
]


def _name(each: object) -> str:
    """A name for a case that is the same in every process: of an object without a text, its type."""
    text = repr(each)
    return (type(each).__name__ if " at 0x" in text else text)[:40]


@pytest.mark.long
@pytest.mark.parametrize(("column", "value", "error", "words"), COORDINATOR_VALUES, ids=_name)
def test_the_coordinator_refuses_values(
    wide: LiveTable, column: str, value: Any, error: type[MutationError], words: str
) -> None:
    """A record, or a batch, that does not fit: the message names column and value."""
    hollow: dict[str, Any] = {**dict.fromkeys(WIDE), "id": 5}
    with (
        refused(wide, error, column, words),
        wide.transaction() as transaction,
        MutatorCoordinator(transaction.table(wide.full_name)) as target,
    ):
        if isinstance(value, pa.Array):
            columns = {name: value if name == column else pa.array([v]) for name, v in hollow.items()}
            target.insert(["a"], pa.table(columns))
        else:
            target.insert(["a"], {**hollow, column: value})
        target.close()


BAD_RECORDS: list[tuple[Any, dict[str, Any], type[MutationError], tuple[str, ...]]] = [
    (["a"], {"id": 1}, RecordLayoutError, ("msg",)),
    (["a"], {"id": 1, "msg": "m", "more": 1}, RecordLayoutError, ("more",)),
    (["a"], {"id": 1, "msg": "m", "ds": "a"}, RecordLayoutError, ("ds", "partition values")),
    (["a"], {"id": 1, "msg": "m", "MSG": "m"}, RecordLayoutError, ("MSG",)),
    (["p" * 257], {"id": 1, "msg": "m"}, RecordValueError, ("257",)),
    (["%" * 256], {"id": 1, "msg": "m"}, RecordValueError, ("771",)),
    ([1.5], {"id": 1, "msg": "m"}, RecordLayoutError, ("ds", "double")),
    (["a", "b"], {"id": 1, "msg": "m"}, RecordLayoutError, ("ds",)),
]


@pytest.mark.long
@pytest.mark.parametrize(("values", "record", "error", "words"), BAD_RECORDS, ids=_name)
def test_the_coordinator_refuses_records(
    make_table: MakeTable,
    values: Any,
    record: dict[str, Any],
    error: type[MutationError],
    words: tuple[str, ...],
) -> None:
    """Missing, extra and doubled columns, partition values that are too long or too many."""
    table = make_table()
    table.commit(insert("a", 1))
    with (
        refused(table, error, *words),
        table.transaction() as transaction,
        MutatorCoordinator(transaction.table(table.full_name)) as target,
    ):
        target.insert(values, record)


# ---- tables


@pytest.mark.long
def test_a_union_column(make_table: MakeTable, spark: SparkSession) -> None:
    """Spark has no unions: inserts are refused, deletes work, and the coordinator writes them."""
    table = make_table(columns="id bigint, msg string, u uniontype<int,string>", keys="")
    table.commit(insert(None, 1, u=(1, "x")), insert(None, 3, u=(0, 7)))
    changes = spark.range(1).selectExpr("'insert' operation", "id", "'m' msg", "1 u")
    refused_apply(table, changes, RecordLayoutError, "u uniontype<int,string>", "union")
    doomed = table.row_ids()[1]
    with table.transaction() as transaction:
        deletes = spark.createDataFrame([("delete", doomed)], f"operation string, ROW__ID {ROW_ID_DDL}")
        apply_changes(transaction, table.full_name, deletes, verify_row_ids=True)
    assert sorted(row[0] for row in table.values()) == [3, 777]


def test_too_many_buckets(make_table: MakeTable) -> None:
    """Hive cannot distinguish more than 4,096 buckets; said before a transaction is opened."""
    table = make_table(buckets=MAX_BUCKETS + 1)
    with pytest.raises(TableNotMutableError, match=rf"{table.full_name}.*4097 buckets.*4096") as caught:
        table.client().connect()
    assert len(str(caught.value)) < LONGEST_MESSAGE
    assert table.metastore.get_open_txns().txns == () or not table.files(hidden=True)


def test_a_table_dropped_before_the_changes_come(make_table: MakeTable, spark: SparkSession) -> None:
    """Nothing is put into the place where it was."""
    table = make_table(keys="")
    with (
        pytest.raises(TableNotMutableError, match=rf"{table.full_name} was dropped") as caught,
        table.transaction() as transaction,
    ):
        table.metastore.drop_table(table.info.database, table.info.name, delete_data=True)
        changes = changes_of(spark, ("insert", None, 1, "m", None)).drop("ds")
        apply_changes(transaction, table.full_name, changes)
    assert len(str(caught.value)) < LONGEST_MESSAGE
    assert table.files(hidden=True) == set()


@pytest.mark.long
@pytest.mark.parametrize(
    "other", [{"columns": "id bigint, msg int"}, {"buckets": 3}, {"layout": "default"}], ids=str
)
def test_a_table_altered_meanwhile(make_table: MakeTable, spark: SparkSession, other: dict[str, Any]) -> None:
    """Another table under the same name at the commit: what was written for the first is not given to it."""
    table = make_table(keys="")
    with pytest.raises(ClientError, match=table.full_name) as caught, table.transaction() as transaction:
        changes = changes_of(spark, ("insert", None, 1, "m", None)).drop("ds")
        apply_changes(transaction, table.full_name, changes)
        table.metastore.drop_table(table.info.database, table.info.name, delete_data=False)
        second = make_table(name=table.info.name, **{"keys": "", **other})
    assert len(str(caught.value)) < LONGEST_MESSAGE
    assert second.rows() == ()
    assert second.files() == set()


# ---- files


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def lose_the_tail(content: bytes) -> bytes:
    return content[:-1]


def keep_nothing_but_the_magic(content: bytes) -> bytes:
    return content[:3]


def overwrite_the_middle(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[: middle - 40] + b"\xff" * 80 + content[middle + 40 :]


def be_text(_: bytes) -> bytes:
    return b"id,msg\n1,x\n" * 30


DAMAGES = [truncate, lose_the_tail, keep_nothing_but_the_magic, overwrite_the_middle, be_text]


def messages(make_table: MakeTable) -> tuple[LiveTable, str]:
    """A table of one file, and the file's name."""
    table = make_table(buckets=1, keys="")
    table.commit(*(insert(None, n, f"message {n * 7919 % 1009}") for n in range(500)))
    (name,) = table.files()
    return table, name


def change_file(file: Location, change: Callable[[bytes], bytes]) -> bytes:
    """Put something else in its place; gives what was there."""
    storage = storage_at(file)
    with storage.open_input(file) as stream:
        content: bytes = stream.read()
    storage.delete_file(file)
    output = storage.create(file)
    output.write(change(content))
    output.close()
    return content


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__)
def test_a_damaged_file(make_table: MakeTable, damage: Callable[[bytes], bytes]) -> None:
    """The error names the file; no row is made up."""
    table, name = messages(make_table)
    change_file(table.location / name, damage)
    with table.client() as client:
        acid_table, valid = client.tables[0], table.valid()
        (split,) = plan_splits(acid_table, "", acid_table.location, valid)
        with pytest.raises(CorruptFileError, match=name) as caught:
            list(read_split(acid_table, split, valid))
    assert_short(caught.value)


@pytest.mark.long
def test_a_damaged_file_in_the_snapshot(make_table: MakeTable, spark: SparkSession) -> None:
    """Whether the snapshot feeds the changes or only verifies them: the error names the file, and nothing is
    written.
    """
    table, name = messages(make_table)
    file, row_id = table.location / name, table.row_ids()[0]
    sound = change_file(file, truncate)
    with pytest.raises(CorruptFileError, match=name) as caught, table.transaction() as transaction:
        old = read_table(transaction, table.full_name, spark=spark)
        apply_changes(transaction, table.full_name, old.withColumn("operation", sf.lit("update")))
    assert_short(caught.value)
    with pytest.raises(CorruptFileError, match=name) as caught, table.transaction() as transaction:
        changes = changes_of(spark, ("delete", row_id, None, None, None)).select("operation", "ROW__ID")
        apply_changes(transaction, table.full_name, changes, verify_row_ids=True)
    assert_short(caught.value)
    assert table.files() | table.staged() == {name}
    change_file(file, lambda _: sound)
    assert len(table.rows()) == 500
    assert_works(table, table.rows())


def assert_short(error: BaseException) -> None:
    """Whether a person can read it."""
    message = str(error)
    assert len(message) < LONGEST_MESSAGE, message
    assert not [stack for stack in STACKS if stack in message], message


# ---- long values


@pytest.mark.long
def test_long_values_make_no_long_message(make_table: MakeTable, spark: SparkSession) -> None:
    """A bucket or partition value of a megabyte is cut in the message."""
    table = make_table(columns="id bigint, msg string", bucket_columns=("msg",))
    table.commit(insert("a", 1))
    megabyte = "y" * 2**20
    for record in [("merge", None, 2, megabyte, "a"), ("insert", None, 2, "m", megabyte)]:
        refused_apply(table, changes_of(spark, record), RecordValueError, "yyyyyyyy")
    refused_apply(table, changes_of(spark, ("m" * 2**20, None, 2, "m", "a")), RecordValueError, "mmmmmmmm")
    with (
        refused(table, RecordValueError, "1048576"),
        table.transaction() as transaction,
        MutatorCoordinator(transaction.table(table.full_name)) as target,
    ):
        target.insert([megabyte], {"id": 1, "msg": "m"})


# ---- elsewhere


@pytest.mark.long
@pytest.mark.parametrize(("storage", "line"), [("hdfs", "2.3"), ("s3", "2.3")])
def test_some_of_it_elsewhere(make_table_elsewhere: MakeTable, spark: SparkSession) -> None:
    """On HDFS and on S3: refused by the coordinator, in a task, at the commit and while files are read; of
    none of it files or uploads are left.
    """
    wide = make_wide(make_table_elsewhere)
    with (
        refused(wide, RecordValueError, "tinyint", "300"),
        wide.transaction() as transaction,
        MutatorCoordinator(transaction.table(wide.full_name)) as target,
    ):
        good = {**dict.fromkeys(WIDE), "id": 2, "i": 3}
        target.insert(["a"], good)
        target.insert(["a"], {**good, "i": 300})
    column, sql, value = BAD_VALUES[0]
    refused_apply(wide, inserts(spark, **{column: sql}), RecordValueError, column, value)
    table = make_table_elsewhere()
    row_id = (table.commit(insert("a", FIRST)), 0, 0)
    twice = changes_of(spark, *(("delete", row_id, None, None, "a") for _ in range(2)), partitions=2)
    refused_apply(table, twice, RecordSequenceError, "ds=a", "bucket 0", str(row_id[0]))
    test_a_damaged_file_in_the_snapshot(make_table_elsewhere, spark)
    test_a_table_dropped_before_the_changes_come(make_table_elsewhere, spark)
