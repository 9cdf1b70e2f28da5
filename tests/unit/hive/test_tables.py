"""Tables begin at the connection: create, list, look at, drop."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from metastore_client import ColumnInfo, LockType, MetastoreUnavailableError, TxnState
from metastore_client.testing import HIVE_2_3, HIVE_4_1, InMemoryMetastore
from mutation_api import (
    ConfigurationError,
    ConnectionFailedError,
    Hive,
    LockNotAcquiredError,
    RecordLayoutError,
    TableHandle,
    TableNotFoundError,
    TableNotMutableError,
    TransactionStateError,
    connect,
)
from tests.unit.hive.conftest import NAME, MakeHive

ALL_TYPES = pa.schema(
    {
        "a": pa.bool_(),
        "b": pa.int8(),
        "c": pa.int16(),
        "d": pa.int32(),
        "e": pa.int64(),
        "f": pa.float32(),
        "g": pa.float64(),
        "h": pa.string(),
        "i": pa.binary(),
        "j": pa.date32(),
        "k": pa.timestamp("us"),
        "l": pa.decimal128(38, 10),
        "m": pa.list_(pa.struct({"x": pa.int32(), "y": pa.decimal128(3, 0)})),
        "n": pa.map_(pa.string(), pa.list_(pa.timestamp("us"))),
        "o": pa.struct({"p": pa.map_(pa.int32(), pa.string())}),
    }
)


def test_a_schema_of_arrow_comes_back(make_hive: MakeHive) -> None:
    """The table's schema is the one that it was created with; partition columns are last."""
    hive = make_hive()
    made = hive.create_table("Default.Made", ALL_TYPES, partitioned_by=["J", "d"])
    assert isinstance(made, TableHandle)
    assert made.name == "default.made"
    data = [field for field in ALL_TYPES if field.name not in ("d", "j")]
    assert made.schema == pa.schema([*data, ALL_TYPES.field("j"), ALL_TYPES.field("d")])
    assert hive.create_table("default.again", made.schema).schema == made.schema


def test_the_three_kinds_of_schema_are_one(make_hive: MakeHive) -> None:
    """An Arrow schema, columns as in SQL, and a schema of Spark."""
    from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType  # loads no JVM

    fields = [
        StructField("Id", LongType()),
        StructField("item", StringType()),
        StructField("day", DateType()),
    ]
    schemas = {
        "arrow": pa.schema({"Id": pa.int64(), "item": pa.large_string(), "day": pa.date32()}),
        "text": "Id bigint, item string, day date",
        "spark": StructType(fields),
    }
    hive = make_hive()
    options: Any = {"partitioned_by": "day", "clustered_by": ["ID"], "num_buckets": 3}
    for name, schema in schemas.items():
        hive.create_table(f"default.{name}", schema, **options, properties={"orc.compress": "SNAPPY"})
        info = hive.metastore.get_table("default", name)
        assert info.columns == (ColumnInfo("id", "bigint"), ColumnInfo("item", "string"))
        assert info.partition_keys == (ColumnInfo("day", "date"),)
        assert (info.bucket_columns, info.num_buckets) == (("id",), 3)
        assert info.parameters["orc.compress"] == "SNAPPY"


def test_types_without_an_equal_get_a_wider_one(make_hive: MakeHive) -> None:
    """Every value of the Arrow type fits; encodings and extension types are their values."""
    types = {
        pa.uint8(): "smallint",
        pa.uint16(): "int",
        pa.uint32(): "bigint",
        pa.float16(): "float",
        pa.date64(): "date",
        pa.binary(16): "binary",
        pa.large_binary(): "binary",
        pa.string_view(): "string",
        pa.dictionary(pa.int8(), pa.string()): "string",
        pa.decimal32(5, 2): "decimal(5,2)",
        pa.decimal256(20, 2): "decimal(20,2)",
        pa.large_list(pa.int8()): "array<tinyint>",
        pa.list_(pa.int8(), 3): "array<tinyint>",
        pa.uuid(): "string",
        pa.timestamp("s"): "timestamp",
    }
    hive = make_hive()
    schema = pa.schema([pa.field(f"c{number}", kind) for number, kind in enumerate(types)])
    hive.create_table("default.wide", schema)
    found = hive.metastore.get_table("default", "wide").columns
    assert [column.type for column in found] == [*types.values()]
    row = pa.RecordBatch.from_arrays([pa.nulls(1, kind) for kind in types], schema=schema)
    with hive.transaction("default.wide") as tx:
        assert tx.table("default.wide").append(row) == 1


def test_comments_are_kept(make_hive: MakeHive) -> None:
    """The metadata of a field has its comment, as in Spark."""
    hive = make_hive()
    hive.create_table("default.c", pa.schema([pa.field("a", pa.int8(), metadata={"comment": "why"})]))
    assert hive.metastore.get_table("default", "c").columns == (ColumnInfo("a", "tinyint", "why"),)


@pytest.mark.parametrize(
    ("schema", "options", "error", "words"),
    [
        (
            pa.schema({"a": pa.null()}),
            {},
            RecordLayoutError,
            r"column 'a': .*type null has no Hive type; the col",
        ),
        (pa.schema({"a": pa.uint64()}), {}, RecordLayoutError, r"uint64 .*use pyarrow\.int64\(\)"),
        (
            pa.schema({"a": pa.timestamp("ms", "UTC")}),
            {},
            RecordLayoutError,
            r"use pyarrow\.timestamp\('ms'\)",
        ),
        (pa.schema({"a": pa.time32("s")}), {}, RecordLayoutError, "time32"),
        (pa.schema({"a": pa.decimal256(50, 2)}), {}, RecordLayoutError, "decimal256"),
        (
            pa.schema({"a": pa.list_(pa.struct({"b": pa.duration("s")}))}),
            {},
            RecordLayoutError,
            r"table default\.new: column 'a'\.element\.b: .*duration",
        ),
        (pa.schema([("a", pa.int8()), ("A", pa.int8())]), {}, TableNotMutableError, "a"),
        (pa.schema({"row__id": pa.int8()}), {}, ConfigurationError, "row__id"),
        ("id lint", {}, ConfigurationError, "lint"),
        ("", {}, ConfigurationError, "no columns"),
        (pa.table({"a": [1]}), {}, ConfigurationError, r"an Arrow schema \(rows\.schema\).* got Table"),
        ([("a", "int")], {}, ConfigurationError, "got list"),
        (None, {}, ConfigurationError, "got NoneType"),
        (pa.int8(), {}, ConfigurationError, "got DataType"),
        ("id bigint", {"partitioned_by": ["day"]}, RecordLayoutError, "each must be a column of the schema"),
        ("id bigint, d date", {"partitioned_by": ["d", "D"]}, RecordLayoutError, "given once"),
        ("id bigint", {"partitioned_by": None}, RecordLayoutError, "expected column names"),
        ("id bigint", {"partitioned_by": ["id"]}, RecordLayoutError, "must have at least one data column"),
        ("id bigint", {"clustered_by": ["id"]}, ConfigurationError, "go together"),
        ("id bigint", {"clustered_by": None}, RecordLayoutError, "expected column names"),
        ("id bigint", {"clustered_by": [1], "num_buckets": 2}, RecordLayoutError, "expected column names"),
        ("id bigint", {"clustered_by": ["id"], "num_buckets": "4"}, ConfigurationError, "got '4'"),
        ("id bigint", {"clustered_by": ["id"], "num_buckets": 0}, ConfigurationError, "at least 1, got 0"),
        ("id bigint", {"clustered_by": ["id"], "num_buckets": 2.5}, ConfigurationError, r"got 2\.5"),
        ("id bigint", {"clustered_by": ["id"], "num_buckets": True}, ConfigurationError, "got True"),
        ("id bigint", {"location": 5}, ConfigurationError, "location must be a string, got 5"),
        ("id bigint", {"properties": ["a"]}, ConfigurationError, "must be strings by name"),
        ("id bigint", {"properties": {"a": 1}}, ConfigurationError, "must be strings by name"),
        ("id bigint", {"clustered_by": ["no"], "num_buckets": 2}, TableNotMutableError, "no"),
    ],
)
def test_what_cannot_be_created_is_refused(
    schema: object, options: dict[str, Any], error: type[Exception], words: str, make_hive: MakeHive
) -> None:
    """With the reason, and nothing is created."""
    hive = make_hive()
    with pytest.raises(error, match=words):
        hive.create_table("default.new", schema, **options)
    assert hive.tables("default") == [NAME]


def test_a_table_or_database_that_is_in_the_way(make_hive: MakeHive) -> None:
    """Existing tables stay, and databases are not created."""
    hive = make_hive()
    with pytest.raises(ConfigurationError, match="already exists"):
        hive.create_table(NAME, "id bigint")
    with pytest.raises(ConfigurationError, match="nowhere"):
        hive.create_table("nowhere.t", "id bigint")
    with pytest.raises(ConfigurationError, match=r"expected database\.table"):
        hive.create_table("orders", "id bigint")
    with pytest.raises(TableNotMutableError, match="bucket"):
        make_hive("2.3").create_table("default.plain", "id bigint")


@pytest.mark.thorough
def test_pyspark_is_not_loaded(tmp_path: Path) -> None:
    """Nor needed, for the two other kinds of schema."""
    program = """
import sys, pyarrow as pa
from metastore_client.testing import InMemoryMetastore
from mutation_api import connect
hive = connect(InMemoryMetastore(sys.argv[1]))
hive.create_table("default.a", "id bigint", clustered_by=["id"], num_buckets=1)
hive.create_table("default.b", pa.schema({"id": pa.int64()}), clustered_by=["id"], num_buckets=1)
assert "pyspark" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


@pytest.mark.parametrize("line", ["2.3", "3.1", "4.1"])
def test_a_table_is_altered(line: str, make_hive: MakeHive) -> None:
    """Old rows have NULL or the same value, new rows the new type; a schema of Spark is one, too."""
    from pyspark.sql.types import DateType, StructField, StructType  # loads no JVM

    hive = make_hive(line, keys=())
    with hive.transaction(NAME) as tx:
        tx.table(NAME).append(pa.table({"id": [1], "item": ["a"], "price": [Decimal("1.50")]}))
        with pytest.raises(
            TransactionStateError, match="cannot be altered: a transaction or snapshot of this"
        ):
            hive.alter_table(NAME, add={"n": "int"})
    report = hive.alter_table(NAME, add={"n": "int"}, widen={"price": "decimal(20,4)"})
    assert (report.added, report.widened) == ({"n": "int"}, {"price": ("decimal(8,2)", "decimal(20,4)")})
    assert hive.alter_table(NAME, add=StructType([StructField("Day", DateType())])).added == {"day": "date"}
    rows = pa.table({"id": [2], "n": [7], "price": [Decimal("123456789.1234")], "note": ["x"]})
    added = hive.alter_table(NAME, add=rows.schema, missing_only=True).added
    assert added == {"note": "string"}
    with hive.transaction(NAME) as tx:
        tx.table(NAME).merge(rows, on=["id"]).when_not_matched_insert_all().execute()
    with hive.snapshot(NAME) as view:
        found = view.table(NAME).scan().to_arrow().sort_by("id").to_pylist()
    assert [[*row.values()] for row in found] == [
        [1, "a", Decimal("1.5000"), None, None, None],
        [2, None, Decimal("123456789.1234"), 7, None, "x"],
    ]
    with pytest.raises(TableNotFoundError):
        hive.alter_table("default.none", add={"n": "int"})
    hive.close()
    with pytest.raises(TransactionStateError, match="closed"):
        hive.alter_table(NAME, add={"m": "int"})


def test_tables_are_listed(make_hive: MakeHive) -> None:
    """With the names that all calls take, sorted; a pattern chooses some."""
    hive = make_hive()
    for name in ("b", "a1", "a2"):
        hive.create_table(f"default.{name}", "id bigint")
    assert hive.tables("Default") == ["default.a1", "default.a2", "default.b", NAME]
    assert hive.tables("default", like="A?") == ["default.a1", "default.a2"]
    assert hive.tables("default", like="*r*") == [NAME]
    hive.metastore.create_database("empty")
    assert hive.tables("empty") == []
    with pytest.raises(ConfigurationError, match=r"no database nowhere at memory:.*SHOW DATABASES"):
        hive.tables("nowhere")
    wrong: list[tuple[Any, Any]] = [("a.b", "*"), (None, "*"), ("default", None), ("", "*")]
    for database, like in wrong:
        with pytest.raises(ConfigurationError, match="not the "):
            hive.tables(database, like=like)


def test_a_table_has_a_history_and_can_be_verified(make_hive: MakeHive) -> None:
    """The handle calls the functions of the same names."""
    hive = make_hive()
    table = hive.create_table("default.t", "id bigint")
    assert "default.t: id bigint" in repr(table)
    for number in (1, 2):
        with hive.transaction("default.t") as tx:
            tx.table("default.t").append(pa.table({"id": [number] * number}))
    entries = table.history().entries
    assert [entry.partitions[""].inserts for entry in entries] == [1, 2]
    seen: list[object] = []
    report = table.verify(threads=1, progress=seen.append)
    assert (report.is_sound, report.row_count, report.file_count) == (True, 3, 2)
    assert len(seen) == 2
    hive.drop_table("default.t")
    for call in (table.history, table.verify):
        with pytest.raises(TableNotFoundError, match=r"default\.t does not exist at"):
            call()
    assert table.schema.names == ["id"]


def test_a_dropped_table_is_gone_with_its_files(make_hive: MakeHive, tmp_path: Path) -> None:
    """Neither a lock nor an open or aborted transaction is left."""
    hive = make_hive()
    hive.create_table("default.t", "id bigint")
    with hive.transaction("default.t") as tx:
        tx.table("default.t").append(pa.table({"id": [1]}))
    assert (tmp_path / "t").is_dir()
    hive.drop_table("Default.T")
    assert hive.tables("default") == [NAME]
    assert not (tmp_path / "t").exists()
    assert (hive.metastore.show_locks(), hive.metastore.get_open_txns().txns) == ([], ())
    with pytest.raises(TableNotFoundError, match=r"default\.t does not exist"):
        hive.drop_table("default.t")
    hive.drop_table("default.t", missing_ok=True)
    hive.drop_table("nowhere.t", missing_ok=True)
    with pytest.raises(TableNotFoundError, match="nowhere"):
        hive.drop_table("nowhere.t")


def test_a_table_in_use_stays(make_hive: MakeHive) -> None:
    """By this connection it is refused at once, and otherwise after the wait for the lock."""
    hive = make_hive()
    with hive.transaction(NAME) as tx:
        with pytest.raises(TransactionStateError, match="a transaction or snapshot of this connection uses"):
            hive.drop_table(NAME)
        tx.abort()
    with hive.snapshot(NAME.upper()), pytest.raises(TransactionStateError, match="End it first"):
        hive.drop_table(NAME)
    with connect(hive.metastore, lock_timeout_seconds=0.2) as other, hive.transaction(NAME) as tx:
        with pytest.raises(
            LockNotAcquiredError, match=rf"held by \w+ lock \d+ on default\.orders .*{tx.txn_id}"
        ):
            other.drop_table(NAME)
        open_txns = [txn.id for txn in hive.metastore.get_open_txns().txns if txn.state is TxnState.OPEN]
        assert open_txns == [tx.txn_id]
    assert hive.tables("default") == [NAME]
    hive.drop_table(NAME)
    assert hive.tables("default") == []


def test_the_lock_is_the_one_of_hive(make_hive: MakeHive, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exclusive one, which is held while the server drops the table."""
    hive = make_hive()
    seen = []
    drop = hive.metastore.drop_table

    def dropping(*names: str, **options: Any) -> None:
        seen.extend(hive.metastore.show_locks(*names))
        drop(*names, **options)

    monkeypatch.setattr(hive.metastore, "drop_table", dropping)
    hive.drop_table(NAME)
    assert [lock.type for lock in seen] == [LockType.EXCLUSIVE]


def test_what_must_not_be_dropped_is_refused(make_hive: MakeHive) -> None:
    """Tables that only a replication or Hive may change, and those that follow a database."""
    hive = make_hive()
    metastore = hive.metastore
    assert isinstance(metastore, InMemoryMetastore)
    metastore.set_table_parameters("default", "orders", {"hive.mutation.update.method": "changelog"})
    advice = r"run hive-mutate update disable --table default\.orders first"
    with pytest.raises(ConfigurationError, match=advice):
        hive.drop_table(NAME)
    metastore.set_table_parameters("default", "orders", {"hive.mutation.update.method": None})
    metastore.database_parameters["default"]["repl.target.for"] = "policy"
    with pytest.raises(TableNotMutableError, match="target of a replication"):
        hive.drop_table(NAME)
    metastore.database_parameters["default"].clear()
    metastore.set_table_parameters("default", "orders", {"transactional": "false"})
    with pytest.raises(TableNotMutableError, match="must be transactional"):
        hive.drop_table(NAME, missing_ok=True)
    assert hive.tables("default") == [NAME]


def test_a_server_that_fails_while_it_drops(make_hive: MakeHive) -> None:
    """The error is one of this package, and no transaction is left."""
    hive = make_hive()
    metastore = hive.metastore
    assert isinstance(metastore, InMemoryMetastore)
    metastore.fail_next("drop_table", MetastoreUnavailableError("cut"))
    with pytest.raises(ConnectionFailedError, match=r"table default\.orders could not be dropped: cut"):
        hive.drop_table(NAME)
    metastore.fail_next("commit_txn", MetastoreUnavailableError("cut"))
    hive.drop_table(NAME)
    assert hive.tables("default") == []


@pytest.mark.parametrize("line", [HIVE_2_3, HIVE_4_1], ids=["2.3", "4.1"])
def test_created_tables_can_be_used_at_once(line: Any, tmp_path: Path) -> None:
    """By all other calls of the connection."""
    hive = connect(InMemoryMetastore(tmp_path, capabilities=line))
    table = hive.create_table("default.t", "id bigint, item string", clustered_by=["id"], num_buckets=2)
    rows = pa.table({"id": [1, 2], "item": ["tea", None]}, schema=table.schema)
    with hive.transaction(table.name) as tx:
        tx.table(table.name).append(rows)
    with hive.snapshot(table.name) as view:
        assert view.table(table.name).scan().to_arrow().sort_by("id") == rows
        assert view.table(table.name).schema == table.schema


@pytest.mark.parametrize("call", ["create_table", "table", "tables", "drop_table"])
def test_a_closed_connection(call: str, make_hive: MakeHive) -> None:
    """It does nothing any more."""
    hive: Hive = make_hive()
    hive.close()
    with pytest.raises(TransactionStateError, match="the connection is closed"):
        getattr(hive, call)(*((NAME, "id bigint") if call == "create_table" else (NAME,)))
