"""Values of every kind of source: converted by their meaning, or refused with the column's name.

Never stored as what some library keeps them in.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metastore_client.model import ColumnInfo
from metastore_client.testing import HIVE_4_1, InMemoryMetastore
from mutation_api.errors import RecordLayoutError, RecordValueError
from mutation_api.format.hive_type import arrow_type, parse_hive_type
from mutation_api.hive.connect import connect
from mutation_api.hive.connection import Hive
from mutation_api.hive.hive_table import HiveTable
from mutation_api.upkeep.create_acid_table import create_acid_table

NAME = "default.t"
Way = Callable[[HiveTable, Any], object]


def _merge(table: HiveTable, rows: Any) -> None:
    table.merge(rows, on=["id"]).when_matched_update_all().when_not_matched_insert_all().execute()


def _merge_by_value(table: HiveTable, rows: Any) -> None:
    table.merge(rows, on=["v"]).when_matched_update_all().when_not_matched_insert_all().execute()


def _merge_if_there(table: HiveTable, rows: Any) -> None:
    merge = table.merge(rows, on=["id"])
    merge.when_not_matched_insert_all(pc.field("source", "v") == pc.field("source", "v")).execute()


def _apply(table: HiveTable, rows: Any) -> None:
    given = pa.RecordBatchReader.from_stream(rows).read_all()
    operations = pa.array(["insert"] * given.num_rows)
    table.apply(given.append_column("operation", operations))


WAYS: dict[str, Way] = {
    "append": HiveTable.append,
    "merge value": _merge,
    "merge key": _merge_by_value,
    "merge condition": _merge_if_there,
}


@pytest.fixture
def make_table(tmp_path: Path) -> Iterator[Callable[..., Hive]]:
    """A table with the columns id and v."""
    made = []

    def make(hive_type: str, *, keys: Any = (), bucketed_by: str = "id") -> Hive:
        metastore = InMemoryMetastore(tmp_path / str(len(made)), capabilities=HIVE_4_1)
        (tmp_path / str(len(made))).mkdir()
        columns = [ColumnInfo("id", "bigint"), *([] if keys else [ColumnInfo("v", hive_type)])]
        create_acid_table(
            metastore, NAME, columns, partitioned_by=keys, clustered_by=[bucketed_by], num_buckets=2
        )
        made.append(connect(metastore))
        return made[-1]

    yield make
    for hive in made:
        hive.close()


def stored(hive: Hive, rows: Any, way: Way = HiveTable.append) -> list[Any]:
    """The values of v that a scan reads after the rows were written."""
    with hive.transaction(NAME, create_partitions=True) as transaction:
        way(transaction.table(NAME), rows)
    with hive.snapshot(NAME) as view:
        values: list[Any] = view.table(NAME).scan().to_arrow().sort_by("id").column("v").to_pylist()
        return values


def rows_of(values: pa.Array) -> pa.Table:
    return pa.table({"id": pa.array(range(len(values)), pa.int64()), "v": values})


def texts_of(values: Any, package: Any, kind: Any) -> Any:
    return ids(package.DataFrame, package.Series(values, dtype=kind))


def ids(frame: Any, values: Any) -> Any:
    return frame({"id": list(range(len(values))), "v": values})


ONE = uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")
ONE_AND_A_HALF = [Decimal("1.50")]
MEANINGS: dict[str, tuple[str, Any, list[Any]]] = {
    "arrow.json": ("string", rows_of(pa.array(['{"a":1}', "[2]"], pa.json_())), ['{"a":1}', "[2]"]),
    "arrow.uuid": ("string", rows_of(pa.array([ONE.bytes], pa.uuid())), [str(ONE)]),
    "arrow.bool8": (
        "boolean",
        rows_of(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))),
        [True, False],
    ),
    "Categorical of Polars": (
        "string",
        texts_of(["a", "b"], pl, pl.Categorical),
        ["a", "b"],
    ),
    "Enum of Polars": ("varchar(1)", texts_of(["x"], pl, pl.Enum(["x"])), ["x"]),
    "categories of pandas": ("string", ids(pd.DataFrame, pd.Categorical(["b", "a"])), ["b", "a"]),
    "ENUM of DuckDB": ("string", duckdb.sql("SELECT 0 id, 'a'::ENUM('a', 'b') v"), ["a"]),
    "UUID of DuckDB": ("string", duckdb.sql(f"SELECT 0 id, '{ONE}'::UUID v"), [str(ONE)]),
    "HUGEINT of DuckDB": ("bigint", duckdb.sql("SELECT 0 id, 5::HUGEINT v"), [5]),
    "runs": ("string", rows_of(pa.RunEndEncodedArray.from_arrays([1, 2], ["x", "y"])), ["x", "y"]),
    "runs of numbers": ("bigint", rows_of(pa.RunEndEncodedArray.from_arrays([1, 2], [7, 8])), [7, 8]),
    "string_view": ("string", rows_of(pa.array(["a", "b"], pa.string_view())), ["a", "b"]),
    "binary_view": ("binary", rows_of(pa.array([b"a"], pa.binary_view())), [b"a"]),
    "large_string": ("char(3)", rows_of(pa.array(["a"], pa.large_string())), ["a"]),
    "dictionary of views": (
        "string",
        rows_of(pa.DictionaryArray.from_arrays([1, 0], pa.array(["a", "b"], pa.string_view()))),
        ["b", "a"],
    ),
    "decimal32": ("decimal(8,2)", rows_of(pa.array([Decimal("1.5")], pa.decimal32(3, 1))), ONE_AND_A_HALF),
    "decimal64": ("decimal(8,2)", rows_of(pa.array([Decimal("1.5")], pa.decimal64(3, 1))), ONE_AND_A_HALF),
    "decimal256": (
        "decimal(8,2)",
        rows_of(pa.array([Decimal("1.5")], pa.decimal256(60, 1))),
        [Decimal("1.50")],
    ),
    "halffloat": ("double", rows_of(pa.array([1.5], pa.float16())), [1.5]),
    "uint64": ("decimal(20,0)", rows_of(pa.array([2**64 - 1], pa.uint64())), [Decimal(2**64 - 1)]),
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MEANINGS)
def test_values_are_what_they_mean(make_table: Callable[..., Hive], name: str, way: str) -> None:
    """Whatever their encoding, in every way in."""
    hive_type, rows, expected = MEANINGS[name]
    assert stored(make_table(hive_type), rows, WAYS[way]) == expected


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MEANINGS if MEANINGS[name][0] not in ("double", "binary")])
def test_buckets_and_partitions_take_the_same_values(make_table: Callable[..., Hive], name: str) -> None:
    """A bucket column and a partition column convert as any other."""
    hive_type, rows, expected = MEANINGS[name]
    given = pa.RecordBatchReader.from_stream(rows).read_all()
    assert stored(make_table(hive_type, bucketed_by="v"), given) == expected
    assert stored(make_table(hive_type, keys=[ColumnInfo("v", hive_type)]), given) == expected


class Thing:
    """What Polars can only point to."""


REFUSED: dict[str, tuple[Any, list[str]]] = {
    "Period of pandas": (
        ids(pd.DataFrame, [pd.Period("2024-01", "M")]),
        ["string", "bigint", "date"],
    ),
    "Interval of pandas": (
        ids(pd.DataFrame, pd.arrays.IntervalArray.from_breaks([0, 1])),
        ["string", "struct<left:bigint,right:bigint>"],
    ),
    "Object of Polars": (ids(pl.DataFrame, pl.Series([Thing()], dtype=pl.Object)), ["binary", "string"]),
    "Int128 of Polars": (ids(pl.DataFrame, pl.Series([5], dtype=pl.Int128)), ["bigint", "decimal(38,0)"]),
    "BIGNUM of DuckDB": (duckdb.sql("SELECT 0 id, 5::BIGNUM v"), ["binary", "bigint"]),
    "UHUGEINT of DuckDB": (
        duckdb.sql("SELECT 0 id, 340282366920938463463374607431768211455::UHUGEINT v"),
        ["decimal(38,0)", "bigint"],
    ),
    "BIT of DuckDB": (duckdb.sql("SELECT 0 id, '101'::BIT v"), ["binary", "string"]),
    "BIT in a struct of DuckDB": (duckdb.sql("SELECT 0 id, {'size': '101'::BIT} v"), ["struct<size:binary>"]),
    "BIT in an array of DuckDB": (duckdb.sql("SELECT 0 id, ['101'::BIT]::BIT[1] v"), ["array<binary>"]),
    "BIT in a list of DuckDB": (duckdb.sql("SELECT 0 id, ['101'::BIT] v"), ["array<binary>"]),
    "TIMETZ of DuckDB": (duckdb.sql("SELECT 0 id, '10:00:00+01'::TIMETZ v"), ["bigint", "string"]),
    "arrow.opaque": (
        rows_of(pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "money", "x"), pa.array([1]))),
        ["bigint"],
    ),
    "tensor": (
        rows_of(
            pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2]], pa.list_(pa.int32(), 2))
            )
        ),
        ["array<int>"],
    ),
    "uuid as bytes": (rows_of(pa.array([ONE.bytes], pa.uuid())), ["binary"]),
    "a time": (rows_of(pa.array([5], pa.time64("us"))), ["bigint", "string", "timestamp"]),
    "a duration": (rows_of(pa.array([5], pa.duration("us"))), ["bigint", "string"]),
    "an interval": (rows_of(pa.array([(1, 2, 3)], pa.month_day_nano_interval())), ["string"]),
}


@pytest.mark.thorough(1)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", REFUSED)
def test_other_values_are_refused_with_their_column(
    make_table: Callable[..., Hive], name: str, way: str
) -> None:
    """Nothing is written."""
    rows, hive_types = REFUSED[name]
    for hive_type in hive_types:
        hive = make_table(hive_type)
        with pytest.raises(RecordLayoutError, match=r"table default\.t: .*\bv\b"):
            stored(hive, rows, WAYS[way])
        with hive.snapshot(NAME) as view:
            assert view.table(NAME).scan().count() == 0


def test_a_type_that_only_metadata_name(make_table: Callable[..., Hive]) -> None:
    """An extension type that is not registered comes as its storage."""
    field = pa.field("v", pa.binary(), metadata={b"ARROW:extension:name": b"geoarrow.wkb"})
    rows = pa.table([pa.array([0]), pa.array([b"x"])], schema=pa.schema([pa.field("id", pa.int64()), field]))
    for way in WAYS.values():
        with pytest.raises(RecordLayoutError, match=r"\bv\b.*extension<geoarrow\.wkb>"):
            stored(make_table("binary"), rows, way)


def test_a_delete_does_not_read_such_columns(make_table: Callable[..., Hive]) -> None:
    """Only ROW__ID counts."""
    hive = make_table("string")
    stored(hive, rows_of(pa.array(["a", "b"])))
    with hive.transaction(NAME) as transaction:
        table = transaction.table(NAME)
        rows = table.scan(["id"], row_ids=True, where=pc.field("id") == 0).to_arrow()
        opaque = pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "money", "x"), pa.array([1]))
        assert table.delete(rows.append_column("v", opaque)) == 1
    with hive.snapshot(NAME) as view:
        assert view.table(NAME).scan(["v"]).to_arrow().to_pydict() == {"v": ["b"]}


def test_updates_and_applied_changes(make_table: Callable[..., Hive]) -> None:
    """They take the same values and refuse the same."""
    for name in ("arrow.uuid", "Enum of Polars", "dictionary of views"):
        hive_type, rows, expected = MEANINGS[name]
        hive = make_table(hive_type)
        assert stored(hive, rows, _apply) == expected
        given = pa.RecordBatchReader.from_stream(rows).read_all()
        with hive.transaction(NAME) as transaction:
            table = transaction.table(NAME)
            found = table.scan(["id"], row_ids=True).to_arrow().sort_by("id")
            values = given.column("v").take(list(range(len(given)))[::-1]) if name == "arrow.uuid" else None
            new = given.column("v") if values is None else values
            assert table.update(found.append_column("v", new)) == len(expected)
    hive = make_table("bigint")
    opaque = rows_of(pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "money", "x"), pa.array([1])))
    with pytest.raises(RecordLayoutError, match="money"):
        stored(hive, opaque, _apply)


KEY_TWICE = pa.array([[("a", 1)], [("b", 1), ("b", 2)]], pa.map_(pa.string(), pa.int32()))
PAIRS = pa.array([[{"value": "V", "key": "K"}]])


@pytest.mark.parametrize("way", ["append", "merge value", "merge condition"])
def test_nested_values(make_table: Callable[..., Hive], way: str) -> None:
    """Maps have each key once, pairs are found by name, structs are complete."""
    write = WAYS[way] if way != "merge condition" else _apply
    assert stored(make_table("map<string,string>"), rows_of(PAIRS), write) == [[("K", "V")]]
    with pytest.raises(RecordValueError, match=r"default\.t.*'v'.*key: value 'b' is a duplicate key"):
        stored(make_table("map<string,int>"), rows_of(KEY_TWICE), write)
    with pytest.raises(RecordLayoutError, match=r"\bv\b.*lack fields of the struct: \['b'\]"):
        stored(make_table("struct<a:int,b:int>"), rows_of(pa.array([{"a": 1}])), write)
    given = rows_of(pa.array([[{"b": 2, "a": 1}]]))
    assert stored(make_table("array<struct<a:int,b:int>>"), given, write) == [[{"a": 1, "b": 2}]]


BIG = 2**53 + 1
EXACT: dict[str, list[Any]] = {
    "bigint": [BIG, None],
    "decimal(38,2)": [Decimal("123456789012345678901234567890123456.78"), None],
    "date": [datetime.date(9999, 12, 31), None],
    "timestamp": [datetime.datetime(9999, 12, 31, 1, 2, 3, 4), datetime.datetime(1, 1, 1)],
    "array<bigint>": [[BIG, None], None],
    "map<string,bigint>": [[("k", BIG), ("n", None)], None],
    "struct<x:bigint,y:array<date>>": [{"x": BIG, "y": [datetime.date(1, 1, 1)]}, None],
    "boolean": [True, None],
    "binary": [b"\xff", None],
    "float": [0.5, None],
}


@pytest.mark.thorough(1)
@pytest.mark.parametrize("hive_type", EXACT)
def test_what_pandas_gets_it_gives_back(make_table: Callable[..., Hive], hive_type: str) -> None:
    """Rows that are read as a DataFrame and given to an update stay as they were."""
    hive = make_table(hive_type)
    kind = arrow_type(parse_hive_type(hive_type), timestamp_unit="us")
    values = EXACT[hive_type]
    given = pa.table({"id": [BIG, 2], "v": pa.array(values, kind)})
    with hive.transaction(NAME) as transaction:
        transaction.table(NAME).append(given)
    with hive.transaction(NAME) as transaction:
        table = transaction.table(NAME)
        frame = table.scan(row_ids=True).to_pandas()
        assert table.update(frame) == 2
    with hive.snapshot(NAME) as view:
        assert view.table(NAME).scan().to_arrow().sort_by("id")["v"].to_pylist() == values[::-1]
        assert sorted(view.table(NAME).scan().to_arrow()["id"].to_pylist()) == [2, BIG]


@pytest.mark.parametrize("hive_type", ["bigint", "decimal(20,0)"])
def test_doubles_that_pandas_made_of_whole_numbers(make_table: Callable[..., Hive], hive_type: str) -> None:
    """2**53 + 1 beside a NULL became 2**53 in numpy's types: refused, since it fits the column."""
    hive = make_table(hive_type)
    frame = pd.DataFrame({"id": [1, 2], "v": [float(BIG), None]})
    for way in ("append", "merge value"):
        with pytest.raises(RecordValueError, match=r"'v' .*9007199254740992.0 may be a rounded number"):
            stored(hive, frame, WAYS[way])
    assert stored(hive, frame.assign(v=[2.0**53 - 1, None])) == [2**53 - 1, None]


@pytest.mark.thorough(1)
@pytest.mark.parametrize("way", ["append", "merge value"])
def test_dicts_of_pandas_have_the_same_keys(make_table: Callable[..., Hive], way: str) -> None:
    """Arrow would fill what one lacks with NULL, in lists, too."""
    whole = {"a": 1, "b": {"c": 2, "d": 3}}
    cases = {
        "struct<a:int,b:struct<c:int,d:int>>": [whole, {"a": 1, "b": {"c": 2}}],
        "array<struct<a:int,b:struct<c:int,d:int>>>": [[whole], [whole, {"b": whole["b"]}]],
    }
    for hive_type, values in cases.items():
        with pytest.raises(RecordValueError, match=r"default\.t: .*'v': row 1 has a dict without '(a|d)'"):
            stored(make_table(hive_type), ids(pd.DataFrame, values), WAYS[way])
        assert stored(make_table(hive_type), ids(pd.DataFrame, values[:1]), WAYS[way]) == values[:1]
        assert stored(make_table(hive_type), ids(pd.DataFrame, [*values[:1], None]), WAYS[way])[1] is None


def test_a_hugeint_of_39_digits_is_refused(make_table: Callable[..., Hive]) -> None:
    """DuckDB puts it into a decimal of 38 digits."""
    rows = duckdb.sql("SELECT 0 id, 170141183460469231731687303715884105727::HUGEINT v")
    for hive_type in ("decimal(38,0)", "bigint", "decimal(38,10)"):
        for way in ("append", "merge value"):
            with pytest.raises(RecordValueError, match=r"'v'.*17014118346"):
                stored(make_table(hive_type), rows, WAYS[way])


def test_an_array_that_is_not_sound_is_refused(tmp_path: Path) -> None:
    """Of a slice pyarrow itself makes such a one in its C interface, and says that it is valid."""
    lists = pa.FixedSizeListArray.from_arrays(pa.nulls(4), 1).slice(1)
    frame = pa.table({"id": [1, 2, 3], "v": lists}).to_pandas(types_mapper=pd.ArrowDtype)
    metastore = InMemoryMetastore(tmp_path, capabilities=HIVE_4_1)
    create_acid_table(metastore, "default.lists", [ColumnInfo("id", "bigint"), ColumnInfo("v", "array<int>")])
    with connect(metastore) as hive, hive.transaction("default.lists") as tx:
        try:
            tx.table("default.lists").append(frame)
        except RecordLayoutError as error:
            assert "malformed" in str(error)
            return
    with connect(metastore) as hive, hive.snapshot("default.lists") as view:
        assert view.table("default.lists").scan().to_arrow()["v"].to_pylist() == [[None]] * 3
