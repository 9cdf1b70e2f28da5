"""diff: the changes between two states of a table, applied in plain Python, give the second state.

Both engines find the same changes.
"""

from __future__ import annotations

import dataclasses
import datetime
import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mutation_api.errors import (
    ConfigurationError,
    DuplicateKeyError,
    RecordLayoutError,
    RecordValueError,
    TableNotMutableError,
    UnsupportedLocallyError,
)
from mutation_api.format.layout import AcidVersion
from mutation_api.merge import local_diff as local
from mutation_api.merge import spark_diff as by_spark
from mutation_api.merge.differences import OPERATIONS
from mutation_api.merge.evaluator import target_types
from mutation_api.storage.location import Location
from mutation_api.table.acid_table import AcidColumn, AcidTable
from mutation_api.write.local_plan import LocalOptions

TABLE = AcidTable(
    database="default",
    name="t",
    location=Location.parse("/warehouse/t"),
    columns=(
        AcidColumn("id", "int"),
        AcidColumn("sub", "string"),
        AcidColumn("price", "decimal(6,2)"),
        AcidColumn("tags", "map<string,int>"),
        AcidColumn("ratio", "double"),
    ),
    partition_keys=(AcidColumn("ds", "string"),),
    num_buckets=4,
    bucket_columns=("price",),
    version=AcidVersion.V1_LEGACY,
)
TYPES = {
    "id": pa.int32(),
    "sub": pa.string(),
    "price": pa.decimal128(6, 2),
    "tags": pa.map_(pa.string(), pa.int32()),
    "ratio": pa.float64(),
    "ds": pa.string(),
}
ROW_ID = pa.struct(
    [
        ("transactionid", pa.int64()),
        ("bucketid", pa.int32()),
        ("rowid", pa.int64()),
        ("partition", pa.string()),
    ]
)
NEW_TYPES = {**TYPES, "id": pa.int64(), "price": pa.decimal128(9, 3)}
NEW_NAMES = {"ratio": "RATIO", "id": "Id"}

Row = tuple[Any, ...]
Diff = Callable[..., pa.Table]
"""The changes from one state to another: both states, key; operation_column, table."""
NAN = float("nan")


def diff_by_spark(
    spark: SparkSession,
    old: pa.Table,
    new: pa.Table,
    key: list[str],
    operation_column: str = "operation",
    table: AcidTable = TABLE,
) -> pa.Table:
    """Spark's, in the order in which they would be saved."""
    states = (spark.createDataFrame(old), spark.createDataFrame(new))
    changes = by_spark.diff(table, *states, key, operation_column=operation_column)
    try:
        counts = by_spark.count_operations(changes, operation_column)
        found: pa.Table = changes.orderBy(*key, operation_column).toArrow()
    finally:
        changes.unpersist()
    assert counts == local.count_operations(found, operation_column)
    return found


def diff_by_local(
    old: pa.Table,
    new: pa.Table,
    key: list[str],
    operation_column: str = "operation",
    table: AcidTable = TABLE,
) -> pa.Table:
    """The local engine's."""
    readers = (each.to_reader(max_chunksize=3) for each in (old, new))
    return local.local_diff(table, *readers, key, operation_column=operation_column)


@pytest.fixture(params=[pytest.param("spark", marks=pytest.mark.slow), "local"])
def diff(request: pytest.FixtureRequest) -> Diff:
    """Both engines."""
    if request.param == "local":
        return diff_by_local
    spark = request.getfixturevalue("spark")
    return lambda *given, **options: diff_by_spark(spark, *given, **options)


def values(rows: list[Row], number: int, kind: pa.DataType) -> pa.Array:
    """A column of the rows."""
    found = [row[number] for row in rows]
    is_map = pa.types.is_map(kind)
    return pa.array([list(v.items()) if is_map and v is not None else v for v in found], kind)


def old_state(rows: list[Row]) -> pa.Table:
    """A snapshot of these rows; row n has the row id n."""
    ids = [
        {"transactionid": 7, "bucketid": n % 4, "rowid": n, "partition": f"ds={row[-1]}"}
        for n, row in enumerate(rows)
    ]
    columns = {name: values(rows, at, kind) for at, (name, kind) in enumerate(TYPES.items())}
    return pa.table({"ROW__ID": pa.array(ids, ROW_ID), **columns})


def new_state(rows: list[Row]) -> pa.Table:
    """The rows in another order of columns, of wider types, with a meaningless ROW__ID."""
    columns = {
        NEW_NAMES.get(name, name): values(rows, at, kind) for at, (name, kind) in enumerate(NEW_TYPES.items())
    }
    return pa.table({**dict(reversed(columns.items())), "ROW__ID": pa.array(["?"] * len(rows), pa.string())})


def rows_of(changes: pa.Table) -> list[Row]:
    """The changes as tuples."""
    return [tuple(row.values()) for row in changes.to_pylist(maps_as_pydicts="strict")]


def applied(rows: list[Row], changes: list[Row]) -> list[Row]:
    """The rows after the changes; each row may be changed once, and an update may not move it."""
    state = dict(enumerate(rows))
    met: set[int] = set()
    inserted = []
    for operation, row_id, *values in changes:
        if operation == "insert":
            assert row_id is None
            inserted.append(tuple(values))
            continue
        number = row_id["rowid"]
        assert number not in met, "a row is changed twice"
        met.add(number)
        before = state.pop(number)
        if operation == "delete":
            assert repr(tuple(values)) == repr(before)
        else:
            assert operation == "update"
            assert (values[2], values[5]) == (before[2], before[5]), "an update moves a row"
            assert repr(tuple(values)) != repr(before), "an update changes nothing"
            inserted.append(tuple(values))
    return [*state.values(), *inserted]


def some_rows(dice: random.Random) -> list[Row]:
    """Rows of few keys, NULLs among them, and few values."""
    keys = dice.sample([(n, sub) for n in (None, 1, 2, 3, 4) for sub in (None, "", "a")], dice.randint(0, 12))
    return [
        (
            *key,
            dice.choice([None, Decimal("1.50"), Decimal("2.00")]),
            dice.choice([None, {}, {"x": 1}, {"x": 1, "y": None}]),
            dice.choice([None, 0.5, NAN]),
            dice.choice(["u", "v"]),
        )
        for key in keys
    ]


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_the_changes_lead_from_one_state_to_the_other(diff: Diff, seed: int) -> None:
    """Random states: applied to the first, the changes give the second, and touch no row without need."""
    dice = random.Random(seed)
    old, new = some_rows(dice), some_rows(dice)
    new = [
        dice.choice([row for row in old if row[:2] == each[:2]] or [each]) if dice.random() < 0.4 else each
        for each in new
    ]
    changes = diff(old_state(old), new_state(new), ["ID", "sub"])
    assert changes.column_names == ["operation", "ROW__ID", "id", "sub", "price", "tags", "ratio", "ds"]
    found = rows_of(changes)
    counts = local.count_operations(changes)
    assert tuple(counts) == OPERATIONS == ("insert", "update", "delete")
    assert Counter(counts) == Counter(operation for operation, *_ in found)
    assert sorted(map(repr, applied(old, found))) == sorted(map(repr, new))
    assert len(found) <= 2 * len(set(map(repr, old)) ^ set(map(repr, new)))
    assert not diff(old_state(new), new_state(new), ["id", "sub"]).num_rows


def test_values_are_compared_as_they_would_be_stored(diff: Diff) -> None:
    """A value rounded to the stored one is not a change; one that does not fit is reported with its key."""
    old = old_state([(1, "a", Decimal("1.50"), None, 0.0, "u")])
    rounded = new_state([(1, "a", Decimal("1.501"), None, -0.0, "u")])
    assert not diff(old, rounded, ["id"]).num_rows
    too_big = new_state([(1, "a", Decimal("99999.5"), None, 0.0, "u")])
    with pytest.raises(RecordValueError, match=r'row \{"id":1\}: column .price.'):
        diff(old, too_big, ["id"])


@pytest.mark.long
def test_keys_that_occur_twice_are_named(diff: Diff) -> None:
    """In the table or in the other state; NULL counts as a key like others."""
    once = [(1, "a", None, None, None, "u"), (None, "b", None, None, None, "u")]
    twice = [*once, (None, "c", None, None, None, "v")]
    with pytest.raises(DuplicateKeyError) as caught:
        diff(old_state(twice), new_state(once), ["id"])
    assert str(caught.value) == (
        'table default.t: the key id is not unique in the table: {"id":null} in 2 rows. Choose a unique key, '
        "or keep one row per key"
    )
    with pytest.raises(DuplicateKeyError, match=r"not unique in the new state: .* in 2 rows"):
        diff(old_state(once), new_state(twice), ["id"])


def test_what_cannot_be_compared_is_refused(diff: Diff) -> None:
    """Unknown or doubled keys, maps as keys, an operation named like a column, other columns, no ROW__ID."""
    old, new = old_state([]), new_state([])
    for keys in ([], ["nix"], ["id", "ID"]):
        with pytest.raises(ConfigurationError, match=r"invalid key .*: name at least one column"):
            diff(old, new, keys)
    with pytest.raises(ConfigurationError, match="a map column cannot be a key: tags"):
        diff(old, new, ["tags"])
    with pytest.raises(
        ConfigurationError, match=r"already has a column 'Sub'. Choose another name for the operation column"
    ):
        diff(old, new, ["id"], operation_column="Sub")
    renamed = new.rename_columns(["more" if name == "sub" else name for name in new.column_names])
    for other in (new.drop_columns(["RATIO"]), renamed):
        with pytest.raises(
            RecordLayoutError, match=r"the columns of the new state differ from the table's: got .*, expected"
        ):
            diff(old, other, ["id"])
    insert_only = dataclasses.replace(TABLE, version=AcidVersion.INSERT_ONLY_HIVE4)
    with pytest.raises(RecordLayoutError, match="insert-only: its rows have no ROW__ID"):
        diff(old.drop_columns(["ROW__ID"]), new, ["id"], table=insert_only)


SORTED_KEYS = {
    "boolean": [True, False],
    "tinyint": [0, -128, 127],
    "bigint": [0, -(2**62), 2**62],
    "float": [0.0, -0.0, NAN, 1.5, -float("inf"), float("inf")],
    "double": [-0.0, NAN, 1e300, -1.5],
    "decimal(5,2)": [Decimal("0.00"), Decimal("-1.50"), Decimal("999.99")],
    "decimal(38,10)": [Decimal(0), Decimal("-1.5"), Decimal(10**27)],
    "string": ["", "a", "B", "é", "\U0001f600", "\uffff", "a "],
    "char(3)": ["a  ", "b  "],
    "date": [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 12, 31)],
    "timestamp": [datetime.datetime(1500, 1, 1), datetime.datetime(2024, 2, 29, 1, 2, 3, 456)],
    "binary": [b"", b"\xff", b"a"],
}


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", SORTED_KEYS)
def test_both_engines_pair_and_sort_alike(spark: SparkSession, kind: str) -> None:
    """Keys of each type, NULL among them; one column moves rows, so that two changes share a key."""
    table = dataclasses.replace(
        TABLE,
        columns=(AcidColumn("k", kind), AcidColumn("n", "int")),
        partition_keys=(AcidColumn("ds", "string"),),
        bucket_columns=(),
    )
    arrow = target_types(table)["k"]
    dice = random.Random(kind)
    for _ in range(3):
        states = []
        for _ in range(2):
            keys = [None, *SORTED_KEYS[kind]]
            chosen = dice.sample(keys, dice.randint(2, len(keys)))
            if 0.0 in chosen and kind == "float" and str(chosen).count("0.0") > 1:
                chosen.remove(0.0)  # equal to -0.0
            columns = {
                "k": pa.array(chosen, arrow),
                "n": pa.array([dice.randint(1, 2) for _ in chosen], pa.int32()),
                "ds": pa.array([dice.choice("uv") for _ in chosen], pa.string()),
            }
            states.append(pa.table(columns))
        old, new = states
        ids = [
            {"transactionid": 1, "bucketid": 0, "rowid": n, "partition": "ds=u"} for n in range(old.num_rows)
        ]
        old = old.add_column(0, "ROW__ID", pa.array(ids, ROW_ID))
        expected = diff_by_spark(spark, old, new, ["k"], table=table)
        assert repr(rows_of(diff_by_local(old, new, ["k"], table=table))) == repr(rows_of(expected))


def test_what_the_local_engine_leaves_to_spark() -> None:
    """Nested keys, instants, more memory than allowed; unions are for neither."""
    old, new = old_state([]), new_state([])
    nested = dataclasses.replace(TABLE, columns=(*TABLE.columns, AcidColumn("xs", "array<int>")))
    more = (each.append_column("xs", pa.array([], pa.list_(pa.int32()))) for each in (old, new))
    with pytest.raises(UnsupportedLocallyError, match=r"only Spark can compare nested key columns: xs list"):
        diff_by_local(*more, ["xs"], table=nested)
    clocks = dataclasses.replace(TABLE, columns=(*TABLE.columns, AcidColumn("at", "timestamp")))
    instants = new.append_column("at", pa.array([], pa.timestamp("us", "UTC")))
    with pytest.raises(
        UnsupportedLocallyError, match="columns of the new state hold timestamps with time zone: at"
    ):
        diff_by_local(old, instants, ["id"], table=clocks)
    unions = dataclasses.replace(TABLE, columns=(*TABLE.columns, AcidColumn("u", "uniontype<int,string>")))
    with pytest.raises(TableNotMutableError, match="unions cannot be compared: u uniontype"):
        diff_by_local(old, new.append_column("u", pa.array([], pa.int32())), ["id"], table=unions)
    many = [(n, "x" * 100, None, None, None, "u") for n in range(10_000)]
    with pytest.raises(
        UnsupportedLocallyError, match=r"both states and their changes would need more than the 1,048"
    ):
        local.local_diff(
            TABLE,
            old_state(many).to_reader(),
            new.to_reader(),
            ["id"],
            local=LocalOptions(memory_bytes=1 << 20),
        )
